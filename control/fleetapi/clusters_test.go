package fleetapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

// clusters records what it hears.
type clusters struct {
	mu     sync.Mutex
	sites  map[fleet.SiteID]*mirror.Cursor
	online map[fleet.SiteID]bool
	gone   map[fleet.SiteID]int
	// problem of paris.
	problem string
	reading chan struct{} // closed: what paris says can be read; nil: it always can
}

func (c *clusters) Problem(id fleet.SiteID) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id.Name != "paris" {
		return ""
	}
	return c.problem
}

func (c *clusters) setProblem(p string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problem = p
}

func (c *clusters) of(id fleet.SiteID) *mirror.Cursor {
	if c.sites[id] == nil {
		c.sites[id] = &mirror.Cursor{}
	}
	return c.sites[id]
}

func (c *clusters) Version(id fleet.SiteID) (string, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of(id).Version()
}

func (c *clusters) Read(id fleet.SiteID, st *wire.KubernetesStatus) func() bool {
	if c.reading != nil && id.Name == "paris" {
		<-c.reading
	}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		ok, _ := c.of(id).Take(st)
		return ok
	}
}

func (c *clusters) Interrupted(id fleet.SiteID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(id).Interrupted()
}

func (c *clusters) Online(id fleet.SiteID, online bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.online[id] = online
}

func (c *clusters) Gone(id fleet.SiteID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sites, id)
	c.gone[id]++
}

func newClusters() *clusters {
	return &clusters{sites: map[fleet.SiteID]*mirror.Cursor{}, online: map[fleet.SiteID]bool{}, gone: map[fleet.SiteID]int{}}
}

func (r *regional) kubernetes(id fleet.SiteID, st *wire.KubernetesStatus, epoch string, seq uint64) {
	r.w.t.Helper()
	r.send(&wire.RelayUp{Msg: &wire.RelayUp_SiteKubernetes{SiteKubernetes: &wire.SiteKubernetes{Tenant: id.Tenant, Site: id.Name, Status: st, Epoch: epoch, Seq: seq}}})
}

func (r *regional) resyncsOf(id fleet.SiteID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resyncs[id]
}

// While what one site said is decoded, nobody else waits.
func TestReadingHoldsUpNobody(t *testing.T) {
	c := newClusters()
	c.reading = make(chan struct{})
	w := newWorld(t, func(o *Options) { o.Clusters = c }).started()
	paris, rome := w.site("paris"), w.site("rome")
	one, two := w.regionalThat("one", wire.Capability), w.regionalThat("two", wire.Capability)
	one.up(paris, nil)
	two.up(rome, nil)
	t.Cleanup(func() { close(c.reading) })
	one.kubernetes(paris, &wire.KubernetesStatus{Epoch: "a", Seq: 5, Snapshot: true}, "", 0)
	two.kubernetes(rome, &wire.KubernetesStatus{Epoch: "b", Seq: 7, Snapshot: true}, "", 0)
	w.eventually("rome is heard", func() bool { e, s := c.Version(rome); return e == "b" && s == 7 })
	if e, _ := c.Version(paris); e != "" {
		t.Error("paris was not being read")
	}
}

// What a site says is taken from the regional that it is up on, and asked for again where
// it does not follow what is held.
func TestClustersOfSites(t *testing.T) {
	c := newClusters()
	w := newWorld(t, func(o *Options) { o.Clusters = c }).started()
	paris, rome := w.site("paris"), w.site("rome")
	one, two := w.regionalThat("one", wire.Capability), w.regionalThat("two", wire.Capability)
	one.up(paris, nil)
	one.kubernetes(paris, &wire.KubernetesStatus{Epoch: "a", Seq: 5, Snapshot: true}, "", 0)
	version := func(id fleet.SiteID, want string) func() bool {
		return func() bool { e, s := c.Version(id); return fmt.Sprint(e, s) == want }
	}
	w.eventually("a snapshot is held", version(paris, "a5"))
	one.kubernetes(paris, &wire.KubernetesStatus{Epoch: "a", Seq: 9, After: 8}, "", 0)
	w.eventually("a gap is asked for", func() bool { return one.resyncsOf(paris) == 1 })

	// What of it can't be taken is said on the Site, until it is over.
	accepted := func(want string) func() bool {
		return func() bool {
			c := meta.FindStatusCondition(w.get("paris").Status.Conditions, ConditionClusterAccepted)
			return want == "" && c == nil || c != nil && string(c.Status)+" "+c.Message == want
		}
	}
	w.eventually("nothing is said where nothing is wrong", accepted(""))
	c.setProblem("2 dropped: too many objects\x1b[2J")
	one.kubernetes(paris, &wire.KubernetesStatus{Epoch: "a", Seq: 5, Snapshot: true}, "", 0)
	w.eventually("it is said what is wrong", accepted("False 2 dropped: too many objects?[2J"))
	c.setProblem("")
	one.kubernetes(paris, &wire.KubernetesStatus{Epoch: "a", Seq: 5, Snapshot: true}, "", 0)
	w.pass(time.Minute)
	w.eventually("it is healed", accepted("True "))

	// What the regional had no room for is said too.
	one.send(&wire.RelayUp{Msg: &wire.RelayUp_SiteKubernetes{SiteKubernetes: &wire.SiteKubernetes{Tenant: paris.Tenant, Site: paris.Name, LeftOut: 3, Status: &wire.KubernetesStatus{Epoch: "a", Seq: 5, Snapshot: true}}}})
	w.pass(time.Minute)
	w.eventually("it is said that some are left out", accepted("False 3 left out: regional one has no more room for what this site, or this tenant's sites, say"))
	one.kubernetes(paris, &wire.KubernetesStatus{Epoch: "a", Seq: 5, Snapshot: true}, "", 0)
	w.pass(time.Minute)
	w.eventually("it is healed again", accepted("True "))

	// The site's new regional holds what is held here, or does not.
	two.up(paris, nil)
	two.kubernetes(paris, nil, "a", 5)
	two.kubernetes(paris, &wire.KubernetesStatus{Epoch: "a", Seq: 6, After: 5}, "", 0)
	w.eventually("it goes on", version(paris, "a6"))
	two.kubernetes(paris, nil, "b", 1)
	w.eventually("another version is asked for", func() bool { return two.resyncsOf(paris) == 1 })
	// The old one has no say any more, nor has anybody for a site that is not up.
	one.kubernetes(paris, &wire.KubernetesStatus{Epoch: "old", Seq: 1, Snapshot: true}, "", 0)
	one.kubernetes(rome, &wire.KubernetesStatus{Epoch: "old", Seq: 1, Snapshot: true}, "", 0)
	one.up(rome, nil)
	one.kubernetes(rome, &wire.KubernetesStatus{Epoch: "r", Seq: 1, Snapshot: true}, "", 0)
	w.eventually("rome is held", version(rome, "r1"))
	if e, s := c.Version(paris); e != "a" || s != 6 {
		t.Errorf("a regional that the site has left was believed: %s %d", e, s)
	}

	two.down(paris)
	w.pass(time.Minute)
	w.eventually("it is known to be away", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		online, told := c.online[paris]
		return told && !online && c.online[rome]
	})
	w.server.DeleteSite(rome)
	w.eventually("a deleted one is forgotten", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.gone[rome] == 1 })
}

// A tunnel is for who asked, and comes over the regional that was asked.
func TestTunnelToASite(t *testing.T) {
	w := newWorld(t).started()
	paris := w.site("paris")
	if _, err := w.server.Dial(t.Context(), paris); !errors.Is(err, ErrOffline) {
		t.Fatalf("a site that is away: %v", err)
	}
	one := w.regionalThat("one", wire.Capability)
	one.up(paris, nil)
	w.eventually("it is up", func() bool { return one.pushesOf(paris) > 0 })
	open := func(by, id string) (grpc.BidiStreamingClient[wire.TunnelData, wire.TunnelData], error) {
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		st, err := w.regionalClient(by).Tunnel(ctx)
		if err == nil {
			err = st.Send(&wire.TunnelData{Id: id})
		}
		return st, err
	}
	served := make(chan error, 1)
	go func() {
		served <- func() error {
			var id string
			for end := time.Now().Add(time.Minute); id == ""; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					return errors.New("the regional was not asked")
				}
				one.mu.Lock()
				if len(one.tunnels) > 0 {
					id = one.tunnels[0]
				}
				one.mu.Unlock()
			}
			if st, err := open("two", id); err == nil {
				if _, err = st.Recv(); status.Code(err) != codes.NotFound {
					return fmt.Errorf("another regional: %w", err)
				}
			}
			st, err := open("one", id)
			if err != nil {
				return err
			}
			for {
				m, err := st.Recv()
				if err != nil {
					return nil // closed
				}
				if err := st.Send(m); err != nil {
					return err
				}
			}
		}()
	}()
	conn, err := w.server.Dial(t.Context(), paris)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	conn.Close()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the site's end is open though the connection is closed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := w.server.Dial(ctx, paris); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an agent that opens none: %v", err)
	}
	// An older regional would not understand.
	old := w.regionalThat("old", 3)
	rome := w.site("rome")
	old.up(rome, nil)
	w.eventually("it is up", func() bool { return old.pushesOf(rome) > 0 })
	if _, err := w.server.Dial(t.Context(), rome); err == nil {
		t.Error("a tunnel over a regional that knows of none")
	}
}

// A site that sends without end into a tunnel whose caller reads nothing is made to wait:
// control holds little of it, other tunnels over the same regional go on, and it ends with its
// caller.
func TestAFloodStaysInItsTunnel(t *testing.T) {
	w := newWorld(t).started()
	paris, rome := w.site("paris"), w.site("rome")
	one := w.regionalThat("one", wire.Capability)
	one.up(paris, nil)
	one.up(rome, nil)
	w.eventually("they are up", func() bool { return one.pushesOf(paris) > 0 && one.pushesOf(rome) > 0 })
	client := w.regionalClient("one")
	dial := func(id fleet.SiteID) (net.Conn, grpc.BidiStreamingClient[wire.TunnelData, wire.TunnelData]) {
		t.Helper()
		one.mu.Lock()
		asked := len(one.tunnels)
		one.mu.Unlock()
		opened := make(chan grpc.BidiStreamingClient[wire.TunnelData, wire.TunnelData], 1)
		go func() {
			defer close(opened)
			for t.Context().Err() == nil {
				one.mu.Lock()
				tunnels := one.tunnels[asked:]
				one.mu.Unlock()
				if len(tunnels) == 0 {
					time.Sleep(5 * time.Millisecond)
					continue
				}
				if st, err := client.Tunnel(t.Context()); err == nil && st.Send(&wire.TunnelData{Id: tunnels[0]}) == nil {
					opened <- st
				}
				return
			}
		}()
		conn, err := w.server.Dial(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn, <-opened
	}

	flooded, flood := dial(paris)
	var sent atomic.Int64
	ended := make(chan error, 1)
	go func() {
		for {
			if err := flood.Send(&wire.TunnelData{Data: make([]byte, 32<<10)}); err != nil {
				ended <- err
				return
			}
			sent.Add(32 << 10)
		}
	}()
	// First it is read as fast as it comes, so that whoever sizes windows by what goes through
	// has seen much.
	if _, err := io.CopyN(io.Discard, flooded, 64<<20); err != nil {
		t.Fatal(err)
	}
	sent.Store(0)
	var before int64 = -1
	testkit.Eventually(t, "the site has to wait", func() error {
		now := sent.Load()
		if now == before && now > 0 {
			return nil
		}
		before = now
		time.Sleep(time.Second) // what the window may still grow in
		return fmt.Errorf("%d bytes were taken", now)
	})
	if n := sent.Load(); n > 4*streamWindow {
		t.Errorf("%d bytes were taken that nobody reads", n)
	}

	other, echo := dial(rome)
	go func() {
		for {
			m, err := echo.Recv()
			if err != nil || echo.Send(m) != nil {
				return
			}
		}
	}()
	if _, err := other.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(other, got); err != nil || string(got) != "hello" {
		t.Errorf("a neighbour's tunnel: %q, %v", got, err)
	}

	flooded.Close()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the site goes on sending though nobody is there")
	}
}
