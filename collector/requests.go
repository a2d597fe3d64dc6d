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
	detail  []string
}{
	{"traefik_service_(?:requests_total|request_duration_seconds_(?:sum|count))", "code", []string{"method", "protocol"}},
	{"nginx_ingress_controller_(?:requests|request_duration_seconds_(?:sum|count))", "status", []string{
		"method", "host", "path", "canary", "controller_class", "controller_namespace", "controller_pod"}},
	{"response_total|response_latency_ms_(?:sum|count)", "", []string{ // Linkerd
		"authority", "client_id", "server_id", "status_code", "grpc_status", "error", "no_tls_reason", "tls", "target_addr", "target_ip", "target_port",
		"srv_group", "srv_kind", "srv_name", "srv_port", "route_group", "route_kind", "route_name", "authz_group", "authz_kind", "authz_name"}},
}

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
