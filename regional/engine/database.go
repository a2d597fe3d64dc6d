package engine

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"muster.dev/muster/regional/engine/compiled"
)

// database tells compiled programs what is appended to it.
type database struct {
	*tsdb.DB
	recent *compiled.Recent
}

func openDatabase(dir string, log *slog.Logger, reg prometheus.Registerer, o *tsdb.Options) (*database, error) {
	db, err := tsdb.Open(dir, log, reg, o, nil)
	if err != nil {
		return nil, err
	}
	d := &database{DB: db, recent: compiled.NewRecent()}
	const reads, readsHelp = "muster_engine_platform_series_reads_total", "Series that were read for compiled expressions, by where their samples were: kept by series, or in the head, out of which they are decoded."
	reg.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_engine_platform_kept_series", Help: "Series whose newest samples are kept for compiled expressions."},
			func() float64 { return float64(d.recent.Use().Series) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "muster_engine_platform_kept_bytes", Help: "What these samples take of the memory."},
			func() float64 { return float64(d.recent.Use().Bytes) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: reads, Help: readsHelp, ConstLabels: prometheus.Labels{"from": "kept"}},
			func() float64 { return float64(d.recent.Use().Kept) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: reads, Help: readsHelp, ConstLabels: prometheus.Labels{"from": "head"}},
			func() float64 { return float64(d.recent.Use().Head) }),
	)
	return d, nil
}

// Appender implements storage.Appendable.
func (d *database) Appender(ctx context.Context) storage.Appender {
	return d.recent.Appender(d.DB.Appender(ctx))
}
