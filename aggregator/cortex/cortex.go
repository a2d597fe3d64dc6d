// Package cortex runs the fleet's metric store: a stock Cortex in this process,
// all of it in one binary on the file system, or a connection to one that
// somebody else runs (External).
//
// A Muster tenant is a Cortex tenant: every request carries X-Scope-OrgID, and
// whoever may call the listener can name any tenant, so Options.Guard keeps it to
// roles. Nothing here authenticates users; the console does.
//
// Cortex keeps its logger, its metrics registry and its in-memory ring in package
// variables, which is why this is the only package that may import it and why one
// process holds one Cortex at a time. cmd/internal/aggregator is its caller.
package cortex

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	upstream "github.com/cortexproject/cortex/pkg/cortex"
	"github.com/cortexproject/cortex/pkg/querier"
	"github.com/cortexproject/cortex/pkg/ring"
	"github.com/cortexproject/cortex/pkg/util/grpcutil"
	utillog "github.com/cortexproject/cortex/pkg/util/log"
	"github.com/cortexproject/cortex/pkg/util/modules"
	"github.com/cortexproject/cortex/pkg/util/services"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/weaveworks/common/middleware"
	"github.com/weaveworks/common/server"
	"google.golang.org/grpc/health/grpc_health_v1"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/diskshare"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/promcost"
	"muster.dev/muster/internal/prommeter"
)

// Options of an embedded Cortex.
type Options struct {
	// DataDir holds everything: write-ahead logs, blocks, compaction. It is locked
	// while Cortex runs.
	DataDir string
	// Listen is HOST:PORT of Cortex' HTTP API; default 127.0.0.1:9009, port 0 picks one.
	Listen string
	// Guard keeps Listen to those who may call it, by TLS; nil: plain HTTP for whoever
	// reaches it.
	Guard Guard
	// GRPCListen is HOST:PORT over which Cortex' parts talk to each other, and nobody else;
	// default 127.0.0.1:0.
	GRPCListen string
	// Retention is how long samples are kept; 0 keeps them for ever.
	Retention time.Duration
	// OutOfOrderWindow is how old a sample may be and still be accepted into a
	// series that has newer ones; default 48h, as long as a site's spool.
	OutOfOrderWindow time.Duration
	// Limits per tenant; zero fields take their defaults.
	Limits Limits
	// Disk says whose samples the disk takes; Cortex counts them. nil: everybody's.
	Disk *diskshare.Shares
	// Logger gets Cortex' own lines: its warnings and errors as they are, its chatty
	// info lines as debug. Default: none.
	Logger *slog.Logger

	segmentBytes int // of a write-ahead log's files, for tests
}

// Guard is peers.Listener.
type Guard interface {
	Secure(srv *http.Server, log *slog.Logger)
	TLS() bool
}

// Limits protect the store from one tenant, and tenants from each other. What the gateways
// take is taken here too: theirs are the limits that sites meet, and a sample that they
// acknowledged must not be refused one tier later. So by default there is no limit on what
// comes in, and who knows the gateways' sets one that is above theirs.
type Limits struct {
	SeriesPerTenant  int     // active series; default: no limit
	SeriesPerMetric  int     // active series of one metric name; default: no limit
	SamplesPerSecond float64 // default: no limit
	BurstSamples     int     // largest burst, and so the largest single push; default 5,000,000
	LabelsPerSeries  int     // default 64
	SeriesPerQuery   int     // default 500,000
	SamplesPerQuery  int     // held in memory at once; default 20,000,000
}

func (l Limits) withDefaults() Limits {
	set := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	set(&l.BurstSamples, 5_000_000)
	set(&l.LabelsPerSeries, 64)
	set(&l.SeriesPerQuery, 500_000)
	set(&l.SamplesPerQuery, 20_000_000)
	if l.SamplesPerSecond == 0 {
		l.SamplesPerSecond = math.MaxFloat64
	}
	return l
}

// Defaults of Options.
const (
	DefaultListen           = "127.0.0.1:9009"
	DefaultOutOfOrderWindow = 48 * time.Hour
)

// GCPercent is what a process that holds little but Cortex should hand to
// debug.SetGCPercent: its heap is long-lived series, so half the headroom costs
// little time and saves a quarter of the memory.
const GCPercent = 50

// stopTimeout bounds a clean stop. Whatever is cut off is in the write-ahead log.
const stopTimeout = 8 * time.Second

// inUse is package state because Cortex' is: two of them in one process would
// share a logger, a registry and a ring.
var inUse atomic.Bool

// initMetrics holds what Cortex' packages registered in their init functions. It
// is taken before New puts a registry of its own in the default's place.
var initMetrics = prometheus.DefaultGatherer

// Cortex is an embedded Cortex. Safe for concurrent use.
type Cortex struct {
	log      *slog.Logger
	guard    Guard // nil: none
	app      *upstream.Cortex
	manager  *services.Manager
	names    map[services.Service]string
	gatherer prometheus.Gatherer
	wal      *walSync
	lock     *disk.Lock
	httpAddr net.Addr

	stopWithin time.Duration // stopTimeout

	mu     sync.Mutex
	failed error
}

// New checks the options, locks the data directory, binds the listeners and
// builds all parts, so that a taken port or a bad option shows here. Nothing is
// served before Run, which must be called to release them.
func New(o Options) (*Cortex, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	// Cortex casts its own label type to Prometheus' with unsafe. Only the slice
	// form of labels.Labels has that layout; with another it would write over foreign
	// memory. Its own Makefile sets the tag as well.
	if reflect.TypeFor[labels.Labels]().Kind() != reflect.Slice {
		return nil, errors.New("cortex: this binary was built without -tags slicelabels, which an embedded Cortex needs; build it with make, or set aggregator.cortex.url")
	}
	if !inUse.CompareAndSwap(false, true) {
		return nil, errors.New("cortex: one already runs in this process")
	}
	c, err := build(o)
	if err != nil {
		inUse.Store(false)
		return nil, fmt.Errorf("cortex: %w", err)
	}
	return c, nil
}

func build(o Options) (*Cortex, error) {
	if o.DataDir == "" {
		return nil, errors.New("data directory: want a path")
	}
	wal := newWALSync(o.tsdbDir())
	cfg, err := config(o, wal)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{wal.dir, cfg.BlocksStorage.Bucket.Filesystem.Directory} {
		if err := disk.MkdirAll(disk.OS{}, dir, 0o750); err != nil {
			return nil, fmt.Errorf("data directory: %w", err)
		}
	}
	// Cortex opens its databases without one, and two writers would ruin them.
	lock, err := disk.LockFile(filepath.Join(o.DataDir, "lock"))
	if err != nil {
		return nil, err
	}
	if err := closeParts(&cfg, o.DataDir); err != nil {
		_ = lock.Close()
		return nil, err
	}
	queries := newQueryTurns()
	cfg.Server.HTTPMiddleware = append(cfg.Server.HTTPMiddleware, middleware.Func(queries.each), middleware.Func(diskTurns{o.Disk}.each))
	c := &Cortex{log: o.Logger, guard: o.Guard, lock: lock, wal: wal, stopWithin: stopTimeout}
	if err := c.assemble(cfg, queries); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return c, nil
}

// assemble makes the modules. It is what upstream's Run does before it starts
// them, without its signal handler.
func (c *Cortex) assemble(cfg upstream.Config, queries queryTurns) error {
	kitLog := newBridge(c.log)
	utillog.Logger, utillog.SLogger = kitLog, c.log
	cfg.Server.Log = serverLog(kitLog)

	reg := prometheus.NewRegistry()
	prometheus.DefaultRegisterer, prometheus.DefaultGatherer = reg, reg
	c.gatherer = prometheus.Gatherers{reg, obs.WithoutProcess(initMetrics)}
	cfg.Server.Registerer, cfg.Server.Gatherer = reg, prometheus.Gatherers{reg, initMetrics}

	if err := cfg.Validate(kitLog); err != nil {
		return err
	}
	app, err := upstream.New(cfg)
	if err != nil {
		return err
	}
	c.app = app
	// Port 0 is only known once it is bound, and the ring, the ingester and the
	// querier are told the gRPC port when they are built. Upstream's own Server module
	// can't tell them; this one does.
	app.ModuleManager.RegisterModule(upstream.Server, c.initServer, modules.UserInvisibleModule)
	// Between the store and its queries, where upstream may put its tenant federation.
	app.ModuleManager.RegisterModule(upstream.TenantFederation, func() (services.Service, error) {
		app.QuerierQueryable = querier.NewErrorTranslateSampleAndChunkQueryableWithFn(querier.NewSampleAndChunkQueryable(&prommeter.Queryable{
			Queryable: app.QuerierQueryable, PerSeries: int64(promcost.Query.Cost), Points: int64(cfg.Querier.MaxSamples), Pass: queries.pass,
		}), answered)
		return nil, nil
	}, modules.UserInvisibleModule)
	if err := app.ModuleManager.AddDependency(upstream.TenantFederation, upstream.Queryable); err != nil {
		return err
	}
	app.ServiceMap, err = app.ModuleManager.InitModuleServices(cfg.Target...)
	if err != nil {
		return err
	}
	app.API.RegisterServiceMapHandler(http.HandlerFunc(c.serveServices))
	app.Server.HTTP.Path("/ready").HandlerFunc(c.serveReady)

	c.names = make(map[services.Service]string, len(app.ServiceMap))
	all := make([]services.Service, 0, len(app.ServiceMap))
	for name, s := range app.ServiceMap {
		c.names[s] = name
		all = append(all, s)
	}
	if c.manager, err = services.NewManager(all...); err != nil {
		return err
	}
	// The parts ask each other every 15 s whether they are well, and hang up, queries
	// in flight included, on one that doesn't answer.
	grpc_health_v1.RegisterHealthServer(app.Server.GRPC, grpcutil.NewHealthCheck(c.manager))
	return nil
}

func (c *Cortex) initServer() (services.Service, error) {
	app := c.app
	upstream.DisableSignalHandling(&app.Cfg.Server)
	srv, err := server.New(app.Cfg.Server)
	if err != nil {
		return nil, err
	}
	srv.HTTPServer.ErrorLog = obs.ServerLog(c.log)
	if c.guard != nil {
		c.guard.Secure(srv.HTTPServer, c.log)
	}
	app.Server = srv
	c.httpAddr = srv.HTTPListenAddr()
	if tcp, ok := srv.GRPCListenAddr().(*net.TCPAddr); ok {
		app.Cfg.Server.GRPCListenPort = tcp.Port
	}
	app.Cfg.Querier.StoreGatewayAddresses = srv.GRPCListenAddr().String()
	return upstream.NewServerService(srv, func() []services.Service {
		var others []services.Service
		for name, s := range app.ServiceMap {
			if name != upstream.Server {
				others = append(others, s)
			}
		}
		return others
	}), nil
}

// Run serves until ctx is done or a part ends, by failure or by itself, and stops
// everything within seconds. A part that ended is an error, so that the role is started
// again: Cortex without its ingester answers, and loses. It may be called once.
func (c *Cortex) Run(ctx context.Context) error {
	defer inUse.Store(false)
	defer c.lock.Close()

	c.manager.AddListener(services.NewManagerListener(func() { c.log.Info("cortex started", "address", c.Addr()) }, func() {}, func(services.Service) {}))
	var stopping atomic.Bool
	stop := func() {
		stopping.Store(true)
		c.manager.StopAsync()
	}
	for s, name := range c.names {
		ended := func(err error) {
			if !stopping.Load() {
				c.setFailed(fmt.Errorf("cortex: %s: %w", name, err))
			}
			stop() // the others must not look as if they ended by themselves
		}
		s.AddListener(services.NewListener(nil, nil, nil,
			func(services.State) { ended(errors.New("it ended by itself")) },
			func(_ services.State, err error) { ended(err) }))
	}
	if err := c.manager.StartAsync(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("cortex: start: %w", err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = c.manager.AwaitStopped(context.WithoutCancel(ctx))
	}()
	select {
	case <-stopped:
	case err := <-c.wal.failed:
		c.setFailed(fmt.Errorf("cortex: %w", err))
		stop()
	case <-ctx.Done():
		stop()
	}
	deadline := time.NewTimer(c.stopWithin)
	defer deadline.Stop()
	var closed error
	select {
	case <-stopped:
		closed = c.wal.close()
	case <-deadline.C:
		closed = fmt.Errorf("cortex: still stopping after %s: %s", c.stopWithin, strings.Join(c.unfinished(), ", "))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.failed, closed)
}

func (c *Cortex) setFailed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
}

func (c *Cortex) unfinished() []string {
	var out []string
	for s, name := range c.names {
		if st := s.State(); st != services.Terminated && st != services.Failed {
			out = append(out, name+" "+st.String())
		}
	}
	return out
}

// Ready returns nil when pushes and queries work, else what is missing.
func (c *Cortex) Ready() error {
	c.mu.Lock()
	failed := c.failed
	c.mu.Unlock()
	if failed != nil {
		return failed
	}
	if !c.manager.IsHealthy() {
		var wait []string
		for s, name := range c.names {
			if s.State() != services.Running {
				wait = append(wait, name)
			}
		}
		return fmt.Errorf("cortex: waiting for %s", strings.Join(wait, ", "))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := c.app.Ingester.CheckReady(ctx); err != nil {
		return fmt.Errorf("cortex: ingester: %w", err)
	}
	// The distributor learns of the ingester through its own watch of the ring,
	// which may still show it as joining when the ingester knows that it is active.
	if _, err := c.app.Ring.GetReplicationSetForOperation(ring.Write); err != nil {
		return fmt.Errorf("cortex: ring: %w", err)
	}
	return nil
}

// Addr is where the HTTP API listens.
func (c *Cortex) Addr() string { return c.httpAddr.String() }

// URL is the base URL of the HTTP API.
func (c *Cortex) URL() string {
	if c.guard != nil && c.guard.TLS() {
		return "https://" + c.Addr()
	}
	return "http://" + c.Addr()
}

// Gatherer gives Cortex' own metrics, without those of the Go runtime and the
// process, which the role's registry has.
func (c *Cortex) Gatherer() prometheus.Gatherer { return c.gatherer }

// Status says in what state each part is, for the debug page.
func (c *Cortex) Status() any {
	parts := make(map[string]string, len(c.names))
	for s, name := range c.names {
		parts[name] = s.State().String()
	}
	return map[string]any{"address": c.Addr(), "parts": parts}
}

func (c *Cortex) serveReady(w http.ResponseWriter, _ *http.Request) {
	if err := c.Ready(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

func (c *Cortex) serveServices(w http.ResponseWriter, _ *http.Request) {
	for s, name := range c.names {
		fmt.Fprintf(w, "%s => %s\n", name, s.State())
	}
}
