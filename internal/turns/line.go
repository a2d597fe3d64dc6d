package turns

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"muster.dev/muster/internal/fairshare"
)

// Member is somebody who stands in a Line: one of a tenant's.
type Member struct{ Tenant, Name string }

// Errors of Line.Acquire.
var (
	ErrFull = errors.New("too many wait already")
	ErrLate = errors.New("the wait took too long")
)

// Line is for work that comes in far larger numbers than can be done at one time, such
// as requests of thousands of sites. A member has one slot at a time at most; who waits
// is served tenant by tenant, of a tenant member by member, of a member in order of
// arrival. So what one tenant or one member sends more than others makes only its own wait
// longer.
//
// The places to wait are shared as package fairshare says: a tenant may have as many as are
// free. One alone gets half of them, two a third each, and however many are greedy, the
// next one still finds some.
//
// Safe for concurrent use.
type Line struct {
	slots, places int

	mu      sync.Mutex
	busy    int // slots
	waiting int
	tenants map[string]*tenantLine
	turn    []*tenantLine       // of whom somebody waits; the first has its turn
	served  map[Member]struct{} // who has a slot
}

type tenantLine struct {
	name    string
	waiting int
	turn    []*memberLine          // the first has its turn
	members map[string]*memberLine // those in turn, by name
}

type memberLine struct {
	who     Member
	waiters queue
}

// NewLine makes a line with so many slots, and places for those who wait.
func NewLine(slots, places int) *Line {
	return &Line{slots: slots, places: places, tenants: map[string]*tenantLine{}, served: map[Member]struct{}{}}
}

// Acquire waits for a slot: until ctx ends, and no longer than patience, which gives
// ErrLate. It fails with ErrFull at once if the tenant has no place to wait. release must
// be called; more than once does no harm.
func (l *Line) Acquire(ctx context.Context, who Member, patience time.Duration) (release func(), err error) {
	l.mu.Lock()
	if _, has := l.served[who]; !has && l.busy < l.slots && l.waiting == 0 {
		l.serveLocked(who)
		l.mu.Unlock()
		return l.releaser(who), nil
	}
	if !l.roomLocked(who.Tenant) {
		l.mu.Unlock()
		return nil, ErrFull
	}
	w := l.joinLocked(who)
	l.grantLocked()
	l.mu.Unlock()

	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-w.granted:
		return l.releaser(who), nil
	case <-t.C:
		err = ErrLate
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.has {
		l.releaseLocked(who)
	} else {
		l.leaveLocked(who, w)
	}
	return nil, err
}

// Room says whether the tenant has a place to wait now.
func (l *Line) Room(tenant string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.roomLocked(tenant)
}

// Use returns how many slots are in use and how many wait for one.
func (l *Line) Use() (busy, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy, l.waiting
}

func (l *Line) roomLocked(tenant string) bool {
	n := 0
	if t := l.tenants[tenant]; t != nil {
		n = t.waiting
	}
	return fairshare.Fits(int64(n), 1, int64(l.waiting), int64(l.places), 1)
}

func (l *Line) releaser(who Member) func() {
	var once sync.Once
	return func() {
		once.Do(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.releaseLocked(who)
		})
	}
}

func (l *Line) serveLocked(who Member) {
	l.busy++
	l.served[who] = struct{}{}
}

func (l *Line) releaseLocked(who Member) {
	l.busy--
	delete(l.served, who)
	l.grantLocked()
}

func (l *Line) joinLocked(who Member) *waiter {
	t := l.tenants[who.Tenant]
	if t == nil {
		t = &tenantLine{name: who.Tenant, members: map[string]*memberLine{}}
		l.tenants[who.Tenant] = t
		l.turn = append(l.turn, t)
	}
	m := t.members[who.Name]
	if m == nil {
		m = &memberLine{who: who}
		t.members[who.Name] = m
		t.turn = append(t.turn, m)
	}
	w := &waiter{granted: make(chan struct{})}
	m.waiters = append(m.waiters, w)
	t.waiting++
	l.waiting++
	return w
}

// grantLocked gives away what is free.
func (l *Line) grantLocked() {
	for i := 0; i < len(l.turn) && l.busy < l.slots; {
		t := l.turn[i]
		// No more members than there are slots are passed over.
		j := slices.IndexFunc(t.turn, func(m *memberLine) bool { _, has := l.served[m.who]; return !has })
		if j < 0 {
			i++ // its turn stays, and the next may go first
			continue
		}
		m := t.turn[j]
		m.waiters[0].grant()
		m.waiters = m.waiters[1:]
		l.serveLocked(m.who)
		t.turn = slices.Delete(t.turn, j, j+1)
		if len(m.waiters) > 0 {
			t.turn = append(t.turn, m)
		} else {
			delete(t.members, m.who.Name)
		}
		l.turn = slices.Delete(l.turn, i, i+1)
		l.oneLessLocked(t)
		if t.waiting > 0 {
			l.turn = append(l.turn, t)
		}
	}
}

// leaveLocked takes out somebody who waits no longer.
func (l *Line) leaveLocked(who Member, w *waiter) {
	t := l.tenants[who.Tenant]
	m := t.members[who.Name]
	if m.waiters = m.waiters.without(w); len(m.waiters) == 0 {
		i := slices.Index(t.turn, m)
		t.turn = slices.Delete(t.turn, i, i+1)
		delete(t.members, who.Name)
	}
	if l.oneLessLocked(t); t.waiting == 0 {
		l.turn = slices.DeleteFunc(l.turn, func(o *tenantLine) bool { return o == t })
	}
}

func (l *Line) oneLessLocked(t *tenantLine) {
	l.waiting--
	if t.waiting--; t.waiting == 0 {
		delete(l.tenants, t.name)
	}
}
