package readings

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/peers"
	"muster.dev/muster/internal/wire"
)

// maxRoleAnswer bounds what is read of a role's answer: ten thousand sites take 3 MB.
const maxRoleAnswer = 64 << 20

// measures names the dimensions as gates do.
var measures = map[fleet.Dimension]v1alpha1.HealthDimension{
	fleet.Connectivity: "Connectivity", fleet.Reliability: "Reliability", fleet.Security: "Security", fleet.Performance: "Performance",
}

// MeasureSite is the measure that is a site's score as a whole.
const MeasureSite = "Site"

// siteScores are those of a tenant, or why they are not known.
func (r *Readings) siteScores(ctx context.Context, tenant string) (*wire.SiteScores, error) {
	s, _, err := r.scores.get(ctx, tenant, func(ctx context.Context) (*wire.SiteScores, error) {
		b, err := r.fetch(ctx, r.o.Health, wire.ScoresPath, tenant)
		if err != nil {
			return nil, err
		}
		return wire.DecodeSiteScores(b, tenant)
	})
	if err == nil {
		err = current(s.AsOf, "scores")
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// firing are the alerts of a tenant's sites, or why they are not known.
func (r *Readings) firing(ctx context.Context, tenant string) (*wire.FiringAlerts, error) {
	f, _, err := r.alerts.get(ctx, tenant, func(ctx context.Context) (*wire.FiringAlerts, error) {
		b, err := r.fetch(ctx, r.o.Alerting, wire.FiringPath, tenant)
		if err != nil {
			return nil, err
		}
		return wire.DecodeFiringAlerts(b, tenant)
	})
	if err == nil {
		err = current(f.AsOf, "alerts")
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// current is an error if what was true at t is too old. A clock that is ahead by more
// than that is no better: nobody can say how old its values are.
func current(t time.Time, what string) error {
	switch age := time.Since(t); {
	case age > fresh:
		return fmt.Errorf("the %s are %s old", what, age.Round(time.Second))
	case age < -fresh:
		return fmt.Errorf("the %s are of %s from now: set the clocks of both machines", what, (-age).Round(time.Second))
	}
	return nil
}

// fetch asks a role for one tenant.
func (r *Readings) fetch(ctx context.Context, base *url.URL, path, tenant string) ([]byte, error) {
	b, err := peers.Question{URL: base.JoinPath(path).String(), Query: url.Values{"tenant": {tenant}}, Tenants: tenant, Max: maxRoleAnswer}.Get(ctx, r.o.Client)
	if err != nil {
		return nil, plain(err)
	}
	return b, nil
}

// plain is an error of a call in the words that a status has for it.
func plain(err error) error {
	var u *url.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("does not answer in time")
	case errors.As(err, &u):
		return u.Err // without the URL, which says nothing to a tenant
	}
	return err
}

// addScores takes in what of a site's scores is true now.
func (s *Site) addScores(all *wire.SiteScores, name string, now time.Time) {
	site, has := all.Sites[name]
	if !has {
		return
	}
	s.Red = site.Colour == fleet.Red
	s.asOf(all.AsOf)
	old := false
	for d, x := range site.Dimensions {
		at := time.UnixMilli(x.At)
		if x.Stale || now.Sub(at) > fresh {
			old = true
			continue
		}
		if name, ok := measures[d]; ok {
			s.Measures[string(name)] = x.Score
			s.asOf(at)
		}
	}
	if site.Score != nil && !old { // else it rests on what may not be true any more
		s.Measures[MeasureSite] = *site.Score
	}
}
