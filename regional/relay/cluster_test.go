package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/tunnelpipe"
	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional"
)

// What a site says of its cluster reaches control, also one that was away or forgot, and
// one that holds the right version is not told it all again.
func TestClusterReachesControl(t *testing.T) {
	c := newControl()
	c.mirror = mirror.New(mirror.DefaultLimits, nil)
	addr, stop := c.serve(t, "")
	r := newRelay(t, Options{Control: client(t, addr)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })

	site := mirror.New(mirror.DefaultLimits, nil)
	sess := newSession()
	r.SiteUp(paris, &wire.Hello{}, sess)
	say := func(name, what string) {
		site.Put(&wire.Mirrored{Kind: "Pod", Namespace: "acme-shop", Name: name, Object: []byte(what)})
		for _, st := range site.Next(true) {
			r.Kubernetes(paris, sess, st)
		}
	}
	site.Begin()
	agrees := func(what string) {
		t.Helper()
		testkit.Eventually(t, what, func() error {
			c.mu.Lock()
			m := c.mirror
			c.mu.Unlock()
			epoch, seq := m.Version()
			if e, s := site.Version(); e != epoch || s != seq || m.Stats() != site.Stats() {
				return fmt.Errorf("control holds %.4s %d %+v, the site %.4s %d %+v; %s", epoch, seq, m.Stats(), e, s, site.Stats(), c.log())
			}
			return nil
		})
	}
	say("web-0", "running")
	agrees("the first")
	say("web-1", strings.Repeat("x", 100_000))
	agrees("a change")

	// Control is away, and holds on its return what it held.
	stop()
	testkit.Eventually(t, "the relay notices", func() error {
		if r.Connected() {
			return errors.New("connected")
		}
		return nil
	})
	c.mu.Lock()
	c.seen = nil
	c.mu.Unlock()
	_, stop = c.serve(t, addr)
	testkit.Eventually(t, "it is back", func() error {
		if !strings.Contains(c.log(), "up acme/paris") {
			return errors.New(c.log())
		}
		return nil
	})
	say("web-0", "crashed")
	agrees("a change after it was back")
	if log := c.log(); strings.Contains(log, "snapshot=true") || !strings.Contains(log, "snapshot=false") {
		t.Errorf("control held the right version, and was told everything again: %s", log)
	}

	// One that forgot hears it all from here, without the site.
	stop()
	c.mu.Lock()
	c.mirror = mirror.New(mirror.DefaultLimits, nil)
	c.mu.Unlock()
	c.serve(t, addr)
	agrees("one that forgot")
	if n := len(sess.resyncs); n != 0 {
		t.Errorf("the site was asked %d times", n)
	}
	// A message that follows nothing that is held: the site is asked.
	r.Kubernetes(paris, sess, &wire.KubernetesStatus{Epoch: "other", Seq: 7, After: 6})
	if n := len(sess.resyncs); n != 1 {
		t.Errorf("the site was asked %d times", n)
	}
	// Another site's session says nothing of this one.
	r.Kubernetes(paris, newSession(), &wire.KubernetesStatus{Epoch: "forged", Seq: 1, Snapshot: true})
	if epoch, _ := r.KubernetesVersion(paris); epoch == "forged" {
		t.Error("a session that is not the site's was believed")
	}
}

// What a tenant's sites run takes no more than its share of the room here; control is told how
// much was left out, and a site that stays away makes room.
func TestClustersShareTheRoom(t *testing.T) {
	c := newControl()
	c.mirror = mirror.New(mirror.DefaultLimits, nil)
	addr, _ := c.serve(t, "")
	var away atomic.Int64
	r := newRelay(t, Options{Control: client(t, addr), ClusterBytes: 20_000, Now: func() time.Time { return time.Now().Add(time.Duration(away.Load())) }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	sess := newSession()
	r.SiteUp(paris, &wire.Hello{}, sess)
	said := &wire.KubernetesStatus{Epoch: "e", Seq: 1, Snapshot: true}
	for i := range 5 {
		said.Mirrored = append(said.Mirrored, &wire.Mirrored{Kind: "Pod", Namespace: "acme-shop", Name: fmt.Sprint("web-", i), Object: make([]byte, 3000)})
	}
	r.Kubernetes(paris, sess, said)
	testkit.Eventually(t, "control is told", func() error {
		if log := c.log(); !strings.Contains(log, "snapshot=true left out 2") {
			return errors.New(log)
		}
		return nil
	})
	c.mu.Lock()
	n := c.mirror.Stats().Objects
	c.mu.Unlock()
	if held := r.room.Held("acme"); n != 3 || held < 9000 || held > 10_000 {
		t.Errorf("%d objects, %d bytes held", n, held)
	}
	r.SiteDown(paris, sess, time.Now())
	away.Store(int64(keepCluster + time.Minute))
	r.sweepClusters()
	if held := r.room.Held("acme"); held != 0 {
		t.Errorf("%d bytes are held of a site that is gone", held)
	}
}

// A tunnel opens for the site that control named, once.
func TestTunnelsAreTheSitesOwn(t *testing.T) {
	c := newControl()
	addr, _ := c.serve(t, "")
	r := newRelay(t, Options{Control: client(t, addr)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	sess := newSession()
	r.SiteUp(paris, &wire.Hello{}, sess)
	c.down <- &wire.RelayDown{Msg: &wire.RelayDown_OpenTunnel{OpenTunnel: &wire.SiteOpenTunnel{Tenant: "acme", Site: "paris", Id: "good"}}}
	select {
	case id := <-sess.tunnels:
		if id != "good" {
			t.Fatal(id)
		}
	case <-time.After(time.Minute):
		t.Fatal("the site was not asked")
	}
	far, near := tunnelpipe.New()
	defer far.Cut()
	if err := r.Tunnel(t.Context(), tokyo, "good", near); !errors.Is(err, regional.ErrUnknownTunnel) {
		t.Errorf("another site's: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Tunnel(t.Context(), paris, "good", near) }()
	conn := tunnel.Conn(far, "x", func() {})
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := conn.Read(got); err != nil || !bytes.Equal(got, []byte("HELLO")) {
		t.Errorf("%q, %v", got, err)
	}
	if err := r.Tunnel(t.Context(), paris, "good", near); !errors.Is(err, regional.ErrUnknownTunnel) {
		t.Errorf("a second time: %v", err)
	}
}

// A site that opens none of the tunnels that it is asked for, as its tenant's users ask for
// ever more of them, takes no other site's place.
func TestTunnelsThatASiteDoesNotOpen(t *testing.T) {
	r := newRelay(t, Options{Dir: t.TempDir(), Control: client(t, "127.0.0.1:1")})
	deaf, good := newSession(), newSession()
	deaf.tunnels = make(chan string, 2*maxPendingTunnels)
	r.SiteUp(tokyo, &wire.Hello{}, deaf)
	r.SiteUp(paris, &wire.Hello{}, good)
	for i := range maxPendingTunnels {
		r.onOpenTunnel(&wire.SiteOpenTunnel{Tenant: tokyo.Tenant, Site: tokyo.Name, Id: fmt.Sprint("never-", i)})
	}
	if n := len(deaf.tunnels); n != maxPendingOfSite {
		t.Errorf("the site was asked for %d tunnels that it does not open, want %d", n, maxPendingOfSite)
	}
	r.onOpenTunnel(&wire.SiteOpenTunnel{Tenant: paris.Tenant, Site: paris.Name, Id: "mine"})
	select {
	case id := <-good.tunnels:
		if id != "mine" {
			t.Errorf("asked for %q", id)
		}
	default:
		t.Error("another tenant's site is not asked for its tunnel")
	}
}
