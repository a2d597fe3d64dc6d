// Package fleetapi is what regionals talk to: the gRPC service Control over mutual
// TLS, for regional identities alone. It passes registrations on, pushes desired
// states and revocations down, and turns what comes up (who is connected, reports,
// what became of rules) into the status of Sites, and into what RulesState answers.
//
// The hot state is in memory; the API server gets transitions only, through a
// queue that is bounded in rate. It decides nothing about registration
// (control/registration) and renders nothing (control/desired). One replica of
// control serves all regionals; the control role runs it.
package fleetapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/factoryreset"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/revoked"
	"muster.dev/muster/internal/wire"
)

// Registrar answers registrations; *registration.Service is one.
type Registrar interface {
	Register(ctx context.Context, req *wire.RegisterRequest, remoteAddr string) (*wire.RegisterResponse, error)
	Renew(ctx context.Context, site fleet.SiteID, csrDER []byte) (*wire.Issued, error)
}

// Desired knows what each site, and every regional, should hold; *desired.Store is one.
type Desired interface {
	Started() bool
	State(fleet.SiteID) *wire.DesiredState // nil: not known
	// Fetch returns the content of a digest; fs.ErrNotExist: there is none.
	Fetch(ctx context.Context, digest string) ([]byte, error)
	Subscribe(func(fleet.SiteID)) (cancel func())
	Regional() *wire.DesiredState // nil: not known yet
	SubscribeRegional(func()) (cancel func())
	// SpecIn is the digest of an object's spec within a Rules blob; "": not in it.
	SpecIn(blobDigest, kind, name string) string
}

// Clusters keeps what runs on sites' clusters. Calls for one site never overlap, and must be
// quick, but for Read.
type Clusters interface {
	// Version is which version of the site's KubernetesStatus is held; "": none.
	Version(site fleet.SiteID) (epoch string, seq uint64)
	// Read decodes what a site said, outside of any lock; apply takes it. False: it does not
	// follow what is held, and the site is asked for a snapshot.
	Read(site fleet.SiteID, st *wire.KubernetesStatus) (apply func() bool)
	// Problem says in one line what of it could not be taken; "": nothing.
	Problem(site fleet.SiteID) string
	// Interrupted says that what has begun to come in will not be completed.
	Interrupted(site fleet.SiteID)
	// Online tells whether the site is connected.
	Online(site fleet.SiteID, online bool)
	// Gone says that there is no such site any more.
	Gone(site fleet.SiteID)
}

// Options of New. Registrar, Desired, Client, Logger and Registerer are required.
type Options struct {
	Registrar Registrar
	Desired   Desired
	// Clusters hears what runs on sites; nil: nobody does.
	Clusters Clusters
	// Client writes Sites, and reads a Site that the watch has not told of yet: it
	// must read from the API server, not from a cache.
	Client client.Client
	// Orders signs the order of a factory reset with control's certificate; nil: no site is
	// reset.
	Orders     func(*factoryreset.Order) ([]byte, error)
	Recorder   Recorder // nil: none
	Logger     *slog.Logger
	Registerer prometheus.Registerer

	// Regionals are the names of all that there should be. Rules count as applied once
	// all of them said so; empty: all that connected since this process runs.
	Regionals []string
	// RevocationsFile keeps the revocations of deleted sites over a restart until
	// their certificates are over; empty: they are lost with the process.
	RevocationsFile string
	// DownGrace is how long a site may be between two regionals before it is
	// Offline; default 5 s. OrphanGrace is the same for all sites of a regional whose
	// stream broke; default 30 s. At the start of control it is doubled.
	DownGrace, OrphanGrace time.Duration
	// LastSeenEvery is how often, at most, status.lastSeen and status.appliedRevision are
	// written where nothing else is; default 5 min. For fleets over 3,000 sites it
	// stretches, so that it costs at most 10 writes a second.
	LastSeenEvery time.Duration
	// WritesPerSecond to the API server, all sites together, tenant by tenant; default 100.
	WritesPerSecond float64
	Workers         int // default 4
	Now             func() time.Time
}

// Server implements wire.ControlServer. Safe for concurrent use.
type Server struct {
	wire.UnimplementedControlServer
	opts  Options
	began time.Time
	queue workqueue.TypedRateLimitingInterface[fleet.SiteID]

	mu       sync.Mutex
	synced   bool
	sites    map[fleet.SiteID]*siteState
	sessions map[string]*session             // by regional
	use      map[string]map[string]tenantUse // by regional, then tenant
	revoked  *revoked.List
	lookups  chan struct{} // bounds live reads of unknown sites

	rules     map[string]*regionalRules // by regional; outlives its stream
	rulesSubs []func(tenant string)

	policySubs []func(tenant string)

	tunnels map[string]*waitingTunnel // by id
	tellers map[string]*teller        // by tenant
	swept   time.Time                 // the last look for what comes by time alone
	firstAt time.Time                 // when the first status is due of the site that joined last, if it does not come

	olderMu sync.Mutex
	older   map[string]*wire.DesiredState // by the kinds that are left out and the revision of what they were made of

	metrics metrics
}

type metrics struct {
	writes  *prometheus.CounterVec
	reports *prometheus.CounterVec
	streams prometheus.Gauge
	pushes  prometheus.Counter
}

// New returns a Server. It serves once Synced was called, and writes while Run runs.
func New(o Options) (*Server, error) {
	o.DownGrace = cmp.Or(max(o.DownGrace, 0), 5*time.Second)
	o.OrphanGrace = cmp.Or(max(o.OrphanGrace, 0), 30*time.Second)
	o.LastSeenEvery = cmp.Or(max(o.LastSeenEvery, 0), 5*time.Minute)
	if o.WritesPerSecond <= 0 {
		o.WritesPerSecond = 100
	}
	if o.Workers <= 0 {
		o.Workers = 4
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{
		opts: o, began: o.Now(),
		queue: newQueue(),
		sites: map[fleet.SiteID]*siteState{}, sessions: map[string]*session{},
		use:     map[string]map[string]tenantUse{},
		rules:   map[string]*regionalRules{},
		lookups: make(chan struct{}, 8),
		tunnels: map[string]*waitingTunnel{},
		older:   map[string]*wire.DesiredState{},
		tellers: map[string]*teller{}, swept: o.Now(),
	}
	if err := s.loadRevocations(); err != nil {
		return nil, err
	}
	s.metrics = metrics{
		writes:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_fleetapi_status_writes_total", Help: "Writes of Sites to the API server by result."}, []string{"result"}),
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_fleetapi_reports_total", Help: "Reports of sites by what became of them."}, []string{"result"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_fleetapi_regionals_connected", Help: "Regionals with an open stream."}),
		pushes:  prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_fleetapi_desired_pushes_total", Help: "Desired states sent to regionals."}),
	}
	o.Registerer.MustRegister(s.metrics.writes, s.metrics.reports, s.metrics.streams, s.metrics.pushes,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_fleetapi_status_writes_pending", Help: "Sites whose status waits to be written."},
			func() float64 { return float64(s.queue.Len()) }),
		&siteCollector{s})
	return s, nil
}

// siteCollector counts sites by phase, and names those that are being reset, when it is
// scraped.
type siteCollector struct{ s *Server }

var (
	phaseDesc = prometheus.NewDesc("muster_sites", "Sites by tenant and phase.", []string{"tenant", "phase"}, nil)
	resetDesc = prometheus.NewDesc("muster_site_reset_begun_timestamp_seconds", "When a site began the factory reset that it has not come back from.", []string{"tenant", "site"}, nil)
)

func (c *siteCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- phaseDesc
	ch <- resetDesc
}

func (c *siteCollector) Collect(ch chan<- prometheus.Metric) {
	n := map[[2]string]float64{}
	begun := map[fleet.SiteID]time.Time{}
	c.s.mu.Lock()
	for id, st := range c.s.sites {
		if st.obj == nil {
			continue
		}
		n[[2]string{id.Tenant, string(st.phaseLocked())}]++
		if r := st.obj.Status.Reset; r != nil && r.Phase == v1alpha1.ResetResetting {
			begun[id] = r.Since.Time
		}
	}
	c.s.mu.Unlock()
	for id, at := range begun {
		ch <- prometheus.MustNewConstMetric(resetDesc, prometheus.GaugeValue, float64(at.Unix()), id.Tenant, id.Name)
	}
	for k, v := range n {
		ch <- prometheus.MustNewConstMetric(phaseDesc, prometheus.GaugeValue, v, k[0], k[1])
	}
}

// streamWindow is how many bytes a regional may send into a stream ahead of who reads it: 10 MB/s
// over 50 ms. gRPC left alone takes up to 16 MB where the way is long, of each tunnel to a site
// whose caller does not read, and a tenant may have hundreds of those.
const streamWindow = 512 << 10

// NewGRPC returns a gRPC server of the service with the identity of control, for
// clients with a certificate of the fleet CA. Stop it with Stop, not GracefulStop:
// relay streams never end by themselves.
// known, which may be nil, is called with the address of each peer that is a regional.
func (s *Server) NewGRPC(files *identity.Files, known func(addr string)) *grpc.Server {
	g := grpc.NewServer(
		grpc.ForceServerCodecV2(wire.Codec),
		grpc.Creds(recognizing{credentials.NewTLS(files.ServerConfig(tls.RequireAndVerifyClientCert, "h2")), known}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 15 * time.Second, Timeout: 10 * time.Second}),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(16<<20),
	)
	wire.RegisterControlServer(g, s)
	return g
}

// recognizing tells which peers are regionals.
type recognizing struct {
	credentials.TransportCredentials
	known func(addr string)
}

// ServerHandshake implements credentials.TransportCredentials.
func (r recognizing) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := r.TransportCredentials.ServerHandshake(raw)
	if err == nil && r.known != nil {
		if _, other := regionalIn(info); other == nil {
			r.known(raw.RemoteAddr().String())
		}
	}
	return c, info, err
}

// Clone implements credentials.TransportCredentials.
func (r recognizing) Clone() credentials.TransportCredentials {
	return recognizing{r.TransportCredentials.Clone(), r.known}
}

// regionalOf returns the name in the caller's certificate, or a status error.
func regionalOf(ctx context.Context) (string, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", status.Error(codes.Unauthenticated, "no peer")
	}
	return regionalIn(p.AuthInfo)
}

func regionalIn(auth credentials.AuthInfo) (string, error) {
	info, ok := auth.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return "", status.Error(codes.Unauthenticated, "this service wants a regional's client certificate")
	}
	name, err := identity.ParseRegional(info.State.VerifiedChains[0][0])
	if err != nil {
		return "", status.Error(codes.PermissionDenied, "this service is for regionals: "+err.Error())
	}
	return name, nil
}

// Register implements wire.ControlServer.
func (s *Server) Register(ctx context.Context, r *wire.RelayedRegister) (*wire.RegisterResponse, error) {
	if _, err := regionalOf(ctx); err != nil {
		return nil, err
	}
	return s.opts.Registrar.Register(ctx, r.GetRequest(), r.GetRemoteAddr())
}

// Renew implements wire.ControlServer.
func (s *Server) Renew(ctx context.Context, r *wire.RelayedRenew) (*wire.Issued, error) {
	if _, err := regionalOf(ctx); err != nil {
		return nil, err
	}
	return s.opts.Registrar.Renew(ctx, fleet.SiteID{Tenant: r.GetTenant(), Name: r.GetSite()}, r.GetCsr())
}

const chunkBytes = 64 << 10

// FetchBlob implements wire.ControlServer.
func (s *Server) FetchBlob(r *wire.FetchBlobRequest, stream grpc.ServerStreamingServer[wire.BlobChunk]) error {
	if _, err := regionalOf(stream.Context()); err != nil {
		return err
	}
	b, err := s.opts.Desired.Fetch(stream.Context(), r.GetDigest())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return status.Errorf(codes.NotFound, "no blob %.64q", r.GetDigest())
	case err != nil:
		return status.Errorf(codes.Unavailable, "blob %.64q: %v", r.GetDigest(), err)
	}
	off := r.GetOffset()
	if off < 0 || off > int64(len(b)) {
		return status.Errorf(codes.OutOfRange, "offset %d of a blob of %d bytes", off, len(b))
	}
	for b = b[off:]; len(b) > 0; {
		n := min(len(b), chunkBytes)
		if err := stream.Send(&wire.BlobChunk{Data: b[:n]}); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// Relay implements wire.ControlServer: the one stream of a regional.
func (s *Server) Relay(stream grpc.BidiStreamingServer[wire.RelayUp, wire.RelayDown]) error {
	name, err := regionalOf(stream.Context())
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return status.Error(codes.InvalidArgument, "the first message of a relay stream is its hello")
	}
	if hello.GetCapability() < 1 {
		return status.Errorf(codes.FailedPrecondition, "capability %d is too old; update the regional", hello.GetCapability())
	}
	sess, err := s.open(name, hello.GetCapability())
	if err != nil {
		return err
	}
	defer s.close(sess)
	s.opts.Logger.Info("regional connected", "regional", name, "version", clip(hello.GetVersion(), 40), "capability", hello.GetCapability())

	received := make(chan error, 1)
	go func() { received <- s.receive(stream, sess) }()
	err = s.send(stream, sess, received)
	s.opts.Logger.Info("regional disconnected", "regional", name, "err", err)
	return err
}

// receive ends with the stream.
func (s *Server) receive(stream grpc.BidiStreamingServer[wire.RelayUp, wire.RelayDown], sess *session) error {
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive from regional %s: %w", sess.regional, err)
		}
		s.handle(sess, msg)
	}
}

// desiredFor is a site's desired state, without what an agent of the capability does not
// know; nil: not known.
func (s *Server) desiredFor(id fleet.SiteID, capability uint32) *wire.DesiredState {
	if st := s.opts.Desired.State(id); st != nil {
		return s.knownTo(capability, st)
	}
	return nil
}

func (s *Server) send(stream grpc.BidiStreamingServer[wire.RelayUp, wire.RelayDown], sess *session, received <-chan error) error {
	for {
		for {
			msg := sess.next(s.desiredFor, s.opts.Desired.Regional)
			if msg == nil {
				break
			}
			if err := stream.Send(msg); err != nil {
				return fmt.Errorf("send to regional %s: %w", sess.regional, err)
			}
			if msg.GetDesired() != nil {
				s.metrics.pushes.Inc()
			}
			s.metrics.pushes.Add(float64(len(msg.GetSitesDesired().GetSites()) + len(msg.GetSitesChange().GetSites())))
		}
		select {
		case <-sess.wake:
		case <-sess.replaced:
			return status.Errorf(codes.Aborted, "regional %s opened another stream", sess.regional)
		case err := <-received:
			return err
		}
	}
}
