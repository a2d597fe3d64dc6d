package tunnel

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Serve has a server answer on one connection, of a tunnel or any other, until it ends or
// ctx does, which closes it. The server serves nothing else.
func Serve(ctx context.Context, conn net.Conn, s *http.Server) {
	done := make(chan struct{})
	c := &servedConn{Conn: conn, done: done}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	s.BaseContext = func(net.Listener) context.Context { return ctx }
	_ = s.Serve(&oneConn{conn: c, done: done})
}

// oneConn is a listener of one connection.
type oneConn struct {
	conn net.Conn
	done chan struct{}
	once sync.Once
}

// Accept implements net.Listener: the connection, and then its end.
func (l *oneConn) Accept() (net.Conn, error) {
	var c net.Conn
	l.once.Do(func() { c = l.conn })
	if c != nil {
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *oneConn) Close() error { return nil }

// Addr implements net.Listener.
func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

// servedConn tells when it is closed.
type servedConn struct {
	net.Conn
	done chan struct{}
	once sync.Once
}

// Close implements net.Conn.
func (c *servedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.done) })
	return err
}
