package promexpr

import (
	"fmt"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// Summary is what Within tells of the time between two steps of a range.
type Summary string

// Summaries.
const (
	Least    Summary = "least"    // the least value
	Largest  Summary = "largest"  // the largest value
	Coverage Summary = "coverage" // the share of the time in which there is a value, above 0 to 1
)

const (
	// looks is how often Within looks between two steps where it can't read each sample: each
	// minute of four hours, which is what a chart of 30 days has between its points.
	looks = 240
	// held is how long PromQL takes a sample for an instant's.
	held = 5 * time.Minute
)

// Within is an expression whose value at a time is a summary of what expr was in the step before it,
// without the name of the metric. Of a plain selector every sample counts. Anything else, Coverage, and a step
// so short that a held sample may be all that there is in it, are looked at 240 times, and no
// closer together than finest. What has no values, or no single ones, has no summary.
func Within(expr parser.Expr, of Summary, step, finest time.Duration) (string, error) {
	step = max(step, time.Millisecond)
	n := min(looks, max(1, step/max(1, finest)))
	switch expr.Type() {
	case parser.ValueTypeScalar:
		expr = &parser.Call{Func: parser.Functions["vector"], Args: parser.Expressions{expr}}
	case parser.ValueTypeVector:
	default:
		return "", fmt.Errorf("it gives a %s; want one value for each series and time", parser.DocumentedType(expr.Type()))
	}
	var over parser.Expr = &parser.SubqueryExpr{Expr: &parser.ParenExpr{Expr: expr}, Range: step, Step: max(time.Millisecond, (step / n).Truncate(time.Millisecond))}
	if vs := plain(expr); vs != nil && of != Coverage && step >= held {
		over = &parser.MatrixSelector{VectorSelector: vs, Range: step}
	}
	call := func(name string, args ...parser.Expr) *parser.Call {
		return &parser.Call{Func: parser.Functions[name], Args: args}
	}
	switch of {
	case Least:
		return call("min_over_time", over).String(), nil
	case Largest:
		return call("max_over_time", over).String(), nil
	case Coverage:
		share := &parser.BinaryExpr{Op: parser.DIV, LHS: call("count_over_time", over), RHS: &parser.NumberLiteral{Val: float64(n)}}
		return call("clamp_max", share, &parser.NumberLiteral{Val: 1}).String(), nil
	}
	return "", fmt.Errorf("%q: want %s, %s or %s", of, Least, Largest, Coverage)
}

// plain is the selector that expr is, nil for none. One that says which moment it is about has one
// value whenever it is asked, and no samples between.
func plain(expr parser.Expr) *parser.VectorSelector {
	switch x := expr.(type) {
	case *parser.ParenExpr:
		return plain(x.Expr)
	case *parser.VectorSelector:
		if x.Timestamp == nil && x.StartOrEnd == 0 && !x.Anchored && !x.Smoothed {
			return x
		}
	}
	return nil
}
