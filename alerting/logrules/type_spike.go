package logrules

import "muster.dev/muster/control/api/logrule"

// spike matches when there are spike_height times more lines, or fewer, than in the
// timeframe before.
type spike struct{ plain }

func (spike) about() logrule.Type {
	return logrule.Type{
		Needs: []string{"timeframe", "spike_height", "spike_type"},
		Knows: []string{"threshold_ref", "threshold_cur", "aggregation"},
		Lasts: logrule.TillAgain,
	}
}

func (spike) plan(p *plan, ask askFunc) (traits, error) {
	return traits{judged: true, inventory: true, transient: true, frames: 2}, ask(p.rule.Filter, "")
}

func (spike) take(r *round, _ int, it item) { r.count(it) }

// judge compares a timeframe with the one before it. After a match both have to fill
// again, as in ElastAlert. Where there was nothing and is nothing, there is no spike.
func (spike) judge(r *round, key string, w *window, t int64) {
	p := r.p
	if t-w.First < 2*p.timeframe {
		return
	}
	cur, ref := w.sum(t, p.timeframe).N, w.sum(t-p.timeframe, p.timeframe).N
	if cur == ref || cur < p.rule.ThresholdCur || ref < p.rule.ThresholdRef {
		return
	}
	up := p.rule.SpikeType != "down" && float64(cur) >= float64(ref)*p.height
	down := p.rule.SpikeType != "up" && float64(cur) <= float64(ref)/p.height
	if !up && !down {
		return
	}
	r.event(matched, key, t, t, float64(cur), w.sample, "%s within %s, %d in the %s before", plural(cur, "line"), ms(p.timeframe), ref, ms(p.timeframe))
	w.First = t
	r.changed = true
}
