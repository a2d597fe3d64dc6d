package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestTenantIsTheOnlyOneOrAsked(t *testing.T) {
	g := &Globals{}
	tenant := func(names ...string) (string, error) {
		var objs []client.Object
		for _, n := range names {
			objs = append(objs, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: n}})
		}
		return g.tenant(context.Background(), fakeClient(t, objs...))
	}
	if got, err := tenant("acme"); err != nil || got != "acme" {
		t.Errorf("one tenant: %q, %v", got, err)
	}
	if _, err := tenant(); err == nil {
		t.Error("no tenant accepted")
	}
	if _, err := tenant("a", "b"); err == nil || !strings.Contains(err.Error(), "--tenant") {
		t.Errorf("two tenants: %v", err)
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
		if err := g.getSites(context.Background(), &out, c, "acme", labels.Everything()); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("-o %s lacks %q:\n%s", output, w, out.String())
			}
		}
	}
	if err := (&Globals{Output: "xml"}).getSites(context.Background(), &bytes.Buffer{}, c, "acme", labels.Everything()); err == nil {
		t.Error("-o xml accepted")
	}
	var out bytes.Buffer
	if err := (&Globals{}).getSites(context.Background(), &out, c, "other", labels.Everything()); err != nil || !strings.Contains(out.String(), "(none)") {
		t.Errorf("another tenant: %v %q", err, out.String())
	}
}
