// Package compiled evaluates PromQL expressions that are asked again and again, each time
// at another moment and over the same series: those of health signals and of shipped rules.
//
// PromQL finds the series, reads their labels, and groups and matches them by these each
// time. Here that is done once for each series: an expression becomes a Program of nodes,
// and what labels decide (which series a selector takes, into which group of an aggregation
// one goes, which it meets in a binary operation) becomes tables of integers, which grow
// with the series that are new. What is left for each evaluation is to read the samples out
// of the head and to calculate; and the newest samples are kept (Recent), so that most are not
// read out of the head either. Functions of ranges are Prometheus' own.
//
// It knows less than PromQL: what it can't compile, or finds on its way and can't do
// (native histograms, samples that are not in the head, an ambiguous match), is an error for
// which the caller asks PromQL. Where it answers, it answers the same; a property test says
// so. The engine is its only caller.
package compiled

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

// ErrUnsupported is for what only PromQL can evaluate: an expression, or what was found
// while one was evaluated.
var ErrUnsupported = errors.New("PromQL has to evaluate this")

func unsupported(what string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(what, args...))
}

// absent stands for no value. No evaluation gives it: arithmetic makes other NaNs, and
// samples that have it are none.
var absent = math.Float64frombits(value.StaleNaN)

// vector is what a node gives: values by element. An element is a set of labels that the
// node had a value for at some time; its number stays the same until the program is reset.
type vector struct {
	values []float64
	// fresh are the labels of the elements that this evaluation added, the last of values.
	fresh []labels.Labels
}

func (v *vector) base() *vector { return v }

func (v *vector) add(ls labels.Labels) int32 {
	v.values = append(v.values, absent)
	v.fresh = append(v.fresh, ls)
	return int32(len(v.values) - 1)
}

func (v *vector) clear() {
	for i := range v.values {
		v.values[i] = absent
	}
}

func (v *vector) has(i int) bool { return math.Float64bits(v.values[i]) != value.StaleNaN }

// node is a part of a program.
type node interface {
	base() *vector
	// grow takes in the fresh elements of what it is made of.
	grow()
	// eval sets the values, for a moment in milliseconds.
	eval(ts int64) error
	reset()
}

// Program is an expression with its tables. Evaluations of one wait for each other.
type Program struct {
	mu     sync.Mutex
	recent *Recent
	leaves []*leaf
	nodes  []node // after those that they are made of
	root   node
	out    []labels.Labels // of the root's elements
	unique keys            // finds two of the same labels
	ids    []int32         // of the root's elements, in unique
	seen   []bool          // of these
}

// Compile makes a program, or says with ErrUnsupported that it can't. Who does not use it
// any more closes it.
func Compile(text string, lookback time.Duration, recent *Recent) (*Program, error) {
	expr, err := parser.ParseExpr(text)
	if err != nil {
		return nil, err
	}
	if expr.Type() != parser.ValueTypeVector {
		return nil, unsupported("a %s", expr.Type())
	}
	c := compiler{p: &Program{recent: recent}, lookback: lookback.Milliseconds(), known: map[string]node{}}
	if c.p.root, err = c.vector(expr); err != nil {
		return nil, err
	}
	c.p.unique = newKeys(false)
	for _, l := range c.p.leaves {
		recent.want(l)
	}
	return c.p, nil
}

// Close forgets what is kept for the program alone. An evaluation that is under way, or
// begins later, reads out of the head.
func (p *Program) Close() {
	for _, l := range p.leaves {
		p.recent.leave(l)
	}
}

// Eval evaluates the expression at a moment. pass is called now and then; its error ends
// the evaluation. The result is the caller's.
func (p *Program) Eval(ctx context.Context, db *tsdb.DB, at time.Time, pass func(context.Context) error) (promql.Vector, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ts := at.UnixMilli()
	r, err := open(db, p.recent, p.leaves, ts)
	if err != nil {
		return nil, err
	}
	defer r.close()
	r.pass = func() error { return pass(ctx) }
	if slices.ContainsFunc(p.leaves, (*leaf).sparse) {
		p.reset()
	}
	for _, n := range p.nodes {
		n.base().fresh = nil
	}
	for _, l := range p.leaves {
		if err := l.find(ctx, r); err != nil {
			p.reset() // the nodes above did not see what is fresh
			return nil, err
		}
	}
	for _, n := range p.nodes {
		n.grow()
	}
	root := p.root.base()
	for _, ls := range root.fresh {
		p.out = append(p.out, ls)
		p.ids = append(p.ids, p.unique.id(ls))
	}
	for _, n := range p.nodes {
		n.base().fresh = nil
	}
	for _, l := range p.leaves {
		if err := l.read(r, ts); err != nil {
			return nil, err
		}
	}
	for _, n := range p.nodes {
		if err := n.eval(ts); err != nil {
			return nil, err
		}
	}
	return p.result(ts)
}

func (p *Program) result(ts int64) (promql.Vector, error) {
	root := p.root.base()
	p.seen = emptied(p.seen, p.unique.len())
	n := 0
	for i := range root.values {
		if root.has(i) {
			n++
		}
	}
	out := make(promql.Vector, 0, n)
	for i, v := range root.values {
		if !root.has(i) {
			continue
		}
		if p.seen[p.ids[i]] {
			return nil, unsupported("two results with the same labels")
		}
		p.seen[p.ids[i]] = true
		out = append(out, promql.Sample{T: ts, F: v, Metric: p.out[i]})
	}
	return out, nil
}

// reset forgets all series.
func (p *Program) reset() {
	for _, n := range p.nodes {
		n.base().values, n.base().fresh = nil, nil
		n.reset()
	}
	p.out, p.ids = nil, nil
	p.unique.reset()
}

// emptied returns a slice of n zeros, of what was there if that is enough.
func emptied[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/8)
	}
	s = s[:n]
	clear(s)
	return s
}
