package decide

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

func someDecided(n int, columns int) *decided {
	rng := rand.New(rand.NewPCG(1, 2))
	d := &decided{Version: version, Phase: v1alpha1.RolloutProgressing, Started: monday.Unix(), Wave: 1, Waves: []wave{{Name: "first", End: n / 2}, {Name: "100%", End: n}}}
	for c := range columns {
		d.Columns = append(d.Columns, column{fmt.Sprint("c", c), 1})
	}
	d.rows = make([]row, n)
	for i := range d.rows {
		r := &d.rows[i]
		if i%3 == 0 {
			r.got, r.at = d.Started+int64(rng.IntN(1e6)), d.Started+int64(rng.IntN(1e6))
		}
		if i%6 == 0 {
			r.ready = d.Started + int64(rng.IntN(1e6))
		}
		if i%7 == 0 || columns == 0 {
			continue
		}
		r.before = make([]int64, columns)
		for c := range r.before {
			r.before[c] = int64(rng.IntN(101)) - 20
			if rng.IntN(10) == 0 {
				r.before[c] = unknown
			}
		}
		r.before[0] = 50
		if i%5 == 0 {
			r.drift = make([]int64, columns)
			r.drift[0] = -3
		}
	}
	return d
}

func TestStateIsReadAsItWasWritten(t *testing.T) {
	d := someDecided(100, 5)
	raw := d.encode()
	back, err := decode(raw, 100)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back.rows, d.rows) {
		t.Error("the rows differ")
	}
	if again := back.encode(); !bytes.Equal(again, raw) {
		t.Errorf("written again it is\n%s\nnot\n%s", again, raw)
	}
}

// Readings of any size, which a query may give, are kept so that they can be read again, also
// of a site that changes when all have moved.
func TestHugeReadingsAreReadAgain(t *testing.T) {
	rise := quantity("1")
	for _, jump := range []float64{1e30, -1e30} {
		w := newWorld(t, 40)
		w.tick = time.Minute
		w.spec.Gates = []v1alpha1.RolloutGate{{Name: "errors", Peers: &v1alpha1.GateChange{Query: "errors", MaxRise: &rise}}}
		w.spec.Strategy.Waves, w.spec.Strategy.MaxInFlight = percent(100), 1
		w.edit = func(w *world) {
			w.also = map[string]float64{"errors": -jump}
			if w.now.After(monday.Add(5 * time.Minute)) {
				w.also["errors"] = jump
			}
		}
		for range 20 {
			if w.step(); strings.Contains(w.out.Status.Message, "can't be read") {
				t.Fatalf("jump by %g:\n%s", jump, w.dump())
			}
		}
		if n := strings.Count(w.state.Has, "1"); n < 8 {
			t.Errorf("%d sites changed:\n%s", n, w.dump())
		}
	}
}

// TestStateIsSmall is the budget of what is written: all of the state of 10,000 sites, each
// of which changed late, in fewer than 400 kB.
func TestStateIsSmall(t *testing.T) {
	w := newWorld(t, 10000)
	w.tick = time.Minute
	w.spec.Strategy.MaxInFlight, w.spec.Soak.Duration = 1500, time.Minute
	most := 0
	w.run(10*time.Hour, func(w *world) bool {
		most = max(most, len(w.state.Sites)+len(w.state.Steps)+len(w.state.Has)+len(w.state.Decided.Raw))
		return w.out.Status.Wave == 4 && w.out.Status.Waves[3].Sites.Updated > 3000
	})
	if w.out.Status.Wave != 4 {
		t.Fatal(w.dump())
	}
	if most > 400_000 {
		t.Errorf("the state has %d bytes, want 400,000 at most", most)
	}
	t.Logf("%d bytes", most)
}

// Of more waves than a status has it has those around the current one, each with its number and
// where its sites stand.
func TestWavesAroundTheCurrentOne(t *testing.T) {
	w := newWorld(t, 120)
	w.spec.Strategy = v1alpha1.RolloutStrategy{Type: v1alpha1.StrategyRolling}
	w.spec.Soak.Duration, w.spec.Gates = 0, []v1alpha1.RolloutGate{{Name: "ready", Ready: &v1alpha1.GateReady{Percent: 100}}}
	w.until("the 80th wave is under way", 24*time.Hour, func(w *world) bool { return w.out.Status.Wave == 80 })
	st := w.out.Status
	now := st.WaveAt(80)
	if len(st.Waves) != shownWaves || st.WaveCount != 120 || now == nil || now.Begin != 79 || now.End != 80 || st.Waves[0].Number != 56 || st.Waves[0].Begin != 55 || st.WaveAt(1) != nil {
		t.Errorf("%d of %d waves: %+v", len(st.Waves), st.WaveCount, now)
	}
}

func FuzzDecode(f *testing.F) {
	for _, n := range []int{0, 1, 40} {
		d := someDecided(n, min(n, 3))
		f.Add(d.encode(), n)
	}
	f.Add([]byte(`{"v":1,"columns":[{"name":"a","step":1}],"sites":"AAAAAA=="}`), 1)
	f.Add([]byte(`{"v":1,"started":5,"waves":[{"end":9}],"wave":1,"alerts":{"3":["x"]}}`), 9)
	f.Fuzz(func(t *testing.T, raw []byte, n int) {
		if n < 0 || n > 10000 {
			return
		}
		d, err := decode(raw, n)
		if err != nil {
			return
		}
		again, err := decode(d.encode(), n)
		if err != nil {
			t.Fatalf("what was read can't be read again: %v", err)
		}
		if !bytes.Equal(again.encode(), d.encode()) {
			t.Fatal("it changes as it is written again")
		}
	})
}

// FuzzState decides on states that nobody wrote.
func FuzzState(f *testing.F) {
	w := newWorld(&testing.T{}, 20)
	for range 30 {
		w.step()
		f.Add(w.state.Sites, w.state.Steps, w.state.Has, w.state.Decided.Raw)
	}
	f.Fuzz(func(t *testing.T, sites, steps, has string, raw []byte) {
		w := newWorld(t, 20)
		for range 3 {
			in := Input{Name: "x", Spec: &w.spec, State: &v1alpha1.RolloutStateSpec{Held: true, Objects: w.state.Objects, Sites: sites, Steps: steps, Has: has}, Sites: w.sites, Now: w.now}
			in.State.Decided = w.state.Decided
			if raw != nil {
				in.State.Decided = raws(raw)
			}
			if out := Decide(in); out.Changed {
				sites, steps, has, raw = out.State.Sites, out.State.Steps, out.State.Has, out.State.Decided.Raw
			}
			w.now = w.now.Add(time.Minute)
		}
	})
}

func TestUnreadableStateMovesNothing(t *testing.T) {
	w := newWorld(t, 20)
	w.step()
	was := w.state.DeepCopy()
	for name, spoil := range map[string]func(s *v1alpha1.RolloutStateSpec){
		"other version": func(s *v1alpha1.RolloutStateSpec) {
			s.Decided.Raw = bytes.Replace(s.Decided.Raw, []byte(`"v":1`), []byte(`"v":9`), 1)
		},
		"no JSON":    func(s *v1alpha1.RolloutStateSpec) { s.Decided.Raw = []byte(`{`) },
		"less steps": func(s *v1alpha1.RolloutStateSpec) { s.Steps = s.Steps[1:] },
		"less sites": func(s *v1alpha1.RolloutStateSpec) {
			s.Sites, s.Steps, s.Has = "a b", "ww", "00"
		},
	} {
		w.state = *was.DeepCopy()
		spoil(&w.state)
		spoilt := w.state.DeepCopy()
		w.memory = nil
		w.step()
		if w.out.Changed || !reflect.DeepEqual(*spoilt, w.state) || w.out.Status.Phase != v1alpha1.RolloutPaused || w.out.Status.Message == "" {
			t.Errorf("%s: changed %v, phase %s: %s", name, w.out.Changed, w.out.Status.Phase, w.out.Status.Message)
		}
	}
}
