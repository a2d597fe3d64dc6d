package decide

import (
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

func TestGoodReleaseCompletes(t *testing.T) {
	w := newWorld(t, 60)
	w.want(v1alpha1.RolloutCompleted, 2*time.Hour)
	for _, s := range w.sites {
		if got := w.assigned[s.Name]; len(got) != 1 || got[0] != "1" {
			t.Errorf("%s was given %v, want the change, once", s.Name, got)
		}
	}
	if w.state.Held {
		t.Error("still held")
	}
	t.Log(w.dump())
}

func TestBadReleaseIsPutBack(t *testing.T) {
	w := newWorld(t, 60)
	w.harm = func(_ *Site, since time.Duration) map[string]float64 {
		if since < 2*time.Minute {
			return nil
		}
		return map[string]float64{"Reliability": -23}
	}
	w.want(v1alpha1.RolloutRolledBack, time.Hour)
	t.Log(w.dump())
	if n := len(w.assigned); n != w.state0() {
		t.Errorf("%d sites were touched, want the first wave's %d", n, w.state0())
	}
}

func (w *world) state0() int { return int(w.out.Status.Waves[0].Sites.Total) }

func TestFailingReleaseIsPutBack(t *testing.T) {
	w := newWorld(t, 60)
	w.fails = func(*Site) bool { return true }
	w.want(v1alpha1.RolloutRolledBack, time.Hour)
	t.Log(w.dump())
}
