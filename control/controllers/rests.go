package controllers

import "time"

const (
	// restShare is how many times as long as a pass took the tenant then waits for its next one,
	// restMost the most of it.
	restShare = 4
	restMost  = time.Second
)

// rests keeps a tenant from more than a fifth of the loop's time, be it as large as it may and
// the machine as busy: what changes meanwhile is in one pass later, and other tenants come first.
type rests map[string]time.Time

// took says when a pass of a tenant began and ended.
func (r rests) took(tenant string, began, ended time.Time) {
	if rest := min(restShare*ended.Sub(began), restMost); rest > 0 {
		r[tenant] = ended.Add(rest)
	}
}

// left is how long the tenant still waits.
func (r rests) left(tenant string, now time.Time) time.Duration {
	left := r[tenant].Sub(now)
	if left <= 0 || left > restMost { // the clock may have gone back
		delete(r, tenant)
		return 0
	}
	return left
}
