package logs

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/logs/query"
	"muster.dev/muster/regional/logs/store"
)

// TestPagesAreOneBigList puts random records into random regions, many of one
// timestamp and some in two regions, and reads them page by page; the oracle is one
// sorted list. Regions cut their pages by bytes, and so does the merge.
func TestPagesAreOneBigList(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 4))
		var regions []*region
		for i := range 1 + rng.IntN(4) {
			regions = append(regions, newRegion(t, fmt.Sprintf("r%d", i), func(o *query.Options) { o.MaxBytes = 400 + rng.IntN(4000) }))
		}
		var want []store.Record
		perSite := map[string]int64{}
		for i := range rng.IntN(150) {
			r := record(fmt.Sprintf("s%d", rng.IntN(4)), time.Duration(rng.IntN(30))*time.Second, fmt.Sprintf("%04d", i))
			want = append(want, r)
			perSite[r.Site]++
			first := rng.IntN(len(regions))
			regions[first].mem.put(r)
			if other := rng.IntN(len(regions)); rng.IntN(20) == 0 && other != first {
				regions[other].mem.put(r)
			}
			if rng.IntN(3) == 0 {
				r.Tenant = "globex"
				regions[first].mem.put(r)
			}
		}
		slices.SortFunc(want, func(a, b store.Record) int { return -compareRecords(a, b) })
		c := newClient(t, regions, func(o *Options) { o.MaxPageBytes = 2000 + rng.IntN(20000) })
		var got []string
		for pages, cursor := 0, ""; ; pages++ {
			a := mustAsk(t, c, fmt.Sprintf("limit=%d&cursor=%s", 1+rng.IntN(60), cursor))
			if len(a.MissingRegions) > 0 || len(a.Hits) == 0 && a.NextCursor != "" || pages > len(want)+1 {
				t.Fatalf("seed %d, page %d: %+v", seed, pages, a)
			}
			sum := int64(0)
			for _, n := range a.Histogram.Counts {
				sum += n
			}
			if sum != a.Total {
				t.Fatalf("seed %d: the histogram has %d, the total is %d", seed, sum, a.Total)
			}
			got = append(got, hitIDs(a.Hits)...)
			if cursor = a.NextCursor; cursor == "" {
				break
			}
		}
		for i := range want {
			if i >= len(got) || got[i] != want[i].ID {
				t.Fatalf("seed %d: hit %d of %d is wrong: %v", seed, i, len(want), got)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("seed %d: %d hits, want %d", seed, len(got), len(want))
		}
	}
}

// TestNothingIsLostWhileRegionsComeAndGo makes regions fail at random between pages. Every
// record must come exactly once, within a page in order, unless its region was
// missing to the end.
func TestNothingIsLostWhileRegionsComeAndGo(t *testing.T) {
	down := func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", 500) }
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var regions []*region
		for i := range 2 + rng.IntN(3) {
			regions = append(regions, newRegion(t, fmt.Sprintf("r%d", i)))
		}
		want := map[string]bool{}
		for i := range 120 {
			r := record("s", time.Duration(rng.IntN(50))*time.Second, fmt.Sprintf("%04d", i))
			regions[rng.IntN(len(regions))].mem.put(r)
			want[r.ID] = true
		}
		c := newClient(t, regions)
		for page, cursor := 0, ""; ; page++ {
			for _, r := range regions {
				if r.set(nil); page < 12 && rng.IntN(3) == 0 {
					r.set(down)
				}
			}
			a := mustAsk(t, c, "limit=7&cursor="+cursor)
			for i, h := range a.Hits {
				if !want[h.ID] {
					t.Fatalf("seed %d: %s twice", seed, h.ID)
				}
				delete(want, h.ID)
				if i > 0 && h.Compare(&a.Hits[i-1]) >= 0 {
					t.Fatalf("seed %d: a page is out of order", seed)
				}
			}
			if a.NextCursor == "" && len(a.MissingRegions) > 0 { // all that can be had: ask this page again
				continue
			}
			if cursor = a.NextCursor; cursor == "" {
				break
			}
		}
		if len(want) > 0 {
			t.Fatalf("seed %d: lost %v", seed, want)
		}
	}
}

func TestBadRegionsAreNamed(t *testing.T) {
	good, bad := newRegion(t, "good"), newRegion(t, "bad")
	good.mem.put(record("s1", time.Second, "one"))
	bad.mem.put(record("s1", 2*time.Second, "two"))
	c := newClient(t, []*region{good, bad}, func(o *Options) { o.PerRegionTimeout, o.MaxAnswerBytes = 300*time.Millisecond, 1<<20 })
	js := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, body)
		}
	}
	hit := func(change string) string {
		return `{"hits":[{"timestamp":"2026-01-01T00:00:00Z","tenant":"acme","id":"x","cursor":"c"` + change + `}]}`
	}
	prob := func(code int, detail string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(map[string]any{"detail": detail})
		}
	}
	for name, x := range map[string]struct {
		f      http.HandlerFunc
		reason string
	}{
		"hangs": {hang, "did not answer within 300ms"},
		"hangs in the middle": {func(w http.ResponseWriter, r *http.Request) {
			js(`{"hits":[`)(w, r)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "did not answer within 300ms"},
		"endless": {func(w http.ResponseWriter, r *http.Request) {
			js(`{"hits":[`)(w, r)
			for r.Context().Err() == nil {
				if _, err := fmt.Fprint(w, strings.Repeat(" ", 4096)); err != nil {
					return
				}
			}
		}, "its answer is too large; ask for less with limit"},
		"cut": {func(w http.ResponseWriter, r *http.Request) {
			js(`{"hits":[`)(w, r)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "gave no usable answer"},
		"not JSON":           {js("<html>"), "gave no usable answer"},
		"no hits":            {js("{}"), "gave no usable answer"},
		"another tenant":     {js(hit(`,"tenant":"globex"`)), "gave no usable answer"},
		"no time":            {js(hit(`,"timestamp":"0001-01-01T00:00:00Z"`)), "gave no usable answer"},
		"no cursor":          {js(hit(`,"cursor":""`)), "gave no usable answer"},
		"no id":              {js(hit(`,"id":""`)), "gave no usable answer"},
		"next without hits":  {js(`{"hits":[],"next":"x"}`), "gave no usable answer"},
		"a bad histogram":    {js(`{"hits":[],"histogram":{"start":"2026-01-01T00:00:00Z","stepSeconds":0,"counts":[1]}}`), "gave no usable answer"},
		"deep":               {js(strings.Repeat("[", 100_000)), "gave no usable answer"},
		"plain text":         {func(w http.ResponseWriter, r *http.Request) { http.Error(w, "secret", 500) }, "gave no usable answer"},
		"a redirect":         {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, good.srv.URL+r.URL.String(), 302) }, "gave no usable answer"},
		"torn down":          {func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, "can't be reached"},
		"busy":               {prob(429, "busy now"), "busy now"},
		"with control codes": {prob(503, "a\r\n\x1b[31mb"), "a   [31mb"},
		"refuses":            {prob(400, "query: no"), "query: no"},
		"knows no such":      {prob(404, "no such virtual site"), "no such virtual site"},
	} {
		bad.set(x.f)
		begin := time.Now()
		a := mustAsk(t, c, "")
		if !slices.Equal(hitIDs(a.Hits), []string{"one"}) || len(a.MissingRegions) != 1 || a.MissingRegions[0] != (wire.MissingRegion{Region: "bad", Reason: x.reason}) {
			t.Errorf("%s: %v %+v", name, hitIDs(a.Hits), a.MissingRegions)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
	bad.set(nil)
	if a := mustAsk(t, c, ""); !slices.Equal(hitIDs(a.Hits), []string{"two", "one"}) || len(a.MissingRegions) != 0 {
		t.Errorf("%+v", a)
	}
	// The caller's own deadline makes a partial answer too, not an empty one.
	bad.set(hang)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if a, p := c.Search(ctx, "acme", wire.LogQuery{}); p != nil || len(a.Hits) != 1 || a.Hits[0].ID != "one" || len(a.MissingRegions) != 1 || a.MissingRegions[0].Region != "bad" {
		t.Errorf("%+v %+v", a, p)
	}
	// With patience, what came is there, and who is late is named; nobody is left waiting.
	slow, leave := context.WithCancel(context.Background())
	defer leave()
	bad.set(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done(); leave() })
	patient := newClient(t, []*region{good, bad}) // 10 s for a region
	a, p := patient.Search(t.Context(), "acme", wire.LogQuery{Patience: 20 * time.Millisecond})
	if p != nil || !slices.Equal(hitIDs(a.Hits), []string{"one"}) || !slices.Equal(a.MissingRegions, []wire.MissingRegion{{Region: "bad", Reason: "has not answered yet, after 20ms", Late: true}}) {
		t.Errorf("with patience: %+v %+v", a, p)
	}
	<-slow.Done() // the region is not asked any longer
	bad.set(nil)
	bad.srv.Close()
	if a := mustAsk(t, c, ""); len(a.Hits) != 1 || a.MissingRegions[0].Reason != "can't be reached" {
		t.Errorf("%+v", a)
	}
	good.srv.Close()
	if a := mustAsk(t, c, ""); a.Hits == nil || len(a.Hits) != 0 || len(a.MissingRegions) != 2 || a.NextCursor != "" {
		t.Errorf("%+v", a)
	}
}

func TestQuestionsThatAreWrong(t *testing.T) {
	a, b := newRegion(t, "a"), newRegion(t, "b")
	c := newClient(t, []*region{a, b}, func(o *Options) { o.MaxSearches = 1 })
	for params, field := range map[string]string{
		"query=(": "query", "from=yesterday": "from", "to=1e30": "to", "from=*": "from",
		"from=now&to=now-1h": "to", "limit=-1": "limit", "limit=1001": "limit", "cursor=x": "cursor", "cursor=" + encode(pageCursor{Search: "other"}): "cursor", "from=%22": "from",
	} {
		_, p := ask(t, c, params)
		if p == nil || p.Status != 400 || len(p.Errors) != 1 || p.Errors[0].Field != field || p.Type != wire.ProblemInvalid {
			t.Errorf("%s: %+v", params, p)
		}
	}
	if n := len(a.queries()); n != 0 {
		t.Errorf("%d of them went to a region", n)
	}
	// Only the regions know the virtual sites: all must say no.
	if _, p := ask(t, c, "virtualSite=unknown"); p == nil || p.Status != 404 || p.Type != wire.ProblemNotFound {
		t.Errorf("%+v", p)
	}
	mustAsk(t, c, "virtualSite=odd")
	c.searches.Take("another")
	if _, p := ask(t, c, ""); p == nil || p.Status != 429 || p.RetryAfter == 0 {
		t.Errorf("%+v", p)
	}
}

func TestParametersReachTheRegions(t *testing.T) {
	r := newRegion(t, "a")
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	c := newClient(t, []*region{r}, func(o *Options) { o.Now = func() time.Time { return now } })
	for i := range 3 {
		x := record("s1", 0, fmt.Sprint(i))
		x.Timestamp = time.Now().Add(-time.Minute)
		r.mem.put(x)
	}
	mustAsk(t, c, "query=line&site=b,a&site=b&severity=error&namespace=n&virtualSite=odd&from=now-1h&to=1795262400&limit=5")
	want := url.Values{"query": {"line"}, "site": {"a,b"}, "severity": {"error"}, "namespace": {"n"}, "virtualSite": {"odd"}, "from": {"2026-11-21T11:00:00Z"},
		"to": {"2026-11-21T12:00:00Z"}, "limit": {"5"}, "buckets": {"120"}, "local": {"1"}}
	if got := r.queries()[0]; got.Encode() != want.Encode() {
		t.Errorf("asked %s\nwant  %s", got.Encode(), want.Encode())
	}
	// What "now" was on the first page it stays, and a cursor is of one search only.
	c.opts.Now = time.Now
	first := mustAsk(t, c, "from=now-1h&limit=1")
	c.opts.Now = func() time.Time { return time.Now().Add(30 * time.Minute) }
	mustAsk(t, c, "from=now-1h&limit=1&cursor="+first.NextCursor)
	q := r.queries()
	if a, b := q[1].Get("from"), q[2].Get("from"); a != b || a == "" {
		t.Errorf("from %s, then %s", a, b)
	}
	for _, params := range []string{"limit=1", "from=now-2h", "from=now-1h&query=x", "from=now-1h&site=a"} {
		if _, p := ask(t, c, params+"&cursor="+first.NextCursor); p == nil || p.Status != 400 {
			t.Errorf("%s: the cursor of another search is taken: %+v", params, p)
		}
	}
}

func TestJoinedClustersAreAskedOnce(t *testing.T) {
	names := []string{"a", "b", "c"}
	var regions []*region
	for i, name := range names {
		r := newRegion(t, name, func(o *query.Options) {
			if name == "a" {
				o.Joined = []string{"b", "c"}
			}
		})
		for j := range 4 {
			r.mem.put(record("s", time.Duration(j*3+i)*time.Second, fmt.Sprintf("%s%d", name, j)))
		}
		regions = append(regions, r)
	}
	a, b, cc := regions[0], regions[1], regions[2]
	a.mem.joined, a.mem.away = map[string]*memory{"b": b.mem, "c": cc.mem}, map[string]bool{}
	c := newClient(t, regions, func(o *Options) { o.Regionals[0].JoinedTo = []string{"b", "c"} })
	all := func(wantMissing ...string) (got []string) {
		t.Helper()
		cursor := ""
		for {
			page := mustAsk(t, c, "limit=5&cursor="+cursor)
			got = append(got, hitIDs(page.Hits)...)
			var missing []string
			for _, m := range page.MissingRegions {
				missing = append(missing, m.Region)
			}
			if !slices.Equal(missing, wantMissing) || page.Total != int64(12-4*len(wantMissing)) {
				t.Errorf("missing %v, want %v; total %d", page.MissingRegions, wantMissing, page.Total)
			}
			if cursor = page.NextCursor; cursor == "" {
				return got
			}
		}
	}
	want := []string{"c3", "b3", "a3", "c2", "b2", "a2", "c1", "b1", "a1", "c0", "b0", "a0"}
	if got := all(); !slices.Equal(got, want) || len(b.queries())+len(cc.queries()) != 0 {
		t.Errorf("%v; b was asked %d times", got, len(b.queries()))
	}
	// One cluster can't be reached from the other: its regional is asked itself.
	a.mem.away["b"] = true
	if got := all(); !slices.Equal(got, want) || len(b.queries()) == 0 || len(cc.queries()) != 0 {
		t.Errorf("%v", got)
	}
	if q := b.queries()[0]; q.Get("local") != "1" {
		t.Errorf("b was asked %v", q)
	}
	// It is away altogether.
	b.set(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "", 500) })
	if got := all("b"); len(got) != 8 {
		t.Errorf("%v", got)
	}
	// The one that is asked for all is away: the others answer for themselves.
	b.set(nil)
	a.set(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "", 500) })
	if got := all("a"); len(got) != 8 || len(cc.queries()) == 0 {
		t.Errorf("%v", got)
	}
}

func TestHistogramsAddUp(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0).UTC() }
	same := sum([]*wire.LogHistogram{{Start: at(60), StepSeconds: 10, Counts: []int64{1, 2}}, nil, {Start: at(40), StepSeconds: 10, Counts: []int64{3, 0, 4}}})
	if b, _ := json.Marshal(same); string(b) != `{"start":"1970-01-01T00:00:40Z","stepSeconds":10,"counts":[3,0,5,2]}` {
		t.Errorf("%s", b)
	}
	mixed := sum([]*wire.LogHistogram{{Start: at(60), StepSeconds: 20, Counts: []int64{1, 2}}, {Start: at(50), StepSeconds: 5, Counts: []int64{1, 1, 1, 1, 1, 1, 1}}})
	if b, _ := json.Marshal(mixed); string(b) != `{"start":"1970-01-01T00:00:40Z","stepSeconds":20,"counts":[2,5,3]}` {
		t.Errorf("%s", b)
	}
	if sum([]*wire.LogHistogram{nil}) != nil || sum([]*wire.LogHistogram{{Start: at(0), StepSeconds: 1, Counts: []int64{1}}, {Start: at(1e9), StepSeconds: 1, Counts: []int64{1}}}) != nil {
		t.Error("made up")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for want, regionals := range map[string][]Regional{
		"is empty":    nil,
		"Name":        {{URL: "http://a"}},
		"there twice": {{Name: "a", URL: "http://a"}, {Name: "a", URL: "http://a"}},
		"URL":         {{Name: "a", URL: "a:80"}},
		"JoinedTo":    {{Name: "a", URL: "http://a", JoinedTo: []string{"a"}}},
	} {
		if _, err := New(Options{Regionals: regionals}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A tenant's searches that take for ever leave room for another's.
func TestSearchesAreShared(t *testing.T) {
	a := newRegion(t, "a")
	entered := make(chan struct{}, 16)
	ctx, stop := context.WithCancel(t.Context())
	a.set(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(wire.TenantHeader) != "greedy" {
			http.Error(w, "not now", http.StatusServiceUnavailable) // a page without this region
			return
		}
		entered <- struct{}{}
		select {
		case <-ctx.Done():
		case <-r.Context().Done():
		}
	})
	c := newClient(t, []*region{a}, func(o *Options) { o.MaxSearches = 8 })
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { _, _ = c.Search(ctx, "greedy", queryOf(t, "")) })
		<-entered
	}
	if _, p := c.Search(ctx, "greedy", queryOf(t, "")); p == nil || p.Status != http.StatusTooManyRequests || p.RetryAfter == 0 {
		t.Errorf("a fifth of 8: %+v", p)
	}
	if _, p := c.Search(ctx, "acme", queryOf(t, "")); p != nil {
		t.Errorf("another tenant: %+v", p)
	}
	stop()
	wg.Wait()
}
