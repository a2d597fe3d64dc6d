package remotewrite

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"google.golang.org/protobuf/encoding/protowire"
)

// Limits bound what a Decoder accepts, and with it the memory it takes: an empty
// protobuf element is two bytes on the wire, and a hundred when it is decoded. The
// defaults are more than an honest sender comes near.
type Limits struct {
	Symbols    int // strings of a 2.0 request; default 1,048,576
	Samples    int // of one request, histograms among them; default 1,048,576
	Histograms int // of one request; default 65,536
	Labels     int // of one series; default 1,024
	Buckets    int // of one histogram, all kinds together; default 512
	Exemplars  int // of one series that are decoded; default 0
}

// DefaultBuckets is how many buckets a native histogram may have. OpenTelemetry's have
// 160 a side at most; the value is also what a classic one of 512 buckets would be.
const DefaultBuckets = 512

func (l Limits) withDefaults() Limits {
	l.Symbols = cmp.Or(l.Symbols, 1<<20)
	l.Samples = cmp.Or(l.Samples, 1<<20)
	l.Histograms = cmp.Or(l.Histograms, 1<<16)
	l.Labels = cmp.Or(l.Labels, 1024)
	l.Buckets = cmp.Or(l.Buckets, DefaultBuckets)
	return l
}

// Decoder walks an uncompressed remote write request, 1.0 or 2.0, series by
// series. It was written instead of using the generated code because that
// allocates a tree of the whole request, whose size the sender chooses, and
// because this takes a third of the time. It is safe on any bytes, and not for
// concurrent use.
//
// What it returns of a series is good until the next one, except for Samples and
// Histograms, which stay until Reset. Strings alias the request.
type Decoder struct {
	// Charge is told, before they are allocated, about how many bytes more the decoded
	// request takes, in steps; an error ends the decoding and is returned by Err. Nil:
	// nobody asks.
	Charge func(bytes int) error

	// The current series.
	Pairs      []string // label names and values in turn, as sent
	Samples    []Sample
	Histograms []Histogram
	Exemplars  []Exemplar // the newest of them, as many as Limits allow
	Metadata   Metadata
	Bad        error // what is wrong with this series alone

	limits  Limits
	rest    []byte // what is not yet walked
	v2      bool
	symbols []string // 2.0
	total   int      // samples so far
	hists   int      // of them histograms
	cost    int
	granted int // bytes that Charge agreed to and that are not spent
	err     error

	slab []Sample // holds the samples of all series
}

// Exemplar is one as it was sent: an example of what a series counts, mostly a trace.
type Exemplar struct {
	Pairs []string // label names and values in turn
	V     float64
	T     int64 // milliseconds since 1970
}

// Err is what ended the decoding, or nil: ErrMalformed, ErrTooLarge, or Charge's.
func (d *Decoder) Err() error { return d.err }

// Cost is how much work and memory the request took so far, in samples: a histogram is
// one for each of its buckets and spans, and one more.
func (d *Decoder) Cost() int { return d.cost }

// chargeStep is the least that is asked for at once, in bytes.
const chargeStep = 64 << 10

// About what the parts of a request take when they are decoded, appended to a head and
// encoded for a queue, in bytes.
const (
	symbolBytes    = 12 * 16
	seriesBytes    = 512
	sampleBytes    = 128
	exemplarBytes  = 512
	histogramBytes = 1024
	// A histogram's content for each of its bytes on the wire: an empty span is two
	// there, and eight in each of the forms in which it is held.
	histogramFactor = 24
)

// charge asks for n bytes more.
func (d *Decoder) charge(n int) bool {
	if d.granted -= n; d.granted >= 0 || d.Charge == nil || d.err != nil {
		return d.err == nil
	}
	ask := max(-d.granted, chargeStep)
	if err := d.Charge(ask); err != nil {
		d.err = err
		return false
	}
	d.granted += ask
	return true
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

// Reset begins a request.
func (d *Decoder) Reset(raw []byte, v2 bool, lim Limits) {
	d.limits, d.rest, d.v2, d.err, d.total, d.hists, d.cost, d.granted = lim.withDefaults(), raw, v2, nil, 0, 0, 0, 0
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
			if len(d.symbols) == d.limits.Symbols {
				d.err = fmt.Errorf("more than %d symbols: %w", d.limits.Symbols, ErrTooLarge)
				return
			}
			if !d.charge(symbolBytes) {
				return
			}
			d.symbols = append(d.symbols, alias(val))
		}
		b = b[n:]
	}
}

// Release drops what aliases the request and large buffers, so that the decoder can be
// kept for another.
func (d *Decoder) Release() {
	clear(d.symbols)
	clear(d.Pairs)
	d.rest, d.Metadata, d.Bad, d.Charge = nil, Metadata{}, nil, nil
	d.Samples, d.Histograms = nil, nil
	if cap(d.slab) > 1<<16 {
		d.slab = nil
	}
	if cap(d.symbols) > 1<<14 {
		d.symbols = nil
	}
}

func (d *Decoder) fail(n int) {
	d.err = fmt.Errorf("protobuf: %w: %w", protowire.ParseError(n), ErrMalformed)
}

// Next moves to the next series. It returns false at the end and on an error,
// which is then Err.
func (d *Decoder) Next() bool {
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
func (d *Decoder) series(b []byte) {
	d.Pairs, d.Histograms, d.Exemplars, d.Bad = d.Pairs[:0], nil, nil, nil
	d.Metadata = Metadata{}
	from := len(d.slab)
	if !d.charge(seriesBytes) {
		return
	}
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
			d.cost++
			d.exemplar(val)
		case num == fMeta:
			d.metadata(val)
		}
		if d.err != nil {
			return
		}
		b = b[n:]
	}
	d.Samples = d.slab[from:len(d.slab):len(d.slab)]
}

// refs reads label references, packed or one by one: protobuf allows both.
func (d *Decoder) refs(typ protowire.Type, val, whole []byte) {
	if typ == protowire.VarintType {
		_, _, n := protowire.ConsumeTag(whole)
		val = whole[n:]
	} else if typ != protowire.BytesType {
		d.err = fmt.Errorf("label references of wire type %d: %w", typ, ErrMalformed)
		return
	}
	for len(val) > 0 && d.Bad == nil {
		ref, n := binary.Uvarint(val)
		if n <= 0 {
			d.err = fmt.Errorf("label reference: %w", ErrMalformed)
			return
		}
		val = val[n:]
		s, ok := d.symbol(ref)
		if !ok {
			// The series is unusable, the rest of the request is not.
			d.Bad = fmt.Errorf("label reference %d, the request has %d symbols", ref, len(d.symbols))
			return
		}
		d.addPair(s)
	}
}

func (d *Decoder) addPair(s string) {
	if len(d.Pairs) < 2*d.limits.Labels {
		d.Pairs = append(d.Pairs, s)
	} else if d.Bad == nil {
		d.Bad = fmt.Errorf("more than %d labels", d.limits.Labels)
	}
}

func (d *Decoder) symbol(ref uint64) (string, bool) {
	if ref >= uint64(len(d.symbols)) {
		return "", ref == 0 // the first symbol is the empty string, also of an empty table
	}
	return d.symbols[ref], true
}

func (d *Decoder) label(b []byte) {
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

// exemplar is in both protocols 1: labels, 2: double value, 3: int64 timestamp; labels as
// those of a series. The first ones of a series are dropped if there are too many: they are
// examples.
func (d *Decoder) exemplar(b []byte) {
	if d.limits.Exemplars == 0 {
		return
	}
	var e Exemplar
	// The labels of a series are read into Pairs, by the same code.
	pairs := d.Pairs
	d.Pairs = nil
	defer func() { d.Pairs = pairs }()
	if !d.charge(exemplarBytes + 32*len(b)) {
		return
	}
	for len(b) > 0 {
		num, typ, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			d.fail(tag)
			return
		}
		n := protowire.ConsumeFieldValue(num, typ, b[tag:])
		if n < 0 {
			d.fail(n)
			return
		}
		val := b[tag : tag+n]
		switch {
		case num == 1 && d.v2:
			packed, _ := protowire.ConsumeBytes(val) // of another type: refs takes the whole
			d.refs(typ, packed, b[:tag+n])
		case num == 1 && typ == protowire.BytesType:
			label, _ := protowire.ConsumeBytes(val)
			d.label(label)
		case num == 2 && typ == protowire.Fixed64Type:
			v, _ := protowire.ConsumeFixed64(val)
			e.V = math.Float64frombits(v)
		case num == 3 && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(val)
			e.T = int64(v)
		}
		if d.err != nil {
			return
		}
		b = b[tag+n:]
	}
	e.Pairs = d.Pairs
	if len(d.Exemplars) == d.limits.Exemplars {
		d.Exemplars = d.Exemplars[:copy(d.Exemplars, d.Exemplars[1:])]
	}
	d.Exemplars = append(d.Exemplars, e)
}

func (d *Decoder) count() bool {
	d.cost++
	if d.total++; d.total > d.limits.Samples {
		d.err = fmt.Errorf("more than %d samples: %w", d.limits.Samples, ErrTooLarge)
	}
	return d.err == nil && d.charge(sampleBytes)
}

// sample is in both protocols 1: double value, 2: int64 timestamp.
func (d *Decoder) sample(b []byte) {
	if !d.count() {
		return
	}
	var s Sample
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

// histogram uses the generated code: the message is complicated and rare. Its size is
// bounded first. Work is paid for also when nothing comes of it.
func (d *Decoder) histogram(b []byte) {
	if !d.count() {
		return
	}
	if d.hists++; d.hists > d.limits.Histograms {
		d.err = fmt.Errorf("more than %d histograms: %w", d.limits.Histograms, ErrTooLarge)
		return
	}
	// A bucket takes 10 bytes at most, its boundary 8, its span 17; the rest of the message 128.
	if most := 128 + 35*d.limits.Buckets; len(b) > most {
		d.cost += len(b) / 16
		d.Bad = fmt.Errorf("a histogram of %d bytes, want at most %d: no more than %d buckets", len(b), most, d.limits.Buckets)
		return
	}
	// A bucket and a span may each be a field of its own.
	if n := fields(b); n > 3*d.limits.Buckets+32 {
		d.cost += n
		d.Bad = fmt.Errorf("a histogram of %d parts: no more than %d buckets", n, d.limits.Buckets)
		return
	}
	if !d.charge(histogramBytes + histogramFactor*len(b)) {
		return
	}
	h, err := decodeHistogram(b, d.v2)
	d.cost += max(h.Buckets(), len(b)/16)
	if err == nil && h.Buckets() > d.limits.Buckets {
		err = fmt.Errorf("a histogram of %d buckets and spans, want at most %d; let the application use a coarser one", h.Buckets(), d.limits.Buckets)
	}
	switch {
	case errors.Is(err, ErrMalformed):
		d.err = err
	case err != nil:
		d.Bad = err
	default:
		d.Histograms = append(d.Histograms, h)
	}
}

// Buckets is the number of a histogram's buckets and, where they are more, of its spans
// and custom boundaries: what it takes in memory, by the 8 bytes.
func (h Histogram) Buckets() int {
	switch {
	case h.H != nil:
		return max(len(h.H.PositiveBuckets)+len(h.H.NegativeBuckets), len(h.H.PositiveSpans)+len(h.H.NegativeSpans), len(h.H.CustomValues))
	case h.FH != nil:
		return max(len(h.FH.PositiveBuckets)+len(h.FH.NegativeBuckets), len(h.FH.PositiveSpans)+len(h.FH.NegativeSpans), len(h.FH.CustomValues))
	}
	return 0
}

func decodeHistogram(b []byte, v2 bool) (Histogram, error) {
	var out Histogram
	if v2 {
		var h writev2.Histogram
		if err := h.Unmarshal(b); err != nil {
			return out, fmt.Errorf("histogram: %w: %w", err, ErrMalformed)
		}
		if h.IsFloatHistogram() {
			out = Histogram{T: h.Timestamp, FH: h.ToFloatHistogram()}
		} else {
			out = Histogram{T: h.Timestamp, H: h.ToIntHistogram()}
		}
	} else {
		var h prompb.Histogram
		if err := h.Unmarshal(b); err != nil {
			return out, fmt.Errorf("histogram: %w: %w", err, ErrMalformed)
		}
		if h.IsFloatHistogram() {
			out = Histogram{T: h.Timestamp, FH: h.ToFloatHistogram()}
		} else {
			out = Histogram{T: h.Timestamp, H: h.ToIntHistogram()}
		}
	}
	// Code that walks spans and buckets indexes without a check, so they must agree.
	if err := out.validate(); err != nil {
		return out, err
	}
	return out, nil
}

// validate refuses histograms whose spans and buckets don't agree.
func (h Histogram) validate() error {
	spans := func(s []histogram.Span, buckets int) bool {
		n := uint64(0)
		for _, p := range s {
			n += uint64(p.Length)
		}
		return n == uint64(buckets)
	}
	var ok bool
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
		return errors.New("histogram: spans and buckets don't agree")
	}
	if err != nil {
		return fmt.Errorf("histogram: %w", err)
	}
	return nil
}

func (d *Decoder) metadata(b []byte) {
	var m writev2.Metadata
	if err := m.Unmarshal(b); err != nil {
		d.err = fmt.Errorf("metadata: %w: %w", err, ErrMalformed)
		return
	}
	help, ok1 := d.symbol(uint64(m.HelpRef))
	unit, ok2 := d.symbol(uint64(m.UnitRef))
	if !ok1 || !ok2 {
		d.Bad = fmt.Errorf("metadata outside of the %d symbols", len(d.symbols))
		return
	}
	d.Metadata = Metadata{Type: (&writev2.TimeSeries{Metadata: writev2.Metadata{Type: m.Type}}).ToMetadata([]string{""}).Type, Help: help, Unit: unit}
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

// fields counts the fields of a message; of a broken one those before the break.
func fields(b []byte) int {
	for n := 0; ; n++ {
		_, _, m := protowire.ConsumeField(b)
		if m <= 0 {
			return n
		}
		b = b[m:]
	}
}

func alias(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return unsafe.String(&b[0], len(b))
}
