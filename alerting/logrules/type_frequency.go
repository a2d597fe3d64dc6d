package logrules

import (
	"slices"
	"time"

	"muster.dev/muster/control/api/logrule"
)

// frequency matches on num_events lines within a timeframe.
type frequency struct{ plain }

func (frequency) about() logrule.Type {
	return logrule.Type{
		Needs:               []string{"timeframe", "num_events"},
		Knows:               []string{"aggregation"},
		Lasts:               logrule.TillAgain,
		ElastAlertTimeframe: 5 * time.Minute,
	}
}

func (frequency) plan(p *plan, ask askFunc) (traits, error) {
	return traits{transient: true, late: true}, ask(p.rule.Filter, "")
}

// take counts, and keeps where in the step the lines are.
func (frequency) take(r *round, _ int, it item) {
	_, b, added := r.bucket(it)
	if b == nil {
		return
	}
	if added {
		b.First, b.Last = it.first-it.t, it.last-it.t
	}
	b.N += it.n.Count
	b.Seen, b.First, b.Last = r.upTo, min(b.First, it.first-it.t), max(b.Last, it.last-it.t)
}

// taken looks for num_events lines less than a timeframe apart. What led to a
// match is used up, as in ElastAlert.
func (frequency) taken(r *round, items []item) {
	done := map[string]bool{}
	for _, it := range items {
		w := r.st.Keys[it.key]
		if w == nil || done[it.key] {
			continue
		}
		done[it.key] = true
		var sum int64
		from := 0
		for i := 0; i < len(w.Buckets); i++ {
			b := w.Buckets[i]
			sum += b.N
			for from < i && b.T+b.Last-(w.Buckets[from].T+w.Buckets[from].First) >= r.p.timeframe {
				sum -= w.Buckets[from].N
				from++
			}
			if sum >= r.p.rule.NumEvents {
				r.match(it.key, b.T+b.Last, float64(sum), w.sample, "%s within %s: %s", plural(sum, "line"), ms(r.p.timeframe), clip(w.message))
				w.Buckets = slices.Delete(w.Buckets, 0, i+1)
				i, from, sum = -1, 0, 0
			}
		}
	}
}
