package promexpr

import (
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"muster.dev/muster/internal/fleet"
)

// ofTwo are the functions that need two samples of a series to say anything: rates, and what
// stands beside them. The others look at each sample that there is.
var ofTwo = map[string]bool{
	"changes": true, "delta": true, "deriv": true, "double_exponential_smoothing": true, "idelta": true, "increase": true,
	"irate": true, "predict_linear": true, "rate": true, "resets": true,
}

// total are those of them whose value grows with the window.
var total = map[string]bool{"delta": true, "increase": true}

// Paced is an expression as it has to be asked of sites that are scraped at a pace
// (fleet.Pace), so that it finds there what whoever wrote it had in mind for quick ones. expr
// may be changed for it. Windows in which there are too few samples become wider:
//
//   - of a rate and its like, that does not reach from a scrape to the next but one, four
//     scrapes (fleet.RateWindow). An increase, or a delta, is still one of the window as it was
//     written: that share of the wider one's;
//   - of another function, two scrapes (fleet.TwoScrapes): what must be true all the time of a
//     window is seen twice, and what is counted from a window's smallest value is what the last
//     scrape brought.
//
// Subqueries keep theirs: they look at moments, of which there are as many. How old the sample
// of an instant may be is fleet.Lookback, which no expression can say. At paces of up to a
// minute nothing changes but rates that had no value at all.
func Paced(expr parser.Expr, pace time.Duration) parser.Expr {
	if pace < fleet.Quick {
		return expr
	}
	return transform(expr, func(expr parser.Expr) parser.Expr {
		call, ok := expr.(*parser.Call)
		if !ok {
			return expr
		}
		for _, arg := range call.Args {
			m, ok := arg.(*parser.MatrixSelector)
			if !ok || m.RangeExpr != nil || m.Range >= fleet.TwoScrapes(pace) {
				continue
			}
			switch was := m.Range; {
			case ofTwo[call.Func.Name]:
				m.Range = fleet.RateWindow(pace)
				if total[call.Func.Name] {
					return &parser.ParenExpr{Expr: &parser.BinaryExpr{Op: parser.MUL, LHS: call, RHS: &parser.NumberLiteral{Val: float64(was) / float64(m.Range)}}}
				}
			case pace > fleet.Quick:
				m.Range = fleet.TwoScrapes(pace)
			}
		}
		return expr
	})
}

// Held is an expression whose instants may be as old as a window. Unlike PromQL's own look back it
// does not notice that a series has ended, so it is for what can't say how far PromQL is to look. The
// time of a sample stays that of one that PromQL finds.
func Held(expr parser.Expr, window time.Duration) parser.Expr {
	return transform(expr, func(expr parser.Expr) parser.Expr {
		vs := plain(expr)
		if _, ok := expr.(*parser.VectorSelector); !ok || vs == nil {
			return expr
		}
		return &parser.Call{Func: parser.Functions["last_over_time"], Args: parser.Expressions{&parser.MatrixSelector{VectorSelector: vs, Range: window}}}
	})
}

// Reads tells whether an expression reads one of the metrics or more, and nothing else.
func Reads(expr parser.Expr, metrics ...string) bool {
	found, others := false, false
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok {
			named := slices.ContainsFunc(vs.LabelMatchers, func(m *labels.Matcher) bool {
				return m.Name == labels.MetricName && m.Type == labels.MatchEqual && slices.Contains(metrics, m.Value)
			})
			found, others = found || named, others || !named
		}
		return nil
	})
	return found && !others
}

// transform puts what change makes of them in the place of an expression's parts, the innermost
// first. The selectors of ranges, and those whose time is asked for, are no parts of their own.
func transform(expr parser.Expr, change func(parser.Expr) parser.Expr) parser.Expr {
	switch x := expr.(type) {
	case *parser.AggregateExpr:
		x.Expr = transform(x.Expr, change)
		if x.Param != nil {
			x.Param = transform(x.Param, change)
		}
	case *parser.BinaryExpr:
		x.LHS, x.RHS = transform(x.LHS, change), transform(x.RHS, change)
	case *parser.Call:
		for i, arg := range x.Args {
			if _, ok := arg.(*parser.VectorSelector); !ok || x.Func.Name != "timestamp" {
				x.Args[i] = transform(arg, change)
			}
		}
	case *parser.ParenExpr:
		x.Expr = transform(x.Expr, change)
	case *parser.SubqueryExpr:
		x.Expr = transform(x.Expr, change)
	case *parser.UnaryExpr:
		x.Expr = transform(x.Expr, change)
	}
	return change(expr)
}
