package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"muster.dev/muster/internal/wire"
)

// passedHeaders are what a role may tell the client; the rest is ours to say.
var passedHeaders = []string{"Content-Type", "Content-Length", "Retry-After"}

type scopeKey struct{}

// outgoing is what a backend sends instead of what the client sent.
type outgoing struct {
	tenants string
	user    string // "": not told
	query   url.Values
	method  string // "": GET
	body    []byte // JSON, or nil
}

// backend passes requests to a role of ours, with the tenants that the user may read
// in place of everything that the client says about itself.
type backend struct {
	what    string // "health engine"
	proxy   *httputil.ReverseProxy
	log     *slog.Logger
	limited rate.Sometimes // a dead role must not flood the log
}

// Transport sets t up for Options.HealthTransport or Options.AlertingTransport.
func Transport(t *http.Transport) *http.Transport {
	t.DisableCompression = true
	t.MaxIdleConnsPerHost = 32
	t.ResponseHeaderTimeout = 30 * time.Second
	return t
}

func newBackend(what string, base *url.URL, rt http.RoundTripper, log *slog.Logger) *backend {
	if rt == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy = nil // the role is ours: never by way of a proxy from the environment
		rt = Transport(t)
	}
	h := &backend{what: what, log: log, limited: rate.Sometimes{First: 1, Interval: 30 * time.Second}}
	h.proxy = &httputil.ReverseProxy{
		Transport:      rt,
		FlushInterval:  -1, // at once: events must not wait in a buffer
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Rewrite:        func(pr *httputil.ProxyRequest) { rewrite(pr, base) },
		ModifyResponse: h.checkResponse,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			var p *problem
			if !errors.As(err, &p) {
				h.limited.Do(func() { log.Warn("the "+what+" can't be reached", "url", base.Redacted(), "err", err) })
				p = unavailable(nil, "the %s can't be reached; it may be starting", what)
			}
			p.write(w)
		},
	}
	return h
}

// rewrite builds the request to the role from what was checked. The path has only
// names that checkPath let through.
func rewrite(pr *httputil.ProxyRequest, base *url.URL) {
	out, _ := pr.In.Context().Value(scopeKey{}).(outgoing)
	h := http.Header{"Accept": {"application/json, text/csv, text/event-stream"}, "User-Agent": {fieldManager}}
	h.Set(wire.TenantsHeader, out.tenants)
	if out.user != "" {
		h.Set(wire.UserHeader, headerText(out.user))
	}
	if last := pr.In.Header.Get("Last-Event-ID"); last != "" && len(last) <= 64 {
		h.Set("Last-Event-ID", last)
	}
	pr.Out.Header = h
	pr.Out.Method = http.MethodGet
	if out.method != "" {
		pr.Out.Method = out.method
	}
	pr.Out.Body, pr.Out.ContentLength = nil, 0
	if out.body != nil {
		h.Set("Content-Type", "application/json")
		pr.Out.Body, pr.Out.ContentLength = io.NopCloser(bytes.NewReader(out.body)), int64(len(out.body))
	}
	to := *base
	to.Path, to.RawPath = strings.TrimRight(base.Path, "/")+pr.In.URL.Path, ""
	to.RawQuery = out.query.Encode()
	pr.Out.URL = &to
	pr.Out.Host = ""
}

// headerText is s without what a header can't hold.
func headerText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

// checkResponse lets answers of the role's API through, and nothing else that might
// listen at its address.
func (h *backend) checkResponse(res *http.Response) error {
	for name := range res.Header {
		if !slices.Contains(passedHeaders, name) {
			res.Header.Del(name)
		}
	}
	ct, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	switch {
	case res.StatusCode == http.StatusUnauthorized:
		// It is this console that has no good certificate; the user is logged in.
		h.limited.Do(func() { h.log.Error("the " + h.what + " does not take this console's certificate") })
		return unavailable(nil, "the %s does not know this console", h.what)
	case res.StatusCode < 300 && (ct == "application/json" || ct == "text/csv" || ct == "text/event-stream"),
		res.StatusCode == http.StatusNoContent,
		res.StatusCode >= 400 && ct == wire.ProblemMediaType:
		return nil
	}
	h.limited.Do(func() {
		h.log.Warn("the "+h.what+" answered with something that is not its API", "path", res.Request.URL.Path, "code", res.StatusCode, "contentType", ct)
	})
	return unavailable(nil, "the %s gave no usable answer (status %d)", h.what, res.StatusCode)
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

// tryPolicy passes a HealthPolicy on that is to be tried on the sites of one tenant.
func (c *Console) tryPolicy(w http.ResponseWriter, cl *call) error {
	if mediaType(cl.Request) != "application/json" {
		return newProblem(http.StatusUnsupportedMediaType, wire.ProblemMediaKind, "want a HealthPolicy with Content-Type: application/json")
	}
	set, err := c.access.scope(cl.Context(), cl.id, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	if len(set.names) != 1 {
		return manyTenants("a health policy belongs to one tenant", set)
	}
	body, err := io.ReadAll(cl.Body)
	if err != nil {
		return err
	}
	one := readable{names: set.names}
	query := maps.Clone(cl.q)
	query.Set("tenant", set.names[0])
	ctx := context.WithValue(cl.Context(), scopeKey{}, outgoing{tenants: one.header(), query: query, method: http.MethodPost, body: body})
	c.health.proxy.ServeHTTP(w, cl.WithContext(ctx))
	return nil
}

// streamHealth passes server-sent events on; see streaming.
func (c *Console) streamHealth(w http.ResponseWriter, cl *call) error {
	r, set, err := c.scoped(cl)
	if err != nil {
		return err
	}
	return c.streaming(w, cl, set.payers(), c.sameTenants(cl, readSites, set), 0, func(w http.ResponseWriter, ctx context.Context, ended *atomic.Bool) {
		c.health.stream(w, r.WithContext(context.WithValue(ctx, scopeKey{}, r.Context().Value(scopeKey{}))), ended)
	})
}

// stream proxies one event stream; ended tells whether it was us who cancelled it.
func (h *backend) stream(w http.ResponseWriter, r *http.Request, ended *atomic.Bool) {
	if acceptsGzip(r) {
		z := &gzipStream{ResponseWriter: w}
		defer z.end()
		w = z
	}
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
