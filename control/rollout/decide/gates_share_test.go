package decide

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

// Of 20 changed sites and 80 peers, which alerts count, and of whom.
func TestWhichAlertsCount(t *testing.T) {
	disk := []string{"critical/DiskFull"}
	for name, c := range map[string]struct {
		spoil         func(s *subject, i int)
		verdict       v1alpha1.GateVerdict
		value, text   string
		sites, online int32
	}{
		"none":                {verdict: v1alpha1.GatePass, value: "0", text: "No new alert of severity critical fires at 20 sites.", sites: 20, online: 20},
		"new ones":            {spoil: func(s *subject, _ int) { s.s.Alerts = disk }, verdict: v1alpha1.GateWait, value: "5", text: "New alerts of severity critical, most of them DiskFull, fire at 5 of 20 changed sites, and at 0 of 80", sites: 20, online: 20},
		"of another severity": {spoil: func(s *subject, _ int) { s.s.Alerts = []string{"warning/DiskFull"} }, verdict: v1alpha1.GatePass, value: "0", text: "No new alert", sites: 20, online: 20},
		"that fired before":   {spoil: func(s *subject, _ int) { s.s.Alerts, s.alerts = disk, disk }, verdict: v1alpha1.GatePass, value: "0", text: "No new alert", sites: 20, online: 20},
		"at sites that are offline": {spoil: func(s *subject, _ int) { s.s.Alerts, s.s.Online = disk, false }, verdict: v1alpha1.GatePass, value: "0", text: "No new alert of severity critical fires at 15 sites.",
			sites: 15, online: 15},
		"at sites that failed": {spoil: func(s *subject, _ int) { s.s.Alerts, s.failed = disk, true }, verdict: v1alpha1.GatePass, value: "0", text: "No new alert of severity critical fires at 15 sites.",
			sites: 15, online: 15},
		"not known of some": {spoil: func(s *subject, _ int) { s.s.AlertsKnown = false }, verdict: v1alpha1.GateUnknown, text: "Whether alerts fire is known of 15 of 20 sites.", sites: 15, online: 20},
		"not known of one":  {spoil: func(s *subject, i int) { s.s.AlertsKnown = i > 0 }, verdict: v1alpha1.GatePass, value: "0", text: "fires at 19 sites.", sites: 19, online: 20},
	} {
		t.Run(name, func(t *testing.T) {
			j := judge{mem: newMemory(), now: monday, since: monday}
			for i := range 100 {
				s := subject{s: &Site{Name: fmt.Sprint("s", i), Online: true, AlertsKnown: true}}
				if i < 5 && c.spoil != nil {
					c.spoil(&s, i)
				}
				if i < 20 {
					j.changed = append(j.changed, s)
				} else {
					j.peers = append(j.peers, s)
				}
			}
			g := j.alerts("alerts", &v1alpha1.GateAlerts{Severities: []string{"critical"}})
			if g.Verdict != c.verdict || g.Value != c.value || !strings.Contains(g.Text, c.text) || g.Sites != c.sites || g.OfSites != c.online {
				t.Errorf("%s, %q of %d of %d sites: %s", g.Verdict, g.Value, g.Sites, g.OfSites, g.Text)
			}
		})
	}
}

// What only some of those with an alert may have of the update itself is said while that holds the
// gate, and no more once the others have failed it.
func TestDoubtIsSaidWhileItHolds(t *testing.T) {
	j := judge{mem: newMemory(), now: monday, since: monday, settle: time.Hour}
	for i := range 100 {
		s := subject{s: &Site{Name: fmt.Sprint("s", i), Online: true, AlertsKnown: true}}
		if i < 14 {
			s.s.Alerts = []string{"critical/DiskFull"}
		}
		if i < 2 {
			s.ready = monday
		}
		if i < 20 {
			j.changed = append(j.changed, s)
		} else {
			j.peers = append(j.peers, s)
		}
	}
	const words = "2 of 20 sites have just changed"
	g := j.alerts("alerts", &v1alpha1.GateAlerts{Severities: []string{"critical"}})
	if g.Verdict != v1alpha1.GateWait || !strings.Contains(g.Text, words) || g.Sites != 18 || g.OfSites != 20 {
		t.Errorf("%s of %d of %d: %s", g.Verdict, g.Sites, g.OfSites, g.Text)
	}
	for range 4 {
		j.now = j.now.Add(15 * time.Second)
		j.mem.look(nil, j.now)
		g = j.alerts("alerts", &v1alpha1.GateAlerts{Severities: []string{"critical"}})
	}
	if g.Verdict != v1alpha1.GateFail || strings.Contains(g.Text, words) || g.Value != "14" {
		t.Errorf("%s: %s", g.Verdict, g.Text)
	}
}

// A wave of which nobody is online says nothing of alerts: that is unknown, and holds.
func TestAlertsOfNobodyAreUnknown(t *testing.T) {
	j := judge{mem: newMemory(), now: monday, since: monday, changed: []subject{{s: &Site{Name: "a", AlertsKnown: true}}}}
	for range 2 {
		if g := j.alerts("alerts", &v1alpha1.GateAlerts{Severities: []string{"critical"}}); g.Verdict != v1alpha1.GateUnknown || g.Text != "No site with the change can be read." {
			t.Errorf("%s: %s", g.Verdict, g.Text)
		}
		j.changed = nil
	}
}

// How long a gate looks back, is patient and has to be sure goes with the soak; without one it is
// sure after five minutes.
func TestHowLongGatesTake(t *testing.T) {
	for soak, want := range map[time.Duration][3]time.Duration{
		0:                {time.Minute, 45 * time.Second, 5 * time.Minute},
		time.Minute:      {time.Minute, 45 * time.Second, time.Minute},
		6 * time.Minute:  {2 * time.Minute, 2 * time.Minute, 6 * time.Minute},
		45 * time.Minute: {5 * time.Minute, 5 * time.Minute, 45 * time.Minute},
	} {
		j := judge{soak: soak}
		if got := [3]time.Duration{j.window(), j.patience(), j.persistent()}; got != want {
			t.Errorf("soak %s: looks back, is patient, is sure after %v, want %v", soak, got, want)
		}
	}
}

// What a gate needs of a site that is offline, failed or late is another's: it is not waited for as
// ready, and what came late waits for itself.
func TestWhoHasToBeReady(t *testing.T) {
	site := func(online, failed, late bool, state Applied) subject {
		return subject{s: &Site{Name: "s", Online: online, State: state}, failed: failed, late: late}
	}
	ready, not := site(true, false, false, Ready), site(true, false, false, Progressing)
	for name, c := range map[string]struct {
		changed []subject
		percent int32
		verdict v1alpha1.GateVerdict
		text    string
		n, of   int32
	}{
		"all":                   {[]subject{ready, ready}, 0, v1alpha1.GatePass, "2 of 2 sites are ready.", 2, 2},
		"one is not":            {[]subject{ready, not}, 0, v1alpha1.GateWait, "1 of 2 sites is ready.", 1, 2},
		"half is enough":        {[]subject{ready, not}, 50, v1alpha1.GatePass, "1 of 2 sites is ready.", 1, 2},
		"rounded up":            {[]subject{ready, not, not}, 50, v1alpha1.GateWait, "1 of 3 sites is ready.", 1, 3},
		"one is offline":        {[]subject{ready, site(false, false, false, Progressing)}, 0, v1alpha1.GatePass, "1 of 1 site is ready.", 1, 1},
		"one is the budget's":   {[]subject{ready, site(true, true, false, Failed)}, 0, v1alpha1.GatePass, "1 of 1 site is ready.", 1, 1},
		"one could not":         {[]subject{ready, site(true, false, false, Failed)}, 0, v1alpha1.GateFail, "It failed at 1 of 2 sites.", 1, 2},
		"one could not, may":    {[]subject{ready, site(true, false, false, Failed)}, 50, v1alpha1.GatePass, "1 of 2 sites is ready.", 1, 2},
		"one came late":         {[]subject{ready, site(true, false, true, Progressing)}, 0, v1alpha1.GatePass, "1 of 1 site is ready.", 1, 1},
		"those that came late":  {[]subject{site(true, false, true, Progressing), site(true, false, true, Ready)}, 0, v1alpha1.GatePass, "1 of 2 sites that came back is ready.", 1, 2},
		"nobody":                {nil, 0, v1alpha1.GateWait, "No site has it yet that could be ready.", 0, 0},
		"nobody that is online": {[]subject{site(false, false, false, Ready)}, 0, v1alpha1.GateWait, "No site has it yet that could be ready.", 0, 0},
	} {
		j := judge{changed: c.changed}
		if g := j.ready(&v1alpha1.GateReady{Percent: c.percent}); g.Verdict != c.verdict || g.Text != c.text || g.Sites != c.n || g.OfSites != c.of {
			t.Errorf("%s: %s, %d of %d: %s", name, g.Verdict, g.Sites, g.OfSites, g.Text)
		}
	}
}

// What a query gives is kept in fiftieths of the rise that its gate allows, and points in whole.
func TestHowFinelyMeasuresAreKept(t *testing.T) {
	rise, more := quantity("100m"), quantity("5")
	r := &run{gates: []v1alpha1.RolloutGate{
		{Name: "errors", Before: &v1alpha1.GateChange{Query: "x", MaxRise: &more}},
		{Name: "latency", Peers: &v1alpha1.GateChange{Query: "y", MaxRise: &rise}},
		{Name: "Reliability", Peers: &v1alpha1.GateChange{MaxDrop: 10}},
	}}
	for measure, want := range map[string]float64{"errors": 0.1, "latency": 0.002, "Reliability": 1, "Site": 1} {
		if got := r.stepOf(measure); got != want {
			t.Errorf("%s is kept in steps of %v, want %v", measure, got, want)
		}
	}
}

// The alert that most of the sites have is the one that is named; of as many, the first by name.
func TestWhichAlertIsNamed(t *testing.T) {
	for want, fire := range map[string][]string{"B": {"A", "B", "B"}, "A": {"B", "A"}, "C": {"C"}} {
		j := judge{mem: newMemory(), now: monday, since: monday}
		for i := range 20 {
			s := subject{s: &Site{Name: fmt.Sprint("s", i), Online: true, AlertsKnown: true}}
			if i < len(fire) {
				s.s.Alerts = []string{"critical/" + fire[i]}
			}
			j.changed = append(j.changed, s)
		}
		for range 20 { // of a map, whose order is another each time
			g := j.alerts("alerts", &v1alpha1.GateAlerts{Severities: []string{"critical"}})
			if text := fmt.Sprintf("most of them %s, fire at %d of 20 changed sites:", want, len(fire)); !strings.Contains(g.Text, text) {
				t.Fatalf("%s, want %s", g.Text, text)
			}
		}
	}
}

// Of the alerts that fire before a site changes, those are noted that a gate is about, however
// long their names; a hundred at most.
func TestWhichAlertsAreNoted(t *testing.T) {
	long := "critical/" + strings.Repeat("x", 300)
	r := &run{d: &decided{Alerts: map[int][]string{1: {"critical/Old"}}}, gates: []v1alpha1.RolloutGate{
		{Name: "ready", Ready: &v1alpha1.GateReady{}}, {Name: "alerts", Alerts: &v1alpha1.GateAlerts{Severities: []string{"critical", "error"}}},
	}}
	r.site = []*Site{{Alerts: []string{"critical/A", "error/B", "warning/C", long}}, {}, nil, {Alerts: []string{"warning/C"}}, {}}
	for i := range 110 {
		r.site[4].Alerts = append(r.site[4].Alerts, fmt.Sprint("critical/", i))
	}
	for _, s := range r.site {
		if s != nil {
			s.AlertsKnown = true
		}
	}
	for i := range r.site {
		r.noteAlerts(i)
	}
	first := subject{alerts: r.d.Alerts[0]}
	for alert, want := range map[string]bool{"critical/A": true, "error/B": true, long: true, "warning/C": false, "critical/B": false} {
		if first.fired(alert) != want {
			t.Errorf("that %.20s fired: %v", alert, !want)
		}
	}
	if last := (subject{alerts: r.d.Alerts[4]}); len(r.d.Alerts[4]) != 100 || !last.fired("critical/99") || last.fired("critical/100") || len(r.d.Alerts) != 2 {
		t.Errorf("noted %v", r.d.Alerts)
	}
	if size := len(r.d.Alerts[0][2]); size != 8 {
		t.Errorf("%d characters for a long name", size)
	}
	r.site[0].Alerts, r.site[0].AlertsKnown = nil, false
	if r.noteAlerts(0); len(r.d.Alerts[0]) != 3 {
		t.Errorf("noted %v when nobody knew", r.d.Alerts[0])
	}
	if old := (subject{alerts: []string{"critical/A"}}); !old.fired("critical/A") || old.fired("critical/B") {
		t.Error("what an older control noted is not read")
	}
}

// Sites on which nine alerts fire already hold no gate by the ninth; a tenth that comes with the
// change stops it.
func TestTheNinthAlertThatFiredBeforeIsNoNewOne(t *testing.T) {
	for name, c := range map[string]struct {
		comes string
		phase v1alpha1.RolloutPhase
	}{"none comes": {"", v1alpha1.RolloutCompleted}, "a tenth comes": {"critical/Tenth", v1alpha1.RolloutRolledBack}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 40)
			w.spec.Gates = []v1alpha1.RolloutGate{{Name: "alerts", Alerts: &v1alpha1.GateAlerts{Severities: []string{"critical"}}}}
			w.edit = func(w *world) {
				for i := range w.sites {
					s := &w.sites[i]
					s.Alerts = nil
					for n := range 9 {
						s.Alerts = append(s.Alerts, fmt.Sprint("critical/Alert", n))
					}
					if w.has[s.Name] > '0' && c.comes != "" {
						s.Alerts = append(s.Alerts, c.comes)
					}
				}
			}
			w.want(c.phase, 12*time.Hour)
			if c.comes != "" && w.out.Status.Waves[1].Sites.Updated > 0 {
				t.Error(w.dump())
			}
		})
	}
}

// Nine sites that have a new alert are nine, whatever is shown of them.
func TestAllSitesWithANewAlertAreCounted(t *testing.T) {
	j := judge{mem: newMemory(), now: monday, since: monday, gates: []v1alpha1.RolloutGate{{Name: "alerts", Alerts: &v1alpha1.GateAlerts{Severities: []string{"critical"}}}}}
	for i := range 20 {
		s := subject{s: &Site{Name: fmt.Sprint("s", i), Online: true, AlertsKnown: true}}
		if i < 9 {
			s.s.Alerts = []string{fmt.Sprint("critical/Of", i)}
		}
		j.changed = append(j.changed, s)
	}
	verdict, readings := j.all()
	if g := readings[0]; verdict != v1alpha1.GateWait || g.Value != "9" || len(g.Worst) != 5 || !strings.Contains(g.Text, "fire at 9 of 20 changed sites") {
		t.Errorf("%s: %+v", verdict, g)
	}
}

// A share that can't be chance fails once it has been so for 45 s, one of all sites once it has for as
// long as it takes; what may be chance holds, and what is in doubt fails nothing.
func TestWhatAShareSays(t *testing.T) {
	const pass, wait, fail = v1alpha1.GatePass, v1alpha1.GateWait, v1alpha1.GateFail
	for name, c := range map[string]struct {
		x, doubt, m, y, n int
		want              [3]v1alpha1.GateVerdict // at once, after 45 s, after 5 min
	}{
		"none":                         {0, 0, 20, 3, 80, [3]v1alpha1.GateVerdict{pass, pass, pass}},
		"nobody changed":               {0, 0, 0, 0, 5, [3]v1alpha1.GateVerdict{pass, pass, pass}},
		"one of many":                  {1, 0, 20, 4, 80, [3]v1alpha1.GateVerdict{pass, pass, pass}},
		"many more than of the others": {12, 0, 20, 0, 80, [3]v1alpha1.GateVerdict{wait, fail, fail}},
		"the same, but in doubt":       {12, 12, 20, 0, 80, [3]v1alpha1.GateVerdict{wait, wait, wait}},
		"as many as of the others":     {6, 0, 20, 24, 80, [3]v1alpha1.GateVerdict{pass, pass, pass}},
		"the only one":                 {1, 0, 1, 0, 5, [3]v1alpha1.GateVerdict{wait, wait, fail}},
		"the only one, of a thousand":  {1, 0, 1, 0, 1000, [3]v1alpha1.GateVerdict{wait, wait, fail}},
		"the only one, as another":     {1, 0, 1, 1, 5, [3]v1alpha1.GateVerdict{pass, pass, pass}},
		"nobody to compare with":       {1, 0, 20, 0, 0, [3]v1alpha1.GateVerdict{wait, wait, wait}},
		"half, and nobody":             {10, 0, 20, 0, 0, [3]v1alpha1.GateVerdict{wait, fail, fail}},
	} {
		j := judge{mem: newMemory(), since: monday}
		for i, after := range []time.Duration{0, confirm, 5 * time.Minute} {
			j.now = monday.Add(after)
			if g := j.share("gate", c.x, c.doubt, c.m, c.y, c.n, 5*time.Minute); g.Verdict != c.want[i] || g.Value != fmt.Sprint(c.x) {
				t.Errorf("%s: %s after %s, want %s", name, g.Verdict, after, c.want[i])
			}
		}
	}
}

// Sites that go offline more often with the change than without it fail the gate once that lasts; one
// that came back in between begins anew. Who restarts for the change is not lost.
func TestWhoIsOutOfContact(t *testing.T) {
	const pass, wait, fail = v1alpha1.GatePass, v1alpha1.GateWait, v1alpha1.GateFail
	for name, c := range map[string]struct {
		changed, restarting, peers int    // of how many
		lost                       [4]int // changed sites that are offline at once, after 2.5 min, after 5 min and after 10 min
		others                     int    // peers that are
		want                       [4]v1alpha1.GateVerdict
		text                       string
	}{
		"none":                     {changed: 20, peers: 80, want: [4]v1alpha1.GateVerdict{pass, pass, pass, pass}},
		"the only one":             {changed: 1, peers: 5, lost: [4]int{1, 1, 1, 1}, want: [4]v1alpha1.GateVerdict{wait, wait, fail, fail}, text: "1 of 1 site went offline after it got the change, and 0 of 5 that did not get it."},
		"it came back in between":  {changed: 1, peers: 5, lost: [4]int{1, 0, 1, 1}, want: [4]v1alpha1.GateVerdict{wait, pass, wait, fail}},
		"a half came back as well": {changed: 20, peers: 80, lost: [4]int{10, 0, 10, 10}, want: [4]v1alpha1.GateVerdict{wait, pass, wait, fail}, text: "10 of 20 sites went offline after they got the change, and 0 of 80 that did not get it."},
		"as many of the others":    {changed: 20, peers: 80, lost: [4]int{2, 2, 2, 2}, others: 8, want: [4]v1alpha1.GateVerdict{pass, pass, pass, pass}, text: ", and 8 of 80 that did not get it: no more than chance has it."},
		"nobody to compare with":   {changed: 20, lost: [4]int{1, 1, 1, 1}, want: [4]v1alpha1.GateVerdict{wait, wait, wait, wait}, text: "1 of 20 sites went offline after it got the change: that may be chance, and holds."},
		"those that restart":       {changed: 20, restarting: 20, peers: 80, lost: [4]int{20, 20, 20, 20}, want: [4]v1alpha1.GateVerdict{pass, pass, pass, pass}},
	} {
		j := judge{mem: newMemory(), since: monday, soak: 5 * time.Minute}
		for i, after := range []time.Duration{0, 150 * time.Second, 5 * time.Minute, 10 * time.Minute} {
			j.now, j.changed, j.peers = monday.Add(after), nil, nil
			for k := range c.changed {
				j.changed = append(j.changed, subject{s: &Site{Name: fmt.Sprint("s", k), Online: k >= c.lost[i]}, restarts: k < c.restarting})
			}
			for k := range c.peers {
				j.peers = append(j.peers, subject{s: &Site{Name: fmt.Sprint("p", k), Online: k >= c.others}})
			}
			g := j.contact()
			if g.Verdict != c.want[i] || i == 3 && !strings.HasSuffix(g.Text, c.text) {
				t.Errorf("%s: %s after %s, want %s: %s", name, g.Verdict, after, c.want[i], g.Text)
			}
			if lost := c.lost[i]; c.restarting == 0 && (len(g.Worst) != lost || lost > 0 && g.Worst[0] != "s0" || g.Sites != int32(c.changed-lost) || g.OfSites != int32(c.changed)) {
				t.Errorf("%s: %d of %d sites in contact, without %v", name, g.Sites, g.OfSites, g.Worst)
			}
		}
	}
}
