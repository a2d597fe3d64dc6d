// Package silence says what is wrong with a silence that somebody wants to make. The console uses it to
// tell a page each field, and alerting before it makes one: what one takes the other does not refuse.
// It makes none.
package silence

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"

	"muster.dev/muster/internal/regexcost"
	"muster.dev/muster/internal/wire"
)

const (
	maxName    = 256  // bytes of a label's name
	maxComment = 1000 // characters
)

// Check trims the comment, and says from when until when the silence lasts or what is wrong with it.
func Check(s *wire.SilenceRequest, now time.Time) (start, end time.Time, errs []wire.FieldError) {
	bad := func(field, format string, args ...any) {
		errs = append(errs, wire.FieldError{Field: field, Detail: fmt.Sprintf(format, args...)})
	}
	matchers(s.Matchers, bad)
	if s.Comment = strings.TrimSpace(s.Comment); s.Comment == "" || utf8.RuneCountInString(s.Comment) > maxComment {
		bad("comment", "want 1 to %d characters: why, for those who find the silence later", maxComment)
	}
	start = now
	if s.StartsAt != nil && s.StartsAt.After(now) {
		start = *s.StartsAt
	}
	switch {
	case s.EndsAt != nil && s.Duration != "":
		bad("duration", "want either endsAt or duration, not both")
		return start, end, errs
	case s.EndsAt != nil:
		end = *s.EndsAt
	default:
		d, err := model.ParseDuration(s.Duration)
		if err != nil || d <= 0 {
			bad("duration", "%.40q: want a duration such as 30m, 2h or 1d, or a time in endsAt", s.Duration)
			return start, end, errs
		}
		end = start.Add(min(time.Duration(d), 2*wire.MaxSilence))
	}
	if !end.After(start) {
		bad("endsAt", "is in the past, or not after startsAt")
	} else if end.Sub(start) > wire.MaxSilence {
		bad("endsAt", "a silence lasts at most %d days", int(wire.MaxSilence.Hours()/24))
	}
	return start, end, errs
}

func matchers(all []wire.Matcher, bad func(field, format string, args ...any)) {
	if len(all) < 1 || len(all) > wire.MaxMatchers {
		bad("matchers", "want 1 to %d of them, have %d", wire.MaxMatchers, len(all))
	}
	left := &regexcost.Budget{Left: wire.MaxSilenceRegex}
	for i, m := range all {
		field := fmt.Sprintf("matchers[%d]", i)
		switch {
		case m.Name == "tenant":
			bad(field+".name", "the tenant is set by the server, from the parameter tenant; remove it")
		case !model.UTF8Validation.IsValidLabelName(m.Name) || len(m.Name) > maxName:
			bad(field+".name", "%.100q: not a label's name", m.Name)
		}
		if len(m.Value) > wire.MaxMatcherBytes || !utf8.ValidString(m.Value) {
			bad(field+".value", "want at most %d bytes of text", wire.MaxMatcherBytes)
		} else if m.IsRegex {
			if err := left.Take(m.Value); err != nil {
				bad(field+".value", "%s", err)
			}
		}
	}
}
