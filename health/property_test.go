package health

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
)

func randomModel(r *rand.Rand) *Model {
	for {
		var weights [4]float64
		for i := range weights {
			weights[i] = float64(r.IntN(4))
		}
		signals := make([]Signal, 1+r.IntN(12))
		for i := range signals {
			good, bad := r.NormFloat64()*100, r.NormFloat64()*100
			signals[i] = Signal{
				Name: fmt.Sprintf("s%d", i), Dimension: fleet.Dimensions[r.IntN(4)], Good: good, Bad: bad,
				Weight: float64(r.IntN(4)), Cap: []float64{NoCap, NoCap, 60, fleet.CriticalCap}[r.IntN(4)], Unit: "percent",
			}
			if r.IntN(5) == 0 {
				signals[i].Pack = "pack"
			}
		}
		o := Options{Weights: weights, WorstShare: float64(r.IntN(5)) / 4, Evaluations: 1 + r.IntN(3), Recovery: 1 + r.IntN(5), Packs: []Pack{{Name: "pack"}}, Signals: signals}
		if m, err := NewModel(o); err == nil {
			return m
		}
	}
}

func randomReadings(r *rand.Rand, m *Model) Readings {
	out := Readings{Link: Link(r.IntN(4)), Signals: make([]Reading, len(m.Signals)), LiveOnly: r.IntN(5) == 0, Packs: []bool{r.IntN(2) == 0}}
	if r.IntN(3) > 0 {
		out.Link = LinkUp
	}
	for i := range out.Signals {
		switch r.IntN(8) {
		case 0:
			out.Signals[i].Err = "it failed"
		case 1:
			out.Signals[i] = Reading{Value: []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64}[r.IntN(5)], Known: true}
		default:
			out.Signals[i] = Reading{Value: r.NormFloat64() * 120, Known: r.IntN(4) > 0}
		}
	}
	return out
}

// check holds what is true of every state.
func check(t testing.TB, st *State) {
	t.Helper()
	if !finite(st.Score) || st.Score < 0 || st.Score > 100 {
		t.Fatalf("score %v", st.Score)
	}
	for d := range st.Dimensions {
		x := &st.Dimensions[d]
		if !finite(x.Score) || x.Score < 0 || x.Score > 100 {
			t.Fatalf("dimension %d: score %v", d, x.Score)
		}
		if x.Known == (x.Colour == fleet.Grey) {
			t.Fatalf("dimension %d: known %v and %s", d, x.Known, x.Colour)
		}
	}
	if st.Critical && (!st.Known || st.Score > fleet.CriticalCap || st.Colour != fleet.Red) {
		t.Fatalf("critical, but %v %v %s", st.Known, st.Score, st.Colour)
	}
	if !st.Known && len(st.Reasons) == 0 {
		t.Fatal("unknown without a reason")
	}
	for _, r := range st.Reasons {
		if r.Text == "" || !finite(r.Value) || !finite(r.PointsLost) {
			t.Fatalf("reason %+v", r)
		}
	}
	checkSum(t, st)
}

func TestPropertiesOverTime(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		m := randomModel(r)
		var prev *State
		for i := range 8 {
			if r.IntN(20) == 0 {
				m = randomModel(r)
			}
			st := Evaluate(m, randomReadings(r, m), prev, epoch.Add(time.Duration(i)*15*time.Second))
			check(t, &st)
			prev = &st
		}
	}
}

// TestShortCuts: what is said of signals that are well in Plain, and the words of reasons that
// did not change, are what the long way says, bit by bit.
func TestShortCuts(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		m := randomModel(r)
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		var prev *State
		in := randomReadings(r, m)
		for tick := range 30 {
			for i, next := range randomReadings(r, m).Signals {
				if r.IntN(3) == 0 {
					in.Signals[i] = next
				}
			}
			in.Link, in.LiveOnly = LinkUp, r.IntN(8) == 0
			if r.IntN(8) == 0 {
				in.Link = LinkDown
			}
			now = now.Add(15 * time.Second)
			short := in
			short.Signals, short.Plain = make([]Reading, len(in.Signals)), make([]float64, len(in.Signals))
			for i, rd := range in.Signals {
				if short.Plain[i] = math.NaN(); rd.Known && m.Well(i, rd.Value) {
					short.Plain[i] = rd.Value
				} else {
					short.Signals[i] = rd
				}
			}
			got := EvaluateNew(m, &short, prev, now)
			long := Evaluate(m, in, prev, now)
			if prev != nil {
				before := *prev // of which no reason can be used again
				before.Reasons = slices.Clone(prev.Reasons)
				for i := range before.Reasons {
					before.Reasons[i].Threshold = math.Inf(1)
				}
				anew := Evaluate(m, in, &before, now)
				for i := range anew.Reasons {
					if anew.Reasons[i].Text != long.Reasons[i].Text {
						t.Fatalf("seed %d, tick %d: %q, and anew %q", seed, tick, long.Reasons[i].Text, anew.Reasons[i].Text)
					}
				}
			}
			a, b := *got, long
			for _, st := range []*State{&a, &b} { // NaN is not itself
				st.Signals = slices.Clone(st.Signals)
				for i := range st.Signals {
					if math.IsNaN(st.Signals[i].Value) {
						st.Signals[i].Value = -1
					}
				}
			}
			if !reflect.DeepEqual(a, b) {
				t.Fatalf("seed %d, tick %d: the short way says\n%+v\nthe long way\n%+v", seed, tick, a, b)
			}
			prev = got
		}
	}
}

func TestBetterNeverLowersTheScore(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		m := randomModel(r)
		before := randomReadings(r, m)
		before.LiveOnly = false
		i := r.IntN(len(m.Signals))
		if i == m.uplink || !before.Signals[i].Known || !finite(before.Signals[i].Value) {
			continue
		}
		after := before
		after.Signals = append([]Reading(nil), before.Signals...)
		better := math.Abs(r.NormFloat64() * 50)
		if m.Signals[i].Good < m.Signals[i].Bad {
			better = -better
		}
		after.Signals[i].Value += better
		a, b := Evaluate(m, before, nil, epoch), Evaluate(m, after, nil, epoch)
		// An unknown site may stay unknown or become so: the only thing that made it
		// known may have been the critical failure that is over.
		if a.Known && b.Known && b.Score < a.Score && a.Critical == b.Critical {
			t.Fatalf("signal %s from %v to %v: score from %v to %v", m.Signals[i].Name, before.Signals[i].Value, after.Signals[i].Value, a.Score, b.Score)
		}
		if a.Critical && b.Known && b.Score < a.Score {
			// The dimension that was known only because of the failure may leave the mean.
			same := true
			for d := range a.Dimensions {
				same = same && a.Dimensions[d].Known == b.Dimensions[d].Known
			}
			if same {
				t.Fatalf("signal %s recovers: score from %v to %v", m.Signals[i].Name, a.Score, b.Score)
			}
		}
	}
}

func TestUnknownNeverMakesGreen(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 5000 {
		m := randomModel(r)
		// Nothing known but, perhaps, the link.
		rd := randomReadings(r, m)
		for i := range rd.Signals {
			rd.Signals[i].Known = false
		}
		st := Evaluate(m, rd, nil, epoch)
		check(t, &st)
		others := false
		for d := 1; d < 4; d++ {
			others = others || hasWeight(m, d)
		}
		if st.Colour == fleet.Green && (others && weighs(m) > 2*m.Weights[0] || rd.Link != LinkUp) {
			t.Fatalf("green from nothing: %+v", st)
		}
		// One more signal that nobody knows.
		rd = randomReadings(r, m)
		a := Evaluate(m, rd, nil, epoch)
		o := m.Options
		o.Signals = append(append([]Signal(nil), m.Signals...), Signal{Name: "new", Dimension: fleet.Dimensions[r.IntN(4)], Good: 0, Bad: 1, Weight: float64(r.IntN(5)), Cap: []float64{NoCap, fleet.CriticalCap}[r.IntN(2)]})
		wider, err := NewModel(o)
		if err != nil {
			t.Fatal(err)
		}
		b := Evaluate(wider, rd, nil, epoch)
		if !a.Known && b.Known {
			t.Fatalf("an unknown signal made an unknown site %v %s", b.Score, b.Colour)
		}
	}
}

func TestSummarizeProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var scratch []float64
	for range 3000 {
		members := make([]Member, r.IntN(30))
		for i := range members {
			members[i] = Member{Name: fmt.Sprint(i), Score: r.Float64() * 100, Known: r.IntN(5) > 0, Maintenance: r.IntN(6) == 0, Colour: fleet.Grey}
			if members[i].Known {
				members[i].Colour = fleet.ColourOf(members[i].Score)
			}
		}
		var a Aggregate
		a, scratch = Summarize(members, scratch)
		if a.Counts.Sum()+a.Maintenance != a.Sites || a.Sites != len(members) {
			t.Fatalf("counts don't add up: %+v", a)
		}
		if a.Known && (a.Worst > a.P10 || a.Worst > a.Mean || a.Mean > 100 || a.WorstSite == "") {
			t.Fatalf("%+v", a)
		}
		if a.PercentUnhealthy < 0 || a.PercentUnhealthy > 100 {
			t.Fatalf("%+v", a)
		}
	}
}

func TestNewModelRefuses(t *testing.T) {
	ok := Signal{Name: "a", Dimension: fleet.Security, Good: 1, Bad: 0, Weight: 1, Cap: NoCap}
	with := func(f func(*Signal)) []Signal { s := ok; f(&s); return []Signal{s} }
	one := [4]float64{1, 1, 1, 1}
	for name, c := range map[string]struct {
		weights     [4]float64
		evaluations int
		signals     []Signal
	}{
		"negative evaluations":   {one, -1, []Signal{ok}},
		"negative weight":        {[4]float64{-1, 1, 1, 1}, 2, []Signal{ok}},
		"NaN weight":             {[4]float64{math.NaN(), 1, 1, 1}, 2, []Signal{ok}},
		"all dimensions weigh 0": {[4]float64{0, 1, 0, 0}, 2, []Signal{ok}},
		"no name":                {one, 2, with(func(s *Signal) { s.Name = "" })},
		"named twice":            {one, 2, []Signal{ok, ok}},
		"dimension":              {one, 2, with(func(s *Signal) { s.Dimension = "beauty" })},
		"good is bad":            {one, 2, with(func(s *Signal) { s.Bad = 1 })},
		"infinite":               {one, 2, with(func(s *Signal) { s.Bad = math.Inf(1) })},
		"signal weight":          {one, 2, with(func(s *Signal) { s.Weight = -1 })},
		"uplink elsewhere":       {one, 2, with(func(s *Signal) { s.Name = SignalUplink })},
	} {
		if _, err := NewModel(Options{Weights: c.weights, WorstShare: DefaultWorstShare, Evaluations: c.evaluations, Signals: c.signals}); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

func TestFormatValue(t *testing.T) {
	for _, c := range []struct {
		v          float64
		unit, want string
	}{
		{0, "count", "0"}, {2, "", "2"}, {93.46, "percent", "93.5%"}, {0.123456, "ratio", "12.3%"}, {0.05, "seconds", "50 ms"},
		{90, "seconds", "90 s"}, {400, "seconds", "6.67 min"}, {7200, "seconds", "2 h"}, {200000, "seconds", "2.31 days"},
		{1, "days", "1 day"}, {0.8333, "days", "0.833 days"}, {1536, "bytes", "1.5 KiB"}, {3, "per minute", "3 per minute"},
		{12345, "count", "12345"}, {1e9, "count", "1e+09"}, {99.96, "percent", "100%"}, {-5, "seconds", "-5 s"}, {1e-5, "count", "0"}, {1.9, "count", "2"}, {1e-5, "", "1e-05"},
	} {
		if got := FormatValue(c.v, c.unit); got != c.want {
			t.Errorf("FormatValue(%v, %q) = %q, want %q", c.v, c.unit, got, c.want)
		}
	}
}

// FuzzEvaluate feeds a model of the fuzzer's making with values of its choice.
func FuzzEvaluate(f *testing.F) {
	f.Add(uint64(1), []byte{})
	f.Add(uint64(7), []byte("some values that are not numbers at all, but bits of them"))
	f.Fuzz(func(t *testing.T, seed uint64, data []byte) {
		r := rand.New(rand.NewPCG(seed, 0))
		m := randomModel(r)
		var prev *State
		for i := 0; len(data) > 0 && i < 20; i++ {
			rd := Readings{Link: Link(data[0] & 3), LiveOnly: data[0]&4 != 0, Signals: make([]Reading, len(m.Signals))}
			if data[0]&8 != 0 {
				rd.At = epoch.Add(time.Duration(int8(data[0])) * time.Second)
			}
			data = data[1:]
			for j := 0; j < len(m.Signals) && len(data) >= 8; j++ {
				rd.Signals[j] = Reading{Value: math.Float64frombits(binary.LittleEndian.Uint64(data)), Known: true}
				data = data[8:]
			}
			st := Evaluate(m, rd, prev, epoch.Add(time.Duration(i)*15*time.Second))
			check(t, &st)
			prev = &st
		}
	})
}

func BenchmarkEvaluate(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	signals := make([]Signal, 25)
	for i := range signals {
		signals[i] = Signal{Name: fmt.Sprintf("s%d", i), Dimension: fleet.Dimensions[i%4], Good: 0, Bad: 100, Weight: 1, Cap: NoCap, Unit: "percent", Text: "{value} of something"}
	}
	m, err := NewModel(Options{Weights: [4]float64{1, 1, 1, 1}, WorstShare: DefaultWorstShare, Signals: signals})
	if err != nil {
		b.Fatal(err)
	}
	rd := Readings{Link: LinkUp, Signals: make([]Reading, len(m.Signals))}
	for i := range rd.Signals {
		rd.Signals[i] = Reading{Known: true}
		if i < 2 { // two signals have something to say, as at a usual site
			rd.Signals[i].Value = r.Float64() * 50
		}
	}
	prev := Evaluate(m, rd, nil, epoch)
	b.ReportAllocs()
	for b.Loop() {
		prev = Evaluate(m, rd, &prev, epoch)
	}
}

// A restart between two evaluations must not show in what comes after.
func TestSaveAndRestore(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 2000 {
		m := randomModel(r)
		var a, b *State
		for i := range 6 {
			rd := randomReadings(r, m)
			for j := range rd.Signals {
				rd.Signals[j].Err = "" // a query's error is as old as the process
				if !finite(rd.Signals[j].Value) {
					rd.Signals[j].Known = false
				}
			}
			now := epoch.Add(time.Duration(i) * 15 * time.Second)
			x, y := Evaluate(m, rd, a, now), Evaluate(m, rd, b, now)
			if render(&x) != render(&y) || x.EverKnown != y.EverKnown {
				t.Fatalf("step %d differs after a restart:\n%s\n%s", i, render(&x), render(&y))
			}
			saved := y.Save(m.Names())
			restored, ok := saved.Restore()
			if !ok {
				t.Fatal("not restored")
			}
			a, b = &x, restored
		}
	}
	for _, bad := range []Saved{{}, {Colour: "green", Names: []string{"a"}}, {Colour: "green", Link: 9}, {Colour: "green", Against: -1}} {
		if _, ok := bad.Restore(); ok {
			t.Errorf("restored %+v", bad)
		}
	}
}

func hasWeight(m *Model, d int) bool {
	return slices.ContainsFunc(m.Signals, func(s Signal) bool { return s.dim == d && s.Weight > 0 && s.Pack == "" })
}

func weighs(m *Model) (sum float64) {
	for d := range m.Weights {
		if hasWeight(m, d) {
			sum += m.Weights[d]
		}
	}
	return sum
}
