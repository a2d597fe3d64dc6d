package fleetapi

import (
	"fmt"
	"testing"

	"muster.dev/muster/internal/fleet"
)

// However many sites of one tenant change, another's are written when it is its turn, and
// nothing is lost or written twice.
func TestStatusesAreWrittenTenantByTenant(t *testing.T) {
	q := newQueue()
	defer q.ShutDown()
	for i := range 5000 {
		q.Add(acme(fmt.Sprint("s", i)))
	}
	tokyo, kyoto := fleet.SiteID{Tenant: "umbrella", Name: "tokyo"}, fleet.SiteID{Tenant: "umbrella", Name: "kyoto"}
	q.AddAfter(tokyo, 0)
	q.Add(kyoto)
	q.Add(tokyo) // once is enough
	if n := q.Len(); n != 5002 {
		t.Errorf("%d wait", n)
	}
	at := map[fleet.SiteID]int{}
	for i := range 5002 {
		id, _ := q.Get()
		at[id] = i + 1
		q.Done(id)
	}
	if len(at) != 5002 || q.Len() != 0 {
		t.Errorf("%d sites were given out, %d are left", len(at), q.Len())
	}
	if at[tokyo] > 4 || at[kyoto] > 4 {
		t.Errorf("the other tenant's sites come as numbers %d and %d", at[tokyo], at[kyoto])
	}
	if at[acme("s0")] != 1 || at[acme("s4999")] != 5002 {
		t.Errorf("one tenant's sites out of order: the first is number %d, the last %d", at[acme("s0")], at[acme("s4999")])
	}
}
