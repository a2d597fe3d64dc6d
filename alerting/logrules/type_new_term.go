package logrules

import (
	"fmt"

	"muster.dev/muster/control/api/logrule"
)

// newTerm matches on a value of one of the fields, or values of a combination of them, that was not
// seen for terms_window_size.
type newTerm struct{ plain }

func (newTerm) about() logrule.Type {
	return logrule.Type{
		Needs:  []string{"fields"},
		Knows:  []string{"terms_window_size", "aggregation"},
		ByLine: true,
	}
}

func (newTerm) plan(p *plan, ask askFunc) (traits, error) {
	for _, f := range p.rule.Fields {
		if err := ask(p.rule.Filter, "", f...); err != nil {
			return traits{}, err
		}
	}
	window := logrule.TermsWindow(p.rule).Milliseconds()
	return traits{terms: true, termsFor: window, learns: true, forgetAfter: max(forgetAfter.Milliseconds(), window)}, nil
}

// take remembers the values of a field. A site and query_key that no value is
// known of learns those of its first stretch without telling.
func (newTerm) take(r *round, query int, it item) {
	if it.null {
		return
	}
	w := r.window(it.key)
	if w == nil {
		return
	}
	w.Last = r.upTo
	known := fmt.Sprintf("%d", query) // that some value of the field is known
	if _, ok := w.Terms[known]; !ok {
		r.fresh[it.key+keySep+known] = true
	}
	term := known + ":" + termHash(it.value)
	_, old := w.Terms[term]
	if !r.remember(w, it.key, term, it.last) {
		return
	}
	makeIfNil(&w.Terms)
	w.Terms[known] = r.upTo
	if !old && !r.learn && !r.fresh[it.key+keySep+known] {
		r.line(it, "%s is %q, not seen in the last %s: %s", joinFields(r.p.rule.Fields[query]), written(it.value), ms(r.p.traits.termsFor), clip(it.n.Message))
	}
}
