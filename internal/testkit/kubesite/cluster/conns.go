package cluster

import (
	"net"
	"sync"
)

// connections are those through one point, which can be cut.
type connections struct {
	mu   sync.Mutex
	shut bool
	open map[*conn]bool
}

type conn struct {
	net.Conn
	of *connections
}

// add takes a connection in; nil: it is cut, because the point is shut.
func (cs *connections) add(c net.Conn) net.Conn {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.shut {
		cut(c)
		return nil
	}
	if cs.open == nil {
		cs.open = map[*conn]bool{}
	}
	out := &conn{c, cs}
	cs.open[out] = true
	return out
}

// set shuts the point, which cuts what is open, or opens it.
func (cs *connections) set(shut bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.shut = shut
	if !shut {
		return
	}
	for c := range cs.open {
		cut(c.Conn)
		delete(cs.open, c)
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// cut ends a connection as a machine does that is gone: with a reset.
func cut(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
