package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/data"

	"muster.dev/muster/dashboards/grafana/plugin/pkg/console"
)

// query is what the editor makes. Fields that its kind doesn't have (see fields) are ignored, so
// that changing the kind loses nothing.
type query struct {
	Type string `json:"queryType"`

	Health      string `json:"health"`      // see healthKinds
	Sites       string `json:"sites"`       // see siteKinds
	Annotations string `json:"annotations"` // see annotationKinds

	VirtualSite string `json:"virtualSite"` // NAMESPACE/NAME
	Site        string `json:"site"`
	Region      string `json:"region"`
	Colour      string `json:"colour"`
	Phase       string `json:"phase"`
	Dimension   string `json:"dimension"` // of history; empty: the score itself
	Stat        string `json:"stat"`      // of a virtual site's history: mean, p10, worst
	Text        string `json:"text"`
	Sort        string `json:"sort"`
	Severity    string `json:"severity"`
	State       string `json:"state"`
	Namespace   string `json:"namespace"`
	Kinds       string `json:"kinds"` // of the timeline, separated by spaces or commas; empty: all
	Query       string `json:"query"` // of logs
	Expr        string `json:"expr"`  // PromQL
	Limit       int    `json:"limit"`
	// Numeric asks for scores that alert rules can take: labels and numbers alone.
	Numeric bool `json:"numeric"`

	from, to time.Time
	login    string // of who asks; empty: nobody is logged in
	viewer   string // of a channel: the key of whose it is
	step     time.Duration
}

const (
	defaultLimit = 1000
	maxLimit     = 10_000
)

// answerer answers one kind of query.
type answerer func(*Source, context.Context, *console.Client, query) (data.Frames, error)

var answerers = map[string]answerer{
	"health":      (*Source).health,
	"sites":       (*Source).sites,
	"alerts":      (*Source).alerts,
	"logs":        (*Source).logs,
	"rollouts":    (*Source).rollouts,
	"metrics":     (*Source).metrics,
	"annotations": (*Source).annotations,
}

// fieldError is what a user wrote wrong in a query.
type fieldError struct{ field, detail string }

func (e *fieldError) Error() string { return e.field + ": " + e.detail }

func wrong(field, format string, args ...any) error {
	return &fieldError{field, fmt.Sprintf(format, args...)}
}

// oneOf checks a choice.
func oneOf(field, v string, among ...string) error {
	if slices.Contains(among, v) {
		return nil
	}
	return wrong(field, "%q: want one of %s", v, strings.Join(among, ", "))
}

// text is a field of a query that variables may fill in.
func (q *query) text(field string) *string {
	return map[string]*string{"virtualSite": &q.VirtualSite, "site": &q.Site, "region": &q.Region, "colour": &q.Colour, "phase": &q.Phase, "dimension": &q.Dimension, "stat": &q.Stat,
		"text": &q.Text, "sort": &q.Sort, "severity": &q.Severity, "state": &q.State, "namespace": &q.Namespace, "kinds": &q.Kinds, "query": &q.Query, "expr": &q.Expr}[field]
}

// fields are those that a kind of query has, as src/fields.ts shows them; those with a + take several
// values.
var fields = map[string]string{
	"health/sites":            "virtualSite site region colour phase text sort",
	"health/virtualSites":     "virtualSite text",
	"health/reasons":          "site",
	"health/signals":          "site",
	"health/history":          "virtualSite stat site region dimension",
	"health/live":             "virtualSite site",
	"sites/list":              "virtualSite+ site+ region+ text",
	"sites/details":           "site",
	"sites/conditions":        "virtualSite site region text",
	"alerts/":                 "virtualSite site severity state text",
	"logs/":                   "query virtualSite site+ namespace+ severity+",
	"rollouts/":               "namespace state text",
	"metrics/":                "expr",
	"annotations/timeline":    "virtualSite+ site+ kinds",
	"annotations/alerts":      "virtualSite site severity",
	"annotations/rollouts":    "virtualSite",
	"annotations/maintenance": "virtualSite site",
}

// numbered are the kinds of query that alert rules can take: those that have numbers, each of which
// its labels tell apart.
var numbered = []string{"health/sites", "health/virtualSites", "health/history", "health/live", "alerts/", "logs/", "metrics/"}

// forRule makes a query one that an alert rule can take. Grafana would say of tables and texts
// that they are of the wrong type, which tells nobody what to ask for instead.
func (q *query) forRule() error {
	q.Numeric = true
	kind := q.kind()
	if _, known := fields[kind]; !known || slices.Contains(numbered, kind) {
		return nil
	}
	field, of := q.Type, strings.TrimPrefix(kind, q.Type+"/")
	if of == "" {
		field, of = "queryType", q.Type
	}
	return wrong(field, "%q: an alert rule takes numbers: want health of sites, virtualSites or history, alerts, logs or metrics", of)
}

// kind is what a query asks for, with what is left out.
func (q *query) kind() string {
	of := ""
	switch q.Type {
	case "health":
		of = cmp.Or(q.Health, "sites")
	case "sites":
		of = cmp.Or(q.Sites, "list")
	case "annotations":
		of = cmp.Or(q.Annotations, "timeline")
	}
	return q.Type + "/" + of
}

// tidy clears what the kind doesn't have, and what a variable left that has no value yet or has them
// all; of several values, which Grafana writes as {a,b}, it makes a,b.
func (q *query) tidy() error {
	has, known := fields[q.kind()]
	if !known {
		return nil // the answerer says what there is
	}
	several := map[string]bool{}
	for name := range strings.FieldsSeq(has) {
		name, many := strings.CutSuffix(name, "+")
		several[name] = many
	}
	for _, name := range []string{"virtualSite", "site", "region", "colour", "phase", "dimension", "stat", "text", "sort", "severity", "state", "namespace", "kinds", "query", "expr"} {
		v := q.text(name)
		many, is := several[name]
		if !is {
			*v = ""
			continue
		}
		if name == "text" || name == "query" || name == "expr" || name == "kinds" {
			continue // $ and { mean something there
		}
		if strings.HasPrefix(*v, "$") {
			*v = ""
		}
		list, ok := strings.CutPrefix(*v, "{")
		if !ok || !strings.HasSuffix(list, "}") {
			continue
		}
		list = strings.TrimSuffix(list, "}")
		if n := strings.Count(list, ",") + 1; n > 1 && !many {
			return wrong(name, "the variable has %d values, and this kind of query takes one: choose one, or All for no filter", n)
		}
		*v = list
	}
	return nil
}

// values are those of a field that takes several.
func values(s string) []string {
	var out []string
	for v := range strings.SplitSeq(s, ",") {
		if v = strings.TrimSpace(v); v != "" {
			out = append(out, v)
		}
	}
	return out
}

// parse reads a query, of an alert rule or of a panel.
func parse(q backend.DataQuery, forAlert bool) (query, error) {
	var out query
	if err := json.Unmarshal(q.JSON, &out); err != nil {
		return out, wrong("query", "%v", err)
	}
	out.Type = cmp.Or(out.Type, q.QueryType)
	if err := out.tidy(); err != nil {
		return out, err
	}
	switch {
	case out.Limit < 0 || out.Limit > maxLimit:
		return out, wrong("limit", "%d: want 1 to %d, or 0 for %d", out.Limit, maxLimit, defaultLimit)
	case out.Limit == 0 && forAlert: // what a rule does not get it does not watch, and nobody sees a notice there
		out.Limit = maxLimit
	case out.Limit == 0:
		out.Limit = defaultLimit
	}
	out.from, out.to, out.step = q.TimeRange.From, q.TimeRange.To, max(q.Interval, time.Second)
	if n := q.MaxDataPoints; n > 0 {
		out.step = max(out.step, q.TimeRange.Duration()/time.Duration(n))
	}
	// The metric store takes 11,000 steps at most: a step is rounded up, never down.
	out.step = (max(out.step, q.TimeRange.Duration()/10_000) + time.Second - 1).Truncate(time.Second)
	return out, nil
}

// QueryData implements backend.QueryDataHandler.
func (s *Source) QueryData(ctx context.Context, req *backend.QueryDataRequest) (*backend.QueryDataResponse, error) {
	resp := backend.NewQueryDataResponse()
	c, err := s.client(req)
	for _, q := range req.Queries {
		if err != nil {
			resp.Responses[q.RefID] = backend.ErrDataResponseWithSource(backend.StatusUnauthorized, backend.ErrorSourceDownstream, err.Error())
			continue
		}
		resp.Responses[q.RefID] = s.answer(ctx, c, q, loginOf(req.PluginContext), (req.Headers[backend.FromAlertHeaderName] == "true" || req.GetHTTPHeader(backend.FromAlertHeaderName) == "true"))
	}
	return resp, nil
}

func (s *Source) answer(ctx context.Context, c *console.Client, dq backend.DataQuery, login string, forAlert bool) backend.DataResponse {
	q, err := parse(dq, forAlert)
	if err != nil {
		return failure(err)
	}
	q.login = login
	if forAlert {
		if err := q.forRule(); err != nil {
			return failure(err)
		}
	}
	answer := answerers[q.Type]
	if answer == nil {
		return failure(oneOf("queryType", q.Type, "health", "sites", "alerts", "logs", "rollouts", "metrics", "annotations"))
	}
	frames, err := answer(s, ctx, c, q)
	if err != nil {
		return failure(err)
	}
	for _, f := range frames {
		f.RefID = dq.RefID
	}
	return backend.DataResponse{Frames: frames, Status: backend.StatusOK}
}

// failure says whose fault it is: the user's, the console's, or ours.
func failure(err error) backend.DataResponse {
	status := backend.StatusBadGateway
	var wrong *fieldError
	switch code := console.StatusOf(err); {
	case errors.As(err, &wrong):
		status = backend.StatusBadRequest
	case errors.Is(err, context.DeadlineExceeded):
		status = backend.StatusTimeout
	case code != 0 && code < http.StatusInternalServerError:
		status = backend.Status(code)
	}
	return backend.ErrDataResponseWithSource(status, backend.ErrorSourceDownstream, err.Error())
}
