package members

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"muster.dev/muster/alerting/logrules"
)

// document is a State of one document.
type document struct {
	mu      sync.Mutex
	value   []byte
	version int
	down    error
	puts    int
}

func (d *document) Get(context.Context, string) ([]byte, string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.down != nil:
		return nil, "", d.down
	case d.version == 0:
		return nil, "", logrules.ErrNoState
	}
	return d.value, fmt.Sprint(d.version), nil
}

func (d *document) Put(_ context.Context, _ string, value []byte, version string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down != nil {
		return "", d.down
	}
	if d.version > 0 && version != fmt.Sprint(d.version) || d.version == 0 && version != "" {
		return "", logrules.ErrConflict
	}
	d.value, d.version, d.puts = value, d.version+1, d.puts+1
	return fmt.Sprint(d.version), nil
}

func (d *document) Delete(context.Context, string, string) error { return errors.New("not asked for") }

func (d *document) set(f func()) { d.mu.Lock(); defer d.mu.Unlock(); f() }

func TestMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		store := &document{down: errors.New("away")}
		var failures int
		lists := map[string]*List{}
		stops := map[string]context.CancelFunc{}
		for _, name := range []string{"one", "two"} {
			l := New(name, store)
			lists[name] = l
			c, stop := context.WithCancel(ctx)
			stops[name] = stop
			wg.Go(func() { _ = l.Run(c, func(error) { store.set(func() { failures++ }) }) })
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if lists["one"].Known() || lists["one"].Has("one") || failures == 0 {
			t.Errorf("known while the store is away, %d failures", failures)
		}
		store.set(func() { store.down = nil })
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		for name, l := range lists {
			if !l.Known() || !l.Has("one") || !l.Has("two") || l.Has("three") {
				t.Errorf("%s knows %v", name, l.names)
			}
		}
		// The store goes away: what was known stays known.
		store.set(func() { store.down = errors.New("away") })
		time.Sleep(time.Hour)
		synctest.Wait()
		if !lists["two"].Has("one") {
			t.Error("forgot its members while the store was away")
		}
		store.set(func() { store.down, store.puts = nil, 0 })
		stops["one"]()
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		if store.puts > 12 {
			t.Errorf("%d writes in ten hours", store.puts)
		}
		time.Sleep(forget)
		synctest.Wait()
		if lists["two"].Has("one") || !lists["two"].Has("two") {
			t.Errorf("a month after the other has left: %v", lists["two"].names)
		}
		// Rubbish in the store is no list of members.
		for _, rubbish := range []string{"null", "[1]", `{"one":"yesterday"}`} {
			store.set(func() { store.value = []byte(rubbish) })
			if err := New("three", store).enter(ctx); (err == nil) != (rubbish == "null") {
				t.Errorf("%s: %v", rubbish, err)
			}
		}
		cancel()
		wg.Wait()
	})
}
