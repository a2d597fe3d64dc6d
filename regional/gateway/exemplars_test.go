package gateway

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gogo/protobuf/proto"
	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/storage"

	"muster.dev/muster/internal/remotewrite"
)

// exemplars returns what the engine keeps, as "series: labels value".
func (h *harness) exemplars() []string {
	h.t.Helper()
	q, err := h.edge.Storage().(interface {
		storage.ExemplarQueryable
	}).ExemplarQuerier(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	res, err := q.Select(0, math.MaxInt64, []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "site", "paris")})
	if err != nil {
		h.t.Fatal(err)
	}
	var out []string
	for _, s := range res {
		for _, e := range s.Exemplars {
			out = append(out, s.SeriesLabels.Get("__name__")+": "+e.Labels.String())
		}
	}
	return out
}

// TestExemplarsAreKept, of both protocols; what is wrong with them harms no sample.
func TestExemplarsAreKept(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	c := h.client(h.ca.site(t, paris, ""))
	now := time.Now().UnixMilli()
	v1, err := proto.Marshal(&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels: []prompb.Label{{Name: "__name__", Value: "v1"}}, Samples: []prompb.Sample{{Value: 1, Timestamp: now}},
		Exemplars: []prompb.Exemplar{{Labels: []prompb.Label{{Name: "trace_id", Value: "abc"}}, Value: 1, Timestamp: now}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if code, text, _ := h.push(c, remotewrite.ContentTypeV1, snappy.Encode(nil, v1)); code != 204 {
		t.Errorf("%d %s", code, text)
	}
	long := strings.Repeat("x", 2000)
	v2, err := proto.Marshal(&writev2.Request{Symbols: []string{"", "__name__", "v2", "trace_id", "def", long, "other"}, Timeseries: []writev2.TimeSeries{
		{LabelsRefs: []uint32{1, 2}, Samples: []writev2.Sample{{Value: 1, Timestamp: now}}, Exemplars: []writev2.Exemplar{
			{LabelsRefs: []uint32{3, 4}, Value: 2, Timestamp: now},
			{LabelsRefs: []uint32{3, 5}, Value: 3, Timestamp: now + 1},     // too long
			{LabelsRefs: []uint32{3}, Value: 4, Timestamp: now + 2},        // odd
			{LabelsRefs: []uint32{3, 4}, Value: 5, Timestamp: 1 << 60},     // in the future
			{LabelsRefs: []uint32{3, 4}, Value: 6, Timestamp: now - 10000}, // out of order
		}},
		{LabelsRefs: []uint32{1, 6}, Exemplars: []writev2.Exemplar{{LabelsRefs: []uint32{3, 4}, Value: 7, Timestamp: now}}}, // of a series without samples
	}})
	if err != nil {
		t.Fatal(err)
	}
	code, text, hdr := h.push(c, remotewrite.ContentTypeV2, snappy.Encode(nil, v2))
	if code != 400 || hdr.Get("X-Prometheus-Remote-Write-Samples-Written") != "1" || hdr.Get("X-Prometheus-Remote-Write-Exemplars-Written") != "1" {
		t.Errorf("%d %s %v", code, text, hdr)
	}
	if got := h.exemplars(); len(got) != 2 || got[0] != `v1: {trace_id="abc"}` || got[1] != `v2: {trace_id="def"}` {
		t.Errorf("kept %q", got)
	}
}

// TestOneSiteCantTurnTheRing: exemplars of all sites share one ring.
func TestOneSiteCantTurnTheRing(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	now := time.Now()
	flood := func() []byte {
		req := writev2.Request{Symbols: []string{"", "__name__", "flood", "trace_id", "x"}}
		for i := range 2000 {
			req.Symbols = append(req.Symbols, "i"+strings.Repeat("i", i%50)+string(rune('a'+i%26)))
			req.Timeseries = append(req.Timeseries, writev2.TimeSeries{LabelsRefs: []uint32{1, 2, 3, uint32(5 + i)}, Samples: []writev2.Sample{{Value: 1, Timestamp: now.UnixMilli()}},
				Exemplars: []writev2.Exemplar{{LabelsRefs: []uint32{3, 4}, Value: float64(i), Timestamp: now.UnixMilli()}}})
		}
		b, err := proto.Marshal(&req)
		if err != nil {
			t.Fatal(err)
		}
		return snappy.Encode(nil, b)
	}
	one, _ := proto.Marshal(&writev2.Request{Symbols: []string{"", "__name__", "mine", "trace_id", "y"}, Timeseries: []writev2.TimeSeries{{
		LabelsRefs: []uint32{1, 2}, Samples: []writev2.Sample{{Value: 1, Timestamp: now.UnixMilli()}}, Exemplars: []writev2.Exemplar{{LabelsRefs: []uint32{3, 4}, Value: 1, Timestamp: now.UnixMilli()}}}}})
	if code, text, _ := h.push(h.client(h.ca.site(t, paris, "")), remotewrite.ContentTypeV2, snappy.Encode(nil, one)); code != 204 {
		t.Fatalf("%d %s", code, text)
	}
	evil := h.client(h.ca.site(t, tokyo, ""))
	for range 3 {
		h.push(evil, remotewrite.ContentTypeV2, flood())
	}
	if got := h.exemplars(); len(got) != 1 {
		t.Errorf("the neighbour's exemplars: %q", got)
	}
}
