package spool

import (
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
)

// A segment file is a 16-byte header (magic, first sequence number) and records:
//
//	length  uint32  of the data
//	crc     uint32  CRC-32C of everything else in the record
//	seq     uint64  first+0, first+1, …: a record out of place is a corrupt one
//	time    int64   when it was appended, nanoseconds since 1970
//	data    [length]byte
//
// All integers are little-endian.
const (
	magic         = "MSPOOL\x00\x01"
	segHeaderSize = int64(len(magic) + 8)
	recHeaderSize = 24
	// MaxRecord is the largest record that a spool takes, in bytes.
	MaxRecord = 64 << 20

	segSuffix = ".seg"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// segment is what is kept in memory of one file: a constant number of bytes,
// whatever the file holds.
type segment struct {
	path      string
	first     uint64 // sequence number of its first record
	records   uint64
	size      int64 // of the good part of the file
	firstTime time.Time
	lastTime  time.Time
}

// end is the sequence number after the segment's last record.
func (g *segment) end() uint64 { return g.first + g.records }

func segPath(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", first, segSuffix))
}

func parseSegName(name string) (uint64, bool) {
	s, ok := strings.CutSuffix(name, segSuffix)
	if !ok || len(s) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

func segHeader(first uint64) []byte {
	return binary.LittleEndian.AppendUint64([]byte(magic), first)
}

// appendFrame appends the record in its on-disk form to b.
func appendFrame(b []byte, seq uint64, at time.Time, data []byte) []byte {
	start := len(b)
	b = slices.Grow(b, recHeaderSize+len(data))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data)))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, seq)
	b = binary.LittleEndian.AppendUint64(b, uint64(at.UnixNano()))
	b = append(b, data...)
	binary.LittleEndian.PutUint32(b[start+4:], frameCRC(b[start:start+recHeaderSize], data))
	return b
}

func frameCRC(header, data []byte) uint32 {
	crc := crc32.Update(0, castagnoli, header[:4])
	crc = crc32.Update(crc, castagnoli, header[8:recHeaderSize])
	return crc32.Update(crc, castagnoli, data)
}

type recHeader struct {
	length int64
	crc    uint32
	seq    uint64
	time   time.Time
}

func parseRecHeader(b []byte) recHeader {
	return recHeader{
		length: int64(binary.LittleEndian.Uint32(b)),
		crc:    binary.LittleEndian.Uint32(b[4:]),
		seq:    binary.LittleEndian.Uint64(b[8:]),
		time:   time.Unix(0, int64(binary.LittleEndian.Uint64(b[16:]))),
	}
}

// plausible tells whether a header can be the one of record seq at offset off of
// a file of size bytes: only then is its length good enough to step over it.
func (h recHeader) plausible(seq uint64, off, size int64) bool {
	return h.seq == seq && h.length <= MaxRecord && off+recHeaderSize+h.length <= size
}

var errBadSegment = errors.New("not a segment file")

// scanSegment finds out what the file holds. It steps from header to header; with
// verify it also checks every record's CRC, and the segment then ends after the
// last good record, so that what a crash left half-written is cut off. Records
// from sequence number limit on are in the next segment and are ignored here.
func scanSegment(f File, path string, first, limit uint64, verify bool) (*segment, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	g := &segment{path: path, first: first, size: segHeaderSize}
	head := make([]byte, segHeaderSize)
	if err := readFull(f, head, 0); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	} else if err != nil || string(head) != string(segHeader(first)) {
		return nil, errBadSegment
	}
	var buf [recHeaderSize]byte
	var data []byte
	off, seen := segHeaderSize, uint64(0)
	var firstTime time.Time
	for off+recHeaderSize <= size && first+seen < limit {
		if err := readFull(f, buf[:], off); err != nil {
			return nil, err
		}
		h := parseRecHeader(buf[:])
		if !h.plausible(first+seen, off, size) {
			break
		}
		good := true
		if verify {
			data = slices.Grow(data[:0], int(h.length))[:h.length]
			if err := readFull(f, data, off+recHeaderSize); err != nil {
				return nil, err
			}
			good = frameCRC(buf[:], data) == h.crc
		}
		if seen == 0 {
			firstTime = h.time
		}
		seen++
		off += recHeaderSize + h.length
		if good {
			g.records, g.size, g.firstTime, g.lastTime = seen, off, firstTime, h.time
		}
	}
	return g, nil
}

// seek returns the offset and the time of record seq, which the segment holds.
func (g *segment) seek(f File, seq uint64) (int64, time.Time, error) {
	off := segHeaderSize
	var buf [recHeaderSize]byte
	for at := g.first; ; at++ {
		if err := readFull(f, buf[:], off); err != nil {
			return 0, time.Time{}, err
		}
		h := parseRecHeader(buf[:])
		if !h.plausible(at, off, g.size) {
			return 0, time.Time{}, errBadSegment
		}
		if at == seq {
			return off, h.time, nil
		}
		off += recHeaderSize + h.length
	}
}

func readFull(f File, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}
