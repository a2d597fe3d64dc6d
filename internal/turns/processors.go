package turns

import (
	"context"
	"time"
)

// Processors are what work shares that is nothing but processor time and may wait:
// evaluations, templates, searches. Go's scheduler knows goroutines and no tenants, so
// without turns one that has eight long queries under way has eight parts of what a
// tenant with a short one has, and all of them stand in the run queue before whoever
// only wants to answer a request.
//
// Tenants together have all processors but one, which is left to what can't wait. The
// platform may have all. Work that has run for a while lets others go on (Turn.Pass), first
// the tenant that had least of late. Some stretches can't be interrupted: a template,
// a large sort, a write. Such a one counts for its own tenant alone: the others share what
// the tenants have as if it were not there.
//
// A machine that is short of processors has other processes that want them, and what serves
// requests in this one. While it is, the tenant that uses most gets a sixth of what tenants
// have, on end, or as much as the next one uses: a burst of some seconds is through before
// that counts.
//
// A process has one of it for all its work. Safe for concurrent use.
type Processors struct{ slots *Slots }

const (
	// stretch is how long work goes on before it lets others go on. A short query takes less.
	stretch = 10 * time.Millisecond
	// overdue is after how long work that does not pass counts for its own tenant alone.
	overdue = 2 * stretch
)

// NewProcessors shares out n processors; 0: Cores.
func NewProcessors(n int) *Processors {
	if n < 1 {
		n = Cores()
	}
	tenants := max(1, n-1)
	s := New(max(2, n), tenants, tenants)
	s.overdue = overdue
	s.pressed, s.fair = new(pressure).high, time.Duration(tenants)*memory/6
	return &Processors{slots: s}
}

// Use returns how many of the platform and of tenants run, and how many wait.
func (p *Processors) Use() (platform, tenants, waiting int) { return p.slots.Use() }

// Begin waits for a processor until ctx ends. End must follow, whatever Pass says.
func (p *Processors) Begin(ctx context.Context, c Class) (*Turn, error) {
	t := &Turn{slots: p.slots, class: c}
	return t, t.take(ctx)
}

// Turn is a processor in use, by one goroutine. It should not be kept for waiting.
type Turn struct {
	slots   *Slots
	class   Class
	slot    *waiter
	since   time.Time
	release func()
}

func (t *Turn) take(ctx context.Context) (err error) {
	t.slot, t.release, err = t.slots.acquire(ctx, t.class)
	t.since = time.Now()
	return err
}

// Pass lets others go on if the work has run for a while, and tells whether it has to
// end because ctx has. It costs next to nothing, so that it may stand in loops.
func (t *Turn) Pass(ctx context.Context) error {
	if err := ctx.Err(); err != nil || time.Since(t.since) < stretch {
		return err
	}
	if !t.slots.wanted(t.class, t.slot) {
		t.since = time.Now()
		return nil
	}
	t.End()
	return t.take(ctx)
}

// End gives the processor back; more than once does no harm.
func (t *Turn) End() {
	if t.release != nil {
		t.release()
		t.release = nil
	}
}
