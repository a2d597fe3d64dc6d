package control

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/timeline"
	"muster.dev/muster/internal/wire"
)

// What begins after the start is repeated, and who was notified of it: once, and on the site that it
// is about.
func TestAlertsBecomeEvents(t *testing.T) {
	s, err := timeline.Open(timeline.Options{File: filepath.Join(t.TempDir(), "timeline.db"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mux := http.NewServeMux()
	s.Register(mux)
	srv := httptest.NewServer(mux)
	defer srv.Close()
	var told []string
	a := &alertEvents{url: srv.URL, client: srv.Client(), now: time.Now, tell: func(id fleet.SiteID, kind, reason, message string) {
		told = append(told, id.String()+" "+kind+" "+reason+" "+message)
	}}
	add := func(site, kind, after, text string) {
		t.Helper()
		severity := wire.EventCritical
		if after == wire.NotificationSent {
			severity = wire.EventInfo
		}
		if err := s.Add(wire.TimelineEvent{Time: time.Now().Add(-time.Second), Kind: kind, Severity: severity, Tenant: "acme", Site: site, After: after, Text: text}); err != nil {
			t.Fatal(err)
		}
		if err := a.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	add("paris", wire.EventAlert, "critical", "from before")
	add("paris", wire.EventAlert, "critical", "DiskFull fires")
	add("", wire.EventAlert, "critical", "RegionalDown fires")
	add("paris", wire.EventColour, "red", "no alert")
	add("rome", wire.EventAlert, wire.AlertResolved, "DiskFull ended")
	add("paris", wire.EventNotification, wire.NotificationSent, "on-call was notified by email: DiskFull")
	add("paris", wire.EventNotification, wire.NotificationFailed, "on-call could not be notified by email: DiskFull")
	add("", wire.EventNotification, wire.NotificationSent, "of several sites")
	if want := []string{"acme/paris Warning AlertFires DiskFull fires", "acme/rome Normal AlertEnded DiskFull ended",
		"acme/paris Normal Notified on-call was notified by email: DiskFull", "acme/paris Warning NotNotified on-call could not be notified by email: DiskFull"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
