package console

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"muster.dev/muster/internal/fairshare"
	"muster.dev/muster/internal/wire"
)

const (
	// maxStreams a user: a browser opens one a tab.
	maxStreams = 64
	// allStreams of one console, shared by tenants: one may have as many users as it likes.
	allStreams = 4096
	// watchesOfStream are how many watches of the API server count as one stream more.
	watchesOfStream = 10
)

// streams counts the open ones, by user and by tenant, and ends them all when the server
// stops.
type streams struct {
	mu      sync.Mutex
	users   map[string]int
	tenants *fairshare.Shares
	stop    chan struct{}
	once    sync.Once
}

func newStreams(all int) *streams {
	return &streams{users: map[string]int{}, tenants: fairshare.NewShares(all), stop: make(chan struct{})}
}

// enter counts a stream of a user about some tenants, as n of the user's, up to the limits.
// If there is no problem, leave must follow.
func (s *streams) enter(user string, n int, tenants []string) (leave func(), _ *problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limited := func(format string, args ...any) *problem {
		p := newProblem(http.StatusTooManyRequests, wire.ProblemLimited, format, args...)
		p.RetryAfter = secondsUntilRetry
		return p
	}
	if s.users[user]+n > maxStreams {
		return nil, limited("you have as many streams open as you may, %d, of which one over many namespaces counts as several; close some", maxStreams)
	}
	tenant, ok := s.tenants.TakeAny(tenants)
	if !ok {
		return nil, limited("users of your tenant have as many streams open as they may of this console's; close some")
	}
	s.users[user] += n
	return func() {
		s.tenants.Give(tenant)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users[user] -= n; s.users[user] <= 0 {
			delete(s.users, user)
		}
	}, nil
}

// end ends all streams, for good.
func (s *streams) end() { s.once.Do(func() { close(s.stop) }) }

// granted tells whether an identity still has the rights with which a stream was opened.
type granted func(context.Context, identity) bool

// sameTenants holds as long as the user has the right in exactly these tenants.
func (c *Console) sameTenants(cl *call, need right, set readable) granted {
	return func(ctx context.Context, id identity) bool {
		now, err := c.access.scopeOf(ctx, id, need, cl.q.Get("tenant"))
		return err == nil && now.equal(set)
	}
}

// streaming runs serve for as long as the user keeps exactly the rights with which the
// stream was opened. When they change the stream ends; clients connect again and get
// what they may see then. ended tells serve whether it was us who cancelled its context.
// about are the tenants that it is about, or payers'; watches are how many it holds of the
// API server.
func (c *Console) streaming(w http.ResponseWriter, cl *call, about []string, still granted, watches int, serve func(w http.ResponseWriter, ctx context.Context, ended *atomic.Bool)) error {
	if cl.Method == http.MethodHead {
		return newProblem(http.StatusMethodNotAllowed, wire.ProblemMethod, "a stream has no end to report about; use GET")
	}
	leave, p := c.streams.enter(cl.id.name, 1+watches/watchesOfStream, about)
	if p != nil {
		return p
	}
	defer leave()
	c.met.streams.Inc()
	defer c.met.streams.Dec()

	ctx, cancel := context.WithCancel(cl.Context())
	defer cancel()
	var ended atomic.Bool
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		c.watchRights(ctx, cl, still, func() { ended.Store(true); cancel() })
	}()
	defer func() { cancel(); <-watching }()

	w.Header().Set("X-Accel-Buffering", "no")
	serve(&pacedWriter{ResponseWriter: w, rc: http.NewResponseController(w), limit: c.timing.streamWrite}, ctx, &ended)
	return nil
}

// watchRights calls end when the token is no longer good, when the rights have changed,
// or when the server stops.
func (c *Console) watchRights(ctx context.Context, cl *call, still granted, end func()) {
	tick := time.NewTicker(c.timing.streamCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.streams.stop:
			end()
			return
		case <-tick.C:
		}
		if !c.stillGranted(ctx, cl, still) {
			end()
			return
		}
	}
}

func (c *Console) stillGranted(ctx context.Context, cl *call, still granted) bool {
	if cl.cred.fromCookie {
		if cred, err := c.credentialOf(cl.Request); err != nil || cred.token != cl.cred.token {
			return false // the session has expired
		}
	}
	id, err := c.auth.review(ctx, cl.cred.token, netip.Addr{})
	return err == nil && id.name == cl.id.name && still(ctx, id)
}

// pacedWriter bounds each write in place of the whole answer, so that a client that
// no longer reads is let go.
type pacedWriter struct {
	http.ResponseWriter
	rc    *http.ResponseController
	limit time.Duration
}

func (w *pacedWriter) Write(b []byte) (int, error) {
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.limit))
	return w.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController calls: a flush is what really writes.
func (w *pacedWriter) FlushError() error {
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.limit))
	return w.rc.Flush()
}

func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
