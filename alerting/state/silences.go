package state

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/internal/silence"
	"muster.dev/muster/internal/wire"
)

// tenantOf is the tenant that a silence is confined to; "" if it is to none.
func tenantOf(s *amclient.Silence) string {
	for _, m := range s.Matchers {
		if m.Name == "tenant" && m.IsEqual && !m.IsRegex {
			return m.Value
		}
	}
	return ""
}

func (s *State) upstream(what string, err error) *wire.Problem {
	var refused *amclient.Error
	if errors.As(err, &refused) && refused.Status == http.StatusBadRequest {
		return wire.Failure(http.StatusBadRequest, "%s", refused.Detail)
	}
	s.log.Warn("alert state: "+what, "err", err)
	return wire.Failure(http.StatusServiceUnavailable, "Alertmanager does not answer; try again in a few seconds")
}

func (s *State) silences(r *http.Request, q url.Values, sc *wire.Scope) (int, any, *wire.Problem) {
	state := q.Get("state")
	if !slices.Contains([]string{"", "all", "active", "pending", "expired"}, state) {
		return 0, nil, wire.Failure(http.StatusBadRequest, "state: %.20q: want active, pending, expired or all", state)
	}
	all, err := s.opts.Silences.Silences(r.Context())
	if err != nil {
		return 0, nil, s.upstream("list silences", err)
	}
	out := wire.SilenceList{Silences: []wire.KnownSilence{}}
	felt := s.silencing(sc)
	for i := range all {
		x := &all[i]
		tenant := tenantOf(x)
		if tenant == "" && !sc.Fleet() && !felt[x.ID] || tenant != "" && !sc.Has(tenant) {
			continue
		}
		if state != "" && state != "all" && x.Status.State != state {
			continue
		}
		known := wire.KnownSilence{ID: x.ID, Tenant: tenant, Matchers: x.Matchers, StartsAt: x.StartsAt.UTC(), EndsAt: x.EndsAt.UTC(),
			CreatedBy: x.CreatedBy, Comment: x.Comment, State: x.Status.State, Maintenance: x.CreatedBy == amclient.CreatedByMaintenance}
		if tenant == "" && !sc.All { // what it says may be about others
			known.Matchers, known.CreatedBy, known.Comment = []wire.Matcher{}, "", ""
		}
		out.Silences = append(out.Silences, known)
	}
	return http.StatusOK, out, nil
}

// silencing are the silences that keep alerts within the scope quiet, of whomever they are.
func (s *State) silencing(sc *wire.Scope) map[string]bool {
	out := map[string]bool{}
	if v := s.view.Load(); v != nil {
		for _, a := range v.within(sc, nil, nil) {
			for _, id := range a.SilencedBy {
				out[id] = true
			}
		}
	}
	return out
}

const (
	maxSilenceBody = 256 << 10
	// maxSilences of a tenant, those included that ended and that Alertmanager still keeps: it
	// looks at each for each alert, and tells its cluster.
	maxSilences = 1000
)

// room refuses one more silence of a tenant that has as many as it may.
func (s *State) room(ctx context.Context, tenant string) *wire.Problem {
	all, err := s.opts.Silences.Silences(ctx)
	if err != nil {
		return s.upstream("list silences", err)
	}
	n := 0
	for i := range all {
		if tenantOf(&all[i]) == tenant && all[i].CreatedBy != amclient.CreatedByMaintenance {
			n++
		}
	}
	if n >= s.maxSilences {
		return wire.Failure(http.StatusTooManyRequests, "tenant %s has %d silences, those included that ended within the last days, as many as it may; silence more alerts with one", tenant, n)
	}
	return nil
}

func (s *State) postSilence(r *http.Request, _ url.Values, sc *wire.Scope) (int, any, *wire.Problem) {
	tenant, p := one(sc)
	if p != nil {
		return 0, nil, p
	}
	user := strings.TrimSpace(r.Header.Get(wire.UserHeader))
	if user == "" || user == amclient.CreatedByMaintenance {
		return 0, nil, wire.Failure(http.StatusForbidden, "the request doesn't say who makes the silence: it must come through the console, which sets %s", wire.UserHeader)
	}
	made, err := decodeSilence(r.Body, time.Now())
	if err != nil {
		return 0, nil, wire.Failure(http.StatusBadRequest, "%v", err)
	}
	s.making.Lock() // so that those that come together are counted
	defer s.making.Unlock()
	if p := s.room(r.Context(), tenant); p != nil {
		return 0, nil, p
	}
	made.CreatedBy = user
	made.Matchers = append([]wire.Matcher{wire.EqualMatcher("tenant", tenant)}, made.Matchers...)
	id, err := s.opts.Silences.SetSilence(r.Context(), *made)
	if err != nil {
		return 0, nil, s.upstream("set a silence", err)
	}
	made.ID = id
	s.silenced(made, tenant, user, false)
	s.refresh(r.Context())
	return http.StatusCreated, map[string]string{"id": id}, nil
}

func decodeSilence(r io.Reader, now time.Time) (*amclient.Silence, error) {
	var in wire.SilenceRequest
	limited := &io.LimitedReader{R: r, N: maxSilenceBody + 1}
	dec := json.NewDecoder(limited)
	dec.DisallowUnknownFields()
	err := dec.Decode(&in)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something stands after the object")
		}
	}
	switch {
	case limited.N <= 0:
		return nil, wire.Failure(0, "the body is longer than %d bytes", maxSilenceBody)
	case err != nil:
		return nil, wire.Failure(0, "the body is not a silence: %v", err)
	}
	start, end, errs := silence.Check(&in, now)
	if len(errs) > 0 {
		return nil, wire.Failure(0, "%s: %s", errs[0].Field, errs[0].Detail)
	}
	return &amclient.Silence{Matchers: in.Matchers, StartsAt: start, EndsAt: end, Comment: in.Comment}, nil
}

func (s *State) deleteSilence(r *http.Request, _ url.Values, sc *wire.Scope) (int, any, *wire.Problem) {
	id := r.PathValue("id")
	none := wire.Failure(http.StatusNotFound, "no silence %.64q that you may end", id)
	if uuid.Validate(id) != nil {
		return 0, nil, none
	}
	x, err := s.opts.Silences.Silence(r.Context(), id)
	if errors.Is(err, amclient.ErrNotFound) {
		return 0, nil, none
	} else if err != nil {
		return 0, nil, s.upstream("read a silence", err)
	}
	tenant := tenantOf(x)
	if tenant == "" && (!sc.Fleet()) || tenant != "" && !sc.Has(tenant) {
		return 0, nil, none
	}
	switch {
	case x.CreatedBy == amclient.CreatedByMaintenance:
		return 0, nil, wire.Failure(http.StatusConflict, "it comes from a maintenance window, which would make it anew; end the window instead")
	case x.Status.State == "expired":
		return http.StatusNoContent, nil, nil
	}
	if err := s.opts.Silences.ExpireSilence(r.Context(), id); err != nil {
		return 0, nil, s.upstream("end a silence", err)
	}
	s.silenced(x, tenant, strings.TrimSpace(r.Header.Get(wire.UserHeader)), true)
	s.refresh(r.Context())
	return http.StatusNoContent, nil, nil
}
