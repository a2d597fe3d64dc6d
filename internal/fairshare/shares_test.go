package fairshare

import "testing"

// One tenant gets half of the slots, whoever comes then finds some, and all come back.
func TestSharesOfATenant(t *testing.T) {
	s := NewShares(8)
	fill := func(tenant string) (n int) {
		for s.Take(tenant) {
			n++
		}
		return n
	}
	greedy, next := fill("greedy"), fill("next")
	if greedy != 4 || next < 1 {
		t.Errorf("%d and %d of 8", greedy, next)
	}
	for range greedy {
		s.Give("greedy")
	}
	for range next {
		s.Give("next")
	}
	if s.used != 0 || len(s.held) != 0 {
		t.Errorf("%d used, %v", s.used, s.held)
	}
}
