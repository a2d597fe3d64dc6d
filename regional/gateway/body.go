package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"golang.org/x/time/rate"

	"muster.dev/muster/internal/fairshare"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/wire"
)

// Bounds of what a gRPC request that was read, and not taken yet, may hold, in bytes of
// memory. A stream gets aheadFloor; a tunnel gets tunnelAhead and a connection to a
// virtual host hostAhead while its tenant has a slot for it, of which there are aheadSlots.
const (
	aheadFloor  = 64 << 10
	tunnelAhead = 1 << 20
	hostAhead   = 2 * tunnel.Window
	aheadSlots  = 128
)

// slowBody bounds how fast the bodies of gRPC requests are read.
type slowBody struct {
	io.ReadCloser
	ctx context.Context
	l   *rate.Limiter
}

// newStrangerLimiter lets one registration through at once.
func newStrangerLimiter() *rate.Limiter { return rate.NewLimiter(strangerPace, 2*strangerBytes) }

// Read implements io.Reader.
func (b *slowBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), 32<<10)])
	if n > 0 {
		if werr := b.l.WaitN(b.ctx, n); werr != nil && err == nil {
			err = werr
		}
	}
	return n, err
}

// grpcBody is the body of a gRPC request. The transport that serves gRPC from an HTTP handler
// reads on as long as something comes, into buffers of 16 kB of which each holds what one
// Read gave: a peer that sends single bytes would fill the memory with some. So a Read gives
// a whole buffer or what ends a message; of a request that is one message nothing is read
// after it; and of a stream no more than its room, until the handler has taken messages.
type grpcBody struct {
	io.ReadCloser
	ctx    context.Context
	max    int  // bytes of a message; more is refused by gRPC
	single bool // the request is one message

	room  int // bytes that this may hold; at most aheadFloor without a slot
	slots *fairshare.Shares
	whose string // the slots' tenant

	// Of the goroutine that reads.
	head [grpcHeader]byte
	have int // bytes of head
	left int // bytes of the message that are to come
	open int // memory of what was read since the last message ended

	mu      sync.Mutex
	waiting []readAhead // messages that are not taken
	held    int         // memory of them and of open
	slot    bool        // it has one of slots
	ended   bool
	taken   chan struct{}
}

// readAhead are messages whose ends came in one Read.
type readAhead struct{ messages, memory int }

// grpcHeader is what stands before each message of gRPC, in bytes.
const grpcHeader = 5

type bodyKey struct{}

// withBody bounds what gRPC reads of a request: by l how fast, and by room how far ahead; 0:
// it is one message. The caller calls end when it is served.
func (g *Gateway) withBody(r *http.Request, l *rate.Limiter, limit, room int, site fleet.SiteID) (_ *http.Request, end func()) {
	b := &grpcBody{ReadCloser: &slowBody{ReadCloser: r.Body, ctx: r.Context(), l: l}, ctx: r.Context(), max: limit,
		single: room == 0, room: room, slots: g.ahead, whose: site.Tenant, taken: make(chan struct{}, 1)}
	r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, b))
	r.Body = b
	return r, b.end
}

// took is called with the context of a stream when its handler has taken a message.
func took(ctx context.Context) {
	if b, ok := ctx.Value(bodyKey{}).(*grpcBody); ok { // else a test's
		b.took()
	}
}

// errSingle is for what comes after the one message of a request.
var errSingle = errors.New("more than the one message of the request")

// Read implements io.Reader.
func (b *grpcBody) Read(p []byte) (n int, err error) {
	if b.left > b.max {
		return 0, fmt.Errorf("a message of %d bytes, want at most %d", b.left, b.max)
	}
	if b.single && b.given() {
		var one [1]byte
		if n, err := b.ReadCloser.Read(one[:]); n == 0 {
			return 0, err
		}
		return 0, errSingle
	}
	if err := b.wait(); err != nil {
		return 0, err
	}
	messages := 0
	for err == nil && n < len(p) && messages == 0 && b.left <= b.max {
		var m int
		m, err = b.ReadCloser.Read(p[n:])
		messages += b.scan(p[n : n+m])
		n += m
	}
	if n > 0 {
		b.gave(messages, len(p))
	}
	return n, err
}

// scan returns how many messages end in p.
func (b *grpcBody) scan(p []byte) (messages int) {
	for len(p) > 0 {
		if b.have < grpcHeader {
			n := copy(b.head[b.have:], p)
			b.have, p = b.have+n, p[n:]
			if b.have < grpcHeader {
				return messages
			}
			if b.left = int(binary.BigEndian.Uint32(b.head[1:])); b.left > b.max {
				return messages
			}
		}
		n := min(len(p), b.left)
		b.left, p = b.left-n, p[n:]
		if b.left == 0 {
			b.have = 0
			messages++
		}
	}
	return messages
}

func (b *grpcBody) given() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) > 0
}

func (b *grpcBody) gave(messages, memory int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held += memory
	b.open += memory
	if messages > 0 {
		b.waiting = append(b.waiting, readAhead{messages, b.open})
		b.open = 0
	}
}

// wait returns when there is room. What is not a whole message yet is always read on.
func (b *grpcBody) wait() error {
	for !b.fits() {
		select {
		case <-b.taken:
		case <-b.ctx.Done():
			return b.ctx.Err()
		}
	}
	return nil
}

func (b *grpcBody) fits() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 || b.held < aheadFloor {
		return true
	}
	if b.held >= b.room || b.ended {
		return false
	}
	if !b.slot {
		b.slot = b.slots.Take(b.whose)
	}
	return b.slot
}

func (b *grpcBody) took() {
	b.mu.Lock()
	if len(b.waiting) > 0 {
		first := &b.waiting[0]
		if first.messages--; first.messages == 0 {
			b.held -= first.memory
			b.waiting = b.waiting[1:]
		}
	}
	if b.held < aheadFloor {
		b.giveLocked()
	}
	b.mu.Unlock()
	select {
	case b.taken <- struct{}{}:
	default:
	}
}

func (b *grpcBody) giveLocked() {
	if b.slot {
		b.slots.Give(b.whose)
		b.slot = false
	}
}

func (b *grpcBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.giveLocked()
}

// takenTunnel is a stream whose body learns what was taken from it.
type takenTunnel struct {
	tunnel.Stream
	ctx context.Context
}

// Recv implements tunnel.Stream.
func (t *takenTunnel) Recv() (*wire.TunnelData, error) {
	m, err := t.Stream.Recv()
	if err == nil {
		took(t.ctx)
	}
	return m, err
}
