package logrules

import "muster.dev/muster/control/api/logrule"

// spikeAggregation matches when a figure of the numbers in the lines is spike_height times
// as much, or as little, as in the timeframe before. With bucket_interval that is the mean of its segments.
type spikeAggregation struct{ metricAggregation }

func (spikeAggregation) about() logrule.Type {
	return logrule.Type{
		Needs:    []string{"timeframe", "metric_agg_key", "metric_agg_type", "spike_height", "spike_type"},
		Knows:    []string{"bucket_interval", "sync_bucket_interval", "percentile_range", "threshold_ref", "threshold_cur", "aggregation"},
		Lasts:    logrule.TillAgain,
		OfBuffer: true,
	}
}

func (s spikeAggregation) plan(p *plan, ask askFunc) (traits, error) {
	t, err := s.metricAggregation.plan(p, ask)
	t.repeats, t.inventory, t.frames = false, false, 2
	return t, err
}

// judge leaves out a timeframe without a number, and a figure before that has no
// multiple. After a match both timeframes have to fill again, as in ElastAlert.
func (s spikeAggregation) judge(r *round, key string, w *window, t int64) {
	p := r.p
	if t-w.First < 2*p.timeframe {
		return
	}
	cur, ok := s.mean(r, w, t)
	ref, was := s.mean(r, w, t-p.timeframe)
	if !ok || !was || ref <= 0 || cur < float64(p.rule.ThresholdCur) || ref < float64(p.rule.ThresholdRef) {
		return
	}
	up := p.rule.SpikeType != "down" && cur >= ref*p.height
	down := p.rule.SpikeType != "up" && cur <= ref/p.height
	if !up && !down {
		return
	}
	r.event(matched, key, t, t, cur, w.sample, "%s of %s is %.6g within %s, %.6g in the %s before", p.rule.MetricAggType, p.rule.MetricAggKey, cur, ms(p.timeframe), ref, ms(p.timeframe))
	w.First = t
	r.changed = true
}

// mean is that of the segments in which there is a number.
func (s spikeAggregation) mean(r *round, w *window, t int64) (float64, bool) {
	var sum, n float64
	for end := range r.segments(t) {
		if v, ok := s.value(r, w, end); ok {
			sum, n = sum+v, n+1
		}
	}
	return sum / max(n, 1), n > 0
}
