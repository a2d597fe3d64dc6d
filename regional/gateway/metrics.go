package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/internal/turns"
)

// metrics of the gateway. None has a label for sites: the live view and the
// condition name them.
type metrics struct {
	pushes        *prometheus.CounterVec
	pushSeconds   prometheus.Histogram
	samples       prometheus.Counter
	refused       *prometheus.CounterVec
	limited       *prometheus.CounterVec
	bytes         prometheus.Counter
	forwardErrors prometheus.Counter
	connected     prometheus.Gauge
	closed        *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, mem *memory, line *turns.Line) *metrics {
	m := &metrics{
		pushes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_gateway_pushes_total", Help: "Remote write requests by the status of the answer."}, []string{"code"}),
		pushSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "muster_gateway_push_duration_seconds", Help: "From the head of a remote write request to its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}),
		samples:       prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_gateway_samples_total", Help: "Samples that were taken: in the edge engine and in the forward queue."}),
		refused:       prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_gateway_refused_samples_total", Help: "Samples of accepted requests that were refused for good, by reason."}, []string{"reason"}),
		limited:       prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_gateway_refused_pushes_total", Help: "Whole requests that were refused, by reason."}, []string{"reason"}),
		bytes:         prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_gateway_body_bytes_total", Help: "Compressed bytes of remote write bodies that were read."}),
		forwardErrors: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_gateway_forward_errors_total", Help: "Pushes that could not be put into the forward queue; the sites try again."}),
		closed:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_gateway_closed_connections_total", Help: "Connections that were closed for a limit: of one site, of peers without a certificate."}, []string{"reason"}),
		connected:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_gateway_connected_sites", Help: "Sites that hold a stream."}),
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_gateway_memory_bytes", Help: "What requests hold while they are read, decoded and stored."},
		func() float64 { return float64(mem.status().Used) }))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_gateway_waiting_pushes", Help: "Remote write requests that wait for their turn."},
		func() float64 { _, n := line.Use(); return float64(n) }))
	reg.MustRegister(m.pushes, m.pushSeconds, m.samples, m.refused, m.limited, m.bytes, m.forwardErrors, m.connected, m.closed)
	return m
}
