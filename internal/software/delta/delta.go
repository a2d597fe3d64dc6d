// Package delta makes one file out of another and the few bytes that differ, so that a
// site with version 1 of a 700 MB image fetches only what is new in version 2.
//
// The centre makes deltas, once a pair of versions; sites apply them from the slot that
// they run. A delta needs no trust: who applies it compares the result's digest with the
// one that was signed, as package bundle gives it. It fetches nothing and keeps no files.
//
// A delta is the 8 bytes of magic and a zstd stream of operations. Each begins with an
// unsigned varint n: 0 ends it; n even: n/2 bytes follow and are written; n odd: n/2 bytes
// are copied from the old file, beginning a signed varint further on than the last copy
// ended. Both sides need memory for a window, not for the files.
package delta

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"

	"github.com/klauspost/compress/zstd"
)

const (
	magic = "MUSTERD1"
	// Chunks end where their content says so, about every 2 KiB: an insertion moves those
	// behind it and changes none of them. Matches grow beyond their chunks byte by byte.
	minChunk, avgChunk, maxChunk = 512, 2 << 10, 16 << 10
	// maxLiteral is how much is held back for a match to grow into, in bytes.
	maxLiteral = 1 << 20
	window     = 8 << 20
)

// gear gives each byte a number for the rolling sum. It decides where chunks end and so
// how small a delta is, not what it means.
var gear = func() (g [256]uint64) {
	r := rand.New(rand.NewPCG(0x6d7573746572, 0x64656c7461))
	for i := range g {
		g[i] = r.Uint64()
	}
	return g
}()

// cut returns the length of the first chunk of b, which is all of it at the end of a file.
func cut(b []byte) int {
	const mask = (avgChunk - 1) << 40
	end := min(len(b), maxChunk)
	sum := uint64(0)
	for i := min(minChunk, end); i < end; i++ {
		if sum = sum<<1 + gear[b[i]]; sum&mask == 0 {
			return i + 1
		}
	}
	return end
}

// chunks calls do with each chunk of r; its bytes are gone after do returns.
func chunks(r io.Reader, do func(at int64, b []byte) error) error {
	in := bufio.NewReaderSize(r, 1<<20)
	for at := int64(0); ; {
		b, err := in.Peek(maxChunk)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(b) == 0 {
			return nil
		}
		n := cut(b)
		if err := do(at, b[:n]); err != nil {
			return err
		}
		if _, err := in.Discard(n); err != nil {
			return err
		}
		at += int64(n)
	}
}

// Make writes what makes current out of old. It reads both once from the start, and old
// here and there besides; it holds about 2 % of old's size in memory.
func Make(out io.Writer, old io.ReaderAt, oldSize int64, current io.Reader) error {
	seed := maphash.MakeSeed()
	known := make(map[uint64]int64, oldSize/avgChunk)
	if err := chunks(io.NewSectionReader(old, 0, oldSize), func(at int64, b []byte) error {
		sum := maphash.Bytes(seed, b)
		if _, ok := known[sum]; !ok {
			known[sum] = at
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read the old file: %w", err)
	}
	if _, err := io.WriteString(out, magic); err != nil {
		return err
	}
	z, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	m := &maker{out: bufio.NewWriter(z), old: old, oldSize: oldSize}
	if err := chunks(current, func(_ int64, b []byte) error { return m.chunk(known, maphash.Bytes(seed, b), b) }); err != nil {
		return err
	}
	if err := m.flush(); err != nil {
		return err
	}
	m.number(0)
	if err := m.out.Flush(); err != nil {
		return err
	}
	return z.Close()
}

// maker has an operation under way: a copy, and then bytes that were not found.
type maker struct {
	out     *bufio.Writer
	old     io.ReaderAt
	oldSize int64

	from, n int64 // the copy
	literal []byte
	ended   int64 // where the last copy that was written ended
	buf     [maxChunk]byte
}

// oldAt reads n bytes of the old file, fewer at its ends.
func (m *maker) oldAt(at int64, n int) ([]byte, error) {
	n = int(min(int64(n), m.oldSize-at))
	if at < 0 || n <= 0 {
		return nil, nil
	}
	if _, err := m.old.ReadAt(m.buf[:n], at); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return m.buf[:n], nil
}

func (m *maker) chunk(known map[uint64]int64, sum uint64, b []byte) error {
	if len(m.literal) == 0 && m.n > 0 { // the copy may simply go on
		was, err := m.oldAt(m.from+m.n, len(b))
		if err != nil {
			return err
		}
		same := 0
		for same < len(was) && was[same] == b[same] {
			same++
		}
		m.n += int64(same)
		if b = b[same:]; len(b) == 0 {
			return nil
		}
		if same > 0 {
			m.literal = append(m.literal, b...)
			return nil
		}
	}
	at, ok := known[sum]
	if ok {
		was, err := m.oldAt(at, len(b))
		if err != nil {
			return err
		}
		ok = bytes.Equal(was, b)
	}
	if !ok {
		if m.literal = append(m.literal, b...); len(m.literal) > maxLiteral {
			return m.flush()
		}
		return nil
	}
	// What was not found just before may be in front of it in the old file, too.
	size, back := int64(len(b)), 0
	for back < len(m.literal) && back < maxChunk && int64(back) < at {
		step := int(min(256, at-int64(back), int64(len(m.literal)-back)))
		was, err := m.oldAt(at-int64(back+step), step)
		if err != nil {
			return err
		}
		same := 0
		for same < step && was[step-1-same] == m.literal[len(m.literal)-1-back-same] {
			same++
		}
		if back += same; same < step {
			break
		}
	}
	m.literal = m.literal[:len(m.literal)-back]
	if err := m.flush(); err != nil {
		return err
	}
	m.from, m.n = at-int64(back), size+int64(back)
	return nil
}

// flush writes the copy and the bytes after it.
func (m *maker) flush() error {
	if m.n > 0 {
		m.number(uint64(m.n)<<1 | 1)
		var b [binary.MaxVarintLen64]byte
		_, _ = m.out.Write(b[:binary.PutVarint(b[:], m.from-m.ended)])
		m.ended = m.from + m.n
	}
	if len(m.literal) > 0 {
		m.number(uint64(len(m.literal)) << 1)
		_, _ = m.out.Write(m.literal)
	}
	m.n, m.literal = 0, m.literal[:0]
	return nil // the buffer remembers its error until Flush
}

func (m *maker) number(n uint64) {
	var b [binary.MaxVarintLen64]byte
	_, _ = m.out.Write(b[:binary.PutUvarint(b[:], n)])
}

// Apply writes the new file, of size bytes, made of old and a delta. Bytes of a delta
// that is broken or meant ill: an error, after at most size bytes. The result is right
// only if its digest is.
func Apply(out io.Writer, old io.ReaderAt, oldSize int64, delta io.Reader, size int64) error {
	var head [len(magic)]byte
	if _, err := io.ReadFull(delta, head[:]); err != nil || string(head[:]) != magic {
		return errors.New("delta: it does not begin as one; fetch the whole file")
	}
	z, err := zstd.NewReader(delta, zstd.WithDecoderMaxWindow(window), zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	in, left, at := bufio.NewReader(z), size, int64(0)
	for {
		n, err := binary.ReadUvarint(in)
		if err != nil {
			return fmt.Errorf("delta: %w", unexpected(err))
		}
		if n == 0 {
			if left != 0 {
				return fmt.Errorf("delta: it ends %d bytes short", left)
			}
			return nil
		}
		length := int64(n >> 1)
		if length > left {
			return fmt.Errorf("delta: it makes more than %d bytes", size)
		}
		left -= length
		from := io.Reader(in)
		if n&1 == 1 {
			jump, err := binary.ReadVarint(in)
			if err != nil {
				return fmt.Errorf("delta: %w", unexpected(err))
			}
			if at += jump; at < 0 || at > oldSize || length > oldSize-at {
				return errors.New("delta: it copies from outside of the old file")
			}
			from = io.NewSectionReader(old, at, length)
			at += length
		}
		if _, err := io.CopyN(out, from, length); err != nil {
			return fmt.Errorf("delta: %w", unexpected(err))
		}
	}
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
