package apiserver_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/quota"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// sender sends requests as they are, without client-go's further tries.
type sender struct {
	name, host string
	client     *http.Client
}

func senderOf(t *testing.T, name string, cfg *rest.Config) sender {
	t.Helper()
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return sender{name, cfg.Host, c}
}

type answer struct {
	status int
	retry  string // Retry-After
	body   string
}

func (s sender) send(t *testing.T, method, path, body string) answer {
	t.Helper()
	if method == http.MethodPatch {
		return s.sendAs(t, "application/merge-patch+json", method, path, body)
	}
	return s.sendAs(t, "application/json", method, path, body)
}

func (s sender) sendAs(t *testing.T, kind, method, path, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatalf("%s: %s %s: %v", s.name, method, path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header.Get("Retry-After"), string(b)}
}

// bindAll lets subjects do everything in a namespace; in none: everywhere.
func bindAll(t *testing.T, namespace, name string, subjects ...rbacv1.Subject) {
	t.Helper()
	k := kubernetes.NewForConfigOrDie(kubeapi.Start(t)).RbacV1()
	at, ref := metav1.ObjectMeta{Name: name}, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}
	var err error
	if namespace == "" {
		_, err = k.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: at, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	} else {
		_, err = k.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: at, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// account returns a client configuration of the service account "default" of a namespace.
func account(t *testing.T, namespace string) *rest.Config {
	t.Helper()
	cfg := kubeapi.Start(t)
	token, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cfg = rest.AnonymousClientConfig(cfg)
	cfg.BearerToken = token.Status.Token
	return cfg
}

// Who sends nothing but what is refused has it decoded and checked all the same: whatever it
// is refused for and whoever of the tenant sends it, together they get what the tenant's
// budget of writes is for, and nobody else notices.
func TestRefusedWritesAreCharged(t *testing.T) {
	const shop, system = "/api/v1/namespaces/qr-shop/configmaps", "/apis/muster.dev/v1alpha1/namespaces/qr-system/healthpolicies"
	user, other := tenantWithUser(t, "qr", "{objectBytes: 1}"), tenantWithUser(t, "qr-other", "{}")
	admin := kubernetes.NewForConfigOrDie(kubeapi.Start(t))
	bindAll(t, "qr-shop", "editors", rbacv1.Subject{Kind: "Group", Name: kubeapi.Prefix + "muster:tenant:qr:editor"}, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "qr-shop", Name: "default"})
	bindAll(t, "qr-system", "editors", rbacv1.Subject{Kind: "Group", Name: kubeapi.Prefix + "muster:tenant:qr:editor"}, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "qr-shop", Name: "default"})
	bindAll(t, "", "qr-operators", rbacv1.Subject{Kind: "Group", Name: kubeapi.Prefix + "qr-operators"})
	kubeapi.WaitAllowed(t, kubeapi.Start(t), "x", []string{kubeapi.Prefix + "muster:tenant:qr:editor"}, "create", "healthpolicies.muster.dev", "qr-system")
	kubeapi.WaitAllowed(t, kubeapi.Start(t), "system:serviceaccount:qr-shop:default", nil, "create", "configmaps", "qr-system")
	kubeapi.WaitAllowed(t, kubeapi.Start(t), "x", []string{kubeapi.Prefix + "qr-operators"}, "create", "configmaps", "qr-shop")
	if _, err := admin.CoreV1().ConfigMaps("qr-shop").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "there"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	much, more := strings.Repeat("x", 900_000), strings.Repeat("x", 2_500_000)
	bad := []struct{ why, method, path, body string }{
		{"it is not JSON", http.MethodPost, shop, "{{" + more},
		{"validation", http.MethodPost, shop, `{"metadata":{"name":"m"},"data":{"no key":"` + more + `"}}`},
		{"its schema", http.MethodPost, system, `{"apiVersion":"muster.dev/v1alpha1","kind":"HealthPolicy","metadata":{"name":"m"},"spec":{"signals":"` + more + `"}}`},
		{"a conflict", http.MethodPut, shop + "/there", `{"metadata":{"name":"there","resourceVersion":"1"},"data":{"k":"` + much + `"}}`},
		{"a quota", http.MethodPatch, shop + "/there", `{"data":{"k":"` + much + `"}}`},
		{"a quota, had it been tried", http.MethodPost, shop + "?dryRun=All", `{"metadata":{"name":"m"},"data":{"k":"` + much + `"}}`},
		{"not there", http.MethodPut, shop + "/nowhere", `{"metadata":{"name":"nowhere","uid":"x"},"data":{"k":"` + much + `"}}`},
	}
	tenants := []sender{
		senderOf(t, "a user", user),
		senderOf(t, "another one of its group", kubeapi.As(t, "qr-second", "muster:tenant:qr:editor")),
		senderOf(t, "a service account", account(t, "qr-shop")),
	}
	seen, told := 0, map[string]bool{}
	began := time.Now()
	for i := 0; i < 105 && len(told) < len(tenants); i++ {
		who, b := tenants[i%len(tenants)], bad[i%len(bad)]
		got := who.send(t, b.method, b.path, b.body)
		switch {
		case got.status == http.StatusTooManyRequests:
			told[who.name] = true
			if s, err := strconv.Atoi(got.retry); err != nil || s < 1 || s > 15 || !strings.Contains(got.body, string(v1alpha1.CauseQuotaExceeded)) || !strings.Contains(got.body, "tenant qr ") || !strings.Contains(got.body, "refused") {
				t.Errorf("%s: Retry-After %q: %s", who.name, got.retry, got.body)
			}
		case got.status < 400:
			t.Fatalf("%s: taken, though refused for %s: %d %s", who.name, b.why, got.status, got.body)
		default:
			seen += len(b.body)
		}
	}
	if limit := quota.WriteBurst + int(time.Since(began).Seconds()+1)*quota.WriteBytesPerSecond; seen > limit || seen < quota.WriteBurst*3/4 || len(told) < len(tenants) {
		t.Errorf("%d MB of bad writes were looked at, the budget is for %d MB; told to wait: %v", seen/1e6, limit/1e6, told)
	}

	if got := tenants[0].send(t, http.MethodGet, shop+"/there", ""); got.status != http.StatusOK {
		t.Errorf("the tenant reads: %d %s", got.status, got.body)
	}
	for _, c := range []struct {
		who  sender
		path string
	}{
		{senderOf(t, "a neighbour", other), "/api/v1/namespaces/qr-other-shop/configmaps"},
		{senderOf(t, "the administrator", kubeapi.Start(t)), shop},
		{senderOf(t, "one of Muster's roles", kubeapi.Server(t).ConfigOf("muster:health")), shop},
	} {
		if got := c.who.send(t, http.MethodPost, c.path, `{"metadata":{"generateName":"m-"}}`); got.status == http.StatusTooManyRequests {
			t.Errorf("%s: %s", c.who.name, got.body)
		}
	}
	operator := senderOf(t, "an operator", kubeapi.As(t, "qr-operator", "qr-operators"))
	if got := operator.send(t, bad[1].method, bad[1].path, bad[1].body); got.status != http.StatusUnprocessableEntity {
		t.Errorf("an operator, whom a role of all the cluster makes one: %d %s", got.status, got.body)
	}
}

// A text that names its parts is taken as long as it does not come to more than the API server
// reads: of this one the stock server would make 400 MB of JSON.
func TestWhatYAMLComesTo(t *testing.T) {
	const path = "/api/v1/namespaces/qy-shop/configmaps"
	user := senderOf(t, "a user", tenantWithUser(t, "qy", "{}"))
	bindAll(t, "qy-shop", "editors", rbacv1.Subject{Kind: "Group", Name: kubeapi.Prefix + "muster:tenant:qy:editor"})
	kubeapi.WaitAllowed(t, kubeapi.Start(t), "x", []string{kubeapi.Prefix + "muster:tenant:qy:editor"}, "create", "configmaps", "qy-shop")
	bomb := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\na: &a " + strings.Repeat("x", 20_000) + "\nb: [" + strings.Repeat("*a, ", 20_000) + "]\n"
	for _, c := range []struct{ kind, method, path string }{
		{"application/yaml", http.MethodPost, path},
		{"Application/YAML; charset=utf-8", http.MethodPost, path},
		{"application/apply-patch+yaml", http.MethodPatch, path + "/m?fieldManager=me"},
		{"application/yaml", http.MethodPost, "/api/vK8s/namespaces/qy-shop/vk8s" + path},
	} {
		if got := user.sendAs(t, c.kind, c.method, c.path, bomb); got.status != http.StatusBadRequest || !strings.Contains(got.body, "write them out yourself") {
			t.Errorf("%s %s: %d %.300s", c.method, c.kind, got.status, got.body)
		}
	}
	good := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: few}\ndata:\n  a: &a some words\n  b: *a\n"
	if got := user.sendAs(t, "application/yaml", http.MethodPost, path, good); got.status != http.StatusCreated || strings.Count(got.body, "some words") != 2 {
		t.Errorf("few aliases: %d %.300s", got.status, got.body)
	}
	if got := user.sendAs(t, "application/apply-patch+yaml", http.MethodPatch, path+"/few?fieldManager=me&force=true", good); got.status != http.StatusOK {
		t.Errorf("few aliases, applied: %d %.300s", got.status, got.body)
	}
}

// Service accounts of one tenant, however many it makes, wait in one tenant's queues when the
// API server is busy: for reads and watches as for writes.
func TestServiceAccountsOfATenantQueueTogether(t *testing.T) {
	tenantWithUser(t, "qf", "{}")
	admin := senderOf(t, "the administrator", kubeapi.Start(t))
	for _, ns := range []string{"qf-shop", "qf-system"} {
		bindAll(t, ns, "accounts", rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + ns})
		kubeapi.WaitAllowed(t, kubeapi.Start(t), "x", []string{"system:serviceaccounts:" + ns}, "create", "configmaps", ns)
		who := senderOf(t, ns, account(t, ns))
		body, end := io.Pipe() // the request is being served as long as it is open
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, who.host+"/api/v1/namespaces/"+ns+"/configmaps?marker="+ns, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		done := make(chan error, 1)
		go func() {
			resp, err := who.client.Do(req)
			if err == nil {
				err = resp.Body.Close()
			}
			done <- err
		}()
		testkit.Eventually(t, "the request is in its tenant's queue", func() error {
			dump := admin.send(t, http.MethodGet, "/debug/api_priority_and_fairness/dump_requests?includeRequestDetails=1", "")
			for row := range strings.Lines(dump.body) {
				if strings.Contains(row, "/api/v1/namespaces/"+ns+"/configmaps") && strings.Contains(row, "service-accounts,") && strings.Contains(row, " tenant:qf,") {
					return nil
				}
			}
			return fmt.Errorf("%s", dump.body)
		})
		_ = end.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
