package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"muster.dev/muster/dashboards/console"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
)

var (
	virtual = schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: "virtualsites"}
	sites   = schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: "sites"}
	tenants = schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: "tenants"}
)

const home = "console-e2e" // namespace of the service accounts

type world struct {
	t       *testing.T
	admin   *rest.Config
	kube    *kubernetes.Clientset
	dynamic *dynamic.DynamicClient
	srv     *httptest.Server
	told    chan string // the tenants that the health role was told
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		return v
	}
}

func (w *world) token(name string) string {
	ctx := context.Background()
	must(w.kube.CoreV1().ServiceAccounts(home).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(w.t)
	tr := must(w.kube.CoreV1().ServiceAccounts(home).CreateToken(ctx, name, &authnv1.TokenRequest{}, metav1.CreateOptions{}))(w.t)
	return tr.Status.Token
}

func (w *world) site(tenant, name string, spec map[string]any) {
	w.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "muster.dev/v1alpha1", "kind": "Site", "spec": spec,
		"metadata": map[string]any{"name": name, "labels": map[string]any{"region": "eu-west"}},
	}}
	must(w.dynamic.Resource(sites).Namespace(tenant+"-system").Create(context.Background(), u, metav1.CreateOptions{}))(w.t)
}

func start(t *testing.T) *world {
	w := &world{t: t, admin: kubeapi.Start(t), told: make(chan string, 100)}
	w.kube = must(kubernetes.NewForConfig(w.admin))(t)
	w.dynamic = must(dynamic.NewForConfig(w.admin))(t)
	ctx := context.Background()
	for _, ns := range []string{home, "e2ea-system", "e2ea-shared", "e2eb-system"} {
		must(w.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}))(t)
	}
	for _, name := range []string{"e2ea", "e2eb"} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "muster.dev/v1alpha1", "kind": "Tenant",
			"metadata": map[string]any{"name": name}, "spec": map[string]any{}}}
		must(w.dynamic.Resource(tenants).Create(ctx, u, metav1.CreateOptions{}))(t)
	}
	// The console itself: exactly the rights that it says it needs.
	must(w.kube.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "muster-console"}, Rules: console.Rules()}, metav1.CreateOptions{}))(t)
	must(w.kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "muster-console"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "muster-console"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: home, Name: "console"}}}, metav1.CreateOptions{}))(t)
	for user, verbs := range map[string][]string{"alice": {"get", "list", "patch"}, "carol": {"get", "list"}} {
		rules := []rbacv1.PolicyRule{{APIGroups: []string{"muster.dev"}, Resources: []string{"sites", "virtualsites"}, Verbs: verbs}}
		if user == "alice" { // neither is a resource of the API server: RBAC alone knows them
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{"muster.dev"}, Resources: []string{"logs"}, Verbs: []string{"get"}},
				rbacv1.PolicyRule{APIGroups: []string{"muster.dev"}, Resources: []string{"silences"}, Verbs: []string{"get", "create"}})
		}
		for _, ns := range []string{"e2ea-system", "e2ea-shared"} {
			must(w.kube.RbacV1().Roles(ns).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}, metav1.CreateOptions{}))(t)
			must(w.kube.RbacV1().RoleBindings(ns).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
				Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: home, Name: user}}}, metav1.CreateOptions{}))(t)
			kubeapi.WaitAllowed(t, w.admin, "system:serviceaccount:"+home+":"+user, nil, "list", "sites.muster.dev", ns)
		}
	}

	health := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.told <- r.Header.Get("X-Muster-Tenants")
		if strings.HasSuffix(r.URL.Path, "/stream") {
			rw.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(rw, "event: tick\ndata: {}\n\n")
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprint(rw, `{"asOf":null,"total":0,"sites":[]}`)
	}))
	t.Cleanup(health.Close)
	own := rest.AnonymousClientConfig(w.admin)
	own.BearerToken = w.token("console")
	c, err := console.New(console.Options{RestConfig: own, HealthURL: must(url.Parse(health.URL))(t), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	runCtx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(runCtx) }()
	w.srv = httptest.NewUnstartedServer(nil)
	w.srv.Config = c.NewServer()
	w.srv.Start()
	t.Cleanup(func() { w.srv.CloseClientConnections(); w.srv.Close(); cancel(); <-done })
	w.eventually("the console is ready", func() bool { return c.Ready() == nil })
	return w
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	testkit.EventuallyTrue(w.t, what, ok)
}

func (w *world) send(token, method, path, body string) (int, map[string]any) {
	w.t.Helper()
	req := must(http.NewRequest(method, w.srv.URL+path, strings.NewReader(body)))(w.t)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	res := must(w.srv.Client().Do(req))(w.t)
	defer res.Body.Close()
	raw := must(io.ReadAll(res.Body))(w.t)
	var out map[string]any
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &out); err != nil {
			w.t.Fatalf("%s %s: %v: %s", method, path, err, raw)
		}
	}
	return res.StatusCode, out
}

func (w *world) want(code int, token, method, path, body string) map[string]any {
	w.t.Helper()
	got, out := w.send(token, method, path, body)
	if got != code {
		w.t.Errorf("%s %s → %d, want %d: %v", method, path, got, code, out)
	}
	return out
}

func TestAgainstTheRealAPIServer(t *testing.T) {
	w := start(t)
	alice, carol, nobody := w.token("alice"), w.token("carol"), w.token("nobody")
	key := strings.Repeat("ab", 32)
	w.site("e2ea", "paris-07", map[string]any{"publicKey": key, "token": "stores"})
	w.site("e2ea", "rome-01", map[string]any{"publicKey": key})
	w.site("e2eb", "lima-01", map[string]any{"publicKey": key})

	t.Run("who is who", func(t *testing.T) {
		s := w.want(200, alice, "GET", "/api/v1/session", "")
		if s["user"] != "system:serviceaccount:"+home+":alice" || fmt.Sprint(s["tenants"]) != "[e2ea]" {
			t.Errorf("%v", s)
		}
		if s := w.want(200, nobody, "GET", "/api/v1/session", ""); fmt.Sprint(s["tenants"]) != "[]" {
			t.Errorf("%v", s)
		}
		w.want(401, "nonsense", "GET", "/api/v1/session", "")
		w.want(403, nobody, "GET", "/api/v1/health/sites", "")
		w.want(200, alice, "GET", "/api/v1/health/sites", "")
		if got := <-w.told; got != "e2ea" {
			t.Errorf("the health role was told %q", got)
		}
		if admin := w.admin.BearerToken; admin != "" {
			w.want(200, admin, "GET", "/api/v1/health/sites", "")
			if got := <-w.told; got != "*" {
				t.Errorf("for the administrator the health role was told %q", got)
			}
		}
	})
	t.Run("registrations", func(t *testing.T) {
		names := func() (out []string) {
			for cursor := ""; ; {
				l := w.want(200, alice, "GET", "/api/v1/registrations?limit=1&cursor="+cursor, "")
				for _, r := range l["registrations"].([]any) {
					out = append(out, r.(map[string]any)["name"].(string))
				}
				next, more := l["nextCursor"].(string)
				if !more {
					slices.Sort(out)
					return out
				}
				cursor = next
			}
		}
		w.eventually("both are listed", func() bool { return slices.Equal(names(), []string{"paris-07", "rome-01"}) })
		w.want(403, carol, "POST", "/api/v1/registrations/paris-07/approve?tenant=e2ea", "")
		w.want(403, alice, "POST", "/api/v1/registrations/lima-01/approve?tenant=e2eb", "")
		w.want(409, alice, "POST", "/api/v1/registrations/paris-07/approve?tenant=e2ea", `{"publicKey":"`+strings.Repeat("cd", 32)+`"}`)
		s := w.want(200, alice, "POST", "/api/v1/registrations/paris-07/approve?tenant=e2ea",
			`{"labels":{"store":"7"},"place":{"latitude":48.8566,"longitude":-2.3522,"address":"Paris"},"publicKey":"`+key+`"}`)
		if s["approved"] != true || fmt.Sprint(s["place"]) != "map[address:Paris latitude:48.8566 longitude:-2.3522]" {
			t.Errorf("%v", s)
		}
		w.want(204, alice, "POST", "/api/v1/registrations/rome-01/reject?tenant=e2ea", "")
		if got := names(); len(got) != 0 {
			t.Errorf("still listed: %v", got)
		}
		w.want(409, alice, "POST", "/api/v1/registrations/rome-01/approve?tenant=e2ea", "")
	})
	t.Run("maintenance", func(t *testing.T) {
		const path = "/api/v1/sites/paris-07/maintenance?tenant=e2ea"
		w.want(403, carol, "PUT", path, `{"reason":"x"}`)
		until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		w.want(200, alice, "PUT", path, `{"reason":"router","until":"`+until+`"}`)
		s := w.want(200, carol, "GET", "/api/v1/sites/paris-07", "")
		if fmt.Sprint(s["maintenance"]) != "map[reason:router until:"+until+"]" {
			t.Errorf("%v", s["maintenance"])
		}
		w.want(200, alice, "PUT", path, `{"reason":"without end"}`)
		w.want(204, alice, "DELETE", path, "")
		if s := w.want(200, carol, "GET", "/api/v1/sites/paris-07", ""); s["maintenance"] != nil {
			t.Errorf("%v", s["maintenance"])
		}
		w.want(404, alice, "GET", "/api/v1/sites/nowhere?tenant=e2ea", "")
		w.want(403, alice, "GET", "/api/v1/sites/lima-01?tenant=e2eb", "")
	})
	t.Run("maintenance windows", func(t *testing.T) {
		const weekly = `{"reason":"updates","schedule":"0 2 * * SUN","timeZone":"Europe/Berlin","duration":"2h"}`
		windows := func(o map[string]any) (out []string) {
			for _, x := range o["maintenanceWindows"].([]any) {
				m := x.(map[string]any)
				out = append(out, fmt.Sprint(m["name"], " ", m["start"], " ", m["schedule"], " ", m["duration"]))
			}
			return out
		}
		start := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		for _, base := range []string{"/api/v1/sites/paris-07/maintenance/windows", "/api/v1/virtualsites/shared/all-eu/maintenance/windows"} {
			read := base
			if strings.Contains(base, "sites/paris") {
				read = "/api/v1/sites/paris-07"
			} else {
				u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "muster.dev/v1alpha1", "kind": "VirtualSite",
					"metadata": map[string]any{"name": "all-eu"}, "spec": map[string]any{"siteSelector": map[string]any{}}}}
				must(w.dynamic.Resource(virtual).Namespace("e2ea-shared").Create(context.Background(), u, metav1.CreateOptions{}))(t)
			}
			w.want(403, carol, "PUT", base+"/weekly", weekly)
			w.want(200, alice, "PUT", base+"/weekly", weekly)
			w.want(200, alice, "PUT", base+"/once", `{"reason":"router","start":"`+start+`","duration":"90m"}`)
			w.want(200, alice, "PUT", base+"/weekly", strings.Replace(weekly, "2h", "3h", 1))
			want := []string{"weekly <nil> 0 2 * * SUN 3h0m0s", "once " + start + "  1h30m0s"}
			if got := windows(w.want(200, carol, "GET", read, "")); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			w.want(204, alice, "DELETE", base+"/weekly", "")
			w.want(204, alice, "DELETE", base+"/once", "")
			w.want(404, alice, "DELETE", base+"/once", "")
			if got := windows(w.want(200, carol, "GET", read, "")); len(got) != 0 {
				t.Errorf("left: %q", got)
			}
		}
	})
	t.Run("rights to logs and silences", func(t *testing.T) {
		// 503: allowed, but this console has neither; 403: not even asked.
		const silence = `{"matchers":[{"name":"a","value":"b"}],"duration":"1h","comment":"x"}`
		for _, c := range []struct {
			method, path, body string
			alice              int
		}{{"GET", "/api/v1/logs/search", "", 503}, {"GET", "/api/v1/silences", "", 503}, {"POST", "/api/v1/silences", silence, 503}, {"DELETE", "/api/v1/silences/x", "", 403}} {
			w.want(c.alice, alice, c.method, c.path, c.body)
			w.want(403, alice, c.method, c.path+"?tenant=e2eb", c.body)
			w.want(403, carol, c.method, c.path, c.body)
			w.want(503, w.admin.BearerToken, c.method, c.path+"?tenant=e2ea", c.body)
		}
		w.want(503, carol, "GET", "/api/v1/alerts", "")
	})
	t.Run("a stream ends when the token is revoked", func(t *testing.T) {
		req := must(http.NewRequest("GET", w.srv.URL+"/api/v1/health/stream", nil))(t)
		req.Header.Set("Authorization", "Bearer "+carol)
		res := must(w.srv.Client().Do(req))(t)
		defer res.Body.Close()
		r := bufio.NewReader(res.Body)
		if line, err := r.ReadString('\n'); line != "event: tick\n" {
			t.Fatalf("%q %v", line, err)
		}
		if err := w.kube.CoreV1().ServiceAccounts(home).Delete(context.Background(), "carol", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := io.ReadAll(r); err != nil {
			t.Errorf("the stream was torn: %v", err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %s", took)
		}
		w.want(401, carol, "GET", "/api/v1/session", "")
	})
}
