package console

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestFailureLimiterAddresses(t *testing.T) {
	l := newFailureLimiter(func() time.Time { return time.Unix(0, 0) })
	fail := func(addr string, n int) {
		for i := range n {
			if l.failed(netip.MustParseAddr(addr), fmt.Sprint(addr, i)) != 0 {
				t.Errorf("%s: limited after %d", addr, i)
			}
		}
	}
	fail("2001:db8::1", 5)
	fail("2001:db8::ffff:2", 5)
	fail("192.0.2.1", 9)
	fail("::ffff:192.0.2.1", 1)
	for addr, limited := range map[string]bool{"2001:db8::9": true, "2001:db8:0:1::1": false, "192.0.2.1": true, "192.0.2.2": false} {
		if got := l.wait(netip.MustParseAddr(addr)) > 0; got != limited {
			t.Errorf("%s: limited %t, want %t", addr, got, limited)
		}
	}
	if l.wait(netip.Addr{}) != 0 {
		t.Error("no address is limited")
	}
	// The same wrong token again is no guess, also when two take turns.
	for range 50 {
		for _, key := range []string{"one", "two"} {
			if l.failed(netip.MustParseAddr("192.0.2.7"), key) != 0 {
				t.Error("a forgotten token is taken for a guess")
			}
		}
	}
}

// Wrong tokens from very many addresses are limited in all.
func TestGuessesFromManyAddresses(t *testing.T) {
	now := time.Unix(0, 0)
	l := newFailureLimiter(func() time.Time { return now })
	passed := 0
	for i := range 5000 {
		if l.failed(netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 0, 0, byte(i >> 8), byte(i)}), fmt.Sprint(i)) == 0 {
			passed++
		}
	}
	if passed != allBurst {
		t.Errorf("%d wrong tokens of 5000 addresses were within the budget, want %d", passed, allBurst)
	}
	now = now.Add(10 * time.Second)
	if l.wait(netip.MustParseAddr("192.0.2.1")) != 0 {
		t.Error("it never ends")
	}
}

// From inside the console: a flood of wrong tokens from everywhere, and a good one.
func TestGoodTokensPassAFlood(t *testing.T) {
	h := newHarness(t)
	wrong := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}) }
	ctx := context.Background()
	for i := range 2 * allBurst {
		_, err := h.con.auth.review(ctx, fmt.Sprint("guess-", i), wrong(i))
		if code := asProblem(err, "").Status; (code == 401) != (i < allBurst) || code != 401 && code != 429 {
			t.Fatalf("guess %d: %d", i, code)
		}
	}
	for _, from := range []string{"203.0.113.1", "198.51.0.1"} {
		if _, err := h.con.auth.review(ctx, "token-alice", netip.MustParseAddr(from)); err != nil {
			t.Errorf("from %s: %v", from, err)
		}
	}
	for i := range 3 * cachedTokens { // known ones stay known
		h.con.auth.cache.keep(fmt.Sprint(i), verdict{})
	}
	h.api.setDown(true)
	h.clock.advance(time.Minute)
	if _, err := h.con.auth.review(ctx, "token-alice", netip.MustParseAddr("203.0.113.1")); err != nil {
		t.Errorf("a flood of wrong tokens has pushed out the good: %v", err)
	}
}

func client(i int) netip.Prefix {
	return sourceOf(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
}

// The lane is fair: who has one token to look at waits for a handful, not for all that
// another client sent.
func TestLaneTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane()
		start := time.Now()
		took := func() time.Duration { return time.Since(start) }
		ask := func(c int) error {
			return l.do(t.Context(), client(c), func() error { time.Sleep(time.Second); return nil })
		}
		busy := 0
		var done [3]time.Duration
		for range suspectReviews + suspectsOfClient + 5 {
			go func() {
				if errors.Is(ask(0), errBusy) {
					busy++
				}
				done[0] = max(done[0], took())
			}()
		}
		synctest.Wait()
		for i := 1; i <= 2; i++ {
			go func() {
				if err := ask(i); err != nil {
					t.Error(err)
				}
				done[i] = took()
			}()
		}
		time.Sleep(time.Hour)
		if busy != 5 || done[1] != 2*time.Second || done[2] != 2*time.Second || done[0] != 6*time.Second {
			t.Errorf("%d were turned away; clients were done after %v", busy, done)
		}
		if l.free != suspectReviews || l.waiting != 0 || len(l.queues)+len(l.order) != 0 {
			t.Errorf("left behind: %+v", l)
		}
	})
}

// When all places are taken, a newcomer gets one of the client that has most.
func TestLaneIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane()
		ctx, cancel := context.WithCancel(t.Context())
		ask := func(ctx context.Context, c int) chan error {
			out := make(chan error, 1)
			go func() {
				out <- l.do(ctx, client(c), func() error { time.Sleep(time.Minute); return nil })
			}()
			return out
		}
		var all []chan error
		for range suspectReviews {
			all = append(all, ask(ctx, 2000))
		}
		synctest.Wait()
		for c := range suspectsWaiting / suspectsOfClient {
			for range suspectsOfClient {
				all = append(all, ask(ctx, c))
			}
		}
		synctest.Wait()
		if l.waiting != suspectsWaiting {
			t.Fatalf("%d wait", l.waiting)
		}
		quiet := ask(t.Context(), 1000)
		synctest.Wait()
		if l.waiting != suspectsWaiting || len(l.queues[client(1000)]) != 1 {
			t.Errorf("%d wait, %d of the newcomer", l.waiting, len(l.queues[client(1000)]))
		}
		cancel()
		time.Sleep(time.Hour)
		if err := <-quiet; err != nil {
			t.Errorf("the newcomer: %v", err)
		}
		refused := 0
		for _, c := range all {
			if errors.Is(<-c, errBusy) {
				refused++
			}
		}
		if refused != 1 {
			t.Errorf("%d were turned away for one newcomer", refused)
		}
		if l.free != suspectReviews || l.waiting != 0 || len(l.queues)+len(l.order) != 0 {
			t.Errorf("left behind: free %d, %d wait, %d queues, %d in order", l.free, l.waiting, len(l.queues), len(l.order))
		}
	})
}
