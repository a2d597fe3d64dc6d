package spool

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

const createFlags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC | os.O_APPEND

// noQuota is no bound of the disk's.
const noQuota = int64(-1)

// Bounds of the disk's room. What is left to others is for the watermark and for the
// state of whoever shares the disk; but the spool may always have a little.
const (
	reserveBytes  = 64 << 20
	reserveShare  = 20 // of the disk, as a divisor
	leastBytes    = 16 << 20
	leastShare    = 10
	spaceEvery    = time.Second
	complainEvery = time.Minute
	fullFor       = time.Minute // a full disk stays one in words, so that they don't flap
)

// space is how much room the disk leaves the spool.
type space struct {
	quota   int64 // noQuota: no bound, or nobody knows
	full    bool  // the spool does not grow
	checked time.Time
	short   time.Time // when there was too little last
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// checkSpaceLocked looks at the disk, at most once a second. While the free room is
// below the reserve, the spool keeps the size that it has: what it frees it may use
// again, whoever else fills the disk meanwhile.
func (s *Spool) checkSpaceLocked() {
	now := s.opts.Now()
	sp := &s.space
	if d := now.Sub(sp.checked); d >= 0 && d < spaceEvery {
		return
	}
	sp.checked = now
	free, total, err := s.fs.Space(s.opts.Dir)
	if err != nil {
		*sp = space{quota: noQuota, checked: now}
		return
	}
	reserve := s.opts.Reserve
	if reserve <= 0 {
		reserve = min(reserveBytes, total/reserveShare)
	}
	least := min(leastBytes, total/leastShare)
	room := max(s.diskBytes+free-reserve, min(least, s.diskBytes+free))
	was := sp.full
	switch {
	case free <= reserve && !sp.full:
		sp.full, sp.quota = true, max(s.diskBytes, room)
	case free > reserve && now.Sub(sp.short) >= fullFor:
		sp.full, sp.quota = false, room
	default:
		sp.quota = max(sp.quota, room)
	}
	if free <= reserve {
		sp.short = now
	}
	if was != sp.full {
		s.log.Info("room on the disk", "full", sp.full, "free_bytes", free, "spool_bytes", s.diskBytes)
	}
}

// diskFullLocked notes that a write found no room.
func (s *Spool) diskFullLocked(err error) {
	s.space.full, s.space.short, s.space.quota = true, s.opts.Now(), s.diskBytes
	s.complain("full", "the disk is full", err)
}

// limitLocked is how many bytes the files may have together.
func (s *Spool) limitLocked() int64 {
	limit := noQuota
	if s.opts.MaxBytes > 0 {
		limit = s.opts.MaxBytes
	}
	if q := s.space.quota; q != noQuota && (limit == noQuota || q < limit) {
		limit = q
	}
	return limit
}

// haveRoomLocked tells whether there is room for need more bytes below the caps. When
// it says no without an error, it has made some, and may have let go of the lock.
func (s *Spool) haveRoomLocked(need int64) (bool, error) {
	s.checkSpaceLocked()
	limit := s.limitLocked()
	switch {
	case limit == noQuota, s.diskBytes+need <= limit:
		return true, nil
	case s.diskBytes == 0 && need <= max(s.opts.MaxBytes, leastBytes):
		return true, nil // the disk was full for others; the write will tell
	case s.shedLocked():
		return false, nil
	}
	s.counts.refused++
	err := fmt.Errorf("%w: %d bytes queued, room for %d", ErrFull, s.pendBytes, limit)
	if s.space.full {
		err = fmt.Errorf("%w, as the disk is full", err)
	}
	return false, err
}

// shedLocked gives room back to the disk: an active file whose records are all done
// with, or under DropOldest the oldest file. It may let go of the lock. It returns
// false if there is nothing to give.
func (s *Spool) shedLocked() bool {
	if len(s.segs) == 0 {
		return false
	}
	g := s.segs[0]
	if s.activeSeg != nil && s.activeSeg.pending == 0 && s.activeSeg.size > 0 {
		g = s.activeSeg
	} else if s.opts.OnFull == RefuseNew {
		return false
	}
	if g != s.activeSeg {
		s.dropLocked(g, &s.counts.droppedSize)
		return true
	}
	if g.size == 0 {
		return false
	}
	if s.syncing || s.opts.SyncInterval <= 0 && s.synced < s.next {
		s.endSegmentLocked() // somebody waits to hear of these records
		return true
	}
	s.synced = s.next
	if g.pending > 0 {
		s.complain("dropped", "the newest file is dropped for want of room", ErrFull)
	}
	_ = s.active.Close()
	s.active, s.activeSeg = nil, nil
	s.dropLocked(g, &s.counts.droppedSize)
	return true
}

// complaint bounds the lines of one kind in the log.
type complaint struct {
	at   time.Time
	more int
}

// complain logs a line a kind and minute, and how many it held back.
func (s *Spool) complain(kind, msg string, err error) {
	now := s.opts.Now()
	c := s.said[kind]
	if c == nil {
		c = &complaint{}
		s.said[kind] = c
	} else if d := now.Sub(c.at); d >= 0 && d < complainEvery {
		c.more++
		return
	}
	log := s.log
	if c.more > 0 {
		log = log.With("alike_since_last_line", c.more)
	}
	*c = complaint{at: now}
	log.Error(msg, "err", err)
}
