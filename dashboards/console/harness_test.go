package console

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

// contract checks that every answer of the API is one that the document promises.
type contract struct {
	doc    *openapi3.T
	router routers.Router
	mu     sync.Mutex
	seen   map[string]map[int]bool // operation → status codes seen
}

// parsed is the API's document, parsed once for all tests: they only read it.
var parsed = sync.OnceValues(func() (*contract, error) {
	raw, err := openAPIJSON()
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, err
	}
	for _, s := range doc.Components.Schemas {
		closeSchema(s.Value)
	}
	router, err := gorillamux.NewRouter(doc)
	return &contract{doc: doc, router: router}, err
})

func loadContract(t testing.TB) *contract {
	t.Helper()
	c, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return &contract{doc: c.doc, router: c.router, seen: map[string]map[int]bool{}}
}

// closeSchema refuses properties that the document doesn't name: clients must
// tolerate them, but we must document what we send.
func closeSchema(s *openapi3.Schema) {
	if s == nil {
		return
	}
	if len(s.Properties) > 0 && s.AdditionalProperties.Schema == nil {
		no := false
		s.AdditionalProperties.Has = &no
		for _, p := range s.Properties {
			if p.Ref == "" {
				closeSchema(p.Value)
			}
		}
	}
	if s.Items != nil && s.Items.Ref == "" {
		closeSchema(s.Items.Value)
	}
}

func (c *contract) check(t testing.TB, req *http.Request, res *http.Response, body []byte) {
	t.Helper()
	route, params, err := c.router.FindRoute(req)
	if err != nil {
		if res.StatusCode != 404 && res.StatusCode != 405 || res.Header.Get("Content-Type") != wire.ProblemMediaType {
			t.Errorf("%s %s: no operation, but answered %d %s", req.Method, req.URL, res.StatusCode, res.Header.Get("Content-Type"))
		}
		return
	}
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route},
		Status:                 res.StatusCode, Header: res.Header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	if err := openapi3filter.ValidateResponse(context.Background(), in); err != nil {
		t.Errorf("%s %s → %d breaks the contract: %v\n%s", req.Method, req.URL, res.StatusCode, err, body)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[route.Operation.OperationID] == nil {
		c.seen[route.Operation.OperationID] = map[int]bool{}
	}
	c.seen[route.Operation.OperationID][res.StatusCode] = true
}

func init() {
	// problem+json and event streams are decoded as JSON and as text.
	openapi3filter.RegisterBodyDecoder(wire.ProblemMediaType, openapi3filter.JSONBodyDecoder)
	openapi3filter.RegisterBodyDecoder("text/event-stream", openapi3filter.FileBodyDecoder)
}

// fakeHealth stands for the health role: it answers with the tenants that it was
// told, and remembers what it was asked.
type fakeHealth struct {
	srv *httptest.Server
	mu  sync.Mutex
	req []*http.Request
	// answer replaces the canned answer.
	answer http.HandlerFunc
	events chan string
	open   atomic.Int32 // streams
}

func newFakeHealth(t *testing.T) *fakeHealth {
	f := &fakeHealth{events: make(chan string, 10)}
	f.srv = httptest.NewServer(f)
	t.Cleanup(func() {
		f.srv.CloseClientConnections()
		f.srv.Close()
	})
	return f
}

func (f *fakeHealth) last() *http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.req) == 0 {
		return nil
	}
	return f.req[len(f.req)-1]
}

func (f *fakeHealth) asked() int { f.mu.Lock(); defer f.mu.Unlock(); return len(f.req) }

const cannedDimension = `{"score":88.5,"colour":"green","known":true,"staleSeconds":0}`

var cannedSite = `"name":"paris-07","tenant":"acme","region":"eu-west","virtualSites":["shared/all-eu"],"phase":"Online","lastSeen":"2026-01-31T12:00:00Z",
"score":null,"colour":"grey","since":"2026-01-31T12:00:00Z","dimensions":{"connectivity":` + cannedDimension + `,"reliability":` + cannedDimension + `,
"security":` + cannedDimension + `,"performance":{"score":null,"colour":"grey","known":false,"staleSeconds":0}},
"reasons":[{"dimension":"reliability","signal":"nodes-not-ready","value":1,"threshold":0,"pointsLost":61,"since":"2026-01-31T12:00:00Z","text":"1 node is not ready"}],
"place":{"latitude":48.85,"longitude":2.35,"address":"Paris"},"maintenance":null`

const cannedPolicy = `{"tenant":"acme","name":"default","sites":3,"error":"","shadow":true,"wouldChange":1,"examples":["paris-07: green → red: hot"],"signals":[{"name":"a","dimension":"security","error":"","sitesKnown":3,"queryMillis":1.5}]}`

const cannedVS = `{"name":"all-eu","namespace":"shared","tenant":"acme","description":"","sites":3,"mean":80,"p10":39,"worst":{"site":"paris-07","score":39},
"counts":{"green":2,"orange":0,"red":1,"grey":0},"maintenance":0,"percentUnhealthy":33.3}`

func (f *fakeHealth) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.req = append(f.req, r.Clone(context.Background()))
	answer := f.answer
	f.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Set-Cookie", "stolen=1")
	const asOf = `{"asOf":"2026-01-31T12:00:00Z",`
	switch strings.TrimPrefix(r.URL.Path, "/api/v1/health/") {
	case wire.SitesPath:
		if r.URL.Query().Get("format") == "csv" {
			w.Header().Set("Content-Type", "text/csv; charset=utf-8")
			fmt.Fprint(w, "name,score\nparis-07,88.5\n")
			return
		}
		const counts = `{"green":1,"orange":0,"red":0,"grey":0}`
		fmt.Fprint(w, asOf+`"columns":["score","label.tier","virtualSite","maintenance","lastSeen"],"readable":9,"total":1,"counts":`+counts+`,"groups":[{"value":"gold","query":"label.tier=gold","sites":1,"counts":`+counts+`,"mean":88.5,"worst":null}],
			"sites":[{"name":"paris-07","tenant":"acme","score":88.5,"label.tier":"gold","virtualSite":["shared/all-eu"],"maintenance":false,"lastSeen":null}],"nextCursor":"abc","notes":["no site has that label"]}`)
	case wire.SiteFieldsPath:
		fmt.Fprint(w, `{"fields":[{"name":"colour","aliases":["color"],"kind":"choice","values":["green"],"keyed":false,"grouped":true,"doc":"Its colour.","example":"colour=red"}],
			"labels":[{"key":"tier","values":["gold"],"more":3}],"versions":[{"key":"os","values":["24.04"],"more":0}],"measured":["disk-used"]}`)
	case wire.SiteMapPath:
		fmt.Fprint(w, asOf+`"readable":9,"total":2,"unplaced":1,"maintenance":0,"counts":{"green":2,"orange":0,"red":0,"grey":0},"tenants":["acme"],"names":["paris-07"],"tenant":[0],
			"latitude":[48.85],"longitude":[2.35],"colour":"g","score":[null],"inMaintenance":[],"by":"memory","kind":"number","values":[null],"notes":[]}`)
	case wire.SiteDistributionsPath:
		fmt.Fprint(w, asOf+`"readable":9,"total":2,"notes":[],"distributions":[{"column":"cpu","known":1,"unknown":1,"mean":3,"least":3,"p10":3,"median":3,"p90":3,"most":3,"bins":[{"from":0,"to":5,"sites":1,"query":"cpu<5"}]}]}`)
	case wire.LinksPath:
		const counts = `{"green":1,"orange":0,"red":0,"grey":1}`
		const sum = `"sites":2,"counts":` + counts + `,"worst":88,"roundTrip":12.5,"loss":null,"sent":900,"received":120.5,"reconnects":0`
		fmt.Fprint(w, asOf+`"readable":9,"total":2,"counts":`+counts+`,"by":"region","regionals":[{"name":"one","query":"regional=one",`+sum+`,"groups":[{"value":"eu","query":"regional=one region=eu",`+sum+`}],"more":{"query":"",`+sum+`}},{"name":"","query":"regional=\"\"",`+sum+`,"groups":[],"more":null}],
			"links":[{"tenant":"acme","site":"paris-07","regional":"one","region":"eu","phase":"Online","lastSeen":"2026-01-31T12:00:00Z","colour":"green","connectivity":88,"reason":"","window":120,"roundTrip":12.5,"loss":0.1,"sent":900,"received":120.5,"handshake":30,"reconnects":0,"requests":4,"errors":null}],
			"nextCursor":"abc","notes":["some links' figures are not known"]}`)
	case wire.CostNamesPath:
		fmt.Fprint(w, asOf+`"tenant":"acme","site":"paris-07","series":45,"sampled":false,"names":[{"name":"node_cpu_seconds_total","series":45,"keptBy":[{"policy":"base","field":"spec.allow.patterns[0]","value":"node_.*"}]}],"missingRegions":[]}`)
	case wire.CostPath:
		const use = `"series":300,"samplesPerSecond":20,"wireBytesPerSecond":250.5,"rawBytesPerSecond":900,"pushesPerSecond":0.07,"refusedPerSecond":0,"logLinesPerSecond":0,"logBytesPerSecond":0,"cpuCores":0.001,"memoryBytes":300000`
		fmt.Fprint(w, asOf+`"by":"site","windowSeconds":240.5,"total":1,"sum":{`+use+`},"rows":[{"tenant":"acme","name":"paris-07","sites":1,"regionals":["one"],"seriesLimit":5000,"moreSites":15,"use":{`+use+`}}],
			"regionals":[{"name":"one","region":"eu","process":{`+use+`},"headroom":{"sites":1,"moreSites":15,"first":"series","resources":[{"name":"series","used":300,"limit":5000,"perSite":300,"moreSites":15},{"name":"disk","used":1.5,"limit":0,"perSite":0,"moreSites":null}]}}],
			"missingRegions":[{"region":"two","reason":"it can't be reached"}],"nextCursor":"abc"}`)
	case "sites":
		fmt.Fprint(w, asOf+`"total":1,"sites":[{`+cannedSite+`}],"nextCursor":"abc"}`)
	case "sites/paris-07":
		fmt.Fprint(w, `{`+cannedSite+`,"asOf":"2026-01-31T12:00:00Z","labels":{"region":"eu-west"},"policy":"","regional":"one","fromStore":false,"shadow":{"policy":"next","score":50,"colour":"orange","reason":"hot"},"signals":[{"name":"nodes-not-ready","dimension":"reliability","value":1,"score":0,"known":true,"applies":true,"pack":"kubernetes",
			"error":"","good":0,"bad":1,"weight":1,"critical":true,"unit":"count","source":"kube-state-metrics","asOf":"2026-01-31T12:00:00Z","query":"max by (tenant, site) (x)","sparse":false}]}`)
	case "sites/paris-07/explain":
		fmt.Fprint(w, `{"site":"paris-07","tenant":"acme","policy":"","shadow":false,"overrides":[{"signals":["cpu-used"],"reason":"old hardware","until":"2026-02-28T00:00:00Z"}],"at":"2026-01-31T12:00:00Z","score":39,"colour":"red","since":"2026-01-31T12:00:00Z",
			"worstShare":0.5,"mean":75,"worst":0,"worstDimension":"reliability","beforeCaps":39.5,"formula":"0.5 × mean 79 + 0.5 × worst 0 (reliability) = 39.5","dimensions":[{"name":"reliability","weight":1,"applies":true,"known":true,"incomplete":false,"beforeCaps":0,"score":0,
			"signals":[{"name":"nodes-not-ready","value":100,"unit":"percent","good":0,"bad":25,"score":0,"weight":3,"applies":true,"counted":true,"error":"","objects":["node n1"],"pack":"kubernetes","source":"kube-state-metrics","points":61}]}],
			"caps":[{"signal":"nodes-not-ready","at":39,"without":100,"leaves":39,"binds":true,"text":"nodes-not-ready: 39"}],"held":false,"agreed":0,"needed":0,"waits":"","lost":[{"dimension":"reliability","signal":"nodes-not-ready","points":61,"text":"100% of the nodes are not ready: node n1"}]}`)
	case "virtualsites":
		fmt.Fprint(w, asOf+`"total":1,"virtualSites":[`+cannedVS+`]}`)
	case "virtualsites/all-eu":
		fmt.Fprint(w, cannedVS)
	case "policies":
		fmt.Fprint(w, `{"policies":[`+cannedPolicy+`]}`)
	case "policies/default":
		fmt.Fprint(w, asOf+`"policy":`+cannedPolicy+`,"spec":{"siteSelector":{"matchLabels":{"tier":"gold"}},"weights":{"security":"2"},"signals":[{"name":"a","dimension":"security","query":"up","good":"1","bad":"0","cap":39}],
			"overrides":[{"sites":["paris-07"],"signals":[{"name":"a","bad":"-1"}],"reason":"old hardware","until":"2026-02-28T00:00:00Z"}]}}`)
	case "replay":
		fmt.Fprint(w, `{"from":"2026-01-30T12:00:00Z","to":"2026-01-31T12:00:00Z","tenant":"acme","policy":"default","stepSeconds":60,"done":1,"total":1,"sites":[{"site":"paris-07","would":[{"at":"2026-01-31T11:00:00Z",
			"from":"green","to":"orange","reason":"hot"}],"did":[],"last":{"score":60,"colour":"orange","reason":"hot"},"differs":true}],"signals":[{"name":"a","dimension":"security","error":"","sitesKnown":1}]}`)
	case "try":
		fmt.Fprint(w, `{"asOf":"2026-01-31T12:00:00Z","tenant":"acme","policy":"default","sites":3,"changed":1,"omitted":0,"results":[{"site":"paris-07","before":{"score":90,"colour":"green","reason":""},
			"after":{"score":null,"colour":"grey","reason":"reliability is unknown"}}],"signals":[{"name":"a","dimension":"security","error":"","sitesKnown":3}],"missingRegions":[{"region":"two","reason":"has not answered yet","late":true}],"waiting":2}`)
	case "stream":
		f.serveEvents(w, r)
	default:
		w.Header().Set("Content-Type", wire.ProblemMediaType)
		w.WriteHeader(404)
		fmt.Fprint(w, `{"type":"urn:muster:problem:not-found","title":"Not Found","status":404}`)
	}
}

func (f *fakeHealth) serveEvents(w http.ResponseWriter, r *http.Request) {
	f.open.Add(1)
	defer f.open.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(200)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e := <-f.events:
			fmt.Fprintf(w, "%s\n\n", e)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// fakeMetrics remembers what it was asked.
type fakeMetrics struct {
	mu     sync.Mutex
	tenant string
	query  MetricQuery
	names  NameQuery
	asked  int
	fail   int
}

func (f *fakeMetrics) Query(_ context.Context, tenant string, q MetricQuery) (int, []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tenant, f.query, f.asked = tenant, q, f.asked+1
	if q.Expr == "panic_now" {
		panic("a bug in the metric store")
	}
	if f.fail != 0 {
		return f.fail, []byte(`{"status":"error","errorType":"bad_data","error":"parse error"}`)
	}
	return http.StatusOK, []byte(`{"status":"success","data":{"resultType":"vector","result":[]}}`)
}

func (f *fakeMetrics) Names(_ context.Context, tenant string, q NameQuery) (int, []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tenant, f.names, f.asked = tenant, q, f.asked+1
	return http.StatusOK, []byte(`{"names":["up"],"more":false}`)
}

// fakeAlerting stands for the alerting role: it remembers what it was asked.
type fakeAlerting struct {
	srv  *httptest.Server
	mu   sync.Mutex
	req  []*http.Request
	body []string
	// answer replaces the canned answer.
	answer http.HandlerFunc
}

func newFakeAlerting(t *testing.T) *fakeAlerting {
	f := &fakeAlerting{}
	f.srv = httptest.NewServer(f)
	t.Cleanup(func() {
		f.srv.CloseClientConnections()
		f.srv.Close()
	})
	return f
}

func (f *fakeAlerting) last() (*http.Request, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.req) == 0 {
		return nil, ""
	}
	return f.req[len(f.req)-1], f.body[len(f.body)-1]
}

func (f *fakeAlerting) asked() int { f.mu.Lock(); defer f.mu.Unlock(); return len(f.req) }

const cannedAlert = `"fingerprint":"8a1f6b7c2d3e4f50","name":"SiteDown","tenant":"acme","site":"paris-07","region":"eu-west","virtualSites":["shared/all-eu"],
"severity":"critical","state":"suppressed","silencedBy":["5f1d8a52"],"inhibitedBy":["0000000000000001"],"startsAt":"2026-01-31T11:58:00Z","updatedAt":"2026-01-31T11:59:00Z",
"endsAt":"2026-01-31T12:04:00Z","labels":{"alertname":"SiteDown"},"annotations":{"summary":"paris-07 is down"},"generatorURL":"http://eu-1/graph"`

func (f *fakeAlerting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.req, f.body = append(f.req, r.Clone(context.Background())), append(f.body, string(b))
	answer := f.answer
	f.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	const asOf = `{"asOf":"2026-01-31T12:00:00Z",`
	switch key := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/api/v1/"); key {
	case "GET alerts":
		fmt.Fprint(w, asOf+`"total":1,"counts":{"critical":1,"warning":0,"info":0},"alerts":[{`+cannedAlert+`}],"nextCursor":"abc"}`)
	case "GET alerts/groups":
		fmt.Fprint(w, asOf+`"total":1,"groups":[{"receiver":"on-call","tenant":"acme","labels":{"alertname":"x"},"total":1,"counts":{"critical":1,"warning":0,"info":0},"suppressed":0,"startsAt":"2026-01-01T00:00:00Z","newestAt":"2026-01-01T00:00:00Z","alerts":[{`+cannedAlert+`}]}]}`)
	case "GET alerts/notifications":
		fmt.Fprint(w, `{"hours":24,"counted":true,"total":2,"rules":[{"tenant":"acme","rule":"x","notifications":2,"failed":0,"receivers":["on-call"]}]}`)
	case "GET alerts/state":
		fmt.Fprint(w, asOf+`"firing":{"critical":1,"warning":2,"info":3},"suppressed":4,"sites":5}`)
	case "GET alerts/8a1f6b7c2d3e4f50":
		fmt.Fprint(w, `{`+cannedAlert+`,"history":[{"startsAt":"2026-01-31T11:58:00Z","endsAt":null},{"startsAt":"2026-01-30T11:58:00Z","endsAt":"2026-01-30T12:58:00Z"}]}`)
	case "GET silences":
		fmt.Fprint(w, `{"silences":[{"id":"5f1d8a52","tenant":"acme","matchers":[{"name":"site","value":"paris-07","isRegex":false,"isEqual":true}],"startsAt":"2026-01-31T11:58:00Z",
			"endsAt":"2026-01-31T13:58:00Z","createdBy":"alice","comment":"disk","state":"active","maintenance":false}]}`)
	case "POST silences":
		w.WriteHeader(201)
		fmt.Fprint(w, `{"id":"5f1d8a52"}`)
	case "DELETE silences/5f1d8a52":
		w.Header().Del("Content-Type")
		w.WriteHeader(204)
	default:
		w.Header().Set("Content-Type", wire.ProblemMediaType)
		w.WriteHeader(404)
		fmt.Fprint(w, `{"type":"urn:muster:problem:not-found","title":"Not Found","status":404}`)
	}
}

// fakeLogs remembers what it was handed. Its tail sends what comes on events.
type fakeLogs struct {
	mu     sync.Mutex
	tenant string
	query  wire.LogQuery
	after  string
	calls  int
	events chan wire.LogEvent
	open   atomic.Int32
}

func (f *fakeLogs) note(tenant string, q wire.LogQuery, after string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.tenant, f.query, f.after = tenant, q, after
}

func (f *fakeLogs) last() (string, wire.LogQuery, string, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tenant, f.query, f.after, f.calls
}

func (f *fakeLogs) Search(_ context.Context, tenant string, q wire.LogQuery) (*wire.LogPage, *wire.Problem) {
	f.note(tenant, q, "")
	if q.Text == "(" {
		return nil, wire.Invalid(wire.FieldError{Field: "query", Detail: "no"})
	}
	return &wire.LogPage{
		Hits: []wire.LogHit{{Timestamp: time.Date(2026, 1, 31, 11, 59, 58, 123456789, time.UTC), Tenant: "acme", Site: "paris-07", Region: "eu-west", Unit: "sshd.service",
			Severity: "error", Message: "no", Labels: map[string]string{"a": "b"}, ID: "1"}},
		Total:          1,
		Histogram:      &wire.LogHistogram{Start: time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC), StepSeconds: 60, Counts: []int64{0, 1}},
		MissingRegions: []wire.MissingRegion{{Region: "us-1", Reason: "did not answer within 10s"}}, NextCursor: "x",
	}, nil
}

func (f *fakeLogs) Tail(ctx context.Context, tenant string, q wire.LogQuery, after string, send func(string, wire.LogEvent) error) *wire.Problem {
	f.note(tenant, q, after)
	if q.Text == "(" {
		return wire.Invalid(wire.FieldError{Field: "query", Detail: "no"})
	}
	f.open.Add(1)
	defer f.open.Add(-1)
	for n, ev := 0, (wire.LogEvent{}); ; n++ {
		if send(strconv.Itoa(n), ev) != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case ev = <-f.events:
		}
	}
}

// clock is a time that tests move.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time          { c.mu.Lock(); defer c.mu.Unlock(); return c.t }
func (c *clock) advance(d time.Duration) { c.mu.Lock(); c.t = c.t.Add(d); c.mu.Unlock() }

type harness struct {
	t       *testing.T
	api     *fakeAPI
	health  *fakeHealth
	metrics *fakeMetrics
	alerts  *fakeAlerting
	logs    *fakeLogs
	clock   *clock
	con     *Console
	srv     *httptest.Server
	con3    *contract
	reg     *prometheus.Registry
	log     *logBuffer
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
func (l *logBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

// newHarness starts a console before a fake API server with the tenants acme and
// globex. alice may do everything in acme, bob in globex, carol reads acme, root may
// everything, both reads both, dave sees both their shops but no site, nobody may
// nothing.
func newHarness(t *testing.T, change ...func(*Options, *timing)) *harness {
	t.Helper()
	h := &harness{t: t, api: newFakeAPI(t), health: newFakeHealth(t), metrics: &fakeMetrics{}, alerts: newFakeAlerting(t), logs: &fakeLogs{events: make(chan wire.LogEvent)}, con3: loadContract(t),
		clock: &clock{t: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}, reg: prometheus.NewRegistry(), log: &logBuffer{}}
	h.api.tenants = []string{"globex", "acme"}
	everything := func(tenant string) (out []string) {
		for _, verb := range []string{"list", "get", "patch", "get/logs", "get/silences", "create/silences", "delete/silences", "create/alertrules", "get/alertrules"} {
			out = append(out, verb+" "+tenant+"-system")
		}
		for _, verb := range []string{"get/virtualkubernetes", "get/virtualhosts", "get/advertisepolicies", "create/deployments", "patch/deployments", "delete/pods", "get/pods/log", "objects"} {
			out = append(out, verb+" "+tenant+"-shop")
		}
		for _, ns := range []string{"-shop", "-system"} {
			for _, verb := range []string{"list/rollouts", "get/rollouts", "watch/rollouts", "create/rollouts", "patch/rollouts", "delete/rollouts", "approve/rollouts", "skip-gates/rollouts",
				"get/rolloutstates", "create/gatechecks", "get/gatechecks"} {
				out = append(out, verb+" "+tenant+ns)
			}
		}
		return append(out, "get/virtualsites "+tenant+"-shared", "patch/virtualsites "+tenant+"-shared")
	}
	h.api.user("alice", everything("acme")...)
	h.api.user("bob", everything("globex")...)
	h.api.user("carol", "list acme-system", "get acme-system", "get/virtualkubernetes acme-shop", "get/virtualhosts acme-shop")
	h.api.user("dave", "get/virtualkubernetes acme-shop", "get/virtualkubernetes globex-shop", "objects acme-shop", "get/pods/log acme-shop")
	h.api.user("both", "list acme-system", "get acme-system", "list globex-system", "get globex-system", "patch acme-system",
		"get/logs acme-system", "get/logs globex-system", "get/silences acme-system", "create/silences acme-system", "create/silences globex-system",
		"get/rollouts acme-shop", "get/rolloutstates acme-shop")
	h.api.user("root", "* *")
	h.api.user("nobody")
	h.api.site("acme", "paris-07", approved)
	h.api.site("acme", "rome-01")
	h.api.site("acme", "oslo-001")
	h.api.site("acme", "twin", approved)
	h.api.site("globex", "twin", approved)
	h.api.site("globex", "lima-1")

	for _, ns := range []string{"acme-shared", "globex-shared"} {
		h.api.virtual[ns+"/all-eu"] = map[string]any{"apiVersion": "muster.dev/v1alpha1", "kind": "VirtualSite",
			"metadata": map[string]any{"namespace": ns, "name": "all-eu", "uid": "uid-" + ns, "resourceVersion": "1"}, "spec": map[string]any{"siteSelector": map[string]any{}}}
	}

	base, err := url.Parse(h.health.srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	alerting, err := url.Parse(h.alerts.srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{RestConfig: h.api.config(), HealthURL: base, Metrics: h.metrics, Logs: h.logs, Timeline: newTimeline(t), AlertingURL: alerting, SessionKeyFile: keyFile(t, 7), Registerer: h.reg,
		Logger: slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	tm := defaultTiming()
	for _, c := range change {
		c(&o, &tm)
	}
	if h.con, err = newConsole(o, tm, h.clock.now); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = h.con.Run(ctx) }()
	h.srv = httptest.NewUnstartedServer(nil)
	h.srv.Config = h.con.NewServer()
	h.srv.Start()
	t.Cleanup(func() {
		h.srv.CloseClientConnections()
		h.srv.Close()
		cancel()
		<-done
	})
	testkit.EventuallyTrue(t, "the list of sites is loaded", func() bool { return h.con.Ready() == nil })
	return h
}

// keyFile is a file of session keys, each 32 times its byte.
func keyFile(t testing.TB, keys ...byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	writeKeys(t, path, keys...)
	return path
}

func writeKeys(t testing.TB, path string, keys ...byte) {
	t.Helper()
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintln(&b, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{k}, sessionKeyBytes)))
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

type answer struct {
	*http.Response
	body []byte
}

func (a answer) json(t testing.TB, out any) {
	t.Helper()
	if err := json.Unmarshal(a.body, out); err != nil {
		t.Fatalf("%v\n%s", err, a.body)
	}
}

func (a answer) problem(t testing.TB) problem {
	t.Helper()
	var p problem
	if a.Header.Get("Content-Type") != wire.ProblemMediaType {
		t.Errorf("%s %s → %d %s, want a problem\n%.300s", a.Request.Method, a.Request.URL, a.StatusCode, a.Header.Get("Content-Type"), a.body)
		return p
	}
	a.json(t, &p)
	if p.Status != a.StatusCode || p.Title == "" || p.Type == "" {
		t.Errorf("half a problem: %s", a.body)
	}
	return p
}

// send sends a request as a program of this user would; user "" sends no token.
func (h *harness) send(user, method, target, body string, header ...string) answer {
	h.t.Helper()
	req, err := http.NewRequest(method, h.srv.URL+target, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	} else {
		req.Body = http.NoBody
	}
	if user != "" {
		req.Header.Set("Authorization", "Bearer token-"+user)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	return h.do(req)
}

func (h *harness) do(req *http.Request) answer {
	h.t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: h.srv.Client().Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	if strings.HasPrefix(req.URL.Path, apiPrefix) && req.Method != "HEAD" && res.StatusCode != 307 && res.StatusCode != 301 {
		h.con3.check(h.t, req, res, body)
	}
	return answer{res, body}
}

// want sends and checks the status.
func (h *harness) want(code int, user, method, target, body string, header ...string) answer {
	h.t.Helper()
	a := h.send(user, method, target, body, header...)
	if a.StatusCode != code {
		h.t.Errorf("%s %s as %s → %d, want %d: %.300s", method, target, user, a.StatusCode, code, a.body)
	} else if code >= 400 && !strings.HasPrefix(target, "/api/v1/metrics") {
		a.problem(h.t)
	}
	return a
}

// login returns the Cookie header of a session.
func (h *harness) login(user string) string {
	h.t.Helper()
	a := h.want(204, "", "POST", "/api/v1/session", `{"token":"token-`+user+`"}`)
	for _, c := range a.Cookies() {
		if c.Name == sessionCookie {
			return c.Name + "=" + c.Value
		}
	}
	h.t.Fatal("no cookie was set")
	return ""
}
