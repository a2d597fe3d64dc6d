package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/storage"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/wire"
)

// slowEngine takes its time for each commit, and counts how many are at it at once.
type slowEngine struct {
	storage.Appendable
	pause    time.Duration
	at, most atomic.Int32
}

type slowAppender struct {
	storage.Appender
	e *slowEngine
}

func (e *slowEngine) Appender(ctx context.Context) storage.Appender {
	return &slowAppender{e.Appendable.Appender(ctx), e}
}

func (a *slowAppender) Commit() error {
	n := a.e.at.Add(1)
	for m := a.e.most.Load(); n > m && !a.e.most.CompareAndSwap(m, n); m = a.e.most.Load() {
	}
	<-time.After(a.e.pause)
	a.e.at.Add(-1)
	return a.Appender.Commit()
}

// TestManyPushersOnASlowEngine: hundreds of sites begin at once on an engine that takes
// only so much. None times out, what can't wait is told when to come back, all is taken in
// the end, memory stays in its bounds, and a tenant of few sites is not behind one of many.
func TestManyPushersOnASlowEngine(t *testing.T) {
	const many, few, working, waiting = 290, 10, 4, 64
	slow := &slowEngine{pause: 4 * time.Millisecond}
	h := newHarness(t, harnessOptions{limits: unlimited, forward: 1 << 30, change: func(o *Options) {
		slow.Appendable = o.Edge
		o.Edge, o.Working, o.Waiting, o.Patience = slow, working, waiting, 200*time.Millisecond
	}})
	body := remotewrite.EncodeV2(siteSeries(100, time.Now()))
	var refused, done, before, longest atomic.Int64
	push := func(id fleet.SiteID, took func()) {
		for {
			at := time.Now()
			w := pushTo(h.g, id, body)
			if d := int64(time.Since(at)); d > longest.Load() {
				longest.Store(d)
			}
			switch w.Code {
			case http.StatusNoContent:
				took()
				return
			case http.StatusTooManyRequests:
				refused.Add(1)
				if s, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || s < 1 {
					t.Errorf("Retry-After: %q", w.Header().Get("Retry-After"))
				}
				<-time.After(20 * time.Millisecond) // the test has no seconds
			default:
				t.Errorf("%s: %d %s", id, w.Code, w.Body)
				return
			}
		}
	}
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() { push(fleet.SiteID{Tenant: "acme", Name: fmt.Sprint("site-", i)}, func() { done.Add(1) }) })
	}
	for i := range few {
		wg.Go(func() {
			push(fleet.SiteID{Tenant: "umbrella", Name: fmt.Sprint("site-", i)}, func() { before.Store(max(before.Load(), done.Load())) })
		})
	}
	wg.Wait()
	st := h.g.Status()
	t.Logf("%d refusals, the longest answer took %s; the few were done after %d of the many; memory %+v", refused.Load(), time.Duration(longest.Load()), before.Load(), st.Memory)
	if got := slow.most.Load(); got > working {
		t.Errorf("%d commits at once, want %d at most", got, working)
	}
	if n := h.edge.HeadSeries(); n != (many+few)*100 {
		t.Errorf("%d series in the head", n)
	}
	if st.Memory.Peak > (waiting+working+many)*firstRead*2 || st.Memory.Used != 0 || st.Pushes != (Pushes{}) {
		t.Errorf("%+v", st)
	}
	if refused.Load() == 0 {
		t.Error("nobody was told to wait: the test shows nothing")
	}
	// Even where they begin last, on a machine that does other things too.
	if n := before.Load(); n > many*9/10 {
		t.Errorf("ten sites of one tenant were done when %d of %d of another were", n, many)
	}
	if len(st.Limited) != 0 {
		t.Errorf("sites are blamed for it: %v", st.Limited)
	}
}

// stuckEngine holds up commits until it is let go.
type stuckEngine struct {
	storage.Appendable
	in, out chan struct{}
}

type stuckAppender struct {
	storage.Appender
	e *stuckEngine
}

func (e *stuckEngine) Appender(ctx context.Context) storage.Appender {
	return &stuckAppender{e.Appendable.Appender(ctx), e}
}

func (a *stuckAppender) Commit() error {
	a.e.in <- struct{}{}
	<-a.e.out
	return a.Appender.Commit()
}

// TestTheLiveViewWaitsForNoPush: with a push stuck in the engine, the live view and the
// site's stream go on.
func TestTheLiveViewWaitsForNoPush(t *testing.T) {
	stuck := &stuckEngine{in: make(chan struct{}), out: make(chan struct{})}
	h := newHarness(t, harnessOptions{limits: unlimited, change: func(o *Options) {
		stuck.Appendable = o.Edge
		o.Edge = stuck
	}})
	pushed := make(chan int)
	go func() { pushed <- pushTo(h.g, paris, remotewrite.EncodeV2(siteSeries(3, time.Now()))).Code }()
	<-stuck.in
	seen := make(chan []wire.SiteLive)
	go func() { seen <- slices.Collect(h.g.Live()) }()
	select {
	case live := <-seen:
		if len(live) != 1 || live[0].Region != "eu-west" {
			t.Errorf("%+v", live)
		}
	case <-time.After(20 * time.Second):
		t.Error("the live view waits for a push")
	}
	close(stuck.out)
	if code := <-pushed; code != http.StatusNoContent {
		t.Error(code)
	}
}

// TestTheLiveViewWaitsForNoLock: whoever holds the lock of a site may have to wait for a processor
// behind thousands of others.
func TestTheLiveViewWaitsForNoLock(t *testing.T) {
	g := bareGateway(time.Now, &upstream{}, nil)
	s := g.acquire(paris)
	s.mu.Lock()
	s.live.region = "eu-west"
	s.showLocked()
	defer s.mu.Unlock()
	s.series.Lock()
	defer s.series.Unlock()
	seen := make(chan *httptest.ResponseRecorder)
	go func() {
		w := httptest.NewRecorder()
		g.LiveHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, wire.LivePath, nil))
		seen <- w
	}()
	select {
	case w := <-seen:
		v, err := wire.DecodeLiveView(w.Body.Bytes(), "one")
		if err != nil || len(v.Sites) != 1 || v.Sites[0].Region != "eu-west" {
			t.Errorf("%+v, %v", v, err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the live view waits for a lock")
	}
}
