package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestStopRunsNewestFirstAndJoinsErrors(t *testing.T) {
	s := New(quiet())
	var order []string
	boom := errors.New("boom")
	for _, name := range []string{"a", "b", "c"} {
		s.OnStop(name, func(context.Context) error {
			order = append(order, name)
			if name == "b" {
				return boom
			}
			return nil
		})
	}
	err := s.Stop(time.Second)
	if !slices.Equal(order, []string{"c", "b", "a"}) {
		t.Errorf("order = %v", order)
	}
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "stop b") {
		t.Errorf("err = %v", err)
	}
	if err := s.Stop(time.Second); err != nil || len(order) != 3 {
		t.Errorf("second stop: %v, %v", err, order)
	}
	late := false
	s.OnStop("late", func(context.Context) error { late = true; return nil })
	if !late {
		t.Error("a clean-up registered after the stop did not run")
	}
}

func TestStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(quiet())
		release := make(chan struct{})
		s.OnStop("stuck", func(context.Context) error { <-release; return nil })
		began := time.Now()
		err := s.Stop(3 * time.Second)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("err = %v after %s", err, time.Since(began))
		}
		close(release)
	})
}

func TestGoReportsFailureAndIsCancelled(t *testing.T) {
	s := New(quiet())
	failed := make(chan error, 2)
	s.Go("dies", func(context.Context) error { return errors.New("bad") }, func(err error) { failed <- err })
	s.Go("waits", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, func(err error) { failed <- err })
	if err := <-failed; !strings.Contains(err.Error(), "dies: bad") {
		t.Errorf("err = %v", err)
	}
	if err := s.Stop(time.Second); err != nil {
		t.Error(err)
	}
	if len(failed) != 0 {
		t.Errorf("a cancelled part was reported as failed: %v", <-failed)
	}
}
