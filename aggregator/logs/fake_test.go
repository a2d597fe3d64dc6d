package logs

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/logs/query"
	"muster.dev/muster/regional/logs/store"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker")) // the library's own pool
}

// memory is a store that is small enough to be believed. joined are the stores that it
// searches too, as a joined cluster would, when it is not asked for itself alone.
type memory struct {
	mu      sync.Mutex
	records []store.Record // in the order in which they came
	joined  map[string]*memory
	away    map[string]bool // of joined
	down    bool
}

func (m *memory) put(r ...store.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range r {
		x.Ingested = time.Unix(0, int64(len(m.records)+1))
		m.records = append(m.records, x)
	}
}

func (m *memory) matching(p store.Plan) []store.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.records), func(r store.Record) bool {
		bad := r.Tenant != p.Tenant || r.Timestamp.Before(p.From) || !r.Timestamp.Before(p.To)
		for _, f := range p.Filters {
			value := ""
			r.Keywords(func(field, v string) {
				if field == f.Field {
					value = v
				}
			})
			bad = bad || !slices.Contains(f.Values, value)
		}
		return bad
	})
}

var window = store.Window{Retention: 30 * 24 * time.Hour, Future: time.Hour}

func (m *memory) Search(_ context.Context, q store.Query) (store.Page, error) {
	p, err := q.Plan(time.Now(), window)
	if err != nil {
		return store.Page{}, err
	}
	m.mu.Lock()
	down := m.down
	m.mu.Unlock()
	if down {
		return store.Page{}, fmt.Errorf("the disk is gone")
	}
	all, page := m.matching(p), store.Page{Histogram: p.NewHistogram()}
	if !q.Local {
		for name, o := range m.joined {
			if m.away[name] {
				page.Missing = append(page.Missing, store.Missing{Region: name, Reason: "its cluster is away"})
				continue
			}
			all = append(all, o.matching(p)...)
		}
	}
	slices.SortFunc(all, func(a, b store.Record) int { return -compareRecords(a, b) })
	page.Total = int64(len(all))
	for _, r := range all {
		if page.Histogram != nil {
			page.Histogram.Add(r.Timestamp.UnixNano(), 1)
		}
		if b := p.Before; b != nil && (r.Timestamp.UnixNano() > b.Nanos || r.Timestamp.UnixNano() == b.Nanos && r.ID >= b.ID) {
			continue
		}
		if len(page.Hits) == p.Limit {
			page.Next = store.PageCursor(page.Hits[p.Limit-1])
			continue
		}
		page.Hits = append(page.Hits, r)
	}
	return page, nil
}

func (m *memory) Tail(_ context.Context, q store.Query, after store.Cursor) (store.TailPage, error) {
	p, pos, err := q.PlanTail(after, time.Now(), window)
	if err != nil {
		return store.TailPage{}, err
	}
	all := m.matching(p)
	m.mu.Lock()
	n := len(m.records)
	down := m.down
	m.mu.Unlock()
	if down {
		return store.TailPage{}, fmt.Errorf("the disk is gone")
	}
	page := store.TailPage{Next: store.TailCursor(store.Position{Ingested: int64(n)})}
	if after == "" {
		return page, nil
	}
	for _, r := range all {
		if r.Ingested.UnixNano() > pos.Ingested && r.Ingested.UnixNano() <= int64(n) {
			page.Hits = append(page.Hits, r)
		}
	}
	return page, nil
}

func compareRecords(a, b store.Record) int {
	return cmp.Or(a.Timestamp.Compare(b.Timestamp), strings.Compare(a.ID, b.ID))
}

// region is a real regional API before a memory, with a switch in front.
type region struct {
	name string
	mem  *memory
	srv  *httptest.Server
	mu   sync.Mutex
	// instead answers in place of the API; nil: the API does.
	instead http.HandlerFunc
	asked   []url.Values
}

func (r *region) set(f http.HandlerFunc) { r.mu.Lock(); r.instead = f; r.mu.Unlock() }
func (r *region) queries() []url.Values {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

func newRegion(t testing.TB, name string, change ...func(*query.Options)) *region {
	t.Helper()
	r := &region{name: name, mem: &memory{}}
	o := query.Options{Regional: name, Store: r.mem, Poll: 5 * time.Millisecond, KeepAlive: 20 * time.Millisecond,
		Members: func(tenant, vs string) ([]string, bool) { return []string{"s1", "s3"}, vs == "shared/odd" }}
	for _, c := range change {
		c(&o)
	}
	api, err := query.New(o)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	api.Register(mux)
	r.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.asked = append(r.asked, req.URL.Query())
		f := r.instead
		r.mu.Unlock()
		if f != nil {
			f(w, req)
			return
		}
		mux.ServeHTTP(w, req)
	}))
	t.Cleanup(func() {
		api.Close()
		r.srv.CloseClientConnections()
		r.srv.Close()
	})
	return r
}

func newClient(t testing.TB, regions []*region, change ...func(*Options)) *Client {
	t.Helper()
	o := Options{}
	for _, r := range regions {
		o.Regionals = append(o.Regionals, Regional{Name: r.name, URL: r.srv.URL})
	}
	for _, c := range change {
		c(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.opts.Client.CloseIdleConnections)
	return c
}

// queryOf is a query written as the parameters of the HTTP API.
func queryOf(t testing.TB, params string) wire.LogQuery {
	t.Helper()
	in, err := url.ParseQuery(params)
	if err != nil {
		t.Fatal(err)
	}
	list := func(name string) []string {
		if in.Get(name) == "" {
			return nil
		}
		return strings.Split(strings.Join(in[name], ","), ",")
	}
	q := wire.LogQuery{Text: in.Get("query"), From: in.Get("from"), To: in.Get("to"), VirtualSite: in.Get("virtualSite"), Sites: list("site"), Namespaces: list("namespace"), Severities: list("severity"), Cursor: in.Get("cursor")}
	if v := in.Get("limit"); v != "" {
		if q.Limit, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	return q
}

func ask(t testing.TB, c *Client, params string) (*wire.LogPage, *wire.Problem) {
	t.Helper()
	return c.Search(t.Context(), "acme", queryOf(t, params))
}

func mustAsk(t testing.TB, c *Client, params string) wire.LogPage {
	t.Helper()
	a, p := ask(t, c, params)
	if p != nil {
		t.Fatalf("%s: %+v", params, p)
	}
	return *a
}

var start = time.Now().UTC().Add(-2 * time.Hour).Truncate(time.Minute)

func record(site string, at time.Duration, id string) store.Record {
	return store.Record{Timestamp: start.Add(at), Tenant: "acme", Site: site, Region: "eu", Severity: "info", Message: "line " + id, ID: id}
}

func hitIDs(hits []wire.LogHit) (out []string) {
	for _, h := range hits {
		out = append(out, h.ID)
	}
	return out
}

func hang(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}
