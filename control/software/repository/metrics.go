package repository

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct{ renewals prometheus.Counter }

func newMetrics(reg prometheus.Registerer, r *Repository) *metrics {
	m := &metrics{renewals: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_software_renewals_total", Help: "How often control signed the software repository anew."})}
	reg.MustRegister(m.renewals, expiry{r}, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_software_repository_failing", Help: "1: the software repository can't be read, or not be signed anew."}, func() float64 {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.err != nil || r.sign != nil {
			return 1
		}
		return 0
	}))
	return m
}

var expires = prometheus.NewDesc("muster_software_metadata_expiry_timestamp_seconds", "When what is signed of the software repository ends, by its role: root and targets are signed by people, snapshot and timestamp by control.", []string{"role"}, nil)

// expiry has no series while there is no repository.
type expiry struct{ r *Repository }

// Describe implements prometheus.Collector.
func (expiry) Describe(ch chan<- *prometheus.Desc) { ch <- expires }

// Collect implements prometheus.Collector.
func (e expiry) Collect(ch chan<- prometheus.Metric) {
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	if e.r.at == nil {
		return
	}
	for role, at := range e.r.at.Expires {
		ch <- prometheus.MustNewConstMetric(expires, prometheus.GaugeValue, float64(at.Unix()), role)
	}
}
