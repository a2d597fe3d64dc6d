package tunnel

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/wire"
)

// Window is how many bytes an end of a windowed connection takes that nobody has read yet.
const Window = 256 << 10

// ErrWindow says that the other end sent more than this one was ready to take.
var ErrWindow = errors.New("the other end sent more than this one was ready to take")

// windowed is a net.Conn whose ends tell each other how much they take, as TCP does:
// between them nothing piles up, and one that is not read from holds up no other that
// shares its transport.
type windowed struct {
	side

	mu     sync.Mutex
	moved  chan struct{} // closed and made anew whenever something below changed
	queue  [][]byte
	held   int // bytes of queue
	due    int // bytes that were read and that the other end was not told of
	credit int // bytes that the other end takes
	err    error
	closed bool
}

// Windowed is Conn with an end that says how much it takes. Both ends must be windowed.
func Windowed(s Stream, name string, end func()) net.Conn {
	c := &windowed{side: side{stream: s, name: name, end: end, read: newDeadline(), write: newDeadline()}, moved: make(chan struct{}), credit: Window}
	go c.receive()
	return c
}

func (c *windowed) changedLocked() {
	close(c.moved)
	c.moved = make(chan struct{})
}

func (c *windowed) receive() {
	for {
		m, err := c.stream.Recv()
		c.mu.Lock()
		switch {
		case err != nil:
			if status.Code(err) == codes.Canceled {
				err = io.EOF // the other end closed it
			}
		case c.closed: // nobody reads it
		case c.held+len(m.GetData()) > Window, m.GetCredit() > Window || c.credit+int(m.GetCredit()) > Window:
			err = ErrWindow
		default:
			if len(m.GetData()) > 0 {
				c.keepLocked(m.Data)
			}
			c.credit += int(m.GetCredit())
		}
		if c.err == nil {
			c.err = err
		}
		c.changedLocked()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// keepLocked queues what came. Small messages share a piece: what is held is bounded by
// Window in bytes, and not in messages.
func (c *windowed) keepLocked(b []byte) {
	c.held += len(b)
	if last := len(c.queue) - 1; last >= 0 && len(c.queue[last])+len(b) <= chunk {
		c.queue[last] = append(c.queue[last], b...)
		return
	}
	c.queue = append(c.queue, b)
}

// Read implements net.Conn.
func (c *windowed) Read(p []byte) (int, error) {
	c.mu.Lock()
	for {
		switch {
		case c.closed:
			c.mu.Unlock()
			return 0, net.ErrClosed
		case len(c.queue) > 0:
			n := copy(p, c.queue[0])
			if c.queue[0] = c.queue[0][n:]; len(c.queue[0]) == 0 {
				c.queue = c.queue[1:]
			}
			c.held -= n
			c.due += n
			tell := 0
			if c.due >= Window/4 {
				tell, c.due = c.due, 0
			}
			c.mu.Unlock()
			if tell > 0 {
				c.sending.Lock()
				_ = c.stream.Send(&wire.TunnelData{Credit: uint32(tell)}) // what is wrong is told by Recv
				c.sending.Unlock()
			}
			return n, nil
		case c.err != nil:
			defer c.mu.Unlock()
			return 0, c.err
		}
		moved := c.moved
		c.mu.Unlock()
		select {
		case <-moved:
		case <-c.read.over():
			return 0, os.ErrDeadlineExceeded
		}
		c.mu.Lock()
	}
}

// Write implements net.Conn.
func (c *windowed) Write(p []byte) (int, error) {
	for n := 0; ; {
		if n == len(p) {
			return n, nil
		}
		c.mu.Lock()
		for c.credit == 0 && c.err == nil && !c.closed {
			moved := c.moved
			c.mu.Unlock()
			select {
			case <-moved:
			case <-c.write.over():
				return n, os.ErrDeadlineExceeded
			}
			c.mu.Lock()
		}
		err := c.err
		if c.closed {
			err = net.ErrClosed
		}
		part := min(len(p)-n, c.credit, chunk)
		if err == nil {
			c.credit -= part
		}
		c.mu.Unlock()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrClosedPipe
			}
			return n, err
		}
		c.sending.Lock()
		// gRPC may keep a message that it has been given.
		err = c.stream.Send(&wire.TunnelData{Data: append([]byte(nil), p[n:n+part]...)})
		c.sending.Unlock()
		if err != nil {
			return n, err
		}
		n += part
	}
}

// Close implements net.Conn. What was written before gets there.
func (c *windowed) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.queue, c.held = nil, 0
	c.changedLocked()
	c.mu.Unlock()
	c.hangUp()
	return nil
}

// Join passes on between two streams that are both served, until either ends or breaks. It
// returns why; nil if an end closed it. What an end said before it closed gets to the other
// one. seen is called with each message before it is passed on, from two goroutines; its
// error ends the connection.
func Join(a, b Stream, seen func(from int, m *wire.TunnelData) error) error {
	ended := make(chan error, 2)
	pass := func(n int, from, to Stream) {
		for {
			m, err := from.Recv()
			if err == nil {
				err = seen(n, m)
			}
			if err == nil {
				err = to.Send(&wire.TunnelData{Data: m.GetData(), Credit: m.GetCredit()})
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}
	go pass(0, a, b)
	go pass(1, b, a)
	err := <-ended
	if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
		return nil
	}
	return err
}
