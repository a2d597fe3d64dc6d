package spool

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"muster.dev/muster/internal/disk"
)

// position is where the next unread record is.
type position struct {
	seq    uint64
	time   time.Time // of record seq; zero: not known
	seg    *segment  // nil: not located yet
	file   disk.File
	off    int64
	errors int // failed attempts to read record seq
}

// Next returns the oldest record that was not handed out yet, and waits for one
// if there is none. Records beyond the age cap and damaged ones are skipped and
// counted. It returns ctx.Err(), ErrClosed, or an error of the disk, after which
// it may be called again.
func (s *Spool) Next(ctx context.Context) (Record, error) {
	for {
		select {
		case s.reader <- struct{}{}:
		case <-ctx.Done():
			return Record{}, ctx.Err()
		case <-s.stop:
			return Record{}, ErrClosed
		}
		rec, ok, err := s.tryNext()
		<-s.reader
		if ok || err != nil {
			return rec, err
		}
		select {
		case <-s.notify:
		case <-ctx.Done():
			return Record{}, ctx.Err()
		case <-s.stop:
			return Record{}, ErrClosed
		}
	}
}

// visibleLocked is the number behind the last record that may be handed out: what
// may still be taken back must not.
func (s *Spool) visibleLocked() uint64 {
	if s.opts.SyncInterval <= 0 {
		return s.synced
	}
	return s.next
}

// reading is one attempt to read the record at the position.
type reading struct {
	position
	limit int64  // of the good part of the file
	to    uint64 // records from this number on are not wanted
	force bool   // over what the disk can't read

	header recHeader
	data   []byte
	good   bool // the data is
}

// tryNext returns false when nothing is queued. Its caller holds s.reader.
func (s *Spool) tryNext() (Record, bool, error) {
	for {
		s.mu.Lock()
		r, ok, err := s.beginReadLocked()
		s.mu.Unlock()
		if err != nil || !ok {
			return Record{}, false, err
		}
		err = r.read()
		s.mu.Lock()
		rec, ok, err := s.endReadLocked(&r, err)
		s.mu.Unlock()
		if ok || err != nil {
			return rec, ok, err
		}
	}
}

func (s *Spool) beginReadLocked() (reading, bool, error) {
	if s.closed {
		return reading{}, false, ErrClosed
	}
	ok, err := s.locateLocked()
	if err != nil {
		s.pos.errors++
		if s.pos.errors < readAttempts {
			return reading{}, false, fmt.Errorf("spool %s: read record %d: %w", s.opts.Dir, s.pos.seq, err)
		}
		s.giveUpSegmentLocked(err)
		ok = false
		s.wake()
	}
	if !ok {
		return reading{}, false, nil
	}
	r := reading{position: s.pos, limit: s.pos.seg.size, to: min(s.pos.seg.end, s.visibleLocked()), force: s.pos.errors >= readAttempts}
	if s.pos.seg == s.activeSeg && s.opts.SyncInterval <= 0 {
		r.limit = s.syncedSize
	}
	return r, true, nil
}

// read looks for the record, without the lock. When it finds none, header is that of
// a record r.to, which nobody has.
func (r *reading) read() error {
	at, h, ok, err := r.seg.find(r.file, r.off, r.limit, r.seq, r.to)
	if err != nil && r.force {
		at, h, ok = r.seg.resync(r.file, r.off, r.limit, r.seq, r.to)
		err = nil
	}
	switch {
	case err != nil:
		return err
	case !ok:
		r.header, r.off = recHeader{seq: r.to}, r.limit
		return nil
	}
	r.header, r.off = h, at
	r.data = make([]byte, h.length)
	if err := readFull(r.file, r.data, at+recHeaderSize); err != nil {
		if r.force {
			return nil
		}
		return err
	}
	r.good = crc32.Checksum(r.data, castagnoli) == h.crc
	return nil
}

// endReadLocked moves the position over what was read. It returns false if there is
// no record to hand out in it.
func (s *Spool) endReadLocked(r *reading, err error) (Record, bool, error) {
	p := &s.pos
	if p.seg != r.seg || p.seq != r.seq || s.closed {
		return Record{}, false, nil // the segment was dropped meanwhile
	}
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		if p.errors++; p.errors < readAttempts {
			return Record{}, false, fmt.Errorf("spool %s: read record %d: %w", s.opts.Dir, p.seq, err)
		}
		return Record{}, false, nil // again, over what can't be read
	}
	if err != nil { // the file has become shorter
		r.header, r.off = recHeader{seq: r.to}, r.limit
	}
	g, h := r.seg, r.header
	found := h.seq < r.to
	from, skipped := p.seq, r.off-p.off
	p.seq, p.time, p.off, p.errors = h.seq, time.Time{}, r.off, 0
	if found {
		p.seq, p.off = h.seq+1, r.off+h.bytes()
	} else if g == s.activeSeg {
		s.broken = true // write on in a new file
	}
	known := found && s.done.has(h.seq) // behind a damaged stretch
	expired := s.opts.MaxAge > 0 && h.time.Before(s.opts.Now().Add(-s.opts.MaxAge))
	lost := uint64(0)
	if from < h.seq {
		lost = s.finishLocked(g, from, h.seq, skipped)
	}
	switch {
	case !found, known:
	case !r.good:
		lost += s.finishLocked(g, h.seq, h.seq+1, h.bytes())
	case expired:
		s.counts.droppedAge += s.finishLocked(g, h.seq, h.seq+1, h.bytes())
	}
	if lost > 0 {
		s.counts.droppedBad += lost
		s.complain("damage", "the disk has damaged queued records; they are lost", fmt.Errorf("%d records, %s", lost, g.path))
	}
	if err := s.peekLocked(); err != nil {
		s.log.Debug("looking ahead failed", "err", err) // the next read will tell
	}
	if s.pos.seq < s.visibleLocked() {
		s.wake() // for another caller of Next
	}
	if !found || known || !r.good || expired {
		return Record{}, false, nil
	}
	s.out[h.seq] = outstanding{seg: g, bytes: h.bytes(), time: h.time}
	return Record{Seq: h.seq, Time: h.time, Data: r.data}, true, nil
}

// locateLocked moves the position to the next record that is not done with, and opens
// the segment that holds it. It returns false if there is none to be handed out.
func (s *Spool) locateLocked() (bool, error) {
	p := &s.pos
	seq := s.done.next(p.seq)
	for _, g := range s.segs {
		if g.end <= seq {
			continue
		}
		if seq = s.done.next(max(seq, g.first)); g.end <= seq {
			continue
		}
		if seq != p.seq {
			p.seq, p.time, p.errors = seq, time.Time{}, 0
		}
		if seq >= s.visibleLocked() {
			return false, nil
		}
		if p.seg == g {
			return true, nil
		}
		f, err := s.fs.OpenFile(g.path, os.O_RDONLY, 0)
		if err != nil {
			return false, err
		}
		s.closePosLocked()
		p.seg, p.file, p.off = g, f, 0
		return true, nil
	}
	seq = max(seq, s.visibleLocked())
	if p.seg != nil && p.seg == s.activeSeg && !s.broken && p.seg.end <= seq {
		// The next record goes behind what was read: looking for it from the file's
		// beginning, over the headers of all before, would cost more than reading it.
		p.seq, p.time, p.errors = seq, time.Time{}, 0
		return false, nil
	}
	s.closePosLocked()
	*p = position{seq: seq}
	return false, nil
}

// peekLocked learns the time of the record at the position: the age of the
// oldest unread record.
func (s *Spool) peekLocked() error {
	ok, err := s.locateLocked()
	if !ok || err != nil || !s.pos.time.IsZero() {
		return err
	}
	p := &s.pos
	at, h, ok, err := p.seg.find(p.file, p.off, p.seg.size, p.seq, p.seg.end)
	if ok {
		p.time = h.time
	}
	if ok && h.seq == p.seq {
		p.off = at
	}
	return err
}

func (s *Spool) closePosLocked() {
	if s.pos.file != nil {
		_ = s.pos.file.Close()
	}
	s.pos.file, s.pos.seg = nil, nil
}

// giveUpSegmentLocked drops the segment that can't be opened: one bad file must not
// stop the queue for ever.
func (s *Spool) giveUpSegmentLocked(err error) {
	s.pos.errors = 0
	for _, g := range s.segs {
		if g.end <= s.pos.seq {
			continue
		}
		s.complain("unreadable", "a segment can't be read; its records are lost", fmt.Errorf("%s: %w", g.path, err))
		if g == s.activeSeg {
			s.broken = true
			s.counts.droppedBad += s.finishLocked(g, max(s.pos.seq, g.first), min(g.end, s.visibleLocked()), g.pendBytes)
			return
		}
		s.dropLocked(g, &s.counts.droppedBad)
		return
	}
}
