package source

import (
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

// query is what the editor makes. Fields that a kind doesn't name are ignored, so that
// changing the kind loses nothing.
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

// parse reads a query. A variable that has no value yet is one that is not there.
func parse(q backend.DataQuery) (query, error) {
	var out query
	if err := json.Unmarshal(q.JSON, &out); err != nil {
		return out, wrong("query", "%v", err)
	}
	for _, f := range []*string{&out.VirtualSite, &out.Site, &out.Region, &out.Colour, &out.Phase, &out.Severity, &out.Namespace} {
		if strings.HasPrefix(*f, "$") || *f == "$__all" {
			*f = ""
		}
	}
	switch {
	case out.Limit < 0 || out.Limit > maxLimit:
		return out, wrong("limit", "%d: want 1 to %d, or 0 for %d", out.Limit, maxLimit, defaultLimit)
	case out.Limit == 0:
		out.Limit = defaultLimit
	}
	out.from, out.to, out.step = q.TimeRange.From, q.TimeRange.To, max(q.Interval, time.Second)
	// The metric store takes 11,000 steps at most.
	if n := q.MaxDataPoints; n > 0 {
		out.step = max(out.step, q.TimeRange.Duration()/time.Duration(n))
	}
	out.step = max(out.step, q.TimeRange.Duration()/10_000).Round(time.Second)
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
	q, err := parse(dq)
	if err != nil {
		return failure(err)
	}
	q.login = login
	if q.Type == "" {
		q.Type = dq.QueryType
	}
	if forAlert {
		q.Numeric = true
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
