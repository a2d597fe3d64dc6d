package engine

import (
	"context"
	"log/slog"
	"sync"
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
	t     *tee
	batch *batch // nil: nothing was appended yet
}

// batch is what an appender has gathered. It is used again: what a region's own roles say
// of themselves every 15 s made a fifth of a regional's garbage.
type batch struct {
	series  []remotewrite.Series
	samples []remotewrite.Sample // those of all series
	builder *labels.Builder
}

var batches = sync.Pool{New: func() any { return &batch{builder: labels.NewBuilder(labels.EmptyLabels())} }}

// keptSeries is of how many series a batch is kept for the next use at most.
const keptSeries = 1 << 14

func (b *batch) release() {
	clear(b.series) // don't hold on to labels
	b.series, b.samples = b.series[:0], b.samples[:0]
	b.builder.Reset(labels.EmptyLabels())
	if cap(b.series) <= keptSeries && cap(b.samples) <= keptSeries {
		batches.Put(b)
	}
}

// add puts a series to the batch. Scrapes and rules append the samples of one
// series one after the other, if there are several at all.
func (b *batch) add(l labels.Labels) *remotewrite.Series {
	if n := len(b.series); n > 0 && labels.Equal(b.series[n-1].Labels, l) {
		return &b.series[n-1]
	}
	b.series = append(b.series, remotewrite.Series{Labels: l})
	return &b.series[len(b.series)-1]
}

func (b *batch) sample(l labels.Labels, t int64, v float64) {
	s := b.add(l)
	b.samples = append(b.samples, remotewrite.Sample{T: t, V: v})
	n := len(b.samples)
	s.Samples = b.samples[n-len(s.Samples)-1 : n : n]
}

func (a *teeAppender) gathered() *batch {
	if a.batch == nil {
		a.batch = batches.Get().(*batch)
	}
	return a.batch
}

// forget ends the use of the batch.
func (a *teeAppender) forget() {
	if a.batch != nil {
		a.batch.release()
		a.batch = nil
	}
}

// GetRef implements storage.GetRef.
func (a *teeAppender) GetRef(l labels.Labels, hash uint64) (storage.SeriesRef, labels.Labels) {
	return a.Appender.(storage.GetRef).GetRef(l, hash)
}

// Append implements storage.Appender.
func (a *teeAppender) Append(ref storage.SeriesRef, l labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	ref, err := a.Appender.Append(ref, l, t, v)
	if err == nil {
		a.gathered().sample(l, t, v)
	}
	return ref, err
}

// AppendHistogram implements storage.Appender.
func (a *teeAppender) AppendHistogram(ref storage.SeriesRef, l labels.Labels, t int64, h *histogram.Histogram, fh *histogram.FloatHistogram) (storage.SeriesRef, error) {
	ref, err := a.Appender.AppendHistogram(ref, l, t, h, fh)
	if err == nil {
		s := a.gathered().add(l)
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
	defer a.forget()
	if err := a.Appender.Commit(); err != nil || a.batch == nil {
		return err
	}
	b := a.batch
	for i := range b.series {
		b.series[i].Labels = withExternal(b.builder, b.series[i].Labels, a.t.external)
	}
	if a.t.tenant != "" {
		a.t.send(a.t.tenant, b.series)
		return nil
	}
	byTenant := map[string][]remotewrite.Series{}
	for _, s := range b.series {
		tenant := s.Labels.Get(fleet.SeriesTenant)
		if fleet.ValidateTenant(tenant) != nil {
			tenant = fleet.PlatformTenant
		}
		byTenant[tenant] = append(byTenant[tenant], s)
	}
	for tenant, series := range byTenant {
		a.t.send(tenant, series)
	}
	return nil
}

func (t *tee) send(tenant string, series []remotewrite.Series) {
	n := 0
	for i := range series {
		n += len(series[i].Samples) + len(series[i].Histograms)
	}
	if err := t.forward(tenant, series); err != nil {
		t.failures.Add(float64(n))
		if t.failed.Add(1)%100 == 1 {
			t.log.Warn("samples are in the engine but could not be queued for the store", "tenant", tenant, "samples", n, "failures", t.failed.Load(), "err", err)
		}
		return
	}
	t.samples.Add(float64(n))
}

// Rollback implements storage.Appender.
func (a *teeAppender) Rollback() error {
	defer a.forget()
	return a.Appender.Rollback()
}

// withExternal adds the external labels that the series does not have, as
// Prometheus' remote write does. The builder is anybody's.
func withExternal(b *labels.Builder, l, external labels.Labels) labels.Labels {
	if external.IsEmpty() {
		return l
	}
	b.Reset(l)
	external.Range(func(e labels.Label) {
		if !l.Has(e.Name) {
			b.Set(e.Name, e.Value)
		}
	})
	return b.Labels()
}
