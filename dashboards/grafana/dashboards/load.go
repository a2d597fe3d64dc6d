package dashboards

func load() *board {
	b := newBoard("muster-load", "Load distribution", "CPU, memory and disk over the sites of a virtual site: how many are how full", metricsVar(), fleetVar(), virtualSiteVar())
	kinds := []struct{ name, expr string }{{"CPU", cpuOf("site")}, {"memory", memoryOf("site")}, {"disk", diskOf("site")}}
	for _, k := range kinds {
		b.figure(look{title: "Half of the sites use more " + k.name + " than", unit: "percent", span: 4}, q("quantile(0.5, ("+k.expr+")"+memberOfSite+")", "")).
			figure(look{title: "Sites over 75 % of " + k.name, unit: "percent", span: 4, limits: &limits{orange: 25, red: 50}},
				q("100 * (count((("+k.expr+") > 75)"+memberOfSite+") or vector(0)) / count(("+k.expr+")"+memberOfSite+")", ""))
	}
	for _, k := range kinds {
		all := "(" + k.expr + ")" + memberOfSite
		b.row("Of "+k.name).
			spread(look{title: "Sites by use of " + k.name, unit: "percent", span: 8, height: 10}, 5, q(all, "{{site}}")).
			ranked(look{title: "Most " + k.name, unit: "percent", span: 8, max: 100, limits: &limits{orange: 75, red: 90}}, q("topk(20, "+all+")", "{{site}}")).
			chart(look{title: "Use of " + k.name, unit: "percent", span: 8, height: 10, max: 100}, q("quantile(0.5, "+all+")", "half"), q("quantile(0.9, "+all+")", "nine of ten"), q("max("+all+")", "fullest"))
	}
	return b
}

func connectivity() *board {
	b := newBoard("muster-connectivity", "Connectivity", "The links between sites and regionals", metricsVar(), fleetVar(), virtualSiteVar())
	const (
		connected = "muster_site_connected" + memberOfSite
		roundTrip = `muster_agent_link_round_trip_seconds{connection="stream"}`
	)
	b.figure(look{title: "Connected", span: 4}, q("sum("+connected+")", "")).
		figure(look{title: "Not connected", span: 4, limits: &limits{orange: 1, red: 5}}, q("count(max by (site) ("+connected+") == 0) or vector(0)", "")).
		figure(look{title: "Connectivity score, mean", span: 4, limits: score}, q(`avg(muster_site_health_dimension_score{dimension="connectivity"}`+memberOfSite+`)`, "")).
		figure(look{title: "Sent", unit: "Bps", span: 4}, q("sum(rate(muster_collector_push_bytes_total[$__rate_interval])"+memberOfSite+")", "")).
		figure(look{title: "Pushes that fail", unit: "reqps", span: 4, limits: &limits{orange: 0.1, red: 1}}, q("sum(rate(muster_collector_push_errors_total[$__rate_interval])"+memberOfSite+")", "")).
		figure(look{title: "Waits on sites' disks", unit: "bytes", span: 4}, q("sum(muster_collector_spool_bytes"+memberOfSite+")", ""))
	b.row("Links").
		chart(look{title: "Connected sites by regional", span: 12}, q("sum by (regional) ("+connected+")", "{{regional}}")).
		chart(look{title: "Connectivity score by regional, mean", span: 12, limits: score, max: 100},
			q(`avg by (regional) (muster_site_health_dimension_score{dimension="connectivity"} * on (tenant, site) group_left (regional) max by (tenant, site, regional) (muster_site_connected == 1) and on (site) muster_virtual_site_member{virtual_site="$virtual_site"})`, "{{regional}}")).
		list(look{title: "Round trip", unit: "s", span: 8, limits: &limits{orange: 0.3, red: 1}}, "round trip", q(`topk(50, max by (site) (`+lastOfLink(roundTrip)+memberOfSite+"))", "")).
		list(look{title: "Loss: segments to the regional sent again", unit: "percent", span: 8, limits: &limits{orange: 1, red: 10}}, "loss",
			q("topk(50, 100 * sum by (site) ("+rateOfLink("muster_agent_link_segments_retransmitted_total", "5m")+memberOfSite+") / sum by (site) ("+rateOfLink("muster_agent_link_segments_sent_total", "5m")+memberOfSite+"))", "")).
		list(look{title: "Reconnects in an hour", span: 8}, "times", q(`topk(50, round(sum by (site) (increase(muster_agent_link_connects_total{connection="stream"}[1h])`+memberOfSite+")))", "")).
		list(look{title: "Age of what the regional acknowledged", unit: "s", span: 8, limits: &limits{orange: 60, red: 300}}, "age", q("topk(50, max by (site) (muster_collector_push_delay_seconds"+memberOfSite+"))", "")).
		list(look{title: "Requests that fail", unit: "percent", span: 8, limits: &limits{orange: 5, red: 30}}, "failed",
			q("topk(50, 100 * sum by (site) ("+rateOfLink("muster_agent_link_request_errors_total", "5m")+memberOfSite+") / sum by (site) ("+rateOfLink("muster_agent_link_request_seconds_count", "5m")+memberOfSite+"))", "")).
		list(look{title: "TCP segments sent again, all of the site", unit: "percent", span: 8, limits: &limits{orange: 1, red: 10}}, "sent again",
			q("topk(50, 100 * sum by (site) (rate(node_netstat_Tcp_RetransSegs[$__rate_interval])) / sum by (site) (rate(node_netstat_Tcp_OutSegs[$__rate_interval]))"+memberOfSite+")", ""))
	b.row("Round trip and requests").
		chart(look{title: "Round trip, median and 95th percentile of the sites", unit: "s", span: 12},
			q(`quantile(0.5, max by (site) (`+lastOfLink(roundTrip)+memberOfSite+"))", "median"), q(`quantile(0.95, max by (site) (`+lastOfLink(roundTrip)+memberOfSite+"))", "95th percentile")).
		chart(look{title: "Loss, of all segments", unit: "percent", span: 12},
			q("100 * sum("+rateOfLink("muster_agent_link_segments_retransmitted_total", "5m")+memberOfSite+") / sum("+rateOfLink("muster_agent_link_segments_sent_total", "5m")+memberOfSite+")", "sent again")).
		chart(look{title: "Requests to regionals, by target", unit: "reqps", span: 12}, q("sum by (target) ("+rateOfLink("muster_agent_link_request_seconds_count", "$__rate_interval")+memberOfSite+")", "{{target}}")).
		chart(look{title: "Time to answer, by target", unit: "s", span: 12},
			q("sum by (target) ("+rateOfLink("muster_agent_link_request_seconds_sum", "5m")+memberOfSite+") / sum by (target) ("+rateOfLink("muster_agent_link_request_seconds_count", "5m")+memberOfSite+")", "{{target}}"))
	b.row("Traffic").
		chart(look{title: "Over the link, in and out", unit: "Bps", span: 12},
			q("sum("+rateOfLink("muster_agent_link_received_bytes_total", "$__rate_interval")+memberOfSite+")", "in"), q("sum("+rateOfLink("muster_agent_link_sent_bytes_total", "$__rate_interval")+memberOfSite+")", "out")).
		chart(look{title: "Samples sent, by region", unit: "Bps", span: 12}, q("sum by (region) (rate(muster_collector_push_bytes_total[$__rate_interval])"+memberOfSite+")", "{{region}}")).
		chart(look{title: "Pushes that fail, by region", unit: "reqps", span: 12}, q("sum by (region) (rate(muster_collector_push_errors_total[$__rate_interval])"+memberOfSite+")", "{{region}}")).
		chart(look{title: "Sites' networks, in and out", unit: "Bps", span: 12},
			q(`sum(rate(node_network_receive_bytes_total{device!="lo"}[$__rate_interval])`+memberOfSite+`)`, "in"), q(`sum(rate(node_network_transmit_bytes_total{device!="lo"}[$__rate_interval])`+memberOfSite+`)`, "out")).
		chart(look{title: "Scrape targets that answer", unit: "percent", span: 12, max: 100}, q("100 * avg by (job) (up"+memberOfSite+")", "{{job}}"))
	return b
}
