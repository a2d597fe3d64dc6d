package rules

import (
	"testing"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/control/api/v1alpha1"
)

// Of a change of one object the others are not compiled again; what became of them stays, and
// what is gone is forgotten.
func TestOnlyWhatChangedIsCompiled(t *testing.T) {
	var c Compiler
	compile := func(tenants ...region.Rules) map[string]*byte {
		t.Helper()
		files, errs := c.Compile(Edge, tenants, false)
		if len(errs) != 1 || errs[0].Name != "broken" {
			t.Fatalf("errors: %v", errs)
		}
		out := map[string]*byte{}
		for _, f := range files {
			out[f.Name] = &f.Content[0] // the same bytes are not made twice
		}
		return out
	}
	acme := func(expr string) region.Rules {
		return region.Rules{Tenant: "acme", Alerts: []region.AlertRuleSet{objectOf("a", expr), objectOf("b", "up"), objectOf("broken", "sum(")}}
	}
	umbrella := region.Rules{Tenant: "umbrella", Alerts: []region.AlertRuleSet{objectOf("a", "up")}}
	before := compile(acme("up"), umbrella)
	if files, _ := c.Compile(Local, []region.Rules{acme("up")}, false); len(files) != 0 {
		t.Errorf("files of the other engine: %v", files)
	}
	after := compile(acme("up == 0"), umbrella)
	for name, same := range map[string]bool{"acme/a": false, "acme/b": true, "umbrella/a": true} {
		if before[name] == nil || (before[name] == after[name]) != same {
			t.Errorf("%s: compiled once is %v, want %v", name, before[name] == after[name], same)
		}
	}
	if compile(acme("up == 0")); len(c.made) != 3 {
		t.Errorf("%d objects are remembered, want acme's", len(c.made))
	}
}

func objectOf(name, expr string) region.AlertRuleSet {
	return region.AlertRuleSet{Name: name, Spec: v1alpha1.AlertRulesSpec{Groups: []v1alpha1.RuleGroup{{Name: "g", Rules: []v1alpha1.Rule{{Record: "a:b", Expr: expr}}}}}}
}
