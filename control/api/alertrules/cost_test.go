package alertrules

import (
	"fmt"
	"testing"

	"muster.dev/muster/control/api/v1alpha1"
)

// A tenant may send as many rules as fit into an object, again and again: one of them
// takes little more than to parse it.
func TestManyRules(t *testing.T) {
	s := v1alpha1.AlertRulesSpec{Engine: "edge", Groups: []v1alpha1.RuleGroup{{Name: "g"}}}
	for i := range 500 {
		s.Groups[0].Rules = append(s.Groups[0].Rules, v1alpha1.Rule{Record: fmt.Sprint("a", i), Expr: "b", Labels: map[string]string{"x": "y"}})
	}
	var bad bool
	n := testing.AllocsPerRun(3, func() { bad = len(Check(s, "acme")) > 0 }) / 500
	if bad || n > 150 {
		t.Errorf("%.0f allocations a rule; refused: %t", n, bad)
	}
}
