package decide

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

// saidBy are the decisions of one kind, each with who made it.
func (w *world) saidBy(what string) []string {
	var out []string
	for _, d := range w.decisions {
		if d.What == what {
			out = append(out, d.By+": "+d.Text)
		}
	}
	return out
}

// What people have it do stands among its decisions once, with who it was; what changes
// nothing does not stand there.
func TestWhatPeopleDidIsTold(t *testing.T) {
	w := newWorld(t, 40)
	w.until("it soaks", 20*time.Minute, func(w *world) bool { return strings.Contains(w.out.Status.Message, "the soak has") })
	steps := func() { w.step(); w.step() }
	w.spec.Control.Resume = 1 // of what goes on anyway
	steps()
	if got := w.saidBy("Resumed"); len(got) != 0 {
		t.Errorf("%v", got)
	}
	for range 2 {
		w.spec.Control.Paused = true
		steps()
		w.spec.Control.Paused = false
		steps()
	}
	if got := fmt.Sprint(w.saidBy("Paused")); got != "[ann: ann paused it. ann: ann paused it.]" {
		t.Error(got)
	}
	if got := fmt.Sprint(w.saidBy("Resumed")); got != "[ann: ann had it go on. ann: ann had it go on.]" {
		t.Error(got)
	}
	w.spec.Control.Promote = 1
	steps()
	w.spec.Control.Promote = 0 // taken back: nothing happens
	steps()
	if got := fmt.Sprint(w.saidBy("Promoted")); got != "[ann: ann promoted it up to wave 1.]" {
		t.Error(got)
	}
}

// One that paused by itself goes on by each of what people may say: resume, the end of a
// pause, and to promote its wave. While they hold it themselves, resume is not enough.
func TestWhatHaltedGoesOnBy(t *testing.T) {
	for name, c := range map[string]struct {
		say func(w *world)
		on  bool
	}{
		"resume":                         {func(w *world) { w.spec.Control.Resume = 1 }, true},
		"to promote":                     {func(w *world) { w.spec.Control.Promote = 1 }, true},
		"the end of a pause":             {func(w *world) { w.spec.Control.Paused = true; w.step(); w.spec.Control.Paused = false }, true},
		"resume while they pause it":     {func(w *world) { w.spec.Control.Paused = true; w.spec.Control.Resume = 1 }, false},
		"a retry of a site that is well": {func(w *world) { w.spec.Control.Retry = map[string]int32{w.first().Name: 1} }, false},
		"nothing":                        {func(*world) {}, false},
	} {
		w := newWorld(t, 40)
		w.spec.OnFailure = v1alpha1.OnFailurePause
		w.harm = worse("Reliability", -30)
		w.want(v1alpha1.RolloutPaused, time.Hour)
		w.harm = nil
		c.say(w)
		w.step()
		if on := w.out.Status.Phase == v1alpha1.RolloutProgressing; on != c.on {
			t.Errorf("%s: %s", name, w.out.Status.Phase)
		}
	}
}

// A retry counts once for each time that it is asked for, and for a site that failed.
func TestRetriesCountOnce(t *testing.T) {
	w := newWorld(t, 40)
	w.spec.Budget = budget("100%", "100%", 5*time.Minute)
	bad := ""
	w.fails = func(s *Site) bool { return s.Name == bad }
	w.step()
	bad = w.first().Name
	failed := func(w *world) bool { return w.stepOf(bad) == v1alpha1.StepFailed }
	w.until("it fails", 20*time.Minute, failed)
	for n := range int32(3) {
		w.spec.Control.Retry = map[string]int32{bad: n + 1, "nobody": 7}
		w.until("it is tried again", time.Minute, func(w *world) bool { return w.stepOf(bad) == v1alpha1.StepUpdating })
		w.until("it fails again", 20*time.Minute, failed)
		if got := w.saidBy("Retried"); len(got) != int(n)+1 || got[n] != "ann: ann had "+bad+" try again." {
			t.Fatalf("%v", got)
		}
	}
}

// Who is tried again has its time anew, and nothing of what it showed before counts as its own.
func TestARetryBeginsAnew(t *testing.T) {
	r := &run{in: &Input{Now: monday, User: "ann", Spec: &v1alpha1.RolloutSpec{}}, unit: 1000, names: []string{"a", "b"}, steps: []byte{byte(v1alpha1.StepFailed), byte(v1alpha1.StepReady)},
		d: &decided{rows: []row{{at: 1, got: 2, ready: 3}, {at: 1, got: 2, ready: 3}}}}
	r.in.Spec.Control.Retry = map[string]int32{"a": 1, "b": 1}
	r.people()
	if a := r.d.rows[0]; r.steps[0] != byte(v1alpha1.StepUpdating) || a.at != 1000 || a.got != 1000 || a.ready != 0 {
		t.Errorf("%+v", a)
	}
	if b := r.d.rows[1]; r.steps[1] != byte(v1alpha1.StepReady) || b.at != 1 || b.got != 2 || b.ready != 3 {
		t.Errorf("it had not failed: %+v", b)
	}
}

// A wave begins with what is known then: nothing of the one before is left over, neither a
// soak nor when it settled, and what sites are like is taken anew of all but those judged.
func TestAWaveBeginsAnew(t *testing.T) {
	r := &run{in: &Input{Now: monday}, mem: newMemory(), unit: 1000, target: '1', names: []string{"a", "b", "c"}, has: []byte("110")}
	r.in.Before = map[string]map[string]float64{"a": {"Site": 40}, "b": {"Site": 50}, "c": {"Site": 60}}
	r.site = []*Site{{Name: "a", Online: true}, {Name: "b", Online: true}, {Name: "c", Online: true, Measures: map[string]float64{"Site": 1}}}
	r.steps = []byte{byte(v1alpha1.StepPassed), byte(v1alpha1.StepReady), byte(v1alpha1.StepWaiting)}
	r.d = &decided{Columns: []column{{Name: "Site", Step: 1}}, Wave: 1, Soaked: 77, Since: 5, ForgivenInWave: 3,
		Waves: []wave{{End: 2}, {End: 3, Started: 1, Settled: 2, Passed: 3}}, rows: []row{{before: []int64{9}, drift: []int64{4}}, {before: []int64{8}, drift: []int64{4}}, {before: []int64{7}, drift: []int64{4}}}}
	r.mem.holds("x", monday, true)
	r.mem.passed = monday
	r.startWave(2)
	if w := r.d.Waves[1]; r.d.Wave != 2 || r.d.Soaked != 0 || r.d.Since != 1000 || r.d.ForgivenInWave != 0 || w.Started != 1000 || w.Settled != 0 || w.Passed != 0 {
		t.Errorf("%+v", r.d)
	}
	if len(r.mem.holding) != 0 || !r.mem.passed.IsZero() {
		t.Error("what was held against the wave before counts against this one")
	}
	for i, want := range []int64{40, 8, 60} { // b is being judged still
		if got := r.d.rows[i]; got.reading(0) != want || (got.drift == nil) != (i != 1) {
			t.Errorf("%s: %+v, want %d", r.names[i], got, want)
		}
	}
}

// What a site was like: the mean of the last minutes, else what its history says, else what it
// is like now; of what is offline, or not known at all, nothing.
func TestWhatASiteWasLike(t *testing.T) {
	r := &run{in: &Input{Now: monday, Before: map[string]map[string]float64{"a": {"Site": 40, "errors": 0.25}}}, mem: newMemory(),
		d: &decided{Columns: []column{{Name: "Site", Step: 1}, {Name: "errors", Step: 0.1}, {Name: "never", Step: 1}}}}
	all := map[string]float64{"Site": 70, "errors": 1}
	r.site = []*Site{
		{Name: "a", Online: true, Measures: all}, {Name: "b", Online: true, Measures: all}, {Name: "c", Measures: all}, nil, {Name: "e", Online: true},
		{Name: "f", Online: true, Measures: map[string]float64{"errors": 1e30, "Site": -1e30, "never": math.NaN()}},
	}
	for i, want := range []string{"[40 3 ?]", "[70 10 ?]", "[]", "[]", "[]", fmt.Sprintf("[%d %d ?]", -int64(maxReading), int64(maxReading))} {
		if got := strings.ReplaceAll(fmt.Sprint(r.reading(i)), fmt.Sprint(int64(unknown)), "?"); got != want {
			t.Errorf("site %d: %s, want %s", i, got, want)
		}
	}
	for n := range 6 {
		r.mem.add([]Site{{Name: "a", Online: true, Measures: map[string]float64{"Site": 80 + float64(n%2)}}}, monday.Add(time.Duration(n-6)*sampleEvery))
	}
	if got := r.reading(0); got[0] != 80 && got[0] != 81 {
		t.Errorf("it was seen for minutes: %v", got)
	}
}

// Judged is who has the change and has not passed.
func TestWhoIsJudged(t *testing.T) {
	all := []v1alpha1.SiteStep{v1alpha1.StepWaiting, v1alpha1.StepUpdating, v1alpha1.StepReady, v1alpha1.StepPassed, v1alpha1.StepFailed, v1alpha1.StepOffline, v1alpha1.StepHeld, v1alpha1.StepRolledBack}
	r := &run{target: '2', d: &decided{Waves: []wave{{End: len(all)}}}}
	for _, s := range all {
		r.steps, r.has = append(r.steps, byte(s)), append(r.has, '2')
	}
	r.steps, r.has = append(r.steps, byte(v1alpha1.StepReady)), append(r.has, '2') // is of no wave
	got := ""
	for i := range r.steps {
		if r.judged(i) {
			got += string(r.steps[i])
		}
	}
	if want := string([]byte{byte(v1alpha1.StepUpdating), byte(v1alpha1.StepReady), byte(v1alpha1.StepFailed), byte(v1alpha1.StepOffline), byte(v1alpha1.StepHeld)}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	r.has[2] = '1'
	if r.judged(2) {
		t.Error("it has not got it")
	}
}
