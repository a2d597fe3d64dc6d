package controllers

import (
	"testing"
	"time"
)

// TestRests: a tenant that changes all the time takes a fifth of the loop's, one that changes
// seldom does not wait, and none waits for long.
func TestRests(t *testing.T) {
	at := time.Unix(1e9, 0)
	for _, c := range []struct {
		name string
		pass time.Duration
		want int // passes in ten seconds
	}{{"small", time.Millisecond, 2000}, {"large", 100 * time.Millisecond, 20}, {"busy", 3 * time.Second, 3}} {
		r, passes := rests{}, 0
		for now := at; now.Sub(at) < 10*time.Second; {
			if left := r.left(c.name, now); left > 0 {
				if other := r.left("another", now); other != 0 {
					t.Fatalf("another tenant waits %s", other)
				}
				now = now.Add(left)
				continue
			}
			r.took(c.name, now, now.Add(c.pass))
			now = now.Add(c.pass)
			passes++
		}
		if passes != c.want {
			t.Errorf("%s: %d passes, want %d", c.name, passes, c.want)
		}
	}
	r := rests{}
	r.took("x", at, at.Add(time.Second))
	if left := r.left("x", at.Add(-time.Hour)); left != 0 {
		t.Errorf("a clock that went back makes it wait %s", left)
	}
	if r.took("x", at, at.Add(time.Second)); len(r) != 1 || r.left("x", at.Add(time.Minute)) != 0 || len(r) != 0 {
		t.Errorf("it is remembered for longer than it waits: %v", r)
	}
}
