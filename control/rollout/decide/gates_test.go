package decide

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

func TestSoakBeginsAnewWhenAGateHolds(t *testing.T) {
	w := newWorld(t, 40)
	w.spec.Gates = []v1alpha1.RolloutGate{{Name: "ask", Webhook: &v1alpha1.GateWebhook{URL: "http://x"}}}
	w.edit = func(w *world) {
		v := v1alpha1.GatePass
		if at := w.now.Sub(monday); at >= 4*time.Minute && at < 5*time.Minute {
			v = v1alpha1.GateWait
		}
		w.outside = map[string]Outside{"ask": {Verdict: v, Text: "It says so."}}
	}
	w.until("wave 2", time.Hour, inWave(2))
	if at := w.now.Sub(monday); at < 10*time.Minute || at > 11*time.Minute {
		t.Errorf("passed after %s, want 5 min after the gate held again at 5 min", at)
	}
}

func TestWhoGoesOfflineHasNotPassed(t *testing.T) {
	w := newWorld(t, 200)
	w.until("the first wave soaks", 10*time.Minute, func(w *world) bool { return w.out.Status.Waves[0].Sites.Updated > 7 })
	name, back := w.first().Name, false
	w.edit = func(w *world) { w.find(name).Online = back }
	w.until("wave 2", time.Hour, inWave(2))
	if w.stepOf(name) != v1alpha1.StepOffline {
		t.Fatalf("%s is at %c:\n%s", name, w.stepOf(name), w.dump())
	}
	back = true
	w.step()
	if w.stepOf(name) == v1alpha1.StepPassed {
		t.Fatal("passed as it came back")
	}
	w.want(v1alpha1.RolloutCompleted, 2*time.Hour)
}

func TestFailedSitesArePutBackToo(t *testing.T) {
	w := newWorld(t, 40)
	w.spec.Strategy.Waves = percent(50)
	w.spec.Budget = budget("50%", "50%", 5*time.Minute)
	w.step()
	bad := w.first().Name
	w.fails = func(s *Site) bool { return s.Name == bad }
	w.until("it fails", 20*time.Minute, func(w *world) bool { return w.stepOf(bad) == v1alpha1.StepFailed })
	w.spec.Control.Abort = true
	w.want(v1alpha1.RolloutRolledBack, time.Hour)
	if strings.Trim(w.state.Has, "0") != "" {
		t.Errorf("has %s", w.state.Has)
	}
}

// fleetOf are sites that had 90 of everything, and have what now says of them.
func fleetOf(n, changed int, now func(i int) map[string]float64) (sites []Site, before map[string]map[string]float64) {
	before = map[string]map[string]float64{}
	for i := range n {
		s := Site{Name: fmt.Sprintf("s%03d", i), Online: true, State: Ready, AlertsKnown: true, Labels: map[string]string{"region": fmt.Sprint(i % 2)}, Measures: map[string]float64{}}
		before[s.Name] = map[string]float64{"latency": 0.1}
		for _, d := range dimensions {
			before[s.Name][d], s.Measures[d] = 90, 90+float64(i%5)/10
		}
		s.Measures["latency"] = 0.1 + float64(i%5)/1000
		if i < changed {
			for k, v := range now(i) {
				s.Measures[k] = v
			}
		}
		sites = append(sites, s)
	}
	return sites, before
}

func TestGatesSayWhatTheyRead(t *testing.T) {
	rise, least := quantity("100m"), quantity("95")
	outside := map[string]Outside{"logs": {Verdict: v1alpha1.GateFail, Text: "12 lines.", Value: "12"}}
	for _, c := range []struct {
		name    string
		gate    v1alpha1.RolloutGate
		now     func(i int) map[string]float64
		spoil   func(s []Site)
		was     map[string]float64 // scores of sites before
		verdict v1alpha1.GateVerdict
		text    string
		value   string
	}{
		{
			name: "worse than peers", gate: v1alpha1.RolloutGate{Peers: &v1alpha1.GateChange{MaxDrop: 10}},
			now:     func(int) map[string]float64 { return map[string]float64{"Reliability": 67} },
			verdict: v1alpha1.GateFail, value: "23", text: "Reliability fell by 23 points at 12 of 12 changed sites, -0.2 at 88 that did not change; 10 are allowed.",
		},
		{
			name: "all are worse: the time of day", gate: v1alpha1.RolloutGate{Peers: &v1alpha1.GateChange{}},
			spoil: func(s []Site) {
				for i := range s {
					s[i].Measures["Performance"] = 60
				}
			},
			verdict: v1alpha1.GatePass,
		},
		{
			name: "all are worse, each against itself", gate: v1alpha1.RolloutGate{Before: &v1alpha1.GateChange{MaxDrop: 10}},
			spoil: func(s []Site) {
				for i := range s {
					s[i].Measures["Performance"] = 60
				}
			},
			verdict: v1alpha1.GateFail, value: "30", text: "Performance fell by 30 points at 12 of 12 changed sites; 10 are allowed.",
		},
		{
			name: "a query of which more is worse", gate: v1alpha1.RolloutGate{Name: "latency", Peers: &v1alpha1.GateChange{Query: "x", MaxRise: &rise}},
			now:     func(int) map[string]float64 { return map[string]float64{"latency": 0.6} },
			verdict: v1alpha1.GateFail, text: "The value of latency rose by 0.5 at 12 of 12 changed sites",
		},
		{
			name: "one has trouble of its own", gate: v1alpha1.RolloutGate{Peers: &v1alpha1.GateChange{}},
			now: func(i int) map[string]float64 {
				if i == 0 {
					return map[string]float64{"Security": 20}
				}
				return nil
			},
			spoil:   func(s []Site) { s[50].Measures["Security"], s[60].Measures["Security"] = 20, 30 },
			verdict: v1alpha1.GatePass,
		},
		{
			name: "score", gate: v1alpha1.RolloutGate{Score: &v1alpha1.GateScore{Minimum: 95}}, verdict: v1alpha1.GateFail, value: "90",
			text: "The score is 90 in the mean of 12 sites; 95 is the least allowed.",
		},
		{
			name: "red", gate: v1alpha1.RolloutGate{Unhealthy: &v1alpha1.GateUnhealthy{MaxPercent: 10}},
			spoil: func(s []Site) { s[3].Red, s[4].Red = true, true }, verdict: v1alpha1.GateFail, text: "2 of 12 sites are red; 10% are allowed.",
		},
		{
			name: "red before", gate: v1alpha1.RolloutGate{Unhealthy: &v1alpha1.GateUnhealthy{MaxPercent: 10}},
			was:   map[string]float64{"s003": 31, "s004": 12},
			spoil: func(s []Site) { s[3].Red, s[4].Red = true, true }, verdict: v1alpha1.GateWait, text: "2 of 12 sites are red; 10% are allowed. 2 of them were red before",
		},
		{
			name: "not ready", gate: v1alpha1.RolloutGate{Ready: &v1alpha1.GateReady{}},
			spoil: func(s []Site) { s[3].State = Progressing }, verdict: v1alpha1.GateWait, text: "11 of 12 sites are ready.", value: "11",
		},
		{
			name: "ready enough", gate: v1alpha1.RolloutGate{Ready: &v1alpha1.GateReady{Percent: 90}},
			spoil: func(s []Site) { s[3].State = Progressing }, verdict: v1alpha1.GatePass,
		},
		{
			name: "alerts", gate: v1alpha1.RolloutGate{Alerts: &v1alpha1.GateAlerts{Severities: []string{"critical"}}},
			spoil: func(s []Site) {
				for i := range 5 {
					s[i].Alerts = []string{"critical/DiskFull", "warning/Slow"}
				}
			},
			verdict: v1alpha1.GateFail, text: "New alerts of severity critical, most of them DiskFull, fire at 5 of 12 changed sites, and at 0 of 88 that did not change.",
		},
		{
			name: "alerts of another severity", gate: v1alpha1.RolloutGate{Alerts: &v1alpha1.GateAlerts{Severities: []string{"critical"}}},
			spoil:   func(s []Site) { s[0].Alerts = []string{"warning/Slow"} },
			verdict: v1alpha1.GatePass,
		},
		{
			name: "own query", gate: v1alpha1.RolloutGate{Name: "Site", Query: &v1alpha1.GateQuery{Query: "x", Min: &least}},
			verdict: v1alpha1.GateFail, text: "The query's value is not within at least 95 at 12 of 12 sites",
		},
		{name: "logs", gate: v1alpha1.RolloutGate{Name: "logs", Logs: &v1alpha1.GateLogs{}}, verdict: v1alpha1.GateFail, text: "12 lines.", value: "12"},
		{name: "nobody answers", gate: v1alpha1.RolloutGate{Name: "hook", Webhook: &v1alpha1.GateWebhook{}}, verdict: v1alpha1.GateUnknown},
		{
			name: "a measure is missing at one of twelve", gate: v1alpha1.RolloutGate{Score: &v1alpha1.GateScore{Minimum: 5}},
			spoil: func(s []Site) { delete(s[2].Measures, "Site") }, verdict: v1alpha1.GateUnknown, text: "The score is known of 11 of 12 sites.",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.now == nil {
				c.now = func(int) map[string]float64 { return nil }
			}
			if c.gate.Name == "" {
				c.gate.Name = "gate"
			}
			list, before := fleetOf(100, 12, c.now)
			if c.spoil != nil {
				c.spoil(list)
			}
			for name, score := range c.was {
				before[name][siteScore] = score
			}
			memory := &Memory{}
			var r []v1alpha1.GateReading
			var verdict v1alpha1.GateVerdict
			for now := monday; !now.After(monday.Add(6 * time.Minute)); now = now.Add(30 * time.Second) {
				verdict, r = Evaluate([]v1alpha1.RolloutGate{c.gate}, list[:12], list[12:], before, memory, outside, monday, 5*time.Minute, now)
				if c.verdict == v1alpha1.GatePass && now.Sub(monday) < 5*time.Minute && verdict != v1alpha1.GateWait {
					t.Errorf("%s after %s, before the soak was over", verdict, now.Sub(monday))
				}
			}
			if verdict != c.verdict || r[0].Verdict != c.verdict || !strings.Contains(r[0].Text, c.text) || c.value != "" && r[0].Value != c.value {
				t.Errorf("%s, %q, value %q; want %s, %q, %q", verdict, r[0].Text, r[0].Value, c.verdict, c.text, c.value)
			}
		})
	}
}

func TestContactThatIsLost(t *testing.T) {
	w := newWorld(t, 60)
	w.edit = func(w *world) { // what has it goes offline, and never says anything
		for i := range w.sites {
			w.sites[i].Online = w.has[w.sites[i].Name] != '1' || w.now.Sub(w.got[w.sites[i].Name]) < 30*time.Second
		}
	}
	if w.run(3*time.Hour, func(w *world) bool { return w.out.Status.Wave > 1 }) {
		t.Fatalf("went on:\n%s", w.dump())
	}
	if !w.says("went offline after they got the change") || w.out.Status.Phase != v1alpha1.RolloutRolledBack {
		t.Error(w.dump())
	}
}

func TestPlanLooksLikeTheFleet(t *testing.T) {
	w := newWorld(t, 400)
	for i := range w.sites {
		w.sites[i].Online, w.sites[i].Red = i%7 != 0, i%11 == 0
	}
	plan := func(name string) []Wave {
		waves, err := Plan(name, &w.spec, w.sites, w.scope, w.member)
		if err != nil {
			t.Fatal(err)
		}
		return waves
	}
	waves := plan("shop-1")
	seen := map[string]bool{}
	done := 0
	for n, wave := range waves {
		count := map[string]int{}
		for _, name := range wave.Sites {
			if seen[name] {
				t.Errorf("%s is in two waves", name)
			}
			seen[name] = true
			s := w.find(name)
			if n == 0 && (!s.Online || s.Red) {
				t.Errorf("%s is in the first wave, and can't show anything: online %v, red %v", name, s.Online, s.Red)
			}
			for _, l := range []string{"region", "muster.dev/system-arch"} {
				count[s.Labels[l]]++
			}
			if s.Red {
				count["red"]++
			}
		}
		done += len(wave.Sites)
		of := len(wave.Sites)
		if n == 0 && (count["arm64"] < 4 || of > 40) {
			t.Errorf("the first wave has %d sites, %d of them ARM", of, count["arm64"])
		}
		if red := count["red"]; n > 1 && (red < of/10-10 || red > of/10+10) { // they are spread over the waves as well
			t.Errorf("wave %s of %d has %d that are red", wave.Name, of, red)
		}
		if n > 0 && (count["arm64"] < of/4-2 || count["arm64"] > of/4+2 || count["r0"] < of/3-2 || count["r0"] > of/3+2) {
			t.Errorf("wave %s of %d looks like %v", wave.Name, of, count)
		}
	}
	if len(seen) != 400 || len(waves) != 4 || len(waves[0].Sites)+len(waves[1].Sites) != 40 {
		t.Errorf("%d sites in %d waves", len(seen), len(waves))
	}
	if again := plan("shop-1"); !slices.EqualFunc(again, waves, func(a, b Wave) bool { return slices.Equal(a.Sites, b.Sites) }) {
		t.Error("the same again gives another plan")
	}
	if other := plan("shop-2"); slices.Equal(other[0].Sites, waves[0].Sites) {
		t.Error("another rollout begins at the same sites")
	}
}
