package alerting

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/alerting/inventory"
	"muster.dev/muster/alerting/routes"
	windows "muster.dev/muster/control/api/maintenance"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/app/config"
	"muster.dev/muster/internal/app/control"
	"muster.dev/muster/internal/fleet"
	realam "muster.dev/muster/internal/testkit/alertmanager"
)

func free(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited 30 s for %s: %v", what, err)
		}
	}
}

// With what it kept on disk the role starts while control is down, finds a regional
// silent, and notifies by the routes that it had: with the embedded Alertmanager, and
// with one that runs elsewhere.
func TestStartsWithoutControl(t *testing.T) {
	for _, external := range []bool{false, true} {
		t.Run(fmt.Sprintf("external=%v", external), func(t *testing.T) { testStartsWithoutControl(t, external) })
	}
}

func testStartsWithoutControl(t *testing.T, external bool) {
	got := make(chan string, 16)
	phone := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var n struct {
			Alerts []struct{ Labels map[string]string }
		}
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
			t.Error(err)
		}
		for _, a := range n.Alerts {
			got <- a.Labels["alertname"] + " " + a.Labels["tenant"] + " " + a.Labels["regional"]
		}
	}))
	defer phone.Close()
	c := config.Default()
	c.DataDir = t.TempDir()
	c.Alerting.OpsListen, c.Alerting.Alertmanager.Listen = free(t), free(t)
	c.Regionals[0].QueryListen = free(t) // nobody
	write(t, control.Kubeconfig(c, "alerting"), `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: u, user: {token: x}}]}`)
	write(t, filepath.Join(c.Path("alerting"), "inventory.json"), `{"sites":[{"id":{"Tenant":"acme","Name":"paris"},"regional":"one","connected":true}],"virtualSites":[]}`)
	write(t, filepath.Join(c.Path("alerting"), "alertmanager.yml"), `{route: {receiver: none, group_wait: 1s, routes: [{matchers: ['tenant="acme"'], receiver: phone}]}, receivers: [{name: none}, {name: phone, webhook_configs: [{url: "`+phone.URL+`"}]}]}`)
	if external {
		file := filepath.Join(c.Path("alerting"), "external", "alertmanager.yml")
		write(t, file, noRoutes)
		c.Alerting.Alertmanager.URLs = []string{realam.Start(t, file)}
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, c) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "readiness", func() error {
		resp, err := http.Get("http://" + c.Alerting.OpsListen + "/-/ready")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	select {
	case name := <-got:
		if name != "RegionalDown acme one" {
			t.Errorf("notified of %s", name)
		}
	case <-time.After(40 * time.Second):
		t.Error("no notification in 40 s")
	}
	eventually(t, "the index of what fires", func() error {
		req, _ := http.NewRequest(http.MethodGet, "http://"+c.Alerting.OpsListen+"/api/v1/alerts/state", nil)
		req.Header.Set("X-Muster-Tenants", "acme")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var s struct {
			Firing struct{ Critical int }
		}
		if err := json.NewDecoder(resp.Body).Decode(&s); err != nil || s.Firing.Critical != 1 {
			return fmt.Errorf("%+v, %v", s, err)
		}
		return nil
	})
}

// Which sites the dead-man takes for planned to be away.
func TestWatchedKnowsMaintenance(t *testing.T) {
	now := time.Date(2026, 3, 1, 2, 30, 0, 0, time.UTC)
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(d)} }
	window := func(d time.Duration) []v1alpha1.MaintenanceWindow {
		return []v1alpha1.MaintenanceWindow{{Name: "w", Start: at(d), Duration: metav1.Duration{Duration: time.Hour}}}
	}
	nightly := []v1alpha1.MaintenanceWindow{{Name: "n", Schedule: "0 2 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
	cases := []struct {
		name string
		site inventory.Site
		want bool
	}{
		{"none", inventory.Site{}, false},
		{"no-end", inventory.Site{Maintenance: &v1alpha1.Maintenance{}}, true},
		{"until-later", inventory.Site{Maintenance: &v1alpha1.Maintenance{Until: at(time.Minute)}}, true},
		{"over", inventory.Site{Maintenance: &v1alpha1.Maintenance{Until: at(0)}}, false},
		{"over-but-open", inventory.Site{Maintenance: &v1alpha1.Maintenance{Until: at(0)}, Windows: window(-time.Minute)}, true},
		{"open", inventory.Site{Windows: window(-time.Minute)}, true},
		{"not-yet", inventory.Site{Windows: window(time.Minute)}, false},
		{"closed", inventory.Site{Windows: window(-time.Hour)}, false},
		{"nightly", inventory.Site{Windows: nightly}, true},
		{"member", inventory.Site{VirtualSites: []string{"shared/all", "shared/stores"}}, true},
		{"member-of-another", inventory.Site{VirtualSites: []string{"shared/all"}}, false},
		{"other-tenant", inventory.Site{ID: fleet.SiteID{Tenant: "rival"}, VirtualSites: []string{"shared/stores"}}, false},
	}
	s := &inventory.Snapshot{VirtualSites: []inventory.VirtualSite{{Tenant: "acme", Name: "shared/stores", Windows: nightly}, {Tenant: "acme", Name: "shared/all", Windows: window(time.Minute)}}}
	for _, c := range cases {
		c.site.ID.Name = c.name
		if c.site.ID.Tenant == "" {
			c.site.ID.Tenant = "acme"
		}
		s.Sites = append(s.Sites, c.site)
	}
	got := watched(s, now)
	for i, c := range cases {
		if got[i].ID.Name != c.name || got[i].Maintenance != c.want {
			t.Errorf("%s: in maintenance %v, want %v", got[i].ID, got[i].Maintenance, c.want)
		}
		// The same as the silences say.
		if _, open := windows.Open(s.WindowsOf(s.Sites[i]), now); open && !got[i].Maintenance {
			t.Errorf("%s: a window is open, and it is not in maintenance", got[i].ID)
		}
	}
}

func TestReceiversAreKeptFromDeniedNetworks(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	for _, c := range []struct {
		deny string
		ok   bool
	}{{"169.254.0.0/16", true}, {"127.0.0.0/8", false}, {"::ffff:127.0.0.0/104", true}} {
		dial, err := dialer([]string{c.deny})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := dial(t.Context(), "tcp", srv.Listener.Addr().String())
		if err == nil {
			_ = conn.Close()
		}
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "denyNetworks") {
			t.Errorf("%s: %v", c.deny, err)
		}
	}
	if _, err := dialer([]string{"10.0.0.0"}); err == nil || !strings.Contains(err.Error(), "denyNetworks[0]") {
		t.Errorf("no network: %v", err)
	}
}

const noRoutes = `{route: {receiver: none}, receivers: [{name: none}]}`

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What an Alertmanager that runs elsewhere says against the merged routes is told, and
// one that is away does not keep the others from reading them.
func TestExternalAlertmanagerRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "external", "alertmanager.yml")
	write(t, file, noRoutes)
	url := realam.Start(t, file)
	running := func() string {
		c, err := amclient.New(amclient.Options{URLs: []string{url}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Config.Original
	}
	reloads := 0
	count := roundTripper(func(r *http.Request) (*http.Response, error) {
		reloads++
		return http.DefaultTransport.RoundTrip(r)
	})
	e := &external{file: file, urls: []string{"http://127.0.0.1:1", url + "/"}, client: &http.Client{Transport: count}, log: slog.New(slog.DiscardHandler), taken: map[string]string{}}
	good := []byte(`{route: {receiver: phone}, receivers: [{name: phone}]}`)
	if err := e.apply(good); err != nil {
		t.Errorf("one of two is away: %v", err)
	}
	if got := running(); !strings.Contains(got, "phone") {
		t.Errorf("the other runs %s", got)
	}
	reloads = 0
	if err := e.apply(good); err != nil || reloads != 1 {
		t.Errorf("the same again: %v, %d asked; want only the one that was away", err, reloads)
	}
	e.urls = e.urls[:1]
	var later *routes.TryLater
	if err := e.apply(good); !errors.As(err, &later) {
		t.Errorf("nobody is there: %v", err)
	}
	e.urls = []string{url + "/"}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: the file holds secrets", info.Mode(), err)
	}
	if err := e.apply([]byte(`{route: {receiver: nobody}, receivers: [{name: phone}]}`)); err == nil || !strings.Contains(err.Error(), "nobody") && !strings.Contains(err.Error(), "reload") {
		t.Errorf("routes that it refuses: %v", err)
	}
	if got := running(); !strings.Contains(got, "receiver: phone") {
		t.Errorf("after refused routes it runs %s", got)
	}
}
