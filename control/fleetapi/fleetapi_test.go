package fleetapi

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

func acme(name string) fleet.SiteID { return fleet.SiteID{Tenant: "acme", Name: name} }

// world is a control with regionals over real mutual TLS, on a fake API server.
type world struct {
	t      *testing.T
	client client.Client
	ca     *pki.CA
	store  *desired.Store
	book   sync.Mutex // of fleet
	fleet  *inventory.Book
	server *Server
	addr   string
	writes atomic.Int64 // status patches

	mu   sync.Mutex
	fail error // of the next status patches
	clk  time.Duration
	seen int // peers that have shown that they are regionals
}

type registrar struct{}

func (registrar) Register(_ context.Context, req *wire.RegisterRequest, addr string) (*wire.RegisterResponse, error) {
	return &wire.RegisterResponse{Site: req.GetSite(), Message: addr}, nil
}

func (registrar) Renew(_ context.Context, id fleet.SiteID, csr []byte) (*wire.Issued, error) {
	return &wire.Issued{CertificatePem: []byte(id.String() + string(csr))}, nil
}

func newWorld(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t}
	w.client = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Site{}).Build(), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			w.writes.Add(1)
			w.mu.Lock()
			err := w.fail
			w.mu.Unlock()
			if err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	var err error
	if w.ca, err = pki.Open(pki.Options{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	w.fleet = inventory.NewBook("acme")
	w.store = desired.New(desired.Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	o := Options{
		Registrar: registrar{}, Desired: w.store, Client: w.client, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		RevocationsFile: filepath.Join(t.TempDir(), "revoked.json"), Now: w.now, WritesPerSecond: 10000,
	}
	for _, c := range change {
		c(&o)
	}
	if w.server, err = New(o); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := w.ca.EnsureControl(dir, []string{"127.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	files, err := identity.LoadFiles(filepath.Join(dir, pki.PairFile), filepath.Join(dir, pki.TrustFile))
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = lis.Addr().String()
	g := w.server.NewGRPC(files, w.known)
	go func() { _ = g.Serve(lis) }()
	t.Cleanup(g.Stop)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.server.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *world) known(string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen++
}

// now is the real clock and what the test added.
func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.clk)
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	w.clk += d
	w.mu.Unlock()
	w.server.sweep()
}

func (w *world) started() *world {
	w.store.Start()
	w.server.Synced()
	return w
}

// site makes a Site, as registration and the watch would.
func (w *world) site(name string, change ...func(*v1alpha1.Site)) fleet.SiteID {
	w.t.Helper()
	s := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: name}, Spec: v1alpha1.SiteSpec{Approved: true}}
	for _, c := range change {
		c(s)
	}
	st := s.Status
	if err := w.client.Create(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
	s.Status = st
	if err := w.client.Status().Update(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
	w.know(s)
	w.server.SetSite(acme(name), s)
	return acme(name)
}

// know tells the store of objects, as the inventory would.
func (w *world) know(objs ...client.Object) {
	w.book.Lock()
	defer w.book.Unlock()
	w.store.Apply(w.fleet.Put(objs...).Snapshot())
}

func policyOf(names ...string) *v1alpha1.CollectionPolicy {
	return &v1alpha1.CollectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "p"}, Spec: v1alpha1.CollectionPolicySpec{Allow: v1alpha1.MetricAllow{Names: names}}}
}

func (w *world) get(name string) *v1alpha1.Site {
	w.t.Helper()
	var s v1alpha1.Site
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: "acme-system", Name: name}, &s); err != nil {
		w.t.Fatal(err)
	}
	return &s
}

// change edits a Site as a person would.
func (w *world) change(name string, fn func(*v1alpha1.Site)) {
	w.t.Helper()
	for range 20 {
		s := w.get(name)
		fn(s)
		if err := w.client.Update(w.t.Context(), s); err == nil {
			w.server.SetSite(acme(name), s)
			return
		}
	}
	w.t.Fatalf("can't change site %s", name)
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	testkit.EventuallyTrue(w.t, what, ok)
}

func (w *world) dial(cfg *tls.Config) wire.ControlClient {
	w.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+w.addr, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return wire.NewControlClient(conn)
}

func (w *world) regionalClient(name string) wire.ControlClient {
	w.t.Helper()
	dir := w.t.TempDir()
	if _, err := w.ca.EnsureRegional(dir, name, nil); err != nil {
		w.t.Fatal(err)
	}
	files, err := identity.LoadFiles(filepath.Join(dir, pki.PairFile), filepath.Join(dir, pki.TrustFile))
	if err != nil {
		w.t.Fatal(err)
	}
	return w.dial(files.ClientConfig("127.0.0.1", identity.IsControl))
}

// regional is one regional's stream.
type regional struct {
	w      *world
	stream grpc.BidiStreamingClient[wire.RelayUp, wire.RelayDown]
	cancel context.CancelFunc

	mu              sync.Mutex
	desired         map[fleet.SiteID]*wire.DesiredState
	pushes          map[fleet.SiteID]int
	revoked         map[fleet.SiteID]*wire.SiteRevoked
	regionalDesired int // RegionalDesired messages
	together        int // SitesDesired and SitesChange messages
	desiredBytes    int // of all messages that say what sites should hold
	resyncs         map[fleet.SiteID]int
	tunnels         []string
	err             error
}

func (w *world) regional(name string) *regional { return w.regionalThat(name, 1) }

// regionalThat is a regional that speaks a capability.
func (w *world) regionalThat(name string, capability uint32) *regional {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	stream, err := w.regionalClient(name).Relay(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	r := &regional{w: w, stream: stream, cancel: cancel, desired: map[fleet.SiteID]*wire.DesiredState{}, pushes: map[fleet.SiteID]int{}, revoked: map[fleet.SiteID]*wire.SiteRevoked{}, resyncs: map[fleet.SiteID]int{}}
	r.send(&wire.RelayUp{Msg: &wire.RelayUp_Hello{Hello: &wire.RelayHello{Capability: capability, Regional: name, Version: "v"}}})
	go func() {
		for {
			m, err := stream.Recv()
			r.mu.Lock()
			if err != nil {
				r.err = err
				r.mu.Unlock()
				return
			}
			if d := m.GetDesired(); d != nil {
				r.desired[idOf(d)] = d.Desired
				r.pushes[idOf(d)]++
			}
			if d := m.GetSitesDesired(); d != nil {
				r.together++
				for _, s := range d.Sites {
					r.desired[idOf(s)] = d.Desired
					r.pushes[idOf(s)]++
				}
			}
			if d := m.GetSitesChange(); d != nil {
				r.together++
				for _, s := range d.Sites {
					now, err := wire.Changed(r.desired[idOf(s)], d.Change)
					if err != nil {
						r.err = err
						break
					}
					r.desired[idOf(s)] = now
					r.pushes[idOf(s)]++
				}
			}
			if m.GetDesired() != nil || m.GetSitesDesired() != nil || m.GetSitesChange() != nil {
				r.desiredBytes += proto.Size(m)
			}
			if m.GetRegional() != nil {
				r.regionalDesired++
			}
			if v := m.GetKubernetesResync(); v != nil {
				r.resyncs[idOf(v)]++
			}
			if v := m.GetOpenTunnel(); v != nil {
				r.tunnels = append(r.tunnels, v.Id)
			}
			if v := m.GetRevoked(); v != nil {
				r.revoked[idOf(v)] = v
			}
			r.mu.Unlock()
		}
	}()
	return r
}

func (r *regional) send(m *wire.RelayUp) {
	r.w.t.Helper()
	if err := r.stream.Send(m); err != nil {
		r.w.t.Fatal(err)
	}
}

func (r *regional) up(id fleet.SiteID, labels map[string]string) {
	r.w.t.Helper()
	r.send(&wire.RelayUp{Msg: &wire.RelayUp_Up{Up: &wire.SiteUp{Tenant: id.Tenant, Site: id.Name, Hello: &wire.Hello{AgentVersion: "v9", SystemLabels: labels}}}})
}

func (r *regional) down(id fleet.SiteID) {
	r.w.t.Helper()
	r.send(&wire.RelayUp{Msg: &wire.RelayUp_Down{Down: &wire.SiteDown{Tenant: id.Tenant, Site: id.Name, LastSeen: timestamppb.Now()}}})
}

func (r *regional) report(id fleet.SiteID, rep *wire.Report) {
	r.w.t.Helper()
	r.send(&wire.RelayUp{Msg: &wire.RelayUp_Report{Report: &wire.SiteReport{Tenant: id.Tenant, Site: id.Name, Report: rep}}})
}

func (r *regional) revokedOf(id fleet.SiteID) *wire.SiteRevoked {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.revoked[id]
}

func (r *regional) desiredOf(id fleet.SiteID) *wire.DesiredState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.desired[id]
}

func (r *regional) pushesOf(id fleet.SiteID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pushes[id]
}

func (w *world) phase(name string, want fleet.Phase) {
	w.t.Helper()
	w.eventually(name+" is "+string(want), func() bool { return w.get(name).Status.Phase == want })
}

// unowned waits until no regional has the site.
func (w *world) unowned(id fleet.SiteID) {
	w.t.Helper()
	w.eventually(id.String()+" is on no stream", func() bool {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		return w.server.sites[id].owner == nil
	})
}

// phaseNow is what the server thinks, before it is written.
func (w *world) phaseNow(id fleet.SiteID) fleet.Phase {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	return w.server.sites[id].phaseLocked()
}

func condition(s *v1alpha1.Site, typ string) *metav1.Condition {
	for i := range s.Status.Conditions {
		if s.Status.Conditions[i].Type == typ {
			return &s.Status.Conditions[i]
		}
	}
	return nil
}

func TestOnlyRegionalsMayCall(t *testing.T) {
	w := newWorld(t).started()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	site, err := w.ca.IssueSite(key.Public(), acme("paris"), "")
	if err != nil {
		t.Fatal(err)
	}
	pool := identity.PoolOf(w.ca.Bundle())
	asSite := identityConfig(&tls.Certificate{Certificate: [][]byte{site.Leaf.Raw}, PrivateKey: key}, w)
	nobody := &tls.Config{RootCAs: pool}
	other, err := pki.Open(pki.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.IssueRegional(key.Public(), "eu-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	asForeign := identityConfig(&tls.Certificate{Certificate: [][]byte{foreign.Leaf.Raw}, PrivateKey: key}, w)
	for name, cfg := range map[string]*tls.Config{"a site": asSite, "nobody": nobody, "another fleet's regional": asForeign} {
		c := w.dial(cfg)
		_, err1 := c.Register(t.Context(), &wire.RelayedRegister{})
		_, err2 := c.Renew(t.Context(), &wire.RelayedRenew{})
		s3, err3 := c.FetchBlob(t.Context(), &wire.FetchBlobRequest{})
		if err3 == nil {
			_, err3 = s3.Recv()
		}
		s4, err4 := c.Relay(t.Context())
		if err4 == nil {
			_, err4 = s4.Recv()
		}
		for i, err := range []error{err1, err2, err3, err4} {
			if code := status.Code(err); code != codes.PermissionDenied && code != codes.Unavailable {
				t.Errorf("%s, call %d: %v", name, i+1, err)
			}
		}
	}
	w.mu.Lock()
	if w.seen != 0 {
		t.Errorf("%d of them pass for regionals", w.seen)
	}
	w.mu.Unlock()
	resp, err := w.regionalClient("eu-1").Register(t.Context(), &wire.RelayedRegister{Request: &wire.RegisterRequest{Site: "x"}, RemoteAddr: "1.2.3.4:5"})
	if err != nil || resp.Site != "x" || resp.Message != "1.2.3.4:5" {
		t.Errorf("%v, %v", resp, err)
	}
	w.mu.Lock()
	if w.seen != 1 {
		t.Errorf("a regional is seen %d times", w.seen)
	}
	w.mu.Unlock()
	issued, err := w.regionalClient("eu-1").Renew(t.Context(), &wire.RelayedRenew{Tenant: "acme", Site: "x", Csr: []byte("!")})
	if err != nil || string(issued.CertificatePem) != "acme/x!" {
		t.Errorf("%v, %v", issued, err)
	}
}

// siteClient calls with the certificate of a site.
func (w *world) siteClient() wire.ControlClient {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	site, err := w.ca.IssueSite(key.Public(), acme("paris"), "")
	if err != nil {
		w.t.Fatal(err)
	}
	return w.dial(identityConfig(&tls.Certificate{Certificate: [][]byte{site.Leaf.Raw}, PrivateKey: key}, w))
}

func identityConfig(cert *tls.Certificate, w *world) *tls.Config {
	return &tls.Config{RootCAs: identity.PoolOf(w.ca.Bundle()), Certificates: []tls.Certificate{*cert}}
}

func TestNothingIsServedBeforeEverythingIsKnown(t *testing.T) {
	w := newWorld(t)
	r := w.regional("eu-1")
	w.eventually("the stream is refused", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return status.Code(r.err) == codes.Unavailable
	})
	w.started()
	r = w.regional("eu-1")
	id := w.site("paris")
	r.up(id, nil)
	w.eventually("served", func() bool { return r.desiredOf(id) != nil })
}

func TestDesiredStateGoesDownAndTransitionsGoUp(t *testing.T) {
	w := newWorld(t).started()
	id := w.site("paris", func(s *v1alpha1.Site) { s.Labels = map[string]string{"region": "eu", "muster.dev/system-old": "x"} })
	w.phase("paris", fleet.PhaseApproved)
	r := w.regional("eu-1")
	r.up(id, map[string]string{"arch": "arm64", "bad key": "x"})
	w.phase("paris", fleet.PhaseOnline)
	w.eventually("the desired state", func() bool { return r.desiredOf(id) != nil })
	w.eventually("labels and status", func() bool {
		s := w.get("paris")
		_, old := s.Labels["muster.dev/system-old"]
		return s.Labels["muster.dev/system-arch"] == "arm64" && !old && s.Labels["region"] == "eu" && s.Status.Regional == "eu-1" && s.Status.Versions["agent"] == "v9" && s.Status.LastSeen != nil
	})
	w.know(policyOf("up"))
	w.eventually("the change is pushed", func() bool { return r.desiredOf(id).GetRevision() == w.store.State(id).Revision && r.pushesOf(id) == 2 })

	rep := &wire.Report{AppliedRevision: w.store.State(id).Revision, PolicyHash: w.store.PolicyHash(id), Versions: map[string]string{"agent": "v9", "os": "Debian 13"},
		Conditions: []*wire.Condition{{Type: "CollectionPolicyApplied", Status: "True", Reason: "Applied"}, {Type: "Temporary", Status: "True"}}}
	r.report(id, rep)
	w.eventually("the report is in the status", func() bool {
		s := w.get("paris").Status
		return s.AppliedRevision == rep.AppliedRevision && s.PolicyHash == rep.PolicyHash && s.Versions["os"] == "Debian 13" && len(s.Conditions) == 3
	})
	since := condition(w.get("paris"), "CollectionPolicyApplied").LastTransitionTime
	rep.Conditions = []*wire.Condition{{Type: "CollectionPolicyApplied", Status: "True", Reason: "AppliedAgain"}}
	w.pass(10 * time.Second)
	r.report(id, rep)
	w.eventually("a condition that is gone is removed", func() bool { return len(w.get("paris").Status.Conditions) == 2 })
	if c := condition(w.get("paris"), "CollectionPolicyApplied"); c.Reason != "AppliedAgain" || !c.LastTransitionTime.Equal(&since) {
		t.Errorf("condition %+v, transition was at %s", c, since)
	}
	if s := w.get("paris"); condition(s, ConditionReportAccepted) != nil {
		t.Error("a clean report made a condition")
	}
}

// A change that many sites should apply is told to a regional in few messages; one that
// does not know those is told site by site.
func TestSitesThatHoldTheSameAreToldTogether(t *testing.T) {
	const sites = 700
	for _, capability := range []uint32{2, wire.Capability} {
		w := newWorld(t).started()
		var ids []fleet.SiteID
		for i := range sites {
			ids = append(ids, w.site(fmt.Sprintf("s-%03d", i)))
		}
		r := w.regionalThat("eu-1", capability)
		for _, id := range ids {
			r.up(id, nil)
		}
		all := func(revision string) func() bool {
			return func() bool {
				for _, id := range ids {
					if r.desiredOf(id).GetRevision() != revision {
						return false
					}
				}
				return true
			}
		}
		w.eventually("all hold nothing", all(w.store.State(ids[0]).Revision))
		r.mu.Lock()
		before := r.together
		r.mu.Unlock()
		w.know(policyOf("up"))
		w.eventually("all hold the policy", all(w.store.State(ids[0]).Revision))
		r.mu.Lock()
		n := r.together - before
		r.mu.Unlock()
		if together := n > 0; together != (capability == wire.Capability) {
			t.Errorf("capability %d: %d messages about several of %d sites", capability, n, sites)
		}
		for _, id := range ids {
			if n := r.pushesOf(id); n != 2 {
				t.Fatalf("%s was told %d times, want 2", id, n)
			}
		}
	}
}

// Who applied a policy is known at once, however long the writing of thousands of Sites
// takes; and in the end the Sites say the same.
func TestPoliciesInEffectAreKnownBeforeTheyAreWritten(t *testing.T) {
	w := newWorld(t).started()
	var told atomic.Int32
	w.server.SubscribePolicies(func(tenant string) {
		if tenant == "acme" {
			told.Add(1)
		}
	})
	id := w.site("paris")
	if _, _, known := w.server.PolicyOf(id); known {
		t.Error("something is known of a site that said nothing")
	}
	r := w.regional("eu-1")
	r.up(id, nil)
	w.phase("paris", fleet.PhaseOnline)
	w.mu.Lock()
	w.fail = errors.New("the API server is busy")
	w.mu.Unlock()
	hash := strings.Repeat("ab", 32)
	r.report(id, &wire.Report{PolicyHash: hash})
	r.report(id, &wire.Report{Seq: 1, PolicyHash: hash, Versions: map[string]string{"os": "x"}}) // no news of policies
	r.report(id, &wire.Report{Seq: 2, PolicyHash: hash, Conditions: []*wire.Condition{{Type: "CollectionPolicyApplied", Status: "False", Reason: "Rejected"}}})
	w.eventually("it is known", func() bool {
		has, refused, known := w.server.PolicyOf(id)
		return has == hash && refused && known
	})
	if n := told.Load(); n != 2 {
		t.Errorf("told %d times, want 2", n)
	}
	if s := w.get("paris").Status; s.PolicyHash != "" {
		t.Error("it was written though every write failed:", s)
	}
	w.mu.Lock()
	w.fail = nil
	w.mu.Unlock()
	w.eventually("the Site says the same", func() bool {
		s := w.get("paris").Status
		c := condition(w.get("paris"), "CollectionPolicyApplied")
		return s.PolicyHash == hash && c != nil && c.Status == metav1.ConditionFalse
	})
}

// A site that comes says within a moment who it is, what it runs and what it has applied:
// that is one write and not three.
func TestASiteThatComesIsWrittenOnce(t *testing.T) {
	w := newWorld(t).started()
	const sites = 20
	var ids []fleet.SiteID
	for i := range sites {
		ids = append(ids, w.site(fmt.Sprintf("s-%02d", i)))
	}
	for _, id := range ids {
		w.phase(id.Name, fleet.PhaseApproved)
	}
	before := w.writes.Load()
	r := w.regional("eu-1")
	hash := strings.Repeat("ab", 32)
	for _, id := range ids {
		r.up(id, nil)
		r.report(id, &wire.Report{Versions: map[string]string{"os": "x"}})
		w.eventually("the desired state", func() bool { return r.desiredOf(id) != nil })
		r.report(id, &wire.Report{Seq: 1, Versions: map[string]string{"os": "x"}, PolicyHash: hash})
	}
	w.eventually("all online with their policy", func() bool {
		for _, id := range ids {
			if s := w.get(id.Name).Status; s.Phase != fleet.PhaseOnline || s.Versions["os"] != "x" || s.PolicyHash != hash {
				return false
			}
		}
		return true
	})
	if n := w.writes.Load() - before; n != sites {
		t.Errorf("%d writes for %d sites that came, want one each", n, sites)
	}
}

func TestHotStatusStaysOut(t *testing.T) {
	w := newWorld(t).started()
	var ids []fleet.SiteID
	for i := range 50 {
		ids = append(ids, w.site(fmt.Sprintf("s-%02d", i)))
	}
	r := w.regional("eu-1")
	for _, id := range ids {
		r.up(id, nil)
		r.report(id, &wire.Report{Versions: map[string]string{"os": "x"}})
	}
	w.eventually("all online", func() bool {
		for _, id := range ids {
			if s := w.get(id.Name).Status; s.Phase != fleet.PhaseOnline || s.Versions["os"] != "x" {
				return false
			}
		}
		return true
	})
	before := w.writes.Load()
	var revision string
	for round := range 15 { // 75 seconds of heartbeats, and reports that differ in the revision alone
		w.pass(5 * time.Second)
		revision = wire.DigestOf(fmt.Append(nil, round))
		alive := &wire.SitesAlive{}
		for _, id := range ids {
			alive.Sites = append(alive.Sites, &wire.SiteSeen{Tenant: id.Tenant, Site: id.Name, LastSeen: timestamppb.New(w.now())})
			r.report(id, &wire.Report{Seq: 1, Versions: map[string]string{"os": "x"}, AppliedRevision: revision})
		}
		r.send(&wire.RelayUp{Msg: &wire.RelayUp_Alive{Alive: alive}})
	}
	// A marker behind all of it in the stream.
	r.report(ids[0], &wire.Report{Versions: map[string]string{"os": "y"}, AppliedRevision: revision})
	w.eventually("the marker", func() bool { return w.get("s-00").Status.Versions["os"] == "y" })
	if n := w.writes.Load() - before; n != 1 {
		t.Errorf("%d writes for 1,500 heartbeats and reports that say nothing new, want 1", n)
	}
	// After 5 minutes lastSeen is refreshed, once each, and the revision with it.
	before = w.writes.Load()
	w.pass(5 * time.Minute)
	alive := &wire.SitesAlive{}
	for _, id := range ids {
		alive.Sites = append(alive.Sites, &wire.SiteSeen{Tenant: id.Tenant, Site: id.Name, LastSeen: timestamppb.New(w.now())})
	}
	r.send(&wire.RelayUp{Msg: &wire.RelayUp_Alive{Alive: alive}})
	w.eventually("lastSeen of all is fresh", func() bool {
		w.server.sweep()
		for _, id := range ids {
			if s := w.get(id.Name).Status; w.now().Sub(s.LastSeen.Time) > time.Minute || s.AppliedRevision != revision {
				return false
			}
		}
		return true
	})
	if n := w.writes.Load() - before; n != 50 {
		t.Errorf("%d writes, want 50", n)
	}
}

func TestMovingBetweenRegionalsDoesNotFlap(t *testing.T) {
	w := newWorld(t).started()
	id := w.site("paris")
	a, b := w.regional("eu-1"), w.regional("eu-2")
	a.up(id, nil)
	w.phase("paris", fleet.PhaseOnline)
	// The new one first, the old one's goodbye late.
	b.up(id, nil)
	w.eventually("on the second", func() bool { return w.get("paris").Status.Regional == "eu-2" })
	a.down(id)
	a.up(w.site("behind"), nil) // comes after it on the same stream
	w.phase("behind", fleet.PhaseOnline)
	w.server.mu.Lock()
	if o := w.server.sites[id].owner; o == nil || o.regional != "eu-2" {
		t.Error("a late goodbye of the former regional was taken")
	}
	w.server.mu.Unlock()
	// Two moves and nothing else may be added.
	changes := w.writes.Load() - 1 // the site behind does not count; the first move does
	// The goodbye first, the new one a little late.
	b.down(id)
	w.unowned(id)
	w.pass(3 * time.Second)
	a.up(id, nil)
	w.eventually("on the first", func() bool { return w.get("paris").Status.Regional == "eu-1" })
	w.pass(4 * time.Second)
	w.phase("paris", fleet.PhaseOnline)
	if n := w.writes.Load() - changes; n != 2 {
		t.Errorf("%d writes for two moves: it flapped", n)
	}
	// What the former one still says counts for nothing.
	a.report(id, &wire.Report{Versions: map[string]string{"os": "fresh"}})
	w.eventually("reported", func() bool { return w.get("paris").Status.Versions["os"] == "fresh" })
	marker := w.site("marker")
	b.report(id, &wire.Report{Versions: map[string]string{"os": "stale"}})
	b.up(marker, nil) // comes after it on the same stream
	w.phase("marker", fleet.PhaseOnline)
	w.server.mu.Lock()
	if os := w.server.sites[id].report.versions["os"]; os != "fresh" {
		t.Errorf("the former regional's report was taken: os %q", os)
	}
	w.server.mu.Unlock()
	w.pass(10 * time.Second)
	a.down(id)
	w.unowned(id)
	w.pass(6 * time.Second)
	w.phase("paris", fleet.PhaseOffline)
}

func TestARegionalThatDiesTakesItsSitesOfflineAfterAGrace(t *testing.T) {
	w := newWorld(t).started()
	id, other := w.site("paris"), w.site("lyon")
	a := w.regional("eu-1")
	a.up(id, nil)
	a.up(other, nil)
	w.phase("paris", fleet.PhaseOnline)
	w.phase("lyon", fleet.PhaseOnline)
	a.cancel()
	w.eventually("the stream is closed", func() bool {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		return len(w.server.sessions) == 0
	})
	w.pass(20 * time.Second)
	if p := w.phaseNow(id); p != fleet.PhaseOnline {
		t.Errorf("%s after 20 s", p)
	}
	b := w.regional("eu-1") // restarted; lyon does not come back
	b.up(id, nil)
	w.eventually("paris is up again", func() bool { return b.desiredOf(id) != nil })
	w.pass(11 * time.Second)
	w.phase("lyon", fleet.PhaseOffline)
	w.phase("paris", fleet.PhaseOnline)
}

func TestOnlineSitesOfARestartedControl(t *testing.T) {
	w := newWorld(t)
	was := metav1.NewTime(time.Now().Truncate(time.Second))
	for _, name := range []string{"paris", "lyon"} {
		w.site(name, func(s *v1alpha1.Site) {
			s.Status.Phase, s.Status.LastSeen, s.Status.Regional = fleet.PhaseOnline, &was, "eu-1"
			s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Online", Message: "connected", LastTransitionTime: was}}
		})
	}
	w.started()
	w.pass(50 * time.Second)
	if w.writes.Load() != 0 {
		t.Errorf("%d writes before the regionals could come back", w.writes.Load())
	}
	r := w.regional("eu-1")
	r.up(acme("paris"), nil)
	w.eventually("paris is up", func() bool { return r.desiredOf(acme("paris")) != nil })
	w.pass(11 * time.Second)
	w.phase("lyon", fleet.PhaseOffline)
	w.phase("paris", fleet.PhaseOnline)
}

func TestRevocation(t *testing.T) {
	w := newWorld(t).started()
	until := metav1.NewTime(time.Now().Add(24 * time.Hour))
	withCert := func(s *v1alpha1.Site) { s.Status.CertificateNotAfter = &until }
	dec, del, appr := w.site("dec", withCert), w.site("del", withCert), w.site("appr", withCert)
	a, b := w.regional("eu-1"), w.regional("eu-2")
	for _, id := range []fleet.SiteID{dec, del, appr} {
		a.up(id, nil)
		w.phase(id.Name, fleet.PhaseOnline)
	}
	w.change("dec", func(s *v1alpha1.Site) { s.Spec.Decommissioned = true })
	w.change("appr", func(s *v1alpha1.Site) { s.Spec.Approved = false })
	if err := w.client.Delete(t.Context(), w.get("del")); err != nil {
		t.Fatal(err)
	}
	w.server.DeleteSite(del)
	// Every regional hears of it: the certificate is good anywhere.
	for _, r := range []*regional{a, b} {
		w.eventually("all are told", func() bool { return r.revokedOf(dec) != nil && r.revokedOf(del) != nil && r.revokedOf(appr) != nil })
	}
	if m := b.revokedOf(dec); m.IssuedBefore != nil || !strings.Contains(m.Reason, "decommissioned") {
		t.Errorf("decommissioned: %v", m)
	}
	w.phase("dec", fleet.PhaseDecommissioned)
	w.phase("appr", fleet.PhasePending)

	// A certificate from before is refused, one for the machine that registered anew is not.
	before := b.revokedOf(del).IssuedBefore.AsTime()
	if d := time.Until(before.Add(pki.Backdate)); d < -10*time.Second || d > 2*time.Second {
		t.Errorf("issued before %s", before)
	}
	// A regional that comes later, and a control that restarts, know of it, too.
	c := w.regional("eu-3")
	w.eventually("a later regional is told", func() bool { return c.revokedOf(del) != nil && c.revokedOf(dec) != nil })
	w.eventually("they are known after a restart", func() bool {
		again, err := New(Options{Registrar: registrar{}, Desired: w.store, Client: w.client, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), RevocationsFile: w.server.opts.RevocationsFile})
		if err != nil {
			t.Fatal(err)
		}
		r, is := again.revoked.Get(del)
		return is && r.Until.After(w.now()) && r.IssuedBefore.Equal(before)
	})
	// Coming back does not help a site that is not welcome.
	a.mu.Lock()
	delete(a.revoked, dec)
	delete(a.revoked, del)
	a.mu.Unlock()
	a.up(dec, nil)
	a.up(del, nil)
	w.eventually("refused again", func() bool { return a.revokedOf(dec) != nil && a.revokedOf(del) != nil })
	// Once the certificates are over nothing is kept.
	w.pass(26 * time.Hour)
	if n := w.server.revoked.Len(); n != 0 {
		t.Errorf("%d revocations for ever", n)
	}
}

// A Site that somebody makes and deletes, and that no machine has come for, is none to revoke:
// a tenant that does so all the time fills nobody's list.
func TestSitesWithoutAMachineAreNotRevoked(t *testing.T) {
	w := newWorld(t).started()
	r := w.regional("eu-1")
	paris := w.site("paris", func(s *v1alpha1.Site) { s.Spec.PublicKey = "k" })
	for i := range 20 {
		w.server.DeleteSite(w.site(fmt.Sprint("made-up-", i)))
	}
	w.server.DeleteSite(paris)
	w.eventually("the one with a key is", func() bool { return r.revokedOf(paris) != nil && r.revokedOf(paris).Until.AsTime().After(w.now()) })
	if n := w.server.revoked.Len(); n != 1 {
		t.Errorf("%d revocations", n)
	}
}

func TestASiteThatTheWatchHasNotSeenYet(t *testing.T) {
	w := newWorld(t).started()
	s := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "new"}, Spec: v1alpha1.SiteSpec{Approved: true}}
	if err := w.client.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	r := w.regional("eu-1")
	r.up(acme("new"), nil)
	w.phase("new", fleet.PhaseOnline)
	w.know(&v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "new"}, Spec: v1alpha1.SiteSpec{Approved: true}}) // the inventory comes last
	w.eventually("its desired state", func() bool { return r.desiredOf(acme("new")) != nil })
	r.up(acme("never"), nil)
	w.eventually("one that does not exist is refused", func() bool { return r.revokedOf(acme("never")) != nil })
	if r.revokedOf(acme("new")) != nil {
		t.Error("the new site was refused")
	}
}

func TestHostileReportsHurtNobodyElse(t *testing.T) {
	w := newWorld(t).started()
	evil, good := w.site("evil"), w.site("good")
	r := w.regional("eu-1")
	r.up(evil, nil)
	r.up(good, nil)
	rep := &wire.Report{AppliedRevision: "../../x", PolicyHash: strings.Repeat("f", 1000), Versions: map[string]string{"Bad Key": "x", "os": strings.Repeat("o", 10000)}}
	rep.Conditions = append(rep.Conditions,
		&wire.Condition{Type: "bad type", Status: "True"}, &wire.Condition{Type: "ReportAccepted", Status: "True"}, &wire.Condition{Type: "Twice", Status: "True"}, &wire.Condition{Type: "Twice", Status: "False"},
		&wire.Condition{Type: "Odd", Status: "Perhaps", Reason: "no good", Message: strings.Repeat("\x00m", 5000)})
	for i := range 3000 {
		rep.Conditions = append(rep.Conditions, &wire.Condition{Type: fmt.Sprintf("C%d", i), Status: "True"})
	}
	r.report(evil, rep)
	r.report(good, &wire.Report{Conditions: []*wire.Condition{{Type: "Fine", Status: "True"}}})
	w.eventually("the hostile one is named", func() bool {
		c := condition(w.get("evil"), ConditionReportAccepted)
		return c != nil && c.Status == metav1.ConditionFalse
	})
	s := w.get("evil")
	if len(s.Status.Conditions) > maxConditions+2 || len(s.Status.Versions["os"]) > maxVersion || s.Status.AppliedRevision != "" || s.Status.PolicyHash != "" {
		t.Errorf("status %d conditions, os %d bytes, %q %q", len(s.Status.Conditions), len(s.Status.Versions["os"]), s.Status.AppliedRevision, s.Status.PolicyHash)
	}
	if c := condition(s, "Odd"); c == nil || c.Status != metav1.ConditionUnknown || len(c.Message) > maxMessage || strings.Contains(c.Message, "\x00") {
		t.Errorf("condition %+v", c)
	}
	w.eventually("the good one is untouched", func() bool { return condition(w.get("good"), "Fine") != nil })
	if condition(w.get("good"), ConditionReportAccepted) != nil {
		t.Error("the good one is named, too")
	}
	w.pass(time.Minute)
	r.report(evil, &wire.Report{})
	w.eventually("mended", func() bool {
		c := condition(w.get("evil"), ConditionReportAccepted)
		return c != nil && c.Status == metav1.ConditionTrue && len(w.get("evil").Status.Conditions) == 2
	})
}

func TestAFloodOfReportsIsBounded(t *testing.T) {
	w := newWorld(t).started()
	evil, good := w.site("evil"), w.site("good")
	r := w.regional("eu-1")
	r.up(evil, nil)
	r.up(good, nil)
	for i := range 5000 {
		r.report(evil, &wire.Report{Versions: map[string]string{"os": fmt.Sprint(i)}})
	}
	r.report(good, &wire.Report{Versions: map[string]string{"os": "fine"}})
	w.eventually("the good one gets through", func() bool { return w.get("good").Status.Versions["os"] == "fine" })
	if n := w.writes.Load(); n > 20 {
		t.Errorf("%d writes", n)
	}
	w.pass(30 * time.Second)
	w.server.queue.Add(evil)
	w.eventually("the flood is named", func() bool {
		c := condition(w.get("evil"), ConditionReportAccepted)
		return c != nil && strings.Contains(c.Message, "faster")
	})
}

func TestWritesAreTriedUntilTheyStick(t *testing.T) {
	w := newWorld(t).started()
	id := w.site("paris")
	w.phase("paris", fleet.PhaseApproved)
	w.mu.Lock()
	w.fail = errors.New("etcd is away")
	w.mu.Unlock()
	r := w.regional("eu-1")
	before := w.writes.Load()
	r.up(id, nil)
	w.eventually("tried", func() bool { return w.writes.Load() > before+1 })
	w.mu.Lock()
	w.fail = nil
	w.clk += time.Minute // past the site's own limit
	w.mu.Unlock()
	w.phase("paris", fleet.PhaseOnline)
}

// TestConditionsOfOthersStay: somebody else writes a reserved condition between our
// reading and our writing.
func TestConditionsOfOthersStay(t *testing.T) {
	w := newWorld(t).started()
	id := w.site("paris")
	w.phase("paris", fleet.PhaseApproved)
	s := w.get("paris")
	s.Status.Conditions = []metav1.Condition{{Type: "Healthy", Status: metav1.ConditionTrue, Reason: "Good", LastTransitionTime: metav1.Now()}}
	if err := w.client.Status().Update(t.Context(), s); err != nil { // the watch does not tell
		t.Fatal(err)
	}
	r := w.regional("eu-1")
	r.up(id, nil)
	r.report(id, &wire.Report{Conditions: []*wire.Condition{{Type: "Mine", Status: "True"}, {Type: "Healthy", Status: "False"}}})
	w.eventually("both are there", func() bool {
		got := w.get("paris")
		return condition(got, "Mine") != nil && condition(got, "Healthy") != nil && condition(got, "Healthy").Status == metav1.ConditionTrue
	})
}

func TestFetchBlobFromAnOffset(t *testing.T) {
	w := newWorld(t).started()
	id := w.site("paris")
	var names []string
	for i := range 5000 {
		names = append(names, fmt.Sprintf("a_rather_long_metric_name_%05d", i))
	}
	w.know(policyOf(names...))
	digest := w.store.PolicyHash(id)
	want, _ := w.store.Blob(digest)
	if len(want) < 2*chunkBytes {
		t.Fatalf("only %d bytes", len(want))
	}
	c := w.regionalClient("eu-1")
	fetch := func(digest string, off int64) ([]byte, error) {
		s, err := c.FetchBlob(t.Context(), &wire.FetchBlobRequest{Digest: digest, Offset: off})
		if err != nil {
			return nil, err
		}
		var out []byte
		for {
			ch, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return out, nil
			}
			if err != nil {
				return nil, err
			}
			out = append(out, ch.Data...)
		}
	}
	for _, off := range []int64{0, 1, chunkBytes, int64(len(want)) - 1, int64(len(want))} {
		if got, err := fetch(digest, off); err != nil || !bytes.Equal(got, want[off:]) {
			t.Errorf("offset %d: %d bytes, %v", off, len(got), err)
		}
	}
	for off, code := range map[int64]codes.Code{-1: codes.OutOfRange, int64(len(want)) + 1: codes.OutOfRange} {
		if _, err := fetch(digest, off); status.Code(err) != code {
			t.Errorf("offset %d: %v", off, err)
		}
	}
	if _, err := fetch("x", 0); status.Code(err) != codes.NotFound {
		t.Errorf("unknown digest: %v", err)
	}
}

func TestASecondStreamOfARegionalReplacesTheFirst(t *testing.T) {
	w := newWorld(t).started()
	id := w.site("paris")
	a := w.regional("eu-1")
	a.up(id, nil)
	w.phase("paris", fleet.PhaseOnline)
	b := w.regional("eu-1")
	b.up(id, nil)
	w.eventually("the first is ended", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return status.Code(a.err) == codes.Aborted })
	w.pass(time.Minute)
	w.phase("paris", fleet.PhaseOnline)
}
