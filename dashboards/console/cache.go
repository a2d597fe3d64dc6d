package console

import (
	"context"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"golang.org/x/sync/singleflight"
)

// reviewTimeout bounds one question to the API server.
const reviewTimeout = 10 * time.Second

// reviewCache remembers the API server's answers for seconds, bounded in number,
// and asks once for however many requests wait for the same answer.
//
// While the API server can't be asked, good answers are believed for grace longer:
// operators must be able to watch the fleet while the control plane is down.
type reviewCache[V any] struct {
	entries *lru.Cache[string, reviewed[V]]
	refused *lru.Cache[string, reviewed[V]] // apart, so that no flood of wrong tokens pushes out the good
	flight  singleflight.Group
	now     func() time.Time
	grace   time.Duration
	// ttl says how long an answer is believed, and whether it is a good one.
	ttl func(V) (_ time.Duration, good bool)
}

type reviewed[V any] struct {
	value V
	until time.Time
}

func newReviewCache[V any](size int, now func() time.Time, grace time.Duration, ttl func(V) (time.Duration, bool)) *reviewCache[V] {
	entries, err := lru.New[string, reviewed[V]](size)
	if err != nil {
		panic(err) // only for a size below one
	}
	refused, err := lru.New[string, reviewed[V]](size)
	if err != nil {
		panic(err)
	}
	return &reviewCache[V]{entries: entries, refused: refused, now: now, grace: grace, ttl: ttl}
}

// taken is an answer, and how long it took to get.
type taken[V any] struct {
	value V
	took  time.Duration
}

// goodFor is how long it is believed: what is dear to get is not asked for all the time,
// whoever made it dear.
func (t taken[V]) goodFor(least time.Duration) time.Duration { return max(least, 20*t.took) }

// timed asks, and sees how long that takes.
func timed[V any](ask func(context.Context) (V, error)) func(context.Context) (taken[V], error) {
	return func(ctx context.Context) (taken[V], error) {
		began := time.Now()
		v, err := ask(ctx)
		return taken[V]{v, time.Since(began)}, err
	}
}

// fresh returns an answer that is still believed.
func (c *reviewCache[V]) fresh(key string) (V, bool) {
	for _, m := range []*lru.Cache[string, reviewed[V]]{c.entries, c.refused} {
		if e, ok := m.Get(key); ok && c.now().Before(e.until) {
			return e.value, true
		}
	}
	var none V
	return none, false
}

// wasGood tells whether the last answer that we remember was a good one, however old.
func (c *reviewCache[V]) wasGood(key string) bool { return c.entries.Contains(key) }

func (c *reviewCache[V]) keep(key string, v V) {
	to, from := c.entries, c.refused
	ttl, good := c.ttl(v)
	if !good {
		to, from = from, to
	}
	from.Remove(key)
	to.Add(key, reviewed[V]{v, c.now().Add(ttl)})
}

// get returns the cached answer or asks. The question outlives ctx, because others
// may wait for it; the waiting doesn't.
func (c *reviewCache[V]) get(ctx context.Context, key string, ask func(context.Context) (V, error)) (V, error) {
	if v, ok := c.fresh(key); ok {
		return v, nil
	}
	done := c.flight.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		v, err := ask(ctx)
		if err != nil {
			return c.stale(key, v, err)
		}
		c.keep(key, v)
		return v, nil
	})
	select {
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	case res := <-done:
		return res.Val.(V), res.Err
	}
}

// stale returns the last answer if it was good, is not too old, and the question
// failed for want of an API server rather than for want of rights.
func (c *reviewCache[V]) stale(key string, none V, err error) (V, error) {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return none, err
	}
	if e, ok := c.entries.Get(key); ok {
		if c.now().Before(e.until.Add(c.grace)) {
			return e.value, nil
		}
	}
	return none, err
}
