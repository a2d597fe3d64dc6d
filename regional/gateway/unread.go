package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"muster.dev/muster/internal/tunnel"
)

// What HTTP/2 lets a peer send that nobody reads, in bytes: of one request, and of all
// requests of a connection together.
const (
	requestWindow = tunnel.Window
	connWindow    = 512 << 10
	// maxHeader is what the head of a request may take: hundreds of a site's may stand at once.
	maxHeader = 8 << 10
)

// unread counts a site's connections with requests that nobody reads at this moment: their
// peer may fill the window, and does if it is hostile. The first is free, so that a site,
// which has its streams on one connection and reads and writes pushes one by one, pays for
// none; each further one leases its window of the memory for requests.
type unread struct {
	mu    sync.Mutex
	conns int
	lease lease
}

// add counts a connection; false: there is no memory for its window.
func (u *unread) add() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.conns > 0 && u.lease.grow(connWindow) != nil {
		return false
	}
	u.conns++
	return true
}

func (u *unread) remove() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.conns--; u.conns > 0 {
		u.lease.shrink(connWindow)
	}
}

// connUnread are the requests of one connection that nobody reads.
type connUnread struct {
	mu       sync.Mutex
	requests int
	counted  *unread // where the connection is counted while there are some
}

// unreadBody is the body of a request over HTTP/2. It counts for its connection from the
// beginning of the request to its end but while somebody waits for what comes.
type unreadBody struct {
	io.ReadCloser
	conn   *connUnread
	of     *unread
	denied func()

	// Guarded by conn.mu.
	counted, ended bool
}

// errUnread ends a request: more may be sent than is read, and there is no memory for it.
var errUnread = errors.New("there are unread requests on several connections already, and no memory for more")

// countUnread counts a request, or tells that there is no memory for what may be sent of it
// before it is read. The caller calls end when it is served.
func (g *Gateway) countUnread(r *http.Request, c *conn, who caller) (end func(), err error) {
	if r.ProtoMajor != 2 || r.Body == nil || r.Body == http.NoBody || who.refused != nil { // of strangers there are few
		return func() {}, nil
	}
	s := g.acquire(who.site)
	b := &unreadBody{ReadCloser: r.Body, conn: &c.unread, of: &s.unread, denied: func() {
		_ = g.limited(s, &refusal{reason: reasonUnread, text: fmt.Sprintf("site %s: %s", s.id, errUnread)}) // the caller answers
	}}
	if !b.stand() {
		b.denied()
		s.release()
		return nil, errUnread
	}
	r.Body = b
	return func() { b.end(); s.release() }, nil
}

func refuseUnread(w http.ResponseWriter, isGRPC bool) {
	if isGRPC {
		grpcRefuse(w, errUnread.Error())
	} else {
		writeRefusal(w, refuseMemory(errUnread))
	}
}

// Read implements io.Reader.
func (b *unreadBody) Read(p []byte) (int, error) {
	b.conn.mu.Lock()
	b.leaveLocked()
	b.conn.mu.Unlock()
	n, err := b.ReadCloser.Read(p)
	if err == nil && !b.stand() {
		b.denied()
		_ = b.ReadCloser.Close() // gives back what has come
		err = errUnread
	}
	return n, err
}

func (b *unreadBody) stand() bool {
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	if b.ended {
		return true
	}
	if b.conn.requests == 0 {
		if !b.of.add() {
			return false
		}
		b.conn.counted = b.of
	}
	b.conn.requests++
	b.counted = true
	return true
}

func (b *unreadBody) leaveLocked() {
	if !b.counted {
		return
	}
	b.counted = false
	if b.conn.requests--; b.conn.requests == 0 {
		b.conn.counted.remove()
		b.conn.counted = nil
	}
}

func (b *unreadBody) end() {
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	b.ended = true
	b.leaveLocked()
}
