package fairshare

import "sync"

// Shares are slots for what runs at once, such as queries. A tenant holds at most as many
// as it leaves free, so that its expensive ones leave room for the others'. Nobody waits.
// Safe for concurrent use.
type Shares struct {
	total int

	mu   sync.Mutex
	used int
	held map[string]int
}

// NewShares makes so many.
func NewShares(total int) *Shares { return &Shares{total: total, held: map[string]int{}} }

// Take returns false if the tenant may hold no more now; otherwise Give must follow.
func (s *Shares) Take(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !Fits(int64(s.held[tenant]), 1, int64(s.used), int64(s.total), 1) {
		return false
	}
	s.used++
	s.held[tenant]++
	return true
}

// Give gives one back.
func (s *Shares) Give(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if s.held[tenant]--; s.held[tenant] == 0 {
		delete(s.held, tenant)
	}
}
