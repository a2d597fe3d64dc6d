package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"

	"muster.dev/muster/internal/regexcost"
	"muster.dev/muster/internal/wire"
)

// toAlerting passes a call on to the alerting role, for the tenants of the set.
func (c *Console) toAlerting(w http.ResponseWriter, cl *call, out outgoing, set readable) error {
	if c.alerts == nil {
		return unavailable(nil, "this console has no alerting role configured")
	}
	out.tenants, out.user = set.header(), cl.id.name
	if out.query == nil {
		out.query = cl.q
	}
	c.alerts.proxy.ServeHTTP(w, cl.WithContext(context.WithValue(cl.Context(), scopeKey{}, out)))
	return nil
}

func (c *Console) readAlerts(w http.ResponseWriter, cl *call) error {
	set, err := c.access.scopeOf(cl.Context(), cl.id, readAlerts, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	return c.toAlerting(w, cl, outgoing{}, set)
}

func (c *Console) listSilences(w http.ResponseWriter, cl *call) error {
	set, err := c.access.scopeOf(cl.Context(), cl.id, readSilences, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	// Who may read all tenants is told what silences of no tenant say, also where those of one are asked for, as the query does.
	if set.all, err = c.access.may(cl.Context(), cl.id, readSilences, everyNamespace); err != nil {
		return err
	}
	return c.toAlerting(w, cl, outgoing{}, set)
}

// silenceRequest is checked here, so that a page gets an error for each field.
type silenceRequest wire.SilenceRequest

// check normalises the request and says what is wrong with it.
func (s *silenceRequest) check(now time.Time) error {
	var errs []wire.FieldError
	bad := func(field, format string, args ...any) {
		errs = append(errs, wire.FieldError{Field: field, Detail: fmt.Sprintf(format, args...)})
	}
	if len(s.Matchers) < 1 || len(s.Matchers) > wire.MaxMatchers {
		bad("matchers", "want 1 to %d of them, have %d", wire.MaxMatchers, len(s.Matchers))
	}
	left := &regexcost.Budget{Left: wire.MaxSilenceRegex}
	for i := range s.Matchers {
		m, field := &s.Matchers[i], fmt.Sprintf("matchers[%d]", i)
		switch {
		case m.Name == "tenant":
			bad(field+".name", "the tenant is set by the server, from the parameter tenant; remove it")
		case !model.UTF8Validation.IsValidLabelName(m.Name) || len(m.Name) > 256:
			bad(field+".name", "%q: not a label's name", printable(m.Name))
		}
		if len(m.Value) > wire.MaxMatcherBytes || !utf8.ValidString(m.Value) {
			bad(field+".value", "want at most %d bytes of text", wire.MaxMatcherBytes)
		} else if m.IsRegex {
			if err := left.Take(m.Value); err != nil {
				bad(field+".value", "%s", err)
			}
		}
	}
	if s.Comment = strings.TrimSpace(s.Comment); s.Comment == "" || utf8.RuneCountInString(s.Comment) > 1000 {
		bad("comment", "want 1 to 1000 characters: why, for those who find the silence later")
	}
	start := now
	if s.StartsAt != nil && s.StartsAt.After(now) {
		start = *s.StartsAt
	}
	end := time.Time{}
	switch {
	case s.EndsAt != nil && s.Duration != "":
		bad("duration", "want either endsAt or duration, not both")
	case s.EndsAt != nil:
		end = *s.EndsAt
	default:
		d, err := model.ParseDuration(s.Duration)
		if err != nil || d <= 0 {
			bad("duration", "%q: want a duration such as 30m, 2h or 1d, or a time in endsAt", printable(s.Duration))
			break
		}
		end = start.Add(min(time.Duration(d), 2*wire.MaxSilence))
	}
	switch {
	case end.IsZero():
	case !end.After(start):
		bad("endsAt", "is in the past, or not after startsAt")
	case end.Sub(start) > wire.MaxSilence:
		bad("endsAt", "a silence lasts at most %d days", int(wire.MaxSilence.Hours()/24))
	}
	if len(errs) > 0 {
		return invalidFields(errs)
	}
	return nil
}

func (c *Console) postSilence(w http.ResponseWriter, cl *call) error {
	var in silenceRequest
	if err := readJSON(cl.Request, &in, false); err != nil {
		return err
	}
	if err := in.check(c.now()); err != nil {
		return err
	}
	set, err := c.access.scopeOf(cl.Context(), cl.id, createSilences, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	if len(set.names) != 1 {
		return manyTenants("a silence belongs to one tenant", set)
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	one := readable{names: set.names} // also for a user who may do so in all
	return c.toAlerting(w, cl, outgoing{method: http.MethodPost, body: body, query: url.Values{"tenant": set.names}}, one)
}

func (c *Console) deleteSilence(w http.ResponseWriter, cl *call) error {
	set, err := c.access.scopeOf(cl.Context(), cl.id, deleteSilences, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	return c.toAlerting(w, cl, outgoing{method: http.MethodDelete}, set)
}
