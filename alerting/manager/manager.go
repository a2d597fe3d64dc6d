// Package manager runs Alertmanager inside the alerting role, from Alertmanager's own
// packages: its provider, silences, notification log, dispatcher, inhibitor, pipeline,
// gossip, API v2 and UI are put together here as its own main does, and nothing of
// theirs is done again.
//
// It knows nothing of tenants and routes: the configuration is handed in as bytes
// (alerting/routes makes them). cmd/internal runs it. Those who post or read alerts use
// its HTTP API (alerting/amclient), so that an external Alertmanager can stand in.
package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/alertmanager/api"
	"github.com/prometheus/alertmanager/cluster"
	"github.com/prometheus/alertmanager/featurecontrol"
	"github.com/prometheus/alertmanager/nflog"
	"github.com/prometheus/alertmanager/notify"
	"github.com/prometheus/alertmanager/provider/mem"
	"github.com/prometheus/alertmanager/silence"
	"github.com/prometheus/alertmanager/types"
	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/control/api/alertroute"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/turns"
)

// DefaultListen is where Alertmanager is looked for.
const DefaultListen = "127.0.0.1:9093"

// Options of a Manager. Dir and Logger are needed.
type Options struct {
	// Dir holds the files silences and nflog, as Alertmanager's --storage.path.
	Dir string
	// Listen is the address of API and UI; default DefaultListen. They show and take
	// everything of all tenants, so they are for the platform's operators.
	Listen string
	// Guard keeps Listen to those who may call it, by TLS; nil: plain HTTP for whoever
	// reaches it.
	Guard Guard
	// ExternalURL is what links in notifications begin with; its path prefixes all
	// endpoints. Default: that of Listen.
	ExternalURL string
	// Hosts are the names that Listen is reached by, beside addresses and the one in
	// ExternalURL: see obs.Guard.
	Hosts   []string
	Cluster Cluster
	// Retention of silences that ended and of the notification log; default 120 h.
	Retention time.Duration
	// Maintenance is the time between snapshots of the notification log to Dir, which is
	// what a crash can lose of it; default 15 min. A silence is saved before it is answered.
	Maintenance time.Duration
	// ShardBy is a label whose values are strangers to each other, such as tenant: see
	// shard. Empty: all alerts and routes are one party's.
	ShardBy string
	// MaxAlerts that one value of ShardBy may have; default 50,000. Further ones are
	// refused and counted until some have ended.
	MaxAlerts int
	// MaxGroups that the alerts of one value may fall into; default 10,000. Each is a timer
	// and a goroutine.
	MaxGroups int
	// Slots is how many notifications of one value are sent at once, a quarter of them of one
	// receiver; default 32.
	Slots int
	// Notified is told of each attempt to notify a receiver, once it is over; it may wait for
	// a disk, not for a network. Nil: nobody is.
	Notified func(Notification)
	// OnReload serves POST /-/reload; nil: there is nothing to load, so it succeeds.
	OnReload func() error
	// Dial is used by all receivers, to keep what tenants name away from the platform's
	// own addresses (internal/egress); nil: any address.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	Logger *slog.Logger
	// Registerer may be nil. If it is a prometheus.Gatherer too, /metrics serves it.
	Registerer prometheus.Registerer
}

// Guard is peers.Listener.
type Guard interface {
	Secure(srv *http.Server, log *slog.Logger)
	TLS() bool
}

// Cluster is the gossip with other Alertmanagers. Zero durations are Alertmanager's
// defaults.
type Cluster struct {
	Listen    string   // such as 0.0.0.0:9094; empty: no cluster
	Advertise string   // default: worked out from Listen
	Peers     []string // HOST:PORT of others
	Name      string   // default: random
	Label     string   // peers with another one are not listened to
	TLSConfig string   // file, as Alertmanager's --cluster.tls-config
	// Shared is what peers tell each other besides silences and the notification log, by
	// name: all of it, at each PushPullInterval.
	Shared map[string]cluster.State

	// PeerTimeout is how much later each next peer notifies; 15 s.
	PeerTimeout, GossipInterval, PushPullInterval, SettleTimeout time.Duration
}

// Manager is an Alertmanager. Safe for concurrent use.
type Manager struct {
	opts     Options
	log      *slog.Logger
	started  time.Time
	external *url.URL
	listener net.Listener
	handler  http.Handler

	marker   *types.MemMarker
	alerts   *mem.Alerts
	silences *silence.Silences
	nflog    *nflog.Log
	peer     *cluster.Peer // nil: no cluster
	api      *api.API
	pipeline *notify.PipelineBuilder
	metrics  *metrics
	hub      *hub
	slots    map[string]*turns.Slots // by shard; guarded by configMu

	configMu sync.Mutex              // one SetConfig at a time
	stopped  bool                    // guarded by configMu
	current  atomic.Pointer[running] // what the last good configuration made
	saving   sync.Mutex              // of the silences to their file
	closing  sync.Once
	closed   error
}

// New opens the data directory, joins the cluster and binds the listener. It drops
// what it is sent until SetConfig. Close, or Run, must follow.
func New(o Options) (m *Manager, err error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	alertroute.UseAlertmanagerParsers()
	// One tenant's thousands of alerts above a bound must not fill the log.
	m = &Manager{opts: o, log: slog.New(obs.LimitWarnings(o.Logger.Handler(), time.Minute)), started: time.Now(), hub: newHub(o.ShardBy, o.MaxAlerts), slots: map[string]*turns.Slots{}}
	if err := disk.MkdirAll(disk.OS{}, o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("alertmanager: data directory: %w", err)
	}
	if m.listener, err = net.Listen("tcp", o.Listen); err != nil {
		return nil, fmt.Errorf("alertmanager: %w", err)
	}
	if m.external, err = externalURL(o.ExternalURL, m.base()); err != nil {
		return nil, errors.Join(err, m.listener.Close())
	}
	if err := m.open(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if err := m.SetConfig([]byte(dropAll)); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	m.current.Load().placeholder = true
	m.handler = obs.Guard(m.routes(), append(slices.Clone(o.Hosts), m.external.Hostname()))
	return m, nil
}

func (o *Options) complete() error {
	if o.Dir == "" || o.Logger == nil {
		return errors.New("alertmanager: Dir and Logger must be set")
	}
	if o.Listen == "" {
		o.Listen = DefaultListen
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	for _, d := range []struct {
		at *int
		or int
	}{{&o.MaxAlerts, 50_000}, {&o.MaxGroups, 10_000}, {&o.Slots, 32}} {
		if *d.at <= 0 {
			*d.at = d.or
		}
	}
	for _, d := range []struct {
		at *time.Duration
		or time.Duration
	}{
		{&o.Retention, 120 * time.Hour},
		{&o.Maintenance, 15 * time.Minute},
		{&o.Cluster.PeerTimeout, 15 * time.Second},
		{&o.Cluster.GossipInterval, cluster.DefaultGossipInterval},
		{&o.Cluster.PushPullInterval, cluster.DefaultPushPullInterval},
		{&o.Cluster.SettleTimeout, cluster.DefaultPushPullInterval},
	} {
		if *d.at <= 0 {
			*d.at = d.or
		}
	}
	return nil
}

func externalURL(s, base string) (*url.URL, error) {
	if s == "" {
		s = base
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("alertmanager: external URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("alertmanager: external URL %q: want http://HOST or https://HOST, with a path if there is one", s)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// open makes the parts that live as long as the Manager. On an error some are set.
func (m *Manager) open() (err error) {
	reg, ff := m.opts.Registerer, featurecontrol.NoopFlags{}
	m.metrics = newMetrics(reg)
	if err := m.createPeer(); err != nil {
		return err
	}
	m.nflog, err = nflog.New(nflog.Options{SnapshotFile: m.file("nflog"), Retention: m.opts.Retention, Logger: m.log.With("component", "nflog"), Metrics: reg})
	if err != nil {
		return fmt.Errorf("alertmanager: notification log: %w", err)
	}
	m.marker = types.NewMarker(reg)
	m.silences, err = silence.New(silence.Options{SnapshotFile: m.file("silences"), Retention: m.opts.Retention, Logger: m.log.With("component", "silences"), Metrics: reg})
	if err != nil {
		return fmt.Errorf("alertmanager: silences: %w", err)
	}
	if m.peer != nil {
		m.nflog.SetBroadcast(m.peer.AddState("nfl", m.nflog, reg).Broadcast)
		m.silences.SetBroadcast(m.peer.AddState("sil", m.silences, reg).Broadcast)
		for name, s := range m.opts.Cluster.Shared {
			m.peer.AddState(name, s, reg)
		}
	}
	if m.alerts, err = mem.NewAlerts(context.Background(), m.marker, 30*time.Minute, 0, m.hub, m.log, reg, ff); err != nil {
		return fmt.Errorf("alertmanager: alerts: %w", err)
	}
	m.hub.store = m.alerts
	m.pipeline = notify.NewPipelineBuilder(reg, ff)
	if err := reg.Register(m); err != nil {
		return fmt.Errorf("alertmanager: %w", err)
	}
	m.api, err = api.New(api.Options{
		Alerts:          m.alerts,
		Silences:        m.silences,
		AlertStatusFunc: m.marker.Status,
		GroupMutedFunc:  m.marker.Muted,
		Peer:            m.clusterPeer(),
		Logger:          m.log.With("component", "api"),
		Registry:        reg,
		RequestDuration: m.metrics.requestDuration,
		GroupFunc:       m.groups,
	})
	if err != nil {
		return fmt.Errorf("alertmanager: API: %w", err)
	}
	return nil
}

// saveSilences drops those that ended long ago and puts the rest into their file.
func (m *Manager) saveSilences() (int64, error) {
	m.saving.Lock()
	defer m.saving.Unlock()
	if _, err := m.silences.GC(); err != nil {
		return 0, err
	}
	var b bytes.Buffer
	n, err := m.silences.Snapshot(&b)
	if err != nil {
		return 0, err
	}
	return n, atomicfile.Write(m.file("silences"), b.Bytes(), 0o600)
}

func (m *Manager) file(name string) string { return filepath.Join(m.opts.Dir, name) }

func (m *Manager) createPeer() error {
	c := m.opts.Cluster
	if c.Listen == "" {
		return nil
	}
	tls, err := cluster.GetTLSTransportConfig(c.TLSConfig)
	if err != nil {
		return fmt.Errorf("alertmanager: cluster: %s: %w", c.TLSConfig, err)
	}
	m.peer, err = cluster.Create(m.log.With("component", "cluster"), m.opts.Registerer, c.Listen, c.Advertise, c.Peers, true,
		c.PushPullInterval, c.GossipInterval, cluster.DefaultTCPTimeout, cluster.DefaultResolvePeersTimeout,
		cluster.DefaultProbeTimeout, cluster.DefaultProbeInterval, tls, false, c.Label, c.Name)
	if err != nil {
		return fmt.Errorf("alertmanager: cluster: listen on %s: %w", c.Listen, err)
	}
	m.metrics.clusterEnabled.Set(1)
	return nil
}

// clusterPeer and pipelinePeer are nil interfaces, not interfaces of a nil pointer,
// without a cluster: Alertmanager tells by that.
func (m *Manager) clusterPeer() cluster.ClusterPeer {
	if m.peer == nil {
		return nil
	}
	return m.peer
}

func (m *Manager) pipelinePeer() notify.Peer {
	if m.peer == nil {
		return nil
	}
	return m.peer
}

// Addr of API and UI.
func (m *Manager) Addr() net.Addr { return m.listener.Addr() }

// URL of API and UI on this machine, with the path prefix.
func (m *Manager) URL() string { return m.base() + m.external.Path }

// base is the URL of the listener.
func (m *Manager) base() string {
	if m.opts.Guard != nil && m.opts.Guard.TLS() {
		return "https://" + m.Addr().String()
	}
	return "http://" + m.Addr().String()
}

// ClusterAddr is the address that gossip peers reach it at; "" without a cluster.
func (m *Manager) ClusterAddr() string {
	if m.peer == nil {
		return ""
	}
	return m.peer.Self().Address()
}

// Ready is nil once a configuration is set and the gossip has settled.
func (m *Manager) Ready() error {
	switch {
	case m.current.Load().placeholder:
		return errors.New("alertmanager: no configuration yet")
	case m.peer != nil && !m.peer.Ready():
		return errors.New("alertmanager: the cluster is not settled yet")
	}
	return nil
}

// Run serves until ctx ends or the listener fails, and closes the Manager.
func (m *Manager) Run(ctx context.Context) error {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	// Their last act, after stop, is a snapshot.
	wg.Go(func() { m.nflog.Maintenance(m.opts.Maintenance, m.file("nflog"), stop, nil) })
	wg.Go(func() { m.silences.Maintenance(m.opts.Maintenance, m.file("silences"), stop, m.saveSilences) })
	if m.peer != nil {
		if err := m.peer.Join(cluster.DefaultReconnectInterval, cluster.DefaultReconnectTimeout); err != nil {
			m.log.Warn("unable to join gossip mesh", "err", err)
		}
		settle, cancel := context.WithTimeout(ctx, m.opts.Cluster.SettleTimeout)
		defer cancel()
		wg.Go(func() { m.peer.Settle(settle, m.opts.Cluster.GossipInterval*10) })
	}
	srv := &http.Server{Handler: m.handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, ErrorLog: obs.ServerLog(m.log)}
	serve := func() error { return srv.Serve(m.listener) }
	if m.opts.Guard != nil {
		m.opts.Guard.Secure(srv, m.log)
		if srv.TLSConfig != nil {
			serve = func() error { return srv.ServeTLS(m.listener, "", "") }
		}
	}
	served := make(chan error, 1)
	go func() { served <- serve() }()
	var err error
	select {
	case err = <-served:
		err = fmt.Errorf("alertmanager: serve: %w", err)
	case <-ctx.Done():
		grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close()
		}
	}
	closed := m.Close()
	close(stop)
	wg.Wait()
	return errors.Join(err, closed)
}

// Close stops what New started. Run calls it; only a Manager that never ran needs it.
func (m *Manager) Close() error {
	m.closing.Do(func() {
		m.configMu.Lock()
		defer m.configMu.Unlock()
		m.stopped = true
		if r := m.current.Load(); r != nil {
			for _, s := range r.shards {
				s.stop()
			}
		}
		if m.alerts != nil {
			m.alerts.Close()
		}
		if m.peer != nil {
			if err := m.peer.Leave(10 * time.Second); err != nil {
				m.closed = fmt.Errorf("alertmanager: leave the cluster: %w", err)
			}
		}
		_ = m.listener.Close() // Run's server has closed it already
	})
	return m.closed
}
