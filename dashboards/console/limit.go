package console

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

const (
	failuresBurst    = 10              // wrong tokens from one client before it counts as guessing
	failureRefill    = 6 * time.Second // one more is forgiven after this long
	allBurst         = 100             // wrong tokens from all clients together
	allRefill        = 100 * time.Millisecond
	trackedSources   = 4096 // clients with recent failures
	trackedGuesses   = 65536
	suspectReviews   = 4   // reviews at once for clients that guess
	suspectsWaiting  = 512 // of all clients together
	suspectsOfClient = 16
)

// failureLimiter counts wrong tokens, by client (an IPv6 /64 is one client) and in all.
// The same wrong token again is no new guess: a dashboard with an expired token must
// not make its neighbours suspect.
type failureLimiter struct {
	now     func() time.Time
	mu      sync.Mutex
	sources *lru.Cache[netip.Prefix, *rate.Limiter]
	counted *lru.Cache[guess, struct{}]
	all     *rate.Limiter
}

type guess struct {
	from netip.Prefix
	key  string
}

func newFailureLimiter(now func() time.Time) *failureLimiter {
	sources, err := lru.New[netip.Prefix, *rate.Limiter](trackedSources)
	if err != nil {
		panic(err) // only for a size below one
	}
	counted, err := lru.New[guess, struct{}](trackedGuesses)
	if err != nil {
		panic(err)
	}
	return &failureLimiter{now: now, sources: sources, counted: counted, all: rate.NewLimiter(rate.Every(allRefill), allBurst)}
}

func sourceOf(a netip.Addr) netip.Prefix {
	a = plain(a)
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}

// wait returns how long until a wrong token of the client would be within its budget
// and that of all, in whole seconds, rounded up; 0: it is now.
func (l *failureLimiter) wait(from netip.Addr) time.Duration {
	if !from.IsValid() {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waitLocked(sourceOf(from))
}

func (l *failureLimiter) waitLocked(p netip.Prefix) time.Duration {
	now := l.now()
	wait := until(l.all, now)
	if own, ok := l.sources.Get(p); ok {
		wait = max(wait, until(own, now))
	}
	return wait
}

func until(b *rate.Limiter, now time.Time) time.Duration {
	have := b.TokensAt(now)
	if have >= 1 {
		return 0
	}
	return time.Duration((1-have)/float64(b.Limit())+1) * time.Second
}

// failed counts a wrong token and returns how long the client should wait; 0: it was
// within the budget.
func (l *failureLimiter) failed(from netip.Addr, key string) time.Duration {
	if !from.IsValid() {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := sourceOf(from)
	if l.counted.Contains(guess{p, key}) {
		return 0
	}
	if wait := l.waitLocked(p); wait > 0 {
		return wait
	}
	l.counted.Add(guess{p, key}, struct{}{})
	own, ok := l.sources.Get(p)
	if !ok {
		own = rate.NewLimiter(rate.Every(failureRefill), failuresBurst)
		l.sources.Add(p, own)
	}
	own.AllowN(l.now(), 1)
	l.all.AllowN(l.now(), 1)
	return 0
}

var errBusy = errors.New("too many tokens of this client wait to be looked at")

// lane is where tokens of clients that guess are reviewed: a good one must get through,
// and which one is good only the API server knows. So all are reviewed, a few at once,
// one client after the other: who guesses holds up itself first.
type lane struct {
	mu      sync.Mutex
	free    int
	waiting int
	queues  map[netip.Prefix][]*turn
	order   []netip.Prefix // clients with a queue, the next one first
}

// turn is closed when it has come, or when the place was given to another client.
type turn struct {
	come    chan struct{}
	refused bool
}

func newLane() *lane { return &lane{free: suspectReviews, queues: map[netip.Prefix][]*turn{}} }

// do runs f in the lane; errBusy without running it when too many wait.
func (l *lane) do(ctx context.Context, client netip.Prefix, f func() error) error {
	if err := l.enter(ctx, client); err != nil {
		return err
	}
	defer l.leave()
	return f()
}

func (l *lane) enter(ctx context.Context, client netip.Prefix) error {
	l.mu.Lock()
	if l.free > 0 {
		l.free--
		l.mu.Unlock()
		return nil
	}
	own := l.queues[client]
	if len(own) >= suspectsOfClient || l.waiting >= suspectsWaiting && !l.displaceLocked(len(own)) {
		l.mu.Unlock()
		return errBusy
	}
	t := &turn{come: make(chan struct{})}
	if len(own) == 0 {
		l.order = append(l.order, client)
	}
	l.queues[client] = append(own, t)
	l.waiting++
	l.mu.Unlock()

	select {
	case <-t.come:
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		for i, other := range l.queues[client] {
			if other == t {
				l.removeLocked(client, i)
				return ctx.Err()
			}
		}
		if !t.refused {
			l.nextLocked() // it came at this very moment
		}
		return ctx.Err()
	}
	if t.refused {
		return errBusy
	}
	return nil
}

// displaceLocked turns away the last of the client with the longest queue, if that is
// longer than n.
func (l *lane) displaceLocked(n int) bool {
	var longest netip.Prefix
	for client, q := range l.queues {
		if len(q) > len(l.queues[longest]) {
			longest = client
		}
	}
	last := len(l.queues[longest]) - 1
	if last < n+1 {
		return false
	}
	t := l.queues[longest][last]
	l.removeLocked(longest, last)
	t.refused = true
	close(t.come)
	return true
}

func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextLocked()
}

// nextLocked hands a place that became free to the client whose turn it is.
func (l *lane) nextLocked() {
	if len(l.order) == 0 {
		l.free++
		return
	}
	client := l.order[0]
	t := l.queues[client][0]
	l.removeLocked(client, 0)
	if len(l.queues[client]) > 0 {
		l.order = append(l.order[1:], client)
	}
	close(t.come)
}

func (l *lane) removeLocked(client netip.Prefix, i int) {
	q := l.queues[client]
	q = append(q[:i:i], q[i+1:]...)
	l.waiting--
	if len(q) > 0 {
		l.queues[client] = q
		return
	}
	delete(l.queues, client)
	for i, c := range l.order {
		if c == client {
			l.order = append(l.order[:i:i], l.order[i+1:]...)
			return
		}
	}
}
