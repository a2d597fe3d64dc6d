package query

import (
	"sync"

	"muster.dev/muster/internal/fairshare"
)

// shares are slots for queries that run at once. A tenant holds at most as many as it
// leaves free, so that its expensive ones leave room for the others'.
type shares struct {
	total int

	mu   sync.Mutex
	used int
	held map[string]int
}

func newShares(total int) *shares { return &shares{total: total, held: map[string]int{}} }

// take returns false if the tenant may run no more now; otherwise give must follow.
func (s *shares) take(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !fairshare.Fits(int64(s.held[tenant]), 1, int64(s.used), int64(s.total), 1) {
		return false
	}
	s.used++
	s.held[tenant]++
	return true
}

func (s *shares) give(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if s.held[tenant]--; s.held[tenant] == 0 {
		delete(s.held, tenant)
	}
}
