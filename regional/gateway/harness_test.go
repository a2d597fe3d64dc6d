package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/spool"
	"muster.dev/muster/internal/testkit/testca"
	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional"
	"muster.dev/muster/regional/engine"
)

var (
	paris  = fleet.SiteID{Tenant: "acme", Name: "paris"}
	berlin = fleet.SiteID{Tenant: "acme", Name: "berlin"}
	tokyo  = fleet.SiteID{Tenant: "umbrella", Name: "tokyo"}
)

// authority is a CA for tests.
type authority struct{ *testca.CA }

func newAuthority(t testing.TB) *authority { return &authority{testca.New(t)} }

func (a *authority) site(t testing.TB, id fleet.SiteID, region string, change ...func(*x509.Certificate)) *tls.Certificate {
	return a.Site(t, id, region, change...)
}

func (a *authority) regional(t testing.TB, name string) *tls.Certificate { return a.Regional(t, name) }

// upstream is a relay without a control behind it: it records.
type upstream struct {
	mu       sync.Mutex
	sessions map[fleet.SiteID]regional.Session
	hellos   map[fleet.SiteID]*wire.Hello // the newest
	reports  map[fleet.SiteID]*wire.Report
	downs    map[fleet.SiteID]int
	denied   map[fleet.SiteID]string
	desired  map[fleet.SiteID]*wire.DesiredState
	blobs    map[string][]byte
	joined   []*wire.RelayedRegister
	refusal  error // of registrations
	renewed  []*wire.RelayedRenew
	mirrors  map[fleet.SiteID]mirror.Cursor
}

func (u *upstream) Register(_ context.Context, r *wire.RelayedRegister) (*wire.RegisterResponse, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.refusal != nil {
		return nil, u.refusal
	}
	u.joined = append(u.joined, r)
	return &wire.RegisterResponse{Message: "pending"}, nil
}

// refuse lets registrations fail from now on.
func (u *upstream) refuse(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refusal = err
}

func (u *upstream) Renew(_ context.Context, r *wire.RelayedRenew) (*wire.Issued, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.renewed = append(u.renewed, r)
	return &wire.Issued{}, nil
}

func (u *upstream) SiteUp(id fleet.SiteID, hello *wire.Hello, s regional.Session) {
	u.mu.Lock()
	if u.sessions == nil {
		u.sessions, u.hellos = map[fleet.SiteID]regional.Session{}, map[fleet.SiteID]*wire.Hello{}
	}
	u.hellos[id] = hello
	u.sessions[id] = s
	d := u.desired[id]
	u.mu.Unlock()
	if d != nil {
		s.Desired(d)
	}
}

func (u *upstream) SiteDown(id fleet.SiteID, s regional.Session, _ time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.downs == nil {
		u.downs = map[fleet.SiteID]int{}
	}
	u.downs[id]++
	if u.sessions[id] == s {
		delete(u.sessions, id)
	}
}

func (u *upstream) Report(id fleet.SiteID, r *wire.Report) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.reports == nil {
		u.reports = map[fleet.SiteID]*wire.Report{}
	}
	u.reports[id] = r
}

func (u *upstream) report(id fleet.SiteID) *wire.Report {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.reports[id]
}

func (u *upstream) helloOf(id fleet.SiteID) *wire.Hello {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.hellos[id]
}

func (u *upstream) session(id fleet.SiteID) regional.Session {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sessions[id]
}

func (u *upstream) Alive(fleet.SiteID, time.Time) {}

func (u *upstream) KubernetesVersion(id fleet.SiteID) (string, uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := u.mirrors[id]
	return c.Version()
}

func (u *upstream) Kubernetes(id fleet.SiteID, s regional.Session, st *wire.KubernetesStatus) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mirrors == nil {
		u.mirrors = map[fleet.SiteID]mirror.Cursor{}
	}
	c := u.mirrors[id]
	if ok, _ := c.Take(st); !ok {
		s.Resync()
	}
	u.mirrors[id] = c
}

func (u *upstream) Tunnel(ctx context.Context, id fleet.SiteID, name string, stream tunnel.Stream) error {
	if name == "nobody-reads" {
		<-ctx.Done()
		return nil
	}
	if name != "tunnel-of-"+id.Name {
		return regional.ErrUnknownTunnel
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
}

func (u *upstream) Blob(_ context.Context, id fleet.SiteID, digest string, off int64, send func([]byte) error) error {
	u.mu.Lock()
	b, ok := u.blobs[digest]
	d := u.desired[id]
	u.mu.Unlock()
	for _, it := range d.GetItems() {
		if ok && it.Digest == digest {
			return send(b[off:])
		}
	}
	return regional.ErrUnknownBlob
}

func (u *upstream) Denied(id fleet.SiteID, _ *x509.Certificate) (string, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	why, ok := u.denied[id]
	return why, ok
}

// harness is a gateway over TLS with a real engine and a real spool.
type harness struct {
	t      testing.TB
	ca     *authority
	g      *Gateway
	edge   *engine.Engine
	series *HeadSeries
	fwd    *spool.Spool
	up     *upstream
}

type harnessOptions struct {
	limits       Limits
	tenantSeries int
	forward      int64 // bytes of the forward queue
	change       func(*Options)
}

func newHarness(t testing.TB, o harnessOptions) *harness {
	t.Helper()
	h := &harness{t: t, ca: newAuthority(t), up: &upstream{}}
	fwd, err := spool.Open(spool.Options{Dir: t.TempDir(), MaxBytes: o.forward, OnFull: spool.RefuseNew})
	if err != nil {
		t.Fatal(err)
	}
	h.fwd = fwd
	put := func(tenant string, series []remotewrite.Series) (func() error, error) {
		_, durable, err := fwd.Put(remotewrite.Encode(tenant, 0, series))
		return durable, err
	}
	forward := func(tenant string, series []remotewrite.Series) error {
		_, err := fwd.Append(remotewrite.Encode(tenant, 0, series))
		return err
	}
	h.series = NewHeadSeries(func(string) int { return o.tenantSeries })
	h.series.Enforce()
	h.edge, err = engine.New(engine.Options{Name: engine.Edge, Dir: t.TempDir(), OutOfOrderWindow: 48 * time.Hour, Forward: forward, SeriesLifecycle: h.series, MaxExemplars: 1000})
	if err != nil {
		t.Fatal(err)
	}
	cert, pool := h.ca.regional(t, "one"), h.ca.Pool()
	opts := Options{
		Name: "one", Region: "eu", Listen: "127.0.0.1:0",
		TLS: &tls.Config{Certificates: []tls.Certificate{*cert}}, Trust: func() *x509.CertPool { return pool },
		Edge: h.edge.Storage(), Series: h.series, Self: h.edge.Appendable(), Forward: put, Upstream: h.up,
		ForwardRaw: func(site fleet.SiteID, raw remotewrite.Raw) (func() error, error) {
			_, durable, err := fwd.Put(remotewrite.AppendRaw(nil, site.Tenant, 0, raw))
			return durable, err
		},
		Limits: func(fleet.SiteID) Limits { return o.limits },
	}
	if o.change != nil {
		o.change(&opts)
	}
	if h.g, err = New(opts); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.g.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := h.edge.Close(); err != nil {
			t.Error(err)
		}
		if err := fwd.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *harness) tls(cert *tls.Certificate) *tls.Config {
	c := &tls.Config{RootCAs: h.ca.Pool(), MinVersion: tls.VersionTLS13}
	if cert != nil {
		// Sent whatever the server says it accepts, as an attacker would.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return c
}

func (h *harness) client(cert *tls.Certificate) *http.Client {
	tr := &http.Transport{TLSClientConfig: h.tls(cert), ForceAttemptHTTP2: true}
	h.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

func (h *harness) url() string { return "https://" + h.g.Addr().String() + "/api/v1/push" }

// push sends a body and returns the status, the text and the headers.
func (h *harness) push(c *http.Client, contentType string, body []byte, header ...string) (int, string, http.Header) {
	h.t.Helper()
	req, err := http.NewRequest(http.MethodPost, h.url(), bytes.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Content-Encoding", "snappy")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), resp.Header
}

func (h *harness) pushSeries(c *http.Client, series ...remotewrite.Series) (int, string, http.Header) {
	h.t.Helper()
	return h.push(c, remotewrite.ContentTypeV2, remotewrite.EncodeV2(series))
}

func sample(at time.Time, v float64, kv ...string) remotewrite.Series {
	return remotewrite.Series{Labels: labels.FromStrings(kv...), Samples: []remotewrite.Sample{{T: at.UnixMilli(), V: v}}}
}

// query returns the labels and values of an instant query, as strings.
func (h *harness) query(q string) []string {
	h.t.Helper()
	vec, err := h.edge.Query(context.Background(), q, time.Now().Add(time.Second))
	if err != nil {
		h.t.Fatal(err)
	}
	out := []string{}
	for _, s := range vec {
		out = append(out, s.Metric.String())
	}
	return out
}

// forwarded takes everything out of the forward queue: tenant → labels.
func (h *harness) forwarded() map[string][]string {
	h.t.Helper()
	out := map[string][]string{}
	for n := h.fwd.Stats().Pending - uint64(h.fwd.Stats().InFlight); n > 0; n-- {
		rec, err := h.fwd.Next(context.Background())
		if err != nil {
			h.t.Fatal(err)
		}
		key, series, err := remotewrite.Decode(rec.Data)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, s := range series {
			out[key] = append(out[key], s.Labels.String())
		}
	}
	return out
}

func (h *harness) grpc(cert *tls.Certificate) *grpc.ClientConn {
	h.t.Helper()
	cc, err := grpc.NewClient(h.g.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(h.tls(cert))))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// clock is a clock that tests move.
type clock struct{ t atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.t.Store(time.Now().UnixNano())
	return c
}

func (c *clock) now() time.Time                    { return time.Unix(0, c.t.Load()) }
func (c *clock) add(d time.Duration) (t time.Time) { return time.Unix(0, c.t.Add(int64(d))) }
