package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/storage"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional"
	"muster.dev/muster/regional/hosts"
)

func hello() *wire.FromSite {
	return &wire.FromSite{Msg: &wire.FromSite_Hello{Hello: &wire.Hello{Capability: wire.Capability, AgentVersion: "v1.2.3"}}}
}

func heartbeat() *wire.FromSite {
	return &wire.FromSite{Msg: &wire.FromSite_Heartbeat{Heartbeat: &wire.Heartbeat{Sent: timestamppb.Now()}}}
}

func desiredOf(blobs ...[]byte) *wire.DesiredState {
	d := &wire.DesiredState{}
	for _, b := range blobs {
		d.Items = append(d.Items, &wire.Item{Kind: fleet.KindCollectionPolicy, Name: "effective", Digest: wire.DigestOf(b), Size: int64(len(b))})
	}
	d.Revision = wire.RevisionOf(d.Items)
	return d
}

func (h *harness) connect(t *testing.T, cert *tls.Certificate, change ...func(*wire.Hello)) grpc.BidiStreamingClient[wire.FromSite, wire.ToSite] {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	st, err := wire.NewUplinkClient(h.grpc(cert)).Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	first := hello()
	for _, c := range change {
		c(first.GetHello())
	}
	if err := st.Send(first); err != nil && err != io.EOF { // EOF: refused already, Recv says why
		t.Fatal(err)
	}
	return st
}

// TestStream is a site's life over real TLS and gRPC: hello, desired state, blob,
// report, renewal, another stream, revocation.
func TestStream(t *testing.T) {
	blob := []byte(`{"policy":1}`)
	h := newHarness(t, harnessOptions{limits: Limits{Series: 10}})
	h.up.desired = map[fleet.SiteID]*wire.DesiredState{paris: desiredOf(blob)}
	h.up.blobs = map[string][]byte{wire.DigestOf(blob): blob, wire.DigestOf([]byte("secret")): []byte("secret")}
	cert := h.ca.site(t, paris, "eu-west")
	st := h.connect(t, cert)

	m, err := st.Recv()
	if w := m.GetWelcome(); err != nil || w.GetRegional() != "one" || w.GetHeartbeatInterval().AsDuration() != 5*time.Second || w.GetCapability() != wire.Capability {
		t.Fatalf("welcome %v, %v", m, err)
	}
	if m, err = st.Recv(); err != nil || m.GetDesired().GetRevision() != desiredOf(blob).Revision {
		t.Fatalf("desired %v, %v", m, err)
	}
	if live := slices.Collect(h.g.Live()); len(live) != 1 || !live[0].Connected || live[0].Region != "eu-west" || live[0].AgentVersion != "v1.2.3" || live[0].ConnectedSince.IsZero() || !live[0].LastPush.IsZero() {
		t.Errorf("live %+v", live)
	}
	up := wire.NewUplinkClient(h.grpc(cert))
	if got, err := fetch(t.Context(), up, wire.DigestOf(blob), 3); err != nil || got != string(blob[3:]) {
		t.Errorf("blob %q, %v", got, err)
	}
	if _, err := fetch(t.Context(), up, wire.DigestOf([]byte("secret")), 0); status.Code(err) != codes.NotFound {
		t.Errorf("another's blob: %v", err)
	}
	if _, err := fetch(t.Context(), up, "../../etc/passwd", 0); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a bad digest: %v", err)
	}
	if _, err := up.Renew(t.Context(), &wire.RenewRequest{Csr: []byte("x")}); err != nil || h.up.renewed[0].Site != "paris" || h.up.renewed[0].Tenant != "acme" {
		t.Errorf("renew: %v, %v", err, h.up.renewed)
	}

	// A report goes up with the gateway's condition in place of a forged one.
	rep := &wire.Report{Seq: 1, PolicyHash: "abc", Conditions: []*wire.Condition{{Type: "CollectionPolicyApplied", Status: "True"}, {Type: ConditionLimits, Status: "False", Reason: "Forged"}}}
	if err := st.Send(&wire.FromSite{Msg: &wire.FromSite_Report{Report: rep}}); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "the report is passed on", func() bool { return h.up.report(paris) != nil })
	got := h.up.report(paris)
	if len(got.Conditions) != 2 || got.Conditions[0].Reason != "WithinLimits" || got.Conditions[1].Type != "CollectionPolicyApplied" || got.PolicyHash != "abc" {
		t.Errorf("report %v", got)
	}
	// A site that runs into a limit is named at once, without a new report of its own.
	if code, _, _ := h.pushSeries(h.client(cert), many(20, time.Now(), "x")...); code != 400 {
		t.Error("no limit")
	}
	testkit.EventuallyTrue(t, "the site is named in a condition", func() bool {
		r := h.up.report(paris)
		return r.Seq > got.Seq && r.Conditions[0].Status == "True" && r.Conditions[0].Reason == "SeriesLimit" && strings.Contains(r.Conditions[0].Message, "limits.series")
	})

	// A new desired state is sent, the same one again is not.
	sess := h.up.session(paris)
	sess.Desired(desiredOf(blob))
	sess.Desired(desiredOf(blob, []byte("two")))
	m, err = st.Recv()
	if d, cerr := wire.Changed(desiredOf(blob), m.GetChange()); err != nil || cerr != nil || len(d.Items) != 2 {
		t.Errorf("desired %v, %v, %v", m, err, cerr)
	}

	// A second stream takes the place of the first.
	st2 := h.connect(t, cert)
	if _, err := st2.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := drain(st); status.Code(err) != codes.Aborted {
		t.Errorf("the first stream: %v", err)
	}
	testkit.EventuallyTrue(t, "the second one is the site's", func() bool { s := h.up.session(paris); return s != nil && s != sess })
	if live := slices.Collect(h.g.Live()); !live[0].Connected {
		t.Errorf("live %+v", live)
	}
	h.up.session(paris).Revoke("stolen")
	if err := drain(st2); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "stolen") {
		t.Errorf("revoked: %v", err)
	}
	testkit.EventuallyTrue(t, "the live view shows it", func() bool { return !slices.Collect(h.g.Live())[0].Connected })
}

func drain(st grpc.BidiStreamingClient[wire.FromSite, wire.ToSite]) error {
	for {
		if _, err := st.Recv(); err != nil {
			return err
		}
	}
}

func fetch(ctx context.Context, c wire.UplinkClient, digest string, off int64) (string, error) {
	st, err := c.FetchBlob(ctx, &wire.FetchBlobRequest{Digest: digest, Offset: off})
	if err != nil {
		return "", err
	}
	var out []byte
	for {
		m, err := st.Recv()
		if err == io.EOF {
			return string(out), nil
		} else if err != nil {
			return "", err
		}
		out = append(out, m.Data...)
	}
}

// TestUplinkNeedsIdentity: without a good certificate nothing but registration.
func TestUplinkNeedsIdentity(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	for name, c := range map[string]struct {
		cert *tls.Certificate
		code codes.Code
		want string
	}{
		"none":     {nil, codes.Unauthenticated, "certificate is required"},
		"expired":  {h.ca.site(t, paris, "", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }), codes.Unauthenticated, "expired on"},
		"wrong CA": {newAuthority(t).site(t, paris, ""), codes.Unauthenticated, "not one of this fleet"},
		"regional": {h.ca.regional(t, "two"), codes.PermissionDenied, "want one of a site"},
	} {
		cc := h.grpc(c.cert)
		up := wire.NewUplinkClient(cc)
		_, renewErr := up.Renew(t.Context(), &wire.RenewRequest{})
		_, fetchErr := fetch(t.Context(), up, wire.DigestOf(nil), 0)
		for what, err := range map[string]error{"connect": drain(h.connect(t, c.cert)), "renew": renewErr, "fetch": fetchErr} {
			if status.Code(err) != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		if r, err := wire.NewRegistrationClient(cc).Register(t.Context(), &wire.RegisterRequest{Token: "t"}); err != nil || r.Message != "pending" {
			t.Errorf("%s: register: %v", name, err)
		}
	}
	if len(h.up.joined) != 4 || !strings.HasPrefix(h.up.joined[0].RemoteAddr, "127.0.0.1:") {
		t.Errorf("registrations %v", h.up.joined)
	}
	if len(h.up.renewed) != 0 || len(slices.Collect(h.g.Live())) != 0 {
		t.Error("something got through")
	}
}

func TestBadStreams(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	cert := h.ca.site(t, paris, "")
	first := func(m *wire.FromSite) error {
		st, err := wire.NewUplinkClient(h.grpc(cert)).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = st.Send(m)
		return drain(st)
	}
	if err := first(heartbeat()); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no hello: %v", err)
	}
	if err := first(&wire.FromSite{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("empty: %v", err)
	}
	then := func(m *wire.FromSite) error {
		st := h.connect(t, cert)
		_ = st.Send(m)
		return drain(st)
	}
	if err := then(hello()); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a second hello: %v", err)
	}
	big := &wire.Report{Seq: 1, Conditions: slices.Repeat([]*wire.Condition{{Type: "X"}}, 65)}
	if err := then(&wire.FromSite{Msg: &wire.FromSite_Report{Report: big}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("65 conditions: %v", err)
	}
	huge := &wire.Report{PolicyHash: strings.Repeat("x", maxMessage)}
	if err := then(&wire.FromSite{Msg: &wire.FromSite_Report{Report: huge}}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a huge message: %v", err)
	}
	if _, err := wire.NewRegistrationClient(h.grpc(nil)).Register(t.Context(), &wire.RegisterRequest{Csr: make([]byte, maxMessage)}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a huge registration: %v", err)
	}
}

func TestRegistrationsAreCounted(t *testing.T) {
	r := newRegistration(nil)
	forged, good := sha256.Sum256([]byte("forged")), sha256.Sum256([]byte("good"))
	allowed := func(addr string, token [sha256.Size]byte, of int) (n int) {
		for range of {
			if r.wait(addr, token) == 0 {
				n++
			}
		}
		return n
	}
	if n := allowed("10.0.0.1:1234", forged, 1000); n < registerBurst || n > registerBurst+10 {
		t.Errorf("%d of 1000 let in", n)
	}
	if allowed("10.0.0.2:1", forged, 1) != 1 {
		t.Error("another address pays for the first")
	}
	// A token that control took is not held up by what its address did before.
	if allowed("10.0.0.1:1234", good, 1) != 0 {
		t.Error("a token that nobody knows gets round the limit of its address")
	}
	r.trust(good)
	if n := allowed("10.0.0.1:1234", good, 2*tokenBurst); n < tokenBurst || n > tokenBurst+100 {
		t.Errorf("%d of %d with a good token let in", n, 2*tokenBurst)
	}
	r.trust(good)
	if n := allowed("10.0.0.1:1234", good, tokenBurst); n > 100 {
		t.Errorf("a token that is taken again gets %d more", n)
	}
	r.distrust(good)
	if allowed("10.0.0.1:1234", good, 1) != 0 {
		t.Error("a token that was revoked still gets round the limit of its address")
	}
}

// A site behind a busy address is told when to come again, and one whose token is good
// is let in where others wait.
func TestRegistrationsBehindOneAddress(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	c := wire.NewRegistrationClient(h.grpc(nil))
	var late error
	for range registerBurst + 20 {
		if _, err := c.Register(t.Context(), &wire.RegisterRequest{Token: "one", Csr: []byte("x")}); err != nil {
			late = err
			break
		}
	}
	if late != nil {
		t.Fatalf("a token that control takes is held up: %v", late)
	}
	h.up.refuse(status.Error(codes.PermissionDenied, "forged"))
	for range registerBurst + 20 {
		if _, err := c.Register(t.Context(), &wire.RegisterRequest{Token: "forged", Csr: []byte("x")}); status.Code(err) != codes.PermissionDenied {
			late = err
			break
		}
	}
	if after, ok := wire.RetryAfter(late); status.Code(late) != codes.Unavailable || !ok || after <= 0 {
		t.Errorf("forged tokens are answered %v", late)
	}
}

// fakeStream is the server's side of a stream, without a network, for virtual time.
type fakeStream struct {
	grpc.ServerStream
	ctx context.Context
	in  chan *wire.FromSite
	out chan *wire.ToSite
}

func (s *fakeStream) Context() context.Context { return s.ctx }
func (s *fakeStream) Send(m *wire.ToSite) error {
	s.out <- m
	return nil
}

func (s *fakeStream) Recv() (*wire.FromSite, error) {
	select {
	case m := <-s.in:
		return m, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// bareGateway is a gateway without a listener.
func bareGateway(now func() time.Time, up regional.Upstream, self storage.Appendable) *Gateway {
	o := Options{Name: "one", Region: "eu", Listen: "-", TLS: &tls.Config{}, Trust: x509.NewCertPool, Edge: nopAppendable{}, Series: NewHeadSeries(nil), Self: self,
		Forward: nowhere, Upstream: up, Now: now}
	g, err := newUnbound(o)
	if err != nil {
		panic(err)
	}
	return g
}

// endlessTunnel is a site's stream of a tunnel that it never ends.
type endlessTunnel struct {
	grpc.ServerStream
	ctx context.Context
	in  chan *wire.TunnelData
}

func (s *endlessTunnel) Context() context.Context    { return s.ctx }
func (s *endlessTunnel) Send(*wire.TunnelData) error { return s.ctx.Err() }
func (s *endlessTunnel) Recv() (*wire.TunnelData, error) {
	select {
	case m := <-s.in:
		return m, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// joined keeps both ends of a connection for as long as their streams live.
type joined struct{}

func (joined) Reach(ctx context.Context, _ hosts.Sites, _ fleet.SiteID, _ string, _ tunnel.Stream) error {
	<-ctx.Done()
	return ctx.Err()
}

func (joined) Answer(ctx context.Context, _ fleet.SiteID, _, _ string, _ tunnel.Stream) error {
	<-ctx.Done()
	return ctx.Err()
}

// Whatever a site has opened ends with the certificate that it was opened with, however
// busy it is.
func TestTunnelsEndWithTheCertificate(t *testing.T) {
	cert := newAuthority(t).site(t, paris, "eu-west").Leaf
	for name, open := range map[string]func(*uplink, grpc.BidiStreamingServer[wire.TunnelData, wire.TunnelData]) error{"Reach": (*uplink).Reach, "Answer": (*uplink).Answer, "Tunnel": (*uplink).Tunnel} {
		synctest.Test(t, func(t *testing.T) {
			g := bareGateway(time.Now, &upstream{}, nil)
			g.opts.Hosts = joined{}
			c := *cert
			c.NotAfter = time.Now().Add(time.Hour)
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), callerKey{}, caller{site: paris, cert: &c}))
			defer cancel()
			st := &endlessTunnel{ctx: ctx, in: make(chan *wire.TunnelData)}
			began, ended := time.Now(), make(chan error, 1)
			go func() {
				ended <- open(&uplink{g: g}, st)
				cancel() // as gRPC does
			}()
			id := "shop/db"
			if name == "Tunnel" {
				id = "tunnel-of-paris"
			}
			st.in <- &wire.TunnelData{Id: id}
			for tick := time.NewTicker(time.Minute); ; {
				select {
				case err := <-ended:
					if status.Code(err) != codes.Unauthenticated || time.Since(began) != time.Hour {
						t.Errorf("%s: %v after %s", name, err, time.Since(began))
					}
					return
				case <-tick.C:
					if time.Since(began) > 2*time.Hour {
						t.Errorf("%s outlives its certificate", name)
						return
					}
					if name == "Tunnel" { // the others' messages are read by who joins them
						select {
						case st.in <- &wire.TunnelData{Data: []byte("x")}:
						case <-ctx.Done():
						}
					}
				}
			}
		})
	}
}

type nopAppendable struct{}

func (nopAppendable) Appender(context.Context) storage.Appender { return nil }

// TestSilence: a site that says nothing for 15 s is gone from the live view then,
// and its stream ends.
func TestSilence(t *testing.T) {
	ca := newAuthority(t)
	cert := ca.site(t, paris, "eu-west").Leaf
	synctest.Test(t, func(t *testing.T) {
		g := bareGateway(time.Now, &upstream{}, nil)
		c := *cert
		c.NotAfter = time.Now().Add(24 * time.Hour) // of the bubble's clock
		who := caller{site: paris, region: "eu-west", cert: &c}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), callerKey{}, who))
		defer cancel()
		st := &fakeStream{ctx: ctx, in: make(chan *wire.FromSite), out: make(chan *wire.ToSite, 10)}
		ended := make(chan error, 1)
		go func() {
			ended <- (&uplink{g: g}).Connect(st)
			cancel() // as gRPC does
		}()
		st.in <- hello()
		for range 20 { // 100 s of heartbeats
			time.Sleep(5 * time.Second)
			st.in <- heartbeat()
			synctest.Wait()
			if !slices.Collect(g.Live())[0].Connected {
				t.Fatal("gone in spite of heartbeats")
			}
		}
		time.Sleep(15*time.Second - time.Nanosecond)
		synctest.Wait()
		if !slices.Collect(g.Live())[0].Connected {
			t.Error("gone before 15 s")
		}
		time.Sleep(time.Nanosecond)
		if slices.Collect(g.Live())[0].Connected {
			t.Error("still connected after 15 s")
		}
		if err := <-ended; status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("ended with %v", err)
		}
	})
}

// TestStreamEndsWithCertificate: the agent must come back with a renewed one.
func TestStreamEndsWithCertificate(t *testing.T) {
	cert := newAuthority(t).site(t, paris, "eu-west").Leaf
	synctest.Test(t, func(t *testing.T) {
		g := bareGateway(time.Now, &upstream{}, nil)
		c := *cert
		c.NotAfter = time.Now().Add(time.Minute)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), callerKey{}, caller{site: paris, cert: &c}))
		defer cancel()
		st := &fakeStream{ctx: ctx, in: make(chan *wire.FromSite), out: make(chan *wire.ToSite, 10)}
		ended := make(chan error, 1)
		go func() {
			ended <- (&uplink{g: g}).Connect(st)
			cancel()
		}()
		st.in <- hello()
		began := time.Now()
		for {
			select {
			case err := <-ended:
				if status.Code(err) != codes.Unauthenticated || time.Since(began) != time.Minute {
					t.Errorf("%v after %s", err, time.Since(began))
				}
				return
			case <-time.After(5 * time.Second):
				select {
				case st.in <- heartbeat():
				case <-ctx.Done():
				}
			}
		}
	})
}

// TestSelfSeries: the engine and the store hear who is connected.
func TestSelfSeries(t *testing.T) {
	clock := newClock()
	now := clock.now()
	h := newHarness(t, harnessOptions{change: func(o *Options) { o.Now = clock.now }})
	cert := h.ca.site(t, paris, "eu-west")
	st := h.connect(t, cert)
	if _, err := st.Recv(); err != nil {
		t.Fatal(err)
	}
	h.pushSeries(h.client(h.ca.site(t, tokyo, "")), sample(now, 1, "__name__", "up"))
	h.g.writeSelf(t.Context())
	if got := h.query("muster_site_connected == 1"); !slices.Equal(got, []string{`{__name__="muster_site_connected", region="eu-west", regional="one", site="paris", tenant="acme"}`}) {
		t.Errorf("connected: %v", got)
	}
	if got := h.query("muster_site_connected == 0"); !slices.Equal(got, []string{`{__name__="muster_site_connected", regional="one", site="tokyo", tenant="umbrella"}`}) {
		t.Errorf("not connected: %v", got)
	}
	if got := h.query("time() - muster_site_last_push_timestamp_seconds < 60"); len(got) != 1 {
		t.Errorf("last push: %v", got)
	}
	fwd := h.forwarded()
	if len(fwd["acme"]) != 1 || len(fwd["umbrella"]) != 3 {
		t.Errorf("forwarded %v", fwd)
	}
	// After a day without a sign a site is forgotten, and its series end.
	clock.add(25 * time.Hour)
	h.g.expire()
	if live := slices.Collect(h.g.Live()); len(live) != 1 || live[0].Site != "paris" {
		t.Errorf("live %+v", live)
	}

	w := httptest.NewRecorder()
	h.g.LiveHandler().ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/live", nil))
	view, err := wire.DecodeLiveView(w.Body.Bytes(), "one")
	if err != nil || view.Region != "eu" || view.AsOf.IsZero() || len(view.Sites) != 1 || view.Sites[0].Site != "paris" || view.Sites[0].AgentVersion != "v1.2.3" {
		t.Errorf("%s, %v", w.Body, err)
	}
}

// TestFloodOfMessages: the transport behind gRPC buffers without bound, so the
// body is read slowly.
func TestFloodOfMessages(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	st := h.connect(t, h.ca.site(t, paris, ""))
	sent := make(chan int, 1)
	go func() {
		n := 0
		rep := &wire.FromSite{Msg: &wire.FromSite_Report{Report: &wire.Report{Versions: map[string]string{"x": strings.Repeat("y", 4000)}}}}
		end := time.Now().Add(time.Second)
		for time.Now().Before(end) {
			if st.Send(rep) != nil {
				break
			}
			n += 4000
			select {
			case sent <- n:
			default:
				<-sent
				sent <- n
			}
		}
	}()
	<-time.After(1500 * time.Millisecond)
	// Burst, a second and a half, and what fits into HTTP/2's windows.
	if n := <-sent; n > streamBurst+2*streamBytes+1<<20 {
		t.Errorf("the gateway took %d bytes in a second", n)
	}
}

// A site that holds a state, which it was sent or named itself, is told what is other in the
// next one: of 10,000 items that is some hundred bytes. An older agent gets the whole list.
func TestSitesAreToldWhatChanged(t *testing.T) {
	items := make([]*wire.Item, 10000)
	for i := range items {
		name := fmt.Sprintf("ConfigMap/acme-shop/config-%05d", i)
		items[i] = &wire.Item{Kind: "KubernetesObject", Name: name, Digest: wire.DigestOf([]byte(name)), Size: 400}
	}
	state := func(items []*wire.Item) *wire.DesiredState {
		return &wire.DesiredState{Revision: wire.RevisionOf(items), Items: items}
	}
	one := state(items)
	items = slices.Clone(items)
	items[4711] = &wire.Item{Kind: items[4711].Kind, Name: items[4711].Name, Digest: wire.DigestOf([]byte("other")), Size: 400}
	two := state(items)
	for _, c := range []struct {
		what       string
		capability uint32
		holds      string
		whole      bool
	}{{"sent", wire.Capability, "", false}, {"named", wire.Capability, one.Revision, false}, {"older", wire.ChangeCapability - 1, one.Revision, true}} {
		s := newSession(&site{id: paris}, nil, c.capability)
		s.Desired(one)
		msgs, held := s.take(holding{revision: c.holds})
		if len(msgs) != map[bool]int{true: 1}[c.holds == ""] {
			t.Errorf("%s: %d messages for the first state", c.what, len(msgs))
		}
		s.Desired(two)
		msgs, held = s.take(held)
		if len(msgs) != 1 || held.revision != two.Revision || held.state != two || (msgs[0].GetDesired() != nil) != c.whole {
			t.Fatalf("%s: %d messages, %s is held", c.what, len(msgs), held.revision)
		}
		if size := proto.Size(msgs[0]); (size > 500) != c.whole {
			t.Errorf("%s: %d bytes", c.what, size)
		}
	}
}
