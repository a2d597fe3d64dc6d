package console

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/promcost"
	"muster.dev/muster/internal/promexpr"
	"muster.dev/muster/internal/wire"
)

func (c *Console) queryInstant(w http.ResponseWriter, cl *call) error {
	var q MetricQuery
	if t := cl.q.Get("time"); t != "" {
		var err error
		if q.Time, err = parseTime(t); err != nil {
			return invalid("time", "%s", err)
		}
	}
	return c.query(w, cl, q, promcost.Window{})
}

func (c *Console) queryRange(w http.ResponseWriter, cl *call) error {
	var missing []wire.FieldError
	for _, name := range []string{"query", "start", "end", "step"} {
		if cl.q.Get(name) == "" {
			missing = append(missing, wire.FieldError{Field: name, Detail: "is missing"})
		}
	}
	if len(missing) > 0 {
		return invalidFields(missing)
	}
	var q MetricQuery
	var err error
	if q.Start, err = parseTime(cl.q.Get("start")); err != nil {
		return invalid("start", "%s", err)
	}
	if q.End, err = parseTime(cl.q.Get("end")); err != nil {
		return invalid("end", "%s", err)
	}
	if q.Step, err = parseStep(cl.q.Get("step")); err != nil {
		return invalid("step", "%s", err)
	}
	q.Step = max(q.Step, time.Millisecond)
	span := q.End.Sub(q.Start)
	switch points := span / q.Step; {
	case q.End.Before(q.Start):
		return invalid("end", "is before start")
	case points > maxPoints:
		return invalid("step", "gives %d points a series, want at most %d; take a longer step", points, maxPoints)
	}
	return c.query(w, cl, q, promcost.Window{Span: span, Step: q.Step})
}

// query asks the metric store about one tenant that the user may read.
func (c *Console) query(w http.ResponseWriter, cl *call, q MetricQuery, over promcost.Window) error {
	q.Expr = cl.q.Get("query")
	if q.Expr == "" {
		return invalid("query", "is missing; want PromQL")
	}
	tenant, err := c.metricTenant(cl)
	if err != nil {
		return err
	}
	expr, err := promcost.Query.Parse(q.Expr, over)
	if err != nil {
		return invalid("query", "%s", err)
	}
	if of := cl.q.Get("within"); of != "" {
		if q.Expr, err = between(expr, promexpr.Summary(of), over); err != nil {
			return invalid("within", "what is between the steps can't be told: %s", err)
		}
	}
	if t := cl.q.Get("timeout"); t != "" {
		if q.Timeout, err = parseStep(t); err != nil {
			return invalid("timeout", "%s", err)
		}
	}
	if l := cl.q.Get("limit"); l != "" {
		if q.Limit, err = strconv.Atoi(l); err != nil {
			return invalid("limit", "%s", err)
		}
	}
	status, body := c.opt.Metrics.Query(cl.Context(), tenant, q)
	return writeMetrics(w, status, body)
}

// between is an expression for what expr is between the steps, which costs what is allowed.
func between(expr parser.Expr, of promexpr.Summary, over promcost.Window) (string, error) {
	text, err := promexpr.Within(expr, of, over.Step, promcost.Resolution)
	if err == nil {
		_, err = promcost.Query.Parse(text, over)
	}
	return text, err
}

// metricTenant is the one tenant that a request to the metric store is about.
func (c *Console) metricTenant(cl *call) (string, error) {
	set, err := c.access.scopeOf(cl.Context(), cl.id, readMetrics, cl.q.Get("tenant"))
	if err != nil {
		return "", err
	}
	if len(set.names) != 1 {
		return "", invalid("tenant", "is missing: a query is about one tenant, and you may read %d", len(set.names))
	}
	if c.opt.Metrics == nil {
		return "", unavailable(nil, "this console has no metric store configured")
	}
	return set.names[0], nil
}

func writeMetrics(w http.ResponseWriter, status int, body []byte) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
	return nil
}

// nameReach is how far back names are looked for if nobody says.
const nameReach = time.Hour

// metricNames lists names of labels, or values of one.
func (c *Console) metricNames(w http.ResponseWriter, cl *call) error {
	tenant, err := c.metricTenant(cl)
	if err != nil {
		return err
	}
	q := NameQuery{Label: cl.q.Get("label"), Match: cl.q.Get("match"), Contains: cl.q.Get("q"), End: time.Now(), Limit: limitOf(cl.q)}
	if t := cl.q.Get("end"); t != "" {
		q.End, _ = parseTime(t) // checked
	}
	q.Start = q.End.Add(-nameReach)
	if t := cl.q.Get("start"); t != "" {
		q.Start, _ = parseTime(t)
	}
	if q.End.Before(q.Start) {
		return invalid("end", "is before start")
	}
	status, body := c.opt.Metrics.Names(cl.Context(), tenant, q)
	return writeMetrics(w, status, body)
}

// Condition is an expression taken apart for a chart.
type Condition struct {
	// Query is the whole expression, laid out over lines.
	Query string `json:"query"`
	// Value is the expression without its comparisons with constants; Bounds are these.
	Value  string           `json:"value"`
	Bounds []ConditionBound `json:"bounds"`
}

// ConditionBound is a comparison: the condition holds while the value is Op Value.
type ConditionBound struct {
	Op    string  `json:"op"`
	Value float64 `json:"value"`
}

// metricCondition takes an expression apart, and narrows it to a site. It asks nobody.
func (c *Console) metricCondition(w http.ResponseWriter, cl *call) error {
	query := cl.q.Get("query")
	if query == "" {
		return invalid("query", "is missing; want PromQL")
	}
	expr, err := promcost.Query.Parse(query, promcost.Window{})
	if err != nil {
		return invalid("query", "%s", err)
	}
	out := Condition{Query: expr.Pretty(0), Bounds: []ConditionBound{}}
	if site := cl.q.Get("site"); site != "" {
		promexpr.Narrow(expr, labels.MustNewMatcher(labels.MatchEqual, fleet.SeriesSite, site))
	}
	parts := promexpr.ConditionOf(expr)
	out.Value = parts.Value
	for _, b := range parts.Bounds {
		out.Bounds = append(out.Bounds, ConditionBound(b))
	}
	return writeJSON(w, http.StatusOK, out)
}
