// Package turns shares out what only so many may use at one time, such as evaluations of
// PromQL or processors, between the platform and its tenants. It knows neither queries nor
// tiers; the engines of a regional, its log store and the query API use it.
package turns

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// Class is for whom a slot is.
type Class struct {
	Platform bool   // it may have every slot, and goes first
	Tenant   string // otherwise; the empty name is one like any other
	// Background is work of a tenant that nobody waits for, such as its rules. What
	// somebody waits for goes before it, within the tenant; of four turns one is for the
	// background all the same.
	Background bool
}

// Slots are what is shared. The platform may have all of them; tenants together may have
// fewer, and each of them fewer still, so that neither one tenant nor all of them can
// keep the platform waiting. Who waits is served by what it had: the platform first, then
// the tenant that used slots least of late, each tenant's own in order of arrival, the
// background (see Class) after the rest.
//
// What a slot is worth is the time that it is held, so use is counted in that. A tenant
// that is not alone and had more than its share for a while may have no more than that
// share at one time: a burst gets many slots, a flood a few.
//
// Safe for concurrent use.
type Slots struct {
	total, tenants, each int
	share                int // what a tenant may have on end beside others
	// overdue is after how long a slot whose holder was not heard of (see wanted) counts
	// for its own tenant alone, and another gets one in its place, of those that the
	// platform leaves; 0: never.
	overdue time.Duration
	epoch   time.Time // when Slots was made
	// pressed, called with the lock held, says whether the machine has more to do than processors;
	// nil: it never does. What the tenant that uses most may use of late then is fair, if it isn't alone.
	pressed func() bool
	fair    time.Duration

	mu       sync.Mutex
	platform queue             // who waits of the platform
	waiting  int               // of all tenants
	swept    time.Time         // when tenants that are gone were forgotten
	of       map[string]*slots // of each tenant that was here of late
	inUse    int               // of all
	ofTenant int               // of all tenants
	arrived  uint64            // counts who waited
	looking  bool              // the timer of lookLocked runs
}

// memory is how long use counts: after it a third is left.
const memory = 10 * time.Second

// foreground is how many turns a tenant's foreground gets while its background waits, before
// that gets one.
const foreground = 3

// slots are one tenant's.
type slots struct {
	waiting    queue // without the background
	background queue
	ahead      int       // served of waiting since one of background was
	held       []*waiter // of Slots with overdue
	running    int
	began      time.Duration // the sum of when the running ones began, since Slots.epoch
	used       time.Duration // until at, faded
	at         time.Time
}

// line is where work of a class waits.
func (t *slots) line(c Class) *queue {
	if c.Background {
		return &t.background
	}
	return &t.waiting
}

// next is the line of whom the tenant's next turn is; nil: nobody waits.
func (t *slots) next() *queue {
	switch {
	case len(t.background) > 0 && (len(t.waiting) == 0 || t.ahead >= foreground):
		return &t.background
	case len(t.waiting) > 0:
		return &t.waiting
	}
	return nil
}

// pop takes the next one out of the line; somebody waits.
func (t *slots) pop() *waiter {
	q := t.next()
	if q == &t.background || len(t.background) == 0 {
		t.ahead = 0
	} else {
		t.ahead++
	}
	w := (*q)[0]
	*q = (*q)[1:]
	return w
}

// use is how much slot time the tenant had of late, what runs included.
func (t *slots) use(now, epoch time.Time) time.Duration {
	return t.faded(now) + time.Duration(t.running)*now.Sub(epoch) - t.began
}

func (t *slots) faded(now time.Time) time.Duration {
	return time.Duration(float64(t.used) * math.Exp(-float64(now.Sub(t.at))/float64(memory)))
}

type queue []*waiter

type waiter struct {
	granted chan struct{} // closed when it has a slot
	has     bool          // guarded by Slots.mu
	began   time.Time     // its slot
	heard   time.Time     // of who has it, last
	number  uint64        // of arrival
}

// New makes total slots, of which tenants may have some together and some each.
func New(total, tenants, each int) *Slots {
	return &Slots{total: total, tenants: tenants, each: each, share: max(1, each/4), epoch: time.Now(), of: map[string]*slots{}}
}

// Acquire waits for a slot until ctx ends. release must be called once.
func (s *Slots) Acquire(ctx context.Context, c Class) (release func(), err error) {
	_, release, err = s.acquire(ctx, c)
	return release, err
}

func (s *Slots) acquire(ctx context.Context, c Class) (_ *waiter, release func(), err error) {
	s.mu.Lock()
	s.arrived++
	w := &waiter{granted: make(chan struct{}), number: s.arrived}
	if c.Platform {
		s.platform = append(s.platform, w)
	} else {
		t := s.of[c.Tenant]
		if t == nil {
			t = &slots{at: time.Now()}
			s.of[c.Tenant] = t
		}
		line := t.line(c)
		*line = append(*line, w)
		// Where nobody else waits there is nobody to choose from: tenants may be many.
		if s.waiting++; s.waiting == 1 && len(s.platform) == 0 && s.inUse < s.total && s.ofTenant < s.tenants {
			if now := time.Now(); s.mayLocked(t, t.use(now, s.epoch), now) {
				s.serveLocked(t, now)
			}
		}
	}
	s.grantLocked()
	s.lookLocked()
	got := w.has
	s.mu.Unlock()
	if got {
		return w, func() { s.release(c, w) }, nil
	}
	select {
	case <-w.granted:
		return w, func() { s.release(c, w) }, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case w.has:
		s.releaseLocked(c, w)
	case c.Platform:
		s.platform = s.platform.without(w)
	default:
		line := s.of[c.Tenant].line(c)
		*line = line.without(w)
		s.waiting--
	}
	return nil, nil, ctx.Err()
}

// lookLocked has slots of holders that were not heard of looked for while tenants wait. One
// timer does it for all of them: hundreds may wait, and a process that is short of processors
// has none for each of them to look.
func (s *Slots) lookLocked() {
	if s.overdue == 0 || s.looking || s.waiting == 0 {
		return
	}
	s.looking = true
	time.AfterFunc(s.overdue, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.looking = false
		s.grantLocked()
		s.lookLocked()
	})
}

func (s *Slots) release(c Class, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(c, w)
}

func (s *Slots) releaseLocked(c Class, w *waiter) {
	s.inUse--
	if !c.Platform {
		s.ofTenant--
		t, now := s.of[c.Tenant], time.Now()
		t.used, t.at = t.faded(now)+now.Sub(w.began), now
		t.running--
		t.began -= w.began.Sub(s.epoch)
		t.held = slices.DeleteFunc(t.held, func(o *waiter) bool { return o == w })
	}
	s.grantLocked()
}

// quietLocked is how many slots of tenants are held by who was not heard of for too long.
func (s *Slots) quietLocked(now time.Time) (n int) {
	if s.overdue == 0 {
		return 0
	}
	for _, t := range s.of {
		for _, w := range t.held {
			if now.Sub(w.heard) >= s.overdue {
				n++
			}
		}
	}
	return n
}

// grantLocked gives away what is free.
func (s *Slots) grantLocked() {
	for s.inUse < s.total && len(s.platform) > 0 {
		s.platform[0].grant()
		s.platform = s.platform[1:]
		s.inUse++
	}
	now := time.Now()
	if now.Sub(s.swept) > memory {
		s.swept = now
		for name, t := range s.of { // nobody's use counts for ever
			if t.running == 0 && t.next() == nil && now.Sub(t.at) > 3*memory {
				delete(s.of, name)
			}
		}
	}
	for s.waiting > 0 && s.inUse < s.total && (s.ofTenant < s.tenants || s.ofTenant-s.quietLocked(now) < s.tenants) {
		t := s.nextLocked(now)
		if t == nil {
			return
		}
		s.serveLocked(t, now)
	}
}

// serveLocked gives a slot to the next of a tenant.
func (s *Slots) serveLocked(t *slots, now time.Time) {
	w := t.pop()
	s.waiting--
	w.began, w.heard = now, now
	w.grant()
	if s.overdue > 0 {
		t.held = append(t.held, w)
	}
	t.running++
	t.began += now.Sub(s.epoch)
	s.inUse, s.ofTenant = s.inUse+1, s.ofTenant+1
}

// wanted tells whether somebody waits who would go before another of c, anybody if that
// is the platform, since tenants have less than it has; or whether c has to rest. It is the
// holder of w who asks.
func (s *Slots) wanted(c Class, w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, mine := time.Now(), time.Duration(math.MaxInt64)
	w.heard = now
	if len(s.platform) > 0 {
		return true
	}
	if t := s.of[c.Tenant]; !c.Platform && t != nil {
		if mine = t.use(now, s.epoch); s.restsLocked(t, mine, now) {
			return true
		}
		switch next := t.next(); {
		case next == nil:
		case c.Background, next == &t.waiting:
			return true
		default: // going on is one more turn
			if t.ahead++; t.ahead > foreground {
				return true
			}
		}
	}
	if s.waiting == 0 {
		return false
	}
	for _, t := range s.of {
		if t.next() != nil && t.use(now, s.epoch) < mine {
			return true
		}
	}
	return false
}

// restsLocked says whether a tenant of such use must wait until less of it counts: the one that
// had most. No more than three have more than is fair, so that few are compared with all.
func (s *Slots) restsLocked(t *slots, use time.Duration, now time.Time) bool {
	if s.pressed == nil || use <= s.fair || len(s.of) < 2 || !s.pressed() {
		return false
	}
	for _, o := range s.of {
		if o != t && o.use(now, s.epoch) > use {
			return false
		}
	}
	return true
}

// mayLocked says whether a tenant may have one more, as far as that is about itself.
func (s *Slots) mayLocked(t *slots, use time.Duration, now time.Time) bool {
	alone := len(s.of) == 1
	if s.restsLocked(t, use, now) {
		return false
	}
	return t.running < s.each && (alone || t.running < s.share || use <= time.Duration(s.share)*memory)
}

// nextLocked is the tenant whose turn it is; nil: nobody's.
func (s *Slots) nextLocked(now time.Time) *slots {
	var next *slots
	var least time.Duration
	var first uint64
	for _, t := range s.of {
		line := t.next()
		if line == nil {
			continue
		}
		use := t.use(now, s.epoch)
		if !s.mayLocked(t, use, now) {
			continue
		}
		if next == nil || cmp.Or(cmp.Compare(use, least), cmp.Compare(t.running, next.running), cmp.Compare((*line)[0].number, first)) < 0 {
			next, least, first = t, use, (*line)[0].number
		}
	}
	return next
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

// Use returns how many slots the platform and tenants have, and how many wait for one.
func (s *Slots) Use() (platform, tenants, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inUse - s.ofTenant, s.ofTenant, len(s.platform) + s.waiting
}
