package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

// alerts: none fires on the changed sites that did not before. Where there are peers to
// compare with, what they get as often is no fault of the change.
func (j *judge) alerts(name string, g *v1alpha1.GateAlerts) v1alpha1.GateReading {
	count := func(list []subject) (hit, known, online int, which map[string]int, worst []string) {
		which = map[string]int{}
		for i := range list {
			s := &list[i]
			if !s.s.Online || s.failed || s.settling {
				continue
			}
			online++
			if !s.s.AlertsKnown {
				continue
			}
			known++
			fires := false
			for _, a := range s.s.Alerts {
				severity, alert, _ := strings.Cut(a, "/")
				if slices.Contains(g.Severities, severity) && !slices.Contains(s.alerts, a) {
					which[alert]++
					fires = true
				}
			}
			if fires {
				hit++
				worst = append(worst, s.s.Name)
			}
		}
		return hit, known, online, which, worst
	}
	x, m, online, which, worst := count(j.changed)
	if m == 0 || 100*m < leastKnown*online {
		return lacking("Whether alerts fire", m, online)
	}
	y, n, _, _, _ := count(j.peers)
	out := j.share(name, x, m, y, n, j.patience())
	out.Sites, out.OfSites, out.Worst = int32(m), int32(online), worst
	severities := strings.Join(g.Severities, " or ")
	if x == 0 {
		out.Text = fmt.Sprintf("No new alert of severity %s fires at %s.", severities, sites(m))
		return out
	}
	most := ""
	for alert, k := range which {
		if most == "" || k > which[most] || k == which[most] && alert < most {
			most = alert
		}
	}
	out.Text = fmt.Sprintf("New alerts of severity %s, most of them %s, fire at %d of %d changed sites", severities, most, x, m)
	if n > 0 {
		out.Text += fmt.Sprintf(", and at %d of %d that did not change", y, n)
	}
	out.Text += chance(out.Verdict)
	return out
}

// contact: sites that got the change do not go offline more often than others.
func (j *judge) contact() v1alpha1.GateReading {
	count := func(list []subject) (lost, n int, worst []string) {
		for i := range list {
			n++
			if !list[i].s.Online && !list[i].restarts {
				lost++
				worst = append(worst, list[i].s.Name)
			}
		}
		return lost, n, worst
	}
	x, m, worst := count(j.changed)
	y, n, _ := count(j.peers)
	if x == 0 {
		j.mem.holds(GateContact, j.now, false)
		return v1alpha1.GateReading{Verdict: v1alpha1.GatePass}
	}
	out := j.share(GateContact, x, m, y, n, j.persistent())
	out.Text = fmt.Sprintf("%d of %d sites went offline after they got the change", x, m)
	if n > 0 {
		out.Text += fmt.Sprintf(", and %d of %d that did not get it", y, n)
	}
	out.Text += chance(out.Verdict)
	out.Sites, out.OfSites, out.Worst = int32(m-x), int32(m), worst
	return out
}

func chance(v v1alpha1.GateVerdict) string {
	switch v {
	case v1alpha1.GatePass:
		return ": no more than chance has it."
	case v1alpha1.GateFail:
		return "."
	}
	return ": that may be chance, and holds."
}

// share is the verdict on something that is true of x of m changed sites and of y of n
// peers, and should be of none. It fails when that can't be chance, or when all changed
// sites and no peer have had it for as long as wait; it holds while chance is unlikely.
func (j *judge) share(what string, x, m, y, n int, wait time.Duration) v1alpha1.GateReading {
	p := 1.0
	switch {
	case x == 0:
	case n > 0:
		p = more(x, m, y, n)
	default:
		p = unusual(x, m)
	}
	out := v1alpha1.GateReading{Verdict: v1alpha1.GatePass, Value: fmt.Sprint(x), Limit: "0"}
	sure := x > 1 && p <= spend(j.look(), 2)
	every := x == m && y == 0 && x > 0
	if j.mem.holds(what+"/sure", j.now, sure) >= confirm || j.mem.holds(what+"/every", j.now, every) >= wait {
		out.Verdict = v1alpha1.GateFail
	} else if p <= alphaHold || every || x > 0 && n == 0 {
		out.Verdict = v1alpha1.GateWait
	}
	return out
}
