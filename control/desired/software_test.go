package desired

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/software"
)

// wantedOf is what a site is told of a component; nil: nothing.
func wantedOf(t *testing.T, s *tested, site, component string) *software.Wanted {
	t.Helper()
	for _, it := range s.State(siteNamed(site)).GetItems() {
		if it.Kind != software.Kind || it.Name != component {
			continue
		}
		b, ok := s.Blob(it.Digest)
		if !ok {
			t.Fatalf("no blob for %s of %s", component, site)
		}
		w, err := software.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	return nil
}

func (t *tested) softwarePolicy(name, component, version string, change ...func(*v1alpha1.SoftwarePolicy)) {
	p := &v1alpha1.SoftwarePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: name}, Spec: v1alpha1.SoftwarePolicySpec{Component: v1alpha1.SoftwareComponent(component), Version: version}}
	for _, c := range change {
		c(p)
	}
	t.gen++
	p.Generation = t.gen
	t.book.Put(p)
	t.apply()
}

func release(version, target string) v1alpha1.SoftwareVersionSpec {
	return v1alpha1.SoftwareVersionSpec{Component: "agent", Version: version, Requires: map[v1alpha1.SoftwareComponent]string{"os": "6.0.0"},
		Bundles: []v1alpha1.SoftwareBundle{{Architecture: "amd64", Target: target, Digest: strings.Repeat("a", 64), Size: 7}}}
}

func TestSoftware(t *testing.T) {
	root := []byte(`{"signed": {"version": 1}}`)
	s := test(New(Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), SoftwareRoot: func() []byte { return root }}))
	s.SetSite(siteNamed("berlin"), map[string]string{fleet.LabelTimeZone: "Europe.Berlin"})
	s.SetSite(siteNamed("lagos"), nil)
	s.Start()
	if w := wantedOf(t, s, "lagos", "agent"); w != nil {
		t.Errorf("nobody asked for it: %+v", w)
	}

	s.SetSoftwareVersion("acme", "agent-1.4.2", release("1.4.2", "agent/1.4.2/amd64"))
	s.softwarePolicy("weak", "agent", "1.4.2")
	w := wantedOf(t, s, "berlin", "agent")
	if w == nil || w.Version != "1.4.2" || w.TimeZone != "" || len(w.Files) != 1 || w.Files[0].Target != "agent/1.4.2/amd64" || w.Requires["os"] != "6.0.0" || !strings.Contains(string(w.Root), `"version":1`) {
		t.Fatalf("%+v", w)
	}
	if s.SoftwareDigest(siteNamed("berlin"), "agent") != s.SoftwareDigest(siteNamed("lagos"), "agent") {
		t.Error("two sites that shall run the same are told of it by two blobs")
	}

	// The stronger policy decides alone, and windows are by the site's own clock.
	s.softwarePolicy("strong", "agent", "1.4.3", func(p *v1alpha1.SoftwarePolicy) {
		p.Spec.Priority, p.Spec.OperatorMayDefer, p.Spec.BytesPerSecond = 5, metav1.Duration{Duration: time.Hour}, 1000
		p.Spec.Windows = []v1alpha1.RolloutWindow{{Days: []string{"Sat"}, From: "22:00", To: "04:00"}}
	})
	if w := wantedOf(t, s, "berlin", "agent"); w.Version != "1.4.3" || len(w.Files) != 0 || w.TimeZone != "Europe/Berlin" || w.DeferBy != time.Hour || w.BytesPerSecond != 1000 || len(w.Windows) != 1 || w.Windows[0].From != "22:00" {
		t.Errorf("%+v", w)
	}
	if w := wantedOf(t, s, "lagos", "agent"); w.TimeZone != "" {
		t.Errorf("a site without a zone is in %s", w.TimeZone)
	}
	// It is released, and then withdrawn.
	s.SetSoftwareVersion("acme", "agent-1.4.3", release("1.4.3", "agent/1.4.3/amd64"))
	if w := wantedOf(t, s, "berlin", "agent"); len(w.Files) != 1 || w.Withdrawn != "" {
		t.Errorf("released: %+v", w)
	}
	bad := release("1.4.3", "agent/1.4.3/amd64")
	bad.Withdrawn = "eats disks"
	s.SetSoftwareVersion("acme", "agent-1.4.3", bad)
	if w := wantedOf(t, s, "lagos", "agent"); w.Withdrawn != "eats disks" {
		t.Errorf("withdrawn: %+v", w)
	}
	s.DeleteSoftwareVersion("acme", "agent-1.4.3")
	if w := wantedOf(t, s, "lagos", "agent"); len(w.Files) != 0 || w.Version != "1.4.3" {
		t.Errorf("deleted: %+v", w)
	}
	// Another tenant's are none of ours.
	s.SetSoftwareVersion("globex", "agent-1.4.3", release("1.4.3", "theirs"))
	if w := wantedOf(t, s, "lagos", "agent"); len(w.Files) != 0 {
		t.Errorf("of another tenant: %+v", w)
	}

	// What the Site itself says counts before all policies, and retries are the site's.
	o := siteObject(siteNamed("lagos"), nil, "")
	o.Spec.Software = map[v1alpha1.SoftwareComponent]string{"agent": "1.4.2", "os": "6.1.0"}
	o.Annotations = map[string]string{v1alpha1.AnnotationSoftwareRetry: "2"}
	s.book.Put(o)
	s.apply()
	if w := wantedOf(t, s, "lagos", "agent"); w.Version != "1.4.2" || w.Retry != 2 || len(w.Windows) != 0 || len(w.Files) != 1 {
		t.Errorf("the site's own: %+v", w)
	}
	if w := wantedOf(t, s, "lagos", "os"); w == nil || w.Version != "6.1.0" {
		t.Errorf("the site's own os: %+v", w)
	}

	// A new root reaches all; one that is no JSON none.
	root = []byte(`{"signed": {"version": 2}}`)
	s.SoftwareChanged()
	if w := wantedOf(t, s, "lagos", "agent"); !strings.Contains(string(w.Root), `"version":2`) {
		t.Errorf("an old root: %s", w.Root)
	}
	root = []byte("no json")
	s.SoftwareChanged()
	if w := wantedOf(t, s, "berlin", "agent"); w.Root != nil {
		t.Errorf("a root of %s", w.Root)
	}
}

// A site that shall run what ran before is told what of that was withdrawn.
func TestWhatMayNotBeGoneBackTo(t *testing.T) {
	s := newStore(t)
	s.SetSite(siteNamed("lagos"), nil)
	s.Start()
	s.softwarePolicy("agent", "agent", "")
	bad := release("1.4.2", "agent/1.4.2/amd64")
	s.SetSoftwareVersion("acme", "agent-1.4.2", bad)
	if w := wantedOf(t, s, "lagos", "agent"); w == nil || len(w.WithdrawnOf) != 0 {
		t.Fatalf("%+v", w)
	}
	bad.Withdrawn = "eats disks"
	s.SetSoftwareVersion("acme", "agent-1.4.2", bad)
	if w := wantedOf(t, s, "lagos", "agent"); w.WithdrawnOf["1.4.2"] != "eats disks" || len(w.WithdrawnOf) != 1 {
		t.Errorf("%+v", w)
	}
	s.DeleteSoftwareVersion("acme", "agent-1.4.2")
	if w := wantedOf(t, s, "lagos", "agent"); len(w.WithdrawnOf) != 0 {
		t.Errorf("deleted: %+v", w)
	}
}

// Under a rollout each site is told the version of its own variant; one that was put back is
// told none, which takes it to what ran before.
func TestSoftwareUnderARollout(t *testing.T) {
	s := newStore(t)
	for i := range 1000 {
		s.book.Put(siteObject(siteNamed(fmt.Sprintf("s-%04d", i)), nil, ""))
	}
	s.apply()
	s.Start()
	s.softwarePolicy("agent", "agent", "")
	if w := wantedOf(t, s, "s-0000", "agent"); w == nil || w.Version != "" {
		t.Fatalf("%+v", w)
	}
	content := func(version string) runtime.RawExtension {
		return runtime.RawExtension{Raw: []byte(fmt.Sprintf(`{"spec":{"component":"agent","version":%q}}`, version))}
	}
	state := func(has string) *v1alpha1.RolloutState {
		return &v1alpha1.RolloutState{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "r"}, Spec: v1alpha1.RolloutStateSpec{Held: true, Sites: "s-0001 s-0002", Has: has,
			Objects: []v1alpha1.RolloutObject{{APIVersion: "muster.dev/v1alpha1", Kind: "SoftwarePolicy", Name: "agent", Contents: []runtime.RawExtension{content(""), content("1.4.2")}}}}}
	}
	told := map[fleet.SiteID]int{}
	defer s.Subscribe(func(id fleet.SiteID) { told[id]++ })()
	s.book.Put(state("00"))
	s.softwarePolicy("agent", "agent", "1.4.2", func(p *v1alpha1.SoftwarePolicy) {
		p.Annotations = map[string]string{v1alpha1.AnnotationRollout: "r"}
	})
	if len(told) != 0 {
		t.Errorf("%d sites were told as the rollout began", len(told))
	}
	s.book.Put(state("10"))
	s.apply()
	if a, b := wantedOf(t, s, "s-0001", "agent"), wantedOf(t, s, "s-0002", "agent"); a.Version != "1.4.2" || b.Version != "" || len(told) != 1 {
		t.Errorf("moved: %q, its neighbour: %q; %d told", a.Version, b.Version, len(told))
	}
	s.book.Put(state("00"))
	s.apply()
	if w := wantedOf(t, s, "s-0001", "agent"); w.Version != "" {
		t.Errorf("put back to %q", w.Version)
	}
	if n := s.Stats().States; n != 1 {
		t.Errorf("%d states for 1,000 sites that hold the same", n)
	}
}
