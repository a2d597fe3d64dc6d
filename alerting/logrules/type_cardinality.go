package logrules

import "muster.dev/muster/control/api/logrule"

// cardinality matches on more values of a field than max_cardinality within a timeframe,
// and holds while there are fewer than min_cardinality.
type cardinality struct{ plain }

func (cardinality) about() logrule.Type {
	return logrule.Type{
		Needs: []string{"timeframe", "cardinality_field"},
		Knows: []string{"aggregation"},
		OneOf: [2]string{"max_cardinality", "min_cardinality"},
		Lasts: logrule.TillAgain,
	}
}

func (cardinality) plan(p *plan, ask askFunc) (traits, error) {
	return traits{judged: true, inventory: p.hasLow, transient: !p.hasLow, terms: true}, ask(p.rule.Filter, "", p.rule.CardinalityField)
}

// take counts a value; more than max_cardinality match at once.
func (cardinality) take(r *round, _ int, it item) {
	w := r.value(it)
	if w == nil || !r.p.hasHigh || float64(len(w.Terms)) <= r.p.high {
		return
	}
	site := siteOf(it.key)
	r.terms.give(site, w.dropTerms(it.last-r.p.timeframe))
	if n := len(w.Terms); float64(n) > r.p.high {
		r.match(it.key, it.first, float64(n), it.sample(), "%d different values of %s within %s, more than %v", n, r.p.rule.CardinalityField, ms(r.p.timeframe), r.p.high)
		if !r.p.hasLow { // else they are still to be counted for the minimum
			r.terms.give(site, len(w.Terms))
			clear(w.Terms)
		}
	}
}

func (cardinality) judge(r *round, key string, w *window, t int64) {
	p := r.p
	if n := w.terms(t - p.timeframe); p.hasLow && r.full(w, t) {
		r.level(float64(n) < p.low, key, t, float64(n), "%d different values of %s within %s, fewer than %v", n, p.rule.CardinalityField, ms(p.timeframe), p.low)
	}
}

// value remembers an item's value in the key's window, which it returns if there is
// such a value and room for it.
func (r *round) value(it item) *window {
	w := r.window(it.key)
	if w == nil {
		return nil
	}
	w.Last, w.sample = r.upTo, it.sample()
	if it.value == "" || !r.remember(w, it.key, termHash(it.value), it.last) {
		return nil
	}
	return w
}
