package promexpr

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

func TestCondition(t *testing.T) {
	for _, c := range []struct {
		expr, value string
		bounds      []Bound
	}{
		{"up", "up", nil},
		{"up > 1", "up", []Bound{{">", 1}}},
		{"5 >= up", "up", []Bound{{"<=", 5}}},
		{"(up > 1) < 9", "up", []Bound{{">", 1}, {"<", 9}}},
		{"a / (b > 0) > 0.05", "a / (b > 0)", []Bound{{">", 0.05}}},
		{"max by (site) (x) > 256 * 1024 * 1024", "max by (site) (x)", []Bound{{">", 268435456}}},
		{"x > -(3)", "x", []Bound{{">", -3}}},
		{"(time() - max by (site) (t)) > 300 and on (site) max by (site) (c) == 1", "(time() - max by (site) (t)) and on (site) max by (site) (c) == 1", []Bound{{">", 300}}},
		{"x > 1 unless y", "x unless y", []Bound{{">", 1}}},
		{"x > bool 1", "x > bool 1", nil},
		{"x > y", "x > y", nil},
		{"x < +Inf", "x < +Inf", nil},
		{"x > 1 / 0", "x > 1 / 0", nil},
		{"x > 1 or y > 2", "x > 1 or y > 2", nil},
		{"a - b > 20", "a - b", []Bound{{">", 20}}},
	} {
		expr, err := parser.ParseExpr(c.expr)
		if err != nil {
			t.Fatal(err)
		}
		got := ConditionOf(expr)
		if got.Value != c.value || !slices.Equal(got.Bounds, c.bounds) {
			t.Errorf("%s:\n got %q %v\nwant %q %v", c.expr, got.Value, got.Bounds, c.value, c.bounds)
		}
		if _, err := parser.ParseExpr(got.Value); err != nil {
			t.Errorf("%s: its value %q: %v", c.expr, got.Value, err)
		}
	}
}

func TestNarrow(t *testing.T) {
	expr, err := parser.ParseExpr(`sum(rate(a{b="c"}[5m])) / on (x) group_left d`)
	if err != nil {
		t.Fatal(err)
	}
	Narrow(expr, labels.MustNewMatcher(labels.MatchEqual, "site", `pa"ris`))
	if got, want := expr.String(), `sum(rate(a{b="c",site="pa\"ris"}[5m])) / on (x) group_left () d{site="pa\"ris"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestReach(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"x":                              5 * time.Minute,
		"rate(x[1m])":                    time.Minute,
		"x and x offset 75s":             5*time.Minute + 75*time.Second,
		"changes(x[10m]) or rate(y[1m])": 10 * time.Minute,
		"max_over_time(rate(x[1m])[1h:1m] offset 1m)": time.Hour + 2*time.Minute,
		"vector(1)": 0,
	} {
		expr, err := parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Reach(expr, 5*time.Minute); got != want {
			t.Errorf("%s looks back %s, want %s", text, got, want)
		}
	}
}

// Whatever parses gives a value that parses.
func FuzzCondition(f *testing.F) {
	for _, s := range []string{"up > 1", "(a and b) > 2 unless c", "-a > 1", "a > 1 and b > 2 and c", "(a > 1) ^ 2"} {
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
		if c := ConditionOf(expr); c.Value != "" {
			if _, err := parser.ParseExpr(c.Value); err != nil {
				t.Errorf("%q: its value %q: %v", text, c.Value, err)
			}
		}
	})
}
