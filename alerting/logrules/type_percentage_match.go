package logrules

import (
	"fmt"

	"muster.dev/muster/control/api/logrule"
)

// percentageMatch matches when the share of lines that match_bucket_filter finds, of
// those that the filter finds, leaves its bounds, or with bucket_interval that of one segment.
type percentageMatch struct{ plain }

func (percentageMatch) about() logrule.Type {
	return logrule.Type{
		Needs:    []string{"timeframe", "match_bucket_filter"},
		Knows:    []string{"bucket_interval", "sync_bucket_interval", "min_denominator", "aggregation"},
		OneOf:    [2]string{"min_percentage", "max_percentage"},
		Lasts:    logrule.Itself,
		OfBuffer: true,
	}
}

func (percentageMatch) plan(p *plan, ask askFunc) (traits, error) {
	t := traits{judged: true, repeats: true, transient: true}
	if err := ask(p.rule.Filter, ""); err != nil {
		return t, err
	}
	return t, ask(logrule.Bucket(p.rule), "")
}

func (percentageMatch) take(r *round, query int, it item) {
	if query == 0 {
		r.count(it)
	} else if _, b, _ := r.bucket(it); b != nil {
		b.M += it.n.Count
	}
}

func (percentageMatch) judge(r *round, key string, w *window, t int64) {
	for end := range r.segments(t) {
		b := w.sum(end, r.p.segment)
		if b.N >= max(r.p.rule.MinDenominator, 1) && r.threshold(key, t, 100*float64(b.M)/float64(b.N), w.sample, true, fmt.Sprintf("%% of %d lines", b.N)) {
			return
		}
	}
}
