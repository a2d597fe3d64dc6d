package rollout

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// events tells people of decisions, on the Rollout and on the objects that it moves, and of
// what became of sites, on them.
func (c *Controller) events(ctx context.Context, j *job, before *v1alpha1.RolloutState, decisions []v1alpha1.RolloutDecision) {
	c.metrics.decided(decisions)
	if c.o.Recorder == nil {
		return
	}
	for _, d := range decisions {
		text := d.Text
		if d.By != "" {
			text += " (" + d.By + ")"
		}
		c.o.Recorder.Event(j.r, severity(d.What), d.What, text)
		for _, o := range j.objects {
			if o.live != nil {
				c.o.Recorder.Event(o.live, severity(d.What), d.What, fmt.Sprintf("rollout %s: %s", j.key.Name, text))
			}
		}
	}
	if before == nil || j.st == nil {
		return
	}
	was := stepsOf(&before.Spec)
	for name, step := range stepsOf(&j.st.Spec) {
		if was[name] == step {
			continue
		}
		reason, kind, text := "", corev1.EventTypeNormal, ""
		switch step {
		case v1alpha1.StepUpdating:
			reason, text = "RolloutUpdating", "gets what rollout %s brings"
		case v1alpha1.StepPassed:
			reason, text = "RolloutPassed", "rollout %s: its wave has passed"
		case v1alpha1.StepFailed:
			reason, kind, text = "RolloutFailed", corev1.EventTypeWarning, "rollout %s failed here"
		case v1alpha1.StepRolledBack:
			reason, kind, text = "RolloutRolledBack", corev1.EventTypeWarning, "rollout %s was put back here"
		default:
			continue
		}
		var site v1alpha1.Site
		if c.o.Cache.Get(ctx, types.NamespacedName{Namespace: fleet.SystemNamespace(j.tenant), Name: name}, &site) == nil {
			c.o.Recorder.Event(&site, kind, reason, fmt.Sprintf(text, j.fleet().namespace+"/"+j.key.Name))
		}
	}
}

// severity of a decision's event: what stops a rollout is a warning.
func severity(what string) string {
	for _, bad := range []string{"Fail", "RollingBack", "RolledBack", "Invalid", "Paused"} {
		if strings.Contains(what, bad) {
			return corev1.EventTypeWarning
		}
	}
	return corev1.EventTypeNormal
}
