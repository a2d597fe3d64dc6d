package api

import (
	"net/http"

	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// scores are those of all sites of one tenant, for the gates of rollouts: asked every few
// seconds, and a tenth of what the list of sites is.
func (s *Server) scores(_ *http.Request, v *engine.View, sc *wire.Scope) (any, *wire.Problem) {
	tenant, ok := sc.One()
	if !ok {
		return nil, wire.Failure(http.StatusBadRequest, "tenant: say which one: scores are those of one tenant's sites")
	}
	out := wire.SiteScores{AsOf: asOf(v), Tenant: tenant, Sites: map[string]wire.SiteScore{}}
	for _, x := range v.Sites {
		if x.ID.Tenant != tenant || x.State == nil {
			continue
		}
		score, known := x.Score()
		site := wire.SiteScore{Score: scoreOf(score, known), Colour: x.Colour(), Dimensions: map[fleet.Dimension]wire.DimensionScore{}}
		for d, name := range fleet.Dimensions {
			st := &x.State.Dimensions[d]
			if !st.Known {
				continue
			}
			at := st.At
			if at == 0 { // of the link alone, which is news
				at = v.AsOf.UnixMilli()
			}
			site.Dimensions[name] = wire.DimensionScore{Score: round(st.Score, 10), At: at, Stale: st.Stale}
		}
		out.Sites[x.ID.Name] = site
	}
	return out, nil
}
