package gateway

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/storage"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
)

// twoWays is one gateway that forwards as regionals do, and one that encodes all anew. What
// both gave is in raw and whole.
type twoWays struct {
	fast, slow *rig
	raw, whole []remotewrite.Series
	raws       int // pushes that went on as they came
}

func newTwoWays(tb testing.TB, limits Limits) *twoWays {
	w := &twoWays{}
	take := func(into *[]remotewrite.Series, rec []byte) (func() error, error) {
		key, series, err := remotewrite.Decode(rec)
		if err != nil || key != "acme" {
			panic(fmt.Sprint(key, err))
		}
		for _, s := range series {
			if s.Labels.Get("site") != "paris" || s.Labels.Get("tenant") != "acme" || s.Labels.Get("region") != "eu-west" || s.Labels.Get("__name__") == "" {
				panic(s.Labels.String())
			}
		}
		*into = append(*into, series...)
		return nil, nil
	}
	open := func(into *[]remotewrite.Series) *rig {
		r, err := newRig(tb.TempDir(), limits, func(tenant string, series []remotewrite.Series) (func() error, error) {
			return take(into, remotewrite.Encode(tenant, 0, series))
		})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(r.close)
		return r
	}
	w.fast, w.slow = open(&w.raw), open(&w.whole)
	w.fast.g.opts.ForwardRaw = func(site fleet.SiteID, raw remotewrite.Raw) (func() error, error) {
		w.raws++
		rec := remotewrite.AppendRaw(nil, site.Tenant, 0, raw)
		before := len(w.raw)
		done, err := take(&w.raw, rec)
		info, _ := remotewrite.Inspect(rec)
		n, first, last := 0, int64(1<<62), int64(-1<<62)
		at := func(t int64) { n, first, last = n+1, min(first, t), max(last, t) }
		for _, s := range w.raw[before:] {
			for _, v := range s.Samples {
				at(v.T)
			}
			for _, v := range s.Histograms {
				at(v.T)
			}
		}
		if n != info.All() || first != info.MinT || last != info.MaxT {
			panic(fmt.Sprintf("%+v says its record, it has %d samples from %d to %d", info, n, first, last))
		}
		return done, err
	}
	return w
}

// push pushes to both, and says what is different: the empty string is nothing.
func (w *twoWays) push(contentType string, body []byte) (code int, different string) {
	w.raw, w.whole = nil, nil
	one := func(g *Gateway) *httptest.ResponseRecorder {
		req := httptest.NewRequest(http.MethodPost, "/api/v1/push", bytes.NewReader(body))
		req.Header.Set("Content-Type", contentType)
		rec := httptest.NewRecorder()
		g.handlePush(rec, req.WithContext(context.WithValue(req.Context(), callerKey{}, caller{site: paris, region: "eu-west"})))
		return rec
	}
	a, b := one(w.fast.g), one(w.slow.g)
	if a.Code != b.Code || a.Body.String() != b.Body.String() {
		return a.Code, fmt.Sprintf("%d %s, and %d %s", a.Code, a.Body, b.Code, b.Body)
	}
	if raw, whole := flat(w.raw), flat(w.whole); raw != whole {
		return a.Code, fmt.Sprintf("forwarded:\n%s\nand:\n%s", raw, whole)
	}
	return a.Code, ""
}

// flat is each sample with its series, sorted: a request of ours has a series once.
func flat(all []remotewrite.Series) string {
	var out []string
	for _, s := range all {
		meta := s.Metadata
		meta.Type = cmp.Or(meta.Type, "unknown")
		for _, v := range s.Samples {
			out = append(out, fmt.Sprintf("%s %v %d %x", s.Labels, meta, v.T, v.V))
		}
		for _, h := range s.Histograms {
			out = append(out, fmt.Sprintf("%s %v %d %v %v", s.Labels, meta, h.T, h.H, h.FH))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// What a site pushes goes on as it came where that is the same, and is encoded anew where not.
func TestPushesGoOnAsTheyCame(t *testing.T) {
	w := newTwoWays(t, Limits{Labels: 8})
	now := time.Now().Truncate(time.Second)
	v2 := func(change func(*writev2.Request)) []byte {
		r := &writev2.Request{Symbols: []string{"", "__name__", "up", "zone", "a", "site", "forged", "help"}, Timeseries: []writev2.TimeSeries{
			{LabelsRefs: []uint32{1, 2, 3, 4}, Samples: []writev2.Sample{{Value: 1, Timestamp: now.UnixMilli()}}, Metadata: writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_GAUGE, HelpRef: 7}},
			{LabelsRefs: []uint32{1, 2}, Samples: []writev2.Sample{{Value: 1, Timestamp: now.UnixMilli() - 5}, {Value: 2, Timestamp: now.UnixMilli()}}},
		}}
		change(r)
		raw, err := r.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return snappy.Encode(nil, raw)
	}
	histogram := writev2.FromIntHistogram(now.UnixMilli(), &histogram.Histogram{Count: 3, Sum: 4, Schema: 1, PositiveSpans: []histogram.Span{{Length: 2}}, PositiveBuckets: []int64{1, 1}})
	for _, k := range []struct {
		name   string
		ct     string
		body   []byte
		code   int
		asCame bool
	}{
		{"as it should", "", v2(func(*writev2.Request) {}), 204, true},
		{"again", "", v2(func(*writev2.Request) {}), 204, true},
		{"a histogram", "", v2(func(r *writev2.Request) {
			r.Timeseries[0].Samples, r.Timeseries[0].Histograms = nil, []writev2.Histogram{histogram}
			r.Timeseries[0].LabelsRefs = []uint32{1, 4}
		}), 204, true},
		{"an exemplar", "", v2(func(r *writev2.Request) {
			r.Timeseries[0].Exemplars = []writev2.Exemplar{{LabelsRefs: []uint32{3, 4}, Value: 1, Timestamp: now.UnixMilli()}}
		}), 204, true},
		{"a label of the stamp", "", v2(func(r *writev2.Request) { r.Timeseries[1].LabelsRefs = []uint32{1, 2, 5, 6} }), 204, false},
		{"another order", "", v2(func(r *writev2.Request) { r.Timeseries[0].LabelsRefs = []uint32{3, 4, 1, 2} }), 204, false},
		{"an empty value", "", v2(func(r *writev2.Request) { r.Timeseries[1].LabelsRefs = []uint32{1, 2, 3, 0} }), 204, false},
		{"a series is refused", "", v2(func(r *writev2.Request) { r.Timeseries[1].LabelsRefs = []uint32{3, 4} }), 400, false},
		{"a sample is refused", "", v2(func(r *writev2.Request) { r.Timeseries[1].Samples[0].Timestamp = 1 << 60 }), 400, false},
		{"another value for a sample", "", v2(func(r *writev2.Request) { r.Timeseries[0].Samples[0].Value = 7 }), 400, false},
		{"a series without samples", "", v2(func(r *writev2.Request) { r.Timeseries[1].Samples = nil }), 400, false},
		{"a long help", "", v2(func(r *writev2.Request) { r.Symbols[7] = strings.Repeat("h", maxHelp+1) }), 204, false},
		{"1.0", remotewrite.ContentTypeV1, remotewrite.EncodeV1([]remotewrite.Series{sample(now, 1, "__name__", "up", "zone", "a")}), 204, false},
	} {
		w.raws = 0
		code, different := w.push(cmp.Or(k.ct, remotewrite.ContentTypeV2), k.body)
		if code != k.code || different != "" || (w.raws == 1) != k.asCame {
			t.Errorf("%s: %d, went on as it came: %t; %s", k.name, code, w.raws == 1, different)
		}
		if len(w.whole) == 0 {
			t.Errorf("%s: nothing is forwarded", k.name)
		}
	}
}

// FuzzPush: any bytes, as a body and as an uncompressed request of both
// protocols, get an answer; what goes on carries the site's identity, and is the same
// whether it goes on as it came or not.
func FuzzPush(f *testing.F) {
	series := []remotewrite.Series{sample(time.Now(), 1, "__name__", "up", "site", "forged"), sample(time.Now(), 1, "__name__", "up")}
	for _, s := range [][]remotewrite.Series{series, series[1:]} {
		for _, enc := range [][]byte{remotewrite.EncodeV1(s), remotewrite.EncodeV2(s)} {
			f.Add(enc)
			raw, _ := snappy.Decode(nil, enc)
			f.Add(raw)
		}
	}
	for _, s := range []string{"\x2a\x04\x1a\x02\x20\x63", "\x0a\x06\x22\x04\x10\x01\x18\x05", "\x2a\x00", "\x22\x01a\x2a\x04\x0a\x02\x00\x01"} {
		f.Add([]byte(s))
	}
	w := newTwoWays(f, Limits{Series: 1 << 30, SamplesPerSecond: 1 << 30, RawBytes: 1 << 20})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, body := range [][]byte{b, snappy.Encode(nil, b)} {
			for _, ct := range []string{remotewrite.ContentTypeV1, remotewrite.ContentTypeV2} {
				code, different := w.push(ct, body)
				if code != 204 && code != 400 && code != 413 || different != "" {
					t.Fatalf("%d %s", code, different)
				}
			}
		}
	})
}

// The cache finds what a map does, in whatever order a site sends its series.
func TestSeriesCacheInAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var c seriesCache
	have, order := map[uint64]uint64{}, []uint64{}
	for push := range uint64(300) {
		switch push % 3 {
		case 0: // others come, some go
			for range r.IntN(20) {
				order = slices.Insert(order, r.IntN(len(order)+1), 1+r.Uint64N(2000))
			}
			gone := r.Uint64N(50)
			c.sweep(func(s *cached) bool {
				if s.hash%50 == gone {
					delete(have, s.hash)
				}
				return s.hash%50 == gone
			})
		case 1:
			if n := len(order); n > 2 {
				from := r.IntN(n)
				order = slices.Concat(order[from:], order[:from])
			}
		}
		c.begin()
		for _, hash := range order {
			got := c.get(hash)
			if want, ok := have[hash]; ok != (got != nil) || ok && (got.hash != hash || uint64(got.ref) != want) {
				t.Fatalf("push %d, series %d: %+v, want %d, %t", push, hash, got, want, ok)
			}
			if got == nil {
				have[hash] = push + 1
				c.add(cached{hash: hash, ref: storage.SeriesRef(1 + push), labels: labels.FromStrings("i", fmt.Sprint(hash))})
			}
		}
		if c.len() != len(have) {
			t.Fatalf("%d are kept, want %d", c.len(), len(have))
		}
	}
	// A push in the order of the one before looks nothing up but the first.
	slices.Sort(order)
	order = slices.Compact(order)
	for range 2 {
		c.begin()
		for i, hash := range order {
			if c.get(hash) == nil {
				t.Fatalf("series %d of %d is not found by the one before it", i, len(order))
			}
		}
		first := c.find(order[0])
		clear(c.index)
		c.enter(first)
	}
}
