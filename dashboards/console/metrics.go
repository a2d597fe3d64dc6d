package console

import (
	"net/http"
	"strconv"
	"time"

	"muster.dev/muster/internal/promcost"
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
	set, err := c.access.scope(cl.Context(), cl.id, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	if len(set.names) != 1 {
		return invalid("tenant", "is missing: a query is about one tenant, and you may read %d", len(set.names))
	}
	if _, err := promcost.Query.Parse(q.Expr, over); err != nil {
		return invalid("query", "%s", err)
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
	if c.opt.Metrics == nil {
		return unavailable(nil, "this console has no metric store configured")
	}
	status, body := c.opt.Metrics.Query(cl.Context(), set.names[0], q)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
	return nil
}
