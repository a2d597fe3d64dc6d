package collector

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
)

// bigPage is what the exporters of a busy site serve: 100 metrics of 500 series.
func bigPage(series int) *atomicPage {
	var b bytes.Buffer
	for m := range 100 {
		fmt.Fprintf(&b, "# HELP app_metric_%02d_total What metric %d counts.\n# TYPE app_metric_%02d_total counter\n", m, m, m)
		for i := range series / 100 {
			fmt.Fprintf(&b, "app_metric_%02d_total{namespace=\"team-%d\",pod=\"checkout-7d9f8b6c5-%05d\",container=\"main\",path=\"/api/v1/%d\"} %d\n", m, i%7, i, i%13, m*1000+i)
		}
	}
	p := &atomicPage{}
	p.b.Store(&[]byte{})
	text := b.Bytes()
	p.b.Store(&text)
	return p
}

type atomicPage struct {
	b      atomic.Pointer[[]byte]
	served atomic.Int64
}

func (p *atomicPage) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	_, _ = w.Write(*p.b.Load())
	p.served.Add(1)
}

// keep4 lets 4 of the 100 metrics through: 2,000 of 50,000 series.
func keep4() fleet.CollectionPolicy {
	p := policy()
	p.AllowNames = []string{"app_metric_03_total", "app_metric_07_total"}
	p.AllowPatterns = []string{"app_metric_4[12]_total"}
	p.SeriesBudget = 2500
	return p
}

// sink takes everything, as a regional does.
func sink(tb testing.TB) (*httptest.Server, *atomic.Int64) {
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(r.ContentLength)
		w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", "1000000")
		w.WriteHeader(http.StatusNoContent)
	}))
	tb.Cleanup(s.Close)
	return s, &n
}

func liveHeap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkCollector50k is a site's collector at work: 50,000 raw series scraped
// over loopback HTTP, 2,000 kept, spooled and pushed. It reports CPU time of a
// scrape (with the page's server and the receiver in it), the live heap, and the
// bytes on the wire.
//
//	go test -run '^$' -bench Collector50k -benchtime 20x ./collector
func BenchmarkCollector50k(b *testing.B) {
	const raw = 50_000
	before := liveHeap()
	page := bigPage(raw)
	srv := httptest.NewServer(page)
	defer srv.Close()
	recv, _ := sink(b)
	pageBytes := float64(len(*page.b.Load()))

	c, err := New(Options{
		Dir: b.TempDir(), Site: fleet.SiteID{Tenant: "acme", Name: "bench"}, Policy: keep4(), Endpoint: func() string { return recv.URL },
		ScrapeConfigs: []byte(static("app", strings.TrimPrefix(srv.URL, "http://"))), reloadEvery: 20 * time.Millisecond,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	scrapes := func() int64 { return page.served.Load() }
	wait := func(n int64) {
		for scrapes() < n {
			time.Sleep(5 * time.Millisecond)
		}
	}
	wait(3) // the first scrapes fill the caches
	start, sent, cpu := scrapes(), c.Status().Push, testkit.CPUTime(b)
	b.ResetTimer()
	wait(start + int64(b.N))
	b.StopTimer()
	n := float64(scrapes() - start)
	b.ReportMetric(float64(testkit.CPUTime(b)-cpu)/n, "cpu-ns/scrape")
	eventually(b, func() string {
		if p := c.Status().Spool.Pending; p > 0 {
			return fmt.Sprint(p, " pending")
		}
		return ""
	})
	push := c.Status().Push
	b.ReportMetric(float64(push.SentBytes-sent.SentBytes)/float64(push.SentSamples-sent.SentSamples), "wire-B/sample")
	b.ReportMetric(float64(c.Status().Series), "series")
	b.ReportMetric((liveHeap()-before-pageBytes)/1e6, "live-heap-MB")
	var m runtime.MemStats
	debug.FreeOSMemory()
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys-m.HeapReleased)/1e6, "process-MB")
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkScrapeToSpool is the collector's own share of a scrape, without HTTP
// and parsing: filter, encode, append to the spool. All 2,000 series are kept.
func BenchmarkScrapeToSpool(b *testing.B) {
	p := policy(".*")
	p.SeriesBudget = 5000
	c, err := New(Options{Dir: b.TempDir(), Policy: p, Endpoint: func() string { return "" }})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	series := make([]labels.Labels, 2000)
	for i := range series {
		series[i] = labels.FromStrings("__name__", fmt.Sprint("metric_", i%100), "i", fmt.Sprint(i), "instance", "localhost:9100", "job", "node")
	}
	a := appendable{c}
	t := int64(0)
	b.ReportAllocs()
	refs := make([]uint64, len(series))
	for b.Loop() {
		t += 15000
		app := a.Appender(context.Background())
		for i := range series {
			ref, err := app.Append(0, series[i], t, float64(i))
			if err != nil {
				b.Fatal(err)
			}
			refs[i] = uint64(ref)
		}
		if err := app.Commit(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestMemoryOfIdleCollector bounds what one collector of a simulated fleet costs
// before it has series.
func TestMemoryOfIdleCollector(t *testing.T) {
	const n = 20
	var all []*Collector
	before := liveHeap()
	for range n {
		c, err := New(Options{Dir: t.TempDir(), Site: fleet.SiteID{Tenant: "a", Name: "b"}, Policy: keep4(), Endpoint: func() string { return "" }})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	each := (liveHeap() - before) / n
	t.Logf("%.0f bytes a collector", each)
	if each > 300e3 {
		t.Errorf("%.0f bytes a collector", each)
	}
	for _, c := range all {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
