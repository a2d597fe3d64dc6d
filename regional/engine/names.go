package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"muster.dev/muster/internal/wire"
)

// HeaviestNames are the n metrics with the most series among those of the head that the
// matchers select, the largest first, and how many series those are in all. If every is
// more than 1 only about one series of so many is looked at, and the counts are estimates.
// It costs a step for each series that is selected and a look-up for each that is looked at.
func (e *Engine) HeaviestNames(ctx context.Context, n, every int, matchers ...*labels.Matcher) (_ []wire.NameSeries, series int64, err error) {
	ix, err := e.db.Head().Index()
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	p, err := tsdb.PostingsForMatchers(ctx, ix, matchers...)
	if err != nil {
		return nil, 0, err
	}
	every = max(every, 1)
	counts := map[string]int64{}
	var b labels.ScratchBuilder
	for p.Next() {
		series++
		if series%4096 == 0 && ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		// Sites make their series in one order: every n-th of them may have one name.
		if every > 1 && uint64(p.At())*0x9e3779b97f4a7c15>>32%uint64(every) != 0 {
			continue
		}
		switch err := ix.Series(p.At(), &b, nil); {
		case errors.Is(err, storage.ErrNotFound):
			continue // dropped meanwhile
		case err != nil:
			return nil, 0, err
		}
		counts[b.Labels().Get(labels.MetricName)] += int64(every)
	}
	if err := p.Err(); err != nil {
		return nil, 0, err
	}
	out := make([]wire.NameSeries, 0, len(counts))
	for name, c := range counts {
		out = append(out, wire.NameSeries{Name: name, Series: min(c, series)})
	}
	slices.SortFunc(out, func(a, b wire.NameSeries) int {
		return cmp.Or(cmp.Compare(b.Series, a.Series), cmp.Compare(a.Name, b.Name))
	})
	return out[:min(n, len(out))], series, nil
}
