package logs

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/regional/logs/query"
)

// Two regionals that keep their records in one store: each record is counted and told
// once, by whichever of them answers.
func TestRegionalsThatShareAStore(t *testing.T) {
	a := newRegion(t, "a")
	b := newRegion(t, "b", func(o *query.Options) { o.Store = a.mem })
	far := newRegion(t, "far")
	a.mem.put(record("s1", 0, "one"), record("s1", time.Second, "two"))
	far.mem.put(record("s2", 2*time.Second, "three"))
	c := newClient(t, []*region{a, far}, func(o *Options) {
		o.PerRegionTimeout = 300 * time.Millisecond
		o.Regionals[0].Spares = []Spare{{"b", b.srv.URL + "/"}}
	})
	look := func(wantTotal int64, wantMissing ...string) {
		t.Helper()
		page := mustAsk(t, c, "limit=10")
		var missing []string
		for _, m := range page.MissingRegions {
			missing = append(missing, m.Region)
		}
		if page.Total != wantTotal || int64(len(page.Hits)) != wantTotal || !slices.Equal(missing, wantMissing) {
			t.Errorf("total %d, %d hits, missing %v; want %d, missing %v", page.Total, len(page.Hits), missing, wantTotal, wantMissing)
		}
	}
	look(3)
	if n := len(b.queries()); n != 0 {
		t.Errorf("the spare was asked %d times, though the other one answers", n)
	}
	r := openTail(t, c, "", "")
	if m := r.missing(); len(m) != 0 {
		t.Fatalf("%v", m)
	}
	a.set(hang)
	a.srv.CloseClientConnections()
	look(3)
	a.mem.put(record("s1", 3*time.Second, "four"))
	if got := r.hits(1); !slices.Equal(got, []string{"four"}) {
		t.Errorf("the tail goes on with %v", got)
	}
	b.set(hang)
	b.srv.CloseClientConnections()
	look(1, "a", "b")
	for m := map[string]string{}; len(m) != 2; { // the reason may change meanwhile
		if m = r.missing(); len(m) == 2 && strings.Join(slices.Sorted(maps.Keys(m)), " ") != "a b" {
			t.Errorf("%v", m)
		}
	}
	// A question that is wrong is not asked twice.
	a.set(nil)
	b.set(nil)
	before := len(b.queries())
	if _, p := ask(t, c, "query=%22"); p == nil || p.Status != 400 || len(b.queries()) != before {
		t.Errorf("%+v, the spare was asked", p)
	}
}
