package remotewrite

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"google.golang.org/protobuf/encoding/protowire"
)

// wide is a histogram with n buckets.
func wide(n int) *histogram.Histogram {
	h := &histogram.Histogram{Schema: 3, Count: uint64(n), Sum: 1, PositiveSpans: []histogram.Span{{Length: uint32(n)}}, PositiveBuckets: make([]int64, n)}
	h.PositiveBuckets[0] = 1
	return h
}

// TestDecodedMemory: small bytes must not become large memory, and what they become
// is charged for.
func TestDecodedMemory(t *testing.T) {
	series := func(content []byte) []byte { return protowire.AppendBytes([]byte{0x2a}, content) }
	hist := func(content []byte) []byte { return protowire.AppendBytes([]byte{0x1a}, content) }
	wideOnes := func(n, buckets int, float bool) []byte {
		var all []Series
		for range n {
			h := Histogram{T: 1, H: wide(buckets)}
			if float {
				h = Histogram{T: 1, FH: h.H.ToFloat(nil)}
			}
			all = append(all, Series{Histograms: []Histogram{h}})
		}
		var e encoder
		return e.marshalV2(all)
	}
	for name, raw := range map[string][]byte{
		"series":                bytes.Repeat([]byte{0x2a, 0x00}, 1<<19),
		"symbols":               bytes.Repeat([]byte{0x22, 0x00}, 1<<19),
		"samples":               bytes.Repeat([]byte{0x2a, 0x02, 0x12, 0x00}, 1<<18),
		"histograms":            bytes.Repeat([]byte{0x2a, 0x02, 0x1a, 0x00}, 1<<18),
		"exemplars":             bytes.Repeat([]byte{0x2a, 0x02, 0x22, 0x00}, 1<<18),
		"metadata":              bytes.Repeat([]byte{0x2a, 0x02, 0x2a, 0x00}, 1<<18),
		"labels, one series":    series(append([]byte{0x0a, 0xf0, 0xff, 0x3f}, make([]byte, 0xffff0)...)),
		"samples, one series":   series(bytes.Repeat([]byte{0x12, 0x00}, 1<<19)),
		"histograms of one":     series(bytes.Repeat([]byte{0x1a, 0x00}, 1<<19)),
		"exemplars of one":      series(bytes.Repeat([]byte{0x22, 0x00}, 1<<19)),
		"spans of a histogram":  series(hist(bytes.Repeat([]byte{0x5a, 0x00}, 1<<18))),
		"spans of many":         bytes.Repeat(series(hist(bytes.Repeat([]byte{0x5a, 0x00}, 5000))), 100),
		"custom values of many": bytes.Repeat(series(hist(bytes.Repeat([]byte{0x82, 0x01, 0x08, 0, 0, 0, 0, 0, 0, 0, 0}, 1000))), 90),
		"buckets":               wideOnes(1900, DefaultBuckets, false),
		"float buckets":         wideOnes(240, DefaultBuckets, true),
		"too many buckets":      wideOnes(100, 10_000, false),
	} {
		var before, after runtime.MemStats
		var d Decoder
		charged := 0
		d.Charge = func(n int) error { charged += n; return nil }
		runtime.ReadMemStats(&before)
		n := 0
		for d.Reset(raw, true, Limits{}); d.Next(); {
			n++
		}
		runtime.ReadMemStats(&after)
		// All that was allocated, also what was garbage at once. Slices grow by doubling.
		got := int(after.TotalAlloc - before.TotalAlloc)
		if got > charged+64<<10 {
			t.Errorf("%s: %d KiB on the wire allocate %d KiB and are charged %d", name, len(raw)>>10, got>>10, charged>>10)
		}
		t.Logf("%s: %d KiB, %d series, cost %d, allocates %d KiB, charged %d, %v", name, len(raw)>>10, n, d.Cost(), got>>10, charged>>10, d.Err())
	}
}

// TestChargeEndsDecoding: who has no memory for a request says so in the midst of it.
func TestChargeEndsDecoding(t *testing.T) {
	full, left := errors.New("full"), 256<<10
	d := Decoder{Charge: func(n int) error {
		if left -= n; left < 0 {
			return full
		}
		return nil
	}}
	n := 0
	for d.Reset(bytes.Repeat([]byte{0x2a, 0x02, 0x12, 0x00}, 1<<18), true, Limits{}); d.Next(); {
		n++
	}
	if !errors.Is(d.Err(), full) || n == 0 || n > 256<<10/sampleBytes {
		t.Errorf("%d series, %v", n, d.Err())
	}
}

// TestHistogramsCostByBucket: a histogram is not one sample.
func TestHistogramsCostByBucket(t *testing.T) {
	for _, buckets := range []int{1, 10, DefaultBuckets, DefaultBuckets + 1, 10_000} {
		raw := new(encoder)
		var d Decoder
		bad := 0
		for d.Reset(raw.marshalV2([]Series{{Histograms: []Histogram{{T: 1, H: wide(buckets)}}}}), true, Limits{}); d.Next(); {
			if d.Bad != nil {
				bad++
			}
		}
		if d.Err() != nil || (bad == 1) != (buckets > DefaultBuckets) {
			t.Errorf("%d buckets: %d bad, %v", buckets, bad, d.Err())
		}
		if d.Cost() < min(buckets, DefaultBuckets)+1 {
			t.Errorf("%d buckets cost %d", buckets, d.Cost())
		}
	}
}
