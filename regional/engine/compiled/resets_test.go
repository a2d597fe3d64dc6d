package compiled_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/health/defaults"
	"muster.dev/muster/regional/engine/compiled"
)

// pair are two counters of one thing, of which the first counts a share of the second, and
// which begin at 0 together.
type pair struct {
	part, whole labels.Labels
	share       float64
	from        int64 // milliseconds, when it began
	lives       int64 // milliseconds at least, until another one begins
}

// TestSharesSurviveResets: things that are started anew at any time, also twice between two
// scrapes, have the share that they have, or that of one of the things that were in the window,
// or none; by PromQL, and compiled. Never is it a share that nothing had.
func TestSharesSurviveResets(t *testing.T) {
	ls := func(metric string, more ...string) labels.Labels {
		return labels.FromStrings(append([]string{labels.MetricName, metric, "tenant", "t", "site", "s", "node", "n"}, more...)...)
	}
	for name, p := range map[string]pair{
		"cpu-throttled": {part: ls("container_cpu_cfs_throttled_periods_total", "container", "c"), whole: ls("container_cpu_cfs_periods_total", "container", "c")},
		"packet-loss":   {part: ls("node_netstat_Tcp_RetransSegs"), whole: ls("node_netstat_Tcp_OutSegs"), lives: 30_000},
	} {
		t.Run(name, func(t *testing.T) {
			s, text := newStore(t, 9), ""
			for _, sig := range defaults.HealthPolicy().Spec.Signals {
				if sig.Name == name {
					text = sig.Query
				}
			}
			program, err := compiled.Compile(text, compiled.Lookback, s.kept)
			if err != nil {
				t.Fatal(err)
			}
			of := func(p *compiled.Program) float64 {
				if !s.same(text, p, s.now) {
					t.Fatal("no answer")
				}
				v, err := p.Eval(t.Context(), s.db, time.UnixMilli(s.now), func(context.Context) error { return nil })
				if err != nil || len(v) > 1 {
					t.Fatal(v, err)
				}
				if len(v) == 0 {
					return 0
				}
				return v[0].F
			}
			shares := []float64{} // of the last minute, the newest last
			p.share, p.from = 0.4, s.now-700_000
			resets, told := 0, 0
			for range 2000 {
				s.now += 15_000
				for n := s.rng.IntN(9) - 6; n > 0 && s.now-p.from >= p.lives; n-- {
					resets++
					p.share, p.from = s.rng.Float64(), s.now-int64(s.rng.IntN(15_000))
				}
				whole := math.Floor(float64(s.now-p.from) / 10)
				s.append(p.whole, s.now, whole)
				s.append(p.part, s.now, math.Floor(whole*p.share))
				if shares = append(shares, p.share); len(shares) > 4 {
					shares = shares[1:]
				}
				lo, hi := 1.0, 0.0
				for _, v := range shares {
					lo, hi = min(lo, v), max(hi, v)
				}
				v := of(program) / 100
				if v > 0 {
					told++
				}
				// What the two are extrapolated by differs where one was lower at the window's
				// beginning than it grows between two scrapes.
				if v > hi*1.25+0.02 || v != 0 && v < lo*0.75-0.02 {
					t.Errorf("%v, of things that have %v", v, shares)
				}
			}
			if t.Logf("%d resets, %d of 2000 moments have an answer", resets, told); resets < 200 || told < 1000 {
				t.Errorf("%d resets, %d moments have an answer", resets, told)
			}
		})
	}
}
