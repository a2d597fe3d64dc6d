package silence

import (
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/wire"
)

// Each field that is wrong is named, all at once, and what is right lasts as long as it says.
func TestCheck(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) *time.Time { x := now.Add(d); return &x }
	good := func(change func(*wire.SilenceRequest)) *wire.SilenceRequest {
		in := &wire.SilenceRequest{Matchers: []wire.Matcher{{Name: "site", Value: "paris-.*", IsRegex: true, IsEqual: true}}, Duration: "1h", Comment: " why "}
		change(in)
		return in
	}
	one := func(m wire.Matcher) func(*wire.SilenceRequest) {
		return func(s *wire.SilenceRequest) { s.Matchers = []wire.Matcher{m} }
	}
	for name, c := range map[string]struct {
		in    func(*wire.SilenceRequest)
		wrong string
		start time.Duration
		end   time.Duration
	}{
		"an hour":           {func(*wire.SilenceRequest) {}, "", 0, time.Hour},
		"an hour tomorrow":  {func(s *wire.SilenceRequest) { s.StartsAt = at(24 * time.Hour) }, "", 24 * time.Hour, 25 * time.Hour},
		"began yesterday":   {func(s *wire.SilenceRequest) { s.StartsAt = at(-24 * time.Hour) }, "", 0, time.Hour},
		"until":             {func(s *wire.SilenceRequest) { s.Duration, s.EndsAt = "", at(time.Minute) }, "", 0, time.Minute},
		"both":              {func(s *wire.SilenceRequest) { s.EndsAt = at(time.Minute) }, "duration", 0, 0},
		"neither":           {func(s *wire.SilenceRequest) { s.Duration = "" }, "duration", 0, 0},
		"over":              {func(s *wire.SilenceRequest) { s.Duration, s.EndsAt = "", at(-time.Minute) }, "endsAt", 0, 0},
		"for ever":          {func(s *wire.SilenceRequest) { s.Duration = "367d" }, "endsAt", 0, 0},
		"no matcher":        {func(s *wire.SilenceRequest) { s.Matchers = nil }, "matchers", 0, 0},
		"many matchers":     {func(s *wire.SilenceRequest) { s.Matchers = make([]wire.Matcher, wire.MaxMatchers+1) }, "matchers", 0, 0},
		"the tenant's":      {one(wire.Matcher{Name: "tenant", Value: "x"}), "matchers[0].name", 0, 0},
		"no name":           {one(wire.Matcher{Value: "x"}), "matchers[0].name", 0, 0},
		"a long name":       {one(wire.Matcher{Name: strings.Repeat("x", maxName+1)}), "matchers[0].name", 0, 0},
		"a long value":      {one(wire.Matcher{Name: "a", Value: strings.Repeat("x", wire.MaxMatcherBytes+1)}), "matchers[0].value", 0, 0},
		"no text":           {one(wire.Matcher{Name: "a", Value: "\xff"}), "matchers[0].value", 0, 0},
		"no expression":     {one(wire.Matcher{Name: "a", Value: "a(", IsRegex: true}), "matchers[0].value", 0, 0},
		"a text like it":    {one(wire.Matcher{Name: "a", Value: "a("}), "", 0, time.Hour},
		"a large one":       {one(wire.Matcher{Name: "a", Value: strings.Repeat(".{999}", 500), IsRegex: true}), "matchers[0].value", 0, 0},
		"no comment":        {func(s *wire.SilenceRequest) { s.Comment = " " }, "comment", 0, 0},
		"a long comment":    {func(s *wire.SilenceRequest) { s.Comment = strings.Repeat("ä", maxComment+1) }, "comment", 0, 0},
		"comment and until": {func(s *wire.SilenceRequest) { s.Comment, s.Duration = "", "x" }, "comment duration", 0, 0},
	} {
		in := good(c.in)
		start, end, errs := Check(in, now)
		var wrong []string
		for _, e := range errs {
			if !strings.HasPrefix(e.Field, "matchers[") || len(wrong) == 0 { // of many the first says it
				wrong = append(wrong, e.Field)
			}
		}
		if name == "many matchers" && len(wrong) > 0 {
			wrong = wrong[:1]
		}
		switch got := strings.Join(wrong, " "); {
		case got != c.wrong:
			t.Errorf("%s: wrong is %q, want %q: %v", name, got, c.wrong, errs)
		case c.wrong == "" && (start.Sub(now) != c.start || end.Sub(now) != c.end || in.Comment != "why"):
			t.Errorf("%s: from %s until %s, %q", name, start.Sub(now), end.Sub(now), in.Comment)
		}
	}
}
