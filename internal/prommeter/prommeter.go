// Package prommeter bounds what one PromQL query reads, while it runs. It is the other
// half of promcost, which judges the text alone and takes a series to have a sample each
// promcost.Resolution: a series that has a thousand a second, or more series than there
// is room for, are met here. It also looks at the deadline between the samples of one
// series, which PromQL does not.
//
// It knows no tier. A regional's engines and the embedded Cortex put it before their
// stores.
package prommeter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// Queryable gives out queriers that are metered. PromQL opens one for each query.
type Queryable struct {
	storage.Queryable
	// PerSeries bounds the points of one series that a query may touch, counted as
	// promcost counts: a sample counts once for each step whose range it is in.
	PerSeries int64
	// Points bounds those that all series together may take room for, one a step; 0: no
	// bound.
	Points int64
	// Pass is called between series and every now and then within one; its error ends the
	// query. Nil: the query's context alone is looked at.
	Pass func(context.Context) error
}

// pass says in PromQL's own errors why a query has to end, which its API answers with 503.
func (m *Queryable) pass(ctx context.Context) error {
	err := ctx.Err()
	if m.Pass != nil {
		err = m.Pass(ctx)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return promql.ErrQueryTimeout("reading of series")
	case errors.Is(err, context.Canceled):
		return promql.ErrQueryCanceled("reading of series")
	}
	return err
}

// Excess ends a query that reads more than it may: a mistake of whoever asks.
type Excess string

func (e Excess) Error() string { return string(e) }

// Querier implements storage.Queryable.
func (m *Queryable) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := m.Queryable.Querier(mint, maxt)
	if err != nil {
		return nil, err
	}
	return &meteredQuerier{Querier: q, m: m}, nil
}

// lookback is how far PromQL looks for the sample of an instant, in milliseconds.
const lookback = int64(5 * time.Minute / time.Millisecond)

type meteredQuerier struct {
	storage.Querier
	m    *Queryable
	used int64 // of Points; a query runs in one goroutine
}

// Select implements storage.Querier.
func (q *meteredQuerier) Select(ctx context.Context, sorted bool, h *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	if h != nil {
		// PromQL looks at no sample outside of the range that it asks for. Without this the
		// database would wrap each series in an iterator that leaves those out one by one: up
		// to a whole chunk of them for an instant, at twice the cost of skipping them.
		whole := *h
		whole.DisableTrimming, h = true, &whole
	}
	s := &meteredSet{SeriesSet: q.Querier.Select(ctx, sorted, h, ms...), ctx: ctx, q: q, steps: 1, weight: 1}
	if h != nil && h.Step > 0 {
		// A sample is in as many windows of a range as there are steps within it.
		before := h.Range
		if before == 0 {
			before = lookback
		}
		s.steps = max(1, (h.End-h.Start-before)/h.Step+1)
		s.weight = min(max(1, h.Range/h.Step), s.steps)
	}
	return s
}

type meteredSet struct {
	storage.SeriesSet
	ctx           context.Context
	q             *meteredQuerier
	steps, weight int64
	err           error
}

// reserved is how many points Prometheus makes room for in a new series, at most.
const reserved = 5000

// Next implements storage.SeriesSet.
func (s *meteredSet) Next() bool {
	if s.err != nil || !s.SeriesSet.Next() {
		return false
	}
	if s.err = s.q.m.pass(s.ctx); s.err != nil {
		return false
	}
	if s.q.used += min(s.steps, reserved); s.q.m.Points > 0 && s.q.used > s.q.m.Points {
		s.err = Excess(fmt.Sprintf("the query selects too many series: %d steps of each are more than %d points together; select fewer, or take a longer step", s.steps, s.q.m.Points))
		return false
	}
	return true
}

// Err implements storage.SeriesSet.
func (s *meteredSet) Err() error {
	if s.err != nil {
		return s.err // as it is: who answers looks at its type
	}
	return s.SeriesSet.Err()
}

// At implements storage.SeriesSet.
func (s *meteredSet) At() storage.Series { return &meteredSeries{Series: s.SeriesSet.At(), set: s} }

type meteredSeries struct {
	storage.Series
	set *meteredSet
}

// Iterator implements storage.Series.
func (s *meteredSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	m, reused := it.(*meteredIterator[int64])
	if !reused {
		m = &meteredIterator[int64]{}
	}
	*m = meteredIterator[int64]{Iterator: s.Series.Iterator(m.Iterator), ctx: s.set.ctx, m: s.set.q.m, weight: s.set.weight, left: s.set.q.m.PerSeries}
	return m
}

// millis is the time of a sample. It is always int64; as a parameter it keeps go vet from
// taking Seek for io.Seeker's.
type millis interface{ int64 }

// meteredIterator ends a series early with an error.
type meteredIterator[T millis] struct {
	chunkenc.Iterator
	ctx          context.Context
	m            *Queryable
	weight, left int64
	looks        int
	err          error
}

func (i *meteredIterator[T]) charge(t chunkenc.ValueType) chunkenc.ValueType {
	if t == chunkenc.ValNone {
		return t
	}
	if i.left -= i.weight; i.left < 0 && i.err == nil {
		i.err = Excess("a series has too many samples for this range at this step; take a shorter range or a longer step, or record it with a rule")
	}
	if i.looks++; i.looks%1024 == 0 && i.err == nil {
		i.err = i.m.pass(i.ctx)
	}
	if i.err != nil {
		return chunkenc.ValNone
	}
	return t
}

// Next implements chunkenc.Iterator.
func (i *meteredIterator[T]) Next() chunkenc.ValueType {
	if i.err != nil {
		return chunkenc.ValNone
	}
	return i.charge(i.Iterator.Next())
}

// Seek implements chunkenc.Iterator.
func (i *meteredIterator[T]) Seek(t T) chunkenc.ValueType {
	if i.err != nil {
		return chunkenc.ValNone
	}
	return i.charge(i.Iterator.Seek(int64(t)))
}

// AtFloatHistogram implements chunkenc.Iterator. A histogram is as many samples as it
// takes memory.
func (i *meteredIterator[T]) AtFloatHistogram(h *histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	t, h := i.Iterator.AtFloatHistogram(h)
	i.left -= i.weight * int64(h.Size()/16)
	return t, h
}

// Err implements chunkenc.Iterator.
func (i *meteredIterator[T]) Err() error {
	if i.err != nil {
		return i.err
	}
	return i.Iterator.Err()
}
