// Package lifecycle runs a program's parts and takes them down again: named
// clean-ups in reverse order of acquisition, bounded in time, errors joined.
//
// It knows nothing of what it stops. Every role in cmd/internal uses one Stack.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Stack is a last-in-first-out list of clean-ups. Register a clean-up right
// after acquiring the thing. Safe for concurrent use; the zero value is not
// usable, call New.
type Stack struct {
	log *slog.Logger

	mu      sync.Mutex
	actions []action
	closed  bool
}

type action struct {
	name string
	fn   func(context.Context) error
}

// New returns an empty stack that logs what it stops.
func New(log *slog.Logger) *Stack { return &Stack{log: log} }

// OnStop registers a clean-up. If the stack is already closed it runs at once,
// so that nothing acquired late can leak.
func (s *Stack) OnStop(name string, fn func(context.Context) error) {
	s.mu.Lock()
	if !s.closed {
		s.actions = append(s.actions, action{name, fn})
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	if err := fn(context.Background()); err != nil {
		s.log.Warn("late clean-up failed", "what", name, "err", err)
	}
}

// Go runs fn in a goroutine with a context that is cancelled when its turn to
// stop comes; stopping waits for fn to return. A non-nil error of fn that is not
// a cancellation is passed to failed.
func (s *Stack) Go(name string, fn func(context.Context) error, failed func(error)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := fn(ctx); err != nil && !errors.Is(err, context.Canceled) {
			failed(fmt.Errorf("%s: %w", name, err))
		}
	}()
	s.OnStop(name, func(stop context.Context) error {
		cancel()
		select {
		case <-done:
			return nil
		case <-stop.Done():
			return fmt.Errorf("still running: %w", stop.Err())
		}
	})
}

// Stop runs the clean-ups, newest first, and returns their errors joined. All of
// them together get at most timeout; a clean-up that overruns is left behind and
// reported. Stopping twice is harmless.
func (s *Stack) Stop(timeout time.Duration) error {
	s.mu.Lock()
	actions := s.actions
	s.actions, s.closed = nil, true
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var errs []error
	for _, a := range slices.Backward(actions) {
		began := time.Now()
		done := make(chan error, 1)
		go func() { done <- a.fn(ctx) }()
		var err error
		select {
		case err = <-done:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", a.name, err))
		}
		s.log.Debug("stopped", "what", a.name, "took", time.Since(began), "err", err)
	}
	return errors.Join(errs...)
}
