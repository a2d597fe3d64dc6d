package fleetload

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/software"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/testca"
	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
	"muster.dev/muster/loadtest/simcluster"
	"muster.dev/muster/regional"
	"muster.dev/muster/regional/engine"
	"muster.dev/muster/regional/gateway"
)

// control is what a gateway needs of the rest: it signs what sites ask for, and hands
// every site one policy.
type control struct {
	t  *testing.T
	ca *testca.CA

	mu       sync.Mutex
	asked    map[string]int // site → registrations
	sessions map[fleet.SiteID]regional.Session
	reports  map[fleet.SiteID]*wire.Report
	clusters map[fleet.SiteID]*mirror.Mirror
	policy   []byte
	web      []byte // a Deployment; nil: none
	agent    []byte // what the agent shall be; nil: nothing
	fetched  int
}

const webItem = "Deployment.apps/acme-shop/web"

func newControl(t *testing.T) *control {
	return &control{t: t, ca: testca.New(t), asked: map[string]int{}, sessions: map[fleet.SiteID]regional.Session{}, reports: map[fleet.SiteID]*wire.Report{}, clusters: map[fleet.SiteID]*mirror.Mirror{}, policy: []byte("first")}
}

func (c *control) Register(_ context.Context, r *wire.RelayedRegister) (*wire.RegisterResponse, error) {
	name := r.Request.GetSite()
	c.mu.Lock()
	c.asked[name]++
	again := c.asked[name] > 1
	c.mu.Unlock()
	if name == "load-00003" && !again {
		return nil, status.Error(codes.Unavailable, "later")
	}
	if r.Request.GetToken() != "the token" {
		return nil, status.Error(codes.PermissionDenied, "no such token")
	}
	csr, err := x509.ParseCertificateRequest(r.Request.GetCsr())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	id := fleet.SiteID{Tenant: "acme", Name: name}
	der := c.ca.Sign(c.t, csr.PublicKey, func(x *x509.Certificate) {
		x.URIs = []*url.URL{identity.SiteURI(identity.DefaultTrustDomain, id)}
		x.Subject = pkix.Name{CommonName: name, Organization: []string{"acme"}, Locality: []string{"eu"}}
	})
	block := func(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}) }
	return &wire.RegisterResponse{Tenant: "acme", Site: name, Issued: &wire.Issued{CertificatePem: block(der.Raw), TrustBundlePem: block(c.ca.Cert.Raw)}}, nil
}

func (c *control) Renew(context.Context, *wire.RelayedRenew) (*wire.Issued, error) {
	return nil, status.Error(codes.Unimplemented, "")
}

func (c *control) desired() *wire.DesiredState {
	items := []*wire.Item{{Kind: fleet.KindCollectionPolicy, Name: "effective", Digest: wire.DigestOf(c.policy), Size: int64(len(c.policy))}}
	if c.web != nil {
		items = append(items, &wire.Item{Kind: workload.Kind, Name: webItem, Digest: wire.DigestOf(c.web), Size: int64(len(c.web))})
	}
	if c.agent != nil {
		items = append(items, &wire.Item{Kind: software.Kind, Name: "agent", Digest: wire.DigestOf(c.agent), Size: int64(len(c.agent))})
	}
	return &wire.DesiredState{Revision: wire.RevisionOf(items), Items: items}
}

func (c *control) SiteUp(id fleet.SiteID, _ *wire.Hello, s regional.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[id] = s
	s.Desired(c.desired())
}

func (c *control) SiteDown(id fleet.SiteID, s regional.Session, _ time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions[id] == s {
		delete(c.sessions, id)
	}
}

func (c *control) Report(id fleet.SiteID, r *wire.Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports[id] = r
}

func (c *control) Alive(fleet.SiteID, time.Time) {}

func (c *control) KubernetesVersion(id fleet.SiteID) (string, uint64) {
	return c.cluster(id).Version()
}

func (c *control) Kubernetes(id fleet.SiteID, s regional.Session, st *wire.KubernetesStatus) {
	if !c.cluster(id).Apply(st) {
		s.Resync()
	}
}

func (c *control) cluster(id fleet.SiteID) *mirror.Mirror {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clusters[id] == nil {
		c.clusters[id] = mirror.New(mirror.DefaultLimits, nil)
	}
	return c.clusters[id]
}

func (c *control) Tunnel(context.Context, fleet.SiteID, string, tunnel.Stream) error {
	return regional.ErrUnknownTunnel
}

func (c *control) Blob(_ context.Context, _ fleet.SiteID, digest string, off int64, send func([]byte) error) error {
	c.mu.Lock()
	b := c.policy
	if c.web != nil && digest == wire.DigestOf(c.web) {
		b = c.web
	}
	if c.agent != nil && digest == wire.DigestOf(c.agent) {
		b = c.agent
	}
	c.fetched++
	c.mu.Unlock()
	if digest != wire.DigestOf(b) {
		return regional.ErrUnknownBlob
	}
	return send(b[off:])
}

func (c *control) Denied(fleet.SiteID, *x509.Certificate) (string, bool) { return "", false }

// tell gives all sites another policy, and a Deployment unless it is nil.
func (c *control) tell(policy string, web []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.policy, c.web = []byte(policy), web
	for _, s := range c.sessions {
		s.Desired(c.desired())
	}
}

// reporting is how many sites say that they have the present policy.
func (c *control) reporting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, r := range c.reports {
		if r.GetPolicyHash() == wire.DigestOf(c.policy) && r.GetAppliedRevision() == c.desired().Revision {
			n++
		}
	}
	return n
}

// startGateway runs a real gateway with a real engine until the test ends, or stop.
func startGateway(t *testing.T, c *control, listen string) (addr string, e *engine.Engine, stop func()) {
	t.Helper()
	series := gateway.NewHeadSeries(func(string) int { return 0 })
	series.Enforce()
	forward := func(string, []remotewrite.Series) (func() error, error) { return nil, nil }
	e, err := engine.New(engine.Options{Name: engine.Edge, Dir: t.TempDir(), OutOfOrderWindow: time.Hour, SeriesLifecycle: series})
	if err != nil {
		t.Fatal(err)
	}
	pair := c.ca.Regional(c.t, "one")
	pair.Certificate = append(pair.Certificate, c.ca.Cert.Raw)
	pool := c.ca.Pool()
	g, err := gateway.New(gateway.Options{
		Name: "one", Region: "eu", Listen: listen, TLS: &tls.Config{Certificates: []tls.Certificate{*pair}},
		Trust: func() *x509.CertPool { return pool }, Edge: e.Storage(), Series: series, Forward: forward, Upstream: c, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := g.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return g.Addr().String(), e, stop
}

func TestFleetAgainstARealGateway(t *testing.T) {
	const sites, series = 20, 110
	c := newControl(t)
	addr, e, stop := startGateway(t, c, "127.0.0.1:0")
	f, err := New(Options{Sites: sites, Series: series, Pushes: 3, Interval: 500 * time.Millisecond, MinBackoff: 20 * time.Millisecond, MaxBackoff: 200 * time.Millisecond, Timeout: 2 * time.Second,
		Server: addr, CAHash: identity.CAHash(c.ca.Cert), Token: "the token"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer func() {
		cancel()
		f.Wait()
	}()
	if err := f.Register(ctx, 8); err != nil {
		t.Fatal(err)
	}
	if n := f.Registered(); n != sites {
		t.Fatalf("%d sites have a certificate", n)
	}
	f.Connect(ctx)
	f.Push(ctx)
	testkit.EventuallyTrue(t, "all streams, policies and pushes", func() bool {
		return f.Connected() == sites && f.Fresh(time.Second) == sites && f.Policies()[wire.DigestOf([]byte("first"))] == sites && c.reporting() == sites
	})
	count := func(query string) float64 {
		t.Helper()
		v, err := e.Query(ctx, query, time.Now())
		if err != nil || len(v) != 1 {
			t.Fatalf("%s: %v, %v", query, v, err)
		}
		return v[0].F
	}
	if n := count(`count(count by (site) ({__name__=~".+", tenant="acme"}))`); n != sites {
		t.Errorf("series of %g sites, want %d", n, sites)
	}
	if n := count(`min(count by (site) ({__name__=~".+", site=~"load-.*"}))`); n < series {
		t.Errorf("a site has %g series, want %d at least", n, series)
	}
	if k := f.Tally().Counts(); k.Pushes < 3*sites || k.Samples < series*sites || k.Refused > 0 || k.P99 <= 0 {
		t.Errorf("counts: %+v", k)
	}

	c.tell("second", []byte(`{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"web","image":"nginx:1.29"}]}}}}`))
	testkit.EventuallyTrue(t, "all sites to hold and report the second policy", func() bool { return f.Policies()[wire.DigestOf([]byte("second"))] == sites && c.reporting() == sites })
	mirrored := func(objects int) func() bool {
		return func() bool {
			for i := range sites {
				if c.cluster(fleet.SiteID{Tenant: "acme", Name: fmt.Sprintf("load-%05d", i)}).Stats().Objects != objects {
					return false
				}
			}
			return true
		}
	}
	testkit.EventuallyTrue(t, "three pods and a status of each site", mirrored(4+simcluster.Nodes))
	if n := f.Digests(webItem)[wire.DigestOf(c.web)]; n != sites {
		t.Errorf("%d sites hold it", n)
	}
	c.tell("second", nil)
	testkit.EventuallyTrue(t, "nothing runs any more", mirrored(simcluster.Nodes))

	cut := f.Cut(2)
	if len(cut) != 2 || cut[0] == cut[1] {
		t.Fatalf("cut %q", cut)
	}
	testkit.EventuallyTrue(t, "two sites to fall behind", func() bool { return f.Fresh(time.Second) == sites-2 })
	f.Restore()
	testkit.EventuallyTrue(t, "them to catch up", func() bool { return f.Connected() == sites && f.Fresh(time.Second) == sites })

	// A gateway that is gone for a while costs no samples: they come when it is back.
	before := f.Begin().Counts()
	stop()
	if before.Refused > 0 {
		t.Errorf("refused: %+v", before)
	}
	testkit.EventuallyTrue(t, "all streams to break", func() bool { return f.Connected() == 0 })
	testkit.EventuallyTrue(t, "pushes to fail", func() bool { return f.Tally().Counts().Failed > sites })
	_, e, _ = startGateway(t, c, addr)
	testkit.EventuallyTrue(t, "all to be back", func() bool { return f.Connected() == sites && f.Fresh(time.Second) == sites })
	if n := count(`count(count by (site) ({__name__=~".+", tenant="acme"}))`); n != sites {
		t.Errorf("after the restart: series of %g sites, want %d", n, sites)
	}
	if k := f.Tally().Counts(); k.Reconnects < sites || k.Refused > 0 {
		t.Errorf("counts of the restart: %+v", k)
	}
}

// TestAgentsOfTheFleet: simulated agents become what control wants, but for the bad ones,
// start anew for it, and become again what they were.
func TestAgentsOfTheFleet(t *testing.T) {
	const sites = 20
	c := newControl(t)
	addr, _, _ := startGateway(t, c, "127.0.0.1:0")
	f, stop, err := Join(t.Context(), Options{Sites: sites, Series: 10, MinBackoff: 20 * time.Millisecond, MaxBackoff: 200 * time.Millisecond, SoftwareStep: 50 * time.Millisecond, SoftwareBad: 0.2,
		Server: addr, CAHash: identity.CAHash(c.ca.Cert), Token: "the token"}, 8)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	bad := f.count((*site).bad)
	if bad == 0 || bad > sites/2 {
		t.Fatalf("%d of %d sites are bad", bad, sites)
	}
	want := func(version string, says map[string]int) {
		t.Helper()
		w := &software.Wanted{Component: "agent", Version: version, Files: []software.File{{Architecture: "any", Target: "agent/x", Digest: wire.DigestOf([]byte(version)), Size: 1}}}
		c.mu.Lock()
		c.agent = w.Encode()
		c.mu.Unlock()
		c.tell("first", nil)
		testkit.Eventually(t, "agents "+version, func() error {
			told := map[string]int{}
			c.mu.Lock()
			for _, r := range c.reports {
				for _, x := range r.GetSoftware() {
					if x.GetDigest() == wire.DigestOf(c.agent) && r.GetVersions()["agent"] == x.GetRunning() {
						told[x.GetState()+" "+x.GetRunning()]++
					}
				}
			}
			c.mu.Unlock()
			if fmt.Sprint(told) != fmt.Sprint(says) || fmt.Sprint(f.Software()) != fmt.Sprint(says) {
				return fmt.Errorf("told %v, are %v, want %v", told, f.Software(), says)
			}
			return nil
		})
	}
	want("", map[string]int{"Done 1.0.0": sites})
	want("2.0.0", map[string]int{"Done 2.0.0": sites - bad, "Failed 1.0.0": bad})
	want("", map[string]int{"Done 1.0.0": sites})
}

func TestRegisterRefused(t *testing.T) {
	c := newControl(t)
	addr, _, _ := startGateway(t, c, "127.0.0.1:0")
	f, err := New(Options{Sites: 2, Series: 10, Server: addr, CAHash: identity.CAHash(c.ca.Cert), Token: "another"})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Register(t.Context(), 1); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a wrong token: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Sites: 0, Series: 1}, {Sites: 1}, {Sites: 1, Series: 2, Pushes: 3}, {Sites: 1, Series: 2, Churn: 2}, {Sites: 1, Series: 2, SoftwareBad: 2}, {Sites: 1, Series: 1, Server: "no port"}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestAddressesDiffer(t *testing.T) {
	seen := map[string]int{}
	for i := range 200_000 {
		a := address(i).String()
		if j, dup := seen[a]; dup {
			t.Fatalf("sites %d and %d both dial from %s", j, i, a)
		}
		seen[a] = i
	}
}
