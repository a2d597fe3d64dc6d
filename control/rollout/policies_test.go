package rollout_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/testkit"
)

// policyWorld is one whose rollouts are of policies.
func policyWorld(t *testing.T, tenant string) *world {
	w := newWorld(t, tenant)
	w.space = tenant + "-system"
	return w
}

// change makes a Rollout of a policy's spec.
func (w *world) change(name, kind, object, spec string) {
	w.t.Helper()
	w.create(&v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.in()}, Spec: v1alpha1.RolloutSpec{
		Changes: []v1alpha1.RolloutChange{{APIVersion: "muster.dev/v1alpha1", Kind: kind, Name: object, Content: &runtime.RawExtension{Raw: []byte(`{"spec":` + spec + `}`)}}}, RolloutPlan: quick()}})
}

// spec is what a policy says now.
func (w *world) spec(o client.Object, name string) string {
	w.t.Helper()
	if err := w.client.Get(context.Background(), client.ObjectKey{Namespace: w.in(), Name: name}, o); err != nil {
		w.t.Fatal(err)
	}
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		w.t.Fatal(err)
	}
	b, _ := json.Marshal(u["spec"])
	return string(b)
}

// Policies of each kind go over the sites as workloads do, started by somebody.
func TestRolloutsOfPolicies(t *testing.T) {
	w := policyWorld(t, "ro-policy")
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: w.in()} }
	signal := `{"signals":[{"name":"up","dimension":"connectivity","query":"%s","good":"1","bad":"0"}],"priority":%d}`
	var health v1alpha1.HealthPolicySpec
	if err := json.Unmarshal(fmt.Appendf(nil, signal, "up", 1), &health); err != nil {
		t.Fatal(err)
	}
	w.create(&v1alpha1.CollectionPolicy{ObjectMeta: at("less"), Spec: v1alpha1.CollectionPolicySpec{Priority: 1}},
		&v1alpha1.HealthPolicy{ObjectMeta: at("strict"), Spec: health},
		&v1alpha1.SoftwarePolicy{ObjectMeta: at("agent"), Spec: v1alpha1.SoftwarePolicySpec{Component: "agent"}})
	w.control()
	for _, c := range []struct {
		kind, name, spec string
		object           client.Object
		priority         func(client.Object) int32
	}{
		{"CollectionPolicy", "less", `{"priority":2}`, &v1alpha1.CollectionPolicy{}, func(o client.Object) int32 { return o.(*v1alpha1.CollectionPolicy).Spec.Priority }},
		{"HealthPolicy", "strict", fmt.Sprintf(signal, "up", 2), &v1alpha1.HealthPolicy{}, func(o client.Object) int32 { return o.(*v1alpha1.HealthPolicy).Spec.Priority }},
		{"SoftwarePolicy", "agent", `{"component":"agent","version":"1.4.2","priority":2}`, &v1alpha1.SoftwarePolicy{}, func(o client.Object) int32 { return o.(*v1alpha1.SoftwarePolicy).Spec.Priority }},
	} {
		release := "new-" + c.name
		w.change(release, c.kind, c.name, c.spec)
		r := w.becomes(release, v1alpha1.RolloutCompleted)
		w.ended(release, false)
		if w.spec(c.object, c.name); c.priority(c.object) != 2 || r.Status.Sites.Passed != sitesOfAWorld || len(r.Status.Waves) != 2 {
			t.Errorf("%s: %s, %+v", c.kind, w.spec(c.object, c.name), r.Status.Sites)
		}
	}
	if had := w.sitesThatHad("agent:1.4.2"); len(had) != sitesOfAWorld {
		t.Errorf("the version went to %v", had)
	}
	// A bad version stays where it began, and what was there before is written back.
	w.change("bad", "SoftwarePolicy", "agent", `{"component":"agent","version":"1.5.0-bad","priority":2}`)
	w.becomes("bad", v1alpha1.RolloutRolledBack)
	var p v1alpha1.SoftwarePolicy
	if w.spec(&p, "agent"); p.Spec.Version != "1.4.2" || len(w.sitesThatHad("agent:1.5.0-bad")) != 1 {
		t.Errorf("%s; %v had it", p.Spec.Version, w.sitesThatHad("agent:1.5.0-bad"))
	}
}

// The first version of a policy is put back to none: the sites' other slot.
func TestTheFirstVersionIsPutBackToNone(t *testing.T) {
	w := policyWorld(t, "ro-first")
	w.create(&v1alpha1.SoftwarePolicy{ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: w.in()}, Spec: v1alpha1.SoftwarePolicySpec{Component: "agent"}})
	w.control()
	w.change("first", "SoftwarePolicy", "agent", `{"component":"agent","version":"1.4.2-bad"}`)
	w.becomes("first", v1alpha1.RolloutRolledBack)
	var p v1alpha1.SoftwarePolicy
	if w.spec(&p, "agent"); p.Spec.Version != "" {
		t.Errorf("put back to %q", p.Spec.Version)
	}
}

// An ordinary write of a SoftwarePolicy becomes a rollout where a RolloutPolicy says so.
func TestAnOrdinaryWriteOfASoftwarePolicy(t *testing.T) {
	w := policyWorld(t, "ro-swwrite")
	w.create(&v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful", Namespace: w.in()}, Spec: v1alpha1.RolloutPolicySpec{Kinds: []string{"SoftwarePolicy"}, RolloutPlan: quick()}},
		&v1alpha1.SoftwarePolicy{ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: w.in()}, Spec: v1alpha1.SoftwarePolicySpec{Component: "agent", Version: "1.4.1"}})
	w.control()
	write := func(version string) string {
		t.Helper()
		p := &v1alpha1.SoftwarePolicy{ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: w.in()}}
		testkit.Eventually(t, "the write", func() error {
			if err := w.client.Patch(context.Background(), p, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"version":%q}}`, version))); err != nil {
				return err
			}
			if p.Annotations[v1alpha1.AnnotationRollout] == "" {
				return fmt.Errorf("it is under no rollout: %v", p.Annotations)
			}
			return nil
		})
		return p.Annotations[v1alpha1.AnnotationRollout]
	}
	good := write("1.4.2")
	w.becomes(good, v1alpha1.RolloutCompleted)
	w.ended(good, false)
	if had := w.sitesThatHad("agent:1.4.2"); len(had) != sitesOfAWorld {
		t.Errorf("it went to %v", had)
	}
	bad := write("1.5.0-bad")
	w.becomes(bad, v1alpha1.RolloutRolledBack)
	w.ended(bad, true)
	if had := w.sitesThatHad("agent:1.5.0-bad"); len(had) != 1 {
		t.Errorf("outside of the first wave: %v", had)
	}
}

// A person has a site try again: the Site says so, once for each time they asked.
func TestASiteTriesItsSoftwareAgain(t *testing.T) {
	w := policyWorld(t, "ro-retry")
	w.create(&v1alpha1.SoftwarePolicy{ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: w.in()}, Spec: v1alpha1.SoftwarePolicySpec{Component: "agent"}})
	w.control()
	w.change("again", "SoftwarePolicy", "agent", `{"component":"agent","version":"1.4.2"}`)
	testkit.EventuallyTrue(t, "the first site has it", func() bool { return len(w.sitesThatHad("agent:1.4.2")) > 0 })
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"control":{"paused":true,"retry":{"s3":1}}}}`))
	if err := w.client.Patch(context.Background(), &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: w.in(), Name: "again"}}, patch); err != nil {
		t.Fatal(err)
	}
	count := func() string {
		var s v1alpha1.Site
		if err := w.client.Get(context.Background(), client.ObjectKey{Namespace: w.in(), Name: "s3"}, &s); err != nil {
			t.Fatal(err)
		}
		return s.Annotations[v1alpha1.AnnotationSoftwareRetry]
	}
	testkit.EventuallyTrue(t, "the site is told", func() bool { return count() == "1" })
	if err := w.client.Patch(context.Background(), &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: w.in(), Name: "again"}}, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"control":{"paused":false}}}`))); err != nil {
		t.Fatal(err)
	}
	w.becomes("again", v1alpha1.RolloutCompleted)
	if n := count(); n != "1" {
		t.Errorf("it was counted %s times", n)
	}
}
