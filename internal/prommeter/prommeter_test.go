package prommeter

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

// shelf holds series with a sample each step.
type shelf struct {
	storage.LabelQuerier
	series    int
	step      time.Duration
	iterators int
	samples   int // that were read
	onSeries  func(n int)
}

func (s *shelf) Querier(_, _ int64) (storage.Querier, error) { return s, nil }
func (s *shelf) Close() error                                { return nil }
func (s *shelf) Select(context.Context, bool, *storage.SelectHints, ...*labels.Matcher) storage.SeriesSet {
	return &set{s: s}
}

type set struct {
	s *shelf
	n int
}

func (x *set) Next() bool                        { x.n++; return x.n <= x.s.series }
func (x *set) At() storage.Series                { return &one{x.s, x.n} }
func (x *set) Err() error                        { return nil }
func (x *set) Warnings() annotations.Annotations { return nil }

type one struct {
	s *shelf
	n int
}

func (o *one) Labels() labels.Labels { return labels.FromStrings("n", strings.Repeat("x", o.n)) }
func (o *one) Iterator(chunkenc.Iterator) chunkenc.Iterator {
	o.s.iterators++
	if o.s.onSeries != nil {
		o.s.onSeries(o.s.iterators)
	}
	return &iterator[int64]{s: o.s, t: -o.s.step.Milliseconds()}
}

type iterator[T millis] struct {
	chunkenc.Iterator
	s *shelf
	t int64
}

func (i *iterator[T]) Next() chunkenc.ValueType {
	i.s.samples++
	i.t += i.s.step.Milliseconds()
	return chunkenc.ValFloat
}

func (i *iterator[T]) Seek(t T) chunkenc.ValueType {
	if i.t < int64(t) {
		i.s.samples++
		step := i.s.step.Milliseconds()
		i.t = (int64(t) + step - 1) / step * step
	}
	return chunkenc.ValFloat
}
func (i *iterator[T]) At() (int64, float64) { return i.t, 1 }
func (i *iterator[T]) AtT() int64           { return i.t }
func (i *iterator[T]) AtST() int64          { return 0 }
func (i *iterator[T]) Err() error           { return nil }
func (i *iterator[T]) AtFloatHistogram(h *histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	return i.t, h
}

func run(ctx context.Context, t *testing.T, q *Queryable, expr string, span, step time.Duration) (*promql.Result, int64) {
	t.Helper()
	ng := promql.NewEngine(promql.EngineOpts{MaxSamples: 5e7, Timeout: time.Minute})
	defer ng.Close()
	end := time.Unix(100_000, 0)
	query, err := ng.NewRangeQuery(ctx, q, nil, expr, end.Add(-span), end, step)
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	res := query.Exec(ctx)
	return res, query.Stats().Samples.TotalSamples
}

// A series that is denser than its query's text lets think ends the query, at the same
// number of points whatever the density.
func TestDense(t *testing.T) {
	for _, step := range []time.Duration{time.Second, 10 * time.Millisecond, time.Millisecond} {
		for _, expr := range []string{"sum_over_time(x[1m])", "max_over_time(sum_over_time(x[1m])[1m:1s])", "x"} {
			s := &shelf{series: 3, step: step}
			res, points := run(t.Context(), t, &Queryable{Queryable: s, PerSeries: 50_000}, expr, 5*time.Minute, time.Second)
			dense := step < time.Second // 300 steps of 60 samples are 18,000
			if dense != (res.Err != nil) || dense && !strings.Contains(res.Err.Error(), "too many samples for this range") {
				t.Errorf("%s each %s: %v", expr, step, res.Err)
			}
			if points > 3*50_000 {
				t.Errorf("%s each %s: %d points", expr, step, points)
			}
		}
	}
}

func TestTooManySeries(t *testing.T) {
	s := &shelf{series: 100, step: time.Minute}
	q := &Queryable{Queryable: s, PerSeries: 1e6, Points: 5000}
	if res, _ := run(t.Context(), t, q, "x + 0", 100*time.Second, time.Second); res.Err == nil || !strings.Contains(res.Err.Error(), "too many series") || s.iterators > 0 {
		t.Errorf("100 series of 101 steps: %v", res.Err)
	}
	if res, _ := run(t.Context(), t, q, "x + 0", 40*time.Second, time.Second); res.Err != nil {
		t.Errorf("100 series of 41 steps: %v", res.Err)
	}
}

// Once the deadline is over nothing more than the rest of one series is touched, and of
// that no more than 1,024 samples are read.
func TestDeadline(t *testing.T) {
	for _, expr := range []string{"sum_over_time(x[10s])", "x", "sum(rate(x[10s])) + count(x)", "max_over_time(sum_over_time(x[10s])[1m:1s])"} {
		ctx, cancel := context.WithCancel(t.Context())
		s := &shelf{series: 50, step: time.Millisecond}
		after := 0
		s.onSeries = func(n int) {
			if n == 5 {
				after = s.samples
				cancel()
			}
		}
		res, _ := run(ctx, t, &Queryable{Queryable: s, PerSeries: 1e12}, expr, 10*time.Minute, 5*time.Second)
		if !errors.As(res.Err, new(promql.ErrQueryCanceled)) && !errors.Is(res.Err, context.Canceled) {
			t.Errorf("%s: %v", expr, res.Err)
		}
		if s.iterators > 6 || s.samples-after > 2048 {
			t.Errorf("%s: after the end of its time %d series were begun and %d samples read", expr, s.iterators-5, s.samples-after)
		}
	}
}

// BenchmarkQuery is a range query over 100 series with and without the meter.
func BenchmarkQuery(b *testing.B) {
	s := &shelf{series: 100, step: 15 * time.Second}
	for name, q := range map[string]storage.Queryable{"bare": s, "metered": &Queryable{Queryable: s, PerSeries: 1e9, Points: 1e9}} {
		b.Run(name, func(b *testing.B) {
			ng := promql.NewEngine(promql.EngineOpts{MaxSamples: 5e7, Timeout: time.Minute})
			defer ng.Close()
			end := time.Unix(1_000_000, 0)
			for b.Loop() {
				query, err := ng.NewRangeQuery(b.Context(), q, nil, "sum(rate(x[5m]))", end.Add(-6*time.Hour), end, time.Minute)
				if err != nil {
					b.Fatal(err)
				}
				if res := query.Exec(b.Context()); res.Err != nil {
					b.Fatal(res.Err)
				}
				query.Close()
			}
		})
	}
}

// Pass is called between series and within a long one, and its error ends the query.
func TestPass(t *testing.T) {
	for name, s := range map[string]*shelf{"many series": {series: 1000, step: time.Minute}, "one series": {series: 1, step: time.Second}} {
		calls := 0
		over := errors.New("somebody else's turn")
		pass := func(context.Context) error {
			if calls++; calls == 3 {
				return over
			}
			return nil
		}
		res, _ := run(t.Context(), t, &Queryable{Queryable: s, PerSeries: 1e6, Pass: pass}, "sum_over_time(x[1m])", 5*time.Hour, time.Second)
		if !errors.Is(res.Err, over) || calls != 3 {
			t.Errorf("%s: %d calls, %v", name, calls, res.Err)
		}
	}
}

// hinted notes what a query tells its store.
type hinted struct {
	storage.Queryable
	seen []storage.SelectHints
}

type hintedQuerier struct {
	storage.Querier
	h *hinted
}

func (h *hinted) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := h.Queryable.Querier(mint, maxt)
	return &hintedQuerier{q, h}, err
}

func (q *hintedQuerier) Select(ctx context.Context, sorted bool, h *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	q.h.seen = append(q.h.seen, *h)
	return q.Querier.Select(ctx, sorted, h, ms...)
}

// PromQL leaves out by itself what is before an instant or a range, so that a database need not:
// the same answers come of a real one, whose chunks begin long before.
func TestWholeChunksGiveTheSameAnswers(t *testing.T) {
	db, err := tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	app := db.Appender(t.Context())
	end := time.Unix(100_000, 0)
	for i := range 100 {
		at := end.Add(-time.Duration(100-i) * 15 * time.Second)
		if _, err := app.Append(0, labels.FromStrings("__name__", "x"), at.UnixMilli(), float64(i*i)); err != nil {
			t.Fatal(err)
		}
		if i < 50 { // ended long ago
			if _, err := app.Append(0, labels.FromStrings("__name__", "x", "old", "yes"), at.UnixMilli(), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	store := &hinted{Queryable: db}
	ng := promql.NewEngine(promql.EngineOpts{MaxSamples: 5e7, Timeout: time.Minute})
	defer ng.Close()
	for _, expr := range []string{"x", "x offset 10m", "rate(x[1m])", "changes(x[6m])", "min_over_time(x[1m15s])", "count(x)", "absent(x)", "sum_over_time(x[2m:30s])", "count_over_time(x[1h])", "timestamp(x)"} {
		var got []string
		for _, q := range []storage.Queryable{&Queryable{Queryable: store, PerSeries: 50_000}, db} {
			query, err := ng.NewInstantQuery(t.Context(), q, nil, expr, end)
			if err != nil {
				t.Fatal(err)
			}
			res := query.Exec(t.Context())
			got = append(got, res.String())
			query.Close()
		}
		if got[0] != got[1] {
			t.Errorf("%s: %s, and without the meter %s", expr, got[0], got[1])
		}
	}
	for _, h := range store.seen {
		if !h.DisableTrimming {
			t.Errorf("%+v: the store leaves out samples that PromQL does not look at", h)
		}
	}
}
