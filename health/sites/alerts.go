package sites

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"muster.dev/muster/internal/peers"
	"muster.dev/muster/internal/wire"
)

const (
	// alertsFresh is how long an answer of the alerting role is used without asking anew,
	// alertsKept how long when it doesn't answer.
	alertsFresh = 5 * time.Second
	alertsKept  = time.Minute
	// alertsWait bounds what a page waits for them.
	alertsWait     = 2 * time.Second
	alertsParallel = 8
	maxAlerts      = 64 << 20 // bytes of one tenant's
)

// FiringFrom asks the alerting role at base.
func FiringFrom(client *http.Client, base *url.URL) func(context.Context, string) (*wire.FiringAlerts, error) {
	return func(ctx context.Context, tenant string) (*wire.FiringAlerts, error) {
		b, err := peers.Question{URL: base.JoinPath(wire.FiringPath).String(), Query: url.Values{"tenant": {tenant}}, Tenants: tenant, Max: maxAlerts}.Get(ctx, client)
		if err != nil {
			return nil, fmt.Errorf("the alerting role: %w", err)
		}
		return wire.DecodeFiringAlerts(b, tenant)
	}
}

// alerts remembers what fires for as long as it is asked about.
type alerts struct {
	firing  func(context.Context, string) (*wire.FiringAlerts, error)
	log     *slog.Logger
	limited rate.Sometimes
	flights singleflight.Group
	mu      sync.Mutex
	known   map[string]knownAlerts // by tenant
}

type knownAlerts struct {
	at     time.Time
	failed time.Time // when they could not be read last: nobody waits for that again at once
	sites  map[string][]string
}

func newAlerts(firing func(context.Context, string) (*wire.FiringAlerts, error), log *slog.Logger) *alerts {
	return &alerts{firing: firing, log: log, limited: rate.Sometimes{First: 1, Interval: 30 * time.Second}, known: map[string]knownAlerts{}}
}

// of are the alerts of tenants by site; of a tenant that is not in it they are not known.
func (a *alerts) of(ctx context.Context, tenants []string) map[string]map[string][]string {
	out := map[string]map[string][]string{}
	if a.firing == nil {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, alertsWait)
	defer cancel()
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(alertsParallel)
	for _, t := range tenants {
		g.Go(func() error {
			if sites := a.tenant(ctx, t); sites != nil {
				mu.Lock()
				out[t] = sites
				mu.Unlock()
			}
			return nil
		})
	}
	_ = g.Wait() // what can't be asked is not known
	return out
}

func (a *alerts) tenant(ctx context.Context, tenant string) map[string][]string {
	a.mu.Lock()
	have, ok := a.known[tenant]
	a.mu.Unlock()
	if ok && time.Since(have.at) < alertsFresh {
		return have.sites
	}
	if time.Since(have.failed) < alertsFresh {
		return have.kept()
	}
	done := a.flights.DoChan(tenant, func() (any, error) {
		// Whoever asked first may go away before the others.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), alertsWait)
		defer cancel()
		f, err := a.firing(ctx, tenant)
		if err != nil {
			a.limited.Do(func() { a.log.Warn("the alerts of sites can't be read", "tenant", tenant, "err", err) })
			have.failed = time.Now()
			a.keep(tenant, have)
			return nil, err
		}
		a.keep(tenant, knownAlerts{at: time.Now(), sites: f.Sites})
		return f.Sites, nil
	})
	select {
	case r := <-done:
		if r.Err == nil {
			return r.Val.(map[string][]string)
		}
	case <-ctx.Done():
	}
	return have.kept()
}

// kept are the last ones that were read, as long as they may be used.
func (k knownAlerts) kept() map[string][]string {
	if time.Since(k.at) < alertsKept {
		return k.sites
	}
	return nil
}

func (a *alerts) keep(tenant string, k knownAlerts) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known[tenant] = k
}

// forget lets go of tenants that are no more.
func (a *alerts) forget(stays func(tenant string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for t := range a.known {
		if !stays(t) {
			delete(a.known, t)
		}
	}
}
