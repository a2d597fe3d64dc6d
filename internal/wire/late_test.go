package wire

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Regions are waited for until one has answered and patience is at its end, whichever comes later;
// without patience for as long as who asks waits.
func TestImpatient(t *testing.T) {
	for name, c := range map[string]struct {
		patience, answers, gone time.Duration // 0: never
		ends                    time.Duration
		late                    bool
	}{
		"one answers at once, another does not": {2 * time.Second, time.Millisecond, 0, 2 * time.Second, true},
		"the first is late itself":              {2 * time.Second, 7 * time.Second, 0, 7 * time.Second, true},
		"none answers":                          {2 * time.Second, 0, time.Minute, time.Minute, false},
		"who asked goes away before":            {2 * time.Second, time.Millisecond, time.Second, time.Second, false},
		"without patience":                      {0, time.Millisecond, time.Minute, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, answered := time.Now(), make(chan struct{})
				gone := errors.New("gone")
				asker, leave := context.WithCancelCause(context.Background())
				defer leave(nil)
				if c.answers > 0 {
					time.AfterFunc(c.answers, func() { close(answered) })
				}
				if c.gone > 0 {
					time.AfterFunc(c.gone, func() { leave(gone) })
				}
				ctx, stop := Impatient(asker, c.patience, answered)
				<-ctx.Done()
				cause := context.Cause(ctx)
				if took := time.Since(began); took != c.ends || IsLate(cause) != c.late || errors.Is(cause, gone) == c.late {
					t.Errorf("it ends after %s: %v; want %s, late %t", took, cause, c.ends, c.late)
				}
				if c.late && cause.Error() != "has not answered yet, after 2s" {
					t.Errorf("it says %q", cause)
				}
				stop()
			})
		})
	}
	ctx, stop := Impatient(t.Context(), time.Hour, nil)
	stop()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) || IsLate(err) {
		t.Errorf("stopped: %v", err)
	}
}
