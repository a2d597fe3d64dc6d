package timeline

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/wire"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// Register mounts the API: wire.TimelinePath, for the tenants that wire.TenantsHeader has.
func (s *Store) Register(mux obs.Routes) {
	mux.HandleFunc("GET "+wire.TimelinePath, func(w http.ResponseWriter, r *http.Request) {
		q, p := ParseQuery(r)
		if p != nil {
			p.Write(w)
			return
		}
		events, more, err := s.Page(r.Context(), *q)
		if err != nil {
			s.log.Error("timeline", "err", err)
			wire.Failure(http.StatusInternalServerError, "the timeline can't be read").Write(w)
			return
		}
		out := wire.TimelinePage{Events: events}
		if more {
			last := events[len(events)-1]
			out.NextCursor = wire.EncodeCursor(wire.TimelinePosition{ID: last.ID, Tenant: last.Tenant})
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "private, no-cache")
		_ = json.NewEncoder(w).Encode(out)
	})
}

var params = []string{"tenant", "site", "virtualSite", "kind", "from", "to", "limit", "cursor"}

// ParseQuery reads a request for events, and what it may read.
func ParseQuery(r *http.Request) (*Query, *wire.Problem) {
	in, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, wire.Failure(http.StatusBadRequest, "the query is not URL-encoded: %v", err)
	}
	sc, p := wire.ScopeOf(r, in["tenant"])
	if p != nil {
		return nil, p
	}
	for k := range in {
		if !slices.Contains(params, k) {
			return nil, wire.Failure(http.StatusBadRequest, "%.40q: no such parameter here; there are %s", k, strings.Join(params, ", "))
		}
	}
	q := &Query{AllTenants: sc.Fleet(), Tenants: sc.Asked, Sites: wire.Values(in["site"]), VirtualSites: wire.Values(in["virtualSite"]), Kinds: wire.Values(in["kind"]), Limit: defaultLimit}
	if len(q.Tenants) == 0 {
		q.Tenants = sc.Allowed
	}
	for i, v := range q.VirtualSites {
		if !strings.Contains(v, "/") {
			q.VirtualSites[i] = "shared/" + v
		}
	}
	var errs []wire.FieldError
	bad := func(field, detail string) { errs = append(errs, wire.FieldError{Field: field, Detail: detail}) }
	for _, k := range q.Kinds {
		if !slices.Contains(wire.TimelineKinds, k) {
			bad("kind", strconv.Quote(clip(k, 40))+": want one of "+strings.Join(wire.TimelineKinds, ", "))
		}
	}
	for name, t := range map[string]*time.Time{"from": &q.From, "to": &q.To} {
		if s := in.Get(name); s != "" {
			if *t, err = time.Parse(time.RFC3339Nano, s); err != nil {
				bad(name, strconv.Quote(clip(s, 40))+": want RFC 3339, such as 2026-01-31T12:00:00Z")
			}
		}
	}
	if s := in.Get("limit"); s != "" {
		if q.Limit, err = strconv.Atoi(s); err != nil || q.Limit < 1 || q.Limit > maxLimit {
			bad("limit", strconv.Quote(clip(s, 40))+": want a number from 1 to "+strconv.Itoa(maxLimit))
		}
	}
	if s := in.Get("cursor"); s != "" {
		q.After = &wire.TimelinePosition{}
		if err := wire.DecodeCursor(s, q.After); err != nil || !validID(q.After.ID) {
			bad("cursor", "it is none of this list; begin without one")
		}
	}
	if len(errs) > 0 {
		return nil, wire.Invalid(errs...)
	}
	return q, nil
}

func validID(s string) bool {
	_, ok := parseKey(s)
	return ok
}
