package intake

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/fairshare"
	"muster.dev/muster/internal/spool"
)

const (
	// bulkLanes of a tenant take the lines of sites that have a backlog, by the site's
	// name.
	bulkLanes = 4
	// calmLines are those that a site may have in its tenant's calm lane, and with them
	// how many lines of each neighbour may come before a site's own. A single batch
	// passes in any case.
	calmLines = 1000
	// queueGreed: one tenant alone may fill four fifths of the queue, two have four
	// ninths each, and a ninth stays for the next. The same holds for the sites of a
	// tenant in what the tenant may have.
	queueGreed = 4
	// recordBytes is what a record of the queue takes beside its data, at most.
	recordBytes = 64
	// laneIdle is when an empty lane is closed and its files are removed.
	laneIdle = 10 * time.Minute
)

// queue is the lines on disk between the senders and the store. Each tenant has lanes of its own,
// which are emptied in turns (see slots), and shares the room with the others as
// fairshare says.
//
// Within a tenant there is one lane for the sites that have little waiting, and
// bulkLanes for those that have a backlog. So a site that floods waits for itself: its neighbours'
// lines go by another lane, and if all have a backlog, because the store was away, only a part of
// them shares a lane with it. A lane a site was rejected: thousands of sites would be
// thousands of files to sync, where one is enough.
//
// Safe for concurrent use.
type queue struct {
	in  *Intake
	dir string
	reg prometheus.Registerer

	mu      sync.Mutex
	tenants map[string]*tenantQueue
	used    int64 // on disk, of all tenants, as last measured
	start   func(*lane)
	closed  bool
}

type tenantQueue struct {
	name  string
	lanes [1 + bulkLanes]*lane // nil: not open; the first is the calm one
	bytes int64                // on disk, as last measured
	sites map[string]*backlog  // of those that have something waiting since the start
}

// backlog is what a site has in the queue.
type backlog struct {
	calm  int // lines in the calm lane
	bytes int64
}

// lane is one first-in-first-out queue.
type lane struct {
	tenant *tenantQueue
	index  int
	sp     *spool.Spool
	last   uint64    // slots: turn in which it was served
	users  int       // appends under way; guarded by queue.mu
	used   time.Time // when something was appended last; guarded by queue.mu
}

// item is one record of a lane that is being written to the store.
type item struct {
	lane  *lane
	seq   uint64
	site  string
	lines int
	bytes int64
}

func openQueue(in *Intake, dir string, reg prometheus.Registerer) (*queue, error) {
	q := &queue{in: in, dir: dir, reg: reg, tenants: map[string]*tenantQueue{}}
	if err := disk.MkdirAll(in.opts.FS, dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := in.opts.FS.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		t := q.tenantLocked(e.Name())
		for i := range t.lanes {
			if _, err := in.opts.FS.ReadDir(q.laneDir(t.name, i)); err != nil {
				continue
			}
			if _, err := q.openLocked(t, i); err != nil {
				return nil, errors.Join(err, q.closeLocked())
			}
		}
		q.measureLocked(t)
	}
	return q, nil
}

func (q *queue) laneDir(tenant string, index int) string {
	return filepath.Join(q.dir, tenant, laneName(index))
}

func laneName(index int) string {
	if index == 0 {
		return "calm"
	}
	return "bulk-" + strconv.Itoa(index)
}

func (q *queue) tenantLocked(name string) *tenantQueue {
	t := q.tenants[name]
	if t == nil {
		t = &tenantQueue{name: name, sites: map[string]*backlog{}}
		q.tenants[name] = t
	}
	return t
}

// openLocked opens a lane that is not open.
func (q *queue) openLocked(t *tenantQueue, index int) (*lane, error) {
	name := "logs"
	if index > 0 {
		name += "-" + laneName(index)
	}
	o := &q.in.opts
	dir := q.laneDir(t.name, index)
	sp, err := spool.Open(spool.Options{
		Dir: dir, MaxBytes: o.QueueBytes, MaxAge: o.QueueAge, OnFull: spool.RefuseNew, SyncInterval: o.SyncInterval, FS: o.FS,
		Logger: o.Logger, Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"spool": name, "tenant": t.name}, q.reg), Now: o.Now,
	})
	if err != nil {
		return nil, err
	}
	ln := &lane{tenant: t, index: index, sp: sp, used: o.Now()}
	t.lanes[index] = ln
	if q.start != nil {
		q.start(ln)
	}
	return ln, nil
}

// append queues one batch of a site. errQueueFull means that the tenant or the site has
// as much on disk as it may have now.
func (q *queue) append(s *site, lines int, rec []byte) error {
	n := int64(len(rec)) + recordBytes
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return spool.ErrClosed
	}
	t := q.tenantLocked(s.id.Tenant)
	b := t.sites[s.id.Name]
	if b == nil {
		b = &backlog{}
	}
	if !q.roomLocked(t, b, n) {
		q.mu.Unlock()
		return errQueueFull
	}
	index := 0
	if b.calm > 0 && b.calm+lines > calmLines {
		h := fnv.New32a()
		_, _ = h.Write([]byte(s.id.Name))
		index = 1 + int(h.Sum32()%bulkLanes)
	}
	ln := t.lanes[index]
	if ln == nil {
		var err error
		if ln, err = q.openLocked(t, index); err != nil {
			q.mu.Unlock()
			return err
		}
	}
	it := item{lane: ln, site: s.id.Name, lines: lines, bytes: n}
	t.sites[s.id.Name] = b
	b.add(it, 1)
	ln.users++
	ln.used = q.in.opts.Now()
	q.mu.Unlock()

	_, err := ln.sp.Append(rec) // without the lock: it may sync

	q.mu.Lock()
	defer q.mu.Unlock()
	ln.users--
	if err != nil {
		q.forgetLocked(it)
	}
	if errors.Is(err, spool.ErrFull) {
		return errQueueFull
	}
	return err
}

func (b *backlog) add(it item, sign int) {
	b.bytes += int64(sign) * it.bytes
	if it.lane.index == 0 {
		b.calm += sign * it.lines
	}
}

// forgetLocked takes an item out of its site's backlog. One from before a restart is not
// in it.
func (q *queue) forgetLocked(it item) {
	t := it.lane.tenant
	b := t.sites[it.site]
	if b == nil {
		return
	}
	b.add(it, -1)
	b.bytes, b.calm = max(0, b.bytes), max(0, b.calm)
	if b.bytes == 0 {
		delete(t.sites, it.site)
	}
}

// roomLocked tells whether a tenant's site may have n more bytes on disk.
func (q *queue) roomLocked(t *tenantQueue, b *backlog, n int64) bool {
	fits := func() bool {
		total := q.in.opts.QueueBytes
		part := max(t.bytes, min(total, queueGreed*(total-q.used))) // what the tenant may have now
		return fairshare.Fits(t.bytes, n, q.used, total, queueGreed) && fairshare.Fits(b.bytes, n, t.bytes, part, queueGreed)
	}
	q.measureLocked(t)
	if fits() {
		return true
	}
	for _, other := range q.tenants {
		q.measureLocked(other)
	}
	return fits()
}

// measureLocked asks the disk what a tenant has there. The last segment of an empty
// lane does not count: it goes with the next append.
func (q *queue) measureLocked(t *tenantQueue) {
	var n int64
	for _, ln := range t.lanes {
		if ln != nil {
			if st := ln.sp.Stats(); st.Pending > 0 {
				n += st.DiskBytes
			}
		}
	}
	q.used += n - t.bytes
	t.bytes = n
}

// done acknowledges what the store has taken.
func (q *queue) done(items []item) {
	for _, it := range items {
		it.lane.sp.Ack(it.seq)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, it := range items {
		q.forgetLocked(it)
	}
	if len(items) > 0 {
		q.measureLocked(items[0].lane.tenant)
	}
}

// run calls drain for each lane, those that are opened later included, in a goroutine
// of its own, until ctx ends and all have returned.
func (q *queue) run(ctx context.Context, drain func(context.Context, *lane)) {
	var wg sync.WaitGroup
	q.mu.Lock()
	q.start = func(ln *lane) { wg.Go(func() { drain(ctx, ln) }) }
	for _, t := range q.tenants {
		for _, ln := range t.lanes {
			if ln != nil {
				q.start(ln)
			}
		}
	}
	q.mu.Unlock()
	<-ctx.Done()
	q.mu.Lock()
	q.start = nil
	q.mu.Unlock()
	wg.Wait()
}

// tend closes lanes that have been empty for a while, and removes their files.
func (q *queue) tend() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, t := range q.tenants {
		open := 0
		for i, ln := range t.lanes {
			if ln == nil {
				continue
			}
			open++
			if ln.users > 0 || ln.sp.Stats().Pending > 0 || q.in.opts.Now().Sub(ln.used) < laneIdle {
				continue
			}
			if err := ln.sp.Close(); err != nil { // ends its drain, which has nothing in hand
				q.in.log.Warn("closing an empty part of the log queue failed", "err", err)
			}
			if err := removeFiles(q.in.opts.FS, q.laneDir(name, i)); err != nil {
				q.in.log.Warn("removing an empty part of the log queue failed", "err", err)
			}
			t.lanes[i] = nil
			open--
		}
		q.measureLocked(t)
		if open == 0 {
			delete(q.tenants, name)
			_ = q.in.opts.FS.Remove(filepath.Join(q.dir, name))
		}
	}
}

// removeFiles removes a directory and the files in it.
func removeFiles(fsys disk.FS, dir string) error {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := fsys.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return fsys.Remove(dir)
}

// Stats is the sum over all lanes.
func (q *queue) Stats() spool.Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	sum := spool.Stats{MaxBytes: q.in.opts.QueueBytes}
	for _, t := range q.tenants {
		for _, ln := range t.lanes {
			if ln == nil {
				continue
			}
			st := ln.sp.Stats()
			sum.Pending += st.Pending
			sum.InFlight += st.InFlight
			sum.Bytes += st.Bytes
			sum.DiskBytes += st.DiskBytes
			sum.OldestAge = max(sum.OldestAge, st.OldestAge)
			sum.Appended += st.Appended
			sum.Acked += st.Acked
			sum.SyncErrors += st.SyncErrors
			sum.Dropped.Size += st.Dropped.Size
			sum.Dropped.Age += st.Dropped.Age
			sum.Dropped.Corrupt += st.Dropped.Corrupt
			sum.Dropped.Refused += st.Dropped.Refused
		}
	}
	return sum
}

// TenantQueue is what one tenant has waiting.
type TenantQueue struct {
	Tenant  string
	Pending uint64 // batches
	Bytes   int64  // on disk
	Oldest  time.Duration
	Sites   int // with something waiting that came since the start
}

func (q *queue) list() []TenantQueue {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []TenantQueue
	for name, t := range q.tenants {
		q.measureLocked(t)
		tq := TenantQueue{Tenant: name, Bytes: t.bytes, Sites: len(t.sites)}
		for _, ln := range t.lanes {
			if ln != nil {
				st := ln.sp.Stats()
				tq.Pending += st.Pending
				tq.Oldest = max(tq.Oldest, st.OldestAge)
			}
		}
		out = append(out, tq)
	}
	return out
}

// Close syncs and closes all lanes.
func (q *queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closeLocked()
}

func (q *queue) closeLocked() error {
	q.closed = true
	var errs []error
	for _, t := range q.tenants {
		for i, ln := range t.lanes {
			if ln != nil {
				if err := ln.sp.Close(); err != nil {
					errs = append(errs, fmt.Errorf("tenant %s, lane %s: %w", t.name, laneName(i), err))
				}
			}
		}
	}
	return errors.Join(errs...)
}
