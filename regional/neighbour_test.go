package logs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/logs/intake"
	"muster.dev/muster/regional/logs/query"
	"muster.dev/muster/regional/logs/store"
	"muster.dev/muster/regional/logs/store/embedded"
)

// BenchmarkNeighbour is one regional's logs with a calm tenant and one that does its
// worst: floods of tiny, long and wide lines inside its site's budget, searches for
// everything, and log rules that read every line. It reports what the calm one sees when
// quiet and under attack, and the ratio, which is what to compare: both halves are of
// the same run. An iteration is one run.
func BenchmarkNeighbour(b *testing.B) {
	for b.Loop() {
		r := startRegion(b)
		r.fill(b)
		calm := r.probe(b, 10*time.Second)
		stop := r.attack(b)
		attacked := r.probe(b, 20*time.Second)
		stop()
		for _, what := range []string{"search", "newest-line-age"} {
			q, a := p95(calm[what]), p95(attacked[what])
			b.ReportMetric(q.Seconds()*1e3, what+"-quiet-p95-ms")
			b.ReportMetric(a.Seconds()*1e3, what+"-attacked-p95-ms")
			b.ReportMetric(a.Seconds()/q.Seconds(), what+"-ratio")
		}
		r.close()
	}
	b.ReportMetric(0, "ns/op")
}

func p95(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*95/100]
}

// region is the logs of a regional as cmd/internal/regional connects them.
type region struct {
	st      store.Store
	intake  http.Handler
	queries *httptest.Server
	close   func()
}

const siteHeader = "X-Test-Site" // TENANT/SITE

func startRegion(b *testing.B) *region {
	st, err := embedded.Open(embedded.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	in, err := intake.New(intake.Options{Name: "eu-1", Dir: b.TempDir(), Sink: st, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	api, err := query.New(query.Options{Regional: "eu-1", Store: st, Members: func(string, string) ([]string, bool) { return nil, false }})
	if err != nil {
		b.Fatal(err)
	}
	mux := http.NewServeMux()
	api.Register(mux)
	r := &region{st: st, queries: httptest.NewServer(mux)}
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
		if err := st.Close(); err != nil {
			b.Error(err)
		}
	}
	return r
}

// fill writes what was there before: a day of a calm tenant, and what an attacker has
// brought in over some minutes.
func (r *region) fill(b *testing.B) {
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

// probe is the calm tenant: a line every 50 ms, and two searches again and again.
func (r *region) probe(b *testing.B, d time.Duration) map[string][]time.Duration {
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
	wg.Wait()
	return out
}

// attack goes on until stop is called: what package loadtest/hostile does to logs,
// and some more searches.
func (r *region) attack(b *testing.B) (stop func()) {
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
