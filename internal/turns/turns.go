// Package turns shares out what only so many may use at one time, such as evaluations of
// PromQL, between the platform and its tenants. It knows neither queries nor tiers; the
// engines of a regional and the query API use it.
package turns

import (
	"context"
	"sync"
)

// Class is for whom a slot is.
type Class struct {
	Platform bool   // it may have every slot, and goes first
	Tenant   string // otherwise; the empty name is one like any other
}

// Slots are what is shared. The platform may have all of them; tenants together may have
// fewer, and each of them fewer still, so that neither one tenant nor all of them can
// keep the platform waiting. Who waits is served in turn: the platform first, then tenant
// after tenant, each tenant's own in order of arrival.
//
// Safe for concurrent use.
type Slots struct {
	total, tenants, each int

	mu       sync.Mutex
	platform queue            // who waits of the platform
	waiting  map[string]queue // and of each tenant
	turn     []string         // tenants that wait; the first has its turn
	running  map[string]int   // by tenant; the platform's not included
	inUse    int              // of all
	ofTenant int              // of all tenants
}

type queue []*waiter

type waiter struct {
	granted chan struct{} // closed when it has a slot
	has     bool          // guarded by Slots.mu
}

// New makes total slots, of which tenants may have some together and some each.
func New(total, tenants, each int) *Slots {
	return &Slots{total: total, tenants: tenants, each: each, waiting: map[string]queue{}, running: map[string]int{}}
}

// Acquire waits for a slot until ctx ends. release must be called once.
func (s *Slots) Acquire(ctx context.Context, c Class) (release func(), err error) {
	w := &waiter{granted: make(chan struct{})}
	s.mu.Lock()
	if c.Platform {
		s.platform = append(s.platform, w)
	} else {
		if len(s.waiting[c.Tenant]) == 0 {
			s.turn = append(s.turn, c.Tenant)
		}
		s.waiting[c.Tenant] = append(s.waiting[c.Tenant], w)
	}
	s.grantLocked()
	s.mu.Unlock()
	select {
	case <-w.granted:
		return func() { s.release(c) }, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.has {
		s.releaseLocked(c)
	} else {
		s.forgetLocked(c, w)
	}
	return nil, ctx.Err()
}

func (s *Slots) release(c Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(c)
}

func (s *Slots) releaseLocked(c Class) {
	s.inUse--
	if !c.Platform {
		s.ofTenant--
		if s.running[c.Tenant]--; s.running[c.Tenant] == 0 {
			delete(s.running, c.Tenant)
		}
	}
	s.grantLocked()
}

// grantLocked gives away what is free.
func (s *Slots) grantLocked() {
	for s.inUse < s.total && len(s.platform) > 0 {
		s.platform[0].grant()
		s.platform = s.platform[1:]
		s.inUse++
	}
	for i := 0; i < len(s.turn) && s.inUse < s.total && s.ofTenant < s.tenants; {
		t := s.turn[i]
		if s.running[t] >= s.each {
			i++ // its turn stays, and the next may go first
			continue
		}
		q := s.waiting[t]
		q[0].grant()
		s.inUse, s.ofTenant = s.inUse+1, s.ofTenant+1
		s.running[t]++
		s.turn = append(s.turn[:i], s.turn[i+1:]...)
		if q = q[1:]; len(q) > 0 {
			s.waiting[t] = q
			s.turn = append(s.turn, t)
		} else {
			delete(s.waiting, t)
		}
	}
}

func (w *waiter) grant() {
	w.has = true
	close(w.granted)
}

func (q queue) without(w *waiter) queue {
	for i, o := range q {
		if o == w {
			return append(q[:i:i], q[i+1:]...)
		}
	}
	return q
}

func (s *Slots) forgetLocked(c Class, w *waiter) {
	if c.Platform {
		s.platform = s.platform.without(w)
		return
	}
	q := s.waiting[c.Tenant].without(w)
	if len(q) > 0 {
		s.waiting[c.Tenant] = q
		return
	}
	delete(s.waiting, c.Tenant)
	for i, t := range s.turn {
		if t == c.Tenant {
			s.turn = append(s.turn[:i:i], s.turn[i+1:]...)
			return
		}
	}
}

// Use returns how many slots the platform and tenants have, and how many wait for one.
func (s *Slots) Use() (platform, tenants, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting = len(s.platform)
	for _, q := range s.waiting {
		waiting += len(q)
	}
	return s.inUse - s.ofTenant, s.ofTenant, waiting
}
