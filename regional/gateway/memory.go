package gateway

import (
	"errors"
	"sync"

	"muster.dev/muster/internal/fleet"
)

// memory is what the requests of all sites may hold while they are read, decoded and
// stored. It is shared by the rule of dynamic thresholds, with which switches share
// their buffers (Choudhury and Hahne, 1998): a tenant may hold up to a half of what is
// free, a site up to a third. So one alone gets much (a tenant a third of all, a site a
// fourth), and however many are greedy, something is left for the next.
//
// Nobody waits for memory: who waits while it holds some is how everybody comes to
// wait. A sender is told to come back.
type memory struct {
	total int64 // bytes

	mu         sync.Mutex
	used, peak int64
	tenants    map[string]int64
	sites      map[fleet.SiteID]int64
}

func newMemory(total int64) *memory {
	return &memory{total: total, tenants: map[string]int64{}, sites: map[fleet.SiteID]int64{}}
}

// Errors of a lease.
var (
	errNeverFits = errors.New("more than this regional ever has for one request")
	errSiteShare = errors.New("the site's requests hold their share of the regional's memory")
	errNoMemory  = errors.New("the tenant's requests hold their share of the regional's memory")
)

// lease is what one request, or what unread counts, holds. Not for concurrent use.
type lease struct {
	m  *memory
	id fleet.SiteID
	n  int64
}

// grow takes n bytes more, or none.
func (l *lease) grow(n int64) error {
	m := l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	free := m.total - m.used - n
	switch {
	case 3*(l.n+n) > m.total-(l.n+n):
		return errNeverFits // though it were the only one
	case 3*(m.sites[l.id]+n) > free:
		return errSiteShare
	case 2*(m.tenants[l.id.Tenant]+n) > free:
		return errNoMemory
	}
	m.used += n
	m.peak = max(m.peak, m.used)
	m.tenants[l.id.Tenant] += n
	m.sites[l.id] += n
	l.n += n
	return nil
}

// free gives everything back.
func (l *lease) free() { l.shrink(l.n) }

// shrink gives n bytes back.
func (l *lease) shrink(n int64) {
	m := l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	if m.tenants[l.id.Tenant] -= n; m.tenants[l.id.Tenant] == 0 {
		delete(m.tenants, l.id.Tenant)
	}
	if m.sites[l.id] -= n; m.sites[l.id] == 0 {
		delete(m.sites, l.id)
	}
	l.n -= n
}

func (m *memory) status() Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Memory{Used: m.used, Peak: m.peak, Total: m.total}
}
