package turns

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// stand lets members wait in this order behind a slot that is held, and returns the order
// in which they are served, one after the other.
func stand(t *testing.T, l *Line, who ...Member) (served []Member) {
	t.Helper()
	free, err := l.Acquire(t.Context(), Member{"-", "-"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, m := range who {
		wg.Go(func() {
			release, err := l.Acquire(t.Context(), m, time.Hour)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			served = append(served, m)
			mu.Unlock()
			release()
			release() // does no harm
		})
		synctest.Wait() // it stands in the line
	}
	free()
	wg.Wait()
	return served
}

func TestLineGoesByTenantAndMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLine(1, 100)
		flood, paris, lyon, tokyo := Member{"acme", "flood"}, Member{"acme", "paris"}, Member{"acme", "lyon"}, Member{"umbrella", "tokyo"}
		got := stand(t, l, flood, flood, flood, paris, lyon, tokyo, tokyo)
		want := []Member{flood, tokyo, paris, tokyo, lyon, flood, flood}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("served %v, want %v", got, want)
		}
		if busy, waiting := l.Use(); busy != 0 || waiting != 0 || len(l.tenants)+len(l.turn)+len(l.served) != 0 {
			t.Errorf("%d busy, %d waiting, %+v", busy, waiting, l)
		}
	})
}

func TestAMemberHasOneSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLine(2, 10)
		first, _ := l.Acquire(t.Context(), Member{"acme", "paris"}, time.Hour)
		if _, err := l.Acquire(t.Context(), Member{"acme", "paris"}, time.Second); !errors.Is(err, ErrLate) {
			t.Errorf("a second slot of one member: %v", err)
		}
		// Somebody else has the free one, also while the member waits for its second.
		done := make(chan error)
		go func() {
			release, err := l.Acquire(t.Context(), Member{"acme", "paris"}, time.Hour)
			if err == nil {
				release()
			}
			done <- err
		}()
		synctest.Wait()
		other, err := l.Acquire(t.Context(), Member{"acme", "lyon"}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		other()
		first()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// However many wait of one tenant, another finds a place; who gives up leaves none behind.
func TestPlacesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLine(1, 12)
		free, _ := l.Acquire(t.Context(), Member{"acme", "first"}, time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		fill := func(tenant string) (n int) {
			for ; l.Room(tenant); n++ {
				wg.Go(func() {
					if _, err := l.Acquire(ctx, Member{tenant, fmt.Sprint(n)}, time.Hour); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			if _, err := l.Acquire(t.Context(), Member{tenant, "more"}, time.Hour); !errors.Is(err, ErrFull) {
				t.Errorf("%s: %v", tenant, err)
			}
			return n
		}
		if a, b, c := fill("acme"), fill("umbrella"), fill("initech"); a != 6 || b != 3 || c < 1 {
			t.Errorf("places: %d, %d and %d", a, b, c)
		}
		cancel()
		wg.Wait()
		if _, waiting := l.Use(); waiting != 0 || len(l.tenants) != 0 || len(l.turn) != 0 {
			t.Errorf("%d wait, %v", waiting, l.tenants)
		}
		free()
		if release, err := l.Acquire(t.Context(), Member{"acme", "last"}, time.Second); err != nil {
			t.Error(err)
		} else {
			release()
		}
	})
}

// A tenant's members all wait, and each that is served comes again: what an overload costs.
func BenchmarkLine(b *testing.B) {
	const members = 3000
	l := NewLine(4, 2*members)
	var wg sync.WaitGroup
	turns := make(chan struct{}, members)
	for i := range members {
		wg.Go(func() {
			who := Member{Tenant: "acme", Name: fmt.Sprintf("paris-%d", i)}
			for range turns {
				release, err := l.Acquire(b.Context(), who, time.Hour)
				if err != nil {
					b.Error(err)
					return
				}
				release()
			}
		})
	}
	b.ResetTimer()
	for range b.N {
		turns <- struct{}{}
	}
	close(turns)
	wg.Wait()
}
