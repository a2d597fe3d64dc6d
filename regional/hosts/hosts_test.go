package hosts

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

func acme(name string) fleet.SiteID { return fleet.SiteID{Tenant: "acme", Name: name} }

// stream is a site's end of a stream, which ends with its context.
type stream struct {
	ctx  context.Context
	in   chan *wire.TunnelData // what the site says
	out  chan *wire.TunnelData // what it hears; nil: it takes nothing
	dead context.CancelFunc
}

func newStream(ctx context.Context, out chan *wire.TunnelData) *stream {
	s := &stream{in: make(chan *wire.TunnelData), out: out}
	s.ctx, s.dead = context.WithCancel(ctx)
	return s
}

func (s *stream) Send(m *wire.TunnelData) error {
	select {
	case s.out <- m:
		return nil
	case <-s.ctx.Done():
		return io.EOF
	}
}

func (s *stream) Recv() (*wire.TunnelData, error) {
	select {
	case m := <-s.in:
		return m, nil
	case <-s.ctx.Done():
		return nil, io.EOF
	}
}

// sites answer as answer says.
type sites struct {
	b      *Broker
	answer func(site fleet.SiteID, id string)
}

func (s *sites) OpenHost(site fleet.SiteID, id, _ string) bool {
	go s.answer(site, id)
	return true
}

// world is a Broker below which berlin serves shop/db to all others.
type world struct {
	*Broker
	*sites
	mu        sync.Mutex
	withdrawn bool
}

func newWorld(o Options) *world {
	w := &world{}
	o.Providers = func(_ fleet.SiteID, host string) ([]Provider, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return []Provider{{Site: "berlin"}}, host == "shop/db" && !w.withdrawn
	}
	w.Broker = New(o)
	w.sites = &sites{b: w.Broker}
	return w
}

// reach opens a connection from a site and returns what becomes of it.
func (w *world) reach(ctx context.Context, from string, s *stream) chan error {
	ended := make(chan error, 1)
	go func() {
		ended <- w.Reach(ctx, w.sites, acme(from), "shop/db", s)
		s.dead()
	}()
	return ended
}

// drained is where a site hears all it is told.
func drained(ctx context.Context) chan *wire.TunnelData {
	c := make(chan *wire.TunnelData)
	go func() {
		for {
			select {
			case <-c:
			case <-ctx.Done():
				return
			}
		}
	}()
	return c
}

// A site that answers and then takes nothing, not even the word that the other end is
// there, holds neither places of the site that reaches it nor a connection that is
// withdrawn.
func TestSiteThatTakesNothing(t *testing.T) {
	for name, end := range map[string]struct {
		by   func(w *world, hangUp func())
		want codes.Code
	}{
		"the other end hangs up": {func(_ *world, hangUp func()) { hangUp() }, codes.OK},
		"it is withdrawn": {func(w *world, _ func()) {
			w.mu.Lock()
			w.withdrawn = true
			w.mu.Unlock()
			w.Recheck()
		}, codes.PermissionDenied},
		"nothing passes": {func(*world, func()) { time.Sleep(time.Hour) }, codes.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Options{})
				answered := make(chan error, 1)
				w.answer = func(site fleet.SiteID, id string) {
					s := newStream(t.Context(), nil)
					answered <- w.Answer(s.ctx, site, id, "", s)
					s.dead()
				}
				ctx, hangUp := context.WithCancel(t.Context())
				ended := w.reach(ctx, "paris", newStream(ctx, drained(ctx)))
				synctest.Wait()
				end.by(w, hangUp)
				if err := <-ended; status.Code(err) != end.want {
					t.Errorf("%v, want %s", err, end.want)
				}
				<-answered
				synctest.Wait()
				if len(w.held()) > 0 || len(w.pairs) > 0 || len(w.pending) > 0 {
					t.Errorf("still held: %v, %v", w.held(), w.pairs)
				}
				hangUp()
			})
		})
	}
}

func (w *world) held() map[fleet.SiteID]int { return w.Broker.sites }

// One site that opens all the connections it can, and even while they are only asked for,
// leaves places to the others.
func TestOneSiteLeavesPlaces(t *testing.T) {
	for _, answers := range []bool{true, false} {
		t.Run(fmt.Sprintf("answers=%t", answers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Options{SiteConnections: 64})
				ctx, stop := context.WithCancel(t.Context())
				w.answer = func(site fleet.SiteID, id string) {
					if answers {
						s := newStream(ctx, drained(ctx))
						_ = w.Answer(ctx, site, id, "", s)
						s.dead()
					}
				}
				var all []chan error
				for range 200 {
					all = append(all, w.reach(ctx, "greedy", newStream(ctx, drained(ctx))))
				}
				synctest.Wait()
				if n := w.pairs[pair{acme("greedy"), acme("berlin")}]; n < 32 || n > 52 {
					t.Errorf("the greedy one has %d places of 64", n)
				}
				for i := range 4 {
					all = append(all, w.reach(ctx, fmt.Sprint("site-", i), newStream(ctx, drained(ctx))))
				}
				synctest.Wait()
				for i := range 4 {
					if n := w.pairs[pair{acme(fmt.Sprint("site-", i)), acme("berlin")}]; n != 1 {
						t.Errorf("site %d has %d places", i, n)
					}
				}
				stop()
				refused := 0
				for _, ended := range all {
					if err := <-ended; err != nil && strings.Contains(err.Error(), "may have") {
						refused++
					}
				}
				if refused < 140 {
					t.Errorf("%d were refused in words", refused)
				}
				if len(w.pairs) > 0 || len(w.held()) > 0 {
					t.Errorf("still held: %v", w.pairs)
				}
			})
		})
	}
}

// A flood of messages with next to nothing in them is held to what the tenant's bytes allow.
func TestSmallMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Options{TenantBytesPerSecond: 1 << 20})
		ctx, stop := context.WithCancel(t.Context())
		heard := make(chan *wire.TunnelData)
		w.answer = func(site fleet.SiteID, id string) {
			s := newStream(ctx, heard)
			_ = w.Answer(ctx, site, id, "", s)
			s.dead()
		}
		from := newStream(ctx, drained(ctx))
		ended := w.reach(ctx, "paris", from)
		<-heard
		go func() {
			for {
				select {
				case from.in <- &wire.TunnelData{}:
				case <-ctx.Done():
					return
				}
			}
		}()
		const seconds = 3
		const want = (burst + seconds<<20) / perMessage
		n, until := 0, time.After(seconds*time.Second)
		for over := false; !over && n <= want+1; {
			select {
			case <-heard:
				n++
			case <-until:
				over = true
			}
		}
		if n > want+1 || n < want/2 {
			t.Errorf("%d messages in %d s, want %d at most", n, seconds, want)
		}
		stop()
		<-ended
	})
}
