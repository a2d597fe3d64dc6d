package engine

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/storage"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
)

// tee appends to the database and hands each committed batch to Options.Forward.
//
// Prometheus' own remote write queue was not used: its reader of the write-ahead
// log never resends what is older than its own start, so a restart would lose
// samples in the store.
type tee struct {
	db       storage.Appendable
	forward  func(string, []remotewrite.Series) error
	tenant   string
	external labels.Labels
	log      *slog.Logger
	closed   chan struct{}

	failed   atomic.Uint64
	samples  prometheus.Counter
	failures prometheus.Counter
}

func newTee(db storage.Appendable, o Options, log *slog.Logger, reg prometheus.Registerer) *tee {
	t := &tee{
		db: db, forward: o.Forward, tenant: o.Tenant, external: o.ExternalLabels, log: log, closed: make(chan struct{}),
		samples: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "muster_engine_forwarded_samples_total", Help: "Samples of rules and scrapes that were queued for the store."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "muster_engine_forward_failed_samples_total", Help: "Samples of rules and scrapes that are in the engine but could not be queued for the store."}),
	}
	reg.MustRegister(t.samples, t.failures)
	return t
}

// Appender implements storage.Appendable.
func (t *tee) Appender(ctx context.Context) storage.Appender {
	app := t.db.Appender(ctx)
	if t.forward == nil {
		return app
	}
	return &teeAppender{Appender: app, t: t}
}

type teeAppender struct {
	storage.Appender
	t      *tee
	series []remotewrite.Series
}

// add puts a sample to the batch. Scrapes and rules append the samples of one
// series one after the other, if there are several at all.
func (a *teeAppender) add(l labels.Labels) *remotewrite.Series {
	if n := len(a.series); n > 0 && labels.Equal(a.series[n-1].Labels, l) {
		return &a.series[n-1]
	}
	a.series = append(a.series, remotewrite.Series{Labels: l})
	return &a.series[len(a.series)-1]
}

// GetRef implements storage.GetRef.
func (a *teeAppender) GetRef(l labels.Labels, hash uint64) (storage.SeriesRef, labels.Labels) {
	return a.Appender.(storage.GetRef).GetRef(l, hash)
}

// Append implements storage.Appender.
func (a *teeAppender) Append(ref storage.SeriesRef, l labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	ref, err := a.Appender.Append(ref, l, t, v)
	if err == nil {
		s := a.add(l)
		s.Samples = append(s.Samples, remotewrite.Sample{T: t, V: v})
	}
	return ref, err
}

// AppendHistogram implements storage.Appender.
func (a *teeAppender) AppendHistogram(ref storage.SeriesRef, l labels.Labels, t int64, h *histogram.Histogram, fh *histogram.FloatHistogram) (storage.SeriesRef, error) {
	ref, err := a.Appender.AppendHistogram(ref, l, t, h, fh)
	if err == nil {
		s := a.add(l)
		s.Histograms = append(s.Histograms, remotewrite.Histogram{T: t, H: h, FH: fh})
	}
	return ref, err
}

// AppendExemplar implements storage.Appender. Exemplars are not kept.
func (a *teeAppender) AppendExemplar(ref storage.SeriesRef, _ labels.Labels, _ exemplar.Exemplar) (storage.SeriesRef, error) {
	return ref, nil
}

// UpdateMetadata implements storage.Appender. The scrape manager keeps metadata.
func (a *teeAppender) UpdateMetadata(ref storage.SeriesRef, _ labels.Labels, _ metadata.Metadata) (storage.SeriesRef, error) {
	return ref, nil
}

// Commit implements storage.Appender.
func (a *teeAppender) Commit() error {
	err := a.Appender.Commit()
	series := a.series
	a.series = nil
	if err != nil {
		return err
	}
	byTenant := map[string][]remotewrite.Series{}
	for _, s := range series {
		tenant := a.t.tenant
		if tenant == "" {
			tenant = s.Labels.Get(fleet.SeriesTenant)
		}
		if fleet.ValidateTenant(tenant) != nil {
			tenant = fleet.PlatformTenant
		}
		s.Labels = withExternal(s.Labels, a.t.external)
		byTenant[tenant] = append(byTenant[tenant], s)
	}
	for tenant, batch := range byTenant {
		n := 0
		for _, s := range batch {
			n += len(s.Samples) + len(s.Histograms)
		}
		if err := a.t.forward(tenant, batch); err != nil {
			a.t.failures.Add(float64(n))
			if a.t.failed.Add(1)%100 == 1 {
				a.t.log.Warn("samples are in the engine but could not be queued for the store", "tenant", tenant, "samples", n, "failures", a.t.failed.Load(), "err", err)
			}
			continue
		}
		a.t.samples.Add(float64(n))
	}
	return nil
}

// Rollback implements storage.Appender.
func (a *teeAppender) Rollback() error {
	a.series = nil
	return a.Appender.Rollback()
}

// withExternal adds the external labels that the series does not have, as
// Prometheus' remote write does.
func withExternal(l, external labels.Labels) labels.Labels {
	if external.IsEmpty() {
		return l
	}
	b := labels.NewBuilder(l)
	external.Range(func(e labels.Label) {
		if !l.Has(e.Name) {
			b.Set(e.Name, e.Value)
		}
	})
	return b.Labels()
}
