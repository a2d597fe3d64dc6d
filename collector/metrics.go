package collector

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the collector's own series. They are scraped like any target, so
// that they arrive at the centre, and registered with the process as well.
type metrics struct {
	c    *Collector
	self *prometheus.Registry
	// scrapes numbers the scrapes of the collector's own series: a number that is
	// missing in the store is a sample that was lost on the way.
	scrapes prometheus.Counter

	series, budget, refused, kept, dropped, lost   *prometheus.Desc
	spoolBytes, spoolRecords, spoolOldest          *prometheus.Desc
	spoolDropped, spoolSync, pushErrors, pushDelay *prometheus.Desc
	pushLast, sent, retried, failed, wire, policy  *prometheus.Desc
	policyOK, build, buildTime                     *prometheus.Desc
	refusedBy, refusedHealth, bad                  *prometheus.Desc
}

func newMetrics(c *Collector) (*metrics, error) {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("muster_collector_"+name, help, labels, nil)
	}
	m := &metrics{
		c: c, self: prometheus.NewRegistry(),
		series:        d("series", "Series that leave the site and count against the budget."),
		budget:        d("series_budget", "The policy's series budget."),
		refused:       d("series_refused", "Series that are refused because the budget is used up."),
		refusedBy:     d("metric_series_refused", "Series that are refused because the budget is used up, by metric; 50 metrics at most, those that the health policy reads first.", "metric"),
		refusedHealth: d("health_series_refused", "Refused series of metrics that the health policy reads."),
		bad:           d("doubtful_samples", "1 for each metric of a target that had values that no exporter means, in more than one scrape of the last ten minutes.", "target_job", "target", "metric", "problem"),
		kept:          d("samples_kept_total", "Samples that passed the filter."),
		dropped:       d("samples_dropped_total", "Samples that were dropped, by reason: allowlist, duplicate, budget are the filter's; future and out_of_order are those of an exporter whose clock is wrong.", "reason"),
		lost:          d("samples_lost_total", "Samples that passed the filter and could not be queued."),
		spoolBytes:    d("spool_bytes", "Bytes of the batches that are queued."),
		spoolRecords:  d("spool_batches", "Batches that are queued."),
		spoolOldest:   d("spool_oldest_seconds", "Age of the oldest queued batch; 0 when there is none."),
		spoolDropped:  d("spool_dropped_batches_total", "Queued batches that were dropped, by reason: size, age, corrupt.", "reason"),
		spoolSync:     d("spool_sync_errors_total", "Failed syncs of the spool to the disk."),
		pushErrors:    d("push_errors_total", "Push requests that failed."),
		pushDelay:     d("push_delay_seconds", "Age of the newest sample that the regional acknowledged."),
		pushLast:      d("push_last_success_timestamp_seconds", "When a push was last acknowledged; 0 before the first."),
		sent:          d("samples_sent_total", "Samples that the regional acknowledged."),
		retried:       d("samples_retried_total", "Samples of failed pushes that are tried again."),
		failed:        d("samples_failed_total", "Samples that the regional refused for good."),
		wire:          d("push_bytes_total", "Bytes of the acknowledged push requests, compressed."),
		policy:        d("policy_info", "1; the hash of the policy in effect.", "hash"),
		policyOK:      d("policy_applied", "1 if the policy that came last is in effect, 0 if it was refused."),
		build:         prometheus.NewDesc("muster_edge_build_info", "1; the version of the edge software.", []string{"version"}, nil),
		buildTime:     prometheus.NewDesc("muster_edge_build_timestamp_seconds", "When the edge software was built.", nil, nil),
	}
	m.scrapes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "muster_collector_self_scrapes_total", Help: "Scrapes of the collector's own series; grows by one with each sample of itself.",
	})
	if err := m.self.Register(m); err != nil {
		return nil, err
	}
	m.self.MustRegister(m.scrapes)
	if c.opts.Self != nil {
		if err := m.self.Register(c.opts.Self); err != nil {
			return nil, err
		}
	}
	if c.opts.ProcessMetrics {
		m.self.MustRegister(
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{Namespace: "muster_edge"}),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_edge_goroutines", Help: "Goroutines of the edge process."}, func() float64 { return float64(runtime.NumGoroutine()) }),
		)
	}
	if c.opts.Registerer != nil {
		if err := c.opts.Registerer.Register(m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) unregister() {
	if r := m.c.opts.Registerer; r != nil {
		r.Unregister(m)
	}
}

func (m *metrics) handler() http.Handler {
	h := promhttp.HandlerFor(m.self, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.scrapes.Inc()
		h.ServeHTTP(w, r)
	})
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.series, m.budget, m.refused, m.kept, m.dropped, m.lost, m.spoolBytes, m.spoolRecords, m.spoolOldest, m.spoolDropped, m.spoolSync,
		m.pushErrors, m.pushDelay, m.pushLast, m.sent, m.retried, m.failed, m.wire, m.policy, m.policyOK, m.build, m.buildTime,
		m.refusedBy, m.refusedHealth, m.bad,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	// Not Status: it waits for the scrape manager, which may be waiting for this
	// scrape to end.
	st := m.c.status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(m.series, float64(st.Series))
	gauge(m.budget, float64(st.Budget))
	gauge(m.refused, float64(st.Refused))
	for metric, n := range st.RefusedByName {
		gauge(m.refusedBy, float64(n), metric)
	}
	gauge(m.refusedHealth, float64(st.reserved))
	for _, b := range st.Bad {
		gauge(m.bad, 1, b.Job, b.Instance, b.Metric, string(b.Problem))
	}
	counter(m.kept, st.Kept)
	for reason, n := range st.Dropped {
		counter(m.dropped, n, reason)
	}
	counter(m.lost, st.Lost)
	gauge(m.spoolBytes, float64(st.Spool.Bytes))
	gauge(m.spoolRecords, float64(st.Spool.Pending))
	gauge(m.spoolOldest, st.Spool.OldestAge.Seconds())
	counter(m.spoolDropped, st.Spool.Dropped.Size, "size")
	counter(m.spoolDropped, st.Spool.Dropped.Age, "age")
	counter(m.spoolDropped, st.Spool.Dropped.Corrupt, "corrupt")
	counter(m.spoolSync, st.Spool.SyncErrors)
	counter(m.pushErrors, st.Push.FailedRequests)
	gauge(m.pushDelay, st.PushDelay.Seconds())
	last := 0.0
	if !st.Push.LastSuccess.IsZero() {
		last = float64(st.Push.LastSuccess.UnixMilli()) / 1e3
	}
	gauge(m.pushLast, last)
	counter(m.sent, st.Push.SentSamples)
	counter(m.retried, st.Push.RetriedSamples)
	counter(m.failed, st.Push.FailedSamples)
	counter(m.wire, st.Push.SentBytes)
	gauge(m.policy, 1, st.PolicyHash)
	applied := 1.0
	if st.PolicyError != "" {
		applied = 0
	}
	gauge(m.policyOK, applied)
	gauge(m.build, 1, m.c.opts.Version)
	if at := m.c.opts.BuildTime; !at.IsZero() {
		gauge(m.buildTime, float64(at.Unix()))
	}
}
