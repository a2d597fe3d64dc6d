package remotewrite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"mime"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"google.golang.org/protobuf/encoding/protowire"
)

// Content types of the two protocols.
const (
	ContentTypeV1 = "application/x-protobuf"
	ContentTypeV2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
)

// Errors of the decoders, for errors.Is.
var (
	ErrMediaType = errors.New("unsupported media type") // answer 415
	ErrMalformed = errors.New("malformed request")      // answer 400
	ErrTooLarge  = errors.New("request too large")      // answer 413
)

// Limits bound what a decoder accepts, and with it the memory it takes. A request
// grows when it is decoded: by its compression, and because label strings are
// shared in it and not afterwards.
type Limits struct {
	Bytes  int // of the uncompressed request; default 32 MiB
	Series int // default 1,000,000
}

// Limits of one series, which no honest sender comes near.
const (
	maxSeriesLabels     = 256
	maxSeriesLabelBytes = 64 << 10
	maxBuckets          = 10_000
)

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = 32 << 20
	}
	if l.Series <= 0 {
		l.Series = 1_000_000
	}
	return l
}

// Decode is the inverse of Encode. It is safe on any bytes.
func Decode(rec []byte) (key string, series []Series, err error) {
	info, body, err := split(rec)
	if err != nil {
		return "", nil, err
	}
	series, err = DecodeV2(body, Limits{Bytes: 256 << 20, Series: 10_000_000})
	return info.Key, series, err
}

// Inspect returns what a spool record says about itself without decoding it.
func Inspect(rec []byte) (Info, error) {
	info, _, err := split(rec)
	return info, err
}

// split returns the header and the request body of a spool record.
func split(rec []byte) (Info, []byte, error) {
	bad := func(what string) (Info, []byte, error) {
		return Info{}, nil, fmt.Errorf("spool record: %s: %w", what, ErrMalformed)
	}
	if len(rec) == 0 || rec[0] != recordVersion {
		return bad("unknown version")
	}
	b := rec[1:]
	uvarint := func() (uint64, bool) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, false
		}
		b = b[n:]
		return v, true
	}
	n, ok := uvarint()
	if !ok || n > uint64(len(b)) {
		return bad("key")
	}
	info := Info{Key: string(b[:n])}
	b = b[n:]
	for _, p := range []*int{&info.Series, &info.Samples, &info.Histograms} {
		v, ok := uvarint()
		if !ok || v > 1<<40 {
			return bad("counts")
		}
		*p = int(v)
	}
	for _, p := range []*int64{&info.MinT, &info.MaxT} {
		v, n := binary.Varint(b)
		if n <= 0 {
			return bad("times")
		}
		*p, b = v, b[n:]
	}
	info.EncodedBytes = len(b)
	return info, b, nil
}

// DecodeRequest decodes the body of a remote write request, 1.0 or 2.0 by its
// Content-Type. It is safe on any bytes.
func DecodeRequest(contentType string, body []byte, lim Limits) ([]Series, error) {
	v2, err := IsV2(contentType)
	if err != nil {
		return nil, err
	}
	if v2 {
		return DecodeV2(body, lim)
	}
	return DecodeV1(body, lim)
}

// IsV2 tells the two protocols apart by Content-Type. No Content-Type is 1.0.
func IsV2(contentType string) (bool, error) {
	if contentType == "" {
		return false, nil
	}
	mt, params, err := mime.ParseMediaType(contentType)
	if err != nil || mt != "application/x-protobuf" {
		return false, fmt.Errorf("content type %q: want application/x-protobuf: %w", contentType, ErrMediaType)
	}
	switch params["proto"] {
	case "", "prometheus.WriteRequest":
		return false, nil
	case "io.prometheus.write.v2.Request":
		return true, nil
	default:
		return false, fmt.Errorf("message %q: want prometheus.WriteRequest or io.prometheus.write.v2.Request: %w", params["proto"], ErrMediaType)
	}
}

// uncompress also counts the series, field num of the request, before anything
// is allocated for them.
func uncompress(body []byte, num protowire.Number, lim Limits) ([]byte, error) {
	n, err := snappy.DecodedLen(body)
	if err != nil {
		return nil, fmt.Errorf("snappy: %w: %w", err, ErrMalformed)
	}
	if n > lim.Bytes {
		return nil, fmt.Errorf("%d bytes uncompressed, want at most %d: %w", n, lim.Bytes, ErrTooLarge)
	}
	raw, err := snappy.Decode(nil, body)
	if err != nil {
		return nil, fmt.Errorf("snappy: %w: %w", err, ErrMalformed)
	}
	series := 0
	for b := raw; len(b) > 0; {
		field, _, n := protowire.ConsumeField(b)
		if n < 0 {
			return nil, fmt.Errorf("protobuf: %w: %w", protowire.ParseError(n), ErrMalformed)
		}
		if field == num {
			series++
		}
		b = b[n:]
	}
	if series > lim.Series {
		return nil, fmt.Errorf("%d series in one request, want at most %d: %w", series, lim.Series, ErrTooLarge)
	}
	return raw, nil
}

// DecodeV2 decodes the body of a remote write 2.0 request.
func DecodeV2(body []byte, lim Limits) ([]Series, error) {
	raw, err := uncompress(body, 5, lim.withDefaults())
	if err != nil {
		return nil, err
	}
	var req writev2.Request
	if err := req.Unmarshal(raw); err != nil {
		return nil, fmt.Errorf("protobuf: %w: %w", err, ErrMalformed)
	}
	out := make([]Series, 0, len(req.Timeseries))
	b := labels.NewScratchBuilder(16)
	for i := range req.Timeseries {
		ts := &req.Timeseries[i]
		s := Series{}
		if s.Labels, err = labelsV2(&b, ts.LabelsRefs, req.Symbols); err != nil {
			return nil, fmt.Errorf("series %d: %w", i, err)
		}
		m := ts.Metadata
		if int(max(m.HelpRef, m.UnitRef)) >= len(req.Symbols) && max(m.HelpRef, m.UnitRef) > 0 {
			return nil, fmt.Errorf("series %d: metadata outside of the symbols: %w", i, ErrMalformed)
		}
		if m.Type != 0 || m.HelpRef != 0 || m.UnitRef != 0 {
			s.Metadata = ts.ToMetadata(symbolsOrEmpty(req.Symbols))
		}
		if len(ts.Samples) > 0 {
			s.Samples = make([]Sample, len(ts.Samples))
			for j, p := range ts.Samples {
				s.Samples[j] = Sample{T: p.Timestamp, V: p.Value}
			}
		}
		for _, h := range ts.Histograms {
			var d Histogram
			if h.IsFloatHistogram() {
				d = Histogram{T: h.Timestamp, FH: h.ToFloatHistogram()}
			} else {
				d = Histogram{T: h.Timestamp, H: h.ToIntHistogram()}
			}
			if err := d.validate(); err != nil {
				return nil, fmt.Errorf("series %s: %w", s.Labels, err)
			}
			s.Histograms = append(s.Histograms, d)
		}
		out = append(out, s)
	}
	return out, nil
}

func symbolsOrEmpty(s []string) []string {
	if len(s) == 0 {
		return []string{""}
	}
	return s
}

func labelsV2(b *labels.ScratchBuilder, refs []uint32, symbols []string) (labels.Labels, error) {
	if len(refs)%2 != 0 || len(refs) > 2*maxSeriesLabels {
		return labels.Labels{}, fmt.Errorf("%d label references, want an even number up to %d: %w", len(refs), 2*maxSeriesLabels, ErrMalformed)
	}
	size := 0
	b.Reset()
	for i := 0; i < len(refs); i += 2 {
		name, value := refs[i], refs[i+1]
		if int64(name) >= int64(len(symbols)) || int64(value) >= int64(len(symbols)) {
			return labels.Labels{}, fmt.Errorf("label outside of the symbols: %w", ErrMalformed)
		}
		if symbols[value] == "" {
			continue // an empty label is no label
		}
		size += len(symbols[name]) + len(symbols[value])
		b.Add(symbols[name], symbols[value])
	}
	return finishLabels(b, size)
}

// finishLabels sorts the labels and refuses those that can't name a series: the
// checks that a TSDB makes too, so that no writer has to trust a sender.
func finishLabels(b *labels.ScratchBuilder, size int) (labels.Labels, error) {
	if size > maxSeriesLabelBytes {
		return labels.Labels{}, fmt.Errorf("%d bytes of labels, want at most %d: %w", size, maxSeriesLabelBytes, ErrMalformed)
	}
	b.Sort()
	ls := b.Labels()
	if name, dup := ls.HasDuplicateLabelNames(); dup {
		return labels.Labels{}, fmt.Errorf("label %q twice: %w", name, ErrMalformed)
	}
	if !ls.Has(labels.MetricName) || !ls.IsValid(model.UTF8Validation) {
		return labels.Labels{}, fmt.Errorf("labels %.200q: no metric name, or one that is not valid: %w", ls.String(), ErrMalformed)
	}
	return ls, nil
}

// DecodeV1 decodes the body of a remote write 1.0 request. Its metadata entries,
// which belong to no series, are left out.
func DecodeV1(body []byte, lim Limits) ([]Series, error) {
	raw, err := uncompress(body, 1, lim.withDefaults())
	if err != nil {
		return nil, err
	}
	var req prompb.WriteRequest
	if err := req.Unmarshal(raw); err != nil {
		return nil, fmt.Errorf("protobuf: %w: %w", err, ErrMalformed)
	}
	out := make([]Series, 0, len(req.Timeseries))
	b := labels.NewScratchBuilder(16)
	for i := range req.Timeseries {
		ts := &req.Timeseries[i]
		if len(ts.Labels) > maxSeriesLabels {
			return nil, fmt.Errorf("series %d: %d labels, want at most %d: %w", i, len(ts.Labels), maxSeriesLabels, ErrMalformed)
		}
		size := 0
		b.Reset()
		for _, l := range ts.Labels {
			if l.Value == "" {
				continue
			}
			size += len(l.Name) + len(l.Value)
			b.Add(l.Name, l.Value)
		}
		s := Series{}
		if s.Labels, err = finishLabels(&b, size); err != nil {
			return nil, fmt.Errorf("series %d: %w", i, err)
		}
		for _, p := range ts.Samples {
			s.Samples = append(s.Samples, Sample{T: p.Timestamp, V: p.Value})
		}
		for _, h := range ts.Histograms {
			var d Histogram
			if h.IsFloatHistogram() {
				d = Histogram{T: h.Timestamp, FH: h.ToFloatHistogram()}
			} else {
				d = Histogram{T: h.Timestamp, H: h.ToIntHistogram()}
			}
			if err := d.validate(); err != nil {
				return nil, fmt.Errorf("series %s: %w", s.Labels, err)
			}
			s.Histograms = append(s.Histograms, d)
		}
		out = append(out, s)
	}
	return out, nil
}

// validate refuses histograms whose spans and buckets don't agree: code that
// iterates over them indexes without a check.
func (h Histogram) validate() error {
	spans := func(s []histogram.Span, buckets int) bool {
		n := 0
		for _, p := range s {
			if n += int(p.Length); n > maxBuckets {
				return false
			}
		}
		return n == buckets
	}
	ok := true
	var err error
	if h.H != nil {
		ok = spans(h.H.PositiveSpans, len(h.H.PositiveBuckets)) && spans(h.H.NegativeSpans, len(h.H.NegativeBuckets))
		if ok {
			err = h.H.Validate()
		}
	} else {
		ok = spans(h.FH.PositiveSpans, len(h.FH.PositiveBuckets)) && spans(h.FH.NegativeSpans, len(h.FH.NegativeBuckets))
		if ok {
			err = h.FH.Validate()
		}
	}
	if !ok {
		return fmt.Errorf("histogram spans and buckets don't agree: %w", ErrMalformed)
	}
	if err != nil {
		return fmt.Errorf("histogram: %w: %w", err, ErrMalformed)
	}
	return nil
}
