package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"muster.dev/muster/internal/strangers"
	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional"
)

// Heartbeats of a site's stream.
const (
	HeartbeatInterval = 5 * time.Second
	// HeartbeatTimeout is after how long without a message a site counts as gone.
	HeartbeatTimeout = 3 * HeartbeatInterval
)

// Bounds of what a site says over gRPC.
const (
	maxMessage    = 256 << 10
	strangerPace  = 32 << 10  // bytes a second
	streamBytes   = 128 << 10 // a second, on average
	streamBurst   = 512 << 10
	tunnelBytes   = 2 << 20 // a second, on average, of all tunnels of a site together
	tunnelBurst   = 1 << 20
	maxTunnelID   = 64
	maxConditions = 64
	maxVersions   = 64
	maxSoftware   = 8
	maxText       = 4096
	maxVersion    = 64
	maxRevision   = 128
	maxLabels     = 320
	maxLabel      = 256 // of a system label; control takes 63 of it

	// How often a site may open its stream, which control and the log hear of, and ask for a
	// certificate, on average; pacedBurst at once.
	connectEvery = time.Second
	renewEvery   = 10 * time.Second
	pacedBurst   = 5
)

// session is one open stream of a site. It implements regional.Session.
type session struct {
	site *site
	cert *x509.Certificate
	seq  atomic.Uint64 // of the reports that go to control
	// capability is that of the agent.
	capability uint32

	mu      sync.Mutex
	desired *wire.DesiredState // the newest that is not sent yet
	resync  bool
	tunnels []string         // ids that are not sent yet
	hosts   []*wire.OpenHost // likewise
	wake    chan struct{}
	ended   chan struct{}
	why     error
}

func newSession(s *site, cert *x509.Certificate, capability uint32) *session {
	return &session{site: s, cert: cert, capability: capability, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Certificate implements regional.Session.
func (s *session) Certificate() *x509.Certificate { return s.cert }

// Desired implements regional.Session.
func (s *session) Desired(d *wire.DesiredState) {
	s.mu.Lock()
	s.desired = d
	s.mu.Unlock()
	s.poke()
}

// Resync implements regional.Session.
func (s *session) Resync() {
	s.mu.Lock()
	s.resync = true
	s.mu.Unlock()
	s.poke()
}

// maxUnsent is how many requests for connections wait until a site takes them.
const maxUnsent = 256

// openHost asks the site to answer; false: it does not take what it is sent.
func (s *session) openHost(h *wire.OpenHost) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.hosts) >= maxUnsent {
		return false
	}
	s.hosts = append(s.hosts, h)
	s.poke()
	return true
}

// OpenTunnel implements regional.Session.
func (s *session) OpenTunnel(id string) {
	s.mu.Lock()
	s.tunnels = append(s.tunnels, id)
	s.mu.Unlock()
	s.poke()
}

func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Revoke implements regional.Session.
func (s *session) Revoke(reason string) {
	s.end(status.Errorf(codes.PermissionDenied, "site %s is refused: %s", s.site.id, reason))
}

func (s *session) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ended:
	default:
		s.why = why
		close(s.ended)
	}
}

// holding is what a site holds of its desired state.
type holding struct {
	revision string
	state    *wire.DesiredState // nil: the regional has not seen it
}

// take returns what is to be sent, but for a state that the site holds already, and what it
// holds then.
func (s *session) take(held holding) ([]*wire.ToSite, holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*wire.ToSite
	if d := s.desired; d != nil {
		if d.Revision != held.revision {
			var change *wire.DesiredChange
			if s.capability >= wire.ChangeCapability {
				change = wire.ChangeBetween(held.state, d)
			}
			if change != nil {
				out = append(out, &wire.ToSite{Msg: &wire.ToSite_Change{Change: change}})
			} else {
				out = append(out, &wire.ToSite{Msg: &wire.ToSite_Desired{Desired: d}})
			}
		}
		held = holding{d.Revision, d}
	}
	if s.resync {
		out = append(out, &wire.ToSite{Msg: &wire.ToSite_KubernetesResync{KubernetesResync: &wire.KubernetesResync{}}})
	}
	for _, id := range s.tunnels {
		out = append(out, &wire.ToSite{Msg: &wire.ToSite_OpenTunnel{OpenTunnel: &wire.OpenTunnel{Id: id}}})
	}
	for _, h := range s.hosts {
		out = append(out, &wire.ToSite{Msg: &wire.ToSite_OpenHost{OpenHost: h}})
	}
	s.desired, s.resync, s.tunnels, s.hosts = nil, false, nil, nil
	return out, held
}

// uplink serves the Uplink service.
type uplink struct {
	wire.UnimplementedUplinkServer
	g *Gateway
}

// Connect implements wire.UplinkServer. The stream ends when the site is silent
// for HeartbeatTimeout, connects again, is revoked, or its certificate expires; the
// agent then comes back with a renewed one.
func (u *uplink) Connect(stream grpc.BidiStreamingServer[wire.FromSite, wire.ToSite]) error {
	g := u.g
	who, err := grpcCaller(stream.Context())
	if err != nil {
		return err
	}
	msgs, recvErr := receiveAll(stream)
	first, err := firstMessage(stream.Context(), msgs, recvErr)
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return status.Error(codes.InvalidArgument, "the first message of a stream must be a Hello")
	}
	if err := checkHello(hello); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	s := g.acquire(who.site)
	defer s.release()
	sess := newSession(s, who.cert, hello.Capability)
	g.connect(s, sess, who, hello)
	defer g.disconnect(s, sess)
	welcome := &wire.Welcome{
		Capability: min(wire.Capability, max(hello.Capability, 1)), HeartbeatInterval: durationpb.New(HeartbeatInterval),
		Regional: g.opts.Name, Region: g.opts.Region,
	}
	welcome.KubernetesEpoch, welcome.KubernetesSeq = g.opts.Upstream.KubernetesVersion(s.id)
	if err := stream.Send(&wire.ToSite{Msg: &wire.ToSite_Welcome{Welcome: welcome}}); err != nil {
		return err
	}
	g.opts.Upstream.SiteUp(s.id, hello, sess)
	return g.runStream(stream, s, sess, who, holding{revision: hello.Revision}, msgs, recvErr)
}

func receiveAll(stream grpc.BidiStreamingServer[wire.FromSite, wire.ToSite]) (<-chan *wire.FromSite, <-chan error) {
	msgs, errs := make(chan *wire.FromSite), make(chan error, 1)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				errs <- err
				return
			}
			took(stream.Context())
			select {
			case msgs <- m:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	return msgs, errs
}

func firstMessage(ctx context.Context, msgs <-chan *wire.FromSite, recvErr <-chan error) (*wire.FromSite, error) {
	t := time.NewTimer(HeartbeatTimeout)
	defer t.Stop()
	select {
	case m := <-msgs:
		return m, nil
	case err := <-recvErr:
		return nil, ended(err)
	case <-t.C:
		return nil, status.Errorf(codes.DeadlineExceeded, "no Hello within %s", HeartbeatTimeout)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ended: a site that closes its side is no error.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (g *Gateway) runStream(stream grpc.BidiStreamingServer[wire.FromSite, wire.ToSite], s *site, sess *session, who caller, held holding, msgs <-chan *wire.FromSite, recvErr <-chan error) error {
	silent := time.NewTimer(HeartbeatTimeout)
	defer silent.Stop()
	expiry := time.NewTimer(who.cert.NotAfter.Sub(g.now()))
	defer expiry.Stop()
	for {
		select {
		case m := <-msgs:
			silent.Reset(HeartbeatTimeout)
			if err := g.fromSite(s, sess, m); err != nil {
				return err
			}
		case err := <-recvErr:
			return ended(err)
		case <-sess.wake:
			var due []*wire.ToSite
			due, held = sess.take(held)
			for _, m := range due {
				if err := stream.Send(m); err != nil {
					return err
				}
			}
		case <-silent.C:
			return status.Errorf(codes.DeadlineExceeded, "no heartbeat for %s", HeartbeatTimeout)
		case <-expiry.C:
			return errExpired(who)
		case <-sess.ended:
			return sess.why
		case <-g.stopping:
			return status.Error(codes.Unavailable, "this regional is stopping")
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// fromSite takes one message.
func (g *Gateway) fromSite(s *site, sess *session, m *wire.FromSite) error {
	now := g.now()
	switch msg := m.GetMsg().(type) {
	case *wire.FromSite_Heartbeat:
		g.alive(s, sess, now)
	case *wire.FromSite_Report:
		if err := checkReport(msg.Report); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		g.alive(s, sess, now)
		s.mu.Lock()
		mine := s.live.session == sess
		if mine {
			s.live.report = msg.Report
		}
		s.mu.Unlock()
		if mine {
			g.report(s)
		}
	case *wire.FromSite_Kubernetes:
		g.alive(s, sess, now)
		g.opts.Upstream.Kubernetes(s.id, sess, msg.Kubernetes)
	case *wire.FromSite_Hello:
		return status.Error(codes.InvalidArgument, "a second Hello on one stream")
	default:
		// A newer agent may say more than this regional knows.
		g.alive(s, sess, now)
	}
	return nil
}

// checkHello cuts what a site says of itself down to what anybody keeps of it: it stays in
// memory, and goes to control with each stream.
func checkHello(h *wire.Hello) error {
	if len(h.Revision) > maxRevision {
		return fmt.Errorf("hello: a revision of more than %d bytes", maxRevision)
	}
	h.AgentVersion = cut(h.AgentVersion, maxVersion)
	if len(h.SystemLabels) > maxLabels {
		h.SystemLabels = nil // as control does
	}
	for k, v := range h.SystemLabels {
		if len(k) > maxLabel {
			delete(h.SystemLabels, k)
		} else if len(v) > maxLabel {
			h.SystemLabels[k] = cut(v, maxLabel)
		}
	}
	h.ProtoReflect().SetUnknown(nil)
	return nil
}

// cut leaves at most n bytes of what somebody chose, and no half runes. It keeps none of the
// message alive that the text came in.
func cut(text string, n int) string {
	return strings.Clone(strings.ToValidUTF8(text[:min(len(text), n)], ""))
}

func checkReport(r *wire.Report) error {
	switch {
	case r == nil:
		return errors.New("report: empty")
	case len(r.Conditions) > maxConditions:
		return fmt.Errorf("report: %d conditions, want at most %d", len(r.Conditions), maxConditions)
	case len(r.Versions) > maxVersions:
		return fmt.Errorf("report: %d versions, want at most %d", len(r.Versions), maxVersions)
	case len(r.AppliedRevision) > maxRevision || len(r.PolicyHash) > 128:
		return errors.New("report: a revision or policy hash of more than 128 bytes")
	}
	if len(r.Software) > maxSoftware {
		return fmt.Errorf("report: software of %d components, want at most %d", len(r.Software), maxSoftware)
	}
	for _, s := range r.Software {
		if len(s.GetMessage()) > maxText || len(s.GetComponent())+len(s.GetRunning())+len(s.GetWanted())+len(s.GetDigest())+len(s.GetState()) > maxText {
			return fmt.Errorf("report: software %.64q is too long", s.GetComponent())
		}
	}
	for _, c := range r.Conditions {
		if len(c.GetType()) > 128 || len(c.GetReason()) > 256 || len(c.GetMessage()) > maxText {
			return fmt.Errorf("report: condition %.64q is too long", c.GetType())
		}
	}
	for k, v := range r.Versions {
		if len(k)+len(v) > maxText {
			return fmt.Errorf("report: version %.64q is too long", k)
		}
	}
	return nil
}

func (g *Gateway) alive(s *site, sess *session, now time.Time) {
	s.mu.Lock()
	mine := s.live.session == sess
	if mine {
		s.live.heartbeat, s.live.seen = now, now
		s.showLocked()
	}
	s.mu.Unlock()
	if mine {
		g.opts.Upstream.Alive(s.id, now)
	}
}

// connect makes sess the site's one stream; an older one is ended: the machine
// behind it may be gone without a word.
func (g *Gateway) connect(s *site, sess *session, who caller, hello *wire.Hello) {
	now := g.now()
	s.mu.Lock()
	old := s.live.session
	s.live.region, s.live.cert = who.region, who.cert
	s.live.session, s.live.since, s.live.heartbeat, s.live.seen = sess, now, now, now
	s.live.version = hello.AgentVersion
	s.live.report = nil
	s.showLocked()
	leftOut, log := s.logged.pass(now)
	s.mu.Unlock()
	if old != nil {
		old.end(status.Error(codes.Aborted, "the site opened another stream"))
	} else {
		g.metrics.connected.Inc()
	}
	if log {
		g.log.Info("site connected", "site", s.id, "region", who.region, "agent", hello.AgentVersion, "again", old != nil, "left_out", leftOut)
	}
}

func (g *Gateway) disconnect(s *site, sess *session) {
	s.mu.Lock()
	last := s.live.heartbeat
	mine := s.live.session == sess
	leftOut, log := 0, false
	if mine {
		s.live.session = nil
		s.showLocked()
		leftOut, log = s.logged.pass(g.now())
	}
	s.mu.Unlock()
	if mine {
		g.metrics.connected.Dec()
	}
	if log {
		g.log.Info("site disconnected", "site", s.id, "last_heartbeat", last, "left_out", leftOut)
	}
	g.opts.Upstream.SiteDown(s.id, sess, last)
}

// FetchBlob implements wire.UplinkServer.
func (u *uplink) FetchBlob(req *wire.FetchBlobRequest, stream grpc.ServerStreamingServer[wire.BlobChunk]) error {
	who, err := grpcCaller(stream.Context())
	if err != nil {
		return err
	}
	if req.Offset < 0 || len(req.Digest) != 64 {
		return status.Error(codes.InvalidArgument, "want a digest of 64 hex digits and an offset of 0 or more")
	}
	err = u.g.untilExpiry(who, func() error {
		return u.g.opts.Upstream.Blob(stream.Context(), who.site, req.Digest, req.Offset, func(b []byte) error {
			return stream.Send(&wire.BlobChunk{Data: b})
		})
	})
	if _, isStatus := status.FromError(err); err == nil || isStatus {
		return err
	}
	if errors.Is(err, regional.ErrUnknownBlob) {
		return status.Errorf(codes.NotFound, "blob %s: %v", req.Digest, err)
	}
	return status.Errorf(codes.Unavailable, "blob %s: %v", req.Digest, err)
}

// firstOfTunnel reads whom a stream is for. Who opens one says so at once.
func firstOfTunnel(stream grpc.BidiStreamingServer[wire.TunnelData, wire.TunnelData]) (tunnel.Stream, *wire.TunnelData, error) {
	s := &takenTunnel{stream, stream.Context()}
	type first struct {
		m   *wire.TunnelData
		err error
	}
	came := make(chan first, 1)
	go func() {
		m, err := s.Recv()
		came <- first{m, err}
	}()
	late := time.NewTimer(HeartbeatTimeout)
	defer late.Stop()
	select {
	case f := <-came:
		return s, f.m, f.err
	case <-late.C:
		return nil, nil, status.Errorf(codes.DeadlineExceeded, "no first message within %s", HeartbeatTimeout)
	}
}

// untilExpiry has a stream of a site end with the certificate that it was opened with: a
// connection is asked for its certificate once, and may live for months. serve must use
// nothing but the stream, whose end is serve's too; it is not waited for.
func (g *Gateway) untilExpiry(who caller, serve func() error) error {
	done := make(chan error, 1)
	go func() { done <- serve() }()
	expiry := time.NewTimer(who.cert.NotAfter.Sub(g.now()))
	defer expiry.Stop()
	select {
	case err := <-done:
		return err
	case <-expiry.C:
		return errExpired(who)
	}
}

func errExpired(who caller) error {
	return status.Errorf(codes.Unauthenticated, "the certificate of site %s expired; connect with a renewed one", who.site)
}

// Tunnel implements wire.UplinkServer.
func (u *uplink) Tunnel(stream grpc.BidiStreamingServer[wire.TunnelData, wire.TunnelData]) error {
	who, err := grpcCaller(stream.Context())
	if err != nil {
		return err
	}
	paced, first, err := firstOfTunnel(stream)
	if err != nil {
		return ended(err)
	}
	if id := first.GetId(); id == "" || len(id) > maxTunnelID {
		return status.Errorf(codes.InvalidArgument, "want an id of 1 to %d characters in the first message of a tunnel", maxTunnelID)
	}
	err = u.g.untilExpiry(who, func() error { return u.g.opts.Upstream.Tunnel(stream.Context(), who.site, first.Id, paced) })
	if errors.Is(err, regional.ErrUnknownTunnel) {
		return status.Error(codes.NotFound, err.Error())
	}
	return err
}

// Renew implements wire.UplinkServer.
func (u *uplink) Renew(ctx context.Context, req *wire.RenewRequest) (*wire.Issued, error) {
	who, err := grpcCaller(ctx)
	if err != nil {
		return nil, err
	}
	s := u.g.acquire(who.site)
	defer s.release()
	if !s.renewals.Allow() {
		u.g.metrics.limited.WithLabelValues(reasonInFlight).Inc()
		return nil, wire.Later(renewEvery, fmt.Sprintf("site %s asks for a certificate more often than every %s", who.site, renewEvery))
	}
	return u.g.opts.Upstream.Renew(ctx, &wire.RelayedRenew{Tenant: who.site.Tenant, Site: who.site.Name, Csr: req.Csr})
}

// registration serves the Registration service, the only one that needs no
// certificate.
type registration struct {
	wire.UnimplementedRegistrationServer
	g *Gateway

	mu     sync.Mutex
	peers  *simplelru.LRU[string, *rate.Limiter]            // by strangers.HostOf
	tokens *simplelru.LRU[[sha256.Size]byte, *rate.Limiter] // by token; of those that control has taken
}

// Attempts of one address, or one IPv6 network of 64 bits, against floods and not against guessing: tokens are 32 random
// bytes. A token that control has taken once pays for itself alone from then on, so that
// a thousand machines behind one NAT join as fast as a thousand elsewhere.
const (
	registerPerSecond = 5
	registerBurst     = 100
	tokenPerSecond    = 200
	tokenBurst        = 1000
	maxRegisterPeers  = 10_000 // of both; whoever was not here for longest is forgotten
)

func newRegistration(g *Gateway) *registration {
	return &registration{g: g, peers: newLRU[string](maxRegisterPeers), tokens: newLRU[[sha256.Size]byte](maxRegisterPeers)}
}

func newLRU[K comparable](size int) *simplelru.LRU[K, *rate.Limiter] {
	l, err := simplelru.NewLRU[K, *rate.Limiter](size, nil)
	if err != nil { // a size below 1
		panic(err)
	}
	return l
}

// Register implements wire.RegistrationServer.
func (r *registration) Register(ctx context.Context, req *wire.RegisterRequest) (*wire.RegisterResponse, error) {
	addr := ""
	if p, ok := peer.FromContext(ctx); ok {
		addr = p.Addr.String()
	}
	token := sha256.Sum256([]byte(req.GetToken()))
	if after := r.wait(addr, token); after > 0 {
		// Not ResourceExhausted: agents take that for a quota, which only people raise.
		return nil, wire.Later(after, fmt.Sprintf("too many registrations from %s; try again in %s", addr, after))
	}
	resp, err := r.g.opts.Upstream.Register(ctx, &wire.RelayedRegister{Request: req, RemoteAddr: addr})
	switch status.Code(err) {
	case codes.OK:
		r.trust(token)
	case codes.PermissionDenied: // forged, or no good any more
		r.distrust(token)
	}
	return resp, err
}

// wait takes an attempt, and returns 0; or says when there is another one.
func (r *registration) wait(addr string, token [sha256.Size]byte) time.Duration {
	host := strangers.HostOf(addr)
	r.mu.Lock()
	defer r.mu.Unlock()
	l, ok := r.tokens.Get(token)
	if !ok {
		if l, ok = r.peers.Get(host); !ok {
			l = rate.NewLimiter(registerPerSecond, registerBurst)
			r.peers.Add(host, l)
		}
	}
	if l.Allow() {
		return 0
	}
	return time.Second // at both rates there is one by then; the agent spreads it
}

func (r *registration) trust(token [sha256.Size]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.tokens.Contains(token) {
		r.tokens.Add(token, rate.NewLimiter(tokenPerSecond, tokenBurst))
	}
}

func (r *registration) distrust(token [sha256.Size]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens.Remove(token)
}
