package remotewrite

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/snappy"
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
	names []string
	remap []uint32 // new numbers, and 1; 0: nobody has asked for it
	place []uint8  // of a label of this name among the stamp's; see placeOf
	stamp []stamped
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

func newMerger() *merger { return mergers.Get().(*merger) }

// maxPooledMerger is how many bytes one that waits may hold; a usual one holds half of it.
const maxPooledMerger = 4 << 20

// release makes m ready for the next. Nothing that m returned may point into it.
func (m *merger) release() {
	m.symbols.reset()
	clear(m.index)
	clear(m.names)
	clear(m.stamp)
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

// stamped is a label that all series of a request get.
type stamped struct {
	name string
	n, v uint32 // the new numbers of name and value; v 0: it only takes one away
}

// setStamp reads the stamp of a record.
func (m *merger) setStamp(b []byte) error {
	m.stamp = m.stamp[:0]
	text := func() (string, bool) {
		n, k := binary.Uvarint(b)
		if k <= 0 || n > uint64(len(b)-k) {
			return "", false
		}
		s := alias(b[k : k+int(n)])
		b = b[k+int(n):]
		return s, true
	}
	for len(b) > 0 {
		name, ok1 := text()
		value, ok2 := text()
		if !ok1 || !ok2 || name == "" || len(m.stamp) == maxStamp || len(m.stamp) > 0 && m.stamp[len(m.stamp)-1].name >= name {
			return fmt.Errorf("stamp: %w", ErrMalformed)
		}
		m.stamp = append(m.stamp, stamped{name: name, n: m.symbols.ref(name), v: m.symbols.ref(value)})
	}
	return nil
}

// maxStamp is how many labels a stamp has at most.
const maxStamp = 32

// add takes the compressed body of a request, and its record's stamp. Both stay as they are
// until release. alone says that no other request has series of this one. After an error the
// merger is of no use.
func (m *merger) add(body []byte, stamp string, alone bool) error {
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
	if err := m.setStamp([]byte(stamp)); err != nil {
		return err
	}
	m.names = m.names[:0]
	for b := raw; len(b) > 0; {
		num, typ, val, n := field(b)
		if n < 0 {
			return malformed(n)
		}
		if num == v2Symbols && typ == protowire.BytesType {
			m.names = append(m.names, alias(val))
		}
		b = b[n:]
	}
	m.remap = zeroed(m.remap, len(m.names))
	m.place = zeroed(m.place, len(m.names))
	for b := raw; len(b) > 0; {
		num, typ, val, n := field(b)
		if num == v2Series && typ == protowire.BytesType {
			if err := m.addSeries(val, alone); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}

// zeroed returns n zeros, in s if it is long enough.
func zeroed[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

func malformed(n int) error {
	return fmt.Errorf("protobuf: %w: %w", protowire.ParseError(n), ErrMalformed)
}

// symbol returns the new number of a request's symbol. Those that no series has get none.
func (m *merger) symbol(ref uint64) (uint32, error) {
	if ref >= uint64(len(m.names)) {
		if ref == 0 {
			return 0, nil
		}
		return 0, fmt.Errorf("reference %d, the request has %d symbols: %w", ref, len(m.names), ErrMalformed)
	}
	r := &m.remap[ref]
	if *r == 0 {
		*r = 1 + m.symbols.ref(m.names[ref])
	}
	return *r - 1, nil
}

// placeOf tells how many labels of the stamp come before one whose name is this symbol of the
// request, and whether one of the stamp takes its place.
func (m *merger) placeOf(ref uint64) (before int, same bool) {
	if ref >= uint64(len(m.place)) {
		return 0, false
	}
	p := &m.place[ref]
	if *p == 0 {
		for before < len(m.stamp) && m.stamp[before].name < m.names[ref] {
			before++
		}
		*p = 2 + uint8(2*before)
		if before < len(m.stamp) && m.stamp[before].name == m.names[ref] {
			*p++
		}
	}
	return int(*p-2) / 2, *p&1 == 1
}

// addSeries takes one series as our encoder writes it: its labels packed, and before the rest.
func (m *merger) addSeries(b []byte, alone bool) error {
	num, typ, val, n := field(b)
	if n < 0 {
		return malformed(n)
	}
	if num != 1 || typ != protowire.BytesType {
		return fmt.Errorf("a series without labels: %w", ErrMalformed)
	}
	m.refs = m.refs[:0]
	done := 0 // of the stamp
	for len(val) > 0 {
		name, k := binary.Uvarint(val)
		if k <= 0 {
			return fmt.Errorf("label reference: %w", ErrMalformed)
		}
		value, l := binary.Uvarint(val[k:])
		if l <= 0 {
			return fmt.Errorf("label reference: %w", ErrMalformed)
		}
		val = val[k+l:]
		n, err := m.symbol(name)
		if err != nil {
			return err
		}
		v, err := m.symbol(value)
		if err != nil {
			return err
		}
		if len(m.stamp) > 0 {
			before, same := m.placeOf(name)
			for ; done < before; done++ {
				m.addStamped(m.stamp[done])
			}
			if same {
				continue
			}
		}
		m.addLabel(n, v)
	}
	for ; done < len(m.stamp); done++ {
		m.addStamped(m.stamp[done])
	}
	at, known := 0, false
	if !alone {
		at, known = m.index[string(m.refs)]
	}
	if !known {
		at = len(m.series)
		s := merged{refs: m.keepRefs(), first: -1, last: -1}
		m.series = append(m.series, s)
		if !alone {
			m.index[s.refs] = at
		}
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

func (m *merger) addLabel(n, v uint32) {
	m.refs = binary.AppendUvarint(binary.AppendUvarint(m.refs, uint64(n)), uint64(v))
}

func (m *merger) addStamped(s stamped) {
	if s.v != 0 {
		m.addLabel(s.n, s.v)
	}
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
	typ, help, unit, err := parseMeta(b)
	if err != nil {
		return err
	}
	h, err := m.symbol(help)
	if err != nil {
		return err
	}
	u, err := m.symbol(unit)
	if err != nil {
		return err
	}
	s.typ, s.help, s.unit = typ, uint64(h), uint64(u)
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
