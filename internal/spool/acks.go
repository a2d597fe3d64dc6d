package spool

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// The watermark file: magic, the mark, the number of sequence numbers above the
// mark that are acknowledged too, those numbers, and a CRC-32C of all of it. It
// is small: at most as many numbers as records are in flight.
const (
	ackMagic    = "MSPACK\x00\x01"
	maxAckBytes = 16 << 20
)

var errBadAcks = errors.New("not a watermark file")

func encodeAcks(mark uint64, acked []uint64) []byte {
	b := []byte(ackMagic)
	b = binary.LittleEndian.AppendUint64(b, mark)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(acked)))
	for _, seq := range acked {
		b = binary.LittleEndian.AppendUint64(b, seq)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeAcks(b []byte) (mark uint64, acked []uint64, err error) {
	const fixed = len(ackMagic) + 16 + 4
	if len(b) < fixed || string(b[:len(ackMagic)]) != ackMagic {
		return 0, nil, errBadAcks
	}
	body, crc := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != crc {
		return 0, nil, errBadAcks
	}
	mark = binary.LittleEndian.Uint64(b[8:])
	n := binary.LittleEndian.Uint64(b[16:])
	if n != uint64(len(b)-fixed)/8 || (len(b)-fixed)%8 != 0 {
		return 0, nil, errBadAcks
	}
	for i := range n {
		acked = append(acked, binary.LittleEndian.Uint64(b[24+8*i:]))
	}
	return mark, acked, nil
}

func (s *Spool) ackPath() string { return filepath.Join(s.opts.Dir, "acked") }

// loadAcks reports whether there was a usable watermark. Without one everything
// that the segments hold is handed out again.
func (s *Spool) loadAcks() bool {
	b, err := readAll(s.fs, s.ackPath(), maxAckBytes)
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	var acked []uint64
	if err == nil {
		s.mark, acked, err = decodeAcks(b)
	}
	if err != nil {
		s.log.Warn("no usable watermark; records may be sent twice", "err", err)
		s.mark = 0
		return false
	}
	for _, seq := range acked {
		if seq >= s.mark {
			s.acked[seq] = struct{}{}
		}
	}
	return true
}

// saveAcksLocked saves the watermark. Without sync it survives the process but
// perhaps not power loss, after which some records are sent twice; that is
// cheaper than a sync a second on an SD card.
func (s *Spool) saveAcksLocked(sync bool) error {
	s.ackDirty = false
	err := writeFileAtomic(s.fs, s.ackPath(), encodeAcks(s.mark, slices.Sorted(maps.Keys(s.acked))), sync)
	if err != nil {
		s.ackDirty = true
		s.log.Error("saving the watermark failed; after a restart records may be sent twice", "err", err)
	}
	return err
}
