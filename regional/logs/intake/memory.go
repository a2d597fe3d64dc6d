package intake

import (
	"context"
	"errors"
	"sync"

	"muster.dev/muster/internal/fairshare"
)

// memory counts the bytes that messages hold: of all, of each tenant and of each site.
// A tenant holds at most as much as it leaves free, so that its sites together, however
// many and hostile, leave room for the others'.
type memory struct {
	total, perSite int64 // the limits

	mu         sync.Mutex
	used, peak int64
	tenants    map[string]int64
	freed      chan struct{} // closed and replaced whenever something is given back
}

func newMemory(total, perSite int64) *memory {
	return &memory{total: total, perSite: perSite, tenants: map[string]int64{}, freed: make(chan struct{})}
}

var errMemory = errors.New("too many bytes in flight")

// take reserves n bytes, and waits until ctx ends if there are too few.
func (m *memory) take(ctx context.Context, s *site, n int64) error {
	if n > m.perSite || n > m.total {
		return errLarge
	}
	for {
		m.mu.Lock()
		if s.memory+n <= m.perSite && fairshare.Fits(m.tenants[s.id.Tenant], n, m.used, m.total, 1) {
			m.used += n
			m.tenants[s.id.Tenant] += n
			s.memory += n
			m.peak = max(m.peak, m.used)
			m.mu.Unlock()
			return nil
		}
		freed := m.freed
		m.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return errMemory
		}
	}
}

func (m *memory) give(s *site, n int64) {
	if n == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	s.memory -= n
	if m.tenants[s.id.Tenant] -= n; m.tenants[s.id.Tenant] == 0 {
		delete(m.tenants, s.id.Tenant)
	}
	close(m.freed)
	m.freed = make(chan struct{})
}

// lease is what one message holds.
type lease struct {
	m *memory
	s *site
	n int64
}

func (l *lease) grow(ctx context.Context, n int64) error {
	if err := l.m.take(ctx, l.s, n); err != nil {
		return err
	}
	l.n += n
	return nil
}

func (l *lease) free() { l.shrink(l.n) }

func (l *lease) shrink(n int64) {
	l.m.give(l.s, n)
	l.n -= n
}
