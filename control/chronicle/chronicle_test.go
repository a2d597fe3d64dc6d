package chronicle

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/timeline"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// rig is a chronicle without an API server: objects are put, and time is set, by hand.
type rig struct {
	*Chronicle
	t     *testing.T
	file  string
	store *timeline.Store
	now   time.Time
	edits []string
	// selecting are the policies that select paris, of each kind one of the name.
	selecting []*inventory.Policy
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, file: filepath.Join(t.TempDir(), "timeline.db"), now: begin}
	r.start()
	return r
}

// start is a process that starts, after one that was killed if there was one.
func (r *rig) start() {
	r.t.Helper()
	var err error
	if r.store != nil {
		if err := r.store.Close(); err != nil {
			r.t.Fatal(err)
		}
	}
	if r.store, err = timeline.Open(timeline.Options{File: r.file, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return r.now }}); err != nil {
		r.t.Fatal(err)
	}
	s := r.store
	r.t.Cleanup(func() { _ = s.Close() })
	fleetNow := func() *inventory.Snapshot {
		return inventory.NewSnapshot(1, []*inventory.Site{{ID: fleet.SiteID{Tenant: "acme", Name: "paris"}, Phase: fleet.PhaseOnline, VirtualSites: []string{"shared/eu"}, Policies: r.selecting}}, nil, nil)
	}
	r.Chronicle, err = New(Options{Cache: struct{ cache.Cache }{}, Timeline: r.store, Fleet: fleetNow, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return r.now },
		Edited:   func(o client.Object, text string) { r.edits = append(r.edits, o.GetName()+": "+text) },
		TenantOf: func(ns string) string { tenant, _, _ := strings.Cut(ns, "-"); return tenant }})
	if err != nil {
		r.t.Fatal(err)
	}
}

// see is what the watch gives, a minute later.
func (r *rig) see(kind string, o client.Object, deleted bool) {
	r.now = r.now.Add(time.Minute)
	r.put(kind, o, deleted)
	r.writeChanges()
}

// told are the events, the oldest first: KIND BY AFTER TEXT.
func (r *rig) told(site ...string) []string {
	r.t.Helper()
	events, _, err := r.store.Page(r.t.Context(), timeline.Query{Tenants: []string{"acme"}, Sites: site, Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, e := range slices.Backward(events) {
		out = append(out, strings.Join([]string{e.Kind, e.By, e.After, e.Text, strings.Join(e.VirtualSites, ",")}, "|"))
	}
	return out
}

func (r *rig) want(want ...string) {
	r.t.Helper()
	if got := r.told(); !slices.Equal(got, want) {
		r.t.Errorf("told:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func objectMeta(ns, name string, generation int64, by string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name), Generation: generation, CreationTimestamp: metav1.Time{Time: begin}}
	if by != "" {
		m.Annotations = map[string]string{v1alpha1.AnnotationChangedBy: by}
	}
	return m
}

func TestSite(t *testing.T) {
	r := newRig(t)
	site := &v1alpha1.Site{ObjectMeta: objectMeta("acme-system", "paris", 1, "muster:control")}
	site.Spec.Token, site.Status.Phase = "stores", fleet.PhasePending
	step := func(change func(*v1alpha1.Site)) {
		site = site.DeepCopy()
		change(site)
		r.see("Site", site, false)
		r.see("Site", site, false) // again, as a resync does
	}
	step(func(*v1alpha1.Site) {})
	step(func(s *v1alpha1.Site) {
		s.Spec.Approved, s.Annotations = true, map[string]string{v1alpha1.AnnotationChangedBy: "anna"}
	})
	step(func(s *v1alpha1.Site) {
		s.Status.Phase, s.Status.Regional, s.Status.Versions = fleet.PhaseOnline, "west", map[string]string{"agent": "1.4"}
	})
	r.start() // killed
	step(func(s *v1alpha1.Site) { s.Status.Versions = map[string]string{"agent": "1.5"} })
	step(func(s *v1alpha1.Site) { s.Status.Maintenance = &v1alpha1.SiteMaintenance{Reason: "new floor"} })
	step(func(s *v1alpha1.Site) { s.Status.Maintenance = nil })
	step(func(s *v1alpha1.Site) {
		s.Status.Software = []v1alpha1.SiteSoftware{{Component: "os", Wanted: "7.1", State: v1alpha1.SoftwareFailed, Message: "no space"}}
	})
	r.start()
	site = site.DeepCopy()
	site.Status.Phase = fleet.PhaseOffline
	r.see("Site", site, false)
	r.see("Site", site, true)
	r.want("registration||registered|registered with token stores|shared/eu",
		"registration|anna|Approved|approved|shared/eu",
		"connection||Online|connected to regional west|shared/eu",
		"software||1.5|agent 1.4 → 1.5|shared/eu",
		"maintenance|anna|maintenance|maintenance: new floor|shared/eu",
		"maintenance||ended|maintenance ended: new floor|shared/eu",
		"software||Failed|os 7.1: failed: no space|shared/eu",
		"connection||Offline|not connected any more; it was on regional west|shared/eu",
		"registration||removed|the site was removed|shared/eu")
}

func TestEdits(t *testing.T) {
	r := newRig(t)
	vs := &v1alpha1.VirtualSite{ObjectMeta: objectMeta("acme-shared", "eu", 1, "anna")}
	vs.Spec.Description = "Europe"
	r.see("VirtualSite", vs, false)
	status := vs.DeepCopy()
	status.Status.Sites = 7
	r.see("VirtualSite", status, false) // no edit
	edited := vs.DeepCopy()
	edited.Generation, edited.Spec.Description, edited.Annotations = 2, "All of Europe", map[string]string{v1alpha1.AnnotationChangedBy: "ben"}
	r.start()
	r.see("VirtualSite", edited, false)
	// Another tenant's is another tenant's.
	r.see("VirtualSite", &v1alpha1.VirtualSite{ObjectMeta: objectMeta("rival-shared", "eu", 1, "eve")}, false)
	// Deleted while nobody watched.
	r.start()
	r.sweep()
	r.writeChanges()
	r.want("policy|anna|created|VirtualSite shared/eu was created|shared/eu",
		"policy|ben|edited|VirtualSite shared/eu was edited: description|shared/eu",
		"policy||deleted|VirtualSite shared/eu was deleted|shared/eu")
	if want := []string{"eu: VirtualSite shared/eu was edited: description (ben)"}; !slices.Equal(r.edits, want) {
		t.Errorf("events on objects: %q, want %q", r.edits, want)
	}
}

// Who edits a policy of any kind is told of in the timeline of a site while the policy selects it.
func TestEditsOfASitesPolicies(t *testing.T) {
	for _, k := range []inventory.PolicyKind{inventory.HealthPolicies(), inventory.CollectionPolicies(), inventory.SoftwarePolicies(), inventory.HostConfigurations()} {
		r := newRig(t)
		for _, name := range []string{"strict", "other"} {
			for generation := range int64(2) {
				o := k.Object()
				o.SetNamespace("acme-system")
				o.SetName(name)
				o.SetUID(types.UID(name))
				o.SetGeneration(1 + generation)
				o.SetCreationTimestamp(metav1.Time{Time: begin})
				o.SetAnnotations(map[string]string{v1alpha1.AnnotationChangedBy: "anna"})
				selector, _ := k.Spec(o)
				selector.MatchLabels = map[string]string{"tier": []string{"gold", "silver"}[generation]}
				r.see(k.Kind, o, false)
			}
		}
		if got := r.told("paris"); len(got) > 0 {
			t.Errorf("%s: told with a site that no policy selects: %q", k.Kind, got)
		}
		r.selecting = []*inventory.Policy{{Kind: k.Kind, Tenant: "acme", Name: "strict"}}
		want := []string{"policy|anna|created|" + k.Kind + " strict was created|", "policy|anna|edited|" + k.Kind + " strict was edited: siteSelector|"}
		if got := r.told("paris"); !slices.Equal(got, want) {
			t.Errorf("%q\nwant %q", got, want)
		}
		if got := r.told("rome"); len(got) > 0 {
			t.Errorf("%s: told with another site: %q", k.Kind, got)
		}
	}
}

func TestRollouts(t *testing.T) {
	r := newRig(t)
	ro := &v1alpha1.Rollout{ObjectMeta: objectMeta("acme-shop", "till", 1, "")}
	ro.Spec.VirtualSites = []string{"shared/eu"}
	decide := func(at time.Duration, what, text, by string) {
		ro = ro.DeepCopy()
		ro.Status.Decisions = append(ro.Status.Decisions, v1alpha1.RolloutDecision{At: metav1.Time{Time: begin.Add(at)}, What: what, Text: text, By: by})
	}
	decide(time.Second, "WaveStarted", "wave 1 of 2", "")
	r.see("Rollout", ro, false)
	decide(time.Second, "Paused", "paused", "anna") // in the same second
	decide(3*time.Second, "Resumed", "goes on", "ben")
	r.start()
	r.see("Rollout", ro, false)
	r.see("Rollout", ro, false)
	st := &v1alpha1.RolloutState{ObjectMeta: objectMeta("acme-shop", "till", 1, "")}
	st.Spec.Sites, st.Spec.Steps = "paris rome", "uw"
	r.see("RolloutState", st, false)
	st = st.DeepCopy()
	st.Spec.Sites, st.Spec.Steps = "oslo paris rome", "ufu"
	r.start()
	r.see("RolloutState", st, false)
	got := r.told()
	slices.Sort(got)
	want := []string{"rollout||WaveStarted|rollout shop/till: wave 1 of 2|shared/eu", "rollout|anna|Paused|rollout shop/till: paused|shared/eu", "rollout|ben|Resumed|rollout shop/till: goes on|shared/eu",
		"rollout||updating|gets what rollout shop/till brings|shared/eu", "rollout||failed|rollout shop/till failed here|shared/eu",
		"rollout||updating|gets what rollout shop/till brings|", "rollout||updating|gets what rollout shop/till brings|"}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("told:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
