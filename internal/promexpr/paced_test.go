package promexpr

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"muster.dev/muster/internal/fleet"
)

func TestPaced(t *testing.T) {
	for _, c := range []struct {
		expr, at30s, at1m, at2m, at5m, at10m string // "": as it was written
	}{
		{expr: "up > 1 or vector(time())"},
		{expr: "rate(x[1m])", at1m: "rate(x[4m])", at2m: "rate(x[8m])", at5m: "rate(x[20m])", at10m: "rate(x[40m])"},
		{expr: "rate(x[5m] offset 1m)", at5m: "rate(x[20m] offset 1m)", at10m: "rate(x[40m] offset 1m)"},
		{expr: "changes(x[1h])"},
		{
			expr: "sum by (site) (increase(x[1m])) > 3",
			at1m: "sum by (site) ((increase(x[4m]) * 0.25)) > 3", at2m: "sum by (site) ((increase(x[8m]) * 0.125)) > 3",
			at5m: "sum by (site) ((increase(x[20m]) * 0.05)) > 3", at10m: "sum by (site) ((increase(x[40m]) * 0.025)) > 3",
		},
		{expr: "100 * max_over_time(up[1m30s])", at2m: "100 * max_over_time(up[4m30s])", at5m: "100 * max_over_time(up[10m30s])", at10m: "100 * max_over_time(up[20m30s])"},
		{expr: "x - min_over_time(x[10m])", at5m: "x - min_over_time(x[10m30s])", at10m: "x - min_over_time(x[20m30s])"},
		{
			expr: "max_over_time(rate(x[1m])[5m:1m])", at1m: "max_over_time(rate(x[4m])[5m:1m])", at2m: "max_over_time(rate(x[8m])[5m:1m])",
			at5m: "max_over_time(rate(x[20m])[5m:1m])", at10m: "max_over_time(rate(x[40m])[5m:1m])",
		},
		{
			expr: "topk(scalar(rate(n[1m])), -(quantile_over_time(0.9, x[1m])))", at1m: "topk(scalar(rate(n[4m])), -(quantile_over_time(0.9, x[1m])))",
			at2m: "topk(scalar(rate(n[8m])), -(quantile_over_time(0.9, x[4m30s])))", at5m: "topk(scalar(rate(n[20m])), -(quantile_over_time(0.9, x[10m30s])))",
			at10m: "topk(scalar(rate(n[40m])), -(quantile_over_time(0.9, x[20m30s])))",
		},
	} {
		for i, want := range []string{c.at30s, c.at1m, c.at2m, c.at5m, c.at10m} {
			expr, err := parser.ParseExpr(c.expr)
			if err != nil {
				t.Fatal(err)
			}
			if want == "" {
				want = c.expr
			}
			if got := Paced(expr, fleet.Paces[i]).String(); got != want {
				t.Errorf("%s at %s:\n got %s\nwant %s", c.expr, fleet.Paces[i], got, want)
			}
		}
	}
}

func TestHeld(t *testing.T) {
	for text, want := range map[string]string{
		`up{a="b"} > 1`:                 `last_over_time(up{a="b"}[10m]) > 1`,
		"rate(x[1m]) / sum(y)":          "rate(x[1m]) / sum(last_over_time(y[10m]))",
		"x offset 1m":                   "last_over_time(x[10m] offset 1m)",
		"x @ 100":                       "x @ 100.000",
		"time() - timestamp(x)":         "time() - timestamp(x)",
		"max_over_time((x + 1)[1h:1m])": "max_over_time((last_over_time(x[10m]) + 1)[1h:1m])",
	} {
		expr, err := parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Held(expr, 10*time.Minute).String(); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestReads(t *testing.T) {
	for text, want := range map[string]bool{
		"time() - max(x)": true, "x and y": false, "y": false, "x or x offset 1m": true, `{__name__="x"}`: true, `{__name__=~"x"}`: false, "vector(1)": false, "x or z": true, "z": true,
	} {
		expr, err := parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Reads(expr, "x", "z"); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// What is rewritten parses, and is the same kind of thing.
func FuzzPaced(f *testing.F) {
	for _, s := range []string{"increase(x[1m]) ^ 2", "-increase(x[1m])", "a and on (b) rate(c[1m] @ end())", "timestamp(x)", "x[1m]", "sum_over_time(x[1m:5s])"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		expr, err := parser.ParseExpr(text)
		if err != nil {
			return
		}
		if _, err := parser.ParseExpr(expr.String()); err != nil {
			return // what the parser's own printer gets wrong
		}
		kind := expr.Type()
		got := Held(Paced(expr, 5*time.Minute), time.Minute).String()
		again, err := parser.ParseExpr(got)
		if err != nil || again.Type() != kind {
			t.Errorf("%q became %q: %v", text, got, err)
		}
	})
}
