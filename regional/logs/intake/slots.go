package intake

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"muster.dev/muster/internal/fairshare"
)

// slots are the writes to the store that may run at once. Who waits is served in turns:
// first by tenant, the one that has the fewest writes running and waited longest, then
// by lane of that tenant. A tenant holds at most as many as it leaves free.
type slots struct {
	mu      sync.Mutex
	total   int
	used    int
	turn    uint64
	tenants map[string]*slotTenant
	waiting []*ticket
}

type slotTenant struct {
	held    int
	stalled int    // loads that the store has refused and that no park has room for
	last    uint64 // turn in which it was served
}

type ticket struct {
	tenant string
	lane   *lane
	again  bool // a load that was refused: it waits for no other of its tenant
	ready  chan struct{}
}

func newSlots(n int) *slots { return &slots{total: n, tenants: map[string]*slotTenant{}} }

func (s *slots) tenantLocked(name string) *slotTenant {
	t := s.tenants[name]
	if t == nil {
		t = &slotTenant{}
		s.tenants[name] = t
	}
	return t
}

// acquire waits for a slot until ctx ends. A lane whose tenant has stalled loads gets
// none: what it would write is refused as well, and has to be held in memory meanwhile.
func (s *slots) acquire(ctx context.Context, ln *lane, again bool) bool {
	t := &ticket{tenant: ln.tenant.name, lane: ln, again: again, ready: make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, t)
	s.serveLocked()
	s.mu.Unlock()
	select {
	case <-t.ready:
		return true
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-t.ready: // served in the same moment
		s.releaseLocked(t.tenant)
	default:
		s.waiting = slices.DeleteFunc(s.waiting, func(o *ticket) bool { return o == t })
	}
	return false
}

func (s *slots) release(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(tenant)
}

func (s *slots) releaseLocked(tenant string) {
	s.used--
	s.tenantLocked(tenant).held--
	s.serveLocked()
}

// stall counts loads of a tenant that wait outside of the park, up or down.
func (s *slots) stall(tenant string, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenantLocked(tenant).stalled += by
	s.serveLocked()
}

// contended tells whether somebody waits for a slot.
func (s *slots) contended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0
}

// serveLocked hands out what is free.
func (s *slots) serveLocked() {
	for {
		var best *ticket
		for _, t := range s.waiting {
			st := s.tenantLocked(t.tenant)
			if st.stalled > 0 && !t.again || !fairshare.Fits(int64(st.held), 1, int64(s.used), int64(s.total), 1) {
				continue
			}
			if best == nil || s.lessLocked(t, best) {
				best = t
			}
		}
		if best == nil {
			break
		}
		s.waiting = slices.DeleteFunc(s.waiting, func(o *ticket) bool { return o == best })
		s.turn++
		st := s.tenantLocked(best.tenant)
		st.held++
		st.last, best.lane.last = s.turn, s.turn
		s.used++
		close(best.ready)
	}
	for name, st := range s.tenants {
		if st.held == 0 && st.stalled == 0 && !slices.ContainsFunc(s.waiting, func(t *ticket) bool { return t.tenant == name }) {
			delete(s.tenants, name)
		}
	}
}

func (s *slots) lessLocked(a, b *ticket) bool {
	ta, tb := s.tenantLocked(a.tenant), s.tenantLocked(b.tenant)
	return cmp.Or(cmp.Compare(ta.held, tb.held), cmp.Compare(ta.last, tb.last), cmp.Compare(a.lane.last, b.lane.last)) < 0
}
