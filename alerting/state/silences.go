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
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/prometheus/common/model"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/internal/regexcost"
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
	silence, err := decodeSilence(r.Body, time.Now())
	if err != nil {
		return 0, nil, wire.Failure(http.StatusBadRequest, "%v", err)
	}
	s.making.Lock() // so that those that come together are counted
	defer s.making.Unlock()
	if p := s.room(r.Context(), tenant); p != nil {
		return 0, nil, p
	}
	silence.CreatedBy = user
	silence.Matchers = append([]wire.Matcher{wire.EqualMatcher("tenant", tenant)}, silence.Matchers...)
	id, err := s.opts.Silences.SetSilence(r.Context(), *silence)
	if err != nil {
		return 0, nil, s.upstream("set a silence", err)
	}
	silence.ID = id
	s.silenced(silence, tenant, user, false)
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
	case len(in.Matchers) < 1 || len(in.Matchers) > wire.MaxMatchers:
		return nil, wire.Failure(0, "matchers: want 1 to %d of them, have %d", wire.MaxMatchers, len(in.Matchers))
	}
	left := &regexcost.Budget{Left: wire.MaxSilenceRegex}
	for i, m := range in.Matchers {
		if m.Name == "tenant" {
			return nil, wire.Failure(0, "matchers[%d].name: the tenant is set by the server, from the parameter tenant; remove it", i)
		}
		if !model.UTF8Validation.IsValidLabelName(m.Name) {
			return nil, wire.Failure(0, "matchers[%d].name: %.100q: not a label's name", i, m.Name)
		}
		if len(m.Value) > wire.MaxMatcherBytes {
			return nil, wire.Failure(0, "matchers[%d].value: want at most %d bytes", i, wire.MaxMatcherBytes)
		}
		if m.IsRegex {
			if err := left.Take(m.Value); err != nil {
				return nil, wire.Failure(0, "matchers[%d].value: %v", i, err)
			}
		}
	}
	out := &amclient.Silence{Matchers: in.Matchers, StartsAt: now, Comment: strings.TrimSpace(in.Comment)}
	if out.Comment == "" || utf8.RuneCountInString(out.Comment) > 1000 {
		return nil, wire.Failure(0, "comment: want 1 to 1000 characters: why, for those who find the silence later")
	}
	if in.StartsAt != nil && in.StartsAt.After(now) {
		out.StartsAt = *in.StartsAt
	}
	switch {
	case (in.EndsAt == nil) == (in.Duration == ""):
		return nil, wire.Failure(0, "want either endsAt or duration")
	case in.EndsAt != nil:
		out.EndsAt = *in.EndsAt
	default:
		d, err := model.ParseDuration(in.Duration)
		if err != nil || d <= 0 {
			return nil, wire.Failure(0, "duration: %.40q: want such as 30m, 2h or 1d", in.Duration)
		}
		out.EndsAt = out.StartsAt.Add(min(time.Duration(d), 2*wire.MaxSilence))
	}
	if d := out.EndsAt.Sub(out.StartsAt); d <= 0 || d > wire.MaxSilence {
		return nil, wire.Failure(0, "endsAt: want it after startsAt and now, and at most %d days after", int(wire.MaxSilence.Hours()/24))
	}
	return out, nil
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
