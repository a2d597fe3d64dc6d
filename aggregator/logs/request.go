package logs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster.dev/muster/internal/logquery"
	"muster.dev/muster/internal/wire"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	buckets      = 120 // of the histogram, at most
)

// request is a checked search or tail.
type request struct {
	text, virtualSite           string
	sites, namespaces, severity []string
	from, to                    time.Time // zero: open
	limit                       int
	fingerprint                 string // of all that makes it this search and no other
}

var (
	tailNames   = []string{"query", "from", "to", "virtualSite", "site", "namespace", "severity"}
	searchNames = append(slices.Clone(tailNames), "limit", "cursor")
	listNames   = []string{"site", "namespace", "severity"}
)

// parse reads the parameters, strictly, at the time now.
func parse(in url.Values, known []string, tenant string, now time.Time) (*request, *wire.Problem) {
	for name, values := range in {
		switch {
		case !slices.Contains(known, name):
			return nil, wire.Invalid(wire.FieldError{Field: clean(name), Detail: "unknown parameter; want one of " + strings.Join(known, ", ")})
		case len(values) > 1 && !slices.Contains(listNames, name):
			return nil, wire.Invalid(wire.FieldError{Field: name, Detail: "given more than once"})
		}
	}
	r := &request{text: in.Get("query"), virtualSite: in.Get("virtualSite"), limit: defaultLimit}
	if _, err := logquery.Parse(r.text, logquery.LogFields(), now); err != nil {
		return nil, wire.Invalid(wire.FieldError{Field: "query", Detail: err.Error()})
	}
	for _, t := range []struct {
		name string
		to   *time.Time
	}{{"from", &r.from}, {"to", &r.to}} {
		if v := in.Get(t.name); v != "" {
			var err error
			if *t.to, err = parseTime(v, now); err != nil {
				return nil, wire.Invalid(wire.FieldError{Field: t.name, Detail: err.Error()})
			}
		}
	}
	if !r.from.IsZero() && !r.to.IsZero() && r.to.Before(r.from) {
		return nil, wire.Invalid(wire.FieldError{Field: "to", Detail: "is before from"})
	}
	if v := in.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > maxLimit {
			return nil, wire.Invalid(wire.FieldError{Field: "limit", Detail: fmt.Sprintf("%.20q: want a whole number from 1 to %d", v, maxLimit)})
		}
		r.limit = n
	}
	r.sites, r.namespaces, r.severity = list(in["site"]), list(in["namespace"]), list(in["severity"])
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %q %q %q", tenant, r.text, in.Get("from"), in.Get("to"), r.virtualSite, r.sites, r.namespaces, r.severity))
	r.fingerprint = hex.EncodeToString(sum[:8])
	return r, nil
}

// list returns the values, sorted and once each; nil for none.
func list(values []string) []string {
	var out []string
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

var errTime = errors.New("want RFC 3339, such as 2026-11-21T10:30:00Z, a day, Unix seconds, or now-1h")

// parseTime reads Unix seconds, or a time as the log query language writes it.
func parseTime(s string, now time.Time) (time.Time, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		if math.IsNaN(f) || f < 0 || f > 9e9 {
			return time.Time{}, errTime
		}
		return time.UnixMilli(int64(f * 1000)).UTC(), nil
	}
	if len(s) > 64 || strings.ContainsAny(s, `"\*`) {
		return time.Time{}, errTime
	}
	n, err := logquery.Parse(`@timestamp:["`+s+`" TO *]`, logquery.LogFields(), now)
	span, ok := n.(logquery.Range)
	if err != nil || !ok || span.From.IsZero() {
		return time.Time{}, errTime
	}
	if y := span.From.UTC().Year(); y < 1970 || y > 2261 {
		return time.Time{}, errTime
	}
	return span.From.UTC(), nil
}

// values are the filters as the regionals take them.
func (r *request) values() url.Values {
	q := url.Values{}
	set := func(name, v string) {
		if v != "" {
			q.Set(name, v)
		}
	}
	set("query", r.text)
	set("virtualSite", r.virtualSite)
	set("site", strings.Join(r.sites, ","))
	set("namespace", strings.Join(r.namespaces, ","))
	set("severity", strings.Join(r.severity, ","))
	if !r.from.IsZero() {
		q.Set("from", r.from.Format(time.RFC3339Nano))
	}
	if !r.to.IsZero() {
		q.Set("to", r.to.Format(time.RFC3339Nano))
	}
	return q
}

// enter takes one of the slots, or says that there is none.
func enter(w http.ResponseWriter, slots chan struct{}, what string) bool {
	select {
	case slots <- struct{}{}:
		return true
	default:
		wire.Failure(http.StatusTooManyRequests, "%d %s are running already; try again in a moment", cap(slots), what).Write(w)
		return false
	}
}
