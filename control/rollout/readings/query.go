package readings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/api/resource"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/promcost"
	"muster.dev/muster/internal/promexpr"
)

// vector is the value of an expression: one a site, or one in all.
type vector struct {
	at    time.Time
	sites map[string]float64 // by site
	one   *float64           // without a site; then there is no other
}

func (v *vector) of(site string) (float64, bool) {
	if v == nil {
		return 0, false
	}
	x, known := v.sites[site]
	return x, known
}

// byPace are the values of an expression as it is asked of sites of each pace; 0: of quick ones.
type byPace map[time.Duration]*vector

// query evaluates a gate's expression: once for all sites of a pace of the tenant and all
// rollouts that have the same. What it returns is one of both, or none when it has no value.
func (r *Readings) query(ctx context.Context, q *Question, g *v1alpha1.RolloutGate) (byPace, *decide.Outside) {
	found, slowest, err := r.atEachPace(q.paces(g), func(pace time.Duration) (*vector, error) { return r.value(ctx, q.Tenant, queryOf(g), pace) })
	if err != nil {
		out := unknown("the query: %v", err)
		return nil, &out
	}
	var out decide.Outside
	switch one := found[slowest].one; {
	case found.ofSites():
		return found, nil
	case one == nil:
		out = unknown("the query has no value")
	case g.Query == nil:
		out = unknown("the query has one value without a site: compare sites with one each, such as by sum by (site) (…)")
	default:
		out = inBounds(*one, g.Query)
	}
	return nil, &out
}

// paces are those at which a gate's expression has to be asked. One value in all is that of the slowest:
// with windows in which the others have more than they need.
func (q *Question) paces(g *v1alpha1.RolloutGate) []time.Duration {
	of := q.Changed
	if g.Query == nil {
		of = slices.Concat(q.Changed, q.Peers)
	}
	var out []time.Duration
	for _, name := range of {
		if p := q.Paces[name]; !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		out = []time.Duration{0}
	}
	return out
}

// atEachPace asks at the same time, and fails as one.
func (r *Readings) atEachPace(paces []time.Duration, ask func(pace time.Duration) (*vector, error)) (found byPace, slowest time.Duration, err error) {
	values, errs := make([]*vector, len(paces)), make([]error, len(paces))
	var wg sync.WaitGroup
	for i, pace := range paces {
		wg.Go(func() { values[i], errs[i] = ask(pace) })
	}
	wg.Wait()
	found = byPace{}
	for i, pace := range paces {
		if errs[i] != nil && pace > 0 {
			return nil, 0, fmt.Errorf("at sites that are scraped every %s: %w", model.Duration(pace), errs[i])
		} else if errs[i] != nil {
			return nil, 0, errs[i]
		}
		found[pace], slowest = values[i], max(slowest, pace)
	}
	return found, slowest, nil
}

// ofSites tells whether there is a value of a site.
func (b byPace) ofSites() bool {
	for _, v := range b {
		if v.one == nil && len(v.sites) > 0 {
			return true
		}
	}
	return false
}

// value is an expression's now, as it is asked of sites of a pace.
func (r *Readings) value(ctx context.Context, tenant, expr string, pace time.Duration) (*vector, error) {
	text, back, err := paced(expr, pace)
	if err != nil {
		return nil, err
	}
	v, _, err := r.values.get(ctx, tenant+"\x00"+back.String()+"\x00"+text, func(ctx context.Context) (*vector, error) {
		return r.valueAt(ctx, tenant, text, back, time.Time{})
	})
	return v, err
}

// paced is an expression as it is asked of sites of a pace, and how far back it looks for the sample of an
// instant: as health asks about them, but that what quick ones say is fresh. An error says that it may not be
// evaluated again and again.
func paced(expr string, pace time.Duration) (text string, back time.Duration, err error) {
	parsed, err := promcost.Rule.Parse(expr, promcost.Window{})
	if err != nil || pace < fleet.Quick {
		return expr, lookback, err
	}
	parsed = promexpr.Paced(parsed, pace)
	return parsed.String(), fleet.TwoScrapes(pace), promcost.Rule.Check(parsed, promcost.Window{}) // wider windows cost more
}

// valueAt asks the store; zero: now.
func (r *Readings) valueAt(ctx context.Context, tenant, expr string, back time.Duration, at time.Time) (*vector, error) {
	asked := time.Now()
	status, body := r.o.Metrics.Value(ctx, tenant, expr, at, back)
	v, err := decodeValue(status, body)
	if err != nil {
		return nil, err
	}
	if v.at = at; at.IsZero() {
		v.at = asked
	}
	return v, nil
}

// inBounds is the reading of a gate whose query has one value.
func inBounds(x float64, g *v1alpha1.GateQuery) decide.Outside {
	out := decide.Outside{Verdict: v1alpha1.GatePass, Value: figure(x)}
	var bounds []string
	for _, b := range []struct {
		limit *resource.Quantity
		text  string
		over  func(limit float64) bool
	}{{g.Min, "at least", func(limit float64) bool { return x < limit }}, {g.Max, "at most", func(limit float64) bool { return x > limit }}} {
		if b.limit == nil {
			continue
		}
		limit := b.limit.AsApproximateFloat64()
		bounds = append(bounds, b.text+" "+figure(limit))
		if b.over(limit) {
			out.Verdict = v1alpha1.GateFail
		}
	}
	if out.Text = "the query's value is " + out.Value; len(bounds) > 0 {
		out.Text += ", wanted " + strings.Join(bounds, " and ")
	}
	return out
}

// figure is a number as people read it.
func figure(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }

// sample is [SECONDS, "VALUE"] of the Prometheus API.
type sample [2]json.RawMessage

func (s sample) value() (float64, error) {
	var text string
	if err := json.Unmarshal(s[1], &text); err != nil {
		return 0, fmt.Errorf("a value that is none: %w", err)
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("a value of %.40q", text)
	}
	return x, nil
}

// errShape says what an expression has to give.
var errShape = errors.New("it has several values without a site: give it one a site, such as by sum by (site) (…), or one in all")

// series is one of an answer.
type series struct {
	labels map[string]string
	value  float64
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// decodeSeries reads an answer of the Prometheus API to an instant query: a vector, or a
// scalar.
func decodeSeries(status int, body []byte) (vector []series, scalar *float64, err error) {
	var a struct {
		Status, Error string
		Data          struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, nil, fmt.Errorf("the metric store answers %d and what is no JSON", status)
	}
	switch {
	case (status != http.StatusOK || a.Status != "success") && a.Error != "":
		return nil, nil, errors.New(cut(a.Error, 300))
	case status != http.StatusOK || a.Status != "success":
		return nil, nil, fmt.Errorf("the metric store answers %d", status)
	case a.Data.ResultType == "scalar":
		var s sample
		if err := json.Unmarshal(a.Data.Result, &s); err != nil {
			return nil, nil, fmt.Errorf("not an answer of the Prometheus API: %w", err)
		}
		x, err := s.value()
		return nil, &x, err
	case a.Data.ResultType != "vector":
		return nil, nil, fmt.Errorf("it gives a %.20q, want an instant vector or a scalar", a.Data.ResultType)
	}
	var found []struct {
		Metric map[string]string
		Value  sample
	}
	if err := json.Unmarshal(a.Data.Result, &found); err != nil {
		return nil, nil, fmt.Errorf("not an answer of the Prometheus API: %w", err)
	}
	for _, f := range found {
		x, err := f.Value.value()
		if err != nil {
			return nil, nil, err
		}
		vector = append(vector, series{f.Metric, x})
	}
	return vector, nil, nil
}

// decodeValue reads what an expression gives of sites. What is no finite number is left
// out: it can't be compared.
func decodeValue(status int, body []byte) (*vector, error) {
	found, scalar, err := decodeSeries(status, body)
	if err != nil {
		return nil, err
	}
	v := &vector{sites: map[string]float64{}}
	if scalar != nil && finite(*scalar) {
		v.one = scalar
	}
	seen := map[string]bool{}
	for _, s := range found {
		site := s.labels[fleet.SeriesSite]
		if site == "" && len(found) > 1 {
			return nil, errShape
		}
		if seen[site] {
			return nil, fmt.Errorf("it has several values for site %s: give it one a site, such as by sum by (site) (…)", cut(site, 80))
		}
		seen[site] = true
		switch {
		case !finite(s.value):
		case site == "":
			v.one = &s.value
		default:
			v.sites[site] = s.value
		}
	}
	return v, nil
}

// cut keeps the first n bytes of a text, as valid UTF-8 on one line.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
