package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"google.golang.org/protobuf/encoding/protowire"

	"muster.dev/muster/internal/remotewrite"
)

// Errors of the decoder. They concern the request as a whole.
var (
	errMalformed = errors.New("malformed request")
	errTooMany   = errors.New("request too large")
)

// Bounds of one request that no honest sender comes near. They keep small bytes
// from becoming large memory: an empty protobuf element is two bytes on the wire.
const (
	maxSymbols        = 1 << 20
	maxRequestSamples = 1 << 20
	maxHistograms     = 1 << 16
	maxWireLabels     = 1024
	maxWireBuckets    = 10_000
)

// decoder walks an uncompressed remote write request, 1.0 or 2.0, series by
// series. It was written instead of using the generated code because that
// allocates a tree of the whole request, whose size the sender chooses, and
// because this takes a third of the time. Strings alias raw.
type decoder struct {
	raw     []byte // the whole request
	rest    []byte // what is not yet walked
	v2      bool
	symbols []string // 2.0
	total   int      // samples so far
	hists   int      // of them histograms
	err     error

	// The current series. pairs are label names and values in turn.
	pairs      []string
	samples    []remotewrite.Sample
	histograms []remotewrite.Histogram
	exemplars  int
	meta       remotewrite.Metadata
	bad        error // what is wrong with this series alone

	slab []remotewrite.Sample // holds the samples of all series
}

// Field numbers of the two protocols.
const (
	v1Series   = 1
	v2Symbols  = 4
	v2Series   = 5
	sampleV    = 1
	sampleT    = 2
	labelName  = 1
	labelValue = 2
)

// reset begins a request.
func (d *decoder) reset(raw []byte, v2 bool) {
	d.raw, d.rest, d.v2, d.err, d.total, d.hists = raw, raw, v2, nil, 0, 0
	d.symbols, d.slab = d.symbols[:0], d.slab[:0]
	if !v2 {
		return
	}
	// A message may have its fields in any order, so symbols are gathered first.
	for b := raw; len(b) > 0; {
		num, typ, val, n := field(b)
		if n < 0 {
			d.fail(n)
			return
		}
		if num == v2Symbols && typ == protowire.BytesType {
			if len(d.symbols) == maxSymbols {
				d.err = fmt.Errorf("more than %d symbols: %w", maxSymbols, errTooMany)
				return
			}
			d.symbols = append(d.symbols, alias(val))
		}
		b = b[n:]
	}
}

// release drops what aliases the request, so that the decoder can be pooled.
func (d *decoder) release() {
	clear(d.symbols)
	clear(d.pairs)
	clear(d.histograms)
	d.raw, d.rest, d.meta, d.bad = nil, nil, remotewrite.Metadata{}, nil
	d.samples, d.histograms = nil, nil
	if cap(d.slab) > 1<<18 {
		d.slab = nil
	}
	if cap(d.symbols) > 1<<16 {
		d.symbols = nil
	}
}

func (d *decoder) fail(n int) {
	d.err = fmt.Errorf("protobuf: %w: %w", protowire.ParseError(n), errMalformed)
}

// next moves to the next series. It returns false at the end and on an error,
// which is then in d.err.
func (d *decoder) next() bool {
	want := protowire.Number(v1Series)
	if d.v2 {
		want = v2Series
	}
	for d.err == nil && len(d.rest) > 0 {
		num, typ, val, n := field(d.rest)
		if n < 0 {
			d.fail(n)
			return false
		}
		d.rest = d.rest[n:]
		if num == want && typ == protowire.BytesType {
			d.series(val)
			return d.err == nil
		}
	}
	return false
}

// series reads one TimeSeries. Samples, histograms, exemplars and metadata have
// different field numbers in the two protocols; labels a different form.
func (d *decoder) series(b []byte) {
	d.pairs, d.histograms, d.exemplars, d.bad = d.pairs[:0], nil, 0, nil
	d.meta = remotewrite.Metadata{}
	from := len(d.slab)
	fLabels, fSamples, fHist, fExemplars, fMeta := protowire.Number(1), protowire.Number(2), protowire.Number(4), protowire.Number(3), protowire.Number(-1)
	if d.v2 {
		fHist, fExemplars, fMeta = 3, 4, 5
	}
	for len(b) > 0 {
		num, typ, val, n := field(b)
		if n < 0 {
			d.fail(n)
			return
		}
		switch {
		case num == fLabels && d.v2:
			d.refs(typ, val, b[:n])
		case typ != protowire.BytesType:
		case num == fLabels:
			d.label(val)
		case num == fSamples:
			d.sample(val)
		case num == fHist:
			d.histogram(val)
		case num == fExemplars:
			d.exemplars++
		case num == fMeta:
			d.metadata(val)
		}
		if d.err != nil {
			return
		}
		b = b[n:]
	}
	d.samples = d.slab[from:len(d.slab):len(d.slab)]
}

// refs reads label references, packed or one by one: protobuf allows both.
func (d *decoder) refs(typ protowire.Type, val, whole []byte) {
	if typ == protowire.VarintType {
		_, _, n := protowire.ConsumeTag(whole)
		val = whole[n:]
	} else if typ != protowire.BytesType {
		d.err = fmt.Errorf("label references of wire type %d: %w", typ, errMalformed)
		return
	}
	for len(val) > 0 && d.bad == nil {
		ref, n := binary.Uvarint(val)
		if n <= 0 {
			d.err = fmt.Errorf("label reference: %w", errMalformed)
			return
		}
		val = val[n:]
		s, ok := d.symbol(ref)
		if !ok {
			// The series is unusable, the rest of the request is not.
			d.bad = fmt.Errorf("label reference %d, the request has %d symbols", ref, len(d.symbols))
			return
		}
		d.addPair(s)
	}
}

func (d *decoder) addPair(s string) {
	if len(d.pairs) < 2*maxWireLabels {
		d.pairs = append(d.pairs, s)
	} else if d.bad == nil {
		d.bad = fmt.Errorf("more than %d labels", maxWireLabels)
	}
}

func (d *decoder) symbol(ref uint64) (string, bool) {
	if ref >= uint64(len(d.symbols)) {
		return "", ref == 0 // the first symbol is the empty string, also of an empty table
	}
	return d.symbols[ref], true
}

func (d *decoder) label(b []byte) {
	var name, value string
	for len(b) > 0 {
		num, typ, val, n := field(b)
		if n < 0 {
			d.fail(n)
			return
		}
		switch {
		case typ != protowire.BytesType:
		case num == labelName:
			name = alias(val)
		case num == labelValue:
			value = alias(val)
		}
		b = b[n:]
	}
	d.addPair(name)
	d.addPair(value)
}

func (d *decoder) count() bool {
	if d.total++; d.total > maxRequestSamples {
		d.err = fmt.Errorf("more than %d samples: %w", maxRequestSamples, errTooMany)
	}
	return d.err == nil
}

// sample is in both protocols 1: double value, 2: int64 timestamp.
func (d *decoder) sample(b []byte) {
	if !d.count() {
		return
	}
	var s remotewrite.Sample
	for len(b) > 0 {
		num, typ, tagLen := protowire.ConsumeTag(b)
		if tagLen < 0 {
			d.fail(tagLen)
			return
		}
		b = b[tagLen:]
		var n int
		switch {
		case num == sampleV && typ == protowire.Fixed64Type:
			var v uint64
			v, n = protowire.ConsumeFixed64(b)
			s.V = math.Float64frombits(v)
		case num == sampleT && typ == protowire.VarintType:
			var v uint64
			v, n = protowire.ConsumeVarint(b)
			s.T = int64(v)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			d.fail(n)
			return
		}
		b = b[n:]
	}
	d.slab = append(d.slab, s)
}

// histogram uses the generated code: the message is complicated and rare. Its
// size is bounded first.
func (d *decoder) histogram(b []byte) {
	if !d.count() {
		return
	}
	if d.hists++; d.hists > maxHistograms {
		d.err = fmt.Errorf("more than %d histograms: %w", maxHistograms, errTooMany)
		return
	}
	if len(b) > 32*maxWireBuckets {
		d.bad = fmt.Errorf("a histogram of %d bytes, want at most %d", len(b), 32*maxWireBuckets)
		return
	}
	h, err := decodeHistogram(b, d.v2)
	if err != nil {
		if errors.Is(err, errMalformed) {
			d.err = err
		} else {
			d.bad = err
		}
		return
	}
	d.histograms = append(d.histograms, h)
}

func decodeHistogram(b []byte, v2 bool) (remotewrite.Histogram, error) {
	var out remotewrite.Histogram
	if v2 {
		var h writev2.Histogram
		if err := h.Unmarshal(b); err != nil {
			return out, fmt.Errorf("histogram: %w: %w", err, errMalformed)
		}
		if h.IsFloatHistogram() {
			out = remotewrite.Histogram{T: h.Timestamp, FH: h.ToFloatHistogram()}
		} else {
			out = remotewrite.Histogram{T: h.Timestamp, H: h.ToIntHistogram()}
		}
	} else {
		var h prompb.Histogram
		if err := h.Unmarshal(b); err != nil {
			return out, fmt.Errorf("histogram: %w: %w", err, errMalformed)
		}
		if h.IsFloatHistogram() {
			out = remotewrite.Histogram{T: h.Timestamp, FH: h.ToFloatHistogram()}
		} else {
			out = remotewrite.Histogram{T: h.Timestamp, H: h.ToIntHistogram()}
		}
	}
	// Code that walks spans and buckets indexes without a check, so they must agree.
	var err error
	n := 0
	if out.H != nil {
		err, n = out.H.Validate(), max(len(out.H.PositiveBuckets), len(out.H.NegativeBuckets))
	} else {
		err, n = out.FH.Validate(), max(len(out.FH.PositiveBuckets), len(out.FH.NegativeBuckets))
	}
	if err == nil && n > maxWireBuckets {
		err = fmt.Errorf("%d buckets, want at most %d", n, maxWireBuckets)
	}
	if err != nil {
		return out, fmt.Errorf("histogram: %w", err)
	}
	return out, nil
}

func (d *decoder) metadata(b []byte) {
	var m writev2.Metadata
	if err := m.Unmarshal(b); err != nil {
		d.err = fmt.Errorf("metadata: %w: %w", err, errMalformed)
		return
	}
	help, ok1 := d.symbol(uint64(m.HelpRef))
	unit, ok2 := d.symbol(uint64(m.UnitRef))
	if !ok1 || !ok2 {
		d.bad = fmt.Errorf("metadata outside of the %d symbols", len(d.symbols))
		return
	}
	d.meta = metadata.Metadata{Type: (&writev2.TimeSeries{Metadata: writev2.Metadata{Type: m.Type}}).ToMetadata([]string{""}).Type, Help: help, Unit: unit}
}

// field reads one field. For a length-delimited one val is its content. n is its
// whole length, or a negative protowire error.
func field(b []byte) (num protowire.Number, typ protowire.Type, val []byte, n int) {
	num, typ, tag := protowire.ConsumeTag(b)
	if tag < 0 {
		return 0, 0, nil, tag
	}
	if typ == protowire.BytesType {
		v, m := protowire.ConsumeBytes(b[tag:])
		if m < 0 {
			return 0, 0, nil, m
		}
		return num, typ, v, tag + m
	}
	m := protowire.ConsumeFieldValue(num, typ, b[tag:])
	if m < 0 {
		return 0, 0, nil, m
	}
	return num, typ, nil, tag + m
}

func alias(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return unsafe.String(&b[0], len(b))
}
