package validation

import (
	"testing"

	"muster.dev/muster/control/api/v1alpha1"
)

func TestRolloutPolicies(t *testing.T) {
	kinds := func(kinds ...string) *v1alpha1.RolloutPolicy {
		return &v1alpha1.RolloutPolicy{Spec: v1alpha1.RolloutPolicySpec{Kinds: kinds}}
	}
	expect(t, "workloads and what they read", RolloutPolicy(kinds("Deployment", "ConfigMap")))
	expect(t, "secrets, which the state would tell", RolloutPolicy(kinds("Deployment", "Secret")), "spec.kinds[1]", "a name of its own")
}
