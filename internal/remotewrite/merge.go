package remotewrite

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/snappy"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"google.golang.org/protobuf/encoding/protowire"
)

// merger puts 2.0 requests together without building a label of them: the symbols get new
// numbers, and samples are copied as they stand. It is safe on any bytes, but does not look
// into samples: their receiver does.
type merger struct {
	symbols symbols
	series  []merged
	index   map[string]int // by the new numbers of its labels, as encoded → its place in series
	parts   []part

	// Of the request that is added.
	remap []uint32
	refs  []byte

	// What the above points into, and what the result is made of.
	raws        buffers
	kept        buffers // of refs, a chunk each
	raw, packed []byte
}

// buffers are kept from one use to the next. Those in use stay where they are.
type buffers struct {
	all  [][]byte
	used int
}

// next returns a buffer that nobody uses, of at least n bytes' capacity.
func (s *buffers) next(n int) *[]byte {
	if s.used == len(s.all) {
		s.all = append(s.all, nil)
	}
	b := &s.all[s.used]
	s.used++
	if cap(*b) < n {
		*b = make([]byte, 0, n)
	}
	*b = (*b)[:0]
	return b
}

func (s *buffers) size() (n int) {
	for _, b := range s.all {
		n += cap(b)
	}
	return n
}

// mergers holds those that wait for the next merge: putting requests together made half of
// a regional's garbage.
var mergers = sync.Pool{New: func() any { return &merger{index: map[string]int{}} }}

// maxPooledMerger is how many bytes one that waits may hold; a usual one holds half of it.
const maxPooledMerger = 4 << 20

// release makes m ready for the next. Nothing that m returned may point into it.
func (m *merger) release() {
	m.symbols.reset()
	clear(m.index)
	m.series, m.parts = m.series[:0], m.parts[:0]
	m.raws.used, m.kept.used = 0, 0
	if m.raws.size()+m.kept.size()+cap(m.raw)+cap(m.packed) <= maxPooledMerger {
		mergers.Put(m)
	}
}

// chunk is how many bytes of refs are taken at once.
const chunk = 32 << 10

// keepRefs copies m.refs to where it stays until release.
func (m *merger) keepRefs() string {
	n := m.kept.used - 1
	if n < 0 || cap(m.kept.all[n])-len(m.kept.all[n]) < len(m.refs) {
		m.kept.next(max(chunk, len(m.refs)))
		n++
	}
	b := &m.kept.all[n]
	from := len(*b)
	*b = append(*b, m.refs...)
	return alias((*b)[from:])
}

// merged is one series; its parts are a list.
type merged struct {
	refs            string
	typ, help, unit uint64
	first, last     int32
	size            int // of all parts
}

// part is a field of samples or of a histogram, with its tag.
type part struct {
	b    []byte
	next int32
}

// add takes the compressed body of a request. After an error the merger is of no use.
func (m *merger) add(body []byte) error {
	n, err := snappy.DecodedLen(body)
	if err != nil {
		return fmt.Errorf("snappy: %w: %w", err, ErrMalformed)
	}
	if n > maxRecordBytes {
		return fmt.Errorf("%d bytes uncompressed, want at most %d: %w", n, maxRecordBytes, ErrTooLarge)
	}
	buf := m.raws.next(n)
	raw, err := snappy.Decode((*buf)[:cap(*buf)], body)
	if err != nil {
		return fmt.Errorf("snappy: %w: %w", err, ErrMalformed)
	}
	m.remap = m.remap[:0]
	for b := raw; len(b) > 0; {
		num, typ, val, n := field(b)
		if n < 0 {
			return malformed(n)
		}
		if num == v2Symbols && typ == protowire.BytesType {
			m.remap = append(m.remap, m.symbols.ref(alias(val)))
		}
		b = b[n:]
	}
	for b := raw; len(b) > 0; {
		num, typ, val, n := field(b)
		if num == v2Series && typ == protowire.BytesType {
			if err := m.addSeries(val); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}

func malformed(n int) error {
	return fmt.Errorf("protobuf: %w: %w", protowire.ParseError(n), ErrMalformed)
}

// symbol returns the new number of a request's symbol.
func (m *merger) symbol(ref uint64) (uint32, error) {
	if ref >= uint64(len(m.remap)) {
		if ref == 0 {
			return 0, nil
		}
		return 0, fmt.Errorf("reference %d, the request has %d symbols: %w", ref, len(m.remap), ErrMalformed)
	}
	return m.remap[ref], nil
}

// addSeries takes one series as our encoder writes it: its labels packed, and before the rest.
func (m *merger) addSeries(b []byte) error {
	num, typ, val, n := field(b)
	if n < 0 {
		return malformed(n)
	}
	if num != 1 || typ != protowire.BytesType {
		return fmt.Errorf("a series without labels: %w", ErrMalformed)
	}
	m.refs = m.refs[:0]
	for len(val) > 0 {
		ref, k := binary.Uvarint(val)
		if k <= 0 {
			return fmt.Errorf("label reference: %w", ErrMalformed)
		}
		r, err := m.symbol(ref)
		if err != nil {
			return err
		}
		m.refs, val = binary.AppendUvarint(m.refs, uint64(r)), val[k:]
	}
	at, known := m.index[string(m.refs)]
	if !known {
		at = len(m.series)
		s := merged{refs: m.keepRefs(), first: -1, last: -1}
		m.series, m.index[s.refs] = append(m.series, s), at
	}
	for b = b[n:]; len(b) > 0; b = b[n:] {
		if num, typ, val, n = field(b); n < 0 {
			return malformed(n)
		}
		switch {
		case typ != protowire.BytesType:
		case num == 2, num == 3:
			m.addPart(&m.series[at], b[:n])
		case num == 5:
			if err := m.addMeta(&m.series[at], val); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *merger) addPart(s *merged, b []byte) {
	i := int32(len(m.parts))
	m.parts = append(m.parts, part{b, -1})
	if s.last >= 0 {
		m.parts[s.last].next = i
	} else {
		s.first = i
	}
	s.last = i
	s.size += len(b)
}

func (m *merger) addMeta(s *merged, b []byte) error {
	var meta writev2.Metadata
	if err := meta.Unmarshal(b); err != nil {
		return fmt.Errorf("metadata: %w: %w", err, ErrMalformed)
	}
	help, err := m.symbol(uint64(meta.HelpRef))
	if err != nil {
		return err
	}
	unit, err := m.symbol(uint64(meta.UnitRef))
	if err != nil {
		return err
	}
	s.typ, s.help, s.unit = uint64(meta.Type), uint64(help), uint64(unit)
	return nil
}

// body returns the compressed request.
func (m *merger) body() []byte {
	size := m.symbols.size()
	for i := range m.series {
		size += len(m.series[i].refs) + m.series[i].size + 64
	}
	raw := m.symbols.appendTo(slices.Grow(m.raw[:0], size))
	for i := range m.series {
		s := &m.series[i]
		meta := sizeMeta(s.typ, s.help, s.unit)
		raw = append(raw, tagSeries)
		raw = binary.AppendUvarint(raw, uint64(sizeBytes(len(s.refs))+s.size+sizeBytes(meta)))
		raw = append(raw, tagLabelsRefs)
		raw = binary.AppendUvarint(raw, uint64(len(s.refs)))
		raw = append(raw, s.refs...)
		for p := s.first; p >= 0; p = m.parts[p].next {
			raw = append(raw, m.parts[p].b...)
		}
		raw = appendMeta(raw, meta, s.typ, s.help, s.unit)
	}
	m.raw = raw
	// What the encoder is given must be as long as what could not be compressed at all.
	m.packed = slices.Grow(m.packed[:0], snappy.MaxEncodedLen(len(raw)))
	m.packed = snappy.Encode(m.packed[:cap(m.packed)], raw)
	return slices.Clone(m.packed)
}
