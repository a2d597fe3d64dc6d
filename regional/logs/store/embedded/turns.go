package embedded

import (
	"context"
	"runtime"
	"time"

	"muster.dev/muster/internal/turns"
)

// slice is how long a query reads before it lets another one go on. A search of a calm
// tenant takes less.
const slice = 10 * time.Millisecond

// newTurns are for queries: as many read at a time as there are processors, those of
// tenants in turns.
func newTurns() *turns.Slots {
	n := runtime.GOMAXPROCS(0)
	return turns.New(n, n, n)
}

// turn is a query's right to use a processor. Queries are all processor: without turns a
// tenant with eight long ones would have eight parts of what a tenant with a short one
// has, and that one would end with them instead of before them.
type turn struct {
	slots   *turns.Slots
	class   turns.Class
	since   time.Time
	release func()
}

// begin waits for the first turn, until ctx ends. end must follow.
func (s *Store) begin(ctx context.Context, tenant string) (*turn, error) {
	t := &turn{slots: s.turns, class: turns.Class{Tenant: tenant}}
	return t, t.take(ctx)
}

func (t *turn) take(ctx context.Context) (err error) {
	t.release, err = t.slots.Acquire(ctx, t.class)
	t.since = time.Now()
	return err
}

// pass lets others go on if the query has read for a while, and tells whether it has
// to end. It costs next to nothing, so that it may stand in loops.
func (t *turn) pass(ctx context.Context) error {
	if err := ctx.Err(); err != nil || time.Since(t.since) < slice {
		return err
	}
	if _, _, waiting := t.slots.Use(); waiting == 0 {
		t.since = time.Now()
		return nil
	}
	t.end()
	return t.take(ctx)
}

func (t *turn) end() {
	if t.release != nil {
		t.release()
		t.release = nil
	}
}
