package dashboards

func cost() *board {
	b := newBoard("muster-collector-cost", "Collector cost", "What sites send: series and bytes, by site and metric", metricsVar(), fleetVar(), siteVar())
	const bytes = "sum by (site) (rate(muster_collector_push_bytes_total[$__rate_interval]))"
	// What a metric costs is a share by its series: a push has the metrics mixed.
	const metric = `topk(30, sum by (metric) (label_replace(count by (__name__) ({site="$site"}), "metric", "$1", "__name__", "(.+)")))`
	b.figure(look{title: "Series", span: 6}, q("sum(muster_collector_series)", "")).
		figure(look{title: "Sent", unit: "Bps", span: 6}, q("sum("+bytes+")", "")).
		figure(look{title: "Samples sent", unit: "cps", span: 6}, q("sum(rate(muster_collector_samples_sent_total[$__rate_interval]))", "")).
		figure(look{title: "Series refused by budgets", span: 6, limits: &limits{orange: 1, red: 1000}}, q("sum(muster_collector_series_refused)", ""))
	b.row("By site").
		ranked(look{title: "Series", span: 8, height: 12}, q("topk(20, sum by (site) (muster_collector_series))", "{{site}}")).
		ranked(look{title: "Bytes", unit: "Bps", span: 8, height: 12}, q("topk(20, "+bytes+")", "{{site}}")).
		ranked(look{title: "Of the budget", unit: "percent", span: 8, height: 12, max: 100, limits: &limits{orange: 92, red: 100}}, q("topk(20, 100 * max by (site) (muster_collector_series / (muster_collector_series_budget > 0)))", "{{site}}")).
		chart(look{title: "Series, all sites", span: 8}, q("sum(muster_collector_series)", "series"), q("sum(muster_collector_series_budget)", "budgets")).
		chart(look{title: "Bytes, all sites", unit: "Bps", span: 8}, q("sum("+bytes+")", "sent")).
		chart(look{title: "Dropped before they left the site", unit: "cps", span: 8}, q("sum by (reason) (rate(muster_collector_samples_dropped_total[$__rate_interval]))", "{{reason}}"))
	b.row("By metric of $site").
		list(look{title: "Series", span: 12, height: 12}, "series", q(metric, "")).
		list(look{title: "Bytes, by the share of its series", unit: "Bps", span: 12, height: 12, help: "A push has all metrics mixed and is compressed as a whole, so this is a share, not a measurement."}, "bytes",
			q(metric+` / scalar(sum(muster_collector_series{site="$site"})) * scalar(sum(rate(muster_collector_push_bytes_total{site="$site"}[$__rate_interval])))`, ""))
	return b
}
