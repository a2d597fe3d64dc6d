package fleetload

import (
	"fmt"
	"time"
)

// kind is how the value of a series moves.
type kind byte

const (
	constant kind = iota // base
	counter              // base, and slope more each second
	gauge                // base, give or take slope
	clock                // Unix time in seconds
)

// series is one of a site, before it has labels of a site.
type series struct {
	labels []string // name, value, …; __name__ is the first
	kind   kind
	base   float64
	slope  float64
	pod    int // whose it is: it goes when the pod does; -1: it stays
}

// nodeName and podName stand in a payload where each site, and each pod in its turn, has
// a name of its own: eight hex digits that are written over.
const nodeName = "node-00000000"

func podName(pod int) string { return fmt.Sprintf("app-%03d-00000000", pod) }

// A site's pods have perPod series each that Kubernetes' exporters tell; what they serve
// themselves fills up to the number that is asked for.
const (
	maxPods = 20
	perPod  = 12
)

// seriesOf lists n series as a small site has them: all that the signals of the default
// HealthPolicy read come first, then its pods, then what these serve. Below about 120 a
// part of the signals has nothing to read, and there are no pods.
func seriesOf(n int) (out []series, pods int) {
	out = fixedSeries()
	if n <= len(out) {
		return out[:n], 0
	}
	pods = min(maxPods, (n-len(out))/perPod)
	for pod := range pods {
		out = append(out, podSeries(pod)...)
	}
	for i := 0; len(out) < n; i++ {
		s := series{kind: counter, slope: 1 + float64(i%17), pod: -1}
		name := fmt.Sprintf("app_requests_%02d_total", i%40)
		if i%2 == 1 {
			s.kind, s.base, s.slope, name = gauge, 100+float64(i), 5, fmt.Sprintf("app_queue_%02d_items", i%40)
		}
		s.labels = []string{"__name__", name, "job", "apps", "namespace", "default", "path", fmt.Sprintf("/api/v1/%d", i/40)}
		if pods > 0 {
			s.pod = i % pods
			s.labels = append(s.labels, "pod", podName(s.pod))
		}
		out = append(out, s)
	}
	return out, pods
}

func fixedSeries() []series {
	var out []series
	add := func(k kind, base, slope float64, labels ...string) {
		out = append(out, series{labels: append([]string{"__name__"}, labels...), kind: k, base: base, slope: slope, pod: -1})
	}
	node := func(k kind, base, slope float64, labels ...string) {
		add(k, base, slope, append(labels, "job", "node", "instance", nodeName, "node", nodeName)...)
	}
	// What the collector says of itself and of its targets.
	for _, job := range []string{"node", "kube-state-metrics", "kubelet", "cadvisor", "cilium", "apps"} {
		add(constant, 1, 0, "up", "job", job, "instance", nodeName)
	}
	add(gauge, 0.2, 0.1, "muster_collector_push_delay_seconds")
	add(constant, 0, 0, "muster_collector_push_errors_total")
	add(gauge, 40960, 1000, "muster_collector_spool_bytes")
	add(constant, float64(time.Now().Add(-10*24*time.Hour).Unix()), 0, "muster_edge_build_timestamp_seconds")
	add(constant, 0, 0, "muster_collector_series_refused")
	add(constant, 0, 0, "muster_collector_health_series_refused")
	add(constant, 0, 0, "muster_collector_doubtful_samples")
	add(gauge, 1500, 20, "muster_collector_series")
	add(constant, 2000, 0, "muster_collector_series_budget")
	for _, reason := range []string{"allowlist", "budget", "invalid"} {
		add(constant, 0, 0, "muster_collector_samples_dropped_total", "reason", reason)
	}
	// node_exporter.
	node(constant, float64(time.Now().Add(-20*24*time.Hour).Unix()), 0, "node_boot_time_seconds")
	node(constant, 0, 0, "node_vmstat_oom_kill")
	node(constant, 0, 0, "node_filesystem_device_error", "device", "/dev/sda1", "fstype", "ext4", "mountpoint", "/")
	node(constant, 0, 0, "node_edac_uncorrectable_errors_total", "controller", "0")
	node(constant, 1, 0, "node_timex_sync_status")
	node(gauge, 900, 100, "node_nf_conntrack_entries")
	node(constant, 131072, 0, "node_nf_conntrack_entries_limit")
	node(counter, 10, 0.01, "node_netstat_Tcp_RetransSegs")
	node(counter, 1000, 50, "node_netstat_Tcp_OutSegs")
	node(constant, 8<<30, 0, "node_memory_MemTotal_bytes")
	node(gauge, 5<<30, 100<<20, "node_memory_MemAvailable_bytes")
	node(constant, 100<<30, 0, "node_filesystem_size_bytes", "device", "/dev/sda1", "fstype", "ext4", "mountpoint", "/")
	node(gauge, 60<<30, 1<<20, "node_filesystem_avail_bytes", "device", "/dev/sda1", "fstype", "ext4", "mountpoint", "/")
	node(constant, 6_000_000, 0, "node_filesystem_files", "device", "/dev/sda1", "fstype", "ext4", "mountpoint", "/")
	node(gauge, 5_000_000, 100, "node_filesystem_files_free", "device", "/dev/sda1", "fstype", "ext4", "mountpoint", "/")
	node(constant, 0, 0, "node_filesystem_readonly", "device", "/dev/sda1", "fstype", "ext4", "mountpoint", "/")
	node(counter, 1, 0.001, "node_pressure_io_stalled_seconds_total")
	node(gauge, 1e-5, 1e-5, "node_timex_offset_seconds")
	node(constant, 0, 0, "node_reboot_required")
	node(constant, 0, 0, "apt_upgrades_pending", "origin", "Debian-Security:13/stable-security", "arch", "arm64")
	node(constant, 1, 0, "apt_upgrades_pending", "origin", "Debian:13.2/stable", "arch", "arm64")
	node(clock, 0, 0, "node_time_seconds")
	node(gauge, 0.8, 0.3, "node_load1")
	modes := []struct {
		name  string
		share float64
	}{{"idle", 0.8}, {"user", 0.12}, {"system", 0.05}, {"iowait", 0.01}, {"irq", 0.001}, {"nice", 0.001}, {"softirq", 0.01}, {"steal", 0.001}}
	for _, cpu := range []string{"0", "1", "2", "3"} {
		for _, m := range modes {
			node(counter, 1000, m.share, "node_cpu_seconds_total", "cpu", cpu, "mode", m.name)
		}
	}
	// kubelet, kube-state-metrics, Cilium.
	kube := func(k kind, base, slope float64, labels ...string) {
		add(k, base, slope, append(labels, "job", "kube-state-metrics")...)
	}
	for _, cond := range []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"} {
		for _, status := range []string{"true", "false", "unknown"} {
			v := 0.0
			if status == "true" && cond == "Ready" || status == "false" && cond != "Ready" {
				v = 1
			}
			kube(constant, v, 0, "kube_node_status_condition", "node", nodeName, "condition", cond, "status", status)
		}
	}
	kube(constant, 1, 0, "kube_node_info", "node", nodeName, "kubelet_version", "v1.34.2")
	kube(constant, 0, 0, "kube_node_spec_unschedulable", "node", nodeName)
	for _, phase := range []string{"Bound", "Lost", "Pending"} {
		v := 0.0
		if phase == "Bound" {
			v = 1
		}
		kube(constant, v, 0, "kube_persistentvolumeclaim_status_phase", "namespace", "default", "persistentvolumeclaim", "data-db-0", "phase", phase)
	}
	kube(constant, 3, 0, "kube_deployment_spec_replicas", "namespace", "default", "deployment", "app")
	kube(constant, 3, 0, "kube_deployment_status_replicas_available", "namespace", "default", "deployment", "app")
	kube(constant, 1, 0, "kube_statefulset_replicas", "namespace", "default", "statefulset", "db")
	kube(constant, 1, 0, "kube_statefulset_status_replicas_ready", "namespace", "default", "statefulset", "db")
	kube(constant, 1, 0, "kube_daemonset_status_desired_number_scheduled", "namespace", "kube-system", "daemonset", "cilium")
	kube(constant, 1, 0, "kube_daemonset_status_number_ready", "namespace", "kube-system", "daemonset", "cilium")
	add(constant, 20<<30, 0, "kubelet_volume_stats_capacity_bytes", "job", "kubelet", "namespace", "default", "persistentvolumeclaim", "data-db-0")
	add(gauge, 12<<30, 1<<20, "kubelet_volume_stats_available_bytes", "job", "kubelet", "namespace", "default", "persistentvolumeclaim", "data-db-0")
	add(constant, 300*86400, 0, "kubelet_certificate_manager_client_ttl_seconds", "job", "kubelet", "node", nodeName)
	add(gauge, 24, 2, "kubelet_running_pods", "job", "kubelet", "node", nodeName)
	add(constant, 0, 0, "kubelet_evictions", "job", "kubelet", "node", nodeName, "eviction_signal", "memory.available")
	for _, rcode := range []string{"NOERROR", "NXDOMAIN", "SERVFAIL"} {
		rate := map[string]float64{"NOERROR": 20, "NXDOMAIN": 8}[rcode]
		add(counter, 100, rate, "coredns_dns_responses_total", "job", "coredns", "rcode", rcode, "zone", ".", "server", "dns://:53")
	}
	add(constant, 1, 0, "etcd_server_has_leader", "job", "etcd", "node", nodeName)
	add(constant, 0, 0, "cilium_unreachable_nodes", "job", "cilium", "node", nodeName)
	add(constant, 0, 0, "cilium_drop_count_total", "job", "cilium", "reason", "Policy denied", "direction", "INGRESS")
	add(counter, 0, 0.01, "cilium_drop_count_total", "job", "cilium", "reason", "Stale or unroutable IP", "direction", "EGRESS")
	return out
}

func podSeries(pod int) []series {
	var out []series
	add := func(k kind, base, slope float64, job string, labels ...string) {
		ls := append([]string{"__name__"}, labels...)
		out = append(out, series{labels: append(ls, "job", job, "namespace", "default", "pod", podName(pod)), kind: k, base: base, slope: slope, pod: pod})
	}
	for _, phase := range []string{"Pending", "Running", "Succeeded", "Failed", "Unknown"} {
		v := 0.0
		if phase == "Running" {
			v = 1
		}
		add(constant, v, 0, "kube-state-metrics", "kube_pod_status_phase", "phase", phase)
	}
	add(constant, 0, 0, "kube-state-metrics", "kube_pod_container_status_restarts_total", "container", "app")
	add(constant, 0, 0, "kube-state-metrics", "kube_pod_container_status_waiting", "container", "app")
	add(counter, 10, 0.03, "cadvisor", "container_cpu_usage_seconds_total", "container", "app")
	add(counter, 100, 10, "cadvisor", "container_cpu_cfs_periods_total", "container", "app")
	add(counter, 1, 0.1, "cadvisor", "container_cpu_cfs_throttled_periods_total", "container", "app")
	add(gauge, 200<<20, 10<<20, "cadvisor", "container_memory_working_set_bytes", "container", "app")
	add(constant, 512<<20, 0, "cadvisor", "container_spec_memory_limit_bytes", "container", "app")
	return out
}
