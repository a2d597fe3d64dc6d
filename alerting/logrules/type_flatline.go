package logrules

import "muster.dev/muster/control/api/logrule"

// flatline holds while there are fewer lines than threshold within a timeframe.
type flatline struct{ plain }

func (flatline) about() logrule.Type {
	return logrule.Type{
		Needs: []string{"timeframe", "threshold"},
		Lasts: logrule.Itself,
	}
}

func (flatline) plan(p *plan, ask askFunc) (traits, error) {
	return traits{judged: true, inventory: true, forgetAfter: max(24*60*minute, 4*p.timeframe)}, ask(p.rule.Filter, "")
}

func (flatline) take(r *round, _ int, it item) { r.count(it) }

func (flatline) judge(r *round, key string, w *window, t int64) {
	p := r.p
	if n := w.sum(t, p.timeframe).N; r.full(w, t) {
		r.level(n < p.rule.Threshold, key, t, float64(n), "%s within %s, fewer than %d", plural(n, "line"), ms(p.timeframe), p.rule.Threshold)
	}
}
