package logs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/logs/store"
)

// tailed is a reader of a tail.
type tailed struct {
	t   *testing.T
	in  chan step
	end func()
	id  string
}

type step struct {
	id string
	wire.LogEvent
}

// openTail opens a tail, and waits for its first sign.
func openTail(t *testing.T, c *Client, params, last string) *tailed {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	in, done := make(chan step), make(chan struct{})
	q := queryOf(t, params)
	go func() {
		defer close(done)
		defer close(in)
		p := c.Tail(ctx, "acme", q, last, func(id string, ev wire.LogEvent) error {
			select {
			case in <- step{id, ev}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if p != nil {
			t.Errorf("%s: %+v", params, p)
		}
	}()
	r := &tailed{t: t, in: in, end: func() { cancel(); <-done }}
	t.Cleanup(r.end)
	return r
}

// next is the next step that has something in it.
func (r *tailed) next() step {
	r.t.Helper()
	for {
		e, ok := <-r.in
		if !ok {
			r.t.Fatal("the tail ended")
		}
		if r.id = e.id; e.id == "" {
			r.t.Errorf("a step without an id: %+v", e)
		}
		if e.Hits != nil || e.MissingRegions != nil {
			return e
		}
	}
}

func (r *tailed) missing() map[string]string {
	r.t.Helper()
	e := r.next()
	if e.MissingRegions == nil {
		r.t.Fatalf("%+v", e)
	}
	out := map[string]string{}
	for _, m := range e.MissingRegions {
		out[m.Region] = m.Reason
	}
	return out
}

// hits reads on until n hits are there.
func (r *tailed) hits(n int) (out []string) {
	r.t.Helper()
	for len(out) < n {
		e := r.next()
		if !slices.IsSortedFunc(e.Hits, func(a, b wire.LogHit) int { return a.Compare(&b) }) {
			r.t.Errorf("not oldest first: %v", hitIDs(e.Hits))
		}
		out = append(out, hitIDs(e.Hits)...)
	}
	slices.Sort(out)
	return out
}

func TestTail(t *testing.T) {
	a, b := newRegion(t, "a"), newRegion(t, "b")
	a.mem.put(record("s1", 0, "before"))
	c := newClient(t, []*region{a, b})
	r := openTail(t, c, "query=line", "")
	if m := r.missing(); len(m) != 0 {
		t.Fatalf("%v", m)
	}
	begin := r.id
	other := record("s1", 0, "other")
	other.Tenant = "globex"
	a.mem.put(record("s1", 5*time.Second, "a1"), other)
	b.mem.put(record("s1", time.Second, "b1"))
	if got := r.hits(2); !slices.Equal(got, []string{"a1", "b1"}) {
		t.Errorf("%v", got)
	}
	at := r.id
	r.end()
	a.mem.put(record("s1", 6*time.Second, "a2"))
	b.mem.put(record("s1", 0, "b2"))
	r = openTail(t, c, "query=line", at)
	if got := r.hits(2); !slices.Equal(got, []string{"a2", "b2"}) {
		t.Errorf("resumed: %v", got)
	}
	r = openTail(t, c, "virtualSite=odd&site=s1,s2", begin)
	if got := r.hits(4); !slices.Equal(got, []string{"a1", "a2", "b1", "b2"}) {
		t.Errorf("from the start: %v", got)
	}
}

// TestTailOverALostRegion loses a region under an open tail, and brings it back with
// what it took in the meantime.
func TestTailOverALostRegion(t *testing.T) {
	a, b := newRegion(t, "a"), newRegion(t, "b")
	c := newClient(t, []*region{a, b}, func(o *Options) { o.PerRegionTimeout = 500 * time.Millisecond })
	r := openTail(t, c, "", "")
	if m := r.missing(); len(m) != 0 {
		t.Fatalf("%v", m)
	}
	b.mem.put(record("s1", 0, "b0"))
	r.hits(1)
	b.set(hang) // and the open one is cut
	b.srv.CloseClientConnections()
	if m := r.missing(); !slices.Equal(slices.Collect(maps.Keys(m)), []string{"b"}) {
		t.Fatalf("%v", m)
	}
	b.mem.put(record("s1", time.Second, "b1"))
	a.mem.put(record("s1", time.Second, "a1"))
	for got := []string{}; !slices.Contains(got, "a1"); { // the other one goes on; the reason may change
		got = hitIDs(r.next().Hits)
	}
	at := r.id
	b.set(nil)
	var seen []string
	for back := false; !back || len(seen) == 0; {
		e := r.next()
		seen, back = append(seen, hitIDs(e.Hits)...), back || e.MissingRegions != nil && len(e.MissingRegions) == 0
	}
	if !slices.Equal(seen, []string{"b1"}) {
		t.Errorf("after it came back: %v", seen)
	}
	r.end()
	// A reader that comes back later has lost nothing of the region either.
	r = openTail(t, c, "", at)
	if got := r.hits(1); !slices.Equal(got, []string{"b1"}) {
		t.Errorf("resumed: %v", got)
	}
}

func TestTailOfBadRegions(t *testing.T) {
	events := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, text)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}
	good := newRegion(t, "good")
	regions := []*region{good}
	want := map[string]string{}
	for name, x := range map[string]struct {
		f      http.HandlerFunc
		reason string
	}{
		"hangs":    {hang, "did not answer within 200ms"},
		"silent":   {events(""), "did not answer within 200ms"},
		"crumbs":   {events("event: hits\nid: x\n"), "did not answer within 200ms"},
		"dies":     {events("event: position\nid: x\ndata: {}\n\n"), "did not answer within 200ms"}, // and says nothing more
		"garbage":  {events("event: hits\nid: x\ndata: {\n\n"), "gave no usable answer"},
		"no-id":    {events("event: hits\ndata: {\"hits\":[]}\n\n"), "gave no usable answer"},
		"endless":  {events("data: " + strings.Repeat("x", tailEventBytes+1)), "gave no usable answer"},
		"tenant":   {events("event: hits\nid: x\ndata: {\"hits\":[{\"tenant\":\"globex\",\"id\":\"1\",\"timestamp\":\"2026-01-01T00:00:00Z\"}]}\n\n"), "gave no usable answer"},
		"trouble":  {events("event: trouble\nid: x\ndata: {\"detail\":\"no disk\"}\n\n"), "no disk"},
		"not-sse":  {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") }, "gave no usable answer"},
		"no-store": {nil, "the region's log store can't answer now; the regional's log has the cause"},
	} {
		r := newRegion(t, name)
		r.set(x.f)
		r.mem.down = x.f == nil
		regions, want[name] = append(regions, r), x.reason
	}
	c := newClient(t, regions, func(o *Options) { o.PerRegionTimeout, o.TailIdle = 200*time.Millisecond, 200*time.Millisecond })
	r := openTail(t, c, "", "")
	// "dies" is there and away by turns; all others are named soon.
	deadline := time.Now().Add(10 * time.Second)
	for {
		if m := r.missing(); maps.Equal(m, want) {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("missing %v\nwant %v", m, want)
		}
	}
	good.mem.put(record("s1", 0, "one"))
	for {
		if e := r.next(); e.Hits != nil {
			if len(e.Hits) != 1 || e.Hits[0].ID != "one" {
				t.Errorf("%+v", e.Hits)
			}
			break
		}
	}
}

func TestTailRefusals(t *testing.T) {
	a, b := newRegion(t, "a"), newRegion(t, "b")
	c := newClient(t, []*region{a, b}, func(o *Options) { o.MaxTails = 1 })
	try := func(params, last string) int {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		p := c.Tail(ctx, "acme", queryOf(t, params), last, func(string, wire.LogEvent) error {
			t.Errorf("%s %s: it began", params, last)
			return context.Canceled
		})
		if p == nil {
			return 0
		}
		return p.Status
	}
	for _, params := range []string{"query=(", "from=x"} {
		if code := try(params, ""); code != 400 {
			t.Errorf("%s: %d", params, code)
		}
	}
	for _, last := range []string{"x", "bnVsbA", encode(tailID{"a": strings.Repeat("x", maxPositionBytes+1)}), encode(tailID{"a": "x", "b": "y"})} {
		if code := try("", last); code != 400 {
			t.Errorf("id %.40s: %d", last, code)
		}
	}
	if code := try("virtualSite=unknown", ""); code != 404 {
		t.Errorf("%d", code)
	}
	c.tails.Take("another")
	if code := try("", ""); code != 429 {
		t.Errorf("%d", code)
	}
	c.tails.Give("another")
}

// TestTailsEnd checks that a reader that leaves leaves nothing behind: not here, where
// goleak looks at the end of the package's tests, and not at the regions.
func TestTailsEnd(t *testing.T) {
	a := newRegion(t, "a")
	c := newClient(t, []*region{a})
	for range 5 {
		r := openTail(t, c, "", "")
		r.missing()
		r.end()
	}
	free := func() (n int) {
		for c.tails.Take("acme") {
			n++
		}
		for range n {
			c.tails.Give("acme")
		}
		return n
	}
	testkit.EventuallyTrue(t, "no tail is left", func() bool { return testutil.ToFloat64(c.open) == 0 && free() == 128 }) // half of 256
}

// TestTailKeepsAQuietReadersPlace: signs of life come, with an id.
func TestTailKeepsAQuietReadersPlace(t *testing.T) {
	a := newRegion(t, "a")
	c := newClient(t, []*region{a}, func(o *Options) { o.KeepAlive = 30 * time.Millisecond })
	r := openTail(t, c, "", "")
	r.missing()
	for range 3 {
		if e := <-r.in; e.id != r.id || e.Hits != nil || e.MissingRegions != nil {
			t.Errorf("%+v", e)
		}
	}
}

// A reader that is let go of as soon as the tail begins has an id that leaves nothing out.
func TestTailBeginsWithWhatHasComeIn(t *testing.T) {
	a := newRegion(t, "a")
	c := newClient(t, []*region{a})
	r := openTail(t, c, "", "")
	r.missing()
	at := r.id
	r.end()
	a.mem.put(record("s1", 0, "one"))
	r = openTail(t, c, "", at)
	first := <-r.in
	r.end()
	got := hitIDs(first.Hits)
	if len(got) == 0 {
		got = openTail(t, c, "", first.id).hits(1)
	}
	if !slices.Equal(got, []string{"one"}) {
		t.Errorf("%v", got)
	}
}

func FuzzDecodeAnswer(f *testing.F) {
	f.Add([]byte(`{"regions":["a"],"hits":[{"timestamp":"2026-01-01T00:00:00Z","tenant":"acme","id":"x","cursor":"c","message":"m","labels":{"a":"b"}}],"total":1,"histogram":{"start":"2026-01-01T00:00:00Z","stepSeconds":1,"counts":[1]},"next":"c"}`))
	f.Add([]byte(`{"hits":[],"missingRegions":[{"region":"b","reason":"x"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAnswer(strings.NewReader(string(b)), 1<<16, "acme", 10)
		if err != nil {
			return
		}
		if len(a.Hits) > 10 || len(b) > 1<<16 {
			t.Fatal("over the limits")
		}
		for _, h := range a.Hits {
			if h.Tenant != "acme" || h.ID == "" || h.Cursor == "" {
				t.Fatalf("%+v", h)
			}
		}
		// What passes can be merged and sent, in finite pages.
		c, err := New(Options{Regionals: []Regional{{Name: "a", URL: "http://a"}}})
		if err != nil {
			t.Fatal(err)
		}
		out := &wire.LogPage{Histogram: sum([]*wire.LogHistogram{a.Histogram, a.Histogram})}
		c.merge(out, []result{{unit: unit{regions: []string{"a"}}, RegionLogs: a}}, 10, &pageCursor{})
		if _, err := json.Marshal(out); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzDecodeHits(f *testing.F) {
	f.Add([]byte(`{"hits":[{"timestamp":"2026-01-01T00:00:00Z","tenant":"acme","id":"x"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		hits, err := decodeHits(b, "acme")
		for _, h := range hits {
			if err == nil && (h.Tenant != "acme" || h.ID == "") {
				t.Fatalf("%+v", h)
			}
		}
		if err == nil {
			if _, err := json.Marshal(hits); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzCursors(f *testing.F) {
	f.Add(encode(pageCursor{Search: "s", At: "p", From: 5, Behind: map[string]string{"a": "q"}}))
	f.Add(encode(tailID{"a": "x"}))
	f.Fuzz(func(t *testing.T, s string) {
		req := &request{fingerprint: "s", from: time.Unix(1, 0)}
		if c, err := decodePage(s, req); err == nil && s != "" {
			again, err := decodePage(c.next(map[string]string{"a": c.position("a"), "b": c.position("b")}, []string{"a", "b"}), req)
			if err != nil || again.position("a") != c.position("a") || again.position("b") != c.position("b") {
				t.Fatalf("%+v %+v %v", c, again, err)
			}
		}
		if id, err := decodeTail(s); err == nil {
			if again, err := decodeTail(encode(id)); len(encode(id)) <= maxCursorBytes && (err != nil || !maps.Equal(again, id)) {
				t.Fatalf("%v %v %v", id, again, err)
			}
		}
	})
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"now-1h", "2026-11-21", "2026-11-21T10:30:00Z", "1795262400.5", `"`, "now TO *"} {
		f.Add(s)
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		at, err := parseTime(s, now)
		if err != nil {
			return
		}
		if badTime(at) {
			t.Fatalf("%q is %s", s, at)
		}
		if _, err := (store.Query{Tenant: "acme", From: at}).Plan(now, window); err != nil {
			t.Fatalf("%q: the store refuses it: %v", s, err)
		}
	})
}
