package logs

import (
	"cmp"
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

	"muster.dev/muster/internal/fairshare"
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
	patience                    time.Duration // 0: as long as a region may take
	fingerprint                 string        // of all that makes it this search and no other
}

// check checks a query at the time now. The fields that its problems name are the
// parameters of the HTTP API.
func check(q wire.LogQuery, tenant string, now time.Time) (*request, *wire.Problem) {
	r := &request{text: q.Text, virtualSite: q.VirtualSite, limit: cmp.Or(q.Limit, defaultLimit), patience: max(q.Patience, 0)}
	if _, err := logquery.Parse(r.text, logquery.LogFields(), now); err != nil {
		return nil, wire.Invalid(wire.FieldError{Field: "query", Detail: err.Error()})
	}
	for _, t := range []struct {
		name, text string
		to         *time.Time
	}{{"from", q.From, &r.from}, {"to", q.To, &r.to}} {
		if t.text != "" {
			var err error
			if *t.to, err = parseTime(t.text, now); err != nil {
				return nil, wire.Invalid(wire.FieldError{Field: t.name, Detail: err.Error()})
			}
		}
	}
	if !r.from.IsZero() && !r.to.IsZero() && r.to.Before(r.from) {
		return nil, wire.Invalid(wire.FieldError{Field: "to", Detail: "is before from"})
	}
	if r.limit < 1 || r.limit > maxLimit {
		return nil, wire.Invalid(wire.FieldError{Field: "limit", Detail: fmt.Sprintf("%d: want a whole number from 1 to %d", r.limit, maxLimit)})
	}
	r.sites, r.namespaces, r.severity = list(q.Sites), list(q.Namespaces), list(q.Severities)
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %q %q %q", tenant, r.text, q.From, q.To, r.virtualSite, r.sites, r.namespaces, r.severity))
	r.fingerprint = hex.EncodeToString(sum[:8])
	return r, nil
}

// list returns the values, sorted and once each.
func list(values []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(values)))
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

// enter takes one of the slots for a tenant, or says that it may have no more now.
func enter(slots *fairshare.Shares, tenant, what string) *wire.Problem {
	if !slots.Take(tenant) {
		return wire.Failure(http.StatusTooManyRequests, "the tenant has as many %s running as it may have at once; try again in a moment", what)
	}
	return nil
}
