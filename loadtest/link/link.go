// Package link is a network link of a simulated site that can be cut and
// restored. A cut link swallows bytes without closing anything, as a dead uplink
// does: both ends have to find out by themselves. It is used by the simulated
// fleet and by tests, never by a real site.
package link

import (
	"context"
	"net"
	"sync"
)

// Link dials through an uplink that can be cut. The zero value is up. Safe for
// concurrent use.
type Link struct {
	Dialer net.Dialer // what is below it; set before the first use

	mu    sync.Mutex
	down  chan struct{} // non-nil while cut; closed by Restore
	conns map[*conn]struct{}
}

// DialContext is net.Dialer.DialContext over this link. While the link is cut it
// blocks until the link is restored or ctx ends.
func (l *Link) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	for {
		down := l.state()
		if down == nil {
			break
		}
		select {
		case <-down:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c, err := l.Dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	lc := &conn{Conn: c, link: l, closed: make(chan struct{})}
	l.mu.Lock()
	if l.conns == nil {
		l.conns = map[*conn]struct{}{}
	}
	l.conns[lc] = struct{}{}
	l.mu.Unlock()
	return lc, nil
}

// Cut makes the link swallow everything. Cutting a cut link does nothing.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down == nil {
		l.down = make(chan struct{})
	}
}

// Restore brings the link back. Connections from before are closed, as a NAT or a
// rebooted modem would have forgotten them.
func (l *Link) Restore() {
	l.mu.Lock()
	if l.down == nil {
		l.mu.Unlock()
		return
	}
	close(l.down)
	l.down = nil
	old := l.conns
	l.conns = nil
	l.mu.Unlock()
	for c := range old {
		_ = c.Close()
	}
}

// IsCut tells whether the link is cut now.
func (l *Link) IsCut() bool { return l.state() != nil }

func (l *Link) state() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.down
}

type conn struct {
	net.Conn
	link   *Link
	closed chan struct{}
	once   sync.Once
}

// NetConn returns the connection below the link.
func (c *conn) NetConn() net.Conn { return c.Conn }

// pass blocks while the link is cut.
func (c *conn) pass() error {
	if down := c.link.state(); down != nil {
		select {
		case <-down:
		case <-c.closed:
		}
		return net.ErrClosed
	}
	return nil
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	// What arrived while the link is cut never arrived.
	if perr := c.pass(); perr != nil {
		return 0, perr
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.link.mu.Lock()
		delete(c.link.conns, c)
		c.link.mu.Unlock()
	})
	return c.Conn.Close()
}
