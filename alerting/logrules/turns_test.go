package logrules

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"muster.dev/muster/control/api/region"
)

// A tenant whose rules are many and slow has them evaluated late, all of them, and nobody
// else's.
func TestSlowRulesDelayTheirTenantAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "paris")
		w.sites = append(w.sites, Site{Tenant: "greedy", Name: "g"})
		w.src.now = time.Now
		w.src.slow = func(q Query) time.Duration {
			if q.Tenant == "greedy" {
				return 10 * time.Second
			}
			return 10 * time.Millisecond
		}
		set := func(n int) (out region.LogRuleSet) {
			out.Name = "rules"
			for i := range n {
				out.Spec.Rules = append(out.Spec.Rules, w.rule(fmt.Sprintf("{name: R%d, type: any}", i)))
			}
			return out
		}
		w.rules = []region.Rules{{Tenant: "greedy", Logs: []region.LogRuleSet{set(200)}}, {Tenant: "acme", Logs: []region.LogRuleSet{set(20)}}}
		r := w.runner(func(o *Options) { o.Now, o.Concurrency = time.Now, 4 })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.keep(ctx)
		go r.hold(ctx)
		began := time.Now()
		for time.Since(began) < 30*time.Minute {
			from := time.Now()
			r.once(ctx)
			if took := time.Since(from); took > 3*r.o.Interval {
				t.Fatalf("a round took %s", took)
			}
			for id, u := range r.units {
				if behind := time.Since(u.readTo); id.Tenant == "acme" && behind > 3*r.o.Interval {
					t.Fatalf("%s is %s behind", id, behind)
				}
			}
			time.Sleep(max(0, r.o.Interval-time.Since(from)))
		}
		for id, u := range r.units {
			if u.turned.IsZero() {
				t.Errorf("%s never had a turn", id)
			}
		}
	})
}

// A tenant's rules have a number.
func TestRulesOfATenantAreBounded(t *testing.T) {
	w := newWorld(t, "paris")
	set := func(name string, n int) region.LogRuleSet {
		out := region.LogRuleSet{Name: name}
		for i := range n {
			out.Spec.Rules = append(out.Spec.Rules, w.rule(fmt.Sprintf("{name: R%d, type: any}", i)))
		}
		return out
	}
	r := w.runner()
	errs := r.SetRules([]region.Rules{
		{Tenant: "greedy", Logs: []region.LogRuleSet{set("a", MaxRules-10), set("b", 20), set("c", 10), set("d", 1)}},
		{Tenant: "acme", Logs: []region.LogRuleSet{set("a", 1)}},
		{Tenant: "muster", Logs: []region.LogRuleSet{set("a", MaxRules+1)}},
	})
	if len(errs) != 2 || errs[0].Name != "b" || errs[1].Name != "d" || !strings.Contains(errs[0].Error(), "more than 500") {
		t.Errorf("%v", errs)
	}
	if len(r.plans) != 4 {
		t.Errorf("%d objects are evaluated", len(r.plans))
	}
}
