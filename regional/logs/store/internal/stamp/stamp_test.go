package stamp

import (
	"testing"
	"time"
)

func TestHorizonWaitsForTheOldestWrite(t *testing.T) {
	now := time.Unix(100, 0)
	c := New(func() time.Time { return now }, 0)
	a, doneA := c.Begin()
	b, doneB := c.Begin()
	if a >= b {
		t.Fatalf("stamps %d, %d don't grow", a, b)
	}
	doneB()
	if h := c.Horizon(); h != a {
		t.Errorf("horizon %d, want %d: a is still open", h, a)
	}
	doneA()
	h := c.Horizon()
	if h <= b {
		t.Errorf("horizon %d, want above %d", h, b)
	}
	now = time.Unix(50, 0) // the clock was set back
	if s, _ := c.Begin(); s < h {
		t.Errorf("stamp %d below the promised horizon %d", s, h)
	}
}
