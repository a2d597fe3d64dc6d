package engine

import (
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"google.golang.org/protobuf/proto"
)

const lookback = 5 * 60 * 1000 // milliseconds; PromQL's default

// federate serves the newest value of each series that match[] selects, as
// Prometheus' /federate. Native histograms are left out.
func (e *Engine) federate(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	selectors, err := parser.ParseMetricSelectors(r.Form["match[]"])
	if err == nil && len(selectors) == 0 {
		err = fmt.Errorf("want at least one match[] parameter")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	now := e.opts.Now().UnixMilli()
	q, err := e.db.Querier(now-lookback, now)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer q.Close()
	var sets []storage.SeriesSet
	for _, m := range selectors {
		sets = append(sets, q.Select(r.Context(), true, &storage.SelectHints{Start: now - lookback, End: now}, m...))
	}
	set := storage.NewMergeSeriesSet(sets, 0, storage.ChainedSeriesMerge)

	format := expfmt.Negotiate(r.Header)
	w.Header().Set("Content-Type", string(format))
	enc := expfmt.NewEncoder(w, format)
	var family *dto.MetricFamily
	flush := func() bool { return family == nil || enc.Encode(family) == nil }
	var it chunkenc.Iterator
	builder := labels.NewBuilder(labels.EmptyLabels())
	for set.Next() {
		s := set.At()
		it = s.Iterator(it)
		t, v, found := int64(0), 0.0, false
		for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
			if found = typ == chunkenc.ValFloat; found {
				t, v = it.At()
			}
		}
		if !found || value.IsStaleNaN(v) {
			continue
		}
		ls := withExternal(builder, s.Labels(), e.opts.ExternalLabels)
		name := ls.Get(model.MetricNameLabel)
		if family == nil || family.GetName() != name {
			if !flush() {
				return
			}
			family = &dto.MetricFamily{Name: proto.String(name), Type: dto.MetricType_UNTYPED.Enum()}
		}
		m := &dto.Metric{Untyped: &dto.Untyped{Value: proto.Float64(v)}, TimestampMs: proto.Int64(t)}
		ls.Range(func(l labels.Label) {
			if l.Name != model.MetricNameLabel {
				m.Label = append(m.Label, &dto.LabelPair{Name: proto.String(l.Name), Value: proto.String(l.Value)})
			}
		})
		family.Metric = append(family.Metric, m)
	}
	if err := set.Err(); err != nil {
		e.log.Warn("federate failed", "err", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	flush()
	if c, ok := enc.(expfmt.Closer); ok {
		_ = c.Close()
	}
}
