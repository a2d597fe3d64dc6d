package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"muster.dev/muster/internal/testkit/elasticsearch"
	"muster.dev/muster/regional/logs/store"
	"muster.dev/muster/regional/logs/store/storetest"
)

var lines = flag.Int("lines", 20000, "log lines in the store that BenchmarkSearch queries")

var prefixes atomic.Int64

func open(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Prefix == "" {
		o.Prefix = fmt.Sprintf("t%d", prefixes.Add(1))
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if all, err := s.Indices(ctx); err == nil { // it may be dead by now
			for _, name := range all {
				if err := s.do(ctx, esapi.IndicesDeleteRequest{Index: []string{name}}, nil); err != nil {
					t.Errorf("clean up: %v", err)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		_ = s.do(ctx, esapi.IndicesDeleteRequest{Index: []string{s.stateIndex()}}, nil) // two of a test may share it
	})
	return s
}

func factory(node *elasticsearch.Node) storetest.Factory {
	return func(t testing.TB, c storetest.Config) store.Store {
		return open(t, Options{URLs: []string{node.URL}, Now: c.Now, Retention: c.Retention, Future: c.Future, MaxQueryTime: time.Minute})
	}
}

func TestStore(t *testing.T) {
	storetest.Run(t, factory(elasticsearch.Start(t, elasticsearch.Options{})))
}

func record(id, tenant, message string) store.Record {
	return store.Record{Timestamp: time.Now(), Tenant: tenant, ID: id, Message: message, Site: "paris"}
}

func request(t *testing.T, method, url, body string) map[string]any {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s %v %v", method, url, resp.Status, out, err)
	}
	return out
}

// An index that someone made with another mapping refuses some records for good, and
// an index that is blocked refuses all for now: the rest of the same Write is stored.
func TestPartialFailures(t *testing.T) {
	node := elasticsearch.Start(t, elasticsearch.Options{})
	s := open(t, Options{URLs: []string{node.URL}})
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	request(t, "PUT", node.URL+"/"+s.indexName("odd", now), `{"mappings":{"properties":{"muster":{"properties":{"site":{"type":"integer"}}}}}}`)
	request(t, "PUT", node.URL+"/"+s.indexName("blocked", now), `{"settings":{"index.blocks.write":true}}`)
	res, err := s.Write(t.Context(), []store.Record{record("1", "good", "a"), record("2", "odd", "b"), record("3", "blocked", "c"), record("4", "good", "d")})
	if err != nil {
		t.Fatal(err)
	}
	if res.Stored != 2 || len(res.Dead) != 1 || res.Dead[0].Index != 1 || len(res.Retry) != 1 || res.Retry[0].Index != 2 {
		t.Fatalf("%+v, want 1 dead, 2 to retry, the others stored", res)
	}
	if !strings.Contains(res.Dead[0].Reason, "muster.site") || !strings.Contains(res.Retry[0].Reason, "block") {
		t.Errorf("reasons: %+v", res)
	}
	// Unblocked, the retry goes in.
	request(t, "PUT", node.URL+"/"+s.indexName("blocked", now)+"/_settings", `{"index.blocks.write":false}`)
	if res, err := s.Write(t.Context(), []store.Record{record("3", "blocked", "c")}); err != nil || res.Stored != 1 {
		t.Errorf("the retry: %+v, %v", res, err)
	}
}

func TestMappingIsECS(t *testing.T) {
	node := elasticsearch.Start(t, elasticsearch.Options{})
	s := open(t, Options{URLs: []string{node.URL}})
	r := record("1", "a-b", "hello")
	r.Pod, r.Node, r.Labels = "web-1", "n1", map[string]string{"app": "web"}
	if res, err := s.Write(t.Context(), []store.Record{r}); err != nil || res.Stored != 1 {
		t.Fatal(res, err)
	}
	storetest.Settle(t, s)
	index := s.opts.Prefix + "-a_b-" + r.Timestamp.UTC().Format("2006.01.02")
	got := request(t, "GET", node.URL+"/"+index+"/_mapping", "")[index].(map[string]any)["mappings"].(map[string]any)
	if got["dynamic"] != "false" {
		t.Errorf("dynamic mapping: %v", got["dynamic"])
	}
	// By the name that Filebeat gives it, as a saved search in Kibana would.
	hits := request(t, "GET", node.URL+"/"+index+`/_search?q=kubernetes.pod.name:web-1+AND+labels.app:web+AND+host.name:*+AND+message:hello`, "")
	if n := hits["hits"].(map[string]any)["total"].(map[string]any)["value"]; n != 1.0 {
		t.Errorf("%v hits by ECS names", n)
	}
}

// Two regions' clusters: one query, then one of them is killed and named as missing.
func TestClustersJoined(t *testing.T) {
	far := elasticsearch.Start(t, elasticsearch.Options{Name: "far"})
	near := elasticsearch.Start(t, elasticsearch.Options{Name: "near", Remotes: map[string]string{"far": far.Transport}})
	a := open(t, Options{URLs: []string{far.URL}, Prefix: DefaultPrefix})
	b := open(t, Options{URLs: []string{near.URL}, Prefix: DefaultPrefix, Clusters: map[string]string{"far": "tokyo"}})
	for i, s := range []*Store{a, b} {
		for _, tenant := range []string{"acme", "acme-2"} {
			if res, err := s.Write(t.Context(), []store.Record{record(fmt.Sprint(i), tenant, "hello world")}); err != nil || res.Stored != 1 {
				t.Fatal(res, err)
			}
		}
		storetest.Settle(t, s)
	}
	q := store.Query{Tenant: "acme", Text: "hello", Buckets: 10, Limit: 1}
	page, err := b.Search(t.Context(), q)
	if err != nil || page.Total != 2 || len(page.Missing) != 0 || len(page.Hits) != 1 || page.Hits[0].ID != "1" {
		t.Fatalf("both clusters: %+v, %v", page, err)
	}
	q.Cursor = page.Next
	if page, err = b.Search(t.Context(), q); err != nil || len(page.Hits) != 1 || page.Hits[0].ID != "0" || page.Next != "" {
		t.Errorf("second page over both: %+v, %v", page, err)
	}
	q.Cursor, q.Local = "", true
	if page, err = b.Search(t.Context(), q); err != nil || page.Total != 1 {
		t.Errorf("this cluster only: %+v, %v", page, err)
	}
	far.Kill(t)
	q.Local = false
	page, err = b.Search(t.Context(), q)
	if err != nil || page.Total != 1 || len(page.Missing) != 1 || page.Missing[0].Region != "tokyo" || page.Missing[0].Reason == "" {
		t.Errorf("with far dead: %+v, %v; want one hit and tokyo missing", page, err)
	}
}

// Killed and restarted under a writer that retries: nothing acknowledged is lost,
// nothing is there twice.
func TestKilledUnderLoad(t *testing.T) {
	node := elasticsearch.Start(t, elasticsearch.Options{Private: true})
	s := open(t, Options{URLs: []string{node.URL}, WriteTimeout: 20 * time.Second})
	acked, failed, duplicates, restarted := 0, 0, 0, false
	put := func(n int) bool {
		records := make([]store.Record, 100)
		for i := range records {
			records[i] = record(fmt.Sprintf("%d-%d", n, i), "acme", "line")
		}
		res, err := s.Write(t.Context(), records)
		if err != nil || len(res.Retry) > 0 {
			failed++
			return false
		}
		if len(res.Dead) > 0 {
			t.Fatalf("%+v", res)
		}
		duplicates += res.Duplicates
		acked += res.Stored + res.Duplicates
		return true
	}
	for n := range 30 {
		if n == 15 {
			go node.Kill(t) // while the next ones are written
		}
		for tries := 0; !put(n); tries++ {
			if tries > 500 {
				t.Fatal("it does not come back")
			}
			if err := s.Ready(t.Context()); err != nil && !restarted {
				restarted = true
				node.Restart(t)
			}
		}
	}
	storetest.Settle(t, s)
	page, err := s.Search(t.Context(), store.Query{Tenant: "acme"})
	if err != nil || page.Total != 3000 || acked != 3000 {
		t.Errorf("acknowledged %d, found %d, %v; want 3000 of both", acked, page.Total, err)
	}
	t.Logf("%d failed writes, %d records counted as duplicates on retry", failed, duplicates)
}

func TestUnreachableSaysSo(t *testing.T) {
	s, err := Open(Options{URLs: []string{"http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Ready(t.Context()); err == nil {
		t.Error("ready without Elasticsearch")
	}
	if _, err := s.Write(t.Context(), []store.Record{record("1", "acme", "x")}); err == nil {
		t.Error("write without Elasticsearch")
	}
	for _, o := range []Options{{}, {URLs: []string{"localhost:9200"}}, {URLs: []string{"http://x"}, Prefix: "A*"}, {URLs: []string{"http://x"}, Retention: time.Hour}} {
		if _, err := Open(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

func TestFailuresAreSorted(t *testing.T) {
	for _, c := range []struct {
		status      int
		typ, reason string
		dead        bool
	}{{400, "document_parsing_exception", "", true}, {400, "mapper_parsing_exception", "", true}, {429, "es_rejected_execution_exception", "", false},
		{400, "illegal_argument_exception", `Document contains at least one immense term in field="x"`, true},
		{400, "illegal_argument_exception", "Validation Failed: 1: this action would add [2] shards, but this cluster currently has [1000]/[1000] maximum shards open;", false},
		{503, "unavailable_shards_exception", "", false}, {403, "cluster_block_exception", "", false}, {403, "security_exception", "", false},
		{404, "index_not_found_exception", "", false}, {400, "index_closed_exception", "", false}, {500, "", "", false}} {
		if got := dead(c.status, c.typ, c.reason); got != c.dead {
			t.Errorf("%d %s: dead %v, want %v", c.status, c.typ, got, c.dead)
		}
	}
}

// Two that publish late again and again do not drive each other's stamps into the future.
func TestLateWritersKeepToTheClock(t *testing.T) {
	node := elasticsearch.Start(t, elasticsearch.Options{})
	a := open(t, Options{URLs: []string{node.URL}, Prefix: "late"})
	b := open(t, Options{URLs: []string{node.URL}, Prefix: "late"})
	for i := range 10 {
		for name, s := range map[string]*Store{"a": a, "b": b} {
			if res, err := s.Write(t.Context(), []store.Record{record(fmt.Sprint(name, i), "acme", "x")}); err != nil || res.Stored != 1 {
				t.Fatal(res, err)
			}
			s.writers.mu.Lock()
			s.writers.published = time.Now().Add(-3 * publishEvery)
			s.writers.mu.Unlock()
			if _, err := s.Now(t.Context()); err != nil && !strings.Contains(err.Error(), "only just come") {
				t.Fatal(err)
			}
		}
	}
	for name, s := range map[string]*Store{"a": a, "b": b} {
		if ahead := time.Until(time.Unix(0, s.clock.Horizon())); ahead > 2*floorMargin {
			t.Errorf("the clock of %s is %s ahead", name, ahead)
		}
	}
}

// A cluster that has all the shards that it may have takes no new index: the lines of
// a new day wait.
func TestShardLimit(t *testing.T) {
	node := elasticsearch.Start(t, elasticsearch.Options{})
	limit := func(n string) {
		request(t, "PUT", node.URL+"/_cluster/settings", `{"persistent":{"cluster.max_shards_per_node":`+n+`}}`)
	}
	s := open(t, Options{URLs: []string{node.URL}})
	r := record("1", "acme", "a")
	if res, err := s.Write(t.Context(), []store.Record{r}); err != nil || res.Stored != 1 {
		t.Fatal(res, err)
	}
	limit("1")
	defer limit("null")
	tomorrow := record("2", "acme", "b")
	tomorrow.Timestamp = tomorrow.Timestamp.Add(23 * time.Hour)
	yesterday := record("3", "acme", "c")
	yesterday.Timestamp = yesterday.Timestamp.Add(-24 * time.Hour)
	res, err := s.Write(t.Context(), []store.Record{record("4", "acme", "d"), tomorrow, yesterday})
	if err != nil || res.Stored < 1 || len(res.Dead) != 0 || len(res.Retry) == 0 || !strings.Contains(res.Retry[0].Reason, "shards") {
		t.Fatalf("%+v, %v; want no dead ones", res, err)
	}
	limit("null")
	if res, err := s.Write(t.Context(), []store.Record{tomorrow, yesterday}); err != nil || res.Stored+res.Duplicates != 2 {
		t.Errorf("with room again: %+v, %v", res, err)
	}
}

func TestIndexNames(t *testing.T) {
	s := &Store{opts: Options{Prefix: DefaultPrefix}}
	at := time.Date(2026, 11, 21, 23, 0, 0, 0, time.FixedZone("", -3*3600))
	if got := s.indexName("acme", at); got != "muster-logs-acme-2026.11.22" {
		t.Error(got)
	}
	if a, b := s.tenantPrefix("a"), s.indexName("a-b", at); strings.HasPrefix(b, a) {
		t.Errorf("the pattern %s* of tenant a finds %s", a, b)
	}
	if day, ok := s.parseIndexName("muster-logs-a_b-2026.11.22"); !ok || day.Day() != 22 {
		t.Error(day, ok)
	}
	for _, foreign := range []string{"muster-logs-a-b-2026.11.22", "muster-logs-a", "muster-logs--2026.11.22", "other-a-2026.11.22", "muster-logs-a-2026.13.22"} {
		if _, ok := s.parseIndexName(foreign); ok {
			t.Errorf("%s is taken for one of ours", foreign)
		}
	}
}

func TestErrorsAreDecoded(t *testing.T) {
	node := elasticsearch.Start(t, elasticsearch.Options{})
	s := open(t, Options{URLs: []string{node.URL}})
	err := s.do(t.Context(), esapi.SearchRequest{Body: bytes.NewReader([]byte(`{"query":{"nosuch":{}}}`))}, nil)
	var e *Error
	if !errors.As(err, &e) || e.Status != 400 || !strings.Contains(e.Reason, "nosuch") {
		t.Errorf("%v", err)
	}
	if res, err := s.Write(t.Context(), []store.Record{record("1", "acme", "a")}); err != nil || res.Stored != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	request(t, "POST", node.URL+"/_refresh", "")
	_, err = s.Search(t.Context(), store.Query{Tenant: "acme", Text: "site:/(.*a){20}.{100}/"})
	if !errors.As(err, new(*store.QueryError)) {
		t.Errorf("a regular expression of 2^100 states: %v, want an error of the query", err)
	}
}

func BenchmarkWrite(b *testing.B) {
	storetest.BenchmarkWrite(b, factory(elasticsearch.Start(b, elasticsearch.Options{Optimize: true})))
}

func BenchmarkSearch(b *testing.B) {
	storetest.BenchmarkSearch(b, factory(elasticsearch.Start(b, elasticsearch.Options{Optimize: true})), *lines)
}

func BenchmarkGroups(b *testing.B) {
	storetest.BenchmarkGroups(b, factory(elasticsearch.Start(b, elasticsearch.Options{Optimize: true})), *lines)
}

// slowBulk holds up bulk requests on their way to Elasticsearch.
func slowBulk(t *testing.T, url string, hold func() time.Duration) string {
	target, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/_bulk") {
			time.Sleep(hold())
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// Two processes write to one cluster, the clock of one is behind and its requests take
// long: who reads at the other counts each record once.
func TestOtherWriters(t *testing.T) {
	node := elasticsearch.Start(t, elasticsearch.Options{})
	url := slowBulk(t, node.URL, func() time.Duration { return rand.N(1500 * time.Millisecond) })
	near := open(t, Options{URLs: []string{node.URL}, Prefix: "shared", Writer: "near"})
	far := open(t, Options{URLs: []string{url}, Prefix: "shared", Writer: "far", Now: func() time.Time { return time.Now().Add(-2 * time.Second) }})
	storetest.GroupsUnderLoad(t, near, far, far)
}

// One that died, or was stopped for long, holds nobody up for ever, and one that left
// not at all.
func TestWritersThatEnd(t *testing.T) {
	node := elasticsearch.Start(t, elasticsearch.Options{})
	s := open(t, Options{URLs: []string{node.URL}, Prefix: "ends", Writer: "stays"})
	gone, err := Open(Options{URLs: []string{node.URL}, Prefix: "ends", Writer: "gone"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Write(t.Context(), []store.Record{record("1", "acme", "x")}); err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	dead := floorState{Floor: time.Now().Add(-time.Hour).UnixNano(), Count: 7}
	body, err := json.Marshal(dead)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.do(t.Context(), esapi.IndexRequest{Index: s.stateIndex(), DocumentID: stateID(floorKey("dead")), Body: bytes.NewReader(body)}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutState(t.Context(), "x", nil, ""); err != nil {
		t.Fatal(err)
	}
	list, version, err := s.list(t.Context())
	if err != nil || len(list) != 0 {
		t.Fatalf("after it left the list is %v, %v", list, err)
	}
	list["dead"] = time.Now()
	if err := s.putList(t.Context(), list, version); err != nil {
		t.Fatal(err)
	}
	at, err := s.Now(t.Context())
	if err != nil || at.UnixNano() >= dead.Floor {
		t.Fatalf("Now passes the floor of a writer that may live: %s, %v", at, err)
	}
	s.writers.mu.Lock()
	s.writers.others["dead"].seen = time.Now().Add(-writerDead)
	s.writers.mu.Unlock()
	began := time.Now()
	if at, err = s.Now(t.Context()); err != nil || at.Before(began.Add(-time.Second)) {
		t.Fatalf("Now waits for one that is dead: %s, %v", at, err)
	}
	s.writers.mu.Lock()
	s.writers.others["dead"].seen = time.Now().Add(-10 * writerDead)
	s.writers.mu.Unlock()
	if _, err := s.Now(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list, _, err := s.list(t.Context()); err != nil || list["stays"].IsZero() || !list["dead"].IsZero() {
		t.Errorf("the list of writers is %v, %v", list, err)
	}
}
