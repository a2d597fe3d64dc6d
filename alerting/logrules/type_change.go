package logrules

import (
	"cmp"
	"slices"

	"muster.dev/muster/control/api/logrule"
)

// change matches when the value of one of compare_key is another than before.
type change struct{ plain }

func (change) about() logrule.Type {
	return logrule.Type{
		Needs:           []string{"compare_key"},
		Knows:           []string{"timeframe", "ignore_null", "aggregation"},
		ComparesSeveral: true,
	}
}

func (change) plan(p *plan, ask askFunc) (traits, error) {
	return traits{}, ask(p.rule.Filter, "", p.rule.CompareKey...)
}

// take keeps a value until query_delay has passed: at its first and its last
// line of the step.
func (change) take(r *round, _ int, it item) {
	if it.null && r.p.rule.IgnoreNull {
		return
	}
	msg := clip(it.n.Message)
	r.st.Pending = append(r.st.Pending, pending{it.key, it.value, it.first, msg, it.n.Include})
	if it.last != it.first {
		r.st.Pending = append(r.st.Pending, pending{it.key, it.value, it.last, msg, it.n.Include})
	}
}

// taken compares the values, in order of their time. A line older than what is
// known already says nothing any more.
func (change) taken(r *round, _ []item) {
	slices.SortStableFunc(r.st.Pending, func(a, b pending) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
	})
	n := 0
	for _, e := range r.st.Pending {
		if e.At > r.upTo-r.p.delay && len(r.st.Pending)-n <= r.limits.keys {
			break
		}
		n++
		w, known := r.st.Keys[e.Key], r.st.Keys[e.Key] != nil
		if w == nil {
			w = r.window(e.Key)
		}
		if w == nil || e.At < w.ValueAt {
			continue
		}
		if known && w.ValueAt != 0 && w.Value != e.Value && (r.p.timeframe == 0 || e.At-w.ValueAt <= millis(r.p.rule.Timeframe)) {
			r.event(matched, e.Key, e.At, r.seen(e.At), 1, sample{e.Message, e.Include}, "%s changed from %q to %q: %s", joinFields(r.p.rule.CompareKey), written(w.Value), written(e.Value), e.Message)
		}
		w.Value, w.ValueAt, w.Last = e.Value, e.At, r.upTo
	}
	if n > 0 {
		r.st.Pending = slices.Clone(r.st.Pending[n:])
		r.changed = true
	}
}
