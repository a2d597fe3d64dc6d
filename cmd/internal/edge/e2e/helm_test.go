package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/remotecommand"

	"muster.dev/muster/cmd/internal/cli"
	"muster.dev/muster/control/agent/software/images"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/fakeregional"
	"muster.dev/muster/internal/testkit/kubectl"
	"muster.dev/muster/internal/testkit/kubesite"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// chartDir is the chart as who installs it has it.
const chartDir = "../../../../deploy/helm/muster-edge"

// release is the chart on a cluster, by a Helm of some version.
type release struct {
	*kubesite.Cluster
	t      *testing.T
	helm   string
	centre *centre
	home   string
}

const releaseNamespace, releaseHosts = "muster-edge", "muster-edge-host"

// startRelease starts a cluster with the namespace that docs/getting-started.md says to make.
func startRelease(t *testing.T, helm, site string) *release {
	t.Helper()
	r := &release{Cluster: kubesite.Start(t, kubesite.Options{Nodes: 2}), t: t, helm: helm, centre: startCentre(t, site), home: t.TempDir()}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: releaseNamespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted", "app.kubernetes.io/part-of": "muster"}}}
	if _, err := r.Client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *release) options(features ...string) cli.ManifestOptions {
	return cli.ManifestOptions{Namespace: releaseNamespace, Servers: []string{strings.TrimPrefix(r.centre.URL(), "https://")}, CAHash: r.centre.CAHash(), Token: token, Site: r.centre.site.Name, Features: features, Image: "muster-edge:v1"}
}

// try runs Helm and returns what it says.
func (r *release) try(args ...string) (string, error) {
	cmd := exec.CommandContext(r.t.Context(), r.helm, append(args, "-n", releaseNamespace)...)
	cmd.Env = []string{"KUBECONFIG=" + r.Kubeconfig, "HOME=" + r.home, "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *release) run(args ...string) string {
	r.t.Helper()
	out, err := r.try(args...)
	if err != nil {
		events, _ := r.Client.CoreV1().Events("").List(r.t.Context(), metav1.ListOptions{})
		for _, e := range events.Items {
			if e.Type == corev1.EventTypeWarning {
				out += "\n" + e.InvolvedObject.Kind + " " + e.InvolvedObject.Name + ": " + e.Message
			}
		}
		r.t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// values are a file of the chart's values with these features and no others.
func (r *release) values(features ...string) string {
	r.t.Helper()
	o, on := r.options(), map[string]bool{}
	for _, f := range cli.Features {
		on[f] = slices.Contains(features, f)
	}
	b, err := json.Marshal(map[string]any{"join": map[string]any{"servers": o.Servers, "caHash": o.CAHash, "token": o.Token}, "site": o.Site, "features": on, "image": map[string]any{"tag": "v1"}})
	if err != nil {
		r.t.Fatal(err)
	}
	file := filepath.Join(r.t.TempDir(), "values.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		r.t.Fatal(err)
	}
	return file
}

// upgrade installs the chart, or changes what it is on the cluster, and waits until all is ready.
func (r *release) upgrade(features []string, more ...string) {
	r.t.Helper()
	r.run(append([]string{"upgrade", "--install", "muster-edge", chartDir, "--wait", "--timeout", "2m", "--values", r.values(features...)}, more...)...)
}

// objects are those of the release, as Helm has them.
func (r *release) objects() []*unstructured.Unstructured {
	r.t.Helper()
	return parse(r.t, r.run("get", "manifest", "muster-edge"))
}

func byName(list []*unstructured.Unstructured) map[string]any {
	out := map[string]any{}
	for _, u := range list {
		labels := u.GetLabels()
		delete(labels, "app.kubernetes.io/managed-by")
		u.SetLabels(labels)
		out[u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName()] = u.Object
	}
	return out
}

// may tells what the cluster lets an account of the chart do: "VERB RESOURCE[/SUBRESOURCE]
// [NAMESPACE/[NAME]]" as "patch deployments.apps/scale muster-edge/kube-state-metrics".
func (r *release) may(account, what string) bool {
	r.t.Helper()
	words := strings.Fields(what)
	gr, sub, _ := strings.Cut(words[1], "/")
	resource := schema.ParseGroupResource(gr)
	a := &authorizationv1.ResourceAttributes{Verb: words[0], Group: resource.Group, Resource: resource.Resource, Subresource: sub}
	if len(words) > 2 {
		a.Namespace, a.Name, _ = strings.Cut(words[2], "/")
	}
	if resource.Resource == "namespaces" { // whose name is their own namespace, too
		a.Name = a.Namespace
	}
	got, err := r.Client.AuthorizationV1().SubjectAccessReviews().Create(r.t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + account, Groups: []string{"system:serviceaccounts", "system:authenticated"}, ResourceAttributes: a,
	}}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return got.Status.Allowed
}

const (
	edgeAccount    = releaseNamespace + ":muster-edge"
	guardAccount   = releaseNamespace + ":muster-edge-guard"
	restartAccount = releaseNamespace + ":muster-edge-restart"
	logsAccount    = releaseHosts + ":muster-edge-logs"
)

// grants are rights by the features that bring them, one of which is enough; "": it is there
// without any. What is under "-" no feature brings.
var grants = map[string]map[string][]string{
	"": {edgeAccount: {"get nodes", "list nodes", "get namespaces kube-system", "get secrets muster-edge/muster-edge-identity", "update secrets muster-edge/muster-edge-identity"}},
	"metrics": {edgeAccount: {"get nodes/metrics", "get deployments.apps/scale muster-edge/kube-state-metrics", "patch deployments.apps/scale muster-edge/kube-state-metrics"},
		releaseNamespace + ":kube-state-metrics": {"list pods", "watch nodes", "list persistentvolumeclaims", "list deployments.apps", "watch statefulsets.apps", "list daemonsets.apps"}},
	"metrics workloads": {edgeAccount: {"list pods", "list namespaces", "watch pods"}},
	"host logs":         {},
	"logs":              {logsAccount: {"get pods", "list pods", "watch namespaces"}},
	"workloads": {edgeAccount: {
		"create namespaces", "get secrets acme-shop/x", "create secrets acme-shop", "patch configmaps acme-shop/x", "delete services acme-shop/x", "create persistentvolumeclaims acme-shop", "create resourcequotas acme-shop",
		"patch deployments.apps acme-shop/x", "delete statefulsets.apps acme-shop/x", "watch daemonsets.apps", "create jobs.batch acme-shop", "patch cronjobs.batch acme-shop/x", "create horizontalpodautoscalers.autoscaling acme-shop",
		"patch poddisruptionbudgets.policy acme-shop/x", "create networkpolicies.networking.k8s.io acme-shop", "delete ingresses.networking.k8s.io acme-shop/x", "watch customresourcedefinitions.apiextensions.k8s.io",
		"list events", "get pods/log acme-shop/x", "create pods/exec acme-shop/x", "get pods/portforward acme-shop/x", "delete pods acme-shop/x", "create pods/eviction acme-shop/x",
	}},
	"virtualhosts": {edgeAccount: {"list endpointslices.discovery.k8s.io acme-shop", "create endpointslices.discovery.k8s.io acme-shop", "delete endpointslices.discovery.k8s.io acme-shop/x"}},
	"restarts":     {restartAccount: {"patch nodes", "list pods", "create pods/eviction acme-shop/x", "create leases.coordination.k8s.io muster-edge", "update leases.coordination.k8s.io muster-edge/x"}},
	"upgrades": {edgeAccount: {"update configmaps muster-edge/muster-edge-upgrade", "update configmaps muster-edge/muster-edge-software", "patch deployments.apps/scale muster-edge/muster-edge-guard"},
		guardAccount: {"patch deployments.apps muster-edge/muster-edge", "patch deployments.apps muster-edge/muster-edge-guard", "update configmaps muster-edge/muster-edge-upgrade", "list pods muster-edge"}},
	"upgrades workloads": {edgeAccount: {"get deployments.apps muster-edge/muster-edge"}},
	"-": {edgeAccount: {"create pods acme-shop", "patch nodes", "get nodes/proxy", "create nodes/proxy", "create clusterroles.rbac.authorization.k8s.io", "bind clusterroles.rbac.authorization.k8s.io", "create rolebindings.rbac.authorization.k8s.io acme-shop",
		"create serviceaccounts/token acme-shop/x", "impersonate users", "create customresourcedefinitions.apiextensions.k8s.io", "update deployments.apps muster-edge/muster-edge", "create leases.coordination.k8s.io muster-edge"},
		guardAccount:   {"patch deployments.apps acme-shop/x", "patch deployments.apps muster-edge/x", "get secrets muster-edge/muster-edge-identity", "patch daemonsets.apps acme-shop/x"},
		restartAccount: {"get secrets muster-edge/muster-edge-identity", "delete nodes", "delete pods acme-shop/x", "create leases.coordination.k8s.io kube-system"},
		logsAccount:    {"get secrets muster-edge-host/muster-edge-host", "list secrets", "create pods acme-shop"}},
}

// grantsAre compares what accounts may with what the features should bring.
func (r *release) grantsAre(features []string) {
	r.t.Helper()
	for of, rights := range grants {
		want := of == "" || slices.ContainsFunc(strings.Fields(of), func(f string) bool { return slices.Contains(features, f) })
		for account, list := range rights {
			for _, what := range list {
				if got := r.may(account, what); got != want {
					r.t.Errorf("with %v, %s may %s: %v, want %v", features, account, what, got, want)
				}
			}
		}
	}
}

// watched is the cluster's API server for muster-edge, and what was forbidden there.
type watched struct {
	at clientcmdapi.Cluster

	mu     sync.Mutex
	refuse []string
}

// watch stands before the API server.
func (r *release) watch() *watched {
	r.t.Helper()
	to, err := url.Parse(r.Config.Host)
	if err != nil {
		r.t.Fatal(err)
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(r.Config))
	if err != nil {
		r.t.Fatal(err)
	}
	w := &watched{}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(to) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) },
		ModifyResponse: func(res *http.Response) error {
			q := res.Request.URL.Query()
			w.mu.Lock()
			defer w.mu.Unlock()
			// An agent that does not know what it applied asks for every kind whether there is some
			// of it, and takes a no for one.
			if search := q.Get("limit") == "1" && q.Get("labelSelector") != ""; res.StatusCode == http.StatusForbidden && !search {
				b, _ := io.ReadAll(res.Body)
				res.Body = io.NopCloser(bytes.NewReader(b))
				w.refuse = append(w.refuse, fmt.Sprintf("%s %s: %s", res.Request.Method, res.Request.URL, b))
			}
			return nil
		},
	}
	srv := httptest.NewTLSServer(proxy) // tokens are sent to no other
	r.t.Cleanup(srv.Close)
	w.at = clientcmdapi.Cluster{Server: srv.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})}
	return w
}

// nothingForbidden fails if something was since the last time.
func (w *watched) nothingForbidden(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.refuse {
		t.Error("forbidden: " + line)
	}
	w.refuse = nil
}

// left are the names of what is on the cluster of the release.
func (r *release) left() []string {
	r.t.Helper()
	lists, err := r.Client.Discovery().ServerPreferredResources()
	if err != nil {
		r.t.Fatal(err)
	}
	c := metadata.NewForConfigOrDie(r.Config)
	found := map[string]bool{}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, kind := range l.APIResources {
			if !slices.Contains(kind.Verbs, "list") || strings.Contains(kind.Name, "/") || kind.Name == "events" || gv.Group == "metrics.k8s.io" {
				continue
			}
			list, err := c.Resource(gv.WithResource(kind.Name)).List(r.t.Context(), metav1.ListOptions{})
			if err != nil {
				r.t.Fatal(err)
			}
			for _, o := range list.Items {
				ours := o.Namespace == releaseNamespace || o.Namespace == releaseHosts || strings.HasPrefix(o.Name, "muster-edge") || o.Labels["app.kubernetes.io/part-of"] == "muster"
				if ours && o.Name != "kube-root-ca.crt" && o.Name != "default" {
					found[strings.TrimSpace(kind.Kind+" "+o.Namespace+" "+o.Name)] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// The chart as a user of Helm has it, with each feature by itself and all at once: its objects
// are those of `muster site manifest`, its pods come up under Pod Security, its accounts may
// what the features are for and no more, and muster-edge is forbidden nothing with them.
func TestHelmFeatures(t *testing.T) {
	r := startRelease(t, kubectl.Helm(t), "helm")
	steps := [][]string{{}}
	for _, f := range cli.Features {
		if f == "virtualhosts" { // needs workloads
			steps = append(steps, []string{"workloads", f})
			continue
		}
		steps = append(steps, []string{f})
	}
	steps = append(steps, cli.Features, []string{})
	w := r.watch()
	for _, features := range steps {
		ok := t.Run(strings.Join(append([]string{"features"}, features...), "+"), func(t *testing.T) {
			r := *r
			r.upgrade(features)
			list := r.objects()
			var out bytes.Buffer
			if err := cli.Manifest(&out, r.options(features...)); err != nil {
				t.Fatal(err)
			}
			want := byName(parse(t, out.String()))
			delete(want, "Namespace /"+releaseNamespace) // Helm's users make it first
			if diff := cmp.Diff(want, byName(list)); diff != "" {
				t.Errorf("-muster site manifest +helm:\n%s", diff)
			}
			r.grantsAre(features)
			conf := configOf(t, list, kubeconfig(t, &w.at, r.ConfigAs(releaseNamespace, "muster-edge").BearerToken))
			if slices.Contains(features, "upgrades") {
				t.Setenv(images.EnvPod, "the-pod")
			}
			m := run(t, conf)
			m.says(t, "it is a site", "connected")
			for i, f := range features {
				alone := len(features) < len(cli.Features) // what it needs was seen before it
				if worked := worked[f]; worked != nil && !(alone && i < len(features)-1) {
					worked(&r, m)
				}
			}
			m.stop()
			w.nothingForbidden(t)
		})
		if !ok {
			return
		}
	}
}

// worked wait until muster-edge has done what a feature is for.
var worked = map[string]func(r *release, m *member){
	"metrics":   (*release).standsDown,
	"host":      func(r *release, _ *member) { r.filled(releaseHosts, "muster-edge-host", corev1.TLSCertKey) },
	"logs":      func(r *release, _ *member) { r.filled(releaseHosts, "muster-edge-host", corev1.TLSCertKey) },
	"workloads": (*release).carries,
	"restarts": func(r *release, _ *member) {
		r.filled(releaseNamespace, "muster-edge-restart", corev1.ServiceAccountTokenKey)
	},
	"upgrades": (*release).canBeReplaced,
}

// filled waits until a Secret of the chart has what the chart does not know.
func (r *release) filled(namespace, name, key string) {
	r.t.Helper()
	testkit.Eventually(r.t, "the Secret "+name+" is filled in", func() error {
		got, err := r.Client.CoreV1().Secrets(namespace).Get(r.t.Context(), name, metav1.GetOptions{})
		if err != nil || len(got.Data[key]) == 0 {
			return fmt.Errorf("%d keys, %w", len(got.Data), err)
		}
		return nil
	})
}

// standsDown has the chart's kube-state-metrics stand down for another, and stand in when that goes.
func (r *release) standsDown(m *member) {
	t := r.t
	t.Helper()
	m.says(t, "nodes are found", "kubelet 0/2")
	no := false
	theirs := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Labels: map[string]string{"app.kubernetes.io/name": "kube-state-metrics"}}, Spec: corev1.PodSpec{AutomountServiceAccountToken: &no,
		Containers: []corev1.Container{{Name: "c", Image: "c", Ports: []corev1.ContainerPort{{Name: "http-metrics", ContainerPort: 8080}}}}}}
	replicas := func(want int32) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("kube-state-metrics has %d replicas", want), func() error {
			d, err := r.Client.AppsV1().Deployments(releaseNamespace).Get(t.Context(), "kube-state-metrics", metav1.GetOptions{})
			if err != nil || *d.Spec.Replicas != want {
				return fmt.Errorf("%v, %w; status:\n%s", d.Spec.Replicas, err, m.status())
			}
			return nil
		})
	}
	if _, err := r.Client.CoreV1().Pods("default").Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	replicas(0)
	now := int64(0)
	if err := r.Client.CoreV1().Pods("default").Delete(t.Context(), theirs.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	replicas(1)
}

// canBeReplaced has agent and guard look at each other.
func (r *release) canBeReplaced(m *member) {
	r.t.Helper()
	testkit.Eventually(r.t, "the agent says what it runs", func() error {
		if text := m.status(); !strings.Contains(text, "agent ") || strings.Contains(text, "replace") {
			return errors.New(text)
		}
		return nil
	})
}

// objectOfEachKind is what workloads may be, in one namespace.
func objectOfEachKind(ns string) []fakeregional.Blob {
	blobs := []fakeregional.Blob{{Kind: workload.Kind, Name: "Namespace/-/" + ns, Data: []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + ns + `"}}`)}}
	template := `"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"c:1","resources":{"limits":{"cpu":"10m","memory":"10Mi"}}}]}}`
	for kind, rest := range map[string]string{
		"v1 ResourceQuota": `"spec":{"hard":{"pods":"100"}}`, "v1 LimitRange": `"spec":{"limits":[{"type":"Container","max":{"cpu":"1"}}]}`, "v1 ServiceAccount": `"automountServiceAccountToken":false`,
		"v1 Secret": `"data":{}`, "v1 ConfigMap": `"data":{}`, "v1 PersistentVolumeClaim": `"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Mi"}}}`, "v1 Service": `"spec":{"ports":[{"port":1}]}`,
		"apps/v1 Deployment": `"spec":{` + template + `}`, "apps/v1 DaemonSet": `"spec":{` + strings.ReplaceAll(template, `"x"`, `"d"`) + `}`, "apps/v1 StatefulSet": `"spec":{"serviceName":"x",` + strings.ReplaceAll(template, `"x"`, `"s"`) + `}`,
		"batch/v1 Job":                           `"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"c:1"}]}}}`,
		"batch/v1 CronJob":                       `"spec":{"schedule":"0 0 1 1 *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"c:1"}]}}}}}`,
		"autoscaling/v2 HorizontalPodAutoscaler": `"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"StatefulSet","name":"x"}}`,
		"policy/v1 PodDisruptionBudget":          `"spec":{"maxUnavailable":1,"selector":{"matchLabels":{"app":"x"}}}`,
		"networking.k8s.io/v1 NetworkPolicy":     `"spec":{"podSelector":{}}`,
		"networking.k8s.io/v1 Ingress":           `"spec":{"defaultBackend":{"service":{"name":"x","port":{"number":1}}}}`,
	} {
		version, kind, _ := strings.Cut(kind, " ")
		group, _, _ := strings.Cut(version, "/")
		blobs = append(blobs, fakeregional.Blob{Kind: workload.Kind, Name: workload.ItemName(strings.TrimPrefix(group, "v1"), kind, ns, "x"),
			Data: []byte(`{"apiVersion":"` + version + `","kind":"` + kind + `","metadata":{"name":"x","namespace":"` + ns + `"},` + rest + `}`)})
	}
	return blobs
}

// carries has the fleet deploy an object of each kind, whose pods are used from the centre, and
// take all of it away.
func (r *release) carries(*member) {
	t, id := r.t, r.centre.site
	t.Helper()
	const ns = "acme-shop"
	applied := func(what string, want *wire.DesiredState) {
		t.Helper()
		testkit.Eventually(t, what, func() error {
			if r := r.centre.Seen(id).Report; r.GetAppliedRevision() != want.Revision {
				return fmt.Errorf("%v", r.GetConditions())
			}
			return nil
		})
	}
	applied("an object of each kind is applied", r.centre.SetDesired(id, objectOfEachKind(ns)...))
	pods := func() []string {
		t.Helper()
		var names []string
		testkit.Eventually(t, "the Deployment's pod runs", func() error {
			names = nil
			list, err := r.Client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "app=x", FieldSelector: "status.phase=Running"})
			if err != nil || len(list.Items) != 1 || list.Items[0].DeletionTimestamp != nil {
				return fmt.Errorf("%d pods, %w", len(list.Items), err)
			}
			names = append(names, list.Items[0].Name)
			return nil
		})
		return names
	}
	site := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(&url.URL{Scheme: "http", Host: "site"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return r.centre.Dial(ctx, id) }},
	})
	defer site.Close()
	there := &rest.Config{Host: site.URL}
	client := kubernetes.NewForConfigOrDie(there)
	pod := pods()[0]
	if _, err := client.CoreV1().Pods(ns).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(t.Context()); err != nil {
		t.Errorf("logs: %v", err)
	}
	req := client.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name(pod).SubResource("exec").VersionedParams(&corev1.PodExecOptions{Command: []string{"cat"}, Stdin: true, Stdout: true}, scheme.ParameterCodec)
	exec, err := remotecommand.NewWebSocketExecutor(there, http.MethodGet, req.URL().String())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := exec.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("echoed"), Stdout: &out}); err != nil || out.String() != "echoed" {
		t.Errorf("exec says %q, %v", out.String(), err)
	}
	if err := client.PolicyV1().Evictions(ns).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: ns}}); err != nil {
		t.Errorf("evict: %v", err)
	}
	testkit.EventuallyTrue(t, "another pod runs", func() bool { return pods()[0] != pod })
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), pods()[0], metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete a pod: %v", err)
	}
	applied("all of it is taken away", r.centre.SetDesired(id))
	testkit.Eventually(t, "the namespace is gone", func() error {
		_, err := r.Client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace: %v", err)
		}
		return nil
	})
}

// What the chart made lives through upgrades, is put back by a rollback, and is gone after an
// uninstall, with what the fleet and muster-edge have changed meanwhile, by the Helm that applies
// on the server's side and by the one that compares three versions.
func TestHelmLifeCycle(t *testing.T) {
	for name, helm := range map[string]func(testing.TB) string{"Helm 4": kubectl.Helm, "Helm 3": kubectl.Helm3} {
		t.Run(name, func(t *testing.T) { lifeCycle(t, helm(t), name == "Helm 4") })
	}
}

// brought is an image that the fleet brought.
const brought = "muster-edge:v2@sha256:6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d"

// changedByFleet changes what the chart made as the guard does, which brings a version, and as
// muster-edge, which has kube-state-metrics stand down.
func (r *release) changedByFleet() {
	r.t.Helper()
	deployments, by := r.Client.AppsV1().Deployments(releaseNamespace), metav1.PatchOptions{FieldManager: "muster-edge"}
	if _, err := deployments.Patch(r.t.Context(), "muster-edge", types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"`+brought+`"},
		{"op":"replace","path":"/spec/template/metadata/annotations/muster.dev~1software-version","value":"2.0.0"}]`), by); err != nil {
		r.t.Fatal(err)
	}
	if _, err := deployments.Patch(r.t.Context(), "kube-state-metrics", types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), by, "scale"); err != nil {
		r.t.Fatal(err)
	}
}

func lifeCycle(t *testing.T, helm string, onServer bool) {
	r := startRelease(t, helm, "cycle")
	features := []string{"metrics", "host", "workloads", "upgrades"}
	r.upgrade(features)
	t.Setenv(images.EnvPod, "the-pod")
	m := run(t, configOf(t, r.objects(), kubeconfigOf(t, r.Config, releaseNamespace)))
	m.says(t, "it is a site", "connected")
	key := r.key()
	const tenants = "acme-shop"
	want := r.centre.SetDesired(r.centre.site, fakeregional.Blob{Kind: workload.Kind, Name: "Namespace/-/" + tenants, Data: []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + tenants + `"}}`)})
	r.centre.Eventually("what tenants deploy is there", func() bool { return r.centre.Seen(r.centre.site).Report.GetAppliedRevision() == want.Revision })
	m.stop()
	r.changedByFleet()
	has := func(deployment, image string, replicas int32) {
		t.Helper()
		d, err := r.Client.AppsV1().Deployments(releaseNamespace).Get(t.Context(), deployment, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Spec.Template.Spec.Containers[0].Image; *d.Spec.Replicas != replicas || image != "" && got != image {
			t.Errorf("%s has %d replicas of %s, want %d of %s", deployment, *d.Spec.Replicas, got, replicas, image)
		}
	}
	var force []string
	if onServer { // it asks whose image shall count, and changes nothing
		out, err := r.try("upgrade", "muster-edge", chartDir, "--values", r.values(append(features, "logs")...))
		if err == nil || !strings.Contains(out, `containers[name="muster-edge"].image`) {
			t.Errorf("over what the fleet brought: %v\n%s", err, out)
		}
		has("muster-edge", brought, 1)
		force = []string{"--force-conflicts"}
	}
	r.upgrade(append(features, "logs"), force...)
	has("muster-edge", "muster-edge:v1", 1)
	has("kube-state-metrics", "", 0)
	r.upgrade(append(features, "logs"), "--set", "kubeStateMetrics.mode=deploy")
	has("kube-state-metrics", "", 1)
	r.upgrade([]string{"metrics"}, "--set", "kubeStateMetrics.mode=existing")
	testkit.Eventually(t, "what features had goes with them", func() error {
		for _, name := range r.left() {
			if words := strings.Fields(name); !slices.Contains([]string{"Secret", "Pod", "ReplicaSet"}, words[0]) && words[len(words)-1] != "muster-edge" && words[len(words)-1] != "muster-edge-software" {
				return errors.New(name)
			}
		}
		return nil
	})
	r.run("rollback", "muster-edge", "1", "--wait", "--timeout", "2m")
	r.grantsAre(features)
	has("kube-state-metrics", "", 1)
	r.uninstalled("ConfigMap kube-system muster-edge", "ConfigMap muster-edge muster-edge-software", "Namespace  muster-edge", "Secret muster-edge muster-edge-identity")
	r.upgrade(features)
	if !bytes.Equal(r.key(), key) {
		t.Error("it is another site after it was uninstalled and installed")
	}
	if _, err := r.Client.CoreV1().Namespaces().Get(t.Context(), tenants, metav1.GetOptions{}); err != nil {
		t.Errorf("what tenants deployed: %v", err)
	}
	// As docs/getting-started.md says how nothing is left.
	r.run("uninstall", "muster-edge")
	spaces := r.Client.CoreV1().Namespaces()
	owned, err := spaces.List(t.Context(), metav1.ListOptions{LabelSelector: workload.Owned + "=true"})
	if err != nil || len(owned.Items) != 1 {
		t.Errorf("%d namespaces of tenants, %v", len(owned.Items), err)
	}
	for _, name := range []string{releaseNamespace, tenants} {
		if err := spaces.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Client.CoreV1().ConfigMaps("kube-system").Delete(t.Context(), "muster-edge", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.leaves()
}

// uninstalled uninstalls the chart, of which that much stays.
func (r *release) uninstalled(stays ...string) {
	r.t.Helper()
	r.run("uninstall", "muster-edge", "--wait", "--timeout", "2m")
	r.leaves(stays...)
}

// leaves waits until nothing of the chart is left but that.
func (r *release) leaves(stays ...string) {
	r.t.Helper()
	testkit.Eventually(r.t, "nothing else of the chart is left", func() error {
		if left := r.left(); !slices.Equal(left, stays) {
			return fmt.Errorf("%q, want %q", left, stays)
		}
		return nil
	})
}

// key is the site's.
func (r *release) key() []byte {
	r.t.Helper()
	got, err := r.Client.CoreV1().Secrets(releaseNamespace).Get(r.t.Context(), "muster-edge-identity", metav1.GetOptions{})
	if err != nil || len(got.Data["key.pem"]) == 0 {
		r.t.Fatalf("%d keys, %v", len(got.Data), err)
	}
	return got.Data["key.pem"]
}
