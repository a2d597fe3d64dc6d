package state

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/wire"
)

// Register mounts the API.
func (s *State) Register(mux obs.Routes) {
	mux.HandleFunc("GET /api/v1/alerts", s.handle(s.list, "virtualSite", "site", "severity", "state", "q", "limit", "cursor"))
	mux.HandleFunc("GET /api/v1/alerts/state", s.handle(s.state, "virtualSite", "site"))
	mux.HandleFunc("GET /api/v1/alerts/groups", s.handle(s.groups, "virtualSite", "site", "severity", "state", "q", "sort", "limit"))
	mux.HandleFunc("GET /api/v1/alerts/notifications", s.handle(s.loudness, "limit"))
	mux.HandleFunc("GET "+wire.FiringPath, s.handle(s.firingBySite))
	mux.HandleFunc("GET /api/v1/alerts/{fingerprint}", s.handle(s.detail))
	mux.HandleFunc("GET /api/v1/silences", s.handle(s.silences, "state"))
	mux.HandleFunc("POST /api/v1/silences", s.handle(s.postSilence))
	mux.HandleFunc("DELETE /api/v1/silences/{id}", s.handle(s.deleteSilence))
	other := func(w http.ResponseWriter, r *http.Request) {
		wire.Failure(http.StatusNotFound, "no such path, or not with %s: %s", r.Method, r.URL.Path).Write(w)
	}
	for _, p := range []string{"/api/v1/alerts", "/api/v1/alerts/", "/api/v1/silences", "/api/v1/silences/"} {
		mux.HandleFunc(p, other)
	}
}

// handle wraps what all calls share: scope, known parameters, JSON.
func (s *State) handle(f func(*http.Request, url.Values, *wire.Scope) (int, any, *wire.Problem), params ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			wire.Failure(http.StatusBadRequest, "the query is not URL-encoded: %v", err).Write(w)
			return
		}
		sc, p := wire.ScopeOf(r, q["tenant"])
		if p != nil {
			p.Write(w)
			return
		}
		for k := range q {
			if k != "tenant" && !slices.Contains(params, k) {
				wire.Failure(http.StatusBadRequest, "%.40q: no such parameter here; there are %s", k, strings.Join(append([]string{"tenant"}, params...), ", ")).Write(w)
				return
			}
		}
		status, out, p := f(r, q, sc)
		if p != nil {
			p.Write(w)
			return
		}
		h := w.Header()
		h.Set("Cache-Control", "private, no-cache")
		h.Set("Vary", wire.TenantsHeader)
		if out == nil {
			w.WriteHeader(status)
			return
		}
		body, ready := out.(encoded)
		if !ready {
			body, err = json.Marshal(out)
		}
		if err != nil {
			s.log.Error("alert state: an answer can't be encoded", "path", r.URL.Path, "err", err)
			wire.Failure(http.StatusInternalServerError, "the answer can't be encoded").Write(w)
			return
		}
		h.Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(body)
		_, _ = w.Write([]byte{'\n'})
	}
}

// one is the only tenant that is meant, for what is made in one.
func one(sc *wire.Scope) (string, *wire.Problem) {
	t, ok := sc.One()
	if !ok {
		return "", wire.Failure(http.StatusBadRequest, "tenant: say which one: a silence belongs to one tenant")
	}
	return t, nil
}

// virtualSites takes NAMESPACE/NAME, or NAME of a shared one.
func virtualSites(q url.Values) []string {
	out := wire.Values(q["virtualSite"])
	for i, v := range out {
		if !strings.Contains(v, "/") {
			out[i] = "shared/" + v
		}
	}
	return out
}

func (s *State) current() (*view, *wire.Problem) {
	if v := s.view.Load(); v != nil {
		return v, nil
	}
	return nil, wire.Failure(http.StatusServiceUnavailable, "Alertmanager has not said yet what fires; try again in a few seconds")
}

const (
	defaultLimit = 100
	maxLimit     = 1000
)

func (s *State) list(_ *http.Request, q url.Values, sc *wire.Scope) (int, any, *wire.Problem) {
	v, p := s.current()
	if p != nil {
		return 0, nil, p
	}
	wanted, p := filterOf(q)
	if p != nil {
		return 0, nil, p
	}
	limit, p := limitOf(q, defaultLimit)
	if p != nil {
		return 0, nil, p
	}
	after, err := decodeCursor(q.Get("cursor"))
	if err != nil {
		return 0, nil, wire.Failure(http.StatusBadRequest, "%v", err)
	}
	out := wire.AlertList{AsOf: v.at.UTC(), Alerts: []*wire.KnownAlert{}}
	for _, a := range v.within(sc, wire.Values(q["site"]), virtualSites(q)) {
		if !wanted(a) {
			continue
		}
		out.Total++
		out.Counts.Add(a.Severity)
		if after != nil && positionOf(a).compare(*after) <= 0 {
			continue
		}
		if len(out.Alerts) < limit {
			out.Alerts = append(out.Alerts, a)
		} else if out.NextCursor == "" {
			out.NextCursor = positionOf(out.Alerts[limit-1]).encode()
		}
	}
	return http.StatusOK, out, nil
}

// filterOf says which alerts the parameters severity, state and q want.
func filterOf(q url.Values) (func(*wire.KnownAlert) bool, *wire.Problem) {
	want := wire.Values(q["severity"])
	for _, sev := range want {
		if !slices.Contains(severities, sev) {
			return nil, wire.Failure(http.StatusBadRequest, "severity: %.20q: want critical, warning or info", sev)
		}
	}
	state := q.Get("state")
	if !slices.Contains([]string{"", "all", wire.AlertActive, wire.AlertSuppressed}, state) {
		return nil, wire.Failure(http.StatusBadRequest, "state: %.20q: want active, suppressed or all", state)
	}
	text := strings.ToLower(strings.TrimSpace(q.Get("q")))
	return func(a *wire.KnownAlert) bool {
		return (len(want) == 0 || slices.Contains(want, a.Severity)) && (state != wire.AlertActive && state != wire.AlertSuppressed || a.State == state) && (text == "" || contains(a, text))
	}, nil
}

func limitOf(q url.Values, unset int) (int, *wire.Problem) {
	l := q.Get("limit")
	if l == "" {
		return unset, nil
	}
	n, err := strconv.Atoi(l)
	if err != nil || n < 1 {
		return 0, wire.Failure(http.StatusBadRequest, "limit: %.20q: want a number from 1 to %d", l, maxLimit)
	}
	return min(n, maxLimit), nil
}

func contains(a *wire.KnownAlert, text string) bool {
	for _, m := range []map[string]string{a.Labels, a.Annotations} {
		for _, v := range m {
			if strings.Contains(strings.ToLower(v), text) {
				return true
			}
		}
	}
	return false
}

func (s *State) state(_ *http.Request, q url.Values, sc *wire.Scope) (int, any, *wire.Problem) {
	v, p := s.current()
	if p != nil {
		return 0, nil, p
	}
	out := wire.AlertState{AsOf: v.at.UTC()}
	sites := map[fleet.SiteID]struct{}{}
	for _, a := range v.within(sc, wire.Values(q["site"]), virtualSites(q)) {
		if a.State == wire.AlertSuppressed {
			out.Suppressed++
			continue
		}
		out.Firing.Add(a.Severity)
		if a.Site != "" {
			sites[fleet.SiteID{Tenant: a.Tenant, Name: a.Site}] = struct{}{}
		}
	}
	out.Sites = len(sites)
	return http.StatusOK, out, nil
}

var fingerprint = regexp.MustCompile(`^[0-9a-f]{16}$`)

func (s *State) detail(r *http.Request, _ url.Values, sc *wire.Scope) (int, any, *wire.Problem) {
	v, p := s.current()
	if p != nil {
		return 0, nil, p
	}
	id := r.PathValue("fingerprint")
	if !fingerprint.MatchString(id) {
		return 0, nil, wire.Failure(http.StatusBadRequest, "fingerprint: %.40q: want 16 hexadecimal digits", id)
	}
	a, spans, err := s.history.of(id)
	if err != nil {
		s.log.Error("alert history", "err", err)
		spans = []wire.AlertSpan{} // what fires is told all the same
	}
	if now := v.byID[id]; now != nil {
		a = now
	} else if a != nil {
		a.State, a.SilencedBy, a.InhibitedBy = wire.AlertResolved, []string{}, []string{}
		if len(spans) > 0 && spans[0].EndsAt != nil {
			a.EndsAt = *spans[0].EndsAt
		}
	}
	if a == nil || !sc.Has(a.Tenant) {
		return 0, nil, wire.Failure(http.StatusNotFound, "no alert %s that you may read", id)
	}
	return http.StatusOK, wire.AlertDetail{KnownAlert: *a, History: spans}, nil
}

var errCursor = errors.New("cursor: it is none of this list; begin without one")

func (p position) encode() string { return wire.EncodeCursor(p) }

func decodeCursor(s string) (*position, error) {
	if s == "" {
		return nil, nil
	}
	var p position
	if wire.DecodeCursor(s, &p) != nil || !fingerprint.MatchString(p.Fingerprint) {
		return nil, errCursor
	}
	return &p, nil
}
