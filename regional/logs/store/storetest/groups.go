package storetest

import (
	"errors"
	"fmt"
	"math"
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

// now waits until the store's Now is after t, and returns it.
func now(t *testing.T, s store.Store, after time.Time) time.Time {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		at, err := s.Now(t.Context())
		if err != nil {
			t.Fatalf("now: %v", err)
		}
		if at.After(after) {
			return at
		}
		if time.Now().After(deadline) {
			t.Fatalf("Now stays at %s, want it after %s", at, after)
		}
		<-tick.C
	}
}

func groups(t *testing.T, s store.Store, q store.GroupQuery) store.Groups {
	t.Helper()
	g, err := s.Groups(t.Context(), q)
	if err != nil {
		t.Fatalf("groups of %+v: %v", q, err)
	}
	return g
}

// testIncluded: what is included is of the record whose message a group has.
func testIncluded(t *testing.T, s store.Store, q store.GroupQuery) {
	t.Helper()
	q.By, q.Include = []string{"site"}, []string{"pod", "labels.ms", "labels.no/such.label", "severity"}
	got := map[string]bool{}
	for _, g := range groups(t, s, q).Groups {
		got[g.Message+": "+strings.Join(g.Include, ",")] = true
	}
	want := map[string]bool{"newest of a: a,30.5,,error": true, "next minute: a,-1,,error": true, "rome: a,7,,error": true}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("included (-want +got):\n%s", d)
	}
	for _, bad := range [][]string{{"nosuch"}, {"site", "pod", "node", "unit", "stream", "region"}} {
		q.Include = bad
		var wrong *store.QueryError
		if _, err := s.Groups(t.Context(), q); !errors.As(err, &wrong) || wrong.Field != "include" {
			t.Errorf("include %v: %v", bad, err)
		}
	}
}

func testGroups(t *testing.T, f Factory) {
	s := f(t, Config{})
	start := now(t, s, time.Time{})
	at := base().Truncate(time.Minute)
	record := func(id string, after time.Duration, site, pod, ms, text string) store.Record {
		r := store.Record{Timestamp: at.Add(after), Tenant: "acme", Site: site, Pod: pod, ID: id, Message: text, Severity: "error"}
		if ms != "" {
			r.Labels = map[string]string{"ms": ms}
		}
		return r
	}
	mustStore(t, s,
		record("1", 0, "paris", "a", "10", "first"), record("2", 10*time.Second, "paris", "a", "30.5", "newest of a"), record("3", 5*time.Second, "paris", "a", "NaN", "x"),
		record("4", time.Minute, "paris", "a", "-1", "next minute"), record("5", time.Second, "paris", "", "", "no pod"), record("6", 0, "rome", "a", "7", "rome"))
	foreign := record("7", 0, "paris", "a", "1", "foreign")
	foreign.Tenant = "other"
	fine := record("8", 0, "paris", "a", "1", "fine")
	fine.Severity = "info"
	mustStore(t, s, foreign, fine)
	first := now(t, s, start)
	q := store.GroupQuery{Tenant: "acme", Text: "severity:error", After: start, UpTo: first, By: []string{"site", "kubernetes.pod.name"}, Step: time.Minute, Metric: "labels.ms"}
	want := store.Groups{Groups: []store.Group{
		{Key: []string{"paris", ""}, Time: at, Count: 1, First: at.Add(time.Second), Last: at.Add(time.Second), Message: "no pod"},
		{Key: []string{"paris", "a"}, Time: at, Count: 3, First: at, Last: at.Add(10 * time.Second), MetricCount: 2, Min: 10, Max: 30.5, Sum: 40.5, Message: "newest of a"},
		{Key: []string{"paris", "a"}, Time: at.Add(time.Minute), Count: 1, First: at.Add(time.Minute), Last: at.Add(time.Minute), MetricCount: 1, Min: -1, Max: -1, Sum: -1, Message: "next minute"},
		{Key: []string{"rome", "a"}, Time: at, Count: 1, First: at, Last: at, MetricCount: 1, Min: 7, Max: 7, Sum: 7, Message: "rome"},
	}}
	if d := cmp.Diff(want, groups(t, s, q)); d != "" {
		t.Errorf("groups (-want +got):\n%s", d)
	}
	q.Spread = true
	for _, g := range groups(t, s, q).Groups {
		p, ok := g.Spread.Percentile(100)
		if ok != (g.MetricCount > 0) || ok && math.Abs(p-g.Max) > 0.022*math.Abs(g.Max) {
			t.Errorf("the spread of %+v ends at %g, %v", g, p, ok)
		}
	}
	q.Spread = false
	testIncluded(t, s, q)
	q.Sites, q.Step, q.By, q.Metric = []string{"rome"}, 0, nil, ""
	if g := groups(t, s, q); len(g.Groups) != 1 || g.Groups[0].Count != 1 || !g.Groups[0].Time.IsZero() {
		t.Errorf("of rome: %+v", g)
	}
	for text, want := range map[string]int64{"labels.ms:>=10": 2, "labels.ms:<10": 2, "labels.ms:/[N7].*/": 2, "NOT labels.ms:*0*": 4} {
		q.Text, q.Sites = "severity:error AND "+text, nil
		if n := count(groups(t, s, q)); n != want {
			t.Errorf("%s: %d records, want %d", text, n, want)
		}
	}
	q.Text, q.Sites = "severity:error", []string{}
	if g := groups(t, s, q); len(g.Groups) != 0 {
		t.Errorf("of no site: %+v", g)
	}
	q.Sites, q.By, q.MaxGroups = nil, []string{"site", "labels.ms"}, 2
	if g := groups(t, s, q); len(g.Groups) != 2 || !g.Truncated {
		t.Errorf("at most two groups: %+v", g)
	}

	// A record that comes late is in the next stretch, in its own time, and only there.
	mustStore(t, s, record("late", -26*time.Hour, "paris", "a", "", "late"))
	second := now(t, s, first)
	q = store.GroupQuery{Tenant: "acme", After: first, UpTo: second, Step: time.Minute}
	if g := groups(t, s, q); len(g.Groups) != 1 || g.Groups[0].Count != 1 || !g.Groups[0].Time.Equal(at.Add(-26*time.Hour)) {
		t.Errorf("the late one: %+v", g)
	}
	q.After, q.UpTo = start, first
	if total := count(groups(t, s, q)); total != 7 {
		t.Errorf("%d records in the first stretch, want 7", total)
	}
	// The bounds, to the nanosecond: After is excluded, UpTo included.
	hits := find(t, s, store.Query{Tenant: "acme", Text: "id:late"}).Hits
	if len(hits) != 1 || hits[0].Ingested.IsZero() {
		t.Fatalf("the late record: %+v", hits)
	}
	at1 := hits[0].Ingested
	for _, c := range []struct {
		after, upTo time.Duration
		want        int64
	}{{-1, 0, 1}, {0, 1, 0}, {-2, -1, 0}, {-1, 1, 1}} {
		q := store.GroupQuery{Tenant: "acme", After: at1.Add(c.after), UpTo: at1.Add(c.upTo)}
		if n := count(groups(t, s, q)); n != c.want {
			t.Errorf("after %d, up to %d ns of its ingest: %d records, want %d", c.after, c.upTo, n, c.want)
		}
	}
	q.UpTo = start
	if total := count(groups(t, s, q)); total != 0 {
		t.Errorf("%d records in no time at all", total)
	}

	long := record("long", 0, "paris", "a", "", strings.Repeat("ä", 1000))
	mustStore(t, s, long)
	q.After, q.UpTo = second, now(t, s, second)
	if g := groups(t, s, q); len(g.Groups) != 1 || g.Groups[0].Message != strings.Repeat("ä", 512) {
		t.Errorf("a long message is cut to %d bytes", len(g.Groups[0].Message))
	}
	for field, bad := range map[string]store.GroupQuery{
		"by": {By: []string{"site", "nonsense"}}, "metric": {Metric: "muster.tenant"}, "query": {Text: "a AND"}, "tenant": {Tenant: "../x"}, "step": {Step: -1},
	} {
		if bad.Tenant == "" {
			bad.Tenant = "acme"
		}
		bad.After, bad.UpTo = start, second
		var e *store.QueryError
		if _, err := s.Groups(t.Context(), bad); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	var e *store.QueryError
	if _, err := s.Groups(t.Context(), store.GroupQuery{Tenant: "acme", UpTo: second, By: slices.Repeat([]string{"site"}, 9)}); !errors.As(err, &e) || e.Field != "by" {
		t.Errorf("nine fields: %v", err)
	}
}

// Records of all kinds against groups made from them one by one.
func testGroupsAtRandom(t *testing.T, f Factory) {
	s := f(t, Config{})
	start := now(t, s, time.Time{})
	rnd := rand.New(rand.NewPCG(7, 11))
	pick := func(from ...string) string { return from[rnd.IntN(len(from))] }
	records := make([]store.Record, 1500)
	for i := range records {
		r := store.Record{
			// Each in a millisecond of its own, somewhere in it, up to two days back.
			Timestamp: base().Truncate(time.Hour).Add(-time.Duration(i)*115*time.Second + time.Duration(rnd.IntN(1_000_000))), Tenant: "acme", ID: fmt.Sprint(i),
			Site: pick("paris", "rome", "oslo"), Pod: pick("", "a", "b"), Severity: pick("info", "error"), Message: fmt.Sprintf("message %d of %s", i%40, pick("x", "ü")),
		}
		if rnd.IntN(3) > 0 {
			r.Labels = map[string]string{"user.name": pick("", "ada", "Ünsal", "a b"), "ms": pick("1", "-2.5", " 30 ", "1e3", "NaN", "many", "")}
		}
		records[i] = r
	}
	mustStore(t, s, records...)
	until := now(t, s, start)
	for n := range 40 {
		q := store.GroupQuery{Tenant: "acme", Text: pick("", "severity:error", "message:ü AND NOT pod:b"), After: start, UpTo: until,
			Step: []time.Duration{0, time.Minute, 7 * time.Second, time.Hour, 24 * time.Hour, 1500 * time.Microsecond}[rnd.IntN(6)], Metric: pick("", "labels.ms")}
		for range rnd.IntN(4) {
			q.By = append(q.By, pick("site", "kubernetes.pod.name", "labels.user.name", "severity", "message", "labels.ms", "unit"))
		}
		g, err := q.Grouping()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if strings.Contains(q.Text, "error") && r.Severity != "error" || strings.Contains(q.Text, "ü") && (!strings.Contains(r.Message, "ü") || r.Pod == "b") {
				continue
			}
			g.Add(&r)
		}
		want, got := g.Groups(), groups(t, s, q)
		for _, all := range []store.Groups{want, got} {
			for i, x := range all.Groups {
				all.Groups[i].First, all.Groups[i].Last = x.First.Truncate(time.Millisecond), x.Last.Truncate(time.Millisecond)
			}
		}
		if d := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9), cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("query %d, %+v (-want +got):\n%.3000s", n, q, d)
		}
	}
}

func count(g store.Groups) (n int64) {
	for _, x := range g.Groups {
		n += x.Count
	}
	return n
}

// Stretch after stretch while several write: each record is counted once.
func testGroupsUnderLoad(t *testing.T, f Factory) {
	s := f(t, Config{})
	GroupsUnderLoad(t, s, s, s)
}

// GroupsUnderLoad writes through several handles of one store at once and counts
// through the first.
func GroupsUnderLoad(t *testing.T, handles ...store.Store) {
	at := now(t, handles[0], time.Time{})
	const writes, each = 10, 50
	var wg sync.WaitGroup
	errs := make([]error, len(handles))
	for w, h := range handles {
		wg.Go(func() {
			for n := range writes {
				records := make([]store.Record, each)
				for i := range records {
					records[i] = store.Record{Timestamp: base().Add(-time.Duration(i*w) * time.Hour), Tenant: "acme", ID: fmt.Sprintf("%d-%d-%d", w, n, i), Message: "load"}
				}
				res, err := h.Write(t.Context(), records)
				if err == nil && res.Stored != each {
					err = fmt.Errorf("%+v", res)
				}
				errs[w] = errors.Join(errs[w], err)
			}
		})
	}
	written := make(chan struct{})
	go func() { wg.Wait(); close(written) }()
	total, want := int64(0), int64(len(handles)*writes*each)
	for end := false; !end; {
		select {
		case <-written:
			end = true
		default:
		}
		next := now(t, handles[0], at)
		if end {
			next = now(t, handles[0], time.Now())
		}
		total += count(groups(t, handles[0], store.GroupQuery{Tenant: "acme", After: at, UpTo: next}))
		at = next
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if total != want {
		t.Errorf("%d records counted, %d written", total, want)
	}
}

func testState(t *testing.T, f Factory) {
	s, ctx := f(t, Config{}), t.Context()
	if _, _, err := s.GetState(ctx, "a"); !errors.Is(err, store.ErrNoState) {
		t.Errorf("of nothing: %v", err)
	}
	v1, err := s.PutState(ctx, "a/b c%2F", []byte("one\x00"), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutState(ctx, "a/b c%2F", []byte("again"), ""); !errors.Is(err, store.ErrStateConflict) {
		t.Errorf("made twice: %v", err)
	}
	v2, err := s.PutState(ctx, "a/b c%2F", []byte("two"), v1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutState(ctx, "a/b c%2F", []byte("three"), v1); !errors.Is(err, store.ErrStateConflict) {
		t.Errorf("with an old version: %v", err)
	}
	if b, v, err := s.GetState(ctx, "a/b c%2F"); string(b) != "two" || v != v2 || err != nil {
		t.Errorf("read %q, %q, %v; want two, %q", b, v, err, v2)
	}
	for _, bad := range []string{v1, "", "nonsense"} {
		if err := s.DeleteState(ctx, "a/b c%2F", bad); !errors.Is(err, store.ErrStateConflict) {
			t.Errorf("delete version %q: %v", bad, err)
		}
	}
	if err := s.DeleteState(ctx, "a/b c%2F", v2); err != nil {
		t.Error(err)
	}
	if _, err := s.PutState(ctx, "a/b c%2F", []byte("x"), v2); !errors.Is(err, store.ErrStateConflict) {
		t.Errorf("written after it was deleted: %v", err)
	}
	if _, _, err := s.GetState(ctx, "a/b c%2F"); !errors.Is(err, store.ErrNoState) {
		t.Errorf("after it was deleted: %v", err)
	}
	for _, key := range []string{"", "ä", strings.Repeat("x", store.MaxStateKey+1)} {
		if _, err := s.PutState(ctx, key, nil, ""); err == nil {
			t.Errorf("key %.10q was taken", key)
		}
	}
	longest := strings.Repeat("k", store.MaxStateKey)
	if _, err := s.PutState(ctx, longest, []byte("long"), ""); err != nil {
		t.Error(err)
	}
	if b, _, err := s.GetState(ctx, longest); err != nil || string(b) != "long" {
		t.Errorf("the longest key: %q, %v", b, err)
	}
	big := []byte(strings.Repeat("x", 1<<20))
	if _, err := s.PutState(ctx, "big", big, ""); err != nil {
		t.Error(err)
	}
	if b, _, err := s.GetState(ctx, "big"); err != nil || len(b) != len(big) {
		t.Errorf("a megabyte: %d bytes, %v", len(b), err)
	}

	// Of many at once exactly one wins each round.
	version, wins := "", 0
	for range 5 {
		var mu sync.Mutex
		var wg sync.WaitGroup
		next, won := "", 0
		for i := range 8 {
			wg.Go(func() {
				v, err := s.PutState(ctx, "race", fmt.Append(nil, i), version)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					next, won = v, won+1
				} else if !errors.Is(err, store.ErrStateConflict) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		version, wins = next, wins+won
	}
	if wins != 5 {
		t.Errorf("%d writes won in 5 rounds", wins)
	}
	if p := find(t, s, store.Query{Tenant: "state"}); len(p.Hits) != 0 {
		t.Errorf("a tenant of that name finds %v", ids(p.Hits))
	}
}
