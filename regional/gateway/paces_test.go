package gateway

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

// An IPv6 customer has 2^64 addresses, and counts for one; however many addresses come, none
// of them gives another one its attempts back.
func TestRegistrationsOfManyAddresses(t *testing.T) {
	r := newRegistration(nil)
	forged := sha256.Sum256([]byte("forged"))
	let := 0
	for i := range 3 * registerBurst {
		if r.wait(fmt.Sprintf("[2001:db8:0:1::%x]:1", i+1), forged) == 0 {
			let++
		}
	}
	if let < registerBurst || let > registerBurst+10 {
		t.Errorf("%d of %d attempts of one network are let in", let, 3*registerBurst)
	}
	if r.wait("[2001:db8:0:2::1]:1", forged) != 0 {
		t.Error("another network pays for the first")
	}
	let = 0
	for i := range maxRegisterPeers + 1 {
		r.wait(fmt.Sprintf("10.1.%d.%d:1", i>>8, i&0xff), forged)
		if i%50 == 0 && r.wait("[2001:db8:0:1::1]:1", forged) == 0 {
			let++
		}
	}
	if let > 50 {
		t.Errorf("the network gets %d attempts more while others come", let)
	}
}

// A site whose pushes are refused for one reason after another fills nobody's log.
func TestALimitedSiteDoesNotFloodTheLog(t *testing.T) {
	now := newClock()
	g := bareGateway(now.now, &upstream{}, nil)
	var log bytes.Buffer
	g.log = slog.New(slog.NewTextHandler(&log, nil))
	s, other := g.acquire(paris), g.acquire(tokyo)
	for range 1000 {
		g.noteLimit(s, reasonFuture, "future")
		g.noteLimit(s, reasonTooOld, "too old")
		now.add(time.Millisecond)
	}
	if n := strings.Count(log.String(), "\n"); n == 0 || n > 10 {
		t.Errorf("%d lines for 2,000 refusals", n)
	}
	g.noteLimit(other, reasonSeries, "series")
	if !strings.Contains(log.String(), "umbrella") {
		t.Error("the other site's refusal is not logged")
	}
	now.add(time.Minute)
	g.noteLimit(s, reasonFuture, "future")
	if !strings.Contains(log.String(), "left_out=1") {
		t.Errorf("how many were left out is not said: %s", log.String())
	}
}

// A site that connects or renews without end is told to wait, its name for its agent is cut,
// and a neighbour's stream opens.
func TestReconnectsHaveAPace(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	up := wire.NewUplinkClient(h.grpc(h.ca.site(t, paris, "")))
	connect := func(m *wire.FromSite) error {
		st, err := up.Connect(t.Context())
		if err != nil {
			return err
		}
		defer func() { _ = st.CloseSend() }()
		if err := st.Send(m); err != nil && err != io.EOF {
			return err
		}
		_, err = st.Recv()
		return err
	}
	long := &wire.Hello{Capability: wire.Capability, AgentVersion: strings.Repeat("v", 100<<10), SystemLabels: map[string]string{"os": strings.Repeat("x", 10<<10), strings.Repeat("k", 1<<10): "v"}}
	if err := connect(&wire.FromSite{Msg: &wire.FromSite_Hello{Hello: long}}); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "the stream in control's eyes", func() bool { return h.up.helloOf(paris) != nil })
	if got := h.up.helloOf(paris); len(got.AgentVersion) > 64 || len(got.SystemLabels) != 1 || len(got.SystemLabels["os"]) > 256 {
		t.Errorf("control is told %d bytes of an agent's version, %d labels, %d bytes of one", len(got.AgentVersion), len(got.SystemLabels), len(got.SystemLabels["os"]))
	}
	refused := func(what string, do func() error) {
		t.Helper()
		for range 200 {
			if err := do(); err != nil {
				if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "acme/paris") {
					t.Errorf("%s: refused with %v", what, err)
				}
				return
			}
		}
		t.Errorf("%s: 200 in a row are taken", what)
	}
	refused("connect", func() error { return connect(hello()) })
	refused("renew", func() error {
		_, err := up.Renew(t.Context(), &wire.RenewRequest{})
		return err
	})
	for _, id := range []fleet.SiteID{berlin, tokyo} {
		cert := h.ca.site(t, id, "")
		if _, err := h.connect(t, cert).Recv(); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		if _, err := wire.NewUplinkClient(h.grpc(cert)).Renew(t.Context(), &wire.RenewRequest{}); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	tooLong := h.connect(t, h.ca.site(t, fleet.SiteID{Tenant: "acme", Name: "oslo"}, ""), func(m *wire.Hello) { m.Revision = strings.Repeat("r", 1<<10) })
	if _, err := tooLong.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a revision of 1 KiB: %v", err)
	}
}
