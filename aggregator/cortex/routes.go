package cortex

import (
	"io"
	"net/http"
	"slices"
	"strings"
)

// served are the methods of the paths that the store answers: pushes, queries, and how it
// is. Everything else that Cortex offers on the same listener stays shut: among it are
// pages that stop the ingester, put it into read-only mode or drop a member of a ring, all
// without authentication, and some by a mere GET. Whoever can make some role call an
// address, as with a webhook, must not reach them.
var served = map[string]string{
	pushPath: "POST",

	"/prometheus/api/v1/query":            "GET POST",
	"/prometheus/api/v1/query_range":      "GET POST",
	"/prometheus/api/v1/query_exemplars":  "GET POST",
	"/prometheus/api/v1/format_query":     "GET POST",
	"/prometheus/api/v1/parse_query":      "GET POST",
	"/prometheus/api/v1/series":           "GET POST",
	"/prometheus/api/v1/labels":           "GET POST",
	"/prometheus/api/v1/metadata":         "GET",
	"/prometheus/api/v1/status/buildinfo": "GET",
	"/prometheus/api/v1/read":             "POST",

	noRules: "GET",

	"/ready":   "GET",
	"/metrics": "GET",
}

// noRules is answered here, with no group: the regionals evaluate rules, so the store's
// ruler does not run, and Grafana, which asks before it completes a query, takes a missing
// path for an error.
const noRules = "/prometheus/api/v1/rules"

func methodsOf(path string) (string, bool) {
	if name, ok := strings.CutPrefix(path, "/prometheus/api/v1/label/"); ok {
		name, ok = strings.CutSuffix(name, "/values")
		return "GET", ok && name != "" && name != "." && name != ".." && !strings.Contains(name, "/")
	}
	m, ok := served[path]
	return m, ok
}

// onlyServed passes on what served lists, and no change that a foreign web page asks a
// browser for.
func onlyServed(next http.Handler) http.Handler {
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		methods, ok := methodsOf(r.URL.Path)
		switch {
		case !ok:
			http.Error(w, "the metric store serves pushes and queries only; see docs/operations.md", http.StatusNotFound)
		case !slices.Contains(strings.Fields(methods), r.Method):
			w.Header().Set("Allow", strings.ReplaceAll(methods, " ", ", "))
			http.Error(w, r.Method+" is not served here", http.StatusMethodNotAllowed)
		case r.URL.Path == noRules:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"status":"success","data":{"groups":[]}}`)
		default:
			next.ServeHTTP(w, r)
		}
	}))
}
