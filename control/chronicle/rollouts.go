package chronicle

import (
	"encoding/json"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/wire"
)

// toldRollout is how far the decisions of a rollout were told of.
type toldRollout struct {
	UID  string `json:"u"`
	Last int64  `json:"l"` // seconds since 1970
	Same int    `json:"n"` // decisions of that second
}

// tellRollout tells of a rollout's decisions. Its status has the last 50: more than that
// between two looks are lost.
func tellRollout(_ *Chronicle, id identity, was string, o client.Object) (string, []wire.TimelineEvent) {
	if o == nil {
		return "", nil
	}
	r := o.(*v1alpha1.Rollout)
	var before toldRollout
	if was == "" || json.Unmarshal([]byte(was), &before) != nil || before.UID != string(r.UID) {
		before = toldRollout{UID: string(r.UID)}
	}
	now := before
	var out []wire.TimelineEvent
	same := 0
	for _, d := range r.Status.Decisions {
		at := d.At.Unix()
		if at < before.Last {
			continue
		}
		if at == before.Last {
			if same++; same <= before.Same {
				continue
			}
		}
		if at != now.Last {
			now.Last, now.Same = at, 0
		}
		now.Same++
		out = append(out, wire.TimelineEvent{Time: d.At.UTC(), Kind: wire.EventRollout, Severity: severity(d.What), Tenant: id.tenant, Namespace: id.short, Object: "Rollout/" + id.name, VirtualSites: virtualSitesOf(id, r),
			By: d.By, After: d.What, Text: "rollout " + id.path() + ": " + d.Text, Link: link(id)})
	}
	value, err := json.Marshal(now)
	if err != nil {
		return was, nil
	}
	return string(value), out
}

func link(id identity) string {
	ns := id.short
	if ns == "" {
		ns = "system"
	}
	return "/rollouts/" + ns + "/" + id.name + "?tenant=" + id.tenant
}

// virtualSitesOf are those that the rollout names, whole.
func virtualSitesOf(id identity, r *v1alpha1.Rollout) []string {
	var out []string
	for _, v := range r.Spec.VirtualSites {
		if !strings.Contains(v, "/") {
			v = id.short + "/" + v
		}
		out = append(out, v)
	}
	return out
}

// severity of a decision: what stops a rollout is a warning.
func severity(what string) string {
	for _, bad := range []string{"Fail", "RollingBack", "RolledBack", "Invalid", "Paused"} {
		if strings.Contains(what, bad) {
			return wire.EventWarning
		}
	}
	if strings.Contains(what, "Passed") || strings.Contains(what, "Completed") {
		return wire.EventGood
	}
	return wire.EventInfo
}

// toldSteps is where each site of a rollout stood.
type toldSteps struct {
	UID   string `json:"u"`
	Sites string `json:"n"`
	Steps string `json:"s"`
}

// tellSteps tells what became of each site in a rollout.
func tellSteps(c *Chronicle, id identity, was string, o client.Object) (string, []wire.TimelineEvent) {
	if o == nil {
		return "", nil
	}
	s := o.(*v1alpha1.RolloutState)
	now := toldSteps{string(s.UID), s.Spec.Sites, s.Spec.Steps}
	var told toldSteps
	if was != "" && json.Unmarshal([]byte(was), &told) == nil && told == now {
		return was, nil
	}
	before := map[string]byte{}
	if told.UID == now.UID {
		before = steps(told)
	}
	var out []wire.TimelineEvent
	at := changedAt(s, c.o.Now())
	for i, site := range strings.Fields(now.Sites) {
		if i >= len(now.Steps) || before[site] == now.Steps[i] {
			continue
		}
		e := wire.TimelineEvent{Time: at, Kind: wire.EventRollout, Severity: wire.EventInfo, Tenant: id.tenant, Namespace: id.short, Site: site, VirtualSites: c.virtualSites(id.tenant, site), Object: "Rollout/" + id.name, Link: link(id)}
		switch v1alpha1.SiteStep(now.Steps[i]) {
		case v1alpha1.StepUpdating:
			e.After, e.Text = "updating", "gets what rollout "+id.path()+" brings"
		case v1alpha1.StepReady:
			e.After, e.Text = "ready", "ready with what rollout "+id.path()+" brought"
		case v1alpha1.StepPassed:
			e.Severity, e.After, e.Text = wire.EventGood, "passed", "rollout "+id.path()+": its wave has passed"
		case v1alpha1.StepFailed:
			e.Severity, e.After, e.Text = wire.EventWarning, "failed", "rollout "+id.path()+" failed here"
		case v1alpha1.StepRolledBack:
			e.Severity, e.After, e.Text = wire.EventWarning, "rolled back", "rollout "+id.path()+" was put back here"
		default:
			continue
		}
		out = append(out, e)
	}
	value, err := json.Marshal(now)
	if err != nil {
		return was, nil
	}
	return string(value), out
}

func steps(t toldSteps) map[string]byte {
	out := map[string]byte{}
	for i, site := range strings.Fields(t.Sites) {
		if i < len(t.Steps) {
			out[site] = t.Steps[i]
		}
	}
	return out
}
