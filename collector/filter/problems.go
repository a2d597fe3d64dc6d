package filter

import (
	"cmp"
	"math"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// Problem says what is wrong with a target's samples of a metric. They leave the site as
// they are: what to make of them is for whoever reads them, once it is known.
type Problem string

// The problems.
const (
	NotANumber      Problem = "not a number"
	Infinite        Problem = "infinite"
	OutOfRange      Problem = "out of any range" // over 1e300
	NegativeCounter Problem = "a negative counter"
	TypeChanged     Problem = "its type changed"
	Duplicate       Problem = "served twice on one page"
)

// Bad is a problem of one metric of one target.
type Bad struct {
	Job, Instance, Metric string
	Problem               Problem
}

type badKey struct {
	owner   uint64
	metric  string
	problem Problem
}

const (
	maxBad      = 100            // that are remembered
	rememberBad = 10 * 60 * 1000 // milliseconds since it was last seen
	absurd      = 1e300
)

// Of says which target the scrape is of.
func (s *Scrape) Of(job, instance string) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.owners[s.owner]
	o.job, o.instance = job, instance
}

// problemOf a value of a series; "": none. A summary without observations has NaN for
// its quantiles, and the kubelet +Inf for a certificate that never expires.
func problemOf(v float64, ls labels.Labels, typ model.MetricType) Problem {
	switch {
	case v >= -absurd && v <= absurd:
		if v < 0 && typ == model.MetricTypeCounter {
			return NegativeCounter
		}
	case math.IsNaN(v):
		if !ls.Has(model.QuantileLabel) {
			return NotANumber
		}
	case math.IsInf(v, 1) && typ == model.MetricTypeGauge:
	case math.IsInf(v, 0):
		return Infinite
	default:
		return OutOfRange
	}
	return ""
}

func (t *Table) noteLocked(owner uint64, metric string, p Problem, now int64) {
	k := badKey{owner, metric, p}
	if _, ok := t.bad[k]; !ok && len(t.bad) >= maxBad {
		return
	}
	if b, ok := t.bad[k]; ok && now-b.last <= rememberBad {
		t.bad[k] = badSince{b.first, now}
	} else {
		t.bad[k] = badSince{now, now}
	}
}

// badSince is when a problem was seen, in milliseconds since 1970.
type badSince struct{ first, last int64 }

// Bad lists what was wrong with samples within the last ten minutes, in more than one
// scrape: a single one has slipped, and is over.
func (t *Table) Bad(now int64) []Bad {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Bad
	for k, at := range t.bad {
		if now-at.last > rememberBad {
			delete(t.bad, k)
			continue
		}
		if at.first == at.last && k.problem != TypeChanged {
			continue
		}
		b := Bad{Metric: k.metric, Problem: k.problem}
		if o := t.owners[k.owner]; o != nil {
			b.Job, b.Instance = o.job, o.instance
		}
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b Bad) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Metric, b.Metric), cmp.Compare(a.Problem, b.Problem))
	})
	return slices.Compact(out)
}
