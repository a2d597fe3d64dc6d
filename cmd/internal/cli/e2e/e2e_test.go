package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/cmd/internal/cli"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/console"
	"muster.dev/muster/cmd/internal/control"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/oidc"
)

// startLimit is how long a role may take until it answers.
const startLimit = 3 * time.Minute

// fleetUnderTest is the real control plane and the real console on one data
// directory, with two tenants, of which one's name begins like the other's. What the
// console passes on ends in a stand-in that notes for which tenants it was asked.
type fleetUnderTest struct {
	dir    string
	issuer *oidc.Issuer
	admin  client.Client

	mu    sync.Mutex
	asked []string // X-Muster-Tenants, of the requests that reached a role behind the console
}

func startFleet(t *testing.T) *fleetUnderTest {
	t.Helper()
	f := &fleetUnderTest{dir: t.TempDir()}
	var err error
	if f.issuer, err = oidc.New(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.issuer.Close)
	ca := filepath.Join(f.dir, "issuer.pem")
	if err := f.issuer.WriteCA(ca); err != nil {
		t.Fatal(err)
	}
	behind := httptest.NewServer(http.HandlerFunc(f.behind))
	t.Cleanup(behind.Close)
	host := strings.TrimPrefix(behind.URL, "http://")

	c := config.Default()
	c.DataDir = f.dir
	c.Log.Level = "error"
	c.InsecureLoopback = true // what plays the roles behind the console has no certificate
	c.Control.Listen, c.Control.FleetListen, c.Control.OpsListen = testkit.FreeAddr(t), testkit.FreeAddr(t), testkit.FreeAddr(t)
	c.Console.Listen, c.Console.OpsListen = testkit.FreeAddr(t), testkit.FreeAddr(t)
	c.Control.Tenants = []string{"acme", "acme-eu"}
	c.OIDC.IssuerURL, c.OIDC.ClientID, c.OIDC.CAFile = f.issuer.URL, oidc.ClientID, ca
	c.Alerting.OpsListen, c.Health.OpsListen, c.Regionals[0].QueryURL = host, host, behind.URL
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	role := func(run func(context.Context, config.Config) error) {
		wg.Go(func() {
			if err := run(ctx, c); err != nil && ctx.Err() == nil {
				t.Errorf("role ended: %v", err)
			}
		})
	}
	role(control.Run)
	testkit.EventuallyWithin(t, "control", startLimit, func() error {
		cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(f.dir, "admin.kubeconfig"))
		if err != nil {
			return err
		}
		scheme := runtime.NewScheme()
		if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
			return err
		}
		if f.admin, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
			return err
		}
		for _, name := range []string{"acme", "acme-eu"} {
			var t v1alpha1.Tenant
			if err := f.admin.Get(ctx, client.ObjectKey{Name: name}, &t); err != nil {
				return err
			}
			if !slices.Contains(t.Status.Namespaces, "shared") || len(t.Status.Conditions) == 0 {
				return fmt.Errorf("%+v", t.Status)
			}
		}
		return nil
	})
	role(console.Run)
	testkit.EventuallyWithin(t, "console", startLimit, func() error {
		resp, err := http.Get("http://" + c.Console.OpsListen + "/-/ready")
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	return f
}

// behind plays the roles behind the console, which has decided on rights already.
func (f *fleetUnderTest) behind(w http.ResponseWriter, r *http.Request) {
	tenants := r.Header.Get("X-Muster-Tenants") + r.Header.Get("X-Muster-Tenant")
	if tenants == "" {
		tenants = r.URL.Query().Get("tenant")
	}
	if r.UserAgent() != "muster-control" { // which asks for its own purposes, of all tenants
		f.mu.Lock()
		f.asked = append(f.asked, tenants)
		f.mu.Unlock()
	}
	alert := map[string]any{"fingerprint": "8a1f6b7c2d3e4f50", "name": "SiteDown", "tenant": "acme", "site": "paris", "state": "active", "startsAt": time.Now(), "labels": map[string]string{}, "annotations": map[string]string{}}
	w.Header().Set("Content-Type", "application/json")
	var body any
	switch {
	case r.URL.Path == "/api/v1/alerts":
		body = map[string]any{"alerts": []any{alert}}
	case r.URL.Path == "/api/v1/timeline":
		body = map[string]any{"events": []any{map[string]any{"id": "1", "time": "2026-03-01T12:00:00Z", "kind": "colour", "tenant": "acme", "text": "green → red"}}}
	case r.URL.Path == "/api/v1/alerts/state":
		body = map[string]any{"asOf": time.Now(), "firing": map[string]int{}}
	case strings.HasPrefix(r.URL.Path, "/api/v1/alerts/"):
		body = alert
	case r.URL.Path == "/api/v1/silences" && r.Method == http.MethodPost:
		w.WriteHeader(http.StatusCreated)
		body = map[string]any{"id": "made"}
	case r.URL.Path == "/api/v1/silences":
		body = map[string]any{"silences": []any{map[string]any{"id": "known", "matchers": []any{}, "state": "active"}}}
	case strings.HasSuffix(r.URL.Path, "/sites/paris/explain"):
		body = map[string]any{"site": "paris", "tenant": "acme"}
	case r.URL.Path == "/api/v1/cost":
		body = map[string]any{"by": "site", "total": 1, "rows": []any{map[string]any{"tenant": "acme", "name": "paris", "use": map[string]any{"series": 300}}}}
	case r.URL.Path == "/api/v1/cost/names":
		body = map[string]any{"tenant": "acme", "site": "paris", "series": 300, "names": []any{map[string]any{"name": "node_load1", "series": 300}}}
	case strings.HasSuffix(r.URL.Path, "/health/try"):
		body = map[string]any{"policy": "default", "sites": 1}
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
		return
	default:
		body = map[string]any{"hits": []any{}}
	}
	_ = json.NewEncoder(w).Encode(body)
}

// kubeconfig is that of a user of the identity provider.
func (f *fleetUnderTest) kubeconfig(t *testing.T, user string, groups ...string) string {
	t.Helper()
	c, err := clientcmd.LoadFromFile(filepath.Join(f.dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := f.issuer.Token(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range c.AuthInfos {
		a.Token = token
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// muster runs a verb as its user types it.
func (f *fleetUnderTest) muster(t *testing.T, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := f.run(t.Context(), &out, kubeconfig, args...)
	if cli.CodeOf(err) == 3 || err != nil && differ.MatchString(err.Error()) {
		err = nil // gate check's "not yet", and what vk8s diff found, which are answers
	}
	return out.String(), err
}

func (f *fleetUnderTest) run(ctx context.Context, out io.Writer, kubeconfig string, args ...string) error {
	return f.runArgs(ctx, out, append(args, "--kubeconfig", kubeconfig))
}

func (f *fleetUnderTest) runArgs(ctx context.Context, out io.Writer, args []string) error {
	root := &cobra.Command{Use: "muster", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(cli.Commands(&cli.Globals{DataDir: f.dir})...)
	cli.RefuseUnknown(root)
	root.SetOut(out)
	root.SetErr(out)
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

func meta(tenant, ns, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: tenant + "-" + ns, Name: name}
}

// differ is what vk8s diff ends with, and by that with 1, as diff does.
var differ = regexp.MustCompile(`^\d+ differences?$`)

// theirs finds names of acme-eu's objects.
var theirs = regexp.MustCompile(`\brom(e|an)`)

// objects of both tenants. Whatever is acme-eu's is named after Rome.
func (f *fleetUnderTest) objects(t *testing.T) {
	t.Helper()
	for _, name := range []string{"acme", "acme-eu"} {
		var tenant v1alpha1.Tenant
		if err := f.admin.Get(t.Context(), client.ObjectKey{Name: name}, &tenant); err != nil {
			t.Fatal(err)
		}
		before := tenant.DeepCopy()
		tenant.Spec.Namespaces = []string{"shop"}
		if err := f.admin.Patch(t.Context(), &tenant, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the namespace is there", func() error {
			if err := f.admin.Get(t.Context(), client.ObjectKey{Name: name}, &tenant); err != nil || !slices.Contains(tenant.Status.Namespaces, "shop") {
				return fmt.Errorf("%v, %v", tenant.Status.Namespaces, err)
			}
			return nil
		})
	}
	hash := strings.Repeat("ab", 32)
	rules := v1alpha1.AlertRulesSpec{Groups: []v1alpha1.RuleGroup{{Name: "g", Rules: []v1alpha1.Rule{{Alert: "A", Expr: "up == 0"}}}}}
	for _, o := range []client.Object{
		&v1alpha1.Site{ObjectMeta: meta("acme", "system", "paris"), Spec: v1alpha1.SiteSpec{Approved: true}},
		&v1alpha1.Site{ObjectMeta: meta("acme", "system", "lyon")},
		&v1alpha1.Site{ObjectMeta: meta("acme", "system", "old"), Spec: v1alpha1.SiteSpec{Approved: true}},
		&v1alpha1.Site{ObjectMeta: meta("acme-eu", "system", "rome")},
		&v1alpha1.Site{ObjectMeta: meta("acme-eu", "system", "paris")},
		&v1alpha1.VirtualSite{ObjectMeta: meta("acme", "shared", "stores")},
		&v1alpha1.VirtualSite{ObjectMeta: meta("acme", "shop", "canary")},
		&v1alpha1.VirtualSite{ObjectMeta: meta("acme-eu", "shared", "roman")},
		&v1alpha1.VirtualSite{ObjectMeta: meta("acme-eu", "shop", "roman-canary")},
		&v1alpha1.RegistrationToken{ObjectMeta: meta("acme", "system", "mine"), Spec: v1alpha1.RegistrationTokenSpec{SecretHash: hash}},
		&v1alpha1.RegistrationToken{ObjectMeta: meta("acme-eu", "system", "roman"), Spec: v1alpha1.RegistrationTokenSpec{SecretHash: hash}},
		&v1alpha1.AlertRules{ObjectMeta: meta("acme", "system", "mine"), Spec: rules},
		&v1alpha1.AlertRules{ObjectMeta: meta("acme-eu", "system", "roman"), Spec: rules},
		&v1alpha1.CollectionPolicy{ObjectMeta: meta("acme-eu", "system", "roman")},
		&v1alpha1.VirtualKubernetes{ObjectMeta: meta("acme", "shop", "vk8s"), Spec: v1alpha1.VirtualKubernetesSpec{DefaultVirtualSite: "shared/stores"}},
		&v1alpha1.VirtualKubernetes{ObjectMeta: meta("acme-eu", "shop", "roman"), Spec: v1alpha1.VirtualKubernetesSpec{DefaultVirtualSite: "shared/roman"}},
		&v1alpha1.Override{ObjectMeta: meta("acme", "shop", "more"), Spec: v1alpha1.OverrideSpec{SiteList: []string{"paris"}, Spec: runtime.RawExtension{Raw: []byte(`{"replicas":7,"template":{"spec":{"containers":[{"name":"a","image":"a:7"}]}}}`)}}},
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"namespace": "acme-shop", "name": "web", "annotations": map[string]any{"ves.io/overrides": "more", "ves.io/workload-flavor": "large"}},
			"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "a"}}, "template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "a"}}, "spec": map[string]any{"containers": []any{map[string]any{"name": "a", "image": "a:1"}}}}}}},
		&corev1.ConfigMap{ObjectMeta: meta("acme", "shop", "mine")},
		&corev1.ConfigMap{ObjectMeta: meta("acme-eu", "shop", "roman")},
	} {
		if err := f.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	f.rollouts(t)
	f.software(t)
	testkit.Eventually(t, "the virtual site has its member", func() error {
		var v v1alpha1.VirtualSite
		if err := f.admin.Get(t.Context(), client.ObjectKey{Namespace: "acme-shop", Name: "canary"}, &v); err != nil || !slices.Contains(v.Status.Members, "paris") {
			return fmt.Errorf("%+v, %v", v.Status, err)
		}
		return nil
	})
}

// rollouts of both tenants, one for each verb that ends or changes it. A freeze of a
// hundred years keeps them where they begin.
func (f *fleetUnderTest) rollouts(t *testing.T) {
	t.Helper()
	make := func(tenant, name string) {
		r := &v1alpha1.Rollout{ObjectMeta: meta(tenant, "shop", name), Spec: v1alpha1.RolloutSpec{
			Changes:     []v1alpha1.RolloutChange{{APIVersion: "v1", Kind: "ConfigMap", Name: name, Content: &runtime.RawExtension{Raw: []byte(`{"data":{"currency":"EUR"}}`)}}},
			RolloutPlan: v1alpha1.RolloutPlan{Freezes: []v1alpha1.RolloutFreeze{{From: "2020-01-01", To: "2120-01-01", Reason: "tests"}}}}}
		for _, o := range []client.Object{&corev1.ConfigMap{ObjectMeta: meta(tenant, "shop", name)}, r} {
			if err := f.admin.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, verb := range []string{"read", "pause", "resume", "skip", "abort", "retry"} {
		make("acme", "to-"+verb)
	}
	make("acme-eu", "roman-roll")
	make("acme-eu", "to-read") // the same name, over sites of the same name
}

// rendered is the Deployment web as paris gets it: the spec of its Override, of its flavor.
const rendered = `  replicas: 7
  template:
    spec:
      containers:
      - image: a:7
        name: a
        resources:
          limits:
            cpu: "1"
            memory: 1Gi
          requests:
            cpu: 500m
            memory: 512Mi
`

// verbs is what is run of each command, as its user would type it. want is part of the
// answer. write: a viewer is refused. elsewhere: what is typed of the other tenant,
// and refused; none for what reads nothing of a tenant.
var verbs = map[string]struct {
	args, want string
	write      bool
	elsewhere  string
}{
	"muster get sites":         {"get sites", "paris", false, "get sites -T acme-eu"},
	"muster get virtualsites":  {"get virtualsites", "shop/canary", false, "get virtualsites -T acme-eu"},
	"muster get virtualhosts":  {"get virtualhosts", "(none)", false, "get virtualhosts -T acme-eu"},
	"muster get tokens":        {"get tokens", "mine", false, "get tokens -T acme-eu"},
	"muster get policies":      {"get policies", "HealthPolicy", false, "get policies -T acme-eu"},
	"muster get software":      {"get software", "(none)", false, "get software -T acme-eu"},
	"muster get rules":         {"get rules", "mine", false, "get rules -T acme-eu"},
	"muster get routes":        {"get routes", "(none)", false, "get routes -T acme-eu"},
	"muster get tenants":       {"get tenants", "acme", false, "get tenants acme-eu"},
	"muster describe site":     {"describe site paris", "Edits of its policies:", false, "describe site rome -T acme-eu"},
	"muster describe tenant":   {"describe tenant", "shop", false, "describe tenant acme-eu"},
	"muster approve":           {"approve lyon", "lyon approved", true, "approve rome -T acme-eu"},
	"muster token create":      {"token create --name fresh --token-only", "muster1.acme.fresh.", true, "token create -T acme-eu --token-only"},
	"muster token revoke":      {"token revoke mine", "mine revoked", true, "token revoke roman -T acme-eu"},
	"muster site label":        {"site label paris model=x", "paris labelled", true, "site label rome a=b -T acme-eu"},
	"muster site maintenance":  {"site maintenance paris --reason disks", "in maintenance", true, "site maintenance rome --reason x -T acme-eu"},
	"muster site plan":         {"site plan paris disks --reason disks --start 2031-01-31T22:00:00Z", "is planned", true, "site plan rome -T acme-eu"},
	"muster site manifest":     {}, // renders alone
	"muster site reset":        {"site reset paris --yes --expires 1m", "paris is asked to reset itself", true, "site reset rome --yes -T acme-eu"},
	"muster site decommission": {"site decommission old --yes", "old is decommissioned", true, "site decommission rome --yes -T acme-eu"},
	"muster virtualsite plan":  {"virtualsite plan shop/canary disks --reason disks --start 2031-01-31T22:00:00Z", "is planned", true, "virtualsite plan roman -T acme-eu"},
	"muster logs":              {"logs", "", false, "logs -T acme-eu"},
	"muster alerts":            {"alerts", "SiteDown", false, "alerts -T acme-eu"},
	"muster timeline":          {"timeline", "green", false, "timeline -T acme-eu"},
	"muster alerts show":       {"alerts show 8a1f6b7c2d3e4f50", "SiteDown", false, "alerts show 8a1f6b7c2d3e4f50 -T acme-eu"},
	"muster alerts state":      {"alerts state", "CRITICAL", false, "alerts state -T acme-eu"},
	"muster silence add":       {"silence add alertname=SiteDown -c disks", "made", true, "silence add alertname=SiteDown -c x -T acme-eu"},
	"muster silence list":      {"silence list", "known", false, "silence list -T acme-eu"},
	"muster silence expire":    {"silence expire known", "known ended", true, "silence expire known -T acme-eu"},
	"muster health explain":    {"health explain paris", "paris, policy", false, "health explain rome -T acme-eu"},
	"muster health test":       {}, // reads files alone
	"muster health try":        {"health try -f ../../../../health/defaults/healthpolicy.yaml", "0 of 1 sites", false, "health try -f ../../../../health/defaults/healthpolicy.yaml -T acme-eu"},
	"muster cost":              {"cost", "paris   acme", false, "cost -T acme-eu"},
	"muster cost names":        {"cost names paris", "node_load1", false, "cost names rome -T acme-eu"},
	"muster vk8s render":       {"vk8s render shop/vk8s deployment/web --site paris", rendered, false, "vk8s render shop/roman cm/roman --site rome -T acme-eu"},
	"muster vk8s kubeconfig":   {"vk8s kubeconfig shop/vk8s", "/api/vK8s/namespaces/acme-shop/vk8s", false, "vk8s kubeconfig shop/roman -T acme-eu"},
	"muster vk8s status":       {"vk8s status shop/vk8s cm/mine", "paris", false, "vk8s status shop/roman cm/roman -T acme-eu"},
	"muster vk8s diff":         {"vk8s diff shop/vk8s", "not connected, and told of by what they said last: lyon, paris", false, "vk8s diff shop/roman -T acme-eu"},
	"muster rollout start":     {"rollout start shop cm/mine --file testdata/configmap.yaml --virtual-site shared/stores", "started", true, "rollout start shop cm/roman --file testdata/configmap.yaml -T acme-eu"},
	"muster rollout list":      {"rollout list", "shop/to-read", false, "rollout list -T acme-eu"},
	"muster rollout status":    {"rollout status shop/to-read", "ConfigMap/to-read", false, "rollout status shop/roman-roll -T acme-eu"},
	"muster rollout explain":   {"rollout explain to-read", "muster rollout abort", false, "rollout explain roman-roll -T acme-eu"},
	"muster rollout history":   {"rollout history shop cm/to-read", "shop/to-read", false, "rollout history shop cm/roman-roll -T acme-eu"},
	"muster rollout pause":     {"rollout pause shop/to-pause", "is paused", true, "rollout pause shop/roman-roll -T acme-eu"},
	"muster rollout resume":    {"rollout resume shop/to-resume", "goes on", true, "rollout resume shop/roman-roll -T acme-eu"},
	"muster rollout promote":   {"rollout promote shop/to-skip", "lets waves up to 1 pass", true, "rollout promote shop/roman-roll -T acme-eu"},
	"muster rollout retry":     {"rollout retry shop/to-retry --site paris", "tries 1 site again", true, "rollout retry shop/roman-roll --site rome -T acme-eu"},
	"muster rollout abort":     {"rollout abort shop/to-abort --yes", "is put back", true, "rollout abort shop/roman-roll --yes -T acme-eu"},
	"muster software init":     {}, // these three sign files alone; TestSoftwareRepository in the package above
	"muster software rotate":   {},
	"muster software renew":    {},
	"muster software add":      {"software add agent 1.4.2 --file testdata/configmap.yaml", "softwareversion/agent-1.4.2 is there for tenant acme", true, "software add agent 1.4.2 --file testdata/configmap.yaml -T acme-eu"},
	"muster software list":     {"software list -o wide", "first", false, "software list -T acme-eu"},
	"muster software status":   {"software status paris", "reports no software", false, "software status rome -T acme-eu"},
	"muster software withdraw": {"software withdraw os 1.0.0 --reason leaks", "os 1.0.0 of tenant acme is withdrawn", true, "software withdraw os 1.0.0 --reason x -T acme-eu"},
	"muster gate check":        {"gate check --virtual-site shared/stores --gate unhealthy:5", "offline", true, "gate check --virtual-site shared/roman -T acme-eu"},
	"muster context list":      {"context list", "CURRENT", false, ""},
	"muster context use":       {}, // change a file of the user's own; TestContexts in the package above
	"muster context set":       {},
	"muster login":             {}, // does not ask the API server as the user; dashboards/console/e2e logs in
	"muster logout":            {},
	"muster credential":        {},
	"muster kubeconfig":        {"kubeconfig", "clusters:", false, ""},

	"muster rules import elastalert": {}, // reads files alone; TestImportElastAlert in the package above
}

func leaves(cmd *cobra.Command) []string {
	var out []string
	if cmd.Runnable() {
		out = append(out, cmd.CommandPath())
	}
	for _, sub := range cmd.Commands() {
		out = append(out, leaves(sub)...)
	}
	return out
}

func TestEveryVerbHasACase(t *testing.T) {
	root := &cobra.Command{Use: "muster"}
	root.AddCommand(cli.Commands(&cli.Globals{})...)
	all := leaves(root)
	for _, path := range all {
		if _, ok := verbs[path]; !ok {
			t.Errorf("%s is not tried as an ordinary user of a tenant: add it to verbs", path)
		}
	}
	for path := range verbs {
		if !slices.Contains(all, path) {
			t.Errorf("%s: there is no such verb", path)
		}
	}
}

// Whoever has a role in one tenant does with every verb what the role allows, without
// naming the tenant, and neither sees nor changes a tenant whose name begins alike.
func TestVerbsAsATenantsUser(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("MUSTER_CONSOLE", "")
	t.Setenv("MUSTER_TENANT", "")
	f := startFleet(t)
	f.objects(t)
	admin := f.kubeconfig(t, "alice", fleet.TenantGroup("acme", fleet.TenantAdmin))
	viewer := f.kubeconfig(t, "bob", fleet.TenantGroup("acme", fleet.TenantViewer))
	stranger := f.kubeconfig(t, "eve", "system:masters")
	root := filepath.Join(f.dir, "admin.kubeconfig")
	testkit.Eventually(t, "the roles are bound", func() error {
		_, err := f.muster(t, admin, "get", "virtualsites")
		return err
	})

	refused := func(who, kubeconfig, args string) {
		t.Helper()
		out, err := f.muster(t, kubeconfig, strings.Fields(args)...)
		if err == nil {
			t.Errorf("%s as %s was not refused: %s", args, who, out)
			return
		}
		if !strings.ContainsAny(err.Error(), ";:") || theirs.MatchString(out) {
			t.Errorf("%s as %s: %q, %v: wants an error with the way out, and nothing of the other tenant", args, who, out, err)
		}
	}
	paths := make([]string, 0, len(verbs))
	for path := range verbs {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		v := verbs[path]
		if v.args == "" {
			continue
		}
		if v.elsewhere != "" {
			refused("acme's administrator", admin, v.elsewhere)
			refused("a stranger", stranger, v.args)
		}
		if v.write {
			refused("acme's viewer", viewer, v.args)
		} else if out, err := f.muster(t, viewer, strings.Fields(v.args)...); err != nil || !strings.Contains(out, v.want) {
			t.Errorf("%s as acme's viewer: %q, %v", v.args, out, err)
		}
		out, err := f.muster(t, admin, strings.Fields(v.args)...)
		if err != nil || !strings.Contains(out, v.want) || theirs.MatchString(out) {
			t.Errorf("%s as acme's administrator: %q, %v; want %q and nothing of acme-eu", v.args, out, err, v.want)
		}
	}
	f.mu.Lock()
	for _, tenants := range f.asked {
		if tenants != "acme" {
			t.Errorf("a role behind the console was asked for %q", tenants)
		}
	}
	f.mu.Unlock()

	var resumed v1alpha1.Rollout // also one that paused by itself goes on
	if err := f.admin.Get(t.Context(), client.ObjectKey{Namespace: "acme-shop", Name: "to-resume"}, &resumed); err != nil || resumed.Spec.Control.Resume != 1 {
		t.Errorf("rollout resume: %+v, %v", resumed.Spec.Control, err)
	}
	f.dryRuns(t, admin)
	f.rolloutsByConsole(t, admin, viewer)
	f.watches(t, viewer)
	f.completes(t, viewer, stranger)

	// An operator has both tenants, and the documented commands go on working.
	for args, want := range map[string]string{
		"get sites": "acme-eu   rome", "get virtualsites": "roman", "get tenants": "acme-eu", "site label lyon a=b": "lyon labelled", "get site rome": "rome", "describe site rome": "rome",
		"alerts": "SiteDown", "logs -T acme": "", "silence list": "known", "get sites rome -o name": "rome\n", "get sites rome --no-headers": "acme-eu   rome",
	} {
		if out, err := f.muster(t, root, strings.Fields(args)...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s as the operator: %q, %v", args, out, err)
		}
	}
	for args, want := range map[string]string{
		"site label paris a=b": "--tenant", "token create": "--tenant", "get sites -T typo": `no tenant "typo"`, "get site nosuch": "muster get sites", "get nosuch": `"nosuch"`, "describe tenant typo": "muster get tenants",
		"silence add alertname=X -c y": "tenant", "logs": "acme, acme-eu", "software withdraw os 1.0.0 --reason x": "--all-tenants",
	} {
		if out, err := f.muster(t, root, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s as the operator: %q, %v; want %q", args, out, err, want)
		}
	}
	if out, err := f.muster(t, root, "get", "virtualsites", "-T", "acme"); err != nil || strings.Contains(out, "roman") {
		t.Errorf("acme's virtual sites: %q, %v", out, err)
	}
	if _, err := os.Stat(filepath.Join(f.dir, cli.ConsoleFile)); err != nil {
		t.Error(err)
	}
}
