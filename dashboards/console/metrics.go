package console

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

const (
	pathQuery      = "/api/v1/query"
	pathQueryRange = "/api/v1/query_range"
)

func (c *Console) queryInstant(w http.ResponseWriter, cl *call) error {
	if cl.q.Get("query") == "" {
		return invalid("query", "is missing; want PromQL")
	}
	return c.query(w, cl, pathQuery)
}

func (c *Console) queryRange(w http.ResponseWriter, cl *call) error {
	var missing []fieldError
	for _, name := range []string{"query", "start", "end", "step"} {
		if cl.q.Get(name) == "" {
			missing = append(missing, fieldError{name, "is missing"})
		}
	}
	if len(missing) > 0 {
		return invalidFields(missing)
	}
	start, err := parseTime(cl.q.Get("start"))
	if err != nil {
		return invalid("start", "%s", err)
	}
	end, err := parseTime(cl.q.Get("end"))
	if err != nil {
		return invalid("end", "%s", err)
	}
	step, err := parseStep(cl.q.Get("step"))
	if err != nil {
		return invalid("step", "%s", err)
	}
	switch points := end.Sub(start) / step; {
	case end.Before(start):
		return invalid("end", "is before start")
	case points > maxPoints:
		return invalid("step", "gives %d points a series, want at most %d; take a longer step", points, maxPoints)
	}
	return c.query(w, cl, pathQueryRange)
}

// query hands a request to the metric store that carries the checked parameters and
// nothing that the client says about itself.
func (c *Console) query(w http.ResponseWriter, cl *call, path string) error {
	set, err := c.access.scope(cl.Context(), cl.id, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	if len(set.names) != 1 {
		return invalid("tenant", "is missing: a query is about one tenant, and you may read %d", len(set.names))
	}
	if c.opt.Metrics == nil {
		return unavailable(nil, "this console has no metric store configured")
	}
	form := url.Values{}
	for name, v := range cl.q {
		if name != "tenant" {
			form[name] = v
		}
	}
	r := cl.Clone(cl.Context())
	r.Header = http.Header{"Accept": {"application/json"}, "User-Agent": {fieldManager}}
	r.URL = &url.URL{Path: path}
	r.RequestURI, r.Host, r.Form, r.PostForm = "", "", nil, nil
	if cl.Method == http.MethodPost {
		body := form.Encode()
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	} else {
		r.Body, r.ContentLength = http.NoBody, 0
		r.URL.RawQuery = form.Encode()
	}
	c.opt.Metrics.ServeQuery(w, r, set.names[0], path)
	return nil
}
