package apiserver

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/decide"
)

// loosened names the first field of a rollout's spec that asks less of its waves than it did
// before; "": none does. What only asks for more is for whoever may write rollouts: further
// gates, a longer soak, a smaller budget, fewer sites at once, a stricter end.
func loosened(now, before *v1alpha1.RolloutSpec) string {
	field := func(name string, is bool) string {
		if is {
			return "spec." + name
		}
		return ""
	}
	s, was := now.Strategy, before.Strategy
	atOnce := s.MaxInFlight != was.MaxInFlight && (s.MaxInFlight == 0 || was.MaxInFlight != 0 && s.MaxInFlight > was.MaxInFlight)
	s.MaxInFlight = was.MaxInFlight
	return cmp.Or(
		field("gates", lacks(decide.GatesOf(&now.RolloutPlan), decide.GatesOf(&before.RolloutPlan))),
		field("soak", now.Soak.Duration < before.Soak.Duration),
		// It has what a site shows count later, and from later on: it cuts both ways.
		field("settle", !equality.Semantic.DeepEqual(now.Settle, before.Settle)),
		field("budget.maxFailed", more(now.Budget.MaxFailed, before.Budget.MaxFailed)),
		field("budget.maxFailedInWave", more(now.Budget.MaxFailedInWave, before.Budget.MaxFailedInWave)),
		field("budget.readyWithin", longer(now.Budget.ReadyWithin.Duration, before.Budget.ReadyWithin.Duration)),
		field("onFailure", severity(now.OnFailure) < severity(before.OnFailure)),
		field("strategy.maxInFlight", atOnce),
		field("strategy", !equality.Semantic.DeepEqual(s, was)),
		// Sites that leave are judged no longer.
		field("virtualSites", len(before.VirtualSites) == 0 && len(now.VirtualSites) > 0 ||
			len(now.VirtualSites) > 0 && slices.ContainsFunc(before.VirtualSites, func(v string) bool { return !slices.Contains(now.VirtualSites, v) })),
	)
}

// lacks tells whether a gate of before is not there as it was.
func lacks(now, before []v1alpha1.RolloutGate) bool {
	return slices.ContainsFunc(before, func(g v1alpha1.RolloutGate) bool {
		return !slices.ContainsFunc(now, func(other v1alpha1.RolloutGate) bool { return equality.Semantic.DeepEqual(g, other) })
	})
}

// more tells whether an amount, as in a budget, may be larger than another: of a number and
// a percentage nobody can tell.
func more(now, before string) bool {
	if now == before {
		return false
	}
	n, percent := strings.CutSuffix(now, "%")
	b, was := strings.CutSuffix(before, "%")
	x, err1 := strconv.Atoi(n)
	y, err2 := strconv.Atoi(b)
	return err1 != nil || err2 != nil || percent != was || x > y
}

// longer of two times of which 0 is a default.
func longer(now, before time.Duration) bool {
	return now != before && (now == 0 || before == 0 || now > before)
}

func severity(f v1alpha1.RolloutOnFailure) int {
	return slices.Index([]v1alpha1.RolloutOnFailure{v1alpha1.OnFailurePause, v1alpha1.OnFailureRollBackWave, v1alpha1.OnFailureRollBackAll}, cmp.Or(f, v1alpha1.OnFailureRollBackAll))
}
