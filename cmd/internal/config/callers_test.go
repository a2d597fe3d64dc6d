package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/aggregator/cost"
	"muster.dev/muster/alerting/state"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/control/software/repository"
	"muster.dev/muster/health/api"
	"muster.dev/muster/health/sites"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/peers"
	"muster.dev/muster/internal/timeline"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/engine"
	"muster.dev/muster/regional/logs/query"
)

// mounts are what roles mount on their ops listeners, beside what obs.Ops has.
var mounts = map[string]func(t *testing.T, mux *obs.Mux){
	"health": func(_ *testing.T, mux *obs.Mux) {
		(&timeline.Store{}).Register(mux)
		(&api.Server{}).Register(mux)
		(&sites.Server{}).Register(mux)
		(&cost.Server{}).Register(mux)
	},
	"control": func(t *testing.T, mux *obs.Mux) {
		none, err := repository.Open(t.Context(), repository.Options{})
		if err != nil {
			t.Fatal(err)
		}
		none.Register(mux)
		(&timeline.Store{}).Register(mux)
		mux.Handle("GET "+config.BackupPath, http.NotFoundHandler())
	},
	"alerting": func(_ *testing.T, mux *obs.Mux) {
		(&state.State{}).Register(mux)
		(&timeline.Store{}).Register(mux)
	},
	"regional": func(t *testing.T, mux *obs.Mux) {
		for _, name := range []string{engine.Edge, engine.Local} {
			e, err := engine.New(engine.Options{Name: name, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close() })
			e.Register(mux, prometheus.NewRegistry())
		}
		(&query.API{}).Register(mux)
		mux.Handle("GET "+wire.LivePath, http.NotFoundHandler())
		mux.Handle("GET "+wire.CostPath, http.NotFoundHandler())
		mux.Handle("GET "+wire.CostNamesPath, http.NotFoundHandler())
	},
}

// Every route of every role has callers, who are roles or people that there are, and no
// rule is about a route that is no more.
func TestEveryRouteHasItsCallers(t *testing.T) {
	names := append([]string{peers.Anyone}, config.People...)
	for _, r := range config.Roles {
		names = append(names, r.Name)
	}
	c := config.Default()
	for _, role := range config.Roles {
		rules := config.OpsRules(role.Name)
		ops := obs.NewOps(role.Name, prometheus.NewRegistry())
		if mount := mounts[role.Name]; mount != nil {
			mount(t, ops.Mux())
		} else if len(role.Callers) > 0 {
			t.Errorf("%s has callers: say in this test what it mounts", role.Name)
		}
		if err := peers.Plain().Listener(rules).Covers(ops.Mux().Patterns()); err != nil {
			t.Errorf("%s: %v", role.Name, err)
		}
		for _, r := range rules {
			for _, caller := range r.Callers {
				if !slices.Contains(names, caller) {
					t.Errorf("%s: %s may be called by %q, who is no role", role.Name, r.Pattern, caller)
				}
			}
			if slices.Contains(r.Callers, peers.Anyone) && !slices.Contains([]string{"/metrics", "/-/ready", "/-/healthy"}, r.Pattern) {
				t.Errorf("%s: anybody may call %s", role.Name, r.Pattern)
			}
			below := func(pattern string) bool {
				return strings.HasSuffix(r.Pattern, "/") && strings.HasPrefix(pattern[strings.IndexByte(pattern, '/'):], r.Pattern)
			}
			if _, found := ops.Mux().Handler(httptest.NewRequest(http.MethodGet, r.Pattern, nil)); found == "" && !slices.ContainsFunc(ops.Mux().Patterns(), below) {
				t.Errorf("%s: a rule for %s, where nothing is", role.Name, r.Pattern)
			}
		}
		if len(role.Instances(&c)) == 0 {
			t.Errorf("%s has no instance in the default configuration", role.Name)
		}
	}
}

// What each other role, a site's or another fleet's certificate, or none, reaches at each
// listener: exactly what the table says.
func TestAttackEveryListener(t *testing.T) {
	c := config.Default()
	c.DataDir = t.TempDir()
	ca, err := pki.Open(pki.Options{Dir: filepath.Join(c.DataDir, "pki"), TrustDomain: c.TrustDomain})
	if err != nil {
		t.Fatal(err)
	}
	ensure := func(role, instance, regional string) {
		t.Helper()
		var err error
		switch {
		case role == "control":
			_, err = ca.EnsureControl(c.Identity(instance), nil)
		case regional != "":
			_, err = ca.EnsureRegional(c.Identity(instance), regional, nil)
		default:
			_, err = ca.EnsureRole(c.Identity(instance), role, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	instances := map[string]string{}
	for _, r := range config.Roles {
		i := r.Instances(&c)[0]
		instances[r.Name] = i.Name
		ensure(r.Name, i.Name, i.Regional)
	}
	for _, p := range config.People {
		instances[p] = p
		ensure(p, p, "")
	}
	// Each listener, behind which everything answers.
	type listener struct {
		name, role string
		rules      []peers.Rule
		at         *string
		srv        *httptest.Server
	}
	listeners := []*listener{
		{name: "cortex", role: "aggregator", rules: config.CortexRules(), at: &c.Aggregator.Cortex.Listen},
		{name: "alertmanager", role: "alerting", rules: config.AlertmanagerRules(&c), at: &c.Alerting.Alertmanager.Listen},
	}
	for _, role := range config.Roles {
		at := map[string]*string{"control": &c.Control.OpsListen, "aggregator": &c.Aggregator.OpsListen, "regional": &c.Regionals[0].QueryListen,
			"alerting": &c.Alerting.OpsListen, "health": &c.Health.OpsListen, "console": &c.Console.OpsListen}[role.Name]
		if at == nil {
			t.Fatalf("where does %s listen?", role.Name)
		}
		listeners = append(listeners, &listener{name: role.Name, role: role.Name, rules: config.OpsRules(role.Name), at: at})
	}
	for _, l := range listeners {
		known, err := c.OpenPeers(instances[l.role])
		if err != nil {
			t.Fatal(err)
		}
		l.srv = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
		known.Listener(l.rules).Secure(l.srv.Config, slog.New(slog.DiscardHandler))
		l.srv.TLS = l.srv.Config.TLSConfig
		l.srv.StartTLS()
		defer l.srv.Close()
		*l.at = l.srv.Listener.Addr().String()
	}
	headers := map[string][]string{wire.TenantHeader: {"console", "control"}, wire.TenantsHeader: {"console", "control", "health"}, wire.UserHeader: {"console"}, wire.HeaderPurpose: {"health"}, wire.OrgHeader: {"console", "control", "health", "regional", config.Reader}}
	for caller, instance := range instances {
		known, err := c.OpenPeers(instance)
		if err != nil {
			t.Fatal(err)
		}
		client := known.Client()
		for _, l := range listeners {
			for _, rule := range l.rules {
				url := "https://" + *l.at + rule.Pattern
				want := http.StatusForbidden
				if slices.Contains(rule.Callers, caller) || slices.Contains(rule.Callers, peers.Anyone) {
					want = http.StatusTeapot
				}
				if got := status(t, client, url, ""); got != want {
					t.Errorf("%s calls %s%s: %d, want %d", caller, l.name, rule.Pattern, got, want)
				}
				if want != http.StatusTeapot || slices.Contains(rule.Callers, peers.Anyone) {
					continue
				}
				for name, who := range headers {
					want := http.StatusForbidden
					if slices.Contains(who, caller) || caller == config.Operator && name != wire.HeaderPurpose {
						want = http.StatusTeapot
					}
					if got := status(t, client, url, name); got != want {
						t.Errorf("%s calls %s%s with %s: %d, want %d", caller, l.name, rule.Pattern, name, got, want)
					}
				}
			}
		}
		client.CloseIdleConnections()
	}
	other, err := pki.Open(pki.Options{Dir: filepath.Join(c.DataDir, "other"), TrustDomain: c.TrustDomain})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.EnsureRole(filepath.Join(c.DataDir, "forged"), config.Operator, nil); err != nil {
		t.Fatal(err)
	}
	forged, err := tls.LoadX509KeyPair(filepath.Join(c.DataDir, "forged", pki.PairFile), filepath.Join(c.DataDir, "forged", pki.PairFile))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := ca.IssueSite(key.Public(), fleet.SiteID{Tenant: "acme", Name: "paris"}, "")
	if err != nil {
		t.Fatal(err)
	}
	for what, stranger := range map[string]struct {
		cert tls.Certificate
		code int
	}{"no certificate": {tls.Certificate{}, 401}, "another CA's operator": {forged, 401}, "a site": {tls.Certificate{Certificate: [][]byte{issued.Leaf.Raw}, PrivateKey: key}, 403}} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &stranger.cert, nil }}}
		for _, l := range listeners {
			for _, rule := range l.rules {
				want := stranger.code
				if slices.Contains(rule.Callers, peers.Anyone) {
					want = http.StatusTeapot
				}
				if got := status(t, &http.Client{Transport: tr}, "https://"+*l.at+rule.Pattern, wire.TenantsHeader); got != want {
					t.Errorf("%s at %s%s: %d, want %d", what, l.name, rule.Pattern, got, want)
				}
			}
		}
		tr.CloseIdleConnections()
	}
}

func status(t *testing.T, c *http.Client, url, header string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != "" {
		req.Header.Set(header, "acme")
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func TestPlainHTTPStaysOnLoopback(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*config.Config)
		want   string
	}{
		"loopback":         {func(c *config.Config) { c.InsecureLoopback = true }, ""},
		"an open listener": {func(c *config.Config) { c.InsecureLoopback, c.Health.OpsListen = true, "0.0.0.0:9103" }, "health.opsListen: 0.0.0.0:9103: insecureLoopback"},
		"all addresses":    {func(c *config.Config) { c.InsecureLoopback, c.Aggregator.Cortex.Listen = true, "[::]:9009" }, "aggregator.cortex.listen: [::]:9009: insecureLoopback"},
		"an open regional": {func(c *config.Config) { c.InsecureLoopback, c.Regionals[0].QueryListen = true, "10.0.0.1:9091" }, "regionals[0].queryListen: 10.0.0.1:9091: insecureLoopback"},
		"another machine":  {func(c *config.Config) { c.InsecureLoopback, c.Regionals[0].QueryURL = true, "http://10.0.0.1:9091" }, "regionals[0].queryURL:"},
		"TLS and not":      {func(c *config.Config) { c.InsecureLoopback, c.Regionals[0].QueryURL = true, "https://127.0.0.1:9091" }, "remove insecureLoopback"},
		"plain by default": {func(c *config.Config) { c.Regionals[0].QueryURL = "http://127.0.0.1:9091" }, "write https://"},
		"plain alerting":   {func(c *config.Config) { c.Alerting.OpsURLs = []string{"https://one:9107", "http://two:9107"} }, "alerting.opsURLs[1]:"},
		"alerting twice":   {func(c *config.Config) { c.Alerting.OpsURLs = []string{"https://one:9107", "https://one:9107/"} }, "alerting.opsURLs[1]:"},
		"no URL":           {func(c *config.Config) { c.Regionals[0].QueryURL = "10.0.0.1:9091" }, "regionals[0].queryURL:"},
		"TLS anywhere": {func(c *config.Config) {
			c.Regionals[0].QueryURL, c.Health.OpsListen = "https://one:9091", "0.0.0.0:9103"
		}, ""},
	} {
		c := config.Default()
		x.change(&c)
		if err := c.Validate(); fmt.Sprint(err) != "<nil>" && x.want == "" || !strings.Contains(fmt.Sprint(err), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}
