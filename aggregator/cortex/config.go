package cortex

import (
	"cmp"
	"flag"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	upstream "github.com/cortexproject/cortex/pkg/cortex"
	"github.com/cortexproject/cortex/pkg/ring/kv"
	"github.com/cortexproject/cortex/pkg/storage/bucket"
	"github.com/cortexproject/cortex/pkg/util/flagext"
	"github.com/prometheus/common/model"
	"github.com/weaveworks/common/middleware"
)

// config turns the options into Cortex' own configuration: its defaults, with
// what one process on one disk needs otherwise.
func config(o Options, wal *walSync) (upstream.Config, error) {
	var cfg upstream.Config
	flagext.DefaultValues(&cfg)
	// No ruler and no Alertmanager: rules run in the regionals, so that they work
	// while this is down. No query frontend: it would split and cache for many
	// queriers, and here there is one.
	cfg.Target = []string{upstream.Distributor, upstream.Ingester, upstream.Querier, upstream.StoreGateway, upstream.Compactor}
	cfg.AuthEnabled = true
	// What the gateway acknowledged must be good here too: OpenTelemetry's names have dots.
	cfg.NameValidationScheme = model.UTF8Validation

	if err := listeners(&cfg, o, wal); err != nil {
		return cfg, err
	}
	ringAndLifecycle(&cfg)
	storage(&cfg, o)
	limits(&cfg, o)
	return cfg, nil
}

func listeners(cfg *upstream.Config, o Options, wal *walSync) error {
	if o.Listen == "" {
		o.Listen = DefaultListen
	}
	if o.GRPCListen == "" {
		o.GRPCListen = "127.0.0.1:0"
	}
	s := &cfg.Server
	var err error
	if s.HTTPListenAddress, s.HTTPListenPort, err = hostPort("listen", o.Listen); err != nil {
		return err
	}
	if s.GRPCListenAddress, s.GRPCListenPort, err = hostPort("gRPC listen", o.GRPCListen); err != nil {
		return err
	}
	s.ServerGracefulShutdownTimeout = 3 * time.Second
	s.HTTPServerWriteTimeout = 2 * time.Minute
	s.GPRCServerMaxRecvMsgSize = 128 << 20
	s.GRPCServerMaxSendMsgSize = 128 << 20
	s.GPRCServerMaxConcurrentStreams = 1000
	s.DisableRequestSuccessLog = true
	s.HTTPMiddleware = []middleware.Interface{middleware.Func(onlyServed), middleware.Func(wal.beforeAnswer)}
	// The one way to this option: its field is private.
	api := flag.NewFlagSet("", flag.ContinueOnError)
	cfg.API.RegisterFlags(api)
	return api.Set("api.build-info-enabled", "true")
}

// hostPort splits an address the way Cortex wants it: it joins the two with a
// plain colon, so an IPv6 host keeps its brackets.
func hostPort(what, addr string) (string, int, error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("%s address %q: want HOST:PORT", what, addr)
	}
	port, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%s address %q: port: want a number from 0 to 65535", what, addr)
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host, int(port), nil
}

// made counts what was made in this process.
var made atomic.Int64

// ringAndLifecycle: the ring has one member, in this process. Nothing has to be
// waited for when it joins, and nobody takes over when it leaves.
func ringAndLifecycle(cfg *upstream.Config) {
	l := &cfg.Ingester.LifecyclerConfig
	l.RingConfig.ReplicationFactor = 1
	l.RingConfig.DetailedMetricsEnabled = false
	l.ID = "muster"
	l.Addr = "127.0.0.1"
	if host := strings.Trim(cfg.Server.GRPCListenAddress, "[]"); host != "" && !net.ParseIP(host).IsUnspecified() {
		l.Addr = cfg.Server.GRPCListenAddress
	}
	l.MinReadyDuration = 0
	l.FinalSleep = 0
	l.ObservePeriod = 0
	cfg.Ingester.ActiveSeriesMetricsEnabled = false // costs memory for each series

	d := &cfg.Distributor
	d.ShardByAllLabels = true
	d.RemoteWriteV2Enabled = true
	d.RemoteTimeout = 30 * time.Second // after a start, the first push waits for the WAL replay of its tenant

	// What is in memory is one for the process: without keys of its own, one Cortex after
	// another there is told of the others' leaving, and takes it for its own.
	prefix := fmt.Sprintf("%d/", made.Add(1))
	for _, store := range []*kv.Config{&l.RingConfig.KVStore, &d.DistributorRing.KVStore, &cfg.Compactor.ShardingRing.KVStore, &cfg.StoreGateway.ShardingRing.KVStore} {
		store.Store, store.Prefix = "inmemory", prefix
	}

	cfg.IngesterClient.GRPCClientConfig.MaxSendMsgSize = 128 << 20
	cfg.IngesterClient.GRPCClientConfig.MaxRecvMsgSize = 128 << 20
}

func storage(cfg *upstream.Config, o Options) {
	window := o.outOfOrderWindow()
	b := &cfg.BlocksStorage
	b.Bucket.Backend = bucket.Filesystem
	b.Bucket.Filesystem.Directory = filepath.Join(o.DataDir, "blocks")
	b.Bucket.Middlewares = append(b.Bucket.Middlewares, syncUploads(b.Bucket.Filesystem.Directory))
	for _, other := range []*bucket.Config{&cfg.RulerStorage.Config, &cfg.AlertmanagerStorage.Config, &cfg.RuntimeConfig.StorageConfig} {
		other.Backend = bucket.Filesystem
		other.Filesystem.Directory = filepath.Join(o.DataDir, "unused")
	}

	t := &b.TSDB
	t.Dir = o.tsdbDir()
	// A backfilled block is old when it is made. It stays here until the store
	// gateway has surely taken it over from the bucket.
	t.Retention = window + 6*time.Hour
	t.WALCompressionType = "snappy"
	t.WALSegmentSizeBytes = cmp.Or(o.segmentBytes, 32<<20)
	t.StripeSize = 2048                   // default 16384: a megabyte for each tenant
	t.HeadChunksWriteBufferSize = 1 << 20 // default 4 MiB for each tenant
	t.HeadChunksWriteQueueSize = 0
	t.ShipConcurrency = 2
	t.HeadCompactionConcurrency = 1
	t.MaxTSDBOpeningConcurrencyOnStartup = 4

	s := &b.BucketStore
	s.SyncDir = filepath.Join(o.DataDir, "store-gateway")
	s.SyncInterval = 5 * time.Minute
	s.MaxChunkPoolBytes = 64 << 20
	s.IndexCache.InMemory.MaxSizeBytes = 32 << 20
	s.IndexHeaderLazyLoadingEnabled = true
	s.MaxConcurrent = 16
	s.TenantSyncConcurrency = 2
	s.BlockSyncConcurrency = 4
	s.MetaSyncConcurrency = 4
	// The index is written by this very process. However long it was down, the index
	// that it left is right.
	s.BucketIndex.MaxStalePeriod = 10 * 365 * 24 * time.Hour

	c := &cfg.Compactor
	c.DataDir = filepath.Join(o.DataDir, "compactor")
	c.CompactionConcurrency = 1
	c.CleanupInterval = 5 * time.Minute
	c.CleanupConcurrency = 2
	c.BlockSyncConcurrency = 4
	c.MetaSyncConcurrency = 4
	c.BlockFilesConcurrency = 2
	c.BlocksFetchConcurrency = 1

	q := &cfg.Querier
	// Queries wait in queryTurns: in the tracker, which is PromQL's line, one whose time is over
	// is answered as if it were wrong, or let through, as luck has it.
	q.ActiveQueryTrackerDir = ""
	q.MaxConcurrent = maxQueries
	q.Timeout = queryTimeout
	q.MaxSamples = o.Limits.withDefaults().SamplesPerQuery
	q.QueryIngestersWithin = 0 // late samples are in the ingester, however old they are
	q.IngesterLabelNamesWithMatchers = true
	q.StoreGatewayQueryStatsEnabled = false
}

func limits(cfg *upstream.Config, o Options) {
	in, l := o.Limits.withDefaults(), &cfg.LimitsConfig
	l.IngestionRateStrategy = "local"
	l.IngestionRate = in.SamplesPerSecond
	l.IngestionBurstSize = in.BurstSamples
	l.MaxLocalSeriesPerUser = in.SeriesPerTenant
	l.MaxLocalSeriesPerMetric = in.SeriesPerMetric
	l.MaxLabelNamesPerSeries = in.LabelsPerSeries
	l.MaxFetchedSeriesPerQuery = in.SeriesPerQuery
	l.OutOfOrderTimeWindow = model.Duration(o.outOfOrderWindow())
	l.CompactorBlocksRetentionPeriod = model.Duration(o.Retention)
	l.EnableNativeHistograms = true
}

func (o Options) tsdbDir() string { return filepath.Join(o.DataDir, "tsdb") }

func (o Options) outOfOrderWindow() time.Duration {
	if o.OutOfOrderWindow == 0 {
		return DefaultOutOfOrderWindow
	}
	return o.OutOfOrderWindow
}
