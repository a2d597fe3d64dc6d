package compiled

import (
	"math"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// ofRange are the functions of ranges that look at nothing but the samples of one series.
var ofRange = map[string]bool{
	"avg_over_time": true, "changes": true, "count_over_time": true, "delta": true, "increase": true, "max_over_time": true,
	"min_over_time": true, "rate": true, "resets": true, "sum_over_time": true,
}

// compiler makes the nodes of a program. What stands twice in an expression is one node.
type compiler struct {
	p        *Program
	lookback int64 // as leaf.window
	known    map[string]node
}

func (c *compiler) add(text string, n node) node {
	if l, ok := n.(*leaf); ok {
		c.p.leaves = append(c.p.leaves, l)
	}
	c.p.nodes = append(c.p.nodes, n)
	c.known[text] = n
	return n
}

func (c *compiler) vector(expr parser.Expr) (node, error) {
	text := expr.String()
	if n := c.known[text]; n != nil {
		return n, nil
	}
	switch e := expr.(type) {
	case *parser.ParenExpr:
		return c.vector(e.Expr)
	case *parser.VectorSelector:
		l := &leaf{window: c.lookback}
		if err := l.selects(e); err != nil {
			return nil, err
		}
		return c.add(text, l), nil
	case *parser.Call:
		return c.call(text, e)
	case *parser.UnaryExpr:
		of, err := c.vector(e.Expr)
		if err != nil || e.Op != parser.SUB {
			return of, err
		}
		return c.add(text, &mapped{of: of, bare: true, fn: func(v float64, _ int64) (float64, bool) { return -v, true }}), nil
	case *parser.AggregateExpr:
		switch e.Op {
		case parser.SUM, parser.AVG, parser.MIN, parser.MAX, parser.COUNT:
		default:
			return nil, unsupported("the aggregation %s", e.Op)
		}
		if e.Without {
			return nil, unsupported("without")
		}
		of, err := c.vector(e.Expr)
		if err != nil {
			return nil, err
		}
		return c.add(text, &aggregate{of: of, op: e.Op, groups: newKeys(true, e.Grouping...)}), nil
	case *parser.BinaryExpr:
		return c.binary(text, e)
	}
	return nil, unsupported("%T", expr)
}

// selects takes what a selector says.
func (l *leaf) selects(e *parser.VectorSelector) error {
	if e.Timestamp != nil || e.StartOrEnd != 0 || e.OriginalOffsetExpr != nil || e.Anchored || e.Smoothed {
		return unsupported("the modifiers of %s", e)
	}
	for _, m := range e.LabelMatchers {
		if m.Name == labels.MetricName && m.Type == labels.MatchEqual && l.metric == "" {
			l.metric = m.Value
		} else {
			l.matchers = append(l.matchers, m)
		}
	}
	if l.metric == "" {
		return unsupported("a selector without the name of a metric")
	}
	l.offset = e.OriginalOffset.Milliseconds()
	return nil
}

func (c *compiler) call(text string, e *parser.Call) (node, error) {
	switch name := e.Func.Name; {
	case ofRange[name]:
		m, ok := e.Args[0].(*parser.MatrixSelector)
		if !ok || m.RangeExpr != nil {
			return nil, unsupported("%s", text)
		}
		vs := m.VectorSelector.(*parser.VectorSelector)
		l := &leaf{window: m.Range.Milliseconds(), fn: promql.FunctionCalls[name], fnName: name, args: e.Args}
		if err := l.selects(vs); err != nil {
			return nil, err
		}
		vs.Offset = vs.OriginalOffset // as PromQL sets it before it evaluates
		return c.add(text, l), nil
	case name == "timestamp":
		vs, ok := e.Args[0].(*parser.VectorSelector)
		if !ok {
			return nil, unsupported("the timestamp of what is calculated")
		}
		l := &leaf{window: c.lookback, time: true}
		if err := l.selects(vs); err != nil {
			return nil, err
		}
		return c.add(text, l), nil
	case name == "abs":
		of, err := c.vector(e.Args[0])
		if err != nil {
			return nil, err
		}
		return c.add(text, &mapped{of: of, bare: true, fn: func(v float64, _ int64) (float64, bool) { return math.Abs(v), true }}), nil
	case name == "clamp_max" || name == "clamp_min":
		of, err := c.vector(e.Args[0])
		if err != nil {
			return nil, err
		}
		bound, ok := scalarOf(e.Args[1])
		if !ok {
			return nil, unsupported("%s", text)
		}
		lower, upper := scalar(func(int64) float64 { return math.Inf(-1) }), bound
		if name == "clamp_min" {
			lower, upper = bound, func(int64) float64 { return math.Inf(1) }
		}
		return c.add(text, &mapped{of: of, bare: true, fn: func(v float64, ts int64) (float64, bool) {
			lo, up := lower(ts), upper(ts)
			return math.Max(lo, math.Min(up, v)), !(up < lo)
		}}), nil
	}
	return nil, unsupported("the function %s", e.Func.Name)
}

// scalarOf compiles an expression without series.
func scalarOf(expr parser.Expr) (scalar, bool) {
	switch e := expr.(type) {
	case *parser.ParenExpr:
		return scalarOf(e.Expr)
	case *parser.NumberLiteral:
		return func(int64) float64 { return e.Val }, true
	case *parser.Call:
		if e.Func.Name == "time" {
			return func(ts int64) float64 { return float64(ts) / 1000 }, true
		}
	case *parser.UnaryExpr:
		of, ok := scalarOf(e.Expr)
		if !ok || e.Op != parser.SUB {
			return of, ok
		}
		return func(ts int64) float64 { return -of(ts) }, true
	case *parser.BinaryExpr:
		l, lok := scalarOf(e.LHS)
		r, rok := scalarOf(e.RHS)
		calc := operation(e.Op, false)
		if !lok || !rok || calc == nil || e.Op.IsComparisonOperator() {
			return nil, false
		}
		return func(ts int64) float64 { v, _ := calc(l(ts), r(ts)); return v }, true
	}
	return nil, false
}

// operation is what an operator does with two values, and whether the result stays; nil
// for one that is not known.
func operation(op parser.ItemType, returnBool bool) func(l, r float64) (float64, bool) {
	compare := func(holds func(l, r float64) bool) func(l, r float64) (float64, bool) {
		if !returnBool {
			return func(l, r float64) (float64, bool) { return l, holds(l, r) }
		}
		return func(l, r float64) (float64, bool) {
			if holds(l, r) {
				return 1, true
			}
			return 0, true
		}
	}
	switch op {
	case parser.ADD:
		return func(l, r float64) (float64, bool) { return l + r, true }
	case parser.SUB:
		return func(l, r float64) (float64, bool) { return l - r, true }
	case parser.MUL:
		return func(l, r float64) (float64, bool) { return l * r, true }
	case parser.DIV:
		return func(l, r float64) (float64, bool) { return l / r, true }
	case parser.EQLC:
		return compare(func(l, r float64) bool { return l == r })
	case parser.NEQ:
		return compare(func(l, r float64) bool { return l != r })
	case parser.GTR:
		return compare(func(l, r float64) bool { return l > r })
	case parser.LSS:
		return compare(func(l, r float64) bool { return l < r })
	case parser.GTE:
		return compare(func(l, r float64) bool { return l >= r })
	case parser.LTE:
		return compare(func(l, r float64) bool { return l <= r })
	}
	return nil
}

func (c *compiler) binary(text string, e *parser.BinaryExpr) (node, error) {
	if e.LHS.Type() == parser.ValueTypeScalar || e.RHS.Type() == parser.ValueTypeScalar {
		return c.withScalar(text, e)
	}
	l, err := c.vector(e.LHS)
	if err != nil {
		return nil, err
	}
	r, err := c.vector(e.RHS)
	if err != nil {
		return nil, err
	}
	how := e.VectorMatching
	s := sides{l: l, r: r, match: newKeys(true, how.MatchingLabels...)}
	if !how.On {
		s.match = newKeys(false, append([]string{labels.MetricName}, how.MatchingLabels...)...)
	}
	if e.Op.IsSetOperator() {
		return c.add(text, &set{sides: s, op: e.Op}), nil
	}
	calc := operation(e.Op, e.ReturnBool)
	if calc == nil || how.Card != parser.CardOneToOne {
		return nil, unsupported("%s", text)
	}
	return c.add(text, &binary{sides: s, calc: calc, bare: !e.Op.IsComparisonOperator() || e.ReturnBool, strip: how.MatchingLabels}), nil
}

// withScalar is an operation of a vector and a scalar. A comparison gives the vector's
// value, on whichever side it stands.
func (c *compiler) withScalar(text string, e *parser.BinaryExpr) (node, error) {
	vec, other := e.LHS, e.RHS
	swap := e.LHS.Type() == parser.ValueTypeScalar
	if swap {
		vec, other = other, vec
	}
	of, err := c.vector(vec)
	if err != nil {
		return nil, err
	}
	with, ok := scalarOf(other)
	calc := operation(e.Op, e.ReturnBool)
	if !ok || calc == nil {
		return nil, unsupported("%s", text)
	}
	fn := func(v float64, ts int64) (float64, bool) { return calc(v, with(ts)) }
	if swap {
		fn = func(v float64, ts int64) (float64, bool) {
			out, keep := calc(with(ts), v)
			if e.Op.IsComparisonOperator() && !e.ReturnBool {
				out = v
			}
			return out, keep
		}
	}
	return c.add(text, &mapped{of: of, bare: !e.Op.IsComparisonOperator() || e.ReturnBool, fn: fn}), nil
}
