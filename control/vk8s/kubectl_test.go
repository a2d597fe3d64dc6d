package vk8s_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"muster.dev/muster/control/apiserver"
	"muster.dev/muster/control/vk8s"
	"muster.dev/muster/control/vk8s/status"
	"muster.dev/muster/control/vk8s/sum"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
	"muster.dev/muster/internal/testkit/kubectl"
	"muster.dev/muster/internal/wire"
)

// user is somebody with kubectl.
type user struct {
	t            *testing.T
	binary, home string
}

func newUser(t *testing.T, binary string, cfg *rest.Config) user {
	t.Helper()
	u := user{t, binary, t.TempDir()}
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: mine}
	c.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*c, filepath.Join(u.home, "kubeconfig")); err != nil {
		t.Fatal(err)
	}
	return u
}

// try runs kubectl, words apart, with what it reads.
func (u user) try(input, args string) (string, error) {
	cmd := exec.CommandContext(u.t.Context(), u.binary, strings.Fields(args)...)
	cmd.Env = []string{"HOME=" + u.home, "KUBECONFIG=" + filepath.Join(u.home, "kubeconfig"), "KUBE_EDITOR=sed -i s/first/edited/", "PATH=" + os.Getenv("PATH")}
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// does has it succeed and say all of want.
func (u user) does(input, args string, want ...string) {
	u.t.Helper()
	out, err := u.try(input, args)
	if err != nil {
		u.t.Errorf("kubectl %s: %v\n%s", args, err, out)
		return
	}
	u.says(args, out, want)
}

// refused has it fail and say all of want.
func (u user) refused(input, args string, want ...string) {
	u.t.Helper()
	out, err := u.try(input, args)
	if err == nil {
		u.t.Errorf("kubectl %s succeeds:\n%s", args, out)
	}
	u.says(args, out, want)
}

func (u user) says(args, out string, want []string) {
	u.t.Helper()
	for _, w := range want {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), w) {
			u.t.Errorf("kubectl %s does not say %q:\n%s", args, w, out)
		}
	}
}

// eventually has it succeed and say want, soon.
func (u user) eventually(args, want string) {
	u.t.Helper()
	testkit.Eventually(u.t, "kubectl "+args, func() error {
		if out, err := u.try("", args); err != nil || !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			return fmt.Errorf("want %q: %w\n%s", want, err, out)
		}
		return nil
	})
}

// TestKubectl: what people do with kubectl does what it does on any cluster. Each version
// takes a hundred processes, so it is not among all tests: make test-kubectl.
func TestKubectl(t *testing.T) {
	if os.Getenv("MUSTER_KUBECTL") == "" {
		t.Skip("runs with make test-kubectl")
	}
	admin, edits := start(t)
	var evicts func(pod string) (refusal string) // by the site; set below
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if pod, ok := strings.CutSuffix(req.URL.Path, "/eviction"); ok && req.Method == http.MethodPost {
			if refusal := evicts(path.Base(pod)); refusal != "" {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusTooManyRequests)
				fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Cannot evict pod as it would violate the pod's disruption budget.","reason":"TooManyRequests","details":{"causes":[{"reason":"DisruptionBudget","message":%q}]},"code":429}`, refusal)
				return
			}
		}
		if strings.HasSuffix(req.URL.Path, "/log") {
			fmt.Fprintln(w, "hello")
			return
		}
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	}))
	t.Cleanup(site.Close)
	paris, rome, gone := fleet.SiteID{Tenant: "vk", Name: "paris"}, fleet.SiteID{Tenant: "vk", Name: "rome"}, fleet.SiteID{Tenant: "vk", Name: "gone"}
	names := map[string][]fleet.SiteID{}
	for _, v := range kubectl.Versions {
		suffix := strings.ReplaceAll(v, ".", "-")
		names["web-"+suffix], names["far-"+suffix] = []fleet.SiteID{paris, rome}, []fleet.SiteID{paris, gone}
	}
	for _, v := range helms {
		names[v] = []fleet.SiteID{paris, gone}
	}
	c, _ := summingWith(t, admin, func(o *sum.Options) {
		said := o.States
		o.Online = func(id fleet.SiteID) bool { return id != gone }
		o.States = func(item string) map[fleet.SiteID]*wire.WorkloadStatus {
			out := said(item)
			delete(out, gone) // which has never been there
			return out
		}
	}, names, func(string, fleet.SiteID) string {
		return `{"replicas":3,"updatedReplicas":3,"readyReplicas":3,"availableReplicas":3}`
	})
	store := status.New(status.Options{MayName: func(_, ns string) bool { return ns == mine }, Workload: func(_, kind, ns, name string) (types.UID, bool) {
		return types.UID(name), ns == mine && (kind == "DaemonSet" || kind == "Deployment")
	}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "web-6f-aaaaa", GenerateName: "web-6f-", UID: "u"}, Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c"}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}}}
	b, _ := pod.Marshal()
	n, _ := node.Marshal()
	store.Apply(paris, &wire.KubernetesStatus{Epoch: "e", Seq: 1, Snapshot: true, Mirrored: []*wire.Mirrored{{Kind: "Pod", Namespace: mine, Name: pod.Name, Object: b}, {Kind: "Node", Name: "n1", Object: n}}})
	store.Online(paris, true)
	onNode, seq := drained(t, kubectl.Versions), uint64(1)
	tell := func(m *wire.KubernetesStatus) {
		m.Epoch, m.After, m.Seq = "e", seq, seq+1
		seq++
		store.Apply(paris, m)
	}
	tell(&wire.KubernetesStatus{Mirrored: onNode})
	asked := map[string]bool{}
	evicts = func(pod string) string { // one at a time, as kubectl drains
		if strings.HasPrefix(pod, "db-") && !asked[pod] {
			asked[pod] = true
			return "The disruption budget web needs 1 healthy pods and has 1 currently"
		}
		for _, m := range onNode {
			if m.Name == pod {
				tell(&wire.KubernetesStatus{Gone: []string{wire.KeyOf(m)}})
			}
		}
		return ""
	}
	kubeapi.Mount(t).Serve(vk8s.Backend{
		Virtual: func(ns, name string) (vk8s.Virtual, bool) {
			return vk8s.Virtual{Namespace: ns, Name: name, Tenant: "vk"}, ns == mine && name == "vk8s"
		},
		Pods: c.Pods, Usage: true,
		Mirrored: store.Handler(status.HandlerOptions{Tables: apiserver.Tables(), Scope: func(ctx context.Context) (status.Scope, bool) {
			v, ok := vk8s.VirtualOf(ctx)
			return status.Scope{Namespace: v.Namespace, Tenant: v.Tenant}, ok
		}, Usage: func(_ context.Context, of status.UsageOf) ([]status.Usage, error) {
			cpu, memory := 0.25, float64(128<<20)
			if of.Nodes {
				return []status.Usage{{Site: "paris", Name: "n1", CPU: &cpu, Memory: &memory}}, nil
			}
			return []status.Usage{{Site: "paris", Name: pod.Name, Container: "c", CPU: &cpu, Memory: &memory}}, nil
		}, Dial: func(ctx context.Context, _ fleet.SiteID) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", site.Listener.Addr().String())
		}}),
	})
	for _, version := range kubectl.Versions {
		t.Run(version, func(t *testing.T) {
			u := newUser(t, kubectl.Path(t, version), through(edits, mine))
			u.works(strings.ReplaceAll(version, ".", "-"))
			if t.Failed() {
				return
			}
			u.waits("far-" + strings.ReplaceAll(version, ".", "-"))
			t.Logf("kubectl %s did all of it", version)
		})
	}
	for i, binary := range []string{kubectl.Helm(t), kubectl.Helm3(t)} {
		t.Run(helms[i], func(t *testing.T) { newUser(t, binary, through(edits, mine)).installs(helms[i]) })
	}
}

// helms are what the newest Helm and the newest Helm 3 install.
var helms = []string{"helm-4", "helm-3"}

// waits: a site that is never online is waited for, unless the object says that it is not to be.
func (u user) waits(name string) {
	u.does(three(name, "app:1"), "apply -f -", "created")
	u.eventually("get deployment "+name+` -o jsonpath={.status.conditions[?(@.type=="SitesOnline")].message}`, "not connected")
	u.refused("", "wait --for=condition=Available --timeout=3s deployment/"+name, "timed out waiting for the condition on deployments/"+name)
	u.refused("", "rollout status --timeout=3s deployment/"+name, "Waiting for deployment")
	u.does("", "annotate deployment "+name+" muster.dev/offline-sites=Ignore", "annotated")
	u.does("", "wait --for=condition=Available --timeout=60s deployment/"+name, "condition met")
	u.does("", "rollout status --timeout=60s deployment/"+name, "successfully rolled out")
	u.does("", "get deployment "+name+` -o jsonpath={.status.conditions[?(@.type=="SitesOnline")].message}`, "not connected")
}

// installs is the same with Helm's --wait.
func (u user) installs(name string) {
	for file, text := range map[string]string{"wait/Chart.yaml": "apiVersion: v2\nname: far\nversion: 1.0.0\n", "wait/templates/far.yaml": three(name, "app:1"),
		"ignore/Chart.yaml": "apiVersion: v2\nname: far\nversion: 2.0.0\n", "ignore/templates/far.yaml": strings.Replace(three(name, "app:1"), `"metadata":{`, `"metadata":{"annotations":{"muster.dev/offline-sites":"Ignore"},`, 1)} {
		file = filepath.Join(u.home, "chart", file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			u.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			u.t.Fatal(err)
		}
	}
	chart := filepath.Join(u.home, "chart")
	u.refused("", "install "+name+" "+filepath.Join(chart, "wait")+" --wait --timeout 5s", "context deadline exceeded")
	u.does("", "upgrade "+name+" "+filepath.Join(chart, "ignore")+" --wait --timeout 60s", "STATUS: deployed")
	u.does("", "uninstall "+name, "uninstalled")
}

// three is a Deployment of three pods.
func three(name, image string) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%[1]q},"spec":{"replicas":3,"selector":{"matchLabels":{"app":%[1]q}},
			"template":{"metadata":{"labels":{"app":%[1]q}},"spec":{"containers":[{"name":"c","image":%[2]q}]}}}}`, name, image)
}

// drained are two nodes for each version to drain: one that its site has cordoned, with a
// pod of a Deployment and one of a DaemonSet, and one that nobody has.
func drained(t *testing.T, versions []string) []*wire.Mirrored {
	var out []*wire.Mirrored
	put := func(kind, ns, name string, o interface{ Marshal() ([]byte, error) }) {
		b, err := o.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, &wire.Mirrored{Kind: kind, Namespace: ns, Name: name, Object: b})
	}
	pod := func(name, node, owner, kind string) {
		yes := true
		put("Pod", mine, name, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: name, UID: types.UID(name), Labels: map[string]string{"pod-template-hash": "6f"}, OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: owner, UID: types.UID(owner), Controller: &yes}}},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c"}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		})
	}
	for _, v := range versions {
		suffix := strings.ReplaceAll(v, ".", "-")
		for name, cordoned := range map[string]bool{"drain-" + suffix: true, "open-" + suffix: false} {
			put("Node", "", name, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.NodeSpec{Unschedulable: cordoned}})
		}
		pod("db-"+suffix+"-6f-x", "drain-"+suffix, "db-"+suffix+"-6f", "ReplicaSet")
		pod("ds-"+suffix+"-x", "drain-"+suffix, "ds-"+suffix, "DaemonSet")
		pod("cache-"+suffix+"-6f-x", "open-"+suffix, "cache-"+suffix+"-6f", "ReplicaSet")
	}
	return out
}

// drains has a node that is cordoned on its site drained: a budget of the site holds it up
// for a while, and what a DaemonSet has stays.
func (u user) drains(suffix string) {
	node, ds := "paris-drain-"+suffix, "ds-"+suffix
	u.does(fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":%[1]q},"spec":{"selector":{"matchLabels":{"app":%[1]q}},
		"template":{"metadata":{"labels":{"app":%[1]q}},"spec":{"containers":[{"name":"c","image":"ds:1"}]}}}}`, ds), "apply -f -", "created")
	u.does("", "get nodes "+node, "SchedulingDisabled")
	u.refused("", "drain --timeout=60s "+node, "cannot delete", "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)")
	u.does("", "drain --timeout=60s --ignore-daemonsets "+node, "(will retry after 5s): site paris: Cannot evict pod as it would violate the pod's disruption budget.", "evicted", node+" drained")
	u.does("", "get pods --field-selector spec.nodeName="+node, ds+"-x")
	out, err := u.try("", "get pods --field-selector spec.nodeName="+node)
	if err != nil || strings.Contains(out, "db-"+suffix) {
		u.t.Errorf("after the drain of %s: %v\n%s", node, err, out)
	}
	u.does("", "delete daemonset "+ds, "deleted")
	u.does("", "drain --timeout=60s paris-open-"+suffix, "error: unable to cordon", "cordon a node on its site's own cluster", "cache-"+suffix+"-6f-x-paris evicted", "drained")
}

// works is a day of somebody who works with kubectl.
func (u user) works(suffix string) {
	web, cfg := "web-"+suffix, "cfg-"+suffix
	deployment := func(image string) string { return three(web, image) }
	config := func(value string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"k":%q}}`, cfg, value)
	}
	u.does("", "version", "Server Version: v1.")
	u.does("", "api-resources", "deployments deploy apps/v1 true Deployment", "pods po v1 true Pod")
	u.refused("", "get clusterroles", `the server doesn't have a resource type "clusterroles"`)
	u.does("", "explain deployment.spec.replicas", "Number of desired pods")
	u.does("", "auth can-i create deployments", "yes")
	u.refused("", "auth can-i get secrets -n "+theirs, "no")
	u.does("", "auth whoami", editor)

	u.does(deployment("app:1"), "apply -f -", "created")
	u.does(deployment("app:1"), "apply -f -", "unchanged")
	u.does(config("first"), "apply --server-side -f -", "serverside-applied")
	u.refused(config("second"), "apply --server-side --field-manager=other -f -", "conflict")
	u.does(config("first"), "apply --server-side --force-conflicts --field-manager=other -f -", "serverside-applied")
	u.does("", "edit configmap "+cfg, "edited")
	u.does("", "get configmap "+cfg+" -o jsonpath={.data.k}", "edited")
	u.does(deployment("app:1"), "diff -f -")
	u.refused(deployment("app:2"), "diff -f -", "+ - image: app:2")

	u.eventually("get deployment "+web, web+" 6/6 6 6")
	u.does("", "get deployments,configmaps,pods -A", web, cfg, "web-6f-aaaaa")
	u.does("", "get pods -o wide", "paris-n1")
	u.does("", "get nodes", "paris-n1")
	u.does("", "describe deployment "+web, "3 desired | 3 updated | 3 total | 3 available")
	u.does("", "describe pod web-6f-aaaaa", "Node: paris-n1")
	u.does("", "logs web-6f-aaaaa", "hello")
	u.does("", "top pods", "web-6f-aaaaa 250m 128Mi")
	u.does("", "top pod web-6f-aaaaa --containers", "web-6f-aaaaa c 250m 128Mi")
	u.does("", "top nodes", "paris-n1 250m 25% 128Mi 12%")
	u.refused("", "top pod none", "not found")
	u.does("", "wait --for=condition=Available --timeout=60s deployment/"+web, "condition met")

	for kind, patch := range map[string]string{"strategic": `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"app:3"}]}}}}`, "merge": `{"metadata":{"labels":{"m":"yes"}}}`, "json": `[{"op":"add","path":"/metadata/annotations/p","value":"yes"}]`} {
		u.does("", "patch deployment "+web+" --type="+kind+" -p "+patch, "patched")
	}
	u.does("", "rollout status --timeout=60s deployment/"+web, "successfully rolled out")
	u.eventually("rollout history deployment/"+web, "2 <none>")
	u.does("", "rollout history --revision=2 deployment/"+web, "app:3")
	u.does("", "rollout undo deployment/"+web, "rolled back")
	u.does("", "get deployment "+web+" -o jsonpath={.spec.template.spec.containers[0].image}", "app:1")
	u.does("", "rollout status --timeout=60s deployment/"+web, "successfully rolled out")
	u.does("", "rollout restart deployment/"+web, "restarted")
	u.does("", "scale --replicas=4 deployment/"+web, "scaled")
	u.does("", "get deployment "+web+" -o jsonpath={.spec.replicas}", "4")
	u.does("", "label deployment "+web+" tier=front", "labeled")
	u.does("", "set image deployment/"+web+" c=app:4", "image updated")
	u.does("", "get events", "No resources found")
	u.does("", "cordon paris-n1", "error: unable to cordon", "cordon a node on its site's own cluster") // which kubectl says, and exits with 0
	u.refused("", "auth can-i patch nodes", "no")
	u.drains(suffix)

	u.does("", "delete --cascade=foreground --timeout=60s deployment/"+web, "deleted")
	u.eventually("get replicasets -l app="+web, "No resources found")
	u.does(deployment("app:1"), "create -f -", "created")
	u.eventually("get replicasets -l app="+web, web)
	u.does("", "delete --cascade=orphan --timeout=60s deployment/"+web, "deleted")
	u.does("", "get replicasets -l app="+web, web)
	u.does(deployment("app:1"), "create -f -", "created")
	u.eventually("get deployment "+web, web+" 6/6")
	u.does("", "delete --timeout=60s deployment/"+web, "deleted")
	u.eventually("get replicasets -l app="+web, "No resources found")
	u.does("", "delete configmap "+cfg, "deleted")
	u.does("", "delete pod --wait=false web-6f-aaaaa", "deleted")
}
