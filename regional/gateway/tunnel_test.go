package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/wire"
)

// A site's tunnel passes bytes in both directions, and is its own alone.
func TestTunnel(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	c := wire.NewUplinkClient(h.grpc(h.ca.site(t, paris, "eu")))
	st, err := c.Tunnel(t.Context())
	if err == nil {
		err = st.Send(&wire.TunnelData{Id: "tunnel-of-paris"})
	}
	if err != nil {
		t.Fatal(err)
	}
	conn := tunnel.Conn(st, "x", func() {})
	defer conn.Close()
	body := make([]byte, 3<<20)
	_, _ = rand.Read(body)
	go func() { _, _ = conn.Write(body) }()
	got := make([]byte, len(body))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%v; equal: %t", err, bytes.Equal(got, body))
	}
	for id, want := range map[string]codes.Code{"tunnel-of-berlin": codes.NotFound, "": codes.InvalidArgument, string(make([]byte, 65)): codes.InvalidArgument} {
		st, err := c.Tunnel(t.Context())
		if err == nil {
			_ = st.Send(&wire.TunnelData{Id: id})
			_, err = st.Recv()
		}
		if status.Code(err) != want {
			t.Errorf("%.20q: %v", id, err)
		}
	}
	st, err = wire.NewUplinkClient(h.grpc(nil)).Tunnel(t.Context())
	if err == nil {
		_, err = st.Recv()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a certificate: %v", err)
	}
}

// Who sends into a tunnel that nobody reads from has to wait: nothing piles up here.
func TestTunnelThatNobodyReads(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	st, err := wire.NewUplinkClient(h.grpc(h.ca.site(t, paris, "eu"))).Tunnel(ctx)
	if err == nil {
		err = st.Send(&wire.TunnelData{Id: "nobody-reads"})
	}
	if err != nil {
		t.Fatal(err)
	}
	var sent, before atomic.Int64
	go func() {
		for st.Send(&wire.TunnelData{Data: make([]byte, 32<<10)}) == nil {
			sent.Add(32 << 10)
		}
	}()
	testkit.Eventually(t, "it waits", func() error {
		defer before.Store(sent.Load())
		time.Sleep(time.Second)
		if n := sent.Load(); n == 0 || n != before.Load() {
			return errors.New("it goes on sending")
		}
		return nil
	})
	if n := sent.Load(); n > tunnelAhead+2<<20 { // and what the windows of HTTP/2 take
		t.Errorf("%d bytes were taken", n)
	}
}

// The welcome says what is held of the site's cluster, and what follows nothing is asked for.
func TestClusterOfASite(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	cert := h.ca.site(t, paris, "eu")
	st := h.connect(t, cert)
	welcome := func() *wire.Welcome {
		t.Helper()
		m, err := st.Recv()
		if err != nil || m.GetWelcome() == nil {
			t.Fatalf("%v, %v", m, err)
		}
		return m.GetWelcome()
	}
	if w := welcome(); w.KubernetesEpoch != "" {
		t.Errorf("%v", w)
	}
	site := mirror.New(mirror.DefaultLimits, nil)
	site.Put(&wire.Mirrored{Kind: "Pod", Namespace: "acme-shop", Name: "web", Object: []byte("x")})
	site.Begin()
	for _, part := range site.Next(true) {
		if err := st.Send(&wire.FromSite{Msg: &wire.FromSite_Kubernetes{Kubernetes: part}}); err != nil {
			t.Fatal(err)
		}
	}
	epoch, seq := site.Version()
	testkit.EventuallyTrue(t, "it is passed on", func() bool { e, s := h.up.KubernetesVersion(paris); return e == epoch && s == seq })
	if err := st.Send(&wire.FromSite{Msg: &wire.FromSite_Kubernetes{Kubernetes: &wire.KubernetesStatus{Epoch: epoch, Seq: 99, After: 98}}}); err != nil {
		t.Fatal(err)
	}
	if m, err := st.Recv(); err != nil || m.GetKubernetesResync() == nil {
		t.Errorf("a gap: %v, %v", m, err)
	}
	st = h.connect(t, cert)
	if w := welcome(); w.KubernetesEpoch != epoch || w.KubernetesSeq != seq {
		t.Errorf("%v", w)
	}
	h.up.session(paris).OpenTunnel("t1")
	if m, err := st.Recv(); err != nil || m.GetOpenTunnel().GetId() != "t1" {
		t.Errorf("%v, %v", m, err)
	}
}
