package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"muster.dev/muster/internal/backoff"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/strangers"
	"muster.dev/muster/internal/testkit"
)

// toil has each handshake cost the gateway about so much of a processor, and counts them.
func toil(o *Options, cost time.Duration) *atomic.Int64 {
	block := make([]byte, 64<<10)
	began := time.Now()
	for range 64 {
		sha256.Sum256(block)
	}
	rounds := int(64 * cost / max(time.Since(began), 1))
	var n atomic.Int64
	o.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		n.Add(1)
		for range rounds {
			sha256.Sum256(block)
		}
		return nil, nil
	}
	return &n
}

// comeIn shakes hands from an address as an agent does, and waits for the gateway's first frame.
func (h *harness) comeIn(ctx context.Context, from string, cert *tls.Certificate) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // only the gateway closes any, on however slow a machine
	defer cancel()
	d := tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}, Config: h.tls(cert)}
	d.Config.ServerName, d.Config.NextProtos = "127.0.0.1", []string{"h2"}
	c, err := d.DialContext(ctx, "tcp", h.g.Addr().String())
	if err != nil {
		return err
	}
	h.t.Cleanup(func() { _ = c.Close() })
	end, _ := ctx.Deadline()
	_ = c.SetReadDeadline(end)
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 9))
	return err
}

// storm has sites come at once and try again as agents do; it returns how often the least lucky
// one had to.
func (h *harness) storm(n int, from func(i int) string, most time.Duration) int {
	h.t.Helper()
	certs := make([]*tls.Certificate, n)
	for i := range certs {
		certs[i] = h.ca.site(h.t, fleet.SiteID{Tenant: "acme", Name: fmt.Sprintf("s%d", i)}, "")
	}
	ctx, cancel := context.WithTimeout(h.t.Context(), 4*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var worst, in atomic.Int64
	for i := range n {
		wg.Go(func() {
			for tries := 1; ctx.Err() == nil; tries++ {
				if h.comeIn(ctx, from(i), certs[i]) == nil {
					in.Add(1)
					for w := worst.Load(); int64(tries) > w && !worst.CompareAndSwap(w, int64(tries)); w = worst.Load() {
					}
					return
				}
				select {
				case <-time.After(backoff.FullJitter(tries-1, time.Second, most)):
				case <-ctx.Done():
				}
			}
		})
	}
	wg.Wait()
	if got := int(in.Load()); got != n {
		h.t.Fatalf("%d of %d sites are in", got, n)
	}
	return int(worst.Load())
}

// Where more sites come at once than there is room for strangers, and their handshakes take the
// processor for longer than a stranger's grace, those that came first get in, nobody's handshake
// is worked on for nothing, and the others are in after a few tries.
func TestSitesThatComeAtOnce(t *testing.T) {
	for name, from := range map[string]func(i int) string{
		"each from its own address": func(i int) string { return fmt.Sprintf("127.1.%d.%d", i/200, 1+i%200) },
		"from behind two":           func(i int) string { return fmt.Sprintf("127.2.0.%d", 1+i%2) },
	} {
		t.Run(name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			const sites, most = 400, 30 * time.Second // the agent's
			var shaken *atomic.Int64
			h := newHarness(t, harnessOptions{change: func(o *Options) {
				o.strangers, o.strangersPerHost = 200, 100
				shaken = toil(o, 25*time.Millisecond)
			}})
			if worst := h.storm(sites, from, most); worst > 12 {
				t.Errorf("one tried %d times", worst)
			}
			// The sites compute on the same processor: one of them may be the slow one.
			if n := shaken.Load(); n > sites*11/10 {
				t.Errorf("%d handshakes of %d sites: work was thrown away", n, sites)
			}
			if n := testutil.ToFloat64(h.g.metrics.closed.WithLabelValues(strangers.TooLong)); n != 0 {
				t.Errorf("%g were closed because they stood too long", n)
			}
		})
	}
}

// While some say nothing, some a byte at a time, some nonsense, and some begin handshakes that they
// don't end, from one address and from many, sites get in.
func TestSitesThatComeInAFlood(t *testing.T) {
	h := newHarness(t, harnessOptions{change: func(o *Options) {
		o.strangers, o.strangersPerHost = 64, 32
		toil(o, 2*time.Millisecond)
	}})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	hello := &clientHello{}
	_ = tls.Client(hello, &tls.Config{ServerName: "x"}).Handshake()
	hold := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) } // until the gateway closes it
	kinds := []func(c net.Conn){
		hold,
		func(c net.Conn) {
			for _, b := range hello.said {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				select {
				case <-time.After(50 * time.Millisecond):
				case <-ctx.Done():
					return
				}
			}
		},
		func(c net.Conn) {
			if _, err := io.WriteString(c, "\x16\x03\x01\xff\xff nonsense"); err == nil {
				hold(c)
			}
		},
		func(c net.Conn) {
			if _, err := c.Write(hello.said); err == nil {
				hold(c)
			}
		},
	}
	for i := range 160 {
		from := "127.3.0.1"
		if i%4 == 0 {
			from = fmt.Sprintf("127.3.1.%d", 1+i)
		}
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		wg.Go(func() {
			for ctx.Err() == nil {
				c, err := d.DialContext(ctx, "tcp", h.g.Addr().String())
				if err != nil {
					continue
				}
				end := context.AfterFunc(ctx, func() { _ = c.Close() })
				kinds[i/4%len(kinds)](c)
				end()
				_ = c.Close()
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
		})
	}
	testkit.EventuallyTrue(t, "the flood is there", func() bool { return h.g.conns.strangers.Len() >= 60 })
	h.storm(20, func(i int) string { return fmt.Sprintf("127.4.0.%d", 1+i) }, 2*time.Second)
}

// clientHello keeps what a client says first.
type clientHello struct {
	net.Conn
	said []byte
}

func (c *clientHello) Write(b []byte) (int, error) {
	c.said = append(c.said, b...)
	return len(b), nil
}
func (c *clientHello) Read([]byte) (int, error)         { return 0, io.EOF }
func (c *clientHello) Close() error                     { return nil }
func (c *clientHello) SetWriteDeadline(time.Time) error { return nil }
func (c *clientHello) SetDeadline(time.Time) error      { return nil }
