package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"muster.dev/muster/internal/promcost"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
)

const bomb = "sum_over_time(sum_over_time(vector(1)[4h:1s])[4h:1s])"

func group(name, record, expr string) string {
	return fmt.Sprintf("- name: %s\n  rules:\n  - {record: %q, expr: %q}\n", name, record, expr)
}

func file(name, tenant string, groups ...string) RuleGroup {
	return RuleGroup{File: name, Tenant: tenant, Content: []byte("groups:\n" + strings.Join(groups, ""))}
}

// stuck is a promql.QueryTracker that has one query begin, and not go on until it is let: the
// end of its context doesn't reach it, as it doesn't reach an evaluation that is amid a sum.
type stuck struct {
	query       string
	begun, goOn chan struct{}
	once        sync.Once
	seen        atomic.Int64
}

func (s *stuck) GetMaxConcurrent() int { return 16 }
func (s *stuck) Delete(int)            {}
func (s *stuck) Close() error          { return nil }

func (s *stuck) Insert(_ context.Context, query string) (int, error) {
	if query == s.query && s.seen.Add(1) > 1 { // the first time it is parsed
		s.once.Do(func() { close(s.begun) })
		<-s.goOn
	}
	return 0, nil
}

// A change of rules does not wait for what is being evaluated: the rule that takes for
// ever is gone when SetRules returns, while its evaluation still runs; what comes of it
// is dropped.
func TestSetRulesDoesNotWait(t *testing.T) {
	e := open(t, Options{EvaluationInterval: 50 * time.Millisecond})
	const endless = "vector(42)"
	s := &stuck{query: endless, begun: make(chan struct{}), goOn: make(chan struct{})}
	letGo := sync.OnceFunc(func() { close(s.goOn) })
	defer letGo()
	e.guard.tenant = promql.NewEngine(promql.EngineOpts{MaxSamples: 1000, Timeout: time.Hour, ActiveQueryTracker: s})
	good := file("umbrella/good", "umbrella", group("g", "good:out", "vector(1)"))
	if refused, err := e.SetRules([]RuleGroup{file("acme/endless", "acme", group("g", "endless:out", endless)), good}); err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}
	<-s.begun
	set := make(chan error, 1)
	go func() {
		_, err := e.SetRules([]RuleGroup{good})
		set <- err
	}()
	testkit.EventuallyTrue(t, "SetRules returns while the evaluation runs", func() bool { return len(set) > 0 })
	if err := <-set; err != nil {
		t.Fatal(err)
	}
	if _, n, _ := e.guard.slots.Use(); n == 0 {
		t.Error("the evaluation is over")
	}
	if g := e.rules.RuleGroups(); len(g) != 1 || g[0].File() != "umbrella/good" {
		t.Errorf("%v are left", g)
	}
	testkit.EventuallyTrue(t, "the other group goes on", func() bool {
		v, err := e.Query(t.Context(), "good:out", time.Now())
		return err == nil && len(v) == 1
	})
	letGo()
	e.evals.wg.Wait()
	if v, err := e.Query(t.Context(), "endless:out", time.Now()); err != nil || len(v) != 0 {
		t.Errorf("the result of a deleted rule: %v, %v", v, err)
	}
}

// A rule that is changed while it is evaluated goes on as the new one, and one that the
// manager finds unchanged goes on as it is.
func TestSetRulesCancelsOnlyWhatChanged(t *testing.T) {
	e := open(t, Options{EvaluationInterval: 50 * time.Millisecond})
	e.loader.limits.Cost = 1e12
	set := func(expr string) {
		t.Helper()
		if _, err := e.SetRules([]RuleGroup{file("acme/a", "acme", group("changes", "a:out", expr), group("stays", "b:out", "vector(1)"))}); err != nil {
			t.Fatal(err)
		}
	}
	set(bomb)
	testkit.EventuallyTrue(t, "the long evaluation runs", func() bool { _, n, _ := e.guard.slots.Use(); return n > 0 })
	before := map[string]*rules.Group{}
	for _, g := range e.rules.RuleGroups() {
		before[g.Name()] = g
	}
	set("vector(7)")
	for _, g := range e.rules.RuleGroups() {
		if (g == before[g.Name()]) != (g.Name() == "stays") {
			t.Errorf("group %s: the same one: %v", g.Name(), g == before[g.Name()])
		}
	}
	for _, q := range []string{"a:out == 7", "b:out"} {
		testkit.EventuallyTrue(t, q, func() bool { v, err := e.Query(t.Context(), q, time.Now()); return err == nil && len(v) == 1 })
	}
}

// A group that costs too much is refused alone, also when it comes from a restart.
func TestDearGroupIsRefusedAlone(t *testing.T) {
	set := []RuleGroup{
		file("acme/mixed", "acme", group("dear", "a", bomb), group("good", "b:out", "vector(1)")),
		file("acme/dear", "acme", group("dear", "a", bomb)),
	}
	dir := t.TempDir()
	look := func(e *Engine, refused []RuleError) {
		t.Helper()
		if len(refused) != 2 || refused[0].Group != "dear" || !strings.Contains(refused[0].Error(), "longer step") || len(e.Status().RulesRefused) != 2 {
			t.Errorf("refused: %v", refused)
		}
		testkit.EventuallyTrue(t, "the other group runs", func() bool {
			v, err := e.Query(t.Context(), "b:out", time.Now())
			return err == nil && len(v) == 1
		})
	}
	e, err := New(Options{Name: Edge, Dir: dir, EvaluationInterval: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	refused, err := e.SetRules(set)
	if err != nil {
		t.Fatal(err)
	}
	look(e, refused)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = open(t, Options{Dir: dir, EvaluationInterval: 50 * time.Millisecond, Rules: set})
	look(e, *e.refused.Load())
}

// While tenants take all that they get and more wait, the platform's rules and health
// are answered; a tenant's own query says what it waited for.
func TestTenantsLeaveSlots(t *testing.T) {
	e := open(t, Options{TenantSlots: 4, QueryTimeout: 500 * time.Millisecond, EvaluationInterval: 50 * time.Millisecond, Rules: []RuleGroup{file("shipped", "", group("g", "shipped:out", "vector(1)"))}})
	srv := serve(t, e)
	for i := range 4 {
		release, err := e.guard.slots.Acquire(t.Context(), turns.Class{Tenant: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
	testkit.EventuallyTrue(t, "shipped rules run", func() bool {
		v, err := e.Query(t.Context(), "shipped:out", time.Now())
		return err == nil && len(v) == 1
	})
	ask := func(q string, health bool) int {
		t.Helper()
		req, _ := http.NewRequest(http.MethodGet, srv.URL+"/edge/api/v1/query?query="+url.QueryEscape(q), nil)
		if health {
			req.Header.Set(wire.HeaderPurpose, wire.PurposeHealth)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if code := ask("max by (tenant, site) (up)", true); code != http.StatusOK {
		t.Errorf("health's query: %d", code)
	}
	for name, code := range map[string]int{"a tenant's signal": ask(`max by (tenant, site) (up{tenant="acme"})`, true), "somebody's": ask("up", false)} {
		if code != http.StatusServiceUnavailable {
			t.Errorf("%s query: %d, want it to wait and give up", name, code)
		}
	}
}

func TestTenantOf(t *testing.T) {
	for q, want := range map[string]string{
		`up{tenant="acme"}`: "acme", `rate(a{tenant="acme"}[5m]) / on () b{tenant="acme"}`: "acme", `sum_over_time(vector(1)[5m:1m])`: "",
		`up`: "", `up{tenant=~"acme"}`: "", `up{tenant="acme"} + up`: "", `up{tenant="acme"} + up{tenant="umbrella"}`: "",
	} {
		expr, err := promcost.Query.Parse(q, promcost.Window{})
		if err != nil {
			t.Fatal(err)
		}
		if got := tenantOf(expr); got != want {
			t.Errorf("%s: %q, want %q", q, got, want)
		}
	}
}

// The query API says what is too much, and what to do.
func TestQueryAPIRefuses(t *testing.T) {
	srv := serve(t, open(t, Options{}))
	for path, want := range map[string]string{
		"query?query=" + url.QueryEscape("sum_over_time(sum_over_time(vector(1)[1d:1s])[1d:1s])"):            "longer step",
		"query_range?start=0&end=10000&step=1&query=" + url.QueryEscape("avg_over_time(x[30d])"):             "longer step",
		"query?query=" + url.QueryEscape(`count_over_time(count_values("v", vector(time()))[1d:10s])`):       "count_values",
		"query?query=" + url.QueryEscape(`x{a=~"`+strings.Repeat(".{1000}", 9)+`"}`):                         "instructions",
		"series?match[]=" + url.QueryEscape(`x{a=~"`+strings.Repeat(".{1000}", 9)+`"}`):                      "instructions",
		"labels?match[]=" + url.QueryEscape(`x{a=~"`+strings.Repeat(".{1000}", 9)+`"}`):                      "instructions",
		"label/a/values?match[]=" + url.QueryEscape(`x{a=~"`+strings.Repeat(".{1000}", 9)+`"}`):              "instructions",
		"query_exemplars?start=0&end=1&query=" + url.QueryEscape(`x{a=~"`+strings.Repeat(".{1000}", 9)+`"}`): "instructions",
	} {
		if body := get(t, srv.URL+"/edge/api/v1/"+path, http.StatusBadRequest); !strings.Contains(body, want) {
			t.Errorf("%.60s: %.300s, want %q", path, body, want)
		}
	}
}

// What the text of a query can't tell is bounded while it runs: a series with a thousand
// samples a second, and more series than there is room for.
func TestDenseSeries(t *testing.T) {
	e := open(t, Options{TenantMaxSamples: 20_000, TenantTimeout: 10 * time.Minute, QueryTimeout: 10 * time.Minute}) // by samples, not by time
	app := e.Storage().Appender(t.Context())
	start := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i := range int64(100_000) { // 100 s
		if _, err := app.Append(0, labels.FromStrings("__name__", "dense", "tenant", "acme"), start.UnixMilli()+i, 1); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		if _, err := app.Append(0, labels.FromStrings("__name__", "many", "tenant", "acme", "i", fmt.Sprint(i)), start.UnixMilli(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	run := func(q string, span, step time.Duration) (*promql.Result, promql.Query) {
		t.Helper()
		query, err := e.guard.NewRangeQuery(t.Context(), e.db, nil, q, start.Add(100*time.Second-span), start.Add(100*time.Second), step)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(query.Close)
		return query.Exec(t.Context()), query
	}
	// 5,000 steps over 50,000 samples each, where its text promises 4.
	if res, q := run("sum_over_time(dense[50s])", 50*time.Second, 10*time.Millisecond); res.Err == nil || !strings.Contains(res.Err.Error(), "too many samples for this range") {
		t.Errorf("%v; %d points touched", res.Err, q.Stats().Samples.TotalSamples)
	} else if n := q.Stats().Samples.TotalSamples; n > int64(promcost.Query.Cost) {
		t.Errorf("%d points were touched", n)
	}
	if res, _ := run("sum_over_time(dense[10s])", 10*time.Second, time.Second); res.Err != nil {
		t.Errorf("a query within the bound: %v", res.Err)
	}
	if res, _ := run(`many{tenant="acme"} + 0`, 100*time.Second, 100*time.Millisecond); res.Err == nil || !strings.Contains(res.Err.Error(), "too many series") {
		t.Errorf("100 series of 1,001 steps: %v", res.Err)
	}
	if res, _ := run(`many{tenant="acme"} + 0`, 50*time.Second, time.Second); res.Err != nil {
		t.Errorf("100 series of 51 steps: %v", res.Err)
	}
	if res, _ := run(`sum_over_time(dense{tenant="acme"}[90s])`, 0, time.Second); res.Err == nil || !strings.Contains(res.Err.Error(), "too many samples") {
		t.Errorf("90,000 samples in a tenant's memory of 20,000: %v", res.Err)
	}
}

// What one rule of a tenant may give is bounded, and the rule says so; the platform's are not.
func TestRuleOutputIsBounded(t *testing.T) {
	e := open(t, Options{EvaluationInterval: 50 * time.Millisecond, RuleMaxSeries: 5})
	for i := range 10 {
		add(t, e, time.Now(), 1, "__name__", "x", "i", fmt.Sprint(i))
	}
	alert := RuleGroup{File: "acme/alert", Tenant: "acme", Content: []byte("groups:\n- name: g\n  rules:\n  - {alert: A, expr: x}\n")}
	if _, err := e.SetRules([]RuleGroup{file("acme/many", "acme", group("g", "acme:out", "x")), alert, file("shipped", "", group("g", "shipped:out", "x"))}); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "the platform's rule", func() bool {
		v, err := e.Query(t.Context(), "shipped:out", time.Now())
		return err == nil && len(v) == 10
	})
	for file, want := range map[string]string{"acme/many": "more than 5 series", "acme/alert": "more than 5 alerts"} {
		testkit.EventuallyTrue(t, file, func() bool {
			for _, g := range e.rules.RuleGroups() {
				if g.File() == file {
					r := g.Rules()[0]
					return r.Health() == rules.HealthBad && strings.Contains(r.LastError().Error(), want)
				}
			}
			return false
		})
	}
	if v, err := e.Query(t.Context(), `acme:out or {__name__=~"ALERTS.*"}`, time.Now()); err != nil || len(v) != 0 {
		t.Errorf("%v, %v", v, err)
	}
}

// refusing lets no series be made of a tenant at its limit, as the gateway's count does.
type refusing struct{ limit, made atomic.Int64 }

func (r *refusing) PreCreation(l labels.Labels) error {
	if r.made.Load() >= r.limit.Load() && !strings.HasPrefix(l.Get("__name__"), "ALERTS") && l.Get("tenant") == "acme" {
		return fmt.Errorf("tenant acme has %d series here, its limit", r.made.Load())
	}
	return nil
}
func (r *refusing) PostCreation(l labels.Labels) {
	if l.Get("tenant") == "acme" {
		r.made.Add(1)
	}
}
func (r *refusing) PostDeletion(map[chunks.HeadSeriesRef]labels.Labels) {}

// What recording rules make counts with what sites send: over the limit nothing new is
// made, the rule says why, and the log has a line and not one a sample.
func TestRecordingRulesMeetTheSeriesLimit(t *testing.T) {
	var log lines
	r := &refusing{}
	r.limit.Store(1 << 40)
	e := open(t, Options{EvaluationInterval: 50 * time.Millisecond, SeriesLifecycle: r, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range 100 {
		add(t, e, time.Now(), 1, "__name__", "x", "tenant", "acme", "i", fmt.Sprint(i))
	}
	r.limit.Store(150)
	if _, err := e.SetRules([]RuleGroup{file("acme/many", "acme", group("g", "out", "x"))}); err != nil {
		t.Fatal(err)
	}
	health := func() (rules.RuleHealth, error) {
		g := e.rules.RuleGroups()[0].Rules()[0]
		return g.Health(), g.LastError()
	}
	testkit.EventuallyTrue(t, "the rule says so", func() bool {
		h, err := health()
		return h == rules.HealthBad && err != nil && strings.Contains(err.Error(), "its limit")
	})
	// The rule says so before what it could make is committed.
	testkit.EventuallyTrue(t, "50 of its series", func() bool {
		v, err := e.Query(t.Context(), "out", time.Now())
		return err == nil && len(v) == 50
	})
	first := e.rules.RuleGroups()[0].GetLastEvalTimestamp()
	testkit.EventuallyTrue(t, "more rounds", func() bool { return e.rules.RuleGroups()[0].GetLastEvalTimestamp().Sub(first) > 200*time.Millisecond })
	if n := log.count("Rule evaluation result discarded"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
}

// An alert whose labels hold its value is a new one at each evaluation; its series end
// at the tenant's bound, the alert itself goes on.
func TestAlertSeriesAreBounded(t *testing.T) {
	inbox, url := newInbox(t)
	e := open(t, Options{EvaluationInterval: 50 * time.Millisecond, TenantAlertSeries: 10, ResendDelay: time.Millisecond, Alertmanagers: []string{url}})
	rule := func(name, tenant string) RuleGroup {
		return RuleGroup{File: name, Tenant: tenant, Content: []byte("groups:\n- name: g\n  rules:\n  - {alert: " + name + ", expr: vector(time()), labels: {tenant: \"" + tenant + "\", v: '{{ $value }}'}}\n")}
	}
	if _, err := e.SetRules([]RuleGroup{rule("Acme", "acme"), rule("Shipped", "")}); err != nil {
		t.Fatal(err)
	}
	count := func(name string) int {
		v, err := e.Query(t.Context(), fmt.Sprintf(`count(count_over_time({__name__=~"ALERTS.*",alertname=%q}[5m]))`, name), time.Now())
		if err != nil || len(v) == 0 {
			return 0
		}
		return int(v[0].F)
	}
	testkit.EventuallyTrue(t, "the rule says so", func() bool {
		for _, g := range e.rules.RuleGroups() {
			if g.File() == "Acme" && g.Rules()[0].Health() == rules.HealthBad {
				return strings.Contains(g.Rules()[0].LastError().Error(), "take $value out")
			}
		}
		return false
	})
	testkit.EventuallyTrue(t, "shipped rules have no such bound", func() bool { return count("Shipped") > 20 })
	if n := count("Acme"); n > 10 {
		t.Errorf("%d series", n)
	}
	before := inbox.labels("Acme")["v"]
	testkit.EventuallyTrue(t, "the alert goes on", func() bool { v := inbox.labels("Acme")["v"]; return v != "" && v != before })
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Write(p) }

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

func TestExemplars(t *testing.T) {
	path := func() string {
		return fmt.Sprintf("/edge/api/v1/query_exemplars?query=x&start=%d&end=%d", time.Now().Unix()-3600, time.Now().Unix()+3600)
	}
	if body := get(t, serve(t, open(t, Options{})).URL+path(), http.StatusOK); !strings.Contains(body, `"data":[]`) {
		t.Errorf("an engine that keeps none: %s", body)
	}
	e := open(t, Options{MaxExemplars: 100})
	app, l := e.Storage().Appender(t.Context()), labels.FromStrings("__name__", "x")
	ref, err := app.Append(0, l, time.Now().UnixMilli(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := app.AppendExemplar(ref, l, exemplar.Exemplar{Labels: labels.FromStrings("trace_id", "abc"), Value: 1, Ts: time.Now().UnixMilli(), HasTs: true}); err != nil {
		t.Fatal(err)
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	if body := get(t, serve(t, e).URL+path(), http.StatusOK); !strings.Contains(body, "abc") {
		t.Errorf("the exemplar is not there: %s", body)
	}
}

// What the head holds counts, and nothing else: also what its log brings back, and no
// longer what it has dropped.
func TestAlertSeriesAreThoseOfTheHead(t *testing.T) {
	o := Options{Dir: t.TempDir(), TenantAlertSeries: 3}
	of := func(tenant string, i int) labels.Labels {
		return labels.FromStrings("__name__", "ALERTS", "tenant", tenant, "i", fmt.Sprint(i))
	}
	write := func(e *Engine, tenant string, i int) error {
		app := ruleAppendable{e}.Appender(context.WithValue(t.Context(), roundKey{}, &round{tenant: tenant}))
		if _, err := app.Append(0, of(tenant, i), time.Now().UnixMilli(), 1); err != nil {
			_ = app.Rollback()
			return err
		}
		return app.Commit()
	}
	want := func(e *Engine, tenant string, i int, ok bool) {
		t.Helper()
		var x *Excess
		if err := write(e, tenant, i); ok && err != nil || !ok && !errors.As(err, &x) {
			t.Errorf("series %d of %s: %v", i, tenant, err)
		}
	}
	e := open(t, o)
	for i := range 4 {
		want(e, "acme", i, i < 3)
	}
	want(e, "umbrella", 3, true)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = open(t, o)
	want(e, "acme", 0, true)
	want(e, "acme", 3, false)
	e.alerts.PostDeletion(map[chunks.HeadSeriesRef]labels.Labels{7: of("acme", 1)})
	want(e, "acme", 3, true)
	want(e, "acme", 4, false)
}

// What one tenant computes and can't interrupt, such as a template, holds up that tenant;
// shipped rules and other tenants' go on, and nobody keeps a processor.
func TestWorkOfATenantLeavesProcessors(t *testing.T) {
	p := turns.NewProcessors(1)
	held, err := p.Begin(t.Context(), turns.Class{Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	e := open(t, Options{EvaluationInterval: 50 * time.Millisecond, Processors: p})
	if refused, err := e.SetRules([]RuleGroup{
		file("acme/r", "acme", group("g", "acme:out", "vector(1)")), file("umbrella/r", "umbrella", group("g", "umbrella:out", "vector(1)")), file("shipped", "", group("g", "shipped:out", "vector(1)")),
		alerting("umbrella/a", "umbrella", "Alert", "vector(1)", "{{ $value }}"),
	}); err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}
	there := func(name string) func() bool {
		return func() bool {
			v, err := e.Query(t.Context(), name, time.Now())
			return err == nil && len(v) > 0
		}
	}
	for _, name := range []string{"shipped:out", "umbrella:out", "ALERTS"} {
		testkit.EventuallyTrue(t, name, there(name))
	}
	if there("acme:out")() {
		t.Error("a tenant has more than tenants have")
	}
	held.End()
	testkit.EventuallyTrue(t, "acme:out", there("acme:out"))
	if _, err := e.SetRules(nil); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "all is given back", func() bool { platform, tenants, waiting := p.Use(); return platform+tenants+waiting == 0 })
}

// laborious is a store whose every series takes work.
type laborious struct {
	storage.Queryable
	work func()
}

func (l laborious) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := l.Queryable.Querier(mint, maxt)
	return laboriousQuerier{q, l.work}, err
}

type laboriousQuerier struct {
	storage.Querier
	work func()
}

func (q laboriousQuerier) Select(ctx context.Context, sorted bool, h *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	return laboriousSet{q.Querier.Select(ctx, sorted, h, ms...), q.work}
}

type laboriousSet struct {
	storage.SeriesSet
	work func()
}

func (s laboriousSet) Next() bool {
	s.work()
	return s.SeriesSet.Next()
}

// An evaluation that reads for long gives way to another tenant's, and goes on after it.
func TestEvaluationsGiveWay(t *testing.T) {
	p := turns.NewProcessors(1)
	e := open(t, Options{Processors: p})
	for i := range 3 {
		add(t, e, time.Now(), 1, "__name__", "x", "i", fmt.Sprint(i))
	}
	shipped, err := p.Begin(t.Context(), turns.Class{Platform: true})
	if err != nil {
		t.Fatal(err)
	}
	defer shipped.End() // so that nobody can overtake
	began, gave, over := make(chan struct{}), make(chan bool, 1), make(chan struct{})
	go func() {
		<-began
		other, err := p.Begin(t.Context(), turns.Class{Tenant: "umbrella"})
		if err != nil {
			t.Error(err)
		}
		select {
		case <-over:
			gave <- false
		default:
			gave <- true
		}
		other.End()
	}()
	var once sync.Once
	work := func() {
		once.Do(func() {
			close(began)
			testkit.EventuallyTrue(t, "the other tenant waits", func() bool { _, _, n := p.Use(); return n == 1 })
			time.Sleep(20 * time.Millisecond) // work
		})
	}
	ctx := withClass(t.Context(), class{Class: turns.Class{Tenant: "acme"}, admitted: true})
	q, err := e.guard.NewInstantQuery(ctx, laborious{e.db, work}, nil, "count(x)", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if res := q.Exec(ctx); res.Err != nil {
		t.Error(res.Err)
	}
	close(over)
	if !<-gave {
		t.Error("it did not give way before its end")
	}
}

// Figures of rule groups are of the platform's alone: a tenant chooses how many groups it has
// and how they are called. What fails in them its objects' conditions say.
func TestTenantsGroupsAreNoMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	groups := []string{}
	for i := range 50 {
		groups = append(groups, group(fmt.Sprint("g", i), "a:b", `vector(1) + on (x) (vector(1) or label_replace(vector(1), "y", "1", "", ""))`))
	}
	e := open(t, Options{Registerer: reg, EvaluationInterval: 50 * time.Millisecond, Rules: []RuleGroup{file("shipped", "", group("g", "shipped:out", "vector(1)")), file("acme/a", "acme", groups...)}})
	testkit.Eventually(t, "the tenant's groups fail", func() error {
		if failing := e.Failing(); len(failing) != 50 || !strings.Contains(failing[0].Error(), "many") {
			return fmt.Errorf("%d fail: %.300v", len(failing), failing)
		}
		return nil
	})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "rule_group" {
					seen[l.GetValue()]++
				}
			}
		}
	}
	if len(seen) != 1 || seen["shipped;g"] == 0 {
		t.Errorf("series by group: %v", seen)
	}
}
