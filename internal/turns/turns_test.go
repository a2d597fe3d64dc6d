package turns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
		if _, _, waiting := s.Use(); waiting != 0 {
			t.Errorf("%d wait", waiting)
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
		for tenant, x := range s.of {
			if sum += x.running; x.running > 2 {
				t.Errorf("%q has %d", tenant, x.running)
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
	if p, n, w := s.Use(); p != 0 || n != 0 || w != 0 {
		t.Errorf("left: %d, %d, %d waiting", p, n, w)
	}
	for tenant, x := range s.of {
		if x.running != 0 || x.began != 0 || len(x.waiting) != 0 {
			t.Errorf("left of %q: %+v", tenant, x)
		}
	}
}

// hold takes slots of a class again and again, each for a while, until ctx ends.
func hold(ctx context.Context, s *Slots, c Class, d time.Duration) {
	for ctx.Err() == nil {
		if release, err := s.Acquire(ctx, c); err == nil {
			time.Sleep(d)
			release()
		}
	}
}

// A tenant alone has all that a tenant may have, for as long as it likes. Beside another
// a burst has it too, and a flood is held to its share until it is over.
func TestFloodIsHeldToItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(16, 16, 8)
		ctx, cancel := context.WithCancel(t.Context())
		for range 20 {
			go hold(ctx, s, acme, time.Second)
		}
		has := func() int { _, n, _ := s.Use(); return n }
		time.Sleep(time.Minute + time.Millisecond)
		if n := has(); n != 8 {
			t.Errorf("alone it has %d", n)
		}
		small := func() {
			before := time.Now()
			release, err := s.Acquire(ctx, umbrella)
			if err != nil || time.Since(before) > 0 {
				t.Errorf("the neighbour waited %v, %v", time.Since(before), err)
			}
			time.Sleep(10 * time.Millisecond)
			release()
		}
		small()
		time.Sleep(5 * time.Second)
		if n := has(); n != 2 {
			t.Errorf("beside another it has %d, its share is 2", n)
		}
		// A burst of the neighbour is not held back.
		for range 8 {
			go func() {
				if release, err := s.Acquire(ctx, umbrella); err == nil {
					time.Sleep(time.Second)
					release()
				}
			}()
		}
		synctest.Wait()
		if n := has(); n != 10 {
			t.Errorf("both have %d, want 2 and 8", n)
		}
		time.Sleep(time.Minute)
		if n := has(); n != 8 {
			t.Errorf("alone again it has %d", n)
		}
		cancel()
		time.Sleep(2 * time.Second)
	})
}

// Of those who wait the one goes first that had least.
func TestLeastUsedGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1, 1, 1)
		had := map[string]time.Duration{}
		var mu sync.Mutex
		ctx, cancel := context.WithCancel(t.Context())
		for name, d := range map[string]time.Duration{"long": time.Second, "short": 100 * time.Millisecond} {
			for range 3 {
				go func() {
					for ctx.Err() == nil {
						if release, err := s.Acquire(ctx, Class{Tenant: name}); err == nil {
							time.Sleep(d)
							mu.Lock()
							had[name] += d
							mu.Unlock()
							release()
						}
					}
				}()
			}
		}
		time.Sleep(time.Minute)
		cancel()
		time.Sleep(2 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if a, b := had["long"], had["short"]; a > b*5/4 || b > a*5/4 {
			t.Errorf("long ones had %v, short ones %v", a, b)
		}
	})
}

// BenchmarkVictim is a tenant with a small piece of work now and then beside one that
// floods: the 95th percentile of the wait and the work, as a ratio to what it is alone.
// With share=4 slots are counted only.
func BenchmarkVictim(b *testing.B) {
	burn := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); {
			for range 1000 {
				runtime.KeepAlive(d)
			}
		}
	}
	work := func() { // as much at any time, however busy the machine is
		x := 0.0
		for i := range 2_000_000 {
			x += float64(i)
		}
		runtime.KeepAlive(x)
	}
	for _, share := range []int{4, 1} {
		b.Run(fmt.Sprintf("share=%d", share), func(b *testing.B) {
			s := New(16, 16, 4)
			s.share = share
			victim := func() float64 {
				var took []time.Duration
				for range 200 {
					began := time.Now()
					release, err := s.Acquire(b.Context(), umbrella)
					if err != nil {
						b.Fatal(err)
					}
					work()
					release()
					took = append(took, time.Since(began))
					time.Sleep(10 * time.Millisecond)
				}
				slices.Sort(took)
				return took[190].Seconds()
			}
			for b.Loop() {
				alone := victim()
				ctx, cancel := context.WithCancel(b.Context())
				var wg sync.WaitGroup
				for range 32 {
					wg.Go(func() {
						for ctx.Err() == nil {
							if release, err := s.Acquire(ctx, acme); err == nil {
								burn(50 * time.Millisecond)
								release()
							}
						}
					})
				}
				time.Sleep(5 * time.Second) // the flood's burst is over
				beside := victim()
				cancel()
				wg.Wait()
				b.ReportMetric(beside/alone, "p95-ratio")
			}
		})
	}
}

// Nobody is remembered for ever, whether or not anybody had to wait.
func TestTenantsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(2, 2, 2)
		for i := range 1000 {
			release, err := s.Acquire(t.Context(), Class{Tenant: fmt.Sprint(i)})
			if err != nil {
				t.Fatal(err)
			}
			release()
			time.Sleep(memory / 10)
		}
		if n := len(s.of); n > 50 {
			t.Errorf("%d tenants are remembered", n)
		}
	})
}

// BenchmarkAcquire is a slot that is free, with a thousand tenants that were here of late.
func BenchmarkAcquire(b *testing.B) {
	s := New(4, 3, 3)
	take := func(tenant string) {
		release, err := s.Acquire(b.Context(), Class{Tenant: tenant})
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
	for i := range 1000 {
		take(fmt.Sprint(i))
	}
	for b.Loop() {
		take("7")
	}
}
