package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"

	"muster.dev/muster/internal/testkit"
)

func alerting(file, tenant, name, expr string, annotations ...string) RuleGroup {
	b := fmt.Sprintf("groups:\n- name: g\n  rules:\n  - alert: %s\n    expr: %q\n    annotations:\n", name, expr)
	for i, a := range annotations {
		b += fmt.Sprintf("      a%d: %q\n", i, a)
	}
	return RuleGroup{File: file, Tenant: tenant, Content: []byte(b)}
}

// times gives a text as many times as long as the label, and some.
func times(n int) string { return `{{ reReplaceAll "" "` + strings.Repeat("y", n) + `" $labels.x }}` }

// Rules that would make 10,000 alerts of 4 MiB, or of less and still too much, are refused
// before they are made: by name, without touching others, and without the memory.
func TestAlertsOfATenantAreBounded(t *testing.T) {
	inbox, am := newInbox(t)
	e := open(t, Options{EvaluationInterval: 100 * time.Millisecond, Alertmanagers: []string{am}, TenantAlertBytes: 8 << 20, TenantTimeout: time.Minute})
	app := e.Storage().Appender(t.Context())
	for i := range 10_000 {
		for name, x := range map[string]string{"long": strings.Repeat("x", 4000), "short": strings.Repeat("x", 100)} {
			if _, err := app.Append(0, labels.FromStrings("__name__", name, "tenant", "acme", "i", fmt.Sprint(i), "x", x), time.Now().UnixMilli(), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	heap := func() int64 { var m runtime.MemStats; runtime.ReadMemStats(&m); return int64(m.HeapAlloc) }
	runtime.GC()
	before, most := heap(), int64(0)
	set := []RuleGroup{
		alerting("acme/huge", "acme", "Huge", "long", times(200), times(200), times(200), times(200), times(200)),
		alerting("acme/long", "acme", "Long", "short", times(200)),
		alerting("acme/many", "acme", "Many", "short", times(10)),
		alerting("acme/good", "acme", "Good", `short{i="1"}`, "{{ $value | humanize }} of {{ $labels.i }}"),
		alerting("umbrella/good", "umbrella", "Neighbour", "vector(1)", "{{ $value }}"),
		alerting("shipped", "", "Shipped", `short{i="1"}`, times(200)),
	}
	if refused, err := e.SetRules(set); err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}
	want := map[string]string{"acme/huge": "rule Huge", "acme/long": "longer than 16384 bytes together", "acme/many": "more than 8 MiB"}
	testkit.EventuallyTrue(t, "the rules are refused by name", func() bool {
		most = max(most, heap()-before)
		found := 0
		for _, x := range e.Failing() {
			if s := want[x.File]; s == "" || !strings.Contains(x.Error(), s) {
				t.Fatalf("%v", x)
			}
			found++
		}
		return found == len(want)
	})
	for _, name := range []string{"Good", "Neighbour", "Shipped"} {
		testkit.EventuallyTrue(t, name, func() bool { most = max(most, heap()-before); return inbox.labels(name) != nil })
	}
	if most > 400<<20 {
		t.Errorf("the heap grew by %d MiB", most>>20)
	}
	t.Logf("the heap grew by %d MiB", most>>20)
	for _, name := range []string{"Huge", "Long", "Many"} {
		if inbox.labels(name) != nil {
			t.Errorf("%s was sent", name)
		}
	}
	if n := testutil.CollectAndCount(e.memory.excess); n != 2 { // bytes and work of acme
		t.Errorf("%d kinds are counted", n)
	}
	// What goes gives back its room.
	if _, err := e.SetRules(set[4:]); err != nil {
		t.Fatal(err)
	}
	e.memory.mu.Lock()
	defer e.memory.mu.Unlock()
	if _, ok := e.memory.used["acme"]; ok || len(e.memory.rules) != 1 {
		t.Errorf("%v and %d rules are remembered", e.memory.used, len(e.memory.rules))
	}
}

// An alert that is a new one at each evaluation fills its tenant's room with alerts that
// are over; the rule is refused then, and goes on when they are forgotten.
func TestRuleOverItsBoundRecovers(t *testing.T) {
	now := time.Now()
	u, _ := url.Parse("http://engine")
	o := Options{TenantSlots: 4, TenantAlertBytes: 100 << 10, Now: func() time.Time { return now }}
	m := newAlertMemory(o, u, prometheus.NewRegistry())
	expr, err := parser.ParseExpr("x")
	if err != nil {
		t.Fatal(err)
	}
	rule := rules.NewAlertingRule("Changing", expr, 0, 0, labels.FromStrings("v", "{{ $value }}"), labels.EmptyLabels(), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	eval := func() (alerts int, err error) {
		now = now.Add(time.Minute)
		r := &round{m: m, tenant: "acme", left: []rules.Rule{rule}, drained: map[rules.Rule]error{}}
		defer r.end()
		v, err := rule.Eval(t.Context(), 0, now, func(ctx context.Context, qs string, at time.Time) (promql.Vector, error) {
			if r.next(ctx, qs) != rule {
				t.Fatal("the rule is not found")
			}
			var v promql.Vector
			for i := range 10 {
				v = append(v, promql.Sample{Metric: labels.FromStrings("i", fmt.Sprint(i)), F: float64(now.Unix())})
			}
			return m.admit(ctx, r, rule, v, at)
		}, u, 0)
		if err == nil {
			err = r.drained[rule]
		}
		return len(v), err
	}
	var refused, recovered int
	for i := range 120 {
		_, err := eval()
		var x *Excess
		switch {
		case errors.As(err, &x):
			refused++
		case err != nil:
			t.Fatal(err)
		case refused > 0:
			recovered = i
		}
		if n := heldBytes(rule); n > o.TenantAlertBytes || m.used["acme"] != n {
			t.Fatalf("round %d: %d bytes are held, %d are counted", i, n, m.used["acme"])
		}
	}
	if refused == 0 || recovered == 0 {
		t.Errorf("refused %d times, recovered in round %d", refused, recovered)
	}
}

// A link from an alert to its expression is as long as people's tools take, or not there.
func TestGeneratorURLIsBounded(t *testing.T) {
	inbox, am := newInbox(t)
	e := open(t, Options{EvaluationInterval: 50 * time.Millisecond, Alertmanagers: []string{am}, ExternalURL: "http://engine/edge"})
	long := `vector(1) or x{y="` + strings.Repeat("z", 3000) + `"}`
	if _, err := e.SetRules([]RuleGroup{alerting("acme/long", "acme", "Long", long, "a"), alerting("acme/short", "acme", "Short", "vector(1)", "a")}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"Long": "http://engine/edge", "Short": "http://engine/edge/graph?g0.expr=vector%281%29&g0.tab=1"} {
		testkit.EventuallyTrue(t, name, func() bool { return inbox.labels(name) != nil })
		if got := inbox.link(name); got != want {
			t.Errorf("%s: %.200s, want %s", name, got, want)
		}
	}
}

// BenchmarkLoudRules is a tenant with 25 rules that give 10,000 alerts each, every 5 s, for
// 25 s: with the bound on its alerts, and as if there were none.
func BenchmarkLoudRules(b *testing.B) {
	for name, limit := range map[string]int64{"bounded": 0, "unbounded": 1 << 40} {
		b.Run(name, func(b *testing.B) {
			e := open(b, Options{EvaluationInterval: 5 * time.Second, TenantAlertBytes: limit})
			app := e.Storage().Appender(b.Context())
			for i := range 10_000 {
				if _, err := app.Append(0, labels.FromStrings("__name__", "flood", "tenant", "acme", "site", "paris", "i", fmt.Sprint(i)), time.Now().UnixMilli(), 1); err != nil {
					b.Fatal(err)
				}
			}
			if err := app.Commit(); err != nil {
				b.Fatal(err)
			}
			heap := func() float64 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return float64(m.HeapAlloc) / (1 << 20)
			}
			runtime.GC()
			before := heap()
			var set []RuleGroup
			for i := range 25 {
				set = append(set, alerting(fmt.Sprintf("acme/%d", i), "acme", fmt.Sprintf("A%d", i), "flood > 0"))
			}
			for b.Loop() {
				if _, err := e.SetRules(set); err != nil {
					b.Fatal(err)
				}
				most, late := 0.0, time.Duration(0)
				for end := time.Now().Add(25 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
					most = max(most, heap()-before)
					for _, g := range (ruleView{e: e}).RuleGroups() {
						if at := g.GetLastEvaluation(); !at.IsZero() {
							late = max(late, time.Since(at)-g.Interval())
						}
					}
				}
				b.ReportMetric(most, "peak-MiB")
				b.ReportMetric(late.Seconds(), "late-s")
			}
		})
	}
}
