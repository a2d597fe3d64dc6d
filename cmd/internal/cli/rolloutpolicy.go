package cli

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/hold"
	"muster.dev/muster/internal/fleet"
)

// policyOf is the RolloutPolicy of the first of the targets that any selects; nil: none does.
func policyOf(ctx context.Context, c client.Client, tenant, namespace string, targets []target) (*v1alpha1.RolloutPolicy, error) {
	var list v1alpha1.RolloutPolicyList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("rollout policies: %w", err)
	}
	for _, t := range targets {
		if p := hold.Select(list.Items, t.kind.Kind, namespace == fleet.SystemNamespace(tenant), t.o.GetLabels()); p != nil {
			return p, nil
		}
	}
	return nil, nil
}

// followPlan takes from a policy's plan what no flag says.
func followPlan(spec *v1alpha1.RolloutSpec, plan *v1alpha1.RolloutPlan, changed func(flag string) bool) {
	told := func(flags ...string) bool { return slices.ContainsFunc(flags, changed) }
	inFlight := spec.Strategy.MaxInFlight
	if !told("strategy", "waves", "approve-wave", "group", "blue") {
		spec.Strategy = *plan.Strategy.DeepCopy()
	} else {
		spec.Strategy.MaxInFlight, spec.Strategy.SpreadBy = plan.Strategy.MaxInFlight, slices.Clone(plan.Strategy.SpreadBy)
	}
	if told("max-in-flight") {
		spec.Strategy.MaxInFlight = inFlight
	}
	if !told("soak") {
		spec.Soak = plan.Soak
	}
	if !told("settle") {
		spec.Settle = plan.Settle
	}
	if !told("gate", "gates") {
		spec.Gates = plan.Gates
	}
	if !told("on-failure") {
		spec.OnFailure = plan.OnFailure
	}
	if !told("max-failed") {
		spec.Budget.MaxFailed = plan.Budget.MaxFailed
	}
	if !told("ready-within") {
		spec.Budget.ReadyWithin = plan.Budget.ReadyWithin
	}
	spec.Budget.MaxFailedInWave, spec.Windows, spec.Freezes = plan.Budget.MaxFailedInWave, plan.Windows, plan.Freezes
}
