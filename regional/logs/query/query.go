// Package query serves a region's log records over HTTP: one page of a search, and a
// live tail as server-sent events. It listens on the regional's private query
// listener and answers package aggregator/logs, which asks all regionals and merges.
//
// Every request is about the one tenant in the header X-Muster-Tenant, which the caller has
// authorised; no parameter can name another. It authenticates nobody itself, so it must
// never be mounted where users can reach it. cmd/internal/regional mounts it.
package query

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"

	"muster.dev/muster/internal/fairshare"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/logs/store"
)

// Paths of the API.
const (
	PathSearch = "/api/v1/logs/search"
	PathTail   = "/api/v1/logs/tail"
)

// Store is what the API needs of a store.Store.
type Store interface {
	Search(ctx context.Context, q store.Query) (store.Page, error)
	Tail(ctx context.Context, q store.Query, after store.Cursor) (store.TailPage, error)
}

// Options of an API. Regional, Store and Members are needed; zero limits get defaults.
type Options struct {
	// Regional is the name under which this region's answers are known.
	Regional string
	// Joined are the regionals whose Elasticsearch clusters are joined to this one's, as
	// store.Missing names them: a search that is not local speaks for them too.
	Joined []string
	Store  Store
	// Members returns the sites of a virtual site of a tenant, NAMESPACE/NAME with the
	// namespace as users type it, and whether there is such a virtual site. It must be
	// cheap: a tail asks it again and again, so that it follows changes.
	Members func(tenant, virtualSite string) (sites []string, ok bool)

	Logger     *slog.Logger
	Registerer prometheus.Registerer

	Timeout     time.Duration // of one search, or one step of a tail; default 9 s
	MaxSearches int           // at once, beyond which 429; default 16. One tenant gets half at most
	MaxTails    int           // the same of tails; default 128
	MaxBytes    int           // of one answer's records, as JSON; a page that would be larger is cut; default 16 MiB
	Poll        time.Duration // between two looks of a tail at the store; default 1 s
	KeepAlive   time.Duration // between the signs of life of a quiet tail; default 5 s
	WriteWait   time.Duration // how long a reader of a tail may take for one write; default 30 s
}

func (o *Options) defaults() error {
	switch {
	case o.Regional == "":
		return errors.New("log query: Regional is not set")
	case o.Store == nil:
		return errors.New("log query: Store is not set")
	case o.Members == nil:
		return errors.New("log query: Members is not set")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	o.Timeout = cmp.Or(max(o.Timeout, 0), 9*time.Second)
	o.MaxSearches = cmp.Or(max(o.MaxSearches, 0), 16)
	o.MaxTails = cmp.Or(max(o.MaxTails, 0), 128)
	o.MaxBytes = cmp.Or(max(o.MaxBytes, 0), 16<<20)
	o.Poll = cmp.Or(max(o.Poll, 0), time.Second)
	o.KeepAlive = cmp.Or(max(o.KeepAlive, 0), 5*time.Second)
	o.WriteWait = cmp.Or(max(o.WriteWait, 0), 30*time.Second)
	return nil
}

// API serves the queries. Safe for concurrent use.
type API struct {
	opts     Options
	log      *slog.Logger
	complain rate.Sometimes // a store that is down must not flood the log
	searches *fairshare.Shares
	tails    *fairshare.Shares
	stop     chan struct{}
	once     sync.Once

	requests *prometheus.CounterVec // path, code
	duration prometheus.Histogram
	open     prometheus.Gauge
	sent     prometheus.Counter
}

// New returns an API; Register mounts it.
func New(o Options) (*API, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	o.Joined = slices.Clone(o.Joined)
	f := promauto.With(o.Registerer)
	return &API{
		opts: o, log: o.Logger, complain: rate.Sometimes{First: 1, Interval: 30 * time.Second},
		searches: fairshare.NewShares(o.MaxSearches), tails: fairshare.NewShares(o.MaxTails), stop: make(chan struct{}),
		requests: f.NewCounterVec(prometheus.CounterOpts{Name: "muster_logs_query_requests_total", Help: "Log queries answered, by kind (search, tail) and status code."}, []string{"kind", "code"}),
		duration: f.NewHistogram(prometheus.HistogramOpts{Name: "muster_logs_query_search_duration_seconds", Help: "Time to answer a log search.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 12)}),
		open:     f.NewGauge(prometheus.GaugeOpts{Name: "muster_logs_query_tails", Help: "Open live tails."}),
		sent:     f.NewCounter(prometheus.CounterOpts{Name: "muster_logs_query_records_sent_total", Help: "Log records handed out by searches and tails."}),
	}, nil
}

// Register mounts the API on the regional's private listener.
func (a *API) Register(mux obs.Routes) {
	mux.HandleFunc("GET "+PathSearch, a.bounded("search", a.searches, a.search))
	mux.HandleFunc("GET "+PathTail, a.bounded("tail", a.tails, a.tail))
}

// Close ends the open tails, for good, so that a server that is shut down does not wait for them.
func (a *API) Close() { a.once.Do(func() { close(a.stop) }) }

// bounded does what both kinds share: the tenant, the parameters, the bound on how
// many run at once, errors as problems.
func (a *API) bounded(kind string, slots *fairshare.Shares, f func(http.ResponseWriter, *http.Request, *request) *wire.Problem) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		p := a.serve(w, r, slots, kind == "tail", f)
		code := http.StatusOK
		if p != nil {
			code = p.Status
			p.Write(w)
		}
		a.requests.WithLabelValues(kind, strconv.Itoa(code)).Inc()
	}
}

func (a *API) serve(w http.ResponseWriter, r *http.Request, slots *fairshare.Shares, tail bool, f func(http.ResponseWriter, *http.Request, *request) *wire.Problem) *wire.Problem {
	tenants := r.Header.Values(wire.TenantHeader)
	if len(tenants) != 1 || fleet.ValidateTenant(tenants[0]) != nil {
		return wire.Failure(http.StatusForbidden, "%s", "the request must say for which one tenant it is: it must come through the console, which sets "+wire.TenantHeader)
	}
	req, p := parse(r, tenants[0], tail)
	if p != nil {
		return p
	}
	if !slots.Take(tenants[0]) {
		return wire.Failure(http.StatusTooManyRequests, "%s", "the tenant has as many log queries running in this region as it may have at once; try again in a moment")
	}
	defer slots.Give(tenants[0])
	return f(w, r, req)
}

// storeProblem says what went wrong in the store: the user's mistake in full, ours in
// the log only.
func (a *API) storeProblem(err error) *wire.Problem {
	var q *store.QueryError
	switch {
	case errors.As(err, &q):
		return wire.Invalid(wire.FieldError{Field: q.Field, Detail: q.Err.Error()})
	case errors.Is(err, store.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return wire.Failure(http.StatusGatewayTimeout, "%s", store.ErrTimeout.Error())
	}
	a.complain.Do(func() { a.log.Error("log query: the store failed", "err", err) })
	return wire.Failure(http.StatusServiceUnavailable, "the region's log store can't answer now; the regional's log has the cause")
}
