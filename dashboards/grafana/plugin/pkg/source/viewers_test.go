package source

import (
	"fmt"
	"testing"
	"time"
)

// What is remembered of viewers is bounded in number and time, and nothing is without a login.
func TestViewersAreBounded(t *testing.T) {
	v := newViewers()
	now := time.Unix(0, 0)
	v.now = func() time.Time { return now }
	if _, err := v.remember("", "Bearer x"); err == nil {
		t.Error("somebody without a login has a channel")
	}
	first, err := v.remember("first", "Bearer 1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxViewers {
		now = now.Add(time.Second)
		if _, err := v.remember(fmt.Sprint(i), "Bearer"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := v.authorization(first, "first"); err == nil || len(v.all) != maxViewers {
		t.Errorf("%d viewers, and the oldest is known: %v", len(v.all), err)
	}
	again, err := v.remember("first", "Bearer 2")
	if err != nil || again != first {
		t.Errorf("a user who comes back has another channel: %v", err)
	}
	if who, err := v.authorization(first, "first"); err != nil || who != "Bearer 2" {
		t.Errorf("%q, %v", who, err)
	}
	now = now.Add(viewerFor + time.Second)
	if _, err := v.authorization(first, "first"); err == nil {
		t.Error("a token of yesterday is used")
	}
}
