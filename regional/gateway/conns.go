package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/strangers"
)

// Bounds of connections. A stranger is a peer that has not shown a good certificate: every
// peer before its handshake, a machine that joins, anybody. It may only register, which
// takes a second, so it gets little of everything, and not for long.
const (
	// maxConns is how many connections one site may have: its stream and its sender need
	// two, and failover and a restart some more.
	maxConns = 16
	// maxTold are connections above maxConns that are told why they are closed.
	maxTold = 4

	maxStrangers         = 2048 // connections
	maxStrangersPerHost  = 1024 // of one address, or of one IPv6 network of 64 bits; many sites may stand behind one
	maxStrangerRequests  = 256  // at once, of all of them
	maxStrangerPerConn   = 4    // requests at once
	maxSiteStreams       = 32   // gRPC requests of one site at once
	strangerBytes        = 64 << 10
	defaultStrangerLife  = time.Minute
	defaultStrangerAsk   = 10 * time.Second
	defaultWriteStall    = 30 * time.Second
	unaryRequestDeadline = 15 * time.Second // for the one message of a gRPC request
)

// closedSite is why connections are closed whose peer is known; the other values of the
// label "reason" are those of package strangers.
const closedSite = "site_connections"

// connTable knows the open connections: whose they are, and how many of whom.
type connTable struct {
	strangers *strangers.Table

	mu     sync.Mutex
	open   map[net.Conn]*connEntry // of sites
	bySite map[fleet.SiteID]int
	told   atomic.Int32 // of open; nearly always none, and each request asks
}

type connEntry struct {
	site fleet.SiteID
	// told says that the site has too many, and that this one is closed with a word.
	told bool
}

func (g *Gateway) newConnTable(all, perHost int) *connTable {
	return &connTable{open: map[net.Conn]*connEntry{}, bySite: map[fleet.SiteID]int{},
		strangers: strangers.New(strangers.Bounds{Max: all, PerHost: perHost, Life: g.opts.StrangerLife}, func(reason, host string) {
			g.metrics.closed.WithLabelValues(reason).Inc()
			if reason != strangers.TooLong {
				g.logEvery("strangers", "connections are closed whose peers have not shown who they are: there are too many; sites come back by themselves", "reason", reason, "address", host)
			}
		})}
}

// connState is the server's hook.
func (g *Gateway) connState(c net.Conn, st http.ConnState) {
	if st == http.StateClosed || st == http.StateHijacked {
		g.conns.forget(c)
	}
}

// recognize finds out whether the peer of a connection that has shaken hands is a site, and
// closes it if the site has too many.
func (g *Gateway) recognize(c *tls.Conn) {
	t := g.conns
	cs := c.ConnectionState()
	who := g.verify(&cs, g.opts.Trust())
	if who.refused != nil {
		return
	}
	e := &connEntry{site: who.site}
	t.mu.Lock()
	if !t.strangers.Forget(c) { // closed meanwhile
		t.mu.Unlock()
		return
	}
	t.open[c] = e
	t.bySite[who.site]++
	n := t.bySite[who.site]
	if e.told = n > maxConns && n <= maxConns+maxTold; e.told {
		t.told.Add(1)
	}
	t.mu.Unlock()
	if n <= maxConns {
		return
	}
	g.metrics.closed.WithLabelValues(closedSite).Inc()
	s := g.acquire(who.site)
	g.noteLimit(s, reasonConns, tooManyConns(who.site))
	s.release()
	if n > maxConns+maxTold {
		_ = c.Close()
		return
	}
	// It closes when its first request is answered, or soon.
	time.AfterFunc(g.opts.StrangerAsk, func() { _ = c.Close() })
}

func tooManyConns(id fleet.SiteID) string {
	return fmt.Sprintf("site %s has more than %d connections to this regional; senders should keep and share theirs, and close those that they don't use", id, maxConns)
}

func (t *connTable) forget(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.strangers.Forget(c)
	e := t.open[c]
	if e == nil {
		return
	}
	delete(t.open, c)
	if e.told {
		t.told.Add(-1)
	}
	if t.bySite[e.site]--; t.bySite[e.site] == 0 {
		delete(t.bySite, e.site)
	}
}

// told says whether a connection is one too many of its site.
func (t *connTable) isTold(c net.Conn) bool {
	if t.told.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.open[c]
	return e != nil && e.told
}

// serveStranger serves a peer without an identity: a registration, or a word of refusal.
func (g *Gateway) serveStranger(w http.ResponseWriter, r *http.Request, c *conn, isGRPC bool) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(g.opts.StrangerAsk))
	if !isGRPC {
		// The body is not waited for.
		w.Header().Set("Connection", "close")
		g.mux.ServeHTTP(w, r)
		return
	}
	all, ofConn := g.strangers.Add(1), c.strange.Add(1)
	defer g.strangers.Add(-1)
	defer c.strange.Add(-1)
	if all > maxStrangerRequests || ofConn > maxStrangerPerConn {
		g.metrics.limited.WithLabelValues(reasonStrangers).Inc()
		grpcRefuse(w, "this regional serves too many peers without a certificate; try again in a few seconds")
		return
	}
	// Its life covers what the answer waits for.
	ctx, cancel := context.WithTimeout(r.Context(), g.opts.StrangerLife)
	defer cancel()
	r = r.WithContext(ctx)
	r, end := g.withBody(r, newStrangerLimiter(), strangerBytes, 0, fleet.SiteID{})
	defer end()
	g.strangerGRPC.ServeHTTP(g.stallWriter(w), r)
}

// grpcRefuse answers a gRPC request with UNAVAILABLE, which clients try again.
func grpcRefuse(w http.ResponseWriter, text string) {
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", "14")
	h.Set("Grpc-Message", text)
	w.WriteHeader(http.StatusOK)
}

// stallWriter gives each write of an answer a deadline: a peer that opens no window must
// not hold what answers it.
type stallWriter struct {
	http.ResponseWriter
	rc    *http.ResponseController
	after time.Duration
}

func (g *Gateway) stallWriter(w http.ResponseWriter) *stallWriter {
	return &stallWriter{w, http.NewResponseController(w), g.opts.WriteStall}
}

func (w *stallWriter) guard() func() {
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.after))
	return func() { _ = w.rc.SetWriteDeadline(time.Time{}) } // it would end a quiet stream
}

// Write implements http.ResponseWriter.
func (w *stallWriter) Write(b []byte) (int, error) {
	defer w.guard()()
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher.
func (w *stallWriter) Flush() {
	defer w.guard()()
	_ = w.rc.Flush()
}

// Unwrap is for http.ResponseController.
func (w *stallWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
