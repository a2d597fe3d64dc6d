package login

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"muster.dev/muster/control/apiserver"
	"muster.dev/muster/dashboards/console"
	"muster.dev/muster/internal/oidclogin"
	"muster.dev/muster/internal/testkit/dex"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// front is a reverse proxy that ends TLS and asks its consoles in turn. Its address is
// needed before them, for the identity provider.
type front struct {
	srv      *httptest.Server
	consoles []*url.URL
	next     atomic.Int32
}

func newFront(t *testing.T) *front {
	f := &front{}
	f.srv = httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(pr *httputil.ProxyRequest) {
		pr.SetURL(f.consoles[int(f.next.Add(1))%len(f.consoles)])
		pr.SetXForwarded()
	}})
	t.Cleanup(f.srv.Close)
	return f
}

func (f *front) add(t *testing.T, o console.Options) {
	t.Helper()
	c, err := console.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := c.NewServer()
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close(); cancel(); <-done })
	f.consoles = append(f.consoles, &url.URL{Scheme: "http", Host: ln.Addr().String()})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLoginAgainstTheRealAPIServer(t *testing.T) {
	proxy := newFront(t)
	d := dex.Start(t, dex.Options{
		Clients: []dex.Client{{ID: "muster", Secret: "s3cret", Name: "Muster", RedirectURIs: []string{proxy.srv.URL + "/api/v1/session/oidc/callback"}}},
		// mallory's identity provider says that she is one of system:masters, and Muster itself.
		Users: map[string]dex.User{"zoe": {Groups: []string{"acme-ops"}}, "mallory": {Groups: []string{"system:masters", "muster:system", "system:nodes"}}},
	})
	server, err := kubeapi.Run(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler), func(o *apiserver.Options) {
		o.OIDC = apiserver.OIDC{IssuerURL: d.URL, CAFile: d.CAFile, ClientID: "muster", UsernameClaim: "preferred_username", UsernamePrefix: "oidc:", GroupsClaim: "groups", GroupsPrefix: "oidc:"}
	})
	check(t, err)
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	admin := server.Config()
	prepare(t, admin)

	health := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"asOf":null,"total":0,"sites":[]}`)
	}))
	t.Cleanup(health.Close)
	keys := filepath.Join(t.TempDir(), "keys")
	check(t, os.WriteFile(keys, []byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))+"\n"), 0o600))
	external, err := url.Parse(proxy.srv.URL)
	check(t, err)
	healthURL, err := url.Parse(health.URL)
	check(t, err)
	for range 2 {
		proxy.add(t, console.Options{
			RestConfig: admin, HealthURL: healthURL, SessionKeyFile: keys, ExternalURL: external, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			OIDC: &oidclogin.Options{IssuerURL: d.URL, ClientID: "muster", ClientSecret: "s3cret", CAPEM: d.CAPEM, Scopes: []string{"openid", "profile", "groups", "offline_access"}},
		})
	}

	type session struct {
		User            string
		Groups, Tenants []string
	}
	login := func(user string) (*http.Client, session) {
		t.Helper()
		jar, err := cookiejar.New(nil)
		check(t, err)
		browser := &http.Client{Jar: jar, Transport: proxy.srv.Client().Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		begun := get(t, browser, proxy.srv.URL+"/api/v1/session/oidc?return=/alerts", 303)
		ended := get(t, browser, d.Login(t, begun.Header.Get("Location"), user), 303)
		if to := ended.Header.Get("Location"); to != "/alerts" {
			t.Fatalf("%s was sent to %s", user, to)
		}
		var s session
		res := get(t, browser, proxy.srv.URL+"/api/v1/session", 200)
		check(t, json.Unmarshal(res.body, &s))
		return browser, s
	}

	zoe, s := login("zoe")
	if s.User != "oidc:zoe" || !slices.Contains(s.Groups, "oidc:acme-ops") || strings.Join(s.Tenants, " ") != "acme" {
		t.Errorf("zoe: %+v", s)
	}
	for range 4 { // both consoles
		get(t, zoe, proxy.srv.URL+"/api/v1/health/sites?tenant=acme", 200)
		get(t, zoe, proxy.srv.URL+"/api/v1/health/sites?tenant=globex", 403)
	}

	mallory, s := login("mallory")
	if s.User != "oidc:mallory" || len(s.Tenants) != 0 || slices.Contains(s.Groups, "system:masters") || slices.Contains(s.Groups, "muster:system") || slices.Contains(s.Groups, "system:nodes") {
		t.Errorf("mallory: %+v", s)
	}
	get(t, mallory, proxy.srv.URL+"/api/v1/health/sites", 403)
	get(t, mallory, proxy.srv.URL+"/api/v1/sites/paris-07?tenant=acme", 403)
}

type answer struct {
	*http.Response
	body []byte
}

func get(t *testing.T, c *http.Client, target string, want int) answer {
	t.Helper()
	res, err := c.Get(target)
	check(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	check(t, err)
	if res.StatusCode != want {
		t.Errorf("GET %s: %s, want %d: %s", target, res.Status, want, b)
	}
	return answer{res, b}
}

// prepare makes two tenants, and lets the provider's group acme-ops read one.
func prepare(t *testing.T, admin *rest.Config) {
	t.Helper()
	ctx := t.Context()
	kube, err := kubernetes.NewForConfig(admin)
	check(t, err)
	objects, err := dynamic.NewForConfig(admin)
	check(t, err)
	tenants := schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: "tenants"}
	for _, name := range []string{"acme", "globex"} {
		_, err := kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name + "-system"}}, metav1.CreateOptions{})
		check(t, err)
		_, err = objects.Resource(tenants).Create(ctx, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "muster.dev/v1alpha1", "kind": "Tenant",
			"metadata": map[string]any{"name": name}, "spec": map[string]any{}}}, metav1.CreateOptions{})
		check(t, err)
	}
	_, err = kube.RbacV1().Roles("acme-system").Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "ops"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"muster.dev"}, Resources: []string{"sites"}, Verbs: []string{"get", "list"}}}}, metav1.CreateOptions{})
	check(t, err)
	_, err = kube.RbacV1().RoleBindings("acme-system").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "ops"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "ops"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "oidc:acme-ops"}}}, metav1.CreateOptions{})
	check(t, err)
	kubeapi.WaitAllowed(t, admin, "anybody", []string{"oidc:acme-ops"}, "list", "sites.muster.dev", "acme-system")
}
