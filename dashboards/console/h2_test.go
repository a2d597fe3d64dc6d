package console

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"muster.dev/muster/internal/testkit"
)

type sentConn struct {
	net.Conn
	n *atomic.Int64
}

func (c sentConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.n.Add(int64(n))
	return n, err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// Who opens a stream over HTTP/2, and sends a body with it that has no end, is hung up on, and
// leaves nothing in the console's memory.
func TestStreamWithABody(t *testing.T) {
	h := newHarness(t)
	srv := httptest.NewUnstartedServer(nil)
	srv.Config, srv.EnableHTTP2 = h.con.NewServer(), true
	srv.StartTLS()
	defer srv.Close()
	var sent atomic.Int64
	tr := srv.Client().Transport.(*http.Transport).Clone()
	tr.ForceAttemptHTTP2, tr.TLSClientConfig = true, &tls.Config{RootCAs: tr.TLSClientConfig.RootCAs}
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return sentConn{c, &sent}, err
	}
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/api/v1/health/stream", io.NopCloser(zeros{}))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer token-alice")
	var ended atomic.Bool
	go func() {
		defer ended.Store(true)
		if res, err := tr.RoundTrip(req); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}()
	testkit.EventuallyTrue(t, "the stream ended, or holds much", func() bool { return ended.Load() || sent.Load() > 3*h2Window })
	if n := sent.Load(); !ended.Load() || n > 3*h2Window {
		t.Errorf("%d KiB were sent; ended: %t", n>>10, ended.Load())
	}
}
