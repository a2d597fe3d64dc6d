package dashboards

// The three of load, as percent of what there is, by these labels, as the shipped policy and
// the console have them: time that waits for a disk is not use, of several nodes the fullest
// counts, and filesystems that are in memory, made of others or never written are left out.
const (
	realFS  = `fstype!~"tmpfs|ramfs|squashfs|erofs|iso9660|overlay|fuse.*"`
	notUsed = `mode=~"idle|iowait"`
)

func cpuOf(by string) string { return cpuWhere(by, "") }

func cpuWhere(by, where string) string {
	return `100 * (1 - sum by (` + by + `) (rate(node_cpu_seconds_total{` + notUsed + comma(where) + `}[$__rate_interval])) / (sum by (` + by + `) (rate(node_cpu_seconds_total{` + where + `}[$__rate_interval])) > 0))`
}

func memoryOf(by string) string { return memoryWhere(by, "") }

func memoryWhere(by, where string) string {
	return `100 * (1 - min by (` + by + `) (node_memory_MemAvailable_bytes{` + where + `} / (node_memory_MemTotal_bytes{` + where + `} > 0)))`
}

func diskOf(by string) string { return diskWhere(by, "") }

func diskWhere(by, where string) string {
	return `100 * max by (` + by + `) (1 - node_filesystem_avail_bytes{` + realFS + comma(where) + `} / (node_filesystem_size_bytes{` + realFS + comma(where) + `} > 0))`
}

func comma(where string) string {
	if where == "" {
		return ""
	}
	return "," + where
}

// memberOfSite keeps what is of the members of the chosen virtual site.
const memberOfSite = ` and on (site) muster_virtual_site_member{virtual_site="$virtual_site"}`

const ofSite = `site="$site"`

func site() *board {
	b := newBoard("muster-site", "Site", "One site: its health and why, nodes, pods, link, alerts, logs", metricsVar(), fleetVar(), siteVar())
	b.annotate("site", "site")
	b.figure(look{title: "Score", span: 4, limits: score}, q(`muster_site_health_score{site="$site"}`, "")).
		figure(look{title: "Dimensions", span: 12, limits: score}, q(`muster_site_health_dimension_score{site="$site"}`, "{{dimension}}")).
		figure(look{title: "Connected", span: 2, limits: &limits{orange: 1, red: 0.5}}, q(`max(muster_site_connected{site="$site"})`, "")).
		figure(look{title: "Last telemetry", unit: "s", span: 3, limits: &limits{orange: 60, red: 180}}, q(`time() - max(muster_site_last_push_timestamp_seconds{site="$site"})`, "")).
		figure(look{title: "Nodes ready", span: 3}, q(`sum(kube_node_status_condition{site="$site",condition="Ready",status="true"})`, ""))
	b.row("Health").
		chart(look{title: "Score", span: 12, limits: score, max: 100}, q(`muster_site_health_score{site="$site"}`, "site"), q(`muster_site_health_dimension_score{site="$site"}`, "{{dimension}}")).
		rows(look{title: "Why", span: 12, height: 8}, fleetQuery{"queryType": "health", "health": "reasons", "site": "${site}"}).
		rows(look{title: "Signals", span: 12}, fleetQuery{"queryType": "health", "health": "signals", "site": "${site}"}).
		rows(look{title: "Labels, versions, conditions", span: 6}, fleetQuery{"queryType": "sites", "sites": "details", "site": "${site}"}).
		rows(look{title: "Alerts", span: 6}, fleetQuery{"queryType": "alerts", "site": "${site}"})
	b.row("Nodes").
		chart(look{title: "CPU in use", unit: "percent", span: 8, max: 100}, q(cpuWhere("node", ofSite), "{{node}}")).
		chart(look{title: "Memory in use", unit: "percent", span: 8, max: 100}, q(memoryWhere("node", ofSite), "{{node}}")).
		chart(look{title: "Fullest filesystem", unit: "percent", span: 8, max: 100}, q(diskWhere("node, mountpoint", ofSite), "{{node}} {{mountpoint}}")).
		list(look{title: "Nodes", span: 24, height: 6}, "ready", q(`kube_node_status_condition{site="$site",condition="Ready",status="true"} * on (site, node) group_left (kubelet_version, os_image, kernel_version) kube_node_info{site="$site"}`, ""))
	b.row("Pods").
		chart(look{title: "Pods by phase", span: 8}, q(`sum by (phase) (kube_pod_status_phase{site="$site"})`, "{{phase}}")).
		chart(look{title: "Restarts in 10 minutes", span: 8}, q(`topk(10, sum by (namespace, pod) (increase(kube_pod_container_status_restarts_total{site="$site"}[10m])))`, "{{namespace}}/{{pod}}")).
		list(look{title: "Short of replicas", span: 8, height: 8}, "missing", q(`kube_deployment_spec_replicas{site="$site"} - kube_deployment_status_replicas_available{site="$site"}`, ""))
	b.row("Link").
		chart(look{title: "Age of what the regional acknowledged", unit: "s", span: 8}, q(`max(muster_collector_push_delay_seconds{site="$site"})`, "delay")).
		chart(look{title: "Waits on the site's disk", unit: "bytes", span: 8}, q(`sum(muster_collector_spool_bytes{site="$site"})`, "spool")).
		chart(look{title: "Sent", unit: "Bps", span: 8}, q(`sum(rate(muster_collector_push_bytes_total{site="$site"}[$__rate_interval]))`, "pushes"))
	b.row("Logs").lines(look{title: "Logs", span: 24, height: 12}, fleetQuery{"queryType": "logs", "site": "${site}", "query": "", "limit": 500})
	return b
}

func node() *board {
	b := newBoard("muster-node", "Node", "One node of one site", metricsVar(), fleetVar(), siteVar(),
		labelVar("node", "Node", Metrics, `label_values(node_uname_info{site="$site"}, node)`, false))
	const of = `site="$site",node="$node"`
	b.figure(look{title: "Ready", span: 3, limits: &limits{orange: 1, red: 0.5}}, q(`max(kube_node_status_condition{`+of+`,condition="Ready",status="true"})`, "")).
		figure(look{title: "Up for", unit: "s", span: 4}, q(`max(node_time_seconds{`+of+`} - node_boot_time_seconds{`+of+`})`, "")).
		figure(look{title: "CPUs", span: 3}, q(`count(node_cpu_seconds_total{`+of+`,mode="idle"})`, "")).
		figure(look{title: "Memory", unit: "bytes", span: 4}, q(`sum(node_memory_MemTotal_bytes{`+of+`})`, "")).
		figure(look{title: "Pods", span: 3}, q(`sum(kubelet_running_pods{`+of+`})`, "")).
		figure(look{title: "Clock is off by", unit: "s", span: 4, limits: &limits{orange: 0.1, red: 1}}, q(`max(abs(node_timex_offset_seconds{`+of+`}))`, "")).
		figure(look{title: "Reboot required", span: 3, limits: &limits{orange: 1, red: 2}}, q(`max(node_reboot_required{`+of+`}) or vector(0)`, ""))
	b.row("CPU and memory").
		chart(look{title: "CPU by what it does", unit: "percentunit", span: 12}, q(`sum by (mode) (rate(node_cpu_seconds_total{`+of+`,mode!="idle"}[$__rate_interval]))`, "{{mode}}")).
		chart(look{title: "Load", span: 12}, q(`max(node_load1{`+of+`})`, "1 m"), q(`max(node_load5{`+of+`})`, "5 m"), q(`max(node_load15{`+of+`})`, "15 m")).
		chart(look{title: "Memory", unit: "bytes", span: 12}, q(`sum(node_memory_MemTotal_bytes{`+of+`})`, "total"), q(`sum(node_memory_MemAvailable_bytes{`+of+`})`, "available"), q(`sum(node_memory_Cached_bytes{`+of+`})`, "cached")).
		chart(look{title: "Time spent waiting", unit: "percentunit", span: 12, help: "Pressure stall information: the share of time in which something waited."},
			q(`max(rate(node_pressure_cpu_waiting_seconds_total{`+of+`}[$__rate_interval]))`, "CPU"), q(`max(rate(node_pressure_memory_waiting_seconds_total{`+of+`}[$__rate_interval]))`, "memory"), q(`max(rate(node_pressure_io_waiting_seconds_total{`+of+`}[$__rate_interval]))`, "disk"))
	b.row("Disks").
		chart(look{title: "Filesystems in use", unit: "percent", span: 8, max: 100}, q(diskWhere("mountpoint", of), "{{mountpoint}}")).
		chart(look{title: "Disks busy", unit: "percentunit", span: 8}, q(`sum by (device) (rate(node_disk_io_time_seconds_total{`+of+`}[$__rate_interval]))`, "{{device}}")).
		chart(look{title: "Read and written", unit: "Bps", span: 8}, q(`sum(rate(node_disk_read_bytes_total{`+of+`}[$__rate_interval]))`, "read"), q(`sum(rate(node_disk_written_bytes_total{`+of+`}[$__rate_interval]))`, "written"))
	b.row("Network").
		chart(look{title: "Traffic", unit: "Bps", span: 8}, q(`sum by (device) (rate(node_network_receive_bytes_total{`+of+`,device!="lo"}[$__rate_interval]))`, "{{device}} in"), q(`sum by (device) (rate(node_network_transmit_bytes_total{`+of+`,device!="lo"}[$__rate_interval]))`, "{{device}} out")).
		chart(look{title: "Errors and drops", unit: "pps", span: 8}, q(`sum by (device) (rate(node_network_receive_errs_total{`+of+`}[$__rate_interval]) + rate(node_network_receive_drop_total{`+of+`}[$__rate_interval]))`, "{{device}} in")).
		chart(look{title: "TCP segments sent again", unit: "percent", span: 8}, q(`100 * sum(rate(node_netstat_Tcp_RetransSegs{`+of+`}[$__rate_interval])) / sum(rate(node_netstat_Tcp_OutSegs{`+of+`}[$__rate_interval]))`, "sent again"))
	b.row("Pods").
		list(look{title: "Memory by container", unit: "bytes", span: 12}, "memory", q(`topk(30, sum by (namespace, pod, container) (container_memory_working_set_bytes{`+of+`,container!=""}))`, "")).
		list(look{title: "CPU by container", unit: "percentunit", span: 12}, "CPU", q(`topk(30, sum by (namespace, pod, container) (rate(container_cpu_usage_seconds_total{`+of+`,container!=""}[$__rate_interval])))`, ""))
	return b
}
