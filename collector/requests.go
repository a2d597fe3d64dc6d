package collector

import (
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/relabel"

	"muster.dev/muster/internal/fleet"
)

// requestDetail is the label that takes what makes many series of the metrics in
// requestMetrics, in a policy that drops it and sums what becomes equal.
const requestDetail = "request_detail"

// requestMetrics are what ingresses and meshes tell of requests: a series for each method,
// path, host and peer, of which operators want those of a service.
var requestMetrics = []struct {
	metrics string // regular expression
	code    string // label with the HTTP status, of which the class stays; "": none
	named   []naming
	detail  []string
}{
	{"traefik_service_(?:requests_total|request_duration_seconds_(?:sum|count))", "code", nil, []string{"method", "protocol"}},
	// What its metrics say of an Ingress the scrape calls exported, where the target, which
	// is the controller's pod, has labels of the same names.
	{"nginx_ingress_controller_(?:requests|request_duration_seconds_(?:sum|count))", "status", []naming{
		{"exported_namespace", "(.+)", "namespace"}, {"exported_service", "(.+)", "service"}}, []string{
		"exported_namespace", "exported_service", "pod", "method", "host", "path", "canary", "controller_class", "controller_namespace", "controller_pod"}},
	// Linkerd's proxy tells of its pod alone, whose name is its workload's and what controllers append.
	{"response_total|response_latency_ms_(?:sum|count)", "", []naming{
		{"pod", `(.+?)(?:(?:-[4-9bcdf]{6,10})?-[b-df-hj-np-tv-xz24-9]{5}|-\d+)?`, "service"}}, []string{
		"authority", "client_id", "server_id", "status_code", "grpc_status", "error", "no_tls_reason", "tls", "target_addr", "target_ip", "target_port",
		"srv_group", "srv_kind", "srv_name", "srv_port", "route_group", "route_kind", "route_name", "authz_group", "authz_kind", "authz_name"}},
}

// naming takes what a regular expression finds in one label for another one.
type naming struct{ from, regex, to string }

// requestRules move what makes many series of a request metric into the label
// requestDetail, for policies that drop it. The filter sums what is left: the scrape could
// not, since to it equal series are one that is served twice.
func requestRules(p fleet.CollectionPolicy) []*relabel.Config {
	if !slices.Contains(p.DropLabels, requestDetail) {
		return nil
	}
	var out []*relabel.Config
	add := func(source []string, regex, target, replacement string) {
		r := &relabel.Config{
			Separator: ";", Regex: relabel.MustNewRegexp(regex), TargetLabel: target, Replacement: replacement,
			Action: relabel.Replace, NameValidationScheme: model.UTF8Validation, SourceLabels: model.LabelNames{model.MetricNameLabel},
		}
		for _, l := range source {
			r.SourceLabels = append(r.SourceLabels, model.LabelName(l))
		}
		out = append(out, r)
	}
	for _, m := range requestMetrics {
		detail := m.detail
		if m.code != "" {
			detail = append(slices.Clone(detail), m.code)
		}
		name := "(?:" + m.metrics + ")"
		for _, n := range m.named {
			add([]string{n.from}, name+";"+n.regex, n.to, "$1")
		}
		add(detail, name+";(.*[^;].*)", requestDetail, "$1")
		if m.code != "" {
			add([]string{m.code}, name+`;(\d)\d\d`, m.code, "${1}xx")
		}
		for _, l := range m.detail {
			add(nil, name, l, "")
		}
	}
	return out
}
