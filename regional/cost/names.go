package cost

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

const (
	// topNames are told of each regional: more than anybody is shown, so that those that are
	// heavy over all regionals are among them.
	topNames = 50
	// lookedAt is about how many series are looked at for that; of more, a part.
	lookedAt = 20_000
)

// Names returns the metrics with the most series of a tenant, or of one of its sites. One
// look at a time is had; others wait.
func (m *Meter) Names(ctx context.Context, tenant, site string) (*wire.RegionalNames, error) {
	out := &wire.RegionalNames{Regional: m.opts.Regional, Tenant: tenant, Site: site, Names: []wire.NameSeries{}}
	if m.opts.Names == nil {
		return out, nil
	}
	select {
	case m.naming <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-m.naming }()
	have := m.opts.Series.Tenant(tenant)
	matchers := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, fleet.SeriesTenant, tenant)}
	if site != "" {
		have = m.opts.Series.Site(fleet.SiteID{Tenant: tenant, Name: site})
		matchers = append(matchers, labels.MustNewMatcher(labels.MatchEqual, fleet.SeriesSite, site))
	}
	every := 1 + have/lookedAt
	var err error
	if out.Names, out.Series, err = m.opts.Names(ctx, topNames, every, matchers...); err != nil {
		return nil, err
	}
	out.Sampled = every > 1
	return out, nil
}

// NamesHandler serves Names, for GET wire.CostNamesPath; mount it where Handler is.
func (m *Meter) NamesHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		tenant, site := q.Get("tenant"), q.Get("site")
		if fleet.ValidateTenant(tenant) != nil {
			wire.Invalid(wire.FieldError{Field: "tenant", Detail: "want the name of one"}).Write(w)
			return
		}
		names, err := m.Names(r.Context(), tenant, site)
		if err != nil {
			wire.Failure(http.StatusServiceUnavailable, "the head of the edge engine can't be read: %s", err).Write(w)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(names)
	})
}
