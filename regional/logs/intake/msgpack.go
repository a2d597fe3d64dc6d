package intake

import (
	"encoding/binary"
	"errors"
	"math"
)

// The MessagePack reader of the intake.
//
// It is our own for one reason: what is read here comes from sites that may be
// hostile, and the frame of a message must be found while its bytes still arrive.
// The libraries that we looked at either build maps and slices by the lengths that
// a header claims, or can only start over when a value is not complete yet, which
// makes a slow sender cost the square of its bytes. The scanner below allocates
// nothing, remembers where it stopped, and refuses a length, a count or a nesting
// as soon as its header arrives. Everything else works on slices of the one buffer
// that the scanner has passed.
//
// Headers need not be the shortest ones: Fluent Bit writes array32 and map32
// headers for small values, because it fills the counts in afterwards.

// maxDepth is how deep a value may nest. The deepest thing that Fluent Bit sends
// by itself, an annotation of a pod in a packed entry, is at 6.
const maxDepth = 32

var (
	errInvalid = errors.New("not valid MessagePack")
	errDeep    = errors.New("nested too deep")
	errLarge   = errors.New("larger than the limit")
)

type kind uint8

const (
	kindNil kind = iota
	kindBool
	kindInt // bits hold an int64
	kindUint
	kindFloat // bits hold a float64
	kindStr
	kindBin
	kindExt
	kindArray
	kindMap
)

// head is one header, with the scalar in it if it is one.
type head struct {
	kind kind
	size int    // bytes of the header, scalar included
	n    int    // bytes that follow (str, bin, ext), elements (array) or pairs (map)
	ext  int8   // type of an ext
	bits uint64 // of a scalar
}

// readHead returns false when b ends too early.
func readHead(b []byte) (head, bool, error) {
	if len(b) == 0 {
		return head{}, false, nil
	}
	c := b[0]
	switch {
	case c <= 0x7f:
		return head{kind: kindUint, size: 1, bits: uint64(c)}, true, nil
	case c <= 0x8f:
		return head{kind: kindMap, size: 1, n: int(c & 0x0f)}, true, nil
	case c <= 0x9f:
		return head{kind: kindArray, size: 1, n: int(c & 0x0f)}, true, nil
	case c <= 0xbf:
		return head{kind: kindStr, size: 1, n: int(c & 0x1f)}, true, nil
	case c >= 0xe0:
		return head{kind: kindInt, size: 1, bits: uint64(int64(int8(c)))}, true, nil
	}
	f := forms[c-0xc0]
	if f.bytes == 0 {
		return head{}, false, errInvalid
	}
	if len(b) < int(f.bytes) {
		return head{}, false, nil
	}
	h := head{kind: f.kind, size: int(f.bytes)}
	var u uint64
	switch f.num {
	case 1:
		u = uint64(b[1])
	case 2:
		u = uint64(binary.BigEndian.Uint16(b[1:]))
	case 4:
		u = uint64(binary.BigEndian.Uint32(b[1:]))
	case 8:
		u = binary.BigEndian.Uint64(b[1:])
	}
	switch f.kind {
	case kindBool:
		h.bits = uint64(c & 1)
	case kindInt:
		shift := 64 - 8*uint(f.num)
		h.bits = uint64(int64(u<<shift) >> shift)
	case kindUint:
		h.bits = u
	case kindFloat:
		if f.num == 4 {
			u = math.Float64bits(float64(math.Float32frombits(uint32(u))))
		}
		h.bits = u
	case kindExt:
		h.ext, h.n = int8(b[f.bytes-1]), int(u)
		if f.num == 0 {
			h.n = 1 << (c - 0xd4) // fixext
		}
	case kindNil:
	default:
		h.n = int(u)
	}
	return h, true, nil
}

// forms are the headers 0xc0 to 0xdf: their whole size, and of it the bytes of the
// number (right after the first byte).
var forms = [32]struct {
	kind       kind
	bytes, num uint8
}{
	{kindNil, 1, 0}, {}, {kindBool, 1, 0}, {kindBool, 1, 0},
	{kindBin, 2, 1}, {kindBin, 3, 2}, {kindBin, 5, 4},
	{kindExt, 3, 1}, {kindExt, 4, 2}, {kindExt, 6, 4},
	{kindFloat, 5, 4}, {kindFloat, 9, 8},
	{kindUint, 2, 1}, {kindUint, 3, 2}, {kindUint, 5, 4}, {kindUint, 9, 8},
	{kindInt, 2, 1}, {kindInt, 3, 2}, {kindInt, 5, 4}, {kindInt, 9, 8},
	{kindExt, 2, 0}, {kindExt, 2, 0}, {kindExt, 2, 0}, {kindExt, 2, 0}, {kindExt, 2, 0},
	{kindStr, 2, 1}, {kindStr, 3, 2}, {kindStr, 5, 4},
	{kindArray, 3, 2}, {kindArray, 5, 4},
	{kindMap, 3, 2}, {kindMap, 5, 4},
}

// scanner finds the end of one value. The zero scanner is at its beginning.
type scanner struct {
	pos     int // everything before it is understood; may lie beyond what has arrived
	started bool
	depth   int
	pending int64           // values that must still come, all levels together
	left    [maxDepth]int64 // per level
}

// run goes on where it stopped. b is the value from its beginning, as far as it has
// arrived; limit is what the whole value may take, in bytes. It returns true when
// b holds all of the value, which then ends at pos.
func (s *scanner) run(b []byte, limit int) (bool, error) {
	for {
		for s.depth > 0 && s.left[s.depth-1] == 0 {
			s.depth--
		}
		if s.started && s.depth == 0 {
			return s.pos <= len(b), nil
		}
		if s.pos >= len(b) {
			return false, nil
		}
		h, ok, err := readHead(b[s.pos:])
		if !ok || err != nil {
			return false, err
		}
		s.started = true
		if s.depth > 0 {
			s.left[s.depth-1]--
			s.pending--
		}
		s.pos += h.size
		more := int64(0)
		switch h.kind {
		case kindStr, kindBin, kindExt:
			s.pos += h.n
		case kindArray:
			more = int64(h.n)
		case kindMap:
			more = 2 * int64(h.n)
		}
		if more > 0 {
			if s.depth == maxDepth {
				return false, errDeep
			}
			s.left[s.depth] = more
			s.depth++
			s.pending += more
		}
		// Every value that is still to come takes at least a byte.
		if int64(s.pos)+s.pending > int64(limit) {
			return false, errLarge
		}
	}
}

// cut splits b behind its first value.
func cut(b []byte) (first, rest []byte, err error) {
	var s scanner
	ok, err := s.run(b, math.MaxInt)
	switch {
	case err != nil:
		return nil, nil, err
	case !ok:
		return nil, nil, errShort
	}
	return b[:s.pos], b[s.pos:], nil
}

var errShort = errors.New("it ends too early")

// headOf is readHead for bytes that must hold a whole value, header and body.
func headOf(b []byte) (head, error) {
	h, ok, err := readHead(b)
	if err != nil {
		return h, err
	}
	if !ok || ((h.kind == kindStr || h.kind == kindBin || h.kind == kindExt) && len(b) < h.size+h.n) {
		return h, errShort
	}
	return h, nil
}

// body returns the bytes of a str, bin or ext that starts b.
func (h head) body(b []byte) []byte { return b[h.size : h.size+h.n] }

// The writer, as far as acks and the handshake need one.

func appendStr(b []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		b = append(b, 0xa0|byte(n))
	case n < 1<<8:
		b = append(b, 0xd9, byte(n))
	case n < 1<<16:
		b = append(b, 0xda, byte(n>>8), byte(n))
	default:
		b = append(b, 0xdb, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return append(b, s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 0xc3)
	}
	return append(b, 0xc2)
}
