package decide

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
)

// A release that comes right after a bad one was put back is told good from bad by sites that
// are well: it does not wait for the others to get over that, and they hide nothing.
func TestAReleaseAfterABadOne(t *testing.T) {
	for n := range 60 {
		w := afterABadOne(t, fmt.Sprint("good-", n))
		w.run(10*time.Minute, ended)
		if took := w.now.Sub(monday); w.out.Status.Phase != v1alpha1.RolloutCompleted || took > 3*time.Minute {
			t.Errorf("%s took %s:\n%s", w.name, took, w.dump())
		}
		w = afterABadOne(t, fmt.Sprint("bad-", n))
		w.harm = func(_ *Site, since time.Duration) map[string]float64 {
			if since < 20*time.Second {
				return nil
			}
			return map[string]float64{"Site": -60, "Reliability": -60}
		}
		w.run(10*time.Minute, ended)
		if took := w.now.Sub(monday); w.out.Status.Phase != v1alpha1.RolloutRolledBack || took > 4*time.Minute || len(w.assigned) != 4 {
			t.Errorf("%s took %s, and went to %d sites:\n%s", w.name, took, len(w.assigned), w.dump())
		}
	}
}

// afterABadOne is a fleet of which some are red still, with the plan that the demo has.
func afterABadOne(t *testing.T, name string) *world {
	t.Helper()
	const bad, well = 4, 5 * time.Minute // sites of 18, and when they are well again
	four, half := int32(4), int32(50)
	w := newWorld(t, 18)
	w.name, w.tick, w.readyAfter = name, 5*time.Second, 0
	w.spec.Strategy.Waves = []v1alpha1.RolloutWave{{Count: &four, Soak: &metav1.Duration{Duration: time.Minute}}, {Percent: &half}}
	w.spec.Gates = []v1alpha1.RolloutGate{{Name: "ready", Ready: &v1alpha1.GateReady{}}, {Name: "peers", Peers: &v1alpha1.GateChange{}}, {Name: "red", Unhealthy: &v1alpha1.GateUnhealthy{MaxPercent: 75}}}
	w.spec.Soak.Duration, w.spec.Settle = 20*time.Second, &metav1.Duration{Duration: 90 * time.Second}
	w.spec.Budget.MaxFailedInWave = "0"
	w.before = map[string]map[string]float64{}
	for i := range w.sites {
		w.sites[i].Labels = nil
		w.before[w.sites[i].Name] = map[string]float64{"Site": 92}
		if i < bad { // for 150 s of the last quarter of an hour they were red
			w.before[w.sites[i].Name]["Site"] = (750*92 + 150*33) / 900
		}
	}
	w.ill = func(s *Site) float64 {
		for i := range bad {
			if s == &w.sites[i] && w.now.Sub(monday) < well {
				return 33
			}
		}
		return 0
	}
	return w
}
