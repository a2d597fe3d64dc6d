package compiled_test

import (
	"context"
	"testing"
	"time"

	"muster.dev/muster/regional/engine/compiled"
)

// TestKeptWhileSeriesAreFilled: a sample that comes while its series is read out of the head
// for the first time is not missed afterwards.
func TestKeptWhileSeriesAreFilled(t *testing.T) {
	const text, n = "sum by (site) (count_over_time(a[2m])) + sum by (site) (a)", 40
	s := newStore(t, 7)
	for range 60 {
		s.now += 15_000
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range n {
				s.append(series("a", i), s.now-int64(i), float64(i))
			}
		}()
		p, err := compiled.Compile(text, compiled.Lookback, s.kept)
		if err != nil {
			t.Fatal(err)
		}
		pass := func(context.Context) error { return nil }
		for stop := false; !stop; {
			select {
			case <-done:
				stop = true
			default:
			}
			if _, err := p.Eval(t.Context(), s.db, time.UnixMilli(s.now), pass); err != nil {
				t.Fatal(err)
			}
		}
		before := s.kept.Use()
		if !s.same(text, p, s.now) {
			t.Fatal("no answer")
		}
		if after := s.kept.Use(); after.Head != before.Head {
			t.Errorf("%d series were read out of the head again", after.Head-before.Head)
		}
		p.Close()
		if u := s.kept.Use(); u.Series != 0 || u.Bytes != 0 {
			t.Fatalf("%+v is kept for nobody", u)
		}
	}
}

// TestNothingBetween: a value that comes again after a long time was not there in between.
func TestNothingBetween(t *testing.T) {
	s := newStore(t, 8)
	texts := []string{"a", "sum by (site) (a offset 2m)", "timestamp(a offset 2m)", "count by (site) (changes(a[2m] offset 2m))"}
	programs := map[string]*compiled.Program{}
	for _, text := range texts {
		var err error
		if programs[text], err = compiled.Compile(text, compiled.Lookback, s.runs); err != nil {
			t.Fatal(err)
		}
	}
	for _, after := range []int64{15, 60, 61, 600, 15, 299, 15} {
		s.now += after * 1000
		s.append(series("a", 0), s.now, 1)
		for ago := int64(0); ago < 400_000; ago += 7_500 {
			for _, text := range texts {
				if !s.same(text, programs[text], s.now-ago) {
					t.Fatal(text, "has no answer")
				}
			}
		}
	}
}

// TestGarbageOfRanges: what an evaluation allocates does not grow with the series.
func TestGarbageOfRanges(t *testing.T) {
	const n = 500
	s := newStore(t, 9)
	for range 6 {
		s.now += 15_000
		for i := range n {
			s.append(series("a", i), s.now, float64(s.now/1000))
		}
	}
	for _, text := range []string{"sum(rate(a[1m]))", "sum(changes(a[1m]))", "sum(max_over_time(a[1m]))"} {
		p, err := compiled.Compile(text, compiled.Lookback, s.kept)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if !s.same(text, p, s.now) {
			t.Fatal(text, "has no answer")
		}
		objects := testing.AllocsPerRun(5, func() {
			if _, err := p.Eval(context.Background(), s.db, time.UnixMilli(s.now), func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		})
		if objects > n/2 {
			t.Errorf("%s over %d series allocates %.0f objects", text, n, objects)
		}
	}
}
