package fleetload

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/snappy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muster.dev/muster/internal/backoff"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/holdings"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
	"muster.dev/muster/loadtest/link"
	"muster.dev/muster/loadtest/simcluster"
)

// site is one of the fleet.
type site struct {
	f      *Fleet
	name   string
	seed   uint64
	key    *ecdsa.PrivateKey
	cert   *tls.Certificate // set by register, before anything else begins
	link   link.Link
	client *http.Client
	host   string // of the gateway

	registered, connected atomic.Bool
	acked                 atomic.Int64       // time of the newest acknowledged samples, in milliseconds
	policy                atomic.Value       // string: hash of the collection policy in effect
	revision              string             // of the desired state in effect; belongs to the stream
	told                  *wire.DesiredState // the last one; belongs to the stream's receiver
	mirror                *mirror.Mirror
	cluster               *simcluster.Cluster
	changes               chan struct{} // the mirror has something to tell
	upgrade               *upgrade
	fetches               bool // versions of its agent, really
}

func newSite(f *Fleet, i int) (*site, error) {
	host, _, err := net.SplitHostPort(f.opts.Server)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s := &site{f: f, name: fmt.Sprintf("load-%05d", i), host: host}
	s.seed = seedOf(s.name)
	s.upgrade, s.fetches = newUpgrade(), i < f.opts.SoftwareFetches
	s.policy.Store("")
	s.changes = make(chan struct{}, 1)
	s.mirror = mirror.New(mirror.DefaultLimits, func() {
		select {
		case s.changes <- struct{}{}:
		default:
		}
	})
	s.cluster = simcluster.New(s.name, s.mirror)
	s.link.Dialer.Timeout = 10 * time.Second
	if ip := net.ParseIP(host); host == "localhost" || ip.IsLoopback() {
		s.link.Dialer.LocalAddr = &net.TCPAddr{IP: address(i)}
	}
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	cfg := identity.ClientConfig(host, s.current, identity.IsRegional)
	s.client = &http.Client{Timeout: f.opts.Timeout, Transport: &http.Transport{
		DialContext: s.link.DialContext, TLSClientConfig: cfg, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second,
	}}
	return s, nil
}

func (s *site) current() (*tls.Certificate, *x509.CertPool, error) {
	return s.cert, s.f.pool, s.f.poolErr
}

// sleep waits; false: ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// backoff is the agent's.
func (s *site) backoff(failed int) time.Duration {
	return backoff.FullJitter(failed-1, s.f.opts.MinBackoff, s.f.opts.MaxBackoff)
}

func (s *site) dial(cfg *tls.Config) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+s.f.opts.Server,
		grpc.WithTransportCredentials(credentials.NewTLS(cfg)),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return s.link.DialContext(ctx, "tcp", addr) }),
		grpc.WithDisableServiceConfig(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxDown)), grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10), grpc.WithSharedWriteBuffer(true))
}

// register gets a certificate, trying again as long as that can help.
func (s *site) register(ctx context.Context) error {
	for failed := 1; ; failed++ {
		err := s.registerOnce(ctx)
		switch status.Code(err) {
		case codes.OK:
			s.registered.Store(true)
			return nil
		case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Internal:
			s.f.Tally().fail(func(c *Counts) { c.Failed++ }, err.Error(), 0)
		default:
			return fmt.Errorf("site %s: register: %w", s.name, err)
		}
		if !sleep(ctx, s.backoff(failed)) {
			return fmt.Errorf("site %s: register: %w", s.name, errors.Join(ctx.Err(), err))
		}
	}
}

func (s *site) registerOnce(ctx context.Context) error {
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: s.name}}, s.key)
	if err != nil {
		return err
	}
	conn, err := s.dial(&tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: s.host,
		InsecureSkipVerify: true, // VerifyConnection does it, with the pin
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, err := identity.VerifyPinned(cs.PeerCertificates, s.f.opts.CAHash, s.host, time.Now())
			return err
		},
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	resp, err := wire.NewRegistrationClient(conn).Register(ctx, &wire.RegisterRequest{
		Token: s.f.opts.Token, Csr: csr, Site: s.name, AgentVersion: firstVersion, SystemLabels: systemLabels(),
	})
	if err != nil {
		return err
	}
	if resp.GetIssued() == nil {
		return errPending
	}
	block, _ := pem.Decode(resp.Issued.GetCertificatePem())
	if block == nil {
		return errors.New("the issued certificate is no PEM")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	s.f.poolOnce.Do(func() {
		cas, err := identity.ParseBundle(resp.Issued.GetTrustBundlePem())
		s.f.pool, s.f.poolErr = identity.PoolOf(cas), err
	})
	s.cert = &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: s.key, Leaf: leaf}
	return s.f.poolErr
}

func systemLabels() map[string]string {
	return map[string]string{"arch": "arm64", "os": "simulated", "vendor": "muster-loadtest", "cpus": "4", "memory-mib": "8192"}
}

// connect holds the stream to the regional.
func (s *site) connect(ctx context.Context) {
	for failed := 0; ctx.Err() == nil; {
		began := time.Now()
		up, err := s.session(ctx)
		s.connected.Store(false)
		if ctx.Err() != nil {
			return
		}
		if up && time.Since(began) >= connectTimeout { // as the agent's
			failed = 0
		}
		if errors.Is(err, errRestarts) {
			continue
		}
		failed++
		s.f.Tally().fail(func(c *Counts) { c.Failed++ }, "stream: "+err.Error(), 0)
		if !sleep(ctx, s.backoff(failed)) {
			return
		}
		s.f.Tally().reconnected()
	}
}

// connectTimeout is the agent's.
const connectTimeout = 15 * time.Second

// session is one stream, until it breaks; up: it was welcomed.
func (s *site) session(ctx context.Context) (up bool, err error) {
	conn, err := s.dial(identity.ClientConfig(s.host, s.current, identity.IsRegional))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(connectTimeout, cancel)
	client := wire.NewUplinkClient(conn)
	stream, err := client.Connect(ctx)
	if err != nil {
		return false, err
	}
	if s.told.GetRevision() != s.revision {
		s.revision = "" // all of it, please
	}
	err = stream.Send(&wire.FromSite{Msg: &wire.FromSite_Hello{Hello: &wire.Hello{
		Capability: wire.Capability, AgentVersion: s.upgrade.version(), Revision: s.revision, SystemLabels: systemLabels(),
	}}})
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	first, err := stream.Recv()
	if err != nil {
		return false, err
	}
	if !late.Stop() {
		return false, errors.New("no welcome within 15 s")
	}
	s.connected.Store(true)
	s.mirror.Held(first.GetWelcome().GetKubernetesEpoch(), first.GetWelcome().GetKubernetesSeq())
	told, applied := make(chan *wire.DesiredState, 1), make(chan string)
	ended := make(chan error, 2)
	var parts sync.WaitGroup
	parts.Go(func() { ended <- s.receive(stream, told) })
	parts.Go(func() { ended <- s.hold(ctx, client, told, applied) })
	err = s.talk(ctx, stream, first.GetWelcome().GetHeartbeatInterval().AsDuration(), applied, ended)
	cancel()
	parts.Wait()
	return true, err
}

// hold brings the site to what it is told, beside its heartbeats, as the agent does, and
// passes on the revisions that it has reached.
func (s *site) hold(ctx context.Context, client wire.UplinkClient, told <-chan *wire.DesiredState, applied chan<- string) error {
	for {
		select {
		case d := <-told:
			if err := s.apply(ctx, client, d); err != nil {
				return err
			}
			select {
			case applied <- d.GetRevision():
			case <-ctx.Done():
				return ctx.Err()
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// receive passes on the newest desired state.
func (s *site) receive(stream wire.Uplink_ConnectClient, told chan *wire.DesiredState) error {
	for {
		msg, err := stream.Recv()
		if err != nil {
			return err
		}
		if msg.GetKubernetesResync() != nil {
			s.mirror.Resync()
		}
		d := msg.GetDesired()
		if c := msg.GetChange(); c != nil {
			if d, err = wire.Changed(s.told, c); err != nil {
				s.told = nil
				return err
			}
		}
		if d != nil {
			s.told = d
			select {
			case <-told:
			default:
			}
			told <- d
		}
	}
}

// reportEvery is how often the agent reports when nothing changes.
const reportEvery = 5 * time.Minute

// talk sends heartbeats and reports as the agent does.
func (s *site) talk(ctx context.Context, stream wire.Uplink_ConnectClient, every time.Duration, applied <-chan string, ended <-chan error) error {
	if every <= 0 {
		every = 5 * time.Second
	}
	beat := time.NewTimer(time.Duration(s.seed % uint64(every)))
	defer beat.Stop()
	full := time.NewTimer(time.Duration(s.seed%uint64(reportEvery)) + every)
	defer full.Stop()
	soon := time.NewTimer(0)
	defer soon.Stop()
	tell := time.NewTimer(0)
	defer tell.Stop()
	var toldAt time.Time
	for seq := uint64(0); ; {
		var msg *wire.FromSite
		select {
		case err := <-ended:
			return err
		case <-beat.C:
			beat.Reset(every)
			msg = &wire.FromSite{Msg: &wire.FromSite_Heartbeat{Heartbeat: &wire.Heartbeat{Sent: timestamppb.Now()}}}
		case s.revision = <-applied:
			soon.Reset(250 * time.Millisecond) // as the agent: changes of a moment go together
			continue
		case <-s.changes:
			tell.Reset(max(0, time.Until(toldAt.Add(mirrorEvery))))
			continue
		case <-tell.C:
			toldAt = time.Now()
			for _, st := range s.mirror.Next(true) {
				if err := stream.Send(&wire.FromSite{Msg: &wire.FromSite_Kubernetes{Kubernetes: st}}); err != nil {
					return err
				}
			}
			continue
		case <-s.upgrade.next.C:
			if err := s.step(ctx); err != nil {
				return err
			}
		case <-soon.C:
		case <-full.C:
			full.Reset(reportEvery)
		}
		if msg == nil {
			seq++
			msg = &wire.FromSite{Msg: &wire.FromSite_Report{Report: s.report(seq)}}
		}
		if err := stream.Send(msg); err != nil {
			return err
		}
	}
}

// mirrorEvery is how often the agent tells of its cluster, at most.
const mirrorEvery = time.Second

// apply fetches what the site should hold and does not hold yet.
func (s *site) apply(ctx context.Context, client wire.UplinkClient, d *wire.DesiredState) error {
	hash := ""
	for _, it := range d.GetItems() {
		if it.GetKind() != fleet.KindCollectionPolicy {
			continue
		}
		if hash = it.GetDigest(); hash == s.policy.Load().(string) {
			continue
		}
		if _, err := (holdings.Fetcher{}).To(ctx, client, hash, it.GetSize(), io.Discard); err != nil {
			return fmt.Errorf("fetch the policy: %w", err)
		}
	}
	if err := s.deploy(ctx, client, d.GetItems()); err != nil {
		return err
	}
	if err := s.want(ctx, client, d.GetItems()); err != nil {
		return err
	}
	s.policy.Store(hash)
	return nil
}

// deploy has what should be on the cluster there.
func (s *site) deploy(ctx context.Context, client wire.UplinkClient, items []*wire.Item) error {
	held, wanted := s.cluster.Held(), map[string]bool{}
	for _, it := range items {
		if it.GetKind() != workload.Kind {
			continue
		}
		wanted[it.GetName()] = true
		if held[it.GetName()] == it.GetDigest() {
			continue
		}
		var blob bytes.Buffer
		if _, err := (holdings.Fetcher{}).To(ctx, client, it.GetDigest(), it.GetSize(), &blob); err != nil {
			return fmt.Errorf("fetch %s: %w", it.GetName(), err)
		}
		if err := s.cluster.Apply(ctx, it, blob.Bytes()); err != nil {
			return err
		}
	}
	for name := range held {
		if !wanted[name] {
			if err := s.cluster.Remove(ctx, &wire.Item{Name: name}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *site) report(seq uint64) *wire.Report {
	r := &wire.Report{Seq: seq, AppliedRevision: s.revision, PolicyHash: s.policy.Load().(string),
		Software: []*wire.SoftwareStatus{s.upgrade.status()},
		Versions: map[string]string{"agent": s.upgrade.version(), "os": "Simulated Linux 1.0", "kernel": "6.12.48", "kubernetes": "v1.34.2"}}
	for _, typ := range []string{fleet.KindCollectionPolicy + "Applied", "CollectionHealthy", "SpoolHealthy"} {
		r.Conditions = append(r.Conditions, &wire.Condition{Type: typ, Status: "True", Reason: "Applied"})
	}
	return r
}

// buffer is the memory of one push.
type buffer struct{ raw, packed []byte }

// push sends what the site measures at each interval. What can't be sent is kept, and
// goes first, in order, when it can.
func (s *site) push(ctx context.Context) {
	every := s.f.opts.Interval
	next := time.Now().Truncate(every).Add(time.Duration(s.seed % uint64(every)))
	for next.Before(time.Now()) {
		next = next.Add(every)
	}
	var waiting []time.Time
	for {
		if len(waiting) == 0 && !sleep(ctx, time.Until(next)) {
			return
		}
		for now := time.Now(); !next.After(now); next = next.Add(every) {
			waiting = append(waiting, next)
		}
		if len(waiting) == 0 {
			continue
		}
		at := waiting[0]
		for _, p := range s.f.payloads {
			if !s.pushAll(ctx, p, at) {
				return
			}
		}
		s.acked.Store(at.UnixMilli())
		waiting = waiting[1:]
	}
}

// pushAll sends one payload until it is taken or refused for good; false: ctx ended.
func (s *site) pushAll(ctx context.Context, p *payload, at time.Time) bool {
	for failed := 1; ; failed++ {
		again, wait := s.pushOnce(ctx, p, at)
		if ctx.Err() != nil {
			return false
		}
		if !again {
			return true
		}
		if !sleep(ctx, max(wait, s.backoff(failed))) {
			return false
		}
	}
}

// pushOnce makes one request. again: it has to be made again, not before wait is over.
func (s *site) pushOnce(ctx context.Context, p *payload, at time.Time) (again bool, wait time.Duration) {
	b := s.f.buffers.Get().(*buffer)
	b.raw = append(b.raw[:0], p.raw...)
	samples := p.fill(b.raw, s.seed, at)
	b.packed = snappy.Encode(b.packed[:cap(b.packed)], b.raw)

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+s.f.opts.Server+"/api/v1/push", bytes.NewReader(b.packed))
	if err != nil {
		panic(err) // a constant method and an address that was parsed
	}
	req.Header = http.Header{"Content-Type": {remotewrite.ContentTypeV2}, "Content-Encoding": {"snappy"}, "User-Agent": {"muster-loadtest"},
		"X-Prometheus-Remote-Write-Version": {"2.0.0"}}
	began := time.Now()
	resp, err := s.client.Do(req)
	took := time.Since(began)
	tally := s.f.Tally()
	if err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			tally.fail(func(c *Counts) { c.Timeouts++ }, "push: "+err.Error(), took)
		} else if ctx.Err() == nil {
			tally.fail(func(c *Counts) { c.Failed++ }, "push: "+err.Error(), 0)
		}
		return true, 0 // the buffer may still be read
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
	_ = resp.Body.Close()
	switch code := resp.StatusCode; {
	case code/100 == 2:
		tally.push(samples, len(b.packed), took)
		s.f.buffers.Put(b)
		return false, 0
	case code == http.StatusTooManyRequests:
		tally.fail(func(c *Counts) { c.TooMany++ }, answer(resp, text), 0)
	case code >= 500:
		tally.fail(func(c *Counts) { c.Unavailable++ }, answer(resp, text), 0)
	default:
		tally.fail(func(c *Counts) { c.Refused++ }, answer(resp, text), took)
		return false, 0
	}
	after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return true, time.Duration(after) * time.Second
}

func answer(resp *http.Response, text []byte) string {
	return fmt.Sprintf("push: %s: %s", resp.Status, bytes.TrimSpace(text))
}
