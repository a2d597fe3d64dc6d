// Package embedded is the log store of a region on one machine: bleve indexes on the
// local disk, one a tenant and day, behind store.Store. A region that outgrows it (more
// than one machine, or some thousands of lines a second) uses the elastic package.
//
// Layout: DIR/v1/TENANT/2026.11.21/ is one bleve (scorch) index, a shard. Retention
// deletes whole shards. DIR/state.db is the state of the store's users. One process owns DIR at a time.
//
// It sets no bleve index mapping and none of bleve's global registries: documents and
// searches are built field by field here, so that what a query means is decided by
// package logquery alone.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	index "github.com/blevesearch/bleve_index_api"
	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/bbolt"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/regional/logs/store"
	"muster.dev/muster/regional/logs/store/internal/stamp"
)

// Options of a Store. Dir is required; the zero value of the rest is the default.
type Options struct {
	Dir       string
	Retention time.Duration // default 7 days; whole days are deleted
	// MaxBytes on disk, over all tenants; the oldest days of those that hold most go first.
	// Default three quarters of what the store has and what is free beside it at the start.
	MaxBytes     int64
	Future       time.Duration // how far ahead a record's clock may be; default 24 h
	MaxQueryTime time.Duration // default 10 s
	MaxOpen      int           // shards kept open at once; default 64
	// Processors are what queries share with other work of the process; default: the store's own.
	Processors *turns.Processors
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
}

func (o *Options) defaults() error {
	if o.Dir == "" {
		return errors.New("the directory of the log store is not set")
	}
	if o.Retention == 0 {
		o.Retention = 7 * 24 * time.Hour
	}
	if o.Retention < 24*time.Hour {
		return fmt.Errorf("the retention of the log store is %s: records are deleted by days, so it must be 24h or more", o.Retention)
	}
	if o.MaxBytes < 0 {
		return fmt.Errorf("the size cap of the log store is %d bytes: it must not be negative", o.MaxBytes)
	}
	if o.Future == 0 {
		o.Future = 24 * time.Hour
	}
	if o.MaxQueryTime == 0 {
		o.MaxQueryTime = 10 * time.Second
	}
	if o.MaxOpen == 0 {
		o.MaxOpen = 64
	}
	if o.Processors == nil {
		o.Processors = turns.NewProcessors(0)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}

// Store is a store.Store on the local disk.
type Store struct {
	opts     Options
	window   store.Window
	clock    *stamp.Clock
	start    int64 // stamps up to it may be in shards that are not open yet
	lock     *disk.Lock
	state    *bbolt.DB
	analysis *index.AnalysisQueue
	metrics  *metrics
	over     atomic.Pointer[map[string]bool] // tenants over their share of MaxBytes with nothing left to delete
	nobody   atomic.Bool                     // that is all there are

	closing  chan struct{}
	loops    sync.WaitGroup
	inflight sync.WaitGroup

	mu     sync.Mutex
	closed bool
	shards map[key]*shard
	open   int
	uses   int64
}

var _ store.Store = (*Store)(nil)

var errClosed = errors.New("the log store is closed")

// Open takes over the directory, and makes it if need be.
func Open(opts Options) (*Store, error) {
	if err := opts.defaults(); err != nil {
		return nil, err
	}
	s := &Store{
		opts:    opts,
		window:  store.Window{Retention: opts.Retention, Future: opts.Future},
		closing: make(chan struct{}),
		shards:  map[key]*shard{},
	}
	if err := disk.MkdirAll(disk.OS{}, s.root(), 0o700); err != nil {
		return nil, fmt.Errorf("log store: %w", err)
	}
	lock, err := disk.LockFile(filepath.Join(opts.Dir, "LOCK"))
	if err != nil {
		return nil, fmt.Errorf("log store: %w", err)
	}
	s.lock = lock
	if err := s.list(); err != nil {
		lock.Close()
		return nil, fmt.Errorf("log store: %w", err)
	}
	s.over.Store(&map[string]bool{})
	if s.opts.MaxBytes == 0 {
		if free, _, err := (disk.OS{}).Space(opts.Dir); err == nil { // nobody knows: no cap
			s.opts.MaxBytes = (dirSize(s.root()) + free) / 4 * 3
		}
	}
	if s.state, err = openState(opts.Dir); err != nil {
		lock.Close()
		return nil, err
	}
	s.metrics = newMetrics(s, opts.Registerer)
	s.clock = stamp.New(opts.Now, s.readStamp())
	s.start, _ = s.clock.Begin()
	s.clock = stamp.New(opts.Now, s.start)
	s.analysis = index.NewAnalysisQueue(max(1, turns.Cores()-1)) // as tenants have of Processors
	s.loops.Go(s.retentionLoop)
	return s, nil
}

func (s *Store) root() string { return filepath.Join(s.opts.Dir, "v1") }

// Ready tells whether records can be taken.
func (s *Store) Ready(context.Context) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return errClosed
	case s.nobody.Load():
		return s.fullError()
	}
	return nil
}

func (s *Store) fullError() error {
	return fmt.Errorf("the log store is at its cap of %d bytes, and the tenant holds more than its share with a single day: raise the cap or collect less", s.opts.MaxBytes)
}

// enter registers a call, so that Close can wait for it.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.inflight.Add(1)
	return nil
}

// Close waits for calls that are going on (queries end within MaxQueryTime) and closes
// all shards. A second call does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	close(s.closing)
	s.loops.Wait()
	s.inflight.Wait()
	var errs []error
	for _, sh := range s.shards { // nobody else is left
		errs = append(errs, s.closeShard(sh))
	}
	s.writeStamp(s.clock.Horizon())
	s.analysis.Close()
	if s.opts.Registerer != nil {
		s.metrics.unregister(s.opts.Registerer)
	}
	return errors.Join(append(errs, s.state.Close(), s.lock.Close())...)
}

type metrics struct {
	records     *prometheus.CounterVec
	quarantined prometheus.Counter
	deleted     *prometheus.CounterVec
	bytes       prometheus.Gauge
	open        prometheus.GaugeFunc
}

func newMetrics(s *Store, reg prometheus.Registerer) *metrics {
	m := &metrics{
		records:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_logs_store_records_total", Help: "Records handed to the log store, by what became of them."}, []string{"result"}),
		quarantined: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_logs_store_quarantined_shards_total", Help: "Shards that could not be opened and were set aside on disk."}),
		deleted:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_logs_store_deleted_shards_total", Help: "Days of a tenant deleted, because of their age or of the size cap."}, []string{"reason"}),
		bytes:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_logs_store_bytes", Help: "Size of the log store on disk, measured once a minute."}),
		open: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_logs_store_open_shards", Help: "Shards that are open."}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(s.open)
		}),
	}
	if reg != nil {
		reg.MustRegister(m.all()...)
	}
	return m
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.records, m.quarantined, m.deleted, m.bytes, m.open}
}

func (m *metrics) unregister(reg prometheus.Registerer) {
	for _, c := range m.all() {
		reg.Unregister(c)
	}
}

func (m *metrics) count(r store.Result) {
	m.records.WithLabelValues("stored").Add(float64(r.Stored))
	m.records.WithLabelValues("duplicate").Add(float64(r.Duplicates))
	m.records.WithLabelValues("retry").Add(float64(len(r.Retry)))
	m.records.WithLabelValues("dead").Add(float64(len(r.Dead)))
}
