package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"muster.dev/muster/control/api/v1alpha1"
)

// text is whether some decision or the message says something.
func (w *world) says(text string) bool {
	if strings.Contains(w.out.Status.Message, text) {
		return true
	}
	return slices.ContainsFunc(w.decisions, func(d v1alpha1.RolloutDecision) bool {
		return strings.Contains(d.What+" "+d.By+" "+d.Text, text)
	})
}

func (w *world) until(what string, most time.Duration, is func(w *world) bool) {
	w.t.Helper()
	if !w.run(most, is) {
		w.t.Fatalf("%s: not within %s\n%s", what, most, w.dump())
	}
}

func (w *world) find(name string) *Site {
	for i := range w.sites {
		if w.sites[i].Name == name {
			return &w.sites[i]
		}
	}
	w.t.Fatalf("no site %s", name)
	return nil
}

// first is a site of the first wave.
func (w *world) first() *Site { return w.find(strings.Fields(w.state.Sites)[0]) }

func (w *world) stepOf(name string) v1alpha1.SiteStep {
	return v1alpha1.SiteStep(w.state.Steps[slices.Index(strings.Fields(w.state.Sites), name)])
}

func percent(p ...int32) []v1alpha1.RolloutWave {
	var out []v1alpha1.RolloutWave
	for i := range p {
		out = append(out, v1alpha1.RolloutWave{Percent: &p[i]})
	}
	return out
}

func inWave(n int32) func(w *world) bool {
	return func(w *world) bool { return w.out.Status.Wave == n }
}

func TestUnknownHolds(t *testing.T) {
	for name, spoil := range map[string]func(s *Site){
		"no scores": func(s *Site) { s.Measures = nil },
		"one dimension is missing": func(s *Site) {
			delete(s.Measures, "Security")
		},
		"nobody knows the alerts": func(s *Site) { s.AlertsKnown = false },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 60)
			w.run(2*time.Minute, func(*world) bool { return false })
			spoiling := true
			real := w.scope
			w.scope = func(s *Site) bool { // called for each site once the readings are there
				if spoiling && w.has[s.Name] == '1' {
					spoil(s)
				}
				return real(s)
			}
			w.edit = func(w *world) {
				for i := range w.sites {
					w.sites[i].AlertsKnown = true
				}
			}
			if w.run(2*time.Hour, func(w *world) bool { return w.out.Status.Wave > 1 || ended(w) }) {
				t.Fatalf("went on:\n%s", w.dump())
			}
			if !slices.ContainsFunc(w.out.Status.Gates, func(g v1alpha1.GateReading) bool { return g.Verdict == v1alpha1.GateUnknown }) {
				t.Errorf("no gate is unknown:\n%s", w.dump())
			}
			spoiling = false
			w.want(v1alpha1.RolloutCompleted, 2*time.Hour)
		})
	}
}

func TestOfflineSitesAreSkippedAndCaughtUp(t *testing.T) {
	w := newWorld(t, 60)
	away := []string{"site-00005", "site-00040"}
	back := false
	w.edit = func(w *world) {
		for _, name := range away {
			w.find(name).Online = back
		}
	}
	w.until("all waves pass", 2*time.Hour, func(w *world) bool {
		n := len(w.out.Status.Waves)
		return n > 0 && w.out.Status.Waves[n-1].PassedAt != nil
	})
	if c := w.out.Status.Sites; c.Offline != 2 || c.Passed != 58 || w.out.Status.Phase != v1alpha1.RolloutProgressing || !w.state.Held {
		t.Fatalf("counts %+v\n%s", c, w.dump())
	}
	w.run(24*time.Hour, func(*world) bool { return false })
	back = true
	w.want(v1alpha1.RolloutCompleted, time.Hour)
	if !w.says("CaughtUp") || !slices.Equal(w.assigned["site-00040"], []string{"1"}) {
		t.Errorf("not caught up:\n%s", w.dump())
	}
}

// Of 3,000 sites 300 are away, and come back over a week, a few at a time: each is caught up inside the
// gates, once, and only when it is there; the others are left alone, and the state stays small.
func TestATenthOfAFleetComesBackOverAWeek(t *testing.T) {
	const sites, every, groups = 3000, 10, 10
	w := newWorld(t, sites)
	w.tick, w.spec.Strategy.MaxInFlight = time.Minute, 1500
	back := 0
	w.edit = func(w *world) {
		for i := range w.sites {
			w.sites[i].Online = i%every != 0 || i/every%groups < back
		}
	}
	w.until("all waves pass", 12*time.Hour, func(w *world) bool {
		n := len(w.out.Status.Waves)
		return n > 0 && w.out.Status.Waves[n-1].PassedAt != nil
	})
	if c := w.out.Status.Sites; c.Offline != sites/every || c.Passed != sites-sites/every {
		t.Fatalf("counts %+v\n%s", c, w.dump())
	}
	most := 0
	for range groups {
		w.tick = time.Hour
		w.run(16*time.Hour, func(*world) bool { return false })
		if c := w.out.Status.Sites; int(c.Offline) != sites/every*(groups-back)/groups || w.out.Status.Phase.Ended() {
			t.Fatalf("with %d of %d groups back: %+v\n%s", back, groups, c, w.dump())
		}
		w.tick = time.Minute
		back++
		passed := int(w.out.Status.Sites.Passed) + sites/every/groups
		w.until("they have passed", time.Hour, func(w *world) bool { return int(w.out.Status.Sites.Passed) == passed })
		most = max(most, len(w.state.Sites)+len(w.state.Steps)+len(w.state.Has)+len(w.state.Decided.Raw))
	}
	w.want(v1alpha1.RolloutCompleted, time.Hour)
	for i := range w.sites {
		if name := w.sites[i].Name; !slices.Equal(w.assigned[name], []string{"1"}) {
			t.Errorf("%s was given %q, want the change once", name, w.assigned[name])
		}
	}
	if w.says("put back") || most > 150_000 {
		t.Errorf("the state had %d bytes\n%s", most, w.dump())
	}
}

func TestCaughtUpSitesAreJudged(t *testing.T) {
	w := newWorld(t, 60)
	back := false
	w.edit = func(w *world) {
		for i := range w.sites {
			if i%10 == 0 {
				w.sites[i].Online = back
			}
		}
	}
	w.until("all waves pass", 2*time.Hour, func(w *world) bool {
		n := len(w.out.Status.Waves)
		return n > 0 && w.out.Status.Waves[n-1].PassedAt != nil
	})
	w.harm = func(s *Site, since time.Duration) map[string]float64 {
		if strings.HasSuffix(s.Name, "0") && since > time.Minute { // what they are, it does not stand
			return map[string]float64{"Performance": -40}
		}
		return nil
	}
	back = true
	w.want(v1alpha1.RolloutRolledBack, time.Hour)
}

// One site that comes back when all others have passed, and then has a fault, is put back alone, and
// people are asked: a fleet of hundreds has such a site every day.
func TestOneThatComesBackBadIsPutBackAlone(t *testing.T) {
	w := newWorld(t, 60)
	back := false
	w.edit = func(w *world) { w.find("site-00040").Online = back }
	w.until("all waves pass", 2*time.Hour, func(w *world) bool {
		n := len(w.out.Status.Waves)
		return n > 0 && w.out.Status.Waves[n-1].PassedAt != nil
	})
	w.harm = func(s *Site, since time.Duration) map[string]float64 {
		if s.Name == "site-00040" && since > time.Minute {
			return map[string]float64{"Performance": -40, "Site": -30}
		}
		return nil
	}
	back = true
	w.want(v1alpha1.RolloutPaused, time.Hour)
	if c := w.out.Status.Sites; c.Passed != 59 || c.RolledBack != 1 || !slices.Equal(w.assigned["site-00040"], []string{"1", "0"}) || !w.says("What came back is put back") {
		t.Errorf("counts %+v, assigned %v\n%s", c, w.assigned["site-00040"], w.dump())
	}
}

// One whose scores are not known yet as it comes back waits for them, and not for ever: what it
// was like before is what it is compared with. One that came back bad does not hold up, nor take
// with it, one that came back beside it, and one that is away again is not looked at.
func TestThoseWhoComeBackStandForThemselves(t *testing.T) {
	w := newWorld(t, 60)
	w.spec.Strategy.Waves = percent(100)
	names := []string{}
	for i := range 4 {
		w.sites[i].Online = false
		names = append(names, w.sites[i].Name)
	}
	w.until("all others passed", time.Hour, func(w *world) bool { return w.out.Status.Sites.Passed == 56 })
	bad, good, mute, gone := names[0], names[1], names[2], names[3]
	back := w.now
	w.harm = func(s *Site, since time.Duration) map[string]float64 {
		if s.Name == bad && since > time.Minute {
			return fell
		}
		return nil
	}
	w.edit = func(w *world) {
		for _, name := range names {
			w.find(name).Online = true
		}
		w.find(gone).Online = w.now.Sub(back) < 2*time.Minute
	}
	w.hide = func(s *Site) bool { return s.Name == mute && w.now.Sub(back) < time.Minute }
	w.until("the one that is mute gets it", time.Hour, func(w *world) bool { return w.stepOf(mute) == v1alpha1.StepUpdating })
	if at := w.now.Sub(back); at < time.Minute {
		t.Errorf("it got it after %s, before it was known what it is like:\n%s", at, w.dump())
	}
	w.want(v1alpha1.RolloutPaused, 2*time.Hour)
	for name, want := range map[string]string{bad: "0", good: "1", mute: "1", gone: "1"} {
		if got := string(w.has[name]); got != want {
			t.Errorf("%s has %s, want %s: %c\n%s", name, got, want, w.stepOf(name), w.dump())
		}
	}
	if w.says("Connectivity fell") || !w.says("What came back is put back: 1 site.") {
		t.Error(w.dump())
	}

	// What is never known is not waited for for ever.
	w = newWorld(t, 60)
	w.spec.Strategy.Waves = percent(100)
	w.sites[0].Online = false
	w.until("all others passed", time.Hour, func(w *world) bool { return w.out.Status.Sites.Passed == 59 })
	w.hide = func(s *Site) bool { return s.Name == w.sites[0].Name }
	w.sites[0].Online = true
	back = w.now
	w.until("it gets it", time.Hour, func(w *world) bool { return w.stepOf(w.sites[0].Name) != v1alpha1.StepWaiting })
	if at := w.now.Sub(back); at < seenWithin*time.Second || at > seenWithin*time.Second+time.Minute {
		t.Errorf("it got it after %s", at)
	}
}

func TestWhoNeverReturnsDoesNotKeepIt(t *testing.T) {
	w := newWorld(t, 30)
	w.tick = 2 * time.Minute
	w.edit = func(w *world) { w.find("site-00005").Online = false }
	w.want(v1alpha1.RolloutCompleted, CatchUpFor+3*time.Hour)
	if !w.says("1 site did not come back in 7 days") {
		t.Error(w.dump())
	}
}

func TestMaintenanceWaits(t *testing.T) {
	w := newWorld(t, 30)
	on := true
	w.edit = func(w *world) { w.find("site-00005").Maintenance = on }
	w.until("the last wave passes", 2*time.Hour, func(w *world) bool { return w.out.Status.Sites.Passed == 29 })
	if w.has["site-00005"] == '1' || w.out.Status.Sites.Held != 1 {
		t.Fatal(w.dump())
	}
	on = false
	w.want(v1alpha1.RolloutCompleted, time.Hour)
}

func TestMaxInFlight(t *testing.T) {
	w := newWorld(t, 40)
	w.spec.Strategy.Waves = percent(50)
	w.spec.Strategy.MaxInFlight = 3
	most := int32(0)
	w.until("it completes", 4*time.Hour, func(w *world) bool {
		most = max(most, w.out.Status.Sites.Updating)
		return ended(w)
	})
	if most != 3 {
		t.Errorf("%d at one moment, want 3", most)
	}
}

func TestDeadlineRetryAndRecovery(t *testing.T) {
	w := newWorld(t, 40)
	w.spec.Strategy.Waves = percent(50)
	w.spec.Budget = budget("2", "2", 5*time.Minute)
	broken := true
	w.step()
	bad := w.first().Name
	w.fails = func(s *Site) bool { return broken && s.Name == bad }
	w.until("it fails", 20*time.Minute, func(w *world) bool { return w.stepOf(bad) == v1alpha1.StepFailed })
	w.spec.Control.Retry = map[string]int32{bad: 1}
	w.step()
	if w.stepOf(bad) != v1alpha1.StepUpdating || !w.says("Retried ann") {
		t.Fatal(w.dump())
	}
	w.until("it fails again", 20*time.Minute, func(w *world) bool { return w.stepOf(bad) == v1alpha1.StepFailed })
	w.step()
	if w.stepOf(bad) != v1alpha1.StepFailed {
		t.Fatal("tried again without being asked")
	}
	broken = false
	w.spec.Control.Retry[bad] = 2
	w.until("it is ready", 20*time.Minute, func(w *world) bool { s := w.stepOf(bad); return s == v1alpha1.StepReady || s == v1alpha1.StepPassed })
	w.want(v1alpha1.RolloutCompleted, 2*time.Hour)

	w = newWorld(t, 40)
	w.spec.Budget = budget("100%", "0", 5*time.Minute)
	w.readyAfter = time.Hour
	w.want(v1alpha1.RolloutRollingBack, 6*time.Minute)
	if !w.says("was not ready in time") {
		t.Error(w.dump())
	}
}

func budget(all, wave string, within time.Duration) v1alpha1.RolloutBudget {
	return v1alpha1.RolloutBudget{MaxFailed: all, MaxFailedInWave: wave, ReadyWithin: metav1.Duration{Duration: within}}
}

func TestOfflineIsNotLate(t *testing.T) {
	w := newWorld(t, 40)
	w.spec.Budget = budget("0", "0", 5*time.Minute)
	w.readyAfter = 2 * time.Minute
	w.step()
	name := w.first().Name
	w.edit = func(w *world) { w.find(name).Online = w.now.Sub(monday) > 20*time.Minute }
	w.want(v1alpha1.RolloutCompleted, 3*time.Hour)
}

// A site that has the change and begins later by itself is not waited for and does not fail; it
// is caught up when it has begun. A wave of nothing but such sites holds.
func TestWaitingOfItsOwn(t *testing.T) {
	w := newWorld(t, 40)
	w.spec.Budget = budget("0", "0", 5*time.Minute)
	w.spec.Strategy.Waves = percent(50)
	w.step()
	name := w.first().Name
	until := 3 * time.Hour
	w.waits = func(s *Site) bool { return s.Name == name && w.now.Sub(monday) < until }
	w.until("it is held", time.Hour, func(w *world) bool { return w.stepOf(name) == v1alpha1.StepHeld })
	w.until("the others do not wait", time.Hour, inWave(2))
	w.until("nor does the end", 2*time.Hour, func(w *world) bool { return w.says("WavePassed") && w.out.Status.Sites.Passed == 39 })
	if w.out.Status.Phase != v1alpha1.RolloutProgressing || w.out.Status.Sites.Held != 1 || w.now.Sub(monday) > until {
		t.Fatal(w.dump())
	}
	w.want(v1alpha1.RolloutCompleted, 5*time.Hour)
	if w.stepOf(name) != v1alpha1.StepPassed {
		t.Error(w.dump())
	}

	w = newWorld(t, 40)
	w.spec.Budget = budget("0", "0", 5*time.Minute)
	w.waits = func(*Site) bool { return w.now.Sub(monday) < 2*time.Hour }
	w.until("it says so", time.Hour, func(w *world) bool { return strings.Contains(w.out.Status.Message, "begin later") })
	if w.run(100*time.Minute-w.now.Sub(monday), inWave(2)) {
		t.Error("a wave passed of which no site has begun")
	}
	w.want(v1alpha1.RolloutCompleted, 6*time.Hour)

	// What is put back does not wait for them either.
	w = newWorld(t, 40)
	w.step()
	w.waits = func(s *Site) bool { return s.Name == w.first().Name }
	w.until("it is held", time.Hour, func(w *world) bool { return w.stepOf(w.first().Name) == v1alpha1.StepHeld })
	w.spec.Control.Abort = true
	w.want(v1alpha1.RolloutRolledBack, time.Hour)
}

// Sites that restart for the change are no sites that it took off the network; those that do
// not come back in time are.
func TestRestarts(t *testing.T) {
	run := func(away time.Duration) *world {
		w := newWorld(t, 60)
		w.spec.Strategy.Waves = percent(50)
		w.spec.Budget = budget("50%", "50%", 10*time.Minute)
		w.readyAfter = 30 * time.Second
		w.edit = func(w *world) {
			for i := range w.sites {
				s := &w.sites[i]
				since := w.now.Sub(w.got[s.Name])
				s.Online = w.has[s.Name] == 0 || since < time.Minute || since > away
			}
		}
		w.restarts = true
		w.readyAfter = away + time.Minute
		return w
	}
	run(5*time.Minute).want(v1alpha1.RolloutCompleted, 5*time.Hour)
	w := run(10 * time.Hour)
	w.want(v1alpha1.RolloutRollingBack, 5*time.Hour)
	if !strings.Contains(w.out.Status.Message, "went offline") {
		t.Error(w.dump())
	}
}

// A soak goes on where it was when control is started anew, though it knows nothing at first;
// what stays wrong has it begin anew all the same.
func TestASoakOutlivesItsProcess(t *testing.T) {
	soaked := func(blindFor time.Duration) time.Duration {
		w := newWorld(t, 40)
		w.spec.Soak = metav1.Duration{Duration: time.Hour}
		w.spec.Strategy.Waves = percent(50)
		w.spec.Gates = []v1alpha1.RolloutGate{{Name: "ready", Ready: &v1alpha1.GateReady{Percent: 100}}, {Name: "score", Score: &v1alpha1.GateScore{Minimum: 50}}}
		w.until("it soaks", time.Hour, func(w *world) bool { return strings.Contains(w.out.Status.Message, "the soak has") })
		began := w.now
		w.until("most of it is over", 2*time.Hour, func(w *world) bool { return w.now.Sub(began) > 50*time.Minute })
		w.memory = nil
		killed := w.now
		w.blind = func() bool { return w.now.Sub(killed) < blindFor }
		w.until("the next wave", 5*time.Hour, inWave(2))
		return w.now.Sub(killed)
	}
	// 45 of the 50 minutes were written down.
	if d := soaked(time.Minute); d > 18*time.Minute {
		t.Errorf("it took another %s of an hour of which ten minutes were left", d)
	}
	if d := soaked(10 * time.Minute); d < time.Hour {
		t.Errorf("ten minutes in which nothing was known, and it took another %s", d)
	}
}

func TestPauseResume(t *testing.T) {
	w := newWorld(t, 40)
	w.until("wave 2", time.Hour, inWave(2))
	w.spec.Control.Paused = true
	w.step()
	has := w.state.Has
	w.run(2*time.Hour, func(*world) bool { return false })
	if w.state.Has != has || w.out.Status.Phase != v1alpha1.RolloutPaused || !w.says("Paused ann") {
		t.Fatalf("went on, or does not say so:\n%s", w.dump())
	}
	w.spec.Control.Paused = false
	w.want(v1alpha1.RolloutCompleted, 2*time.Hour)
}

func TestApprovalAndPromotion(t *testing.T) {
	w := newWorld(t, 40)
	w.spec.Strategy.Waves = percent(10, 50)
	w.spec.Strategy.Waves[0].Approval = true
	if w.run(2*time.Hour, inWave(2)) {
		t.Fatal("went on without approval")
	}
	if !w.says("waits for a person's approval") {
		t.Fatal(w.dump())
	}
	w.spec.Control.Promote = 1
	w.step()
	if w.out.Status.Wave != 2 || !w.says("Promoted ann") {
		t.Fatal(w.dump())
	}
	// A promoted wave does not wait for its gates.
	w.spec.Control.Promote = 2
	w.until("wave 3", time.Minute, inWave(3))
	// The last has to pass them.
	if w.run(3*time.Minute, ended) {
		t.Fatal("the last wave was promoted too")
	}
	w.want(v1alpha1.RolloutCompleted, time.Hour)
}

func TestAbort(t *testing.T) {
	w := newWorld(t, 40)
	w.until("wave 2", time.Hour, inWave(2))
	w.step()
	w.spec.Control.Abort = true
	off := w.first().Name
	w.edit = func(w *world) { w.find(off).Online = false }
	w.step()
	if w.out.Status.Phase != v1alpha1.RolloutRollingBack || strings.Contains(w.state.Has, "1") {
		t.Fatal(w.dump())
	}
	w.want(v1alpha1.RolloutRolledBack, 10*time.Minute) // who is offline is not waited for
	if !w.state.Held || !w.says("Aborted ann") {
		t.Error(w.dump())
	}
}

func TestRollingBackWaitsForTheSites(t *testing.T) {
	w := newWorld(t, 40)
	w.until("wave 2", time.Hour, inWave(2))
	w.readyAfter = 20 * time.Minute
	w.spec.Budget.ReadyWithin = metav1.Duration{Duration: 30 * time.Minute}
	w.spec.Control.Abort = true
	if w.run(15*time.Minute, ended) {
		t.Fatalf("did not wait:\n%s", w.dump())
	}
	w.want(v1alpha1.RolloutRolledBack, 20*time.Minute)
}

// A site that is not well with the old content either does not hold up the end for ever.
func TestRollingBackGivesUpASite(t *testing.T) {
	w := newWorld(t, 40)
	w.until("wave 2", time.Hour, inWave(2))
	w.step()
	bad := w.first().Name
	w.stuck = func(s *Site) bool { return s.Name == bad }
	w.spec.Control.Abort = true
	if w.run(9*time.Minute, ended) || !w.says("1 site can't be put back: "+bad) {
		t.Fatalf("gave it up at once:\n%s", w.dump())
	}
	w.want(v1alpha1.RolloutRolledBack, 3*time.Minute)
	if !w.says("1 site can't be put back: " + bad) {
		t.Error(w.dump())
	}
}

// A site that was not well with the old content before is as it was: nobody waits for it, and it is
// not said to be the rollback's fault.
func TestRollingBackLeavesWhoWasIllAsItWas(t *testing.T) {
	w := newWorld(t, 40)
	w.step()
	bad := w.first().Name // the plan is the same every time

	w = newWorld(t, 40)
	w.stuck = func(s *Site) bool { return s.Name == bad }
	w.until("the first wave begins", time.Hour, func(w *world) bool { return strings.Contains(w.state.Has, "1") })
	w.run(2*time.Minute, func(*world) bool { return false })
	w.spec.Control.Abort = true
	w.want(v1alpha1.RolloutRolledBack, 3*time.Minute)
	if !w.says("1 site is not well with the old content, as before the change: "+bad) || w.says("can't be put back") {
		t.Error(w.dump())
	}
}

// Nor does one that never says that it is ready, such as one of whose nodes is down, or one that
// says nothing at all.
func TestRollingBackGivesUpASiteThatIsNotReady(t *testing.T) {
	for name, state := range map[string]Applied{"not ready": Progressing, "silent": NotYet} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 40)
			w.until("wave 2", time.Hour, inWave(2))
			w.step()
			bad := w.first().Name
			w.stays = map[string]Applied{bad: state}
			w.spec.Control.Abort = true
			if w.run(9*time.Minute, ended) {
				t.Fatalf("gave it up at once:\n%s", w.dump())
			}
			w.want(v1alpha1.RolloutRolledBack, 3*time.Minute)
			if !w.says("not ready with it: " + bad) {
				t.Error(w.dump())
			}
		})
	}
}

func TestOnFailure(t *testing.T) {
	t.Run("pause", func(t *testing.T) {
		w := newWorld(t, 40)
		w.spec.OnFailure = v1alpha1.OnFailurePause
		w.harm = worse("Reliability", -30)
		w.want(v1alpha1.RolloutPaused, time.Hour)
		has := w.state.Has
		w.run(time.Hour, func(*world) bool { return false })
		if w.state.Has != has || !strings.Contains(has, "1") {
			t.Fatalf("changed while it was paused:\n%s", w.dump())
		}
		w.harm = nil
		w.spec.Control.Promote = 1 // people look at it, and go on
		w.want(v1alpha1.RolloutCompleted, 2*time.Hour)
	})
	t.Run("wave", func(t *testing.T) {
		w := newWorld(t, 40)
		w.spec.OnFailure = v1alpha1.OnFailureRollBackWave
		w.until("wave 2", time.Hour, inWave(2))
		w.step()
		first := int(w.out.Status.Waves[0].Sites.Total)
		w.harm = worse("Reliability", -30)
		w.want(v1alpha1.RolloutPaused, time.Hour)
		if want := strings.Repeat("1", first) + strings.Repeat("0", 40-first); w.state.Has != want {
			t.Errorf("has %s, want %s\n%s", w.state.Has, want, w.dump())
		}
	})
}

func TestSupersededQueuedInvalid(t *testing.T) {
	w := newWorld(t, 40)
	in := Input{Name: "a", Spec: &w.spec, State: &w.state, Sites: w.sites, Now: monday, Queued: "Rollout b is before it."}
	if out := Decide(in); out.Changed || out.Status.Phase != v1alpha1.RolloutQueued || out.Status.Message != "Rollout b is before it." {
		t.Errorf("queued: %+v", out.Status)
	}
	in.Queued, in.SupersededBy = "", "c"
	if out := Decide(in); !out.Changed || out.Status.Phase != v1alpha1.RolloutSuperseded || !strings.Contains(out.Status.Message, "Rollout c") {
		t.Errorf("superseded: %+v", out.Status)
	}
	in.SupersededBy = ""
	bad := w.spec.DeepCopy()
	bad.Strategy.Waves = []v1alpha1.RolloutWave{{}}
	in.Spec = bad
	if out := Decide(in); out.Status.Phase != v1alpha1.RolloutInvalid || !strings.Contains(out.Status.Message, "spec.strategy.waves[0]") {
		t.Errorf("invalid: %+v", out.Status)
	}
	// One that is made wrong on the way waits for its spec.
	w.until("wave 2", time.Hour, inWave(2))
	w.spec.Windows = []v1alpha1.RolloutWindow{{From: "nine", To: "10:00"}}
	w.step()
	if has := w.state.Has; w.run(time.Hour, func(w *world) bool { return w.state.Has != has || ended(w) }) || !w.says("spec.windows[0]") {
		t.Error(w.dump())
	}
	w.spec.Windows = nil
	w.want(v1alpha1.RolloutCompleted, 2*time.Hour)
}

func TestTakesOverFromAnother(t *testing.T) {
	w := newWorld(t, 40)
	w.until("wave 2", time.Hour, inWave(2))
	w.step()
	had := map[string]bool{}
	for name, d := range w.state.Assigned() {
		had[name] = d == 1
	}
	// As the API server does it: the contents, the sites and what they have go on.
	w.state = v1alpha1.RolloutStateSpec{
		Held: true, Objects: []v1alpha1.RolloutObject{{Name: "shop", Contents: make([]runtime.RawExtension, 3)}}, Supersedes: "shop-0",
		Sites: w.state.Sites, Has: w.state.Has, Steps: strings.Repeat("w", len(w.state.Steps)),
	}
	w.memory = nil
	w.step()
	has := w.state.Assigned()
	for _, s := range w.sites {
		if d := has[s.Name]; d != 2 && (d == 1) != had[s.Name] {
			t.Errorf("%s has content %d, which it had not, and it is not the new one", s.Name, d)
		}
	}
	if n := strings.Count(w.state.Has, "2"); n == 0 || n > 10 {
		t.Errorf("%d sites have the new one at once: %s", n, w.state.Has)
	}
	w.spec.Control.Abort = true
	w.want(v1alpha1.RolloutRolledBack, time.Hour)
	if strings.Trim(w.state.Has, "0") != "" {
		t.Errorf("has %s", w.state.Has)
	}
}

// What takes over for some sites alone leaves the others what they have, until they are among its
// sites: then they join, and get the change once.
func TestTakesOverForSomeSites(t *testing.T) {
	w := newWorld(t, 40)
	w.until("wave 2", time.Hour, inWave(2))
	w.step()
	had := w.state.Assigned()
	w.state = v1alpha1.RolloutStateSpec{
		Held: true, Objects: []v1alpha1.RolloutObject{{Name: "shop", Contents: make([]runtime.RawExtension, 3)}}, Supersedes: "shop-0",
		Sites: w.state.Sites, Has: w.state.Has, Steps: strings.Repeat("w", len(w.state.Steps)),
	}
	w.memory = nil
	region := func(s *Site) string { return s.Labels["region"] }
	mine := map[string]bool{"r0": true}
	w.scope = func(s *Site) bool { return mine[region(s)] }
	others := func(of string) (n int) {
		t.Helper()
		has := w.state.Assigned()
		for i := range w.sites {
			if s := &w.sites[i]; region(s) == of && had[s.Name] == 1 {
				n++
				if has[s.Name] != 1 {
					t.Errorf("%s had the content before, and now %d", s.Name, has[s.Name])
				}
			}
		}
		return n
	}
	w.step()
	if n := len(strings.Fields(w.state.Sites)); n != 14+others("r1")+others("r2") || others("r1") == 0 {
		t.Fatalf("%d sites are listed, want the 14 of r0 and those that have something else:\n%s", n, w.dump())
	}
	w.until("wave 2", time.Hour, inWave(2))
	others("r1")
	mine["r1"] = true
	w.step()
	others("r2")
	if !w.says("Joined") || w.out.Status.Sites.Total != 27 {
		t.Error(w.dump())
	}
	w.until("all of it is done", 3*time.Hour, ended)
	if w.out.Status.Phase != v1alpha1.RolloutCompleted || w.out.Status.Sites.Passed != 27 {
		t.Error(w.dump())
	}
	for i := range w.sites {
		if s := &w.sites[i]; region(s) != "r2" && w.assigned[s.Name][len(w.assigned[s.Name])-1] != "2" {
			t.Errorf("%s was given %v", s.Name, w.assigned[s.Name])
		}
	}
}

func TestNewSitesJoinTheLastWave(t *testing.T) {
	w := newWorld(t, 40)
	w.until("wave 2", time.Hour, inWave(2))
	s := w.sites[0]
	s.Name = "site-00000-b" // before others by name
	w.sites = slices.Insert(w.sites, 1, s)
	w.step()
	if i := slices.Index(strings.Fields(w.state.Sites), s.Name); i != 40 || w.stepOf(s.Name) != v1alpha1.StepWaiting {
		t.Fatalf("stands at %d:\n%s", i, w.dump())
	}
	w.want(v1alpha1.RolloutCompleted, 2*time.Hour)
	if !slices.Equal(w.assigned[s.Name], []string{"1"}) || w.out.Status.Sites.Passed != 41 {
		t.Error(w.dump())
	}
}

func TestSitesThatLeave(t *testing.T) {
	w := newWorld(t, 40)
	w.until("wave 2", time.Hour, inWave(2))
	w.sites = slices.DeleteFunc(w.sites, func(s Site) bool { return strings.HasSuffix(s.Name, "7") })
	w.want(v1alpha1.RolloutCompleted, 2*time.Hour)
	if w.out.Status.Sites.Total != 36 {
		t.Error(w.dump())
	}
}

func TestWindowsHoldSites(t *testing.T) {
	w := newWorld(t, 40) // begins on a Monday at nine
	w.spec.Windows = []v1alpha1.RolloutWindow{{From: "22:00", To: "02:00"}}
	tokyo, err := time.LoadLocation("Asia/Tokyo") // nine hours ahead: 22:00 is 13:00
	if err != nil {
		t.Skip(err)
	}
	for i := range w.sites {
		if i%2 == 0 {
			w.sites[i].Zone = tokyo
		}
	}
	w.tick = time.Minute
	w.step()
	if strings.Contains(w.state.Has, "1") || !w.out.Status.NextAt.Equal(&metav1.Time{Time: monday.Add(4 * time.Hour)}) {
		t.Fatalf("next at %v:\n%s", w.out.Status.NextAt, w.dump())
	}
	w.until("the first change", 5*time.Hour, func(w *world) bool { return strings.Contains(w.state.Has, "1") })
	if at := w.now.Sub(monday); at < 4*time.Hour || at > 4*time.Hour+2*time.Minute {
		t.Errorf("began after %s", at)
	}
	for name, d := range w.state.Assigned() {
		if d == 1 && w.find(name).Zone == nil {
			t.Errorf("%s changed outside of its window", name)
		}
	}
	w.want(v1alpha1.RolloutCompleted, 10*24*time.Hour)
}

func TestBlueGreen(t *testing.T) {
	w := newWorld(t, 40)
	w.spec.Strategy = v1alpha1.RolloutStrategy{Type: v1alpha1.StrategyBlueGreen, Blue: "blue"}
	w.member = func(vs string, s *Site) bool { return vs == "blue" && s.Labels["region"] == "r1" }
	w.step()
	if got := w.out.Status.Waves; len(got) != 2 || got[0].Sites.Total != 13 || got[0].Sites.Updating != 13 || got[1].Sites.Updating != 0 {
		t.Fatalf("%+v", got)
	}
	w.want(v1alpha1.RolloutCompleted, time.Hour)
	w = newWorld(t, 40)
	w.spec.Strategy = v1alpha1.RolloutStrategy{Type: v1alpha1.StrategyBlueGreen, Blue: "blue"}
	w.member = func(vs string, s *Site) bool { return vs == "blue" && s.Labels["region"] == "r1" }
	w.harm = worse("Security", -30)
	w.want(v1alpha1.RolloutRolledBack, time.Hour)
	if w.out.Status.Waves[1].Sites.RolledBack != 0 {
		t.Error("green had it")
	}
}

func TestEveryWaveOfOneSite(t *testing.T) {
	w := newWorld(t, 5)
	w.spec.Strategy = v1alpha1.RolloutStrategy{Type: v1alpha1.StrategyRolling}
	w.step()
	w.edit = func(w *world) { w.find(strings.Fields(w.state.Sites)[2]).Online = false }
	w.until("all others have it", 2*time.Hour, func(w *world) bool { return w.out.Status.Sites.Passed == 4 })
	if !w.says("WaveSkipped") {
		t.Error(w.dump())
	}
}
