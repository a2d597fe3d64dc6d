package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"google.golang.org/protobuf/encoding/protowire"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/testkit"
)

// bomb is n series of a histogram with as many buckets on each side. It is put together
// by hand: the test must not take the memory that it measures.
func bomb(n, buckets int, metric string, at time.Time) []byte {
	h := &histogram.Histogram{Schema: 3, Count: uint64(2 * buckets), Sum: 1}
	h.PositiveSpans, h.NegativeSpans = []histogram.Span{{Length: uint32(buckets)}}, []histogram.Span{{Length: uint32(buckets)}}
	h.PositiveBuckets, h.NegativeBuckets = make([]int64, buckets), make([]int64, buckets)
	h.PositiveBuckets[0], h.NegativeBuckets[0] = 1, 1
	msg := writev2.FromIntHistogram(at.UnixMilli(), h)
	hist, err := msg.Marshal()
	if err != nil {
		panic(err)
	}
	var raw []byte
	for _, sym := range []string{"", "__name__", metric, "i"} {
		raw = protowire.AppendString(append(raw, 0x22), sym)
	}
	for i := range n {
		raw = protowire.AppendString(append(raw, 0x22), fmt.Sprint(i))
	}
	for i := range n {
		refs := binary.AppendUvarint([]byte{1, 2, 3}, uint64(4+i))
		series := append(protowire.AppendBytes([]byte{0x0a}, refs), protowire.AppendBytes([]byte{0x1a}, hist)...)
		raw = protowire.AppendBytes(append(raw, 0x2a), series)
	}
	return snappy.Encode(nil, raw)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // pools
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestHistogramBomb: what a site makes the regional keep is bounded by its limits, in
// whatever form it comes.
func TestHistogramBomb(t *testing.T) {
	for name, c := range map[string]struct{ series, buckets, pushes int }{
		"wide ones":                 {6000, 10_000, 8},
		"as wide as is taken":       {2000, remotewrite.DefaultBuckets / 2, 8},
		"small ones that then grow": {4000, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := newRig(t.TempDir(), Limits{SamplesPerSecond: 1 << 30}, nowhere)
			if err != nil {
				t.Fatal(err)
			}
			defer r.close()
			now := time.Now().Add(-time.Minute)
			before := heap()
			for i := range c.pushes {
				body := bomb(c.series, c.buckets, fmt.Sprint("bomb", i), now)
				w := r.push(paris, body)
				t.Logf("%d KiB: %d %.200s", len(body)>>10, w.Code, w.Body)
			}
			if c.buckets == 1 {
				w := r.push(paris, bomb(c.series, remotewrite.DefaultBuckets/2, "bomb0", now.Add(time.Second)))
				t.Logf("grown: %d %.300s", w.Code, w.Body)
			}
			// 10,000 ordinary series take about 30 MiB.
			if got := heap() - before; got > 64<<20 {
				t.Errorf("the regional keeps %d MiB", got>>20)
			}
			if st := r.g.memory.status(); st.Used != 0 || st.Peak > st.Total {
				t.Errorf("memory %+v", st)
			}
			if n := r.series.Site(paris); n > 10_000 {
				t.Errorf("%d series", n)
			}
			runtime.KeepAlive(r)
		})
	}
}

// TestHistogramsPayByTheBucket: they use up the rate as what they are.
func TestHistogramsPayByTheBucket(t *testing.T) {
	clock := newClock()
	h := newHarness(t, harnessOptions{limits: Limits{SamplesPerSecond: 100}, change: func(o *Options) { o.Now = clock.now }})
	c := h.client(h.ca.site(t, paris, ""))
	if code, text, _ := h.push(c, remotewrite.ContentTypeV2, bomb(100, 50, "x", clock.now())); code != 204 {
		t.Fatalf("%d %s", code, text)
	}
	// 100 histograms of 100 buckets: 10,100 samples, 3,000 of them from the bucket's burst.
	if code, _, hdr := h.pushSeries(c, many(1, clock.now(), "y")...); code != 429 || hdr.Get("Retry-After") != "71" {
		t.Errorf("%d, Retry-After %s", code, hdr.Get("Retry-After"))
	}
	// What is refused is paid for as well: it was decoded.
	other := h.client(h.ca.site(t, berlin, ""))
	if code, text, _ := h.push(other, remotewrite.ContentTypeV2, bomb(10, 300, "x", clock.now())); code != 400 || !strings.Contains(text, "512") {
		t.Errorf("%d %s", code, text)
	}
	if code, _, _ := h.pushSeries(other, many(1, clock.now(), "y")...); code != 429 {
		t.Errorf("after 10 refused histograms of 600 buckets: %d", code)
	}
}

// wideLabels is n series with as many labels, of as many bytes each.
func wideLabels(n, labelCount, size int, at time.Time) []remotewrite.Series {
	out := make([]remotewrite.Series, n)
	for i := range out {
		kv := []string{"__name__", "wide"}
		for j := range labelCount {
			kv = append(kv, fmt.Sprintf("l%02d", j), fmt.Sprintf("%0*d", size, i*100+j))
		}
		out[i] = sample(at, 1, kv...)
	}
	return out
}

// TestRequestsStayInsideTheirLease: whatever a request is made of, what is allocated for
// it was leased first, and it is given back. What the head keeps is another matter: see
// TestLimitBoundsMemory.
func TestRequestsStayInsideTheirLease(t *testing.T) {
	r, err := newRig(t.TempDir(), Limits{SamplesPerSecond: 1 << 30, Series: 100_000, BodyBytes: 16 << 20}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	r.g.memory.total = 4 << 30
	same := func(b []byte) func(time.Time) []byte {
		b = snappy.Encode(nil, b)
		return func(time.Time) []byte { return b }
	}
	series := func(content []byte) []byte { return protowire.AppendBytes([]byte{0x2a}, content) }
	for name, body := range map[string]func(time.Time) []byte{
		"ordinary":          func(at time.Time) []byte { return remotewrite.EncodeV2(siteSeries(2000, at)) },
		"histograms":        func(at time.Time) []byte { return bomb(500, 100, "h", at) },
		"many labels":       func(at time.Time) []byte { return remotewrite.EncodeV2(wideLabels(500, 50, 8, at)) },
		"long labels":       func(at time.Time) []byte { return remotewrite.EncodeV2(wideLabels(500, 7, 2000, at)) },
		"empty series":      same(bytes.Repeat([]byte{0x2a, 0x00}, 1<<20)),
		"empty symbols":     same(bytes.Repeat([]byte{0x22, 0x00}, 1<<20)),
		"samples of no one": same(bytes.Repeat([]byte{0x2a, 0x02, 0x12, 0x00}, 1<<18)),
		"samples of one":    same(series(bytes.Repeat([]byte{0x12, 0x00}, 1<<19))),
		"exemplars":         same(series(bytes.Repeat([]byte{0x22, 0x00}, 1<<19))),
		"help text":         same(bytes.Repeat([]byte{0x2a, 0x02, 0x2a, 0x00}, 1<<18)),
		"zeros":             same(make([]byte, 8<<20)),
	} {
		now := time.Now()
		r.push(paris, body(now)) // so that the head has the series
		second := body(now.Add(time.Second))
		r.g.pushers = newPusherPool() // without buffers from before
		r.g.memory.peak = 0
		var a, b runtime.MemStats
		runtime.ReadMemStats(&a)
		w := r.push(paris, second)
		runtime.ReadMemStats(&b)
		got, leased := int64(b.TotalAlloc-a.TotalAlloc), r.g.memory.peak
		t.Logf("%s: %d KiB on the wire, %d, allocates %d KiB, leases %d KiB", name, len(second)>>10, w.Code, got>>10, leased>>10)
		if got > 2*leased+2<<20 { // twice: what was garbage at once is in it, too
			t.Errorf("%s: %d KiB on the wire allocate %d KiB, %d are leased", name, len(second)>>10, got>>10, leased>>10)
		}
		if r.g.memory.used != 0 || len(r.g.memory.sites)+len(r.g.memory.tenants) != 0 {
			t.Fatalf("%s: %d bytes are not given back", name, r.g.memory.used)
		}
	}
}

// TestLimitBoundsMemory: what a site may make the head keep is about the same, in
// whatever form it spends its limit.
func TestLimitBoundsMemory(t *testing.T) {
	const limit = 2000
	for name, series := range map[string][]remotewrite.Series{
		"ordinary":       siteSeries(limit, time.Now()),
		"many labels":    wideLabels(limit, 50, 8, time.Now()),
		"long labels":    wideLabels(limit, 7, 2000, time.Now()),
		"distinct names": many(limit, time.Now(), strings.Repeat("n", 1000)),
	} {
		r, err := newRig(t.TempDir(), Limits{SamplesPerSecond: 1 << 30, Series: limit}, nowhere)
		if err != nil {
			t.Fatal(err)
		}
		before := heap()
		for from := 0; from < len(series); from += 500 {
			r.push(paris, remotewrite.EncodeV2(series[from:from+500]))
		}
		got := heap() - before
		t.Logf("%s: %d series, %d KiB", name, r.series.Site(paris), got>>10)
		if got > limit*8<<10 {
			t.Errorf("%s: %d KiB for a limit of %d series", name, got>>10, limit)
		}
		runtime.KeepAlive(series)
		r.close()
	}
}

// TestMemoryIsShared: whoever is greedy, and however many are, the next one gets some.
func TestMemoryIsShared(t *testing.T) {
	m := newMemory(256 << 20)
	take := func(id fleet.SiteID) (got int64, err error) {
		l := lease{m: m, id: id}
		for err == nil {
			err = l.grow(64 << 10)
		}
		return l.n, err
	}
	one, err := take(fleet.SiteID{Tenant: "evil", Name: "0"})
	if one < 60<<20 || one > 64<<20 || !errors.Is(err, errNeverFits) {
		t.Errorf("a site alone gets %d MiB: %v", one>>20, err)
	}
	var of int64
	for i := range 1000 {
		n, err := take(fleet.SiteID{Tenant: "evil", Name: fmt.Sprint(i)})
		if of += n; err == nil {
			t.Fatal("no end")
		}
	}
	if one+of > 86<<20 {
		t.Errorf("a tenant holds %d MiB", (one+of)>>20)
	}
	for i := range 8 {
		for j := range 100 {
			_, _ = take(fleet.SiteID{Tenant: fmt.Sprint("evil-", i), Name: fmt.Sprint(j)})
		}
	}
	if n, err := take(fleet.SiteID{Tenant: "good", Name: "a"}); n < 1<<20 {
		t.Errorf("with nine greedy tenants a site gets %d KiB: %v", n>>10, err)
	}
	if m.used > m.total {
		t.Errorf("%d of %d", m.used, m.total)
	}
}

// TestNeighbourPushesWhileMemoryIsHeld: a site whose requests stand still in their
// bodies holds what it may, and another one's pushes go through.
func TestNeighbourPushesWhileMemoryIsHeld(t *testing.T) {
	h := newHarness(t, harnessOptions{limits: Limits{BodyBytes: 4 << 20}, change: func(o *Options) { o.Memory = 4 << 20 }})
	evil := h.client(h.ca.site(t, paris, ""))
	body, stop := newStuckBody()
	defer stop()
	for range 8 {
		req, _ := http.NewRequest(http.MethodPost, h.url(), struct{ *stuckAfter }{&stuckAfter{n: 300 << 10, then: body}})
		req.Header.Set("Content-Type", remotewrite.ContentTypeV2)
		go func() {
			if resp, err := evil.Do(req); err == nil {
				resp.Body.Close()
			}
		}()
	}
	testkit.EventuallyTrue(t, "the site holds its share", func() bool { return h.g.memory.status().Used > 256<<10 })
	good := h.client(h.ca.site(t, tokyo, ""))
	for range 20 {
		if code, text, _ := h.pushSeries(good, many(200, time.Now(), "x")...); code != 204 {
			t.Fatalf("the neighbour: %d %s", code, text)
		}
	}
	if n := h.g.memory.status().Used; n > h.g.memory.total/4+1<<20 {
		t.Errorf("one site holds %d of %d bytes", n, h.g.memory.total)
	}
}

// stuckAfter gives n bytes, and then what then gives.
type stuckAfter struct {
	n    int
	then *stuckBody
}

func (b *stuckAfter) Read(p []byte) (int, error) {
	if b.n == 0 {
		return b.then.Read(p)
	}
	n := min(len(p), b.n)
	b.n -= n
	return n, nil
}

func TestMemoryRefusal(t *testing.T) {
	r, err := newRig(t.TempDir(), Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	body := remotewrite.EncodeV2(siteSeries(2000, time.Now()))
	check := func(w *httptest.ResponseRecorder, code int, retry bool, want string) {
		t.Helper()
		if w.Code != code || (w.Header().Get("Retry-After") != "") != retry || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d %q %s", w.Code, w.Header().Get("Retry-After"), w.Body)
		}
	}
	full := r.g.memory.total
	r.g.memory.total = 1 << 20
	check(r.push(paris, body), 413, false, "smaller batches")
	r.g.memory.total = full
	other := lease{m: r.g.memory, id: paris}
	for other.grow(1<<20) == nil {
	}
	check(r.push(paris, body), 429, true, "the site's requests hold their share")
	check(r.push(tokyo, body), 204, false, "")
	other.free()
	check(r.push(paris, body), 204, false, "")
}
