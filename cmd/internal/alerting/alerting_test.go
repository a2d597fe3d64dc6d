package alerting

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/control"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit"
	realam "muster.dev/muster/internal/testkit/alertmanager"
)

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// runRole runs the role beside a site that no regional tells of, and without control,
// until it is ready. It returns the console's client.
func runRole(t *testing.T, c config.Config) *http.Client {
	t.Helper()
	ca, err := pki.Open(pki.Options{Dir: filepath.Join(c.DataDir, "pki"), TrustDomain: c.TrustDomain})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"alerting", "console"} {
		if _, err := ca.EnsureRole(c.Identity(name), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	known, err := c.OpenPeers("console")
	if err != nil {
		t.Fatal(err)
	}
	console := known.Client()
	t.Cleanup(console.CloseIdleConnections)
	write(t, control.Kubeconfig(c, "alerting"), `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: u, user: {token: x}}]}`)
	write(t, filepath.Join(c.Path("alerting"), "inventory.json"), `{"format":1,"namespaces":{"acme-system":"acme"},
"sites":[{"metadata":{"namespace":"acme-system","name":"paris","labels":{}},"spec":{"approved":true},"status":{"regional":"one","lastSeen":"2026-01-01T00:00:00Z"}}]}`)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, c) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, "readiness", func() error {
		resp, err := console.Get(c.AlertingURL() + "/-/ready")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	return console
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
	c.Alerting.OpsListen, c.Alerting.Alertmanager.Listen = testkit.FreeAddr(t), testkit.FreeAddr(t)
	c.Regionals[0].QueryListen = testkit.FreeAddr(t) // nobody
	c.Alerting.Alertmanager.AllowNetworks = []string{phone.Listener.Addr().String()}
	write(t, filepath.Join(c.Path("alerting"), "alertmanager.yml"), `{route: {receiver: none, group_wait: 1s, routes: [{matchers: ['tenant="acme"'], receiver: phone}]}, receivers: [{name: none}, {name: phone, webhook_configs: [{url: "`+phone.URL+`"}]}]}`)
	if external {
		file := filepath.Join(c.Path("alerting"), "external", "alertmanager.yml")
		write(t, file, noRoutes)
		c.Alerting.Alertmanager.URLs = []string{realam.Start(t, file)}
	}

	console := runRole(t, c)
	select {
	case name := <-got:
		if name != "RegionalDown acme one" {
			t.Errorf("notified of %s", name)
		}
	case <-time.After(40 * time.Second):
		t.Error("no notification in 40 s")
	}
	testkit.Eventually(t, "the index of what fires", func() error {
		req, _ := http.NewRequest(http.MethodGet, c.AlertingURL()+"/api/v1/alerts/state", nil)
		req.Header.Set("X-Muster-Tenants", "acme")
		resp, err := console.Do(req)
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
		{"no-end", inventory.Site{ByHand: &v1alpha1.Maintenance{}}, true},
		{"until-later", inventory.Site{ByHand: &v1alpha1.Maintenance{Until: at(time.Minute)}}, true},
		{"over", inventory.Site{ByHand: &v1alpha1.Maintenance{Until: at(0)}}, false},
		{"over-but-open", inventory.Site{ByHand: &v1alpha1.Maintenance{Until: at(0)}, Windows: window(-time.Minute)}, true},
		{"open", inventory.Site{Windows: window(-time.Minute)}, true},
		{"not-yet", inventory.Site{Windows: window(time.Minute)}, false},
		{"closed", inventory.Site{Windows: window(-time.Hour)}, false},
		{"nightly", inventory.Site{Windows: nightly}, true},
		{"member", inventory.Site{VirtualSites: []string{"shared/all", "shared/stores"}}, true},
		{"member-of-another", inventory.Site{VirtualSites: []string{"shared/all"}}, false},
		{"other-tenant", inventory.Site{ID: fleet.SiteID{Tenant: "rival"}, VirtualSites: []string{"shared/stores"}}, false},
	}
	var sites []*inventory.Site
	for _, c := range cases {
		site := c.site
		site.ID.Name = c.name
		if site.ID.Tenant == "" {
			site.ID.Tenant = "acme"
		}
		sites = append(sites, &site)
	}
	sites = append(sites, &inventory.Site{ID: fleet.SiteID{Tenant: "acme", Name: "pending"}, Phase: fleet.PhasePending})
	got := map[string]bool{}
	for _, s := range watched(inventory.NewSnapshot(1, sites, []*inventory.VirtualSite{{Tenant: "acme", Namespace: "shared", Name: "stores", Windows: nightly}, {Tenant: "acme", Namespace: "shared", Name: "all", Windows: window(time.Minute)}}, nil), now) {
		got[s.ID.Name] = s.Maintenance
	}
	for _, c := range cases {
		if in, ok := got[c.name]; !ok || in != c.want {
			t.Errorf("%s: in maintenance %v, want %v", c.name, in, c.want)
		}
	}
	if len(got) != len(cases) {
		t.Errorf("%d sites are watched, want %d: one that is pending can't be silent", len(got), len(cases))
	}
}

// What a tenant names reaches neither this machine nor Muster's own listeners: not
// written out, not by a redirect, as a proxy, or as a mail server. The tenants' own
// phone beside them, which the configuration allows, rings.
func TestTenantsReachNothingOfOurs(t *testing.T) {
	t.Setenv("AWS_CA_BUNDLE", "") // or the notifier for SNS ends before it dials
	var mu sync.Mutex
	hits := map[string]int{}
	serve := func(name, redirect string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			hits[name]++
			mu.Unlock()
			if redirect != "" {
				http.Redirect(w, r, redirect, http.StatusTemporaryRedirect)
			}
		}))
		t.Cleanup(s.Close)
		return s
	}
	cortex := serve("cortex", "")
	neighbour := serve("neighbour", "") // somebody's, on this machine
	phone := serve("phone", "")
	redirect := serve("redirect", cortex.URL+"/ingester/shutdown")
	mailer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mailer.Close()
	go func() {
		for {
			conn, err := mailer.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			hits["mail"]++
			mu.Unlock()
			_ = conn.Close()
		}
	}()

	c := config.Default()
	c.DataDir = t.TempDir()
	c.Alerting.OpsListen, c.Alerting.Alertmanager.Listen, c.Alerting.SiteDownFor = testkit.FreeAddr(t), testkit.FreeAddr(t), 0
	c.Regionals[0].QueryListen = testkit.FreeAddr(t) // nobody, so an alert fires
	c.Aggregator.Cortex.Listen = cortex.Listener.Addr().String()
	addr := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	c.Alerting.Alertmanager.AllowNetworks = []string{addr(phone), addr(redirect), addr(cortex)} // allowed or not, Cortex is ours
	_, port, _ := net.SplitHostPort(addr(cortex))
	_, mailPort, _ := net.SplitHostPort(mailer.Addr().String())
	receivers := []string{
		`webhook_configs: [{url: "` + cortex.URL + `/ingester/shutdown"}]`,
		`webhook_configs: [{url: "http://localhost:` + port + `/ingester/shutdown"}]`,
		`webhook_configs: [{url: "http://[::ffff:127.0.0.1]:` + port + `/ingester/shutdown"}]`,
		`webhook_configs: [{url: "http://0.0.0.0:` + port + `/ingester/shutdown"}]`,
		`webhook_configs: [{url: "` + redirect.URL + `"}]`,
		`webhook_configs: [{url: "` + neighbour.URL + `"}]`,
		`webhook_configs: [{url: "http://example.com/", http_config: {proxy_url: "` + neighbour.URL + `"}}]`,
		`slack_configs: [{api_url: "` + neighbour.URL + `", channel: x}]`,
		`pagerduty_configs: [{url: "` + neighbour.URL + `", routing_key: x}]`,
		`opsgenie_configs: [{api_url: "` + neighbour.URL + `", api_key: x}]`,
		`telegram_configs: [{api_url: "` + neighbour.URL + `", bot_token: x, chat_id: 1}]`,
		`sns_configs: [{api_url: "` + neighbour.URL + `", topic_arn: "arn:aws:sns:eu-west-1:1:x", sigv4: {region: eu-west-1, access_key: a, secret_key: b}}]`,
		`email_configs: [{to: a@b.example, from: c@d.example, require_tls: false, smarthost: "127.0.0.1:` + mailPort + `"}]`,
		`email_configs: [{to: a@b.example, from: c@d.example, force_implicit_tls: true, smarthost: "localhost:` + mailPort + `"}]`,
	}
	routes, list := "", ""
	for i, r := range receivers {
		routes += fmt.Sprintf("{receiver: r%d, continue: true}, ", i)
		list += fmt.Sprintf("{name: r%d, %s}, ", i, r)
	}
	write(t, filepath.Join(c.Path("alerting"), "alertmanager.yml"), `{route: {receiver: none, group_wait: 10ms, routes: [`+routes+`{receiver: phone}]}, receivers: [{name: none}, `+list+`{name: phone, webhook_configs: [{url: "`+phone.URL+`"}]}]}`)
	console := runRole(t, c)
	testkit.Eventually(t, "every refusal", func() error {
		resp, err := console.Get(c.AlertingURL() + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if !strings.Contains(string(b), "\nmuster_egress_refused_total ") {
			return errors.New("no count of refusals")
		}
		mu.Lock()
		defer mu.Unlock()
		for _, l := range strings.Split(string(b), "\n") {
			n, is := strings.CutPrefix(l, "muster_egress_refused_total ")
			if count, bad := strconv.ParseFloat(n, 64); is && (bad != nil || count < float64(len(receivers))) {
				return fmt.Errorf("%s refusals of %d, and reached were %v", n, len(receivers), hits)
			}
		}
		if hits["phone"] == 0 || hits["redirect"] == 0 {
			return fmt.Errorf("%v", hits)
		}
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	if hits["cortex"]+hits["neighbour"]+hits["mail"] > 0 {
		t.Errorf("reached: %v", hits)
	}
}

const noRoutes = `{route: {receiver: none}, receivers: [{name: none}]}`
