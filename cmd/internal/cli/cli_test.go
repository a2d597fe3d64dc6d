package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

func fakeClient(t *testing.T, objs ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objs...).Build()
}

func TestParseLabelArgs(t *testing.T) {
	set, remove, err := parseLabelArgs([]string{"a=b", "c-", "d=", "e=f-"})
	if err != nil || !cmp.Equal(set, map[string]string{"a": "b", "d": "", "e": "f-"}) || !cmp.Equal(remove, []string{"c"}) {
		t.Errorf("got %v %v %v", set, remove, err)
	}
	for _, bad := range []string{"a", "=b"} {
		if _, _, err := parseLabelArgs([]string{bad}); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

func TestCreateTokenStoresOnlyTheHash(t *testing.T) {
	c := fakeClient(t)
	token, err := CreateToken(context.Background(), c, "acme", "t1", TokenOptions{MaxUses: 3, SiteLabels: map[string]string{"region": "eu"}})
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 4 || parts[0] != "muster1" || parts[1] != "acme" || parts[2] != "t1" || len(parts[3]) != 43 {
		t.Fatalf("token = %q", token)
	}
	var got v1alpha1.RegistrationToken
	if err := c.Get(context.Background(), client.ObjectKey{Namespace: "acme-system", Name: "t1"}, &got); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(parts[3]))
	if got.Spec.SecretHash != hex.EncodeToString(sum[:]) || got.Spec.MaxUses != 3 {
		t.Errorf("stored %+v", got.Spec)
	}
	if _, err := CreateToken(context.Background(), c, "acme", "t1", TokenOptions{}); err == nil || !strings.Contains(err.Error(), "already has a token") {
		t.Errorf("second token of that name: %v", err)
	}
	if _, err := CreateToken(context.Background(), c, "acme", "t2", TokenOptions{SiteLabels: map[string]string{"a b": "x"}}); err == nil {
		t.Error("an impossible label was accepted")
	}
}

func TestPrintJoinSaysWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	if err := printJoin(&out, dir, "", "tok", TokenOptions{}); err == nil || !strings.Contains(err.Error(), "--token-only") {
		t.Errorf("err = %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, JoinHashFile), []byte("sha256:ab\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := printJoin(&out, dir, "gw.example.com:7443", "tok", TokenOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"muster-edge join --server gw.example.com:7443", "--ca-hash sha256:ab", "--token tok", "muster approve"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
}

func tenantObject(name string, namespaces ...string) *v1alpha1.Tenant {
	return &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.TenantStatus{Namespaces: append([]string{"shared", "system"}, namespaces...)}}
}

func TestTenants(t *testing.T) {
	t.Setenv("MUSTER_TENANT", "")
	tenants := func(flag string, names ...string) (string, error) {
		var objs []client.Object
		for _, n := range names {
			objs = append(objs, tenantObject(n))
		}
		got, err := (&Globals{Tenant: flag}).tenants(t.Context(), fakeClient(t, objs...))
		return strings.Join(tenantNames(got), " "), err
	}
	if got, err := tenants("", "acme", "acme-eu"); err != nil || got != "acme acme-eu" {
		t.Errorf("two tenants: %q, %v", got, err)
	}
	if got, err := tenants("acme", "acme", "acme-eu"); err != nil || got != "acme" {
		t.Errorf("one of two: %q, %v", got, err)
	}
	if _, err := tenants(""); err == nil || !strings.Contains(err.Error(), "make one") {
		t.Errorf("no tenant: %v", err)
	}
	if _, err := tenants("typo", "acme"); err == nil || !strings.Contains(err.Error(), "muster get tenants") {
		t.Errorf("no such tenant: %v", err)
	}
	t.Setenv("MUSTER_TENANT", "acme-eu")
	if got, err := tenants("", "acme", "acme-eu"); err != nil || got != "acme-eu" {
		t.Errorf("$MUSTER_TENANT: %q, %v", got, err)
	}
}

// A name is looked for in every tenant of the user, and never under another's.
func TestFind(t *testing.T) {
	site := func(ns, name string) client.Object {
		return &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	}
	vs := func(ns, name string) client.Object {
		return &v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	}
	c := fakeClient(t, site("acme-system", "paris"), site("acme-eu-system", "rome"), site("acme-system", "both"), site("acme-eu-system", "both"),
		vs("acme-shared", "stores"), vs("acme-shop", "stores"), vs("acme-eu-shop", "mine"), vs("acme-eu-shared", "hers"))
	acme, eu := *tenantObject("acme", "shop"), *tenantObject("acme-eu", "shop")
	two := []v1alpha1.Tenant{acme, eu}
	for name, want := range map[string]string{"paris": "acme", "rome": "acme-eu"} {
		if _, got, err := findSite(t.Context(), c, two, name); err != nil || got != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, want := range map[string]string{"both": "acme, acme-eu", "lima": "none of your tenants"} {
		if _, _, err := findSite(t.Context(), c, two, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{"stores": "acme-shared", "shared/stores": "acme-shared", "shop/stores": "acme-shop"} {
		if v, _, err := findVirtualSite(t.Context(), c, []v1alpha1.Tenant{acme}, name); err != nil || v.Namespace != want {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
	for name, want := range map[string]string{"shop/none": "muster get virtualsites", "eu-shop/mine": "no namespace", "eu-shared/hers": "no namespace"} {
		if _, _, err := findVirtualSite(t.Context(), c, []v1alpha1.Tenant{acme}, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConsoleIsThatOfTheDataDirectory(t *testing.T) {
	t.Setenv("MUSTER_CONSOLE", "")
	g := &Globals{DataDir: t.TempDir()}
	if _, err := g.consoleURL(); err == nil || !strings.Contains(err.Error(), "--console") {
		t.Errorf("none known: %v", err)
	}
	if err := os.WriteFile(filepath.Join(g.DataDir, ConsoleFile), []byte("http://127.0.0.1:9999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ env, flag, want string }{{"", "", "http://127.0.0.1:9999"}, {"https://env/", "", "https://env"}, {"https://env", "https://flag", "https://flag"}} {
		t.Setenv("MUSTER_CONSOLE", step.env)
		g.Console = step.flag
		if got, err := g.consoleURL(); err != nil || got != step.want {
			t.Errorf("%+v: %q, %v", step, got, err)
		}
	}
	g.Console = "ftp://x"
	if _, err := g.consoleURL(); err == nil || !strings.Contains(err.Error(), "--console") {
		t.Errorf("ftp: %v", err)
	}
}

func TestUnknownWordsAreRefused(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if !cmd.HasSubCommands() {
			return
		}
		root := &cobra.Command{Use: "muster", SilenceUsage: true, SilenceErrors: true}
		root.AddCommand(Commands(&Globals{DataDir: t.TempDir()})...)
		RefuseUnknown(root)
		root.SetArgs(append(strings.Fields(cmd.CommandPath())[1:], "nosuch"))
		root.SetOut(&bytes.Buffer{})
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "nosuch") {
			t.Errorf("%s nosuch: %v", cmd.CommandPath(), err)
		}
	}
	root := &cobra.Command{Use: "muster", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(Commands(&Globals{})...)
	walk(root)

	RefuseUnknown(root)
	root.SetArgs([]string{"get", "rollouts"})
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "`muster rollout --help`") {
		t.Errorf("get rollouts: %v", err)
	}
}

func TestGetSites(t *testing.T) {
	score := int32(31)
	site := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "paris-07", Namespace: "acme-system", Labels: map[string]string{"region": "eu"}},
		Status: v1alpha1.SiteStatus{Phase: fleet.PhaseOnline, Versions: map[string]string{"agent": "1.2"}, Health: &v1alpha1.SiteHealth{Score: &score, Colour: fleet.Red, Reason: "1 node is not ready"}}}
	c := fakeClient(t, site)
	for output, want := range map[string][]string{
		"table": {"NAME", "paris-07", "Online", "eu", "31", "red"},
		"wide":  {"REASON", "1 node is not ready", "1.2"},
		"json":  {`"name": "paris-07"`}, "yaml": {"name: paris-07"},
	} {
		var out bytes.Buffer
		g := &Globals{Output: output}
		if err := g.get(context.Background(), &out, c, kinds[0], []v1alpha1.Tenant{*tenantObject("acme")}, labels.Everything(), nil, nil); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("-o %s lacks %q:\n%s", output, w, out.String())
			}
		}
	}
	get := func(output, tenants string, names ...string) (string, error) {
		var out bytes.Buffer
		var ts []v1alpha1.Tenant
		for _, n := range strings.Fields(tenants) {
			ts = append(ts, *tenantObject(n))
		}
		err := (&Globals{Output: output}).get(t.Context(), &out, c, kinds[0], ts, labels.Everything(), names, nil)
		return out.String(), err
	}
	for _, x := range []struct {
		names []string
		kind  string
	}{{nil, "List"}, {[]string{"paris-07"}, "Site"}} {
		out, err := get("json", "acme", x.names...)
		var obj struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if json.Unmarshal([]byte(out), &obj) != nil || err != nil || obj.Kind != x.kind || (obj.Metadata.Name == "paris-07") != (x.kind == "Site") {
			t.Errorf("of %q: %s, %v", x.names, out, err)
		}
	}
	if _, err := get("xml", "acme"); err == nil {
		t.Error("-o xml accepted")
	}
	if out, err := get("", "other"); err != nil || !strings.Contains(out, "(none)") {
		t.Errorf("another tenant: %v %q", err, out)
	}
	if out, err := get("", "other acme"); err != nil || !strings.HasPrefix(out, "TENANT") || !strings.Contains(out, "acme     paris-07") {
		t.Errorf("two tenants: %v %q", err, out)
	}
	if out, err := get("", "acme", "paris-07"); err != nil || !strings.Contains(out, "paris-07") {
		t.Errorf("by name: %v %q", err, out)
	}
	if _, err := get("", "acme", "paris-07", "lima"); err == nil || !strings.Contains(err.Error(), `no site "lima"`) {
		t.Errorf("no such name: %v", err)
	}
}
