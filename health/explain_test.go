package health

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// What is explained must give the score that was computed, for any model and readings.
func TestExplainAddsUp(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }
	for range 2000 {
		m := randomModel(r)
		var prev *State
		for i := range 6 {
			st := Evaluate(m, randomReadings(r, m), prev, epoch.Add(time.Duration(i)*15*time.Second))
			prev = &st
			x, ok := Explain(&st)
			if !ok || (x.Score != nil) != st.Known {
				t.Fatalf("not explained: %+v", st)
			}
			if !st.Known {
				continue
			}
			sum := 0.0
			for _, l := range x.Lost {
				sum += l.Points
			}
			if !near(100-sum, st.Score) {
				t.Fatalf("lost points sum to %v, score %v", sum, st.Score)
			}
			least := x.BeforeCaps
			for _, c := range x.Caps {
				if c.Leaves < least {
					least = c.Leaves
				}
			}
			if !near(x.BeforeCaps, st.Raw) || !near(least, st.Capped) || x.Held != (st.Score < st.Capped) {
				t.Fatalf("before caps %v, least %v; state %v %v %v\n%s", x.BeforeCaps, least, st.Raw, st.Capped, st.Score, render(&st))
			}
			if x.WorstDimension != "" && !near(x.BeforeCaps, (1-x.WorstShare)*x.Mean+x.WorstShare*x.Worst) {
				t.Fatalf("%v is not %v of %v and the rest of %v", x.BeforeCaps, x.WorstShare, x.Worst, x.Mean)
			}
		}
	}
}

func TestExplainText(t *testing.T) {
	m, err := NewModel(Options{Weights: [4]float64{1, 1, 1, 1}, WorstShare: 0.5, Packs: []Pack{{Name: "gpu"}}, Signals: []Signal{
		{Name: "disk", Dimension: "performance", Good: 70, Bad: 95, Weight: 1, Cap: 39, Unit: "percent", Text: "the disk is {value} full"},
		{Name: "cpu", Dimension: "performance", Good: 50, Bad: 100, Weight: 1, Cap: NoCap, Unit: "percent"},
		{Name: "gpu", Dimension: "performance", Good: 0, Bad: 1, Weight: 1, Cap: NoCap, Pack: "gpu"},
		{Name: "lock", Dimension: "security", Good: 1, Bad: 0, Weight: 1, Cap: NoCap},
	}})
	if err != nil {
		t.Fatal(err)
	}
	st := Evaluate(m, Readings{Link: LinkUp, Signals: []Reading{{Value: 90, Known: true, Objects: []string{"/ on n1 (90%)"}}, {Value: 75, Known: true}, {}, {Value: 1, Known: true}}}, nil, epoch)
	x, _ := Explain(&st)
	var b strings.Builder
	if err := x.WriteText(&b, false); err != nil {
		t.Fatal(err)
	}
	const want = `56.67 orange since 2026-01-01T00:00:00Z

connectivity  100  weight 1
reliability   does not apply
security      100  weight 1
performance   35   weight 1
  disk        90%  scores 0.2 between good 70% and bad 95%   weight 1  / on n1 (90%)
  cpu         75%  scores 0.5 between good 50% and bad 100%  weight 1  

not shown: signals that are well (2), and that do not apply (1)

score before caps: 0.5 × mean 78.33 + 0.5 × worst 35 (performance) = 56.67
cap of disk: 63.4; 40 + (63.4 − 40) × 83.33 % that the rest has = 59.5

−26.67  performance  the disk is 90% full: / on n1 (90%)
−16.67  performance  cpu is 75%, threshold 50%
100 − 43.33 = 56.67
`
	if got := b.String(); got != want {
		t.Errorf("got:\n%s", got)
	}
}
