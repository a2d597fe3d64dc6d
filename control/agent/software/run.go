package software

import (
	"context"
	"log/slog"
	"time"

	"muster.dev/muster/internal/backoff"
)

// every is how often it is looked at what is under way: a trial, a time that comes.
const every = 5 * time.Second

// Run steps until ctx ends: at once while something moves or when changed says that
// something else is wanted, after an error with pauses that grow to ten minutes. An error
// is logged when it is a new one; Status has it all the while.
func (m *Machine) Run(ctx context.Context, wanted func() Wanted, changed <-chan struct{}, log *slog.Logger) {
	failed, said := 0, ""
	for ctx.Err() == nil {
		moving, err := m.Step(ctx, wanted())
		wait := every
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failed++
			wait = backoff.FullJitter(failed, every, 10*time.Minute)
			if said != err.Error() {
				said = err.Error()
				log.Warn("software can't be brought to what is wanted yet", "component", m.o.Component, "err", err)
			}
		case moving:
			failed, said = 0, ""
			continue
		default:
			failed, said = 0, ""
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-t.C:
		}
		t.Stop()
	}
}
