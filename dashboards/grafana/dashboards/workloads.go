package dashboards

func workloads() *board {
	b := newBoard("muster-workloads", "Workloads", "What was deployed to the sites of a virtual site, and how its pods do", metricsVar(), fleetVar(), virtualSiteVar(),
		labelVar("namespace", "Namespace", Metrics, "label_values(kube_pod_info, namespace)", true))
	const in = `{namespace=~"$namespace"}`
	wanted, available := `kube_deployment_spec_replicas`+in, `kube_deployment_status_replicas_available`+in
	waits := func(reasons string) string {
		return `count((kube_pod_container_status_waiting_reason{namespace=~"$namespace",reason=~"` + reasons + `"} == 1)` + memberOfSite + `) or vector(0)`
	}
	oom := `count((kube_pod_container_status_last_terminated_reason{namespace=~"$namespace",reason="OOMKilled"} == 1)` + memberOfSite + `) or vector(0)`
	b.annotate("virtualSite", "virtual_site")
	b.figure(look{title: "Replicas wanted", span: 4}, q("sum("+wanted+memberOfSite+")", "")).
		figure(look{title: "Deployed", span: 4}, q("sum("+available+memberOfSite+")", "")).
		figure(look{title: "In progress", span: 4, help: "Pods that are not running yet.", limits: &limits{orange: 1, red: 50}},
			q(`sum(kube_pod_status_phase{namespace=~"$namespace",phase="Pending"}`+memberOfSite+`)`, "")).
		figure(look{title: "Failed", span: 4, help: "Pods in phase Failed, and containers that crash over and over.", limits: &limits{orange: 1, red: 10}},
			q(`(sum(kube_pod_status_phase{namespace=~"$namespace",phase="Failed"}`+memberOfSite+`) or vector(0)) + (`+waits("CrashLoopBackOff")+`)`, "")).
		figure(look{title: "Waiting for an image", span: 4, limits: &limits{orange: 1, red: 10}}, q(waits("ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull"), "")).
		figure(look{title: "Out of memory", span: 4, help: "Containers whose last end was for lack of memory.", limits: &limits{orange: 1, red: 10}}, q(oom, ""))
	b.row("Over time").
		chart(look{title: "Replicas", span: 12}, q("sum("+wanted+memberOfSite+")", "wanted"), q("sum("+available+memberOfSite+")", "available")).
		chart(look{title: "Pods by phase", span: 12}, q(`sum by (phase) (kube_pod_status_phase`+in+memberOfSite+`)`, "{{phase}}")).
		chart(look{title: "What containers wait for", span: 12},
			q(waits("ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull"), "an image"), q(waits("CrashLoopBackOff"), "their next try after a crash"), q(waits("ContainerCreating|PodInitializing"), "their start"), q(oom, "(out of memory)")).
		chart(look{title: "Restarts in 10 minutes", span: 12}, q(`sum by (namespace) (increase(kube_pod_container_status_restarts_total`+in+`[10m])`+memberOfSite+`)`, "{{namespace}}"))
	b.row("Where").
		list(look{title: "Deployments, by missing replicas", span: 12}, "missing", q("topk(50, ("+wanted+" - "+available+")"+memberOfSite+")", "")).
		list(look{title: "Memory against its limit", unit: "percent", span: 12, limits: &limits{orange: 80, red: 95}}, "of limit",
			q(`topk(50, 100 * max by (site, namespace, pod, container) (container_memory_working_set_bytes{namespace=~"$namespace",container!=""}) / max by (site, namespace, pod, container) (container_spec_memory_limit_bytes{namespace=~"$namespace",container!=""} > 0)`+memberOfSite+`)`, ""))
	b.row("Rollouts").rows(look{title: "Rollouts", span: 24}, fleetQuery{"queryType": "rollouts", "state": "all", "limit": 50})
	return b
}

func security() *board {
	b := newBoard("muster-security", "Security policy hits", "What network policies refuse, and where; patches that wait", metricsVar(), fleetVar(), virtualSiteVar())
	const denied = `rate(cilium_drop_count_total{reason="Policy denied"}[$__rate_interval])` + memberOfSite
	b.figure(look{title: "Refused by policy", unit: "pps", span: 6}, q("sum("+denied+")", "")).
		figure(look{title: "Sites that refuse something", span: 6}, q("count(sum by (site) ("+denied+") > 0) or vector(0)", "")).
		figure(look{title: "Security score, mean", span: 6, limits: score}, q(`avg(muster_site_health_dimension_score{dimension="security"}`+memberOfSite+`)`, "")).
		figure(look{title: "Nodes that want a reboot", span: 6, limits: &limits{orange: 1, red: 20}}, q("count((node_reboot_required == 1)"+memberOfSite+") or vector(0)", ""))
	b.row("Hits").
		chart(look{title: "Refused by policy, by direction", unit: "pps", span: 12}, q("sum by (direction) ("+denied+")", "{{direction}}")).
		chart(look{title: "All dropped packets, by reason", unit: "pps", span: 12}, q("sum by (reason) (rate(cilium_drop_count_total[$__rate_interval])"+memberOfSite+")", "{{reason}}")).
		ranked(look{title: "Sites with most", unit: "pps", span: 12, height: 12}, q("topk(20, sum by (site) ("+denied+"))", "{{site}}")).
		list(look{title: "Sites, by direction", unit: "pps", span: 12, height: 12}, "refused", q("topk(50, sum by (site, direction) ("+denied+"))", ""))
	b.row("Hygiene").
		chart(look{title: "Security score", span: 12, limits: score, max: 100}, q(`min(muster_site_health_dimension_score{dimension="security"}`+memberOfSite+`)`, "worst"), q(`avg(muster_site_health_dimension_score{dimension="security"}`+memberOfSite+`)`, "mean")).
		list(look{title: "Updates that wait", span: 12, height: 8}, "updates", q("topk(50, sum by (site) (apt_upgrades_pending"+memberOfSite+"))", "")).
		list(look{title: "Certificates of kubelets", unit: "s", span: 24, height: 8, limits: &limits{orange: 604800, red: 86400}}, "valid for", q("bottomk(50, kubelet_certificate_manager_client_ttl_seconds"+memberOfSite+")", ""))
	return b
}
