package console

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/timeline"
	"muster.dev/muster/internal/wire"
)

// newTimeline is the timeline of one role, with an event of each tenant.
func newTimeline(t testing.TB) *timeline.Merger {
	t.Helper()
	s, err := timeline.Open(timeline.Options{File: filepath.Join(t.TempDir(), "timeline.db"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-time.Hour)
	for i, tenant := range []string{"acme", "globex", "acme"} {
		if err := s.Add(wire.TimelineEvent{Time: at.Add(time.Duration(i) * time.Minute), Kind: wire.EventColour, Severity: wire.EventCritical, Tenant: tenant, Namespace: "shared", Site: "paris-07", VirtualSites: []string{"shared/all-eu"}, Object: "Site/x", By: "anna",
			Text: "green → red, of " + tenant, Before: "green", After: "red", Link: wire.SiteLink(tenant, "paris-07")}); err != nil {
			t.Fatal(err)
		}
	}
	mux := http.NewServeMux()
	s.Register(mux)
	srv := httptest.NewServer(mux)
	t.Cleanup(func() { srv.Close(); _ = s.Close() })
	return &timeline.Merger{Client: srv.Client(), Logger: slog.New(slog.DiscardHandler), Parts: []timeline.Part{{Role: "health", URL: srv.URL, Kinds: wire.TimelineKinds}}}
}

func TestTimelineIsScoped(t *testing.T) {
	h := newHarness(t)
	page := func(user, query string) wire.TimelinePage {
		t.Helper()
		var out wire.TimelinePage
		if err := json.Unmarshal(h.want(200, user, "GET", wire.TimelinePath+query, "", forgedHeaders...).body, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, c := range []struct {
		user, query string
		want        int
	}{
		{"alice", "", 2}, {"both", "", 3}, {"both", "?tenant=globex", 1}, {"root", "", 3}, {"root", "?tenant=muster", 0},
		{"alice", "?site=paris-07,rome-01&virtualSite=all-eu&kind=colour&kind=alert", 2}, {"alice", "?kind=alert", 0},
		{"alice", "?from=2026-01-01T00:00:00%2B01:00&to=4000000000", 2}, {"alice", "?to=1000", 0},
	} {
		if got := page(c.user, c.query); len(got.Events) != c.want {
			t.Errorf("%s %s: %d events, want %d", c.user, c.query, len(got.Events), c.want)
		}
	}
	first := page("alice", "?limit=1")
	if second := page("alice", "?limit=1&cursor="+first.NextCursor); len(second.Events) != 1 || second.Events[0].ID >= first.Events[0].ID || second.NextCursor != "" {
		t.Errorf("pages: %+v, %+v", first, second)
	}
	h.want(401, "", "GET", wire.TimelinePath, "")
	h.want(403, "nobody", "GET", wire.TimelinePath, "")
	h.want(403, "alice", "GET", wire.TimelinePath+"?tenant=globex", "")
	for _, q := range []string{"?kind=mood", "?from=yesterday", "?site=No_Name", "?limit=0", "?cursor=x", "?bogus=1"} {
		h.want(400, "alice", "GET", wire.TimelinePath+q, "")
	}
	none := newHarness(t, func(o *Options, _ *timing) { o.Timeline = nil })
	if a := none.want(503, "alice", "GET", wire.TimelinePath, ""); !strings.Contains(string(a.body), "configured") {
		t.Errorf("%s", a.body)
	}
	gone := newHarness(t, func(o *Options, _ *timing) {
		m := newTimeline(t)
		m.Parts = append(m.Parts, timeline.Part{Role: "control", URL: "http://127.0.0.1:1", Kinds: []string{wire.EventPolicy}})
		o.Timeline = m
	})
	var out wire.TimelinePage
	if err := json.Unmarshal(gone.want(200, "alice", "GET", wire.TimelinePath, "").body, &out); err != nil || len(out.Missing) != 1 || out.Missing[0].Role != "control" || len(out.Events) != 2 {
		t.Errorf("%+v, %v", out, err)
	}
}
