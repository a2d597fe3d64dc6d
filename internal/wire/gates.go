package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"muster.dev/muster/internal/fleet"
)

// What control asks for the gates of rollouts: all of a tenant's sites in one answer, and
// of each no more than a gate compares.
const (
	// ScoresPath of the health role answers GET ?tenant=NAME with SiteScores.
	ScoresPath = "/api/v1/health/scores"
	// FiringPath of the alerting role answers GET ?tenant=NAME with FiringAlerts.
	FiringPath = "/api/v1/alerts/firing"
)

// SiteScores are the scores of a tenant's sites that are evaluated.
type SiteScores struct {
	AsOf   time.Time            `json:"asOf"`
	Tenant string               `json:"tenant"`
	Sites  map[string]SiteScore `json:"sites"`
}

// SiteScore is one site's.
type SiteScore struct {
	Score      *float64                           `json:"score"` // 0..100, null: unknown
	Colour     fleet.Colour                       `json:"colour"`
	Dimensions map[fleet.Dimension]DimensionScore `json:"dimensions"` // those that are known
}

// DimensionScore is one dimension's. Stale: it rests on values that were true at At.
type DimensionScore struct {
	Score float64 `json:"score"` // 0..100
	At    int64   `json:"at"`    // milliseconds since 1970
	Stale bool    `json:"stale,omitempty"`
}

// DecodeSiteScores reads what health says of a tenant's sites.
func DecodeSiteScores(b []byte, tenant string) (*SiteScores, error) {
	s := &SiteScores{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("not the scores of sites: %w", err)
	}
	if s.Tenant != tenant || s.AsOf.IsZero() {
		return nil, fmt.Errorf("the scores are of tenant %.80q, not %q, as of %s", s.Tenant, tenant, s.AsOf)
	}
	isScore := func(x float64) bool { return x >= 0 && x <= 100 }
	for name, site := range s.Sites {
		if site.Score != nil && !isScore(*site.Score) {
			return nil, fmt.Errorf("site %.80q: a score of %v", name, *site.Score)
		}
		for d, x := range site.Dimensions {
			if !isScore(x.Score) || x.At < 0 || x.At > math.MaxInt64/int64(time.Millisecond) {
				return nil, fmt.Errorf("site %.80q: %.20q: a score of %v at %d", name, d, x.Score, x.At)
			}
		}
	}
	return s, nil
}

// FiringAlerts are the alerts of a tenant's sites that fire and are not suppressed, as
// SEVERITY/NAME, sorted, each once a site. Alerts of no single site are not in it.
type FiringAlerts struct {
	AsOf   time.Time           `json:"asOf"`
	Tenant string              `json:"tenant"`
	Sites  map[string][]string `json:"sites"`
}

// DecodeFiringAlerts reads what alerting says of a tenant's sites.
func DecodeFiringAlerts(b []byte, tenant string) (*FiringAlerts, error) {
	f := &FiringAlerts{}
	if err := json.Unmarshal(b, f); err != nil {
		return nil, fmt.Errorf("not the alerts of sites: %w", err)
	}
	if f.Tenant != tenant || f.AsOf.IsZero() {
		return nil, fmt.Errorf("the alerts are of tenant %.80q, not %q, as of %s", f.Tenant, tenant, f.AsOf)
	}
	if f.Sites == nil {
		return nil, errors.New("not the alerts of sites: there is no list of them")
	}
	return f, nil
}
