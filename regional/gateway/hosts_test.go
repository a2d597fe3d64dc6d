package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/hosts"
)

type biStream = grpc.BidiStreamingClient[wire.TunnelData, wire.TunnelData]

// hostsHarness has paris reach shop/db, which berlin serves.
func hostsHarness(t *testing.T) *harness {
	b := hosts.New(hosts.Options{Providers: func(c fleet.SiteID, host string) ([]hosts.Provider, bool) {
		return []hosts.Provider{{Site: berlin.Name}}, c == paris && host == "shop/db"
	}})
	return newHarness(t, harnessOptions{change: func(o *Options) { o.Hosts = b }})
}

func say(t *testing.T, st biStream, err error, first *wire.TunnelData) biStream {
	t.Helper()
	if err == nil {
		err = st.Send(first)
	}
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// Two sites are connected, with much in both directions, while others stand still.
func TestHosts(t *testing.T) {
	h := hostsHarness(t)
	from, to := wire.NewUplinkClient(h.grpc(h.ca.site(t, paris, "eu"))), wire.NewUplinkClient(h.grpc(h.ca.site(t, berlin, "eu")))
	session := h.connect(t, h.ca.site(t, berlin, "eu"))
	if m, err := session.Recv(); err != nil || m.GetWelcome() == nil {
		t.Fatalf("%v, %v", m, err)
	}
	pair := func() (a, b net.Conn) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		st, err := from.Reach(ctx)
		reach := say(t, st, err, &wire.TunnelData{Id: "shop/db"})
		m, err := session.Recv()
		if err != nil || m.GetOpenHost().GetHost() != "shop/db" {
			t.Fatalf("%v, %v", m, err)
		}
		st, err = to.Answer(ctx)
		answer := say(t, st, err, &wire.TunnelData{Id: m.GetOpenHost().GetId()})
		for _, s := range []biStream{reach, answer} {
			if _, err := s.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(cancel)
		return tunnel.Windowed(reach, "berlin", func() {}), tunnel.Windowed(answer, "paris", func() {})
	}
	for range 5 { // nobody reads these
		a, _ := pair()
		if _, err := a.Write(make([]byte, tunnel.Window)); err != nil {
			t.Fatal(err)
		}
	}
	a, b := pair()
	body := make([]byte, 3<<20)
	_, _ = rand.Read(body)
	go func() { _, _ = io.Copy(b, b) }()
	go func() { _, _ = a.Write(body) }()
	got := make([]byte, len(body))
	if _, err := io.ReadFull(a, got); err != nil || !bytes.Equal(got, body) {
		t.Fatalf("%v; equal: %t", err, bytes.Equal(got, body))
	}
	b.Close()
	testkit.Eventually(t, "the other end notices", func() error {
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			return err
		}
		return nil
	})
}

// What a site says does not matter: its certificate does, and what control has told.
func TestHostsRefuses(t *testing.T) {
	h := hostsHarness(t)
	reach := func(id fleet.SiteID, first *wire.TunnelData) error {
		st, err := wire.NewUplinkClient(h.grpc(h.ca.site(t, id, "eu"))).Reach(t.Context())
		_, err = say(t, st, err, first).Recv()
		return err
	}
	answer := func(id fleet.SiteID, first *wire.TunnelData) error {
		st, err := wire.NewUplinkClient(h.grpc(h.ca.site(t, id, "eu"))).Answer(t.Context())
		_, err = say(t, st, err, first).Recv()
		return err
	}
	for name, c := range map[string]struct {
		err  error
		want codes.Code
	}{
		"of another tenant":        {reach(fleet.SiteID{Tenant: "umbrella", Name: "paris"}, &wire.TunnelData{Id: "shop/db"}), codes.NotFound},
		"another site":             {reach(berlin, &wire.TunnelData{Id: "shop/db"}), codes.NotFound},
		"another host":             {reach(paris, &wire.TunnelData{Id: "shop/web"}), codes.NotFound},
		"nonsense":                 {reach(paris, &wire.TunnelData{Id: "../../etc"}), codes.InvalidArgument},
		"nothing":                  {reach(paris, &wire.TunnelData{}), codes.InvalidArgument},
		"nobody serves it now":     {reach(paris, &wire.TunnelData{Id: "shop/db"}), codes.Unavailable},
		"an answer to no question": {answer(berlin, &wire.TunnelData{Id: "AAAAAAAA"}), codes.NotFound},
		"an answer without an id":  {answer(berlin, &wire.TunnelData{}), codes.InvalidArgument},
	} {
		if status.Code(c.err) != c.want {
			t.Errorf("%s: %v, want %s", name, c.err, c.want)
		}
	}
	// An answer by another site than the one that was asked.
	session := h.connect(t, h.ca.site(t, berlin, "eu"))
	if m, err := session.Recv(); err != nil || m.GetWelcome() == nil {
		t.Fatalf("%v, %v", m, err)
	}
	st, err := wire.NewUplinkClient(h.grpc(h.ca.site(t, paris, "eu"))).Reach(t.Context())
	say(t, st, err, &wire.TunnelData{Id: "shop/db"})
	m, err := session.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if err := answer(paris, &wire.TunnelData{Id: m.GetOpenHost().GetId()}); status.Code(err) != codes.NotFound {
		t.Errorf("another site's answer: %v", err)
	}
	if err := answer(berlin, &wire.TunnelData{Id: m.GetOpenHost().GetId(), Refused: "no such Service"}); err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("a refusal: %v", err)
	}
	if _, err := st.Recv(); status.Code(err) != codes.Unavailable || !bytes.Contains([]byte(err.Error()), []byte("no such Service")) {
		t.Errorf("what the site that reaches it is told: %v", err)
	}
}

// An agent that is too old to is not asked.
func TestHostsAndOldAgents(t *testing.T) {
	h := hostsHarness(t)
	st, err := wire.NewUplinkClient(h.grpc(h.ca.site(t, berlin, "eu"))).Connect(t.Context())
	if err == nil {
		err = st.Send(&wire.FromSite{Msg: &wire.FromSite_Hello{Hello: &wire.Hello{Capability: wire.HostCapability - 1}}})
	}
	if err == nil {
		_, err = st.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	if h.g.OpenHost(berlin, "x", "shop/db") {
		t.Error("it is asked")
	}
}

// A site that takes nothing of what it is sent is not asked without end.
func TestHostsThatAreNotTaken(t *testing.T) {
	s := newSession(&site{id: berlin}, nil, wire.HostCapability)
	for i := range 2 * maxUnsent {
		if ok := s.openHost(&wire.OpenHost{Id: "x", Host: "shop/db"}); ok != (i < maxUnsent) {
			t.Fatalf("request %d: %t", i, ok)
		}
	}
	if msgs, _ := s.take(holding{}); len(msgs) != maxUnsent || !s.openHost(&wire.OpenHost{}) {
		t.Errorf("%d were sent", len(msgs))
	}
}

// A site that opens connections as fast as it can gets so many a second.
func TestHostsFlood(t *testing.T) {
	h := hostsHarness(t)
	s := h.g.acquire(paris)
	defer s.release()
	s.opens.SetBurst(5)
	s.opens.SetLimit(0)
	c := wire.NewUplinkClient(h.grpc(h.ca.site(t, paris, "eu")))
	for i := range 10 {
		st, err := c.Reach(t.Context())
		if err == nil {
			_ = st.Send(&wire.TunnelData{Id: "shop/other"}) // why it failed is told by Recv
			_, err = st.Recv()
		}
		if want := map[bool]codes.Code{true: codes.NotFound, false: codes.Unavailable}[i < 5]; status.Code(err) != want {
			t.Errorf("request %d: %v, want %s", i, err, want)
		}
	}
}

// silentStream is a stream on which nothing comes.
type silentStream struct {
	grpc.BidiStreamingServer[wire.TunnelData, wire.TunnelData]
	ctx context.Context
}

func (s *silentStream) Context() context.Context { return s.ctx }
func (s *silentStream) Recv() (*wire.TunnelData, error) {
	<-s.ctx.Done()
	return nil, s.ctx.Err()
}

// Who opens a stream and does not say what for has so long, and no longer.
func TestHostsHalfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(context.WithValue(t.Context(), callerKey{}, caller{site: paris}))
		defer stop()
		u := &uplink{g: &Gateway{opts: Options{Hosts: hosts.New(hosts.Options{})}}}
		for name, open := range map[string]func(grpc.BidiStreamingServer[wire.TunnelData, wire.TunnelData]) error{"Reach": u.Reach, "Answer": u.Answer, "Tunnel": u.Tunnel} {
			if err := open(&silentStream{ctx: ctx}); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
