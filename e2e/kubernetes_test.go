package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubesite"
)

const shopNamespace = "main-shop"

// clusters is a control and a regional with Kubernetes clusters as sites, each joined by a
// muster-edge process that has what the manifest grants and no more.
type clusters struct {
	t     *testing.T
	dir   string
	admin *rest.Config         // of the fleet
	shop  *rest.Config         // of the virtual Kubernetes
	kube  kubernetes.Interface // of that too
	sites map[string]*kubesite.Cluster
	// stopEdge stops muster-edge of a site.
	stopEdge map[string]func()
	gateway  string         // of the regional
	pids     map[string]int // of the processes, by name
}

// TestKubernetes runs workloads on real clusters, beside agents by the thousand, through the virtual
// Kubernetes of a tenant.
func TestKubernetes(t *testing.T) {
	if os.Getenv("MUSTER_E2E") == "" {
		t.Skip("set MUSTER_E2E=1, or run make test-e2e: it starts a fleet, three clusters and a thousand agents")
	}
	t.Parallel()
	f := startClusters(t)
	f.join("paris")
	f.join("lyon")
	if !t.Run("apply", func(t *testing.T) { testApply(t, f) }) {
		return
	}
	crowd := f.crowd()
	t.Run("beside a thousand agents", func(t *testing.T) { testCrowd(t, f, crowd) })
	t.Run("walls between tenants", func(t *testing.T) { testWalls(t, f) })
	t.Run("logs, exec and port-forward", func(t *testing.T) { testReach(t, f) })
	t.Run("each kubectl", func(t *testing.T) { testKubectls(t, f) })
	t.Run("a name clash", func(t *testing.T) { testClash(t, f) })
	t.Run("a site whose API server was down", func(t *testing.T) { testOutage(t, f) })
	t.Run("a site that joins later", func(t *testing.T) { testLateSite(t, f) })
	t.Run("a virtual host between two clusters", func(t *testing.T) { testVirtualHost(t, f) })
	t.Run("all kinds", func(t *testing.T) { testKinds(t, f) })
	t.Run("a quota on a site", func(t *testing.T) { testQuota(t, f) })
	t.Run("Helm", func(t *testing.T) { testHelm(t, f) })
	t.Run("a chart that people know", func(t *testing.T) { testPodinfo(t, f) })
	t.Run("Helm 3 waits for Jobs", func(t *testing.T) { testWaitForJobs(t, f) })
	t.Run("a site that comes back after weeks", func(t *testing.T) { testWeeks(t, f) })
	t.Run("a thousand agents later", func(t *testing.T) { testCrowdLeft(t, f, crowd) })
	t.Run("delete", func(t *testing.T) { testDelete(t, f) })
}

// testApply: one Deployment runs on both sites, whose pods and nodes are seen in one place.
func testApply(t *testing.T, f *clusters) {
	apply(t, f.kube, web("nginx:1.27"))
	f.runs("web", 2, "paris", "lyon")
	for _, p := range f.pods("web") {
		site, node, _ := strings.Cut(p.Spec.NodeName, "-")
		if f.sites[site] == nil || (node != "n1" && node != "n2") {
			t.Errorf("pod %s is on node %q, want SITE-NODE", p.Name, p.Spec.NodeName)
		}
		got, err := f.sites[site].Client.CoreV1().Pods(shopNamespace).Get(t.Context(), p.Name, metav1.GetOptions{})
		if err != nil || got.Spec.NodeName != node {
			t.Errorf("pod %s on site %s: %v", p.Name, site, err)
		}
	}
	nodes, err := f.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range nodes.Items {
		names = append(names, n.Name)
	}
	if want := []string{"lyon-n1", "lyon-n2", "paris-n1", "paris-n2"}; !slices.Equal(slices.Sorted(slices.Values(names)), want) {
		t.Errorf("nodes %v, want %v", names, want)
	}
	apply(t, f.kube, web("nginx:1.28"))
	testkit.Eventually(t, "both sites have the new image alone", func() error {
		pods := f.pods("web")
		for _, p := range pods {
			if p.Spec.Containers[0].Image != "nginx:1.28" {
				return fmt.Errorf("%s on %s has %s", p.Name, p.Spec.NodeName, p.Spec.Containers[0].Image)
			}
		}
		if len(pods) != 4 {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
	// What crashes on a site is seen, with its restarts.
	f.runs("web", 2, "paris", "lyon")
	p := f.podOn("web", "lyon")
	f.sites["lyon"].Crash(shopNamespace, p, 3)
	testkit.Eventually(t, "the restart is told", func() error {
		got, err := f.kube.CoreV1().Pods(shopNamespace).Get(t.Context(), p, metav1.GetOptions{})
		if err == nil && got.Status.ContainerStatuses[0].RestartCount != 1 {
			err = fmt.Errorf("%+v", got.Status.ContainerStatuses[0])
		}
		return err
	})
}

// testReach: what kubectl does with one pod goes through the site's tunnel.
func testReach(t *testing.T, f *clusters) {
	f.runs("web", 2, "paris", "lyon")
	for site := range f.sites {
		pod := f.podOn("web", site)
		f.sites[site].Say(shopNamespace, pod, "bonjour "+site)
		testkit.Eventually(t, "the log of "+pod, func() error {
			b, err := f.kube.CoreV1().Pods(shopNamespace).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(t.Context())
			if err == nil && !bytes.Contains(b, []byte("bonjour "+site)) {
				err = fmt.Errorf("%q", b)
			}
			return err
		})
		req := f.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(shopNamespace).Name(pod).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Command: []string{"sh", "-c", "cat; hostname; exit 4"}, Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec)
		e, err := remotecommand.NewWebSocketExecutor(f.shop, "GET", req.URL().String())
		if err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		err = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("hello "), Stdout: &out, Stderr: &errOut})
		if want := "hello " + pod + "\n"; out.String() != want || err == nil || !strings.Contains(err.Error(), "exit code 4") {
			t.Errorf("exec in %s: %q, %q, %v", pod, out.String(), errOut.String(), err)
		}
		if got, err := f.forward(t, pod); err != nil || got != shopNamespace+"/"+pod+" port 80\n" {
			t.Errorf("port-forward to %s: %q, %v", pod, got, err)
		}
	}
}

// testClash: what somebody made on a site by hand is neither taken nor touched.
func testClash(t *testing.T, f *clusters) {
	paris := f.sites["paris"].Client.CoreV1().ConfigMaps(shopNamespace)
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"whose": "theirs"}}
	if _, err := paris.Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ours := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"whose": "ours"}}
	if _, err := f.kube.CoreV1().ConfigMaps(shopNamespace).Create(t.Context(), ours, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	whose := func(site string) (string, error) {
		c, err := f.sites[site].Client.CoreV1().ConfigMaps(shopNamespace).Get(t.Context(), "settings", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return c.Data["whose"], nil
	}
	testkit.Eventually(t, "the other site has it, and this one says what is in the way", func() error {
		if got, err := whose("lyon"); err != nil || got != "ours" {
			return fmt.Errorf("lyon: %q, %v", got, err)
		}
		site, err := f.object(t, "sites", "main-system", "paris")
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(site.Object, "status", "conditions")
		said := 0
		for _, c := range conditions {
			if strings.Contains(fmt.Sprint(c), "settings") {
				said++
			}
		}
		status := f.muster("vk8s", "status", "shop/prod", "configmap/settings", "-T", "main")
		if said != 1 || !strings.Contains(status, "NameClash") || !strings.Contains(status, "is not Muster's") || strings.Count(status, "Ready") != 1 {
			return fmt.Errorf("conditions of the site: %v; of the object:\n%s", conditions, status)
		}
		return nil
	})
	if got, err := whose("paris"); err != nil || got != "theirs" {
		t.Errorf("paris: %q, %v", got, err)
	}
	if err := paris.Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it comes once the way is free", func() error {
		if got, err := whose("paris"); err != nil || got != "ours" {
			return fmt.Errorf("paris: %q, %v", got, err)
		}
		if status := f.muster("vk8s", "status", "shop/prod", "configmap/settings", "-T", "main"); strings.Contains(status, "NameClash") || strings.Count(status, "Ready") != 2 {
			return fmt.Errorf("of the object:\n%s", status)
		}
		return nil
	})
}

// testOutage: what was changed while a site's API server was down is made up for, and what
// ran there ran on.
func testOutage(t *testing.T, f *clusters) {
	before := f.podOn("web", "lyon")
	f.sites["lyon"].StopServer()
	three := web("nginx:1.28")
	three.Spec.Replicas = new(int32)
	*three.Spec.Replicas = 3
	apply(t, f.kube, three)
	f.runs("web", 3, "paris")
	f.sites["lyon"].StartServer()
	f.runs("web", 3, "paris", "lyon")
	if _, err := f.kube.CoreV1().Pods(shopNamespace).Get(t.Context(), before, metav1.GetOptions{}); err != nil {
		t.Errorf("a pod that ran through the outage: %v", err)
	}
	// The same of a power cut, after which its containers are others.
	f.sites["lyon"].Kill()
	f.sites["lyon"].Restart()
	f.runs("web", 3, "paris", "lyon")
}

// testLateSite: a site that joins gets what is meant for it by itself.
func testLateSite(t *testing.T, f *clusters) {
	f.join("nice")
	f.runs("web", 3, "paris", "lyon", "nice")
}

func testDelete(t *testing.T, f *clusters) {
	if err := f.kube.AppsV1().Deployments(shopNamespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it is gone everywhere", func() error {
		if left := f.pods("web"); len(left) > 0 {
			return fmt.Errorf("%d pods are told still", len(left))
		}
		for name, site := range f.sites {
			if _, err := site.Client.AppsV1().Deployments(shopNamespace).Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s: %v", name, err)
			}
		}
		return nil
	})
}

func web(image string) *appsv1.Deployment {
	l, two := map[string]string{"app": "web"}, int32(2)
	return &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: l},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}}}}
}

func apply(t *testing.T, c kubernetes.Interface, d *appsv1.Deployment) {
	t.Helper()
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	force := true
	if _, err := c.AppsV1().Deployments(shopNamespace).Patch(t.Context(), d.Name, types.ApplyPatchType, b, metav1.PatchOptions{FieldManager: "e2e", Force: &force}); err != nil {
		t.Fatal(err)
	}
}

// runs waits until the pods of an app are ready, so many on each of the sites; on others
// there may be any.
func (f *clusters) runs(app string, each int, sites ...string) {
	f.t.Helper()
	testkit.EventuallyWithin(f.t, fmt.Sprintf("%d pods of %s are ready on each of %v", each, app, sites), 2*time.Minute, func() error {
		ready := map[string]int{}
		for _, p := range f.pods(app) {
			site, _, _ := strings.Cut(p.Spec.NodeName, "-")
			if p.DeletionTimestamp == nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready {
				ready[site]++
			} else {
				ready[site+" not"]++
			}
		}
		for _, s := range sites {
			if ready[s] != each || ready[s+" not"] > 0 {
				return fmt.Errorf("%v", ready)
			}
		}
		return nil
	})
}

func (f *clusters) pods(app string) []corev1.Pod {
	f.t.Helper()
	list, err := f.kube.CoreV1().Pods(shopNamespace).List(context.Background(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		f.t.Fatal(err)
	}
	return list.Items
}

func (f *clusters) podOn(app, site string) string {
	f.t.Helper()
	for _, p := range f.pods(app) {
		if strings.HasPrefix(p.Spec.NodeName, site+"-") {
			return p.Name
		}
	}
	f.t.Fatalf("no pod of %s on %s", app, site)
	return ""
}

// forward asks a pod's port 80 for a page, as kubectl port-forward does.
func (f *clusters) forward(t *testing.T, pod string) (string, error) {
	rt, upgrader, err := spdy.RoundTripperFor(f.shop)
	if err != nil {
		return "", err
	}
	u := f.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(shopNamespace).Name(pod).SubResource("portforward").URL()
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(u, f.shop)
	if err != nil {
		return "", err
	}
	dialer := portforward.NewFallbackDialer(tunnel, spdy.NewDialer(upgrader, &http.Client{Transport: rt}, http.MethodPost, u), func(error) bool { return true })
	stop, ready := make(chan struct{}), make(chan struct{})
	defer close(stop)
	fw, err := portforward.New(dialer, []string{"0:80"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- fw.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return "", err
	case <-t.Context().Done():
		return "", t.Context().Err()
	}
	ports, err := fw.GetPorts()
	if err != nil {
		return "", err
	}
	b, err := getBody(fmt.Sprintf("http://127.0.0.1:%d/", ports[0].Local), nil)
	return string(b), err
}

// object gets one of Muster's objects as the fleet's administrator.
func (f *clusters) object(t *testing.T, resource, namespace, name string) (*unstructured.Unstructured, error) {
	c, err := dynamic.NewForConfig(f.admin)
	if err != nil {
		return nil, err
	}
	return c.Resource(schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: resource}).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
}

// startClusters starts control and a regional, on ports of their own, and makes a virtual
// Kubernetes for all sites of a region.
func startClusters(t *testing.T) *clusters {
	f := &clusters{t: t, dir: t.TempDir(), sites: map[string]*kubesite.Cluster{}, stopEdge: map[string]func(){}, pids: map[string]int{}, gateway: testkit.FreeAddr(t)}
	config := fmt.Sprintf("control: {listen: %q, fleetListen: %q, opsListen: %q}\nregionals:\n- {name: one, listen: %q, queryListen: %q, logs: {forwardListen: \"\"}}\n",
		testkit.FreeAddr(t), testkit.FreeAddr(t), testkit.FreeAddr(t), f.gateway, testkit.FreeAddr(t))
	if err := os.WriteFile(f.path("muster.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	f.process("control", bin("muster"), "control", "--config", f.path("muster.yaml"), "--data-dir", f.path("data"))
	testkit.EventuallyWithin(t, "control is up", 2*time.Minute, func() error {
		var err error
		if f.admin, err = clientcmd.BuildConfigFromFlags("", f.path("data", "admin.kubeconfig")); err != nil {
			return err
		}
		c, err := dynamic.NewForConfig(f.admin)
		if err != nil {
			return err
		}
		_, err = c.Resource(schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: "tenants"}).
			Patch(t.Context(), "main", types.MergePatchType, []byte(`{"spec":{"namespaces":["shop"]}}`), metav1.PatchOptions{})
		return err
	})
	f.process("regional", bin("muster"), "regional", "--config", f.path("muster.yaml"), "--data-dir", f.path("data"))
	admin := kubernetes.NewForConfigOrDie(f.admin)
	testkit.Eventually(t, "the tenant's namespaces", func() error {
		for _, ns := range []string{"main-shared", shopNamespace} {
			if _, err := admin.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err := kubesite.Apply(t.Context(), f.admin, `
apiVersion: muster.dev/v1alpha1
kind: VirtualSite
metadata: {name: all-eu, namespace: main-shared}
spec: {siteSelector: {matchLabels: {region: eu}}}
---
apiVersion: muster.dev/v1alpha1
kind: VirtualKubernetes
metadata: {name: prod, namespace: `+shopNamespace+`}
spec: {defaultVirtualSite: shared/all-eu}
`); err != nil {
		t.Fatal(err)
	}
	f.shop = rest.CopyConfig(f.admin)
	f.shop.Host += "/api/vK8s/namespaces/" + shopNamespace + "/prod"
	f.kube = kubernetes.NewForConfigOrDie(f.shop)
	testkit.Eventually(t, "the virtual Kubernetes is served", func() error {
		_, err := f.kube.CoreV1().Pods(shopNamespace).List(t.Context(), metav1.ListOptions{})
		return err
	})
	return f
}

func (f *clusters) path(elem ...string) string {
	return filepath.Join(append([]string{f.dir}, elem...)...)
}

// process runs a process until the test ends, or stop is called.
func (f *clusters) process(name, path string, args ...string) (stop func()) {
	f.t.Helper()
	cmd, log := exec.Command(path, args...), &syncBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		f.t.Fatalf("start %s: %v; `make build` first", path, err)
	}
	f.pids[name] = cmd.Process.Pid
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	f.t.Cleanup(func() {
		stop()
		if f.t.Failed() {
			f.t.Logf("end of the log of %s:\n%s", name, tail([]byte(log.String()), 4000))
		}
	})
	return stop
}

// join starts a cluster and makes it a site as its admin would: with the manifest, though
// muster-edge is a process here, as the manifest's service account, and not a pod.
func (f *clusters) join(name string) {
	f.t.Helper()
	c := kubesite.Start(f.t, kubesite.Options{Nodes: 2, Prefix: "n"})
	token := f.muster("token", "create", "--auto-approve", "--label", "region=eu", "--token-only", "-T", "main")
	manifest := f.muster("site", "manifest", "--token", token, "--server", f.gateway, "--site", name, "--features", "workloads,virtualhosts")
	config, err := kubesite.Join(f.t.Context(), c.Config, manifest, token, f.path("sites", name), "")
	if err != nil {
		f.t.Fatal(err)
	}
	if own := testkit.OwnAddress(f.t); own != "" { // where its pods would reach muster-edge
		edge, err := os.ReadFile(config)
		if err != nil {
			f.t.Fatal(err)
		}
		if err := os.WriteFile(config, bytes.Replace(edge, []byte("kubernetes:\n"), []byte("kubernetes:\n  address: "+own+"\n"), 1), 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	f.sites[name] = c
	f.startEdge(name)
}

// startEdge starts muster-edge of a site, until the test ends or it is stopped.
func (f *clusters) startEdge(name string) {
	f.t.Helper()
	f.stopEdge[name] = f.process("muster-edge of "+name, bin("muster-edge"), "run", "--config", f.path("sites", name, "edge.yaml"))
}

func (f *clusters) muster(args ...string) string {
	f.t.Helper()
	cmd := exec.Command(bin("muster"), append(args, "--config", f.path("muster.yaml"), "--data-dir", f.path("data"))...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		f.t.Fatalf("muster %s: %v\n%s", strings.Join(args[:2], " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// shopConfig is the file of a kubeconfig of the virtual Kubernetes.
func (f *clusters) shopConfig() string {
	f.t.Helper()
	file := f.path("shop.kubeconfig")
	if err := os.WriteFile(file, []byte(f.muster("vk8s", "kubeconfig", "shop/prod", "-T", "main")), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return file
}

// program is one of upstream's, such as kubectl, with the kubeconfig of the virtual Kubernetes.
type program struct{ bin, home, kubeconfig string }

func (f *clusters) program(t *testing.T, bin string) program {
	return program{bin, t.TempDir(), f.shopConfig()}
}

// command is one call of it.
func (p program) command(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), p.bin, args...)
	cmd.Env = []string{"KUBECONFIG=" + p.kubeconfig, "HOME=" + p.home, "PATH=" + os.Getenv("PATH")}
	return cmd
}

// try runs it and returns what it says.
func (p program) try(t *testing.T, args ...string) (string, error) {
	out, err := p.command(t, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// run is a try that must succeed.
func (p program) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.try(t, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(p.bin), strings.Join(args, " "), err, out)
	}
	return out
}
