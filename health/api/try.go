package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"muster.dev/muster/control/api/schema"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/api/validation"
	"muster.dev/muster/health"
	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

const (
	// MaxPolicyBytes bounds a policy to try.
	MaxPolicyBytes = 1 << 20
	// maxTried bounds the sites that an answer lists.
	maxTried = 1000
	// maxParsing policies are read at once, of which one tenant may have half.
	maxParsing = 4
)

// Trial is the answer of POST /api/v1/health/try: what a HealthPolicy would make of the
// sites of its tenant, beside what the policies in force make of the same readings.
type Trial struct {
	AsOf   time.Time `json:"asOf"`
	Tenant string    `json:"tenant"`
	Policy string    `json:"policy"`
	// Sites that the policy would be in force for, or no longer would be; Changed is how
	// many of them would have another colour.
	Sites   int `json:"sites"`
	Changed int `json:"changed"`
	// Results are the sites of which colour or score would change: changes of colour
	// first, then who loses most. Omitted are those beyond the first 1000.
	Results []TriedSite   `json:"results"`
	Omitted int           `json:"omitted"`
	Signals []TriedSignal `json:"signals"`
	// MissingRegions are the regionals that were not waited for any longer, with Waiting sites,
	// which are counted in no other figure.
	MissingRegions []wire.MissingRegion `json:"missingRegions"`
	Waiting        int                  `json:"waiting"`
}

// TriedSite is one site of a Trial.
type TriedSite struct {
	Site   string  `json:"site"`
	Before Outcome `json:"before"`
	After  Outcome `json:"after"`
}

// Outcome is what a policy makes of a site in the long run.
type Outcome struct {
	Score  *float64     `json:"score"`
	Colour fleet.Colour `json:"colour"`
	Reason string       `json:"reason"` // the first; "": none
}

// TriedSignal is a signal of a tried policy.
type TriedSignal struct {
	Name       string          `json:"name"`
	Dimension  fleet.Dimension `json:"dimension"`
	Error      string          `json:"error"`
	SitesKnown int             `json:"sitesKnown"`
}

// OutcomeOf is a state's outcome.
func OutcomeOf(st *health.State) Outcome {
	out := Outcome{Score: scoreOf(st.Score, st.Known), Colour: st.Colour}
	if len(st.Reasons) > 0 {
		out.Reason = st.Reasons[0].Text
	}
	return out
}

// delta is by how much the score changes; what is not known counts as a half.
func (t *TriedSite) delta() float64 {
	of := func(o Outcome) float64 {
		if o.Score == nil {
			return 50
		}
		return *o.Score
	}
	return of(t.After) - of(t.Before)
}

func (t *TriedSite) recolours() bool { return t.Before.Colour != t.After.Colour }

// TrialOf makes the JSON of a trial.
func TrialOf(tenant, policy string, x *engine.Trial) Trial {
	out := Trial{AsOf: x.AsOf.UTC().Truncate(time.Millisecond), Tenant: tenant, Policy: policy, Sites: len(x.Sites), Results: []TriedSite{}}
	for i := range x.Sites {
		s := &x.Sites[i]
		r := TriedSite{Site: s.Site.ID.Name, Before: OutcomeOf(&s.Before), After: OutcomeOf(&s.After)}
		if r.recolours() {
			out.Changed++
		} else if math.Abs(r.delta()) < 0.05 {
			continue
		}
		out.Results = append(out.Results, r)
	}
	slices.SortStableFunc(out.Results, func(a, b TriedSite) int {
		if a.recolours() != b.recolours() {
			if a.recolours() {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.delta(), b.delta()), strings.Compare(a.Site, b.Site))
	})
	if n := len(out.Results); n > maxTried {
		out.Results, out.Omitted = out.Results[:maxTried], n-maxTried
	}
	out.Signals = triedSignals(x.Signals)
	out.MissingRegions, out.Waiting = append([]wire.MissingRegion{}, x.Late...), x.Waiting
	return out
}

func triedSignals(in []engine.SignalStat) []TriedSignal {
	out := make([]TriedSignal, len(in))
	for i, s := range in {
		out[i] = TriedSignal{s.Name, s.Dimension, s.Err, s.SitesKnown}
	}
	return out
}

// writeFailing names the signals whose queries fail.
func writeFailing(b *bytes.Buffer, signals []TriedSignal) {
	for _, s := range signals {
		if s.Error != "" {
			fmt.Fprintf(b, "signal %s fails: %s\n", s.Name, s.Error)
		}
	}
}

// moversShown of the sites whose score would change, and no more, WriteText writes a line for.
const moversShown = 10

// WriteText writes the trial for people: the sites that would change colour, of those that
// would not the ones that lose most, and in what numbers. all writes a line for each.
func (t *Trial) WriteText(w io.Writer, all bool) error {
	score := func(o Outcome) string {
		if o.Score == nil {
			return "–"
		}
		return fmt.Sprintf("%.4g", *o.Score)
	}
	var b bytes.Buffer
	writeFailing(&b, t.Signals)
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if len(t.Results) > 0 {
		fmt.Fprintln(tw, "SITE\tCOLOUR\tSCORE\tWHY")
	}
	recoloured := map[string]int{}
	movers, least, most := 0, math.Inf(1), math.Inf(-1)
	for i := range t.Results {
		r := &t.Results[i]
		colour := string(r.After.Colour)
		if r.recolours() {
			colour = string(r.Before.Colour) + " → " + colour
			recoloured[colour]++
		} else if movers++; movers > moversShown && !all {
			least, most = min(least, r.delta()), max(most, r.delta())
			continue
		}
		why := r.After.Reason
		if r.delta() > 0 || why == "" {
			why = "no longer counts as much: " + r.Before.Reason
		}
		fmt.Fprintf(tw, "%s\t%s\t%s → %s\t%s\n", r.Site, colour, score(r.Before), score(r.After), why)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if more := movers - moversShown; more > 0 && !all {
		fmt.Fprintf(&b, "and %d more, whose score alone would move, by %+.3g to %+.3g points (-o wide lists them)\n", more, least, most)
	}
	if t.Omitted > 0 {
		fmt.Fprintf(&b, "and %d more sites whose score would change\n", t.Omitted)
	}
	fmt.Fprintf(&b, "%d of %d sites would change colour with policy %s", t.Changed, t.Sites, t.Policy)
	for i, colours := range slices.SortedFunc(maps.Keys(recoloured), func(a, b string) int {
		return cmp.Or(cmp.Compare(recoloured[b], recoloured[a]), strings.Compare(a, b))
	}) {
		fmt.Fprintf(&b, "%s%d %s", []string{": ", ", "}[min(i, 1)], recoloured[colours], colours)
	}
	fmt.Fprintln(&b)
	_, err := w.Write(b.Bytes())
	return err
}

func (s *Server) try(w http.ResponseWriter, r *http.Request) {
	patience, p := wire.PatienceOf(r)
	if p != nil {
		p.Write(w)
		return
	}
	s.tried(w, r, func(tenant string, policy *v1alpha1.HealthPolicy) (any, error) {
		x, err := s.opts.Source.Try(r.Context(), tenant, policy, patience)
		if err != nil {
			return nil, err
		}
		return TrialOf(tenant, policy.Name, x), nil
	})
}

// tried answers a request with a policy about one tenant.
func (s *Server) tried(w http.ResponseWriter, r *http.Request, do func(tenant string, policy *v1alpha1.HealthPolicy) (any, error)) {
	sc, p := wire.ScopeOf(r, r.URL.Query()["tenant"])
	if p != nil {
		p.Write(w)
		return
	}
	tenant, ok := sc.One()
	if !ok {
		wire.Failure(http.StatusBadRequest, "tenant: a policy belongs to one tenant; say which with tenant=").Write(w)
		return
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxPolicyBytes))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		wire.Failure(http.StatusRequestEntityTooLarge, "the policy is larger than %d bytes", large.Limit).Write(w)
		return
	case err != nil:
		wire.Failure(http.StatusBadRequest, "the policy can't be read: %s", err).Write(w)
		return
	}
	// To read one is work too, up to half a second, before it is known to be good.
	if !s.parsing.Take(tenant) {
		wire.Failure(http.StatusServiceUnavailable, "%s", engine.ErrTrying.Error()).Write(w)
		return
	}
	policy, p := policyOf(data)
	s.parsing.Give(tenant)
	if p != nil {
		p.Write(w)
		return
	}
	out, err := do(tenant, policy)
	switch {
	case errors.Is(err, engine.ErrTrying), errors.Is(err, engine.ErrNotEvaluated), errors.Is(err, engine.ErrStore):
		wire.Failure(http.StatusServiceUnavailable, "%s", err.Error()).Write(w)
		return
	case err != nil:
		wire.Failure(http.StatusBadRequest, "%s", err.Error()).Write(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if err := json.NewEncoder(w).Encode(out); err != nil {
		s.log.Debug("health api: the answer to a trial was not taken", "err", err)
	}
}

// policyOf reads a HealthPolicy and checks it as the API server does when one is written.
func policyOf(data []byte) (*v1alpha1.HealthPolicy, *wire.Problem) {
	out := &v1alpha1.HealthPolicy{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(out); err != nil {
		return nil, wire.Failure(http.StatusBadRequest, "the body is no HealthPolicy: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, wire.Failure(http.StatusBadRequest, "want one HealthPolicy and nothing after it")
	}
	switch spec := &out.Spec; {
	case dec.More():
		return nil, wire.Failure(http.StatusBadRequest, "want one HealthPolicy and nothing after it")
	case out.Kind != "HealthPolicy":
		return nil, wire.Failure(http.StatusBadRequest, "kind: %.40q: want HealthPolicy", out.Kind)
	case out.Name == "":
		return nil, wire.Failure(http.StatusBadRequest, "metadata.name: must not be empty: a policy in force of that name is what it replaces")
	case len(spec.Signals) == 0:
		return nil, wire.Failure(http.StatusBadRequest, "spec.signals: want 1 to 100")
	}
	// The schema bounds what trying it costs: how many evaluations it waits for, and lists.
	if errs, err := schema.HealthPolicy(object); err != nil {
		return nil, wire.Failure(http.StatusInternalServerError, "the policy can't be checked")
	} else if len(errs) > 0 {
		return nil, wire.Failure(http.StatusBadRequest, "%s", errs.ToAggregate().Error())
	}
	if errs := validation.HealthPolicy(out); len(errs) > 0 {
		return nil, wire.Failure(http.StatusBadRequest, "%s", errs.ToAggregate().Error())
	}
	return out, nil
}
