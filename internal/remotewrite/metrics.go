package remotewrite

import "github.com/prometheus/client_golang/prometheus"

type senderMetrics struct {
	sentSamples, retriedSamples, sentBytes prometheus.Counter
	failedSamples                          *prometheus.CounterVec
	droppedSamples                         *prometheus.CounterVec
	failedRequests                         *prometheus.CounterVec
}

func newSenderMetrics(s *Sender, reg prometheus.Registerer) *senderMetrics {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "muster_remote_write_" + name, Help: help}
	}
	m := &senderMetrics{
		sentSamples:    prometheus.NewCounter(opts("samples_sent_total", "Samples that the receiver acknowledged.")),
		retriedSamples: prometheus.NewCounter(opts("samples_retried_total", "Samples of requests that failed and are tried again.")),
		sentBytes:      prometheus.NewCounter(opts("bytes_sent_total", "Bytes of the acknowledged request bodies.")),
		failedSamples:  prometheus.NewCounterVec(opts("samples_failed_total", "Samples that the receiver refused for good, by status code."), []string{"reason"}),
		droppedSamples: prometheus.NewCounterVec(opts("samples_dropped_total", "Samples given up without a refusal: partial is what a 2xx did not confirm, undecodable is damage."), []string{"reason"}),
		failedRequests: prometheus.NewCounterVec(opts("requests_failed_total", "Failed requests by reason: a status code or network."), []string{"reason"}),
	}
	if reg == nil {
		return m
	}
	gauge := func(name, help string, f func(Status) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_remote_write_" + name, Help: help}, func() float64 { return f(s.Status()) })
	}
	reg.MustRegister(m.sentSamples, m.retriedSamples, m.sentBytes, m.failedSamples, m.droppedSamples, m.failedRequests,
		gauge("last_success_timestamp_seconds", "When a request was last acknowledged; 0 before the first.", func(st Status) float64 {
			if st.LastSuccess.IsZero() {
				return 0
			}
			return float64(st.LastSuccess.UnixMilli()) / 1e3
		}),
		gauge("highest_sent_timestamp_seconds", "Time of the newest acknowledged sample; 0 before the first.", func(st Status) float64 {
			return float64(st.HighestTimestamp) / 1e3
		}),
		gauge("in_flight_requests", "Requests in flight.", func(st Status) float64 { return float64(st.InFlight) }),
		gauge("consecutive_failures", "Failed requests since the last acknowledged one.", func(st Status) float64 { return float64(st.ConsecutiveFailures) }),
		gauge("protocol_v1", "1 while the endpoint is sent remote write 1.0.", func(st Status) float64 {
			if st.Protocol == "1.0" {
				return 1
			}
			return 0
		}),
	)
	return m
}

func (m *senderMetrics) count(info Info, res result) {
	n := info.All()
	switch res.verdict {
	case verdictDone:
		m.sentSamples.Add(float64(res.written))
		m.sentBytes.Add(float64(res.bytes))
		if lost := n - res.written; lost > 0 {
			m.droppedSamples.WithLabelValues("partial").Add(float64(lost))
		}
	case verdictRefused:
		taken := min(res.written, n)
		m.sentSamples.Add(float64(taken))
		m.failedSamples.WithLabelValues(res.reason).Add(float64(n - taken))
		m.failedRequests.WithLabelValues(res.reason).Inc()
	case verdictRetry:
		m.retriedSamples.Add(float64(n))
		m.failedRequests.WithLabelValues(res.reason).Inc()
	}
}
