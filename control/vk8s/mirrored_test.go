package vk8s_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"muster.dev/muster/control/apiserver"
	"muster.dev/muster/control/vk8s"
	"muster.dev/muster/control/vk8s/status"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
	"muster.dev/muster/internal/wire"
)

const webPod = "web-6f-aaaaa"

// paris is the site of all that is mirrored here.
var paris = fleet.SiteID{Tenant: "vk", Name: "paris"}

// mirror has the virtual Kubernetes show a pod of a site, whose sessions are looked at all the
// time. It returns the pod's bytes.
func mirror(t *testing.T, site *httptest.Server) (*status.Store, []byte) {
	t.Helper()
	store := status.New(status.Options{MayName: func(_, ns string) bool { return ns == mine }})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: webPod, GenerateName: "web-6f-", UID: "u", Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Ready: true, RestartCount: 3, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n"}}
	b, _ := pod.Marshal()
	n, _ := node.Marshal()
	store.Apply(paris, &wire.KubernetesStatus{Epoch: "e", Seq: 1, Snapshot: true, Mirrored: []*wire.Mirrored{{Kind: "Pod", Namespace: mine, Name: webPod, Object: b}, {Kind: "Node", Name: "n1", Object: n}}})
	store.Online(paris, true)
	mount := kubeapi.Mount(t)
	mount.RecheckEvery(50 * time.Millisecond)
	mount.Serve(vk8s.Backend{Virtual: func(ns, name string) (vk8s.Virtual, bool) {
		return vk8s.Virtual{Namespace: ns, Name: name, Tenant: "vk"}, ns == mine
	},
		Mirrored: store.Handler(status.HandlerOptions{Tables: apiserver.Tables(), Scope: func(ctx context.Context) (status.Scope, bool) {
			v, ok := vk8s.VirtualOf(ctx)
			return status.Scope{Namespace: v.Namespace, Tenant: v.Tenant}, ok
		}, Dial: func(ctx context.Context, _ fleet.SiteID) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", site.Listener.Addr().String())
		}})})
	return store, b
}

// TestPodsOfSites: what sites report is seen, logged and left through the real API server.
func TestPodsOfSites(t *testing.T) {
	admin, edits := start(t)
	var evictions atomic.Int32
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/pods/web-6f-aaaaa/eviction") {
			evictions.Add(1)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Retry-After", "10")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Cannot evict pod","reason":"TooManyRequests","details":{"causes":[{"reason":"DisruptionBudget","message":"web"}],"retryAfterSeconds":10},"code":429}`)
			return
		}
		if req.URL.Path != "/api/v1/namespaces/"+mine+"/pods/web-6f-aaaaa/log" {
			http.NotFound(w, req)
			return
		}
		fmt.Fprintln(w, "hello")
		w.(http.Flusher).Flush()
		if req.URL.Query().Get("follow") != "" {
			<-req.Context().Done()
		}
	}))
	t.Cleanup(func() { site.CloseClientConnections(); site.Close() })
	store, b := mirror(t, site)

	cfg := through(edits, mine)
	kube := kubernetes.NewForConfigOrDie(cfg)
	list, err := kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Spec.NodeName != "paris-n1" {
		t.Fatalf("%+v, %v", list, err)
	}
	if nodes, err := kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil || len(nodes.Items) != 1 || nodes.Items[0].Name != "paris-n1" {
		t.Errorf("nodes, which a Role in the namespace grants: %+v, %v", nodes, err)
	}
	table, err := kube.CoreV1().RESTClient().Get().Namespace(mine).Resource("pods").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Raw()
	if err != nil || !strings.Contains(string(table), `"cells":["web-6f-aaaaa","1/1","Running","3"`) || !strings.Contains(string(table), "PartialObjectMetadata") {
		t.Errorf("kubectl's columns: %s, %v", table[strings.Index(string(table), `"rows"`):], err)
	}
	factory := informers.NewSharedInformerFactory(kube, 0)
	informer := factory.Core().V1().Pods()
	synced := informer.Informer().HasSynced
	factory.Start(t.Context().Done())
	if !cache.WaitForCacheSync(t.Context().Done(), synced) {
		t.Fatal("the informer does not sync")
	}
	store.Apply(paris, &wire.KubernetesStatus{Epoch: "e", Seq: 2, After: 1, Mirrored: []*wire.Mirrored{{Kind: "Pod", Namespace: mine, Name: webPod, Object: append(b[:len(b):len(b)], 0x12, 0x06, 0x52, 0x04, 'n', 'o', 'd', 'e')}}})
	testkit.Eventually(t, "the informer sees the change", func() error {
		p, err := informer.Lister().Pods(mine).Get("web-6f-aaaaa")
		if err == nil && p.Spec.NodeName != "paris-node" {
			err = fmt.Errorf("it runs on %s", p.Spec.NodeName)
		}
		return err
	})

	// An eviction is refused by the site's budget, which is heard of at once.
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web-6f-aaaaa", Namespace: mine}}
	if err := kube.CoreV1().Pods(mine).EvictV1(t.Context(), eviction); !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) || evictions.Load() != 1 {
		t.Errorf("an eviction, asked for %d times: %v", evictions.Load(), err)
	}

	// A log is followed, until the right to it is withdrawn.
	log, err := kube.CoreV1().Pods(mine).GetLogs("web-6f-aaaaa", &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r := bufio.NewReader(log)
	if line, err := r.ReadString('\n'); line != "hello\n" {
		t.Fatalf("%q, %v", line, err)
	}
	all := kubernetes.NewForConfigOrDie(admin)
	role, err := all.RbacV1().Roles(mine).Get(t.Context(), "editor", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rules := role.Rules
	role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods", "pods/exec"}, Verbs: []string{"get"}}}
	if role, err = all.RbacV1().Roles(mine).Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); err != nil {
		t.Logf("the log ends with %v", err)
	}
	// Who may do no more than that can't evict, and the site is not asked; both attempts are in
	// the audit log.
	testkit.Eventually(t, "the right to evict is withdrawn", func() error {
		if err := kube.CoreV1().Pods(mine).EvictV1(t.Context(), eviction); !apierrors.IsForbidden(err) {
			return fmt.Errorf("an eviction: %w", err)
		}
		return nil
	})
	testkit.Eventually(t, "the audit log tells of evictions", func() error {
		b, err := os.ReadFile(filepath.Join(kubeapi.Dir(t), "apiserver", "audit.log"))
		for _, code := range []string{"429", "403"} {
			if err == nil && !slices.ContainsFunc(strings.Split(string(b), "\n"), func(line string) bool {
				return strings.Contains(line, wire.VirtualPath(mine, "vk8s")+"/api/v1/namespaces/"+mine+"/pods/web-6f-aaaaa/eviction") && strings.Contains(line, `"code":`+code) && strings.Contains(line, kubeapi.Prefix+editor)
			}) {
				err = fmt.Errorf("no %s", code)
			}
		}
		return err
	})
	// Who may only get can't run a command by way of a WebSocket, which begins as a GET.
	testkit.Eventually(t, "the right is withdrawn", func() error {
		err := kube.CoreV1().RESTClient().Get().Namespace(mine).Resource("pods").Name("web-6f-aaaaa").SubResource("exec").Do(t.Context()).Error()
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "may not create") {
			return nil
		}
		return fmt.Errorf("exec by GET: %w", err)
	})
	role.Rules = rules
	if _, err := all.RbacV1().Roles(mine).Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
