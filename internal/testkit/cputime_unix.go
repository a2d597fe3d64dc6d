//go:build unix

package testkit

import (
	"syscall"
	"testing"
	"time"
)

// CPUTime is what this process has used so far, in user and system together: a figure
// that holds on a machine that others use too, which the clock's does not.
func CPUTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
