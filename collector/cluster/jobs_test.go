package cluster

import (
	"encoding/pem"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/config"
	_ "github.com/prometheus/prometheus/discovery/kubernetes"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/rest"

	"muster.dev/muster/internal/testkit/testca"
)

// targets runs the relabelling of all jobs on what discovery says of one port of a pod, and
// returns the jobs that take it, with their labels.
func targets(t *testing.T, w *Watcher, found []Place, pod map[string]string) map[string]string {
	t.Helper()
	b, err := yaml.Marshal(map[string]any{"scrape_configs": w.jobs(found, nil)})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(string(b), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("%v in\n%s", err, b)
	}
	out := map[string]string{}
	for _, sc := range cfg.ScrapeConfigs {
		if strings.HasPrefix(sc.JobName, "kubelet") || sc.JobName == jobCadvisor {
			continue
		}
		all := maps.Clone(pod)
		all["__metrics_path__"], all["__scheme__"] = sc.MetricsPath, sc.Scheme
		if ls, keep := relabel.Process(labels.FromMap(all), sc.RelabelConfigs...); keep {
			var list []string
			ls.Range(func(l labels.Label) {
				if !strings.HasPrefix(l.Name, "__meta_") {
					list = append(list, l.Name+"="+l.Value)
				}
			})
			out[sc.JobName] = strings.Join(list, " ")
		}
	}
	return out
}

func pod(with map[string]string) map[string]string {
	p := map[string]string{"__address__": "10.0.0.7:8080", metaNamespace: "shop", metaPod: "p-1", metaPodNode: "n1", metaPhase: "Running", metaPort: "8080", metaPortName: "web", metaProtocol: "TCP", metaInit: "false"}
	maps.Copy(p, with)
	return p
}

func TestTargets(t *testing.T) {
	scrape := metaAnnotation + "scrape"
	ksm := metaLabel + "app_kubernetes_io_name"
	found := []Place{{Job: jobKubeStateMetrics, Namespace: "monitoring", Port: "http-metrics"}, {Job: jobNodes, Namespace: "monitoring", Port: "9100"}, {Job: jobCilium, Namespace: "kube-system", Port: "prometheus"}}
	for name, c := range map[string]struct {
		pod  map[string]string
		want map[string]string
	}{
		"no annotation": {pod(nil), nil},
		"annotated": {pod(map[string]string{scrape: "true"}),
			map[string]string{jobPods: "__address__=10.0.0.7:8080 __metrics_path__=/metrics __scheme__=http namespace=shop node=n1 pod=p-1"}},
		"with port, path and scheme": {pod(map[string]string{scrape: "true", metaAnnotation + "port": "9", metaAnnotation + "path": "/m", metaAnnotation + "scheme": "https"}),
			map[string]string{jobPods: "__address__=10.0.0.7:9 __metrics_path__=/m __scheme__=https namespace=shop node=n1 pod=p-1"}},
		"IPv6": {pod(map[string]string{scrape: "true", "__address__": "[fd00::7]:80", metaAnnotation + "port": "9"}),
			map[string]string{jobPods: "__address__=[fd00::7]:9 __metrics_path__=/metrics __scheme__=http namespace=shop node=n1 pod=p-1"}},
		"a port of UDP":  {pod(map[string]string{scrape: "true", metaProtocol: "UDP"}), nil},
		"not running":    {pod(map[string]string{scrape: "true", metaPhase: "Succeeded"}), nil},
		"a tenant's":     {pod(map[string]string{scrape: "true", metaTenant: "true"}), nil},
		"init container": {pod(map[string]string{scrape: "true", metaInit: "true"}), nil},
		"kube-state-metrics": {pod(map[string]string{scrape: "true", ksm: "kube-state-metrics", metaNamespace: "monitoring", metaPortName: "http-metrics"}),
			map[string]string{jobKubeStateMetrics: "__address__=10.0.0.7:8080 __metrics_path__=/metrics __scheme__=http instance=kube-state-metrics"}},
		"its telemetry":   {pod(map[string]string{scrape: "true", ksm: "kube-state-metrics", metaNamespace: "monitoring", metaPortName: "telemetry"}), nil},
		"another of them": {pod(map[string]string{scrape: "true", ksm: "kube-state-metrics", metaNamespace: "elsewhere", metaPortName: "http-metrics"}), nil},
		"node_exporter by number": {pod(map[string]string{ksm: "node-exporter", metaNamespace: "monitoring", metaPort: "9100"}),
			map[string]string{jobNodes: "__address__=10.0.0.7:8080 __metrics_path__=/metrics __scheme__=http instance=n1 node=n1"}},
		"Cilium": {pod(map[string]string{scrape: "true", metaLabel + "k8s_app": "cilium", metaNamespace: "kube-system", metaPortName: "prometheus"}),
			map[string]string{jobCilium: "__address__=10.0.0.7:8080 __metrics_path__=/metrics __scheme__=http instance=n1 node=n1"}},
		"a Cilium of another namespace": {pod(map[string]string{scrape: "true", metaLabel + "k8s_app": "cilium", metaPortName: "prometheus"}), nil},
	} {
		w := &Watcher{opts: Options{Config: &rest.Config{BearerTokenFile: "/token"}}}
		got := targets(t, w, found, c.pod)
		if len(got) == 0 {
			got = nil
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	w := &Watcher{opts: Options{Config: &rest.Config{}, TenantPods: true}}
	if got := targets(t, w, found, pod(map[string]string{scrape: "true", metaTenant: "true"})); len(got) != 1 || got[jobTenantPods] == "" {
		t.Errorf("a tenant's pod, where that is wanted: %v", got)
	}
}

// What a tenant's pod says of the platform is not believed.
func TestTenantPodsSayNothingOfThePlatform(t *testing.T) {
	drop := relabel.MustNewRegexp(platformMetrics)
	for name, want := range map[string]bool{"kube_node_info": true, "node_load1": true, "muster_collector_series": true, "site:x": true, "shop_orders_total": false, "nodejs_heap_bytes": false, "kubectl_runs": false} {
		if got := drop.MatchString(name); got != want {
			t.Errorf("%s dropped: %t", name, got)
		}
	}
}

// One watch of all pods and one of all nodes serve all jobs: each costs the API server and
// this process the same as the first.
func TestJobsShareTheirWatches(t *testing.T) {
	w := &Watcher{opts: Options{Config: &rest.Config{BearerToken: "t"}, TenantPods: true}}
	var found []Place
	for _, e := range known {
		found = append(found, Place{Job: e.job, Namespace: "x", Port: e.ports[0]})
	}
	seen := map[string]bool{}
	for _, j := range w.jobs(found, nil) {
		b, err := yaml.Marshal(j.(map[string]any)["kubernetes_sd_configs"])
		if err != nil {
			t.Fatal(err)
		}
		seen[string(b)] = true
	}
	if len(seen) != 2 {
		t.Errorf("%d different discoveries: %v", len(seen), slices.Collect(maps.Keys(seen)))
	}
}

// Kubelets are checked by the CA of the API server where that is wanted, and by nothing else
// than what was asked for otherwise.
func TestKubeletsAreKnownByTheCluster(t *testing.T) {
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: testca.New(t).Cert.Raw}))
	for name, c := range map[string]struct {
		verify   bool
		with     rest.TLSClientConfig
		insecure bool
		ca, file string
	}{
		"not asked for": {false, rest.TLSClientConfig{CAData: []byte(ca), CAFile: "/ca"}, true, "", ""},
		"a CA":          {true, rest.TLSClientConfig{CAData: []byte(ca), CAFile: "/ca"}, false, ca, ""},
		"a file":        {true, rest.TLSClientConfig{CAFile: "/ca"}, false, "", "/ca"},
		"the system's":  {true, rest.TLSClientConfig{}, false, "", ""},
	} {
		w := &Watcher{opts: Options{Config: &rest.Config{BearerToken: "t", TLSClientConfig: c.with}, VerifyKubelets: c.verify}}
		b, err := yaml.Marshal(map[string]any{"scrape_configs": w.jobs(nil, nil)})
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(string(b), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("%s: %v in\n%s", name, err, b)
		}
		seen := 0
		for _, sc := range cfg.ScrapeConfigs {
			if sc.JobName != jobKubelet && sc.JobName != jobCadvisor {
				continue
			}
			seen++
			if got := sc.HTTPClientConfig.TLSConfig; got.InsecureSkipVerify != c.insecure || got.CA != c.ca || got.CAFile != c.file {
				t.Errorf("%s: %s: %+v", name, sc.JobName, got)
			}
		}
		if seen != 2 {
			t.Errorf("%s: %d jobs", name, seen)
		}
	}
}
