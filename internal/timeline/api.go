package timeline

import (
	"context"
	"encoding/json"
	"fmt"
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
	// maxNames of sites and of virtual sites: each is a walk of its own.
	maxNames = 200
	// patience is how long a page may take, waiting for its turn included.
	patience = 5 * time.Second
)

// Register mounts the API: wire.TimelinePath, for the tenants that wire.TenantsHeader has.
func (s *Store) Register(mux obs.Routes) {
	mux.HandleFunc("GET "+wire.TimelinePath, func(w http.ResponseWriter, r *http.Request) {
		q, p := ParseQuery(r)
		if p != nil {
			p.Write(w)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		events, more, err := s.Page(ctx, *q)
		if err != nil && ctx.Err() != nil {
			wire.Failure(http.StatusServiceUnavailable, "the page takes longer than %s, waiting for its turn included; ask for less, such as a shorter time", patience).Write(w)
			return
		}
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
	q := &Query{AllTenants: sc.Fleet(), Tenants: sc.Asked, Sites: names(in["site"], ""), VirtualSites: names(in["virtualSite"], "shared/"), Kinds: wire.Values(in["kind"]), Limit: defaultLimit}
	if len(q.Tenants) == 0 {
		q.Tenants = sc.Allowed
	}
	var errs []wire.FieldError
	bad := func(field, detail string) { errs = append(errs, wire.FieldError{Field: field, Detail: detail}) }
	for name, list := range map[string][]string{"site": q.Sites, "virtualSite": q.VirtualSites} {
		if len(list) > maxNames {
			bad(name, fmt.Sprintf("%d names: want at most %d", len(list), maxNames))
		}
	}
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

// names are those of a parameter, each once, in the namespace if they name none.
func names(in []string, namespace string) []string {
	out := wire.Values(in)
	for i, v := range out {
		if !strings.Contains(v, "/") {
			out[i] = namespace + v
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func validID(s string) bool {
	_, ok := parseKey(s)
	return ok
}
