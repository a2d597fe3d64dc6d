package remotewrite

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

// A spool record is a small header and the body of a remote write 2.0 request, as
// it goes over the wire:
//
//	version     byte     1
//	key         uvarint length, bytes
//	lane        uvarint
//	series, samples, histograms   uvarint each
//	minT, maxT  varint each, milliseconds since 1970
//	body        snappy block of io.prometheus.write.v2.Request
const recordVersion = 2

// Encode returns the spool record of one batch. Key is handed to
// SenderOptions.Header: the tenant at a regional, "" at the edge. The samples of a
// series are sent in the order of their records as long as these have the same lane;
// records of different lanes are sent side by side.
func Encode(key string, lane uint32, series []Series) []byte {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	e.raw = e.marshalV2(series)
	info := infoOf(key, series)
	rec := make([]byte, 0, 64+len(key)+len(e.raw)/3)
	rec = append(rec, recordVersion)
	rec = binary.AppendUvarint(rec, uint64(len(key)))
	rec = append(rec, key...)
	rec = binary.AppendUvarint(rec, uint64(lane))
	rec = binary.AppendUvarint(rec, uint64(info.Series))
	rec = binary.AppendUvarint(rec, uint64(info.Samples))
	rec = binary.AppendUvarint(rec, uint64(info.Histograms))
	rec = binary.AppendVarint(rec, info.MinT)
	rec = binary.AppendVarint(rec, info.MaxT)
	e.packed = snappy.Encode(e.packed[:cap(e.packed)], e.raw)
	return append(rec, e.packed...)
}

// EncodeV2 returns the body of a remote write 2.0 request.
func EncodeV2(series []Series) []byte {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	e.raw = e.marshalV2(series)
	return snappy.Encode(nil, e.raw)
}

// EncodeV1 returns the body of a remote write 1.0 request. Metadata stays behind:
// 1.0 has no place for it beside the series.
func EncodeV1(series []Series) []byte {
	req := prompb.WriteRequest{Timeseries: make([]prompb.TimeSeries, 0, len(series))}
	for i := range series {
		s := &series[i]
		ts := prompb.TimeSeries{Labels: prompb.FromLabels(s.Labels, nil)}
		for _, p := range s.Samples {
			ts.Samples = append(ts.Samples, prompb.Sample{Value: p.V, Timestamp: p.T})
		}
		for _, h := range s.Histograms {
			if h.H != nil {
				ts.Histograms = append(ts.Histograms, prompb.FromIntHistogram(h.T, h.H))
			} else {
				ts.Histograms = append(ts.Histograms, prompb.FromFloatHistogram(h.T, h.FH))
			}
		}
		req.Timeseries = append(req.Timeseries, ts)
	}
	raw, err := req.Marshal()
	if err != nil {
		panic(fmt.Sprintf("remotewrite: marshal 1.0: %v", err)) // plain numbers and strings always marshal
	}
	return snappy.Encode(nil, raw)
}

// encoder keeps the buffers of one encoding for the next.
type encoder struct {
	symbols     map[string]uint32
	names       []string
	req         writev2.Request
	refs        []uint32
	samples     []writev2.Sample
	raw, packed []byte
}

var encoders = sync.Pool{New: func() any { return &encoder{symbols: map[string]uint32{}} }}

// marshalV2 returns the uncompressed request; its symbols are sorted, so that
// equal batches are equal bytes and neighbours share prefixes.
func (e *encoder) marshalV2(series []Series) []byte {
	clear(e.symbols)
	e.names = e.names[:0]
	total, samples := 0, 0
	for i := range series {
		s := &series[i]
		s.Labels.Range(func(l labels.Label) {
			e.add(l.Name)
			e.add(l.Value)
			total += 2
		})
		e.add(s.Metadata.Help)
		e.add(s.Metadata.Unit)
		samples += len(s.Samples)
	}
	slices.Sort(e.names)
	e.req.Symbols = append(e.req.Symbols[:0], "")
	for i, n := range e.names {
		e.symbols[n] = uint32(i + 1)
	}
	e.req.Symbols = append(e.req.Symbols, e.names...)

	e.refs = slices.Grow(e.refs[:0], total)
	e.samples = slices.Grow(e.samples[:0], samples)
	e.req.Timeseries = slices.Grow(e.req.Timeseries[:0], len(series))
	for i := range series {
		e.req.Timeseries = append(e.req.Timeseries, e.timeSeries(&series[i]))
	}
	raw, err := e.req.OptimizedMarshal(e.raw[:0])
	if err != nil {
		panic(fmt.Sprintf("remotewrite: marshal 2.0: %v", err)) // plain numbers and strings always marshal
	}
	clear(e.req.Timeseries) // don't hold on to histograms and label strings
	clear(e.req.Symbols)
	clear(e.symbols)
	clear(e.names)
	return raw
}

func (e *encoder) add(s string) {
	if s == "" {
		return
	}
	if _, ok := e.symbols[s]; !ok {
		e.symbols[s] = 0
		e.names = append(e.names, s)
	}
}

func (e *encoder) timeSeries(s *Series) writev2.TimeSeries {
	r, p := len(e.refs), len(e.samples)
	s.Labels.Range(func(l labels.Label) {
		e.refs = append(e.refs, e.symbols[l.Name], e.symbols[l.Value])
	})
	for _, v := range s.Samples {
		e.samples = append(e.samples, writev2.Sample{Value: v.V, Timestamp: v.T})
	}
	ts := writev2.TimeSeries{
		LabelsRefs: e.refs[r:],
		Samples:    e.samples[p:],
		Metadata: writev2.Metadata{
			Type:    writev2.FromMetadataType(s.Metadata.Type),
			HelpRef: e.symbols[s.Metadata.Help],
			UnitRef: e.symbols[s.Metadata.Unit],
		},
	}
	for _, h := range s.Histograms {
		if h.H != nil {
			ts.Histograms = append(ts.Histograms, writev2.FromIntHistogram(h.T, h.H))
		} else {
			ts.Histograms = append(ts.Histograms, writev2.FromFloatHistogram(h.T, h.FH))
		}
	}
	return ts
}
