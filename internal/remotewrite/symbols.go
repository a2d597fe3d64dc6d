package remotewrite

import (
	"encoding/binary"
	"unsafe"
)

// symbols is the table of strings of a 2.0 request while it is put together. The zero
// value is an empty table. Not for concurrent use.
type symbols struct {
	byName map[string]uint32
	names  []string // without the first one, which is empty
	// Series share most of their strings, mostly down to the same bytes in memory. Where
	// a string was seen lately says which one it is without looking at it.
	recent [1 << 10]struct {
		at  *byte
		len int
		ref uint32
	}
}

// ref returns the number of a string, which it takes into the table. The string must
// stay as it is until reset.
func (t *symbols) ref(s string) uint32 {
	if s == "" {
		return 0
	}
	at := unsafe.StringData(s)
	slot := &t.recent[(uint64(uintptr(unsafe.Pointer(at)))*0x9e3779b97f4a7c15)>>54]
	if slot.at == at && slot.len == len(s) {
		return slot.ref
	}
	r, ok := t.byName[s]
	if !ok {
		if t.byName == nil {
			t.byName = map[string]uint32{}
		}
		t.names = append(t.names, s)
		r = uint32(len(t.names))
		t.byName[s] = r
	}
	slot.at, slot.len, slot.ref = at, len(s), r
	return r
}

// size is how many bytes appendTo appends, or a few more.
func (t *symbols) size() int {
	n := 2
	for _, s := range t.names {
		n += 1 + binary.MaxVarintLen32 + len(s)
	}
	return n
}

// appendTo appends the table as the fields of a request.
func (t *symbols) appendTo(b []byte) []byte {
	b = append(b, tagSymbol, 0)
	for _, s := range t.names {
		b = append(b, tagSymbol)
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return b
}

// reset empties the table and lets go of its strings.
func (t *symbols) reset() {
	clear(t.byName)
	clear(t.names)
	t.names = t.names[:0]
	clear(t.recent[:])
}
