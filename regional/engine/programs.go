package engine

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb"

	"muster.dev/muster/regional/engine/compiled"
)

const (
	// programFor is how long a program is kept after it was asked for. What is asked twice
	// in that time gets one: to find all series anew costs more than PromQL does.
	programFor = 10 * time.Minute
	// maxPrograms bounds what is kept; what the shipped policy and rules ask is about 120.
	maxPrograms = 1000
)

// programs are the platform's expressions that are asked again and again, compiled.
type programs struct {
	db     *tsdb.DB
	recent *compiled.Recent
	now    func() time.Time

	mu sync.Mutex
	by map[expression]*programEntry

	evaluated *prometheus.CounterVec // by how
}

// expression is what is asked; lookback is how old the sample of an instant may be.
type expression struct {
	text     string
	lookback time.Duration
}

// programEntry is guarded by programs.mu.
type programEntry struct {
	asked   time.Time
	program *compiled.Program // nil: asked once, or it can't be compiled
	never   bool              // it can't be
}

func newPrograms(db *tsdb.DB, recent *compiled.Recent, now func() time.Time, reg prometheus.Registerer) *programs {
	p := &programs{db: db, recent: recent, now: now, by: map[expression]*programEntry{}, evaluated: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_engine_platform_evaluations_total",
		Help: "Expressions of health signals and shipped rules that were evaluated, by how: compiled, or by PromQL.",
	}, []string{"by"})}
	reg.MustRegister(p.evaluated)
	return p
}

// of returns the program of an expression; nil if PromQL has to evaluate it.
func (p *programs) of(asked expression) *compiled.Program {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.by[asked]
	switch {
	case e == nil || now.Sub(e.asked) > programFor:
		p.sweepLocked(now)
		if len(p.by) < maxPrograms {
			p.by[asked] = &programEntry{asked: now}
		}
		return nil
	case e.program == nil && !e.never:
		var err error
		e.program, err = compiled.Compile(asked.text, asked.lookback, p.recent)
		e.never = err != nil
	}
	e.asked = now
	return e.program
}

// sweepLocked forgets what was not asked for lately and, where that does not make room, what
// has no program: questions about certain sites are never asked twice.
func (p *programs) sweepLocked(now time.Time) {
	maps.DeleteFunc(p.by, func(_ expression, e *programEntry) bool {
		old := now.Sub(e.asked) > programFor
		if old && e.program != nil {
			e.program.Close()
		}
		return old
	})
	if len(p.by) >= maxPrograms {
		maps.DeleteFunc(p.by, func(_ expression, e *programEntry) bool { return e.program == nil })
	}
}

// eval evaluates a program; nil: PromQL has to.
func (p *programs) eval(ctx context.Context, program *compiled.Program, at time.Time, pass func(context.Context) error) *promql.Result {
	if program == nil {
		p.evaluated.WithLabelValues("promql").Inc()
		return nil
	}
	v, err := program.Eval(ctx, p.db, at, pass)
	switch {
	case err == nil:
	case ctx.Err() == nil && errors.Is(err, compiled.ErrUnsupported):
		p.evaluated.WithLabelValues("promql").Inc()
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		err = promql.ErrQueryTimeout("query execution")
	case errors.Is(err, context.Canceled):
		err = promql.ErrQueryCanceled("query execution")
	}
	p.evaluated.WithLabelValues("compiled").Inc()
	return &promql.Result{Value: v, Err: err}
}
