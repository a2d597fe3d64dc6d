package embedded

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/regional/logs/store"
	"muster.dev/muster/regional/logs/store/storetest"
)

var lines = flag.Int("lines", 20000, "log lines in the store that BenchmarkSearch queries")

func open(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func factory(t testing.TB, c storetest.Config) store.Store {
	return open(t, Options{Now: c.Now, Retention: c.Retention, Future: c.Future, MaxQueryTime: 5 * time.Minute})
}

func TestStore(t *testing.T) { storetest.Run(t, factory) }

// The whole suite again with every shard closed as soon as nobody uses it.
func TestStoreWithOneShardOpen(t *testing.T) {
	storetest.Run(t, func(t testing.TB, c storetest.Config) store.Store {
		return open(t, Options{Now: c.Now, Retention: c.Retention, Future: c.Future, MaxOpen: 1})
	})
}

func record(id string) store.Record {
	return store.Record{Timestamp: time.Now(), Tenant: "acme", ID: id, Message: "hello " + id}
}

func total(t *testing.T, s *Store) int64 {
	t.Helper()
	p, err := s.Search(t.Context(), store.Query{Tenant: "acme", Text: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	return p.Total
}

func mustWrite(t *testing.T, s *Store, records ...store.Record) {
	t.Helper()
	if res, err := s.Write(t.Context(), records); err != nil || res.Stored != len(records) {
		t.Fatalf("%+v, %v", res, err)
	}
}

func TestRestart(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, s, record("1"), record("2"))
	start, err := s.Tail(t.Context(), store.Query{Tenant: "acme"}, "")
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, s, record("3"))
	if _, err := Open(Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), " uses "+dir) {
		t.Errorf("a second owner: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(t.Context(), nil); !errors.Is(err, errClosed) {
		t.Errorf("write after close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	// Even with a clock that was set back, the tail goes on where it was.
	s = open(t, Options{Dir: dir, Now: func() time.Time { return time.Now().Add(-time.Hour) }, Future: 48 * time.Hour})
	mustWrite(t, s, record("4"))
	if n := total(t, s); n != 4 {
		t.Errorf("%d records after a restart, want 4", n)
	}
	p, err := s.Tail(t.Context(), store.Query{Tenant: "acme"}, start.Next)
	if err != nil || len(p.Hits) != 2 || p.Hits[0].ID != "3" || p.Hits[1].ID != "4" {
		t.Errorf("the tail over a restart: %+v, %v; want 3 and 4", p.Hits, err)
	}
}

func TestDamagedShardIsSetAside(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, s, record("1"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	bolts, _ := filepath.Glob(filepath.Join(dir, "v1", "acme", "*", "root.bolt"))
	if len(bolts) != 1 {
		t.Fatal(bolts)
	}
	if err := os.WriteFile(bolts[0], []byte(strings.Repeat("garbage!", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, Options{Dir: dir})
	mustWrite(t, s, record("2"))
	if n := total(t, s); n != 1 {
		t.Errorf("%d records beside the damaged shard, want 1", n)
	}
	aside, _ := filepath.Glob(filepath.Join(dir, "v1", "acme", "*.damaged-*", "root.bolt"))
	if len(aside) != 1 {
		t.Errorf("the damaged shard was not kept: %v", aside)
	}
}

// TestFailedWriteIsNotADuplicate: what a failed write has left in memory alone does not
// count as stored when it comes again, and a tail that goes on after it misses nothing.
func TestFailedWriteIsNotADuplicate(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, s, record("1"))
	tail, err := s.Tail(t.Context(), store.Query{Tenant: "acme"}, "")
	if err != nil {
		t.Fatal(err)
	}
	// No file can be made in a directory that is not there, not even by root.
	shards, _ := filepath.Glob(filepath.Join(dir, "v1", "acme", "*"))
	if len(shards) != 1 {
		t.Fatal(shards)
	}
	away := filepath.Join(dir, "away")
	if err := os.Rename(shards[0], away); err != nil {
		t.Fatal(err)
	}
	two := record("2")
	for range 3 {
		res, err := s.Write(t.Context(), []store.Record{two})
		if err != nil || len(res.Retry) != 1 || res.Stored+res.Duplicates != 0 {
			t.Fatalf("while the disk fails: %+v, %v; want a retry", res, err)
		}
	}
	p, err := s.Tail(t.Context(), store.Query{Tenant: "acme"}, tail.Next)
	if err != nil || len(p.Hits) != 1 || p.Hits[0].ID != "2" {
		t.Errorf("tail: %+v, %v; want what the index shows already", p.Hits, err)
	}
	if err := os.Rename(away, shards[0]); err != nil {
		t.Fatal(err)
	}
	res, err := s.Write(t.Context(), []store.Record{two, record("3")})
	if err != nil || len(res.Retry) != 0 || res.Stored+res.Duplicates != 2 {
		t.Fatalf("when the disk is good again: %+v, %v", res, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Options{Dir: dir})
	if n := total(t, s); n != 3 {
		t.Errorf("%d records after a restart, want 3", n)
	}
}

func TestSizeCap(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	day := store.Day(time.Now())
	for i := range 3 {
		r := record("x")
		r.Timestamp = day.AddDate(0, 0, -i)
		mustWrite(t, s, r)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Options{Dir: dir, MaxBytes: 1})
	if err := s.Retain(); err != nil {
		t.Fatal(err)
	}
	if n := total(t, s); n != 1 {
		t.Errorf("%d days left over the cap, want the newest", n)
	}
	if err := s.Ready(t.Context()); err == nil {
		t.Error("ready though the newest day alone is over the cap")
	}
	res, err := s.Write(t.Context(), []store.Record{record("y")})
	if err != nil || len(res.Retry) != 1 || !strings.Contains(res.Retry[0].Reason, "cap") {
		t.Errorf("over the cap: %+v, %v; want a retry that says why", res, err)
	}
}

// A tenant that fills the store loses its own days, and then may not write; a neighbour that
// holds little keeps its oldest day and writes on.
func TestSizeCapIsSharedByTenant(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if s.opts.MaxBytes <= 0 {
		t.Error("a store has no cap unless somebody thinks of it")
	}
	day := store.Day(time.Now())
	write := func(tenant, text string, daysAgo, n int) {
		t.Helper()
		var records []store.Record
		for i := range n {
			r := record(fmt.Sprint(text, " ", i, " ", strings.Repeat(fmt.Sprint(i, "-", daysAgo, " "), 100)))
			r.ID, r.Tenant, r.Timestamp = fmt.Sprint(text, daysAgo, "-", i), tenant, day.AddDate(0, 0, -daysAgo)
			records = append(records, r)
		}
		mustWrite(t, s, records...)
	}
	write("small", "quiet", 6, 1)
	write("small", "quiet", 0, 1)
	for ago := range 4 {
		write("greedy", "flood", ago, 500)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	days := func(s *Store, tenant string) (n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for k := range s.shards {
			if k.tenant == tenant {
				n++
			}
		}
		return n
	}
	size := func(tenant string) int64 { return dirSize(filepath.Join(dir, "v1", tenant)) }
	s = open(t, Options{Dir: dir, MaxBytes: size("small") + size("greedy")*3/5})
	if err := s.Retain(); err != nil {
		t.Fatal(err)
	}
	if a, b := days(s, "small"), days(s, "greedy"); a != 2 || b == 4 || b < 1 {
		t.Errorf("%d days are left of the small tenant, %d of the greedy one", a, b)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Options{Dir: dir, MaxBytes: 2 * size("small")})
	if err := s.Retain(); err != nil {
		t.Fatal(err)
	}
	if a, b := days(s, "small"), days(s, "greedy"); a != 2 || b != 1 {
		t.Errorf("%d days are left of the small tenant, %d of the greedy one", a, b)
	}
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("one tenant makes the store not ready: %v", err)
	}
	for tenant, retries := range map[string]int{"small": 0, "greedy": 1} {
		r := record("one more")
		r.Tenant, r.ID = tenant, "more"
		if res, err := s.Write(t.Context(), []store.Record{r}); err != nil || len(res.Retry) != retries {
			t.Errorf("%s: %+v, %v", tenant, res, err)
		}
	}
}

func TestExpensivePatternIsRefused(t *testing.T) {
	s := open(t, Options{})
	for first := range 3 {
		records := make([]store.Record, 2000)
		for i := range records {
			records[i] = record("w" + string(rune('a'+first)) + strings.Repeat("z", i%7) + time.Duration(i).String())
		}
		mustWrite(t, s, records...)
	}
	_, err := s.Search(t.Context(), store.Query{Tenant: "acme", Text: "w*"})
	var qe *store.QueryError
	if !errors.As(err, &qe) || !strings.Contains(err.Error(), "too many") {
		t.Errorf("a pattern with 6,000 words: %v", err)
	}
	if p, err := s.Search(t.Context(), store.Query{Tenant: "acme", Text: "wa*"}); err != nil || p.Total != 2000 {
		t.Errorf("a pattern with 2,000 words: %d, %v", p.Total, err)
	}
}

func TestQueryTimeIsBounded(t *testing.T) {
	s := open(t, Options{MaxQueryTime: time.Nanosecond})
	mustWrite(t, s, record("1"))
	if _, err := s.Search(t.Context(), store.Query{Tenant: "acme"}); !errors.Is(err, store.ErrTimeout) {
		t.Errorf("%v, want ErrTimeout", err)
	}
}

func BenchmarkWrite(b *testing.B) { storetest.BenchmarkWrite(b, factory) }

// BenchmarkTrickle writes -lines in batches of 40, as they come from some sites, and
// reports what a line costs, the store's work behind it included, and what a search for
// the newest errors costs then.
func BenchmarkTrickle(b *testing.B) {
	const batch = 40
	for b.Loop() {
		s := factory(b, storetest.Config{})
		cpu := testkit.CPUTime(b)
		for first := 0; first < *lines; first += batch {
			if res, err := s.Write(b.Context(), storetest.Lines(first, batch)); err != nil || res.Stored != batch {
				b.Fatalf("%+v, %v", res, err)
			}
		}
		b.ReportMetric(float64(testkit.CPUTime(b)-cpu)/float64(*lines), "cpu-ns/line")
		const searches = 20
		cpu = testkit.CPUTime(b)
		for range searches {
			if _, err := s.Search(b.Context(), store.Query{Tenant: "acme", To: time.Now().Add(24 * time.Hour), Text: "severity:error", Buckets: 60}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(testkit.CPUTime(b)-cpu)/searches, "cpu-ns/search")
	}
}

func BenchmarkGroups(b *testing.B) { storetest.BenchmarkGroups(b, factory, *lines) }
func BenchmarkSearch(b *testing.B) { storetest.BenchmarkSearch(b, factory, *lines) }
