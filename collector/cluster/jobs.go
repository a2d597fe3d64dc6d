package cluster

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The jobs. Health reads metrics by name and looks at no job's name.
const (
	jobKubelet          = "kubelet"
	jobCadvisor         = "cadvisor"
	jobNodes            = "node"
	jobPods             = "pods"
	jobTenantPods       = "tenant-pods"
	jobKubeStateMetrics = "kube-state-metrics"
	jobCilium           = "cilium-agent"
	jobCiliumOperator   = "cilium-operator"
	jobCoreDNS          = "coredns"
)

// exporter is one that many clusters have.
type exporter struct {
	job       string
	selectors []string // of its pods, the most usual first
	ports     []string // names or numbers of the container port that serves metrics
	perNode   bool     // its series are about the node that it runs on
	honor     bool     // its labels namespace, pod and node are about others
	missing   string   // what to do if the cluster has none; empty: nothing is wrong
	off       string   // what to do if it is there and serves no metrics
}

var known = []exporter{
	{
		job: jobKubeStateMetrics, selectors: []string{"app.kubernetes.io/name=kube-state-metrics", "k8s-app=kube-state-metrics"},
		ports: []string{"http-metrics", "http", "metrics", "8080"}, honor: true,
		missing: "the cluster has none that runs, so reliability stays unknown; install one, or apply the manifest with --kube-state-metrics auto",
		off:     "it has no plain port named http-metrics, http or metrics, or 8080; name its port so, or apply the manifest with --kube-state-metrics deploy",
	},
	{
		job: jobNodes, selectors: []string{"app.kubernetes.io/name=prometheus-node-exporter", "app.kubernetes.io/name=node-exporter"},
		ports: []string{"metrics", "http-metrics", "http", "9100"}, perNode: true,
		missing: "no node_exporter runs and the manifest was applied without host metrics, so performance and security stay unknown; add the feature host",
		off:     "it has no plain port named metrics, http-metrics or http, or 9100; name its port so, or add the feature host",
	},
	{
		job: jobCilium, selectors: []string{"k8s-app=cilium"}, ports: []string{"prometheus"}, perNode: true,
		off: "it runs without metrics; turn them on with prometheus.enabled=true in its Helm values",
	},
	{
		job: jobCiliumOperator, selectors: []string{"io.cilium/app=operator"}, ports: []string{"prometheus"},
		off: "it runs without metrics; turn them on with operator.prometheus.enabled=true in Cilium's Helm values",
	},
	{job: jobCoreDNS, selectors: []string{"k8s-app=kube-dns"}, ports: []string{"metrics"}, off: "it has no port named metrics"},
}

// portOf is the container port of p that serves e's metrics, "" if none does.
func (e *exporter) portOf(p *corev1.Pod) string {
	for _, want := range e.ports {
		for _, c := range p.Spec.Containers {
			for _, port := range c.Ports {
				if port.Name == want || strconv.Itoa(int(port.ContainerPort)) == want {
					return want
				}
			}
		}
	}
	return ""
}

// needs are the rights without which a job has no targets, or targets that refuse. The
// chart's ClusterRole grants the same.
var needs = []struct {
	resource, subresource string
	verbs                 []string
	jobs                  []string
}{
	{"nodes", "", []string{"list", "watch"}, []string{jobKubelet, jobCadvisor}},
	{"nodes", "metrics", []string{"get"}, []string{jobKubelet, jobCadvisor}},
	{"pods", "", []string{"list", "watch"}, []string{jobPods, jobKubeStateMetrics, jobNodes, jobCilium, jobCoreDNS}},
	{"namespaces", "", []string{"list", "watch"}, []string{jobPods, jobKubeStateMetrics, jobNodes, jobCilium, jobCoreDNS}},
}

// HostPort is the port of the host metrics on every node.
const HostPort = "9107"

// Names of Prometheus' meta labels, and of metrics that are about the platform.
const (
	metaNamespace   = "__meta_kubernetes_namespace"
	metaPod         = "__meta_kubernetes_pod_name"
	metaPodNode     = "__meta_kubernetes_pod_node_name"
	metaProtocol    = "__meta_kubernetes_pod_container_port_protocol"
	metaPhase       = "__meta_kubernetes_pod_phase"
	metaPortName    = "__meta_kubernetes_pod_container_port_name"
	metaPort        = "__meta_kubernetes_pod_container_port_number"
	metaInit        = "__meta_kubernetes_pod_container_init"
	metaLabel       = "__meta_kubernetes_pod_label_"
	metaAnnotation  = "__meta_kubernetes_pod_annotation_prometheus_io_"
	metaTenant      = "__meta_kubernetes_namespace_labelpresent_muster_dev_tenant"
	metaNodeName    = "__meta_kubernetes_node_name"
	platformMetrics = "(?:up|node_|kube_|kubelet_|container_|machine_|cilium_|hubble_|coredns_|felix_|etcd_|longhorn_|diskpool_|disk_pool_|k3s_|DCGM_FI_|apt_|muster_|site:).*"
)

func rule(action, regex string, source ...string) map[string]any {
	return map[string]any{"action": action, "regex": regex, "source_labels": source}
}

func set(target, replacement string, source ...string) map[string]any {
	r := map[string]any{"action": "replace", "target_label": target, "replacement": replacement}
	if len(source) > 0 {
		r["source_labels"] = source
	}
	return r
}

// jobs are the scrape configs for what was found. All pods come from one watch, and so
// do all nodes: discovery shares equal kubernetes_sd_configs.
func (w *Watcher) jobs(found []Place, hosts *Hosts) []any {
	sd := func(role string) []any {
		c := map[string]any{"role": role}
		if w.opts.Kubeconfig != "" {
			c["kubeconfig_file"] = w.opts.Kubeconfig
		}
		if role == "pod" {
			c["attach_metadata"] = map[string]any{"namespace": true}
		}
		return []any{c}
	}
	var out []any
	for _, j := range [][2]string{{jobKubelet, "/metrics"}, {jobCadvisor, "/metrics/cadvisor"}} {
		job := map[string]any{
			"job_name": j[0], "metrics_path": j[1], "scheme": "https", "kubernetes_sd_configs": sd("node"), "follow_redirects": false,
			"tls_config":      w.kubeletTLS(),
			"relabel_configs": []any{set("node", "$1", metaNodeName), set("instance", "$1", metaNodeName)},
		}
		if j[0] == jobCadvisor {
			job["track_timestamps_staleness"] = true // it has timestamps of its own
		}
		w.authorize(job)
		out = append(out, job)
	}
	if hosts != nil && hosts.CertPEM != "" {
		out = append(out, map[string]any{
			"job_name": jobNodes, "scheme": "https", "kubernetes_sd_configs": sd("pod"), "follow_redirects": false,
			"tls_config": map[string]any{"ca": hosts.CertPEM, "cert": hosts.CertPEM, "key": hosts.KeyPEM, "server_name": hosts.ServerName},
			"relabel_configs": []any{
				rule("keep", hosts.Namespace+";muster-edge-host;Running;metrics", metaNamespace, metaLabel+"app_kubernetes_io_name", metaPhase, metaPortName),
				set("node", "$1", metaPodNode), set("instance", "$1", metaPodNode),
			},
		})
	}
	for _, p := range found {
		i := slices.IndexFunc(known, func(e exporter) bool { return e.job == p.Job })
		out = append(out, known[i].scrape(p, sd("pod")))
	}
	out = append(out, annotated(jobPods, rule("drop", "true", metaTenant), sd("pod")))
	if w.opts.TenantPods {
		job := annotated(jobTenantPods, rule("keep", "true", metaTenant), sd("pod"))
		// What a tenant's pod says must not be taken for what the site says of itself.
		job["metric_relabel_configs"] = []any{rule("drop", platformMetrics, "__name__")}
		out = append(out, job)
	}
	return out
}

// kubeletTLS says by what kubelets are known. One signs its certificate itself unless the
// cluster was told otherwise, and then by nothing: what it is shown is a token that reads
// metrics and lists pods. It is not tried out which of the two it is: who could stand in for
// a kubelet could have it found that way.
func (w *Watcher) kubeletTLS() map[string]any {
	switch c := w.opts.Config; {
	case !w.opts.VerifyKubelets:
		return map[string]any{"insecure_skip_verify": true}
	case len(c.CAData) > 0:
		return map[string]any{"ca": string(c.CAData)}
	case c.CAFile != "":
		return map[string]any{"ca_file": c.CAFile}
	}
	return map[string]any{} // the system's, as for the API server
}

// authorize shows kubelets who is asking, with the same credentials as the API server.
func (w *Watcher) authorize(job map[string]any) {
	c := w.opts.Config
	switch tls := job["tls_config"].(map[string]any); {
	case c.BearerTokenFile != "":
		job["authorization"] = map[string]any{"credentials_file": c.BearerTokenFile}
	case c.BearerToken != "":
		job["authorization"] = map[string]any{"credentials": c.BearerToken}
	case len(c.CertData) > 0:
		tls["cert"], tls["key"] = string(c.CertData), string(c.KeyData)
	case c.CertFile != "":
		tls["cert_file"], tls["key_file"] = c.CertFile, c.KeyFile
	}
}

// scrape is the scrape config of an exporter at a place.
func (e *exporter) scrape(at Place, sd []any) map[string]any {
	source := metaPortName
	if _, err := strconv.Atoi(at.Port); err == nil {
		source = metaPort
	}
	var labels, values []string
	for i, s := range e.selectors {
		k, v, _ := strings.Cut(s, "=")
		labels = append(labels, metaLabel+labelName(k))
		// This label, whatever the others are.
		one := slices.Repeat([]string{"[^;]*"}, len(e.selectors))
		one[i] = v
		values = append(values, strings.Join(one, ";"))
	}
	rules := []any{
		rule("keep", at.Namespace+";"+at.Port+";Running", metaNamespace, source, metaPhase),
		rule("keep", strings.Join(values, "|"), labels...),
	}
	switch {
	case e.perNode:
		rules = append(rules, set("node", "$1", metaPodNode), set("instance", "$1", metaPodNode))
	case e.honor:
		// One page for the cluster: its series are the same after it was restarted, and a
		// second replica's are dropped as duplicates.
		rules = append(rules, set("instance", e.job))
	default:
		rules = append(rules, set("instance", "$1", metaPod))
	}
	return map[string]any{"job_name": e.job, "kubernetes_sd_configs": sd, "honor_labels": e.honor, "follow_redirects": false, "relabel_configs": rules}
}

// labelName is a Kubernetes label's key as it stands in meta labels.
func labelName(key string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, key)
}

// annotated is the job of pods with prometheus.io/scrape: true, and prometheus.io/scheme,
// path and port, but for those that have a job of their own.
func annotated(name string, which map[string]any, sd []any) map[string]any {
	rules := []any{
		which,
		rule("keep", "true;Running", metaAnnotation+"scrape", metaPhase),
		rule("drop", "true", metaInit),
		// Without the annotation port, each port that can be one.
		rule("drop", ";UDP", metaAnnotation+"port", metaProtocol),
	}
	for _, e := range known {
		for _, s := range e.selectors {
			k, v, _ := strings.Cut(s, "=")
			rules = append(rules, rule("drop", v, metaLabel+labelName(k)))
		}
	}
	matched := func(target, replacement, regex string, source ...string) map[string]any {
		r := set(target, replacement, source...)
		r["regex"] = regex
		return r
	}
	rules = append(rules,
		matched("__scheme__", "$1", "(https?)", metaAnnotation+"scheme"),
		matched("__metrics_path__", "$1", "(.+)", metaAnnotation+"path"),
		matched("__address__", "$1:$2", `(\[.+\]|[^:]+)(?::\d+)?;(\d+)`, "__address__", metaAnnotation+"port"),
		set("namespace", "$1", metaNamespace), set("pod", "$1", metaPod), set("node", "$1", metaPodNode),
	)
	return map[string]any{"job_name": name, "kubernetes_sd_configs": sd, "follow_redirects": false, "relabel_configs": rules}
}
