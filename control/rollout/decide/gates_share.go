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
	var doubt doubt
	count := func(list []subject) (hit, known, online int, which map[string]int, worst []string) {
		which = map[string]int{}
		for i := range list {
			s := &list[i]
			if !s.s.Online || s.failed {
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
				if slices.Contains(g.Severities, severity) && !s.fired(a) {
					which[alert]++
					fires = true
				}
			}
			if fires {
				hit++
				worst = append(worst, s.s.Name)
				if until, is := j.unsettled(s, ""); is {
					doubt.add(s, until)
				}
			}
		}
		return hit, known, online, which, worst
	}
	x, m, online, which, worst := count(j.changed)
	if m == 0 || 100*m < leastKnown*online {
		return lacking("Whether alerts fire", m, online)
	}
	y, n, _, _, _ := count(j.peers)
	out := j.share(name, x, len(doubt.sites), m, y, n, j.patience())
	out.Sites, out.OfSites, out.Worst = int32(m-len(doubt.sites)), int32(online), worst
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
	if out.Verdict == v1alpha1.GateWait {
		out.Text += doubt.words(m)
	}
	return out
}

// fired tells whether an alert fired before the site changed. States that were written by an
// older control have it by its name.
func (s *subject) fired(alert string) bool {
	return len(s.alerts) > 0 && (slices.Contains(s.alerts, alertMark(alert)) || slices.Contains(s.alerts, alert))
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
	out := j.share(GateContact, x, 0, m, y, n, j.persistent())
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
// Those of the x that are in doubt hold it, and don't fail it.
func (j *judge) share(what string, x, doubt, m, y, n int, wait time.Duration) v1alpha1.GateReading {
	odds := func(x int) float64 {
		switch {
		case x == 0:
			return 1
		case n > 0:
			return more(x, m, y, n)
		}
		return unusual(x, m)
	}
	p, known := odds(x), x-doubt
	out := v1alpha1.GateReading{Verdict: v1alpha1.GatePass, Value: fmt.Sprint(x), Limit: "0"}
	sure := known > 1 && odds(known) <= spend(j.look(), 2)
	every := known == m && y == 0 && x > 0
	if j.mem.holds(what+"/sure", j.now, sure) >= confirm || j.mem.holds(what+"/every", j.now, every) >= wait {
		out.Verdict = v1alpha1.GateFail
	} else if p <= alphaHold || x == m && y == 0 && x > 0 || x > 0 && n == 0 {
		out.Verdict = v1alpha1.GateWait
	}
	return out
}
