package compiled

import (
	"math"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// scalar is an expression without series, at a moment in milliseconds.
type scalar func(ts int64) float64

// mapped applies a function to each value of a vector.
type mapped struct {
	vector
	of   node
	bare bool // without the metric's name
	fn   func(v float64, ts int64) (float64, bool)
}

func (m *mapped) grow() {
	for _, ls := range m.of.base().fresh {
		if m.bare {
			ls = nameless(ls)
		}
		m.add(ls)
	}
}

func (m *mapped) eval(ts int64) error {
	of := m.of.base()
	for i, v := range of.values {
		m.values[i] = absent
		if of.has(i) {
			if out, keep := m.fn(v, ts); keep {
				m.values[i] = out
			}
		}
	}
	return nil
}

func (*mapped) reset() {}

// aggregate is an aggregation `by` some labels.
type aggregate struct {
	vector
	of     node
	op     parser.ItemType
	groups keys
	group  []int32 // of each element of what it is made of
	count  []float64
	rest   []float64 // what was lost of each sum in rounding
}

func (a *aggregate) grow() {
	b := labels.NewBuilder(labels.EmptyLabels())
	for _, ls := range a.of.base().fresh {
		g := a.groups.id(ls)
		if int(g) == len(a.values) {
			b.Reset(ls)
			b.Keep(a.groups.names...)
			a.add(b.Labels())
		}
		a.group = append(a.group, g)
	}
}

func (a *aggregate) reset() {
	a.group = nil
	a.groups.reset()
}

func (a *aggregate) eval(int64) error {
	of := a.of.base()
	a.clear()
	a.count, a.rest = emptied(a.count, len(a.values)), emptied(a.rest, len(a.values))
	for i, v := range of.values {
		if !of.has(i) {
			continue
		}
		g := a.group[i]
		was := a.values[g]
		first := a.count[g] == 0
		a.count[g]++
		switch a.op {
		case parser.SUM, parser.AVG:
			if first {
				a.values[g] = v
			} else {
				a.values[g], a.rest[g] = kahan(v, was, a.rest[g])
			}
		case parser.MIN:
			if first || v < was || math.IsNaN(was) {
				a.values[g] = v
			}
		case parser.MAX:
			if first || v > was || math.IsNaN(was) {
				a.values[g] = v
			}
		}
	}
	for g, n := range a.count {
		if n == 0 {
			continue
		}
		switch a.op {
		case parser.SUM:
			a.values[g] += a.rest[g]
		case parser.AVG:
			// PromQL goes on with a running mean where the sum does not fit any more.
			if math.IsInf(a.values[g], 0) {
				return unsupported("an average of what is too large to be added")
			}
			a.values[g] = a.values[g]/n + a.rest[g]/n
		case parser.COUNT:
			a.values[g] = n
		}
	}
	return nil
}

// kahan adds with the error that is left, as Neumaier improved Kahan's summation; PromQL
// does the same.
//
//go:noinline
func kahan(v, sum, rest float64) (float64, float64) {
	t := sum + v
	switch {
	case math.IsInf(t, 0):
		return t, 0
	case math.Abs(sum) >= math.Abs(v):
		return t, rest + ((sum - t) + v)
	}
	return t, rest + ((v - t) + sum)
}

// sides are the two vectors of a binary operation, and by what they match.
type sides struct {
	l, r           node
	match          keys
	lmatch, rmatch []int32 // of each element
}

func (s *sides) growSides() {
	for _, ls := range s.l.base().fresh {
		s.lmatch = append(s.lmatch, s.match.id(ls))
	}
	for _, ls := range s.r.base().fresh {
		s.rmatch = append(s.rmatch, s.match.id(ls))
	}
}

func (s *sides) reset() {
	s.lmatch, s.rmatch = nil, nil
	s.match.reset()
}

// binary is an arithmetic operation or a comparison of two vectors, one to one. Its
// elements are the left one's.
type binary struct {
	vector
	sides
	bare   bool // without the metric's name
	strip  []string
	calc   func(l, r float64) (float64, bool)
	right  []int32 // of each match: the right element that has it, from 1; 0: none
	passed []bool  // of each match
}

func (b *binary) grow() {
	lb := labels.NewBuilder(labels.EmptyLabels())
	for _, ls := range b.l.base().fresh {
		if b.bare {
			ls = nameless(ls)
		}
		if b.match.on || len(b.strip) > 0 {
			lb.Reset(ls)
			if b.match.on {
				lb.Keep(b.match.names...)
			} else {
				lb.Del(b.strip...)
			}
			ls = lb.Labels()
		}
		b.add(ls)
	}
	b.growSides()
}

func (b *binary) eval(int64) error {
	l, r := b.l.base(), b.r.base()
	b.clear()
	b.right, b.passed = emptied(b.right, b.match.len()), emptied(b.passed, b.match.len())
	for i := range r.values {
		if !r.has(i) {
			continue
		}
		if m := b.rmatch[i]; b.right[m] == 0 {
			b.right[m] = int32(i) + 1
		} else {
			return unsupported("many series to one")
		}
	}
	for i, v := range l.values {
		if !l.has(i) {
			continue
		}
		m := b.lmatch[i]
		j := b.right[m] - 1
		if j < 0 {
			continue
		}
		out, keep := b.calc(v, r.values[j])
		if !keep {
			continue
		}
		if b.passed[m] {
			return unsupported("many series to one")
		}
		b.passed[m], b.values[i] = true, out
	}
	return nil
}

// set is `and`, `or` or `unless`. The elements of `or` are those of both sides, in the
// order in which they came.
type set struct {
	vector
	sides
	op     parser.ItemType
	le, re []int32 // of `or`: the elements of both sides
	there  []bool  // of each match: on the side that decides
}

func (s *set) grow() {
	for _, ls := range s.l.base().fresh {
		e := s.add(ls)
		if s.op == parser.LOR {
			s.le = append(s.le, e)
		}
	}
	if s.op == parser.LOR {
		for _, ls := range s.r.base().fresh {
			s.re = append(s.re, s.add(ls))
		}
	}
	s.growSides()
}

func (s *set) reset() {
	s.le, s.re = nil, nil
	s.sides.reset()
}

func (s *set) eval(int64) error {
	l, r := s.l.base(), s.r.base()
	s.clear()
	s.there = emptied(s.there, s.match.len())
	if s.op == parser.LOR {
		for i, v := range l.values {
			if l.has(i) {
				s.there[s.lmatch[i]] = true
				s.values[s.le[i]] = v
			}
		}
		for i, v := range r.values {
			if r.has(i) && !s.there[s.rmatch[i]] {
				s.values[s.re[i]] = v
			}
		}
		return nil
	}
	for i := range r.values {
		if r.has(i) {
			s.there[s.rmatch[i]] = true
		}
	}
	for i, v := range l.values {
		if l.has(i) && s.there[s.lmatch[i]] == (s.op == parser.LAND) {
			s.values[i] = v
		}
	}
	return nil
}
