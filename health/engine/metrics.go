package engine

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	tick, evaluate          prometheus.Histogram
	lastTick                prometheus.Gauge
	missed, failed, dropped prometheus.Counter
	unnamed                 prometheus.Counter
	sites, regionalUp       *prometheus.GaugeVec
	clockAhead              *prometheus.GaugeVec
	written, writeFailed    *prometheus.CounterVec
	saved, saveFailed       prometheus.Counter
	skipped                 prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	hist := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30}})
	}
	count := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		tick:        hist("muster_health_tick_duration_seconds", "From the start of a tick's queries to its view being published."),
		evaluate:    hist("muster_health_evaluate_duration_seconds", "The part of a tick after its last answer."),
		lastTick:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_health_last_tick_timestamp_seconds", Help: "When the last tick was done."}),
		missed:      count("muster_health_ticks_missed_total", "Ticks left out because the queries of the one before still ran."),
		failed:      count("muster_health_query_failures_total", "Queries that failed at a regional or the store."),
		unnamed:     count("muster_health_object_query_failures_total", "Queries for the objects to blame that failed; their reasons name none."),
		dropped:     count("muster_health_subscribers_dropped_total", "Subscribers of changes that fell behind."),
		sites:       prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "muster_health_sites", Help: "Sites by colour."}, []string{"colour"}),
		regionalUp:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "muster_health_regional_up", Help: "1 while the regional's live view answers."}, []string{"regional"}),
		clockAhead:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "muster_health_regional_clock_ahead_seconds", Help: "How far the regional's clock is at least ahead of this role's; behind, if negative; 0 below two seconds."}, []string{"regional"}),
		written:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_health_samples_written_total", Help: "Samples of scores handed to the queue of the store, or taken by a regional."}, []string{"to"}),
		writeFailed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_health_write_failures_total", Help: "Writes of scores that failed."}, []string{"to"}),
		saved:       count("muster_health_state_saves_total", "Saves of the state that outlives a restart."),
		saveFailed:  count("muster_health_state_save_failures_total", "Saves of the state that failed."),
		skipped:     count("muster_health_writes_skipped_total", "Ticks whose scores were not written because the writes of an earlier one still ran."),
	}
	if reg != nil {
		reg.MustRegister(m.tick, m.evaluate, m.lastTick, m.missed, m.failed, m.unnamed, m.dropped, m.sites, m.regionalUp, m.clockAhead, m.written, m.writeFailed, m.saved, m.saveFailed, m.skipped)
	}
	return m
}
