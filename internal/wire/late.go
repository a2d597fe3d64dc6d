package wire

import (
	"context"
	"errors"
	"time"
)

// LateError is why a region is missing that was not waited for any longer.
type LateError struct{ Patience time.Duration }

func (e *LateError) Error() string { return "has not answered yet, after " + e.Patience.String() }

// IsLate tells whether an error is a LateError.
func IsLate(err error) bool {
	var late *LateError
	return errors.As(err, &late)
}

// Impatient returns a context for what several regions are asked: it ends, with a LateError as its
// cause, once patience is at its end and answered is closed, which is up to the first that answers.
// Without patience it ends with ctx alone. It holds a goroutine until stop, which must be called.
func Impatient(ctx context.Context, patience time.Duration, answered <-chan struct{}) (_ context.Context, stop context.CancelFunc) {
	ctx, leave := context.WithCancelCause(ctx)
	if patience > 0 {
		go func() {
			over := time.NewTimer(patience)
			defer over.Stop()
			select {
			case <-over.C:
			case <-ctx.Done():
				return
			}
			select {
			case <-answered:
				leave(&LateError{patience})
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { leave(nil) }
}
