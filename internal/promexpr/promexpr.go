// Package promexpr rewrites PromQL expressions and looks into them: narrows them to some
// series, takes a condition apart into what it compares and with what, and says how far back
// they look. It is pure, and bounds nothing: what comes from outside is to go through promcost
// first. The health engine, the console, the readings of gates and the tenants' rules call it.
package promexpr

import (
	"math"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Narrow adds a matcher to every selector of an expression. One that the expression has
// already stays.
func Narrow(expr parser.Expr, m *labels.Matcher) {
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok {
			vs.LabelMatchers = append(vs.LabelMatchers, m)
		}
		return nil
	})
}

// Reach is how far before the moment at which it is evaluated an expression looks at most,
// where the sample of an instant may be as old as lookback. What @ names is not looked at.
func Reach(expr parser.Expr, lookback time.Duration) time.Duration {
	far := time.Duration(0)
	parser.Inspect(expr, func(n parser.Node, path []parser.Node) error {
		vs, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		window, before := lookback, vs.OriginalOffset
		for _, over := range path {
			switch over := over.(type) {
			case *parser.MatrixSelector:
				window = over.Range
			case *parser.SubqueryExpr:
				before += over.Range + over.OriginalOffset
			}
		}
		far = max(far, before+window)
		return nil
	})
	return far
}

// Bound is a comparison with a constant that a condition makes.
type Bound struct {
	// Op is ==, !=, >, <, >= or <=: the condition holds while the value is Op Value.
	Op    string
	Value float64
}

// Condition is an expression taken apart for a chart: a line of values, and where on it the
// expression finds something.
type Condition struct {
	// Value is the expression without its comparisons; the expression itself if it has none.
	Value string
	// Bounds are all to be met; none: the expression compares with nothing, or with what
	// is no constant.
	Bounds []Bound
}

// ConditionOf takes an expression apart: x > 5, 5 < x, x > 1 < 9, and all of them with an
// "and" or "unless" after it, which stays with the value as far as it is no comparison of the
// same kind. A comparison with bool gives 0 or 1, which is a value; it is left as it is.
func ConditionOf(expr parser.Expr) Condition {
	value, bounds := peel(expr)
	return Condition{Value: value.String(), Bounds: bounds}
}

func peel(expr parser.Expr) (parser.Expr, []Bound) {
	switch x := expr.(type) {
	case *parser.ParenExpr:
		if inner, bounds := peel(x.Expr); len(bounds) > 0 {
			return inner, bounds
		}
	case *parser.BinaryExpr:
		switch {
		case x.Op == parser.LAND || x.Op == parser.LUNLESS:
			left, bounds := peel(x.LHS)
			if len(bounds) == 0 {
				return expr, nil
			}
			// The other side only chooses series, so what it says holds without the bounds too.
			out := *x
			out.LHS = left
			if b, ok := left.(*parser.BinaryExpr); ok {
				out.LHS = &parser.ParenExpr{Expr: b}
			}
			return &out, bounds
		case x.Op.IsComparisonOperator() && !x.ReturnBool:
			if v, ok := constant(x.RHS); ok {
				left, bounds := peel(x.LHS)
				return left, append(bounds, Bound{parser.ItemTypeStr[x.Op], v})
			}
			if v, ok := constant(x.LHS); ok {
				right, bounds := peel(x.RHS)
				return right, append(bounds, Bound{mirrored[x.Op], v})
			}
		}
	}
	return expr, nil
}

// mirrored are the operators with their sides changed.
var mirrored = map[parser.ItemType]string{
	parser.EQLC: "==", parser.NEQ: "!=", parser.GTR: "<", parser.LSS: ">", parser.GTE: "<=", parser.LTE: ">=",
}

// constant is the value of an expression of numbers alone; a bound that is no finite number
// is none.
func constant(expr parser.Expr) (float64, bool) {
	v, ok := number(expr)
	return v, ok && !math.IsNaN(v) && !math.IsInf(v, 0)
}

func number(expr parser.Expr) (float64, bool) {
	switch x := expr.(type) {
	case *parser.NumberLiteral:
		return x.Val, true
	case *parser.ParenExpr:
		return number(x.Expr)
	case *parser.UnaryExpr:
		v, ok := number(x.Expr)
		if x.Op == parser.SUB {
			v = -v
		}
		return v, ok
	case *parser.BinaryExpr:
		a, ok := number(x.LHS)
		b, also := number(x.RHS)
		if !ok || !also {
			return 0, false
		}
		switch x.Op {
		case parser.ADD:
			return a + b, true
		case parser.SUB:
			return a - b, true
		case parser.MUL:
			return a * b, true
		case parser.DIV:
			return a / b, true
		}
	}
	return 0, false
}
