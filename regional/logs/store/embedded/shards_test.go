package embedded

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	index "github.com/blevesearch/bleve_index_api"

	"muster.dev/muster/internal/turns"
	"muster.dev/muster/regional/logs/store"
)

// TestLongQueriesGiveWay: a tenant whose queries take all there is lets another one go
// on after a slice of time, and goes on itself after it.
func TestLongQueriesGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{turns: turns.New(2, 2, 2)}
		var long [2]*turn
		for i := range long {
			var err error
			if long[i], err = s.begin(t.Context(), "greedy"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * slice)
		if err := long[0].pass(t.Context()); err != nil || long[0].release == nil {
			t.Fatalf("nobody waits: %v", err)
		}
		began := make(chan *turn)
		go func() {
			calm, err := s.begin(t.Context(), "calm")
			if err != nil {
				t.Error(err)
			}
			began <- calm
		}()
		synctest.Wait()
		if err := long[0].pass(t.Context()); err != nil {
			t.Fatal(err) // it has only just begun its slice
		}
		select {
		case <-began:
			t.Fatal("more than two read at once")
		default:
		}
		time.Sleep(2 * slice)
		again := make(chan error)
		go func() { again <- long[0].pass(t.Context()) }()
		calm := <-began
		synctest.Wait()
		select {
		case <-again:
			t.Fatal("it did not give way")
		default:
		}
		calm.end()
		if err := <-again; err != nil {
			t.Error(err)
		}
		// One that has to end while it waits has nothing to give back.
		go func() {
			calm, err := s.begin(t.Context(), "calm")
			if err == nil {
				defer calm.end()
				time.Sleep(time.Second)
			}
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), slice+time.Millisecond)
		defer cancel()
		time.Sleep(slice)
		if err := long[1].pass(ctx); err == nil {
			t.Error("it goes on after its deadline")
		}
		long[1].end()
		long[0].end()
		time.Sleep(2 * time.Second)
		if p, n, w := s.turns.Use(); p+n+w != 0 {
			t.Errorf("left: %d, %d, %d", p, n, w)
		}
	})
}

// slowIndex takes its time to close.
type slowIndex struct {
	index.Index
	closing, goOn chan struct{}
}

func (s *slowIndex) Close() error {
	close(s.closing)
	<-s.goOn
	return s.Index.Close()
}

// TestSlowCloseStopsNobody: while a shard is closed, because too many are open, other
// tenants read and write, and its own waits until it can be opened again.
func TestSlowCloseStopsNobody(t *testing.T) {
	s := open(t, Options{MaxOpen: 1})
	of := func(tenant string) store.Record {
		r := record(tenant)
		r.Tenant = tenant
		return r
	}
	mustWrite(t, s, of("slow"))
	slow := &slowIndex{closing: make(chan struct{}), goOn: make(chan struct{})}
	sh := s.shards[key{"slow", store.Day(of("slow").Timestamp)}]
	slow.Index, sh.idx = sh.idx, slow
	first, second := make(chan error, 1), make(chan error, 1)
	search := func(tenant string) error {
		_, err := s.Search(t.Context(), store.Query{Tenant: tenant})
		return err
	}
	go func() { _, err := s.Write(t.Context(), []store.Record{of("first")}); first <- err }()
	<-slow.closing
	mustWrite(t, s, of("second"))
	if err := search("second"); err != nil {
		t.Error(err)
	}
	go func() { second <- search("slow") }()
	close(slow.goOn)
	for _, c := range []chan error{first, second} {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
}
