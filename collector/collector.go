// Package collector is a site's telemetry: it scrapes with Prometheus' own scrape
// and discovery packages, filters by the site's collection policy, queues what is
// left in a spool on disk, and pushes it to the regional by remote write.
//
// It keeps no database, knows nothing of certificates or desired state, and never
// decides the policy. The edge binary runs one; the simulated fleet runs many in
// one process, so it has no global state.
package collector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	_ "github.com/prometheus/prometheus/discovery/file"       // file_sd_configs
	_ "github.com/prometheus/prometheus/discovery/kubernetes" // kubernetes_sd_configs
	"github.com/prometheus/prometheus/scrape"

	"muster.dev/muster/collector/filter"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/spool"
)

// Options configures New. Dir, Site and Endpoint are needed.
type Options struct {
	// Dir holds the spool.
	Dir string
	// Site spreads the scrapes of a fleet over the interval: each site has an
	// offset of its own that stays the same.
	Site fleet.SiteID
	// ScrapeConfigs is a YAML list in the form of Prometheus' scrape_configs, with
	// static, file and Kubernetes discovery. A job without scrape_interval is
	// scraped at the policy's interval.
	ScrapeConfigs []byte
	// Targets are scraped in-process, without a socket.
	Targets []Target
	// Policy is what to collect until ApplyPolicy brings another. The zero value
	// is the last good policy, which is kept in Dir; the first time it is
	// DefaultPolicy.
	Policy fleet.CollectionPolicy
	// Endpoint is the URL to push to, asked for each request; "": none now. Client
	// is asked too: certificates rotate.
	Endpoint func() string
	Client   func() *http.Client
	// SpoolSync is how often at most the spool is synced to the disk: what power loss
	// can cost. Default 1 s, which spares SD cards; negative: before a scrape counts
	// as taken.
	SpoolSync time.Duration
	// ProcessMetrics adds the figures of the whole process to the collector's own
	// series: right when the process has one collector.
	ProcessMetrics bool
	// Self are further series of the site's own, served with the collector's; nil: none.
	Self    prometheus.Collector
	Version string // of the software; default "dev"
	// BuildTime is when the software was built; default: the program file's time.
	BuildTime  time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer

	// reloadEvery is how often new targets are picked up.
	reloadEvery time.Duration
	// rememberFailures is how long the condition of failing pushes outlives the last
	// failure: else it would come and go with every other push.
	rememberFailures time.Duration
}

// DefaultSpoolSync is the default of Options.SpoolSync.
const DefaultSpoolSync = time.Second

// Collector collects one site's metrics. Safe for concurrent use.
type Collector struct {
	opts     Options
	log      *slog.Logger
	spool    *spool.Spool
	sender   *remotewrite.Sender
	table    *filter.Table
	inproc   *inProcess
	scraper  *scrape.Manager
	refused  caughtCounters // of samples, by the scrape package
	discover *discovery.Manager
	metrics  *metrics
	batches  sync.Pool // of *batch
	started  time.Time
	ctx      context.Context // of discovery
	cancel   context.CancelFunc

	applyMu sync.Mutex // held through an application
	running bool
	raw     []byte // scrape configs in effect
	cfg     *config.Config

	mu        sync.Mutex
	policy    fleet.CollectionPolicy
	hash      string
	policyErr error // of the last application; nil: it is in effect
	lost      uint64
	lostErr   error
	lostAt    time.Time
	warned    *obs.Every
	held      holds
	closed    bool
}

// DefaultPolicy is a policy that sets nothing: only "up" and the collector's own
// series leave the site.
func DefaultPolicy() fleet.CollectionPolicy {
	return fleet.CollectionPolicy{
		SeriesBudget: fleet.DefaultSeriesBudget, Interval: fleet.DefaultInterval,
		SpoolMaxBytes: fleet.DefaultSpoolMaxBytes, SpoolMaxAge: fleet.DefaultSpoolMaxAge,
	}
}

// New opens the spool and checks the configuration. Run starts the collector;
// Close is for one that never ran.
func New(o Options) (*Collector, error) {
	if o.Dir == "" || o.Endpoint == nil {
		return nil, errors.New("collector: Dir and Endpoint must be set")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Policy.SeriesBudget == 0 && o.Policy.Interval == 0 {
		o.Policy = lastPolicy(o.Dir, o.Logger)
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.BuildTime.IsZero() {
		o.BuildTime = programTime()
	}
	if o.SpoolSync == 0 {
		o.SpoolSync = DefaultSpoolSync
	}
	if o.rememberFailures <= 0 {
		o.rememberFailures = 30 * time.Second
	}
	if o.reloadEvery <= 0 {
		o.reloadEvery = time.Second
	}
	compiled, err := filter.Compile(o.Policy)
	if err != nil {
		return nil, fmt.Errorf("collector: policy: %w", err)
	}
	c := &Collector{
		warned: obs.NewEvery(time.Minute),
		opts:   o, log: o.Logger, table: filter.NewTable(compiled), started: time.Now(),
		raw: o.ScrapeConfigs, policy: o.Policy, hash: hashOf(o.Policy),
	}
	c.batches.New = func() any { return &batch{} }
	if c.inproc, err = newInProcess(o.Targets); err != nil {
		return nil, fmt.Errorf("collector: %w", err)
	}
	if c.cfg, err = buildConfig(c.configInput(o.Policy, compiled, o.ScrapeConfigs)); err != nil {
		return nil, fmt.Errorf("collector: %w", err)
	}
	c.spool, err = spool.Open(spool.Options{
		Dir: o.Dir, MaxBytes: o.Policy.SpoolMaxBytes, MaxAge: o.Policy.SpoolMaxAge,
		SyncInterval: max(o.SpoolSync, 0), Logger: o.Logger, Registerer: o.Registerer,
	})
	if err != nil {
		return nil, err
	}
	if err := c.assemble(); err != nil {
		_ = c.spool.Close()
		return nil, fmt.Errorf("collector: %w", err)
	}
	return c, nil
}

// programTime is when the program's file was written; zero if that can't be told.
func programTime() time.Time {
	path, err := os.Executable()
	if err != nil {
		return time.Time{}
	}
	fi, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return fi.ModTime()
}

// assemble makes the parts that send and scrape.
func (c *Collector) assemble() error {
	o := c.opts
	c.sender = remotewrite.NewSender(remotewrite.SenderOptions{
		Source: c.spool, Endpoint: o.Endpoint, Client: o.Client,
		UserAgent: "muster-edge/" + o.Version, Logger: o.Logger, Registerer: o.Registerer,
	})
	var err error
	if c.metrics, err = newMetrics(c); err != nil {
		return err
	}
	c.inproc.handle(selfHost, c.metrics.handler())

	c.ctx, c.cancel = context.WithCancel(context.Background())
	// The scrape and discovery packages want a registry each; their figures are
	// those of a Prometheus server, and stay in the process.
	reg := prometheus.NewRegistry()
	c.refused.Registerer = reg
	sd, err := discovery.CreateAndRegisterSDMetrics(reg)
	if err != nil {
		return err
	}
	c.discover = discovery.NewManager(c.ctx, o.Logger, reg, sd, discovery.Name("scrape"), discovery.Updatert(o.reloadEvery))
	if c.discover == nil {
		return errors.New("make the discovery manager")
	}
	c.scraper, err = scrape.NewManager(&scrape.Options{
		AppendMetadata: true, PassMetadataInContext: true, DiscoveryReloadInterval: model.Duration(o.reloadEvery),
		HTTPClientOptions: c.inproc.clientOptions(),
	}, o.Logger, nil, appendable{c}, &c.refused)
	return err
}

// Run collects and pushes until ctx ends, then stops everything and closes the
// spool. What was not pushed yet is pushed after the next start.
func (c *Collector) Run(ctx context.Context) error {
	c.applyMu.Lock()
	err := c.scraper.ApplyConfig(c.cfg)
	if err == nil {
		err = c.discover.ApplyConfig(discoveryConfigs(c.cfg))
	}
	c.running = err == nil
	c.applyMu.Unlock()
	if err != nil {
		return errors.Join(fmt.Errorf("collector: start: %w", err), c.Close())
	}
	c.inproc.serve()
	var scraping, sending sync.WaitGroup
	scraping.Go(func() { _ = c.discover.Run() })
	scraping.Go(func() { _ = c.scraper.Run(c.discover.SyncCh()) })
	sendCtx, stopSending := context.WithCancel(context.Background())
	sending.Go(func() { _ = c.sender.Run(sendCtx) })

	<-ctx.Done()
	c.applyMu.Lock()
	c.running = false
	c.applyMu.Unlock()
	c.scraper.Stop()
	c.cancel()
	scraping.Wait()
	stopSending()
	sending.Wait()
	return c.Close()
}

// Close closes the spool. Run does it; call it only if Run is never called.
func (c *Collector) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	c.cancel()
	c.inproc.close()
	c.metrics.unregister()
	return c.spool.Close()
}

// ApplyPolicy puts another policy into effect without a restart. After an error
// the last good one stays, and Conditions and Status say so.
func (c *Collector) ApplyPolicy(p fleet.CollectionPolicy) error {
	c.applyMu.Lock()
	defer c.applyMu.Unlock()
	err := c.applyLocked(p, c.raw)
	c.mu.Lock()
	c.policyErr = err
	c.mu.Unlock()
	if err != nil {
		c.log.Error("collection policy refused; the last good one stays in effect", "err", err)
	}
	return err
}

// Reload puts other scrape configs into effect. After an error the last good ones
// stay.
func (c *Collector) Reload(scrapeConfigs []byte) error {
	c.applyMu.Lock()
	defer c.applyMu.Unlock()
	return c.applyLocked(c.policyNow(), scrapeConfigs)
}

func (c *Collector) policyNow() fleet.CollectionPolicy {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.policy
}

// applyLocked does all that can fail before it touches what runs.
func (c *Collector) applyLocked(p fleet.CollectionPolicy, raw []byte) error {
	compiled, err := filter.Compile(p)
	if err != nil {
		return fmt.Errorf("collection policy: %w", err)
	}
	cfg, err := buildConfig(c.configInput(p, compiled, raw))
	if err != nil {
		return err
	}
	if c.running {
		if err := c.scraper.ApplyConfig(cfg); err != nil {
			return errors.Join(fmt.Errorf("apply the scrape configs: %w", err), c.scraper.ApplyConfig(c.cfg))
		}
		if string(raw) != string(c.raw) {
			if err := c.discover.ApplyConfig(discoveryConfigs(cfg)); err != nil {
				return fmt.Errorf("apply the discovery configs: %w", err)
			}
		}
	}
	c.cfg, c.raw = cfg, raw
	c.spool.SetLimits(p.SpoolMaxBytes, p.SpoolMaxAge)
	ended := c.batches.Get().(*batch)
	c.table.SetPolicy(compiled, time.Now().UnixMilli(), ended.add)
	c.mu.Lock()
	c.policy, c.hash = p, hashOf(p)
	c.mu.Unlock()
	if err := savePolicy(c.opts.Dir, p); err != nil {
		c.log.Warn("saving the policy failed; after a restart the one before is in effect until it comes again", "err", err)
	}
	c.queue(ended)
	return nil
}

// configInput gathers what buildConfig needs.
func (c *Collector) configInput(p fleet.CollectionPolicy, compiled *filter.Policy, raw []byte) configInput {
	return configInput{site: c.opts.Site, interval: p.Interval, keep: compiled.KeepRegexp(), drop: p.DropSeries, requests: requestRules(p), raw: raw, inProcess: c.inproc}
}

// hashOf is the policy's hash: the digest of its blob.
func hashOf(p fleet.CollectionPolicy) string {
	sum := sha256.Sum256(p.Encode())
	return hex.EncodeToString(sum[:])
}

// Policy returns the policy in effect and its hash, the SHA-256 of its encoded
// form in hex.
func (c *Collector) Policy() (fleet.CollectionPolicy, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.policy, c.hash
}
