package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"muster.dev/muster/regional/logs/store"
)

// Lines makes n records as a fleet writes them: spread over sites and the two hours after base,
// in order of time, about 110 bytes of message, one in 50 an error.
func Lines(first, n int) []store.Record {
	rnd := rand.New(rand.NewPCG(uint64(first), 42))
	verbs := []string{"GET", "POST", "PUT", "DELETE"}
	out := make([]store.Record, n)
	for i := range out {
		k := first + i
		r := store.Record{
			Timestamp: base().Add(time.Duration(k) * 100 * time.Microsecond), Tenant: "acme", Region: "eu", Site: fmt.Sprintf("site-%04d", rnd.IntN(1000)),
			Node: fmt.Sprintf("node-%d", rnd.IntN(3)), Namespace: "acme-shop", Pod: fmt.Sprintf("checkout-%d", rnd.IntN(200)), Container: "checkout",
			Stream: "stdout", Severity: "info", ID: fmt.Sprintf("%016x", k),
			Message: fmt.Sprintf("%s /api/v1/orders/%d HTTP/1.1 status=200 took=%dms user=u%d trace=%08x bytes=%d upstream=10.0.%d.%d", verbs[rnd.IntN(4)], rnd.IntN(1e6), rnd.IntN(900), rnd.IntN(50000), rnd.Uint32(), rnd.IntN(20000), rnd.IntN(255), rnd.IntN(255)),
		}
		if rnd.IntN(50) == 0 {
			r.Severity, r.Stream = "error", "stderr"
			r.Message = fmt.Sprintf("upstream 10.0.%d.%d failed: connection refused after %dms, out of memory in worker %d", rnd.IntN(255), rnd.IntN(255), rnd.IntN(900), rnd.IntN(64))
		}
		out[i] = r
	}
	return out
}

const chunk = 2000

// BenchmarkWrite reports lines/s into the store, from one writer in chunks of 2,000.
func BenchmarkWrite(b *testing.B, f Factory) {
	s := f(b, Config{})
	n := 0
	var bytes int64
	for b.Loop() {
		b.StopTimer()
		records := Lines(n, chunk)
		for i := range records {
			bytes += int64(len(records[i].Message))
		}
		n += chunk
		b.StartTimer()
		if res, err := s.Write(b.Context(), records); err != nil || res.Stored != chunk {
			b.Fatalf("%+v, %v", res, err)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "lines/s")
	b.ReportMetric(float64(bytes)/1e6/b.Elapsed().Seconds(), "MB/s")
}

// BenchmarkSearch reports the time of typical queries over n lines.
func BenchmarkSearch(b *testing.B, f Factory, n int) {
	s := f(b, Config{})
	for first := 0; first < n; first += chunk {
		if res, err := s.Write(b.Context(), Lines(first, min(chunk, n-first))); err != nil || res.Stored == 0 {
			b.Fatalf("%+v, %v", res, err)
		}
	}
	Settle(b, s)
	for _, q := range []struct {
		name string
		q    store.Query
	}{
		{"newest", store.Query{}},
		{"newest+histogram", store.Query{Buckets: 60}},
		{"errors+phrase", store.Query{Text: `severity:error AND "out of memory"`, Buckets: 60}},
		{"word", store.Query{Text: "refused"}},
		{"site", store.Query{Sites: []string{"site-0042"}, Buckets: 60}},
		{"prefix", store.Query{Text: "pod:checkout-1*"}},
		{"rare", store.Query{Text: "nosuchword"}},
	} {
		b.Run(fmt.Sprintf("%s/lines=%d", q.name, n), func(b *testing.B) {
			q.q.Tenant, q.q.From, q.q.To = "acme", base(), base().Add(24*time.Hour)
			var total int64
			for b.Loop() {
				total = find(b, s, q.q).Total
			}
			b.ReportMetric(float64(total), "hits")
		})
	}
}

// BenchmarkGroups is what one log rule reads at once: n lines that came in since it
// looked last. Beside the lines counted a second it reports them as a multiple of the
// lines written a second in the same run: one rule keeps up with a store that is
// written at full speed above 1, ten of them above 10.
func BenchmarkGroups(b *testing.B, f Factory, n int) {
	s := f(b, Config{})
	const chunk = 5000
	began := time.Now()
	for first := 0; first < n; first += chunk {
		if res, err := s.Write(b.Context(), Lines(first, min(chunk, n-first))); err != nil || res.Stored == 0 {
			b.Fatalf("%+v, %v", res, err)
		}
	}
	written := float64(n) / time.Since(began).Seconds()
	Settle(b, s)
	until, err := s.Now(b.Context())
	for until.Before(began.Add(time.Nanosecond)) && err == nil {
		until, err = s.Now(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	for _, q := range []struct {
		name string
		q    store.GroupQuery
	}{
		{"every line", store.GroupQuery{By: []string{"site"}}},
		{"errors", store.GroupQuery{Text: "severity:error", By: []string{"site", "pod"}}},
		{"two words", store.GroupQuery{Text: `severity:error AND "out of memory"`, By: []string{"site"}}},
	} {
		b.Run(fmt.Sprintf("%s/lines=%d", q.name, n), func(b *testing.B) {
			q.q.Tenant, q.q.After, q.q.UpTo = "acme", began.Add(-time.Second), until
			q.q.Step = 15 * time.Second
			var counted int64
			for b.Loop() {
				got, err := s.Groups(b.Context(), q.q)
				if err != nil {
					b.Fatal(err)
				}
				counted = 0
				for _, g := range got.Groups {
					counted += g.Count
				}
			}
			rate := float64(n) * float64(b.N) / b.Elapsed().Seconds()
			b.ReportMetric(float64(counted), "counted")
			b.ReportMetric(rate, "lines/s")
			b.ReportMetric(rate/written, "times-written")
		})
	}
}
