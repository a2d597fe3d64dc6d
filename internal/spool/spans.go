package spool

import "slices"

// span is the numbers from <= n < to.
type span struct{ from, to uint64 }

// spans is a set of numbers, as sorted spans that don't touch: small when what is
// in it lies together.
type spans []span

// add puts from <= n < to into the set.
func (s *spans) add(from, to uint64) {
	if from >= to {
		return
	}
	i, _ := slices.BinarySearchFunc(*s, from, func(p span, n uint64) int {
		if p.to < n {
			return -1
		}
		return 1
	}) // the first that ends at from or behind it
	j := i
	for ; j < len(*s) && (*s)[j].from <= to; j++ {
		from, to = min(from, (*s)[j].from), max(to, (*s)[j].to)
	}
	if i < j {
		(*s)[i] = span{from, to}
		*s = slices.Delete(*s, i+1, j)
		return
	}
	*s = slices.Insert(*s, i, span{from, to})
}

// next returns the first number from n on that is not in the set.
func (s spans) next(n uint64) uint64 {
	i, _ := slices.BinarySearchFunc(s, n, func(p span, n uint64) int {
		if p.to <= n {
			return -1
		}
		return 1
	})
	if i < len(s) && s[i].from <= n {
		return s[i].to
	}
	return n
}

func (s spans) has(n uint64) bool { return s.next(n) != n }

// count returns how many of from <= n < to are in the set.
func (s spans) count(from, to uint64) (n uint64) {
	for _, p := range s {
		if lo, hi := max(p.from, from), min(p.to, to); lo < hi {
			n += hi - lo
		}
	}
	return n
}

// end is the number behind the last one of the set.
func (s spans) end() uint64 {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].to
}
