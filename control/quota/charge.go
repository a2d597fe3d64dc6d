package quota

import (
	"time"

	"golang.org/x/time/rate"

	"muster.dev/muster/internal/fleet"
)

// Request is one that may write, before it is read.
type Request struct {
	// Tenant pays; where it is empty, Person does, who is in none.
	Tenant, Person string
	// Resource, Namespace and Name are of the object that it is about, which is read whatever
	// comes of it; empty where there is none yet.
	Resource, Namespace, Name string
	Body                      int64 // bytes
}

// Charge takes what a request costs from the budget of whoever pays, whatever comes of it:
// who sends nothing but what is refused would else have it read and checked for nothing. It
// returns what it took, in bytes, or an *Exceeded.
func (l *Ledger) Charge(r Request) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	cost := max(r.Body, l.sizeLocked(r)) + RequestOverhead
	if r.Tenant == fleet.PlatformTenant {
		return cost, nil
	}
	who, writes := r.Tenant, l.people[r.Person]
	switch {
	case who != "":
		writes = l.tenantLocked(who).writes
	case writes == nil:
		writes = rate.NewLimiter(WriteBytesPerSecond, WriteBurst)
		l.people[r.Person] = writes
	}
	return cost, spend(who, writes, cost, l.o.Now())
}

// TenantOf is the tenant that a namespace of Kubernetes belongs to; empty: none, or there is
// no such namespace.
func (l *Ledger) TenantOf(namespace string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.spaces[namespace]; s != nil {
		return s.tenant
	}
	return ""
}

func (l *Ledger) sizeLocked(r Request) int64 {
	if s := l.spaces[r.Namespace]; s != nil && r.Name != "" {
		return int64(s.sizes[r.Resource+"/"+r.Name])
	}
	return 0
}

// spend returns nil or an *Exceeded. What costs more than there ever is at once costs that.
func spend(tenant string, writes *rate.Limiter, bytes int64, now time.Time) error {
	cost := int(min(bytes, WriteBurst))
	if writes.AllowN(now, cost) {
		return nil
	}
	missing := float64(cost) - writes.TokensAt(now)
	return &Exceeded{Tenant: tenant, Quota: "of bytes written a second", Used: WriteBytesPerSecond, Limit: WriteBytesPerSecond, Retry: 1 + int(missing/WriteBytesPerSecond),
		Remedy: "wait, then write less often: every request counts, what is refused too; the store keeps every version for some minutes"}
}
