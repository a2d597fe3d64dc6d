// Package tunnel makes a connection of a stream of wire.TunnelData: the way from control to
// a site's agent, by streams that the site and its regional open. The agent and control are
// its ends (Conn); the regional passes on (Splice).
//
// A tunnel of konnectivity's does the same with an agent, a server and connections of its
// own; here the streams go over the connections that are there, with their identities.
package tunnel

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/wire"
)

// Stream is either end of a gRPC stream of TunnelData.
type Stream interface {
	Send(*wire.TunnelData) error
	Recv() (*wire.TunnelData, error)
}

// chunk is how much goes into a message at most: well below what any hop takes.
const chunk = 32 << 10

// conn is a net.Conn.
type conn struct {
	side

	reads chan []byte // what came; closed at its end
	rest  []byte
	err   error // why reads is closed

	once   sync.Once
	closed chan struct{}
}

// side is what both kinds of connection have of their end of a stream.
type side struct {
	stream Stream
	name   string
	end    func()

	sending sync.Mutex // one Send at a time

	read, write *deadline
}

// closer is the client's end of a stream, which can say that it has said all.
type closer interface{ CloseSend() error }

// Conn returns a connection over a stream. name is its address, for people. end ends the
// stream; it is called once, by Close. A client's end should leave what was written the
// time to get there.
func Conn(s Stream, name string, end func()) net.Conn {
	c := &conn{side: side{stream: s, name: name, end: end, read: newDeadline(), write: newDeadline()}, reads: make(chan []byte), closed: make(chan struct{})}
	go c.receive()
	return c
}

func (c *conn) receive() {
	defer close(c.reads)
	for {
		m, err := c.stream.Recv()
		if err != nil {
			if status.Code(err) == codes.Canceled {
				err = io.EOF // the other end closed it
			}
			c.err = err
			return
		}
		if len(m.GetData()) == 0 {
			continue
		}
		select {
		case c.reads <- m.Data:
		case <-c.closed:
			c.err = net.ErrClosed
			return
		}
	}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		select {
		case b, ok := <-c.reads:
			if !ok {
				select {
				case <-c.closed:
					return 0, net.ErrClosed
				default:
				}
				return 0, c.err
			}
			c.rest = b
		case <-c.closed:
			return 0, net.ErrClosed
		case <-c.read.over():
			return 0, os.ErrDeadlineExceeded
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write implements net.Conn. A deadline that passes while it waits for the other end is
// noticed by the next write alone.
func (c *conn) Write(p []byte) (int, error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	n := 0
	for n < len(p) {
		select {
		case <-c.closed:
			return n, net.ErrClosed
		case <-c.write.over():
			return n, os.ErrDeadlineExceeded
		default:
		}
		b := p[n:min(n+chunk, len(p))]
		// gRPC may keep a message that it has been given.
		if err := c.stream.Send(&wire.TunnelData{Data: append([]byte(nil), b...)}); err != nil {
			return n, err
		}
		n += len(b)
	}
	return n, nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.hangUp()
	})
	return nil
}

type addr string

func (addr) Network() string  { return "muster-tunnel" }
func (a addr) String() string { return string(a) }

// hangUp tells the other end that nothing more comes. It is called once.
func (c *side) hangUp() {
	if cl, ok := c.stream.(closer); ok {
		go func() { // CloseSend and a Send that waits must not meet
			c.sending.Lock()
			defer c.sending.Unlock()
			_ = cl.CloseSend()
		}()
	}
	c.end()
}

// LocalAddr implements net.Conn.
func (c *side) LocalAddr() net.Addr { return addr(c.name) }

// RemoteAddr implements net.Conn.
func (c *side) RemoteAddr() net.Addr { return addr(c.name) }

// SetDeadline implements net.Conn.
func (c *side) SetDeadline(t time.Time) error {
	c.read.set(t)
	c.write.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *side) SetReadDeadline(t time.Time) error { c.read.set(t); return nil }

// SetWriteDeadline implements net.Conn.
func (c *side) SetWriteDeadline(t time.Time) error { c.write.set(t); return nil }

// deadline is a channel that is closed when a time is over.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	done  chan struct{}
}

func newDeadline() *deadline { return &deadline{done: make(chan struct{})} }

func (d *deadline) over() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done
}

// set moves it. A Read that waits notices, unless the time of before was over.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	select {
	case <-d.done:
		d.done = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	var mine *time.Timer
	mine = time.AfterFunc(time.Until(t), func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.timer == mine { // else it was moved meanwhile
			close(d.done)
			d.timer = nil
		}
	})
	d.timer = mine
}

// Splice passes on what comes from a site's stream to control's and back, until control ends
// it or either breaks. It returns why; nil if an end closed it. The caller then ends both.
func Splice(site Stream, control interface {
	Stream
	closer
}) error {
	ended := make(chan error, 2)
	pass := func(from, to Stream) error {
		for {
			m, err := from.Recv()
			if err == nil {
				err = to.Send(m)
			}
			if err != nil {
				return err
			}
		}
	}
	go func() {
		err := pass(site, control)
		if errors.Is(err, io.EOF) {
			// What the site said last is still on its way: control ends it.
			err = control.CloseSend()
		}
		if err != nil {
			ended <- err
		}
	}()
	go func() { ended <- pass(control, site) }()
	err := <-ended
	if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
		return nil
	}
	return err
}
