package cortex

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ExternalOptions of a Cortex that somebody else runs.
type ExternalOptions struct {
	// URL is its base, e.g. https://cortex.example.com. Pushes go to URL/api/v1/push,
	// queries to URL/prometheus/api/v1/….
	URL string
	// Listen is HOST:PORT where it is also offered to this machine's roles, so that
	// their configuration is the same in both cases; empty: nowhere.
	Listen string
	// Transport carries the requests: TLS, credentials. Default: http.DefaultTransport.
	Transport http.RoundTripper
	// CheckInterval between probes of URL/ready; default 10s.
	CheckInterval time.Duration
	Logger        *slog.Logger
}

// External stands for a Cortex outside of this process and has the methods of
// Cortex: it probes, and forwards if told to. Safe for concurrent use.
type External struct {
	o      ExternalOptions
	base   *url.URL
	ln     net.Listener // nil: not offered here
	client *http.Client

	mu   sync.Mutex
	last error
}

var errNotProbed = errors.New("not probed yet")

// NewExternal checks the URL and binds the listener, if there is one.
func NewExternal(o ExternalOptions) (*External, error) {
	u, err := url.Parse(strings.TrimRight(o.URL, "/"))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" {
		return nil, fmt.Errorf("external cortex: url %q: want http(s)://HOST[:PORT][/PATH]", o.URL)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.CheckInterval == 0 {
		o.CheckInterval = 10 * time.Second
	}
	if o.Transport == nil {
		o.Transport = http.DefaultTransport
	}
	e := &External{o: o, base: u, last: errNotProbed, client: &http.Client{Transport: o.Transport, Timeout: 5 * time.Second}}
	if o.Listen != "" {
		if e.ln, err = net.Listen("tcp", o.Listen); err != nil {
			return nil, fmt.Errorf("external cortex: listen: %w", err)
		}
	}
	return e, nil
}

// Run probes, and forwards when it has a listener, until ctx is done.
func (e *External) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	if e.ln != nil {
		srv := &http.Server{
			ReadHeaderTimeout: 10 * time.Second,
			ErrorLog:          slog.NewLogLogger(e.o.Logger.Handler(), slog.LevelWarn),
			Handler: onlyServed(&httputil.ReverseProxy{
				Transport: e.o.Transport,
				Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(e.base) },
				ErrorLog:  slog.NewLogLogger(e.o.Logger.Handler(), slog.LevelWarn),
			}),
		}
		go func() { failed <- srv.Serve(e.ln) }()
		defer func() {
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
			defer cancel()
			if srv.Shutdown(stop) != nil {
				_ = srv.Close()
			}
		}()
	}
	tick := time.NewTicker(e.o.CheckInterval)
	defer tick.Stop()
	for {
		e.probe(ctx)
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return fmt.Errorf("external cortex: serve: %w", err)
		case <-tick.C:
		}
	}
}

func (e *External) probe(ctx context.Context) {
	err := func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL()+"/ready", nil)
		if err != nil {
			return err
		}
		resp, err := e.client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		// A gateway in front may not expose /ready; that it answers is enough then.
		if resp.StatusCode/100 == 5 {
			return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
		}
		return nil
	}()
	if ctx.Err() != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if (err == nil) != (e.last == nil) {
		if err != nil {
			e.o.Logger.Warn("external cortex can't be reached", "url", e.base.Redacted(), "err", err)
		} else {
			e.o.Logger.Info("external cortex is reachable", "url", e.base.Redacted())
		}
	}
	e.last = err
}

// Ready returns nil while the last probe succeeded, else why it did not.
func (e *External) Ready() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last != nil {
		return fmt.Errorf("external cortex %s: %w", e.base.Redacted(), e.last)
	}
	return nil
}

// Addr is where it is offered on this machine; empty if it isn't.
func (e *External) Addr() string {
	if e.ln == nil {
		return ""
	}
	return e.ln.Addr().String()
}

// URL is the base URL of the external Cortex.
func (e *External) URL() string { return e.base.String() }

// Gatherer has nothing: the external Cortex is scraped by those who run it.
func (e *External) Gatherer() prometheus.Gatherer { return prometheus.NewRegistry() }

// Status says what the last probe found, for the debug page.
func (e *External) Status() any {
	s := map[string]any{"url": e.base.Redacted(), "offeredAt": e.Addr(), "ready": true}
	if err := e.Ready(); err != nil {
		s["ready"], s["error"] = false, err.Error()
	}
	return s
}
