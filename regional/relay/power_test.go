package relay

import (
	"path/filepath"
	"testing"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/powercut"
)

// TestPowerLoss cuts a regional's power when it has told control that its own set is in
// effect: it starts with that set, without control.
func TestPowerLoss(t *testing.T) {
	dir := t.TempDir()
	powercut.Run(t, dir, func(dir string) {
		c := newControl()
		addr, _ := c.serve(t, "")
		got := &consumer{t: t}
		r := newRelay(t, Options{Dir: filepath.Join(dir, "made", "now"), Control: client(t, addr), OnRegional: got.apply})
		run(t, r)
		testkit.EventuallyTrue(t, "connected", r.Connected)
		for n, specs := range [][]string{{"Inventory/acme=i1", "Rules/acme=r1"}, {"Inventory/acme=i2", "Rules/acme=r1"}} {
			set := c.regionalState(specs...)
			c.push(set)
			got.await(t, n+1, specs[0]+" "+specs[1])
			testkit.EventuallyTrue(t, "the report", c.sawReport("regional "+set.Revision[:8]))
		}
	})
	c := newControl()
	addr, stop := c.serve(t, "")
	stop()
	got := &consumer{t: t}
	run(t, newRelay(t, Options{Dir: filepath.Join(dir, "made", "now"), Control: client(t, addr), OnRegional: got.apply}))
	got.await(t, 1, "Inventory/acme=i2 Rules/acme=r1")
}
