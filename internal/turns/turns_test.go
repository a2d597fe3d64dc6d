package turns

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
)

var (
	platform = Class{Platform: true}
	acme     = Class{Tenant: "acme"}
	umbrella = Class{Tenant: "umbrella"}
)

func TestSlotsAreFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(6, 4, 2)
		var mu sync.Mutex
		var order []string
		var held []func()
		take := func(c Class, name string) {
			go func() {
				release, err := s.Acquire(t.Context(), c)
				if err != nil {
					return
				}
				mu.Lock()
				order, held = append(order, name), append(held, release)
				mu.Unlock()
			}()
			synctest.Wait()
		}
		got := func(want ...string) {
			t.Helper()
			if len(order) != len(want) {
				t.Fatalf("%v have a slot, want %v", order, want)
			}
			for i := range want {
				if order[i] != want[i] {
					t.Fatalf("%v have a slot, want %v", order, want)
				}
			}
		}
		drop := func(i int) { held[i](); synctest.Wait() }

		for range 50 {
			take(acme, "acme")
		}
		got("acme", "acme") // its share, whoever else waits or not
		take(umbrella, "umbrella")
		take(Class{Tenant: "third"}, "third")
		got("acme", "acme", "umbrella", "third")
		take(umbrella, "umbrella")
		take(platform, "platform")
		take(platform, "platform")
		got("acme", "acme", "umbrella", "third", "platform", "platform") // all tenants' slots are taken, the platform has its own
		take(platform, "platform")
		drop(0)
		got("acme", "acme", "umbrella", "third", "platform", "platform", "platform") // who waits of the platform goes first
		drop(1)
		got("acme", "acme", "umbrella", "third", "platform", "platform", "platform", "acme") // acme's turn came first
		drop(2)
		got("acme", "acme", "umbrella", "third", "platform", "platform", "platform", "acme", "umbrella") // then umbrella's, though acme has 47 more
	})
}

func TestSlotsOfTheImpatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(2, 1, 1)
		first, err := s.Acquire(t.Context(), acme)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []Class{acme, umbrella} {
			ctx, cancel := context.WithCancel(t.Context())
			go cancel()
			if _, err := s.Acquire(ctx, c); err == nil {
				t.Errorf("%v got a slot", c)
			}
		}
		if _, _, waiting := s.Use(); waiting != 0 || len(s.turn) != 0 {
			t.Errorf("%d wait, %v have a turn", waiting, s.turn)
		}
		first()
		if release, err := s.Acquire(t.Context(), umbrella); err != nil {
			t.Error(err)
		} else {
			release()
		}
	})
}

// Whoever comes and goes, nobody gets more than their share and nothing is lost.
func TestSlotsHold(t *testing.T) {
	s := New(7, 4, 2)
	classes := []Class{platform, acme, umbrella, {Tenant: "third"}, {}}
	check := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		sum := 0
		for tenant, n := range s.running {
			if sum += n; n > 2 {
				t.Errorf("%q has %d", tenant, n)
			}
		}
		if sum != s.ofTenant || s.ofTenant > 4 || s.inUse > 7 || s.inUse < s.ofTenant {
			t.Errorf("%d of tenants (%d), %d of all", s.ofTenant, sum, s.inUse)
		}
	}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			for range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				if rnd.IntN(3) == 0 {
					go cancel()
				}
				if release, err := s.Acquire(ctx, classes[rnd.IntN(len(classes))]); err == nil {
					check()
					release()
				}
				cancel()
			}
		}()
	}
	wg.Wait()
	if p, n, w := s.Use(); p != 0 || n != 0 || w != 0 || len(s.running) != 0 || len(s.waiting) != 0 || len(s.turn) != 0 {
		t.Errorf("left: %d, %d, %d waiting, %v, %v, %v", p, n, w, s.running, s.waiting, s.turn)
	}
}
