package backoff

import (
	"math"
	"testing"
	"time"
)

func TestBound(t *testing.T) {
	const least, most = 100 * time.Millisecond, time.Second
	for failed, want := range map[int]time.Duration{-1: least, 0: least, 1: 2 * least, 2: 4 * least, 3: 8 * least, 4: most, 5: most, math.MaxInt: most} {
		if got := Bound(failed, least, most); got != want {
			t.Errorf("after %d: %s, want %s", failed, got, want)
		}
	}
	if got := Bound(1000, time.Nanosecond, math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("it overflows: %d", got)
	}
	if got := Bound(0, 2*time.Second, time.Second); got != time.Second {
		t.Errorf("least above most: %s", got)
	}
}

// The whole of the range is used, and nothing beside it.
func TestFullJitter(t *testing.T) {
	const least, most = 10 * time.Millisecond, 40 * time.Millisecond
	lo, hi := time.Hour, time.Duration(0)
	for range 10_000 {
		d := FullJitter(7, least, most)
		lo, hi = min(lo, d), max(hi, d)
	}
	if lo < time.Millisecond || lo > 3*time.Millisecond || hi > most+time.Millisecond || hi < most-2*time.Millisecond {
		t.Errorf("from %s to %s", lo, hi)
	}
	if d := Jitter(0); d != time.Millisecond {
		t.Errorf("of nothing: %s", d)
	}
}
