package regional_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/engine"
	"muster.dev/muster/regional/gateway"
	"muster.dev/muster/regional/logs/intake"
	"muster.dev/muster/regional/logs/query"
	"muster.dev/muster/regional/logs/store"
	"muster.dev/muster/regional/logs/store/embedded"
)

// BenchmarkNeighbour is one regional's engine and logs with a calm tenant and one that
// does its worst. To logs: floods of tiny, long and wide lines inside its site's budget,
// searches for everything, and log rules that read every line. To rules: what package
// loadtest/hostile applies, all of it at once. It reports what the calm one sees when
// quiet and under attack, and the ratio, which is what to compare: both halves are of
// the same run. An iteration is one run.
//
// Beside the calm tenant's own work there is an answer that needs no work at all, and how
// long goroutines that can run wait for a processor.
func BenchmarkNeighbour(b *testing.B) {
	for name, attacks := range map[string][]func(*region, *testing.B) (stop func()){
		"logs": {(*region).attackLogs}, "rules": {(*region).attackRules}, "both": {(*region).attackLogs, (*region).attackRules},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r := startRegion(b)
				r.fill(b)
				calm := r.probe(b, 10*time.Second)
				var stops []func()
				for _, attack := range attacks {
					stops = append(stops, attack(r, b))
				}
				attacked := r.probe(b, 20*time.Second)
				for _, stop := range stops {
					stop()
				}
				for _, what := range []string{"search", "newest-line-age", "query", "answer"} {
					q, a := p95(calm[what]), p95(attacked[what])
					b.ReportMetric(q.Seconds()*1e3, what+"-quiet-p95-ms")
					b.ReportMetric(a.Seconds()*1e3, what+"-attacked-p95-ms")
					b.ReportMetric(a.Seconds()/q.Seconds(), what+"-ratio")
				}
				b.ReportMetric(p95(attacked["run-queue"]).Seconds()*1e3, "run-queue-attacked-p95-ms")
				b.ReportMetric(slices.Max(attacked["rule-late"]).Seconds()*1e3, "rule-late-attacked-worst-ms")
				b.ReportMetric(attacked["cpu"][0].Seconds()/20, "processors-attacked")
				r.close()
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func p95(took []time.Duration) time.Duration {
	if len(took) == 0 {
		return -1
	}
	slices.Sort(took)
	return took[len(took)*95/100]
}

// region is engine and logs of a regional as cmd/internal/regional connects them.
type region struct {
	edge    *engine.Engine
	st      store.Store
	intake  http.Handler
	queries *httptest.Server
	close   func()
}

const siteHeader = "X-Test-Site" // TENANT/SITE

func startRegion(b *testing.B) *region {
	processors := turns.NewProcessors(0)
	st, err := embedded.Open(embedded.Options{Dir: b.TempDir(), Processors: processors})
	if err != nil {
		b.Fatal(err)
	}
	series := gateway.NewHeadSeries(func(string) int { return 20_000 })
	edge, err := engine.New(engine.Options{Name: engine.Edge, Dir: b.TempDir(), SeriesLifecycle: series, Processors: processors})
	if err != nil {
		b.Fatal(err)
	}
	series.Enforce()
	in, err := intake.New(intake.Options{Name: "eu-1", Dir: b.TempDir(), Sink: st, Processors: processors, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	api, err := query.New(query.Options{Regional: "eu-1", Store: st, Members: func(string, string) ([]string, bool) { return nil, false }})
	if err != nil {
		b.Fatal(err)
	}
	mux := http.NewServeMux()
	api.Register(mux)
	edge.Register(mux, prometheus.NewRegistry())
	r := &region{edge: edge, st: st, queries: httptest.NewServer(mux)}
	r.intake = in.Handler(func(req *http.Request) (fleet.SiteID, string, error) {
		tenant, site, _ := strings.Cut(req.Header.Get(siteHeader), "/")
		return fleet.SiteID{Tenant: tenant, Name: site}, "eu", nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := in.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	r.close = func() {
		api.Close()
		r.queries.Close()
		cancel()
		running.Wait()
		if err := errors.Join(edge.Close(), st.Close()); err != nil {
			b.Error(err)
		}
	}
	return r
}

// samples writes one sample of each of a tenant's series.
func (r *region) samples(b *testing.B, tenant, name string, n int) {
	app := r.edge.Storage().Appender(b.Context())
	for i := range n {
		ls := labels.FromStrings("__name__", name, "i", strconv.Itoa(i), "site", "site-"+strconv.Itoa(i%20), "tenant", tenant)
		if _, err := app.Append(0, ls, time.Now().UnixMilli(), float64(i)); err != nil {
			b.Error(err)
		}
	}
	if err := app.Commit(); err != nil {
		b.Error(err)
	}
}

// rules are one object of a tenant, each rule in a group of its own.
func rules(tenant, object string, rules ...string) engine.RuleGroup {
	text := "groups:\n"
	for i, r := range rules {
		text += fmt.Sprintf("- {name: g%d, interval: 5s, rules: [%s]}\n", i, r)
	}
	return engine.RuleGroup{File: tenant + "/" + object, Tenant: tenant, Content: []byte(text)}
}

// calmRules are those of a tenant that alerts on little.
var calmRules = rules("calm", "calm",
	`{alert: Slow, expr: 'avg by (site) (latency{tenant="calm"}) > 900', labels: {tenant: calm}, annotations: {summary: 'slow at {{ $labels.site }}'}}`,
	`{record: 'latency:avg', expr: 'avg by (site) (latency{tenant="calm"})', labels: {tenant: calm}}`)

// fill writes what was there before: a day of a calm tenant, and what an attacker has
// brought in over some minutes.
func (r *region) fill(b *testing.B) {
	r.samples(b, "calm", "latency", 1000)
	r.samples(b, "evil", "flood", 5000)
	if refused, err := r.edge.SetRules([]engine.RuleGroup{calmRules}); err != nil || len(refused) > 0 {
		b.Fatal(refused, err)
	}
	for tenant, n := range map[string]int{"calm": 20_000, "evil": 200_000} {
		for first := 0; first < n; first += 4000 {
			records := make([]store.Record, min(4000, n-first))
			for i := range records {
				at := time.Now().Add(-time.Duration(n-first-i) * 10 * time.Minute / time.Duration(n))
				records[i] = store.Record{Timestamp: at, Tenant: tenant, Site: fmt.Sprint("site-", i%20), Region: "eu", Severity: "info", Message: "x", ID: fmt.Sprintf("%s-%d", tenant, first+i)}
				if tenant == "calm" {
					records[i].Message = fmt.Sprintf("GET /api/v1/orders/%d HTTP/1.1 status=200 took=%dms", i, i%900)
					if i%50 == 0 {
						records[i].Severity = "error"
					}
				}
			}
			if res, err := r.st.Write(b.Context(), records); err != nil || res.Stored != len(records) {
				b.Fatal(res, err)
			}
		}
	}
}

func (r *region) post(ctx context.Context, site string, body []byte) int {
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, intake.Path, bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set(siteHeader, site)
	w := httptest.NewRecorder()
	r.intake.ServeHTTP(w, req)
	return w.Code
}

func (r *region) search(ctx context.Context, tenant string, q url.Values) (*wire.RegionLogs, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.queries.URL+query.PathSearch+"?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(wire.TenantHeader, tenant)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", res.Status, body)
	}
	var a wire.RegionLogs
	return &a, json.Unmarshal(body, &a)
}

// get asks and reads all of the answer.
func (r *region) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.queries.URL+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, body)
	}
	return body, err
}

// late is by how much the calm tenant's rules are evaluated too late at this moment.
func (r *region) late(ctx context.Context) (worst time.Duration, err error) {
	body, err := r.get(ctx, "/edge/api/v1/rules?tenant=calm")
	if err != nil {
		return 0, err
	}
	var a struct {
		Data struct {
			Groups []struct {
				Interval       float64
				LastEvaluation time.Time
			}
		}
	}
	err = json.Unmarshal(body, &a)
	for _, g := range a.Data.Groups {
		if !g.LastEvaluation.IsZero() {
			worst = max(worst, time.Since(g.LastEvaluation)-time.Duration(g.Interval*1e9))
		}
	}
	return worst, err
}

// runQueue is how long goroutines waited until they ran, in buckets, and the processor
// time of the process.
func runQueue(tb testing.TB) (*metrics.Float64Histogram, time.Duration) {
	s := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64Histogram(), testkit.CPUTime(tb)
}

// between is what came into a histogram: its upper bounds, at most 10,000 of them.
func between(before, after *metrics.Float64Histogram) (out []time.Duration) {
	all := uint64(0)
	for i := range after.Counts {
		all += after.Counts[i] - before.Counts[i]
	}
	for i := range after.Counts {
		n := (after.Counts[i] - before.Counts[i]) * 10_000 / max(all, 1)
		for range n {
			out = append(out, time.Duration(after.Buckets[i+1]*1e9))
		}
	}
	return out
}

// probe is the calm tenant: a line every 50 ms, and two searches and a query again and again.
func (r *region) probe(b *testing.B, d time.Duration) map[string][]time.Duration {
	waits, cpu := runQueue(b)
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	var mu sync.Mutex
	out := map[string][]time.Duration{}
	var wg sync.WaitGroup
	loop := func(every time.Duration, f func(n int)) {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				f(n)
				pause(ctx, every)
			}
		})
	}
	saw := func(what string, took time.Duration) { mu.Lock(); out[what] = append(out[what], took); mu.Unlock() }
	loop(50*time.Millisecond, func(n int) {
		line := fmt.Sprintf(`{"date":%.6f,"log":"GET /api/v1/orders/%d HTTP/1.1 status=200","level":"info"}`+"\n", float64(time.Now().UnixMicro())/1e6, n)
		if code := r.post(b.Context(), "calm/paris", []byte(line)); code != http.StatusOK {
			b.Errorf("a line of the calm tenant: %d", code)
		}
	})
	loop(100*time.Millisecond, func(int) {
		began := time.Now()
		if _, err := r.search(b.Context(), "calm", url.Values{"query": {"severity:error"}, "from": {began.Add(-15 * time.Minute).UTC().Format(time.RFC3339)}, "buckets": {"120"}}); err != nil {
			b.Error(err)
		}
		saw("search", time.Since(began))
	})
	loop(100*time.Millisecond, func(int) {
		a, err := r.search(b.Context(), "calm", url.Values{"limit": {"1"}, "buckets": {"120"}, "from": {time.Now().Add(-10 * time.Minute).UTC().Format(time.RFC3339)}})
		if err != nil || len(a.Hits) == 0 {
			b.Error("no newest line: ", err)
			return
		}
		saw("newest-line-age", time.Since(a.Hits[0].Timestamp))
	})
	timed := func(what, path string) {
		loop(100*time.Millisecond, func(int) {
			began := time.Now()
			if _, err := r.get(b.Context(), path); err != nil {
				b.Error(err)
			}
			saw(what, time.Since(began))
		})
	}
	timed("query", "/edge/api/v1/query?"+url.Values{"query": {`avg by (site) (latency{tenant="calm"})`}}.Encode())
	timed("answer", "/edge/-/healthy")
	loop(100*time.Millisecond, func(int) {
		late, err := r.late(b.Context())
		if err != nil {
			b.Error(err)
		}
		saw("rule-late", late)
	})
	loop(10*time.Second, func(int) { r.samples(b, "calm", "latency", 1000) })
	wg.Wait()
	after, used := runQueue(b)
	out["run-queue"], out["cpu"] = between(waits, after), []time.Duration{used - cpu}
	return out
}

// attackRules goes on until stop is called.
func (r *region) attackRules(b *testing.B) (stop func()) {
	all := []engine.RuleGroup{calmRules}
	times := func(n int, rule string) (out []string) {
		for i := range n {
			out = append(out, strings.ReplaceAll(rule, "N", strconv.Itoa(i)))
		}
		return out
	}
	const flood = `{__name__="flood",tenant="evil"}`
	for i := range 50 {
		all = append(all, rules("evil", fmt.Sprint("many-", i), times(25, `{alert: AN, expr: 'sum by (i) (`+flood+`) > bool `+strconv.Itoa(i)+`', labels: {tenant: evil}}`)...))
	}
	for i := range 20 {
		all = append(all, rules("evil", fmt.Sprint("copies-", i), strings.Join(times(50, `{record: 'copy:N', expr: '`+flood+`', labels: {tenant: evil}}`), ", ")))
	}
	text := `{{ reReplaceAll "" "` + strings.Repeat("y", 200) + `" (print $labels) }}`
	for i := range 5 {
		all = append(all, rules("evil", fmt.Sprint("loud-", i), times(5, `{alert: LN, expr: '`+flood+` > 0', labels: {tenant: evil}}`)...),
			rules("evil", fmt.Sprint("annotations-", i), `{alert: Annotated, expr: '`+flood+` > 0', labels: {tenant: evil}, annotations: {a: '`+text+`', b: '`+text+`', c: '`+text+`'}}`),
			rules("evil", fmt.Sprint("texts-", i), `{alert: Texts, expr: '`+flood+` > 0', labels: {tenant: evil}, annotations: {a: '{{ $labels.i }} of {{ $labels.site }} is at {{ $value | humanize }}'}}`))
	}
	if refused, err := r.edge.SetRules(all); err != nil || len(refused) > 0 {
		b.Fatal(refused, err)
	}
	return func() {
		if _, err := r.edge.SetRules([]engine.RuleGroup{calmRules}); err != nil {
			b.Error(err)
		}
	}
}

// attackLogs goes on until stop is called: what package loadtest/hostile does to logs,
// and some more searches.
func (r *region) attackLogs(b *testing.B) (stop func()) {
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	loop := func(every time.Duration, f func(n int)) {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				f(n)
				pause(ctx, every)
			}
		})
	}
	short := bytes.Repeat([]byte(`{"log":"x"}`+"\n"), 50_000)
	loop(100*time.Millisecond, func(int) { r.post(ctx, "evil/evil", short) })
	long := []byte(`{"log":"` + strings.Repeat("x", 1<<20) + `"}` + "\n")
	loop(500*time.Millisecond, func(int) { r.post(ctx, "evil/evil", long) })
	loop(500*time.Millisecond, func(n int) {
		var wide bytes.Buffer
		for line := range 50 {
			wide.WriteString(`{"log":"x"`)
			for i := range 1000 {
				fmt.Fprintf(&wide, `,"field_%d_%d_%d":%d`, n, line, i, i)
			}
			wide.WriteString("}\n")
		}
		r.post(ctx, "evil/evil", wide.Bytes())
	})
	for range 4 {
		loop(100*time.Millisecond, func(int) {
			_, _ = r.search(ctx, "evil", url.Values{"query": {"x* OR y* OR NOT z*"}, "from": {time.Now().Add(-30 * 24 * time.Hour).UTC().Format(time.RFC3339)}, "limit": {"1000"}, "buckets": {"120"}})
		})
	}
	after := time.Now().Add(-time.Minute)
	for range 4 { // as many rules as are evaluated side by side
		loop(0, func(int) {
			upTo, err := r.st.Now(ctx)
			if err == nil {
				_, _ = r.st.Groups(ctx, store.GroupQuery{Tenant: "evil", Text: "*", After: after, UpTo: upTo, By: []string{"site"}, Step: time.Second})
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
