package promexpr

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

var summaries = []Summary{Least, Largest, Coverage}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		expr string
		of   Summary
		step time.Duration
		want string
	}{
		{"up", Largest, 4 * time.Hour, "max_over_time(up[4h])"},
		{`(up{site="x"})`, Least, time.Hour, `min_over_time(up{site="x"}[1h])`},
		{`{__name__="a b"} offset 1d`, Least, time.Hour, `min_over_time({__name__="a b"}[1h] offset 1d)`},
		{"up offset -1h", Largest, time.Hour, "max_over_time(up[1h] offset -1h)"},
		// A moment that is named is the same whenever one looks.
		{"up @ 100", Largest, time.Hour, "max_over_time((up @ 100.000)[1h:15s])"},
		{"up @ end()", Largest, time.Hour, "max_over_time((up @ end())[1h:15s])"},
		// In a step that is shorter than a sample is held there may be none.
		{"up", Largest, 3 * time.Minute, "max_over_time((up)[3m:15s])"},
		{"sum by (site) (rate(x[5m])) / y", Least, 4 * time.Hour, "min_over_time((sum by (site) (rate(x[5m])) / y)[4h:1m])"},
		{"histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))", Largest, 12 * time.Minute, "max_over_time((histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m]))))[12m:15s])"},
		{"max_over_time(x[1h:1m] offset 5m)", Largest, time.Hour, "max_over_time((max_over_time(x[1h:1m] offset 5m))[1h:15s])"},
		{"-x > 5 or on () vector(0)", Least, time.Hour, "min_over_time((-x > 5 or on () vector(0))[1h:15s])"},
		{"absent(x)", Largest, time.Hour, "max_over_time((absent(x))[1h:15s])"},
		{"time() - 5", Largest, time.Hour, "max_over_time((vector(time() - 5))[1h:15s])"},
		{"5", Coverage, time.Hour, "clamp_max(count_over_time((vector(5))[1h:15s]) / 240, 1)"},
		{"up", Coverage, 4 * time.Hour, "clamp_max(count_over_time((up)[4h:1m]) / 240, 1)"},
		{"up", Coverage, 100 * time.Second, "clamp_max(count_over_time((up)[1m40s:16s666ms]) / 6, 1)"},
		{"up", Coverage, time.Second, "clamp_max(count_over_time((up)[1s:1s]) / 1, 1)"},
		{"up", Least, time.Microsecond, "min_over_time((up)[1ms:1ms])"},
	} {
		if got, err := within(t, c.expr, c.of, c.step); err != nil || got != c.want {
			t.Errorf("%s of %s: %v\n got %s\nwant %s", c.of, c.expr, err, got, c.want)
		}
	}
	for expr, want := range map[string]string{`"text"`: "string", "up[5m]": "range vector", "up[1h:1m]": "range vector"} {
		if got, err := within(t, expr, Least, time.Hour); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", expr, got, err)
		}
	}
	if _, err := within(t, "up", "middle", time.Hour); err == nil {
		t.Error("the middle is no summary")
	}
}

func within(t *testing.T, text string, of Summary, step time.Duration) (string, error) {
	t.Helper()
	expr, err := parser.ParseExpr(text)
	if err != nil {
		t.Fatal(err)
	}
	return Within(expr, of, step, 15*time.Second)
}

// What an engine makes of the rewritten expression is what one gets by asking for the expression
// itself at each look. In two hours there are samples each minute; a is 100 in one minute of the second
// hour, and has none in the 20 minutes before its end.
func TestWithinOnAnEngine(t *testing.T) {
	st := promqltest.LoadedStorage(t, `
load 1m
  a{site="x"} 1x70 100 1x28 stale _x18 1
  b{site="x",node="1"} 0+1x120
  b{site="x",node="2"} 240-1x120
  h_bucket{site="x",le="1"} 0+1x120
  h_bucket{site="x",le="+Inf"} 0+2x120
`)
	defer st.Close()
	eng := promqltest.NewTestEngine(t, false, 5*time.Minute, 5e6)
	start, end, step := time.Unix(3600, 0), time.Unix(7200, 0), time.Hour
	value := func(expr string, start, end time.Time, step time.Duration) []promql.FPoint {
		q, err := eng.NewRangeQuery(context.Background(), st, nil, expr, start, end, step)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		defer q.Close()
		m, err := q.Exec(context.Background()).Matrix()
		if err != nil || len(m) > 1 {
			t.Fatalf("%s: %v, %v", expr, m, err)
		}
		if len(m) == 0 {
			return nil
		}
		return append([]promql.FPoint(nil), m[0].Floats...)
	}
	for _, expr := range []string{
		`a{site="x"}`, `a offset 10m`, `a @ 4261`, `a @ start()`, `a + 0`, `max by (site) (b)`, `sum(rate(b{node="1"}[5m]))`, `histogram_quantile(0.4, sum by (le) (rate(h_bucket[5m])))`,
		`max_over_time(a[10m:1m])`, `a > 50`, `absent(a)`, `topk(1, a)`, `time()`, `3`, `scalar(a) * 2`, `-a`, `none`, `a > 1 or a < 1`,
	} {
		// What the expression is at each look of the two steps.
		looked := value(expr, start.Add(-step+15*time.Second), end, 15*time.Second)
		for _, of := range summaries {
			text, err := within(t, expr, of, step)
			if err != nil {
				t.Errorf("%s: %v", expr, err)
				continue
			}
			want := ""
			for at := start; !at.After(end); at = at.Add(step) {
				n, least, largest := 0, math.Inf(1), math.Inf(-1)
				for _, p := range looked {
					if p.T > at.Add(-step).UnixMilli() && p.T <= at.UnixMilli() {
						n++
						if !math.IsNaN(p.F) {
							least, largest = min(least, p.F), max(largest, p.F)
						}
					}
				}
				if n > 0 {
					want += fmt.Sprintf(" %d:%.4g", at.Unix(), map[Summary]float64{Least: least, Largest: largest, Coverage: float64(n) / 240}[of])
				}
			}
			got := ""
			for _, p := range value(text, start, end, step) {
				got += fmt.Sprintf(" %d:%.4g", p.T/1000, p.F)
			}
			if got != want {
				t.Errorf("%s of %s, %s:\n got%s\nwant%s", of, expr, text, got, want)
			}
		}
	}
	// The spike of a minute is there, and so is the gap, which the points at the full hours don't show.
	if p := value("a", start, end, step); len(p) != 2 || p[0].F != 1 || p[1].F != 1 {
		t.Errorf("the points: %v", p)
	}
	if p := value("max_over_time(a[1h])", start, end, step); p[1].F != 100 {
		t.Errorf("the spike: %v", p)
	}
	text, _ := within(t, "a", Coverage, step)
	if p := value(text, start, end, step); p[1].F < 0.6 || p[1].F > 0.8 {
		t.Errorf("%s: %v, want the gap of 20 minutes", text, p)
	}
}

// Whatever parses has a summary that parses, or a reason.
func FuzzWithin(f *testing.F) {
	for _, s := range []string{
		"up", "(up)", `{"a b",x=~"y|z"} offset -5m`, "x @ 1.5 offset 1h", "x @ start()", "-x", "1", "time()", `"s"`, "x[5m]", "x[1h:1m] @ end()", "sum without (a) (x) > bool 1",
		"histogram_quantile(0.9, rate(x[5m]))", "a * on (b) group_left (c) d", "topk(3, x) and y unless z", "label_replace(x, \"a\", \"$1\", \"b\", \"(.*)\")", "quantile_over_time(0.5, x[1h:])",
		"count_values(\"v\", x)", "absent_over_time(x[1h])", "x ^ -2", "scalar(x)", "vector(1)", "1 + 2 == bool 3", "+Inf", "NaN",
	} {
		f.Add(s, uint8(0), int64(time.Hour))
		f.Add(s, uint8(2), int64(17*time.Second))
	}
	f.Fuzz(func(t *testing.T, text string, of uint8, step int64) {
		expr, err := parser.ParseExpr(text)
		if err != nil || step <= 0 || step > int64(10*365*24*time.Hour) {
			t.Skip()
		}
		out, err := Within(expr, summaries[int(of)%len(summaries)], time.Duration(step), 15*time.Second)
		if err != nil {
			if ty := expr.Type(); ty == parser.ValueTypeVector || ty == parser.ValueTypeScalar {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		got, err := parser.ParseExpr(out)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, out, err)
		}
		if got.Type() != parser.ValueTypeVector {
			t.Fatalf("%q became %q, a %s", text, out, got.Type())
		}
	})
}
