package testkit

import (
	"testing"
	"time"
)

// patience is how long Eventually waits: far longer than anything takes, on a busy
// machine too, so that what fails is broken and not slow.
const patience = time.Minute

// Eventually polls until ok returns nil, and returns how long that took. After a minute
// the test fails with ok's last error, which says how far it came.
func Eventually(t testing.TB, what string, ok func() error) time.Duration {
	t.Helper()
	return EventuallyWithin(t, what, patience, ok)
}

// EventuallyTrue is Eventually where there is no more to say than that it isn't so yet.
func EventuallyTrue(t testing.TB, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !ok() {
		pause(t, began, what, patience, nil)
	}
	return time.Since(began)
}

// EventuallyWithin is Eventually with a limit of its own, where the product promises one
// or a fleet has to start.
func EventuallyWithin(t testing.TB, what string, limit time.Duration, ok func() error) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		err := ok()
		if err == nil {
			return time.Since(began)
		}
		pause(t, began, what, limit, err)
	}
}

// pause waits the longer the longer it has waited, or fails the test.
func pause(t testing.TB, began time.Time, what string, limit time.Duration, err error) {
	t.Helper()
	waited := time.Since(began)
	switch {
	case waited <= limit:
		time.Sleep(min(max(waited/20, 5*time.Millisecond), 250*time.Millisecond))
	case err != nil:
		t.Fatalf("%s: not so after %s: %v", what, limit, err)
	default:
		t.Fatalf("%s: not so after %s", what, limit)
	}
}
