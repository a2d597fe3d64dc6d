package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/health"
	"muster.dev/muster/health/status"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/diskshare"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/wire"
)

// Regional is one regional that the engine asks.
type Regional struct {
	// Name is the one that its live view gives.
	Name string
	// URL of its own listener, e.g. http://127.0.0.1:9091, without a slash at the end.
	URL string
}

// Inventory is what the engine needs of *inventory.Inventory.
type Inventory interface {
	Ready() error
	Snapshot() *inventory.Snapshot
	Changed() <-chan struct{}
}

// Status takes what is to be written back to the API server; *status.Writer is one.
// No call waits.
type Status interface {
	ForgetSites([]fleet.SiteID) // those that are gone
	ReportSites([]status.SiteReport)
	ReportPolicies([]status.PolicyReport)
}

// Options of an Engine. Regionals, Inventory, Status, Shipped, Dir and Logger are needed.
type Options struct {
	Regionals []Regional
	Inventory Inventory
	Status    Status
	// Shipped is the model for sites that no policy selects; its queries run once
	// for all tenants.
	Shipped *health.Model
	// Dir holds the state that outlives a restart, and the queue towards Cortex.
	Dir string
	// StoreQueryURL is the base of the Prometheus API of Cortex, up to and without
	// /query, e.g. http://127.0.0.1:9009/prometheus/api/v1. It is asked, with
	// X-Scope-OrgID, about sites whose regional can't be. "": never.
	StoreQueryURL string
	// StoreWriteURL takes remote write, e.g. http://127.0.0.1:9009/api/v1/push. "":
	// scores are not written to Cortex.
	StoreWriteURL string
	// Disk says whose scores wait for the store while the disk of Dir is nearly full; nil: all do.
	Disk *diskshare.Shares

	Tick         time.Duration // default 15 s
	LiveInterval time.Duration // between looks at a live view; default 3 s
	// LiveTimeout is how long a live view is waited for; default 2 s. While the regional
	// answers queries, it is LiveMaxAge.
	LiveTimeout  time.Duration
	LiveMaxAge   time.Duration // until when a live view is believed; default 10 s
	QueryTimeout time.Duration // default 10 s
	// MissingGrace is how long a site that was connected may be in no regional's live
	// view before it counts as offline: a regional that has just started lists nobody
	// until the sites have found it again. Default 20 s.
	MissingGrace time.Duration
	// Patience is how long a site that was connected may have neither a stream nor an
	// acknowledged push before it counts as offline; default 15 s. PushPatience is that of
	// a site that pushes and never had a stream, such as a Prometheus in agent mode;
	// default 90 s.
	Patience, PushPatience time.Duration
	// Concurrency bounds the queries in flight at one regional; default 4.
	Concurrency int
	// MaxResponseBytes bounds an answer; default 64 MiB.
	MaxResponseBytes int64
	// Client asks regionals and the store; nil: one of the engine's own.
	Client     *http.Client
	Logger     *slog.Logger
	Registerer prometheus.Registerer             // may be nil
	Now        func() time.Time                  // nil: time.Now
	Offset     func(time.Duration) time.Duration // of a tick from the full interval; nil: a random tenth of it
}

func (o *Options) defaults() error {
	if o.Inventory == nil || o.Status == nil || o.Shipped == nil || o.Logger == nil || o.Dir == "" {
		return errors.New("health engine: Inventory, Shipped, Dir and Logger must be set")
	}
	names := map[string]bool{}
	for i, r := range o.Regionals {
		if r.Name == "" || names[r.Name] {
			return fmt.Errorf("health engine: regionals[%d]: name %q: want one that is set and unique", i, r.Name)
		}
		if !strings.HasPrefix(r.URL, "http://") && !strings.HasPrefix(r.URL, "https://") {
			return fmt.Errorf("health engine: regional %s: URL %q: want http:// or https://", r.Name, r.URL)
		}
		names[r.Name] = true
	}
	for d, v := range map[*time.Duration]time.Duration{
		&o.Tick: 15 * time.Second, &o.LiveInterval: 3 * time.Second, &o.LiveTimeout: 2 * time.Second, &o.LiveMaxAge: 10 * time.Second, &o.QueryTimeout: 10 * time.Second, &o.MissingGrace: 20 * time.Second,
		&o.Patience: 15 * time.Second, &o.PushPatience: 90 * time.Second,
	} {
		if *d <= 0 {
			*d = v
		}
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 4
	}
	if o.MaxResponseBytes <= 0 {
		o.MaxResponseBytes = 64 << 20
	}
	if o.Client == nil {
		o.Client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.Concurrency + 2, IdleConnTimeout: 90 * time.Second}}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Offset == nil {
		share := rand.Float64() / 10
		o.Offset = func(tick time.Duration) time.Duration { return time.Duration(share * float64(tick)) }
	}
	return nil
}

// Engine evaluates the fleet. Its methods are safe for concurrent use.
type Engine struct {
	opts    Options
	log     *slog.Logger
	now     func() time.Time
	metrics *metrics
	hub     Hub
	writer  *writer
	view    atomic.Pointer[View]

	// What follows belongs to the goroutine of Run.
	planner   *planner
	regionals []regionalState
	mem       map[fleet.SiteID]*memory
	left      map[fleet.SiteID]time.Time // when sites went that are gone, for leftFor
	aligned   []*memory                  // at the positions of alignedTo.Sites
	alignedTo *inventory.Snapshot
	rosters   rosters
	heard     []heard
	removed   []fleet.SiteID // gone from the inventory, not yet published
	scratch   []health.Reading
	plain     []float64
	found     []bool
	members   []health.Member
	scores    []float64
	answers   *answers // the last tick's, for reuse
	virtual   map[[2]string]*VirtualSite
	version   uint64
	ticks     uint64
	saidDown  map[string]bool // regionals whose loss was logged

	blame blame // of the goroutine that collects

	trials trials

	// answered is when each regional last answered a query, in milliseconds since 1970; 0:
	// never, or it no longer does. Any goroutine may use it.
	answered []atomic.Int64
}

// New checks the options and reads the state of a former run.
func New(o Options) (*Engine, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	if err := disk.MkdirAll(disk.OS{}, o.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("health engine: %w", err)
	}
	pl, err := newPlanner(o.Shipped)
	if err != nil {
		return nil, fmt.Errorf("health engine: %w", err)
	}
	e := &Engine{
		opts: o, log: o.Logger, now: o.Now, planner: pl, mem: map[fleet.SiteID]*memory{}, left: map[fleet.SiteID]time.Time{}, virtual: map[[2]string]*VirtualSite{}, saidDown: map[string]bool{},
		answers: &answers{}, trials: newTrials(),
	}
	for _, r := range o.Regionals {
		e.regionals = append(e.regionals, regionalState{Regional: r})
	}
	e.answered = make([]atomic.Int64, len(e.regionals))
	e.rosters.e = e
	e.metrics = newMetrics(o.Registerer)
	if e.writer, err = newWriter(e); err != nil {
		return nil, err
	}
	if err := e.load(); err != nil {
		// The state is a convenience: without it colours start anew.
		e.log.Warn("the health state of the former run can't be read; colours start anew", "err", err)
	}
	return e, nil
}

// View returns the newest view; nil before the first evaluation.
func (e *Engine) View() *View { return e.view.Load() }

// Ready is nil once there is a View.
func (e *Engine) Ready() error {
	if e.view.Load() == nil {
		return errors.New("the first evaluation is not done yet")
	}
	return nil
}

type poll struct {
	regional int
	answer   wire.LiveView
	err      error
	at       time.Time
}

// Run evaluates until ctx ends, then saves its state.
func (e *Engine) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer e.hub.closeAll()

	polls := make(chan poll)
	for r := range e.regionals {
		wg.Go(func() { e.pollLive(ctx, r, polls) })
	}
	// It ends after the last pass: what people saw of that is saved.
	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriting()
	wg.Go(func() { e.writer.run(writing) })
	if q := e.writer.queues; q != nil {
		wg.Go(func() { _ = q.RunRetire(ctx, e.tenantGone) }) // ends with its context
	}

	var (
		collected  chan *answers // nil while nothing is being collected
		pause      <-chan time.Time
		dirty      bool // something changed that the view doesn't show yet
		inventoryC = e.opts.Inventory.Changed()
		// The first tick comes as soon as there is something to evaluate, but waits a
		// moment for the live views.
		patience = time.NewTimer(5 * time.Second)
		tick     = time.NewTimer(time.Hour)
		started  bool
	)
	defer patience.Stop()
	defer tick.Stop()
	begin := func() {
		if collected != nil {
			e.metrics.missed.Inc()
			e.log.Warn("tick missed: the queries of the last one still run", "tick", e.opts.Tick)
			return
		}
		collected = make(chan *answers, 1)
		wg.Go(e.collect(ctx, collected))
	}
	for {
		if !started && e.opts.Inventory.Ready() == nil && (e.allPolled() || patience == nil) {
			started = true
			begin()
			tick.Reset(e.untilTick())
		}
		var patienceC <-chan time.Time
		if patience != nil {
			patienceC = patience.C
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-patienceC:
			patience = nil
		case p := <-polls:
			e.polled(p)
			dirty = true
		case <-inventoryC:
			dirty = true
		case <-pause:
			pause = nil
		case <-tick.C:
			begin()
			tick.Reset(e.untilTick())
		case a := <-collected:
			collected = nil
			e.pass(a)
			dirty = false
			continue
		}
		// Without a first tick there is nothing to bring up to date. Changes come in
		// bursts: one pass serves all of a quarter second.
		if dirty && pause == nil && e.view.Load() != nil {
			e.pass(nil)
			dirty = false
			pause = time.After(250 * time.Millisecond)
		}
	}
}

// untilTick is the time to the next tick: on the full interval, and a fixed offset
// after it, so that several engines don't act in step.
func (e *Engine) untilTick() time.Duration {
	now, tick := e.now(), e.opts.Tick
	next := now.Truncate(tick).Add(e.opts.Offset(tick))
	for !next.After(now) {
		next = next.Add(tick)
	}
	return next.Sub(now)
}

func (e *Engine) allPolled() bool {
	for r := range e.regionals {
		if !e.regionals[r].polled {
			return false
		}
	}
	return true
}

func (e *Engine) pollLive(ctx context.Context, r int, out chan<- poll) {
	t := time.NewTicker(e.opts.LiveInterval)
	defer t.Stop()
	for {
		wait := e.opts.LiveTimeout
		if e.answering(r, e.now()) {
			wait = max(wait, e.opts.LiveMaxAge)
		}
		asked := e.now()
		a, err := e.askLive(ctx, e.opts.Regionals[r], wait)
		answered := e.now()
		if err == nil {
			e.metrics.clockAhead.WithLabelValues(e.opts.Regionals[r].Name).Set(a.Settle(asked, answered).Seconds())
		}
		select {
		case out <- poll{r, a, err, answered}:
		case <-ctx.Done():
			return
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

func (e *Engine) polled(p poll) {
	r := &e.regionals[p.regional]
	r.polled, r.ok, r.err, r.late = true, p.err == nil, "", errors.Is(p.err, errLate)
	up := 0.0
	if p.err != nil {
		r.err = p.err.Error()
		if !e.saidDown[r.Name] {
			e.log.Warn("regional has no live view; while it answers no queries either, its sites' health comes from the store", "regional", r.Name, "err", p.err)
		}
	} else {
		up = 1
		r.at, r.sites = p.at, p.answer.Sites
		if e.saidDown[r.Name] {
			e.log.Info("regional answers again", "regional", r.Name)
		}
	}
	e.saidDown[r.Name] = p.err != nil
	e.metrics.regionalUp.WithLabelValues(r.Name).Set(up)
}

// tenantGone says that the inventory is known and has no such tenant.
func (e *Engine) tenantGone(name string) bool {
	if e.opts.Inventory.Ready() != nil || name == fleet.PlatformTenant {
		return false
	}
	t := e.opts.Inventory.Snapshot().Tenant(name)
	return t == nil || !t.Exists
}
