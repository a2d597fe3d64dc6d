// Package fakeregional is a regional gateway for tests of the agent: the real
// protocol over real mutual TLS on loopback, with a real fleet CA, and no control
// behind it. A test sets what it answers, sees what sites sent, and breaks it:
// stopped, restarted, downloads cut, sites refused.
//
// It takes no telemetry but for what Options.HTTP does, and enforces no limits; that is the
// real gateway's test.
package fakeregional

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/hosts"
)

// Options of Start.
type Options struct {
	CA     *pki.CA // nil: one of its own
	Name   string  // default "eu-1"
	Region string  // of the sites that it enrols; default "eu"
	// Heartbeat is what it asks sites for; default 200 ms.
	Heartbeat time.Duration
	// HTTP answers what is no gRPC, such as pushes of samples; nil: nobody does.
	HTTP http.Handler
	// Hosts connects sites with each other; nil: nobody does.
	Hosts *hosts.Broker
}

// Regional is the fake. Safe for concurrent use.
type Regional struct {
	wire.UnimplementedRegistrationServer
	wire.UnimplementedUplinkServer
	t     testing.TB
	opts  Options
	files *identity.Files
	addr  string

	mu       sync.Mutex
	server   *grpc.Server
	http     *http.Server // nil: gRPC alone
	register func(*wire.RegisterRequest) (*wire.RegisterResponse, error)
	refuse   map[fleet.SiteID]error
	sites    map[fleet.SiteID]*site
	blobs    map[string][]byte
	cutAfter int // bytes of a download, while cuts > 0
	cuts     int
	fetched  []*wire.FetchBlobRequest
	renewals int
	tunnels  map[string]chan net.Conn // asked for, by id
}

type site struct {
	seen    Seen
	desired *wire.DesiredState
	push    chan struct{}
	change  chan *wire.DesiredChange
	tunnel  chan string
	host    chan *wire.OpenHost
	cluster *mirror.Mirror
	stream  context.Context
}

// Seen is what a site sent.
type Seen struct {
	Connected  bool
	Connects   int
	Hello      *wire.Hello
	Report     *wire.Report // newest
	Reports    int
	Heartbeats int
	Changes    int    // of its desired state that were told as such
	Clusters   int    // messages about its cluster
	Snapshots  int    // those of snapshots among them
	Serial     string // of the certificate of the newest stream
}

// Start serves on a free port of 127.0.0.1 until the test ends.
func Start(t testing.TB, o Options) *Regional {
	t.Helper()
	if o.CA == nil {
		ca, err := pki.Open(pki.Options{Dir: filepath.Join(t.TempDir(), "pki")})
		if err != nil {
			t.Fatal(err)
		}
		o.CA = ca
	}
	if o.Name == "" {
		o.Name = "eu-1"
	}
	if o.Region == "" {
		o.Region = "eu"
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 200 * time.Millisecond
	}
	dir := t.TempDir()
	if _, err := o.CA.EnsureRegional(dir, o.Name, []string{"127.0.0.1", "localhost"}); err != nil {
		t.Fatal(err)
	}
	files, err := identity.LoadFiles(filepath.Join(dir, pki.PairFile), filepath.Join(dir, pki.TrustFile))
	if err != nil {
		t.Fatal(err)
	}
	r := &Regional{t: t, opts: o, files: files, addr: "127.0.0.1:0", refuse: map[fleet.SiteID]error{}, tunnels: map[string]chan net.Conn{}, sites: map[fleet.SiteID]*site{}, blobs: map[string][]byte{}}
	r.Restart()
	t.Cleanup(r.Stop)
	return r
}

// Restart listens again, on the address that it had.
func (r *Regional) Restart() {
	r.t.Helper()
	var lis net.Listener
	r.Eventually("listen on "+r.addr, func() (ok bool) {
		var err error
		lis, err = net.Listen("tcp", r.addr)
		return err == nil
	})
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(r.files.ServerConfig(tls.VerifyClientCertIfGiven, "h2"))))
	wire.RegisterRegistrationServer(g, r)
	wire.RegisterUplinkServer(g, r)
	r.mu.Lock()
	r.server, r.addr = g, lis.Addr().String()
	r.mu.Unlock()
	if r.opts.HTTP == nil {
		go func() { _ = g.Serve(lis) }()
		return
	}
	srv := &http.Server{TLSConfig: r.files.ServerConfig(tls.VerifyClientCertIfGiven, "h2"), Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.Header.Get("Content-Type"), "application/grpc") {
			g.ServeHTTP(w, req)
			return
		}
		r.opts.HTTP.ServeHTTP(w, req)
	})}
	r.mu.Lock()
	r.http = srv
	r.mu.Unlock()
	go func() { _ = srv.ServeTLS(lis, "", "") }()
}

// Stop breaks all connections and listens no more.
func (r *Regional) Stop() {
	r.mu.Lock()
	g, srv := r.server, r.http
	r.mu.Unlock()
	if srv != nil {
		_ = srv.Close()
	}
	g.Stop()
}

// URL is what --server takes.
func (r *Regional) URL() string { return "https://" + r.addr }

// CAHash is what --ca-hash takes.
func (r *Regional) CAHash() string { return r.opts.CA.Hash() }

// CA is the fleet's.
func (r *Regional) CA() *pki.CA { return r.opts.CA }

// OnRegister replaces the answer to registrations; nil: the default, a certificate
// for tenant acme under the wanted name.
func (r *Regional) OnRegister(fn func(*wire.RegisterRequest) (*wire.RegisterResponse, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.register = fn
}

// Issue answers a registration with a certificate for the site.
func (r *Regional) Issue(req *wire.RegisterRequest, id fleet.SiteID) (*wire.RegisterResponse, error) {
	issued, err := r.issue(req.GetCsr(), id)
	if err != nil {
		return nil, err
	}
	return &wire.RegisterResponse{Tenant: id.Tenant, Site: id.Name, Issued: issued}, nil
}

func (r *Regional) issue(csrDER []byte, id fleet.SiteID) (*wire.Issued, error) {
	csr, err := pki.ParseCSR(csrDER)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	out, err := r.opts.CA.IssueSite(csr.PublicKey, id, r.opts.Region)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &wire.Issued{CertificatePem: out.CertPEM, TrustBundlePem: out.BundlePEM, NotAfter: timestamppb.New(out.Leaf.NotAfter)}, nil
}

// Refuse lets a site's streams end with err; nil lets it in again.
func (r *Regional) Refuse(id fleet.SiteID, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.refuse, id)
	} else {
		r.refuse[id] = err
	}
}

// Blob is one item of a desired state.
type Blob struct {
	Kind, Name string
	Data       []byte
}

// SetDesired gives a site a desired state, and tells it if it is connected.
func (r *Regional) SetDesired(id fleet.SiteID, blobs ...Blob) *wire.DesiredState {
	st := &wire.DesiredState{}
	r.mu.Lock()
	for _, b := range blobs {
		digest := wire.DigestOf(b.Data)
		r.blobs[digest] = b.Data
		st.Items = append(st.Items, &wire.Item{Kind: b.Kind, Name: b.Name, Digest: digest, Size: int64(len(b.Data))})
	}
	r.mu.Unlock()
	st.Revision = wire.RevisionOf(st.Items)
	r.SetState(id, st)
	return st
}

// SetState is SetDesired for a state that may be wrong.
func (r *Regional) SetState(id fleet.SiteID, st *wire.DesiredState) {
	r.mu.Lock()
	s := r.siteLocked(id)
	s.desired = st
	r.mu.Unlock()
	select {
	case s.push <- struct{}{}:
	default:
	}
}

// SendChange tells a connected site of a change that may be wrong.
func (r *Regional) SendChange(id fleet.SiteID, c *wire.DesiredChange) {
	r.mu.Lock()
	to := r.siteLocked(id).change
	r.mu.Unlock()
	to <- c
}

// SetBlob makes a digest answer with data that may be wrong.
func (r *Regional) SetBlob(digest string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blobs[digest] = data
}

// CutDownloads breaks the next n downloads after so many bytes each.
func (r *Regional) CutDownloads(n, after int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cuts, r.cutAfter = n, after
}

// Fetched returns all download requests so far.
func (r *Regional) Fetched() []*wire.FetchBlobRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*wire.FetchBlobRequest(nil), r.fetched...)
}

// Renewals counts certificates renewed.
func (r *Regional) Renewals() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.renewals
}

// Seen returns what the site sent so far.
func (r *Regional) Seen(id fleet.SiteID) Seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.siteLocked(id).seen
}

// Cluster is what the site said of its cluster.
func (r *Regional) Cluster(id fleet.SiteID) *mirror.Mirror {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.siteLocked(id).cluster
}

// Dial opens a tunnel to a site that is connected.
func (r *Regional) Dial(ctx context.Context, id fleet.SiteID) (net.Conn, error) {
	name, opened := rand.Text(), make(chan net.Conn, 1)
	r.mu.Lock()
	ask := r.siteLocked(id).tunnel
	r.tunnels[name] = opened
	r.mu.Unlock()
	select {
	case ask <- name:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case conn := <-opened:
		return conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Tunnel implements wire.UplinkServer.
func (r *Regional) Tunnel(stream grpc.BidiStreamingServer[wire.TunnelData, wire.TunnelData]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	r.mu.Lock()
	opened := r.tunnels[first.GetId()]
	delete(r.tunnels, first.GetId())
	r.mu.Unlock()
	if opened == nil {
		return status.Error(codes.NotFound, "nobody asked for it")
	}
	closed := make(chan struct{})
	opened <- tunnel.Conn(stream, "site", func() { close(closed) })
	select {
	case <-closed:
	case <-stream.Context().Done():
	}
	return nil
}

// Condition returns the site's newest condition of a type, or nil.
func (s Seen) Condition(typ string) *wire.Condition {
	for _, c := range s.Report.GetConditions() {
		if c.Type == typ {
			return c
		}
	}
	return nil
}

func (r *Regional) siteLocked(id fleet.SiteID) *site {
	if r.sites[id] == nil {
		r.sites[id] = &site{push: make(chan struct{}, 1), change: make(chan *wire.DesiredChange), tunnel: make(chan string), host: make(chan *wire.OpenHost, 64), cluster: mirror.New(mirror.DefaultLimits, nil)}
	}
	return r.sites[id]
}

// Eventually polls until ok, for at most 15 s.
func (r *Regional) Eventually(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
		if ok() {
			tick.Stop()
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("not within 15 s: %s", what)
		}
	}
}

// Register implements wire.RegistrationServer.
func (r *Regional) Register(_ context.Context, req *wire.RegisterRequest) (*wire.RegisterResponse, error) {
	r.mu.Lock()
	fn := r.register
	r.mu.Unlock()
	if fn != nil {
		return fn(req)
	}
	return r.Issue(req, fleet.SiteID{Tenant: "acme", Name: req.GetSite()})
}

func certOf(ctx context.Context) (*x509.Certificate, fleet.SiteID, error) {
	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return nil, fleet.SiteID{}, status.Error(codes.Unauthenticated, "no client certificate")
	}
	leaf := info.State.VerifiedChains[0][0]
	id, _, err := identity.ParseSite(leaf)
	if err != nil {
		return nil, id, status.Error(codes.PermissionDenied, err.Error())
	}
	if time.Now().After(leaf.NotAfter) {
		return nil, id, status.Error(codes.Unauthenticated, "the certificate expired")
	}
	return leaf, id, nil
}

// Renew implements wire.UplinkServer.
func (r *Regional) Renew(ctx context.Context, req *wire.RenewRequest) (*wire.Issued, error) {
	_, id, err := certOf(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.renewals++
	r.mu.Unlock()
	return r.issue(req.GetCsr(), id)
}

// FetchBlob implements wire.UplinkServer.
func (r *Regional) FetchBlob(req *wire.FetchBlobRequest, stream grpc.ServerStreamingServer[wire.BlobChunk]) error {
	if _, _, err := certOf(stream.Context()); err != nil {
		return err
	}
	r.mu.Lock()
	r.fetched = append(r.fetched, req)
	b, ok := r.blobs[req.GetDigest()]
	cut := -1
	if r.cuts > 0 {
		r.cuts, cut = r.cuts-1, r.cutAfter
	}
	r.mu.Unlock()
	if !ok {
		return status.Error(codes.NotFound, "no such blob")
	}
	if req.GetOffset() > int64(len(b)) {
		return status.Error(codes.OutOfRange, "offset beyond the end")
	}
	for rd := bytes.NewBuffer(b[req.GetOffset():]); rd.Len() > 0; {
		chunk := rd.Next(1024)
		if cut >= 0 {
			chunk = chunk[:min(len(chunk), cut)]
			cut -= len(chunk)
		}
		if err := stream.Send(&wire.BlobChunk{Data: chunk}); err != nil {
			return err
		}
		if cut == 0 {
			return status.Error(codes.Unavailable, "cut by the test")
		}
	}
	return nil
}

// Connect implements wire.UplinkServer.
func (r *Regional) Connect(stream grpc.BidiStreamingServer[wire.FromSite, wire.ToSite]) error {
	leaf, id, err := certOf(stream.Context())
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetHello() == nil {
		return status.Error(codes.InvalidArgument, "want a hello first")
	}
	r.mu.Lock()
	if err := r.refuse[id]; err != nil {
		r.mu.Unlock()
		return err
	}
	s := r.siteLocked(id)
	s.seen.Connected, s.seen.Hello, s.seen.Serial, s.stream = true, first.GetHello(), leaf.SerialNumber.String(), stream.Context()
	s.seen.Connects++
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if s.stream == stream.Context() {
			s.seen.Connected = false
		}
	}()
	s.cluster.Interrupted()
	epoch, seq := s.cluster.Version()
	err = stream.Send(&wire.ToSite{Msg: &wire.ToSite_Welcome{Welcome: &wire.Welcome{
		Capability: wire.Capability, HeartbeatInterval: durationpb.New(r.opts.Heartbeat), Regional: r.opts.Name, Region: r.opts.Region,
		KubernetesEpoch: epoch, KubernetesSeq: seq,
	}}})
	if err != nil {
		return err
	}
	go func() {
		var told *wire.DesiredState
		for {
			r.mu.Lock()
			st := s.desired
			change := wire.ChangeBetween(told, st)
			if first.GetHello().Capability < wire.ChangeCapability || told.GetRevision() == st.GetRevision() { // sizes may be other
				change = nil
			}
			if change != nil && st != told {
				s.seen.Changes++
			}
			r.mu.Unlock()
			msg := &wire.ToSite{Msg: &wire.ToSite_Desired{Desired: st}}
			if change != nil {
				msg = &wire.ToSite{Msg: &wire.ToSite_Change{Change: change}}
			}
			if st != told && stream.Send(msg) != nil {
				return
			}
			told = st
			select {
			case <-s.push:
			case c := <-s.change:
				_ = stream.Send(&wire.ToSite{Msg: &wire.ToSite_Change{Change: c}})
			case id := <-s.tunnel:
				_ = stream.Send(&wire.ToSite{Msg: &wire.ToSite_OpenTunnel{OpenTunnel: &wire.OpenTunnel{Id: id}}})
			case h := <-s.host:
				_ = stream.Send(&wire.ToSite{Msg: &wire.ToSite_OpenHost{OpenHost: h}})
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for {
		msg, err := stream.Recv()
		if err != nil {
			return err
		}
		r.mu.Lock()
		switch {
		case msg.GetReport() != nil:
			s.seen.Report = msg.GetReport()
			s.seen.Reports++
		case msg.GetHeartbeat() != nil:
			s.seen.Heartbeats++
		case msg.GetKubernetes() != nil:
			s.seen.Clusters++
			if msg.GetKubernetes().Snapshot {
				s.seen.Snapshots++
			}
			if !s.cluster.Apply(msg.GetKubernetes()) {
				r.mu.Unlock()
				return errors.New("what the site says of its cluster does not follow what it said before")
			}
		case msg.GetHello() != nil:
			r.mu.Unlock()
			return errors.New("a second hello")
		}
		r.mu.Unlock()
	}
}

// Sites lists the sites that are connected.
func (r *Regional) Sites() map[fleet.SiteID]Seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[fleet.SiteID]Seen{}
	for id, s := range r.sites {
		if s.seen.Connected {
			out[id] = s.seen
		}
	}
	return maps.Clone(out)
}
