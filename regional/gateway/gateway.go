// Package gateway is the one listener that sites talk to: gRPC (registration,
// the uplink stream) and Prometheus remote write on POST /api/v1/push, over TLS.
//
// Who a site is comes from its certificate alone. The gateway stamps tenant, site
// and region over whatever was sent, holds every site to its limits, appends to
// the edge engine and to the forward queue before it acknowledges, and knows which
// sites are connected. It must not trust a byte of what a site sends, and keeps no
// samples itself. cmd/internal connects it to the engine, the queue and the relay.
package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/storage"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"muster.dev/muster/internal/diskshare"
	"muster.dev/muster/internal/fairshare"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/strangers"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional"
)

// Options of New. Name, Listen, TLS, Trust, Edge, Series, Forward and Upstream are
// required.
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
	// Series counts what the head of Edge holds: the engine was opened with it.
	Series *HeadSeries
	// Forward queues a batch of one tenant for the store. It must not keep the series,
	// and must have the batch on disk when durable returns nil. An error of either makes
	// sites wait.
	Forward func(tenant string, series []remotewrite.Series) (durable func() error, err error)
	// ForwardRaw is the same for a push that was taken whole and is stored as it came but for
	// the stamp, as nearly all are; nil: Forward takes those too. It must not keep the body.
	ForwardRaw func(site fleet.SiteID, raw remotewrite.Raw) (durable func() error, err error)
	// Hosts connects sites with virtual hosts of other sites; nil: this regional does not.
	Hosts Hosts
	// Self takes the series that the gateway writes about sites; nil: none.
	Self     storage.Appendable
	Upstream regional.Upstream
	// Logs serves POST and PUT /api/v1/logs; nil: not served. Identity tells it who asks.
	Logs http.Handler
	// Software serves GET and HEAD of /software/; nil: not served. Its answers may take as
	// long as they need while the site reads them.
	Software http.Handler
	// Pace of a site that is scraped less than once a minute, 0 of others; nil: there are none.
	Pace func(fleet.SiteID) time.Duration
	// Limits of a site; nil: the defaults. Asked for each push, must be fast.
	Limits func(fleet.SiteID) Limits

	Past        time.Duration // how old a sample may be: the engine's out-of-order window; default 48 h
	BodyTimeout time.Duration // for the body of a push; default 30 s
	// A peer without a good certificate has StrangerAsk, default 10 s, to send its
	// registration, and StrangerLife, default 1 minute, for its whole connection.
	StrangerAsk, StrangerLife time.Duration
	strangers                 int           // of tests
	strangersPerHost          int           // of tests
	WriteStall                time.Duration // a peer that takes nothing of an answer for this long is gone; default 30 s
	MaxInFlight               int32         // pushes of one site at once, those that wait included; default 8
	// Working is how many pushes are decoded and stored at one time; default twice the
	// processors. More would share the processors, and time out together. Waiting is how
	// many wait for that, default 2048, and Patience for how long, default 10 s: then their
	// senders are told to come back.
	Working, Waiting int
	Patience         time.Duration
	Memory           int64 // bytes that the requests of all sites may hold; default 256 MiB
	// Disk says whose samples the engine's disk takes; the gateway counts them. nil: everybody's.
	Disk *diskshare.Shares

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
}

func (o *Options) withDefaults() error {
	for name, missing := range map[string]bool{
		"Name": o.Name == "", "Listen": o.Listen == "", "TLS": o.TLS == nil, "Trust": o.Trust == nil,
		"Edge": o.Edge == nil, "Series": o.Series == nil, "Forward": o.Forward == nil, "Upstream": o.Upstream == nil,
	} {
		if missing {
			return fmt.Errorf("gateway: %s must be set", name)
		}
	}
	o.Past = cmp.Or(max(o.Past, 0), 48*time.Hour)
	o.BodyTimeout = cmp.Or(max(o.BodyTimeout, 0), 30*time.Second)
	o.StrangerAsk = cmp.Or(max(o.StrangerAsk, 0), defaultStrangerAsk)
	o.StrangerLife = cmp.Or(max(o.StrangerLife, 0), defaultStrangerLife)
	o.WriteStall = cmp.Or(max(o.WriteStall, 0), defaultWriteStall)
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 8
	}
	o.Patience = cmp.Or(max(o.Patience, 0), 10*time.Second)
	if o.Working <= 0 {
		o.Working = 2 * turns.Cores()
	}
	if o.Waiting <= 0 {
		o.Waiting = 2048
	}
	if o.Memory <= 0 {
		o.Memory = 256 << 20
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
	opts Options
	log  *slog.Logger
	ln   net.Listener
	srv  *http.Server
	grpc *grpc.Server
	// strangerGRPC is the same for peers without an identity, with smaller messages.
	strangerGRPC *grpc.Server
	strangers    atomic.Int32 // their requests
	mux          *http.ServeMux
	metrics      *metrics
	pushers      *sync.Pool
	arrivals     sync.Pool // of *arrival
	line         *turns.Line
	memory       *memory
	ahead        *fairshare.Shares // of streams that are read far ahead

	stopping chan struct{}
	stopOnce sync.Once
	conns    *connTable

	mu      sync.RWMutex
	sites   map[fleet.SiteID]*site
	sorted  atomic.Pointer[[]*site] // what allSites returns; nil: to be made anew
	tenants map[string]*tenant

	logged *obs.Every
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
		opts: o, log: o.Logger.With("part", "gateway"), stopping: make(chan struct{}), pushers: newPusherPool(), memory: newMemory(o.Memory),
		arrivals: sync.Pool{New: func() any { return new(arrival) }}, line: turns.NewLine(o.Working, o.Waiting), ahead: fairshare.NewShares(aheadSlots),
		sites: map[fleet.SiteID]*site{}, tenants: map[string]*tenant{}, logged: obs.NewEvery(30 * time.Second),
	}
	g.metrics = newMetrics(o.Registerer, g.memory, g.line)
	g.conns = g.newConnTable(cmp.Or(o.strangers, maxStrangers), cmp.Or(o.strangersPerHost, maxStrangersPerHost))
	g.grpc = grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.ForceServerCodecV2(wire.Codec))
	g.strangerGRPC = grpc.NewServer(grpc.MaxRecvMsgSize(strangerBytes), grpc.ForceServerCodecV2(wire.Codec))
	reg := newRegistration(g)
	for _, s := range []*grpc.Server{g.grpc, g.strangerGRPC} {
		wire.RegisterRegistrationServer(s, reg)
		wire.RegisterUplinkServer(s, &uplink{g: g}) // refuses strangers with the reason
	}
	g.mux = http.NewServeMux()
	g.mux.HandleFunc("POST /api/v1/push", g.handlePush)
	if o.Logs != nil {
		g.mux.Handle("POST /api/v1/logs", o.Logs)
		g.mux.Handle("PUT /api/v1/logs", o.Logs) // Fluent Bit's http_method
	}
	if o.Software != nil {
		g.mux.HandleFunc("GET /software/", func(w http.ResponseWriter, r *http.Request) {
			// A deadline for a body that there is none of would cut the download off.
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			if who, ok := ctx.Value(callerKey{}).(caller); ok && who.cert != nil { // a slow one may outlive it
				defer time.AfterFunc(who.cert.NotAfter.Sub(g.now()), cancel).Stop()
			}
			o.Software.ServeHTTP(g.stallWriter(w), r.WithContext(ctx))
		})
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
		Handler: g, TLSConfig: ownTLS(cfg), ConnContext: g.connContext, ConnState: g.connState, Protocols: protocols,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 32, SendPingTimeout: 20 * time.Second, PingTimeout: 10 * time.Second, WriteByteTimeout: 30 * time.Second,
			MaxReceiveBufferPerConnection: connWindow, MaxReceiveBufferPerStream: requestWindow,
		},
		ErrorLog: obs.ServerLog(g.log),
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

// shaken is the listener whose connections have shaken hands.
func (g *Gateway) shaken() net.Listener {
	return strangers.Shake(g.ln, strangers.HandsOptions{
		TLS: g.srv.TLSConfig, Table: g.conns.strangers, Patience: g.srv.ReadHeaderTimeout, Known: g.recognize,
		Failed: func(from net.Addr, err error) {
			g.srv.ErrorLog.Printf("http: TLS handshake error from %s: %v", from, err)
		},
	})
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
	go func() { served <- g.srv.Serve(g.shaken()) }()
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
	g.strangerGRPC.Stop()
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
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		c = &conn{}
	}
	who := g.identify(c, r.TLS)
	r = r.WithContext(context.WithValue(r.Context(), callerKey{}, who))
	isGRPC := r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
	end, err := g.countUnread(r, c, who)
	if err != nil {
		refuseUnread(w, isGRPC)
		return
	}
	defer end()
	switch {
	case who.refused != nil:
		g.serveStranger(w, r, c, isGRPC)
	case g.conns.isTold(c.Conn):
		w.Header().Set("Connection", "close")
		if isGRPC {
			grpcRefuse(w, tooManyConns(who.site))
		} else {
			writeRefusal(w, &refusal{code: http.StatusTooManyRequests, text: tooManyConns(who.site), retryAfter: 5 * time.Second})
		}
	case isGRPC:
		g.serveUplink(w, r, who)
	default:
		// Handlers that know better set their own.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.opts.BodyTimeout))
		g.mux.ServeHTTP(w, r)
	}
}

// serveUplink serves gRPC to a site. All of the site's streams share what it may send.
func (g *Gateway) serveUplink(w http.ResponseWriter, r *http.Request, who caller) {
	s := g.acquire(who.site)
	defer s.release()
	if p := r.URL.Path; p == wire.Uplink_Reach_FullMethodName || p == wire.Uplink_Answer_FullMethodName {
		// Not in a stallWriter: a site whose application does not read holds up itself alone.
		g.serveHost(w, r, s)
		return
	}
	defer s.streams.Add(-1)
	if s.streams.Add(1) > maxSiteStreams {
		ref := &refusal{reason: reasonInFlight, text: fmt.Sprintf("site %s has more than %d gRPC requests in flight", who.site, maxSiteStreams)}
		grpcRefuse(w, g.limited(s, ref).text)
		return
	}
	pace, room := s.uplink, 0
	switch r.URL.Path {
	case wire.Uplink_Connect_FullMethodName:
		if !s.connects.Allow() {
			ref := &refusal{reason: reasonInFlight, text: fmt.Sprintf("site %s opens its stream more often than every %s", who.site, connectEvery)}
			grpcRefuse(w, g.limited(s, ref).text)
			return
		}
		room = aheadFloor
	case wire.Uplink_Tunnel_FullMethodName:
		pace, room = s.tunnels, tunnelAhead
	default:
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unaryRequestDeadline))
	}
	r, end := g.withBody(r, pace, maxMessage, room, s.id)
	defer end()
	g.grpc.ServeHTTP(g.stallWriter(w), r)
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
		s = &site{id: id, tenant: t, bucket: newBucket(lim.SamplesPerSecond), uplink: rate.NewLimiter(streamBytes, streamBurst), tunnels: rate.NewLimiter(tunnelBytes, tunnelBurst), hosts: rate.NewLimiter(hostBytes, hostBurst), opens: rate.NewLimiter(hostsPerSecond, hostsBurst),
			connects: rate.NewLimiter(rate.Every(connectEvery), pacedBurst), renewals: rate.NewLimiter(rate.Every(renewEvery), pacedBurst), examples: rate.NewLimiter(exemplarsPerSecond, exemplarBurst)}
		s.live.seen = g.now()
		s.unread.lease = lease{m: g.memory, id: id}
		g.sites[id] = s
		g.sorted.Store(nil)
	}
	s.refs.Add(1)
	return s
}

func (s *site) release() { s.refs.Add(-1) }

// allSites are there by tenant and name, for reading only.
func (g *Gateway) allSites() []*site {
	if is := g.sorted.Load(); is != nil {
		return *is
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := slices.SortedFunc(maps.Values(g.sites), func(a, b *site) int {
		return cmp.Or(cmp.Compare(a.id.Tenant, b.id.Tenant), cmp.Compare(a.id.Name, b.id.Name))
	})
	g.sorted.Store(&out)
	return out
}

// logEvery logs a kind of failure at most every 30 seconds.
func (g *Gateway) logEvery(kind, msg string, args ...any) {
	if _, ok := g.logged.Pass(kind, g.now()); ok {
		g.log.Error(msg, args...)
	}
}

// Status is what /debug/ shows.
type Status struct {
	Address   string         `json:"address"`
	Sites     int            `json:"sites"`
	Connected int            `json:"connected"`
	Series    map[string]int `json:"series"`  // in the head, by tenant
	Limited   map[string]int `json:"limited"` // sites by limit
	Memory    Memory         `json:"memory"`
	Pushes    Pushes         `json:"pushes"`
}

// Pushes are requests that are worked on, and that wait for it.
type Pushes struct {
	Working int `json:"working"`
	Waiting int `json:"waiting"`
}

// Memory is what requests hold, in bytes.
type Memory struct {
	Used  int64 `json:"used"`
	Peak  int64 `json:"peak"`
	Total int64 `json:"total"`
}

// Status returns the state now.
func (g *Gateway) Status() Status {
	st := Status{Memory: g.memory.status(), Address: g.Addr().String(), Series: g.opts.Series.TenantSeries(), Limited: map[string]int{}}
	st.Pushes.Working, st.Pushes.Waiting = g.line.Use()
	now := g.now()
	for _, s := range g.allSites() {
		st.Sites++
		is := s.shown()
		if is.connected(now) {
			st.Connected++
		}
		if why := is.limit.limited(now); why != "" {
			st.Limited[why]++
		}
	}
	return st
}
