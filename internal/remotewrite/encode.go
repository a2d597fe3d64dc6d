package remotewrite

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"google.golang.org/protobuf/encoding/protowire"
)

// A spool record is a small header and the body of a remote write 2.0 request, as
// it goes over the wire:
//
//	version     byte     2, or 3 with a stamp
//	key         uvarint length, bytes
//	lane        uvarint
//	series, samples, histograms   uvarint each
//	minT, maxT  varint each, milliseconds since 1970
//	stamp       uvarint length, bytes: names and values in turn, each of them uvarint length, bytes
//	body        snappy block of io.prometheus.write.v2.Request
//
// The stamp are labels that each series gets as it is sent, in the place of those of the same
// names that it has.
const (
	recordVersion  = 2
	stampedVersion = 3
)

// Encode returns the spool record of one batch.
func Encode(key string, lane uint32, series []Series) []byte {
	return AppendRecord(nil, key, lane, series)
}

// AppendRecord appends the spool record of one batch to rec. Key is handed to
// SenderOptions.Header: the tenant at a regional, "" at the edge. The samples of a
// series are sent in the order of their records as long as these have the same lane;
// records of different lanes are sent side by side.
func AppendRecord(rec []byte, key string, lane uint32, series []Series) []byte {
	e := encoders.Get().(*encoder)
	defer e.putBack()
	e.packed = snappy.Encode(e.packed[:cap(e.packed)], e.marshalV2(series))
	info := infoOf(key, series)
	info.Lane = lane
	rec = slices.Grow(rec, 64+len(key)+len(e.packed))
	rec = appendHeader(rec, recordVersion, info)
	return append(rec, e.packed...)
}

func appendHeader(rec []byte, version byte, info Info) []byte {
	rec = appendText(append(rec, version), info.Key)
	rec = binary.AppendUvarint(rec, uint64(info.Lane))
	rec = binary.AppendUvarint(rec, uint64(info.Series))
	rec = binary.AppendUvarint(rec, uint64(info.Samples))
	rec = binary.AppendUvarint(rec, uint64(info.Histograms))
	rec = binary.AppendVarint(rec, info.MinT)
	return binary.AppendVarint(rec, info.MaxT)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Raw is the body of a 2.0 request that goes on as it came, with labels that each of its
// series gets on the way. Its decoder has said that it is Plain, its series have their labels
// in the order of their names, and info says what is in it.
type Raw struct {
	Body  []byte // compressed
	Stamp labels.Labels
	Info  Info
}

// AppendRaw appends the spool record of such a request: it costs a copy, where AppendRecord
// encodes and compresses.
func AppendRaw(rec []byte, key string, lane uint32, raw Raw) []byte {
	info := raw.Info
	info.Key, info.Lane = key, lane
	rec = slices.Grow(rec, 256+len(key)+len(raw.Body))
	rec = appendHeader(rec, stampedVersion, info)
	size := 0
	text := func(s string) int { return protowire.SizeBytes(len(s)) }
	raw.Stamp.Range(func(l labels.Label) { size += text(l.Name) + text(l.Value) })
	rec = binary.AppendUvarint(rec, uint64(size))
	raw.Stamp.Range(func(l labels.Label) { rec = appendText(appendText(rec, l.Name), l.Value) })
	return append(rec, raw.Body...)
}

// EncodeV2 returns the body of a remote write 2.0 request.
func EncodeV2(series []Series) []byte {
	e := encoders.Get().(*encoder)
	defer e.putBack()
	return snappy.Encode(nil, e.marshalV2(series))
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

// encoder keeps the buffers of one encoding for the next. It writes the protobuf itself:
// the generated code wants the whole request as a tree of structs first.
type encoder struct {
	symbols symbols
	refs    []uint32 // of one series
	series  []byte   // all of them, encoded
	raw     []byte
	packed  []byte
}

var encoders = sync.Pool{New: func() any { return new(encoder) }}

// Tags of io.prometheus.write.v2: the number of a field and its type.
const (
	tagSymbol     = v2Symbols<<3 | byte(protowire.BytesType)
	tagSeries     = v2Series<<3 | byte(protowire.BytesType)
	tagLabelsRefs = 1<<3 | byte(protowire.BytesType)
	tagSample     = 2<<3 | byte(protowire.BytesType)
	tagHistogram  = 3<<3 | byte(protowire.BytesType)
	tagMetadata   = 5<<3 | byte(protowire.BytesType)
	tagSampleV    = sampleV<<3 | byte(protowire.Fixed64Type)
	tagSampleT    = sampleT<<3 | byte(protowire.VarintType)
	tagMetaType   = 1<<3 | byte(protowire.VarintType)
	tagMetaHelp   = 3<<3 | byte(protowire.VarintType)
	tagMetaUnit   = 4<<3 | byte(protowire.VarintType)
)

// marshalV2 returns the uncompressed request. Symbols stand in the order in which they
// are first used, so that equal batches are equal bytes.
func (e *encoder) marshalV2(series []Series) []byte {
	defer e.symbols.reset() // don't hold on to label strings
	e.series = e.series[:0]
	for i := range series {
		e.add(&series[i])
	}
	e.raw = slices.Grow(e.raw[:0], e.symbols.size()+len(e.series))
	e.raw = append(e.symbols.appendTo(e.raw), e.series...)
	return e.raw
}

// keptBuffer is the largest buffer, in bytes, that is kept for the next encoding.
const keptBuffer = 1 << 20

func (e *encoder) putBack() {
	for _, b := range []*[]byte{&e.series, &e.raw, &e.packed} {
		if cap(*b) > keptBuffer {
			*b = nil
		}
	}
	encoders.Put(e)
}

// add encodes one series.
func (e *encoder) add(s *Series) {
	e.refs = e.refs[:0]
	packed := 0
	s.Labels.Range(func(l labels.Label) {
		n, v := e.symbols.ref(l.Name), e.symbols.ref(l.Value)
		e.refs = append(e.refs, n, v)
		packed += protowire.SizeVarint(uint64(n)) + protowire.SizeVarint(uint64(v))
	})
	typ, help, unit := uint64(writev2.FromMetadataType(s.Metadata.Type)), e.symbols.ref(s.Metadata.Help), e.symbols.ref(s.Metadata.Unit)
	meta := sizeMeta(typ, uint64(help), uint64(unit))
	var histograms [][]byte
	size := sizeBytes(packed) + sizeBytes(meta)
	for _, p := range s.Samples {
		size += sizeBytes(sizeSample(p))
	}
	for _, h := range s.Histograms {
		b := marshalHistogram(h)
		histograms = append(histograms, b)
		size += sizeBytes(len(b))
	}

	b := append(e.series, tagSeries)
	b = binary.AppendUvarint(b, uint64(size))
	b = append(b, tagLabelsRefs)
	b = binary.AppendUvarint(b, uint64(packed))
	for _, r := range e.refs {
		b = binary.AppendUvarint(b, uint64(r))
	}
	for _, p := range s.Samples {
		b = append(b, tagSample, byte(sizeSample(p))) // 20 at most
		b = append(b, tagSampleV)
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(p.V))
		b = append(b, tagSampleT)
		b = binary.AppendUvarint(b, uint64(p.T))
	}
	for _, h := range histograms {
		b = append(b, tagHistogram)
		b = binary.AppendUvarint(b, uint64(len(h)))
		b = append(b, h...)
	}
	e.series = appendMeta(b, meta, typ, uint64(help), uint64(unit))
}

// sizeBytes is what a field of n bytes takes whose tag has one.
func sizeBytes(n int) int { return 1 + protowire.SizeBytes(n) }

func sizeSample(p Sample) int { return 1 + 8 + 1 + protowire.SizeVarint(uint64(p.T)) }

func sizeMeta(typ, help, unit uint64) int {
	n := 0
	for _, v := range [...]uint64{typ, help, unit} {
		if v != 0 {
			n += 1 + protowire.SizeVarint(v)
		}
	}
	return n
}

func appendMeta(b []byte, size int, typ, help, unit uint64) []byte {
	b = append(b, tagMetadata, byte(size)) // 33 at most
	for _, f := range [...]struct {
		tag byte
		v   uint64
	}{{tagMetaType, typ}, {tagMetaHelp, help}, {tagMetaUnit, unit}} {
		if f.v != 0 {
			b = append(b, f.tag)
			b = binary.AppendUvarint(b, f.v)
		}
	}
	return b
}

// marshalHistogram uses the generated code: the message is complicated and rare.
func marshalHistogram(h Histogram) []byte {
	var out writev2.Histogram
	if h.H != nil {
		out = writev2.FromIntHistogram(h.T, h.H)
	} else {
		out = writev2.FromFloatHistogram(h.T, h.FH)
	}
	b, err := out.Marshal()
	if err != nil {
		panic(fmt.Sprintf("remotewrite: marshal a histogram: %v", err)) // plain numbers always marshal
	}
	return b
}
