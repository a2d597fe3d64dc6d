// Package forward keeps what is on its way to the metric store, a queue on disk and a
// sender for each tenant: a tenant whom the store refuses, for its limits or for ever,
// holds up nobody else. The regional forwards what sites push, health its scores.
//
// It decides nothing about what is sent; internal/spool is the queue, internal/remotewrite
// the sender.
package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/spool"
)

// Options of Open. Dir, URL, Logger and Registerer are needed.
type Options struct {
	Dir string // a folder a tenant
	URL string // takes remote write; the tenant is in X-Scope-OrgID
	// Client makes the requests; nil: one that keeps a connection for each request in flight.
	Client *http.Client
	// MaxBytes and MaxAge bound the queue of one tenant; OnFull says what then.
	MaxBytes int64
	MaxAge   time.Duration
	OnFull   spool.OnFull
	// SyncInterval is that of spool.Options: 0 has what Append takes synced to the disk.
	SyncInterval time.Duration
	Concurrency  int // requests in flight for one tenant; 0: the sender's default
	// Linger is for how long what comes in waits for more, to go on in one request: what
	// thousands of sites push is many small batches. 0: not at all.
	Linger    time.Duration
	UserAgent string
	Logger    *slog.Logger
	// Registerer gets the figures of each queue, by tenant.
	Registerer prometheus.Registerer
	Now        func() time.Time // default time.Now
}

// Queues are the queues of all tenants. Safe for concurrent use.
type Queues struct {
	opts Options
	ctx  context.Context // of the senders
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	byName map[string]*queue
}

type queue struct {
	spool  *spool.Spool
	sender *remotewrite.Sender
	reg    *registered
	stop   func() // the sender, and waits for it

	// mu is held for reading by whoever puts something in: a queue is retired when there
	// is nothing in it, and nothing comes after that.
	mu      sync.RWMutex
	retired bool
	last    atomic.Int64 // when something was appended, or it was opened: Unix nanoseconds
}

// retiredPrefix is of folders whose queue is given up.
const retiredPrefix = ".retired-"

// errRetired says that the queue is being removed; the next Append makes it anew.
var errRetired = errors.New("forward: the queue of the tenant, who was gone, is being removed; try again")

// Open opens the queues that an earlier run left, and sends until Close.
func Open(o Options) (*Queues, error) {
	if o.Dir == "" || o.URL == "" || o.Logger == nil || o.Registerer == nil {
		return nil, errors.New("forward queues: Dir, URL, Logger and Registerer must be set")
	}
	if o.Client == nil {
		o.Client = newClient()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	q := &Queues{opts: o, byName: map[string]*queue{}}
	q.ctx, q.stop = context.WithCancel(context.Background())
	left, err := os.ReadDir(o.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("forward queues: %w", err)
	}
	for _, e := range left {
		switch {
		case e.IsDir() && fleet.ValidateTenant(e.Name()) == nil:
			if _, err := q.tenant(e.Name()); err != nil {
				return nil, errors.Join(err, q.Close())
			}
		case e.IsDir() && strings.HasPrefix(e.Name(), retiredPrefix):
			if err := os.RemoveAll(filepath.Join(o.Dir, e.Name())); err != nil {
				return nil, errors.Join(fmt.Errorf("forward queues: %w", err), q.Close())
			}
		case !e.IsDir(): // of the one queue that there was for all tenants
			o.Logger.Warn("a file of an earlier version is left out and removed", "dir", o.Dir, "file", e.Name())
			if err := os.Remove(filepath.Join(o.Dir, e.Name())); err != nil {
				return nil, errors.Join(fmt.Errorf("forward queues: %w", err), q.Close())
			}
		}
	}
	return q, nil
}

// newClient keeps the connections of all senders: the standard library's default is two a
// host, and every other request would begin with a new one.
func newClient() *http.Client {
	tr := http.DefaultTransport.(*http.Transport).Clone()
	tr.MaxIdleConns, tr.MaxIdleConnsPerHost = 0, 1024
	return &http.Client{Transport: tr}
}

// Append has the series in the tenant's queue when it returns nil, on stable storage
// as Options.SyncInterval says. Calls that come together share a sync.
func (q *Queues) Append(tenant string, series []remotewrite.Series) error {
	durable, err := q.Put(tenant, series)
	if err != nil {
		return err
	}
	return durable()
}

// records are the buffers of those that are put together; the spool has written one when its
// Put returns. maxPooledRecord is the largest that is kept for the next, in bytes.
var records = sync.Pool{New: func() any { return new([]byte) }}

const maxPooledRecord = 256 << 10

// Put is Append in two steps: the work is done when it returns, and the series are on
// stable storage when durable has returned nil.
func (q *Queues) Put(tenant string, series []remotewrite.Series) (durable func() error, err error) {
	t, err := q.hold(tenant)
	if err != nil {
		return nil, err
	}
	defer t.mu.RUnlock()
	var parts []func() error
	for lane, part := range q.lanes(series) {
		done, err := t.put(func(rec []byte) []byte { return remotewrite.AppendRecord(rec, tenant, lane, part) })
		if err != nil {
			return nil, err
		}
		parts = append(parts, done)
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return func() error {
		for _, done := range parts {
			if err := done(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// PutRaw is Put for a request of one site that goes on as it came.
func (q *Queues) PutRaw(site fleet.SiteID, raw remotewrite.Raw) (durable func() error, err error) {
	t, err := q.hold(site.Tenant)
	if err != nil {
		return nil, err
	}
	defer t.mu.RUnlock()
	return t.put(func(rec []byte) []byte { return remotewrite.AppendRaw(rec, site.Tenant, q.laneOf(site.Name), raw) })
}

// hold returns the tenant's queue, whose mu is held for reading.
func (q *Queues) hold(tenant string) (*queue, error) {
	t, err := q.tenant(tenant)
	if err != nil {
		return nil, err
	}
	t.mu.RLock()
	if t.retired {
		t.mu.RUnlock()
		return nil, errRetired
	}
	t.last.Store(q.opts.Now().UnixNano())
	return t, nil
}

// put puts the record that add appends into the queue.
func (t *queue) put(add func(rec []byte) []byte) (durable func() error, err error) {
	rec := records.Get().(*[]byte)
	defer records.Put(rec)
	*rec = add((*rec)[:0])
	_, durable, err = t.spool.Put(*rec)
	if cap(*rec) > maxPooledRecord {
		*rec = nil
	}
	return durable, err
}

// lanes parts the series by lane. A site's series have one lane for ever, so that
// their samples arrive in order; a push of one site stays one record.
func (q *Queues) lanes(series []remotewrite.Series) map[uint32][]remotewrite.Series {
	site, lane := "", uint32(0)
	laneOf := func(s *remotewrite.Series) uint32 {
		if name := s.Labels.Get(fleet.SeriesSite); name != site {
			site, lane = name, q.laneOf(name)
		}
		return lane
	}
	out := map[uint32][]remotewrite.Series{}
	for from := 0; from < len(series); {
		l, to := laneOf(&series[from]), from+1
		for to < len(series) && laneOf(&series[to]) == l {
			to++
		}
		if part := out[l]; part == nil {
			out[l] = series[from:to:to]
		} else {
			out[l] = append(part, series[from:to]...)
		}
		from = to
	}
	return out
}

// laneOf is the lane of a site's series.
func (q *Queues) laneOf(site string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(site))
	return h.Sum32() % uint32(max(q.opts.Concurrency, 1))
}

// tenant returns the tenant's queue; the first call opens it and starts its sender.
func (q *Queues) tenant(name string) (*queue, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t, ok := q.byName[name]; ok {
		return t, nil
	}
	if q.closed {
		return nil, errors.New("forward: the queues are closed")
	}
	if err := fleet.ValidateTenant(name); err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	reg := &registered{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"tenant": name}, q.opts.Registerer)}
	log := q.opts.Logger.With("tenant", name)
	sp, err := spool.Open(spool.Options{Dir: filepath.Join(q.opts.Dir, name), MaxBytes: q.opts.MaxBytes, MaxAge: q.opts.MaxAge, OnFull: q.opts.OnFull, SyncInterval: q.opts.SyncInterval, Logger: log,
		Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"spool": "forward"}, reg.Registerer)})
	if err != nil {
		return nil, fmt.Errorf("forward queue of %s: %w", name, err)
	}
	sender := remotewrite.NewSender(remotewrite.SenderOptions{
		Source: sp, Endpoint: func() string { return q.opts.URL }, Client: func() *http.Client { return q.opts.Client }, Concurrency: q.opts.Concurrency, Linger: q.opts.Linger,
		UserAgent: q.opts.UserAgent, Header: func(tenant string) http.Header { return http.Header{"X-Scope-Orgid": {tenant}} }, Logger: log, Registerer: reg,
	})
	ctx, cancel := context.WithCancel(q.ctx)
	ended := make(chan struct{})
	q.wg.Go(func() {
		defer close(ended)
		_ = sender.Run(ctx) // ends with its context, and says nothing else
	})
	t := &queue{spool: sp, sender: sender, reg: reg, stop: func() { cancel(); <-ended }}
	t.last.Store(q.opts.Now().UnixNano())
	q.byName[name] = t
	return t, nil
}

// Retire removes the queues of tenants who are gone, with their senders, figures and
// files: one that is empty, and one to which nothing was appended for as long as a record
// is kept; without MaxAge that is fleet.DefaultSpoolMaxAge, beyond which the store takes
// nothing. gone may be wrong about a tenant who has nothing there or pushes: the next
// Append makes the queue anew. It returns whom it retired, sorted. One call at a time.
func (q *Queues) Retire(gone func(tenant string) bool) ([]string, error) {
	q.mu.Lock()
	names := slices.Sorted(maps.Keys(q.byName))
	q.mu.Unlock()
	var retired []string
	var errs []error
	for _, name := range names {
		if !gone(name) {
			continue
		}
		q.mu.Lock()
		t := q.byName[name]
		q.mu.Unlock()
		if t == nil || !t.retire(q.opts.Now().Add(-cmp.Or(q.opts.MaxAge, fleet.DefaultSpoolMaxAge))) {
			continue
		}
		if err := q.remove(name, t); err != nil {
			errs = append(errs, fmt.Errorf("forward: retire the queue of %s: %w", name, err))
		}
		retired = append(retired, name)
	}
	return retired, errors.Join(errs...)
}

// RunRetire retires once a minute, until ctx ends.
func (q *Queues) RunRetire(ctx context.Context, gone func(tenant string) bool) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if _, err := q.Retire(gone); err != nil {
				q.opts.Logger.Warn("a queue of a tenant who is gone can't be removed", "err", err)
			}
		}
	}
}

// retire takes nothing more if it is empty, or nothing was appended since then.
func (t *queue) retire(since time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retired = t.retired || t.spool.Stats().Pending == 0 || t.last.Load() < since.UnixNano()
	return t.retired
}

func (q *Queues) remove(name string, t *queue) error {
	t.stop()
	left := t.spool.Stats().Pending
	err := t.spool.Close()
	t.reg.unregister()
	q.mu.Lock()
	dir, aside := filepath.Join(q.opts.Dir, name), filepath.Join(q.opts.Dir, retiredPrefix+name)
	// What is left of an earlier one would be in the way of the name.
	err = errors.Join(err, os.RemoveAll(aside), disk.OS{}.Rename(dir, aside))
	if q.byName[name] == t {
		delete(q.byName, name)
	}
	q.mu.Unlock()
	q.opts.Logger.Info("the queue of a tenant who is gone is removed", "tenant", name, "records_dropped", left)
	return errors.Join(err, os.RemoveAll(aside))
}

// registered remembers what is registered through it.
type registered struct {
	prometheus.Registerer
	all []prometheus.Collector
}

// Register implements prometheus.Registerer.
func (r *registered) Register(c prometheus.Collector) error {
	err := r.Registerer.Register(c)
	if err == nil {
		r.all = append(r.all, c)
	}
	return err
}

// MustRegister implements prometheus.Registerer.
func (r *registered) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

func (r *registered) unregister() {
	for _, c := range r.all {
		r.Unregister(c)
	}
}

// Close ends the sending and closes the queues; what was not taken is sent after the
// next Open.
func (q *Queues) Close() error {
	q.stop()
	q.mu.Lock()
	q.closed = true
	queues := q.byName
	q.byName = map[string]*queue{}
	q.mu.Unlock()
	q.wg.Wait()
	var errs []error
	for name, t := range queues {
		if err := t.spool.Close(); err != nil {
			errs = append(errs, fmt.Errorf("forward queue of %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Status is shown on /debug/.
func (q *Queues) Status() any {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := map[string]any{}
	for name, t := range q.byName {
		out[name] = map[string]any{"queue": t.spool.Stats(), "sender": t.sender.Status()}
	}
	return out
}
