package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
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

// ServeTail follows the records of one tenant that the caller has authorised, for as
// long as the request's context lives, as server-sent events: "hits" {hits: […]}, oldest first
// within an event; "missing" {missingRegions: […]}, once all regions have been asked and
// whenever it changes. The id of an event, handed back in Last-Event-ID, goes on where the tail
// was, in each region. A region that comes back goes on where it was lost; one that was
// never reached starts when it is.
//
// r carries the parameters query, from, to, virtualSite, site, namespace and severity.
func (c *Client) ServeTail(w http.ResponseWriter, r *http.Request, tenant string) {
	in, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		wire.Invalid(wire.FieldError{Field: "query string", Detail: err.Error()}).Write(w)
		return
	}
	req, p := parse(in, tailNames, tenant, c.opts.Now())
	if p != nil {
		p.Write(w)
		return
	}
	id, err := decodeTail(r.Header.Get("Last-Event-ID"))
	if err != nil {
		wire.Invalid(wire.FieldError{Field: "Last-Event-ID", Detail: "is not an id of this stream: connect without it"}).Write(w)
		return
	}
	if !enter(w, c.tails, "live tails") {
		return
	}
	defer func() { <-c.tails }()
	c.open.Inc()
	defer c.open.Dec()

	ctx, cancel := context.WithCancel(r.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	t := &tail{c: c, w: w, ctl: http.NewResponseController(w), id: tailID{}, state: map[string]error{}, in: make(chan news)}
	for _, reg := range c.opts.Regionals {
		if at, ok := id[reg.Name]; ok {
			t.id[reg.Name] = at
		}
	}
	for _, reg := range c.opts.Regionals {
		at := t.id[reg.Name]
		wg.Go(func() { c.follow(ctx, tenant, reg, req, at, t.in) })
	}
	t.run(ctx)
}

// tail is one reader's.
type tail struct {
	c       *Client
	w       http.ResponseWriter
	ctl     *http.ResponseController
	in      chan news
	id      tailID
	state   map[string]error // by region that has been asked; nil: it is followed
	pending []wire.LogHit
	size    int
	told    []byte // the last "missing" event
	buf     bytes.Buffer
}

func (t *tail) run(ctx context.Context) {
	if !t.settle(ctx) {
		return
	}
	t.w.Header().Set("Content-Type", "text/event-stream")
	t.w.Header().Set("Cache-Control", "no-store")
	t.buf.WriteString("retry: 2000\n\n")
	t.missing()
	if !t.send() {
		return
	}
	flush, alive := time.NewTicker(flushEvery), time.NewTicker(t.c.opts.KeepAlive)
	defer flush.Stop()
	defer alive.Stop()
	for {
		in := t.in
		if t.size >= pendingBytes {
			in = nil // the reader first
		}
		select {
		case <-ctx.Done():
			return
		case n := <-in:
			t.take(n)
			continue
		case <-alive.C:
			// An id without data moves the reader's position and shows it nothing.
			fmt.Fprintf(&t.buf, ": alive\nid: %s\n\n", t.safeID())
		case <-flush.C:
			t.missing()
			t.hits()
		}
		if !t.send() {
			return
		}
	}
}

// settle waits for the first word of every region, not for long. When all say that the
// question is wrong it answers so, and returns false.
func (t *tail) settle(ctx context.Context) bool {
	timeout := time.NewTimer(settleWithin)
	defer timeout.Stop()
	for len(t.state) < len(t.c.opts.Regionals) && t.size < pendingBytes {
		select {
		case <-ctx.Done():
			return false
		case <-timeout.C:
			return true
		case n := <-t.in:
			t.take(n)
		}
	}
	var wrong *wire.Problem
	for _, err := range t.state {
		var p *wire.Problem
		if !errors.As(err, &p) || p.Status != http.StatusBadRequest && p.Status != http.StatusNotFound {
			return true
		}
		wrong = p
	}
	if wrong == nil {
		return true
	}
	wrong.Write(t.w)
	return false
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

// missing writes the event if the list has changed, and when every region has been heard of.
func (t *tail) missing() {
	reasons := map[string]string{}
	for region, err := range t.state {
		if err != nil {
			for _, name := range t.c.regional(region).names() {
				reasons[name] = t.c.reason(err)
			}
		}
	}
	if t.told == nil && len(reasons) == 0 && len(t.state) < len(t.c.opts.Regionals) {
		return
	}
	b, err := json.Marshal(map[string][]wire.MissingRegion{"missingRegions": missingList(reasons)})
	if err != nil || bytes.Equal(b, t.told) {
		return
	}
	t.told = b
	fmt.Fprintf(&t.buf, "event: missing\nid: %s\ndata: %s\n\n", t.safeID(), b)
}

// safeID is the position without what is not sent yet.
func (t *tail) safeID() string {
	t.hits()
	return encode(t.id)
}

// hits writes what has come in.
func (t *tail) hits() {
	if len(t.pending) == 0 {
		return
	}
	slices.SortStableFunc(t.pending, func(a, b wire.LogHit) int { return a.Compare(&b) })
	b, err := json.Marshal(map[string][]wire.LogHit{"hits": t.pending})
	t.pending, t.size = nil, 0
	if err != nil {
		t.c.log.Error("log tail: hits can't be encoded", "err", err)
		return
	}
	fmt.Fprintf(&t.buf, "event: hits\nid: %s\ndata: %s\n\n", encode(t.id), b)
}

func (t *tail) send() bool {
	if t.buf.Len() == 0 {
		return true
	}
	_, err := t.w.Write(t.buf.Bytes())
	t.buf.Reset()
	return err == nil && t.ctl.Flush() == nil
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
