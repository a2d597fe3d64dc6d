// Package promcost bounds what a PromQL expression may cost, by its text alone: before
// it is admitted, loaded or sent to a store. It is pure and knows no tier; admission, the
// engines, the console, the query API and the health engine ask it with the same limits.
//
// A bound is needed because no timeout stops every expression. Prometheus looks at its
// deadline once for each step of an operator, but only once for each *series* of a
// function over a range: all steps and all points of one series run to the end. In
// sum_over_time(sum_over_time(vector(1)[1d:1s])[1d:1s]) that is one series of 86,400
// steps with 86,400 points each, 7.5 billion additions between two looks at the clock.
//
// # The number
//
// The cost of an expression is how many points one evaluation touches for one series of
// each selector, where a stored series has a sample each Resolution. An evaluation has S
// steps over a span T (an instant query: S = 1, T = 0; a range query: T = end - start,
// S = T/step + 1):
//
//	literal, time()        S
//	selector               S + T/Resolution
//	f(x[r])                S·w(f)·(r/Resolution + 1) + S + (T+r)/Resolution
//	f(e[r:s])              S·w(f)·(r/s + 1) + cost of e with S' = max(S, (T+r)/s + 1), T' = T+r
//	count_values(l, e)     CountValuesWeight·S·min(S, 5000) + cost of e
//	label_replace, =~, !~  S + RegexWeight for each instruction of the regular expression + cost of e
//	any other node         S + costs of its parts
//
// w is how much more than an addition f does for a point: quantile_over_time sorts. s is
// DefaultStep where a subquery names none. offset and @ move an evaluation and change
// nothing. count_values is dear because each step may make a series, and Prometheus
// reserves up to 5,000 points for each.
//
// With S' at least S, wrapping an expression in a subquery never lowers its cost, so
// there is no cheap disguise of a dear expression.
//
// How many series a selector finds can't be known beforehand. It need not be: between two
// series the deadline is looked at, so a timeout holds to within the cost of one series,
// and their number is bounded by the samples a query may hold. A unit takes 0.6 to 12 ns
// (BenchmarkPoint): Rule.Cost is at most some 60 ms for a series, Query.Cost some 0.6 s.
//
// Beside the number there are bounds on size: bytes, nodes and depth (parsing and printing
// an expression is work too), instructions of a regular expression (x{1000} is short and
// large; one that is more than a list of texts takes them all for each character of a value), how far back an expression reaches, and how much longer than a stored one a
// label value may become (twenty nested label_join make a value a million times longer).
package promcost

import (
	"fmt"
	"math"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"muster.dev/muster/internal/regexcost"
)

const (
	// Resolution is how far apart the samples of a series are taken to be: the shortest
	// interval that the shipped collection policies set.
	Resolution = 15 * time.Second
	// DefaultStep of a subquery that names none; the engines' evaluation interval.
	DefaultStep = 15 * time.Second
	// CountValuesWeight is what a point reserved by count_values costs.
	CountValuesWeight = 10
	// RegexWeight is what an instruction of a regular expression costs.
	RegexWeight = 10

	reserved = 5000 // points that Prometheus reserves for a new series, at most
)

// weights of functions over a range that do more than add.
// They are measured (BenchmarkPoint), so that no unit of cost takes much longer than another.
var weights = map[string]float64{
	"quantile_over_time": 4, "mad_over_time": 8, "predict_linear": 4,
	"deriv": 2, "double_exponential_smoothing": 2, "stddev_over_time": 2, "stdvar_over_time": 2,
}

// Limits of what is accepted.
type Limits struct {
	Cost  float64       // points, see the package's comment
	Reach time.Duration // how far from its time an evaluation may look, back or ahead

	Bytes       int     // of the text
	Nodes       int     // of the syntax tree
	Depth       int     // of the syntax tree
	Regex       int     // instructions of one regular expression of a matcher that is a list of texts
	Pattern     int     // and of one of any other
	Replace     int     // and of one of label_replace, which no deadline interrupts
	LabelGrowth float64 // how many times longer than a stored one a label value may be
}

// Rule are the limits of what is evaluated again and again for ever: rules and the signals
// of health policies.
var Rule = Limits{Cost: 5e6, Reach: 92 * day, Bytes: 10_000, Nodes: 500, Depth: 250, Regex: 5000, Pattern: 1000, Replace: 100, LabelGrowth: 32}

// Query are the limits of what a user asks for.
var Query = Limits{Cost: 5e7, Reach: 5 * 366 * day, Bytes: 32 << 10, Nodes: 1000, Depth: 250, Regex: 5000, Pattern: 1000, Replace: 100, LabelGrowth: 32}

const day = 24 * time.Hour

// Window is when an expression is evaluated: from a start over Span at each Step, both
// ends included. The zero Window is an instant query.
type Window struct{ Span, Step time.Duration }

// Steps is how many there are, at least 1.
func (w Window) Steps() float64 {
	if w.Step <= 0 || w.Span <= 0 {
		return 1
	}
	return math.Floor(float64(w.Span)/float64(w.Step)) + 1
}

// Error says which part of an expression is too much, and what to do.
type Error struct {
	Part   string // of the expression, cut to a line
	Reason string
	Remedy string
}

func (e *Error) Error() string {
	s := e.Reason
	if e.Part != "" {
		s += " in " + e.Part
	}
	return s + "; " + e.Remedy
}

// Parse reads an expression that is evaluated over w, and refuses one over the limits. The
// error is an *Error or the parser's.
func (l Limits) Parse(text string, w Window) (parser.Expr, error) {
	if len(text) > l.Bytes {
		return nil, &Error{Reason: fmt.Sprintf("the expression has %s bytes, of at most %s", count(float64(len(text))), count(float64(l.Bytes))), Remedy: "split it, or record parts of it with rules"}
	}
	// The parser keeps a stack of its own, but what walks the tree afterwards recurses.
	expr, err := parser.ParseExpr(text)
	if err != nil {
		return nil, err
	}
	return expr, l.Check(expr, w)
}

// Check refuses an expression that is over the limits when evaluated over w.
func (l Limits) Check(expr parser.Expr, w Window) error {
	if w.Step < 0 || w.Span < 0 {
		return &Error{Reason: "the time of evaluation runs backwards", Remedy: "want an end after the start and a step above 0"}
	}
	if err := l.size(expr); err != nil {
		return err
	}
	e := estimator{limits: l}
	cost := e.cost(expr, at{steps: w.Steps(), span: float64(w.Span), reach: float64(w.Span)})
	if e.err != nil {
		return e.err
	}
	if cost > l.Cost {
		return &Error{Part: brief(e.worst), Reason: fmt.Sprintf("it costs %s points for each series, of at most %s; most of it for %s", count(cost), count(l.Cost), e.why), Remedy: e.remedy}
	}
	return nil
}

// Cost is the number that the package's comment defines; +Inf for what no limits admit.
func Cost(expr parser.Expr, w Window) float64 {
	if w.Step < 0 || w.Span < 0 {
		return math.Inf(1)
	}
	e := estimator{limits: Limits{Reach: math.MaxInt64, Regex: math.MaxInt, Pattern: math.MaxInt, Replace: math.MaxInt, LabelGrowth: math.Inf(1)}}
	return e.cost(expr, at{steps: w.Steps(), span: float64(w.Span), reach: float64(w.Span)})
}

// CheckMatchers bounds the regular expressions of a selector.
func (l Limits) CheckMatchers(ms []*labels.Matcher) error {
	e := estimator{limits: l}
	e.matchers(ms, ms2string(ms))
	return e.err
}

// size counts nodes before anything else walks the tree.
func (l Limits) size(expr parser.Expr) error {
	nodes, depth := 0, 0
	var walk func(n parser.Node, d int)
	walk = func(n parser.Node, d int) {
		nodes++
		depth = max(depth, d)
		if nodes > l.Nodes || depth > l.Depth {
			return
		}
		for c := range parser.ChildrenIter(n) {
			walk(c, d+1)
		}
	}
	walk(expr, 1)
	switch {
	case nodes > l.Nodes:
		return &Error{Reason: fmt.Sprintf("the expression has more than %d parts", l.Nodes), Remedy: "split it, or record parts of it with rules"}
	case depth > l.Depth:
		return &Error{Reason: fmt.Sprintf("the expression is nested deeper than %d", l.Depth), Remedy: "leave out parentheses, or record what is inside with a rule"}
	}
	return nil
}

// at is when a part of the expression is evaluated. Times are nanoseconds in float64:
// they are added and multiplied, and must not overflow.
type at struct{ steps, span, reach float64 }

// estimator walks an expression once.
type estimator struct {
	limits Limits
	err    error // the first bound that is not the number

	top         float64 // the dearest node's own cost
	worst       parser.Node
	why, remedy string
}

const record = "or record what is inside with a rule"

func (e *estimator) own(n parser.Node, cost float64, why, remedy func() string) float64 {
	if cost > e.top {
		e.top, e.worst, e.why, e.remedy = cost, n, why(), remedy()
	}
	return cost
}

func (e *estimator) refuse(n fmt.Stringer, reason, remedy string) {
	if e.err == nil {
		e.err = &Error{Part: brief(n), Reason: reason, Remedy: remedy}
	}
}

func (e *estimator) cost(n parser.Expr, t at) float64 {
	switch n := n.(type) {
	case *parser.VectorSelector:
		return e.selector(n, t)
	case *parser.MatrixSelector: // by itself, as an instant query may have it
		return e.overRange(n, n, 1, t)
	case *parser.SubqueryExpr:
		return e.overRange(n, n, 1, t)
	case *parser.Call:
		return e.call(n, t)
	case *parser.AggregateExpr:
		c := e.plain(n, t) + e.cost(n.Expr, t)
		if n.Param != nil {
			c += e.cost(n.Param, t)
		}
		if n.Op == parser.COUNT_VALUES {
			c += e.own(n, CountValuesWeight*t.steps*min(t.steps, reserved), func() string {
				return fmt.Sprintf("count_values, which may make a series at each of %s steps", count(t.steps))
			}, func() string { return "take a longer step" })
		}
		return c
	case *parser.StepInvariantExpr:
		return e.cost(n.Expr, t)
	}
	c := e.plain(n, t)
	for ch := range parser.ChildrenIter(n) {
		if x, ok := ch.(parser.Expr); ok {
			c += e.cost(x, t)
		}
	}
	return c
}

// plain is a node that does one thing at a step.
func (e *estimator) plain(n parser.Node, t at) float64 {
	return e.own(n, t.steps, func() string { return count(t.steps) + " steps" }, func() string { return "take a longer step or a shorter time" })
}

func (e *estimator) selector(v *parser.VectorSelector, t at) float64 {
	e.reach(v, t.reach+math.Abs(float64(v.OriginalOffset)))
	own := t.steps + t.span/float64(Resolution)
	c := e.own(v, own, func() string { return count(t.steps) + " steps" }, func() string { return "take a longer step or a shorter time" })
	return c + e.matchers(v.LabelMatchers, v)
}

func (e *estimator) reach(n fmt.Stringer, ns float64) {
	if ns > float64(e.limits.Reach) {
		e.refuse(n, fmt.Sprintf("it looks further than %s from its time", model.Duration(e.limits.Reach)), "shorten its ranges and offsets")
	}
}

// overRange is the cost of f over a range vector, the range vector's own included.
func (e *estimator) overRange(n parser.Node, arg parser.Expr, weight float64, t at) float64 {
	switch r := arg.(type) {
	case *parser.ParenExpr:
		return t.steps + e.overRange(n, r.Expr, weight, t)
	case *parser.StepInvariantExpr:
		return e.overRange(n, r.Expr, weight, t)
	case *parser.MatrixSelector:
		points := float64(r.Range)/float64(Resolution) + 1
		c := e.own(n, weight*t.steps*points, func() string {
			return fmt.Sprintf("%s steps, each over the range [%s] of some %s samples", count(t.steps), model.Duration(r.Range), count(points))
		}, func() string {
			if t.steps > 1 {
				return "take a longer step or a shorter range, " + record
			}
			return "take a shorter range, " + record
		})
		in := t
		in.span += float64(r.Range)
		in.reach += float64(r.Range)
		if v, ok := r.VectorSelector.(*parser.VectorSelector); ok {
			return c + e.selector(v, in)
		}
		return c + e.cost(r.VectorSelector, in)
	case *parser.SubqueryExpr:
		step := float64(r.Step)
		if step <= 0 {
			step = float64(DefaultStep)
		}
		points := float64(r.Range)/step + 1
		c := e.own(n, weight*t.steps*points, func() string {
			return fmt.Sprintf("%s steps, each over the %s points of the subquery [%s:%s]", count(t.steps), count(points), model.Duration(r.Range), model.Duration(time.Duration(step)))
		}, func() string { return "take a longer step or a shorter range in the subquery, " + record })
		in := at{
			steps: max(t.steps, math.Floor((t.span+float64(r.Range))/step)+1),
			span:  t.span + float64(r.Range),
			reach: t.reach + float64(r.Range) + math.Abs(float64(r.OriginalOffset)),
		}
		e.reach(r, in.reach)
		return c + e.cost(r.Expr, in)
	}
	return e.cost(arg, t)
}

func (e *estimator) call(n *parser.Call, t at) float64 {
	c := e.plain(n, t)
	weight := 1.0
	if w, ok := weights[n.Func.Name]; ok {
		weight = w
	}
	for _, a := range n.Args {
		if a.Type() == parser.ValueTypeMatrix {
			c += e.overRange(n, a, weight, t)
		} else {
			c += e.cost(a, t)
		}
	}
	if n.Func.Name == "label_replace" && len(n.Args) == 5 {
		c += e.regex(text(n.Args[4]), e.limits.Replace, e.limits.Replace, n)
	}
	if g := growth(n); g > e.limits.LabelGrowth {
		e.refuse(n, fmt.Sprintf("its label values may grow more than %s-fold", count(e.limits.LabelGrowth)), "don't nest label_join and label_replace that use a label twice")
	}
	return c
}

func (e *estimator) matchers(ms []*labels.Matcher, n fmt.Stringer) (c float64) {
	for _, m := range ms {
		if m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp {
			c += e.regex(m.Value, e.limits.Regex, e.limits.Pattern, n)
		}
	}
	return c
}

// regex takes two bounds: for a list of texts, and for what takes all of its instructions for
// each character of a value, where 128 values of 2 KiB are looked at between two looks at the clock.
func (e *estimator) regex(pattern string, list, most int, n fmt.Stringer) float64 {
	re, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
	if err != nil { // PromQL refuses it by itself
		return 0
	}
	size := regexcost.Program(re)
	if listed(re) {
		most = list
	}
	if size > float64(most) {
		e.refuse(n, fmt.Sprintf("a regular expression has %s instructions, of at most %s", count(size), count(float64(most))), "shorten it; x{1000} counts a thousand times")
	}
	return RegexWeight * size
}

// listed tells whether a regular expression branches at its ends alone, as a list of texts does,
// however common beginnings are factored out: each instruction then runs once for a value.
func listed(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpLiteral, syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return true
	case syntax.OpCapture, syntax.OpAlternate, syntax.OpQuest:
		for _, sub := range re.Sub {
			if !listed(sub) {
				return false
			}
		}
		return true
	case syntax.OpConcat:
		for i, sub := range re.Sub {
			if !listed(sub) || i < len(re.Sub)-1 && branches(sub) {
				return false
			}
		}
		return true
	}
	return false
}

func branches(re *syntax.Regexp) bool {
	return re.Op == syntax.OpAlternate || re.Op == syntax.OpQuest || re.Op == syntax.OpCapture && branches(re.Sub[0]) || re.Op == syntax.OpConcat && slices.ContainsFunc(re.Sub, branches)
}

// growth is how many times longer than a stored one a label value of e may be. A stored
// value is taken to have valueBytes.
func growth(e parser.Expr) float64 {
	const valueBytes = 64
	c, ok := e.(*parser.Call)
	if !ok {
		g := 1.0
		for ch := range parser.ChildrenIter(e) {
			if x, ok := ch.(parser.Expr); ok {
				g = max(g, growth(x))
			}
		}
		return g
	}
	g := 1.0
	for _, a := range c.Args {
		g = max(g, growth(a))
	}
	switch {
	case c.Func.Name == "label_join" && len(c.Args) > 3:
		n := float64(len(c.Args) - 3)
		return max(g, n*g+(n-1)*float64(len(text(c.Args[2])))/valueBytes)
	case c.Func.Name == "label_replace" && len(c.Args) == 5:
		repl := text(c.Args[2])
		return max(g, float64(strings.Count(repl, "$"))*g+float64(len(repl))/valueBytes)
	}
	return g
}

func text(e parser.Expr) string {
	switch e := e.(type) {
	case *parser.StringLiteral:
		return e.Val
	case *parser.ParenExpr:
		return text(e.Expr)
	case *parser.StepInvariantExpr:
		return text(e.Expr)
	}
	return ""
}

type ms2string []*labels.Matcher

func (m ms2string) String() string {
	s := make([]string, len(m))
	for i := range m {
		s[i] = m[i].String()
	}
	return "{" + strings.Join(s, ",") + "}"
}

func brief(n fmt.Stringer) string {
	const most = 120
	if n == nil {
		return ""
	}
	s := strings.Join(strings.Fields(n.String()), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most-3], "") + "..."
	}
	return s
}

// count writes a number with separators, or short when it is beyond counting.
func count(f float64) string {
	if f >= 1e12 {
		return strconv.FormatFloat(f, 'g', 3, 64)
	}
	s := strconv.FormatInt(int64(math.Ceil(f)), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
