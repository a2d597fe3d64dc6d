package timeline

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"

	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
)

// A name that is asked for a thousand times is walked once, and a thousand names are refused.
func TestNamesOfAQueryAreBounded(t *testing.T) {
	s := openAt(t, t.TempDir()+"/timeline.db")
	add(t, s, event("acme", "paris", wire.EventColour, time.Minute, "shared/all"))
	ask := func(name string) (*Query, *wire.Problem) {
		r := httptest.NewRequest(http.MethodGet, wire.TimelinePath+"?"+url.Values{"virtualSite": {name}, "site": {"paris,paris"}}.Encode(), nil)
		r.Header.Set(wire.TenantsHeader, "acme")
		return ParseQuery(r)
	}
	q, p := ask(strings.Repeat("all,shared/all,", 1000))
	if p != nil {
		t.Fatal(p)
	}
	if len(q.VirtualSites) != 1 || q.VirtualSites[0] != "shared/all" || len(q.Sites) != 1 {
		t.Errorf("%d virtual sites, %d sites", len(q.VirtualSites), len(q.Sites))
	}
	q.Sites = nil
	if err := s.db.View(func(tx *bolt.Tx) error {
		rows, err := s.open(tx.Bucket(bucketTenants), q)
		if len(rows) != 1 {
			t.Errorf("%d walks", len(rows))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprint("v", i))
	}
	if _, p := ask(strings.Join(many, ",")); p == nil || p.Status != http.StatusBadRequest {
		t.Errorf("a thousand names: %v", p)
	}
}

// While one tenant's pages have the processors, another's goes before the next of them.
func TestPagesAreReadInTurns(t *testing.T) {
	s := openAt(t, t.TempDir()+"/timeline.db")
	add(t, s, event("acme", "paris", wire.EventColour, time.Minute), event("umbrella", "rome", wire.EventColour, time.Minute))
	synctest.Test(t, func(t *testing.T) {
		s.processors = turns.NewProcessors(2)
		held, err := s.processors.Begin(t.Context(), turns.Class{Tenant: "acme"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, _, err := s.Page(ctx, Query{Tenants: []string{"acme"}, Limit: 1}); err == nil {
			t.Error("a page is read without a turn")
		}
		held.End()
		for _, q := range []Query{{Tenants: []string{"acme"}, Limit: 1}, {AllTenants: true, Limit: 2}} {
			if events, _, err := s.Page(t.Context(), q); err != nil || len(events) != q.Limit {
				t.Errorf("%v, %v", events, err)
			}
		}
		if p, n, w := s.processors.Use(); p+n+w != 0 {
			t.Errorf("left: %d, %d, %d", p, n, w)
		}
	})
}

// Whoever makes up names is not remembered for ever by each of them.
func TestMadeUpNamesAreForgotten(t *testing.T) {
	o := Options{SiteBurst: 100, SiteEvery: 5 * time.Minute, TenantBurst: 1000, TenantEvery: 100 * time.Millisecond}
	l, now := newLimits(&o), begin
	for i := range 100_000 {
		l.take(&wire.TimelineEvent{Tenant: "evil", Namespace: "evil-system", Object: fmt.Sprint(i)}, now)
	}
	if n := len(l.things); n > 1000 {
		t.Errorf("%d names are remembered of a tenant that may have 1000 events", n)
	}
	now = now.Add(10 * time.Minute)
	if l.forget(now); len(l.things)+len(l.tenants) != 0 {
		t.Errorf("%d names of %d tenants are remembered", len(l.things), len(l.tenants))
	}
	for range 200 {
		l.take(&wire.TimelineEvent{Tenant: "acme", Site: "paris"}, now)
	}
	now = now.Add(time.Hour)
	l.forget(now)
	if left, ok := l.take(&wire.TimelineEvent{Tenant: "acme", Site: "paris"}, now); !ok || left != 100 {
		t.Errorf("%d left out before this one, %v; want 100", left, ok)
	}
}
