// Package spool is a durable first-in-first-out queue of byte records on disk.
// What was appended survives kill -9, and, as Options.SyncInterval says, power loss;
// what is acknowledged is never handed out again after a clean restart.
//
// The memory of a spool does not grow with its backlog. It knows nothing of what
// the records mean and never sends anything. The collector queues a site's
// samples in one, and a regional its forward to the store; a remotewrite.Sender
// drains it.
package spool

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/internal/disk"
)

// OnFull is what Append does at the size cap, or when the disk is full.
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

	// idleSegmentBytes: an all-acknowledged active segment larger than this is
	// given back to the disk at the next append.
	idleSegmentBytes = 256 << 10
	// readAttempts: a record that can't be read this often is given up.
	readAttempts = 3
	// flushEvery is how often the watermark is saved and the disk looked at.
	flushEvery = time.Second
	// syncPause is for how long a spool refuses after a failed sync before it tries
	// the disk again, with a new file.
	syncPause = time.Second
)

// Errors of a Spool, for errors.Is.
var (
	ErrFull     = errors.New("spool is full")
	ErrClosed   = errors.New("spool is closed")
	ErrTooLarge = errors.New("record is too large for the spool")
	ErrSync     = errors.New("the disk does not keep what is written to it")
)

// Options configures Open. Only Dir is needed.
type Options struct {
	Dir          string
	MaxBytes     int64         // on disk, all files together; 0: no cap but the disk
	MaxAge       time.Duration // older records are dropped; 0: no cap
	SegmentBytes int64         // default 8 MiB, at most a quarter of the room
	OnFull       OnFull
	// SyncInterval 0: a record is on stable storage when Append returns, and power
	// loss costs nothing; appends that wait share a sync. Above 0: the operating
	// system has it when Append returns, and it is synced that much later: what
	// power loss can cost.
	SyncInterval time.Duration
	// Reserve is how many bytes of the disk are left to others: the spool doesn't
	// grow into them. Default: 5 % of the disk, at most 64 MiB.
	Reserve    int64
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
	FS         disk.FS // default disk.OS
}

// Record is one queued record. Data belongs to the receiver.
type Record struct {
	Seq  uint64
	Time time.Time // when it was appended
	Data []byte
}

// outstanding is a record that was handed out.
type outstanding struct {
	seg   *segment // nil: dropped meanwhile
	bytes int64
	time  time.Time
}

// batch is the appends that one sync makes durable.
type batch struct {
	done bool
	err  error
}

// Spool is a durable queue. Safe for concurrent use.
type Spool struct {
	opts   Options
	log    *slog.Logger
	fs     disk.FS
	lock   *disk.Lock
	notify chan struct{} // a record may be ready, or the spool was closed
	reader chan struct{} // held by the one Next that reads

	metrics *metrics // nil without a registerer

	stop    chan struct{}
	stopped chan struct{}

	mu        sync.Mutex
	syncEnd   *sync.Cond // a sync ended
	closed    bool
	segs      []*segment // oldest first; their numbers may have gaps between them
	active    disk.File
	activeSeg *segment // the last of segs while active is open
	broken    bool     // the active file must not be written on
	newName   bool     // the active file's name is not synced yet

	next       uint64 // sequence number of the next append
	synced     uint64 // records below are on stable storage
	syncedSize int64  // of the active file
	syncing    bool
	batch      *batch // that the next sync ends
	syncErr    error  // of the last sync, until one works
	retryAt    time.Time

	done     spans // numbers that are done with
	ackDirty bool
	out      map[uint64]outstanding // handed out, not acknowledged
	pos      position
	frame    []byte // reused by Append

	pending   uint64
	pendBytes int64
	diskBytes int64
	counts    counters
	space     space
	said      map[string]*complaint
}

type counters struct {
	appended, acked                              uint64
	droppedSize, droppedAge, droppedBad, refused uint64
	syncErrors                                   uint64
}

// Open opens or makes the spool in Options.Dir and recovers what a crash left: what
// was half-written is left out, what is damaged is left out and counted. It fails if
// another process holds the directory.
func Open(o Options) (*Spool, error) {
	if o.Dir == "" {
		return nil, errors.New("spool: Dir must be set")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.FS == nil {
		o.FS = disk.OS{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Spool{
		opts: o, log: o.Logger.With("spool", o.Dir), fs: o.FS,
		notify: make(chan struct{}, 1), reader: make(chan struct{}, 1),
		stop: make(chan struct{}), stopped: make(chan struct{}),
		out: map[uint64]outstanding{}, batch: &batch{}, said: map[string]*complaint{},
		space: space{quota: noQuota},
	}
	s.syncEnd = sync.NewCond(&s.mu)
	if err := disk.MkdirAll(s.fs, o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("spool %s: %w", o.Dir, err)
	}
	lock, err := disk.LockFile(lockPath(o.Dir))
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	s.lock = lock
	s.mu.Lock()
	err = s.recoverLocked()
	if err == nil {
		s.checkSpaceLocked()
		s.enforceLocked()
	}
	s.mu.Unlock()
	if err != nil {
		_ = s.lock.Close()
		return nil, fmt.Errorf("spool %s: recover: %w", o.Dir, err)
	}
	if o.Registerer != nil {
		s.metrics = newMetrics(s)
		if err := o.Registerer.Register(s.metrics); err != nil {
			_ = s.lock.Close()
			return nil, fmt.Errorf("spool %s: metrics: %w", o.Dir, err)
		}
	}
	go s.run()
	return s, nil
}

// Append queues a copy of rec and returns its sequence number; Options.SyncInterval
// says what the record survives then. A spool that has no room, for its cap or for
// the disk's, gives ErrFull under RefuseNew; one whose disk fails to sync gives
// ErrSync. After an error the record is not in the spool and the spool works on.
func (s *Spool) Append(rec []byte) (uint64, error) {
	seq, durable, err := s.Put(rec)
	if err == nil {
		err = durable()
	}
	if err != nil {
		return 0, err
	}
	return seq, nil
}

// Put is Append in two steps: the operating system has the record when it returns, and
// what SyncInterval promises holds when durable has returned nil. So a caller can give
// back what it holds before it waits for the disk. What nobody waits for is synced a
// second later.
func (s *Spool) Put(rec []byte) (seq uint64, durable func() error, err error) {
	failed := func(err error) error {
		return fmt.Errorf("spool %s: append %d bytes: %w", s.opts.Dir, len(rec), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if seq, err = s.writeLocked(rec); err != nil {
		return 0, nil, failed(err)
	}
	if s.opts.SyncInterval > 0 {
		s.wake()
		return seq, func() error { return nil }, nil
	}
	b := s.batch
	return seq, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.commitLocked(b); err != nil {
			return failed(err)
		}
		s.wake()
		return nil
	}, nil
}

// writeLocked hands a record to the operating system. On a full disk it makes room
// as OnFull says and tries again.
func (s *Spool) writeLocked(rec []byte) (uint64, error) {
	need := recHeaderSize + int64(len(rec))
	if len(rec) > MaxRecord || (s.opts.MaxBytes > 0 && need > s.opts.MaxBytes) {
		return 0, ErrTooLarge
	}
	for {
		err := s.prepareLocked(need)
		if err == nil {
			err = s.writeFrameLocked(rec, need)
		}
		switch {
		case err == nil:
			return s.next - 1, nil
		case !isNoSpace(err):
			return 0, err
		}
		s.diskFullLocked(err)
		if s.closed || !s.shedLocked() {
			s.counts.refused++
			return 0, fmt.Errorf("%w: %w", ErrFull, err)
		}
	}
}

// prepareLocked makes the active file one that takes need more bytes.
func (s *Spool) prepareLocked(need int64) error {
	for {
		if s.closed {
			return ErrClosed
		}
		if s.syncErr != nil && s.opts.SyncInterval <= 0 && s.opts.Now().Before(s.retryAt) {
			s.counts.refused++
			return fmt.Errorf("%w: %w", ErrSync, s.syncErr)
		}
		if s.active != nil && s.fullLocked(need) {
			s.endSegmentLocked()
			continue
		}
		if room, err := s.haveRoomLocked(need); err != nil {
			return err
		} else if !room {
			continue
		}
		if s.active != nil {
			return nil
		}
		return s.beginSegmentLocked()
	}
}

// fullLocked tells whether the next record goes to another file than the active one.
func (s *Spool) fullLocked(need int64) bool {
	g := s.activeSeg
	idle := g.pending == 0 && g.size > min(idleSegmentBytes, s.segmentBytesLocked()/2)
	return s.broken || g.end != s.next || idle || g.size > 0 && g.size+need > s.segmentBytesLocked()
}

func (s *Spool) segmentBytesLocked() int64 {
	n := cmp.Or(max(s.opts.SegmentBytes, 0), DefaultSegmentBytes)
	if s.opts.MaxBytes > 0 {
		n = min(n, s.opts.MaxBytes/4)
	}
	if q := s.space.quota; q != noQuota {
		n = min(n, max(q/4, idleSegmentBytes))
	}
	return n
}

// beginSegmentLocked starts a file; the first sync of it syncs its name too.
func (s *Spool) beginSegmentLocked() error {
	g := &segment{marker: newMarker(), first: s.next, end: s.next}
	g.path = segPath(s.opts.Dir, g.first, g.marker)
	f, err := s.fs.OpenFile(g.path, createFlags, 0o600)
	if err != nil {
		return fmt.Errorf("new segment: %w", err)
	}
	s.segs = append(s.segs, g)
	s.active, s.activeSeg, s.broken, s.newName, s.syncedSize = f, g, false, true, 0
	return nil
}

// endSegmentLocked closes the active file, synced: only the newest may ever have a
// torn tail. It may let go of the lock, and leave the file open: call it in a loop
// until active is nil.
func (s *Spool) endSegmentLocked() {
	switch {
	case s.syncing:
		s.syncEnd.Wait()
	case s.synced < s.next:
		s.syncLocked()
	default:
		s.closeActiveLocked()
	}
}

func (s *Spool) closeActiveLocked() {
	g := s.activeSeg
	if err := s.active.Close(); err != nil {
		s.complain("close", "closing a segment failed", err)
	}
	s.active, s.activeSeg = nil, nil
	if g.pending == 0 {
		s.removeLocked(g)
	}
}

// writeFrameLocked writes a record to the active file, or leaves the file as it was.
func (s *Spool) writeFrameLocked(rec []byte, need int64) error {
	g, now := s.activeSeg, s.opts.Now()
	s.frame = appendFrame(s.frame[:0], g.marker, s.next, now, rec)
	_, err := s.active.Write(s.frame)
	if cap(s.frame) > 1<<20 {
		s.frame = nil // one large record must not stay in memory for ever
	}
	if err != nil {
		if terr := s.active.Truncate(g.size); terr != nil {
			s.broken = true // what stands there has the number of the next segment's first
			err = errors.Join(err, fmt.Errorf("cut off the half-written record: %w", terr))
		}
		return err
	}
	if s.pos.seq == s.next {
		s.pos.time = now
	}
	s.next++
	g.end, g.lastTime = s.next, now
	g.size += need
	g.pending++
	g.pendBytes += need
	s.diskBytes += need
	s.pending++
	s.pendBytes += need
	s.counts.appended++
	s.enforceLocked()
	return nil
}

// commitLocked returns when the batch is on stable storage. The first to come syncs for
// all that have written by then.
func (s *Spool) commitLocked(b *batch) error {
	for {
		switch {
		case b.done:
			return b.err
		case s.syncing:
			s.syncEnd.Wait()
		default:
			s.syncLocked()
		}
	}
}

// syncLocked syncs the active file, without the lock meanwhile. The caller has seen
// that no other sync is under way.
func (s *Spool) syncLocked() {
	b, f, upTo, size, newName := s.batch, s.active, s.next, int64(0), s.newName
	s.batch = &batch{}
	if f != nil {
		size = s.activeSeg.size
	}
	s.syncing = true
	s.mu.Unlock()
	var err error
	if f != nil {
		if err = f.Sync(); err == nil && newName {
			err = s.fs.SyncDir(s.opts.Dir)
		}
	}
	s.mu.Lock()
	s.syncing = false
	if err != nil {
		s.syncFailedLocked(err)
		b.err = fmt.Errorf("%w: %w", ErrSync, err)
	} else {
		s.synced, s.syncedSize, s.newName = upTo, size, s.newName && !newName
		if s.syncErr != nil && f != nil {
			s.log.Info("the disk syncs again")
			s.syncErr = nil
		}
	}
	b.done = true
	s.syncEnd.Broadcast()
	s.wake()
}

// syncFailedLocked gives up the active file: after a failed sync the kernel may have
// dropped what it could not write, and the next sync of the file would succeed
// without it. Records that nobody was told are safe are taken back.
func (s *Spool) syncFailedLocked(err error) {
	s.counts.syncErrors++
	s.syncErr, s.retryAt = err, s.opts.Now().Add(syncPause)
	s.complain("sync", "sync failed; what was written since the last one may not survive power loss", err)
	g, f := s.activeSeg, s.active
	s.active, s.activeSeg = nil, nil
	defer f.Close()
	if s.opts.SyncInterval > 0 {
		s.synced = s.next // as far as it will ever be
		if g.pending == 0 {
			s.removeLocked(g)
		}
		return
	}
	s.batch.done, s.batch.err = true, fmt.Errorf("%w: %w", ErrSync, err)
	s.batch = &batch{}
	_ = f.Truncate(s.syncedSize) // or else the next segment's first number hides them
	n, bytes := s.next-s.synced, g.size-s.syncedSize
	g.end, g.size = s.synced, s.syncedSize
	g.pending -= n
	g.pendBytes -= bytes
	s.diskBytes -= bytes
	s.pending -= n
	s.pendBytes -= bytes
	s.counts.appended -= n
	s.next = s.synced
	if g.end == g.first {
		// A file of the same number would take the place of this one, should a power
		// cut bring it back.
		s.done.add(s.next, s.next+1)
		s.ackDirty = true
		s.next++
		s.synced = s.next
	}
	if g.pending == 0 {
		s.removeLocked(g)
	}
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
	for len(s.segs) > 0 && s.segs[0] != s.activeSeg {
		g := s.segs[0]
		switch {
		case g.lastTime.Before(cutoff):
			s.dropLocked(g, &s.counts.droppedAge)
		case s.opts.MaxBytes > 0 && s.diskBytes > s.opts.MaxBytes && s.opts.OnFull == DropOldest:
			s.dropLocked(g, &s.counts.droppedSize)
		default:
			return
		}
	}
}

// dropLocked drops a segment and counts the records in it that nobody has read.
// Records that are handed out already can still be acknowledged.
func (s *Spool) dropLocked(g *segment, count *uint64) {
	var inHand []uint64
	bytes := int64(0)
	for seq, o := range s.out {
		if o.seg == g {
			inHand = append(inHand, seq)
			bytes += o.bytes
			o.seg = nil
			s.out[seq] = o
		}
	}
	slices.Sort(inHand)
	lost := g.pending - uint64(len(inHand))
	*count += lost
	s.pending -= lost
	s.pendBytes -= g.pendBytes - bytes
	g.pending, g.pendBytes = 0, 0
	from := g.first
	for _, seq := range inHand {
		s.done.add(from, seq)
		from = seq + 1
	}
	s.done.add(from, g.end)
	s.ackDirty = true
	if s.pos.seq >= g.first && s.pos.seq < g.end {
		s.closePosLocked()
		s.pos = position{seq: g.end}
	}
	s.removeLocked(g)
	_ = s.peekLocked() // the next read will tell
}

// removeLocked removes a file whose records are all done with. The watermark says so
// before the file is gone, if the disk has room for it: else a restart would count
// them as missing.
func (s *Spool) removeLocked(g *segment) {
	if s.ackDirty {
		_ = s.saveAcksLocked(false)
	}
	s.segs = slices.DeleteFunc(s.segs, func(other *segment) bool { return other == g })
	s.diskBytes -= g.size
	if s.pos.seg == g {
		s.closePosLocked()
	}
	if err := s.fs.Remove(g.path); err != nil {
		s.complain("remove", "removing a segment failed", err)
	}
	if s.ackDirty {
		_ = s.saveAcksLocked(false) // there is room now
	}
}

// Ack says that the record was delivered. Any order is fine; a sequence number
// that is not outstanding is ignored. A segment goes with the last of its records,
// wherever it stands.
func (s *Spool) Ack(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.out[seq]
	if !ok || s.closed {
		return
	}
	delete(s.out, seq)
	s.counts.acked++
	if o.seg != nil {
		s.finishLocked(o.seg, seq, seq+1, o.bytes)
		return
	}
	s.pending--
	s.pendBytes -= o.bytes
	s.done.add(seq, seq+1)
	s.ackDirty = true
}

// finishLocked is done with the pending ones among the records from <= n < to of a
// segment, which take about so many bytes. It returns how many these were.
func (s *Spool) finishLocked(g *segment, from, to uint64, bytes int64) uint64 {
	n := to - from - s.done.count(from, to)
	s.done.add(from, to)
	s.ackDirty = true
	g.pending -= n
	s.pending -= n
	if g.pending == 0 {
		bytes = g.pendBytes
	}
	bytes = min(bytes, g.pendBytes)
	g.pendBytes -= bytes
	s.pendBytes -= bytes
	if n > 0 && g.pending == 0 && g != s.activeSeg {
		s.removeLocked(g)
	}
	return n
}

func (s *Spool) wake() {
	select {
	case s.notify <- struct{}{}:
	default:
	}
}

// run syncs, saves the watermark and looks at the disk, in the background.
func (s *Spool) run() {
	defer close(s.stopped)
	every := flushEvery
	if s.opts.SyncInterval > 0 {
		every = s.opts.SyncInterval
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

// flush syncs what was written and saves the watermark.
func (s *Spool) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkSpaceLocked()
	s.enforceLocked()
	if s.ackDirty {
		_ = s.saveAcksLocked(false)
	}
	if s.synced < s.next && !s.syncing {
		s.syncLocked()
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
	<-s.stopped
	if s.metrics != nil {
		s.opts.Registerer.Unregister(s.metrics)
	}
	s.reader <- struct{}{} // wait for a read that is under way
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	failed := s.counts.syncErrors
	for s.active != nil {
		s.endSegmentLocked()
	}
	if s.counts.syncErrors > failed {
		errs = append(errs, s.syncErr)
	}
	s.closePosLocked()
	errs = append(errs, s.saveAcksLocked(true), s.lock.Close())
	<-s.reader
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("spool %s: close: %w", s.opts.Dir, err)
	}
	return nil
}

func lockPath(dir string) string { return filepath.Join(dir, "lock") }
