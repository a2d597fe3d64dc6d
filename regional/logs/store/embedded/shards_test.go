package embedded

import (
	"testing"

	index "github.com/blevesearch/bleve_index_api"

	"muster.dev/muster/regional/logs/store"
)

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
