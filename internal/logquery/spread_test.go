package logquery

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSpread(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var parts [4]Spread
	var all []float64
	for i := range 4000 {
		v := math.Exp(rng.NormFloat64()/2) * 100
		if i%10 == 0 {
			v = -v
		}
		parts[i%4] = parts[i%4].Add(v, 1)
		all = append(all, v)
	}
	slices.Sort(all)
	var s Spread
	for _, p := range parts {
		s = s.Merge(p)
	}
	for _, p := range []float64{1, 5, 50, 90, 99, 100} {
		want := all[max(int(math.Ceil(p/100*4000)), 1)-1]
		if got, ok := s.Percentile(p); !ok || math.Abs(got-want) > 0.022*math.Abs(want) {
			t.Errorf("percentile %v: %v, %v; want %v", p, got, ok, want)
		}
	}
	if v, ok := Spread(nil).Percentile(50); ok {
		t.Errorf("of nothing: %v", v)
	}
	if v, ok := Spread(nil).Add(0, 3).Add(-1e-300, 1).Percentile(50); !ok || v != 0 {
		t.Errorf("of zeros: %v, %v", v, ok)
	}
}

// Whatever the numbers are, a Spread has only so many bins, keeps the count, and gives up the low ones.
func TestSpreadIsBounded(t *testing.T) {
	var s Spread
	for i := range 10_000 {
		s = s.Add(math.Pow(10, float64(i%201)-100), 1)
		s = s.Add(-math.Pow(10, float64(i%201)-100), 1)
	}
	var n int64
	for _, of := range s {
		n += of
	}
	if len(s) > maxBins || n != 20_000 {
		t.Errorf("%d bins of %d numbers", len(s), n)
	}
	if got, _ := s.Percentile(100); math.Abs(got/1e100-1) > 0.022 {
		t.Errorf("the largest is %g, want 1e100", got)
	}
}
