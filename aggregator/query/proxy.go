package query

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// maxFormBytes bounds what a user may send: an expression and some matchers.
const maxFormBytes = 256 << 10

// passed are the parameters that reach the store, by path. Whatever else a request
// carries, its headers included, stays behind.
var passed = map[string][]string{
	"/query":       {"query", "time", "timeout", "limit"},
	"/query_range": {"query", "start", "end", "step", "timeout", "limit"},
	"/series":      {"match[]", "start", "end", "limit"},
	"/labels":      {"match[]", "start", "end", "limit"},
	"/label/":      {"match[]", "start", "end", "limit"},
	"/metadata":    {"metric", "limit", "limit_per_metric"},
}

// onlyGet are the paths that the API has no POST for.
var onlyGet = map[string]bool{"/label/": true, "/metadata": true}

// ProxyHandler serves the read side of the Prometheus API to users: query,
// query_range, series, labels, label/NAME/values and metadata, by GET or POST.
// It looks at the end of the path, so it can be mounted anywhere
// (/api/v1/metrics/query, /prometheus/api/v1/query).
//
// tenantOf names the tenant whose data this request may read. Its error is shown
// to the user with status 403, or with its own if it has a method
// StatusCode() int. Errors have the Prometheus API's form, so that Grafana and
// promtool understand them.
func (c *Client) ProxyHandler(tenantOf func(*http.Request) (string, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, label, ok := apiPath(r.URL.Path)
		if !ok {
			c.refuse(w, http.StatusNotFound, "not_found", "no such query; there are query, query_range, series, labels, label/NAME/values and metadata")
			return
		}
		if r.Method != http.MethodGet && (r.Method != http.MethodPost || onlyGet[label]) {
			w.Header().Set("Allow", "GET")
			c.refuse(w, http.StatusMethodNotAllowed, "bad_data", r.Method+" is not allowed here")
			return
		}
		tenant, err := tenantOf(r)
		if err != nil || tenant == "" {
			status, text := http.StatusForbidden, "no tenant"
			if err != nil {
				text = err.Error()
			}
			var with interface{ StatusCode() int }
			if errors.As(err, &with) {
				status = with.StatusCode()
			}
			c.refuse(w, status, "forbidden", text)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
		if err := r.ParseForm(); err != nil {
			c.refuse(w, http.StatusBadRequest, "bad_data", "form: "+err.Error())
			return
		}
		form := url.Values{}
		for _, p := range passed[label] {
			if v, ok := r.Form[p]; ok {
				form[p] = v
			}
		}
		method := http.MethodPost
		if onlyGet[label] {
			method = http.MethodGet
		}
		status, body, err := c.do(r.Context(), tenant, method, path, label, form)
		switch {
		case errors.Is(err, ErrTooLarge):
			c.answer(w, http.StatusUnprocessableEntity, "execution", err.Error())
		case errors.Is(err, context.DeadlineExceeded):
			c.answer(w, http.StatusGatewayTimeout, "timeout", "the query took longer than "+c.o.Timeout.String())
		case err != nil && r.Context().Err() != nil: // the user is gone
		case err != nil:
			c.answer(w, http.StatusBadGateway, "unavailable", "the metric store can't be reached; regionals and scores go on without it")
		default:
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(status)
			_, _ = w.Write(jsonOrError(status, body))
		}
	})
}

// apiPath finds the API's path at the end of a URL path. The label of
// /label/NAME/values is "/label/".
func apiPath(p string) (path, label string, ok bool) {
	p = strings.TrimRight(p, "/")
	if head, found := strings.CutSuffix(p, "/values"); found {
		i := strings.LastIndexByte(head, '/')
		if i < 0 || !strings.HasSuffix(head[:i], "/label") || !labelName(head[i+1:]) {
			return "", "", false
		}
		return "/label" + head[i:] + "/values", "/label/", true
	}
	i := strings.LastIndexByte(p, '/')
	if i < 0 {
		return "", "", false
	}
	path = p[i:]
	if _, ok := passed[path]; !ok {
		return "", "", false
	}
	return path, path, true
}

func labelName(s string) bool {
	for i, r := range s {
		if !(r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || i > 0 && r >= '0' && r <= '9') {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// refuse answers a request that was not passed on.
func (c *Client) refuse(w http.ResponseWriter, status int, kind, text string) {
	c.refused.WithLabelValues("bad_request").Inc()
	c.answer(w, status, kind, text)
}

func (c *Client) answer(w http.ResponseWriter, status int, kind, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(errorJSON(kind, text))
}

func errorJSON(kind, text string) []byte {
	b, err := json.Marshal(map[string]string{"status": "error", "errorType": kind, "error": text})
	if err != nil {
		panic(err) // a map of strings always marshals
	}
	return b
}

// jsonOrError wraps the plain text that Cortex answers some errors with.
func jsonOrError(status int, body []byte) []byte {
	if status/100 == 2 || json.Valid(body) {
		return body
	}
	return errorJSON("execution", strings.TrimSpace(string(body[:min(len(body), 500)])))
}
