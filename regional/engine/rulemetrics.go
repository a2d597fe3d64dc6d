package engine

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/rules"
)

// ruleMetrics are Prometheus' metrics of rules, without those of tenants' groups: there are
// as many of these as tenants like, a dozen series each under names that they chose, and
// whoever scrapes this process would keep them. Tenants are told by their objects' conditions.
func ruleMetrics(reg prometheus.Registerer, tenants func() map[string]string) *rules.Metrics {
	m := rules.NewGroupMetrics(nil)
	reg.MustRegister(m.EvalDuration, m.IterationDuration)
	for _, of := range []prometheus.Collector{
		m.IterationsMissed, m.IterationsScheduled, m.EvalTotal, m.EvalFailures, m.GroupInterval, m.GroupLastEvalTime,
		m.GroupLastDuration, m.GroupLastRuleDurationSum, m.GroupLastRestoreDuration, m.GroupRules, m.GroupSamples,
	} {
		reg.MustRegister(platformGroups{of, tenants})
	}
	return m
}

// platformGroups collects what is of the platform's groups.
type platformGroups struct {
	prometheus.Collector
	tenants func() map[string]string // of each file
}

// Collect implements prometheus.Collector.
func (p platformGroups) Collect(out chan<- prometheus.Metric) {
	tenants := p.tenants()
	all := make(chan prometheus.Metric)
	go func() {
		defer close(all)
		p.Collector.Collect(all)
	}()
	for m := range all {
		var d dto.Metric
		if m.Write(&d) != nil {
			continue
		}
		for _, l := range d.Label {
			file, _, _ := strings.Cut(l.GetValue(), ";") // see rules.GroupKey
			if tenant, known := tenants[file]; l.GetName() == "rule_group" && known && tenant == "" {
				out <- m
			}
		}
	}
}
