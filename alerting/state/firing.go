package state

import (
	"net/http"
	"net/url"
	"slices"

	"muster.dev/muster/internal/wire"
)

// firingBySite is what fires at all sites of one tenant, for the gates of rollouts.
func (s *State) firingBySite(_ *http.Request, _ url.Values, sc *wire.Scope) (int, any, *wire.Problem) {
	v, p := s.current()
	if p != nil {
		return 0, nil, p
	}
	tenant, ok := sc.One()
	if !ok {
		return 0, nil, wire.Failure(http.StatusBadRequest, "tenant: say which one: these are the alerts of one tenant's sites")
	}
	out := wire.FiringAlerts{AsOf: v.at.UTC(), Tenant: tenant, Sites: map[string][]string{}}
	for _, a := range v.byTenant[tenant] {
		if a.Site != "" && a.State == wire.AlertActive {
			out.Sites[a.Site] = append(out.Sites[a.Site], a.Severity+"/"+a.Name)
		}
	}
	for site, names := range out.Sites {
		slices.Sort(names)
		out.Sites[site] = slices.Compact(names)
	}
	return http.StatusOK, out, nil
}
