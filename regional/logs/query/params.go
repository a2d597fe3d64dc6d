package query

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/logs/store"
)

const (
	maxValues      = 1000    // of one filter
	maxCursorBytes = 2 << 10 // the store's are shorter
)

// request is a checked one.
type request struct {
	q           store.Query
	sites       []string // wanted by name; nil: any
	virtualSite string   // NAMESPACE/NAME, or ""
	after       store.Cursor
}

var (
	shared      = []string{"query", "from", "to", "virtualSite", "site", "namespace", "severity"}
	searchNames = append(slices.Clone(shared), "limit", "cursor", "buckets", "local")
	tailNames   = append(slices.Clone(shared), "after")
)

// parse reads the parameters strictly: what is unknown, repeated or malformed is an error.
// site, namespace and severity may be repeated or separated by commas.
func parse(r *http.Request, tenant string, tail bool) (*request, *wire.Problem) {
	in, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, wire.Invalid(wire.FieldError{Field: "query string", Detail: err.Error()})
	}
	known := searchNames
	if tail {
		known = tailNames
	}
	for name, values := range in {
		switch {
		case !slices.Contains(known, name):
			return nil, wire.Invalid(wire.FieldError{Field: fmt.Sprintf("%.60q", name), Detail: "unknown parameter; want one of " + strings.Join(known, ", ")})
		case len(values) > 1 && name != "site" && name != "namespace" && name != "severity":
			return nil, wire.Invalid(wire.FieldError{Field: name, Detail: "given more than once"})
		}
	}
	req := &request{q: store.Query{Tenant: tenant, Text: in.Get("query"), Cursor: store.Cursor(in.Get("cursor"))}, after: store.Cursor(in.Get("after"))}
	if id := r.Header.Get("Last-Event-ID"); tail && id != "" && req.after == "" {
		req.after = store.Cursor(id)
	}
	if len(req.q.Cursor) > maxCursorBytes || len(req.after) > maxCursorBytes {
		return nil, wire.Invalid(wire.FieldError{Field: "cursor", Detail: fmt.Sprintf("longer than %d bytes; hand back the one that you got", maxCursorBytes)})
	}
	for _, t := range []struct {
		name string
		to   *time.Time
	}{{"from", &req.q.From}, {"to", &req.q.To}} {
		if v := in.Get(t.name); v != "" {
			if *t.to, err = time.Parse(time.RFC3339Nano, v); err != nil {
				return nil, wire.Invalid(wire.FieldError{Field: t.name, Detail: fmt.Sprintf("%.60q: want RFC 3339, such as 2026-11-21T10:30:00Z", v)})
			}
			if y := t.to.Year(); y < 1970 || y > 2261 {
				return nil, wire.Invalid(wire.FieldError{Field: t.name, Detail: "the year is not between 1970 and 2261"})
			}
		}
	}
	for _, n := range []struct {
		name     string
		to       *int
		min, max int
	}{{"limit", &req.q.Limit, 1, store.MaxLimit}, {"buckets", &req.q.Buckets, 0, store.MaxBuckets}} {
		if v := in.Get(n.name); v != "" {
			if *n.to, err = strconv.Atoi(v); err != nil || *n.to < n.min || *n.to > n.max {
				return nil, wire.Invalid(wire.FieldError{Field: n.name, Detail: fmt.Sprintf("%.20q: want a whole number from %d to %d", v, n.min, n.max)})
			}
		}
	}
	switch v := in.Get("local"); v {
	case "", "0":
	case "1":
		req.q.Local = true
	default:
		return nil, wire.Invalid(wire.FieldError{Field: "local", Detail: fmt.Sprintf("%.20q: want 0 or 1", v)})
	}
	for _, l := range []struct {
		name string
		to   *[]string
	}{{"site", &req.sites}, {"namespace", &req.q.Namespaces}, {"severity", &req.q.Severities}} {
		var p *wire.Problem
		if *l.to, p = list(in, l.name); p != nil {
			return nil, p
		}
	}
	if v := in.Get("virtualSite"); v != "" {
		if req.virtualSite, err = virtualSite(v); err != nil {
			return nil, wire.Invalid(wire.FieldError{Field: "virtualSite", Detail: err.Error()})
		}
	}
	return req, nil
}

// list returns the values of a parameter, or nil if it is not given.
func list(in url.Values, name string) ([]string, *wire.Problem) {
	var out []string
	for _, v := range in[name] {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			if len(part) > store.MaxFieldBytes || len(out) == maxValues {
				return nil, wire.Invalid(wire.FieldError{Field: name, Detail: fmt.Sprintf("want at most %d values of %d bytes", maxValues, store.MaxFieldBytes)})
			}
			out = append(out, part)
		}
	}
	return out, nil
}

// virtualSite returns NAMESPACE/NAME; a name alone is one in the shared namespace.
func virtualSite(v string) (string, error) {
	ns, name, ok := strings.Cut(v, "/")
	if !ok {
		ns, name = "shared", v
	}
	// Virtual sites are Kubernetes objects: their names are made of the characters of a site's.
	if fleet.ValidateTenant(ns) != nil || name == "" || len(name) > 253 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
		return "", fmt.Errorf("%.80q: want NAMESPACE/NAME, or NAME for one in the namespace shared", v)
	}
	return ns + "/" + name, nil
}

// query is the store's query of now: the members of a virtual site change.
func (a *API) query(req *request) (store.Query, *wire.Problem) {
	q := req.q
	q.Sites = req.sites
	if req.virtualSite == "" {
		return q, nil
	}
	members, ok := a.opts.Members(q.Tenant, req.virtualSite)
	if !ok {
		return q, wire.Failure(http.StatusNotFound, "virtualSite: there is no %q, or this region has not heard of it yet", req.virtualSite)
	}
	sites := make([]string, 0, len(members)) // never nil: no member finds nothing
	for _, m := range members {
		if req.sites == nil || slices.Contains(req.sites, m) {
			sites = append(sites, m)
		}
	}
	if len(sites) > store.MaxFilter {
		return q, wire.Invalid(wire.FieldError{Field: "virtualSite", Detail: fmt.Sprintf("%s has %d sites, the limit is %d: take a smaller one", req.virtualSite, len(sites), store.MaxFilter)})
	}
	q.Sites = sites
	return q, nil
}
