package strangers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"muster.dev/muster/internal/turns"
)

// Hands are a listener that shakes hands before it gives a connection out. A peer that has said
// what it has to say waits for its turn: no more handshakes are worked on at a time than there
// are processors, address by address. So when thousands of sites come at once each costs what
// one alone costs, and those who came first get in while the others wait, where they
// would all be late together. What a peer keeps us waiting counts against it, and not how long
// it waits for us.
type Hands struct {
	net.Listener
	o    HandsOptions
	line *turns.Line

	begin sync.Once
	out   chan accepted
	ctx   context.Context
	stop  context.CancelFunc
	wg    sync.WaitGroup
}

// HandsOptions of Shake; TLS and Table are required.
type HandsOptions struct {
	TLS   *tls.Config
	Table *Table
	// Patience is how long a peer may keep its handshake waiting for each of its flights; default 10 s.
	Patience time.Duration
	// InLine is how long one may wait for its turn at most: who comes as a client is gone by
	// then; default 1 minute.
	InLine time.Duration
	AtOnce int // handshakes that are worked on; default turns.Cores
	// Known, which may be nil, hears of each connection that has shaken hands.
	Known func(*tls.Conn)
	// Failed, which may be nil, hears of each that has not, but for those that the table closed.
	Failed func(net.Addr, error)
}

type accepted struct {
	conn net.Conn
	err  error
}

// errGone is of a peer that did not wait for its turn.
var errGone = errors.New("the peer went away while it waited for its turn")

// Shake makes one of a listener. Its connections are strangers' from the beginning, and whoever
// serves it forgets them in the table.
func Shake(ln net.Listener, o HandsOptions) *Hands {
	if o.Patience <= 0 {
		o.Patience = 10 * time.Second
	}
	if o.InLine <= 0 {
		o.InLine = time.Minute
	}
	if o.AtOnce <= 0 {
		o.AtOnce = turns.Cores()
	}
	if o.Known == nil {
		o.Known = func(*tls.Conn) {}
	}
	if o.Failed == nil {
		o.Failed = func(net.Addr, error) {}
	}
	h := &Hands{Listener: ln, out: make(chan accepted), line: turns.NewLine(o.AtOnce, 2*o.Table.bounds.Max)}
	h.ctx, h.stop = context.WithCancel(context.Background())
	cfg := o.TLS.Clone()
	inner := cfg.GetConfigForClient
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		// The peer has said all of its first flight: what follows is ours to do.
		if s, ok := hello.Conn.(*shaking); ok {
			if err := s.turn(hello.Context()); err != nil {
				return nil, err
			}
		}
		if inner == nil {
			return nil, nil
		}
		return inner(hello)
	}
	h.o = o
	h.o.TLS = cfg
	return h
}

// Accept implements net.Listener.
func (h *Hands) Accept() (net.Conn, error) {
	h.begin.Do(func() { h.wg.Go(h.accept) })
	select {
	case a := <-h.out:
		return a.conn, a.err
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Handshakes that are under way end.
func (h *Hands) Close() error {
	h.stop()
	err := h.Listener.Close()
	h.wg.Wait()
	return err
}

func (h *Hands) accept() {
	for {
		raw, err := h.Listener.Accept()
		if err != nil {
			if h.give(accepted{err: err}); h.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		s := &shaking{Conn: raw, h: h, left: h.o.Patience}
		s.tls = tls.Server(s, h.o.TLS)
		if h.o.Table.Add(s.tls) {
			h.wg.Go(func() { h.shake(s) })
		}
	}
}

// give hands something to whoever accepts; false: nobody will any more.
func (h *Hands) give(a accepted) bool {
	select {
	case h.out <- a:
		return true
	case <-h.ctx.Done():
		return false
	}
}

func (h *Hands) shake(s *shaking) {
	err := s.tls.HandshakeContext(h.ctx)
	s.over = true
	s.rest(false)
	if err == nil {
		_ = s.SetDeadline(time.Time{})
		h.o.Known(s.tls)
		if h.give(accepted{conn: s.tls}) {
			return
		}
	}
	if plain := new(tls.RecordHeaderError); errors.As(err, plain) && plain.Conn != nil && looksLikeHTTP(plain.RecordHeader) {
		_ = s.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = fmt.Fprint(s.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
	}
	if h.o.Table.Forget(s.tls) && err != nil {
		h.o.Failed(s.RemoteAddr(), err)
	}
	_ = s.tls.Close()
}

// looksLikeHTTP is of the five bytes where a record's header should be, as net/http has it.
func looksLikeHTTP(b [5]byte) bool {
	switch string(b[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}

// shaking is a connection during its handshake, which is the only one to use it.
type shaking struct {
	net.Conn
	h    *Hands
	tls  *tls.Conn
	left time.Duration // that the peer may keep us waiting
	done func()        // gives the turn back; nil: it has none
	over bool
}

// Read implements net.Conn. A peer that is waited for has no turn.
func (s *shaking) Read(b []byte) (int, error) {
	if s.over {
		return s.Conn.Read(b)
	}
	s.rest(false)
	began := time.Now()
	_ = s.SetReadDeadline(began.Add(s.left))
	n, err := s.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// What came in time and was not looked at for want of a processor is there.
		_ = s.SetReadDeadline(time.Now().Add(time.Millisecond))
		n, err = s.Conn.Read(b)
	}
	s.left -= time.Since(began)
	s.rest(true)
	return n, err
}

// rest says whether the peer waits for us; if not, the turn is over.
func (s *shaking) rest(busy bool) {
	if !busy && s.done != nil {
		s.done()
		s.done = nil
	}
	s.h.o.Table.Busy(s.tls, busy)
}

// turn waits for one. There is a second flight of the peer's, whose checks are cheap: it takes none.
func (s *shaking) turn(ctx context.Context) error {
	addr := s.RemoteAddr().String()
	done, err := s.h.line.Acquire(ctx, turns.Member{Tenant: HostOf(addr), Name: addr}, s.h.o.InLine)
	if err != nil {
		return err
	}
	if gone(s.Conn) {
		done()
		return errGone
	}
	s.done, s.left = done, s.h.o.Patience // anew for its second flight
	s.h.o.Table.Begun(s.tls)
	return s.SetWriteDeadline(time.Now().Add(s.h.o.Patience))
}
