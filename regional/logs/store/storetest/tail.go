package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"muster.dev/muster/regional/logs/store"
)

// drain reads a tail until it has n records, or for a while if that takes too long.
func drain(t *testing.T, s store.Store, q store.Query, c store.Cursor, n int) ([]store.Record, store.Cursor) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []store.Record
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		p, err := s.Tail(ctx, q, c)
		if err != nil {
			t.Fatalf("tail after %d records: %v", len(got), err)
		}
		if p.Next == "" {
			t.Fatal("a tail without a cursor")
		}
		got, c = append(got, p.Hits...), p.Next
		if len(got) >= n {
			return got, c
		}
		if p.More {
			continue
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the tail brought %d records, want %d", len(got), n)
		case <-tick.C:
		}
	}
}

func testTail(t *testing.T, f Factory) {
	s := f(t, Config{})
	mustStore(t, s, store.Record{Timestamp: base(), Tenant: "acme", ID: "before", Message: "old news"})
	start, err := s.Tail(t.Context(), store.Query{Tenant: "acme"}, "")
	if err != nil || len(start.Hits) != 0 || start.Next == "" {
		t.Fatalf("a tail from now: %+v, %v", start, err)
	}
	// Late records: each older than the one before, down to other days.
	for i := range 5 {
		mustStore(t, s, store.Record{Timestamp: base().Add(-time.Duration(i) * 13 * time.Hour), Tenant: "acme", Site: "x", ID: fmt.Sprint("late-", i), Message: "late", Severity: "error"})
	}
	mustStore(t, s, store.Record{Timestamp: base(), Tenant: "other", ID: "foreign", Message: "late"},
		store.Record{Timestamp: base(), Tenant: "acme", ID: "info", Message: "fine", Severity: "info"})
	q := store.Query{Tenant: "acme", Text: "severity:error", Limit: 2}
	got, next := drain(t, s, q, start.Next, 5)
	if want := []string{"late-0", "late-1", "late-2", "late-3", "late-4"}; !slices.Equal(ids(got), want) {
		t.Errorf("the tail brought %v, want %v in this order", ids(got), want)
	}
	// The same records again are nothing new.
	write(t, s, got...)
	mustStore(t, s, store.Record{Timestamp: base(), Tenant: "acme", ID: "end", Message: "x", Severity: "error"})
	if got, _ := drain(t, s, q, next, 1); !slices.Equal(ids(got), []string{"end"}) {
		t.Errorf("after a re-sent chunk the tail brought %v, want only the end", ids(got))
	}
	// From and To hold for a tail too.
	q.From = base().Add(-time.Minute)
	if got, _ := drain(t, s, q, start.Next, 2); !slices.Equal(ids(got), []string{"late-0", "end"}) {
		t.Errorf("with From the tail brought %v", ids(got))
	}
}

// Several writers whose writes overlap, one reader with small pages: each record once.
func testTailUnderLoad(t *testing.T, f Factory) {
	s := f(t, Config{})
	start, err := s.Tail(t.Context(), store.Query{Tenant: "acme"}, "")
	if err != nil {
		t.Fatal(err)
	}
	const writers, writes, each = 3, 8, 40
	var wg sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		wg.Go(func() {
			for n := range writes {
				records := make([]store.Record, each)
				for i := range records {
					records[i] = store.Record{Timestamp: base().Add(time.Duration(i*w) * time.Minute), Tenant: "acme", ID: fmt.Sprintf("%d-%d-%d", w, n, i), Message: "load"}
				}
				res, err := s.Write(t.Context(), records)
				if err == nil && res.Stored != each {
					err = fmt.Errorf("%+v", res)
				}
				errs[w] = errors.Join(errs[w], err)
			}
		})
	}
	got, next := drain(t, s, store.Query{Tenant: "acme", Limit: 33}, start.Next, writers*writes*each)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, r := range got {
		seen[r.ID]++
	}
	if len(seen) != writers*writes*each || len(got) != len(seen) {
		t.Errorf("%d records, %d different ones, want %d", len(got), len(seen), writers*writes*each)
	}
	if p, err := s.Tail(t.Context(), store.Query{Tenant: "acme"}, next); err != nil || len(p.Hits) != 0 {
		t.Errorf("at its end the tail brings %v, %v", ids(p.Hits), err)
	}
}
