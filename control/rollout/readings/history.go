package readings

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/promexpr"
)

const (
	// maxBefore is the longest time that a mean is taken over.
	maxBefore = 24 * time.Hour
	// namedSites is up to how many sites a query names; of more it asks for all.
	namedSites = 100
)

// Subject is a site whose history is asked. What its name had before Born, when it was
// registered, is that of another site; zero: it had no predecessor.
type Subject struct {
	Name string
	Born time.Time
	// Pace of a site that is scraped once a minute or less often (fleet.Slow).
	Pace time.Duration
}

// Before returns, by site and measure, the mean of each score between two moments (of the
// last day of them at most), from the history of scores; what is not known is missing. Of a
// site that was registered in between, it is the mean of the largest part that is its own
// and that is a minute, or twice, four times, … as long.
func (r *Readings) Before(ctx context.Context, tenant string, sites []Subject, from, to time.Time) map[string]map[string]float64 {
	window := min(to.Sub(from), maxBefore).Truncate(time.Second)
	if window <= 0 || len(sites) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, othersLimit)
	defer cancel()
	groups := map[time.Duration][]string{}
	for _, s := range sites {
		if own := ownPart(window, to.Sub(s.Born)); own > 0 {
			groups[own] = append(groups[own], s.Name)
		}
	}
	out := map[string]map[string]float64{}
	for own, names := range groups {
		if !r.means(ctx, tenant, names, own, to, out) {
			return nil
		}
	}
	return out
}

// ownPart is how much of a window is of a site of this age, so that sites of all ages are
// few questions; 0: nothing to speak of.
func ownPart(window, age time.Duration) time.Duration {
	if age >= window {
		return window
	}
	own := time.Duration(0)
	for d := time.Minute; d <= age; d *= 2 {
		own = d
	}
	return own
}

// means adds the mean scores of sites over a window until to; false: they can't be read.
func (r *Readings) means(ctx context.Context, tenant string, sites []string, window time.Duration, to time.Time, out map[string]map[string]float64) bool {
	matcher := ""
	if len(sites) <= namedSites {
		quoted := make([]string, len(sites))
		for i, s := range sites {
			quoted[i] = regexp.QuoteMeta(s)
		}
		matcher = fmt.Sprintf("{site=~%q}", strings.Join(quoted, "|"))
	}
	seconds := int64(window / time.Second)
	expr := fmt.Sprintf("avg_over_time(%s%s[%ds]) or avg_over_time(%s%s[%ds])", fleet.MetricSiteScore, matcher, seconds, fleet.MetricDimensionScore, matcher, seconds)
	status, body := r.o.Metrics.Value(ctx, tenant, expr, to, lookback)
	found, _, err := decodeSeries(status, body)
	if err != nil {
		r.log.Warn("the history of scores can't be read", "tenant", tenant, "err", err)
		return false
	}
	wanted := map[string]bool{}
	for _, s := range sites {
		wanted[s] = true
	}
	for _, s := range found {
		measure := MeasureSite
		if d, has := s.labels["dimension"]; has {
			measure = string(measures[fleet.Dimension(d)])
		}
		if site := s.labels[fleet.SeriesSite]; wanted[site] && measure != "" && finite(s.value) {
			put(out, site, measure, s.value)
		}
	}
	return true
}

// Reach is how far back what gates' own queries give of quick sites looks, by the gate's name, with the
// time until a sample is collected and read.
func Reach(gates []v1alpha1.RolloutGate) map[string]time.Duration {
	var out map[string]time.Duration
	for i := range gates {
		expr := queryOf(&gates[i])
		if expr == "" {
			continue
		}
		if back := reach(expr, 0); back > 0 {
			if out == nil {
				out = map[string]time.Duration{}
			}
			out[gates[i].Name] = back + fresh
		}
	}
	return out
}

// QueriesAt adds to before what the gates' queries that compare sites gave at a moment, by
// site and gate, as Before returns it. A site that was registered later, or so shortly before
// that the query looks back further, had no such value: what there is was its predecessor's,
// or may be in part.
func (r *Readings) QueriesAt(ctx context.Context, tenant string, gates []v1alpha1.RolloutGate, sites []Subject, at time.Time, before map[string]map[string]float64) {
	of := map[string]Subject{}
	var paces []time.Duration
	for _, s := range sites {
		if of[s.Name] = s; !slices.Contains(paces, s.Pace) {
			paces = append(paces, s.Pace)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, othersLimit)
	defer cancel()
	var wg sync.WaitGroup
	found := make([]byPace, len(gates))
	for i := range gates {
		g := &gates[i]
		if g.Query != nil || queryOf(g) == "" {
			continue
		}
		wg.Go(func() {
			v, _, err := r.atEachPace(paces, func(pace time.Duration) (*vector, error) {
				text, back, err := paced(queryOf(g), pace)
				if err != nil {
					return nil, err
				}
				return r.valueAt(ctx, tenant, text, back, at)
			})
			if err != nil {
				r.log.Warn("what a gate's query was can't be read", "tenant", tenant, "gate", g.Name, "err", err)
			}
			found[i] = v
		})
	}
	wg.Wait()
	for i := range found {
		for pace, v := range found[i] {
			from := at.Add(-reach(queryOf(&gates[i]), pace))
			for site, x := range v.sites {
				if s, asked := of[site]; asked && s.Pace == pace && !s.Born.After(from) {
					put(before, site, gates[i].Name, x)
				}
			}
		}
	}
}

// reach is how far back an expression looks at sites of a pace; 0: it is none.
func reach(expr string, pace time.Duration) time.Duration {
	text, back, err := paced(expr, pace)
	if err != nil {
		return 0
	}
	parsed, err := parser.ParseExpr(text)
	if err != nil {
		return 0 // it came out of the parser
	}
	return promexpr.Reach(parsed, back)
}

func put(m map[string]map[string]float64, site, measure string, x float64) {
	if m[site] == nil {
		m[site] = map[string]float64{}
	}
	m[site][measure] = x
}
