package happened

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/internal/peers"
	"muster.dev/muster/internal/timeline"
	"muster.dev/muster/internal/wire"
)

// The timeline has what each of several alerting roles sent, and the alerts of both once.
func TestSeveralAlertingRoles(t *testing.T) {
	c := config.Default()
	c.InsecureLoopback = true
	c.Control.OpsListen, c.Health.OpsListen = "127.0.0.1:1", "127.0.0.1:1"
	at := time.Now().Add(-time.Minute)
	for i := range 2 {
		s, err := timeline.Open(timeline.Options{File: filepath.Join(t.TempDir(), "timeline.db"), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		mux := http.NewServeMux()
		s.Register(mux)
		srv := httptest.NewServer(mux)
		t.Cleanup(srv.Close)
		c.Alerting.OpsURLs = append(c.Alerting.OpsURLs, srv.URL+"/")
		if err := s.Add(
			wire.TimelineEvent{Time: at.Add(time.Duration(i) * time.Second), Kind: wire.EventAlert, Tenant: "acme", Site: "paris", Object: "Alert/SiteDown", Link: "/alerts/1?tenant=acme", After: "critical", Text: "SiteDown fires"},
			wire.TimelineEvent{Time: at.Add(time.Duration(i) * time.Second), Kind: wire.EventNotification, Tenant: "acme", Site: "paris", Text: fmt.Sprintf("of role %d", i)},
		); err != nil {
			t.Fatal(err)
		}
	}
	page, p := Merged(&role.Env{Log: slog.New(slog.DiscardHandler)}, c, peers.Plain()).Page(t.Context(), "acme", nil)
	if p != nil {
		t.Fatal(p)
	}
	count := map[string]int{}
	for _, e := range page.Events {
		count[e.Kind]++
	}
	if count[wire.EventAlert] != 1 || count[wire.EventNotification] != 2 || len(page.Missing) != 2 { // control and health
		t.Errorf("%v, missing %+v", count, page.Missing)
	}
}
