package linkmeter

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// What the other side had already is no loss.
func TestNeedlessRepeatsAreNoLoss(t *testing.T) {
	for _, c := range []struct {
		what string
		counters
		lost uint64
	}{
		{"nothing", counters{}, 0},
		{"a probe that was not needed", counters{segments: 10, retransmitted: 1, needless: 1}, 0},
		{"a loss beside one", counters{segments: 10, retransmitted: 2, needless: 1}, 1},
		{"the network doubled one", counters{segments: 10, needless: 1}, 0},
	} {
		if got := c.counters.lost(); got != c.lost {
			t.Errorf("%s: %d lost, want %d", c.what, got, c.lost)
		}
	}
}

// Word that a segment had come is a round trip late: it takes nothing back that was told, or
// a rate would see a counter that began anew.
func TestLossDoesNotFall(t *testing.T) {
	m := New()
	k := m.kindLocked(Stream)
	k.known = true
	for _, step := range []struct {
		counters
		want float64
	}{
		{counters{segments: 10, retransmitted: 3}, 3},
		{counters{segments: 12, retransmitted: 3, needless: 1}, 3},
		{counters{segments: 20, retransmitted: 5, needless: 1}, 4},
	} {
		k.ended = step.counters
		ch := make(chan prometheus.Metric, 100)
		m.Collect(ch)
		close(ch)
		got := -1.0
		for metric := range ch {
			if metric.Desc() != retransmitted {
				continue
			}
			var out dto.Metric
			if err := metric.Write(&out); err != nil {
				t.Fatal(err)
			}
			got = out.GetCounter().GetValue()
		}
		if got != step.want {
			t.Errorf("after %+v: %g, want %g", step.counters, got, step.want)
		}
	}
}
