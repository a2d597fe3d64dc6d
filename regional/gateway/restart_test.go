package gateway

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/regional/engine"
)

// BenchmarkRestart opens an engine that was stopped with 200,000 series of 100 sites, on as
// many threads as a regional has: until it is open none of its sites is taken. Reported is
// processor time, too.
func BenchmarkRestart(b *testing.B) {
	const sites, perSite, rounds = 100, 2000, 8
	turns.Threads()
	dir := b.TempDir()
	r, err := newRig(dir, unlimited, nowhere)
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now().Add(-time.Hour)
	series := siteSeries(perSite, start)
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
	}
	r.close()
	var used time.Duration
	for b.Loop() {
		before := processorTime(b)
		e, err := engine.New(engine.Options{Name: engine.Edge, Dir: dir + "/edge", OutOfOrderWindow: 48 * time.Hour, SeriesLifecycle: NewHeadSeries(nil)})
		if err != nil {
			b.Fatal(err)
		}
		used += processorTime(b) - before
		b.StopTimer()
		if n := e.HeadSeries(); n != sites*perSite {
			b.Fatalf("%d series after the restart", n)
		}
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(used.Seconds()/float64(b.N), "cpu-s/op")
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
