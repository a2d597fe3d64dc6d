package timeline

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"muster.dev/muster/internal/wire"
)

type metrics struct {
	taken, dropped *prometheus.CounterVec
	failures       prometheus.Counter
}

func newMetrics(r prometheus.Registerer, s *Store) *metrics {
	f := promauto.With(r)
	m := &metrics{
		taken:    f.NewCounterVec(prometheus.CounterOpts{Name: "muster_timeline_events_total", Help: "Events that were written to this role's part of the timeline."}, []string{"kind"}),
		dropped:  f.NewCounterVec(prometheus.CounterOpts{Name: "muster_timeline_dropped_total", Help: "Events that are not kept: their site, object or tenant had too many at once (rate), or they were the oldest of a tenant that has as many as it may (full)."}, []string{"reason"}),
		failures: f.NewCounter(prometheus.CounterOpts{Name: "muster_timeline_failures_total", Help: "Times that the timeline could not be written."}),
	}
	for _, reason := range []string{"rate", "full"} {
		m.dropped.WithLabelValues(reason)
	}
	for _, kind := range wire.TimelineKinds {
		m.taken.WithLabelValues(kind)
	}
	sum := func(of func(use) int64) func() float64 {
		return func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			n := int64(0)
			for _, u := range s.uses {
				n += of(u)
			}
			return float64(n)
		}
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_timeline_events", Help: "Events in this role's part of the timeline."}, sum(func(u use) int64 { return u.events }))
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_timeline_bytes", Help: "Bytes of these events and of what finds them, without the file's own overhead."}, sum(func(u use) int64 { return u.bytes }))
	return m
}
