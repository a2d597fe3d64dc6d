package validation

import (
	"testing"

	"muster.dev/muster/control/api/v1alpha1"
)

func TestLogRules(t *testing.T) {
	rules := func(r v1alpha1.LogRule) *v1alpha1.LogRules {
		return &v1alpha1.LogRules{Spec: v1alpha1.LogRulesSpec{Rules: []v1alpha1.LogRule{r}}}
	}
	expect(t, "a rule", LogRules(rules(v1alpha1.LogRule{Name: "A", Type: "any"})))
	expect(t, "a field of another type", LogRules(rules(v1alpha1.LogRule{Name: "A", Type: "any", NumEvents: 3})), "spec.rules[0].num_events", "frequency")
}
