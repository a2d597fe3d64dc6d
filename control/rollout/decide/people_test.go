package decide

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
)

// While people have paused it no further site changes, nothing is put back, and no soak goes on.
func TestWhatIsPausedStandsStill(t *testing.T) {
	w := newWorld(t, 40)
	w.spec.Strategy.Waves = percent(50)
	w.spec.Strategy.MaxInFlight = 3
	w.step()
	w.spec.Control.Paused = true
	w.step()
	has := w.state.Has
	w.harm = worse("Reliability", -30)
	w.run(time.Hour, func(*world) bool { return false })
	if w.state.Has != has || w.out.Status.Phase != v1alpha1.RolloutPaused || w.says("Failed") {
		t.Fatalf("has %s, had %s:\n%s", w.state.Has, has, w.dump())
	}
	if len(w.out.Status.Gates) == 0 {
		t.Error("its gates are not shown")
	}

	w = newWorld(t, 40)
	w.until("it soaks", time.Hour, func(w *world) bool { return strings.Contains(w.out.Status.Message, "the soak has") })
	w.run(3*time.Minute, func(*world) bool { return false })
	w.spec.Control.Paused = true
	w.run(time.Hour, func(*world) bool { return false })
	w.spec.Control.Paused = false
	resumed := w.now
	w.until("the next wave", time.Hour, inWave(2))
	if d := w.now.Sub(resumed); d < w.spec.Soak.Duration {
		t.Errorf("the wave passed %s after it went on, want a soak of %s anew", d, w.spec.Soak.Duration)
	}
}

// One that paused by itself waits for people, though all is well again: it says why, reads its
// gates, and changes nothing. What failed until they had it go on is forgiven, and no more than that.
func TestWhatHaltedWaitsForPeople(t *testing.T) {
	for what, plan := range map[string]v1alpha1.RolloutOnFailure{"pause": v1alpha1.OnFailurePause, "wave": v1alpha1.OnFailureRollBackWave} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, 40)
			w.spec.OnFailure = plan
			w.harm = worse("Reliability", -30)
			w.want(v1alpha1.RolloutPaused, time.Hour)
			w.harm = nil
			has, said := w.state.Has, len(w.decisions)
			w.run(time.Hour, func(*world) bool { return false })
			if w.state.Has != has || len(w.decisions) != said || w.out.Status.Phase != v1alpha1.RolloutPaused || !strings.Contains(w.out.Status.Message, "Reliability fell") {
				t.Fatalf("it went on:\n%s", w.dump())
			}
			if plan == v1alpha1.OnFailurePause && len(w.out.Status.Gates) == 0 {
				t.Error("its gates are not shown")
			}
			w.spec.Control.Resume = 1
			resumed := w.now
			w.until("the next wave", time.Hour, inWave(2))
			if d := w.now.Sub(resumed); d < w.spec.Soak.Duration {
				t.Errorf("the wave passed %s after it went on, want a soak of %s anew", d, w.spec.Soak.Duration)
			}
			if !w.says("ann had it go on.") {
				t.Errorf("nobody is told who had it go on:\n%s", w.dump())
			}
			w.want(v1alpha1.RolloutCompleted, 2*time.Hour)
			said = len(w.decisions)
			w.spec.Control.Resume = 2
			if w.step(); len(w.decisions) != said {
				t.Errorf("one that does not wait is said to go on:\n%s", w.dump())
			}
		})
	}
	w := newWorld(t, 40)
	w.spec.OnFailure = v1alpha1.OnFailurePause
	w.spec.Strategy.Waves = percent(50)
	w.spec.Budget = budget("0", "0", 5*time.Minute)
	w.step()
	listed := strings.Fields(w.state.Sites)
	bad := map[string]bool{listed[0]: true}
	w.fails = func(s *Site) bool { return bad[s.Name] }
	w.want(v1alpha1.RolloutPaused, time.Hour)
	w.spec.Control.Resume = 1
	w.until("it goes on", time.Minute, phase(v1alpha1.RolloutProgressing))
	if w.run(4*time.Minute, phase(v1alpha1.RolloutPaused)) {
		t.Fatalf("what was forgiven paused it again:\n%s", w.dump())
	}
	bad[listed[1]] = true
	w.want(v1alpha1.RolloutPaused, time.Minute)
	w.spec.Control.Resume = 2
	w.until("the next wave", time.Hour, inWave(2))
	bad[listed[25]] = true
	w.want(v1alpha1.RolloutPaused, 10*time.Minute)
	if !w.says("1 site failed in wave 2, and 0 may") {
		t.Errorf("what was forgiven in the first wave counts in the second:\n%s", w.dump())
	}
	w.spec.Control.Resume = 3
	w.want(v1alpha1.RolloutCompleted, time.Hour)
	if !w.says("37 sites have the change; 3 sites failed, and the budget allows it.") {
		t.Error(w.dump())
	}
}

// Where all of a wave's sites failed and people had it go on, it says what it waits for.
func TestAWaveThatFailedWaitsForPeople(t *testing.T) {
	w := newWorld(t, 40)
	w.spec.OnFailure = v1alpha1.OnFailurePause
	w.spec.Strategy.Waves = percent(5)
	w.fails = func(*Site) bool { return true }
	w.want(v1alpha1.RolloutPaused, time.Hour)
	w.spec.Control.Resume = 1
	w.until("it goes on", time.Minute, phase(v1alpha1.RolloutProgressing))
	if st := w.out.Status; st.Message != "Wave 1 of 2: 2 sites failed, and none is ready." || !strings.Contains(st.Next, "to retry one") {
		t.Error(w.dump())
	}
	w.fails = nil
	for _, name := range strings.Fields(w.state.Sites)[:2] {
		w.spec.Control.Retry = map[string]int32{name: 1}
	}
	w.want(v1alpha1.RolloutCompleted, 2*time.Hour)
}

// One that is aborted before it began has changed nothing, and one that no site is concerned by is
// complete at once.
func TestWhatEndsAsItBegins(t *testing.T) {
	w := newWorld(t, 40)
	w.spec.Control.Abort = true
	w.step()
	if w.out.Status.Phase != v1alpha1.RolloutRolledBack || !w.says("ann aborted it before any site changed") || strings.Contains(w.state.Has, "1") {
		t.Error(w.dump())
	}
	w = newWorld(t, 40)
	w.scope = func(*Site) bool { return false }
	w.step()
	if w.out.Status.Phase != v1alpha1.RolloutCompleted || !w.says("There is no site that holds it.") {
		t.Error(w.dump())
	}
}

// A wave may have a soak of its own, which is for it alone; none at all is one as well.
func TestAWavesOwnSoak(t *testing.T) {
	w := newWorld(t, 40)
	w.spec.Strategy.Waves = percent(10, 50)
	w.spec.Strategy.Waves[0].Soak = &metav1.Duration{Duration: 20 * time.Minute}
	w.spec.Strategy.Waves[1].Soak = &metav1.Duration{}
	var began [4]time.Time
	for n := range int32(3) {
		w.until("the wave", time.Hour, inWave(n+1))
		began[n] = w.now
	}
	w.want(v1alpha1.RolloutCompleted, time.Hour)
	began[3] = w.now
	for n, want := range []time.Duration{20 * time.Minute, 0, 5 * time.Minute} {
		if took := began[n+1].Sub(began[n]); took < want || took > want+3*time.Minute {
			t.Errorf("wave %d took %s, with a soak of %s", n+1, took, want)
		}
	}
}

// A wave of which no site can be reached shows nothing: the first holds, and a later one is skipped,
// since an earlier has shown how the change is.
func TestAWaveThatCannotBeReached(t *testing.T) {
	for lost, says := range map[int]string{0: "none of its sites that could show how the change is can be reached", 1: "WaveSkipped"} {
		w := newWorld(t, 40)
		w.spec.Strategy.Waves = []v1alpha1.RolloutWave{{Label: "wave=0"}, {Label: "wave=1"}}
		for i := range w.sites {
			if i < 20 {
				w.sites[i].Labels["wave"] = string(rune('0' + i/10))
			}
		}
		w.edit = func(w *world) {
			for i := range w.sites {
				w.sites[i].Online = i/10 != lost
			}
		}
		w.until(says, time.Hour, func(w *world) bool { return w.says(says) })
		if lost == 0 && w.run(time.Hour, func(w *world) bool { return strings.Contains(w.state.Has, "1") }) {
			t.Errorf("the next wave began, and nobody has seen the change:\n%s", w.dump())
		}
	}
}

// A site that has passed and fails later counts against the budget of all; one that failed and is
// ready by itself no longer does.
func TestWhoFailsLater(t *testing.T) {
	w := newWorld(t, 40)
	w.spec.Budget = budget("0", "100%", 5*time.Minute)
	bad := ""
	w.fails = func(s *Site) bool { return s.Name == bad }
	w.until("wave 2", time.Hour, inWave(2))
	bad = w.first().Name
	w.want(v1alpha1.RolloutRollingBack, time.Minute)
	if !w.says("1 site of 40 failed, and 0 may: " + bad + " CrashLoopBackOff") {
		t.Error(w.dump())
	}

	w = newWorld(t, 40)
	w.spec.Budget = budget("1", "100%", 5*time.Minute)
	w.fails = func(s *Site) bool { return s.Name == bad }
	w.step()
	bad = w.first().Name
	w.until("it fails", 10*time.Minute, func(w *world) bool { return w.stepOf(bad) == v1alpha1.StepFailed })
	was := bad
	bad = ""
	w.step()
	if w.stepOf(was) != v1alpha1.StepReady {
		t.Errorf("ready by itself, %s is at %c", was, w.stepOf(was))
	}
	w.want(v1alpha1.RolloutCompleted, 2*time.Hour)
	if w.out.Status.Sites.Passed != 40 {
		t.Error(w.dump())
	}
}

// A site in maintenance may take as long as that is.
func TestMaintenanceIsNotLate(t *testing.T) {
	w := newWorld(t, 40)
	w.spec.Budget = budget("0", "0", 5*time.Minute)
	w.readyAfter = 2 * time.Minute
	w.step()
	name := w.first().Name
	on := true
	w.edit = func(w *world) {
		s := w.find(name)
		if s.Maintenance = on; on && w.has[name] == '1' {
			w.got[name] = w.now
		}
	}
	if w.run(time.Hour, func(w *world) bool { return w.says("Failed") || w.out.Status.Wave > 1 }) {
		t.Fatalf("it was not waited for:\n%s", w.dump())
	}
	on = false
	w.want(v1alpha1.RolloutCompleted, 2*time.Hour)
}

// What is put back waits for no site in maintenance.
func TestRollingBackDoesNotWaitForMaintenance(t *testing.T) {
	w := newWorld(t, 40)
	w.until("wave 2", time.Hour, inWave(2))
	w.step()
	name := w.first().Name
	w.edit = func(w *world) {
		w.find(name).Maintenance = true
		w.got[name] = w.now
	}
	w.spec.Control.Abort = true
	w.want(v1alpha1.RolloutRolledBack, 10*time.Minute)
}

// What happens to sites in maintenance after they got the change puts no fleet back, and lets
// none pass: not that they are away, nor that they are unwell, nor what they show.
func TestMaintenanceAfterTheChange(t *testing.T) {
	for name, c := range map[string]struct {
		do  func(w *world, s *Site)
		all bool
	}{
		"offline":         {do: func(_ *world, s *Site) { s.Online = false }},
		"all offline":     {do: func(_ *world, s *Site) { s.Online = false }, all: true},
		"what they show":  {do: func(w *world, s *Site) { w.ailing[s.Name] = true }},
		"what all show":   {do: func(w *world, s *Site) { w.ailing[s.Name] = true }, all: true},
		"failed":          {do: func(w *world, s *Site) { w.ailing[s.Name] = true; w.down[s.Name] = true }},
		"all of a wave's": {do: func(*world, *Site) {}, all: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 100)
			w.spec.Budget = budget("0", "0", 5*time.Minute)
			w.spec.Strategy.Waves = percent(10, 100)
			w.ailing, w.down = map[string]bool{}, map[string]bool{}
			w.harm = func(s *Site, _ time.Duration) map[string]float64 {
				if w.ailing[s.Name] {
					return map[string]float64{"Reliability": -60, siteScore: -60}
				}
				return nil
			}
			w.fails = func(s *Site) bool { return w.down[s.Name] }
			w.until("all of the wave are ready", time.Hour, func(w *world) bool { return w.out.Status.Waves[0].Sites.Updated == 10 })
			names := strings.Fields(w.state.Sites)[:5]
			if c.all {
				names = strings.Fields(w.state.Sites)[:10]
			}
			on := true
			w.edit = func(w *world) {
				for _, name := range names {
					if s := w.find(name); on {
						s.Maintenance = true
						c.do(w, s)
					} else {
						s.Online, s.Maintenance = true, false
					}
				}
			}
			again := func(w *world) bool { return w.says("Failed") || c.all && w.out.Status.Wave > 1 }
			if w.run(time.Hour, again) {
				t.Fatalf("the fleet was put back, or the wave passed:\n%s", w.dump())
			}
			if c.all && !w.says("maintenance") && !w.says("can be reached") {
				t.Errorf("it does not say why:\n%s", w.dump())
			}
			on = false
			clear(w.ailing)
			clear(w.down)
			w.want(v1alpha1.RolloutCompleted, 3*time.Hour)
			if w.says("Failed") {
				t.Errorf("it failed once:\n%s", w.dump())
			}
		})
	}
}

// A site that another rollout is changing does not begin; its wave waits for it and says why,
// but where others wait for that: then it is caught up.
func TestABusySiteIsHeld(t *testing.T) {
	for _, later := range []bool{false, true} {
		w := newWorld(t, 40)
		w.spec.Strategy.Waves = percent(25, 100)
		busy := true
		w.edit = func(w *world) {
			s := w.find("site-00005")
			if s.Busy, s.Later = "", later; busy {
				s.Busy = "being changed by rollout other"
			}
		}
		if later {
			w.until("the others pass", 2*time.Hour, func(w *world) bool { return w.out.Status.Sites.Passed == 39 })
		} else {
			w.until("its wave waits", 2*time.Hour, func(w *world) bool {
				return strings.Contains(w.out.Status.Message, "1 site being changed by rollout other.")
			})
			if w.run(time.Hour, func(w *world) bool {
				return w.out.Status.Phase != v1alpha1.RolloutProgressing || w.out.Status.Sites.Passed == 39
			}) {
				t.Fatalf("it did not wait:\n%s", w.dump())
			}
		}
		if w.has["site-00005"] == '1' || w.out.Status.Sites.Held != 1 {
			t.Fatalf("it has begun:\n%s", w.dump())
		}
		busy = false
		w.want(v1alpha1.RolloutCompleted, 2*time.Hour)
	}
}
