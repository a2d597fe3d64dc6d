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

// short names the first field of a rollout's spec that asks less than the policy that
// selects its objects; "": none does. Its waves may be finer than the policy's.
func short(spec *v1alpha1.RolloutSpec, policy *v1alpha1.RolloutPlan) string {
	as := *spec
	if finer(spec.Strategy, policy.Strategy) {
		as.Strategy = policy.Strategy
		as.Strategy.MaxInFlight = spec.Strategy.MaxInFlight
	}
	return cmp.Or(loosened(&as, &v1alpha1.RolloutSpec{RolloutPlan: *policy}), sooner(&spec.RolloutPlan, policy))
}

// sooner names the field by which sites may change when they could not before; "": none.
func sooner(now, before *v1alpha1.RolloutPlan) string {
	outside := func(w v1alpha1.RolloutWindow) bool {
		return !slices.ContainsFunc(before.Windows, func(other v1alpha1.RolloutWindow) bool { return equality.Semantic.DeepEqual(w, other) })
	}
	if len(before.Windows) > 0 && (len(now.Windows) == 0 || slices.ContainsFunc(now.Windows, outside)) {
		return "spec.windows"
	}
	if slices.ContainsFunc(before.Freezes, func(f v1alpha1.RolloutFreeze) bool {
		return !slices.ContainsFunc(now.Freezes, func(other v1alpha1.RolloutFreeze) bool { return other.From <= f.From && f.To <= other.To })
	}) {
		return "spec.freezes"
	}
	return ""
}

// finer tells whether a strategy is another that stops at least where this one does: a
// canary with further percentages, or smaller groups. How many sites may be changing at one
// moment is another matter.
func finer(now, before v1alpha1.RolloutStrategy) bool {
	waves, stops, group := now.Waves, before.Waves, now.Group
	now.Waves, now.Group, now.MaxInFlight = before.Waves, before.Group, before.MaxInFlight
	if !equality.Semantic.DeepEqual(now, before) {
		return false
	}
	if now.Type == v1alpha1.StrategyRolling {
		return !more(group, before.Group)
	}
	if now.Type != v1alpha1.StrategyCanary || len(stops) == 0 {
		return false
	}
	at := func(list []v1alpha1.RolloutWave, percent int32) *v1alpha1.RolloutWave {
		if i := slices.IndexFunc(list, func(w v1alpha1.RolloutWave) bool { return w.Percent != nil && *w.Percent == percent }); i >= 0 {
			return &list[i]
		}
		return nil
	}
	ofPercents := func(list []v1alpha1.RolloutWave) bool {
		return !slices.ContainsFunc(list, func(w v1alpha1.RolloutWave) bool { return w.Percent == nil })
	}
	return ofPercents(waves) && ofPercents(stops) && !slices.ContainsFunc(stops, func(w v1alpha1.RolloutWave) bool {
		other := at(waves, *w.Percent)
		return other == nil || w.Approval && !other.Approval || other.Soak != nil && (w.Soak == nil || other.Soak.Duration < w.Soak.Duration) || other.Soak == nil && w.Soak != nil
	})
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
