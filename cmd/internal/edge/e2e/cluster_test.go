package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/cmd/internal/cli"
	"muster.dev/muster/cmd/internal/edge"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/fakeregional"
	"muster.dev/muster/internal/testkit/kubeapi"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/loadtest/simsite"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

const token = "muster1.acme.token-x7.secret"

// parse reads a manifest.
func parse(t *testing.T, manifest string) []*unstructured.Unstructured {
	t.Helper()
	var list []*unstructured.Unstructured
	for _, doc := range strings.Split("\n"+manifest, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc+"\n"), &u.Object); err != nil {
			t.Fatal(err)
		}
		if len(u.Object) > 0 {
			list = append(list, u)
		}
	}
	return list
}

// apply applies the manifest as `kubectl apply --server-side --validate=strict` does, and
// returns its objects.
func apply(t *testing.T, admin *rest.Config, o cli.ManifestOptions) []*unstructured.Unstructured {
	t.Helper()
	var out bytes.Buffer
	if err := cli.Manifest(&out, o); err != nil {
		t.Fatal(err)
	}
	return applyText(t, admin, out.String())
}

func applyText(t *testing.T, admin *rest.Config, manifest string) []*unstructured.Unstructured {
	t.Helper()
	kube := kubernetes.NewForConfigOrDie(admin)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kube.Discovery()))
	dyn := dynamic.NewForConfigOrDie(admin)
	var list []*unstructured.Unstructured
	for _, u := range parse(t, manifest) {
		gvk := u.GroupVersionKind()
		m, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			t.Fatal(err)
		}
		var r dynamic.ResourceInterface = dyn.Resource(m.Resource)
		if m.Scope.Name() == meta.RESTScopeNameNamespace {
			r = dyn.Resource(m.Resource).Namespace(u.GetNamespace())
		}
		b, err := u.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Patch(t.Context(), u.GetName(), types.ApplyPatchType, b, metav1.PatchOptions{FieldManager: "kubectl", FieldValidation: metav1.FieldValidationStrict}); err != nil {
			t.Errorf("apply %s %s: %v", u.GetKind(), u.GetName(), err)
		}
		list = append(list, u)
	}
	if t.Failed() {
		t.FailNow()
	}
	return list
}

// podOf is a pod as a workload's controller makes it.
func podOf(t *testing.T, u *unstructured.Unstructured, name string) *corev1.Pod {
	t.Helper()
	raw, ok, err := unstructured.NestedMap(u.Object, "spec", "template")
	if err != nil || !ok {
		t.Fatalf("%s has no template: %v", u.GetName(), err)
	}
	var tmpl corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &tmpl); err != nil {
		t.Fatal(err)
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: u.GetNamespace(), Labels: tmpl.Labels, Annotations: tmpl.Annotations}, Spec: tmpl.Spec}
}

// The manifest with every feature applies without a doubtful field, again too, and its pods
// pass the Pod Security of the namespaces that it makes.
func TestManifestIsAdmitted(t *testing.T) {
	admin := kubeapi.Start(t)
	kube := kubernetes.NewForConfigOrDie(admin)
	o := cli.ManifestOptions{Namespace: "muster-all", Servers: []string{"gw.example.com:7443"}, CAHash: "sha256:" + strings.Repeat("6d", 32), Token: token, Features: cli.Features, Image: "muster-edge:v1"}
	apply(t, admin, o)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	seen := 0
	for _, u := range apply(t, admin, o) {
		if k := u.GetKind(); k != "Deployment" && k != "DaemonSet" {
			continue
		}
		seen++
		pod := podOf(t, u, u.GetName())
		if _, err := kube.CoreV1().Pods(u.GetNamespace()).Create(t.Context(), pod, dry); err != nil {
			t.Errorf("the pod of %s %s: %v", u.GetKind(), u.GetName(), err)
		}
		if u.GetKind() == "DaemonSet" {
			// That the namespace's level is what lets it in, and the other one's is enforced.
			pod.Namespace = o.Namespace
			if _, err := kube.CoreV1().Pods(o.Namespace).Create(t.Context(), pod, dry); !apierrors.IsForbidden(err) {
				t.Errorf("the pod of %s in the restricted namespace: %v, want it refused", u.GetName(), err)
			}
		}
		for _, c := range pod.Spec.Containers {
			if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() || c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
				t.Errorf("%s: %s lacks limits, requests or a read-only root", u.GetName(), c.Name)
			}
		}
	}
	if seen != 5 {
		t.Errorf("%d workloads, want muster-edge, its guard, kube-state-metrics and two DaemonSets", seen)
	}
}

// sim is a simulated cluster behind the API server: its exporters answer on addresses of
// this machine, where its objects say that they are.
type sim struct {
	t    *testing.T
	kube kubernetes.Interface
	site *simsite.Site
}

func (s *sim) page(exporter string, node int) http.Handler {
	for _, p := range s.site.NodePages() {
		if p.Exporter == exporter && (p.Node == node || p.Node < 0) {
			return p.Handler
		}
	}
	s.t.Fatalf("no page %s of node %d", exporter, node)
	return nil
}

// addr is where node n's pods and kubelet are.
func addr(n int) string { return fmt.Sprintf("127.0.0.%d", 11+n) }

// node makes a node whose kubelet asks the API server who is asking, as real ones do.
func (s *sim) node(n int) string {
	s.t.Helper()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.page("kubelet", n))
	mux.Handle("GET /metrics/cadvisor", s.page("cadvisor", n))
	ln, err := net.Listen("tcp", addr(n)+":0")
	if err != nil {
		s.t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := s.authorize(r); code != http.StatusOK {
			http.Error(w, http.StatusText(code), code)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	srv.Listener = ln
	srv.StartTLS()
	s.t.Cleanup(srv.Close)
	name := s.site.Nodes()[n]
	nodes := s.kube.CoreV1().Nodes()
	made, err := nodes.Create(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	made.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr(n)}}
	made.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(ln.Addr().(*net.TCPAddr).Port)
	made.Status.NodeInfo = corev1.NodeSystemInfo{Architecture: "arm64", OSImage: "Debian GNU/Linux 13 (trixie)", KernelVersion: "6.12.48", KubeletVersion: "v1.35.4"}
	if _, err := nodes.UpdateStatus(s.t.Context(), made, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = nodes.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	return name
}

func (s *sim) authorize(r *http.Request) int {
	bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return http.StatusUnauthorized
	}
	who, err := s.kube.AuthenticationV1().TokenReviews().Create(r.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: bearer}}, metav1.CreateOptions{})
	if err != nil || !who.Status.Authenticated {
		return http.StatusUnauthorized
	}
	may, err := s.kube.AuthorizationV1().SubjectAccessReviews().Create(r.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: who.Status.User.Username, Groups: who.Status.User.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "nodes", Subresource: "metrics"},
	}}, metav1.CreateOptions{})
	if err != nil || !may.Status.Allowed {
		return http.StatusForbidden
	}
	return http.StatusOK
}

// pod makes a pod that runs on node n, with one port.
func (s *sim) pod(namespace, name string, n int, labels, annotations map[string]string, port string, number int) {
	s.t.Helper()
	_, err := s.kube.CoreV1().Namespaces().Create(s.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
	yes, no := true, false
	pods := s.kube.CoreV1().Pods(namespace)
	p, err := pods.Create(s.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}, Spec: corev1.PodSpec{
		NodeName: s.site.Nodes()[n], AutomountServiceAccountToken: &no,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers:      []corev1.Container{{Name: "c", Image: "c", SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}, Ports: []corev1.ContainerPort{{Name: port, ContainerPort: int32(number)}}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, HostIP: addr(n), PodIP: addr(n), PodIPs: []corev1.PodIP{{IP: addr(n)}}, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	if _, err := pods.UpdateStatus(s.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { s.gone(namespace, name) })
}

func (s *sim) gone(namespace, name string) {
	now := int64(0)
	_ = s.kube.CoreV1().Pods(namespace).Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &now})
}

// member is what muster-edge is given in a pod, as files of this test: a kubeconfig with a
// token of its service account, which has the rights of the manifest and no others.
type member struct {
	t      *testing.T
	conf   edge.Config
	stop   func()
	status func() string
}

func kubeconfigOf(t *testing.T, admin *rest.Config, namespace string) string {
	t.Helper()
	tok, err := kubernetes.NewForConfigOrDie(admin).CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "muster-edge", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig(t, &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData, CertificateAuthority: admin.CAFile, TLSServerName: admin.ServerName}, tok.Status.Token)
}

func kubeconfig(t *testing.T, cluster *clientcmdapi.Cluster, bearer string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"c": cluster},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {Token: bearer}}, Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// configOf is the configuration that the manifest brings, with the paths of this test.
func configOf(t *testing.T, list []*unstructured.Unstructured, kubeconfig string) edge.Config {
	t.Helper()
	i := slices.IndexFunc(list, func(u *unstructured.Unstructured) bool {
		return u.GetKind() == "ConfigMap" && u.GetName() == "muster-edge"
	})
	text, _, _ := unstructured.NestedString(list[i].Object, "data", "edge.yaml")
	file := filepath.Join(t.TempDir(), "edge.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := edge.LoadConfig(file, false)
	if err != nil {
		t.Fatalf("the manifest's configuration: %v", err)
	}
	c.TokenFile = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(c.TokenFile, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Kubernetes.Kubeconfig, c.Kubernetes.LookEvery = kubeconfig, time.Second
	c.StateDir, c.SpoolSync = t.TempDir(), 0
	c.OpsListen, c.ProbeListen = free(t), free(t)
	if c.LogsListen != "" {
		c.LogsListen = free(t)
	}
	return c
}

func free(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// run runs muster-edge until stop.
func run(t *testing.T, c edge.Config) *member {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- edge.Run(ctx, c) }()
	m := &member{t: t, conf: c}
	stopped := false
	m.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("muster-edge: %v", err)
		}
	}
	t.Cleanup(m.stop)
	m.status = func() string {
		var b bytes.Buffer
		if err := edge.PrintStatus(t.Context(), &b, c, false); err != nil && !errors.Is(err, edge.ErrUnhealthy) {
			return err.Error()
		}
		return b.String()
	}
	return m
}

func (m *member) says(t *testing.T, what string, words ...string) {
	t.Helper()
	testkit.Eventually(t, what, func() error {
		text := m.status()
		for _, w := range words {
			if !strings.Contains(text, w) {
				return fmt.Errorf("status lacks %q:\n%s", w, text)
			}
		}
		return nil
	})
}

func TestClusterBecomesASite(t *testing.T) {
	admin := kubeapi.Start(t)
	kube := kubernetes.NewForConfigOrDie(admin)
	system, err := kube.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name := "cluster-" + strings.ReplaceAll(string(system.UID), "-", "")[:8]
	c := startCentre(t, name)
	c.OnRegister(func(req *wire.RegisterRequest) (*wire.RegisterResponse, error) {
		if req.GetToken() != token {
			return nil, grpcstatus.Error(codes.PermissionDenied, "the token is not known")
		}
		if req.GetSystemLabels()["nodes"] != "2" || req.GetSystemLabels()["arch"] != "arm64" || req.GetSystemLabels()["os"] != "debian" {
			return nil, grpcstatus.Errorf(codes.InvalidArgument, "labels %v", req.GetSystemLabels())
		}
		return c.Issue(req, fleet.SiteID{Tenant: tenant, Name: req.GetSite()})
	})
	o := cli.ManifestOptions{Namespace: "muster-edge", Servers: []string{strings.TrimPrefix(c.URL(), "https://")}, CAHash: c.CAHash(), Token: token, Features: []string{"metrics", "host", "logs"}, Image: "muster-edge:v1"}
	list := apply(t, admin, o)
	conf := configOf(t, list, kubeconfigOf(t, admin, o.Namespace))

	s := &sim{t: t, kube: kube}
	if s.site, err = simsite.New(simsite.Options{Name: "sim", Nodes: 2, Pods: 20}); err != nil {
		t.Fatal(err)
	}
	pairs := t.TempDir()
	for n := range 2 {
		s.node(n)
		s.pod("kube-system", fmt.Sprintf("cilium-%d", n), n, map[string]string{"k8s-app": "cilium"}, map[string]string{"prometheus.io/scrape": "true"}, "prometheus", serve(t, addr(n), s.page("cilium-agent", n), nil))
		at := addr(n) + ":0"
		ln, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		at = ln.Addr().String()
		_ = ln.Close()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			done <- edge.HostMetrics(ctx, edge.HostMetricsOptions{Listen: at, PairDir: pairs, Log: edge.DefaultConfig().Log})
		}()
		t.Cleanup(func() { cancel(); <-done })
		_, p, _ := net.SplitHostPort(at)
		port, _ := strconv.Atoi(p)
		s.pod("muster-edge-host", fmt.Sprintf("host-%d", n), n, map[string]string{"app.kubernetes.io/name": "muster-edge-host"}, nil, "metrics", port)
	}
	text := func(page string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, page) })
	}
	s.pod("kube-system", "coredns-1", 0, map[string]string{"k8s-app": "kube-dns"}, nil, "metrics", serve(t, addr(0), text(`coredns_dns_responses_total{rcode="NOERROR"} 7`), nil))
	ksm := map[string]string{"app.kubernetes.io/name": "kube-state-metrics"}
	s.pod("muster-edge", "kube-state-metrics-1", 0, ksm, nil, "http-metrics", serve(t, addr(0), s.page("kube-state-metrics", -1), nil))
	felix := serve(t, addr(1), text("felix_int_dataplane_failures 0"), nil)
	s.pod("calico", "felix-1", 1, nil, map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": strconv.Itoa(felix)}, "other", 1)

	c.SetDesired(c.site, fakeregional.Blob{Kind: fleet.KindCollectionPolicy, Name: "effective", Data: policy().Encode()})
	m := run(t, conf)
	// What the kubelet does with the Secret that the pods on the nodes mount.
	testkit.Eventually(t, "the key pair is made", func() error {
		got, err := kube.CoreV1().Secrets("muster-edge-host").Get(t.Context(), "muster-edge-host", metav1.GetOptions{})
		if err != nil || len(got.Data["tls.crt"]) == 0 {
			return fmt.Errorf("%d keys, %w", len(got.Data), err)
		}
		for k, v := range got.Data {
			if err := os.WriteFile(filepath.Join(pairs, k), v, 0o600); err != nil {
				return err
			}
		}
		return nil
	})
	c.judge()

	t.Run("all four dimensions are known", func(t *testing.T) {
		testkit.Eventually(t, "health knows all of the site", func() error {
			v := c.health.View()
			if v == nil {
				return errors.New("health has not looked yet")
			}
			site := v.Find(tenant, name)
			if site == nil || site.State == nil {
				return fmt.Errorf("health knows no %s; status:\n%s", name, m.status())
			}
			var unknown []string
			for i, d := range fleet.Dimensions {
				if !site.State.Dimensions[i].Known {
					unknown = append(unknown, string(d))
				}
			}
			packs := map[string]bool{}
			for i, p := range site.State.Model.Packs {
				packs[p.Name] = site.State.Packs[i] > 0
			}
			for _, want := range []string{"collector", "kubernetes", "kubelet", "kubelet-certificates", "cpu-limits", "cilium", "coredns", "calico"} {
				if !packs[want] {
					unknown = append(unknown, "pack "+want)
				}
			}
			if len(unknown) > 0 {
				return fmt.Errorf("unknown: %v; status:\n%s", unknown, m.status())
			}
			return nil
		})
	})

	t.Run("status says by what", func(t *testing.T) {
		m.says(t, "each dimension has its exporters", "cadvisor 2/2", "cilium-agent 2/2", "coredns 1/1", "kube-state-metrics 1/1", "kubelet 2/2", "node 2/2", "pods 1/1", "Nothing is wrong.")
		var feeds struct {
			Feeds struct {
				Dimensions []struct {
					Dimension fleet.Dimension
					By        []struct {
						Exporter   string
						Jobs, Seen []string
					}
				}
				Unseen []string
			}
		}
		var b bytes.Buffer
		if err := edge.PrintStatus(t.Context(), &b, conf, true); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b.Bytes(), &feeds); err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, d := range feeds.Feeds.Dimensions {
			for _, e := range d.By {
				for _, j := range e.Jobs {
					got[string(d.Dimension)+" "+e.Exporter+" "+j] = true
				}
			}
		}
		for _, want := range []string{"connectivity muster-edge muster-edge", "connectivity host metrics node", "reliability kube-state-metrics kube-state-metrics", "reliability kubelet kubelet",
			"reliability Calico pods", "reliability CoreDNS coredns", "security kubelet kubelet", "security Cilium cilium-agent", "security host metrics node", "performance cAdvisor cadvisor"} {
			if !got[want] {
				t.Errorf("nothing says %q: %v", want, got)
			}
		}
		if slices.Contains(feeds.Feeds.Unseen, "kube_node_info") || !slices.Contains(feeds.Feeds.Unseen, "longhorn_volume_robustness") {
			t.Errorf("unseen: %v", feeds.Feeds.Unseen)
		}
	})

	t.Run("the pages are its own", func(t *testing.T) {
		pods, err := kube.CoreV1().Pods("muster-edge-host").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		at := net.JoinHostPort(pods.Items[0].Status.PodIP, strconv.Itoa(int(pods.Items[0].Spec.Containers[0].Ports[0].ContainerPort)))
		stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		if res, err := stranger.Get("https://" + at + "/metrics"); err == nil {
			res.Body.Close()
			t.Errorf("the host metrics answer a stranger: %s", res.Status)
		}
		res, err := http.Get("http://" + conf.ProbeListen + "/debug/status")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusNotFound {
			t.Errorf("the port for probes serves /debug/status: %s", res.Status)
		}
	})

	t.Run("logs go out as the site", func(t *testing.T) {
		pair, err := tls.LoadX509KeyPair(filepath.Join(pairs, "tls.crt"), filepath.Join(pairs, "tls.key"))
		if err != nil {
			t.Fatal(err)
		}
		for _, certs := range [][]tls.Certificate{nil, {pair}} {
			cl := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certs}}}
			res, err := cl.Post("https://"+conf.LogsListen+"/api/v1/logs", "application/x-ndjson", strings.NewReader(`{"log":"hello"}`))
			if certs == nil {
				if err == nil {
					res.Body.Close()
					t.Errorf("a stranger may send logs: %s", res.Status)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("%s %s", res.Status, b)
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.logs) != 1 || !strings.Contains(c.logs[0], "/site/"+name+" ") || !strings.Contains(c.logs[0], "hello") {
			t.Errorf("the gateway got %q", c.logs)
		}
	})

	t.Run("another kube-state-metrics takes over from ours", func(t *testing.T) {
		s.pod("monitoring", "ksm-theirs", 1, ksm, nil, "http-metrics", serve(s.t, addr(1), s.page("kube-state-metrics", -1), nil))
		replicas := func(want int32) func() error {
			return func() error {
				d, err := kube.AppsV1().Deployments("muster-edge").Get(t.Context(), "kube-state-metrics", metav1.GetOptions{})
				if err != nil || *d.Spec.Replicas != want {
					return fmt.Errorf("replicas %d, %w", *d.Spec.Replicas, err)
				}
				return nil
			}
		}
		testkit.Eventually(t, "ours stands down", replicas(0))
		s.gone("muster-edge", "kube-state-metrics-1")
		apply(t, admin, o) // again, which must not start ours
		if err := replicas(0)(); err != nil {
			t.Error(err)
		}
		s.gone("monitoring", "ksm-theirs")
		testkit.Eventually(t, "ours stands in", replicas(1))
		m.says(t, "the gap is told", "kube-state-metrics: the cluster has none that runs")
		testkit.Eventually(t, "the centre is told", func() error {
			if cond := c.Seen(c.site).Condition("DiscoveryFailing"); cond.GetStatus() != "True" || cond.GetReason() != "NotFound" {
				return fmt.Errorf("%v", cond)
			}
			return nil
		})
		s.pod("muster-edge", "kube-state-metrics-1", 0, ksm, nil, "http-metrics", serve(s.t, addr(0), s.page("kube-state-metrics", -1), nil))
	})

	t.Run("a right that is missing is named, and costs the others nothing", func(t *testing.T) {
		role, err := kube.RbacV1().ClusterRoles().Get(t.Context(), "muster-edge", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		whole := role.DeepCopy()
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "nodes/metrics") })
		if _, err := kube.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		m.says(t, "what is missing is said", "security lacks kubelet: the service account may not get nodes/metrics", "cilium-agent 2/2", "403")
		force := true
		if _, err := kube.RbacV1().ClusterRoles().Patch(t.Context(), whole.Name, types.ApplyPatchType, mustJSON(t, map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
			"metadata": map[string]any{"name": whole.Name, "labels": whole.Labels}, "rules": whole.Rules}), metav1.PatchOptions{FieldManager: "kubectl", Force: &force}); err != nil {
			t.Fatal(err)
		}
		testkit.EventuallyTrue(t, "it heals", func() bool { return strings.Contains(m.status(), "Nothing is wrong.") })
	})

	t.Run("on another node it is the same site", func(t *testing.T) {
		registered := 0
		c.OnRegister(func(req *wire.RegisterRequest) (*wire.RegisterResponse, error) {
			registered++
			if req.GetSite() != name {
				t.Errorf("it registers as %q", req.GetSite())
			}
			return c.Issue(req, fleet.SiteID{Tenant: tenant, Name: req.GetSite()})
		})
		key, err := os.ReadFile(filepath.Join(conf.StateDir, "agent", "key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		cert, err := os.ReadFile(filepath.Join(conf.StateDir, "agent", "cert.pem"))
		if err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the certificate is in the Secret", func() error {
			got, err := kube.CoreV1().Secrets("muster-edge").Get(t.Context(), "muster-edge-identity", metav1.GetOptions{})
			if err != nil || !bytes.Equal(got.Data["cert.pem"], cert) || !bytes.Equal(got.Data["key.pem"], key) {
				return fmt.Errorf("%d files, %w", len(got.Data), err)
			}
			return nil
		})
		m.stop()
		apply(t, admin, o) // which must not empty it
		moved := conf
		moved.StateDir = t.TempDir()
		if err := os.Remove(conf.TokenFile); err != nil { // the token's Secret was deleted meanwhile
			t.Fatal(err)
		}
		m2 := run(t, moved)
		m2.says(t, "it is connected", name, "connected")
		if got, _ := os.ReadFile(filepath.Join(moved.StateDir, "agent", "key.pem")); !bytes.Equal(got, key) {
			t.Error("it made itself another key")
		}
		if registered > 0 {
			t.Errorf("it registered %d times again, with its certificate in the Secret", registered)
		}
		m2.stop()
	})
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := yaml.Marshal(v)
	if err == nil {
		b, err = yaml.YAMLToJSON(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	admin := kubeapi.Start(t)
	c := startCentre(t, "wrong")
	c.OnRegister(func(*wire.RegisterRequest) (*wire.RegisterResponse, error) {
		return nil, grpcstatus.Error(codes.PermissionDenied, "token token-x7 of tenant acme is used up; make another")
	})
	o := cli.ManifestOptions{Namespace: "muster-wrong", Servers: []string{strings.TrimPrefix(c.URL(), "https://")}, CAHash: c.CAHash(), Token: token, Site: "wrong", Features: []string{"metrics"}, Image: "muster-edge:v1"}
	conf := configOf(t, apply(t, admin, o), kubeconfigOf(t, admin, o.Namespace))

	m := run(t, conf)
	m.says(t, "the token is refused", "refused", "is used up; make another")
	m.stop()

	conf.StateDir, conf.Gateways = t.TempDir(), []string{free(t)}
	m = run(t, conf)
	m.says(t, "the gateway can't be reached", conf.Gateways[0], "connection refused")
	m.stop()

	kube := kubernetes.NewForConfigOrDie(admin)
	if err := kube.RbacV1().Roles(o.Namespace).Delete(t.Context(), "muster-edge", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	conf.StateDir = t.TempDir()
	m = run(t, conf)
	testkit.Eventually(t, "it waits for the Secret, alive and not ready", func() error {
		for path, want := range map[string]int{"/-/ready": http.StatusServiceUnavailable, "/-/healthy": http.StatusOK} {
			res, err := http.Get("http://" + conf.ProbeListen + path)
			if err != nil {
				return err
			}
			res.Body.Close()
			if res.StatusCode != want {
				return fmt.Errorf("%s: %s", path, res.Status)
			}
		}
		return nil
	})
	m.says(t, "it says for what it waits", "may not get and update the Secret muster-wrong/muster-edge-identity")
	if _, err := os.Stat(filepath.Join(conf.StateDir, "agent", "key.pem")); !os.IsNotExist(err) {
		t.Errorf("it made itself a key before it knew whether it has one: %v", err)
	}
	m.stop()
}
