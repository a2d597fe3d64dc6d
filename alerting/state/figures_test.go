package state

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

func many(sites, each int) []wire.Alert {
	var out []wire.Alert
	for s := range sites {
		for i := range each {
			a := alert(fmt.Sprintf("Alert%d", i), fmt.Sprintf("tenant-%d", s%4), fmt.Sprintf("site-%04d", s), severities[i%3], fmt.Sprintf("|shared/all|shared/group-%02d|", s%20), time.Duration(i)*time.Minute)
			a.Labels["instance"], a.Labels["job"], a.Labels["pod"] = "10.0.0.1:9100", "node", "checkout-7d9c5b8f6-abcde"
			a.Annotations["description"] = "The disk of the node has been filling for an hour and will be full before tomorrow."
			a.GeneratorURL = "http://127.0.0.1:9201/graph?g0.expr=node_filesystem_avail_bytes+%3C+0.1"
			out = append(out, a)
		}
	}
	return out
}

// TestFigures prints what 10,000 alerts over 1,000 sites cost. It asserts nothing of
// time; MUSTER_FIGURES=1 runs it.
func TestFigures(t *testing.T) {
	if os.Getenv("MUSTER_FIGURES") == "" {
		t.Skip("set MUSTER_FIGURES=1 to measure")
	}
	var notified, requests atomic.Int64
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		notified.Store(time.Now().UnixNano())
	}))
	defer hook.Close()
	m, c, _ := alertmanager(t, fmt.Sprintf(`
route: {receiver: hook, group_by: [tenant, site], group_wait: 10ms, group_interval: 1s}
receivers: [{name: hook, webhook_configs: [{url: %q}]}]
inhibit_rules: [{source_matchers: [alertname=SiteDown], target_matchers: [alertname!=SiteDown], equal: [tenant, site]}]`, hook.URL))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	alerts := many(1000, 10)
	began := time.Now()
	must(t, c.PostAlerts(t.Context(), alerts))
	t.Logf("POST of %d alerts: %v", len(alerts), time.Since(began))
	testkit.EventuallyTrue(t, "1,000 groups notified", func() bool { return requests.Load() >= 1000 })
	t.Logf("POST to the webhook, group_wait 10 ms: last of 1,000 groups after %v", time.Unix(0, notified.Load()).Sub(began))

	one := func() time.Duration {
		n := requests.Load()
		began := time.Now()
		must(t, c.PostAlerts(t.Context(), []wire.Alert{alert(fmt.Sprint("One", n), "tenant-0", fmt.Sprint("new-", n), "critical", "", 0)}))
		testkit.EventuallyTrue(t, "one more", func() bool { return requests.Load() > n })
		return time.Unix(0, notified.Load()).Sub(began)
	}
	latencies := []time.Duration{}
	for range 20 {
		latencies = append(latencies, one())
	}
	slices.Sort(latencies)
	t.Logf("POST to the webhook of one alert among them: median %v, worst %v", latencies[10], latencies[19])

	for name, source := range map[string]Source{"over HTTP": External{Client: c}, "embedded": m} {
		h := serve(t, Options{Source: source, Silences: c})
		began = time.Now()
		h.poll()
		first := time.Since(began)
		began = time.Now()
		h.poll()
		t.Logf("%s: first poll, with the history %v, next %v", name, first, time.Since(began))
		for _, path := range []string{"/api/v1/alerts?limit=100", "/api/v1/alerts?limit=1000", "/api/v1/alerts?q=full&limit=100", "/api/v1/alerts?virtualSite=group-07", "/api/v1/alerts/state", "/api/v1/alerts/state?virtualSite=group-07", "/api/v1/alerts/state?site=site-0007"} {
			const n = 50
			began = time.Now()
			bytes := 0
			for range n {
				_, body := h.do("*", "GET", path, "")
				bytes = len(body)
			}
			t.Logf("%s: GET %s: %v, %d bytes", name, path, time.Since(began)/n, bytes)
		}
		began = time.Now()
		pages := 0
		for path := "/api/v1/alerts?limit=1000"; path != ""; pages++ {
			l := get[wire.AlertList](h, "*", path)
			if path = ""; l.NextCursor != "" {
				path = "/api/v1/alerts?limit=1000&cursor=" + l.NextCursor
			}
		}
		t.Logf("%s: all alerts in %d pages, decoded: %v", name, pages, time.Since(began))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("heap of Alertmanager and two indexes: %d MB", (after.HeapAlloc-before.HeapAlloc)>>20)
	began = time.Now()
	all, err := c.Alerts(t.Context())
	must(t, err)
	t.Logf("Alertmanager's own GET /api/v2/alerts of %d, decoded: %v", len(all), time.Since(began))
}

func BenchmarkState(b *testing.B) {
	var list []wire.Alert
	for i, a := range many(1000, 10) {
		a.Fingerprint = fmt.Sprintf("%016x", i)
		list = append(list, a)
	}
	h := serve(b, Options{Source: SourceFunc(func(context.Context) ([]wire.Alert, error) { return list, nil }), Silences: &amclient.Client{}})
	h.poll()
	for _, path := range []string{"/api/v1/alerts", "/api/v1/alerts?limit=1000", "/api/v1/alerts/state", "/api/v1/alerts/state?virtualSite=group-07"} {
		b.Run(path, func(b *testing.B) {
			req := httptest.NewRequest("GET", path, nil)
			req.Header.Set(wire.TenantsHeader, "*")
			for b.Loop() {
				w := httptest.NewRecorder()
				h.Config.Handler.ServeHTTP(w, req)
				if w.Code != 200 {
					b.Fatal(w.Code)
				}
			}
		})
	}
	b.Run("poll", func(b *testing.B) {
		for b.Loop() {
			h.poll()
		}
	})
}

// BenchmarkGates asks what the gates of rollouts do: which alerts fire at the sites of one tenant
// of four, of a fleet of 10,000 sites; without the network.
func BenchmarkGates(b *testing.B) {
	for _, each := range []int{10, 50} {
		var list []wire.Alert
		for i, a := range many(10_000, each) {
			a.Fingerprint = fmt.Sprintf("%016x", i)
			list = append(list, a)
		}
		h := serve(b, Options{Source: SourceFunc(func(context.Context) ([]wire.Alert, error) { return nil, nil }), Silences: &amclient.Client{}})
		known := make([]wire.KnownAlert, len(list))
		for i := range list {
			known[i] = alertOf(&list[i])
		}
		v := newView(time.Now(), known)
		began := time.Now()
		_, err := v.firingOf("tenant-1") // as a poll does, since somebody asks every few seconds
		must(b, err)
		b.Logf("made in %v", time.Since(began))
		h.s.view.Store(v)
		b.Run(fmt.Sprintf("alerts=%d/%s", len(list), wire.FiringPath), func(b *testing.B) {
			req := httptest.NewRequest("GET", wire.FiringPath+"?tenant=tenant-1", nil)
			req.Header.Set(wire.TenantsHeader, "*")
			for b.Loop() {
				w := &counts{header: http.Header{}}
				if h.Config.Handler.ServeHTTP(w, req); w.code != 200 || w.bytes == 0 {
					b.Fatal(w.code)
				}
			}
		})
	}
}

// counts is a ResponseWriter that keeps nothing.
type counts struct {
	header      http.Header
	code, bytes int
}

func (c *counts) Header() http.Header  { return c.header }
func (c *counts) WriteHeader(code int) { c.code = code }
func (c *counts) Write(b []byte) (int, error) {
	c.bytes += len(b)
	return len(b), nil
}
