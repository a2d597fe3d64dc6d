package engine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster.dev/muster/health/defaults"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

const benchSites = 10_000

func siteName(i int) string { return fmt.Sprintf("site-%05d", i) }

// benchEngine serves two regionals, 5,000 sites each, which answer every query of the
// shipped policy as muster's do, or with json as Prometheus writes it; the values are as at a usual fleet: one
// site in fifty has something to say, and what it has to say moves from one answer to the next.
func benchEngine(b testing.TB, json bool) (*Engine, func()) {
	model := defaults.Model()
	r := rand.New(rand.NewPCG(1, 2))
	servers := make([]*httptest.Server, 2)
	opts := Options{Shipped: model, Dir: b.TempDir(), Logger: slog.New(slog.DiscardHandler), Tick: time.Hour, LiveMaxAge: time.Hour}
	for n := range servers {
		bodies := map[string]*[2][]byte{}
		pl, err := newPlanner(model)
		if err != nil {
			b.Fatal(err)
		}
		shipped := pl.plan([]*policy{nil}).shipped
		for s, q := range append(slices.Clone(shipped.query), shipped.packs...) {
			var buf [2]bytes.Buffer
			brief := [2][]byte{wire.AppendVector(nil, benchSites/2), wire.AppendVector(nil, benchSites/2)}
			for k := range buf {
				buf[k].WriteString(`{"status":"success","data":{"resultType":"vector","result":[`)
			}
			for i := n; i < benchSites; i += 2 {
				v := [2]float64{1, 1} // of a pack
				if s < len(model.Signals) {
					sig := &model.Signals[s]
					if v[0], v[1] = sig.Good, sig.Good; r.IntN(50) == 0 {
						x := r.Float64()
						v[0] += (sig.Bad - sig.Good) * x
						v[1] += (sig.Bad - sig.Good) * x * 0.97
					}
				}
				for k := range buf {
					if i > n+1 {
						buf[k].WriteByte(',')
					}
					fmt.Fprintf(&buf[k], `{"metric":{"site":"%s","tenant":"acme"},"value":[1767225600.123,"%v"]}`, siteName(i), v[k])
					brief[k] = wire.AppendSeries(brief[k], "acme", siteName(i), v[k])
				}
			}
			for k := range buf {
				buf[k].WriteString("]}}")
			}
			bodies[pl.last.queries[q].text] = &brief
			if json {
				bodies[pl.last.queries[q].text] = &[2][]byte{buf[0].Bytes(), buf[1].Bytes()}
			}
		}
		var asked atomic.Uint64
		servers[n] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			switch req.URL.Path {
			case "/edge/api/v1/query":
				query := req.FormValue("query")
				var body []byte
				if b := bodies[query]; b != nil {
					body = b[asked.Add(1)/uint64(len(bodies))%2]
				} else {
					body = benchObjects(query)
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(body)
			case "/edge/api/v1/write":
				_, _ = io.Copy(io.Discard, req.Body)
				w.WriteHeader(http.StatusNoContent)
			}
		}))
		opts.Regionals = append(opts.Regionals, Regional{Name: fmt.Sprintf("r%d", n), URL: servers[n].URL})
	}
	sites := make([]*inventory.Site, benchSites)
	var virtual []*inventory.VirtualSite
	for v := range 20 {
		virtual = append(virtual, &inventory.VirtualSite{Tenant: "acme", Namespace: "shared", Name: fmt.Sprintf("v%02d", v)})
	}
	for i := range sites {
		sites[i] = aSite("acme/"+siteName(i), fmt.Sprintf("shared/v%02d", i%10), fmt.Sprintf("shared/v%02d", 10+i%7))
	}
	inv := &shelf{changed: make(chan struct{}, 1)}
	inv.set(sites, virtual, nil)
	opts.Inventory, opts.Status = inv, inv
	e, err := New(opts)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	for n := range servers {
		var live []wire.SiteLive
		for i := n; i < benchSites; i += 2 {
			live = append(live, wire.SiteLive{Tenant: "acme", Site: siteName(i), Connected: true, ConnectedSince: now, LastHeartbeat: now, LastPush: now})
		}
		e.polled(poll{regional: n, answer: wire.LiveView{Sites: live}, at: now})
	}
	return e, func() {
		for _, s := range servers {
			s.Close()
		}
	}
}

// benchObjects answers a query for objects with three of each site that it names.
func benchObjects(query string) []byte {
	var buf bytes.Buffer
	buf.WriteString(`{"status":"success","data":{"resultType":"vector","result":[`)
	_, list, _ := strings.Cut(query, `site=~"`)
	list, _, _ = strings.Cut(list, `"`)
	for i, site := range strings.Split(list, "|") {
		for n := range maxObjects {
			if i+n > 0 {
				buf.WriteByte(',')
			}
			fmt.Fprintf(&buf, `{"metric":{"instance":"10.0.0.%d:9100","job":"node","node":"%s-n%d","region":"eu","site":"%s","tenant":"acme"},"value":[1767225600.123,"%d"]}`, n, site, n, site, 1000+n)
		}
	}
	buf.WriteString("]}}")
	return buf.Bytes()
}

func (e *Engine) tickOnce(b testing.TB) {
	done := make(chan *answers, 1)
	e.collect(context.Background(), done)()
	e.pass(<-done)
	e.opts.Status.(*shelf).sites = nil
}

// BenchmarkTick10k is one whole tick: asking two regionals over HTTP about 10,000
// sites, decoding, evaluating, aggregating 20 virtual sites, publishing. The fake
// regionals run in the same process, but do little more than write.
//
// BenchmarkTick10k/json is the same with regionals that answer in JSON alone.
func BenchmarkTick10k(b *testing.B) {
	for _, json := range []bool{false, true} {
		b.Run(map[bool]string{false: "brief", true: "json"}[json], func(b *testing.B) { benchTick(b, json) })
	}
}

func benchTick(b *testing.B, json bool) {
	e, stop := benchEngine(b, json)
	defer stop()
	for range e.opts.Shipped.Recovery { // sites of which something is unknown are waited for
		e.tickOnce(b)
	}
	v := e.View()
	known := 0
	for _, s := range v.Sites {
		if s.State.Known {
			known++
		}
	}
	if known != benchSites {
		b.Fatalf("%d sites have a score", known)
	}
	b.ReportAllocs()
	began := testkit.CPUTime(b)
	for b.Loop() {
		e.tickOnce(b)
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/tick")
	b.ReportMetric(float64((testkit.CPUTime(b)-began).Milliseconds())/float64(b.N), "cpu-ms/tick")
}

// BenchmarkEvaluate10k is the part of a tick after its last answer.
func BenchmarkEvaluate10k(b *testing.B) {
	e, stop := benchEngine(b, false)
	defer stop()
	done := make(chan *answers, 1)
	e.collect(context.Background(), done)()
	a := <-done
	b.ReportAllocs()
	for b.Loop() {
		e.pass(a)
		e.opts.Status.(*shelf).sites = nil
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchSites, "ns/site")
}

// BenchmarkLive10k is a look at the live views when nothing changed.
func BenchmarkLive10k(b *testing.B) {
	e, stop := benchEngine(b, false)
	defer stop()
	e.tickOnce(b)
	b.ReportAllocs()
	for b.Loop() {
		e.pass(nil)
	}
}

// BenchmarkWrite10k makes the series of a view and writes them into two regionals.
func BenchmarkWrite10k(b *testing.B) {
	e, stop := benchEngine(b, false)
	defer stop()
	e.tickOnce(b)
	v := *e.View()
	b.ReportAllocs()
	for b.Loop() {
		v.Version++
		e.writer.write(context.Background(), &v)
	}
}

// BenchmarkSave10k writes the state file.
func BenchmarkSave10k(b *testing.B) {
	e, stop := benchEngine(b, false)
	defer stop()
	e.tickOnce(b)
	e.writer.write(context.Background(), e.View())
	b.ReportAllocs()
	for b.Loop() {
		if err := e.save(e.View(), e.writer.sites, e.writer.virtual); err != nil {
			b.Fatal(err)
		}
	}
	fi, err := os.Stat(filepath.Join(e.opts.Dir, stateFile))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(fi.Size()), "file-bytes")
}

// BenchmarkDecodeVector is one answer of 5,000 series.
func BenchmarkDecodeVector(b *testing.B) {
	var buf bytes.Buffer
	buf.WriteString(`{"status":"success","data":{"resultType":"vector","result":[`)
	for i := range 5000 {
		if i > 0 {
			buf.WriteByte(',')
		}
		fmt.Fprintf(&buf, `{"metric":{"site":"%s","tenant":"acme"},"value":[1767225600.123,"%v"]}`, siteName(i), float64(i)*1.7)
	}
	buf.WriteString("]}}")
	b.SetBytes(int64(buf.Len()))
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if err := decodeVector(buf.Bytes(), func(_, _ []byte, _ float64) error { n++; return nil }); err != nil || n != 5000 {
			b.Fatal(n, err)
		}
	}
}

// TestTickAllocations holds the tick to a budget: what it allocates a site, and
// what the engine keeps of one.
func TestTickAllocations(t *testing.T) {
	if testing.Short() {
		t.Skip("10,000 sites")
	}
	e, stop := benchEngine(t, false)
	defer stop()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	own := float64(before.HeapAlloc) / benchSites // the test's, the inventory's and the live views'
	e.tickOnce(t)
	runtime.GC()
	runtime.ReadMemStats(&before)
	const rounds = 5
	for range rounds {
		e.tickOnce(t)
	}
	runtime.ReadMemStats(&after)
	objects := float64(after.Mallocs-before.Mallocs) / rounds / benchSites
	size := float64(after.TotalAlloc-before.TotalAlloc) / rounds / benchSites
	t.Logf("a tick allocates %.1f objects and %.0f bytes a site", objects, size)
	if objects > 25 || size > 7<<10 {
		t.Errorf("a tick allocates %.1f objects and %.0f bytes a site, want at most 25 and 7 KiB", objects, size)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	held := float64(after.HeapAlloc)/benchSites - own
	runtime.KeepAlive(e)
	t.Logf("the engine holds %.0f bytes a site", held)
	if held > 12<<10 {
		t.Errorf("the engine holds %.0f bytes a site, want at most 12 KiB", held)
	}
}
