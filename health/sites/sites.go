// Package sites serves the inventory as a table, at GET /api/v1/sites: the sites that a
// query means (internal/sitequery), sorted, paged, grouped and counted, as JSON or CSV;
// and of the same sites what a map draws, how a number spreads over them, and their links.
//
// It is in the health role because that has what a row is made of: who is in the fleet
// from its inventory, scores and reasons from its engine. What it lacks it asks for when
// somebody wants to know: the alerting role for the alerts that fire, regionals for what links are like. It keeps nothing and authenticates
// nobody: the header X-Muster-Tenants says what a request may read, so it must be mounted
// on a listener that only the console reaches. cmd/internal/health mounts it.
package sites

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"muster.dev/muster/health"
	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/sitequery"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
)

// Source is what it needs of *engine.Engine.
type Source interface{ View() *engine.View }

// Options of a Server. All but Firing are needed.
type Options struct {
	Source Source
	Logger *slog.Logger
	// Firing asks for the alerts of a tenant that fire; nil: they are never known. See
	// FiringFrom.
	Firing func(ctx context.Context, tenant string) (*wire.FiringAlerts, error)
	// Measure asks for the figures of links; nil: they are never known.
	Measure Measure
	// Patience is how long the sites of one request may be looked through; default 5 s.
	Patience time.Duration
}

// Server answers. Safe for concurrent use.
type Server struct {
	opts       Options
	log        *slog.Logger
	alerts     *alerts
	figures    *links
	processors *turns.Processors
	last       atomic.Pointer[table]
}

// New returns a server; Register mounts it.
func New(o Options) (*Server, error) {
	if o.Source == nil || o.Logger == nil {
		return nil, errors.New("sites: Source and Logger must be set")
	}
	if o.Patience <= 0 {
		o.Patience = 5 * time.Second
	}
	return &Server{opts: o, log: o.Logger, alerts: newAlerts(o.Firing, o.Logger), figures: &links{measure: o.Measure, log: o.Logger}, processors: turns.NewProcessors(0)}, nil
}

// Register mounts it at wire.SitesPath, wire.SiteFieldsPath, wire.SiteMapPath,
// wire.SiteDistributionsPath and wire.LinksPath.
func (s *Server) Register(mux obs.Routes) {
	mux.HandleFunc("GET "+wire.SitesPath, s.scoped(s.list))
	mux.HandleFunc("GET "+wire.SiteFieldsPath, s.scoped(s.fields))
	mux.HandleFunc("GET "+wire.SiteMapPath, s.scoped(s.worldMap))
	mux.HandleFunc("GET "+wire.SiteDistributionsPath, s.scoped(s.distributions))
	mux.HandleFunc("GET "+wire.LinksPath, s.scoped(s.links))
}

func (s *Server) scoped(f func(http.ResponseWriter, *http.Request, *table, *wire.Scope) *wire.Problem) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sc, p := wire.ScopeOf(r, r.URL.Query()["tenant"])
		if p == nil {
			if v := s.opts.Source.View(); v != nil {
				p = f(w, r, s.table(v), sc)
			} else {
				p = wire.Failure(http.StatusServiceUnavailable, "the first evaluation is not done yet; try again in a few seconds")
			}
		}
		if p != nil {
			p.Write(w)
		}
	}
}

// table is a view as rows, in the order of View.Sites.
type table struct {
	view *engine.View
	rows []sitequery.Row // without alerts
}

// table makes the rows of a view once, however many ask.
func (s *Server) table(v *engine.View) *table {
	last := s.last.Load()
	if last != nil && last.view == v {
		return last
	}
	t := &table{v, make([]sitequery.Row, len(v.Sites))}
	for i, x := range v.Sites {
		t.rows[i] = rowOf(x)
		if last != nil && i < len(last.rows) && last.view.Sites[i].Site == x.Site {
			t.rows[i].Searched = last.rows[i].Searched
		} else {
			t.rows[i].Searched = sitequery.SearchedText(&t.rows[i])
		}
	}
	s.last.Store(t)
	return t
}

func rowOf(s *engine.Site) sitequery.Row {
	r := sitequery.Row{
		Tenant: s.ID.Tenant, Name: s.ID.Name, Region: s.Region, Regional: s.Home, Policy: s.Policy, Phase: s.Phase, Colour: s.Colour(),
		LastSeen: s.LastSeen, Created: s.CreatedAt, Labels: s.Labels, Versions: s.Versions, VirtualSites: s.VirtualSites,
	}
	if r.Regional == "" {
		r.Regional = s.Regional
	}
	if s.Place != nil {
		r.Address, r.Placed = s.Place.Address, true
	}
	if m := s.Maintenance; m != nil {
		r.Maintenance = &sitequery.Maintenance{Reason: m.Reason, Until: m.Until}
	}
	if st := s.State; st != nil {
		r.Reading = func(signal string) sitequery.Number { return readingOf(st, signal) }
		r.Score, r.Since = sitequery.Number{Value: st.Score, Known: st.Known}, st.Since
		for d := range st.Dimensions {
			r.Dimensions[d] = sitequery.Number{Value: st.Dimensions[d].Score, Known: st.Dimensions[d].Known}
		}
		if len(st.Reasons) > 0 {
			r.Reasons = make([]sitequery.Reason, len(st.Reasons))
			for i := range st.Reasons {
				r.Reasons[i] = sitequery.Reason{Signal: st.Reasons[i].Signal, Text: st.Reasons[i].Text}
			}
		}
	}
	return r
}

// readingOf is what the last tick made of a signal; a value that none can have is none.
func readingOf(st *health.State, signal string) sitequery.Number {
	if st.Model == nil {
		return sitequery.Number{}
	}
	i, ok := st.Model.Index(signal)
	if !ok || i >= len(st.Signals) {
		return sitequery.Number{}
	}
	x := &st.Signals[i]
	return sitequery.Number{Value: x.Value, Known: x.Known && !x.Garbage}
}

// readable calls with the rows of the tenants in scope, until f fails.
func (t *table) readable(sc *wire.Scope, f func(i int) error) error {
	for _, tenant := range t.view.Snapshot.Tenants {
		if !sc.Has(tenant.Name) {
			continue
		}
		from, _ := slices.BinarySearchFunc(t.view.Snapshot.Sites, tenant.Name, func(s *inventory.Site, name string) int { return strings.Compare(s.ID.Tenant, name) })
		for i := from; i < len(t.rows) && t.rows[i].Tenant == tenant.Name; i++ {
			if err := f(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// tenants in scope.
func (t *table) tenants(sc *wire.Scope) []string {
	var out []string
	for _, x := range t.view.Snapshot.Tenants {
		if sc.Has(x.Name) {
			out = append(out, x.Name)
		}
	}
	return out
}

func (s *Server) writeJSON(w http.ResponseWriter, path string, v any) *wire.Problem {
	body, err := json.Marshal(v)
	return s.write(w, path, body, err)
}

// write answers with JSON, or with why there is none.
func (s *Server) write(w http.ResponseWriter, path string, body []byte, err error) *wire.Problem {
	if err != nil {
		s.log.Error("sites: an answer can't be encoded", "path", path, "err", err)
		return wire.Failure(http.StatusInternalServerError, "the answer can't be encoded")
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
	return nil
}
