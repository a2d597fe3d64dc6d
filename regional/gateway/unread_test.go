package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
)

// hose is a connection whose requests have bodies without an end.
type hose struct {
	sent atomic.Int64 // bytes on the wire
	open atomic.Int32 // requests
}

// countedConn counts what is written.
type countedConn struct {
	net.Conn
	n *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.n.Add(int64(n))
	return n, err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// pour opens requests on a connection of their own.
func (h *harness) pour(ctx context.Context, cert *tls.Certificate, requests int) *hose {
	s := &hose{}
	tr := &http.Transport{TLSClientConfig: h.tls(cert), ForceAttemptHTTP2: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return countedConn{c, &s.sent}, err
	}}
	h.t.Cleanup(tr.CloseIdleConnections)
	s.open.Store(int32(requests))
	one := func() {
		defer s.open.Add(-1)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+h.g.Addr().String()+"/api/v1/logs", io.NopCloser(zeros{}))
		if err != nil {
			h.t.Error(err)
			return
		}
		if resp, err := tr.RoundTrip(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	go one()
	for range requests - 1 {
		testkit.EventuallyTrue(h.t, "the connection is there", func() bool { return s.sent.Load() > 0 })
		go one()
	}
	return s
}

// Sites that fill the windows of as many connections as they may have, for handlers that don't
// read: all together hold no more than their first connections and the memory for requests,
// and a neighbour is served.
func TestUnreadWindowsHaveASum(t *testing.T) {
	const memory, sites = 16 << 20, 6
	h := newHarness(t, harnessOptions{change: func(o *Options) {
		o.Memory = memory
		o.Logs = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []*hose
	for i := range sites {
		cert := h.ca.site(t, fleet.SiteID{Tenant: "umbrella", Name: fmt.Sprintf("s%d", i)}, "")
		for range maxConns {
			all = append(all, h.pour(ctx, cert, 2))
		}
	}
	// Each has filled its window, or was refused.
	const full = connWindow * 9 / 10
	testkit.EventuallyTrue(t, "nothing moves", func() bool {
		for _, s := range all {
			if s.open.Load() == 2 && s.sent.Load() < full {
				return false
			}
		}
		return true
	})
	held, standing := int64(0), 0
	for _, s := range all {
		if s.open.Load() > 0 {
			held += s.sent.Load()
			standing++
		}
	}
	if most := int64(sites*connWindow + memory); held > most || standing < sites {
		t.Errorf("%d of %d connections hold %d KiB that nobody reads, want at most %d", standing, len(all), held>>10, most>>10)
	}
	if n := testutil.ToFloat64(h.g.metrics.limited.WithLabelValues(reasonUnread)); n == 0 {
		t.Error("no refusal is counted")
	}
	h.neighbourPushes(t)
	cancel()
	testkit.EventuallyTrue(t, "the memory is given back", func() bool { return h.g.Status().Memory.Used == 0 })
}

// neighbourPushes does what a site does: one connection has its streams, one of them unread,
// and three send.
func (h *harness) neighbourPushes(t *testing.T) {
	t.Helper()
	cert := h.ca.site(t, paris, "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := h.pour(ctx, cert, 1)
	testkit.EventuallyTrue(t, "the neighbour's window is full", func() bool { return first.sent.Load() > requestWindow })
	for range 3 {
		if code, text, _ := h.pushSeries(h.client(cert), sample(time.Now(), 1, "__name__", "up")); code != http.StatusNoContent {
			t.Errorf("a neighbour meanwhile: %d %s", code, text)
		}
	}
	if first.open.Load() != 1 {
		t.Error("the neighbour's first connection was refused")
	}
}

// The head of a request takes little: hundreds of a site's requests may stand at once.
func TestHeadsAreSmall(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	cert := h.ca.site(t, paris, "")
	if code, text, _ := h.push(h.client(cert), "application/x-protobuf", nil, "X-Fluent-Tag", strings.Repeat("x", 4<<10)); code == http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("an ordinary head: %d %s", code, text)
	}
	req, err := http.NewRequest(http.MethodPost, h.url(), strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Fluent-Tag", strings.Repeat("x", 12<<10))
	// The client knows the bound, which HTTP/2 tells, and does not even send it.
	if resp, err := h.client(cert).Do(req); err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a head of 12 KiB: %d", resp.StatusCode)
		}
	}
}
