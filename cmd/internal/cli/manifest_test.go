package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/agent/kube"
	"muster.dev/muster/control/agent/software/images"
	"muster.dev/muster/control/agent/software/lease"
	"muster.dev/muster/health/defaults"
)

var update = flag.Bool("update", false, "rewrite the expected files")

var wellMade = ManifestOptions{
	Namespace: "muster-edge", Servers: []string{"gw.example.com:7443"}, CAHash: "sha256:" + strings.Repeat("6d", 32),
	Token: "muster1.acme.token-x7.secret", Features: []string{"metrics", "host"}, Image: "registry.example.com:5000/muster-edge:v1.2.3",
}

func render(t *testing.T, o ManifestOptions) (string, []*unstructured.Unstructured) {
	t.Helper()
	var out bytes.Buffer
	if err := Manifest(&out, o); err != nil {
		t.Fatal(err)
	}
	var list []*unstructured.Unstructured
	for _, doc := range strings.Split(out.String(), "---\n")[1:] {
		u := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(doc), &u.Object); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		list = append(list, u)
	}
	return out.String(), list
}

func names(list []*unstructured.Unstructured) []string {
	var out []string
	for _, u := range list {
		out = append(out, strings.Trim(fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName()), "/"))
	}
	return out
}

func TestManifestIsTheChart(t *testing.T) {
	for name, features := range map[string][]string{"default": {"metrics", "host"}, "all": Features, "least": {}} {
		o := wellMade
		o.Features = features
		got, _ := render(t, o)
		file := filepath.Join("testdata", "manifest-"+name+".yaml")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (go test -update rewrites it) -want +got:\n%s", file, diff)
		}
	}
}

// What a feature does not need must not be asked for.
func TestManifestAsksForNoMoreThanItsFeatures(t *testing.T) {
	o := wellMade
	o.Features = nil
	text, list := render(t, o)
	for _, bad := range []string{"pods", "nodes/metrics", "hostPath", "DaemonSet", "muster-edge-host", "kube-state-metrics", "privileged"} {
		if strings.Contains(text, bad) {
			t.Errorf("without any feature, the manifest has %q:\n%s", bad, text)
		}
	}
	if got := names(list); !slices.Contains(got, "Deployment muster-edge/muster-edge") {
		t.Errorf("no Deployment in %v", got)
	}
	for _, features := range [][]string{nil, {"metrics"}, {"metrics", "host"}, {"logs"}, Features} {
		o.Features = features
		text, _ := render(t, o)
		for _, bad := range []string{"nodes/proxy", "'*'", `"*"`, "cluster-admin", "privileged: true", "hostPID"} {
			if strings.Contains(text, bad) {
				t.Errorf("with %v, the manifest has %q", features, bad)
			}
		}
	}
}

// muster-edge's pod is reached for what it serves, and reaches what it needs: of the outside,
// ports of what it was joined to.
func TestManifestHasANetworkPolicy(t *testing.T) {
	policy := func(o ManifestOptions) *networkingv1.NetworkPolicy {
		_, list := render(t, o)
		i := slices.IndexFunc(list, func(u *unstructured.Unstructured) bool { return u.GetKind() == "NetworkPolicy" })
		if i < 0 {
			return nil
		}
		p := &networkingv1.NetworkPolicy{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list[i].Object, p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	o := wellMade
	o.Servers, o.Features = []string{"gw.example.com:7443", "[2001:db8::1]:8443", "other.example.com:7443"}, nil
	p := policy(o)
	var ports []int
	for _, e := range p.Spec.Egress {
		if len(e.To) > 0 {
			t.Errorf("without features it may reach %+v", e.To)
		}
		for _, port := range e.Ports {
			ports = append(ports, port.Port.IntValue())
		}
	}
	if want := []int{53, 53, 7443, 8443, 443, 6443, 16443}; !slices.Equal(ports, want) || len(p.Spec.Ingress) != 1 || len(p.Spec.PolicyTypes) != 2 {
		t.Errorf("ports %v, want %v; %+v", ports, want, p.Spec)
	}
	o.Features = Features
	p = policy(o)
	if last := p.Spec.Ingress[len(p.Spec.Ingress)-1]; len(last.From) != 1 || last.From[0].NamespaceSelector.MatchLabels["muster.dev/owned"] != "true" || len(p.Spec.Ingress) != 3 {
		t.Errorf("who may reach hosts of other sites: %+v", p.Spec.Ingress)
	}
	if o.NoNetworkPolicy = true; policy(o) != nil {
		t.Error("it is there though it was left out")
	}
}

// There is one muster-edge in a cluster, also while its image is exchanged; none runs as root.
func TestManifestRunsOneWithoutRoot(t *testing.T) {
	o := wellMade
	o.Features = slices.DeleteFunc(slices.Clone(Features), func(f string) bool { return f == "logs" }) // Fluent Bit reads root's files
	seen := 0
	_, list := render(t, o)
	for _, u := range list {
		var pod corev1.PodSpec
		switch u.GetKind() {
		case "Deployment":
			d := &appsv1.Deployment{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d); err != nil {
				t.Fatal(err)
			}
			if pod = d.Spec.Template.Spec; d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || d.Name == "muster-edge" && (d.Spec.Replicas == nil || *d.Spec.Replicas != 1) {
				t.Errorf("%s: replicas %v, strategy %+v", d.Name, d.Spec.Replicas, d.Spec.Strategy)
			}
		case "DaemonSet":
			d := &appsv1.DaemonSet{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d); err != nil {
				t.Fatal(err)
			}
			pod = d.Spec.Template.Spec
		default:
			continue
		}
		seen++
		if c := pod.SecurityContext; c == nil || c.RunAsNonRoot == nil || !*c.RunAsNonRoot {
			t.Errorf("%s may run as root: %+v", u.GetName(), c)
		}
	}
	if seen != 4 {
		t.Errorf("%d workloads, want muster-edge, its guard, kube-state-metrics and the nodes' metrics", seen)
	}
}

// The chart grants what the agent says that it needs, and nothing else.
func TestManifestGrantsWhatWorkloadsNeed(t *testing.T) {
	o := wellMade
	o.Features = Features
	_, list := render(t, o)
	for name, want := range map[string][]rbacv1.PolicyRule{"muster-edge-workloads": kube.Rules(), "muster-edge-virtualhosts": kube.HostRules(), "muster-edge-restart": lease.Rules()} {
		i := slices.IndexFunc(list, func(u *unstructured.Unstructured) bool { return u.GetKind() == "ClusterRole" && u.GetName() == name })
		if i < 0 {
			t.Fatal("no ClusterRole " + name)
		}
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list[i].Object, &role); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, role.Rules); diff != "" {
			t.Errorf("%s: -want +chart:\n%s", name, diff)
		}
	}
	for name, want := range map[string][]rbacv1.PolicyRule{
		"muster-edge/muster-edge-restart": lease.LeaseRules(), "muster-edge/muster-edge-upgrades": images.Rules(),
		"muster-edge/muster-edge-guard": images.GuardRules(), "muster-edge-host/muster-edge-guard": images.HostRules(),
	} {
		i := slices.IndexFunc(list, func(u *unstructured.Unstructured) bool {
			return u.GetKind() == "Role" && u.GetNamespace()+"/"+u.GetName() == name
		})
		if i < 0 {
			t.Fatal("no Role " + name)
		}
		var role rbacv1.Role
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list[i].Object, &role); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, role.Rules); diff != "" {
			t.Errorf("the Role %s: -want +chart:\n%s", name, diff)
		}
	}
}

// A metric of the default policies that our kube-state-metrics does not make would be
// missing on every site that has no other.
func TestKubeStateMetricsMakesWhatThePolicyAllows(t *testing.T) {
	text, _ := render(t, wellMade)
	_, list, _ := strings.Cut(text, "--metric-allowlist=")
	list, _, _ = strings.Cut(list, "\n")
	made := strings.Split(list, ",")
	for _, name := range defaults.CollectionPolicy().Spec.Allow.Names {
		if strings.HasPrefix(name, "kube_") && !slices.Contains(made, name) {
			t.Errorf("deploy/helm/muster-edge/values.yaml: kubeStateMetrics.metrics lacks %s", name)
		}
	}
}

func TestManifestRefuses(t *testing.T) {
	for want, change := range map[string]func(*ManifestOptions){
		"--token is missing":               func(o *ManifestOptions) { o.Token = "" },
		"--token: want muster1":            func(o *ManifestOptions) { o.Token = "secret" },
		"--server is missing":              func(o *ManifestOptions) { o.Servers = nil },
		"--ca-hash is missing":             func(o *ManifestOptions) { o.CAHash = "" },
		"--ca-hash:":                       func(o *ManifestOptions) { o.CAHash = "md5:1" },
		"--site:":                          func(o *ManifestOptions) { o.Site = "Paris 7" },
		`--features: "metric": want metri`: func(o *ManifestOptions) { o.Features = []string{"metric"} },
		"kubeStateMetrics.mode":            func(o *ManifestOptions) { o.KubeStateMetrics = "maybe" },
	} {
		o := wellMade
		change(&o)
		err := o.complete(t.TempDir())
		if err == nil {
			err = Manifest(&bytes.Buffer{}, o)
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) && !strings.Contains(err.Error(), ": "+want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("error %v, want one line with %q", err, want)
		}
	}
}

func TestChartPassesHelmLint(t *testing.T) {
	values := wellMade
	got := lint.AllWithKubeVersion("../../../deploy/helm/muster-edge", values.values(), "muster-edge", nil)
	for _, m := range got.Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}
