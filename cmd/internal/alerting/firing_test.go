package alerting

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/health"
	"muster.dev/muster/health/engine"
	"muster.dev/muster/health/sites"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/peers"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

// fleetView is what health knows of a fleet of one site.
type fleetView struct{ view *engine.View }

func (v fleetView) View() *engine.View { return v.view }

// An alert that a regional raises stands at its site in the table that health answers the
// console with: three roles, each with its own certificate, behind the listeners and rules
// that the table of roles has for them.
func TestHealthReadsWhatFires(t *testing.T) {
	c := config.Default()
	c.DataDir = t.TempDir()
	c.Alerting.OpsListen, c.Alerting.Alertmanager.Listen = testkit.FreeAddr(t), testkit.FreeAddr(t)
	c.Regionals[0].QueryListen = testkit.FreeAddr(t) // nobody
	runRole(t, c)
	ca, err := pki.Open(pki.Options{Dir: filepath.Join(c.DataDir, "pki"), TrustDomain: c.TrustDomain})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.EnsureRegional(c.Identity("regional-one"), "one", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ca.EnsureRole(c.Identity("health"), "health", nil); err != nil {
		t.Fatal(err)
	}
	healthSrv := httptest.NewUnstartedServer(nil)
	c.Health.OpsListen = healthSrv.Listener.Addr().String()
	as := func(instance string) *peers.Peers {
		t.Helper()
		p, err := c.OpenPeers(instance)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}

	site := &inventory.Site{ID: fleet.SiteID{Tenant: "acme", Name: "paris"}, Phase: fleet.PhaseOnline}
	view := &engine.View{Version: 1, AsOf: time.Now(), Snapshot: inventory.NewSnapshot(1, []*inventory.Site{site}, nil, nil),
		Sites: []*engine.Site{{Site: site, State: &health.State{Colour: fleet.Green}, Phase: site.Phase}}}
	alerting, err := url.Parse(c.AlertingURL())
	if err != nil {
		t.Fatal(err)
	}
	table, err := sites.New(sites.Options{Source: fleetView{view}, Logger: slog.New(slog.DiscardHandler), Firing: sites.FiringFrom(as("health").Client(), alerting)})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	table.Register(mux)
	healthSrv.Config.Handler = mux
	as("health").Listener(config.OpsRules("health")).Secure(healthSrv.Config, slog.New(slog.DiscardHandler))
	healthSrv.TLS = healthSrv.Config.TLSConfig
	healthSrv.StartTLS()
	defer healthSrv.Close()

	regional, err := amclient.New(amclient.Options{URLs: c.AlertmanagerURLs(), Client: as("regional-one").Client()})
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"alertname": "DiskFull", "tenant": "acme", "site": "paris", "severity": "critical"}
	if err := regional.PostAlerts(t.Context(), []wire.Alert{{Labels: labels, StartsAt: time.Now(), EndsAt: time.Now().Add(time.Hour)}}); err != nil {
		t.Fatal(err)
	}
	console := as("console").Client()
	ask := peers.Question{URL: c.HealthURL() + wire.SitesPath, Query: url.Values{"tenant": {"acme"}, "columns": {"alert"}}, Tenants: "acme", Max: 1 << 20}
	testkit.Eventually(t, "the alert at its site", func() error {
		b, err := ask.Get(t.Context(), console)
		if err != nil {
			return err
		}
		var page wire.SitePage
		if err := json.Unmarshal(b, &page); err != nil {
			return err
		}
		if len(page.Sites) != 1 || !strings.Contains(fmt.Sprint(page.Sites[0]["alert"]), "DiskFull") || len(page.Notes) > 0 {
			return fmt.Errorf("%s", b)
		}
		return nil
	})
}
