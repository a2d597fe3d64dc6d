package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

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

// tryNext returns false when nothing is queued. Its caller holds s.reader.
func (s *Spool) tryNext() (Record, bool, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return Record{}, false, ErrClosed
		}
		if s.pos.seq >= s.next {
			s.mu.Unlock()
			return Record{}, false, nil
		}
		if err := s.locateLocked(); err != nil {
			err = s.readFailedLocked(err)
			s.mu.Unlock()
			if err != nil {
				return Record{}, false, err
			}
			continue
		}
		if s.pos.seg == nil {
			s.mu.Unlock() // everything that was unread is gone
			return Record{}, false, nil
		}
		p, limit := s.pos, s.pos.seg.size
		s.mu.Unlock()

		head, data, good, err := readRecord(p, limit)

		s.mu.Lock()
		if s.pos.seg != p.seg || s.pos.seq != p.seq {
			s.mu.Unlock() // the segment was dropped meanwhile
			continue
		}
		if err != nil {
			err = s.readFailedLocked(err)
			s.mu.Unlock()
			if err != nil {
				return Record{}, false, err
			}
			continue
		}
		rec, ok := s.takeLocked(head, data, good)
		if s.pos.seq < s.next {
			s.wake() // for another caller of Next
		}
		s.mu.Unlock()
		if ok {
			return rec, true, nil
		}
	}
}

// readRecord reads the record at p. A damaged one is not good; its header is
// usable as long as its sequence number is the right one.
func readRecord(p position, limit int64) (recHeader, []byte, bool, error) {
	var buf [recHeaderSize]byte
	if err := readFull(p.file, buf[:], p.off); err != nil {
		return recHeader{}, nil, false, err
	}
	h := parseRecHeader(buf[:])
	if !h.plausible(p.seq, p.off, limit) {
		return recHeader{}, nil, false, errBadSegment
	}
	data := make([]byte, h.length)
	if err := readFull(p.file, data, p.off+recHeaderSize); err != nil {
		return recHeader{}, nil, false, err
	}
	return h, data, frameCRC(buf[:], data) == h.crc, nil
}

// takeLocked moves the position over the record that was just read. It returns
// false if the record is not to be handed out.
func (s *Spool) takeLocked(h recHeader, data []byte, good bool) (Record, bool) {
	bytes := recHeaderSize + h.length
	seq := s.pos.seq
	s.pos.seq++
	s.pos.off += bytes
	s.pos.errors = 0
	if err := s.peekLocked(); err != nil {
		s.log.Debug("looking ahead failed", "err", err) // the next read will tell
	}
	if _, done := s.acked[seq]; done {
		s.pendBytes -= bytes
		s.advanceLocked()
		return Record{}, false
	}
	expired := s.opts.MaxAge > 0 && h.time.Before(s.opts.Now().Add(-s.opts.MaxAge))
	if !good || expired {
		count := &s.counts.droppedAge
		if !good {
			count = &s.counts.droppedBad
			s.log.Warn("dropping a damaged record", "seq", seq)
		}
		*count++
		s.pending--
		s.pendBytes -= bytes
		s.advanceLocked()
		return Record{}, false
	}
	s.out[seq] = outstanding{bytes: bytes, time: h.time}
	return Record{Seq: seq, Time: h.time, Data: data}, true
}

// locateLocked opens the segment that holds the position, or the first one behind
// it. Without one, nothing is unread.
func (s *Spool) locateLocked() error {
	if g := s.pos.seg; g != nil && s.pos.seq < g.end() {
		return nil
	}
	for _, g := range s.segs {
		if g.end() <= s.pos.seq || g.records == 0 {
			continue
		}
		seq := max(s.pos.seq, g.first)
		f, err := s.fs.OpenFile(g.path, os.O_RDONLY)
		if err != nil {
			return err
		}
		off, at, err := g.seek(f, seq)
		if err != nil {
			_ = f.Close()
			return err
		}
		s.closePosLocked()
		s.pos = position{seq: seq, time: at, seg: g, file: f, off: off, errors: s.pos.errors}
		return nil
	}
	s.closePosLocked()
	s.pos = position{seq: s.next}
	return nil
}

// peekLocked learns the time of the record at the position: the age of the
// oldest unread record.
func (s *Spool) peekLocked() error {
	if s.pos.seq >= s.next {
		return nil
	}
	if s.pos.seq >= s.pos.seg.end() {
		return s.locateLocked()
	}
	var buf [recHeaderSize]byte
	if err := readFull(s.pos.file, buf[:], s.pos.off); err != nil {
		return err
	}
	if h := parseRecHeader(buf[:]); h.plausible(s.pos.seq, s.pos.off, s.pos.seg.size) {
		s.pos.time = h.time
	}
	return nil
}

func (s *Spool) closePosLocked() {
	if s.pos.file != nil {
		_ = s.pos.file.Close()
	}
	s.pos.file, s.pos.seg = nil, nil
}

// readFailedLocked decides what a failed read means: a damaged segment costs the
// rest of it; a failing disk is reported, and after some attempts treated alike,
// so that one bad sector can't stop the queue for ever.
func (s *Spool) readFailedLocked(err error) error {
	s.pos.errors++
	damaged := errors.Is(err, errBadSegment) || errors.Is(err, io.ErrUnexpectedEOF)
	if !damaged && s.pos.errors < readAttempts {
		return fmt.Errorf("spool %s: read record %d: %w", s.opts.Dir, s.pos.seq, err)
	}
	for _, g := range s.segs {
		if g.end() <= s.pos.seq || g.records == 0 {
			continue
		}
		before := s.counts.droppedBad
		s.skipLocked(g, &s.counts.droppedBad)
		if g == s.segs[len(s.segs)-1] {
			s.broken = true // write on in a new file
		}
		s.log.Error("dropping the rest of a damaged segment", "file", g.path, "records", s.counts.droppedBad-before, "err", err)
		break
	}
	s.advanceLocked()
	return nil
}
