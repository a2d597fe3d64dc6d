package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

func (c *cortex) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.queries)
}

// away has one regional with a site that is well there and burns in the store, as it was
// storeAge ago.
func away(t *testing.T, storeAge time.Duration, change func(*Options)) (*regional, *cortex, *rig) {
	one, store := newRegional(t, "one"), newCortex(t, "a")
	inv := &shelf{changed: make(chan struct{}, 1)}
	inv.set([]*inventory.Site{aSite("a/paris")}, nil, nil)
	well(t, one.prom, "a/paris")
	one.connect("a/paris", true)
	one.put(t, fleet.MetricSiteConnected, `regional="one"`, "a/paris", 1, 0)
	p := store.tenants["a"]
	p.put(t, "temperature", "", "a/paris", 20, 0)
	p.put(t, "lock", "", "a/paris", 1, 0)
	p.put(t, "fire", "", "a/paris", 1, 0)
	p.put(t, fleet.MetricSiteConnected, `regional="one"`, "a/paris", 1, storeAge)
	p.put(t, fleet.MetricSiteConnected, `regional="two"`, "a/other", 1, 0) // another regional is up to date
	r := begin(t, t.TempDir(), []*regional{one}, store, inv, change)
	r.until("green", func(v *View) bool { return v.Find("a", "paris").Colour() == fleet.Green })
	return one, store, r
}

// TestLateLiveView: a regional whose live view takes too long, but whose queries answer, is
// not given up, neither its readings nor its links: the store is not asked in its place.
func TestLateLiveView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, store, r := away(t, 0, nil)
		one.late.Store(int64(time.Hour))
		since := r.e.View()
		// Long after the live view would have been given up, and its word too.
		r.until("ticks without a live view", func(v *View) bool {
			if s := v.Find("a", "paris"); s.FromStore || s.Colour() != fleet.Green || s.State.Link != health.LinkUp {
				t.Fatalf("a late live view gave the regional up:\n%s", describe(v))
			}
			return v.AsOf.Sub(since.AsOf) > 2*r.opts.LiveTimeout && v.Tick > since.Tick+3
		})
		if asked := store.asked(); len(asked) > 0 {
			t.Errorf("the store was asked %q", asked)
		}
		// A regional that answers nothing at all is away, and the store speaks for it.
		one.slow.Store(int64(time.Hour))
		r.until("the store's word", func(v *View) bool { s := v.Find("a", "paris"); return s.FromStore && s.Colour() == fleet.Red })
		one.late.Store(0)
		one.slow.Store(0)
		r.until("the regional's word again", func(v *View) bool { s := v.Find("a", "paris"); return !s.FromStore && s.Colour() == fleet.Green })
	})
}

// TestStoreThatLags: a store that has nothing new of a regional is not asked about its sites.
// What is known of them holds, and is marked with its age.
func TestStoreThatLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, store, r := away(t, storeFresh+10*time.Second, func(o *Options) { o.MissingGrace = 5 * time.Second })
		one.down.Store(true)
		r.until("held values with their age", func(v *View) bool {
			s := v.Find("a", "paris")
			if s.FromStore || s.Colour() != fleet.Green {
				t.Fatalf("the store spoke:\n%s", describe(v))
			}
			d := s.State.Dimensions[3]
			return d.Stale && d.Score == 100
		})
		tick := r.e.View().Tick
		r.until("more ticks", func(v *View) bool { return v.Tick > tick+2 })
		for _, q := range store.asked() {
			if q != newestQuery {
				t.Errorf("the store was asked %s", q)
			}
		}
		if len(store.asked()) == 0 {
			t.Error("the store was not asked what it has")
		}
		// It catches up.
		store.tenants["a"].put(t, fleet.MetricSiteConnected, `regional="one"`, "a/paris", 1, 0)
		r.until("the store's word", func(v *View) bool { s := v.Find("a", "paris"); return s.FromStore && s.Colour() == fleet.Red })
	})
}
