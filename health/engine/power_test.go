package engine

import (
	"path/filepath"
	"testing"
	"time"

	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit/powercut"
)

// TestPowerLoss cuts the power when the state is written: the colours of before are there,
// while the regional that knows better can't be asked.
func TestPowerLoss(t *testing.T) {
	dir := t.TempDir()
	powercut.Run(t, dir, func(dir string) {
		one := newRegional(t, "one")
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set([]*inventory.Site{aSite("a/paris")}, nil, nil)
		well(t, one.prom, "a/paris")
		one.connect("a/paris", true)
		r := begin(t, filepath.Join(dir, "made", "now"), []*regional{one}, nil, inv, func(o *Options) {
			o.LiveMaxAge, o.MissingGrace = time.Minute, time.Minute
		})
		r.until("colours", func(v *View) bool { return v.Tick >= 3 && v.Find("a", "paris").State.Link == health.LinkUp })
		r.stop() // writes the state
	})
	one := newRegional(t, "one")
	one.down.Store(true)
	inv := &shelf{changed: make(chan struct{}, 1)}
	inv.set([]*inventory.Site{aSite("a/paris")}, nil, nil)
	r := begin(t, filepath.Join(dir, "made", "now"), []*regional{one}, nil, inv, nil)
	v := r.until("the first view", func(*View) bool { return true })
	if s := v.Find("a", "paris"); v.Tick <= 3 || s.Home != "one" || s.Colour() != fleet.Green {
		t.Errorf("after the power cut: tick %d, %s", v.Tick, describe(v))
	}
}
