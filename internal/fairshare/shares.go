package fairshare

import (
	"cmp"
	"slices"
	"sync"
)

// Shares are slots for what runs at once, such as queries, or bytes for what is held at once.
// A tenant holds at most as many as it leaves free, so that its expensive ones leave room for
// the others'. Nobody waits. Safe for concurrent use.
type Shares struct {
	total int

	mu   sync.Mutex
	used int
	held map[string]int
}

// NewShares makes so many.
func NewShares(total int) *Shares { return &Shares{total: total, held: map[string]int{}} }

// Take returns false if the tenant may hold no more now; otherwise Give must follow.
func (s *Shares) Take(tenant string) bool { return s.TakeN(tenant, 1) }

// TakeN is Take for n of them at once; GiveN must follow.
func (s *Shares) TakeN(tenant string, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !Fits(int64(s.held[tenant]), int64(n), int64(s.used), int64(s.total), 1) {
		return false
	}
	s.used += n
	s.held[tenant] += n
	return true
}

// TakeAny is Take for somebody who belongs to several tenants: it is counted for the one that
// holds least, so that none of them can have its neighbours' people refused by letting them
// in. Give must follow for that one.
func (s *Shares) TakeAny(tenants []string) (tenant string, ok bool) {
	s.mu.Lock()
	least := slices.MinFunc(tenants, func(a, b string) int { return cmp.Or(cmp.Compare(s.held[a], s.held[b]), cmp.Compare(a, b)) })
	s.mu.Unlock()
	return least, s.Take(least)
}

// Held is how many the tenant holds.
func (s *Shares) Held(tenant string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[tenant]
}

// Give gives one back.
func (s *Shares) Give(tenant string) { s.GiveN(tenant, 1) }

// GiveN gives n back.
func (s *Shares) GiveN(tenant string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	if s.held[tenant] -= n; s.held[tenant] == 0 {
		delete(s.held, tenant)
	}
}
