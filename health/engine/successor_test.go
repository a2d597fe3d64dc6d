package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

// Another site under the name of one that was red begins as a new one does, whether health sees the
// first one go, misses it, or was away; and what still burns in the first one's samples
// is not laid to it.
func TestSuccessorIsAnotherSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, store := newRegional(t, "one"), newCortex(t, "a")
		inv := &shelf{changed: make(chan struct{}, 1)}
		register := func(at time.Time) {
			s := aSite("a/paris")
			s.CreatedAt = at
			inv.set([]*inventory.Site{s}, nil, nil)
		}
		now := time.Now().Truncate(time.Second)
		register(now.Add(-time.Hour))
		well(t, one.prom, "a/paris")
		one.connect("a/paris", true)
		one.put(t, "fire", `room="1"`, "a/paris", 1, 0)
		dir := t.TempDir()
		r := begin(t, dir, []*regional{one}, store, inv, nil)
		red := func(v *View) bool { s := v.Find("a", "paris"); return s != nil && s.Colour() == fleet.Red }
		anew := func(since uint64) func(*View) bool {
			return func(v *View) bool {
				s := v.Find("a", "paris")
				if v.Tick < since+2 || s == nil || s.State == nil {
					return false
				}
				if red(v) {
					t.Fatalf("the successor is red: %+v", s.State.Reasons)
				}
				return true
			}
		}
		before := r.until("paris burns", red)

		register(now.Add(-time.Minute)) // two looks, one before and one after
		v := r.until("a successor in its place", anew(before.Tick))
		if s := v.Find("a", "paris"); s.before.IsZero() || s.State.Since.Before(before.AsOf) {
			t.Errorf("%+v since %s", s.before, s.State.Since)
		}
		r.stop()

		register(now.Add(-30 * time.Second))
		r = begin(t, dir, []*regional{one}, store, inv, nil)
		v = r.until("a successor after a restart", anew(r.first().Tick))

		inv.set(nil, nil, nil)
		r.until("it is gone", func(v *View) bool { return len(v.Sites) == 0 && v.Tick > 0 })
		register(now)
		r.until("a successor later", anew(v.Tick))
		inv.set(nil, nil, nil)
		r.until("it is gone again", func(v *View) bool { return len(v.Sites) == 0 })
		r.stop()
		register(now.Add(time.Second))
		r = begin(t, dir, []*regional{one}, store, inv, nil)
		r.until("a successor of one that health saw go before it was restarted", anew(r.first().Tick))
		r.stop()
	})
}

func TestWithheld(t *testing.T) {
	m := simple(t)
	b := &binding{model: m, reach: make([]time.Duration, len(m.Signals)), packReach: make([]time.Duration, len(m.Packs))}
	good, bad := -1, -1
	for i := range m.Signals {
		b.reach[i] = 5 * time.Minute
		if i != m.Uplink() {
			good, bad = bad, i
		}
	}
	if good < 0 {
		t.Fatal("want two signals besides uplink")
	}
	now := time.Unix(1e9, 0)
	known := func(link health.Link, up, ago time.Duration) (bool, bool) {
		r := health.Readings{Signals: make([]health.Reading, len(m.Signals)), Packs: make([]bool, len(m.Packs))}
		r.Signals[good], r.Signals[bad] = health.Reading{Value: m.Signals[good].Good, Known: true}, health.Reading{Value: m.Signals[bad].Bad, Known: true}
		b.withhold(&r, &memory{link: link, since: now.Add(-up), before: now.Add(-ago)}, now)
		return r.Signals[good].Known, r.Signals[bad].Known
	}
	for _, c := range []struct {
		link      health.Link
		up, ago   time.Duration
		good, bad bool
	}{
		{health.LinkUp, 10 * time.Second, time.Minute, false, false},
		{health.LinkUp, time.Minute, 2 * time.Minute, true, false},
		{health.LinkDown, time.Minute, 2 * time.Minute, false, false},
		{health.LinkUp, time.Minute, 5 * time.Minute, true, true},
	} {
		if g, l := known(c.link, c.up, c.ago); g != c.good || l != c.bad {
			t.Errorf("%+v: what is good counts %v, what loses %v", c, g, l)
		}
	}
}
