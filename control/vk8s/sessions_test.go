package vk8s_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"muster.dev/muster/control/vk8s"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
	"muster.dev/muster/internal/wire"
)

// sessionSubs are the kinds of sessions, with what begins one.
var sessionSubs = map[string]string{"log": "follow=true", "exec": "command=sh&stdin=true", "attach": "stdin=true", "portforward": "ports=80"}

// TestSessionsAreCut: a followed log, an exec, an attach and a port-forward end, at the client and
// at the site, when the right to it is withdrawn, when the token it was begun with counts no
// more, and when who began it may not be who they were; the audit log has each with the reason.
func TestSessionsAreCut(t *testing.T) {
	admin, _ := start(t)
	kube := kubernetes.NewForConfigOrDie(admin)
	var open atomic.Int32 // at the site
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		open.Add(1)
		defer open.Add(-1)
		if strings.HasSuffix(req.URL.Path, "/log") {
			fmt.Fprintln(w, "hello")
			w.(http.Flusher).Flush()
			<-req.Context().Done()
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello\n")
		_, _ = io.Copy(io.Discard, conn)
	}))
	t.Cleanup(func() { site.CloseClientConnections(); site.Close() })
	mirror(t, site)

	// Who begins them, and how each comes to lose them.
	bind := func(name string, subject rbacv1.Subject) {
		t.Helper()
		b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: mine}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "editor"}, Subjects: []rbacv1.Subject{subject}}
		if _, err := kube.RbacV1().RoleBindings(mine).Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	account := func(name string, bound *authenticationv1.BoundObjectReference) *rest.Config {
		t.Helper()
		if _, err := kube.CoreV1().ServiceAccounts(mine).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		bind(name, rbacv1.Subject{Kind: "ServiceAccount", Namespace: mine, Name: name})
		token, err := kube.CoreV1().ServiceAccounts(mine).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		kubeapi.WaitAllowed(t, admin, "system:serviceaccount:"+mine+":"+name, nil, "create", "pods", mine)
		cfg := rest.AnonymousClientConfig(admin)
		cfg.BearerToken = token.Status.Token
		return cfg
	}
	secret, err := kube.CoreV1().Secrets(mine).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "of-token"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, user := range map[string]string{"right": "vk-right", "stays": "vk-stays"} {
		bind(name, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: kubeapi.Prefix + user})
		kubeapi.WaitAllowed(t, admin, kubeapi.Prefix+user, nil, "create", "pods", mine)
	}
	acts := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "vk-acts"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"users"}, Verbs: []string{"impersonate"}}}}
	if _, err := kube.RbacV1().ClusterRoles().Create(t.Context(), acts, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "vk-acts"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "vk-acts"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: kubeapi.Prefix + "vk-actor"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubeapi.WaitAllowed(t, admin, kubeapi.Prefix+"vk-actor", nil, "impersonate", "users", "")
	acting := kubeapi.As(t, "vk-actor")
	acting.Impersonate.UserName = kubeapi.Prefix + editor

	ways := map[string]struct {
		as   *rest.Config
		end  func() error
		why  string
		user string
	}{
		"the right is withdrawn": {kubeapi.As(t, "vk-right"), func() error {
			return kube.RbacV1().RoleBindings(mine).Delete(t.Context(), "right", metav1.DeleteOptions{})
		}, "may not", kubeapi.Prefix + "vk-right"},
		"the account is deleted": {account("vk-gone", nil), func() error {
			return kube.CoreV1().ServiceAccounts(mine).Delete(t.Context(), "vk-gone", metav1.DeleteOptions{})
		}, "count no more", ":vk-gone"},
		"the token's Secret is deleted": {account("vk-token", &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID}), func() error {
			return kube.CoreV1().Secrets(mine).Delete(t.Context(), secret.Name, metav1.DeleteOptions{})
		}, "count no more", ":vk-token"},
		"may not act as them any more": {acting, func() error {
			return kube.RbacV1().ClusterRoleBindings().Delete(t.Context(), "vk-acts", metav1.DeleteOptions{})
		}, "count no more", kubeapi.Prefix + "vk-actor"},
		"nothing": {kubeapi.As(t, "vk-stays"), nil, "", kubeapi.Prefix + "vk-stays"},
	}
	type key struct{ way, sub string }
	sessions := map[key]*bufio.Reader{}
	for way, c := range ways {
		for sub, query := range sessionSubs {
			r := begin(t, c.as, sub, query)
			if line, err := r.ReadString('\n'); line != "hello\n" {
				t.Fatalf("%s of who is to go as %s: %q, %v", sub, way, line, err)
			}
			sessions[key{way, sub}] = r
		}
	}
	for way, c := range ways {
		if c.end == nil {
			continue
		}
		if err := c.end(); err != nil {
			t.Fatalf("%s: %v", way, err)
		}
	}
	for k, r := range sessions {
		if ways[k.way].end != nil {
			_, _ = io.ReadAll(r) // until it is cut
		}
	}
	testkit.Eventually(t, "the site has the sessions alone of who lost nothing", func() error {
		if n := int(open.Load()); n != len(sessionSubs) {
			return fmt.Errorf("%d are open, want %d", n, len(sessionSubs))
		}
		return nil
	})
	testkit.Eventually(t, "the audit log says why", func() error {
		said := map[key]string{}
		for _, ev := range audited(t) {
			for way, c := range ways {
				if ev.ObjectRef != nil && ev.ObjectRef.Resource == "pods" && strings.HasSuffix(ev.User.Username, c.user) && strings.Contains(ev.RequestURI, wire.VirtualPath(mine, "vk8s")) {
					said[key{way, ev.ObjectRef.Subresource}] += ev.Annotations[vk8s.CutAnnotation] + "."
				}
			}
		}
		for k := range sessions {
			if got, there := said[k]; !there || !strings.Contains(got, ways[k.way].why) || ways[k.way].end == nil && strings.Trim(got, ".") != "" {
				return fmt.Errorf("of %v: %q", k, got)
			}
		}
		return nil
	})
}

// begin begins a session with the pod as a client of WebSockets does, and returns what it says.
func begin(t *testing.T, as *rest.Config, sub, query string) *bufio.Reader {
	t.Helper()
	host, err := url.Parse(as.Host)
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig, err := rest.TLSConfigFor(as)
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", host.Host, tlsConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, as.Host+wire.VirtualPath(mine, "vk8s")+"/api/v1/namespaces/"+mine+"/pods/"+webPod+"/"+sub+"?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+as.BearerToken)
	if name := as.Impersonate.UserName; name != "" {
		req.Header.Set("Impersonate-User", name)
	}
	if sub != "log" {
		for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13", "Sec-Websocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
			req.Header.Set(name, value)
		}
	}
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		return r
	case resp.StatusCode == http.StatusOK:
		return bufio.NewReader(resp.Body)
	}
	b, _ := io.ReadAll(resp.Body)
	t.Fatalf("%s: %s: %s", sub, resp.Status, b)
	return nil
}

// audited are the lines of the audit log.
func audited(t *testing.T) []auditinternal.Event {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(kubeapi.Dir(t), "apiserver", "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	var out []auditinternal.Event
	for line := range strings.Lines(string(b)) {
		var ev auditinternal.Event
		if json.Unmarshal([]byte(line), &ev) == nil { // the last one may be half written
			out = append(out, ev)
		}
	}
	return out
}
