package dashboards

func regional() *board {
	b := newBoard("muster-regional", "Regional", "One regional: gateway, engines, logs, queues to the store", platformVar())
	const of = `{job="regional"}`
	l := func(title, unit string, span uint32) look {
		return look{title: title, unit: unit, span: span, from: Platform}
	}
	b.figure(l("Sites connected", "", 4), q("sum(muster_gateway_connected_sites"+of+")", "")).
		figure(l("Series of sites", "", 4), q(`sum(prometheus_tsdb_head_series{job="regional",engine="edge"})`, "")).
		figure(l("Samples taken", "cps", 4), q("sum(rate(muster_gateway_samples_total"+of+"[$__rate_interval]))", "")).
		figure(l("Memory", "bytes", 4), q("sum(process_resident_memory_bytes"+of+")", "")).
		figure(l("CPU", "none", 4), q("sum(rate(process_cpu_seconds_total"+of+"[$__rate_interval]))", "")).
		figure(l("Room for more sites", "", 4), q("min(muster_cost_more_sites"+of+")", ""))
	b.row("Gateway").
		chart(l("Pushes by status", "reqps", 8), q("sum by (code) (rate(muster_gateway_pushes_total"+of+"[$__rate_interval]))", "{{code}}")).
		chart(l("Time of a push", "s", 8), q("histogram_quantile(0.5, sum by (le) (rate(muster_gateway_push_duration_seconds_bucket"+of+"[$__rate_interval])))", "half"), q("histogram_quantile(0.99, sum by (le) (rate(muster_gateway_push_duration_seconds_bucket"+of+"[$__rate_interval])))", "99 of 100")).
		chart(l("Received, compressed", "Bps", 8), q("sum(rate(muster_gateway_body_bytes_total"+of+"[$__rate_interval]))", "bodies")).
		chart(l("Memory that requests hold", "bytes", 12), q("sum(muster_gateway_memory_bytes"+of+")", "held")).
		chart(l("Pushes that wait for their turn", "", 12), q("sum(muster_gateway_waiting_pushes"+of+")", "waiting"))
	b.row("Engines").
		chart(l("Series", "", 8), q("sum by (engine) (prometheus_tsdb_head_series"+of+")", "{{engine}}")).
		chart(l("Time of rule groups", "s", 8), q("max by (engine, rule_group) (prometheus_rule_group_last_duration_seconds"+of+")", "{{engine}} {{rule_group}}")).
		chart(l("Alerts that wait for Alertmanager", "", 8), q("max by (engine) (prometheus_notifications_queue_length"+of+")", "{{engine}}"))
	b.row("To the store").
		chart(l("Behind", "s", 8), q("time() - max by (tenant) (muster_remote_write_highest_sent_timestamp_seconds"+of+")", "{{tenant}}")).
		chart(l("Waits on disk", "bytes", 8), q("sum by (tenant, spool) (muster_spool_pending_bytes"+of+")", "{{tenant}} {{spool}}")).
		chart(l("Sent", "cps", 8), q("sum by (tenant) (rate(muster_remote_write_samples_sent_total"+of+"[$__rate_interval]))", "{{tenant}}"))
	b.row("Logs").
		chart(l("Lines", "cps", 12), q("sum(rate(muster_logs_intake_lines_total"+of+"[$__rate_interval]))", "received"), q("sum(rate(muster_logs_written_lines_total"+of+"[$__rate_interval]))", "stored")).
		chart(l("On disk", "bytes", 12), q("sum(muster_logs_store_bytes"+of+")", "store"))
	b.row("Tenants").
		chart(l("Series by tenant", "", 8), q("sum by (tenant) (muster_cost_tenant_series)", "{{tenant}}")).
		chart(l("Memory by tenant, estimated", "bytes", 8), q("sum by (tenant) (muster_cost_tenant_memory_bytes)", "{{tenant}}")).
		ranked(look{title: "Room for more sites, by what ends first", span: 8, height: 8, from: Platform}, q("sort(min by (resource) (muster_cost_more_sites))", "{{resource}}"))
	return b
}

func aggregator() *board {
	b := newBoard("muster-aggregator", "Aggregator", "The metric store, Cortex, and the roles of the centre", platformVar())
	l := func(title, unit string, span uint32) look {
		return look{title: title, unit: unit, span: span, from: Platform}
	}
	const agg = `{job="aggregator"}`
	b.figure(l("Series", "", 4), q("sum(cortex_ingester_memory_series"+agg+")", "")).
		figure(l("Tenants", "", 4), q("max(cortex_ingester_memory_users"+agg+")", "")).
		figure(l("Samples", "cps", 4), q("sum(rate(cortex_distributor_received_samples_total"+agg+"[$__rate_interval]))", "")).
		figure(l("Memory", "bytes", 4), q("sum(process_resident_memory_bytes"+agg+")", "")).
		figure(l("Roles that answer", "", 4), q(`count(up{job=~"aggregator|alerting|console|control|health|regional"} == 1)`, "")).
		figure(l("Certificates valid for", "s", 4), q("min(muster_role_certificate_expiry_timestamp_seconds) - time()", ""))
	b.row("Writes").
		chart(l("Samples by tenant", "cps", 8), q("sum by (user) (rate(cortex_distributor_received_samples_total"+agg+"[$__rate_interval]))", "{{user}}")).
		chart(l("Requests by route", "reqps", 8), q("sum by (route) (rate(cortex_request_duration_seconds_count"+agg+"[$__rate_interval]))", "{{route}}")).
		chart(l("Series in memory", "", 8), q("sum(cortex_ingester_memory_series"+agg+")", "series"))
	b.row("Reads").
		chart(l("Time of a request, 99 of 100", "s", 8), q("histogram_quantile(0.99, sum by (le, route) (rate(cortex_request_duration_seconds_bucket"+agg+"[$__rate_interval])))", "{{route}}")).
		chart(l("Ingester queries", "reqps", 8), q("sum(rate(cortex_ingester_queries_total"+agg+"[$__rate_interval]))", "queries")).
		chart(l("Console's requests", "reqps", 8), q(`sum(rate(muster_console_requests_total{job="console"}[$__rate_interval]))`, "requests"))
	b.row("Disk").
		chart(l("Blocks, in all", "bytes", 12), q("sum(cortex_ingester_tsdb_storage_blocks_bytes"+agg+")", "blocks")).
		chart(l("Blocks that were shipped", "", 12), q("sum(cortex_ingester_shipper_uploads_total"+agg+")", "shipped"), q("sum(cortex_ingester_shipper_upload_failures_total"+agg+")", "failed"))
	b.row("Roles").
		chart(l("Memory", "bytes", 8), q("sum by (job) (process_resident_memory_bytes)", "{{job}}")).
		chart(l("CPU", "none", 8), q("sum by (job) (rate(process_cpu_seconds_total[$__rate_interval]))", "{{job}}")).
		list(look{title: "Versions", span: 8, height: 8, from: Platform}, "instances", q("count by (role, version) (muster_role_info)", "")).
		chart(l("Scoring: time of a tick", "s", 8), q(`histogram_quantile(0.99, sum by (le) (rate(muster_health_tick_duration_seconds_bucket{job="health"}[$__rate_interval])))`, "99 of 100")).
		chart(l("Sites by phase", "", 8), q("sum by (phase) (muster_sites)", "{{phase}}")).
		chart(l("Queues to the store: waiting", "bytes", 8), q("sum by (job) (muster_spool_pending_bytes)", "{{job}}"))
	return b
}
