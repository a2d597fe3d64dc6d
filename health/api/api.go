package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/fairshare"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/wire"
)

// Source is what the API needs of *engine.Engine.
type Source interface {
	View() *engine.View
	Subscribe(size int) *engine.Subscription
	Try(ctx context.Context, tenant string, candidate *v1alpha1.HealthPolicy, patience time.Duration) (*engine.Trial, error)
	TryHistory(ctx context.Context, tenant string, candidate *v1alpha1.HealthPolicy, since time.Duration, after string) (*engine.Replay, error)
}

// Options of a Server. Source and Logger are needed.
type Options struct {
	Source     Source
	Logger     *slog.Logger
	Registerer prometheus.Registerer // may be nil
	// Shipped is the policy that applies where no other does, as a person would write it.
	// Without it its thresholds are not told.
	Shipped *v1alpha1.HealthPolicySpec
	// KeepAlive is the time between comments on a quiet stream; default 15 s.
	KeepAlive time.Duration
	// StreamQueue is how many updates a slow client may lag behind; default 16.
	StreamQueue int
	// MaxStreams bounds the open streams, of which one tenant may have half; default 2000.
	MaxStreams int
}

// Server serves the health API. Safe for concurrent use.
type Server struct {
	opts    Options
	log     *slog.Logger
	boot    uint64 // tells the ETags of this process from another's
	streams prometheus.Gauge

	open    *fairshare.Shares // of streams
	parsing *fairshare.Shares // of policies that are tried

	mu      sync.Mutex
	encoded []*encodedUpdate // of the newest updates, shared by the streams
}

// New returns a server; Register mounts it.
func New(o Options) (*Server, error) {
	if o.Source == nil || o.Logger == nil {
		return nil, errors.New("health api: Source and Logger must be set")
	}
	if o.KeepAlive <= 0 {
		o.KeepAlive = 15 * time.Second
	}
	if o.StreamQueue <= 0 {
		o.StreamQueue = 16
	}
	if o.MaxStreams <= 0 {
		o.MaxStreams = 2000
	}
	s := &Server{opts: o, log: o.Logger, boot: rand.Uint64(), open: fairshare.NewShares(o.MaxStreams), parsing: fairshare.NewShares(maxParsing), streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_health_streams", Help: "Open streams of changes."})}
	if o.Registerer != nil {
		o.Registerer.MustRegister(s.streams)
	}
	return s, nil
}

// Register mounts the API below /api/v1/health/.
func (s *Server) Register(mux obs.Routes) {
	mux.HandleFunc("GET /api/v1/health/sites", s.get(s.sites))
	mux.HandleFunc("GET /api/v1/health/sites/{name}", s.get(s.site))
	mux.HandleFunc("GET /api/v1/health/sites/{name}/explain", s.get(s.explain))
	mux.HandleFunc("GET /api/v1/health/virtualsites", s.get(s.virtualSites))
	mux.HandleFunc("GET /api/v1/health/virtualsites/{name}", s.get(s.virtualSite))
	mux.HandleFunc("GET /api/v1/health/policies", s.get(s.policies))
	mux.HandleFunc("GET /api/v1/health/policies/{name}", s.get(s.policy))
	mux.HandleFunc("GET "+wire.ScoresPath, s.get(s.scores))
	mux.HandleFunc("GET /api/v1/health/stream", s.stream)
	mux.HandleFunc("POST /api/v1/health/try", s.try)
	mux.HandleFunc("POST /api/v1/health/replay", s.replay)
	mux.HandleFunc("/api/v1/health/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			wire.Failure(http.StatusMethodNotAllowed, "the health API is read with GET; only /api/v1/health/try and /api/v1/health/replay take a POST").Write(w)
			return
		}
		wire.Failure(http.StatusNotFound, "%s", "no such path: "+r.URL.Path).Write(w)
	})
}

// get wraps what all reads share: scope, the view, ETag, JSON.
func (s *Server) get(f func(*http.Request, *engine.View, *wire.Scope) (any, *wire.Problem)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sc, p := wire.ScopeOf(r, r.URL.Query()["tenant"])
		if p != nil {
			p.Write(w)
			return
		}
		v := s.opts.Source.View()
		if v == nil {
			wire.Failure(http.StatusServiceUnavailable, "the first evaluation is not done yet; try again in a few seconds").Write(w)
			return
		}
		h := w.Header()
		tag := s.etag(r, v, sc)
		h.Set("ETag", tag)
		h.Set("Cache-Control", "private, no-cache")
		h.Set("Vary", wire.TenantsHeader)
		if match(r.Header.Get("If-None-Match"), tag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		out, p := f(r, v, sc)
		if p != nil {
			h.Del("ETag")
			p.Write(w)
			return
		}
		body, err := json.Marshal(out)
		if err != nil {
			s.log.Error("health api: an answer can't be encoded", "path", r.URL.Path, "err", err)
			h.Del("ETag")
			wire.Failure(http.StatusInternalServerError, "the answer can't be encoded").Write(w)
			return
		}
		h.Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n'))
	}
}

// etag is the same for the same view, question and scope.
func (s *Server) etag(r *http.Request, v *engine.View, sc *wire.Scope) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%t %q %q %q", sc.All, sc.Allowed, r.URL.Path, r.URL.RawQuery)
	return fmt.Sprintf(`"%x-%d-%x"`, s.boot, v.Version, h.Sum64())
}

func match(header, tag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		if part = strings.TrimSpace(part); part == "*" || strings.TrimPrefix(part, "W/") == tag {
			return true
		}
	}
	return false
}

const (
	defaultLimit = 100
	maxLimit     = 1000
)

func limitOf(q url.Values) (int, *wire.Problem) {
	v := q.Get("limit")
	if v == "" {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		return 0, wire.Failure(http.StatusBadRequest, "limit: %.20q: want a number from 1 to %d", v, maxLimit)
	}
	return min(n, maxLimit), nil
}

// filter is what a list of sites is narrowed to.
type filter struct {
	virtual, regions []string
	colours          []fleet.Colour
	phases           []fleet.Phase
	text             string
}

var (
	colours = []fleet.Colour{fleet.Green, fleet.Orange, fleet.Red, fleet.Grey}
	phases  = []fleet.Phase{fleet.PhasePending, fleet.PhaseApproved, fleet.PhaseOnline, fleet.PhaseOffline, fleet.PhaseDecommissioned}
)

func filterOf(q url.Values) (*filter, *wire.Problem) {
	f := &filter{virtual: wire.Values(q["virtualSite"]), regions: wire.Values(q["region"]), text: strings.ToLower(strings.TrimSpace(q.Get("q")))}
	for _, c := range wire.Values(q["colour"]) {
		if !slices.Contains(colours, fleet.Colour(c)) {
			return nil, wire.Failure(http.StatusBadRequest, "colour: %.20q: want green, orange, red or grey", c)
		}
		f.colours = append(f.colours, fleet.Colour(c))
	}
	for _, p := range wire.Values(q["phase"]) {
		i := slices.IndexFunc(phases, func(x fleet.Phase) bool { return strings.EqualFold(string(x), p) })
		if i < 0 {
			return nil, wire.Failure(http.StatusBadRequest, "phase: %.20q: want Pending, Approved, Online, Offline or Decommissioned", p)
		}
		f.phases = append(f.phases, phases[i])
	}
	return f, nil
}

func (f *filter) matches(s *engine.Site) bool {
	switch {
	case len(f.phases) == 0 && !s.Listed():
		return false
	case len(f.phases) > 0 && !slices.Contains(f.phases, s.Phase):
		return false
	case len(f.colours) > 0 && !slices.Contains(f.colours, s.Colour()):
		return false
	case len(f.regions) > 0 && !slices.Contains(f.regions, s.Region):
		return false
	case len(f.virtual) > 0 && !slices.ContainsFunc(f.virtual, func(v string) bool { return inVirtual(s, v) }):
		return false
	case f.text != "":
		return strings.Contains(s.ID.Name, f.text) || strings.Contains(strings.ToLower(s.Region), f.text) || s.Place != nil && strings.Contains(strings.ToLower(s.Place.Address), f.text)
	}
	return true
}

// inVirtual takes "namespace/name", or the name alone for any namespace.
func inVirtual(s *engine.Site, v string) bool {
	for _, key := range s.VirtualSites {
		if _, name, _ := strings.Cut(key, "/"); key == v || name == v {
			return true
		}
	}
	return false
}

const (
	sortName  = "name"
	sortScore = "score" // the worst first, unknown last
)

func (s *Server) sites(r *http.Request, v *engine.View, sc *wire.Scope) (any, *wire.Problem) {
	q := r.URL.Query()
	f, p := filterOf(q)
	if p != nil {
		return nil, p
	}
	limit, p := limitOf(q)
	if p != nil {
		return nil, p
	}
	order := q.Get("sort")
	switch order {
	case "":
		order = sortName
	case sortName, sortScore:
	default:
		return nil, wire.Failure(http.StatusBadRequest, "sort: %.20q: want name or score", order)
	}
	after, err := decodeCursor(q.Get("cursor"), order)
	if err != nil {
		return nil, wire.Failure(http.StatusBadRequest, "%s", err.Error())
	}
	type row struct {
		key  position
		site *engine.Site
	}
	var rows []row
	total := 0
	for _, x := range v.Sites {
		if !sc.Has(x.ID.Tenant) || !f.matches(x) {
			continue
		}
		total++
		key := position{Sort: order, Name: x.ID.Name, Tenant: x.ID.Tenant}
		if order == sortScore {
			score, known := x.Score()
			if known {
				key.Score = score
			}
			key.Unknown = !known
		}
		if after == nil || key.compare(after) > 0 {
			rows = append(rows, row{key, x})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return a.key.compare(&b.key) })
	out := SiteList{AsOf: asOf(v), Total: total, Sites: make([]Site, 0, min(limit, len(rows)))}
	for i := range rows {
		if i == limit {
			out.NextCursor = rows[i-1].key.encode()
			break
		}
		out.Sites = append(out.Sites, SiteOf(rows[i].site, v.AsOf))
	}
	return out, nil
}

func asOf(v *engine.View) time.Time { return v.AsOf.UTC().Truncate(time.Millisecond) }

func (s *Server) site(r *http.Request, v *engine.View, sc *wire.Scope) (any, *wire.Problem) {
	x, p := find(r, v, sc)
	if p != nil {
		return nil, p
	}
	return DetailOf(x, v.AsOf), nil
}

func (s *Server) explain(r *http.Request, v *engine.View, sc *wire.Scope) (any, *wire.Problem) {
	x, p := find(r, v, sc)
	if p != nil {
		return nil, p
	}
	if v := r.URL.Query().Get("shadow"); v == "true" {
		out, ok := ShadowExplanationOf(x)
		if !ok {
			return nil, wire.Failure(http.StatusNotFound, "site %q has no score to explain: no policy in shadow selects it, or it was not evaluated yet", x.ID.Name)
		}
		return out, nil
	} else if v != "" {
		return nil, wire.Failure(http.StatusBadRequest, "shadow: %.20q: want true", v)
	}
	out, ok := ExplanationOf(x)
	if !ok {
		return nil, wire.Failure(http.StatusNotFound, "site %q has no score to explain: it is %s", x.ID.Name, x.Phase)
	}
	return out, nil
}

// find returns the site that a path names.
func find(r *http.Request, v *engine.View, sc *wire.Scope) (*engine.Site, *wire.Problem) {
	name := r.PathValue("name")
	var found []*engine.Site
	for _, t := range v.Snapshot.Tenants {
		if sc.Has(t.Name) {
			if x := v.Find(t.Name, name); x != nil {
				found = append(found, x)
			}
		}
	}
	switch len(found) {
	case 0:
		return nil, wire.Failure(http.StatusNotFound, "no site %q that you may read", name)
	case 1:
		return found[0], nil
	}
	p := wire.Failure(http.StatusConflict, "several tenants have a site %q; say which with tenant=", name)
	for _, x := range found {
		p.Tenants = append(p.Tenants, x.ID.Tenant)
	}
	return nil, p
}

func (s *Server) virtualSites(r *http.Request, v *engine.View, sc *wire.Scope) (any, *wire.Problem) {
	q := r.URL.Query()
	limit, p := limitOf(q)
	if p != nil {
		return nil, p
	}
	after, err := decodeCursor(q.Get("cursor"), "virtual")
	if err != nil {
		return nil, wire.Failure(http.StatusBadRequest, "%s", err.Error())
	}
	type row struct {
		key position
		vs  *engine.VirtualSite
	}
	var rows []row
	total := 0
	for _, x := range v.VirtualSites {
		if !sc.Has(x.Tenant) {
			continue
		}
		total++
		key := position{Sort: "virtual", Name: x.Name, Tenant: x.Tenant, Space: x.Namespace}
		if after == nil || key.compare(after) > 0 {
			rows = append(rows, row{key, x})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return a.key.compare(&b.key) })
	out := VirtualSiteList{AsOf: asOf(v), Total: total, VirtualSites: make([]VirtualSite, 0, min(limit, len(rows)))}
	for i := range rows {
		if i == limit {
			out.NextCursor = rows[i-1].key.encode()
			break
		}
		out.VirtualSites = append(out.VirtualSites, VirtualSiteOf(rows[i].vs))
	}
	return out, nil
}

func (s *Server) virtualSite(r *http.Request, v *engine.View, sc *wire.Scope) (any, *wire.Problem) {
	name, space := r.PathValue("name"), r.URL.Query().Get("namespace")
	var found []*engine.VirtualSite
	for _, x := range v.VirtualSites {
		if x.Name == name && sc.Has(x.Tenant) && (space == "" || x.Namespace == space) {
			found = append(found, x)
		}
	}
	switch len(found) {
	case 0:
		return nil, wire.Failure(http.StatusNotFound, "no virtual site %q that you may read", name)
	case 1:
		return VirtualSiteOf(found[0]), nil
	}
	where := make([]string, 0, len(found))
	p := wire.Failure(http.StatusConflict, "")
	for _, x := range found {
		where = append(where, fmt.Sprintf("tenant %s namespace %s", x.Tenant, x.Namespace))
		if !slices.Contains(p.Tenants, x.Tenant) {
			p.Tenants = append(p.Tenants, x.Tenant)
		}
	}
	p.Detail = fmt.Sprintf("several virtual sites are named %q; say which with tenant= and namespace=: %s", name, strings.Join(where, ", "))
	return nil, p
}
