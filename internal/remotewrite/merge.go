package remotewrite

import (
	"encoding/binary"
	"fmt"

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
	raw, err := snappy.Decode(nil, body)
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
		s := merged{refs: string(m.refs), first: -1, last: -1}
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
	raw := m.symbols.appendTo(make([]byte, 0, size))
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
	return snappy.Encode(nil, raw)
}
