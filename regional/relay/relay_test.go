package relay

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional"
)

var (
	paris = fleet.SiteID{Tenant: "acme", Name: "paris"}
	tokyo = fleet.SiteID{Tenant: "umbrella", Name: "tokyo"}
)

// control is a fleet API server that records, on a real listener.
type control struct {
	wire.UnimplementedControlServer
	mu      sync.Mutex
	seen    []string // what came up, in order
	held    []string // revisions that sites' announcements named
	blobs   map[string][]byte
	fetches int
	gate    chan struct{} // fetches wait for it
	breakAt int           // the first fetch breaks after that many bytes
	desired map[fleet.SiteID]*wire.DesiredState
	revoke  []*wire.SiteRevoked
	down    chan *wire.RelayDown
	refuse  error
	mirror  *mirror.Mirror // what is held of acme/paris; nil: it takes none
}

// Tunnel answers what comes, in capitals.
func (c *control) Tunnel(st grpc.BidiStreamingServer[wire.TunnelData, wire.TunnelData]) error {
	first, err := st.Recv()
	if err != nil || first.Id != "good" {
		return status.Error(codes.NotFound, "no such tunnel")
	}
	for {
		m, err := st.Recv()
		if err != nil {
			return nil
		}
		if err := st.Send(&wire.TunnelData{Data: bytes.ToUpper(m.Data)}); err != nil {
			return err
		}
	}
}

func (c *control) Register(_ context.Context, r *wire.RelayedRegister) (*wire.RegisterResponse, error) {
	if c.refuse != nil {
		return nil, c.refuse
	}
	return &wire.RegisterResponse{Message: r.Request.Token + " from " + r.RemoteAddr}, nil
}

func (c *control) Renew(_ context.Context, r *wire.RelayedRenew) (*wire.Issued, error) {
	return &wire.Issued{CertificatePem: []byte(r.Tenant + "/" + r.Site)}, c.refuse
}

func (c *control) Relay(st grpc.BidiStreamingServer[wire.RelayUp, wire.RelayDown]) error {
	c.mu.Lock()
	refuse := c.refuse
	c.mu.Unlock()
	if refuse != nil {
		return refuse
	}
	go func() {
		for {
			select {
			case m := <-c.down:
				_ = st.Send(m)
			case <-st.Context().Done():
				return
			}
		}
	}()
	for {
		m, err := st.Recv()
		if err != nil {
			return err
		}
		c.mu.Lock()
		switch msg := m.Msg.(type) {
		case *wire.RelayUp_Hello:
			c.seen = append(c.seen, "hello "+msg.Hello.Regional)
			for _, r := range c.revoke {
				c.down <- &wire.RelayDown{Msg: &wire.RelayDown_Revoked{Revoked: r}}
			}
		case *wire.RelayUp_Up:
			c.seen = append(c.seen, "up "+msg.Up.Tenant+"/"+msg.Up.Site)
			c.held = append(c.held, msg.Up.Holds)
			if d := c.desired[fleet.SiteID{Tenant: msg.Up.Tenant, Name: msg.Up.Site}]; d != nil {
				c.down <- &wire.RelayDown{Msg: &wire.RelayDown_Desired{Desired: &wire.SiteDesired{Tenant: msg.Up.Tenant, Site: msg.Up.Site, Desired: d}}}
			}
		case *wire.RelayUp_SiteKubernetes:
			k := msg.SiteKubernetes
			ok := c.mirror != nil
			switch {
			case ok && k.Status != nil:
				line := fmt.Sprintf("cluster %s/%s snapshot=%t", k.Tenant, k.Site, k.Status.Snapshot)
				if k.LeftOut > 0 {
					line += fmt.Sprint(" left out ", k.LeftOut)
				}
				c.seen = append(c.seen, line)
				ok = c.mirror.Apply(k.Status)
			case ok:
				epoch, seq := c.mirror.Version()
				ok = epoch == k.Epoch && seq == k.Seq
			}
			if !ok {
				c.down <- &wire.RelayDown{Msg: &wire.RelayDown_KubernetesResync{KubernetesResync: &wire.SiteKubernetesResync{Tenant: k.Tenant, Site: k.Site}}}
			}
		case *wire.RelayUp_Down:
			c.seen = append(c.seen, fmt.Sprintf("down %s/%s %d", msg.Down.Tenant, msg.Down.Site, msg.Down.LastSeen.Seconds))
		case *wire.RelayUp_Report:
			c.seen = append(c.seen, fmt.Sprintf("report %s/%s %d", msg.Report.Tenant, msg.Report.Site, msg.Report.Report.Seq))
		case *wire.RelayUp_Alive:
			for _, s := range msg.Alive.Sites {
				c.seen = append(c.seen, fmt.Sprintf("alive %s/%s", s.Tenant, s.Site))
			}
		case *wire.RelayUp_RegionalReport:
			line := "regional " + msg.RegionalReport.Revision[:8]
			for _, it := range msg.RegionalReport.Items {
				line += " " + it.Kind + "/" + it.Name
				if it.Error != "" {
					line += "!" + it.Error
				}
			}
			c.seen = append(c.seen, line)
		case *wire.RelayUp_SiteConditions:
			types := []string{}
			for _, cond := range msg.SiteConditions.Conditions {
				types = append(types, cond.Type)
			}
			c.seen = append(c.seen, fmt.Sprintf("conditions %s/%s %v", msg.SiteConditions.Tenant, msg.SiteConditions.Site, types))
		}
		c.mu.Unlock()
	}
}

func (c *control) fetched() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fetches
}

func (c *control) FetchBlob(r *wire.FetchBlobRequest, st grpc.ServerStreamingServer[wire.BlobChunk]) error {
	c.mu.Lock()
	c.fetches++
	first, b, gate, breakAt := c.fetches == 1, c.blobs[r.Digest], c.gate, c.breakAt
	c.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if b == nil {
		return status.Error(codes.NotFound, "no such blob")
	}
	b = b[r.Offset:]
	for len(b) > 0 {
		n := min(len(b), 1000)
		if first && breakAt > 0 && breakAt < n {
			return status.Error(codes.Unavailable, "broken")
		}
		breakAt -= n
		if err := st.Send(&wire.BlobChunk{Data: b[:n]}); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (c *control) holds() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.held)
}

func (c *control) log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.seen, ", ")
}

func newControl() *control {
	return &control{blobs: map[string][]byte{}, desired: map[fleet.SiteID]*wire.DesiredState{}, down: make(chan *wire.RelayDown, 100)}
}

// serve starts the server on addr ("" for any) and returns its address and a stop.
func (c *control) serve(t *testing.T, addr string) (string, func()) {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	wire.RegisterControlServer(srv, c)
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(srv.Stop)
	return ln.Addr().String(), srv.Stop
}

func client(t *testing.T, addr string) wire.ControlClient {
	t.Helper()
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond, Multiplier: 1.6}, MinConnectTimeout: 5 * time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return wire.NewControlClient(cc)
}

func newRelay(t *testing.T, o Options) *Relay {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	o.Name, o.MinBackoff, o.MaxBackoff = "one", time.Millisecond, 20*time.Millisecond
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func run(t *testing.T, r *Relay) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(ctx)
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

type session struct {
	cert    *x509.Certificate
	desired chan *wire.DesiredState
	revoked chan string
	resyncs chan struct{}
	tunnels chan string
}

func newSession() *session {
	return &session{cert: &x509.Certificate{NotBefore: time.Unix(1000, 0)}, desired: make(chan *wire.DesiredState, 10), revoked: make(chan string, 10), resyncs: make(chan struct{}, 10), tunnels: make(chan string, 10)}
}

func (s *session) Certificate() *x509.Certificate { return s.cert }
func (s *session) Desired(d *wire.DesiredState)   { s.desired <- d }
func (s *session) Revoke(why string)              { s.revoked <- why }
func (s *session) Resync()                        { s.resyncs <- struct{}{} }
func (s *session) OpenTunnel(id string)           { s.tunnels <- id }

func desiredOf(blobs ...[]byte) *wire.DesiredState {
	d := &wire.DesiredState{}
	for i, b := range blobs {
		d.Items = append(d.Items, &wire.Item{Kind: fleet.KindCollectionPolicy, Name: fmt.Sprint(i), Digest: wire.DigestOf(b), Size: int64(len(b))})
	}
	d.Revision = wire.RevisionOf(d.Items)
	return d
}

func read(t *testing.T, r *Relay, id fleet.SiteID, digest string, off int64) (string, error) {
	t.Helper()
	var out []byte
	err := r.Blob(t.Context(), id, digest, off, func(b []byte) error { out = append(out, b...); return nil })
	return string(out), err
}

func TestSiteOverControl(t *testing.T) {
	c := newControl()
	blob := []byte("policy")
	c.desired[paris], c.blobs[wire.DigestOf(blob)] = desiredOf(blob), blob
	addr, _ := c.serve(t, "")
	r := newRelay(t, Options{Control: client(t, addr), AliveInterval: 20 * time.Millisecond})
	run(t, r)
	s := newSession()
	r.SiteUp(paris, &wire.Hello{}, s)
	if d := <-s.desired; d.Revision != desiredOf(blob).Revision {
		t.Errorf("desired %v", d)
	}
	for seq := range uint64(3) {
		r.Report(paris, &wire.Report{Seq: seq + 1})
	}
	r.Report(paris, &wire.Report{Seq: 2}) // an old one
	testkit.EventuallyTrue(t, "the latest report arrives", func() bool { return strings.Contains(c.log(), "report acme/paris 3") })
	r.Alive(paris, time.Now())
	testkit.EventuallyTrue(t, "heartbeats arrive", func() bool { return strings.Contains(c.log(), "alive acme/paris") })
	if got, err := read(t, r, paris, wire.DigestOf(blob), 2); err != nil || got != "licy" {
		t.Errorf("blob %q, %v", got, err)
	}
	// Nobody else may have it, also not now that it is cached.
	if _, err := read(t, r, tokyo, wire.DigestOf(blob), 0); !errors.Is(err, regional.ErrUnknownBlob) {
		t.Errorf("another tenant's blob: %v", err)
	}
	if _, err := read(t, r, paris, wire.DigestOf(blob), 99); status.Code(err) != codes.OutOfRange {
		t.Errorf("offset: %v", err)
	}
	r.SiteDown(paris, newSession(), time.Unix(1, 0)) // not the site's session
	r.SiteDown(paris, s, time.Unix(77, 0))
	testkit.EventuallyTrue(t, "the site's going is told", func() bool { return strings.Contains(c.log(), "down acme/paris 77") })
	if log := c.log(); !strings.HasPrefix(log, "hello one, up acme/paris, ") || strings.Contains(log, "down acme/paris 1,") || strings.Count(log, "up ") != 1 {
		t.Errorf("control saw %s", log)
	}
	if resp, err := r.Register(t.Context(), &wire.RelayedRegister{Request: &wire.RegisterRequest{Token: "tok"}, RemoteAddr: "addr"}); err != nil || resp.Message != "tok from addr" {
		t.Errorf("register %v, %v", resp, err)
	}
	if resp, err := r.Renew(t.Context(), &wire.RelayedRenew{Tenant: "a", Site: "b"}); err != nil || string(resp.CertificatePem) != "a/b" {
		t.Errorf("renew %v, %v", resp, err)
	}
	if st := r.Status(); !st.Connected || st.Sites != 0 || st.Due != 0 || st.Blobs != 1 {
		t.Errorf("status %+v", st)
	}
}

// TestControlDown: sites come and go, get what is cached, and their last words
// reach control when it is back.
func TestControlDown(t *testing.T) {
	dir, blob := t.TempDir(), []byte("policy")
	c := newControl()
	c.desired[paris], c.blobs[wire.DigestOf(blob)] = desiredOf(blob), blob
	addr, stopControl := c.serve(t, "")
	r := newRelay(t, Options{Dir: dir, Control: client(t, addr)})
	stop := run(t, r)
	s := newSession()
	r.SiteUp(paris, &wire.Hello{}, s)
	<-s.desired
	if _, err := read(t, r, paris, wire.DigestOf(blob), 0); err != nil {
		t.Fatal(err)
	}
	stop()
	stopControl()

	// The regional restarts while control is away.
	r = newRelay(t, Options{Dir: dir, Control: client(t, addr)})
	run(t, r)
	s = newSession()
	r.SiteUp(paris, &wire.Hello{}, s)
	if d := <-s.desired; d.Revision != desiredOf(blob).Revision {
		t.Errorf("desired from the disk: %v", d)
	}
	if got, err := read(t, r, paris, wire.DigestOf(blob), 0); err != nil || got != "policy" {
		t.Errorf("blob from the disk: %q, %v", got, err)
	}
	for seq := range uint64(100) {
		r.Report(paris, &wire.Report{Seq: seq + 1})
	}
	gone := newSession()
	r.SiteUp(tokyo, &wire.Hello{}, gone)
	r.Report(tokyo, &wire.Report{Seq: 5})
	r.SiteDown(tokyo, gone, time.Unix(99, 0))
	if _, err := r.Register(t.Context(), &wire.RelayedRegister{}); status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), addr) {
		t.Errorf("register without control: %v", err)
	}
	testkit.EventuallyTrue(t, "the status says so", func() bool { st := r.Status(); return !st.Connected && st.Due == 2 && st.LastError != "" })

	c2 := newControl()
	c2.refuse = status.Error(codes.Unavailable, "control is starting")
	c2.serve(t, addr)
	testkit.EventuallyTrue(t, "the relay was turned away", func() bool { return strings.Contains(r.Status().LastError, "starting") })
	c2.mu.Lock()
	c2.refuse = nil
	c2.mu.Unlock()
	testkit.EventuallyTrue(t, "what was said meanwhile arrives, the latest only", func() bool {
		log := c2.log()
		return strings.Contains(log, "up acme/paris, report acme/paris 100") && strings.Contains(log, "up umbrella/tokyo, report umbrella/tokyo 5, down umbrella/tokyo 99")
	})
	if st := r.Status(); st.Due != 0 {
		t.Errorf("status %+v, control saw %s", st, c2.log())
	}
}

func TestRevocation(t *testing.T) {
	const over = time.Hour
	dir := t.TempDir()
	c := newControl()
	addr, _ := c.serve(t, "")
	r := newRelay(t, Options{Dir: dir, Control: client(t, addr)})
	stop := run(t, r)
	s, again := newSession(), newSession()
	again.cert = &x509.Certificate{NotBefore: time.Unix(3000, 0)}
	r.SiteUp(paris, &wire.Hello{}, s)
	r.SiteUp(tokyo, &wire.Hello{}, again)
	c.down <- &wire.RelayDown{Msg: &wire.RelayDown_Revoked{Revoked: &wire.SiteRevoked{Tenant: "umbrella", Site: "tokyo", Reason: "deleted", IssuedBefore: timestamppb.New(time.Unix(2000, 0)), Until: timestamppb.New(time.Now().Add(over))}}}
	c.down <- &wire.RelayDown{Msg: &wire.RelayDown_Revoked{Revoked: &wire.SiteRevoked{Tenant: "../x", Site: "y"}}}
	c.down <- &wire.RelayDown{Msg: &wire.RelayDown_Revoked{Revoked: &wire.SiteRevoked{Tenant: "acme", Site: "paris", Reason: "stolen"}}}
	if why := <-s.revoked; why != "stolen" {
		t.Error(why)
	}
	check := func(r *Relay) {
		t.Helper()
		if why, denied := r.Denied(paris, again.cert); !denied || why != "stolen" {
			t.Errorf("paris: %q %v", why, denied)
		}
		if _, denied := r.Denied(tokyo, s.cert); !denied {
			t.Error("the old certificate of tokyo is let in")
		}
		if _, denied := r.Denied(tokyo, again.cert); denied {
			t.Error("the machine that registered anew is refused")
		}
	}
	check(r)
	if len(again.revoked) != 0 {
		t.Error("the stream of the machine that registered anew was closed")
	}
	stop()
	check(newRelay(t, Options{Dir: dir, Control: client(t, addr)})) // after a restart
	soon := newRelay(t, Options{Dir: dir, Control: client(t, addr), Now: func() time.Time { return time.Now().Add(over) }})
	if _, denied := soon.Denied(tokyo, s.cert); denied {
		t.Error("tokyo is refused for ever, whose certificates are over")
	}

	if err := os.WriteFile(filepath.Join(dir, "revoked.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Name: "one", Dir: dir, Control: client(t, addr)}); err == nil || !strings.Contains(err.Error(), "revoked.json") {
		t.Errorf("a torn list: %v", err)
	}
}

// TestBlobs: fetched once for all, checked, resumed, bounded.
func TestBlobs(t *testing.T) {
	blob := bytes.Repeat([]byte("0123456789"), 1000)
	digest := wire.DigestOf(blob)
	c := newControl()
	c.blobs[digest], c.gate, c.breakAt = blob, make(chan struct{}), 4500
	addr, _ := c.serve(t, "")
	r := newRelay(t, Options{Control: client(t, addr)})
	for i := range 20 {
		r.desired.set(fleet.SiteID{Tenant: "acme", Name: fmt.Sprintf("s%d", i)}, desiredOf(blob))
	}
	// One of those who wait leaves; the fetch goes on.
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		left <- r.Blob(ctx, fleet.SiteID{Tenant: "acme", Name: "s0"}, digest, 0, func([]byte) error { return nil })
	}()
	testkit.EventuallyTrue(t, "the fetch runs", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.fetches == 1 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	var wg sync.WaitGroup
	for i := 1; i < 20; i++ {
		wg.Go(func() {
			if got, err := read(t, r, fleet.SiteID{Tenant: "acme", Name: fmt.Sprintf("s%d", i)}, digest, 0); err != nil || got != string(blob) {
				t.Errorf("s%d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	close(c.gate)
	wg.Wait()
	if c.fetches != 2 { // the first one broke and was resumed
		t.Errorf("%d fetches", c.fetches)
	}
	tmp, _ := filepath.Glob(filepath.Join(r.opts.Dir, "blobs", "*", "*.part"))
	if len(tmp) != 0 {
		t.Errorf("left behind: %v", tmp)
	}

	// Wrong bytes and too many bytes are not kept.
	evil := wire.DigestOf([]byte("good"))
	c.blobs[evil] = []byte("evil")
	d := desiredOf([]byte("good"))
	r.desired.set(paris, d)
	if _, err := read(t, r, paris, evil, 0); err == nil || !strings.Contains(err.Error(), "digest") {
		t.Errorf("evil: %v", err)
	}
	c.blobs[evil] = []byte("good and more")
	if _, err := read(t, r, paris, evil, 0); err == nil || !strings.Contains(err.Error(), "more than the 4 bytes") {
		t.Errorf("more: %v", err)
	}
	delete(c.blobs, evil)
	if _, err := read(t, r, paris, evil, 0); err == nil {
		t.Error("a missing blob was found")
	}
	if n, size := r.blobs.size(); n != 1 || size != int64(len(blob)) {
		t.Errorf("%d blobs, %d bytes", n, size)
	}
}

// A blob that the disk changed while the regional was down is fetched again: sites would
// refuse it and ask again, for ever. What is good is not fetched.
func TestDamagedBlobsAreFetchedAgain(t *testing.T) {
	c := newControl()
	addr, _ := c.serve(t, "")
	dir := t.TempDir()
	r := newRelay(t, Options{Dir: dir, Control: client(t, addr)})
	good, bad := []byte("stays as it was"), []byte("loses a bit")
	c.blobs[wire.DigestOf(good)], c.blobs[wire.DigestOf(bad)] = good, bad
	d := desiredOf(good, bad)
	for range 2 {
		r.desired.set(paris, d)
		for _, want := range [][]byte{good, bad} {
			for range 3 {
				if got, err := read(t, r, paris, wire.DigestOf(want), 0); err != nil || got != string(want) {
					t.Errorf("%q, %v, want %q", got, err, want)
				}
			}
		}
		file := r.blobs.dir.File(wire.DigestOf(bad))
		if err := os.WriteFile(file, []byte("loses a bjt"), 0o640); err != nil {
			t.Fatal(err)
		}
		r = newRelay(t, Options{Dir: dir, Control: client(t, addr)})
	}
	if c.fetches != 3 {
		t.Errorf("%d fetches, want 3: each once, and the damaged one again", c.fetches)
	}
	// The same while it runs: one site gets it, refuses it, and asks again.
	r.desired.set(paris, d)
	for i, want := range []string{"loses a bit", "loses a bjt", "loses a bit", "loses a bit"} {
		if got, err := read(t, r, paris, wire.DigestOf(bad), 0); err != nil || got != want {
			t.Errorf("%d: %q, %v, want %q", i, got, err, want)
		}
		if i == 0 {
			if err := os.WriteFile(r.blobs.dir.File(wire.DigestOf(bad)), []byte("loses a bjt"), 0o640); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c.fetches != 5 {
		t.Errorf("%d fetches, want 5", c.fetches)
	}
}

// Thousands of sites ask for the same blob of a kilobyte at once: each costs about that, not
// a chunk of the largest.
func TestSmallBlobsTakeLittleMemory(t *testing.T) {
	blob := bytes.Repeat([]byte("a"), 1000)
	c := newControl()
	c.blobs[wire.DigestOf(blob)] = blob
	addr, _ := c.serve(t, "")
	r := newRelay(t, Options{Control: client(t, addr)})
	r.desired.set(paris, desiredOf(blob))
	var got []byte
	fetch := func() {
		got = got[:0]
		if err := r.Blob(t.Context(), paris, wire.DigestOf(blob), 0, func(b []byte) error { got = append(got, b...); return nil }); err != nil || !bytes.Equal(got, blob) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	fetch() // from control
	const times = 200
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		fetch()
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / times; each > 16<<10 {
		t.Errorf("%d bytes allocated for a blob of %d", each, len(blob))
	}
}

func TestBlobCacheIsBounded(t *testing.T) {
	c := newControl()
	addr, _ := c.serve(t, "")
	dir := t.TempDir()
	r := newRelay(t, Options{Dir: dir, Control: client(t, addr), CacheBytes: 2500})
	var blobs [][]byte
	for i := range 4 {
		b := bytes.Repeat([]byte{byte('a' + i)}, 1000)
		blobs = append(blobs, b)
		c.blobs[wire.DigestOf(b)] = b
	}
	r.desired.set(paris, desiredOf(blobs...))
	use := func(r *Relay, i int) (fetched bool) {
		t.Helper()
		c.mu.Lock()
		before := c.fetches
		c.mu.Unlock()
		if got, err := read(t, r, paris, wire.DigestOf(blobs[i]), 0); err != nil || got != string(blobs[i]) {
			t.Errorf("blob %d: %v", i, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.fetches > before
	}
	use(r, 0)
	use(r, 1)
	use(r, 0)
	use(r, 2) // 1 is the least recently used
	if use(r, 0) || use(r, 2) || !use(r, 1) {
		t.Error("the wrong one went")
	}
	if n, size := r.blobs.size(); n != 2 || size != 2000 {
		t.Errorf("%d blobs, %d bytes", n, size)
	}
	if err := os.WriteFile(filepath.Join(dir, "blobs", "aa.torn"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.desired.save(); err != nil {
		t.Fatal(err)
	}
	again := newRelay(t, Options{Dir: dir, Control: client(t, addr), CacheBytes: 2500})
	if n, _ := again.blobs.size(); n != 2 || use(again, 1) {
		t.Errorf("%d blobs after a restart", n)
	}
}

// A tenant's large blobs drive out its own, and none of a neighbour's, before a restart and
// after it.
func TestBlobCacheIsSharedByTenants(t *testing.T) {
	c := newControl()
	addr, _ := c.serve(t, "")
	o := Options{Dir: t.TempDir(), Control: client(t, addr), CacheBytes: 10_000}
	r := newRelay(t, o)
	blobOf := func(text string, n int) []byte {
		b := bytes.Repeat([]byte(text), n)
		c.blobs[wire.DigestOf(b)] = b
		return b
	}
	oslo := fleet.SiteID{Tenant: "globex", Name: "oslo"}
	small := [][]byte{blobOf("s", 1000), blobOf("t", 1000)}
	var large [][]byte
	for i := range 10 {
		large = append(large, blobOf(string(rune('A'+i)), 3000))
	}
	r.desired.set(oslo, desiredOf(small...))
	r.desired.set(paris, desiredOf(large...))
	get := func(id fleet.SiteID, blobs ...[]byte) {
		t.Helper()
		for _, b := range blobs {
			if got, err := read(t, r, id, wire.DigestOf(b), 0); err != nil || got != string(b) {
				t.Errorf("%s: %d bytes, %v", id, len(got), err)
			}
		}
	}
	fetches := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.fetches
	}
	kept := func(when string) {
		t.Helper()
		before := fetches()
		get(oslo, small...)
		if n := fetches() - before; n > 0 {
			t.Errorf("%s: %d of a neighbour's blobs were driven out", when, n)
		}
		if n, size := r.blobs.size(); n != 4 || size != 8000 {
			t.Errorf("%s: %d blobs, %d bytes", when, n, size)
		}
	}
	get(oslo, small...)
	get(paris, large...)
	get(paris, large...)
	kept("before")
	get(paris, large...) // so that the neighbour's are the oldest
	if err := r.desired.save(); err != nil {
		t.Fatal(err)
	}
	r = newRelay(t, o)
	get(paris, large[:5]...)
	kept("after a restart")
}

func TestTornDesiredState(t *testing.T) {
	dir := t.TempDir()
	c := newControl()
	addr, _ := c.serve(t, "")
	r := newRelay(t, Options{Dir: dir, Control: client(t, addr)})
	onDesired(r, desiredOf([]byte("x")), &wire.SiteDesired{Tenant: "acme", Site: "paris"}, &wire.SiteDesired{Tenant: "..", Site: ".."})
	onDesired(r, &wire.DesiredState{Revision: "lie", Items: desiredOf([]byte("y")).Items}, &wire.SiteDesired{Tenant: "acme", Site: "paris"})
	onDesired(r, desiredOf([]byte("x")), &wire.SiteDesired{})
	onDesired(r, nil, &wire.SiteDesired{Tenant: "acme", Site: "paris"})
	if d := r.desired.get(paris); d == nil || d.Revision != desiredOf([]byte("x")).Revision || r.desired.len() != 1 {
		t.Errorf("desired %v", d)
	}
	if err := r.desired.save(); err != nil {
		t.Fatal(err)
	}
	file := r.desired.file
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b[:len(b)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	if r := newRelay(t, Options{Dir: dir, Control: client(t, addr)}); r.desired.len() != 0 {
		t.Error("took a torn file")
	}
}

func TestRefusalsReachTheSite(t *testing.T) {
	for in, want := range map[codes.Code]codes.Code{
		codes.PermissionDenied: codes.PermissionDenied, codes.AlreadyExists: codes.AlreadyExists, codes.InvalidArgument: codes.InvalidArgument,
		codes.Unauthenticated: codes.Unavailable, codes.Internal: codes.Unavailable, codes.Unavailable: codes.Unavailable, codes.DeadlineExceeded: codes.Unavailable,
	} {
		if got := status.Code(forSite(status.Error(in, "x"))); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
	if forSite(nil) != nil {
		t.Error("nil")
	}
}
