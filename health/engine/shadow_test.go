package engine

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health/status"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit"
)

// A policy in shadow is evaluated beside the one in force, and counts for nothing.
func TestShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newRegional(t, "one")
		for _, s := range []string{"a/paris", "a/rome"} {
			one.connect(s, true)
			one.put(t, "x", "", s, 0, 0)
		}
		one.put(t, "y", "", "a/paris", 6, 0)
		one.put(t, "y", "", "a/rome", 0, 0)
		inForce, strict := aPolicy(t, "a", "mine", signal("x", "max by (tenant, site) (x)")), aPolicy(t, "a", "next", signal("y", "max by (tenant, site) (y)"))
		strict.Object.(*v1alpha1.HealthPolicy).Spec.Mode = v1alpha1.HealthPolicyShadow
		both := []*inventory.Policy{strict.Policy, inForce.Policy} // the one in shadow is the stronger, and yet not in force
		paris, rome := aSite("a/paris", "shared/all"), aSite("a/rome", "shared/all")
		paris.Policies, rome.Policies = both, both
		virtual := []*inventory.VirtualSite{{Tenant: "a", Namespace: "shared", Name: "all"}}
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set([]*inventory.Site{paris, rome}, virtual, both)
		r := begin(t, t.TempDir(), []*regional{one}, nil, inv, nil)
		v := r.until("both scores", func(v *View) bool {
			p, q := v.Find("a", "paris"), v.Find("a", "rome")
			return v.Tick >= 2 && p.Colour() == fleet.Green && q.Colour() == fleet.Green && p.Shadow != nil && p.Shadow.Colour == fleet.Orange && q.Shadow != nil && q.Shadow.Colour == fleet.Green
		})
		if s := v.Find("a", "paris"); s.Policy != "mine" || s.ShadowPolicy != "next" || s.State.Score != 100 {
			t.Errorf("paris is under %s, in shadow %s, at %v", s.Policy, s.ShadowPolicy, s.State.Score)
		}
		if all := v.VirtualSites[0]; all.Counts.Green != 2 || all.Mean != 100 {
			t.Errorf("the virtual site follows the shadow: %+v", all.Aggregate)
		}
		i := slices.IndexFunc(v.Policies, func(p *Policy) bool { return p.Name == "next" })
		if p := v.Policies[i]; !p.Shadow || p.Sites != 2 || p.WouldChange != 1 || len(p.Examples) != 1 || !strings.HasPrefix(p.Examples[0], "paris: green → orange: y is 6") || p.Signals[0].SitesKnown != 2 {
			t.Errorf("%+v", p)
		}
		if p := v.Policies[1-i]; p.Shadow || p.Sites != 2 || p.WouldChange != 0 {
			t.Errorf("in force: %+v", p)
		}
		testkit.EventuallyTrue(t, "the reports", func() bool {
			inv.mu.Lock()
			defer inv.mu.Unlock()
			return slices.ContainsFunc(inv.policies, func(p status.PolicyReport) bool { return p.Policy.Name == "next" && p.Shadow && p.WouldChange == 1 }) &&
				!slices.ContainsFunc(inv.sites, func(s status.SiteReport) bool { return s.Colour == fleet.Orange })
		})
		for series, score := range one.ask(t, "muster_site_health_score") {
			if score != 100 {
				t.Errorf("written: %s %v", series, score)
			}
		}
		// A lost uplink shows in both at once.
		one.connect("a/rome", false)
		r.until("rome is red in both", func(v *View) bool {
			s := v.Find("a", "rome")
			return s.Colour() == fleet.Red && s.Shadow.Colour == fleet.Red
		})
		// In force, it counts, and nothing is in shadow any more.
		edited := *strict.Policy
		hp := strict.Object.(*v1alpha1.HealthPolicy).DeepCopy()
		hp.Spec.Mode = v1alpha1.HealthPolicyEnforce
		edited.Object = hp
		both = []*inventory.Policy{&edited, inForce.Policy}
		paris, rome = aSite("a/paris", "shared/all"), aSite("a/rome", "shared/all")
		paris.Policies, rome.Policies = both, both
		inv.set([]*inventory.Site{paris, rome}, virtual, both)
		r.until("it counts", func(v *View) bool {
			s := v.Find("a", "paris")
			return s.Colour() == fleet.Orange && s.Policy == "next" && s.Shadow == nil
		})
	})
}
