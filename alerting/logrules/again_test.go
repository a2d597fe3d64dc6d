package logrules

import (
	"testing"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/control/api/v1alpha1"
)

// Of a change of one object the plans of the others stay the same ones; what can't be used
// is reported each time.
func TestOnlyWhatChangedIsCompiled(t *testing.T) {
	w := newWorld(t, "paris")
	r := w.runner()
	set := func(tenants ...region.Rules) map[objectID]*plan {
		t.Helper()
		if errs := r.SetRules(tenants); len(errs) != 1 || errs[0].Name != "broken" {
			t.Fatalf("errors: %v", errs)
		}
		out := map[objectID]*plan{}
		for id, ps := range r.plans {
			for _, p := range ps {
				out[id] = p
			}
		}
		return out
	}
	object := func(name, text string) region.LogRuleSet {
		return region.LogRuleSet{Name: name, Spec: v1alpha1.LogRulesSpec{Rules: []v1alpha1.LogRule{w.rule(text)}}}
	}
	acme := func(filter string) region.Rules {
		return region.Rules{Tenant: "acme", Logs: []region.LogRuleSet{object("a", "{type: any, filter: "+filter+"}"), object("b", "{type: any}"), object("broken", "{type: nosuch}")}}
	}
	umbrella := region.Rules{Tenant: "umbrella", Logs: []region.LogRuleSet{object("a", "{type: any}")}}
	before, after := set(acme("x"), umbrella), set(acme("y"), umbrella)
	for id, same := range map[objectID]bool{{"acme", "a"}: false, {"acme", "b"}: true, {"umbrella", "a"}: true} {
		if before[id] == nil || after[id] == nil || (before[id] == after[id]) != same {
			t.Errorf("%v: compiled once is %v, want %v", id, before[id] == after[id], same)
		}
	}
	if set(acme("y")); len(r.made) != 3 || len(r.plans) != 3 {
		t.Errorf("%d and %d objects are remembered, want acme's", len(r.made), len(r.plans))
	}
}
