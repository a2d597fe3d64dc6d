package hosts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/vhost"
)

// listener takes connections to one host that is advertised to this site.
type listener struct {
	h    *Hosts
	ln   net.Listener
	host atomic.Pointer[vhost.Host]
	// cancel ends it and its connections.
	cancel context.CancelFunc
}

func (l *listener) port() int            { return l.ln.Addr().(*net.TCPAddr).Port }
func (l *listener) current() *vhost.Host { return l.host.Load() }

func (l *listener) close() {
	l.cancel()
	l.ln.Close()
}

// listen returns the listener of a host, which it makes if need be.
func (h *Hosts) listen(ctx context.Context, host *vhost.Host) (*listener, error) {
	if l := h.listeners[host.Key()]; l != nil {
		l.host.Store(host)
		return l, nil
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(h.o.Listen, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for connections to it: %w", err)
	}
	l := &listener{h: h, ln: ln}
	l.host.Store(host)
	ctx, l.cancel = context.WithCancel(ctx)
	h.listeners[host.Key()] = l
	h.wg.Go(func() { l.accept(ctx) })
	return l, nil
}

func (l *listener) accept(ctx context.Context) {
	for {
		conn, err := l.ln.Accept()
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			if err == nil {
				conn.Close()
			}
			return
		}
		if err != nil { // such as too many open files
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		l.h.wg.Go(func() {
			if err := l.serve(ctx, conn); err != nil {
				if ctx.Err() == nil {
					l.h.tried(l.current().Key(), outward, err)
				}
				reset(conn)
				l.h.o.Logger.Debug("a connection to a virtual host came to nothing", "host", l.current().Key(), "err", clip(err.Error()))
			}
			conn.Close()
		})
	}
}

// reset has a client see that nobody was there, instead of an end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

func (l *listener) serve(ctx context.Context, local net.Conn) error {
	give, ok := l.h.place()
	if !ok {
		return errNoPlace
	}
	defer give()
	host := l.current()
	if own, _, _ := l.h.agent.Identity(); host.Provides(own.Name) {
		// Nearer than any other site.
		dctx, cancel := context.WithTimeout(ctx, dialWithin)
		service, err := l.h.o.Site.Dial(dctx, host)
		cancel()
		if err == nil {
			l.h.tried(host.Key(), outward, nil)
			stop := context.AfterFunc(ctx, func() { service.Close(); local.Close() })
			defer stop()
			if host.HTTP {
				l.h.passRequests(ctx, l.current, own.Name, l.h.meter.open(host.Key(), outward, own.Name, local).turned(), service)
			} else {
				Copy(l.h.meter.open(host.Key(), outward, own.Name, service), local)
			}
			return nil
		}
	}
	rctx, cancel := context.WithTimeout(ctx, reachWithin)
	raw, err := l.h.agent.Reach(rctx, host.Key())
	cancel()
	if err != nil {
		return err
	}
	var who fleet.SiteID
	return l.h.carry(ctx, host, outward, tls.Client(raw, l.h.peer(host.Tenant, host.Providers, &who)), &who, local)
}

// Copy passes on between two connections until both directions have ended, and closes both.
// The end of one direction is passed on as such where a connection can be closed by half.
func Copy(a, b net.Conn) {
	var wg sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil && half.CloseWrite() == nil {
			return
		}
		a.Close()
		b.Close()
	}
	wg.Go(func() { pass(a, b) })
	pass(b, a)
	wg.Wait()
	a.Close()
	b.Close()
}
