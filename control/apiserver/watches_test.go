package apiserver

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// However many users of however many watches a tenant has, others find room, and all come back.
func TestWatchesOfATenantLeaveRoomForOthers(t *testing.T) {
	w := newWatches()
	open := func(tenant string, users int) (ends []func(), err error) {
		for i := range users {
			for range MaxWatchesEach + 1 {
				end, err := w.begin(fmt.Sprint(tenant, i), tenant)
				if !apierrors.IsTooManyRequests(err) && err != nil {
					t.Fatal(err)
				} else if err != nil {
					break
				}
				ends = append(ends, end)
			}
		}
		_, err = w.begin(fmt.Sprint(tenant, users), tenant)
		return ends, err
	}
	greedy, err := open("greedy", 20)
	if len(greedy) != MaxWatches/2 || !apierrors.IsTooManyRequests(err) {
		t.Errorf("%d watches of %d, then %v", len(greedy), MaxWatches, err)
	}
	next, err := open("next", 1)
	if len(next) != MaxWatchesEach {
		t.Errorf("a neighbour's user has %d", len(next))
	}
	if err != nil {
		t.Errorf("a neighbour's second user: %v", err)
	}
	nobodys, _ := open("", 1)
	if len(nobodys) != MaxWatchesEach {
		t.Errorf("somebody of no tenant has %d", len(nobodys))
	}
	for _, end := range append(greedy, append(next, nobodys...)...) {
		end()
	}
	if n := w.shares.Held("tenant greedy"); n != 0 || len(w.each) != 2 { // the two that are asked for beyond
		t.Errorf("%d are held, by %d users", n, len(w.each))
	}
}
