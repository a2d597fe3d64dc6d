package peers

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// standInAfter is how long one of several that know the same is waited for.
const standInAfter = 3 * time.Second

// Alike carries what is asked of the first of several roles that know the same, to the one
// that answered last, and to the next where that one can't be reached, hangs or is not ready.
// What may have changed something is asked nobody else. Other requests pass as they are.
func Alike(rt http.RoundTripper, urls []string) (http.RoundTripper, error) {
	a := &alike{rt: rt, patience: standInAfter}
	for _, s := range urls {
		u, err := url.Parse(s)
		if err != nil {
			return nil, err
		}
		u.Path = strings.TrimRight(u.Path, "/")
		a.urls = append(a.urls, u)
	}
	if len(a.urls) < 2 {
		return rt, nil
	}
	return a, nil
}

// ClientOf is a Client of several roles that know the same; see Alike.
func (p *Peers) ClientOf(urls []string) (*http.Client, error) {
	c := p.Client()
	var err error
	c.Transport, err = Alike(c.Transport, urls)
	return c, err
}

type alike struct {
	rt       http.RoundTripper
	urls     []*url.URL
	patience time.Duration
	last     atomic.Int32 // that answered
}

// RoundTrip implements http.RoundTripper.
func (a *alike) RoundTrip(req *http.Request) (*http.Response, error) {
	first := a.urls[0]
	path, below := strings.CutPrefix(req.URL.Path, first.Path)
	if req.URL.Scheme != first.Scheme || req.URL.Host != first.Host || !below {
		return a.rt.RoundTrip(req)
	}
	body, err := read(req)
	if err != nil {
		return nil, err
	}
	changes := req.Method != http.MethodGet && req.Method != http.MethodHead
	var starts *http.Response // what one says that is not ready, which is more than that nobody is there
	began := a.last.Load()
	for n := range len(a.urls) {
		at := (began + int32(n)) % int32(len(a.urls))
		var resp *http.Response
		var sent bool
		resp, sent, err = a.ask(req, body, a.urls[at], path, changes, n+1 < len(a.urls))
		if resp != nil && starts != nil {
			_ = starts.Body.Close()
			starts = nil
		}
		switch {
		case resp != nil && (changes || resp.StatusCode != http.StatusServiceUnavailable):
			a.last.Store(at)
			return resp, nil
		case resp != nil:
			starts = resp
		case sent && changes:
			return nil, err
		}
	}
	if starts != nil {
		return starts, nil
	}
	return nil, err
}

func read(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	defer req.Body.Close()
	return io.ReadAll(req.Body)
}

// ask asks one, and says whether it has been sent anything. Where somebody else is left, it
// is given up after a.patience without an answer, but never what may have changed something.
func (a *alike) ask(req *http.Request, body []byte, to *url.URL, path string, changes, others bool) (_ *http.Response, sent bool, err error) {
	var wrote atomic.Bool
	ctx, cancel := context.WithCancelCause(req.Context())
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }})
	out := req.Clone(ctx)
	u := *req.URL
	u.Scheme, u.Host, u.Path, u.RawPath = to.Scheme, to.Host, to.Path+path, ""
	out.URL = &u
	if req.Host == req.URL.Host {
		out.Host = ""
	}
	if req.Body != nil {
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	if others {
		late := time.AfterFunc(a.patience, func() {
			if !changes || !wrote.Load() {
				cancel(fmt.Errorf("%s does not answer within %s", to.Host, a.patience))
			}
		})
		defer late.Stop()
	}
	resp, err := a.rt.RoundTrip(out)
	if err != nil {
		cancel(nil)
		return nil, wrote.Load(), err
	}
	resp.Body = &ending{resp.Body, cancel}
	return resp, true, nil
}

// ending is a body with which its request's context ends.
type ending struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close implements io.Closer.
func (e *ending) Close() error {
	defer e.cancel(nil)
	return e.ReadCloser.Close()
}
