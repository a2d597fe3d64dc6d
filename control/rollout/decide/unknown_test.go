package decide

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

// Whatever comes in whatever order, a gate fails once its source has said for long enough that
// it should, and the time around looks at which it said nothing is no part of that; what is
// not known is never passed.
func TestTimeWithoutASourceIsNoEvidence(t *testing.T) {
	const soak, tick = 6 * time.Minute, 15 * time.Second
	least, drop := quantity("95"), v1alpha1.GateChange{MaxDrop: 10, Dimensions: []v1alpha1.HealthDimension{"Reliability"}}
	for _, c := range []struct {
		name string
		gate v1alpha1.RolloutGate
		bad  func(s *Site)
		hide func(s *Site)
		wait time.Duration
		mean bool // it reads a mean over minutes: that it is well again shows later
	}{
		{"score", v1alpha1.RolloutGate{Score: &v1alpha1.GateScore{Minimum: 70}}, func(s *Site) { s.Measures[siteScore] = 50 }, func(s *Site) { delete(s.Measures, siteScore) }, soak / 3, false},
		{"unhealthy", v1alpha1.RolloutGate{Unhealthy: &v1alpha1.GateUnhealthy{}}, func(s *Site) { s.Red = true }, func(s *Site) { delete(s.Measures, siteScore) }, soak / 3, false},
		{"query", v1alpha1.RolloutGate{Query: &v1alpha1.GateQuery{Min: &least}}, func(s *Site) { s.Measures["query"] = 1 }, func(s *Site) { delete(s.Measures, "query") }, confirm, false},
		{"alerts", v1alpha1.RolloutGate{Alerts: &v1alpha1.GateAlerts{Severities: []string{"critical"}}}, func(s *Site) { s.Alerts = []string{"critical/A"} }, func(s *Site) { s.AlertsKnown = false }, confirm, false},
		{"before", v1alpha1.RolloutGate{Before: &drop}, func(s *Site) { s.Measures["Reliability"] = 50 }, func(s *Site) { delete(s.Measures, "Reliability") }, confirm, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.gate.Name = c.name
			seen := map[v1alpha1.GateVerdict]int{}
			for seed := range uint64(40) {
				rng := rand.New(rand.NewPCG(seed, 7))
				m, now := &Memory{}, monday
				ran, before, first := time.Duration(0), "", true
				state := "bad"
				var story string
				for range 60 {
					if rng.IntN(4) == 0 {
						state = []string{"bad", "bad", "bad", "good", "unknown", "unknown"}[rng.IntN(6)]
					}
					if c.mean && state == "good" {
						state = "unknown"
					}
					sites, was := fleetOf(12, 0, nil)
					for i := range sites {
						sites[i].Measures["query"] = 99
						was[sites[i].Name]["query"] = 99
						switch state {
						case "bad":
							c.bad(&sites[i])
						case "unknown":
							c.bad(&sites[i])
							c.hide(&sites[i])
						}
					}
					want := v1alpha1.GatePass
					switch state {
					case "unknown":
						want = v1alpha1.GateUnknown
					case "good":
						ran, first = 0, true
					case "bad":
						if !first && before == "bad" {
							ran += tick
						}
						first = false
						if want = v1alpha1.GateWait; ran >= c.wait {
							want = v1alpha1.GateFail
						}
					}
					before = state
					story += state[:1]
					verdict, readings := Evaluate([]v1alpha1.RolloutGate{c.gate}, sites, nil, was, m, nil, monday.Add(-time.Hour), soak, now)
					if seen[verdict]++; verdict != want {
						t.Fatalf("seed %d, %s: %s, want %s: %+v", seed, story, verdict, want, readings)
					}
					now = now.Add(tick)
				}
			}
			if all := 4; len(seen) != all && !(c.mean && len(seen) == all-1) {
				t.Errorf("only %v was seen", seen)
			}
		})
	}
}

// A value that can't be compared, as a tenant's own query may give any, is none; nothing hangs.
func TestValuesThatCannotBeCompared(t *testing.T) {
	rise := quantity("1")
	for _, gate := range []v1alpha1.RolloutGate{
		{Name: "latency", Peers: &v1alpha1.GateChange{Query: "x", MaxRise: &rise}},
		{Name: "latency", Before: &v1alpha1.GateChange{Query: "x", MaxRise: &rise}},
		{Name: "latency", Query: &v1alpha1.GateQuery{Query: "x", Max: &rise}},
	} {
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, 1e31} {
			m := &Memory{}
			for at := range 20 {
				sites, was := fleetOf(40, 40, func(i int) map[string]float64 {
					if i%2 == 0 || at < 10 {
						return map[string]float64{"latency": v}
					}
					return map[string]float64{"latency": -v}
				})
				if at%3 == 0 {
					was["s001"]["latency"], was["s030"]["latency"] = v, v
				}
				if verdict, _ := Evaluate([]v1alpha1.RolloutGate{gate}, sites[:20], sites[20:], was, m, nil, monday, time.Minute, monday.Add(time.Duration(at)*15*time.Second)); verdict != v1alpha1.GateUnknown {
					t.Errorf("%s of %g: %s", gate.Name, v, verdict)
				}
			}
		}
	}
}

// The same of the single sites of few, for which time stands in: as long as nobody knows what
// they are like they have not been worse.
func TestTimeWithoutASourceIsNoEvidenceOfOneSite(t *testing.T) {
	gate := []v1alpha1.RolloutGate{{Name: "peers", Peers: &v1alpha1.GateChange{MaxDrop: 10, Dimensions: []v1alpha1.HealthDimension{"Reliability"}}}}
	const soak = 6 * time.Minute
	for _, dark := range []bool{false, true} {
		m, failed := &Memory{}, time.Duration(-1)
		for at := time.Duration(0); at <= 3*soak && failed < 0; at += 15 * time.Second {
			sites, was := fleetOf(40, 1, func(int) map[string]float64 { return map[string]float64{"Reliability": 60} })
			if n := at / (2 * time.Minute); dark && n%2 == 1 { // each second two minutes nobody knows
				delete(sites[0].Measures, "Reliability")
			}
			if verdict, _ := Evaluate(gate, sites[:1], sites[1:], was, m, nil, monday.Add(-time.Hour), soak, monday.Add(at)); verdict == v1alpha1.GateFail {
				failed = at
			}
		}
		if least := map[bool]time.Duration{false: soak, true: 2 * soak}[dark]; failed >= 0 && failed < least || !dark && failed < 0 {
			t.Errorf("in the dark half of the time %v: failed after %s, want %s or later", dark, failed, least)
		}
	}
}

// While nobody knows what sites are like, whenever that is, a good rollout is not stopped, and
// no wave passes on time in which that was so.
func TestSoaksCountWhatWasKnown(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 9))
		w := newWorld(t, 60)
		dark, lastDark, wave := false, monday, int32(1)
		w.blind = func() bool { return dark }
		w.edit = func(w *world) {
			if rng.IntN(12) == 0 && w.now.After(monday.Add(time.Minute)) { // what they were like before is known
				dark = !dark && rng.IntN(2) == 0
			}
		}
		for w.now.Before(monday.Add(12*time.Hour)) && !w.out.Status.Phase.Ended() {
			if w.step(); dark {
				lastDark = w.now
			}
			if now := w.out.Status.Wave; now != wave {
				if d := w.now.Sub(lastDark); d < w.spec.Soak.Duration {
					t.Errorf("seed %d: wave %d passed %s after nobody knew:\n%s", seed, wave, d, w.dump())
				}
				wave = now
			}
		}
		if w.out.Status.Phase != v1alpha1.RolloutCompleted && w.out.Status.Phase != v1alpha1.RolloutProgressing || wave < 2 {
			t.Errorf("seed %d: %s", seed, fmt.Sprint(wave)+w.dump())
		}
	}
}
