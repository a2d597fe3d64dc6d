package remotewrite

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

func nativeHistogram() *histogram.Histogram {
	return &histogram.Histogram{
		Schema: 3, Count: 6, Sum: 12.5, ZeroThreshold: 1e-128, ZeroCount: 1,
		PositiveSpans: []histogram.Span{{Offset: 0, Length: 2}, {Offset: 3, Length: 1}}, PositiveBuckets: []int64{1, 1, 0},
	}
}

// batch looks like what a scrape of a node gives.
func batch(n int, t int64) []Series {
	out := make([]Series, 0, n)
	for i := range n {
		out = append(out, Series{
			Labels: labels.FromStrings("__name__", fmt.Sprintf("node_metric_%d_total", i/20), "device", fmt.Sprintf("eth%d", i%20),
				"instance", "127.0.0.1:9100", "job", "node"),
			Metadata: Metadata{Type: "counter"},
			Samples:  []Sample{{T: t, V: float64(i) * 1.25}},
		})
	}
	return out
}

func mixed() []Series {
	s := batch(3, 1000)
	s[0].Samples = append(s[0].Samples, Sample{T: 2000, V: math.Inf(1)})
	s[0].Metadata = Metadata{Type: "gauge", Unit: "bytes", Help: "Some help."}
	s[1].Samples = nil
	s[1].Metadata = Metadata{}
	s[1].Histograms = []Histogram{{T: 500, H: nativeHistogram()}, {T: 900, FH: nativeHistogram().ToFloat(nil)}}
	return s
}

// equal compares by value; NaN payloads matter, since StaleNaN is one.
func equal(t *testing.T, got, want []Series) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d series, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := got[i], want[i]
		if !labels.Equal(g.Labels, w.Labels) || len(g.Samples) != len(w.Samples) || len(g.Histograms) != len(w.Histograms) {
			t.Fatalf("series %d: got %+v, want %+v", i, g, w)
		}
		gm, wm := g.Metadata, w.Metadata
		if wm.Type == "" {
			wm.Type = "unknown"
		}
		if gm.Type == "" {
			gm.Type = "unknown"
		}
		if gm != wm {
			t.Errorf("series %d: metadata %+v, want %+v", i, gm, wm)
		}
		for j := range w.Samples {
			if g.Samples[j].T != w.Samples[j].T || math.Float64bits(g.Samples[j].V) != math.Float64bits(w.Samples[j].V) {
				t.Errorf("series %d: sample %+v, want %+v", i, g.Samples[j], w.Samples[j])
			}
		}
		for j, h := range w.Histograms {
			d := g.Histograms[j]
			if d.T != h.T || (h.H != nil && !h.H.Equals(d.H)) || (h.FH != nil && !h.FH.Equals(d.FH)) {
				t.Errorf("series %d: histogram %+v, want %+v", i, d, h)
			}
		}
	}
}

func TestRoundTrip(t *testing.T) {
	in := mixed()
	in[2].Samples[0].V = math.Float64frombits(value.StaleNaN)
	rec := Encode("acme", 3, in)
	key, out, err := Decode(rec)
	if err != nil || key != "acme" {
		t.Fatal(key, err)
	}
	equal(t, out, in)
	info, err := Inspect(rec)
	want := Info{Key: "acme", Lane: 3, Series: 3, Samples: 3, Histograms: 2, MinT: 500, MaxT: 2000, EncodedBytes: info.EncodedBytes}
	if err != nil || info != want || info.EncodedBytes == 0 {
		t.Errorf("info %+v, %v", info, err)
	}
	if again := Encode("acme", 3, in); string(again) != string(rec) {
		t.Error("equal batches are not equal bytes")
	}
	for _, ct := range []string{ContentTypeV2, "application/x-protobuf; proto=io.prometheus.write.v2.Request"} {
		out, err = decodeRequest(ct, EncodeV2(in))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, out, in)
	}
	for i := range in {
		in[i].Metadata = Metadata{} // 1.0 does not carry it
	}
	for _, ct := range []string{ContentTypeV1, "", "application/x-protobuf;proto=prometheus.WriteRequest"} {
		out, err = decodeRequest(ct, EncodeV1(in))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, out, in)
	}
	if key, out, err = Decode(Encode("", 3, nil)); key != "" || len(out) != 0 || err != nil {
		t.Error(key, out, err)
	}
}

// decodeRequest is what a receiver does.
func decodeRequest(contentType string, body []byte) ([]Series, error) {
	v2, err := IsV2(contentType)
	if err != nil {
		return nil, err
	}
	return decodeBody(body, v2)
}

func TestDecodeRefuses(t *testing.T) {
	v2 := func(change func(*writev2.Request)) []byte {
		r := writev2.Request{
			Symbols:    []string{"", "__name__", "up", "a", "b"},
			Timeseries: []writev2.TimeSeries{{LabelsRefs: []uint32{1, 2, 3, 4}, Samples: []writev2.Sample{{Value: 1, Timestamp: 1}}}},
		}
		change(&r)
		raw, err := r.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return snappy.Encode(nil, raw)
	}
	refs := func(r ...uint32) []byte {
		return v2(func(q *writev2.Request) { q.Timeseries[0].LabelsRefs = r })
	}
	for name, tc := range map[string]struct {
		contentType string
		body        []byte
		err         error
	}{
		"not protobuf":      {"text/plain", nil, ErrMediaType},
		"another message":   {"application/x-protobuf;proto=x.Y", nil, ErrMediaType},
		"not snappy":        {ContentTypeV2, []byte("hello"), ErrMalformed},
		"not a message":     {ContentTypeV2, snappy.Encode(nil, []byte("hello")), ErrMalformed},
		"huge claim":        {ContentTypeV2, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}, ErrTooLarge},
		"odd references":    {ContentTypeV2, refs(1, 2, 3), ErrMalformed},
		"reference outside": {ContentTypeV2, refs(1, 2, 3, 99), ErrMalformed},
		"largest reference": {ContentTypeV2, refs(1, math.MaxUint32), ErrMalformed},
		"no name":           {ContentTypeV2, refs(3, 4), ErrMalformed},
		"empty name":        {ContentTypeV2, refs(1, 0), ErrMalformed},
		"label twice":       {ContentTypeV2, refs(1, 2, 3, 4, 3, 4), ErrMalformed},
		"metadata outside":  {ContentTypeV2, v2(func(q *writev2.Request) { q.Timeseries[0].Metadata.HelpRef = 77 }), ErrMalformed},
		"spans without buckets": {ContentTypeV2, v2(func(q *writev2.Request) {
			h := nativeHistogram()
			h.PositiveBuckets = h.PositiveBuckets[:1]
			q.Timeseries[0].Histograms = []writev2.Histogram{writev2.FromIntHistogram(1, h)}
		}), ErrMalformed},
		"span of all memory": {ContentTypeV2, v2(func(q *writev2.Request) {
			h := nativeHistogram()
			h.PositiveSpans[0].Length = math.MaxUint32
			q.Timeseries[0].Histograms = []writev2.Histogram{writev2.FromIntHistogram(1, h)}
		}), ErrMalformed},
		"count that is wrong": {ContentTypeV2, v2(func(q *writev2.Request) {
			h := nativeHistogram()
			h.Count = 1
			q.Timeseries[0].Histograms = []writev2.Histogram{writev2.FromIntHistogram(1, h)}
		}), ErrMalformed},
	} {
		_, err := decodeRequest(tc.contentType, tc.body)
		if !errors.Is(err, tc.err) || strings.Contains(fmt.Sprint(err), "\n") {
			t.Errorf("%s: err = %v, want %v", name, err, tc.err)
		}
	}
	for _, rec := range []string{"", "\x02", "\x01", "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x01\x05ab", "\x01\x00\x01\x01"} {
		if _, _, err := Decode([]byte(rec)); !errors.Is(err, ErrMalformed) {
			t.Errorf("record %q: err = %v", rec, err)
		}
	}
}

// TestEmptyLabelsAreNone: a label with an empty value is no label.
func TestEmptyLabelsAreNone(t *testing.T) {
	r := writev2.Request{Symbols: []string{"", "__name__", "up", "a"}, Timeseries: []writev2.TimeSeries{{LabelsRefs: []uint32{1, 2, 3, 0}}}}
	raw, _ := r.Marshal()
	got, err := decodeBody(snappy.Encode(nil, raw), true)
	if err != nil || got[0].Labels.String() != `{__name__="up"}` {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode("acme", 3, mixed()))
	f.Add(Encode("", 3, nil))
	f.Fuzz(func(t *testing.T, rec []byte) {
		key, series, err := Decode(rec)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrTooLarge) {
				t.Errorf("err = %v", err)
			}
			return
		}
		key2, again, err := Decode(Encode(key, 7, series))
		if err != nil || key2 != key || len(again) != len(series) {
			t.Fatalf("%q, %d series, %v; was %q, %d", key2, len(again), err, key, len(series))
		}
	})
}

func FuzzDecoder(f *testing.F) {
	for _, v2 := range []bool{false, true} {
		for _, s := range [][]Series{mixed(), batch(2, 5)} {
			raw, err := snappy.Decode(nil, map[bool][]byte{false: EncodeV1(s), true: EncodeV2(s)}[v2])
			if err != nil {
				f.Fatal(err)
			}
			f.Add(v2, raw)
		}
	}
	f.Fuzz(func(t *testing.T, v2 bool, raw []byte) {
		series, err := decodeRaw(raw, v2, Limits{Exemplars: 4})
		if err != nil {
			return
		}
		for _, s := range series {
			if s.Labels.Get("__name__") == "" {
				t.Errorf("series without a name: %v", s.Labels)
			}
			for _, h := range s.Histograms { // code that uses histograms trusts them
				if h.H != nil {
					h.H.ToFloat(nil)
				} else {
					_ = h.FH.String()
				}
			}
		}
		_, out, err := Decode(Encode("k", 3, series))
		if err != nil || len(out) != len(series) {
			t.Fatalf("what was accepted can't be encoded: %v", err)
		}
	})
}

// TestBytesPerSample is the budget on the wire: labels are most of it.
func TestBytesPerSample(t *testing.T) {
	const n = 2000
	if got := float64(len(EncodeV2(batch(n, 1_700_000_000_000)))) / n; got > 20 {
		t.Errorf("%.1f bytes a sample", got)
	} else {
		t.Logf("%.1f bytes a sample", got)
	}
}

func TestDecodeDoesNotAlias(t *testing.T) {
	rec := Encode("k", 3, batch(5, 1))
	_, a, err := Decode(rec)
	if err != nil {
		t.Fatal(err)
	}
	clear(rec)
	if _, b, err := Decode(Encode("k", 3, batch(5, 1))); err != nil || !reflect.DeepEqual(a, b) {
		t.Error("decoded series change with the record's bytes", err)
	}
}

func BenchmarkEncode2000(b *testing.B) {
	s := batch(2000, 1_700_000_000_000)
	b.ReportAllocs()
	var n int
	for b.Loop() {
		n = len(Encode("", 3, s))
	}
	b.ReportMetric(float64(n)/2000, "B/sample")
}

func BenchmarkDecode2000(b *testing.B) {
	rec := Encode("", 3, batch(2000, 1_700_000_000_000))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Decode(rec); err != nil {
			b.Fatal(err)
		}
	}
}
