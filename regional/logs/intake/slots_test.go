package intake

import (
	"slices"
	"testing"
	"testing/synctest"
)

// TestSlotsInTurns: whoever holds the fewest and has waited longest is next, by tenant and then by
// lane; a tenant never has more than it leaves free, and one with stalled loads gets none
// but for these.
func TestSlotsInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		s := newSlots(1)
		a, b := &tenantQueue{name: "a"}, &tenantQueue{name: "b"}
		lanes := map[string]*lane{"a calm": {tenant: a}, "a bulk": {tenant: a, index: 1}, "b": {tenant: b}}
		wait := func(name string, again bool) {
			go func() {
				if s.acquire(t.Context(), lanes[name], again) {
					order = append(order, name)
				}
			}()
			synctest.Wait()
		}
		next := func(tenant string) {
			s.release(tenant)
			synctest.Wait()
		}
		for _, name := range []string{"a bulk", "a bulk", "a bulk", "a calm", "b", "b"} {
			wait(name, false)
		}
		for len(order) < 6 {
			next(lanes[order[len(order)-1]].tenant.name)
		}
		next(lanes[order[5]].tenant.name)
		if want := []string{"a bulk", "b", "a calm", "b", "a bulk", "a bulk"}; !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}
		order = nil
		s.stall("a", 1)
		for _, name := range []string{"a calm", "b"} {
			wait(name, false)
		}
		wait("a bulk", true)
		next("b")
		s.stall("a", -1)
		next("a")
		if want := []string{"b", "a bulk", "a calm"}; !slices.Equal(order, want) {
			t.Errorf("stalled: %v, want %v", order, want)
		}
		next("a")
		if s.used != 0 || len(s.tenants) != 0 || len(s.waiting) != 0 {
			t.Errorf("%+v is left", s)
		}
		s = newSlots(8)
		order = nil
		for range 8 {
			wait("a bulk", false)
		}
		if len(order) != 4 {
			t.Errorf("one tenant has %d of 8", len(order))
		}
		wait("b", false)
		if !slices.Contains(order, "b") {
			t.Error("the other waits")
		}
	})
}
