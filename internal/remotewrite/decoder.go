package remotewrite

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"unsafe"

	"github.com/prometheus/common/model"
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
	// Seed is that of Hash.
	Seed maphash.Seed

	// The current series.
	Samples    []Sample
	Histograms []Histogram
	Exemplars  []Exemplar // the newest of them, as many as Limits allow
	Metadata   Metadata
	Bad        error // what is wrong with this series alone

	limits  Limits
	rest    []byte // what is not yet walked
	v2      bool
	odd     bool     // see Plain
	symbols []string // 2.0
	hashes  []uint64 // of the symbols, for Hash; 0: not asked for yet
	refs    []uint32 // 2.0: into symbols, of the labels of the current series
	pairs   []string // its labels; in 2.0 only when asked for
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
	d.symbols, d.hashes, d.slab, d.odd = d.symbols[:0], d.hashes[:0], d.slab[:0], !v2
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
	clear(d.pairs)
	d.rest, d.Metadata, d.Bad, d.Charge = nil, Metadata{}, nil, nil
	d.Samples, d.Histograms = nil, nil
	if cap(d.slab) > 1<<16 {
		d.slab = nil
	}
	if cap(d.symbols) > 1<<14 {
		d.symbols, d.hashes = nil, nil
	}
}

// Pairs are the label names and values of the current series in turn, as they were sent.
func (d *Decoder) Pairs() []string {
	if d.v2 {
		d.pairs = d.named(d.pairs[:0], d.refs)
	}
	return d.pairs
}

func (d *Decoder) named(to []string, refs []uint32) []string {
	for _, r := range refs {
		s, _ := d.symbol(uint64(r))
		to = append(to, s)
	}
	return to
}

// Hash is one of begin and of what Pairs returns, in its order, by Seed. Of the strings of a
// 2.0 request each is read once, however many series have it.
func (d *Decoder) Hash(begin uint64) uint64 {
	h := begin
	mix := func(of uint64) {
		hi, lo := bits.Mul64(h^of, 0x9e3779b97f4a7c15)
		h = hi ^ lo
	}
	if !d.v2 {
		for _, s := range d.pairs {
			mix(maphash.String(d.Seed, s))
		}
		return h
	}
	if len(d.hashes) < len(d.symbols) {
		d.hashes = append(d.hashes, make([]uint64, len(d.symbols)-len(d.hashes))...)
	}
	for _, r := range d.refs {
		if int(r) >= len(d.hashes) { // of an empty table
			mix(maphash.String(d.Seed, ""))
			continue
		}
		of := &d.hashes[r]
		if *of == 0 {
			*of = maphash.String(d.Seed, d.symbols[r])
		}
		mix(*of)
	}
	return h
}

// Plain says of a 2.0 request, when Next has returned false, that its series look as our
// encoder writes them, so that AppendRaw may take them as they are.
func (d *Decoder) Plain() bool { return !d.odd && d.err == nil }

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
	d.pairs, d.refs, d.Histograms, d.Exemplars, d.Bad = d.pairs[:0], d.refs[:0], nil, nil, nil
	d.Metadata = Metadata{}
	from := len(d.slab)
	if !d.charge(seriesBytes) {
		return
	}
	fLabels, fSamples, fHist, fExemplars, fMeta := protowire.Number(1), protowire.Number(2), protowire.Number(4), protowire.Number(3), protowire.Number(-1)
	if d.v2 {
		fHist, fExemplars, fMeta = 3, 4, 5
	}
	for first := true; len(b) > 0; first = false {
		num, typ, val, n := field(b)
		if n < 0 {
			d.fail(n)
			return
		}
		// Labels have to come first and packed, and a sample has no more than one of ours.
		labels := num == fLabels && typ == protowire.BytesType
		d.odd = d.odd || labels != first || num == fLabels && !labels || num == fSamples && len(val) > maxSample
		switch {
		case num == fLabels && d.v2:
			d.labelRefs(typ, val, b[:n])
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

// maxSample is what a sample takes at most, in bytes: a value, a time, their tags.
const maxSample = 1 + 8 + 1 + binary.MaxVarintLen64

// labelRefs reads label references, packed or one by one: protobuf allows both.
func (d *Decoder) labelRefs(typ protowire.Type, val, whole []byte) {
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
		if ref >= uint64(len(d.symbols)) && ref != 0 {
			// The series is unusable, the rest of the request is not.
			d.Bad = fmt.Errorf("label reference %d, the request has %d symbols", ref, len(d.symbols))
			return
		}
		if len(d.refs) == 2*d.limits.Labels {
			d.Bad = errTooManyLabels(d.limits.Labels)
			return
		}
		d.refs = append(d.refs, uint32(ref))
	}
}

func errTooManyLabels(most int) error { return fmt.Errorf("more than %d labels", most) }

func (d *Decoder) addPair(s string) {
	if len(d.pairs) < 2*d.limits.Labels {
		d.pairs = append(d.pairs, s)
	} else if d.Bad == nil {
		d.Bad = errTooManyLabels(d.limits.Labels)
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
	// Read as the labels of a series are, by the same code.
	pairs, refs := d.pairs, d.refs
	d.pairs, d.refs = nil, nil
	defer func() { d.pairs, d.refs = pairs, refs }()
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
			packed, _ := protowire.ConsumeBytes(val) // of another type: labelRefs takes the whole
			d.labelRefs(typ, packed, b[:tag+n])
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
	e.Pairs = d.Pairs()
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
	if len(b) > 10 && b[0] == tagSampleV && b[9] == tagSampleT { // as everybody writes it
		if t, n := binary.Uvarint(b[10:]); n == len(b)-10 {
			d.slab = append(d.slab, Sample{T: int64(t), V: math.Float64frombits(binary.LittleEndian.Uint64(b[1:]))})
			return
		}
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
	typ, help, unit, err := parseMeta(b)
	if err != nil {
		d.err = err
		return
	}
	h, ok1 := d.symbol(help)
	u, ok2 := d.symbol(unit)
	if !ok1 || !ok2 {
		d.Bad = fmt.Errorf("metadata outside of the %d symbols", len(d.symbols))
		return
	}
	d.Metadata = Metadata{Type: metadataType(typ), Help: h, Unit: u}
}

// parseMeta reads a message Metadata: 1: enum type, 3: uint32 help, 4: uint32 unit, both
// references to symbols. A type that nobody knows is none.
func parseMeta(b []byte) (typ, help, unit uint64, err error) {
	for len(b) > 0 {
		num, wire, tag := protowire.ConsumeTag(b)
		n := tag
		if tag > 0 {
			n = protowire.ConsumeFieldValue(num, wire, b[tag:])
		}
		if n < 0 {
			return 0, 0, 0, fmt.Errorf("metadata: %w: %w", protowire.ParseError(n), ErrMalformed)
		}
		if v := uint64(0); num == 1 || num == 3 || num == 4 {
			if wire != protowire.VarintType {
				return 0, 0, 0, fmt.Errorf("metadata: field %d of wire type %d: %w", num, wire, ErrMalformed)
			}
			v, _ = protowire.ConsumeVarint(b[tag:])
			switch num {
			case 1:
				if typ = v; v > uint64(writev2.Metadata_METRIC_TYPE_STATESET) {
					typ = 0
				}
			case 3:
				help = uint64(uint32(v))
			case 4:
				unit = uint64(uint32(v))
			}
		}
		b = b[tag+n:]
	}
	return typ, help, unit, nil
}

// metadataType is the inverse of writev2.FromMetadataType.
func metadataType(typ uint64) model.MetricType {
	switch writev2.Metadata_MetricType(typ) {
	case writev2.Metadata_METRIC_TYPE_COUNTER:
		return model.MetricTypeCounter
	case writev2.Metadata_METRIC_TYPE_GAUGE:
		return model.MetricTypeGauge
	case writev2.Metadata_METRIC_TYPE_HISTOGRAM:
		return model.MetricTypeHistogram
	case writev2.Metadata_METRIC_TYPE_GAUGEHISTOGRAM:
		return model.MetricTypeGaugeHistogram
	case writev2.Metadata_METRIC_TYPE_SUMMARY:
		return model.MetricTypeSummary
	case writev2.Metadata_METRIC_TYPE_INFO:
		return model.MetricTypeInfo
	case writev2.Metadata_METRIC_TYPE_STATESET:
		return model.MetricTypeStateset
	}
	return model.MetricTypeUnknown
}

// field reads one field. For a length-delimited one val is its content. n is its
// whole length, or a negative protowire error.
func field(b []byte) (num protowire.Number, typ protowire.Type, val []byte, n int) {
	// Most are short ones of a low number.
	if len(b) > 1 && b[0]&0x87 == byte(protowire.BytesType) && b[0] > 7 && int8(b[1]) >= 0 && len(b)-2 >= int(b[1]) {
		n = 2 + int(b[1])
		return protowire.Number(b[0] >> 3), protowire.BytesType, b[2:n:n], n
	}
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
