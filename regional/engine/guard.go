package engine

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/promcost"
	"muster.dev/muster/internal/prommeter"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/regional/engine/compiled"
)

// class is for whom an expression is evaluated.
// Shipped rules and health are the platform's; a tenant without a name are operators who
// ask by hand.
type class struct {
	turns.Class
	admitted bool // the expression's cost was looked at when it was loaded
}

var ofPlatform = class{Class: turns.Class{Platform: true}}

type classKey struct{}

func withClass(ctx context.Context, c class) context.Context {
	return context.WithValue(ctx, classKey{}, c)
}

// classOf puts an expression that asks of one tenant only, as a tenant's health signals
// do, into that tenant's class.
func classOf(c class, expr parser.Expr) class {
	if t := tenantOf(expr); t != "" {
		return class{Class: turns.Class{Tenant: t}}
	}
	return c
}

// tenantOf is the tenant that all selectors are confined to; "" if there is none, or
// more than one.
func tenantOf(expr parser.Expr) string {
	tenant, mixed := "", false
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		one := ""
		for _, m := range v.LabelMatchers {
			if m.Name == fleet.SeriesTenant && m.Type == labels.MatchEqual {
				one = m.Value
			}
		}
		mixed = mixed || one == "" || tenant != "" && tenant != one
		tenant = one
		return nil
	})
	if mixed {
		return ""
	}
	return tenant
}

// guard stands before the PromQL engines: it refuses what costs too much, gives each
// evaluation a slot of its class, and bounds its time, its memory and what it touches
// of one series. It is a promql.QueryEngine.
type guard struct {
	platform, tenant *promql.Engine // they differ in how many samples a query may hold
	timeout          time.Duration  // of any evaluation
	tenantTimeout    time.Duration  // of a tenant's, waiting for its slot included
	samples          int            // that a tenant's evaluation may hold
	slots            *turns.Slots
	processors       *turns.Processors
	limits           promcost.Limits
	programs         *programs // of the platform's expressions
}

var _ promql.QueryEngine = (*guard)(nil)

// register shows how the slots are used.
func (g *guard) register(reg prometheus.Registerer) {
	gauge := func(name, help string, labels prometheus.Labels, value func() int) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return float64(value()) }))
	}
	const running, runs = "muster_engine_evaluations_running", "Evaluations of rules and queries that run, by whom they are for."
	gauge(running, runs, prometheus.Labels{"class": "platform"}, func() int { n, _, _ := g.slots.Use(); return n })
	gauge(running, runs, prometheus.Labels{"class": "tenant"}, func() int { _, n, _ := g.slots.Use(); return n })
	gauge("muster_engine_evaluations_waiting", "Evaluations of rules and queries that wait for a slot.", nil, func() int { _, _, n := g.slots.Use(); return n })
}

// NewInstantQuery implements promql.QueryEngine.
func (g *guard) NewInstantQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, qs string, ts time.Time) (promql.Query, error) {
	out, err := g.query(ctx, q, qs, promcost.Window{}, func(ng *promql.Engine, q storage.Queryable) (promql.Query, error) {
		return ng.NewInstantQuery(ctx, q, opts, qs, ts)
	})
	if err != nil {
		return nil, err
	}
	if out.class.Platform {
		asked := expression{qs, compiled.Lookback}
		if opts != nil && opts.LookbackDelta() > 0 {
			asked.lookback = opts.LookbackDelta()
		}
		out.program, out.at, out.instant = g.programs.of(asked), ts, true
	}
	return out, nil
}

// NewRangeQuery implements promql.QueryEngine.
func (g *guard) NewRangeQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, qs string, start, end time.Time, step time.Duration) (promql.Query, error) {
	out, err := g.query(ctx, q, qs, promcost.Window{Span: end.Sub(start), Step: step}, func(ng *promql.Engine, q storage.Queryable) (promql.Query, error) {
		return ng.NewRangeQuery(ctx, q, opts, qs, start, end, step)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (g *guard) query(ctx context.Context, q storage.Queryable, qs string, w promcost.Window, open func(*promql.Engine, storage.Queryable) (promql.Query, error)) (*guarded, error) {
	c, _ := ctx.Value(classKey{}).(class)
	if !c.admitted {
		expr, err := g.limits.Parse(qs, w)
		if err != nil {
			return nil, err
		}
		c = classOf(c, expr)
	}
	ng, m := g.platform, &prommeter.Queryable{Queryable: q, PerSeries: int64(g.limits.Cost)}
	if c.Tenant != "" {
		ng, m.Points = g.tenant, int64(g.samples)
	}
	out := &guarded{g: g, class: c}
	m.Pass = func(ctx context.Context) error { return out.turn.Pass(ctx) }
	var err error
	if out.Query, err = open(ng, m); err != nil {
		return nil, err
	}
	return out, nil
}

// guarded is a query that runs when it has a slot and a processor. A slot it keeps: an
// evaluation that has begun holds memory. The processor it passes on while it reads.
type guarded struct {
	promql.Query
	g     *guard
	class class
	turn  *turns.Turn // while it runs

	// Of an instant query of the platform.
	instant bool
	program *compiled.Program // nil: PromQL evaluates it
	at      time.Time
}

// Exec implements promql.Query.
func (q *guarded) Exec(ctx context.Context) *promql.Result {
	timeout := q.g.timeout
	if q.class.Tenant != "" {
		timeout = q.g.tenantTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	release, err := q.g.slots.Acquire(ctx, q.class.Class)
	if err == nil {
		defer release()
		if q.turn, err = q.g.processors.Begin(ctx, q.class.Class); err == nil {
			defer q.turn.End()
			if q.instant {
				if r := q.g.programs.eval(ctx, q.program, q.at, q.turn.Pass); r != nil {
					return r
				}
			}
			return q.Query.Exec(ctx)
		}
	}
	return q.gaveUp(err)
}

// gaveUp is the result of a query that could not begin in its time.
func (q *guarded) gaveUp(err error) *promql.Result {
	if errors.Is(err, context.DeadlineExceeded) {
		return &promql.Result{Err: promql.ErrQueryTimeout("the queue: other evaluations took all of its time")}
	}
	return &promql.Result{Err: promql.ErrQueryCanceled("the queue")}
}
