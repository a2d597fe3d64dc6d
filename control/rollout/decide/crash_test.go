package decide

import (
	"flag"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

var crashSeed = flag.Uint64("crash-seed", 1, "seed of the points at which the process dies")

// stories are rollouts with all that may happen on the way.
var stories = map[string]func(t *testing.T) *world{
	"good": func(t *testing.T) *world {
		w := newWorld(t, 60)
		w.edit = func(w *world) {
			// Some are offline as it begins, and come back after two hours, when all is done.
			for i := range w.sites {
				if i%10 == 3 {
					w.sites[i].Online = w.now.Sub(monday) > 2*time.Hour
				}
			}
		}
		return w
	},
	"bad": func(t *testing.T) *world {
		w := newWorld(t, 60)
		w.harm = worse("Reliability", -30)
		return w
	},
	"put back by wave": func(t *testing.T) *world {
		w := newWorld(t, 60)
		w.spec.OnFailure = v1alpha1.OnFailureRollBackWave
		w.harm = worse("Performance", -30)
		w.edit = func(w *world) { // people mend it and have it go on
			if w.out.Status.Phase == v1alpha1.RolloutPaused {
				w.harm = nil
				w.spec.Control.Resume = 1
			}
		}
		return w
	},
	"one after the other": func(t *testing.T) *world {
		w := newWorld(t, 12)
		w.spec.Strategy = v1alpha1.RolloutStrategy{Type: v1alpha1.StrategyRolling, Group: "3", MaxInFlight: 1}
		return w
	},
	"some fail": func(t *testing.T) *world {
		w := newWorld(t, 60)
		w.spec.Budget.MaxFailed, w.spec.Budget.MaxFailedInWave = "10%", "50%"
		w.fails = func(s *Site) bool { return s.Name == "site-00007" || s.Name == "site-00031" }
		return w
	},
}

func worse(dimension string, by float64) func(*Site, time.Duration) map[string]float64 {
	return func(_ *Site, since time.Duration) map[string]float64 {
		if since < time.Minute {
			return nil
		}
		return map[string]float64{dimension: by}
	}
}

// end is all that has to be the same, however often the process died.
type end struct {
	Phase             v1alpha1.RolloutPhase
	Held              bool
	Sites, Steps, Has string
	Assigned          map[string][]string
}

func (w *world) end() end {
	return end{w.out.Status.Phase, w.state.Held, w.state.Sites, w.state.Steps, w.state.Has, w.assigned}
}

// TestCrashesChangeNothing lets the process die at random decisions, before the state was
// written and after, and lets writes fail: the same sites get the same contents as often,
// and it ends the same.
func TestCrashesChangeNothing(t *testing.T) {
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			want := story(t)
			if !want.run(24*time.Hour, ended) {
				t.Fatalf("does not end:\n%s", want.dump())
			}
			for seed := range uint64(20) {
				rng := rand.New(rand.NewPCG(*crashSeed, seed))
				w := story(t)
				died := 0
				w.crash = func(*world) int {
					if rng.Float64() > 0.12 {
						return 0
					}
					died++
					return 1 + rng.IntN(2)
				}
				if !w.run(24*time.Hour, ended) {
					t.Fatalf("-crash-seed %d, %d: does not end, after %d crashes:\n%s", *crashSeed, seed, died, w.dump())
				}
				if got := w.end(); !reflect.DeepEqual(got, want.end()) {
					t.Fatalf("-crash-seed %d, %d: after %d crashes it ends\n%+v\nnot\n%+v\n%s", *crashSeed, seed, died, got, want.end(), w.dump())
				}
			}
		})
	}
}

// TestDecidedAgainAtOnce decides everything twice, as a controller that is woken twice
// does: the second finds nothing to do.
func TestDecidedAgainAtOnce(t *testing.T) {
	w := stories["good"](t)
	w.run(24*time.Hour, func(w *world) bool {
		again := Decide(Input{
			Name: "shop-1", Spec: &w.spec, State: w.state.DeepCopy(), Sites: w.sites, InScope: w.scope, Member: w.member,
			Memory: w.memory, Now: w.now.Add(-w.tick), User: "ann",
		})
		for _, d := range again.Decisions {
			if d.What == "WaveStarted" || d.What == "Started" || d.What == "WavePassed" {
				t.Errorf("%s again: %s", d.What, d.Text)
			}
		}
		if again.Changed && again.State.Has != w.state.Has {
			t.Errorf("other contents at once: %s, then %s", w.state.Has, again.State.Has)
		}
		return ended(w)
	})
	if !ended(w) {
		t.Fatal(w.dump())
	}
}

// A site has readyWithin of a time in which somebody looks: a control that is killed again and
// again makes no site fail, and one that stays up finds the one that never gets ready.
func TestKillsMakeNoSiteFail(t *testing.T) {
	w := newWorld(t, 40)
	w.spec.Budget = budget("100%", "0", 5*time.Minute)
	w.readyAfter = 24 * time.Hour
	for range 40 {
		for range 4 {
			w.step()
			w.now = w.now.Add(time.Minute)
		}
		w.memory = nil
	}
	if w.says("was not ready in time") {
		t.Fatal(w.dump())
	}
	w.want(v1alpha1.RolloutRollingBack, 6*time.Minute)
	if !w.says("was not ready in time") {
		t.Error(w.dump())
	}

	// Nor does one that was away for an hour.
	w = newWorld(t, 40)
	w.spec.Budget = budget("100%", "0", 5*time.Minute)
	w.readyAfter = 4 * time.Minute
	w.step()
	w.now = w.now.Add(time.Hour)
	w.want(v1alpha1.RolloutCompleted, 24*time.Hour)
}
