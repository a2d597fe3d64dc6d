package readings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/promcost"
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

// query evaluates a gate's expression: once for all sites of the tenant and all rollouts
// that have the same. What it returns is one of both, or none when it has no value.
func (r *Readings) query(ctx context.Context, tenant string, g *v1alpha1.RolloutGate) (*vector, *decide.Outside) {
	v, err := r.value(ctx, tenant, queryOf(g))
	var out decide.Outside
	switch {
	case err != nil:
		out = unknown("the query: %v", err)
	case v.one == nil && len(v.sites) > 0:
		return v, nil
	case v.one == nil:
		out = unknown("the query has no value")
	case g.Query == nil:
		out = unknown("the query has one value without a site: compare sites with one each, such as by sum by (site) (…)")
	default:
		out = inBounds(*v.one, g.Query)
	}
	return nil, &out
}

// value is an expression's now.
func (r *Readings) value(ctx context.Context, tenant, expr string) (*vector, error) {
	if err := affordable(expr); err != nil {
		return nil, err
	}
	v, _, err := r.values.get(ctx, tenant+"\x00"+expr, func(ctx context.Context) (*vector, error) {
		return r.valueAt(ctx, tenant, expr, time.Time{})
	})
	return v, err
}

// affordable is an error for what may not be evaluated again and again.
func affordable(expr string) error {
	_, err := promcost.Rule.Parse(expr, promcost.Window{})
	return err
}

// valueAt asks the store; zero: now.
func (r *Readings) valueAt(ctx context.Context, tenant, expr string, at time.Time) (*vector, error) {
	asked := time.Now()
	status, body := r.o.Metrics.Value(ctx, tenant, expr, at, lookback)
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
