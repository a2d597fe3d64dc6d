// Package storetest is the one suite that every store.Store passes: what Write
// promises, that the same query text finds the same records, pages, tails, tenants
// apart, retention. The tests of the elastic and embedded packages call it; nobody
// else does.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster.dev/muster/regional/logs/store"
)

// Config is what a test asks of the store it gets: empty, of its own.
type Config struct {
	Now       func() time.Time
	Retention time.Duration
	Future    time.Duration
}

// Factory makes an empty store, closed and removed when the test ends.
type Factory func(t testing.TB, c Config) store.Store

// Run runs the suite.
func Run(t *testing.T, f Factory) {
	t.Run("Query", func(t *testing.T) { testQuery(t, f) })
	t.Run("Write", func(t *testing.T) { testWrite(t, f) })
	t.Run("Pages", func(t *testing.T) { testPages(t, f) })
	t.Run("Histogram", func(t *testing.T) { testHistogram(t, f) })
	t.Run("Filters", func(t *testing.T) { testFilters(t, f) })
	t.Run("TenantsApart", func(t *testing.T) { testTenants(t, f) })
	t.Run("Tail", func(t *testing.T) { testTail(t, f) })
	t.Run("TailUnderLoad", func(t *testing.T) { testTailUnderLoad(t, f) })
	t.Run("Groups", func(t *testing.T) { testGroups(t, f) })
	t.Run("GroupsUnderLoad", func(t *testing.T) { testGroupsUnderLoad(t, f) })
	t.Run("GroupsAtRandom", func(t *testing.T) { testGroupsAtRandom(t, f) })
	t.Run("State", func(t *testing.T) { testState(t, f) })
	t.Run("Retention", func(t *testing.T) { testRetention(t, f) })
	t.Run("BadQueries", func(t *testing.T) { testBadQueries(t, f) })
}

// base is yesterday at 10:00:00.123456789, so that every record lies inside all windows.
func base() time.Time {
	return store.Day(time.Now()).Add(-14*time.Hour + 123456789)
}

// Settle makes what was written findable.
func Settle(t testing.TB, s store.Store) {
	t.Helper()
	if r, ok := s.(interface{ Refresh(context.Context) error }); ok {
		if err := r.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t testing.TB, s store.Store, records ...store.Record) store.Result {
	t.Helper()
	res, err := s.Write(t.Context(), records)
	if err != nil {
		t.Fatalf("write: %v", err)
	}
	Settle(t, s)
	return res
}

func mustStore(t testing.TB, s store.Store, records ...store.Record) {
	t.Helper()
	if res := write(t, s, records...); res.Stored != len(records) {
		t.Fatalf("stored %d of %d: %+v", res.Stored, len(records), res)
	}
}

func find(t testing.TB, s store.Store, q store.Query) store.Page {
	t.Helper()
	p, err := s.Search(t.Context(), q)
	if err != nil {
		t.Fatalf("search %q: %v", q.Text, err)
	}
	return p
}

func ids(records []store.Record) []string {
	out := []string{}
	for _, r := range records {
		out = append(out, r.ID)
	}
	return out
}

func testBadQueries(t *testing.T, f Factory) {
	s := f(t, Config{})
	for want, q := range map[string]store.Query{
		"tenant": {Text: "a"}, "query": {Tenant: "acme", Text: `severity:"error`}, "cursor": {Tenant: "acme", Cursor: "garbage"},
		"limit": {Tenant: "acme", Limit: -1},
	} {
		_, err := s.Search(t.Context(), q)
		var qe *store.QueryError
		if !errors.As(err, &qe) || qe.Field != want {
			t.Errorf("%v, want a QueryError about %s", err, want)
		}
	}
	if _, err := s.Tail(t.Context(), store.Query{Tenant: "acme"}, store.PageCursor(store.Record{Timestamp: base(), ID: "x"})); err == nil {
		t.Error("Tail takes the cursor of a page")
	}
	p := find(t, s, store.Query{Tenant: "nobody-wrote-yet", Buckets: 10})
	if len(p.Hits) != 0 || p.Total != 0 || p.Next != "" || p.Histogram == nil {
		t.Errorf("an empty store finds %+v", p)
	}
}

func testWrite(t *testing.T, f Factory) {
	s := f(t, Config{})
	if err := s.Ready(t.Context()); err != nil {
		t.Fatalf("not ready: %v", err)
	}
	full := store.Record{
		Timestamp: base(), Tenant: "acme", Site: "paris-07", Region: "eu", Node: "n1", Namespace: "acme-shop", Pod: "web-1", Container: "web",
		Unit: "k3s.service", Stream: "stderr", Severity: "Error", Message: "multi\nline \x00 \"quoted\" größe 日本 \xff", ID: "a/b+c=é \"x\"",
		Labels: map[string]string{"app.kubernetes.io/name": "web", "empty": "", "dotted.key": "v*?"},
	}
	mustStore(t, s, full)
	want := full
	want.Severity, want.Message = "error", "multi\nline \x00 \"quoted\" größe 日本 \uFFFD"
	got := find(t, s, store.Query{Tenant: "acme"}).Hits
	if diff := cmp.Diff([]store.Record{want}, got, cmpopts.IgnoreFields(store.Record{}, "Ingested"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("came back changed (-want +got):\n%s", diff)
	}
	if len(got) > 0 && (got[0].Ingested.IsZero() || time.Since(got[0].Ingested) > time.Hour) {
		t.Errorf("ingested %s", got[0].Ingested)
	}

	// A chunk that is sent again, in part with new records, and with a record twice.
	a, b := store.Record{Timestamp: base(), Tenant: "acme", ID: "dup-1", Message: "first"}, store.Record{Timestamp: base(), Tenant: "acme", ID: "dup-2", Message: "second"}
	mustStore(t, s, a)
	if res := write(t, s, a, b, b); res.Stored != 1 || res.Duplicates != 2 || len(res.Retry)+len(res.Dead) != 0 {
		t.Errorf("a re-sent chunk: %+v, want 1 stored and 2 duplicates", res)
	}
	if p := find(t, s, store.Query{Tenant: "acme", Text: "first OR second"}); p.Total != 2 {
		t.Errorf("%d records after a re-sent chunk, want 2", p.Total)
	}

	// Bad records are named one by one and don't hold up the good ones.
	bad := []store.Record{
		{Timestamp: base(), Tenant: "acme", ID: "good-1", Message: "ok"},
		{Timestamp: base(), Tenant: "ACME/..", ID: "x", Message: "bad tenant"},
		{Timestamp: base(), Tenant: "acme", Message: "no id"},
		{Timestamp: base().AddDate(-1, 0, 0), Tenant: "acme", ID: "old", Message: "too old"},
		{Timestamp: base().AddDate(1, 0, 0), Tenant: "acme", ID: "new", Message: "too new"},
		{Timestamp: base(), Tenant: "acme", ID: "bell\a\U000e0001", Message: "an ID that would break a JSON line"},
		{Timestamp: base(), Tenant: "acme", ID: "good-2", Message: "ok"},
	}
	res := write(t, s, bad...)
	var dead []int
	for _, d := range res.Dead {
		dead = append(dead, d.Index)
		if d.Reason == "" {
			t.Errorf("record %d is dead for no reason", d.Index)
		}
	}
	slices.Sort(dead)
	if res.Stored != 2 || len(res.Retry) != 0 || !slices.Equal(dead, []int{1, 2, 3, 4, 5}) {
		t.Errorf("good and bad together: %+v", res)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res, err := s.Write(ctx, []store.Record{{Timestamp: base(), Tenant: "acme", ID: "late", Message: "x"}}); err == nil && res.Stored != 0 {
		t.Errorf("with a cancelled context: %+v", res)
	}
}

// numbered makes n records, every second the same timestamp as the one before.
func numbered(n int, step time.Duration) []store.Record {
	out := make([]store.Record, n)
	for i := range out {
		out[i] = store.Record{Timestamp: base().Add(time.Duration(i/2) * step), Tenant: "acme", Site: fmt.Sprintf("site-%d", i%7),
			ID: fmt.Sprintf("r%05d", (i*7919)%n), Message: fmt.Sprintf("line %d of %d", i, n), Severity: []string{"info", "error"}[i%2]}
	}
	return out
}

func newestFirst(records []store.Record) []string {
	sorted := slices.Clone(records)
	slices.SortFunc(sorted, func(a, b store.Record) int {
		if c := b.Timestamp.Compare(a.Timestamp); c != 0 {
			return c
		}
		return strings.Compare(b.ID, a.ID)
	})
	return ids(sorted)
}

// Pages over two days, in a shuffled order of arrival, with ties, while newer records come in.
func testPages(t *testing.T, f Factory) {
	s := f(t, Config{})
	records := numbered(251, 6*time.Minute) // 125 steps: over midnight
	shuffled := slices.Clone(records)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	for chunk := range slices.Chunk(shuffled, 60) {
		mustStore(t, s, chunk...)
	}
	want := newestFirst(records)
	for _, limit := range []int{1000, 251, 250, 20, 7} {
		var got []string
		q := store.Query{Tenant: "acme", Limit: limit}
		for pages := 0; ; pages++ {
			p := find(t, s, q)
			if p.Total < 251 {
				t.Fatalf("limit %d, page %d: total %d", limit, pages, p.Total)
			}
			got = append(got, ids(p.Hits)...)
			if p.Next == "" {
				if pages != (251-1)/limit {
					t.Errorf("limit %d: %d pages", limit, pages+1)
				}
				break
			}
			if p.Next != store.PageCursor(p.Hits[len(p.Hits)-1]) {
				t.Error("a page's cursor is not that of its last record")
			}
			q.Cursor = p.Next
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("limit %d (-want +got):\n%s", limit, diff)
		}
	}
	p := find(t, s, store.Query{Tenant: "acme", Limit: 10})
	newer := store.Record{Timestamp: records[250].Timestamp.Add(time.Second), Tenant: "acme", ID: "newer", Message: "x"}
	mustStore(t, s, newer)
	if got := ids(find(t, s, store.Query{Tenant: "acme", Limit: 10, Cursor: p.Next}).Hits); !slices.Equal(got, want[10:20]) {
		t.Errorf("a record that came in moved the second page: %v", got)
	}
}

func testHistogram(t *testing.T, f Factory) {
	s := f(t, Config{})
	records := numbered(251, 6*time.Minute)
	mustStore(t, s, records...)
	from, to := base().Add(30*time.Minute), base().Add(10*time.Hour+5*time.Minute+1)
	for _, buckets := range []int{1, 5, 60, 1000} {
		p := find(t, s, store.Query{Tenant: "acme", From: from, To: to, Buckets: buckets, Limit: 3})
		h := p.Histogram
		want := make([]int64, len(h.Counts))
		var n int64
		for _, r := range records {
			if !r.Timestamp.Before(from) && r.Timestamp.Before(to) {
				n++
				want[int(r.Timestamp.Sub(h.Start)/h.Step)]++
			}
		}
		if !slices.Equal(h.Counts, want) || p.Total != n || len(h.Counts) > max(buckets, 2) {
			t.Errorf("%d buckets: total %d, want %d; from %s by %s: %v, want %v", buckets, p.Total, n, h.Start, h.Step, h.Counts, want)
		}
	}
}

func testFilters(t *testing.T, f Factory) {
	s := f(t, Config{})
	mustStore(t, s, numbered(70, time.Second)...)
	many := make([]string, 3000)
	for i := range many {
		many[i] = fmt.Sprintf("no-such-site-%d", i)
	}
	for name, c := range map[string]struct {
		q    store.Query
		want int64
	}{
		"none":              {store.Query{}, 70},
		"one site":          {store.Query{Sites: []string{"site-3"}}, 10},
		"two sites":         {store.Query{Sites: []string{"site-3", "site-5", "site-x"}}, 20},
		"thousands":         {store.Query{Sites: append(many, "site-1")}, 10},
		"empty list":        {store.Query{Sites: []string{}}, 0},
		"severity":          {store.Query{Severities: []string{"ERROR"}}, 35},
		"severity and site": {store.Query{Severities: []string{"error", "info"}, Sites: []string{"site-0"}}, 10},
		"namespace":         {store.Query{Namespaces: []string{"acme-shop"}}, 0},
		"from":              {store.Query{From: base().Add(10 * time.Second)}, 50},
		"from by 1 ns":      {store.Query{From: base().Add(10*time.Second + 1)}, 48},
		"to":                {store.Query{To: base().Add(10 * time.Second)}, 20},
		"to by 1 ns":        {store.Query{To: base().Add(10*time.Second + 1)}, 22},
		"with text":         {store.Query{Text: "severity:error OR severity:info", Sites: []string{"site-2"}}, 10},
		"nothing in range":  {store.Query{From: base().Add(time.Hour), To: base()}, 0},
	} {
		c.q.Tenant = "acme"
		if p := find(t, s, c.q); p.Total != c.want || int64(len(p.Hits)) != c.want {
			t.Errorf("%s: total %d with %d hits, want %d", name, p.Total, len(p.Hits), c.want)
		}
	}
}

// Names that are prefixes of each other, in every way an index name could mix up.
func testTenants(t *testing.T, f Factory) {
	s := f(t, Config{})
	tenants := []string{"a", "a-b", "a-b-c", "ab", "a-2026", "logs", "a--b", strings.Repeat("x", 63)}
	for _, tenant := range tenants {
		// The record names another tenant wherever it can, and has the same ID in each.
		mustStore(t, s, store.Record{Timestamp: base(), Tenant: tenant, Site: "a", Namespace: "a-b", ID: "same", Message: "of " + tenant, Labels: map[string]string{"muster.tenant": "a", "tenant": "a"}})
	}
	for _, tenant := range tenants {
		for _, text := range []string{"", "* OR _exists_:site", "site:a OR NOT site:a", "namespace:a*"} {
			p := find(t, s, store.Query{Tenant: tenant, Text: text})
			if p.Total != 1 || len(p.Hits) != 1 || p.Hits[0].Tenant != tenant {
				t.Errorf("tenant %s, query %q: %+v", tenant, text, p.Hits)
			}
		}
	}
	for _, tenant := range []string{"*", "a*", "a,a-b", "_all", "a-b-*", "..", "A", "a_b", "", "b"} {
		p, err := s.Search(t.Context(), store.Query{Tenant: tenant})
		if err == nil && len(p.Hits) > 0 {
			t.Errorf("tenant %q finds %+v", tenant, p.Hits)
		}
	}
	for _, text := range []string{"muster.tenant:a", "tenant:a", "_index:x", "_id:same"} {
		if _, err := s.Search(t.Context(), store.Query{Tenant: "a", Text: text}); err == nil {
			t.Errorf("query %q is taken", text)
		}
	}
}

func testRetention(t *testing.T, f Factory) {
	var mu sync.Mutex
	shift := time.Duration(0)
	s := f(t, Config{Retention: 72 * time.Hour, Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().Add(shift)
	}})
	today := store.Day(time.Now())
	mustStore(t, s, store.Record{Timestamp: today.Add(-48 * time.Hour), Tenant: "acme", ID: "1", Message: "two days ago"},
		store.Record{Timestamp: today.Add(-time.Hour), Tenant: "acme", ID: "2", Message: "yesterday"},
		store.Record{Timestamp: today.Add(-time.Hour), Tenant: "a-b", ID: "2", Message: "yesterday"})
	retain := func() {
		t.Helper()
		var err error
		switch s := s.(type) {
		case interface{ Retain() error }:
			err = s.Retain()
		case interface {
			Retain(context.Context) ([]string, error)
		}:
			_, err = s.Retain(t.Context())
		default:
			t.Fatalf("%T has no Retain", s)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	count := func(tenant string) int64 { return find(t, s, store.Query{Tenant: tenant}).Total }
	retain()
	if n := count("acme"); n != 2 {
		t.Fatalf("%d records left inside the retention, want 2", n)
	}
	mu.Lock()
	shift = 48 * time.Hour
	mu.Unlock()
	retain()
	if n, m := count("acme"), count("a-b"); n != 1 || m != 1 {
		t.Errorf("%d and %d records left two days later, want 1 and 1", n, m)
	}
	res, err := s.Write(t.Context(), []store.Record{{Timestamp: today.Add(-48 * time.Hour), Tenant: "acme", ID: "3", Message: "too late"}})
	if err != nil || len(res.Dead) != 1 {
		t.Errorf("a record of a deleted day: %+v, %v; want it dead", res, err)
	}
	mu.Lock()
	shift = 30 * 24 * time.Hour
	mu.Unlock()
	retain()
	if n := count("acme"); n != 0 {
		t.Errorf("%d records left a month later", n)
	}
}
