package spool

import (
	"bytes"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster.dev/muster/internal/disk"
)

// A segment is a file of records, one after the other. Its name has the sequence
// number of its first record and its marker in hex. A record is
//
//	marker  [8]byte  the segment's
//	length  uint32   of the data
//	seq     uint64   they rise by one
//	time    int64    when it was appended, nanoseconds since 1970
//	crc     uint32   CRC-32C of the data
//	head    uint32   CRC-32C of all before
//	data    [length]byte
//
// All integers are little-endian. The marker is random, as in Avro's files: after a
// damaged stretch the reader finds the next record by it, and nobody who writes
// data can put there what would be taken for a record.
const (
	markerSize    = 8
	recHeaderSize = markerSize + 28
	// MaxRecord is the largest record that a spool takes, in bytes.
	MaxRecord = 64 << 20

	segSuffix = ".seg"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type marker [markerSize]byte

func newMarker() (m marker) {
	_, _ = crand.Read(m[:]) // never fails
	return m
}

// segment is what is kept in memory of one file: a constant number of bytes,
// whatever the file holds.
type segment struct {
	path   string
	marker marker
	first  uint64 // sequence number of its first record
	end    uint64 // the number after its last record
	size   int64  // of the file up to the end of its last record
	// pending are the records that are not done with, pendBytes theirs on disk.
	pending   uint64
	pendBytes int64
	lastTime  time.Time
}

func segPath(dir string, first uint64, m marker) string {
	return filepath.Join(dir, fmt.Sprintf("%020d-%x%s", first, m[:], segSuffix))
}

func parseSegName(name string) (first uint64, m marker, ok bool) {
	s, ok := strings.CutSuffix(name, segSuffix)
	if !ok || len(s) != 20+1+2*markerSize || s[20] != '-' {
		return 0, m, false
	}
	first, err := strconv.ParseUint(s[:20], 10, 64)
	if err != nil {
		return 0, m, false
	}
	mark, err := strconv.ParseUint(s[21:], 16, 64)
	if err != nil {
		return 0, m, false
	}
	binary.BigEndian.PutUint64(m[:], mark)
	return first, m, true
}

// appendFrame appends the record in its on-disk form to b.
func appendFrame(b []byte, m marker, seq uint64, at time.Time, data []byte) []byte {
	start := len(b)
	b = slices.Grow(b, recHeaderSize+len(data))
	b = append(b, m[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data)))
	b = binary.LittleEndian.AppendUint64(b, seq)
	b = binary.LittleEndian.AppendUint64(b, uint64(at.UnixNano()))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(data, castagnoli))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
	return append(b, data...)
}

type recHeader struct {
	length int64
	seq    uint64
	time   time.Time
	crc    uint32
}

// bytes is what the record takes on disk.
func (h recHeader) bytes() int64 { return recHeaderSize + h.length }

// readHeader reads the header at off of a segment whose good part ends at limit.
// It is not ok if no record stands there, or one that is cut off.
func (g *segment) readHeader(f disk.File, off, limit int64) (h recHeader, ok bool, err error) {
	if off+recHeaderSize > limit {
		return h, false, nil
	}
	var b [recHeaderSize]byte
	if err := readFull(f, b[:], off); err != nil {
		return h, false, err
	}
	if binary.LittleEndian.Uint32(b[recHeaderSize-4:]) != crc32.Checksum(b[:recHeaderSize-4], castagnoli) || marker(b[:markerSize]) != g.marker {
		return h, false, nil
	}
	h = recHeader{
		length: int64(binary.LittleEndian.Uint32(b[8:])),
		seq:    binary.LittleEndian.Uint64(b[12:]),
		time:   time.Unix(0, int64(binary.LittleEndian.Uint64(b[20:]))),
		crc:    binary.LittleEndian.Uint32(b[28:]),
	}
	return h, h.length <= MaxRecord && off+h.bytes() <= limit, nil
}

const scanBlock = 64 << 10

// resync returns where the next record after off begins whose header is good and
// whose number is in [from, to). It is not ok if there is none below limit. Blocks
// that the disk can't read are left out.
func (g *segment) resync(f disk.File, off, limit int64, from, to uint64) (int64, recHeader, bool) {
	buf := make([]byte, scanBlock+markerSize-1)
	for block := off + 1; block < limit; block += scanBlock {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), limit-block)], block)
		if err != nil && !errors.Is(err, io.EOF) {
			continue
		}
		for at := 0; ; at++ {
			i := bytes.Index(buf[at:n], g.marker[:])
			if i < 0 {
				break
			}
			at += i
			if h, ok, err := g.readHeader(f, block+int64(at), limit); ok && err == nil && h.seq >= from && h.seq < to {
				return block + int64(at), h, true
			}
		}
	}
	return 0, recHeader{}, false
}

// find returns the record at off, or the next one behind it, with a number in
// [from, to).
func (g *segment) find(f disk.File, off, limit int64, from, to uint64) (int64, recHeader, bool, error) {
	for off < limit {
		h, ok, err := g.readHeader(f, off, limit)
		switch {
		case err != nil:
			return 0, h, false, err
		case ok && h.seq >= from && h.seq < to:
			return off, h, true, nil
		case ok && h.seq < from:
			off += h.bytes()
			continue
		}
		at, h, ok := g.resync(f, off, limit, from, to)
		return at, h, ok, nil
	}
	return 0, recHeader{}, false, nil
}

// scan finds out what the file holds, stepping from header to header; with verify
// it also checks the data, and the segment then ends after the last good record.
// Records from number limit on are in the next segment and are ignored here. It
// returns the stretches of numbers that are missing between its records, and the
// size of the file; each is called with every record.
func (g *segment) scan(f disk.File, limit uint64, verify bool, each func(recHeader)) (missing []span, size int64, err error) {
	if size, err = f.Size(); err != nil {
		return nil, 0, err
	}
	g.end, g.size = g.first, 0
	var data []byte
	for off := int64(0); ; {
		at, h, ok, err := g.find(f, off, size, g.end, limit)
		if err != nil {
			return nil, 0, err
		}
		if !ok {
			return missing, size, nil
		}
		off = at + h.bytes()
		if verify {
			data = slices.Grow(data[:0], int(h.length))[:h.length]
			if err := readFull(f, data, at+recHeaderSize); err != nil {
				return nil, 0, err
			}
			if crc32.Checksum(data, castagnoli) != h.crc {
				continue
			}
		}
		if h.seq > g.end {
			missing = append(missing, span{g.end, h.seq})
		}
		each(h)
		g.end, g.size, g.lastTime = h.seq+1, off, h.time
	}
}

func readFull(f disk.File, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}
