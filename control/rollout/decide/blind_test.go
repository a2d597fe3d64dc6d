package decide

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

// burning is a world whose sites all have a critical alert all the while, which is of no
// change; nobody can say so while dark.
func burning(t *testing.T, n int, dark *bool) *world {
	w := newWorld(t, n)
	w.blind = func() bool { return *dark }
	w.edit = func(w *world) {
		w.outside = nil
		if *dark {
			unknown := Outside{Verdict: v1alpha1.GateUnknown, Text: "it does not answer in time"}
			w.outside = map[string]Outside{"alerts": unknown, "peers": unknown, "unhealthy": unknown}
		}
		for i := range w.sites {
			w.sites[i].AlertsKnown, w.sites[i].Alerts = !*dark, nil
			if !*dark {
				w.sites[i].Alerts = []string{"critical/Old"}
			}
		}
	}
	return w
}

// No site changes before it is known what it will be compared with, and what was wrong before
// is none of the change; the status says what is missing, and people can have it begin anyway.
func TestNothingBeginsInTheDark(t *testing.T) {
	for name, gates := range map[string][]v1alpha1.RolloutGate{
		"alerts":    {{Name: "alerts", Alerts: &v1alpha1.GateAlerts{Severities: []string{"critical"}}}},
		"peers":     {{Name: "peers", Peers: &v1alpha1.GateChange{MaxDrop: 10}}},
		"unhealthy": {{Name: "unhealthy", Unhealthy: &v1alpha1.GateUnhealthy{MaxPercent: 10}}},
		"default":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			dark := true
			w := burning(t, 60, &dark)
			w.spec.Gates = gates
			gate := name
			if gates == nil {
				gate = "alerts"
			}
			for range 20 {
				w.step()
				if w.out.Changed || w.out.Status.Phase != v1alpha1.RolloutQueued || !strings.Contains(w.out.Status.Message, "Gate "+gate+": nothing is known of ") || !strings.Contains(w.out.Status.Message, "it does not answer in time") {
					t.Fatalf("in the dark:\n%s", w.dump())
				}
			}
			dark = false
			w.want(v1alpha1.RolloutCompleted, 3*time.Hour)

			dark = true
			w = burning(t, 60, &dark)
			w.spec.Gates, w.spec.Control.Promote = gates, 1
			w.until("people have it begin", time.Minute, func(w *world) bool { return strings.Contains(w.state.Has, "1") })
			w.until("the second wave", time.Hour, inWave(2))
			for range 20 {
				if w.step(); strings.Contains(w.state.Has[w.state0():], "1") || !strings.Contains(w.out.Status.Message, "change once what they are compared with is known. Gate "+gate) && len(w.memory.sites) == 0 {
					t.Fatalf("the second wave, in the dark:\n%s", w.dump())
				}
			}
			dark = false
			w.want(v1alpha1.RolloutCompleted, 3*time.Hour)
		})
	}
}

// A gate that compares nothing with what was needs no such knowledge to begin.
func TestWhatBeginsInTheDark(t *testing.T) {
	dark := true
	w := burning(t, 60, &dark)
	w.spec.Gates = []v1alpha1.RolloutGate{{Name: "ready", Ready: &v1alpha1.GateReady{}}, {Name: "score", Score: &v1alpha1.GateScore{Minimum: 50}}}
	w.until("it begins", time.Minute, inWave(1))
	dark = false
	w.want(v1alpha1.RolloutCompleted, 3*time.Hour)
}

// What fires at a site that joins late, or that comes back while nobody knows what fires, has
// fired before it changed.
func TestAlertsOfThoseWhoComeLate(t *testing.T) {
	dark := false
	w := burning(t, 60, &dark)
	w.spec.Gates = []v1alpha1.RolloutGate{{Name: "alerts", Alerts: &v1alpha1.GateAlerts{Severities: []string{"critical"}}}}
	w.spec.Strategy.Waves = percent(100)
	for i := range 3 {
		w.sites[i].Online = false
	}
	w.until("all others passed", time.Hour, func(w *world) bool { return w.out.Status.Sites.Passed == 57 })
	dark = true
	for i := range 3 {
		w.sites[i].Online = true
	}
	for range 8 {
		if w.step(); strings.Count(w.state.Has, "1") != 57 {
			t.Fatalf("caught up in the dark:\n%s", w.dump())
		}
	}
	if !strings.Contains(w.out.Status.Message, "3 sites change once what they are compared with is known. Gate alerts: nothing is known of 60 sites. it does not answer in time") {
		t.Error(w.out.Status.Message)
	}
	dark = false
	w.until("they are caught up", time.Hour, func(w *world) bool { return strings.Trim(w.state.Has, "1") == "" })
	w.want(v1alpha1.RolloutCompleted, time.Hour)

	w = burning(t, 60, &dark)
	w.spec.Gates = []v1alpha1.RolloutGate{{Name: "alerts", Alerts: &v1alpha1.GateAlerts{Severities: []string{"critical"}}}}
	w.spec.Strategy.Waves = percent(50, 100)
	w.until("the first wave soaks", time.Hour, func(w *world) bool { return w.out.Status.Waves[0].Sites.Updated == 30 })
	for i := range 10 {
		w.sites = append(w.sites, Site{Name: fmt.Sprintf("site-%05d", 100+i), Online: true, State: Ready, AlertsKnown: true, Labels: map[string]string{"region": "r0"}})
	}
	w.step()
	if d, err := decode(w.state.Decided.Raw, 70); err != nil || len(d.Alerts) != 70 {
		t.Errorf("alerts of %d of 70 sites are noted: %v", len(d.Alerts), err)
	}
	w.want(v1alpha1.RolloutCompleted, 3*time.Hour)
	if !w.says("10 sites joined") || w.out.Status.Sites.Passed != 70 {
		t.Error(w.dump())
	}
}
