// Package gateway is the one listener that sites talk to: gRPC (registration,
// the uplink stream) and Prometheus remote write on POST /api/v1/push, over TLS.
//
// Who a site is comes from its certificate alone. The gateway stamps tenant, site
// and region over whatever was sent, holds every site to its limits, appends to
// the edge engine and to the forward queue before it acknowledges, and knows which
// sites are connected. It must not trust a byte of what a site sends, and keeps no
// samples itself. internal/app connects it to the engine, the queue and the relay.
package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/storage"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional"
)

// Options of New. Name, Listen, TLS, Trust, Edge, Forward and Upstream are required.
type Options struct {
	Name   string // of the regional
	Region string // that the regional stands in; may be empty
	Listen string // HOST:PORT

	// TLS has this regional's certificate, as identity.Files.ServerConfig gives it
	// with tls.RequestClientCert. New sets ClientAuth and NextProtos.
	TLS *tls.Config
	// Trust returns the CAs whose site certificates are good now. It is asked for
	// each request and must return the same pool until the CAs change.
	Trust func() *x509.CertPool
	// Identify reads the site and its region out of a verified certificate.
	// Default identity.ParseSite.
	Identify func(*x509.Certificate) (fleet.SiteID, string, error)

	// Edge is the engine's database itself.
	Edge storage.Appendable
	// Forward queues a batch of one tenant for the store. It must have it on disk
	// when it returns, and must not keep the series. An error makes sites wait.
	Forward func(tenant string, series []remotewrite.Series) error
	// Self takes the series that the gateway writes about sites; nil: none.
	Self     storage.Appendable
	Upstream regional.Upstream
	// Logs serves POST and PUT /api/v1/logs; nil: not served. Identity tells it who asks.
	Logs http.Handler
	// Limits of a site; nil: the defaults. Asked for each push, must be fast.
	Limits func(fleet.SiteID) Limits

	Past        time.Duration // how old a sample may be: the engine's out-of-order window; default 48 h
	SeriesIdle  time.Duration // after which a series is no longer active; default 1 h
	BodyTimeout time.Duration // for the body of a push; default 30 s
	MaxInFlight int32         // pushes of one site at once; default 8

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
}

func (o *Options) withDefaults() error {
	for name, missing := range map[string]bool{
		"Name": o.Name == "", "Listen": o.Listen == "", "TLS": o.TLS == nil, "Trust": o.Trust == nil,
		"Edge": o.Edge == nil, "Forward": o.Forward == nil, "Upstream": o.Upstream == nil,
	} {
		if missing {
			return fmt.Errorf("gateway: %s must be set", name)
		}
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.Past, 48*time.Hour)
	def(&o.SeriesIdle, time.Hour)
	def(&o.BodyTimeout, 30*time.Second)
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 8
	}
	if o.Identify == nil {
		o.Identify = identity.ParseSite
	}
	if o.Limits == nil {
		o.Limits = func(fleet.SiteID) Limits { return Limits{} }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}

// Gateway is the listener and what it knows of sites. Safe for concurrent use.
type Gateway struct {
	opts    Options
	log     *slog.Logger
	ln      net.Listener
	srv     *http.Server
	grpc    *grpc.Server
	mux     *http.ServeMux
	metrics *metrics
	pushers *sync.Pool

	stopping chan struct{}
	stopOnce sync.Once
	conns    connCounter

	mu      sync.RWMutex
	sites   map[fleet.SiteID]*site
	tenants map[string]*tenant

	logMu  sync.Mutex
	logged map[string]time.Time
}

// New binds the listener; Run serves.
func New(o Options) (*Gateway, error) {
	g, err := newUnbound(o)
	if err != nil {
		return nil, err
	}
	if g.ln, err = net.Listen("tcp", o.Listen); err != nil {
		return nil, fmt.Errorf("gateway: listen on %s: %w", o.Listen, err)
	}
	return g, nil
}

func newUnbound(o Options) (*Gateway, error) {
	if err := o.withDefaults(); err != nil {
		return nil, err
	}
	g := &Gateway{
		opts: o, log: o.Logger.With("part", "gateway"), stopping: make(chan struct{}), pushers: newPusherPool(),
		sites: map[fleet.SiteID]*site{}, tenants: map[string]*tenant{}, logged: map[string]time.Time{},
		metrics: newMetrics(o.Registerer),
	}
	g.conns.bySite = map[fleet.SiteID]int{}
	g.conns.site = map[net.Conn]fleet.SiteID{}
	g.grpc = grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage))
	wire.RegisterRegistrationServer(g.grpc, &registration{g: g, peers: map[string]*rate.Limiter{}})
	wire.RegisterUplinkServer(g.grpc, &uplink{g: g})
	g.mux = http.NewServeMux()
	g.mux.HandleFunc("POST /api/v1/push", g.handlePush)
	if o.Logs != nil {
		g.mux.Handle("POST /api/v1/logs", o.Logs)
		g.mux.Handle("PUT /api/v1/logs", o.Logs) // Fluent Bit's http_method
	}

	cfg := o.TLS.Clone()
	if inner := cfg.GetConfigForClient; inner != nil {
		cfg.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := inner(h)
			if c != nil {
				c = ownTLS(c.Clone())
			}
			return c, err
		}
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	g.srv = &http.Server{
		Handler: g, TLSConfig: ownTLS(cfg), ConnContext: connContext, ConnState: g.connState, Protocols: protocols,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 32, SendPingTimeout: 20 * time.Second, PingTimeout: 10 * time.Second, WriteByteTimeout: 30 * time.Second,
			MaxReceiveBufferPerConnection: 1 << 20, MaxReceiveBufferPerStream: 512 << 10,
		},
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
	return g, nil
}

// ownTLS sets what the gateway decides: see identity.go for why no certificate is
// refused in the handshake.
func ownTLS(c *tls.Config) *tls.Config {
	c.ClientAuth = tls.RequestClientCert
	c.NextProtos = []string{"h2", "http/1.1"}
	c.MinVersion = tls.VersionTLS13
	c.SessionTicketsDisabled = true // a resumed session would bring an old certificate back
	return c
}

// Addr is the address that the listener is bound to.
func (g *Gateway) Addr() net.Addr { return g.ln.Addr() }

// Run serves until ctx ends, then lets pushes that are under way finish for a
// moment, and closes the streams.
func (g *Gateway) Run(ctx context.Context) error {
	selfCtx, stopSelf := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { g.runSelf(selfCtx) })
	defer wg.Wait()
	defer stopSelf()

	served := make(chan error, 1)
	go func() { served <- g.srv.ServeTLS(g.ln, "", "") }()
	select {
	case err := <-served:
		return fmt.Errorf("gateway: serve on %s: %w", g.Addr(), err)
	case <-ctx.Done():
	}
	g.stopOnce.Do(func() { close(g.stopping) })
	stopCtx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := g.srv.Shutdown(stopCtx); err != nil {
		_ = g.srv.Close()
	}
	g.grpc.Stop()
	if err := <-served; err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("gateway: serve on %s: %w", g.Addr(), err)
	}
	return nil
}

// Close frees the listener of a gateway that was never run.
func (g *Gateway) Close() error { return g.ln.Close() }

// ServeHTTP implements http.Handler: it finds out who asks and passes on to gRPC
// or to the push handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who := g.identify(r.Context(), r.TLS)
	r = r.WithContext(context.WithValue(r.Context(), callerKey{}, who))
	if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		r.Body = newSlowBody(r)
		g.grpc.ServeHTTP(w, r)
		return
	}
	g.mux.ServeHTTP(w, r)
}

func (g *Gateway) now() time.Time { return g.opts.Now() }

func (g *Gateway) limits(id fleet.SiteID) Limits { return g.opts.Limits(id).withDefaults() }

// acquire returns the state of a site, which it makes if need be; the caller
// releases it, and until then it is not forgotten. Only sites with a good
// certificate get here, so their number is the fleet's.
func (g *Gateway) acquire(id fleet.SiteID) *site {
	g.mu.RLock()
	s := g.sites[id]
	if s != nil {
		s.refs.Add(1)
	}
	g.mu.RUnlock()
	if s != nil {
		return s
	}
	lim := g.limits(id)
	g.mu.Lock()
	defer g.mu.Unlock()
	if s = g.sites[id]; s == nil {
		t := g.tenants[id.Tenant]
		if t == nil {
			t = &tenant{bucket: newBucket(lim.TenantSamplesPerSecond)}
			g.tenants[id.Tenant] = t
		}
		s = &site{id: id, tenant: t, bucket: newBucket(lim.SamplesPerSecond)}
		s.live.seen = g.now()
		g.sites[id] = s
	}
	s.refs.Add(1)
	return s
}

func (s *site) release() { s.refs.Add(-1) }

func (g *Gateway) allSites() []*site {
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := make([]*site, 0, len(g.sites))
	for _, s := range g.sites {
		out = append(out, s)
	}
	return out
}

// logEvery logs a kind of failure at most every 30 seconds.
func (g *Gateway) logEvery(kind, msg string, args ...any) {
	now := g.now()
	g.logMu.Lock()
	again := now.Sub(g.logged[kind]) < 30*time.Second
	if !again {
		g.logged[kind] = now
	}
	g.logMu.Unlock()
	if !again {
		g.log.Error(msg, args...)
	}
}

// Status is what /debug/ shows.
type Status struct {
	Address      string         `json:"address"`
	Sites        int            `json:"sites"`
	Connected    int            `json:"connected"`
	ActiveSeries int            `json:"activeSeries"`
	Limited      map[string]int `json:"limited"` // sites by limit
}

// Status returns the state now.
func (g *Gateway) Status() Status {
	st := Status{Address: g.Addr().String(), Limited: map[string]int{}}
	now := g.now()
	for _, s := range g.allSites() {
		s.mu.Lock()
		st.Sites++
		if s.connectedLocked(now) {
			st.Connected++
		}
		st.ActiveSeries += s.cache.len()
		if why := s.limitedLocked(now); why != "" {
			st.Limited[why]++
		}
		s.mu.Unlock()
	}
	return st
}

// maxConns is how many connections one site may have: its stream and its sender
// need two, and failover and a restart some more.
const maxConns = 16

// connCounter counts the connections of each site.
type connCounter struct {
	mu     sync.Mutex
	bySite map[fleet.SiteID]int
	site   map[net.Conn]fleet.SiteID
}

// connState closes connections of a site that has too many. A peer is known once
// the handshake is over.
func (g *Gateway) connState(c net.Conn, st http.ConnState) {
	cc := &g.conns
	switch st {
	case http.StateActive:
		tc, ok := c.(*tls.Conn)
		if !ok {
			return
		}
		cs := tc.ConnectionState()
		if len(cs.PeerCertificates) == 0 {
			return
		}
		cc.mu.Lock()
		_, known := cc.site[c]
		cc.mu.Unlock()
		if known {
			return
		}
		who := g.verify(&cs, g.opts.Trust())
		if who.refused != nil {
			return
		}
		cc.mu.Lock()
		cc.site[c] = who.site
		cc.bySite[who.site]++
		over := cc.bySite[who.site] > maxConns
		cc.mu.Unlock()
		if over {
			_ = c.Close()
		}
	case http.StateClosed, http.StateHijacked:
		cc.mu.Lock()
		if id, ok := cc.site[c]; ok {
			delete(cc.site, c)
			if cc.bySite[id]--; cc.bySite[id] == 0 {
				delete(cc.bySite, id)
			}
		}
		cc.mu.Unlock()
	}
}
