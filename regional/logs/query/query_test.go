package query

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"muster.dev/muster/internal/sse"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/logs/store"
	"muster.dev/muster/regional/logs/store/embedded"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker")) // the library's own pool, for the life of the process
}

var base = time.Now().UTC().Add(-time.Hour).Truncate(time.Minute)

func record(tenant, site string, i int, message string) store.Record {
	return store.Record{Timestamp: base.Add(time.Duration(i) * time.Second), Tenant: tenant, Site: site, Region: "eu", Namespace: "shop", Severity: "info",
		Message: message, ID: fmt.Sprintf("%s-%s-%04d", tenant, site, i), Labels: map[string]string{"app": "web"}}
}

func openStore(t testing.TB) *embedded.Store {
	t.Helper()
	s, err := embedded.Open(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(t testing.TB, s store.Store, records ...store.Record) {
	t.Helper()
	res, err := s.Write(context.Background(), records)
	if err != nil || res.Stored != len(records) {
		t.Fatalf("%+v %v", res, err)
	}
}

// serve mounts an API before a real store; acme has the virtual site shared/all, of a and b.
func serve(t testing.TB, s Store, change ...func(*Options)) (*httptest.Server, *API) {
	t.Helper()
	o := Options{Regional: "eu-1", Store: s, Poll: 10 * time.Millisecond, KeepAlive: 50 * time.Millisecond, Members: func(tenant, vs string) ([]string, bool) {
		switch tenant + " " + vs {
		case "acme shared/all":
			return []string{"a", "b"}, true
		case "acme shared/none":
			return nil, true
		}
		return nil, false
	}}
	for _, c := range change {
		c(&o)
	}
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	a.Register(mux)
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		a.Close()
		srv.Close()
	})
	return srv, a
}

func get(t testing.TB, srv *httptest.Server, path string, header ...string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequest("GET", srv.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(header) == 0 {
		header = []string{wire.TenantHeader, "acme"}
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	res, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, b
}

type searchAnswer = wire.RegionLogs

func find(t testing.TB, srv *httptest.Server, query string, header ...string) searchAnswer {
	t.Helper()
	code, b := get(t, srv, PathSearch+"?"+query, header...)
	var out searchAnswer
	if err := json.Unmarshal(b, &out); err != nil || code != 200 {
		t.Fatalf("%s: %d %v\n%s", query, code, err, b)
	}
	return out
}

func ids(a searchAnswer) (out []string) {
	for _, h := range a.Hits {
		out = append(out, h.ID)
	}
	return out
}

func TestSearch(t *testing.T) {
	s := openStore(t)
	var all []string
	for i := range 10 {
		put(t, s, record("acme", string(rune('a'+i%3)), i, "line"), record("globex", "a", i, "other"))
		all = append(all, fmt.Sprintf("acme-%c-%04d", 'a'+i%3, i))
	}
	slices.Reverse(all)
	srv, _ := serve(t, s)
	if got := find(t, srv, ""); !slices.Equal(ids(got), all) || got.Total != 10 || !slices.Equal(got.Regions, []string{"eu-1"}) || got.Next != "" || got.Histogram != nil {
		t.Errorf("%v %+v", ids(got), got)
	}
	if b := fmt.Sprint(get(t, srv, PathSearch+"?limit=1")); strings.Contains(b, "ingested") {
		t.Error("the store's own time is shown")
	}
	// Every hit's cursor continues below it.
	page := find(t, srv, "limit=4&buckets=10")
	if len(page.Hits) != 4 || page.Next != page.Hits[3].Cursor || page.Total != 10 || page.Histogram == nil || page.Histogram.StepSeconds < 1 {
		t.Errorf("%+v", page)
	}
	for i, h := range page.Hits {
		if got := find(t, srv, "cursor="+h.Cursor); !slices.Equal(ids(got), all[i+1:]) {
			t.Errorf("below hit %d: %v", i, ids(got))
		}
	}
	for query, want := range map[string]int{
		"site=a": 4, "site=a,b": 7, "site=a&site=c": 7, "virtualSite=shared/all": 7, "virtualSite=all": 7, "virtualSite=all&site=b,c": 3,
		"virtualSite=none": 0, "severity=INFO": 10, "severity=error": 0, "namespace=shop,x": 10, "query=line": 10, "query=labels.app:web+AND+other": 0,
		"from=" + base.Add(5*time.Second).Format(time.RFC3339Nano): 5, "to=" + base.Add(5*time.Second).Format(time.RFC3339Nano): 5,
		"query=" + url.QueryEscape(`tenant:globex OR "tenant:globex"`): -1,
	} {
		code, b := get(t, srv, PathSearch+"?"+query)
		if want < 0 {
			if strings.Contains(string(b), "globex-") {
				t.Errorf("%s: %s", query, b)
			}
			continue
		}
		var a searchAnswer
		if err := json.Unmarshal(b, &a); err != nil || code != 200 || len(a.Hits) != want {
			t.Errorf("%s: %d, %d hits, want %d", query, code, len(a.Hits), want)
		}
	}
	if got := find(t, srv, "query=other", wire.TenantHeader, "globex"); len(got.Hits) != 10 {
		t.Errorf("globex has %d", len(got.Hits))
	}
}

func TestRefusals(t *testing.T) {
	srv, _ := serve(t, openStore(t))
	for _, header := range [][]string{{"X", "y"}, {wire.TenantHeader, ""}, {wire.TenantHeader, "acme,globex"}, {wire.TenantHeader, "*"}, {wire.TenantHeader, "acme", wire.TenantHeader, "globex"}, {wire.TenantHeader, "ACME"}} {
		for _, path := range []string{PathSearch, PathTail} {
			if code, b := get(t, srv, path, header...); code != 403 {
				t.Errorf("%v: %d %s", header, code, b)
			}
		}
	}
	for query, field := range map[string]string{
		"tenant=globex": `\"tenant\"`, "limit=0": "limit", "limit=10001": "limit", "limit=x": "limit", "buckets=1001": "buckets", "local=2": "local",
		"from=yesterday": "from", "to=0001-01-01T00:00:00Z": "to", "query=(": "query", "query=a&query=b": "query", "cursor=x": "cursor", "cursor=" + strings.Repeat("x", 3000): "cursor",
		"virtualSite=A/b": "virtualSite", "virtualSite=a/b/c": "virtualSite", "site=" + strings.Repeat("a,", 1001): "site", "a;b": "query string",
	} {
		code, b := get(t, srv, PathSearch+"?"+query)
		if code != 400 || !strings.Contains(string(b), `"errors":[{"field":"`+field) {
			t.Errorf("%.60s: %d %s", query, code, b)
		}
	}
	for _, query := range []string{"limit=1", "cursor=x", "local=1", "after=x", "query=("} {
		if code, b := get(t, srv, PathTail+"?"+query); code != 400 {
			t.Errorf("tail %s: %d %s", query, code, b)
		}
	}
	for _, path := range []string{PathSearch, PathTail} {
		if code, b := get(t, srv, path+"?virtualSite=unknown"); code != 404 {
			t.Errorf("%d %s", code, b)
		}
	}
}

// stubStore answers as it is told.
type stubStore struct {
	search func(context.Context, store.Query) (store.Page, error)
	tail   func(context.Context, store.Query, store.Cursor) (store.TailPage, error)
}

func (s stubStore) Search(ctx context.Context, q store.Query) (store.Page, error) {
	return s.search(ctx, q)
}
func (s stubStore) Tail(ctx context.Context, q store.Query, c store.Cursor) (store.TailPage, error) {
	return s.tail(ctx, q, c)
}

func TestJoinedClusters(t *testing.T) {
	s := stubStore{search: func(_ context.Context, q store.Query) (store.Page, error) {
		if q.Local {
			return store.Page{}, nil
		}
		return store.Page{Missing: []store.Missing{{Region: "us-1", Reason: "is away"}}}, nil
	}}
	srv, _ := serve(t, s, func(o *Options) { o.Joined = []string{"ap-1", "us-1"} })
	if got := find(t, srv, ""); !slices.Equal(got.Regions, []string{"eu-1", "ap-1"}) || len(got.MissingRegions) != 1 {
		t.Errorf("%+v", got)
	}
	if got := find(t, srv, "local=1"); !slices.Equal(got.Regions, []string{"eu-1"}) || got.MissingRegions != nil {
		t.Errorf("%+v", got)
	}
}

func TestTrouble(t *testing.T) {
	wait := make(chan struct{})
	entered := make(chan struct{})
	s := stubStore{search: func(ctx context.Context, q store.Query) (store.Page, error) {
		switch q.Text {
		case "slow":
			<-ctx.Done()
			return store.Page{}, fmt.Errorf("search: %w", ctx.Err())
		case "dear":
			return store.Page{}, store.ErrTimeout
		case "block":
			entered <- struct{}{}
			<-wait
			return store.Page{}, nil
		case "wrong":
			return store.Page{}, &store.QueryError{Field: "query", Err: errors.New("too many parts")}
		}
		return store.Page{}, errors.New("secret: http://elastic:9200 is down")
	}}
	srv, _ := serve(t, s, func(o *Options) { o.Timeout, o.MaxSearches = 20*time.Millisecond, 1 })
	for query, want := range map[string]int{"slow": 504, "dear": 504, "wrong": 400, "x": 503} {
		code, b := get(t, srv, PathSearch+"?query="+query)
		if code != want || strings.Contains(string(b), "secret") {
			t.Errorf("%s: %d %s", query, code, b)
		}
	}
	done := make(chan int)
	go func() { code, _ := get(t, srv, PathSearch+"?query=block"); done <- code }()
	<-entered
	if code, b := get(t, srv, PathSearch); code != 429 {
		t.Errorf("beyond the bound: %d %s", code, b)
	}
	close(wait)
	if code := <-done; code != 200 {
		t.Errorf("%d", code)
	}
}

func TestLargePagesAreCut(t *testing.T) {
	s := openStore(t)
	for i := range 20 {
		put(t, s, record("acme", "a", i, strings.Repeat("x", 1000)))
	}
	srv, _ := serve(t, s, func(o *Options) { o.MaxBytes = 5000 })
	var got []string
	for pages, cursor := 0, ""; ; pages++ {
		a := find(t, srv, "limit=20&cursor="+cursor)
		got = append(got, ids(a)...)
		if cursor = a.Next; cursor == "" {
			if pages < 4 {
				t.Errorf("%d pages", pages)
			}
			break
		}
	}
	if len(got) != 20 || !slices.IsSortedFunc(got, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("%v", got)
	}
	// One record that is larger than the bound is a page by itself.
	srv, _ = serve(t, s, func(o *Options) { o.MaxBytes = 1 })
	if a := find(t, srv, ""); len(a.Hits) != 1 || a.Next == "" {
		t.Errorf("%d hits", len(a.Hits))
	}
}

// counting remembers how many bytes of messages the store has handed out.
type counting struct {
	Store
	bytes atomic.Int64
}

func (c *counting) Search(ctx context.Context, q store.Query) (store.Page, error) {
	p, err := c.Store.Search(ctx, q)
	for _, h := range p.Hits {
		c.bytes.Add(int64(len(h.Message)))
	}
	return p, err
}

// A page that may have 10,000 records reads little more of them than it can have bytes;
// small ones come in one page, each once, with the histogram and the total of all.
func TestPagesAreReadInSlices(t *testing.T) {
	s := &counting{Store: openStore(t)}
	long, small := strings.Repeat("x", 100<<10), []store.Record{}
	for i := range 300 {
		put(t, s.Store.(store.Store), record("acme", "a", i, long))
		small = append(small, record("acme", "b", i, "short"))
	}
	put(t, s.Store.(store.Store), small...)
	srv, _ := serve(t, s, func(o *Options) { o.MaxBytes = 1 << 20 })
	if a := find(t, srv, "limit=10000&site=a&buckets=10"); len(a.Hits) == 0 || a.Total != 300 || a.Next == "" || a.Histogram == nil {
		t.Errorf("%d hits, total %d", len(a.Hits), a.Total)
	}
	if n := s.bytes.Load(); n > int64(firstSlice*len(long)) {
		t.Errorf("%d MiB were read for a page of 1 MiB", n>>20)
	}
	a := find(t, srv, "limit=250&site=b&buckets=10")
	if got := ids(a); len(got) != 250 || len(slices.Compact(slices.Clone(got))) != 250 || !slices.IsSortedFunc(got, func(a, b string) int { return strings.Compare(b, a) }) || a.Next == "" || a.Histogram == nil {
		t.Errorf("%d hits: %v", len(got), got)
	}
	if rest := find(t, srv, "limit=250&site=b&cursor="+a.Next); len(rest.Hits) != 50 || rest.Next != "" {
		t.Errorf("%d hits on the last page", len(rest.Hits))
	}
}

type tailReader struct {
	t   *testing.T
	in  *sse.Reader
	end func()
}

func openTail(t *testing.T, srv *httptest.Server, query string) *tailReader {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL+PathTail+"?"+query, nil)
	req.Header.Set(wire.TenantHeader, "acme")
	res, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != 200 {
		b, _ := io.ReadAll(res.Body)
		t.Fatalf("%d %s", res.StatusCode, b)
	}
	r := &tailReader{t, sse.NewReader(bufio.NewReader(res.Body), 8<<20), func() { cancel(); res.Body.Close() }}
	t.Cleanup(r.end)
	return r
}

// next returns the next event that is not just a sign of life.
func (r *tailReader) next() sse.Event {
	r.t.Helper()
	for {
		e, err := r.in.Next()
		if err != nil {
			r.t.Fatal(err)
		}
		if e.Name != eventPosition {
			return e
		}
	}
}

func (r *tailReader) ids(e sse.Event) (out []string) {
	r.t.Helper()
	var in struct{ Hits []store.Record }
	if err := json.Unmarshal([]byte(e.Data), &in); err != nil || e.Name != eventHits {
		r.t.Fatalf("%v %+v", err, e)
	}
	for _, h := range in.Hits {
		out = append(out, h.ID)
	}
	return out
}

func TestTail(t *testing.T) {
	s := openStore(t)
	put(t, s, record("acme", "a", 0, "before"))
	srv, api := serve(t, s)
	r := openTail(t, srv, "virtualSite=all")
	first, err := r.in.Next()
	if err != nil || first.Name != eventPosition || first.ID == "" {
		t.Fatalf("%+v %v", first, err)
	}
	put(t, s, record("acme", "a", 5, "one"), record("globex", "a", 5, "other"), record("acme", "c", 5, "no member"))
	e := r.next()
	if got := r.ids(e); !slices.Equal(got, []string{"acme-a-0005"}) || e.ID == "" {
		t.Errorf("%v", got)
	}
	r.end()
	put(t, s, record("acme", "b", 1, "late, by its timestamp"))
	put(t, s, record("acme", "b", 2, "and another"))
	var got []string
	for r = openTail(t, srv, "virtualSite=all&after="+e.ID); len(got) < 2; {
		got = append(got, r.ids(r.next())...)
	}
	if !slices.Equal(got, []string{"acme-b-0001", "acme-b-0002"}) {
		t.Errorf("resumed: %v", got)
	}
	// From the first position again, everything since.
	for r, got = openTail(t, srv, "after="+first.ID), nil; len(got) < 4; {
		got = append(got, r.ids(r.next())...)
	}
	if !slices.Equal(got, []string{"acme-a-0005", "acme-c-0005", "acme-b-0001", "acme-b-0002"}) {
		t.Errorf("from the start: %v", got)
	}
	if n := testutil.ToFloat64(api.open); n < 1 {
		t.Errorf("%v tails are counted", n)
	}
	api.Close()
	for {
		if _, err := r.in.Next(); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Errorf("the end: %v", err)
			}
			break
		}
	}
}

func TestTailSplitsLargePages(t *testing.T) {
	s := openStore(t)
	srv, _ := serve(t, s)
	r := openTail(t, srv, "")
	start, err := r.in.Next()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	var batch []store.Record
	for i := range 60 {
		batch = append(batch, record("acme", "a", i, strings.Repeat("y", 100_000)))
		want = append(want, batch[i].ID)
	}
	put(t, s, batch...)
	// Each event's id goes on right after it, also in the middle of what came at once.
	var got []string
	after := start.ID
	for len(got) < len(want) {
		r := openTail(t, srv, "after="+after)
		e := r.next()
		r.end()
		if len(e.Data) > tailEventBytes+200_000 {
			t.Fatalf("an event of %d bytes", len(e.Data))
		}
		got, after = append(got, r.ids(e)...), e.ID
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func TestTailTrouble(t *testing.T) {
	calls := 0
	s := stubStore{tail: func(_ context.Context, q store.Query, c store.Cursor) (store.TailPage, error) {
		if calls++; calls > 2 {
			return store.TailPage{}, errors.New("secret")
		}
		return store.TailPage{Next: "c"}, nil
	}}
	srv, api := serve(t, s, func(o *Options) { o.MaxTails, o.Registerer = 1, prometheus.NewRegistry() })
	r := openTail(t, srv, "")
	if e := r.next(); e.Name != eventTrouble || strings.Contains(e.Data, "secret") || e.ID != "c" {
		t.Errorf("%+v", e)
	}
	if _, err := r.in.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	r.end()
	if !api.tails.Take("other") {
		t.Fatal("the slot was not given back")
	}
	if code, b := get(t, srv, PathTail); code != 429 {
		t.Errorf("%d %s", code, b)
	}
	api.tails.Give("other")
}

func TestOptionsAreChecked(t *testing.T) {
	members := func(string, string) ([]string, bool) { return nil, false }
	for want, o := range map[string]Options{
		"Regional": {Store: stubStore{}, Members: members}, "Store": {Regional: "x", Members: members}, "Members": {Regional: "x", Store: stubStore{}},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"query=a&site=b,c&limit=5", "virtualSite=x/y&from=2026-01-01T00:00:00Z", "cursor=AQ&local=1&buckets=7"} {
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, raw string, tail bool) {
		r := &http.Request{URL: &url.URL{RawQuery: raw}, Header: http.Header{"Last-Event-Id": {"x"}}}
		req, p := parse(r, "acme", tail)
		if p != nil {
			if p.Status != 400 || len(p.Errors) == 0 {
				t.Errorf("%+v", p)
			}
			return
		}
		if req.q.Tenant != "acme" || req.q.Limit > store.MaxLimit || len(req.sites) > maxValues || len(req.q.Cursor) > maxCursorBytes {
			t.Errorf("%+v", req)
		}
	})
}

// TestHitsHaveAllOfARecord: what a record holds comes out, but for the store's own time.
func TestHitsHaveAllOfARecord(t *testing.T) {
	rec := store.Record{Labels: map[string]string{"a": "b"}, Timestamp: base, Ingested: base}
	v := reflect.ValueOf(&rec).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.String {
			f.SetString(v.Type().Field(i).Name)
		}
	}
	h := reflect.ValueOf(hitOf(&rec))
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name == "Ingested" {
			continue
		}
		if f := h.FieldByName(name); !f.IsValid() || !reflect.DeepEqual(f.Interface(), v.Field(i).Interface()) {
			t.Errorf("%s does not come out", name)
		}
	}
}
