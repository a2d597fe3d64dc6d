package decide

import (
	"fmt"
	"slices"
	"strconv"
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

// reached is who of a region's sites has lost contact: of m that got the change x, of n peers y.
type reached struct{ x, m, y, n int }

// out: the region's peers have lost contact as well, most of them. That is what they connect to.
func (r *reached) out() bool { return r.n >= regionPeers && 2*r.y > r.n }

// lost counts those that are offline by region, of which none are the change itself.
func (j *judge) lost() (per map[string]*reached, worst []string) {
	per = map[string]*reached{}
	add := func(list []subject, of func(*reached) (lost, all *int)) (names []string) {
		for i := range list {
			if list[i].away {
				continue
			}
			name := j.region(&moved{s: &list[i]})
			if per[name] == nil {
				per[name] = &reached{}
			}
			lost, all := of(per[name])
			*all++
			if !list[i].s.Online && !list[i].restarts {
				*lost++
				names = append(names, list[i].s.Name)
			}
		}
		return names
	}
	worst = add(j.changed, func(r *reached) (_, _ *int) { return &r.x, &r.m })
	add(j.peers, func(r *reached) (_, _ *int) { return &r.y, &r.n })
	return per, worst
}

// contact: sites that got the change do not go offline more often than others in their region. A
// region of which most peers are gone too, or one that the changed sites have to themselves,
// says that what it connects to is out as well as that the change is bad: it fails nothing.
// The former holds for as long as a soak, as sites that are switched off are not waited for.
func (j *judge) contact() v1alpha1.GateReading {
	per, worst := j.lost()
	var all reached
	var told []reached // regions that tell changed sites from others
	var lost, gone, alone int
	for _, r := range per {
		all.x, all.m, all.y, all.n = all.x+r.x, all.m+r.m, all.y+r.y, all.n+r.n
		switch {
		case r.m > 0 && r.out():
			gone += r.x
		case r.n == 0 && len(per) > 1:
			alone += r.x
		case r.m > 0:
			told = append(told, *r)
			lost += r.x
		}
	}
	p := 1.0
	if all.n > 0 {
		p = moreWithin(told)
	} else if all.x > 0 {
		p = unusual(all.x, all.m)
	}
	sure := lost > 1 && p <= spend(j.look(), 2)
	every := lost > 0 && lost == all.x && all.x == all.m && all.y == 0
	sureFor, everyFor := j.mem.holds(GateContact+"/sure", j.now, sure), j.mem.holds(GateContact+"/every", j.now, every)
	goneFor := j.mem.holds(GateContact+"/gone", j.now, gone > 0)
	out := v1alpha1.GateReading{Verdict: v1alpha1.GatePass, Value: strconv.Itoa(all.x), Limit: "0", Sites: int32(all.m - all.x), OfSites: int32(all.m), Worst: worst}
	switch {
	case sureFor >= confirm || everyFor >= j.persistent():
		out.Verdict = v1alpha1.GateFail
	case lost > 0 && (p <= alphaHold || every || all.n == 0), gone > 0 && goneFor < j.persistent(), alone > 0 && unusual(alone, all.m) <= alphaHold:
		out.Verdict = v1alpha1.GateWait
	}
	out.Text = countedOf(all.x, all.m, "went offline after {they} got the change")
	if all.n > 0 {
		out.Text += fmt.Sprintf(", and %d of %d that did not get it", all.y, all.n)
	}
	switch {
	case out.Verdict == v1alpha1.GateWait && gone > 0:
		out.Text += ": where most of both are, it is of the regional or the network that they connect by, and not of the change; that holds."
	case out.Verdict == v1alpha1.GateWait && alone > 0:
		out.Text += ": their region has no others to compare with, so that it may be of the regional or the network that they connect by; that holds."
	default:
		out.Text += chance(out.Verdict)
	}
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
