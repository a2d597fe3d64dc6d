package desired

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

func rolloutOf(name, sites, has string, images ...string) *v1alpha1.RolloutStateSpec {
	o := v1alpha1.RolloutObject{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
	for _, image := range images {
		o.Contents = append(o.Contents, runtime.RawExtension{Raw: []byte(fmt.Sprintf(`{"spec":{"containers":[{"name":"a","image":%q}]}}`, image))})
	}
	return &v1alpha1.RolloutStateSpec{Held: true, Objects: []v1alpha1.RolloutObject{o}, Sites: sites, Has: has}
}

// On 3,000 sites a step of a rollout renders the sites that it moves, and makes one state
// for all of them.
func TestAStepOfARolloutTouchesItsSites(t *testing.T) {
	s := shop(t, 6000)
	s.put(t, "apps", "Deployment", deployment("web", "web:1", ""))
	s.put(t, "apps", "Deployment", deployment("other", "other:1", ""))
	s.Start()
	told := map[fleet.SiteID]int{}
	defer s.Subscribe(func(id fleet.SiteID) { told[id]++ })()
	digest := func() string { return s.State(siteNamed("s-0000")).Revision }
	before := digest()

	s.SetRollout("acme-shop", "r", 1, rolloutOf("web", "", "", "web:1", "web:2"), false)
	s.put(t, "apps", "Deployment", deployment("web", "web:2", "muster.dev/rollout: r"))
	s.renderWorkloads()
	if len(told) != 0 || digest() != before {
		t.Fatalf("%d sites were told as the rollout began", len(told))
	}
	var names []string
	for i := 0; i < 60; i += 2 {
		names = append(names, fmt.Sprintf("s-%04d", i))
	}
	rendered, states := testutil.ToFloat64(s.rendered), s.Stats().States
	s.SetRollout("acme-shop", "r", 2, rolloutOf("web", strings.Join(names, " "), strings.Repeat("1", len(names)), "web:1", "web:2"), false)
	s.renderWorkloads()
	if n := testutil.ToFloat64(s.rendered) - rendered; int(n) != len(names) || len(told) != len(names) || s.Stats().States != states+1 {
		t.Errorf("%v renders, %d sites told, %d more states for %d sites that moved", n, len(told), s.Stats().States-states, len(names))
	}
	if name, version := s.RolloutOf("Deployment.apps/acme-shop/web"); name != "r" || version != 2 {
		t.Errorf("rendered under %q at version %d", name, version)
	}
	if name, _ := s.RolloutOf("Deployment.apps/acme-shop/other"); name != "" {
		t.Errorf("another object is rendered under %q", name)
	}
	p, ok := s.Placed("Deployment.apps/acme-shop/web")
	if !ok || len(p.Digests) != 3000 || p.Digests[siteNamed("s-0000")] == p.Digests[siteNamed("s-0100")] {
		t.Errorf("placed: %d sites, %v", len(p.Digests), ok)
	}
	if len(p.Held) != 2970 || p.Held[siteNamed("s-0000")] || !p.Held[siteNamed("s-0100")] || p.Over {
		t.Errorf("%d sites are held, over: %v", len(p.Held), p.Over)
	}
	tenants := 0
	s.SubscribeWorkloads(func(string) { tenants++ })
	s.SetRollout("acme-shop", "r", 3, rolloutOf("web", strings.Join(names, " "), strings.Repeat("0", len(names)), "web:1", "web:2"), true)
	s.renderWorkloads()
	if p, _ := s.Placed("Deployment.apps/acme-shop/web"); len(p.Held) != 3000 || !p.Over || tenants == 0 {
		t.Errorf("as it has ended, all put back: %d sites are held, over: %v, told: %d", len(p.Held), p.Over, tenants)
	}
	for _, site := range []string{"s-0000", "s-0100"} {
		image := `"image":"web:1"`
		if site == "s-0000" {
			image = `"image":"web:2"`
		}
		if b, _ := s.Blob(p.Digests[siteNamed(site)]); !strings.Contains(string(b), image) {
			t.Errorf("%s has %s, want %s", site, b, image)
		}
	}
}

// A collection policy under a rollout: a site that moved has the new one, the others keep
// their blob.
func TestAPolicyGoesSiteBySite(t *testing.T) {
	s := newStore(t)
	spec := func(names string) runtime.RawExtension {
		return runtime.RawExtension{Raw: []byte(`{"spec":{"allow":{"names":[` + names + `]}}}`)}
	}
	state := func(has string) *v1alpha1.RolloutState {
		return &v1alpha1.RolloutState{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "r"}, Spec: v1alpha1.RolloutStateSpec{Held: true, Sites: "lyon nice", Has: has,
			Objects: []v1alpha1.RolloutObject{{APIVersion: "muster.dev/v1alpha1", Kind: "CollectionPolicy", Name: "p", Contents: []runtime.RawExtension{spec(`"up"`), spec(`"up","extra"`)}}}}}
	}
	policy := &v1alpha1.CollectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "p", Generation: 1}, Spec: allow("up")}
	s.book.Put(siteObject(siteNamed("lyon"), nil, ""), siteObject(siteNamed("nice"), nil, ""), policy)
	s.apply()
	s.Start()
	before := s.PolicyHash(siteNamed("nice"))
	policy = policy.DeepCopy()
	policy.Generation, policy.Annotations, policy.Spec = 2, map[string]string{v1alpha1.AnnotationRollout: "r"}, allow("up", "extra")
	s.book.Put(policy)
	s.apply()
	s.book.Put(state("00"))
	s.apply()
	if lyon, nice := s.PolicyHash(siteNamed("lyon")), s.PolicyHash(siteNamed("nice")); lyon != before || nice != before || s.PolicyGenerations("acme")["p"] != 2 {
		t.Errorf("as it begins: %s, %s, want %s; generations %v", lyon, nice, before, s.PolicyGenerations("acme"))
	}
	s.book.Put(state("01"))
	s.apply()
	if got := policyOf(t, s, "nice").AllowNames; len(got) != 2 || s.PolicyHash(siteNamed("lyon")) != before {
		t.Errorf("with one moved: %v", got)
	}
}

// After a restart nothing moves: what is under a rollout is carried once its state is
// known, which is before anything is rendered.
func TestUnknownRolloutsAreAskedFor(t *testing.T) {
	s := shop(t, 4)
	s.put(t, "apps", "Deployment", deployment("web", "web:2", "muster.dev/rollout: r"))
	s.put(t, "apps", "Deployment", deployment("gone", "gone:2", "muster.dev/rollout: g"))
	if got := fmt.Sprint(s.UnknownRollouts()); got != "map[acme-shop:[g r]]" {
		t.Fatalf("unknown: %s", got)
	}
	if n := s.Stats().Objects; n != 0 {
		t.Errorf("%d objects are carried", n)
	}
	s.SetRollout("acme-shop", "r", 1, rolloutOf("web", "s-0000", "1", "web:1", "web:2"), false)
	s.NoRollout("acme-shop", "g")
	s.SetRollout("acme-none", "r", 1, rolloutOf("web", "", "", "web:1"), false) // no virtual Kubernetes
	if got := s.UnknownRollouts(); len(got) != 0 || s.Stats().Objects != 2 {
		t.Errorf("unknown: %v, %d objects", got, s.Stats().Objects)
	}
	s.Start()
	p, _ := s.Placed("Deployment.apps/acme-shop/web")
	if b, _ := s.Blob(p.Digests[siteNamed("s-0002")]); !strings.Contains(string(b), "web:1") {
		t.Errorf("a site that the rollout did not reach: %s", b)
	}
	s.DeleteRollout("acme-shop", "r")
	s.renderWorkloads()
	p, _ = s.Placed("Deployment.apps/acme-shop/web")
	if b, _ := s.Blob(p.Digests[siteNamed("s-0002")]); !strings.Contains(string(b), "web:2") {
		t.Errorf("once the state is gone: %s", b)
	}
}
