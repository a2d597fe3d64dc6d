package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
)

// The watermark file: magic, the number of the next append, and the spans of
// numbers that are done with, then a CRC-32C of all of it. It is small: a span more
// than records that wait while later ones were delivered.
const (
	ackMagic    = "MSPACK\x00\x02"
	maxAckBytes = 64 << 20
)

var errBadAcks = errors.New("not a watermark file")

func encodeAcks(next uint64, done spans) []byte {
	b := make([]byte, 0, len(ackMagic)+16+16*len(done)+4)
	b = append(b, ackMagic...)
	b = binary.LittleEndian.AppendUint64(b, next)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(done)))
	for _, p := range done {
		b = binary.LittleEndian.AppendUint64(b, p.from)
		b = binary.LittleEndian.AppendUint64(b, p.to)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeAcks(b []byte) (next uint64, done spans, err error) {
	const fixed = len(ackMagic) + 16 + 4
	if len(b) < fixed || string(b[:len(ackMagic)]) != ackMagic {
		return 0, nil, errBadAcks
	}
	body, crc := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != crc {
		return 0, nil, errBadAcks
	}
	next = binary.LittleEndian.Uint64(b[8:])
	n := binary.LittleEndian.Uint64(b[16:])
	if n != uint64(len(b)-fixed)/16 || (len(b)-fixed)%16 != 0 {
		return 0, nil, errBadAcks
	}
	for i := range n {
		p := span{binary.LittleEndian.Uint64(b[24+16*i:]), binary.LittleEndian.Uint64(b[32+16*i:])}
		if p.from >= p.to || i > 0 && p.from <= done.end() {
			return 0, nil, errBadAcks
		}
		done = append(done, p)
	}
	return next, done, nil
}

func (s *Spool) ackPath() string { return filepath.Join(s.opts.Dir, "acked") }

// loadAcks reports whether there was a usable watermark. Without one everything
// that the segments hold is handed out again.
func (s *Spool) loadAcks() bool {
	b, err := readAll(s.fs, s.ackPath(), maxAckBytes)
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	if err == nil {
		s.next, s.done, err = decodeAcks(b)
	}
	if err != nil {
		s.log.Warn("no usable watermark; records may be sent twice", "err", err)
		s.next, s.done = 0, nil
		return false
	}
	return true
}

// saveAcksLocked saves the watermark. Without sync it survives the process but
// perhaps not power loss, after which some records are sent twice; that is
// cheaper than a sync a second on an SD card.
func (s *Spool) saveAcksLocked(sync bool) error {
	b := encodeAcks(s.visibleLocked(), s.done)
	var err error
	if sync {
		err = atomicfile.WriteTo(s.fs, s.ackPath(), b, 0o600)
	} else {
		err = replaceUnsynced(s.fs, s.ackPath(), b)
	}
	s.ackDirty = err != nil
	if err != nil {
		s.complain("watermark", "saving the watermark failed; after a restart records may be sent twice", err)
	}
	return err
}

// replaceUnsynced replaces path in one step, as far as processes can see.
func replaceUnsynced(fs disk.FS, path string, data []byte) error {
	tmp := path + ".tmp"
	f, err := fs.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = fs.Remove(tmp) // its bytes may be the last ones of the disk
		return err
	}
	return fs.Rename(tmp, path)
}

// readAll returns the content of a small file, at most limit bytes.
func readAll(fs disk.FS, path string, limit int64) ([]byte, error) {
	f, err := fs.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%s: %d bytes, want at most %d", path, size, limit)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}
