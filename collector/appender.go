package collector

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"

	"muster.dev/muster/collector/filter"
	"muster.dev/muster/internal/remotewrite"
)

// maxBatch is how many series go into one request: a bound on what one failure
// costs, and on the size that a regional has to take.
const maxBatch = 5000

// appendable is what the scrape manager writes to.
type appendable struct{ c *Collector }

// Appender takes one scrape. The scrape manager says in ctx of which target.
func (a appendable) Appender(ctx context.Context) storage.Appender {
	id, self := uint64(0), false
	var job, instance string
	if t, ok := scrape.TargetFromContext(ctx); ok {
		u := t.URL()
		self = u.Host == selfHost
		ls := t.Labels(labels.NewBuilder(labels.EmptyLabels()))
		job, instance = ls.Get(model.JobLabel), ls.Get(model.InstanceLabel)
		id = xxhash.Sum64String(u.String()) ^ ls.Hash()
	}
	s := a.c.table.Begin(id, self, time.Now().UnixMilli())
	s.Of(job, instance)
	return &appender{c: a.c, scrape: s}
}

// appender hands the samples of one scrape to the filter, and at Commit what is
// left of them to the spool.
type appender struct {
	c      *Collector
	scrape *filter.Scrape
}

func (a *appender) Append(ref storage.SeriesRef, l labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	r, err := a.scrape.Append(uint64(ref), l, t, v)
	return storage.SeriesRef(r), storageError(err)
}

func (a *appender) AppendHistogram(ref storage.SeriesRef, l labels.Labels, t int64, h *histogram.Histogram, fh *histogram.FloatHistogram) (storage.SeriesRef, error) {
	r, err := a.scrape.AppendHistogram(uint64(ref), l, t, h, fh)
	return storage.SeriesRef(r), storageError(err)
}

func storageError(err error) error {
	if errors.Is(err, filter.ErrOutOfOrder) {
		return storage.ErrOutOfOrderSample
	}
	return err
}

func (a *appender) UpdateMetadata(ref storage.SeriesRef, _ labels.Labels, m metadata.Metadata) (storage.SeriesRef, error) {
	a.scrape.SetMetadata(uint64(ref), m.Type, m.Unit)
	return ref, nil
}

// AppendExemplar drops the exemplar: nothing at the centre stores them.
func (a *appender) AppendExemplar(ref storage.SeriesRef, _ labels.Labels, _ exemplar.Exemplar) (storage.SeriesRef, error) {
	return ref, nil
}

// AppendCTZeroSample is never called: the scrape manager is not told to.
func (a *appender) AppendCTZeroSample(ref storage.SeriesRef, _ labels.Labels, _, _ int64) (storage.SeriesRef, error) {
	return ref, storage.ErrOutOfOrderCT
}

// AppendHistogramCTZeroSample is never called either.
func (a *appender) AppendHistogramCTZeroSample(ref storage.SeriesRef, _ labels.Labels, _, _ int64, _ *histogram.Histogram, _ *histogram.FloatHistogram) (storage.SeriesRef, error) {
	return ref, storage.ErrOutOfOrderCT
}

func (a *appender) SetOptions(*storage.AppendOptions) {}

func (a *appender) Rollback() error {
	a.scrape.Rollback()
	return nil
}

func (a *appender) Commit() error {
	b := a.c.batches.Get().(*batch)
	a.scrape.Commit(b.add)
	a.c.queue(b)
	return nil // the scrape went well; what the spool did not take is counted, and a condition
}

// batch is the samples of one scrape on their way to the spool. Its memory is
// used again.
type batch struct {
	outs    []filter.Out
	series  []remotewrite.Series
	samples []remotewrite.Sample
}

func (b *batch) add(o filter.Out) { b.outs = append(b.outs, o) }

// queue puts a batch into the spool and takes its memory back. What the spool does not
// take is counted, told by a condition, and logged once a minute.
func (c *Collector) queue(b *batch) {
	outs := b.outs
	for len(outs) > 0 {
		n := min(len(outs), maxBatch)
		if _, err := c.spool.Append(remotewrite.Encode("", 0, b.toSeries(outs[:n]))); err != nil {
			c.noteLost(uint64(n), err)
		}
		outs = outs[n:]
	}
	clear(b.outs) // don't hold on to labels and histograms
	clear(b.series)
	b.outs = b.outs[:0]
	c.batches.Put(b)
}

func (c *Collector) noteLost(n uint64, err error) {
	now := time.Now()
	c.mu.Lock()
	c.lost += n
	c.lostErr, c.lostAt = err, now
	total := c.lost
	c.mu.Unlock()
	if _, ok := c.warned.Pass("lost", now); ok {
		c.log.Error("the spool does not take samples; they are lost", "samples_lost", total, "err", err)
	}
}

func (b *batch) toSeries(outs []filter.Out) []remotewrite.Series {
	b.series = slices.Grow(b.series[:0], len(outs))[:len(outs)]
	b.samples = slices.Grow(b.samples[:0], len(outs))[:len(outs)]
	series, samples := b.series, b.samples
	for i := range outs {
		o := &outs[i]
		s := remotewrite.Series{Labels: o.Labels, Metadata: remotewrite.Metadata{Type: o.Type, Unit: o.Unit}}
		if o.H != nil || o.FH != nil {
			s.Histograms = []remotewrite.Histogram{{T: o.T, H: o.H, FH: o.FH}}
		} else {
			samples[i] = remotewrite.Sample{T: o.T, V: o.V}
			s.Samples = samples[i : i+1 : i+1]
		}
		series[i] = s
	}
	return series
}
