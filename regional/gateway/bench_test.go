package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/spool"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/engine"
)

const childEnv = "MUSTER_GATEWAY_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		pushForEver(dir)
		return
	}
	if os.Getenv(fleetEnv) != "" {
		if err := connectFleet(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

type forwarder = func(tenant string, series []remotewrite.Series) (durable func() error, err error)

// nowhere is a forward queue that takes everything and keeps nothing.
func nowhere(string, []remotewrite.Series) (func() error, error) { return nil, nil }

// rig is a gateway's push path without TLS: real engine, real spool.
type rig struct {
	g      *Gateway
	edge   *engine.Engine
	series *HeadSeries
	fwd    *spool.Spool
}

func newRig(dir string, limits Limits, forward forwarder) (*rig, error) {
	r := &rig{series: NewHeadSeries(nil)}
	var err error
	if r.edge, err = engine.New(engine.Options{Name: engine.Edge, Dir: dir + "/edge", OutOfOrderWindow: 48 * time.Hour, SeriesLifecycle: r.series}); err != nil {
		return nil, err
	}
	r.series.Enforce()
	if r.fwd, err = spool.Open(spool.Options{Dir: dir + "/forward", OnFull: spool.DropOldest, MaxBytes: 512 << 20}); err != nil {
		return nil, err
	}
	o := Options{Name: "one", Listen: "-", TLS: &tls.Config{}, Trust: x509.NewCertPool, Edge: r.edge.Storage(), Series: r.series,
		Forward: forward, Upstream: &upstream{}, Limits: func(fleet.SiteID) Limits { return limits }}
	if forward == nil {
		o.Forward = func(tenant string, series []remotewrite.Series) (func() error, error) {
			_, durable, err := r.fwd.Put(remotewrite.Encode(tenant, 0, series))
			return durable, err
		}
		o.ForwardRaw = func(site fleet.SiteID, raw remotewrite.Raw) (func() error, error) {
			_, durable, err := r.fwd.Put(remotewrite.AppendRaw(nil, site.Tenant, 0, raw))
			return durable, err
		}
	}
	r.g, err = newUnbound(o)
	return r, err
}

func (r *rig) close() {
	_ = r.edge.Close()
	_ = r.fwd.Close()
}

func (r *rig) push(id fleet.SiteID, body []byte) *httptest.ResponseRecorder {
	return pushTo(r.g, id, body)
}

func pushTo(g *Gateway, id fleet.SiteID, body []byte) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, "/api/v1/push", bytes.NewReader(body))
	req.Header.Set("Content-Type", remotewrite.ContentTypeV2)
	req.Header.Set("Content-Encoding", "snappy")
	w := httptest.NewRecorder()
	g.handlePush(w, req.WithContext(context.WithValue(req.Context(), callerKey{}, caller{site: id, region: "eu-west"})))
	return w
}

// siteSeries is what a site sends: labels as those of node_exporter and
// kube-state-metrics, eleven of them with the stamped ones.
func siteSeries(n int, at time.Time) []remotewrite.Series {
	out := make([]remotewrite.Series, n)
	for i := range out {
		out[i] = remotewrite.Series{
			Labels: labels.FromStrings("__name__", fmt.Sprintf("node_metric_%03d_total", i%200), "instance", "10.0.0.7:9100", "job", "node",
				"node", fmt.Sprintf("node-%d", i%5), "namespace", "kube-system", "pod", fmt.Sprintf("workload-%d-7f9c6d5b8-x2x4z", i/200), "container", "main", "device", fmt.Sprintf("eth%d", i%7)),
			Samples: []remotewrite.Sample{{T: at.UnixMilli(), V: float64(i)}},
		}
	}
	return out
}

var unlimited = Limits{Series: 1 << 30, SamplesPerSecond: 1 << 30}

// BenchmarkGatewayPush: samples a second on one core through the push handler:
// snappy, decoding, stamping, limits, append to the engine with its log, encoding
// and append to the forward spool. "bare" is the engine's appender alone, with
// labels and references at hand; "engine" is the handler without the forward.
func BenchmarkGatewayPush(b *testing.B) {
	const perPush, sites = 2000, 20
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ids := make([]fleet.SiteID, sites)
	for i := range ids {
		ids[i] = fleet.SiteID{Tenant: "acme", Name: fmt.Sprintf("site-%d", i)}
	}
	start := time.Now().Add(-24 * time.Hour)
	bodies := func(b *testing.B) func(int) []byte { // one a scrape; encoded outside of the clock
		series, now, cur := siteSeries(perPush, start), -1, []byte(nil)
		return func(round int) []byte {
			if round != now {
				b.StopTimer()
				for i := range series {
					series[i].Samples[0] = remotewrite.Sample{T: start.Add(time.Duration(round) * 15 * time.Second).UnixMilli(), V: float64(round + i)}
				}
				now, cur = round, remotewrite.EncodeV2(series)
				b.StartTimer()
			}
			return cur
		}
	}
	handler := func(b *testing.B, forward forwarder) {
		r, err := newRig(b.TempDir(), unlimited, forward)
		if err != nil {
			b.Fatal(err)
		}
		defer r.close()
		body := bodies(b)
		for _, id := range ids {
			r.push(id, body(0)) // series are made here, outside of the clock
		}
		b.ResetTimer()
		cpu, encoding := testkit.CPUTime(b), time.Duration(0)
		for n := range b.N {
			at := testkit.CPUTime(b)
			next := body(1 + n/sites)
			encoding += testkit.CPUTime(b) - at
			if w := r.push(ids[n%sites], next); w.Code != 204 {
				b.Fatal(w.Code, w.Body)
			}
		}
		b.ReportMetric(float64(b.N)*perPush/b.Elapsed().Seconds(), "samples/s")
		b.ReportMetric(float64(testkit.CPUTime(b)-cpu-encoding)/float64(b.N)/perPush, "cpu-ns/sample")
	}
	b.Run("push", func(b *testing.B) { handler(b, nil) })
	b.Run("engine", func(b *testing.B) { handler(b, nowhere) })
	b.Run("bare", func(b *testing.B) {
		r, err := newRig(b.TempDir(), unlimited, nil)
		if err != nil {
			b.Fatal(err)
		}
		defer r.close()
		series := siteSeries(perPush, start)
		refs := make([][]storage.SeriesRef, sites)
		all := make([][]labels.Labels, sites)
		push := func(site int, t int64) {
			app := r.edge.Storage().Appender(context.Background())
			for i, ls := range all[site] {
				ref, err := app.Append(refs[site][i], ls, t, float64(i)+float64(t))
				if err != nil {
					b.Fatal(err)
				}
				refs[site][i] = ref
			}
			if err := app.Commit(); err != nil {
				b.Fatal(err)
			}
		}
		for s, id := range ids {
			refs[s] = make([]storage.SeriesRef, perPush)
			for i := range series {
				lb := labels.NewBuilder(series[i].Labels)
				all[s] = append(all[s], lb.Set("tenant", id.Tenant).Set("site", id.Name).Set("region", "eu-west").Labels())
			}
			push(s, start.UnixMilli())
		}
		b.ResetTimer()
		for n := range b.N {
			push(n%sites, start.Add(time.Duration(1+n/sites)*15*time.Second).UnixMilli())
		}
		b.ReportMetric(float64(b.N)*perPush/b.Elapsed().Seconds(), "samples/s")
	})
}

// BenchmarkEngineSeriesMemory: bytes of heap a series, at 200,000 series of 100
// sites, engine and gateway together. The engine's 30 samples a series are in it.
func BenchmarkEngineSeriesMemory(b *testing.B) {
	const sites, perSite, rounds = 100, 2000, 30
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		r, err := newRig(b.TempDir(), unlimited, nowhere)
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now().Add(-time.Hour)
		series := siteSeries(perSite, start)
		before := heap()
		for round := range rounds {
			for i := range series {
				series[i].Samples[0] = remotewrite.Sample{T: start.Add(time.Duration(round) * 15 * time.Second).UnixMilli(), V: float64(round * i)}
			}
			body := remotewrite.EncodeV2(series)
			for s := range sites {
				if w := r.push(fleet.SiteID{Tenant: "acme", Name: fmt.Sprintf("site-%d", s)}, body); w.Code != 204 {
					b.Fatal(w.Code, w.Body)
				}
			}
			if round == 0 {
				b.ReportMetric(float64(heap()-before)/(sites*perSite), "B/series-first-sample")
			}
		}
		after := heap()
		b.ReportMetric(float64(after-before)/(sites*perSite), "B/series")
		r.g.sites = nil // what is left is the engine
		b.ReportMetric(float64(after-heap())/(sites*perSite), "B/series-in-gateway")
		if n := r.edge.HeadSeries(); n != sites*perSite {
			b.Fatal(n)
		}
		rss, _ := os.ReadFile("/proc/self/statm")
		var size, resident float64
		_, _ = fmt.Sscan(string(rss), &size, &resident)
		b.ReportMetric(resident*float64(os.Getpagesize())/(1<<20), "MiB-RSS")
		r.close()
	}
}

// pushForEver is the child of TestKillKeepsAcknowledged: it pushes through the
// handler and says what was acknowledged.
func pushForEver(dir string) {
	r, err := newRig(dir, unlimited, nil)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	start := time.Now().Add(-20 * time.Hour).Truncate(time.Second)
	fmt.Println("start", start.Unix())
	for i := 1; ; i++ {
		series := many(50, start.Add(time.Duration(i)*time.Second), "x")
		if w := r.push(paris, remotewrite.EncodeV2(series)); w.Code != http.StatusNoContent {
			fmt.Println("error", w.Code, w.Body)
			return
		}
		fmt.Println("acked", i)
	}
}

// TestKillKeepsAcknowledged kills a gateway with -9 while it takes pushes, and
// counts: what it acknowledged is in the engine and in the forward queue.
func TestKillKeepsAcknowledged(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var start int64
	acked := 0
	lines := bufio.NewScanner(out)
	killed := false
	for lines.Scan() {
		n := 0
		if _, err := fmt.Sscanf(lines.Text(), "start %d", &start); err == nil {
			continue
		}
		if _, err := fmt.Sscanf(lines.Text(), "acked %d", &n); err == nil && n == acked+1 {
			acked = n
		} else if !killed {
			t.Fatal(lines.Text())
		}
		if acked == 300 && !killed {
			killed = true
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait()
	r, err := newRig(dir, unlimited, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	vec, err := r.edge.Query(t.Context(), `sum(count_over_time(x{site="paris"}[1d]))`, time.Unix(start+int64(acked), 0))
	if err != nil || len(vec) != 1 || int(vec[0].F) != 50*acked {
		t.Errorf("engine: acknowledged %d samples, have %v, %v", 50*acked, vec, err)
	}
	inQueue := 0
	for n := r.fwd.Stats().Pending; n > 0; n-- {
		rec, err := r.fwd.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		info, err := remotewrite.Inspect(rec.Data)
		if err != nil || info.Key != "acme" {
			t.Fatal(info, err)
		}
		if info.MaxT <= (start+int64(acked))*1000 {
			inQueue += info.Samples
		}
	}
	if inQueue != 50*acked {
		t.Errorf("queue: acknowledged %d samples, have %d", 50*acked, inQueue)
	}
	t.Logf("acknowledged %d samples, all there after kill -9", 50*acked)
}

// BenchmarkColdStart: processor time for a series that the engine does not know yet, as
// all are when a regional is new: through the push handler, and by the engine's appender
// alone with labels at hand.
func BenchmarkColdStart(b *testing.B) {
	const sites, perSite = 100, 500
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	start := time.Now().Add(-time.Hour)
	series := siteSeries(perSite, start)
	b.Run("push", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			r, err := newRig(b.TempDir(), unlimited, nil)
			if err != nil {
				b.Fatal(err)
			}
			body := remotewrite.EncodeV2(series)
			b.StartTimer()
			cpu := testkit.CPUTime(b)
			for i := range sites {
				if w := r.push(fleet.SiteID{Tenant: "acme", Name: fmt.Sprintf("site-%d", i)}, body); w.Code != 204 {
					b.Fatal(w.Code, w.Body)
				}
			}
			b.ReportMetric(float64(testkit.CPUTime(b)-cpu)/sites/perSite, "cpu-ns/series")
			b.StopTimer()
			r.close()
			b.StartTimer()
		}
	})
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			r, err := newRig(b.TempDir(), unlimited, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			cpu := testkit.CPUTime(b)
			for i := range sites {
				app := r.edge.Storage().Appender(context.Background())
				for _, s := range series {
					ls := labels.NewBuilder(s.Labels).Set("tenant", "acme").Set("site", fmt.Sprintf("site-%d", i)).Set("region", "eu-west").Labels()
					if _, err := app.Append(0, ls, start.UnixMilli(), 1); err != nil {
						b.Fatal(err)
					}
				}
				if err := app.Commit(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(testkit.CPUTime(b)-cpu)/sites/perSite, "cpu-ns/series")
			b.StopTimer()
			r.close()
			b.StartTimer()
		}
	})
}

// BenchmarkLive is a live view of 3,000 sites, as it is asked for, and what it would cost through
// encoding/json and as it is.
func BenchmarkLive(b *testing.B) {
	g := bareGateway(time.Now, &upstream{}, nil)
	for i := range 3000 {
		s := g.acquire(fleet.SiteID{Tenant: "acme", Name: fmt.Sprintf("site-%04d", i)})
		ago := func() time.Time { return time.Now().Add(-rand.N(15 * time.Second)) }
		s.mu.Lock()
		s.live.region, s.live.version, s.live.session = "eu-west", "v1.2.3", &session{}
		s.live.since, s.live.heartbeat, s.live.push = ago(), ago(), ago()
		s.showLocked()
		s.mu.Unlock()
	}
	plain := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(wire.LiveView{Regional: "one", Region: "eu", AsOf: time.Now(), Sites: slices.Collect(g.Live())})
	})
	for name, h := range map[string]http.Handler{"compressed": g.LiveHandler(), "json": plain} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				r, w := httptest.NewRequest(http.MethodGet, wire.LivePath, nil), httptest.NewRecorder()
				r.Header.Set("Accept-Encoding", "gzip")
				h.ServeHTTP(w, r)
				n = w.Body.Len()
			}
			b.ReportMetric(float64(n), "bytes-sent")
		})
	}
}
