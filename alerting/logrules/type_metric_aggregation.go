package logrules

import (
	"fmt"
	"time"

	"muster.dev/muster/control/api/logrule"
	"muster.dev/muster/internal/logquery"
)

// metricAggregation matches when a figure of the numbers in the lines of a timeframe
// leaves its bounds, or with bucket_interval that of one of its segments.
type metricAggregation struct{ plain }

func (metricAggregation) about() logrule.Type {
	return logrule.Type{
		Needs:    []string{"timeframe", "metric_agg_key", "metric_agg_type"},
		Knows:    []string{"bucket_interval", "sync_bucket_interval", "percentile_range", "aggregation"},
		OneOf:    [2]string{"max_threshold", "min_threshold"},
		Lasts:    logrule.Itself,
		OfBuffer: true,
	}
}

func (metricAggregation) plan(p *plan, ask askFunc) (traits, error) {
	r := p.rule
	t := traits{judged: true, repeats: true, transient: true, terms: r.MetricAggType == "cardinality",
		inventory: r.MetricAggType == "sum" || r.MetricAggType == "value_count" || r.MetricAggType == "cardinality"}
	switch r.MetricAggType {
	case "cardinality":
		return t, ask(r.Filter, "", r.MetricAggKey)
	case "value_count":
		exists := "_exists_:\"" + r.MetricAggKey + "\""
		if r.Filter != "" {
			exists = "(" + r.Filter + ") AND " + exists
		}
		if _, err := logquery.Parse(exists, logquery.LogFields(), time.Unix(0, 0)); err != nil {
			return t, fmt.Errorf("metric_agg_key: %w", err)
		}
		return t, ask(exists, "")
	}
	return t, ask(r.Filter, r.MetricAggKey)
}

func (metricAggregation) take(r *round, _ int, it item) {
	if r.p.perValue {
		r.value(it)
	} else {
		r.count(it)
	}
}

func (m metricAggregation) judge(r *round, key string, w *window, t int64) {
	of := r.p.rule.MetricAggType
	additive := of == "sum" || of == "value_count" || of == "cardinality"
	if n := r.p.rule.PercentileRange; n > 0 {
		of = fmt.Sprintf("percentile %d", n)
	}
	for end := range r.segments(t) {
		v, ok := m.value(r, w, end)
		if ok && r.threshold(key, t, v, w.sample, r.full(w, end) || !additive, ": "+of+" of "+r.p.rule.MetricAggKey) {
			return
		}
	}
}

// value is the figure of the segment that ends at t.
func (metricAggregation) value(r *round, w *window, t int64) (float64, bool) {
	if r.p.perValue {
		return float64(w.terms(t - r.p.timeframe)), true
	}
	b := w.sum(t, r.p.segment)
	switch r.p.rule.MetricAggType {
	case "min":
		return b.Min, b.M > 0
	case "max":
		return b.Max, b.M > 0
	case "avg":
		return b.Sum / float64(max(b.M, 1)), b.M > 0
	case "sum":
		return b.Sum, true
	case "percentiles":
		v, ok := b.Spread.Percentile(float64(r.p.rule.PercentileRange))
		return min(max(v, b.Min), b.Max), ok
	}
	return float64(b.N), true // value_count
}
