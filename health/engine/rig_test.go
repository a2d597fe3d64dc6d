package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grafana/regexp"
	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/route"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/teststorage"
	apiv1 "github.com/prometheus/prometheus/web/api/v1"

	"muster.dev/muster/health"
	"muster.dev/muster/health/status"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/wire"
)

// prom is a Prometheus: its storage, its query engine and its HTTP API with the
// remote write receiver, from Prometheus' own packages.
type prom struct {
	st     *teststorage.TestStorage
	eng    *promql.Engine
	router *route.Router
}

func newProm(t testing.TB) *prom {
	t.Helper()
	p := &prom{st: teststorage.New(t, time.Hour.Milliseconds()), eng: promql.NewEngine(promql.EngineOpts{MaxSamples: 5e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})}
	t.Cleanup(func() { p.eng.Close(); p.st.Close() })
	api := apiv1.NewAPI(p.eng, p.st, p.st, nil, nil, nil, nil, func() config.Config { return config.Config{} }, nil, apiv1.GlobalURLOptions{},
		func(h http.HandlerFunc) http.HandlerFunc { return h }, nil, "", false, slog.New(slog.DiscardHandler), nil, 1e6, 10, 1e6, false, regexp.MustCompile(`^$`), nil, nil, nil, nil,
		prometheus.NewRegistry(), prometheus.NewRegistry(), nil, true, remoteapi.MessageTypes{remoteapi.WriteV1MessageType, remoteapi.WriteV2MessageType}, false, false, false, false, 5*time.Minute, false, false, nil)
	p.router = route.New()
	api.Register(p.router)
	return p
}

// put appends a sample: put("up", `job="x"`, "t/s", 1).
func (p *prom) put(t testing.TB, name, rest, site string, v float64, ago time.Duration) {
	t.Helper()
	b := labels.NewBuilder(labels.EmptyLabels()).Set("__name__", name)
	if tenant, s, ok := strings.Cut(site, "/"); ok {
		b.Set("tenant", tenant).Set("site", s).Set("region", "eu")
	}
	for _, kv := range strings.Split(rest, ",") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			b.Set(k, strings.Trim(v, `"`))
		}
	}
	app := p.st.Appender(context.Background())
	if _, err := app.Append(0, b.Labels(), time.Now().Add(-ago).UnixMilli(), v); err != nil {
		t.Fatal(err)
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

// ask returns the values of a query, by label set.
func (p *prom) ask(t testing.TB, q string) map[string]float64 {
	t.Helper()
	query, err := p.eng.NewInstantQuery(context.Background(), p.st, nil, q, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	vec, err := query.Exec(context.Background()).Vector()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, s := range vec {
		out[s.Metric.String()] = s.F
	}
	return out
}

// regional is a fake of what muster regional serves on its own listener, round a
// real Prometheus.
type regional struct {
	*prom
	name string
	url  string
	mux  *http.ServeMux
	down atomic.Bool
	slow atomic.Int64 // nanoseconds before a query is answered
	// ahead is how wrong its clock is.
	ahead time.Duration
	late  atomic.Int64 // nanoseconds before the live view is answered
	// stuck queries contain this text and are never answered; how many were asked at the
	// same time, at most, and since the engine's start.
	stuck                         string
	stuckNow, stuckMost, stuckAll atomic.Int64

	mu      sync.Mutex
	sites   map[string]*wire.SiteLive
	queries []string
}

func newRegional(t testing.TB, name string) *regional {
	r := &regional{prom: newProm(t), name: name, sites: map[string]*wire.SiteLive{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/live", func(w http.ResponseWriter, req *http.Request) {
		if d := r.late.Load(); d > 0 {
			select {
			case <-time.After(time.Duration(d)):
			case <-req.Context().Done():
				return
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		a := wire.LiveView{Regional: name, Region: "eu", AsOf: time.Now().Add(r.ahead), Sites: []wire.SiteLive{}}
		for _, s := range r.sites {
			l := *s
			for _, t := range []*time.Time{&l.ConnectedSince, &l.LastHeartbeat, &l.LastPush} {
				if !t.IsZero() {
					*t = t.Add(r.ahead)
				}
			}
			a.Sites = append(a.Sites, l)
		}
		_ = json.NewEncoder(w).Encode(a)
	})
	mux.Handle("/edge/api/v1/", http.StripPrefix("/edge/api/v1", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/query") {
			_ = req.ParseForm() // with the body unread, a client that gave up would not be noticed
			if r.stuck != "" && strings.Contains(req.FormValue("query"), r.stuck) {
				r.stuckAll.Add(1)
				for n, most := r.stuckNow.Add(1), r.stuckMost.Load(); n > most && !r.stuckMost.CompareAndSwap(most, n); most = r.stuckMost.Load() {
				}
				<-req.Context().Done()
				r.stuckNow.Add(-1)
				return
			}
			if d := r.slow.Load(); d > 0 {
				select {
				case <-time.After(time.Duration(d)):
				case <-req.Context().Done():
					return
				}
			}
			r.mu.Lock()
			r.queries = append(r.queries, req.FormValue("query"))
			r.mu.Unlock()
		}
		r.router.ServeHTTP(w, req)
	})))
	r.mux, r.url = mux, "http://"+name
	return r
}

func (r *regional) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if r.down.Load() {
		panic(http.ErrAbortHandler)
	}
	r.mux.ServeHTTP(w, req)
}

// hosts is the network of a test, by name: without sockets, so that a test runs in fake time
// (testing/synctest), where a machine that is busy with other things delays nothing.
type hosts map[string]http.Handler

func (h hosts) RoundTrip(req *http.Request) (_ *http.Response, err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			err = errors.New("connection refused")
		default:
			panic(p)
		}
	}()
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	if req.Body == nil {
		req.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	h[req.URL.Host].ServeHTTP(w, req)
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// connect says what the live view holds about a site.
func (r *regional) connect(site string, connected bool) {
	tenant, name, _ := strings.Cut(site, "/")
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	l := &wire.SiteLive{Tenant: tenant, Site: name, Connected: connected, LastHeartbeat: now, LastPush: now, AgentVersion: "v1"}
	if connected {
		l.ConnectedSince = now
	}
	r.sites[site] = l
}

func (r *regional) forget(site string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sites, site)
}

func (r *regional) asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.queries)
}

// cortex keeps a Prometheus for each tenant, behind the URLs of Cortex.
type cortex struct {
	url     string
	tenants map[string]*prom
	refuses sync.Map // tenants whose pushes are over a limit, for ever

	mu      sync.Mutex
	queries []string
}

func newCortex(t testing.TB, tenants ...string) *cortex {
	c := &cortex{url: "http://cortex", tenants: map[string]*prom{}}
	for _, name := range tenants {
		c.tenants[name] = newProm(t)
	}
	return c
}

func (c *cortex) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	p := c.tenants[req.Header.Get("X-Scope-OrgID")]
	if p == nil {
		http.Error(w, "no org id", http.StatusUnauthorized)
		return
	}
	switch req.URL.Path {
	case "/prometheus/api/v1/query":
		req.URL.Path = "/query"
		c.mu.Lock()
		c.queries = append(c.queries, req.FormValue("query"))
		c.mu.Unlock()
	case "/prometheus/api/v1/query_range":
		req.URL.Path = "/query_range"
	case "/api/v1/push":
		if _, full := c.refuses.Load(req.Header.Get("X-Scope-OrgID")); full {
			w.Header().Set("Retry-After", "3600")
			http.Error(w, "per-user series limit exceeded", http.StatusTooManyRequests)
			return
		}
		req.URL.Path = "/write"
	default:
		http.NotFound(w, req)
		return
	}
	p.router.ServeHTTP(w, req)
}

// shelf is an inventory that a test fills, and takes what is reported.
type shelf struct {
	mu       sync.Mutex
	snap     *inventory.Snapshot
	changed  chan struct{}
	sites    []status.SiteReport
	gone     []fleet.SiteID
	policies []status.PolicyReport
}

func (s *shelf) Ready() error { return nil }
func (s *shelf) Snapshot() *inventory.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snap
}
func (s *shelf) Changed() <-chan struct{} { return s.changed }
func (s *shelf) ForgetSites(gone []fleet.SiteID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = append(s.gone, gone...)
}
func (s *shelf) ReportSites(r []status.SiteReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sites = append(s.sites, r...)
}
func (s *shelf) ReportPolicies(r []status.PolicyReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policies = slices.Clone(r)
}

func (s *shelf) set(sites []*inventory.Site, virtual []*inventory.VirtualSite, policies []*inventory.Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version := uint64(1)
	if s.snap != nil {
		version = s.snap.Version + 1
	}
	s.snap = inventory.NewSnapshot(version, sites, virtual, policies)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func aSite(id string, virtual ...string) *inventory.Site {
	tenant, name, _ := strings.Cut(id, "/")
	return &inventory.Site{ID: fleet.SiteID{Tenant: tenant, Name: name}, Region: "eu", Phase: fleet.PhaseApproved, VirtualSites: virtual}
}

// simple is a model of two signals: temperature and, critical, fire.
func simple(t testing.TB) *health.Model {
	m, err := health.NewModel(health.Options{Weights: [4]float64{1, 1, 1, 1}, WorstShare: health.DefaultWorstShare, Signals: []health.Signal{
		{Name: "temperature", Dimension: fleet.Performance, Query: "max by (tenant, site) (temperature)", Objects: "temperature", Good: 20, Bad: 40, Weight: 1, Cap: health.NoCap, Unit: "degrees"},
		{Name: "fire", Dimension: fleet.Reliability, Query: "max by (tenant, site) (fire)", Good: 0, Bad: 1, Weight: 1, Cap: fleet.CriticalCap, Text: "it burns"},
		{Name: "lock", Dimension: fleet.Security, Query: "min by (tenant, site) (lock)", Good: 1, Bad: 0, Weight: 1, Cap: health.NoCap},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

type rig struct {
	t     testing.TB
	e     *Engine
	inv   *shelf
	reg   *prometheus.Registry
	stop  func()
	dir   string
	opts  Options
	store *cortex
	// views are all since the start, so that the first of them can't be missed.
	views *Subscription
}

// begin starts an engine with short times; change may alter the options.
func begin(t testing.TB, dir string, regionals []*regional, store *cortex, inv *shelf, change func(*Options)) *rig {
	t.Helper()
	o := Options{
		Inventory: inv, Status: inv, Shipped: simple(t), Dir: dir, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		Tick: 100 * time.Millisecond, LiveInterval: 30 * time.Millisecond, LiveTimeout: 500 * time.Millisecond, LiveMaxAge: 300 * time.Millisecond,
		QueryTimeout: 2 * time.Second, MissingGrace: 400 * time.Millisecond, Patience: 100 * time.Millisecond, PushPatience: time.Second,
	}
	network := hosts{}
	o.Client = &http.Client{Transport: network}
	for _, r := range regionals {
		network[r.name] = r
		o.Regionals = append(o.Regionals, Regional{Name: r.name, URL: r.url})
	}
	if store != nil {
		network["cortex"] = store
		o.StoreQueryURL, o.StoreWriteURL = store.url+"/prometheus/api/v1", store.url+"/api/v1/push"
	}
	if change != nil {
		change(&o)
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	views := e.Subscribe(1000)
	t.Cleanup(views.Close)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = e.Run(ctx) }()
	r := &rig{t: t, e: e, views: views, inv: inv, reg: o.Registerer.(*prometheus.Registry), dir: dir, opts: o, store: store}
	r.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(r.stop)
	return r
}

// first is the view of the first tick.
func (r *rig) first() *View {
	r.t.Helper()
	select {
	case u, open := <-r.views.C:
		if !open {
			r.t.Fatal("the engine stopped before its first view")
		}
		return u.View
	case <-time.After(15 * time.Second):
		r.t.Fatal("waited 15 s for the first view")
		return nil
	}
}

// until waits for a view that a test describes.
func (r *rig) until(what string, ok func(*View) bool) *View {
	r.t.Helper()
	sub := r.e.Subscribe(1000)
	defer sub.Close()
	if v := r.e.View(); v != nil && ok(v) {
		return v
	}
	limit := time.After(15 * time.Second)
	for {
		select {
		case u, open := <-sub.C:
			if !open {
				r.t.Fatalf("the engine stopped before: %s", what)
			}
			if ok(u.View) {
				return u.View
			}
		case <-limit:
			r.t.Fatalf("waited 15 s for: %s\n%s", what, describe(r.e.View()))
		}
	}
}

func describe(v *View) string {
	if v == nil {
		return "no view"
	}
	var b strings.Builder
	for _, s := range v.Sites {
		score, known := s.Score()
		fmt.Fprintf(&b, "%s %s %v/%v %s home=%s store=%v", s.ID, s.Phase, score, known, s.Colour(), s.Home, s.FromStore)
		if s.State != nil {
			fmt.Fprintf(&b, " link=%s %+v", s.State.Link, s.State.Reasons)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// well gives a site values that are all good.
func well(t testing.TB, p *prom, site string) {
	p.put(t, "temperature", "", site, 20, 0)
	p.put(t, "fire", "", site, 0, 0)
	p.put(t, "lock", "", site, 1, 0)
}
