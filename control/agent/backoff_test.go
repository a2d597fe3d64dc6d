package agent

import (
	"testing"
	"time"
)

// A session that worked is tried again soon, one that breaks as soon as it is there ever later.
func TestSessionsThatBreakAtOnceAreRare(t *testing.T) {
	failed := 0
	for want := 1; want <= 5; want++ {
		if failed = inARow(failed, time.Second, 15*time.Second); failed != want {
			t.Errorf("%d in a row, want %d", failed, want)
		}
	}
	if failed = inARow(failed, 15*time.Second, 15*time.Second); failed != 1 {
		t.Errorf("%d in a row after one that worked", failed)
	}
}
