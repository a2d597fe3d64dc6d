package remotewrite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"mime"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
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

// Bounds of our own records: what the encoder makes is never larger.
const (
	maxRecordBytes  = 256 << 20
	maxRecordSeries = 10_000_000
)

// recordLimits are wide: what is in a record was let in once.
var recordLimits = Limits{Symbols: 2 * maxRecordSeries, Samples: maxRecordSeries, Histograms: maxRecordSeries, Buckets: 1 << 20}

// Decode is the inverse of Encode. It is safe on any bytes.
func Decode(rec []byte) (key string, series []Series, err error) {
	info, body, err := split(rec)
	if err != nil {
		return "", nil, err
	}
	if info.stamp != "" {
		m := newMerger()
		defer m.release()
		if err := m.add(body, info.stamp, false); err != nil {
			return "", nil, err
		}
		body = m.body()
	}
	series, err = decodeBody(body, true)
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
	if len(rec) == 0 || rec[0] != recordVersion && rec[0] != stampedVersion {
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
	lane, ok := uvarint()
	if !ok || lane > math.MaxUint32 {
		return bad("lane")
	}
	info.Lane = uint32(lane)
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
	if rec[0] == stampedVersion {
		n, ok := uvarint()
		if !ok || n == 0 || n > uint64(len(b)) {
			return bad("stamp")
		}
		info.stamp, b = alias(b[:n]), b[n:]
	}
	info.EncodedBytes = len(b)
	return info, b, nil
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

// decodeBody decodes the compressed body of a request as a whole. It is safe on any
// bytes, but bounds the request, not what a sender may do: that is the Decoder's caller's.
func decodeBody(body []byte, v2 bool) ([]Series, error) {
	n, err := snappy.DecodedLen(body)
	if err != nil {
		return nil, fmt.Errorf("snappy: %w: %w", err, ErrMalformed)
	}
	if n > maxRecordBytes {
		return nil, fmt.Errorf("%d bytes uncompressed, want at most %d: %w", n, maxRecordBytes, ErrTooLarge)
	}
	raw, err := snappy.Decode(nil, body)
	if err != nil {
		return nil, fmt.Errorf("snappy: %w: %w", err, ErrMalformed)
	}
	return decodeRaw(raw, v2, recordLimits)
}

// decodeRaw's series alias raw.
func decodeRaw(raw []byte, v2 bool, lim Limits) ([]Series, error) {
	var d Decoder
	b := labels.NewScratchBuilder(16)
	out := []Series{}
	for d.Reset(raw, v2, lim); d.Next(); {
		if d.Bad != nil {
			return nil, fmt.Errorf("series %d: %w: %w", len(out), d.Bad, ErrMalformed)
		}
		ls, err := d.labels(&b)
		if err != nil {
			return nil, fmt.Errorf("series %d: %w", len(out), err)
		}
		out = append(out, Series{Labels: ls, Metadata: d.Metadata, Samples: d.Samples, Histograms: d.Histograms})
	}
	if d.Err() != nil {
		return nil, d.Err()
	}
	return out, nil
}

// labels builds the labels of the current series and refuses those that can't name one:
// the checks that a TSDB makes too.
func (d *Decoder) labels(b *labels.ScratchBuilder) (labels.Labels, error) {
	pairs := d.Pairs()
	if len(pairs)%2 != 0 {
		return labels.Labels{}, fmt.Errorf("an odd number of label references: %w", ErrMalformed)
	}
	b.Reset()
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" { // an empty label is no label
			b.Add(pairs[i], pairs[i+1])
		}
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
