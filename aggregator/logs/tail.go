package logs

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"muster.dev/muster/internal/sse"
	"muster.dev/muster/internal/wire"
)

const (
	tailEventBytes = 4 << 20 // of one event of a regional; theirs end at 1 MiB, or at one record
	pendingBytes   = 4 << 20 // of hits that wait for the next event
	flushEvery     = 250 * time.Millisecond
	settleWithin   = 3 * time.Second // for the first word of each region, before the answer begins
	backoffMin     = time.Second
	backoffMax     = 30 * time.Second
)

// news is what a region's follower tells the tail.
type news struct {
	region string
	cursor string // where the region's tail stands after this
	hits   []wire.LogHit
	down   error // the region can't be followed now; nil: it is
}

// Tail follows the records of one tenant that the caller has authorised, until ctx ends or
// send fails. It looks at neither Limit nor Cursor of the query. A problem means that
// nothing was sent.
//
// Each call of send has hits, oldest first within a call, or the regions that are missing,
// once all have been asked and whenever that changes; or neither, at once when the tail
// begins and then now and then while it is quiet. Its id, handed back as after, goes on where the
// tail was, in each region; empty: now. A region that comes back goes on where it was
// lost; one that was never reached starts when it is.
func (c *Client) Tail(ctx context.Context, tenant string, q wire.LogQuery, after string, send func(id string, ev wire.LogEvent) error) *wire.Problem {
	req, p := check(q, tenant, c.opts.Now())
	if p != nil {
		return p
	}
	id, err := decodeTail(after)
	if err != nil {
		return wire.Invalid(wire.FieldError{Field: "Last-Event-ID", Detail: "is not an id of this stream: connect without it"})
	}
	if p := enter(c.tails, tenant, "live tails"); p != nil {
		return p
	}
	defer c.tails.Give(tenant)
	c.open.Inc()
	defer c.open.Dec()

	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	t := &tail{c: c, send: send, id: tailID{}, state: map[string]error{}, in: make(chan news)}
	for _, reg := range c.opts.Regionals {
		if at, ok := id[reg.Name]; ok {
			t.id[reg.Name] = at
		}
	}
	for _, reg := range c.opts.Regionals {
		at := t.id[reg.Name]
		wg.Go(func() { c.follow(ctx, tenant, reg, req, at, t.in) })
	}
	return t.run(ctx)
}

// tail is one reader's.
type tail struct {
	c       *Client
	send    func(id string, ev wire.LogEvent) error
	in      chan news
	id      tailID
	state   map[string]error // by region that has been asked; nil: it is followed
	pending []wire.LogHit
	size    int
	told    []wire.MissingRegion // nil: not yet
}

func (t *tail) run(ctx context.Context) *wire.Problem {
	if p := t.settle(ctx); p != nil {
		return p
	}
	// What has come in first: an id stands for all before it.
	if t.hits() != nil || t.send(encode(t.id), wire.LogEvent{}) != nil || t.missing() != nil {
		return nil
	}
	flush, alive := time.NewTicker(flushEvery), time.NewTicker(t.c.opts.KeepAlive)
	defer flush.Stop()
	defer alive.Stop()
	for {
		in := t.in
		if t.size >= pendingBytes {
			in = nil // the reader first
		}
		var err error
		select {
		case <-ctx.Done():
			return nil
		case n := <-in:
			t.take(n)
			continue
		case <-alive.C:
			// An id without data moves the reader's position and shows it nothing.
			if err = t.hits(); err == nil {
				err = t.send(encode(t.id), wire.LogEvent{})
			}
		case <-flush.C:
			if err = t.hits(); err == nil {
				err = t.missing()
			}
		}
		if err != nil {
			return nil
		}
	}
}

// settle waits for the first word of every region, not for long. It returns a problem if
// all say that the question is wrong.
func (t *tail) settle(ctx context.Context) *wire.Problem {
	timeout := time.NewTimer(settleWithin)
	defer timeout.Stop()
	for len(t.state) < len(t.c.opts.Regionals) && t.size < pendingBytes {
		select {
		case <-ctx.Done():
			return nil
		case <-timeout.C:
			return nil
		case n := <-t.in:
			t.take(n)
		}
	}
	var wrong *wire.Problem
	for _, err := range t.state {
		var p *wire.Problem
		if !errors.As(err, &p) || p.Status != http.StatusBadRequest && p.Status != http.StatusNotFound {
			return nil
		}
		wrong = p
	}
	return wrong
}

func (t *tail) take(n news) {
	if n.cursor != "" {
		t.id[n.region] = n.cursor
	}
	t.state[n.region] = n.down
	for i := range n.hits {
		t.size += n.hits[i].Size()
	}
	t.pending = append(t.pending, n.hits...)
}

// missing sends the list if it has changed, and when every region has been heard of.
// What has come in goes first, so that the id is right.
func (t *tail) missing() error {
	reasons := map[string]wire.MissingRegion{}
	for region, err := range t.state {
		if err != nil {
			for _, name := range t.c.regional(region).names() {
				reasons[name] = wire.MissingRegion{Region: name, Reason: t.c.reason(err)}
			}
		}
	}
	if t.told == nil && len(reasons) == 0 && len(t.state) < len(t.c.opts.Regionals) {
		return nil
	}
	list := missingList(reasons)
	if t.told != nil && slices.Equal(list, t.told) {
		return nil
	}
	if err := t.hits(); err != nil {
		return err
	}
	t.told = list
	return t.send(encode(t.id), wire.LogEvent{MissingRegions: list})
}

// hits sends what has come in.
func (t *tail) hits() error {
	if len(t.pending) == 0 {
		return nil
	}
	hits := t.pending
	t.pending, t.size = nil, 0
	slices.SortStableFunc(hits, func(a, b wire.LogHit) int { return a.Compare(&b) })
	return t.send(encode(t.id), wire.LogEvent{Hits: hits})
}

// follow keeps a region's tail open until ctx ends: when it is lost it says why, and
// tries again after a while that grows; the next time by the next way to its store.
func (c *Client) follow(ctx context.Context, tenant string, r Regional, req *request, at string, out chan<- news) {
	wait := backoffMin
	tell := func(n news) bool {
		n.region = r.Name
		select {
		case out <- n:
			return true
		case <-ctx.Done():
			return false
		}
	}
	ways := r.ways()
	for n := 0; ctx.Err() == nil; n++ {
		heard := false
		err := c.followOnce(ctx, tenant, ways[n%len(ways)], req, at, func(n news) bool {
			heard, at = true, n.cursor
			return tell(n)
		})
		c.count(ctx, r.Name, "tail", err)
		if heard {
			wait = backoffMin
		}
		if !tell(news{down: err}) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait/2 + rand.N(wait)):
		}
		wait = min(2*wait, backoffMax)
	}
}

// followOnce reads one stream to its end, which is always an error.
func (c *Client) followOnce(parent context.Context, tenant string, r Regional, req *request, at string, tell func(news) bool) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	// A region that accepts and then says nothing, or only crumbs, is no better than one that is gone.
	watchdog := time.AfterFunc(c.opts.PerRegionTimeout, func() { cancel(context.DeadlineExceeded) })
	defer watchdog.Stop()
	q := req.values()
	if at != "" {
		q.Set("after", at)
	}
	res, err := c.get(ctx, r, tenant, pathTail, q, "text/event-stream")
	if err != nil {
		return cause(ctx, err)
	}
	defer res.Body.Close()
	for in := sse.NewReader(res.Body, tailEventBytes); ; {
		ev, err := in.Next()
		if errors.Is(err, sse.ErrTooLarge) {
			return &garbage{err}
		}
		if err != nil {
			return cause(ctx, err)
		}
		watchdog.Stop() // while the reader makes us wait
		n := news{cursor: ev.ID}
		switch ev.Name {
		case "hits":
			if n.hits, err = decodeHits([]byte(ev.Data), tenant); err != nil {
				return &garbage{err}
			}
		case "trouble":
			var t struct{ Detail string }
			if json.Unmarshal([]byte(ev.Data), &t) != nil || t.Detail == "" {
				t.Detail = "its log store can't answer now"
			}
			return wire.Failure(http.StatusServiceUnavailable, "%s", clean(t.Detail))
		}
		if ev.ID == "" || len(ev.ID) > maxPositionBytes {
			return &garbage{errors.New("an event without a usable id")}
		}
		if !tell(n) {
			return parent.Err()
		}
		watchdog.Reset(c.opts.TailIdle)
	}
}

// cause prefers why we gave up to how that looked.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
