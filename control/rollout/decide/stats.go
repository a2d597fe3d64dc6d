package decide

import (
	"math"
	"slices"
)

const (
	// alpha is the chance, for one wave, that a gate fails a change that does nothing.
	alpha = 0.01
	// alphaHold is the chance, at one look, that it holds one.
	alphaHold = 0.02
	// quantiles is how many order statistics stand for a sample in an estimate that looks
	// at all pairs: the error is far below a point, and 5,000 sites take no longer than 200.
	quantiles = 64
)

// spend is what the look of a number, from 1, may use up of alpha with so many tests:
// alpha/(k(k+1)) each, which sums to alpha over any number of looks. A look that comes
// early may use more, since what breaks at once should be stopped at once. (Alpha spending
// after Lan and DeMets 1983, with the union bound in the place of the joint distribution,
// so that looks may depend on one another in any way.)
func spend(look, tests int) float64 {
	k := float64(max(1, look))
	return alpha / (k * (k + 1)) / float64(max(1, tests))
}

// shift is Hodges' and Lehmann's estimate of how much higher a is than b: the median of
// all differences between one of a and one of b. A quarter of either may be anything.
// Both are sorted; neither is empty.
func shift(a, b []float64) float64 {
	a, b = thin(a), thin(b)
	d := make([]float64, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			d = append(d, x-y)
		}
	}
	slices.Sort(d)
	return medianSorted(d)
}

// centre is their estimate for one sample: the median of the means of all pairs.
func centre(a []float64) float64 {
	a = thin(a)
	d := make([]float64, 0, len(a)*(len(a)+1)/2)
	for i, x := range a {
		for _, y := range a[i:] {
			d = append(d, (x+y)/2)
		}
	}
	slices.Sort(d)
	return medianSorted(d)
}

func thin(a []float64) []float64 {
	if len(a) <= quantiles {
		return a
	}
	out := make([]float64, quantiles)
	for i := range out {
		out[i] = a[(2*i+1)*len(a)/(2*quantiles)]
	}
	return out
}

func medianSorted(a []float64) float64 {
	n := len(a)
	if n == 0 {
		return math.NaN()
	}
	if n%2 == 1 {
		return a[n/2]
	}
	return (a[n/2-1] + a[n/2]) / 2
}

func median(a []float64) float64 {
	slices.Sort(a)
	return medianSorted(a)
}

// lower is the chance that a sample like a lies that low against b if nothing makes it so:
// Mann's and Whitney's U, one-sided, normal with correction for ties and continuity. Of
// few sites it says less than is true, never more. Both are sorted.
func lower(a, b []float64) float64 {
	m, n := float64(len(a)), float64(len(b))
	if m == 0 || n == 0 {
		return 1
	}
	var u, ties float64 // u: pairs in which a's is the higher
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		v := math.Inf(1)
		if i < len(a) {
			v = a[i]
		}
		if j < len(b) {
			v = min(v, b[j])
		}
		ea, eb := 0, 0
		for i+ea < len(a) && a[i+ea] == v {
			ea++
		}
		for j+eb < len(b) && b[j+eb] == v {
			eb++
		}
		u += float64(ea) * (float64(j) + float64(eb)/2)
		t := float64(ea + eb)
		ties += t*t*t - t
		i, j = i+ea, j+eb
	}
	variance := m * n / 12 * (m + n + 1 - ties/((m+n)*(m+n-1)))
	if variance <= 0 {
		return 1
	}
	z := (u - m*n/2 + 0.5) / math.Sqrt(variance)
	return max(math.Erfc(-z/math.Sqrt2)/2, math.Exp(-choose(m+n, m)))
}

// more is the chance that x or more of the m that changed are among the x+y of m+n of whom
// something is true, if it falls on anybody alike: Fisher's exact test, one-sided. Where
// the sites that change are chosen by hash, it is exact however much the trouble of sites
// hangs together.
func more(x, m, y, n int) float64 {
	all, hit := float64(m+n), float64(x+y)
	p := 0.0
	for k := x; k <= min(m, x+y); k++ {
		if x+y-k > n {
			continue
		}
		p += math.Exp(choose(float64(m), float64(k)) + choose(float64(n), hit-float64(k)) - choose(all, hit))
	}
	return min(1, p)
}

// moreWithin is more of several groups at once, in each of which it may fall on anybody alike but
// on some groups oftener than on others: the exact test of strata, by the distribution of the sum
// (Gart, Point and interval estimation of the common odds ratio, 1970).
func moreWithin(groups []reached) float64 {
	sum, x, least := []float64{1}, 0, 0 // sum[i]: the chance of least+i among those that changed
	for _, g := range groups {
		hit := g.x + g.y
		lo, hi := max(0, hit-g.n), min(g.m, hit)
		one := make([]float64, hi-lo+1)
		for k := lo; k <= hi; k++ {
			one[k-lo] = math.Exp(choose(float64(g.m), float64(k)) + choose(float64(g.n), float64(hit-k)) - choose(float64(g.m+g.n), float64(hit)))
		}
		next := make([]float64, len(sum)+len(one)-1)
		for i, p := range sum {
			for k, q := range one {
				next[i+k] += p * q
			}
		}
		sum, x, least = next, x+g.x, least+lo
	}
	p := 0.0
	for _, q := range sum[x-least:] {
		p += q
	}
	return min(1, p)
}

// usual is the part of sites that has trouble of its own at any time, for want of peers
// who would show it.
const usual = 0.05

// unusual is the chance that x or more of m sites have trouble of their own: binomial.
func unusual(x, m int) float64 {
	p := 0.0
	for k := x; k <= m; k++ {
		p += math.Exp(choose(float64(m), float64(k)) + float64(k)*math.Log(usual) + float64(m-k)*math.Log(1-usual))
	}
	return min(1, p)
}

// choose is the logarithm of the number of ways to choose k of n.
func choose(n, k float64) float64 {
	a, _ := math.Lgamma(n + 1)
	b, _ := math.Lgamma(k + 1)
	c, _ := math.Lgamma(n - k + 1)
	return a - b - c
}
