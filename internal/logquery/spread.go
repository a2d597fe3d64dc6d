package logquery

import (
	"maps"
	"math"
	"slices"
)

// Spread is how many numbers there are of each size, in bins whose bounds grow by the 16th root of 2: a
// percentile of it is wrong by 2.2 % of itself at most. Spreads of different stretches of time
// can be put together, which exact percentiles can't. The idea is that of DDSketch
// (https://www.vldb.org/pvldb/vol12/p2195-masson.pdf).
//
// The key is the sign of the numbers times the place of their bin; 0 is of those nearer to 0 than 2^-60.
type Spread map[int]int64

const (
	binsPerDouble = 16
	smallestPower = -60
	// maxBins of a Spread: enough for 12 powers of two, such as milliseconds from 1 to 4000, all of
	// whose bins have numbers. Where there are more the lowest are put together.
	maxBins = 192
)

func binOf(v float64) int {
	n := int(math.Ceil(math.Log2(math.Abs(v))*binsPerDouble)) - smallestPower*binsPerDouble
	switch {
	case v == 0 || n <= 0:
		return 0
	case v < 0:
		return -n
	}
	return n
}

// middle of a bin.
func middle(bin int) float64 {
	switch {
	case bin == 0:
		return 0
	case bin < 0:
		return -middle(-bin)
	}
	return math.Exp2((float64(bin)-0.5)/binsPerDouble + smallestPower)
}

// Add counts n numbers v, finite and not NaN, and returns the Spread, which it makes if it is nil.
func (s Spread) Add(v float64, n int64) Spread { return s.add(binOf(v), n) }

func (s Spread) add(bin int, n int64) Spread {
	if s == nil {
		s = Spread{}
	}
	s[bin] += n
	if len(s) > maxBins {
		low := slices.Sorted(maps.Keys(s))
		s[low[1]] += s[low[0]]
		delete(s, low[0])
	}
	return s
}

// Merge counts another's numbers too.
func (s Spread) Merge(other Spread) Spread {
	for _, bin := range slices.Sorted(maps.Keys(other)) {
		s = s.add(bin, other[bin])
	}
	return s
}

// Percentile is the number that p percent of all are not above, by the nearest rank; false if there is none.
func (s Spread) Percentile(p float64) (float64, bool) {
	var all int64
	for _, n := range s {
		all += n
	}
	if all <= 0 {
		return 0, false
	}
	rank := max(int64(math.Ceil(p/100*float64(all))), 1)
	for _, bin := range slices.Sorted(maps.Keys(s)) {
		if rank -= s[bin]; rank <= 0 {
			return middle(bin), true
		}
	}
	return 0, false
}
