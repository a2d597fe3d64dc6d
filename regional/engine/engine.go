// Package engine is one Prometheus engine, built from Prometheus' own packages:
// the time series database, PromQL, rules, scraping, the notifier and the HTTP API.
// A regional runs two in one process: "edge" holds what sites push, "local" scrapes
// the region's own services, so that a noisy site can't take down the region's view
// of itself.
//
// It knows nothing of sites and certificates (gateway does). What is scraped or
// computed by rules also goes to Options.Forward, so that it reaches the store.
// cmd/internal makes the engines.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/notifier"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/compression"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/promcost"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/turns"
)

// Names of the two engines of a regional.
const (
	Edge  = "edge"
	Local = "local"
)

// Options of New. Name and Dir are required.
type Options struct {
	Name      string // "edge" or "local": label "engine" of the metrics, prefix of the URLs
	Dir       string
	Retention time.Duration // default 7 days
	// OutOfOrderWindow is how late a sample may be. Default 0: not at all.
	OutOfOrderWindow time.Duration
	// ExternalLabels are added to alerts and to what is forwarded and federated.
	ExternalLabels labels.Labels
	Rules          []RuleGroup
	// EvaluationInterval of rule groups that set none. Default 15 s.
	EvaluationInterval time.Duration
	// ScrapeConfigs is YAML: a list, as scrape_configs in a Prometheus configuration.
	ScrapeConfigs []byte
	// Alertmanagers are base URLs, such as http://127.0.0.1:9093.
	Alertmanagers []string
	// AlertClient sends them; nil: one of the notifier's own.
	AlertClient *http.Client
	// ResendDelay is after how long an alert that fires is sent again; default 30 s. An
	// Alertmanager that was away learns of it then.
	ResendDelay time.Duration
	// AlertLabels may add labels to an alert before it is sent, such as what the rule's
	// series don't carry; nil: it goes as it is. Called for each alert, also concurrently.
	AlertLabels func(labels.Labels) labels.Labels
	// ExternalURL is where people reach the engine; it stands in alerts.
	ExternalURL string

	// Forward gets every batch that is appended through Appendable: rule results and
	// scraped samples. It must not keep the series. An error is counted and logged; the samples stay in the engine.
	Forward func(tenant string, series []remotewrite.Series) error
	// MaxExemplars that the head keeps, of all series together; default 0: none.
	MaxExemplars int64
	// SeriesLifecycle is told of every series that the head makes, also while it replays
	// its log, and drops; its PreCreation may refuse one. Nil: nobody.
	SeriesLifecycle tsdb.SeriesLifecycleCallback
	// Tenant is whom forwarded samples belong to. Empty: a sample's own tenant label,
	// else the platform's tenant.
	Tenant string

	// QueryConcurrency bounds the evaluations at one time, of rules and queries; default
	// 20. Shipped rules and health may have all of them, tenants together TenantSlots,
	// and one tenant a quarter of those: by default twice the processors, at most three
	// quarters of all.
	QueryConcurrency, TenantSlots int
	QueryTimeout                  time.Duration // default 2 minutes
	QueryMaxSamples               int           // in memory of one evaluation; default 50 million
	// Processors are what evaluations share with other work of the process; default: the
	// engine's own.
	Processors *turns.Processors
	// TenantTimeout and TenantMaxSamples are the same for what a tenant has evaluated;
	// default 10 s, waiting for a slot included, and 10 million.
	TenantTimeout    time.Duration
	TenantMaxSamples int
	// RuleMaxSeries is how many series or alerts one rule of a tenant may give; default
	// 10,000.
	RuleMaxSeries int
	// TenantAlertSeries is how many series about one tenant's alerts, two an alert, the head
	// may hold before its rules get no new ones; default 50,000.
	TenantAlertSeries int
	// TenantAlertBytes bounds the memory of alerts of one tenant's rules, in bytes; those of
	// one evaluation count beside those that are there. Default 64 MiB.
	TenantAlertBytes int64
	Logger           *slog.Logger
	Registerer       prometheus.Registerer
	Now              func() time.Time
}

func (o *Options) withDefaults() error {
	if o.Name == "" || o.Dir == "" {
		return errors.New("engine: Name and Dir must be set")
	}
	o.Retention = cmp.Or(o.Retention, 7*24*time.Hour)
	o.EvaluationInterval = cmp.Or(o.EvaluationInterval, 15*time.Second)
	o.QueryTimeout = cmp.Or(o.QueryTimeout, 2*time.Minute)
	o.TenantTimeout = cmp.Or(o.TenantTimeout, 10*time.Second)
	o.ResendDelay = cmp.Or(o.ResendDelay, 30*time.Second)
	o.QueryConcurrency = cmp.Or(o.QueryConcurrency, 20)
	o.TenantSlots = cmp.Or(o.TenantSlots, max(1, min(2*turns.Cores(), o.QueryConcurrency*3/4)))
	if o.Processors == nil {
		o.Processors = turns.NewProcessors(0)
	}
	o.QueryMaxSamples = cmp.Or(o.QueryMaxSamples, 50_000_000)
	o.TenantMaxSamples = cmp.Or(o.TenantMaxSamples, 10_000_000)
	o.RuleMaxSeries = cmp.Or(o.RuleMaxSeries, 10_000)
	o.TenantAlertSeries = cmp.Or(o.TenantAlertSeries, 50_000)
	o.TenantAlertBytes = cmp.Or(o.TenantAlertBytes, 64<<20)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.ExternalURL == "" {
		o.ExternalURL = "http://localhost/" + o.Name
	}
	return nil
}

// Engine is a running engine. Safe for concurrent use.
type Engine struct {
	opts     Options
	log      *slog.Logger
	reg      prometheus.Registerer
	start    time.Time
	db       *database
	guard    *guard
	rules    *rules.Manager
	loader   *ruleLoader
	evals    evaluations
	alerts   *alertSeries
	memory   *alertMemory
	setRules sync.Mutex // one change of rules at a time
	refused  atomic.Pointer[[]RuleError]
	groups   atomic.Pointer[[]*rules.Group] // since the last change
	sender   *sender
	notifier *notifier.Manager
	scraper  *scrape.Manager
	tee      *tee
	config   config.Config

	stopSending func()
	cancel      context.CancelFunc
	wg          sync.WaitGroup
	once        sync.Once
	err         error
}

// New opens the database, which replays its write-ahead log, and starts the engine.
func New(o Options) (*Engine, error) {
	if err := o.withDefaults(); err != nil {
		return nil, err
	}
	extURL, err := url.Parse(o.ExternalURL)
	if err != nil {
		return nil, fmt.Errorf("engine %s: external URL: %w", o.Name, err)
	}
	log := o.Logger.With("engine", o.Name)
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{
		opts: o, log: log, start: o.Now(), cancel: cancel,
		alerts: newAlertSeries(o.TenantAlertSeries, o.SeriesLifecycle),
		reg:    prometheus.WrapRegistererWith(prometheus.Labels{"engine": o.Name}, o.Registerer),
		evals:  evaluations{running: map[*rules.Group]context.CancelFunc{}, obsolete: map[string]int{}},
	}
	if err := e.open(ctx, extURL); err != nil {
		cancel()
		if e.stopSending != nil {
			e.stopSending()
			e.notifier.Stop()
			e.wg.Wait()
		}
		return nil, errors.Join(fmt.Errorf("engine %s: %w", o.Name, err), e.closeStores())
	}
	return e, nil
}

func (e *Engine) open(ctx context.Context, extURL *url.URL) error {
	if err := e.parseConfig(); err != nil {
		return err
	}
	if err := disk.MkdirAll(disk.OS{}, e.opts.Dir, 0o750); err != nil {
		return err
	}
	// A bad rule must not cost a replay of the log first.
	e.loader = newRuleLoader()
	files, _, refused := e.loader.set(e.opts.Rules)
	for _, r := range refused {
		if r.Group == "" {
			return r
		}
		// What an older version took must not keep this one from starting.
		e.log.Warn("a rule group is not evaluated", "file", r.File, "group", r.Group, "err", r.Err)
	}
	e.refused.Store(&refused)
	var err error
	if e.db, err = openDatabase(e.opts.Dir, e.log.With("part", "tsdb"), e.reg, e.tsdbOptions()); err != nil {
		return fmt.Errorf("open the database in %s: %w", e.opts.Dir, err)
	}
	e.openQueries()
	e.tee = newTee(e.db, e.opts, e.log, e.reg)
	if err := e.startNotifier(); err != nil {
		return err
	}
	e.memory = newAlertMemory(e.opts, extURL, e.reg)
	e.rules = rules.NewManager(&rules.ManagerOptions{
		Appendable: ruleAppendable{e}, Queryable: e.db, QueryFunc: e.queryRule,
		NotifyFunc: e.sender.notify, ExternalURL: extURL,
		// A refused rule would have a line a sample.
		Logger:  slog.New(obs.Limit(e.log.With("part", "rules").Handler(), time.Minute)),
		Context: ctx, Metrics: ruleMetrics(e.reg, e.loader.tenants), GroupLoader: e.loader,
		OutageTolerance: time.Hour, ForGracePeriod: 10 * time.Minute, ResendDelay: e.opts.ResendDelay,
		DefaultRuleQueryOffset: func() time.Duration { return 0 },
	})
	if err := e.updateRules(files, nil); err != nil {
		return err
	}
	if err := e.startScraping(ctx); err != nil {
		return err
	}
	e.goRun(e.rules.Run)
	return nil
}

// parsing is how many queries may be parsed while all slots are in use: the tracker
// counts those too.
const parsing = 16

func (e *Engine) openQueries() {
	o := e.opts
	tracker := promql.NewActiveQueryTracker(o.Dir, o.QueryConcurrency+parsing, e.log.With("part", "queries"))
	open := func(class string, samples int) *promql.Engine {
		return promql.NewEngine(promql.EngineOpts{
			Logger: e.log.With("part", "promql"), Reg: prometheus.WrapRegistererWith(prometheus.Labels{"class": class}, e.reg),
			MaxSamples: samples, Timeout: o.QueryTimeout, ActiveQueryTracker: tracker,
			NoStepSubqueryIntervalFn: func(int64) int64 { return promcost.DefaultStep.Milliseconds() },
			EnableAtModifier:         true, EnableNegativeOffset: true,
		})
	}
	e.guard = &guard{
		platform: open("platform", o.QueryMaxSamples), tenant: open("tenant", min(o.TenantMaxSamples, o.QueryMaxSamples)),
		timeout: o.QueryTimeout, tenantTimeout: min(o.TenantTimeout, o.QueryTimeout), samples: o.TenantMaxSamples, limits: promcost.Query,
		slots: turns.New(o.QueryConcurrency, o.TenantSlots, max(1, o.TenantSlots/4)), processors: o.Processors,
		programs: newPrograms(e.db.DB, e.db.recent, o.Now, e.reg),
	}
	e.guard.register(e.reg)
}

func (e *Engine) goRun(fn func()) {
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		fn()
	}()
}

func (e *Engine) tsdbOptions() *tsdb.Options {
	o := tsdb.DefaultOptions()
	o.RetentionDuration = e.opts.Retention.Milliseconds()
	o.OutOfOrderTimeWindow = e.opts.OutOfOrderWindow.Milliseconds()
	// As Prometheus does: a block is at most a tenth of the retention, so that old
	// data goes in steps of that size.
	o.MaxBlockDuration = max(o.MinBlockDuration, min(e.opts.Retention/10, 31*24*time.Hour).Milliseconds())
	o.WALCompression = compression.Snappy
	// A stop writes what the head holds, so that the next start replays only the log of what
	// came later: that of two hours takes minutes, in which sites are not taken.
	o.EnableMemorySnapshotOnShutdown = true
	o.EnableExemplarStorage, o.MaxExemplars = e.opts.MaxExemplars > 0, e.opts.MaxExemplars
	o.SeriesLifecycleCallback = e.alerts
	return o
}

func (e *Engine) parseConfig() error {
	src := "global:\n  evaluation_interval: " + model.Duration(e.opts.EvaluationInterval).String() + "\n"
	cfg, err := config.Load(src, e.log)
	if err != nil {
		return err
	}
	if len(e.opts.ScrapeConfigs) > 0 {
		parsed, err := config.Load(src+"scrape_configs:\n"+string(e.opts.ScrapeConfigs), e.log)
		if err != nil {
			return fmt.Errorf("scrape configs: %w", err)
		}
		cfg = parsed
	}
	cfg.GlobalConfig.ExternalLabels = e.opts.ExternalLabels
	for i, u := range e.opts.Alertmanagers {
		parsed, err := url.Parse(u)
		if err != nil || parsed.Host == "" {
			return fmt.Errorf("alertmanagers[%d]: %q: want a URL such as http://127.0.0.1:9093", i, u)
		}
		am := config.DefaultAlertmanagerConfig
		am.Scheme, am.PathPrefix = parsed.Scheme, parsed.Path
		am.AlertRelabelConfigs, am.RelabelConfigs = nil, nil
		am.ServiceDiscoveryConfigs = discovery.Configs{discovery.StaticConfig{{
			Targets: []model.LabelSet{{model.AddressLabel: model.LabelValue(parsed.Host)}},
		}}}
		cfg.AlertingConfig.AlertmanagerConfigs = append(cfg.AlertingConfig.AlertmanagerConfigs, &am)
	}
	e.config = *cfg
	return nil
}

func (e *Engine) startNotifier() error {
	var reg *prometheus.Registry
	e.sender, reg = newSender(e)
	e.notifier = notifier.NewManager(&notifier.Options{
		QueueCapacity: 4 * queueAlerts, DrainOnShutdown: true, Registerer: reg, Do: e.opts.sendAlerts(),
	}, model.UTF8Validation, e.log.With("part", "notifier"))
	if err := e.notifier.ApplyConfig(&e.config); err != nil {
		return fmt.Errorf("alertmanagers: %w", err)
	}
	// The addresses are fixed, so what discovery would find is known already.
	sets := map[string][]*targetgroup.Group{}
	for key, am := range e.config.AlertingConfig.AlertmanagerConfigs.ToMap() {
		for _, sd := range am.ServiceDiscoveryConfigs {
			if static, ok := sd.(discovery.StaticConfig); ok {
				sets[key] = append(sets[key], static...)
			}
		}
	}
	found := make(chan map[string][]*targetgroup.Group, 1)
	found <- sets
	e.goRun(func() { e.notifier.Run(found) })
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	e.stopSending = func() { stop(); <-done }
	go func() { defer close(done); e.sender.run(ctx) }()
	return nil
}

// sendAlerts is how the notifier makes its requests; nil: as it does by itself.
func (o *Options) sendAlerts() func(context.Context, *http.Client, *http.Request) (*http.Response, error) {
	if o.AlertClient == nil {
		return nil
	}
	return func(ctx context.Context, _ *http.Client, req *http.Request) (*http.Response, error) {
		return o.AlertClient.Do(req.WithContext(ctx))
	}
}

// startScraping starts discovery and scraping also when there is nothing to
// scrape: the API asks the scrape manager for its targets.
func (e *Engine) startScraping(ctx context.Context) error {
	sd, err := discovery.CreateAndRegisterSDMetrics(e.reg)
	if err != nil {
		return fmt.Errorf("discovery metrics: %w", err)
	}
	disc := discovery.NewManager(ctx, e.log.With("part", "discovery"), e.reg, sd, discovery.Name("scrape"))
	if disc == nil {
		return errors.New("discovery metrics are registered already")
	}
	if e.scraper, err = scrape.NewManager(&scrape.Options{}, e.log.With("part", "scrape"), nil, e.tee, e.reg); err != nil {
		return fmt.Errorf("scraping: %w", err)
	}
	configs, err := e.config.GetScrapeConfigs()
	if err != nil {
		return fmt.Errorf("scrape configs: %w", err)
	}
	if err := e.scraper.ApplyConfig(&e.config); err != nil {
		return fmt.Errorf("scrape configs: %w", err)
	}
	found := map[string]discovery.Configs{}
	for _, c := range configs {
		found[c.JobName] = c.ServiceDiscoveryConfigs
	}
	if err := disc.ApplyConfig(found); err != nil {
		return fmt.Errorf("scrape configs: %w", err)
	}
	e.goRun(func() { _ = disc.Run() })
	e.goRun(func() { _ = e.scraper.Run(disc.SyncCh()) })
	return nil
}

// Name is "edge" or "local".
func (e *Engine) Name() string { return e.opts.Name }

// Ready is nil when the engine answers queries.
func (e *Engine) Ready() error {
	select {
	case <-e.closing():
		return errors.New("stopping")
	default:
		return nil
	}
}

func (e *Engine) closing() <-chan struct{} { return e.tee.closed }

// Storage is the database itself: what is appended to it is not forwarded. The
// gateway uses it, because it forwards with the site's tenant itself.
func (e *Engine) Storage() storage.Storage { return e.db }

// Appendable appends to the database and forwards.
func (e *Engine) Appendable() storage.Appendable { return e.tee }

// Query runs an instant query.
func (e *Engine) Query(ctx context.Context, q string, ts time.Time) (promql.Vector, error) {
	return rules.EngineQueryFunc(e.guard, e.db)(withClass(ctx, ofPlatform), q, ts)
}

// HeadSeries is the number of series in memory.
func (e *Engine) HeadSeries() uint64 { return e.db.Head().NumSeries() }

// Status is what /debug/ shows.
type Status struct {
	Name          string    `json:"name"`
	HeadSeries    uint64    `json:"headSeries"`
	Blocks        int       `json:"blocks"`
	OldestSample  time.Time `json:"oldestSample"`
	RuleGroups    int       `json:"ruleGroups"`
	RulesRefused  []string  `json:"rulesRefused,omitempty"`
	Evaluations   string    `json:"evaluations"`
	Targets       int       `json:"targets"`
	ForwardErrors uint64    `json:"forwardErrors"`
}

// Status returns the state now.
func (e *Engine) Status() Status {
	st := Status{Name: e.opts.Name, HeadSeries: e.HeadSeries(), Blocks: len(e.db.Blocks()), RuleGroups: len(ruleView{e: e}.RuleGroups()), ForwardErrors: e.tee.failed.Load()}
	platform, tenants, waiting := e.guard.slots.Use()
	st.Evaluations = fmt.Sprintf("%d of the platform and %d of tenants run, %d wait", platform, tenants, waiting)
	for _, r := range *e.refused.Load() {
		st.RulesRefused = append(st.RulesRefused, r.Error())
	}
	for _, t := range e.scraper.TargetsActive() {
		st.Targets += len(t)
	}
	if ms, err := e.db.StartTime(); err == nil {
		st.OldestSample = time.UnixMilli(ms).UTC()
	}
	return st
}

// Close stops scraping, rules and notifications, in this order, and closes the
// database. It is safe to call twice.
func (e *Engine) Close() error {
	e.once.Do(func() {
		close(e.tee.closed)
		e.scraper.Stop()
		e.evals.all()
		e.rules.Stop()
		e.stopSending()
		e.notifier.Stop()
		e.cancel()
		e.wg.Wait()
		e.evals.wg.Wait() // the database must be there for as long as they read it
		if err := e.closeStores(); err != nil {
			e.err = fmt.Errorf("engine %s: close: %w", e.opts.Name, err)
		}
	})
	return e.err
}

func (e *Engine) closeStores() error {
	var errs []error
	if e.guard != nil {
		errs = append(errs, e.guard.platform.Close()) // and with it the tracker, which both have
	}
	if e.db != nil {
		errs = append(errs, e.db.Close())
	}
	return errors.Join(errs...)
}
