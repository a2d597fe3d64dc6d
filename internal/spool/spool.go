// Package spool is a durable first-in-first-out queue of byte records on disk.
// What is appended survives kill -9 at once and power loss after the next sync;
// what is acknowledged is never handed out again after a clean restart.
//
// The memory of a spool does not grow with its backlog. It knows nothing of what
// the records mean and never sends anything. The collector queues a site's
// samples in one, and a regional its forward to the store; a remotewrite.Sender
// drains it.
package spool

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// OnFull is what Append does at the size cap.
type OnFull int

const (
	// DropOldest makes room by dropping the oldest segment.
	DropOldest OnFull = iota
	// RefuseNew fails with ErrFull until records are acknowledged.
	RefuseNew
)

// Defaults and limits.
const (
	DefaultSegmentBytes = 8 << 20
	DefaultSyncInterval = time.Second

	// idleSegmentBytes: an all-acknowledged active segment larger than this is
	// given back to the disk at the next append.
	idleSegmentBytes = 256 << 10
	// readAttempts: a record that can't be read this often is given up.
	readAttempts = 3
)

// Errors of a Spool, for errors.Is.
var (
	ErrFull     = errors.New("spool is full")
	ErrClosed   = errors.New("spool is closed")
	ErrTooLarge = errors.New("record is too large for the spool")
)

// Options configures Open. Only Dir is needed.
type Options struct {
	Dir          string
	MaxBytes     int64         // on disk, all files together; 0: no cap
	MaxAge       time.Duration // older records are dropped; 0: no cap
	SegmentBytes int64         // default 8 MiB, at most a quarter of MaxBytes
	OnFull       OnFull
	// SyncInterval is how often at most the file is synced to stable storage:
	// what power loss can cost. Default 1 s; negative: at every append.
	SyncInterval time.Duration
	Logger       *slog.Logger
	Registerer   prometheus.Registerer
	Now          func() time.Time
	FS           FS
}

// Record is one queued record. Data belongs to the receiver.
type Record struct {
	Seq  uint64
	Time time.Time // when it was appended
	Data []byte
}

type outstanding struct {
	bytes int64
	time  time.Time
}

// Spool is a durable queue. Safe for concurrent use.
type Spool struct {
	opts   Options
	log    *slog.Logger
	fs     FS
	unlock func() error
	notify chan struct{} // a record may be ready, or the spool was closed
	reader chan struct{} // held by the one Next that reads

	metrics *metrics // nil without a registerer

	stop chan struct{}
	done chan struct{}

	mu         sync.Mutex
	closed     bool
	segs       []*segment // oldest first; the last one is written to, once active is open
	active     File
	reusable   bool // after Open: the last segment is whole and may be written on
	broken     bool // the active file holds a half-written record that could not be cut off
	dirty      bool // written since the last sync
	ackDirty   bool
	next       uint64 // sequence number of the next append
	mark       uint64 // everything below is done with
	acked      map[uint64]struct{}
	out        map[uint64]outstanding // handed out, not acknowledged
	pos        position
	frame      []byte // reused by Append
	pending    uint64
	pendBytes  int64
	diskBytes  int64
	counts     counters
	syncErrors uint64
}

// position is where the next unread record is.
type position struct {
	seq    uint64
	time   time.Time // of record seq; valid while seq < Spool.next
	seg    *segment  // nil: not located yet
	file   File
	off    int64
	errors int // failed attempts to read record seq
}

type counters struct {
	appended, acked                              uint64
	droppedSize, droppedAge, droppedBad, refused uint64
}

// Open opens or makes the spool in Options.Dir and recovers what a crash left: a
// half-written tail is cut off, unreadable files are dropped and counted. It
// fails if another process holds the directory.
func Open(o Options) (*Spool, error) {
	if o.Dir == "" {
		return nil, errors.New("spool: Dir must be set")
	}
	if o.SyncInterval == 0 {
		o.SyncInterval = DefaultSyncInterval
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.FS == nil {
		o.FS = osFS{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Spool{
		opts: o, log: o.Logger.With("spool", o.Dir), fs: o.FS,
		notify: make(chan struct{}, 1), reader: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{}),
		acked: map[uint64]struct{}{}, out: map[uint64]outstanding{},
	}
	if err := s.fs.MkdirAll(o.Dir); err != nil {
		return nil, fmt.Errorf("spool %s: %w", o.Dir, err)
	}
	unlock, err := lockDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("spool %s: %w", o.Dir, err)
	}
	s.unlock = unlock
	if err := s.recover(); err != nil {
		_ = s.unlock()
		return nil, fmt.Errorf("spool %s: recover: %w", o.Dir, err)
	}
	if o.Registerer != nil {
		s.metrics = newMetrics(s)
		if err := o.Registerer.Register(s.metrics); err != nil {
			_ = s.unlock()
			return nil, fmt.Errorf("spool %s: metrics: %w", o.Dir, err)
		}
	}
	s.mu.Lock()
	s.enforceLocked()
	s.mu.Unlock()
	go s.run()
	return s, nil
}

// recover reads the directory: which segments there are, what they hold, and how
// much of it is acknowledged.
func (s *Spool) recover() error {
	entries, err := s.fs.ReadDir(s.opts.Dir)
	if err != nil {
		return err
	}
	var firsts []uint64
	for _, e := range entries {
		if n, ok := parseSegName(e.Name()); ok {
			firsts = append(firsts, n)
		}
	}
	slices.Sort(firsts)
	haveMark := s.loadAcks()
	expected := s.mark
	if len(firsts) > 0 && (!haveMark || firsts[0] > expected) {
		expected = firsts[0]
	}
	for i, first := range firsts {
		limit, last := ^uint64(0), i == len(firsts)-1
		if !last {
			limit = firsts[i+1]
		}
		g, err := s.recoverSegment(first, limit, last)
		if err != nil {
			return err
		}
		if first > expected {
			s.counts.droppedBad += first - expected
			s.log.Warn("records are missing between two segments", "records", first-expected, "before", segPath(s.opts.Dir, first))
		}
		expected = max(expected, first)
		s.reusable = g != nil && last
		if g == nil {
			continue
		}
		expected = max(expected, g.end())
		s.segs = append(s.segs, g)
		s.diskBytes += g.size
	}
	s.next = max(expected, s.mark)
	if !haveMark && len(firsts) > 0 {
		s.mark = firsts[0]
	}
	for seq := range s.acked {
		s.next = max(s.next, seq+1)
	}
	return s.recoverPosition()
}

// recoverSegment returns nil for a file that is no segment, and removes it.
func (s *Spool) recoverSegment(first, limit uint64, last bool) (*segment, error) {
	path := segPath(s.opts.Dir, first)
	flag := os.O_RDONLY
	if last {
		flag = os.O_RDWR
	}
	f, err := s.fs.OpenFile(path, flag)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	g, err := scanSegment(f, path, first, limit, last)
	if errors.Is(err, errBadSegment) {
		s.log.Warn("dropping a file that is no segment", "file", path)
		return nil, s.fs.Remove(path)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if last && size > g.size {
		s.log.Info("cutting off a half-written tail", "file", path, "bytes", size-g.size)
		if err := f.Truncate(g.size); err != nil {
			return nil, fmt.Errorf("%s: truncate: %w", path, err)
		}
	}
	return g, nil
}

// recoverPosition drops the segments that are done with, sets the read position
// and counts what is pending.
func (s *Spool) recoverPosition() error {
	s.pos = position{seq: s.mark}
	s.trimLocked()
	for _, g := range s.segs {
		if g.end() <= s.mark {
			continue
		}
		s.pending += g.end() - max(g.first, s.mark)
		s.pendBytes += g.size - segHeaderSize
		if g.first >= s.mark {
			continue
		}
		f, err := s.fs.OpenFile(g.path, os.O_RDONLY)
		if err != nil {
			return err
		}
		off, _, err := g.seek(f, s.mark)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", g.path, err)
		}
		s.pendBytes -= off - segHeaderSize
	}
	for seq := range s.acked {
		if s.holds(seq) {
			s.pending--
		} else {
			delete(s.acked, seq)
		}
	}
	return s.locateLocked()
}

func (s *Spool) holds(seq uint64) bool {
	return slices.ContainsFunc(s.segs, func(g *segment) bool { return g.first <= seq && seq < g.end() })
}

// Append queues a copy of rec and returns its sequence number. The record has
// been handed to the operating system when Append returns, so it survives the
// death of the process. Under RefuseNew a full spool gives ErrFull. After an
// error the record is not in the spool and the spool works on.
func (s *Spool) Append(rec []byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, ErrClosed
	}
	need := recHeaderSize + int64(len(rec))
	if len(rec) > MaxRecord || (s.opts.MaxBytes > 0 && need+2*segHeaderSize > s.opts.MaxBytes) {
		return 0, fmt.Errorf("spool %s: %d bytes: %w", s.opts.Dir, len(rec), ErrTooLarge)
	}
	if err := s.makeRoomLocked(need); err != nil {
		return 0, err
	}
	now := s.opts.Now()
	g := s.segs[len(s.segs)-1]
	s.frame = appendFrame(s.frame[:0], s.next, now, rec)
	if err := s.writeLocked(g, s.frame); err != nil {
		return 0, fmt.Errorf("spool %s: append %d bytes: %w", s.opts.Dir, len(rec), err)
	}
	if cap(s.frame) > 1<<20 {
		s.frame = nil // one large record must not stay in memory for ever
	}
	seq := s.next
	if g.records == 0 {
		g.firstTime = now
	}
	g.records++
	g.size += need
	g.lastTime = now
	s.diskBytes += need
	if s.pos.seq == s.next {
		s.pos.time = now
	}
	s.next++
	s.pending++
	s.pendBytes += need
	s.counts.appended++
	s.dirty = true
	s.enforceLocked()
	s.wake()
	return seq, nil
}

// makeRoomLocked makes the last segment one that can take need more bytes.
func (s *Spool) makeRoomLocked(need int64) error {
	if s.opts.MaxBytes > 0 && s.opts.OnFull == RefuseNew && s.pending > 0 && s.diskBytes+need > s.opts.MaxBytes {
		s.counts.refused++
		return fmt.Errorf("spool %s: %d bytes queued, cap %d: %w", s.opts.Dir, s.pendBytes, s.opts.MaxBytes, ErrFull)
	}
	if s.active != nil && !s.broken {
		g := s.segs[len(s.segs)-1]
		full := g.records > 0 && g.size+need > s.segmentBytes()
		idle := s.pending == 0 && g.size > min(idleSegmentBytes, s.segmentBytes()/2)
		if g.end() == s.next && !full && !idle {
			return nil
		}
	}
	return s.rotateLocked()
}

func (s *Spool) segmentBytes() int64 {
	n := s.opts.SegmentBytes
	if n <= 0 {
		n = DefaultSegmentBytes
	}
	if s.opts.MaxBytes > 0 {
		n = min(n, s.opts.MaxBytes/4)
	}
	return n
}

// rotateLocked starts a new segment. The old one is synced first: only the last
// file may ever have a torn tail.
func (s *Spool) rotateLocked() error {
	// After a restart the last file is written on, if it is whole and not full.
	if n := len(s.segs); s.reusable && s.active == nil && n > 0 && s.segs[n-1].end() == s.next && s.segs[n-1].size < s.segmentBytes() && s.pending > 0 {
		f, err := s.fs.OpenFile(s.segs[n-1].path, os.O_WRONLY|os.O_APPEND)
		if err != nil {
			return fmt.Errorf("spool %s: open segment: %w", s.opts.Dir, err)
		}
		s.active, s.broken = f, false
		return nil
	}
	path := segPath(s.opts.Dir, s.next)
	f, err := s.fs.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND)
	if err == nil {
		if _, err = f.Write(segHeader(s.next)); err != nil {
			_ = f.Close()
			_ = s.fs.Remove(path)
		}
	}
	if err != nil {
		return fmt.Errorf("spool %s: new segment: %w", s.opts.Dir, err)
	}
	s.closeActiveLocked()
	if n := len(s.segs); n > 0 && s.segs[n-1].path == path {
		s.diskBytes -= s.segs[n-1].size
		s.segs = s.segs[:n-1]
	}
	s.segs = append(s.segs, &segment{path: path, first: s.next, size: segHeaderSize})
	s.diskBytes += segHeaderSize
	s.active, s.broken = f, false
	s.trimLocked()
	return nil
}

func (s *Spool) closeActiveLocked() {
	if s.active == nil {
		return
	}
	err := s.active.Sync()
	if err = errors.Join(err, s.active.Close()); err != nil {
		s.syncErrors++
		s.log.Error("closing a segment failed; power loss may cost its newest records", "err", err)
	}
	s.active = nil
}

// writeLocked writes a frame to the active file, or leaves the file as it was.
func (s *Spool) writeLocked(g *segment, frame []byte) error {
	_, err := s.active.Write(frame)
	if err == nil && s.opts.SyncInterval < 0 {
		if err = s.active.Sync(); err != nil {
			s.syncErrors++
			err = fmt.Errorf("sync: %w", err)
		}
	}
	if err == nil {
		return nil
	}
	if terr := s.active.Truncate(g.size); terr != nil {
		// The next append starts a new segment; recovery ignores this tail.
		s.broken = true
		err = errors.Join(err, fmt.Errorf("cut off the half-written record: %w", terr))
	}
	return err
}

// SetLimits changes the caps, and drops at once what is beyond them.
func (s *Spool) SetLimits(maxBytes int64, maxAge time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opts.MaxBytes, s.opts.MaxAge = maxBytes, maxAge
	if !s.closed {
		s.enforceLocked()
	}
}

// enforceLocked drops whole segments, oldest first, until the caps hold. The
// segment that is written to stays; it is at most a quarter of the cap.
func (s *Spool) enforceLocked() {
	var cutoff time.Time
	if s.opts.MaxAge > 0 {
		cutoff = s.opts.Now().Add(-s.opts.MaxAge)
	}
	for len(s.segs) > 1 {
		g := s.segs[0]
		switch {
		case g.lastTime.Before(cutoff) && g.records > 0:
			s.dropFirstLocked(&s.counts.droppedAge)
		case s.opts.MaxBytes > 0 && s.diskBytes > s.opts.MaxBytes && s.opts.OnFull == DropOldest:
			s.dropFirstLocked(&s.counts.droppedSize)
		default:
			return
		}
	}
}

// dropFirstLocked drops the oldest segment and counts the records in it that
// nobody has read. Records that are handed out already can still be acknowledged.
func (s *Spool) dropFirstLocked(count *uint64) {
	g := s.segs[0]
	if s.pos.seq < g.end() {
		s.skipLocked(g, count)
	}
	s.removeFirstLocked()
	s.advanceLocked()
}

// skipLocked moves the read position behind segment g, which holds it, and counts
// the unread records of g as lost.
func (s *Spool) skipLocked(g *segment, count *uint64) {
	unread := g.end() - max(s.pos.seq, g.first)
	for seq := range s.acked {
		if seq >= max(s.pos.seq, g.first) && seq < g.end() {
			unread--
		}
	}
	*count += unread
	s.pending -= unread
	if s.pos.seg == g {
		s.pendBytes -= g.size - s.pos.off
	} else {
		s.pendBytes -= g.size - segHeaderSize
	}
	s.closePosLocked()
	s.pos = position{seq: g.end()}
	if err := s.locateLocked(); err != nil {
		s.log.Warn("opening the next segment failed", "err", err)
	}
}

func (s *Spool) removeFirstLocked() {
	g := s.segs[0]
	s.segs = slices.Delete(s.segs, 0, 1)
	s.diskBytes -= g.size
	if s.pos.seg == g {
		s.closePosLocked()
	}
	if err := s.fs.Remove(g.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.Error("removing a segment failed", "file", g.path, "err", err)
	}
}

// advanceLocked moves the watermark up to the oldest record that is not done with.
func (s *Spool) advanceLocked() {
	if s.pending == 0 {
		s.pendBytes = 0
	}
	mark := s.pos.seq
	for seq := range s.out {
		mark = min(mark, seq)
	}
	if mark == s.mark {
		return
	}
	s.mark = mark
	for seq := range s.acked {
		if seq < mark {
			delete(s.acked, seq)
		}
	}
	s.ackDirty = true
	s.trimLocked()
}

// trimLocked removes the segments that are done with. The last one stays: its
// name carries the sequence number on.
func (s *Spool) trimLocked() {
	for len(s.segs) > 1 && s.segs[0].end() <= s.mark {
		s.removeFirstLocked()
	}
}

// Ack says that the record was delivered. Any order is fine; a sequence number
// that is not outstanding is ignored.
func (s *Spool) Ack(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.out[seq]
	if !ok || s.closed {
		return
	}
	delete(s.out, seq)
	s.acked[seq] = struct{}{}
	s.pending--
	s.pendBytes -= o.bytes
	s.counts.acked++
	s.ackDirty = true
	s.advanceLocked()
}

func (s *Spool) wake() {
	select {
	case s.notify <- struct{}{}:
	default:
	}
}

// run syncs the file and saves the watermark in the background.
func (s *Spool) run() {
	defer close(s.done)
	every := s.opts.SyncInterval
	if every < 0 {
		every = DefaultSyncInterval
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
			s.flush()
		}
	}
}

// flush syncs what was written and saves the watermark. The sync runs without the
// lock, so that a slow disk does not stop appends.
func (s *Spool) flush() {
	s.mu.Lock()
	s.enforceLocked()
	var f File
	if s.dirty {
		f, s.dirty = s.active, false
	}
	if s.ackDirty {
		s.saveAcksLocked(false)
	}
	s.mu.Unlock()
	if f == nil {
		return
	}
	if err := f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, syscall.EBADF) {
		s.mu.Lock()
		s.syncErrors++
		s.mu.Unlock()
		s.log.Error("sync failed; power loss may cost the newest records", "err", err)
	}
}

// Close syncs everything and saves the watermark. Blocked calls of Next return
// ErrClosed.
func (s *Spool) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	close(s.stop)
	<-s.done
	if s.metrics != nil {
		s.opts.Registerer.Unregister(s.metrics)
	}
	s.reader <- struct{}{} // wait for a read that is under way
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.active != nil {
		errs = append(errs, s.active.Sync(), s.active.Close())
	}
	s.closePosLocked()
	errs = append(errs, s.saveAcksLocked(true), s.unlock())
	<-s.reader
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("spool %s: close: %w", s.opts.Dir, err)
	}
	return nil
}

func lockPath(dir string) string { return filepath.Join(dir, "lock") }
