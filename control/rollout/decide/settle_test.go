package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// slow is a world in which sites take six minutes until they are ready; for these and ten more
// what reads looks back on it.
func slow(t *testing.T, harm map[string]float64, spoil func(s *Site)) *world {
	w := newWorld(t, 60)
	w.spec.Strategy.Waves = percent(20)
	w.readyAfter = 6 * time.Minute
	remembers := func(since time.Duration) bool { return since < 16*time.Minute }
	w.harm = func(_ *Site, since time.Duration) map[string]float64 {
		if remembers(since) {
			return harm
		}
		return nil
	}
	w.edit = func(w *world) {
		for i := range w.sites {
			s := &w.sites[i]
			s.Red, s.Alerts = false, nil
			if spoil != nil && w.has[s.Name] == '1' && remembers(w.now.Sub(w.got[s.Name])) {
				spoil(s)
			}
		}
	}
	return w
}

var fell = map[string]float64{"Reliability": -40, siteScore: -40}

func TestASlowUpdateIsNoBadOne(t *testing.T) {
	least := quantity("80")
	for name, c := range map[string]struct {
		gate  v1alpha1.RolloutGate
		harm  map[string]float64
		spoil func(s *Site)
	}{
		"peers":     {v1alpha1.RolloutGate{Peers: &v1alpha1.GateChange{MaxDrop: 10}}, fell, nil},
		"before":    {v1alpha1.RolloutGate{Before: &v1alpha1.GateChange{MaxDrop: 10}}, fell, nil},
		"score":     {v1alpha1.RolloutGate{Score: &v1alpha1.GateScore{Minimum: 80}}, fell, nil},
		"query":     {v1alpha1.RolloutGate{Query: &v1alpha1.GateQuery{Query: "x", Min: &least}}, fell, nil},
		"unhealthy": {v1alpha1.RolloutGate{Unhealthy: &v1alpha1.GateUnhealthy{MaxPercent: 10}}, nil, func(s *Site) { s.Red = true }},
		"alerts":    {v1alpha1.RolloutGate{Alerts: &v1alpha1.GateAlerts{Severities: []string{"critical"}}}, nil, func(s *Site) { s.Alerts = []string{"critical/SiteRed"} }},
	} {
		t.Run(name, func(t *testing.T) {
			c.gate.Name = name
			if c.gate.Query != nil {
				c.gate.Name = siteScore
			}
			w := slow(t, c.harm, c.spoil)
			w.spec.Gates = []v1alpha1.RolloutGate{c.gate}
			w.until("the first wave is ready", time.Hour, func(w *world) bool { return strings.Trim(w.state.Steps[:12], "r") == "" })
			w.step()
			g := w.out.Status.Gates[0]
			if g.Verdict != v1alpha1.GateWait || g.Sites != 0 || g.OfSites != 12 || !strings.Contains(g.Text, "12 of 12 sites have just changed, and what they show may be of the update itself until 2026-11-23 09:2") {
				t.Errorf("of %d of %d sites:\n%s", g.Sites, g.OfSites, w.dump())
			}
			w.until("it passes", time.Hour, inWave(2))
			if at := w.now.Sub(monday); at < 16*time.Minute+w.spec.Soak.Duration {
				t.Errorf("passed after %s, before it was well for a soak", at)
			}
			w.want(v1alpha1.RolloutCompleted, time.Hour)

			// The same with a settle that is too short for it.
			w = slow(t, c.harm, c.spoil)
			w.spec.Gates, w.spec.Settle = []v1alpha1.RolloutGate{c.gate}, &metav1.Duration{Duration: time.Minute}
			w.want(v1alpha1.RolloutRolledBack, time.Hour)
			if at := w.now.Sub(monday); at < 7*time.Minute {
				t.Errorf("stopped after %s, before the sites had settled", at)
			}
		})
	}
}

// oneValue is what a query gives that has one value in all: above its bound while true.
func oneValue(bad bool) map[string]Outside {
	if bad {
		return map[string]Outside{"errors": {Verdict: v1alpha1.GateFail, Text: "the query's value is 7, wanted at most 5", Value: "7"}}
	}
	return map[string]Outside{"errors": {Verdict: v1alpha1.GatePass, Text: "the query's value is 1, wanted at most 5", Value: "1"}}
}

// What somebody else reads fails no more at one glance than what sites show, and a query's one
// value is of the sites that have just changed, too.
func TestOutsideGatesArePatient(t *testing.T) {
	five := quantity("5")
	query := v1alpha1.RolloutGate{Name: "errors", Query: &v1alpha1.GateQuery{Query: "sum(errors)", Max: &five}}
	hook := v1alpha1.RolloutGate{Name: "errors", Webhook: &v1alpha1.GateWebhook{URL: "http://x"}}
	logs := v1alpha1.RolloutGate{Name: "errors", Logs: &v1alpha1.GateLogs{Query: "panic"}}
	const ready = 40 * time.Second
	for _, c := range []struct {
		name      string
		gate      v1alpha1.RolloutGate
		reach     time.Duration
		from, to  time.Duration // in which it is bad, after the wave began
		after, by time.Duration // in which it fails; 0: it does not
		text      string
	}{
		{name: "query, while the update is fresh", gate: query, reach: 6 * time.Minute, to: ready + 6*time.Minute, text: "sites have just changed, and what they show may be of the update itself until 2026-11-23 09:07"},
		{name: "query, and then still", gate: query, reach: 6 * time.Minute, to: time.Hour, after: ready + 6*time.Minute + confirm, by: ready + 7*time.Minute + confirm},
		{name: "query, for a glance", gate: query, reach: time.Minute, from: 4 * time.Minute, to: 4*time.Minute + confirm - time.Second, text: "wanted at most 5; that holds, and fails once it has been so for 45 s"},
		{name: "query, for long", gate: query, reach: time.Minute, from: 4 * time.Minute, to: time.Hour, after: 4*time.Minute + confirm, by: 5*time.Minute + confirm},
		{name: "webhook, for a glance", gate: hook, from: 2 * time.Minute, to: 2*time.Minute + confirm - time.Second, text: "that holds"},
		{name: "webhook, for long", gate: hook, from: 15 * time.Second, to: time.Hour, after: confirm, by: time.Minute + confirm},
		{name: "logs", gate: logs, from: time.Minute, to: time.Hour, after: time.Minute, by: 2 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 60)
			w.readyAfter = ready
			w.spec.Strategy.Waves = percent(20)
			w.spec.Gates = []v1alpha1.RolloutGate{c.gate}
			w.reach = map[string]time.Duration{"errors": c.reach}
			said := ""
			w.edit = func(w *world) {
				if len(w.out.Status.Gates) > 0 && w.out.Status.Gates[0].Verdict == v1alpha1.GateWait {
					said += w.out.Status.Gates[0].Text + "\n"
				}
				at := w.now.Sub(monday)
				w.outside = oneValue(at >= c.from && at < c.to)
			}
			failed := w.run(time.Hour, func(w *world) bool { return w.out.Status.Phase != v1alpha1.RolloutProgressing })
			at := w.now.Sub(monday)
			if c.by == 0 {
				if w.out.Status.Phase != v1alpha1.RolloutCompleted {
					t.Errorf("it failed after %s:\n%s", at, w.dump())
				}
			} else if !failed || w.out.Status.Phase != v1alpha1.RolloutRollingBack || at < c.after || at > c.by {
				t.Errorf("%s after %s, want RollingBack between %s and %s:\n%s", w.out.Status.Phase, at, c.after, c.by, w.dump())
			}
			if !strings.Contains(said, c.text) {
				t.Errorf("it never said %q, but\n%s", c.text, said)
			}
		})
	}
}

// What a gate's own query gives looks back as far as that says, whatever the plan's settle.
func TestAQueryRemembersWhatItLooksBack(t *testing.T) {
	rise := quantity("5")
	w := slow(t, map[string]float64{"errors": 50}, nil)
	w.also = map[string]float64{"errors": 1}
	w.reach = map[string]time.Duration{"errors": 3 * time.Minute}
	w.spec.Gates = []v1alpha1.RolloutGate{{Name: "errors", Peers: &v1alpha1.GateChange{Query: "x", MaxRise: &rise}}}
	w.want(v1alpha1.RolloutRollingBack, time.Hour)
	if at := w.now.Sub(monday); at < 9*time.Minute || at > 11*time.Minute {
		t.Errorf("stopped after %s, want it soon after six minutes and three:\n%s", at, w.dump())
	}
}

// A bad one is stopped once its sites have settled, though they are ready again and again.
func TestABadOneThatFlapsIsStopped(t *testing.T) {
	w := newWorld(t, 60)
	w.harm = func(*Site, time.Duration) map[string]float64 { return map[string]float64{"Reliability": -40} }
	w.flaps = func(*Site) bool { return w.now.Unix()/30%3 == 0 }
	w.want(v1alpha1.RolloutRolledBack, time.Hour)
	if at := w.now.Sub(monday); at < defaultSettle || at > defaultSettle+5*time.Minute || !w.says("Reliability fell by") {
		t.Errorf("after %s:\n%s", at, w.dump())
	}
}

func TestOneThatNeverGetsReadyIsFound(t *testing.T) {
	w := slow(t, fell, nil)
	w.readyAfter = time.Hour
	w.want(v1alpha1.RolloutRollingBack, time.Hour)
	if at := w.now.Sub(monday); at < defaultReadyWithin || at > defaultReadyWithin+time.Minute || !w.says("was not ready in time") {
		t.Errorf("after %s:\n%s", at, w.dump())
	}
}

// Sites that are still updating are changed ones too: without them the few that something has
// happened to would be most of those that are looked at.
func TestWhoHasSomethingFirstIsNotAll(t *testing.T) {
	w := newWorld(t, 300)
	w.spec.Strategy.Waves = percent(50)
	w.readyAfter = 8 * time.Minute
	w.spec.Budget = budget("2%", "10%", 20*time.Minute)
	w.step()
	away := strings.Fields(w.state.Sites)[:3]
	w.edit = func(w *world) {
		for _, name := range away {
			w.find(name).Online = w.now.Sub(monday) < 2*time.Minute
		}
	}
	w.until("the first wave passes", time.Hour, inWave(2))
	if w.says("Failed") {
		t.Error(w.dump())
	}
}

// A site that is given the change anew settles anew; one that comes back with it does not.
func TestWhatSettlesAnew(t *testing.T) {
	w := newWorld(t, 60)
	w.spec.Strategy.Waves = percent(20)
	w.spec.Soak.Duration = 2 * time.Hour
	w.until("the first wave is ready", time.Hour, func(w *world) bool { return strings.Trim(w.state.Steps[:12], "r") == "" })
	ready := func(name string) int64 {
		d, err := decode(w.state.Decided.Raw, len(strings.Fields(w.state.Sites)))
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range strings.Fields(w.state.Sites) {
			if n == name {
				return d.rows[i].ready
			}
		}
		return 0
	}
	name := w.first().Name
	was := ready(name)
	if was == 0 {
		t.Fatal("it is ready, and has not been")
	}
	back := false
	w.edit = func(w *world) { w.find(name).Online = back }
	w.until("it is away", time.Hour, func(w *world) bool { return w.stepOf(name) == v1alpha1.StepOffline })
	back = true
	w.until("it is back", time.Hour, func(w *world) bool { return w.stepOf(name) == v1alpha1.StepReady })
	if got := ready(name); got != was {
		t.Errorf("back with it, it settles anew: %d, was %d", got, was)
	}
	holds := true
	w.waits = func(s *Site) bool { return holds && s.Name == name }
	w.until("it holds itself", time.Hour, func(w *world) bool {
		return w.stepOf(name) == v1alpha1.StepUpdating || w.stepOf(name) == v1alpha1.StepHeld
	})
	w.until("it holds itself", time.Hour, func(w *world) bool { return w.stepOf(name) == v1alpha1.StepHeld })
	holds = false
	w.until("it has begun", time.Hour, func(w *world) bool { return w.stepOf(name) == v1alpha1.StepReady })
	if got := ready(name); got == was || got == 0 {
		t.Errorf("it began later, and settled at %d as before", got)
	}
	w.spec.Control.Abort = true
	w.want(v1alpha1.RolloutRolledBack, time.Hour)
	if got := ready(name); got != 0 {
		t.Errorf("put back, it is ready since %d", got)
	}
}

// Who has fallen by just what is allowed has fallen, and settles at just that moment.
func TestWhoIsInDoubt(t *testing.T) {
	j := judge{now: monday, settle: 10 * time.Minute, reach: map[string]time.Duration{"errors": time.Minute}}
	at := func(name string, ready time.Duration, by float64) moved {
		return moved{s: &subject{s: &Site{Name: name}, ready: monday.Add(-ready)}, by: by, against: by}
	}
	list := []moved{at("fell", 9*time.Minute, -10), at("almost", 9*time.Minute, -9.9), at("settled", 10*time.Minute, -50), at("late", time.Second, -50)}
	list = append(list, moved{s: &subject{s: &Site{Name: "updating"}, updating: true}, by: -30, against: -25}, moved{s: &subject{s: &Site{Name: "peer"}}, by: -30, against: -30})
	d := j.doubted(list, measure{name: "Reliability", limit: 10})
	if got := strings.Join(d.sites, " "); got != "fell late updating" || !d.until.Equal(monday.Add(10*time.Minute-time.Second)) {
		t.Errorf("%s until %s", got, d.until)
	}
	if errs := j.doubted(list, measure{name: "errors", limit: 10}); strings.Join(errs.sites, " ") != "late updating" {
		t.Errorf("of a query that looks back a minute: %s", errs.sites)
	}
	was := list[4]
	var by []float64
	for _, m := range d.without(list) {
		by = append(by, m.by, m.against)
	}
	if want := []float64{0, 0, -9.9, -9.9, -50, -50, 0, 0, -5, 0, -30, -30}; !slices.Equal(by, want) || list[4] != was {
		t.Errorf("without them %v, want %v, and the list as it was", by, want)
	}
	if text := d.words(30); text != " 3 of 30 sites have just changed, and what they show may be of the update itself until "+monday.Format(time.DateOnly)+" 09:09 UTC; that holds." {
		t.Error(text)
	}
	s := &subject{s: &Site{}, from: monday.Add(-4 * time.Minute), ready: monday.Add(-11 * time.Minute)}
	for _, soak := range []time.Duration{3 * time.Minute, 15 * time.Minute} {
		if j.soak = soak; !j.readFrom(s, "Reliability").Equal(monday.Add(-time.Minute)) {
			t.Errorf("with a soak of %s it is read from %s", soak, j.readFrom(s, "Reliability"))
		}
	}
	if from := j.readFrom(s, "errors"); !from.Equal(monday.Add(-4 * time.Minute)) {
		t.Errorf("what has settled long ago is read from %s", from)
	}
	// Where a site is scraped seldom, what was read before that is of before the change.
	s = &subject{s: &Site{Pace: 5 * time.Minute}, from: monday.Add(-10 * time.Minute), ready: monday.Add(-7 * time.Minute)}
	if from := j.readFrom(s, "Reliability"); !from.Equal(s.ready.Add(fleet.Seen(s.s.Pace))) {
		t.Errorf("of a site that is scraped seldom it is read from %s", from)
	}
}

// What sites show that are scraped seldom is of before the change until they have been scraped: a bad version is found in
// the first wave, and a good one takes so much longer.
func TestSitesThatAreScrapedSeldom(t *testing.T) {
	seldom := func(harm float64, paces ...time.Duration) *world {
		w := newWorld(t, 60)
		w.spec.Strategy.Waves = percent(20)
		for i := range w.sites {
			w.sites[i].Pace = paces[i%len(paces)]
		}
		w.harm = func(s *Site, since time.Duration) map[string]float64 {
			if since < s.Pace { // of the scrape before
				return nil
			}
			return map[string]float64{"Reliability": harm, siteScore: harm, "errors": -harm}
		}
		return w
	}
	rise := quantity("5")
	limit := quantity("20")
	for name, gate := range map[string]v1alpha1.RolloutGate{
		"before":    {Name: "errors", Before: &v1alpha1.GateChange{}},
		"peers":     {Name: "errors", Peers: &v1alpha1.GateChange{}},
		"score":     {Name: "errors", Score: &v1alpha1.GateScore{Minimum: 75}},
		"query":     {Name: "errors", Query: &v1alpha1.GateQuery{Query: "x", Max: &limit}},
		"own peers": {Name: "errors", Peers: &v1alpha1.GateChange{Query: "x", MaxRise: &rise}},
	} {
		for _, pace := range []time.Duration{5 * time.Minute, 10 * time.Minute} {
			w := seldom(-60, pace)
			w.also = map[string]float64{"errors": 1}
			w.spec.Gates = []v1alpha1.RolloutGate{gate}
			w.until("the first wave is ready", time.Hour, func(w *world) bool { return strings.Trim(w.state.Steps[:12], "r") == "" })
			w.step()
			if g := w.out.Status.Gates[0]; g.Verdict != v1alpha1.GateUnknown || !strings.Contains(g.Text, "12 of them are scraped seldom") {
				t.Errorf("%s at %s, before they are scraped: %+v", name, pace, g)
			}
			w.want(v1alpha1.RolloutRolledBack, 4*time.Hour)
			if w.out.Status.Wave > 1 {
				t.Errorf("%s at %s: found in wave %d", name, pace, w.out.Status.Wave)
			}
		}
	}
	good := func(paces ...time.Duration) time.Duration {
		w := seldom(0, paces...)
		w.want(v1alpha1.RolloutCompleted, 8*time.Hour)
		return w.now.Sub(monday)
	}
	quick := good(0)
	if slow := good(10 * time.Minute); slow < quick+fleet.Seen(10*time.Minute) {
		t.Errorf("quick ones take %s, those that are scraped each ten minutes %s", quick, slow)
	}
	// Few slow ones among many hold nobody up.
	few := make([]time.Duration, 30)
	few[7] = 10 * time.Minute
	if mixed := good(few...); mixed > quick+time.Minute {
		t.Errorf("quick ones take %s, with two slow ones among them %s", quick, mixed)
	}
	// Asked once, from outside: before they were scraped the answer is not known.
	changed := []Site{{Name: "a", Online: true, Pace: 5 * time.Minute, Measures: map[string]float64{siteScore: 90}}}
	gates := []v1alpha1.RolloutGate{{Name: "score", Score: &v1alpha1.GateScore{Minimum: 75}}}
	for after, want := range map[time.Duration]v1alpha1.GateVerdict{2 * time.Minute: v1alpha1.GateUnknown, fleet.Seen(5 * time.Minute): v1alpha1.GatePass} {
		if v, g := Evaluate(gates, changed, nil, nil, nil, nil, monday, 0, monday.Add(after)); v != want {
			t.Errorf("asked after %s: %s, %+v", after, v, g)
		}
	}
}
