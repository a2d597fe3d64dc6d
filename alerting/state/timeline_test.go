package state

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/timeline"
	"muster.dev/muster/internal/wire"
)

func openTimeline(t *testing.T, file string) *timeline.Store {
	t.Helper()
	s, err := timeline.Open(timeline.Options{File: file, Logger: quiet()})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// stories are a tenant's events as KIND AFTER TEXT, the oldest first.
func stories(t *testing.T, s *timeline.Store, tenant string) []string {
	t.Helper()
	events, _, err := s.Page(t.Context(), timeline.Query{Tenants: []string{tenant}, Limit: 100})
	must(t, err)
	var out []string
	for _, e := range slices.Backward(events) {
		out = append(out, e.Kind+" "+e.Site+" "+e.After+" "+e.Text)
	}
	return out
}

// What begins and ends is told once, also by a role that was away in between.
func TestTimelineOfAlerts(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "timeline.db")
	begun := time.Now().Add(-time.Hour).UTC()
	disk := wire.Alert{Fingerprint: "00000000000000aa", Labels: map[string]string{"alertname": "DiskFull", "tenant": "acme", "site": "paris", "severity": "critical", "virtual_sites": "|shared/eu|"}, StartsAt: begun, Annotations: map[string]string{"summary": "93 % of /var"}}
	other := wire.Alert{Fingerprint: "00000000000000bb", Labels: map[string]string{"alertname": "SiteDown", "tenant": "acme", "site": "rome", "severity": "critical"}, StartsAt: begun.Add(time.Minute)}
	var firing []wire.Alert
	start := func() (*server, *timeline.Store) {
		s := openTimeline(t, file)
		_, c, _ := alertmanager(t, dropAll)
		return serve(t, Options{Source: SourceFunc(func(context.Context) ([]wire.Alert, error) { return firing, nil }), Silences: c, Timeline: s, Settle: -1, File: filepath.Join(dir, "history.db")}), s
	}
	h, s := start()
	firing = []wire.Alert{disk, other}
	h.poll()
	h.poll()
	// Ends and begins again while nobody looks.
	again := disk
	again.StartsAt = begun.Add(30 * time.Minute)
	firing = []wire.Alert{again, other}
	must(t, h.s.Close())
	must(t, s.Close())
	h, s = start()
	h.poll()
	firing = []wire.Alert{again}
	h.poll()
	h.poll()
	got := stories(t, s, "acme")
	want := []string{"alert paris critical DiskFull fires: 93 % of /var", "alert rome critical SiteDown fires", "alert paris critical DiskFull fires: 93 % of /var", "alert paris resolved DiskFull ended after 30m0s", "alert rome resolved SiteDown ended after "}
	slices.Sort(got)
	slices.Sort(want)
	if len(got) != len(want) {
		t.Fatalf("told:\n%s", strings.Join(got, "\n"))
	}
	for i := range got {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("told %q, want %q", got[i], want[i])
		}
	}
	if events, _, err := s.Page(t.Context(), timeline.Query{AllTenants: true, VirtualSites: []string{"shared/eu"}, Limit: 100}); err != nil || len(events) != 3 {
		t.Errorf("of the virtual site: %d events, %v", len(events), err)
	}
}

func TestTimelineOfSilences(t *testing.T) {
	s := openTimeline(t, filepath.Join(t.TempDir(), "timeline.db"))
	m, c, _ := alertmanager(t, dropAll)
	h := serve(t, Options{Source: m, Silences: c, Timeline: s})
	code, body := h.do("acme", "POST", "/api/v1/silences", `{"matchers":[{"name":"site","value":"paris"}],"duration":"2h","comment":"new disk"}`)
	if code != 201 {
		t.Fatalf("%d %s", code, body)
	}
	id := strings.Split(body, `"`)[3]
	if code, body := h.do("acme", "DELETE", "/api/v1/silences/"+id, ""); code != 204 {
		t.Fatalf("%d %s", code, body)
	}
	events, _, err := s.Page(t.Context(), timeline.Query{Tenants: []string{"acme"}, Sites: []string{"paris"}, Limit: 10})
	must(t, err)
	if len(events) != 2 || events[0].After != "ended" || events[1].By == "" || !strings.Contains(events[1].Text, `site="paris" (new disk)`) || strings.Contains(events[1].Text, "tenant") {
		t.Errorf("told: %+v", events)
	}
}
