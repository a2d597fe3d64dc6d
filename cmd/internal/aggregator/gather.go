package aggregator

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// lateGatherer is a gatherer that is known only once the store is open; /metrics
// is served before that.
type lateGatherer struct {
	g atomic.Pointer[prometheus.Gatherer]
}

func (l *lateGatherer) set(g prometheus.Gatherer) { l.g.Store(&g) }

// Gather implements prometheus.Gatherer.
func (l *lateGatherer) Gather() ([]*dto.MetricFamily, error) {
	if g := l.g.Load(); g != nil {
		return (*g).Gather()
	}
	return nil, nil
}
