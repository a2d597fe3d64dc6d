package gateway

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/strangers"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

// halfSent opens requests whose bodies never end, n on one connection, and returns what
// became of them.
func (h *harness) halfSent(cert *tls.Certificate, path string, n int) <-chan string {
	body, stop := newStuckBody()
	h.t.Cleanup(stop)
	c := h.client(cert)
	c.Timeout = 0
	out := make(chan string, n)
	for range n {
		req, err := http.NewRequest(http.MethodPost, "https://"+h.g.Addr().String()+path, struct{ *stuckAfter }{&stuckAfter{n: 3, then: body}})
		if err != nil {
			h.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		go func() {
			resp, err := c.Do(req)
			if err != nil {
				out <- err.Error()
				return
			}
			_, err = io.Copy(io.Discard, resp.Body)
			out <- fmt.Sprint(resp.Status, resp.Header, resp.Trailer, err)
			resp.Body.Close() // waits for the stuck body
		}()
	}
	return out
}

// TestHalfSentRequests: peers with and without a certificate that begin requests and
// never end them hold nothing for long.
func TestHalfSentRequests(t *testing.T) {
	short := func(o *Options) { o.StrangerAsk = 200 * time.Millisecond }
	for _, path := range []string{wire.Registration_Register_FullMethodName, wire.Uplink_Connect_FullMethodName, wire.Uplink_FetchBlob_FullMethodName, "/no.such/Method"} {
		t.Run("stranger"+path, func(t *testing.T) {
			h := newHarness(t, harnessOptions{change: short})
			var all []<-chan string
			const conns, streams = 20, 32
			for range conns {
				all = append(all, h.halfSent(nil, path, streams))
			}
			if n := h.g.strangers.Load(); n > maxStrangerRequests {
				t.Errorf("%d requests of strangers at once", n)
			}
			// An honest machine joins meanwhile, if it tries again as agents do.
			testkit.EventuallyTrue(t, "an honest registration", func() bool {
				_, err := wire.NewRegistrationClient(h.grpc(nil)).Register(t.Context(), &wire.RegisterRequest{Token: "t"})
				return err == nil
			})
			for _, c := range all {
				for range streams {
					select {
					case <-c:
					case <-time.After(20 * time.Second):
						t.Fatal("a half-sent request is held")
					}
				}
			}
			if n := h.g.strangers.Load(); n != 0 {
				t.Errorf("%d requests are still counted", n)
			}
		})
	}
	t.Run("site", func(t *testing.T) {
		h := newHarness(t, harnessOptions{})
		cert := h.ca.site(t, paris, "")
		c := h.halfSent(cert, wire.Uplink_Tunnel_FullMethodName, 20)
		d := h.halfSent(cert, wire.Uplink_Tunnel_FullMethodName, 20)
		testkit.EventuallyTrue(t, "the streams are bounded", func() bool {
			s := h.g.acquire(paris)
			defer s.release()
			return s.streams.Load() == maxSiteStreams
		})
		for range 40 - maxSiteStreams {
			select {
			case got := <-c:
				if !strings.Contains(got, "in flight") {
					t.Error(got)
				}
			case got := <-d:
				if !strings.Contains(got, "in flight") {
					t.Error(got)
				}
			}
		}
		if live := slices.Collect(h.g.Live()); len(live) != 1 || live[0].Limited != "RequestsLimit" {
			t.Errorf("live %+v", live)
		}
	})
}

// TestStrangersRequestsAreFew: of one connection and of all.
func TestStrangersRequestsAreFew(t *testing.T) {
	h := newHarness(t, harnessOptions{change: func(o *Options) { o.StrangerAsk = time.Hour }})
	refused := func(c <-chan string, n int) {
		t.Helper()
		for range n {
			select {
			case got := <-c:
				if !strings.Contains(got, "too many peers") {
					t.Error(got)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("too many requests are let in")
			}
		}
	}
	refused(h.halfSent(nil, wire.Registration_Register_FullMethodName, maxStrangerPerConn+6), 6)
	for range maxStrangerRequests/maxStrangerPerConn - 1 {
		h.halfSent(nil, wire.Registration_Register_FullMethodName, maxStrangerPerConn)
	}
	testkit.EventuallyTrue(t, "all places are taken", func() bool { return h.g.strangers.Load() == maxStrangerRequests })
	refused(h.halfSent(nil, wire.Registration_Register_FullMethodName, 3), 3)
	if code, text, _ := h.pushSeries(h.client(h.ca.site(t, paris, "")), sample(time.Now(), 1, "__name__", "up")); code != 204 {
		t.Errorf("a site meanwhile: %d %s", code, text)
	}
}

// TestStrangersBodyIsNotWaitedFor: who has no certificate is told at once, also if the
// body that was announced never comes.
func TestStrangersBodyIsNotWaitedFor(t *testing.T) {
	h := newHarness(t, harnessOptions{change: func(o *Options) { o.StrangerAsk = time.Hour }})
	for _, path := range []string{"/api/v1/push", "/api/v1/logs", "/", "/etc"} {
		conn, err := tls.Dial("tcp", h.g.Addr().String(), &tls.Config{RootCAs: h.ca.Pool(), NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", path)
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode/100 != 4 {
			t.Errorf("%s: %v %v", path, resp, err)
		}
		conn.Close()
	}
}

// TestStrangersConnections: connections of peers that show nothing are few and short, and
// a site still gets in.
func TestStrangersConnections(t *testing.T) {
	reg := prometheus.NewRegistry()
	const perHost = 200
	h := newHarness(t, harnessOptions{change: func(o *Options) {
		o.StrangerLife, o.Registerer, o.strangersPerHost = 500*time.Millisecond, reg, perHost
	}})
	var wg sync.WaitGroup
	var raw, shaken []net.Conn
	for range perHost / 2 {
		c, err := net.Dial("tcp", h.g.Addr().String()) // says nothing
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, c)
	}
	for range 20 {
		c, err := tls.Dial("tcp", h.g.Addr().String(), &tls.Config{RootCAs: h.ca.Pool(), NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		shaken = append(shaken, c)
	}
	if code, text, _ := h.pushSeries(h.client(h.ca.site(t, paris, "")), sample(time.Now(), 1, "__name__", "up")); code != 204 {
		t.Errorf("a site meanwhile: %d %s", code, text)
	}
	// Each is closed by the gateway.
	for _, c := range append(raw, shaken...) {
		wg.Go(func() {
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
			if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Error("a stranger's connection stays open")
			}
			c.Close()
		})
	}
	wg.Wait()
	// A flood from one address: the table stays small.
	var flood []net.Conn
	for range 2 * perHost {
		if c, err := net.Dial("tcp", h.g.Addr().String()); err == nil {
			flood = append(flood, c)
		}
	}
	if n := h.g.conns.strangers.Len(); n > perHost {
		t.Errorf("%d connections of one address", n)
	}
	for _, c := range flood {
		c.Close()
	}
	testkit.EventuallyTrue(t, "all are forgotten", func() bool {
		h.g.conns.mu.Lock()
		defer h.g.conns.mu.Unlock()
		return h.g.conns.strangers.Len() == 0 && len(h.g.conns.open) <= 1
	})
	for reason, least := range map[string]float64{strangers.TooLong: 100, strangers.ManyHost: 1} {
		if got := testutil.ToFloat64(h.g.metrics.closed.WithLabelValues(reason)); got < least {
			t.Errorf("%s: %g", reason, got)
		}
	}
}

// TestSeventeenthConnection: one too many is told so, in HTTP and in gRPC, and named in
// the log's condition and a metric; the others go on.
func TestSeventeenthConnection(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	cert := h.ca.site(t, paris, "")
	body := remotewrite.EncodeV2([]remotewrite.Series{sample(time.Now(), 1, "__name__", "up")})
	var clients []*http.Client
	for range maxConns {
		c := h.client(cert)
		clients = append(clients, c)
		if code, text, _ := h.push(c, remotewrite.ContentTypeV2, body); code != 204 {
			t.Fatalf("%d %s", code, text)
		}
	}
	code, text, hdr := h.push(h.client(cert), remotewrite.ContentTypeV2, body)
	if code != 429 || !strings.Contains(text, "more than 16 connections") || hdr.Get("Retry-After") == "" {
		t.Errorf("HTTP: %d %s", code, text)
	}
	st := h.connect(t, cert)
	if err := drain(st); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "more than 16 connections") {
		t.Errorf("gRPC: %v", err)
	}
	if live := slices.Collect(h.g.Live()); len(live) != 1 || live[0].Limited != "ConnectionsLimit" {
		t.Errorf("live %+v", live)
	}
	if n := testutil.ToFloat64(h.g.metrics.closed.WithLabelValues(closedSite)); n < 2 {
		t.Errorf("%g closed connections are counted", n)
	}
	for _, c := range clients {
		if code, text, _ := h.push(c, remotewrite.ContentTypeV2, body); code != 204 {
			t.Errorf("an old connection: %d %s", code, text)
		}
	}
	// Another site is not concerned, and room that was made is used.
	if code, _, _ := h.push(h.client(h.ca.site(t, fleet.SiteID{Tenant: "acme", Name: "berlin"}, "")), remotewrite.ContentTypeV2, body); code != 204 {
		t.Errorf("another site: %d", code)
	}
	for _, c := range clients[:4] {
		c.CloseIdleConnections()
	}
	testkit.EventuallyTrue(t, "there is room again", func() bool {
		code, _, _ := h.push(h.client(cert), remotewrite.ContentTypeV2, body)
		return code == 204
	})
}

// TestReaderThatStandsStill: a site that asks for much and takes nothing does not hold the
// answer, and one that is only quiet is left alone.
func TestReaderThatStandsStill(t *testing.T) {
	blob := bytes.Repeat([]byte("x"), 8<<20)
	h := newHarness(t, harnessOptions{change: func(o *Options) { o.WriteStall = 300 * time.Millisecond }})
	h.up.desired = map[fleet.SiteID]*wire.DesiredState{paris: desiredOf(blob)}
	h.up.blobs = map[string][]byte{wire.DigestOf(blob): blob}
	cert := h.ca.site(t, paris, "")
	quiet := h.connect(t, cert)
	for range 2 { // welcome, desired state
		if _, err := quiet.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := wire.NewUplinkClient(h.grpc(cert)).FetchBlob(t.Context(), &wire.FetchBlobRequest{Digest: wire.DigestOf(blob)}); err != nil {
		t.Fatal(err)
	}
	streams := func() int32 {
		s := h.g.acquire(paris)
		defer s.release()
		return s.streams.Load()
	}
	testkit.EventuallyTrue(t, "both streams are there", func() bool { return streams() == 2 })
	testkit.EventuallyTrue(t, "the one that stands still is ended", func() bool { return streams() == 1 })
	sess := h.up.session(paris)
	if sess == nil {
		t.Fatal("the quiet stream was ended")
	}
	sess.Desired(desiredOf(blob, []byte("two")))
	m, err := quiet.Recv()
	if d, cerr := wire.Changed(desiredOf(blob), m.GetChange()); err != nil || cerr != nil || len(d.Items) != 2 {
		t.Errorf("the quiet stream: %v, %v", m, err)
	}
}
