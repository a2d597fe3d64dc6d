// Package console is Muster's public HTTP API and the server of the web console:
// it knows who asks (TokenReview), which tenants they may read
// (SubjectAccessReview), and passes on to the control plane, the health engine and
// the metric store only what the API server's own RBAC allows.
//
// It decides nothing about rights by itself and keeps no fleet state: reads and
// writes of fleet objects are done as the user, by impersonation, so that RBAC and
// the audit log see the person and not the console. cmd/internal/console calls it.
package console

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"muster.dev/muster/internal/oidclogin"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
)

// Metrics answers PromQL from the fleet's metric store.
type Metrics interface {
	// Query evaluates q for one tenant, which the caller has authorised. What it returns is
	// a status and a JSON body of the Prometheus HTTP API, errors included.
	Query(ctx context.Context, tenant string, q MetricQuery) (status int, body []byte)
	// Names lists names of labels, or values of one, likewise; its body on success has names
	// and more, as GET /api/v1/metrics/names documents it.
	Names(ctx context.Context, tenant string, q NameQuery) (status int, body []byte)
}

// NameQuery asks for names of labels, or values of one.
type NameQuery struct {
	Label      string // whose values are wanted; "": names of labels
	Match      string // a selector that the series must fit; "": any
	Contains   string // whatever the case
	Start, End time.Time
	Limit      int
}

// MetricQuery is an instant query at Time, or with a Step one over a range.
type MetricQuery struct {
	Expr       string
	Time       time.Time // zero: now
	Start, End time.Time
	Step       time.Duration
	Timeout    time.Duration // 0: the store's own
	Limit      int           // of series; 0: none
}

// Logs answers log queries from all regions.
type Logs interface {
	// Search returns a page for one tenant, which the caller has authorised.
	Search(ctx context.Context, tenant string, q wire.LogQuery) (*wire.LogPage, *wire.Problem)
	// Tail calls send with what comes in, until ctx ends or send fails: hits, or the
	// regions that are missing, or neither as a sign of life, first of all at once. The id of
	// a call goes on there as after. A problem means that it was never called.
	Tail(ctx context.Context, tenant string, q wire.LogQuery, after string, send func(id string, ev wire.LogEvent) error) *wire.Problem
}

// Timeline answers what happened, from all roles that keep a part of it.
type Timeline interface {
	// Page returns events for the tenants, as wire.TenantsHeader has them, which the caller
	// has authorised. q has the parameters of wire.TimelinePath.
	Page(ctx context.Context, tenants string, q url.Values) (*wire.TimelinePage, *wire.Problem)
}

// Options configure a Console.
type Options struct {
	// RestConfig is the console's own identity on the API server; Rules lists the
	// rights that it needs.
	RestConfig *rest.Config
	// KubernetesCA are the CAs that clients of the API server shall trust today, in PEM;
	// nil: those of RestConfig.
	KubernetesCA func() []byte
	// HealthURL is where the health role serves /api/v1/health/…, such as
	// http://127.0.0.1:9103.
	HealthURL *url.URL
	// HealthTransport carries requests to HealthURL; nil: a plain transport.
	HealthTransport http.RoundTripper
	// Metrics answers PromQL; nil: the query operations answer 503.
	Metrics Metrics
	// Logs searches and follows the fleet's logs; nil: the log operations answer 503.
	Logs Logs
	// Timeline has what happened; nil: it is answered with 503.
	Timeline Timeline
	// AlertingURL is where the alerting role serves /api/v1/alerts and
	// /api/v1/silences, such as http://127.0.0.1:9107; nil: these answer 503.
	AlertingURL *url.URL
	// AlertingTransport carries requests to AlertingURL; nil: a plain transport.
	AlertingTransport http.RoundTripper
	// UI is the web console with index.html at its root; nil: a page that says how
	// to build it. See the function UI.
	UI fs.FS
	// SessionKeyFile holds the keys that seal the session cookies: one a line, 32 bytes
	// in base64, mode 0600. The first seals, all open; consoles that serve the same
	// people share it. It is read again when it changes. Empty: session.keys in Dir, made
	// on first use.
	SessionKeyFile string
	// Dir is needed without SessionKeyFile.
	Dir string
	// SessionTTL ends a session however long its token lives; default 12h.
	SessionTTL time.Duration
	// ExternalURL is what browsers open, such as https://muster.example.com, without a
	// path; nil where they reach us directly. Its origin may send unsafe requests though
	// a proxy changes the Host, and https marks cookies Secure.
	ExternalURL *url.URL
	// TrustedProxies are the networks of proxies in front, whose X-Forwarded-For,
	// X-Forwarded-Proto and Forwarded are believed. Nobody else's are.
	TrustedProxies []netip.Prefix
	// OIDC lets people log in with an identity provider, whose tokens the API server
	// must accept; nil: with tokens only. It needs ExternalURL.
	OIDC *oidclogin.Options
	// CLIClientID and CLIScopes are what `muster login` uses in place of OIDC's; empty:
	// the same.
	CLIClientID string
	CLIScopes   []string

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// timing is what tests shorten.
type timing struct {
	goodFor     time.Duration // a positive review is believed
	badFor      time.Duration // a negative one
	outageGrace time.Duration // a positive one, while the API server can't be asked
	streamCheck time.Duration // between looks at the rights of an open stream
	request     time.Duration // bound of everything but streams
	streamWrite time.Duration // bound of one write to a stream
}

func defaultTiming() timing {
	return timing{
		goodFor: 10 * time.Second, badFor: 2 * time.Second, outageGrace: 5 * time.Minute,
		streamCheck: 20 * time.Second, request: 30 * time.Second, streamWrite: 30 * time.Second,
	}
}

// Console serves the API and the UI. Safe for concurrent use.
type Console struct {
	log     *slog.Logger
	opt     Options
	timing  timing
	now     func() time.Time
	kube    *kube
	proxies proxies
	known   func(addr string) // the peer at an address is no stranger, see OnKnown
	// external is without a slash at its end; nil: unknown.
	external *url.URL
	oidc     *oidcSessions // nil: not configured
	keys     *sessionKeys
	auth     *authenticator
	access   *access
	seal     *sealer
	pending  *pendingSites
	streams  *streams
	heavy    *turns.Slots
	health   *backend
	alerts   *backend // nil: not configured
	met      *instruments
	openapi  []byte
	static   http.Handler
	handler  http.Handler
}

// New returns a Console that has not talked to anything yet; Run keeps its view of
// pending sites up to date.
func New(o Options) (*Console, error) { return newConsole(o, defaultTiming(), time.Now) }

func newConsole(o Options, tm timing, now func() time.Time) (_ *Console, err error) {
	if o.RestConfig == nil {
		return nil, errors.New("console: RestConfig is missing")
	}
	if o.HealthURL == nil || o.HealthURL.Host == "" {
		return nil, errors.New("console: HealthURL is missing; want a URL such as http://127.0.0.1:9103")
	}
	if o.AlertingURL != nil && o.AlertingURL.Host == "" {
		return nil, errors.New("console: AlertingURL has no host; want a URL such as http://127.0.0.1:9107")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.SessionTTL <= 0 {
		o.SessionTTL = 12 * time.Hour
	}
	c := &Console{log: o.Logger, opt: o, timing: tm, now: now, met: newInstruments(o.Registerer), proxies: o.TrustedProxies, known: func(string) {}}
	if u := o.ExternalURL; u != nil {
		if u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("console: ExternalURL %q: want a URL such as https://muster.example.com", u)
		}
		c.external = &url.URL{Scheme: u.Scheme, Host: u.Host}
	}
	keys, parsed, err := openSessionKeys(o.SessionKeyFile, o.Dir)
	if err != nil {
		return nil, fmt.Errorf("console: session keys: %w", err)
	}
	c.keys = keys
	c.met.keysGood.Set(1)
	if c.seal, err = newSealer(parsed); err != nil {
		return nil, fmt.Errorf("console: session keys: %w", err)
	}
	if o.OIDC != nil {
		if c.external == nil {
			return nil, errors.New("console: OIDC needs ExternalURL: the identity provider sends browsers back to it")
		}
		client := *o.OIDC
		client.Now = now
		provider, err := oidclogin.New(client)
		if err != nil {
			return nil, fmt.Errorf("console: OIDC: %w", err)
		}
		c.oidc = newOIDCSessions(provider)
	}
	if c.kube, err = newKube(o.RestConfig); err != nil {
		return nil, fmt.Errorf("console: API server client: %w", err)
	}
	c.auth = newAuthenticator(c.kube, tm, now, c.met)
	c.access = newAccess(c.kube, tm, now, c.met)
	c.pending = newPendingSites(c.kube, o.Logger)
	c.streams = newStreams(allStreams)
	c.heavy = newHeavy()
	c.health = newBackend("health engine", o.HealthURL, o.HealthTransport, o.Logger)
	if o.AlertingURL != nil {
		c.alerts = newBackend("alerting role", o.AlertingURL, o.AlertingTransport, o.Logger)
	}
	if c.openapi, err = openAPIJSON(); err != nil {
		return nil, err
	}
	if c.static, err = newStatic(o.UI); err != nil {
		return nil, fmt.Errorf("console: web console: %w", err)
	}
	if c.handler, err = c.routes(); err != nil {
		return nil, err
	}
	return c, nil
}

// Run watches sites for the list of pending registrations, and the session keys, until
// ctx ends.
func (c *Console) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.pending.run(ctx) })
	g.Go(func() error {
		tick := time.NewTicker(keysEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
				c.reloadKeys()
			}
		}
	})
	return g.Wait()
}

// reloadKeys takes up a changed file of session keys; a bad one changes nothing.
func (c *Console) reloadKeys() {
	keys, err := c.keys.read()
	if err == nil && keys != nil {
		if err = c.seal.setKeys(keys); err == nil {
			c.log.Info("session keys were read again", "file", c.keys.path, "keys", len(keys))
		}
	}
	if err != nil {
		c.met.keysGood.Set(0)
		c.log.Error("session keys were not read again; those from before stay in use", "err", err)
		return
	}
	c.met.keysGood.Set(1)
}

// OnKnown has fn called with the address of each peer that has shown who it is. It must be
// called before the console serves.
func (c *Console) OnKnown(fn func(addr string)) { c.known = fn }

// Ready tells why the console can't answer everything yet, or nil.
func (c *Console) Ready() error { return c.pending.ready() }

// Handler serves the API under /api/ and the UI everywhere else.
func (c *Console) Handler() http.Handler { return c.handler }

// h2Window is how much of requests over HTTP/2 may come before it is read, in bytes: of one
// connection, and of one request.
const h2Window = 64 << 10

// NewServer returns a server for Handler with the timeouts that suit it: streams
// lift theirs. Shutting it down ends the streams, so that it doesn't wait for them.
func (c *Console) NewServer() *http.Server {
	srv := &http.Server{
		Handler:           c.handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      c.timing.request + 30*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		// What is sent and not read yet is memory, and nobody sends much.
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerConnection: h2Window, MaxReceiveBufferPerStream: h2Window},
	}
	srv.RegisterOnShutdown(c.streams.end)
	return srv
}
