// Package api serves what the health engine found out as JSON, below
// /api/v1/health/: sites, virtual sites and policies with filters and paging, and a
// stream of changes.
//
// It computes nothing and keeps nothing. It authenticates nobody: the header
// X-Muster-Tenants says what a request may read, so it must be mounted on a
// listener that only the console reaches. cmd/internal/health mounts it; the
// console proxies it and uses its types.
package api

import (
	"math"
	"strconv"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health"
	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/fleet"
)

// SiteList is the answer of GET /api/v1/health/sites.
type SiteList struct {
	AsOf       time.Time `json:"asOf"`
	Total      int       `json:"total"` // of all pages
	Sites      []Site    `json:"sites"`
	NextCursor string    `json:"nextCursor,omitempty"`
}

// Site is one site's health.
type Site struct {
	Name         string       `json:"name"`
	Tenant       string       `json:"tenant"`
	Region       string       `json:"region"`
	VirtualSites []string     `json:"virtualSites"` // "namespace/name", as users type it
	Phase        fleet.Phase  `json:"phase"`
	LastSeen     *time.Time   `json:"lastSeen"`
	Score        *float64     `json:"score"` // 0..100, null: unknown
	Colour       fleet.Colour `json:"colour"`
	Since        *time.Time   `json:"since"` // of the colour; null: never evaluated
	Dimensions   Dimensions   `json:"dimensions"`
	Reasons      []Reason     `json:"reasons"` // ranked
	Place        *Place       `json:"place"`
	Maintenance  *Maintenance `json:"maintenance"`
}

// Dimensions of a site.
type Dimensions struct {
	Connectivity Dimension `json:"connectivity"`
	Reliability  Dimension `json:"reliability"`
	Security     Dimension `json:"security"`
	Performance  Dimension `json:"performance"`
}

// Dimension of a site. StaleSeconds is the age of a score that rests on old
// values, 0 for a fresh one.
type Dimension struct {
	Score        *float64     `json:"score"`
	Colour       fleet.Colour `json:"colour"`
	Known        bool         `json:"known"`
	StaleSeconds int64        `json:"staleSeconds"`
}

// Reason for lost points, or for not knowing: then it has no value.
type Reason struct {
	Dimension  fleet.Dimension `json:"dimension"`
	Signal     string          `json:"signal"` // "" when a whole dimension is unknown
	Value      *float64        `json:"value"`
	Threshold  *float64        `json:"threshold"`
	PointsLost float64         `json:"pointsLost"`
	Since      time.Time       `json:"since"`
	Text       string          `json:"text"`
}

// Place of a site, in degrees.
type Place struct {
	Latitude  float64 `json:"latitude"`
	Longitude float64 `json:"longitude"`
	Address   string  `json:"address"`
}

// Maintenance that is going on.
type Maintenance struct {
	Reason string     `json:"reason"`
	Until  *time.Time `json:"until"`
}

// SiteDetail is the answer of GET /api/v1/health/sites/{name}.
type SiteDetail struct {
	Site
	AsOf     time.Time         `json:"asOf"`
	Labels   map[string]string `json:"labels"`
	Policy   string            `json:"policy"` // name of the HealthPolicy; "" for the shipped one
	Regional string            `json:"regional"`
	// FromStore: the regional can't be asked, so the values come from Cortex.
	FromStore bool     `json:"fromStore"`
	Signals   []Signal `json:"signals"`
	// Shadow is what the policy in shadow makes of the site; null: there is none.
	Shadow *Shadow `json:"shadow"`
}

// Shadow is a score that counts for nothing.
type Shadow struct {
	Policy string `json:"policy"`
	Outcome
}

// Signal of a site.
type Signal struct {
	Name      string          `json:"name"`
	Dimension fleet.Dimension `json:"dimension"`
	Value     *float64        `json:"value"`
	Score     *float64        `json:"score"` // 0..1
	Known     bool            `json:"known"`
	Applies   bool            `json:"applies"` // false: its pack is not at the site
	Pack      string          `json:"pack"`
	Error     string          `json:"error"` // why it is unknown, when its query failed
	Good      float64         `json:"good"`
	Bad       float64         `json:"bad"`
	Weight    float64         `json:"weight"`
	Critical  bool            `json:"critical"`
	Unit      string          `json:"unit"`
	Source    string          `json:"source"`
	AsOf      *time.Time      `json:"asOf"`
	// Query is the signal's PromQL as its policy has it; at a site that is scraped seldom, with wider windows.
	Query string `json:"query"`
	// Sparse: no series means that nothing is wrong.
	Sparse bool `json:"sparse"`
}

// Explanation is the answer of GET /api/v1/health/sites/{name}/explain.
type Explanation struct {
	Site      string     `json:"site"`
	Tenant    string     `json:"tenant"`
	Policy    string     `json:"policy"` // name of the HealthPolicy; "" for the shipped one
	Shadow    bool       `json:"shadow"` // it is of the policy in shadow
	Overrides []Override `json:"overrides"`
	health.Explanation
}

// Override of a policy that is in force for a site.
type Override struct {
	Signals []string  `json:"signals"`
	Reason  string    `json:"reason"`
	Until   time.Time `json:"until"`
}

// ExplanationOf takes a site's score apart; ok is false for a site that is not evaluated.
func ExplanationOf(s *engine.Site) (out Explanation, ok bool) {
	if s.State == nil {
		return out, false
	}
	out = Explanation{Site: s.ID.Name, Tenant: s.ID.Tenant, Policy: s.Policy, Overrides: []Override{}}
	for _, o := range s.Overrides {
		x := Override{Reason: o.Reason, Until: o.Until.UTC(), Signals: []string{}}
		for _, c := range o.Signals {
			x.Signals = append(x.Signals, c.Name)
		}
		out.Overrides = append(out.Overrides, x)
	}
	out.Explanation, ok = health.Explain(s.State)
	return out, ok
}

// ShadowExplanationOf takes the score apart that the policy in shadow gives a site; ok is
// false if there is none.
func ShadowExplanationOf(s *engine.Site) (out Explanation, ok bool) {
	if s.Shadow == nil {
		return out, false
	}
	out = Explanation{Site: s.ID.Name, Tenant: s.ID.Tenant, Policy: s.ShadowPolicy, Shadow: true, Overrides: []Override{}}
	out.Explanation, ok = health.Explain(s.Shadow)
	return out, ok
}

// VirtualSiteList is the answer of GET /api/v1/health/virtualsites.
type VirtualSiteList struct {
	AsOf         time.Time     `json:"asOf"`
	Total        int           `json:"total"`
	VirtualSites []VirtualSite `json:"virtualSites"`
	NextCursor   string        `json:"nextCursor,omitempty"`
}

// VirtualSite is the health of a set of sites. Mean, P10 and Worst are null while
// no member outside maintenance has a score.
type VirtualSite struct {
	Name             string      `json:"name"`
	Namespace        string      `json:"namespace"` // as users type it, e.g. "shared"
	Tenant           string      `json:"tenant"`
	Description      string      `json:"description"`
	Sites            int         `json:"sites"`
	Mean             *float64    `json:"mean"`
	P10              *float64    `json:"p10"`
	Worst            *Worst      `json:"worst"`
	Counts           ColourCount `json:"counts"`
	Maintenance      int         `json:"maintenance"`
	PercentUnhealthy float64     `json:"percentUnhealthy"`
}

// Worst is the member with the lowest score.
type Worst struct {
	Site  string  `json:"site"`
	Score float64 `json:"score"`
}

// ColourCount counts the members outside maintenance.
type ColourCount struct {
	Green  int `json:"green"`
	Orange int `json:"orange"`
	Red    int `json:"red"`
	Grey   int `json:"grey"`
}

// PolicyList is the answer of GET /api/v1/health/policies.
type PolicyList struct {
	AsOf     time.Time `json:"asOf"`
	Policies []Policy  `json:"policies"`
}

// Policy and how its signals fare. The shipped policy, for sites that no other
// selects, has no tenant and the name "(shipped)".
type Policy struct {
	Tenant  string         `json:"tenant"`
	Name    string         `json:"name"`
	Sites   int            `json:"sites"`
	Error   string         `json:"error"`
	Signals []PolicySignal `json:"signals"`
	// Shadow: it counts for nothing. WouldChange of its sites would have another colour;
	// Examples are some of them.
	Shadow      bool     `json:"shadow"`
	WouldChange int      `json:"wouldChange"`
	Examples    []string `json:"examples"`
}

// PolicyDetail is the answer of GET /api/v1/health/policies/{name}: a policy as it was
// written, beside how it fares. The shipped one is found by the name "shipped".
type PolicyDetail struct {
	AsOf   time.Time                  `json:"asOf"`
	Policy Policy                     `json:"policy"`
	Spec   *v1alpha1.HealthPolicySpec `json:"spec"`
}

// PolicySignal is one signal of a policy.
type PolicySignal struct {
	Name        string          `json:"name"`
	Dimension   fleet.Dimension `json:"dimension"`
	Error       string          `json:"error"`
	SitesKnown  int             `json:"sitesKnown"`
	QueryMillis int64           `json:"queryMillis"`
}

// Events of the stream.
type (
	// SitesEvent holds sites that changed.
	SitesEvent struct {
		AsOf  time.Time `json:"asOf"`
		Sites []Site    `json:"sites"`
	}
	// SiteChangesEvent is what a brief stream has in place of a SitesEvent.
	SiteChangesEvent struct {
		AsOf  time.Time    `json:"asOf"`
		Sites []SiteChange `json:"sites"`
	}
	// VirtualSitesEvent holds virtual sites that changed.
	VirtualSitesEvent struct {
		AsOf         time.Time     `json:"asOf"`
		VirtualSites []VirtualSite `json:"virtualSites"`
	}
	// RemovedEvent names sites that are no longer listed.
	RemovedEvent struct {
		AsOf  time.Time `json:"asOf"`
		Sites []SiteRef `json:"sites"`
	}
	// TickEvent says that the engine is alive.
	TickEvent struct {
		AsOf time.Time `json:"asOf"`
	}
	// SiteRef names a site.
	SiteRef struct {
		Tenant string `json:"tenant"`
		Name   string `json:"name"`
	}
)

// SiteChange names a site that changed; who shows it asks for it. What is left out is as it
// was.
type SiteChange struct {
	Tenant string       `json:"tenant"`
	Name   string       `json:"name"`
	Colour fleet.Colour `json:"colour,omitempty"` // with Phase, when one of them is another
	Phase  fleet.Phase  `json:"phase,omitempty"`
	Text   string       `json:"text,omitempty"` // the first reason's, beside Colour; left out: there is none
}

func siteChangeOf(s *engine.Site, turned bool) SiteChange {
	out := SiteChange{Tenant: s.ID.Tenant, Name: s.ID.Name}
	if turned {
		out.Colour, out.Phase = s.Colour(), s.Phase
		if s.State != nil && len(s.State.Reasons) > 0 {
			out.Text = s.State.Reasons[0].Text
		}
	}
	return out
}

// round keeps n decimals.
func round(x float64, n float64) float64 { return math.Round(x*n) / n }

func scoreOf(x float64, known bool) *float64 {
	if !known {
		return nil
	}
	x = round(x, 10)
	return &x
}

// figure keeps six significant digits: more is noise on a page.
func figure(x float64) *float64 {
	v, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		return nil
	}
	return &v
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Millisecond)
	return &t
}

func timeOfMillis(ms int64) *time.Time {
	if ms == 0 {
		return nil
	}
	return timeOf(time.UnixMilli(ms))
}

// SiteOf makes the JSON of a site; asOf is the time of its view.
func SiteOf(s *engine.Site, asOf time.Time) Site {
	score, known := s.Score()
	out := Site{
		Name: s.ID.Name, Tenant: s.ID.Tenant, Region: s.Region, VirtualSites: s.VirtualSites, Phase: s.Phase, LastSeen: timeOf(s.LastSeen),
		Score: scoreOf(score, known), Colour: s.Colour(), Reasons: []Reason{},
	}
	if out.VirtualSites == nil {
		out.VirtualSites = []string{}
	}
	dims := [4]*Dimension{&out.Dimensions.Connectivity, &out.Dimensions.Reliability, &out.Dimensions.Security, &out.Dimensions.Performance}
	for d, to := range dims {
		to.Colour = fleet.Grey
		if s.State != nil {
			x := &s.State.Dimensions[d]
			*to = Dimension{Score: scoreOf(x.Score, x.Known), Colour: x.Colour, Known: x.Known, StaleSeconds: x.StaleSeconds(asOf)}
		}
	}
	if s.State != nil {
		out.Since = timeOf(s.State.Since)
		out.Reasons = make([]Reason, len(s.State.Reasons))
		for i := range s.State.Reasons {
			r := &s.State.Reasons[i]
			out.Reasons[i] = Reason{Dimension: r.Dimension, Signal: r.Signal, PointsLost: round(r.PointsLost, 10), Since: r.Since.UTC().Truncate(time.Millisecond), Text: r.Text}
			if r.HasValue {
				out.Reasons[i].Value, out.Reasons[i].Threshold = figure(r.Value), figure(r.Threshold)
			}
		}
	}
	if p := s.Place; p != nil {
		out.Place = &Place{p.Latitude, p.Longitude, p.Address}
	}
	if m := s.Maintenance; m != nil {
		out.Maintenance = &Maintenance{m.Reason, timeOf(m.Until)}
	}
	return out
}

// DetailOf makes the JSON of a site with its labels and signals.
func DetailOf(s *engine.Site, asOf time.Time) SiteDetail {
	out := SiteDetail{Site: SiteOf(s, asOf), AsOf: asOf.UTC().Truncate(time.Millisecond), Labels: s.Labels, Policy: s.Policy, Regional: s.Home, FromStore: s.FromStore, Signals: []Signal{}}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	if s.Shadow != nil {
		out.Shadow = &Shadow{s.ShadowPolicy, OutcomeOf(s.Shadow)}
	}
	if s.State == nil || len(s.State.Model.Signals) != len(s.State.Signals) {
		return out
	}
	out.Signals = make([]Signal, len(s.State.Signals))
	for i := range s.State.Signals {
		out.Signals[i] = signalOf(&s.State.Model.Signals[i], &s.State.Signals[i], s.State.NoteOf(i).Err)
		out.Signals[i].Query = s.Query(&s.State.Model.Signals[i])
	}
	return out
}

func signalOf(m *health.Signal, st *health.SignalState, why string) Signal {
	x := Signal{Name: m.Name, Dimension: m.Dimension, Known: st.Known, Applies: st.Applies, Pack: m.Pack, Error: why, Good: m.Good, Bad: m.Bad, Weight: m.Weight, Critical: m.Critical(), Unit: m.Unit, Source: m.Source, Query: m.Query, Sparse: m.Sparse}
	if st.Known {
		score := round(st.Score, 1000)
		x.Value, x.Score, x.AsOf = figure(st.Value), &score, timeOfMillis(st.At)
	}
	return x
}

// VirtualSiteOf makes the JSON of a virtual site.
func VirtualSiteOf(v *engine.VirtualSite) VirtualSite {
	out := VirtualSite{
		Name: v.Name, Namespace: v.Namespace, Tenant: v.Tenant, Description: v.Description, Sites: v.Sites, Mean: scoreOf(v.Mean, v.Known), P10: scoreOf(v.P10, v.Known),
		Counts: ColourCount(v.Counts), Maintenance: v.Aggregate.Maintenance, PercentUnhealthy: round(v.PercentUnhealthy, 10),
	}
	if v.Known {
		out.Worst = &Worst{Site: v.WorstSite, Score: round(v.Worst, 10)}
	}
	return out
}
