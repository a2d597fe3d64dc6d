package timeline

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"muster.dev/muster/internal/wire"
)

// limits are the rates of sites and objects, and of tenants. They begin anew with the
// process: what is kept is bounded without them.
type limits struct {
	o *Options

	mu      sync.Mutex
	tenants map[string]*limit
	things  map[[2]string]*limit // tenant, and site or object
}

type limit struct {
	rate *rate.Limiter
	left int // events left out since the last one that was taken
}

func newLimits(o *Options) *limits {
	return &limits{o: o, tenants: map[string]*limit{}, things: map[[2]string]*limit{}}
}

// take says whether there is room for an event, and how many of its site or object had none
// before.
func (l *limits) take(e *wire.TimelineEvent, now time.Time) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenants[e.Tenant]
	if t == nil {
		t = &limit{rate: rate.NewLimiter(rate.Every(l.o.TenantEvery), l.o.TenantBurst)}
		l.tenants[e.Tenant] = t
	}
	name := "site/" + e.Site
	if e.Site == "" {
		name = e.Namespace + "/" + e.Object
	}
	x := l.things[[2]string{e.Tenant, name}]
	if x == nil {
		if t.rate.TokensAt(now) < 1 {
			return 0, false // whoever makes up names is not remembered by each of them
		}
		x = &limit{rate: rate.NewLimiter(rate.Every(l.o.SiteEvery), l.o.SiteBurst)}
		l.things[[2]string{e.Tenant, name}] = x
	}
	if !x.rate.AllowN(now, 1) || !t.rate.AllowN(now, 1) {
		x.left++
		return 0, false
	}
	left, x.left = x.left, 0
	return left, true
}

// forget lets go of those that are as good as new.
func (l *limits) forget(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, x := range l.things {
		if x.rate.TokensAt(now) >= float64(l.o.SiteBurst) {
			delete(l.things, k)
		}
	}
	for k, x := range l.tenants {
		if x.rate.TokensAt(now) >= float64(l.o.TenantBurst) {
			delete(l.tenants, k)
		}
	}
}
