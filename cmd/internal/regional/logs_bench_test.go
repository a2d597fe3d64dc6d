package regional

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/elasticsearch"
	"muster.dev/muster/regional/logs/intake"
	"muster.dev/muster/regional/logs/store"
	"muster.dev/muster/regional/logs/store/elastic"
	"muster.dev/muster/regional/logs/store/embedded"
)

const (
	benchChunk = 500     // lines of a request
	benchLines = 200_000 // of one round
)

// BenchmarkLogs takes lines in by HTTP, over the queue on disk, until the store has
// them all. For comparison it writes the same lines to a file.
func BenchmarkLogs(b *testing.B) {
	b.Run("file", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "lines"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		measure(b, func(round int) {
			for n := range benchLines / benchChunk {
				if _, err := f.Write(chunkOf(round, n)); err != nil {
					b.Fatal(err)
				}
			}
			_ = f.Sync()
		})
	})
	b.Run("embedded", func(b *testing.B) {
		st, err := embedded.Open(embedded.Options{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		intakeTo(b, st)
	})
	b.Run("elasticsearch", func(b *testing.B) {
		node := elasticsearch.Start(b, elasticsearch.Options{Optimize: true})
		st, err := elastic.Open(elastic.Options{URLs: []string{node.URL}, Prefix: "bench"})
		if err != nil {
			b.Fatal(err)
		}
		intakeTo(b, st)
	})
}

// counted tells how many records the store has taken.
type counted struct {
	store.Store
	taken atomic.Int64
}

func (c *counted) Write(ctx context.Context, recs []store.Record) (store.Result, error) {
	res, err := c.Store.Write(ctx, recs)
	if err == nil {
		c.taken.Add(int64(len(recs)))
	}
	return res, err
}

func intakeTo(b *testing.B, st store.Store) {
	sink := &counted{Store: st}
	in, err := intake.New(intake.Options{Name: "one", Dir: b.TempDir(), Sink: sink, Logger: slog.New(slog.DiscardHandler),
		Limits: func(fleet.SiteID) intake.SiteLimits { return intake.SiteLimits{BytesPerSecond: 1 << 30} }})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := in.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	defer func() { cancel(); done.Wait(); _ = st.Close() }()
	h := in.Handler(func(*http.Request) (fleet.SiteID, string, error) {
		return fleet.SiteID{Tenant: "acme", Name: "paris"}, "eu", nil
	})
	var want int64
	measure(b, func(round int) {
		for n := range benchLines / benchChunk {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, intake.Path, bytes.NewReader(chunkOf(round, n)))
			r.Header.Set("Content-Type", "application/x-ndjson")
			if h.ServeHTTP(w, r); w.Code != http.StatusOK {
				b.Fatalf("%d: %s", w.Code, w.Body)
			}
		}
		for want += benchLines; sink.taken.Load() < want; time.Sleep(5 * time.Millisecond) {
		}
	})
}

func chunkOf(round, n int) []byte {
	var body bytes.Buffer
	at := time.Now().UnixMicro()
	for i := range benchChunk {
		fmt.Fprintf(&body, `{"date":%d.%06d,"log":"order %08x paid, %d items, %d ms %s","stream":"stdout","level":"info","kubernetes":{"pod_name":"checkout-%d","namespace_name":"shop","container_name":"checkout","host":"n%d"}}`+"\n",
			at/1e6, (at+int64(i))%1e6, round<<24+n<<10+i, i%7, i%900, strings.Repeat("x", 40), n%5, n%3)
	}
	return body.Bytes()
}

// measure reports lines a second, and a second of CPU of this process.
func measure(b *testing.B, round func(int)) {
	began, n := testkit.CPUTime(b), 0
	for b.Loop() {
		round(n)
		n++
	}
	lines := float64(n * benchLines)
	b.ReportMetric(lines/b.Elapsed().Seconds(), "lines/s")
	b.ReportMetric(lines/(testkit.CPUTime(b)-began).Seconds(), "lines/cpu-s")
	b.ReportMetric(0, "ns/op")
}
