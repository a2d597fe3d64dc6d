package testkit

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// failing is a test that may fail.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}
func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestEventually(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(t testing.TB)
		took time.Duration
		said string
	}{
		"error": {func(t testing.TB) { Eventually(t, "the moon", func() error { return errors.New("3 of 4") }) }, time.Minute, "the moon: not so after 1m0s: 3 of 4"},
		"bool":  {func(t testing.TB) { EventuallyTrue(t, "the moon", func() bool { return false }) }, time.Minute, "the moon: not so after 1m0s"},
		"limit": {func(t testing.TB) { EventuallyWithin(t, "it", time.Hour, func() error { return errors.New("no") }) }, time.Hour, "it: not so after 1h0m0s: no"},
		"at once": {func(t testing.TB) {
			EventuallyTrue(t, "it", func() bool { return true })
			Eventually(t, "it", func() error { return nil })
		}, 0, ""},
		"third time": {func(t testing.TB) {
			n := 0
			if took := EventuallyTrue(t, "it", func() bool { n++; return n == 3 }); took != 10*time.Millisecond {
				t.Fatalf("took %s", took)
			}
		}, 10 * time.Millisecond, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, began := &failing{TB: t}, time.Now()
				done := make(chan struct{})
				go func() { defer close(done); c.run(f) }()
				<-done
				if took := time.Since(began); f.said != c.said || took < c.took || took > c.took+time.Second {
					t.Errorf("said %q after %s; want %q after %s", f.said, took, c.said, c.took)
				}
			})
		})
	}
}
