package promcost

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

func parse(t testing.TB, q string) parser.Expr {
	t.Helper()
	e, err := parser.ParseExpr(q)
	if err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	return e
}

func TestRefused(t *testing.T) {
	deep := strings.Repeat("(", 300) + "x" + strings.Repeat(")", 300)
	double := "x"
	for range 20 {
		double = `label_join(` + double + `, "a", "", "a", "a")`
	}
	replace := "x"
	for range 6 {
		replace = `label_replace(` + replace + `, "a", "$1$1$1", "a", "(.*)")`
	}
	for name, c := range map[string]struct {
		q    string
		w    Window
		want string // in the error
	}{
		"the bomb":             {q: "sum_over_time(sum_over_time(vector(1)[1d:1s])[1d:1s])", want: "86,401 steps, each over the 86,401 points of the subquery [1d:1s]"},
		"inside an aggregate":  {q: `max(1 + sum_over_time(sum_over_time(vector(1)[1d:1s])[1d:1s]))`, want: "longer step"},
		"three levels":         {q: "sum_over_time(sum_over_time(sum_over_time(x[1h])[6h:10s])[6h:10s])", want: "points"},
		"one long":             {q: "sum_over_time(vector(1)[60d:1m]) + sum_over_time(vector(1)[90d:1s])", want: "in sum_over_time(vector(1)[90d:1s])"},
		"milliseconds":         {q: "sum_over_time(vector(1)[1w:1ms])", want: "604,800,001"},
		"binary of two":        {q: "sum_over_time(x[1m]) and on () sum_over_time(rate(x[1d])[1d:15s])", want: "rate(x[1d])"},
		"in a param":           {q: "topk(scalar(sum_over_time(sum_over_time(vector(1)[1d:1s])[1d:1s])), x)", want: "points"},
		"with @":               {q: "sum_over_time(sum_over_time(vector(1)[1d:1s] @ 0)[1d:1s] @ end())", want: "points"},
		"sorted":               {q: "quantile_over_time(0.5, vector(1)[60d:5s])", want: "the subquery [60d:5s]"},
		"default step":         {q: "sum_over_time(sum_over_time(x[12h:])[12h:])", want: "[12h:15s]"},
		"series for each step": {q: `count_over_time(count_values("v", vector(time()))[1d:10s])`, want: "count_values"},
		"far back":             {q: "x offset 1y", want: "looks further than 92d"},
		"far ahead":            {q: "x offset -1y", want: "looks further"},
		"far by nesting":       {q: "max_over_time(x[80d:1d] offset 20d)", want: "looks further"},
		"steps of a range":     {q: "rate(x[1d])", w: Window{Span: 11_000 * time.Second, Step: time.Second}, want: "longer step"},
		"depth":                {q: deep, want: "nested deeper"},
		"parts":                {q: strings.Repeat("(x+x)+", 200) + "x", want: "parts"},
		"bytes":                {q: "x" + strings.Repeat(" ", 11_000), want: "bytes"},
		"label_join":           {q: double, want: "label values"},
		"label_replace":        {q: replace, want: "label values"},
		"regex of a matcher":   {q: `x{a=~"(.{1000}){10}.*"}`}, // Go itself refuses it
		"long regex":           {q: `x{a=~"` + strings.Repeat(".{1000}", 6) + `"}`, want: "instructions"},
		"dear regex":           {q: `x{a=~"` + strings.Repeat("(a|aa)", 400) + `"}`, want: "of at most 1,000"},
		"dear regex, repeated": {q: `x{a=~"(` + strings.Repeat("a?", 600) + `b)*"}`, want: "of at most 1,000"},
		"list in a loop":       {q: `x{a=~"(` + texts(300) + `)+"}`, want: "of at most 1,000"},
		"regex of a function":  {q: `label_replace(x, "a", "$1", "b", "` + strings.Repeat("(.*a.*)", 30) + `")`, want: "of at most 100"},
		"backwards":            {q: "x", w: Window{Span: -1}, want: "backwards"},
	} {
		_, err := Rule.Parse(c.q, c.w)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		var e *Error
		if c.want != "" && (!errors.As(err, &e) || e.Remedy == "") {
			t.Errorf("%s: %T without a remedy", name, err)
		}
		if err != nil && len(err.Error()) > 600 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

// What people write is far below the limits.
// texts are n names with a common beginning, as a dashboard's variable makes a list of them.
func texts(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("payments-%d", i*7919))
	}
	return strings.Join(all, "|")
}

func TestAccepted(t *testing.T) {
	sites := make([]string, 300)
	for i := range sites {
		sites[i] = fmt.Sprintf("shop-%04d", i)
	}
	for _, q := range []string{
		"up", "1", `"text"`, "x[5m]", "time() - max by (tenant, site) (x) > 300",
		"rate(x[5m])", "avg_over_time(x[30d])", "max_over_time(rate(x[5m])[1d:1m])", "quantile_over_time(0.99, x[1d])",
		"sum_over_time((sum(rate(x[5m])) > bool 0)[7d:5m])", "max_over_time(avg_over_time(rate(x[5m])[1h:1m])[1d:15m])",
		"predict_linear(x[6h], 4 * 3600) < 0", "histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))",
		"x - x offset 1w", `count_values("version", build_info)`, "sum_over_time(vector(1)[1d:15s])",
		`label_replace(label_join(x, "a", "/", "b", "c", "d"), "e", "$1-$2", "a", "(.*)/(.*)")`,
		`x{site=~"` + strings.Join(sites, "|") + `"}`,
		`x{pod=~"(` + texts(300) + `)"}`, `x{pod=~"` + strings.ReplaceAll(texts(300), "-", "\\\\.") + `"}`,
	} {
		if _, err := Rule.Parse(q, Window{}); err != nil {
			t.Errorf("rule %s: %v", q, err)
		}
	}
	for q, w := range map[string]Window{
		"rate(x[5m])":                       {Span: 90 * day, Step: time.Hour},
		"sum(rate(x[1m]))":                  {Span: 6 * time.Hour, Step: 15 * time.Second},
		"avg_over_time(x[1d])":              {Span: 30 * day, Step: time.Hour},
		"avg_over_time(x[7d])":              {Span: 30 * day, Step: time.Hour},
		"up":                                {Span: 365 * day, Step: 12 * time.Hour},
		"max_over_time(rate(x[5m])[1h:5m])": {Span: 7 * day, Step: 10 * time.Minute},
	} {
		if _, err := Query.Parse(q, w); err != nil {
			t.Errorf("query %s over %v: %v", q, w, err)
		}
	}
}

func TestCost(t *testing.T) {
	for q, want := range map[string]float64{
		"1": 1, "x": 1, "x + 1": 3,
		"rate(x[5m])":                     1 + 21 + 1 + 20,       // the call, its points, the selector, the samples read
		"quantile_over_time(0.5, x[5m])":  1 + 1 + 4*21 + 1 + 20, // and the literal
		"sum_over_time(vector(1)[1m:1s])": 1 + 61 + 61 + 61,      // the call, its points, vector and 1 at each step
		`x{a=~"b"}`:                       1 + 10,
	} {
		if got := Cost(parse(t, q), Window{}); got != want {
			t.Errorf("%s costs %v, want %v", q, got, want)
		}
	}
	if got := Cost(parse(t, "x"), Window{Span: time.Minute, Step: 15 * time.Second}); got != 5+4 {
		t.Errorf("x over a minute costs %v, want 9", got)
	}
}

var fuzzWindows = []Window{{}, {Span: time.Hour, Step: time.Second}, {Span: day, Step: time.Minute}, {Span: 290 * 365 * day, Step: time.Millisecond}, {Span: time.Second, Step: time.Hour}}

func FuzzCost(f *testing.F) {
	for _, q := range []string{
		"x", "sum_over_time(sum_over_time(vector(1)[1d:1s])[1d:1s])", `count_values("v", x offset -5m @ end())`, "x[5m]", "-x ^ 2",
		`label_join(label_replace(x,"a","$1","b","(.*)"),"c","","a","a")`, "max_over_time(x[292y:1ms])", "topk(scalar(x), x) or on () vector(1)",
		"x[1d:1s] @ 4e15", `"s"`, "x offset 292y", "absent_over_time({__name__=~\"a{1000}\"}[1y])",
	} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, q string) {
		expr, err := Query.Parse(q, Window{})
		if expr == nil || len(q) > 2000 || err != nil {
			return
		}
		for _, w := range fuzzWindows {
			cost := Cost(expr, w)
			if math.IsNaN(cost) || cost < 1 {
				t.Fatalf("%q over %v costs %v", q, w, cost)
			}
			if err := Rule.Check(expr, w); err == nil && cost > Rule.Cost {
				t.Fatalf("%q over %v costs %v and is admitted", q, w, cost)
			}
			if expr.Type() != parser.ValueTypeVector {
				continue
			}
			for _, r := range []string{"[1ms:1ms]", "[5m:]", "[1d:1h]", "[1w:1s] offset 1d"} {
				wrapped, err := parser.ParseExpr("last_over_time((" + q + "\n)" + r + ")")
				if err != nil {
					t.Fatal(err)
				}
				if more := Cost(wrapped, w); more < cost {
					t.Fatalf("%q over %v costs %v, inside a subquery %s only %v", q, w, cost, r, more)
				}
			}
		}
		_ = Query.Check(expr, Window{Span: -1, Step: -1})
	})
}

// one holds a single series with a sample each Resolution, three days to either side.
type one struct{}

func (o one) Querier(mint, maxt int64) (storage.Querier, error) {
	return series{mint: mint, maxt: maxt}, nil
}

type series struct {
	storage.LabelQuerier
	mint, maxt int64
}

func (s series) Close() error { return nil }
func (s series) Select(context.Context, bool, *storage.SelectHints, ...*labels.Matcher) storage.SeriesSet {
	step, around := Resolution.Milliseconds(), time.Unix(1_700_000_000, 0).UnixMilli()
	var f []promql.FPoint
	for t := max(s.mint, around-3*day.Milliseconds()) / step * step; t <= min(s.maxt, around+3*day.Milliseconds()); t += step {
		f = append(f, promql.FPoint{T: t, F: 1})
	}
	return &set{s: promql.NewStorageSeries(promql.Series{Metric: labels.FromStrings("__name__", "x"), Floats: f})}
}

type set struct {
	s    storage.Series
	done bool
}

func (s *set) Next() bool                        { was := s.done; s.done = true; return !was }
func (s *set) At() storage.Series                { return s.s }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

// work is how many points a real engine touches, by its own count: those of every
// function over a range at every step. What is inside a subquery the engine counts apart,
// so it is asked for by itself, as the range query that the subquery is.
func work(t *testing.T, ng *promql.Engine, expr parser.Expr, start, end time.Time, step time.Duration) (points int64, peak int) {
	t.Helper()
	q, err := ng.NewRangeQuery(t.Context(), one{}, nil, expr.String(), start, end, step)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if res := q.Exec(t.Context()); res.Err != nil {
		t.Fatalf("%s: %v", expr, res.Err)
	}
	points, peak = q.Stats().Samples.TotalSamples, q.Stats().Samples.PeakSamples
	parser.Inspect(expr, func(n parser.Node, path []parser.Node) error {
		sub, ok := n.(*parser.SubqueryExpr)
		if !ok {
			return nil
		}
		for _, p := range path {
			if _, inner := p.(*parser.SubqueryExpr); inner {
				return nil // its outer one asks
			}
		}
		n1, p1 := work(t, ng, sub.Expr, start.Add(-sub.Range).Truncate(sub.Step).Add(sub.Step), end, sub.Step)
		points, peak = points+n1, max(peak, p1)
		return nil
	})
	return points, peak
}

// The worst that is admitted: a search through shapes, ranges and steps. None of them
// touches more points than its cost says, so nothing that is admitted runs on for longer
// than that between two looks at the clock.
func TestWorstAdmitted(t *testing.T) {
	limits := Limits{Cost: 2e5, Reach: day, Bytes: 1000, Nodes: 50, Depth: 20, Regex: 100, Pattern: 100, Replace: 100, LabelGrowth: 4}
	ng := promql.NewEngine(promql.EngineOpts{MaxSamples: 5e7, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return DefaultStep.Milliseconds() }})
	defer ng.Close()
	ranges, steps := []string{"1m", "10m", "1h", "6h"}, []string{"1s", "15s", "2m"}
	shapes := []string{
		"sum_over_time(x[R1])",
		"sum_over_time(vector(1)[R1:S1])",
		"sum_over_time(sum_over_time(x[R2])[R1:S1])",
		"sum_over_time(sum_over_time(vector(1)[R2:S2])[R1:S1])",
		"max_over_time(sum_over_time(sum_over_time(x[R2])[R1:S2])[R2:S1])",
		"sum(sum_over_time(x[R1]) + sum_over_time((x * 2)[R2:S1]))",
		"quantile_over_time(0.5, (x > 0)[R1:S1])",
	}
	start := time.Unix(1_700_000_000, 0)
	tried, admitted, worst, worstOf := 0, 0, 0.0, ""
	for _, shape := range shapes {
		seen := map[string]bool{}
		for _, r1 := range ranges {
			for _, r2 := range ranges {
				for _, s1 := range steps {
					for _, s2 := range steps {
						q := strings.NewReplacer("R1", r1, "R2", r2, "S1", s1, "S2", s2).Replace(shape)
						if seen[q] {
							continue
						}
						seen[q] = true
						for _, w := range []Window{{Span: 0, Step: time.Second}, {Span: time.Hour, Step: 10 * time.Second}, {Span: 10 * time.Minute, Step: time.Second}} {
							tried++
							expr, err := limits.Parse(q, w)
							if err != nil {
								continue
							}
							admitted++
							points, peak := work(t, ng, expr, start, start.Add(w.Span), w.Step)
							cost := Cost(expr, w)
							if float64(points) > cost {
								t.Errorf("%s over %v touches %d points and costs %v", q, w, points, cost)
							}
							if float64(peak) > 2*cost {
								t.Errorf("%s over %v holds %d points and costs %v", q, w, peak, cost)
							}
							if float64(points) > worst {
								worst, worstOf = float64(points), q
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%d of %d admitted; the worst touches %.0f points of %.0f: %s", admitted, tried, worst, limits.Cost, worstOf)
	if worst > limits.Cost || admitted < 50 || admitted == tried {
		t.Errorf("%d of %d admitted, the worst touches %.0f points: the search looks at nothing", admitted, tried, worst)
	}
}

// Whatever is admitted, a real engine touches no more points than its cost says.
func FuzzWork(f *testing.F) {
	for _, q := range []string{"x", "rate(x[5m])", "sum_over_time((x > 0)[5m:1m] offset 1m)", "max_over_time(sum_over_time(x[1m])[2m:10s] @ end())", "topk(2, x) or -x ^ time()", "absent_over_time(x[1m] @ 1000)", `count_values("v", x)`} {
		f.Add(q)
	}
	limits := Limits{Cost: 20_000, Reach: day, Bytes: 300, Nodes: 30, Depth: 20, Regex: 100, Pattern: 100, Replace: 50, LabelGrowth: 4}
	ng := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return DefaultStep.Milliseconds() }})
	f.Cleanup(func() { ng.Close() })
	start := time.Unix(1_700_000_000, 0)
	f.Fuzz(func(t *testing.T, q string) {
		for _, w := range []Window{{Step: time.Second}, {Span: time.Minute, Step: time.Second}} {
			expr, err := limits.Parse(q, w)
			if err != nil || expr.Type() == parser.ValueTypeMatrix || expr.Type() == parser.ValueTypeString {
				return
			}
			query, err := ng.NewRangeQuery(t.Context(), one{}, nil, q, start, start.Add(w.Span), w.Step)
			if err != nil {
				return
			}
			res := query.Exec(t.Context())
			points := float64(query.Stats().Samples.TotalSamples)
			query.Close()
			if cost := Cost(expr, w); res.Err == nil && points > cost {
				t.Fatalf("%q over %v touches %.0f points and costs %.0f", q, w, points, cost)
			}
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	for _, q := range []string{"rate(x[5m])", "x" + strings.Repeat("+x", 200)} {
		b.Run(fmt.Sprint(len(q)), func(b *testing.B) {
			expr := parse(b, q)
			for b.Loop() {
				_ = Rule.Check(expr, Window{})
			}
		})
	}
}

// BenchmarkPoint tells what a unit of cost takes, function by function.
func BenchmarkPoint(b *testing.B) {
	ng := promql.NewEngine(promql.EngineOpts{MaxSamples: 5e7, Timeout: time.Minute})
	defer ng.Close()
	w, start := Window{Span: 1000 * time.Second, Step: time.Second}, time.Unix(1_700_000_000, 0)
	for _, q := range []string{
		"sum_over_time(x[5h])", "rate(x[5h])", "max_over_time(x[5h])", "avg_over_time(x[5h])", "changes(x[5h])", "stddev_over_time(x[5h])",
		"deriv(x[5h])", "predict_linear(x[5h], 60)", "quantile_over_time(0.5, x[5h])", "sum_over_time((x * 2)[5h:15s])",
	} {
		b.Run(q, func(b *testing.B) {
			cost := Cost(parse(b, q), w)
			for b.Loop() {
				query, err := ng.NewRangeQuery(b.Context(), one{}, nil, q, start, start.Add(w.Span), w.Step)
				if err != nil {
					b.Fatal(err)
				}
				if res := query.Exec(b.Context()); res.Err != nil {
					b.Fatal(res.Err)
				}
				query.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/cost, "ns/unit")
		})
	}
}
