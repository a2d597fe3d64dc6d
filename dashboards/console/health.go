package console

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	headerTenants = "X-Muster-Tenants"
	// maxStreams a user: a browser opens one a tab.
	maxStreams = 64
)

// passedHeaders are what the health role may tell the client; the rest is ours to say.
var passedHeaders = []string{"Content-Type", "Content-Length", "Retry-After"}

type scopeKey struct{}

// outgoing is what the proxy sends instead of what the client sent.
type outgoing struct {
	tenants string
	query   url.Values
}

// healthProxy passes requests to the health role, with the tenants that the user
// may read in place of everything that the client says about itself.
type healthProxy struct {
	proxy   *httputil.ReverseProxy
	log     *slog.Logger
	limited rate.Sometimes // a dead health role must not flood the log

	mu    sync.Mutex
	users map[string]int // open streams
	stop  chan struct{}
	once  sync.Once
}

func newHealthProxy(base *url.URL, rt http.RoundTripper, log *slog.Logger) *healthProxy {
	if rt == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy = nil // the health role is ours: never by way of a proxy from the environment
		t.DisableCompression = true
		t.MaxIdleConnsPerHost = 32
		t.ResponseHeaderTimeout = 30 * time.Second
		rt = t
	}
	h := &healthProxy{log: log, limited: rate.Sometimes{First: 1, Interval: 30 * time.Second}, users: map[string]int{}, stop: make(chan struct{})}
	h.proxy = &httputil.ReverseProxy{
		Transport:      rt,
		FlushInterval:  -1, // at once: events must not wait in a buffer
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Rewrite:        func(pr *httputil.ProxyRequest) { rewrite(pr, base) },
		ModifyResponse: h.checkResponse,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			var p *problem
			if !errors.As(err, &p) {
				h.limited.Do(func() { log.Warn("the health role can't be reached", "url", base.Redacted(), "err", err) })
				p = unavailable(nil, "the health engine can't be reached; it may be starting")
			}
			p.write(w)
		},
	}
	return h
}

// rewrite builds the request to the health role from what was checked. The path has
// only names that checkPath let through.
func rewrite(pr *httputil.ProxyRequest, base *url.URL) {
	out, _ := pr.In.Context().Value(scopeKey{}).(outgoing)
	h := http.Header{"Accept": {"application/json, text/event-stream"}, "User-Agent": {fieldManager}}
	h.Set(headerTenants, out.tenants)
	if last := pr.In.Header.Get("Last-Event-ID"); last != "" && len(last) <= 64 {
		h.Set("Last-Event-ID", last)
	}
	pr.Out.Header = h
	pr.Out.Method = http.MethodGet
	pr.Out.Body, pr.Out.ContentLength = nil, 0
	to := *base
	to.Path, to.RawPath = strings.TrimRight(base.Path, "/")+pr.In.URL.Path, ""
	to.RawQuery = out.query.Encode()
	pr.Out.URL = &to
	pr.Out.Host = ""
}

// checkResponse lets answers of the health API through, and nothing else that might
// listen at its address.
func (h *healthProxy) checkResponse(res *http.Response) error {
	for name := range res.Header {
		if !slices.Contains(passedHeaders, name) {
			res.Header.Del(name)
		}
	}
	ct, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	switch {
	case res.StatusCode < 300 && (ct == "application/json" || ct == "text/event-stream"),
		res.StatusCode == http.StatusNoContent,
		res.StatusCode >= 400 && ct == problemMediaType:
		return nil
	}
	h.limited.Do(func() {
		h.log.Warn("the health role answered with something that is not its API", "path", res.Request.URL.Path, "code", res.StatusCode, "contentType", ct)
	})
	return unavailable(nil, "the health engine gave no usable answer (status %d)", res.StatusCode)
}

// scoped returns the request with the user's tenants in its context.
func (c *Console) scoped(cl *call) (*http.Request, readable, error) {
	set, err := c.access.scope(cl.Context(), cl.id, cl.q.Get("tenant"))
	if err != nil {
		return nil, set, err
	}
	ctx := context.WithValue(cl.Context(), scopeKey{}, outgoing{tenants: set.header(), query: cl.q})
	return cl.WithContext(ctx), set, nil
}

func (c *Console) proxyHealth(w http.ResponseWriter, cl *call) error {
	r, _, err := c.scoped(cl)
	if err != nil {
		return err
	}
	c.health.proxy.ServeHTTP(w, r)
	return nil
}

// streamHealth passes server-sent events on for as long as the user keeps exactly
// the rights with which the stream was opened. When they change it ends; clients
// connect again and get what they may see then.
func (c *Console) streamHealth(w http.ResponseWriter, cl *call) error {
	if cl.Method == http.MethodHead {
		return newProblem(http.StatusMethodNotAllowed, typeMethod, "a stream has no end to report about; use GET")
	}
	r, set, err := c.scoped(cl)
	if err != nil {
		return err
	}
	if !c.health.enter(cl.id.name) {
		p := newProblem(http.StatusTooManyRequests, typeLimited, "you have %d streams open; close some", maxStreams)
		p.retryAfter = secondsUntilRetry
		return p
	}
	defer c.health.leave(cl.id.name)
	c.met.streams.Inc()
	defer c.met.streams.Dec()

	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var ended atomic.Bool
	end := func() { ended.Store(true); cancel() }
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		c.watchRights(ctx, cl, set, end)
	}()
	defer func() { cancel(); <-watching }()

	rc := http.NewResponseController(w)
	w.Header().Set("X-Accel-Buffering", "no")
	c.health.stream(&pacedWriter{ResponseWriter: w, rc: rc, limit: c.timing.streamWrite}, r.WithContext(ctx), &ended)
	return nil
}

// watchRights calls end when the token is no longer good, when the set of tenants
// has changed, or when the server stops.
func (c *Console) watchRights(ctx context.Context, cl *call, granted readable, end func()) {
	tick := time.NewTicker(c.timing.streamCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.health.stop:
			end()
			return
		case <-tick.C:
		}
		if !c.stillGranted(ctx, cl, granted) {
			end()
			return
		}
	}
}

func (c *Console) stillGranted(ctx context.Context, cl *call, granted readable) bool {
	if cl.cred.fromCookie {
		if cred, err := c.credentialOf(cl.Request); err != nil || cred.token != cl.cred.token {
			return false // the session has expired
		}
	}
	id, err := c.auth.review(ctx, cl.cred.token, netip.Addr{})
	if err != nil || id.name != cl.id.name {
		return false
	}
	set, err := c.access.scope(ctx, id, cl.q.Get("tenant"))
	return err == nil && set.equal(granted)
}

// stream proxies one event stream; ended tells whether it was us who cancelled it.
func (h *healthProxy) stream(w http.ResponseWriter, r *http.Request, ended *atomic.Bool) {
	p := *h.proxy
	p.ModifyResponse = func(res *http.Response) error {
		if err := h.checkResponse(res); err != nil {
			return err
		}
		res.Body = &endingBody{res.Body, ended}
		return nil
	}
	p.ServeHTTP(w, r)
}

// endingBody ends the stream in good order when we ended it, instead of tearing the
// connection.
type endingBody struct {
	io.ReadCloser
	ended *atomic.Bool
}

func (b *endingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && b.ended.Load() {
		err = io.EOF
	}
	return n, err
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

// enter counts a stream of a user, up to the limit.
func (h *healthProxy) enter(user string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users[user] >= maxStreams {
		return false
	}
	h.users[user]++
	return true
}

func (h *healthProxy) leave(user string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users[user]--; h.users[user] <= 0 {
		delete(h.users, user)
	}
}

// endStreams ends all streams, for good.
func (h *healthProxy) endStreams() { h.once.Do(func() { close(h.stop) }) }
