package api

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health"
	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/wire"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// fake is a Source that a test moves.
type fake struct {
	engine.Hub
	view atomic.Pointer[engine.View]
	try  func(tenant string, candidate *v1alpha1.HealthPolicy) (*engine.Trial, error)

	replay func(tenant string, candidate *v1alpha1.HealthPolicy, since time.Duration, after string) (*engine.Replay, error)
}

func (f *fake) Try(_ context.Context, tenant string, candidate *v1alpha1.HealthPolicy, patience time.Duration) (*engine.Trial, error) {
	return f.try(tenant, candidate)
}

func (f *fake) View() *engine.View { return f.view.Load() }

func (f *fake) TryHistory(_ context.Context, tenant string, candidate *v1alpha1.HealthPolicy, since time.Duration, after string) (*engine.Replay, error) {
	return f.replay(tenant, candidate, since, after)
}

// entry describes one site: its score, or -1 for unknown.
type entry struct {
	id      string
	score   float64
	change  func(*inventory.Site)
	virtual []string
}

func model(t testing.TB) *health.Model {
	m, err := health.NewModel(health.Options{Weights: [4]float64{1, 1, 1, 1}, Evaluations: 1, Recovery: 1, Signals: []health.Signal{
		{Name: "cpu", Dimension: fleet.Performance, Query: "cpu", Good: 0, Bad: 100, Weight: 1, Cap: health.NoCap, Unit: "percent", Text: "{value} of the CPU is in use", Source: "node_exporter"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func view(t testing.TB, version uint64, entries ...entry) *engine.View {
	t.Helper()
	m := model(t)
	var sites []*inventory.Site
	states := map[fleet.SiteID]*health.State{}
	virtual := map[string]*inventory.VirtualSite{}
	for _, e := range entries {
		tenant, name, _ := strings.Cut(e.id, "/")
		s := &inventory.Site{ID: fleet.SiteID{Tenant: tenant, Name: name}, Region: "eu", Phase: fleet.PhaseOnline, VirtualSites: e.virtual, Labels: map[string]string{"region": "eu"}}
		if e.change != nil {
			e.change(s)
		}
		sites = append(sites, s)
		for _, key := range e.virtual {
			ns, n, _ := strings.Cut(key, "/")
			virtual[tenant+key] = &inventory.VirtualSite{Tenant: tenant, Namespace: ns, Name: n}
		}
		// connectivity is 100, so a score of s needs performance at 2s-100.
		rd := health.Readings{Link: health.LinkUp, Signals: []health.Reading{{Value: 200 - 2*e.score, Known: true}}}
		if e.score < 0 {
			rd = health.Readings{Link: health.LinkNever}
		}
		st := health.Evaluate(m, rd, nil, now.Add(-time.Hour))
		if s.Counts() {
			states[s.ID] = &st
		}
	}
	var vs []*inventory.VirtualSite
	for _, v := range virtual {
		vs = append(vs, v)
	}
	v := &engine.View{Version: version, Tick: version, AsOf: now, Snapshot: inventory.NewSnapshot(version, sites, vs, nil)}
	for _, s := range v.Snapshot.Sites {
		v.Sites = append(v.Sites, &engine.Site{Site: s, State: states[s.ID], Phase: s.Phase, LastSeen: now, Maintenance: s.MaintenanceAt(now)})
	}
	for _, def := range v.Snapshot.VirtualSites {
		var members []health.Member
		for _, i := range def.Members {
			s := v.Sites[i]
			score, known := s.Score()
			members = append(members, health.Member{Name: s.ID.Name, Score: score, Known: known, Colour: s.Colour(), Maintenance: s.Maintenance != nil})
		}
		x := &engine.VirtualSite{VirtualSite: def}
		x.Aggregate, _ = health.Summarize(members, nil)
		v.VirtualSites = append(v.VirtualSites, x)
	}
	v.Policies = []*engine.Policy{
		{Tenant: "a", Spec: &v1alpha1.HealthPolicySpec{Priority: 7}, Name: "mine", Sites: 1, Signals: []engine.SignalStat{{Name: "cpu", Dimension: fleet.Performance, Err: "broken", SitesKnown: 1, Millis: 7}}},
		{Name: "(shipped)", Sites: 99, Signals: []engine.SignalStat{{Name: "cpu", Dimension: fleet.Performance, SitesKnown: 99}}},
	}
	return v
}

func fixture(t testing.TB) *engine.View {
	return view(t, 1,
		entry{id: "a/berlin", score: 90, virtual: []string{"shared/eu", "shop/north"}},
		entry{id: "a/oslo", score: 60, virtual: []string{"shared/eu"}, change: func(s *inventory.Site) {
			s.Region = "nordics"
			s.Place = &inventory.Place{Latitude: 59.9, Longitude: 10.7, Address: "Karl Johans gate"}
		}},
		entry{id: "a/paris", score: 50, virtual: []string{"shared/eu"}, change: func(s *inventory.Site) { s.ByHand = &v1alpha1.Maintenance{Reason: "new roof"} }},
		entry{id: "a/rome", score: -1},
		entry{id: "a/old", score: 50, change: func(s *inventory.Site) { s.Phase = fleet.PhaseDecommissioned }},
		entry{id: "a/waiting", score: 50, change: func(s *inventory.Site) { s.Phase = fleet.PhasePending }},
		entry{id: "b/paris", score: 55, virtual: []string{"shared/eu"}},
		entry{id: "c/lima", score: 75},
	)
}

func serve(t testing.TB, f *fake, change ...func(*Options)) *httptest.Server {
	t.Helper()
	o := Options{Source: f, Logger: slog.New(slog.DiscardHandler), Shipped: &v1alpha1.HealthPolicySpec{Priority: 9}}
	for _, c := range change {
		c(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	s.Register(mux)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv
}

func get(t testing.TB, srv *httptest.Server, path, tenants string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, srv.URL+"/api/v1/health/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if tenants != "" {
		req.Header.Set(wire.TenantsHeader, tenants)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func read[T any](t testing.TB, srv *httptest.Server, path, tenants string) T {
	t.Helper()
	resp, body := get(t, srv, path, tenants)
	var out T
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("GET %s: %s %s", path, resp.Status, body)
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		t.Fatalf("GET %s: %v\n%s", path, err, body)
	}
	return out
}

func ids(l SiteList) string {
	var out []string
	for _, s := range l.Sites {
		out = append(out, s.Tenant+"/"+s.Name)
	}
	return strings.Join(out, " ")
}

func TestListsAndFilters(t *testing.T) {
	f := &fake{}
	f.view.Store(fixture(t))
	srv := serve(t, f)
	for _, c := range []struct{ path, tenants, want string }{
		{"sites", "*", "a/berlin c/lima a/oslo a/paris b/paris a/rome a/waiting"},
		{"sites?sort=name", "a,b", "a/berlin a/oslo a/paris b/paris a/rome a/waiting"},
		{"sites?sort=score", "*", "a/paris b/paris a/oslo c/lima a/berlin a/rome a/waiting"},
		{"sites?sort=score", " b , c ", "b/paris c/lima"},
		{"sites?tenant=a", "*", "a/berlin a/oslo a/paris a/rome a/waiting"},
		{"sites?tenant=a&tenant=c", "*", "a/berlin c/lima a/oslo a/paris a/rome a/waiting"},
		{"sites", "nobody", ""},
		{"sites?colour=orange", "*", "c/lima a/oslo a/paris b/paris"},
		{"sites?colour=grey,green", "*", "a/berlin a/rome a/waiting"},
		{"sites?region=nordics", "*", "a/oslo"},
		{"sites?virtualSite=shared/eu", "*", "a/berlin a/oslo a/paris b/paris"},
		{"sites?virtualSite=north", "*", "a/berlin"},
		{"sites?virtualSite=none", "*", ""},
		{"sites?phase=pending", "*", "a/waiting"},
		{"sites?phase=Decommissioned,Pending", "*", "a/old a/waiting"},
		{"sites?q=PARI", "*", "a/paris b/paris"},
		{"sites?q=johans", "*", "a/oslo"},
		{"sites?q=o&colour=orange&region=nordics&tenant=a", "*", "a/oslo"},
	} {
		l := read[SiteList](t, srv, c.path, c.tenants)
		if got := ids(l); got != c.want || l.Total != len(strings.Fields(c.want)) || !l.AsOf.Equal(now) {
			t.Errorf("%s as %s: %s (total %d), want %s", c.path, c.tenants, got, l.Total, c.want)
		}
	}
	l := read[SiteList](t, srv, "sites?q=oslo", "*")
	s := l.Sites[0]
	if *s.Score != 60 || s.Colour != fleet.Orange || s.Place.Latitude != 59.9 || s.Dimensions.Performance.Score == nil || *s.Dimensions.Performance.Score != 20 || s.Dimensions.Security.Known || s.Dimensions.Security.Colour != fleet.Grey {
		t.Errorf("%+v", s)
	}
	if r := s.Reasons[0]; r.Signal != "cpu" || *r.Value != 80 || *r.Threshold != 0 || r.PointsLost != 40 || r.Text != "80% of the CPU is in use" || !r.Since.Equal(now.Add(-time.Hour)) {
		t.Errorf("%+v", r)
	}
	// The shape that pages rely on: lists are lists and never null.
	_, body := get(t, srv, "sites?q=rome", "*")
	for _, want := range []string{`"score":null`, `"virtualSites":[]`, `"place":null`, `"maintenance":null`, `"value":null`, `"colour":"grey"`} {
		if !strings.Contains(body, want) {
			t.Errorf("%s lacks %s", body, want)
		}
	}
	if m := read[SiteList](t, srv, "sites?q=paris&tenant=a", "*").Sites[0].Maintenance; m == nil || m.Reason != "new roof" || m.Until != nil {
		t.Errorf("maintenance %+v", m)
	}
	if d := read[SiteDetail](t, srv, "sites/berlin", "*"); len(d.Signals) != 2 || d.Signals[0].Name != "cpu" || *d.Signals[0].Value != 20 || *d.Signals[0].Score != 0.8 || d.Signals[0].Source != "node_exporter" || d.Labels["region"] != "eu" {
		t.Errorf("%+v", d)
	}
	if d := read[SiteDetail](t, srv, "sites/paris?tenant=b", "*"); d.Tenant != "b" {
		t.Errorf("%+v", d)
	}
	if d := read[SiteDetail](t, srv, "sites/paris", "b"); d.Tenant != "b" {
		t.Errorf("unique among what may be read: %+v", d)
	}
	if d := read[SiteDetail](t, srv, "sites/waiting", "a"); d.Phase != fleet.PhasePending || d.Score != nil || len(d.Signals) != 0 {
		t.Errorf("%+v", d)
	}
	vs := read[VirtualSite](t, srv, "virtualsites/eu?tenant=a", "*")
	if *vs.Mean != 75 || *vs.P10 != 60 || vs.Worst.Site != "oslo" || vs.Maintenance != 1 || vs.Sites != 3 || vs.Counts != (ColourCount{Green: 1, Orange: 1}) || vs.PercentUnhealthy != 50 || vs.Namespace != "shared" {
		t.Errorf("%+v", vs)
	}
	if l := read[VirtualSiteList](t, srv, "virtualsites", "a"); l.Total != 2 || l.VirtualSites[1].Name != "north" {
		t.Errorf("%+v", l)
	}
	p := read[PolicyList](t, srv, "policies", "a")
	if len(p.Policies) != 2 || p.Policies[0].Signals[0].Error != "broken" || p.Policies[0].Signals[0].QueryMillis != 7 || p.Policies[1].Sites != 4 || p.Policies[1].Signals[0].SitesKnown != 3 {
		t.Errorf("%+v", p)
	}
	if p := read[PolicyList](t, srv, "policies", "c"); len(p.Policies) != 1 || p.Policies[0].Sites != 1 {
		t.Errorf("another tenant's policy or counts: %+v", p)
	}
	name := p.Policies[0].Name
	if d := read[PolicyDetail](t, srv, "policies/"+name, "a"); d.Policy.Tenant != "a" || len(d.Policy.Signals) == 0 || d.Spec == nil || d.Spec.Priority != 7 {
		t.Errorf("%+v", d)
	}
	if d := read[PolicyDetail](t, srv, "policies/shipped", "c"); d.Policy.Tenant != "" || d.Policy.Sites != 1 || d.Spec == nil || d.Spec.Priority != 9 {
		t.Errorf("%+v", d)
	}
	for path, tenants := range map[string]string{"policies/" + name: "c", "policies/nothing": "a"} {
		if resp, body := get(t, srv, path, tenants); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s for %s: %s %s", path, tenants, resp.Status, body)
		}
	}
}

func TestProblems(t *testing.T) {
	f := &fake{}
	srv := serve(t, f)
	resp, _ := get(t, srv, "sites", "*")
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("before the first view: %s", resp.Status)
	}
	f.view.Store(fixture(t))
	for _, c := range []struct {
		path, tenants string
		status        int
		detail        string
	}{
		{"sites", "", 403, "X-Muster-Tenants"},
		{"sites", " ", 403, "X-Muster-Tenants"},
		{"sites", "a,../b", 403, "no tenant"},
		{"sites?tenant=b", "a", 403, `may not read "b"`},
		{"sites/berlin?tenant=b", "a", 403, `may not read "b"`},
		{"sites/berlin", "b", 404, "no site"},
		{"sites/nothing", "*", 404, "no site"},
		{"sites/paris", "*", 409, "tenant="},
		{"virtualsites/eu", "*", 409, "namespace="},
		{"virtualsites/eu?namespace=mars", "*", 404, "no virtual site"},
		{"virtualsites/north", "b", 404, "no virtual site"},
		{"sites?colour=blue", "*", 400, "colour"},
		{"sites?phase=gone", "*", 400, "phase"},
		{"sites?sort=age", "*", 400, "sort"},
		{"sites?limit=0", "*", 400, "limit"},
		{"sites?limit=x", "*", 400, "limit"},
		{"sites?cursor=x", "*", 400, "cursor"},
		{"virtualsites?cursor=x", "*", 400, "cursor"},
		{"stream", "", 403, "X-Muster-Tenants"},
		{"stream?tenant=b", "a", 403, "may not"},
		{"nothing", "*", 404, "no such path"},
	} {
		resp, body := get(t, srv, c.path, c.tenants)
		var p wire.Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %v, %s %s", c.path, err, resp.Header.Get("Content-Type"), body)
		}
		if resp.StatusCode != c.status || p.Status != c.status || !strings.Contains(p.Detail, c.detail) {
			t.Errorf("%s as %q: %d %+v, want %d with %q", c.path, c.tenants, resp.StatusCode, p, c.status, c.detail)
		}
	}
	_, body := get(t, srv, "sites/paris", "*")
	var p wire.Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil || !slices.Equal(p.Tenants, []string{"a", "b"}) {
		t.Errorf("409 names %v", p.Tenants)
	}
	// A second header, as a client behind a careless proxy may add.
	if resp, _ := get(t, srv, "sites", "a", wire.TenantsHeader, "*"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("two headers: %s", resp.Status)
	}
	resp, err := srv.Client().Post(srv.URL+"/api/v1/health/sites", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", resp.Status)
	}
}

func TestETag(t *testing.T) {
	f := &fake{}
	v := fixture(t)
	f.view.Store(v)
	srv := serve(t, f)
	resp, _ := get(t, srv, "sites?colour=red", "a")
	tag := resp.Header.Get("ETag")
	if resp, body := get(t, srv, "sites?colour=red", "a", "If-None-Match", tag); resp.StatusCode != http.StatusNotModified || body != "" {
		t.Errorf("same view: %s %s", resp.Status, body)
	}
	if resp, _ := get(t, srv, "sites?colour=red", "b", "If-None-Match", tag); resp.StatusCode != http.StatusOK {
		t.Errorf("another reader: %s", resp.Status)
	}
	if resp, _ := get(t, srv, "sites", "a", "If-None-Match", tag); resp.StatusCode != http.StatusOK {
		t.Errorf("another question: %s", resp.Status)
	}
	next := *v
	next.Version++
	f.view.Store(&next)
	if resp, _ := get(t, srv, "sites?colour=red", "a", "If-None-Match", tag); resp.StatusCode != http.StatusOK {
		t.Errorf("another view: %s", resp.Status)
	}
}

// TestPaging walks through all pages while every score moves between them.
func TestPaging(t *testing.T) {
	f := &fake{}
	entries := func(round int) []entry {
		var out []entry
		for i := range 257 {
			score := float64((i*37+round*61)%50) + 50
			if (i+round)%9 == 0 {
				score = -1
			}
			out = append(out, entry{id: fmt.Sprintf("%c/site-%03d", 'a'+i%3, i), score: score})
		}
		return out
	}
	srv := serve(t, f)
	for _, order := range []string{"name", "score"} {
		seen := map[string]int{}
		cursor, pages := "", 0
		for {
			if order == "name" || pages == 0 {
				f.view.Store(view(t, uint64(pages+1), entries(pages)...))
			}
			l := read[SiteList](t, srv, "sites?limit=20&sort="+order+"&cursor="+url.QueryEscape(cursor), "*")
			if l.Total != 257 || len(l.Sites) > 20 {
				t.Fatalf("total %d, %d on a page", l.Total, len(l.Sites))
			}
			for _, s := range l.Sites {
				seen[s.Tenant+"/"+s.Name]++
			}
			if pages++; l.NextCursor == "" {
				break
			}
			cursor = l.NextCursor
		}
		if len(seen) != 257 || pages != 13 {
			t.Errorf("sort=%s: %d sites on %d pages", order, len(seen), pages)
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("sort=%s: %s seen %d times", order, id, n)
			}
		}
	}
	if l := read[SiteList](t, srv, "sites?limit=100000", "*"); len(l.Sites) != 257 {
		t.Errorf("%d sites", len(l.Sites))
	}
	// The cursor of one order is none of another.
	c := read[SiteList](t, srv, "sites?limit=1&sort=score", "*").NextCursor
	if resp, _ := get(t, srv, "sites?sort=name&cursor="+c, "*"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a cursor of another order: %s", resp.Status)
	}
}

// FuzzCursor: whatever comes as a cursor, the answer is a page or a clean refusal,
// and never more than the reader may see.
func FuzzCursor(f *testing.F) {
	src := &fake{}
	src.view.Store(fixture(f))
	s, err := New(Options{Source: src, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	mux := http.NewServeMux()
	s.Register(mux)
	for _, seed := range []string{"", "x", (&position{Sort: "name", Name: "oslo", Tenant: "a"}).encode(), (&position{Sort: "score", Score: 60, Name: "oslo", Tenant: "a"}).encode(),
		base64.RawURLEncoding.EncodeToString([]byte(`{"s":"name","n":"\u0000","t":"` + strings.Repeat("z", 500) + `"}`)), base64.RawURLEncoding.EncodeToString([]byte(`{"s":"score","v":1e999,"n":"a"}`)), base64.RawURLEncoding.EncodeToString([]byte(`{"s":"name","n":"a"}{}`)), strings.Repeat("A", 4000)} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, cursor string, byScore bool) {
		order := sortName
		if byScore {
			order = sortScore
		}
		q := url.Values{"cursor": {cursor}, "sort": {order}}
		req := httptest.NewRequest(http.MethodGet, "/api/v1/health/sites?"+q.Encode(), nil)
		req.Header.Set(wire.TenantsHeader, "a")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, req)
		switch w.Code {
		case http.StatusBadRequest:
		case http.StatusOK:
			var l SiteList
			if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil {
				t.Fatal(err)
			}
			for _, s := range l.Sites {
				if s.Tenant != "a" {
					t.Fatalf("cursor %q shows %s/%s", cursor, s.Tenant, s.Name)
				}
			}
		default:
			t.Fatalf("cursor %q: %d", cursor, w.Code)
		}
		if p, err := decodeCursor(cursor, order); err == nil && p != nil {
			again, err := decodeCursor(p.encode(), order)
			if err != nil && len(p.encode()) <= 1024 || err == nil && again.compare(p) != 0 {
				t.Fatalf("cursor %+v doesn't survive: %+v %v", p, again, err)
			}
		}
	})
}

// events reads a stream; the channel is closed when it ends.
func events(t *testing.T, srv *httptest.Server, path, tenants string) <-chan [2]string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/api/v1/health/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(wire.TenantsHeader, tenants)
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	out := make(chan [2]string, 100)
	r := bufio.NewScanner(resp.Body)
	r.Buffer(nil, 1<<24)
	go func() {
		defer close(out)
		defer resp.Body.Close()
		var name string
		for r.Scan() {
			switch line := r.Text(); {
			case strings.HasPrefix(line, ":"):
				out <- [2]string{"comment", line}
			case strings.HasPrefix(line, "event: "):
				name = line[7:]
			case strings.HasPrefix(line, "data: "):
				out <- [2]string{name, line[6:]}
			}
		}
	}()
	if first := next(t, out); first[0] != "comment" {
		t.Fatalf("first %v", first)
	}
	return out
}

func next(t *testing.T, c <-chan [2]string) [2]string {
	t.Helper()
	select {
	case e, ok := <-c:
		if !ok {
			return [2]string{"end", ""}
		}
		return e
	case <-time.After(10 * time.Second):
		t.Fatal("no event within 10 s")
		return [2]string{}
	}
}

func TestStream(t *testing.T) {
	f := &fake{}
	v := fixture(t)
	f.view.Store(v)
	srv := serve(t, f, func(o *Options) { o.KeepAlive = 50 * time.Millisecond })
	all, onlyA, onlyC := events(t, srv, "stream", "*"), events(t, srv, "stream?tenant=a", "*"), events(t, srv, "stream", "c")
	f.Publish(&engine.Update{View: v, Sites: []*engine.Site{v.Find("a", "oslo"), v.Find("b", "paris"), v.Find("a", "old")}, VirtualSites: v.VirtualSites[:1], Removed: []fleet.SiteID{{Tenant: "b", Name: "gone"}}, Tick: true})
	skip := func(c <-chan [2]string) [2]string {
		for {
			if e := next(t, c); e[0] != "comment" {
				return e
			}
		}
	}
	want := func(c <-chan [2]string, name string, parts ...string) {
		t.Helper()
		e := skip(c)
		if e[0] != name {
			t.Fatalf("event %v, want %s", e, name)
		}
		if !json.Valid([]byte(e[1])) {
			t.Errorf("not JSON: %s", e[1])
		}
		for _, p := range parts {
			if s, no := strings.CutPrefix(p, "!"); no == strings.Contains(e[1], s) {
				t.Errorf("event %s: %s, want %s", name, e[1], p)
			}
		}
	}
	want(all, "removed", `"gone"`, `"old"`)
	want(all, "sites", `"oslo"`, `"paris"`, `"tenant":"b"`, `!"old"`)
	want(all, "virtualsites", `"mean"`)
	want(all, "tick", `{"asOf":"2026-05-01T12:00:00Z"}`)
	want(onlyA, "removed", `"old"`, `!"gone"`)
	want(onlyA, "sites", `"oslo"`, `!"tenant":"b"`)
	want(onlyA, "virtualsites", `"tenant":"a"`)
	want(onlyA, "tick")
	want(onlyC, "tick")
	// A quiet stream says that it lives.
	if e := next(t, onlyC); e[0] != "comment" || !strings.Contains(e[1], "alive") {
		t.Errorf("%v", e)
	}
	// An update without a tick, with nothing for tenant c, sends it nothing.
	f.Publish(&engine.Update{View: v, Sites: []*engine.Site{v.Find("a", "oslo")}})
	want(all, "sites", `"oslo"`)
	f.Publish(&engine.Update{View: v, Sites: []*engine.Site{v.Find("c", "lima")}})
	want(onlyC, "sites", `"lima"`)
}

// One tenant's streams leave room for others', however many consoles ask for them.
func TestATenantsStreamsLeaveRoomForOthers(t *testing.T) {
	f := &fake{}
	f.view.Store(fixture(t))
	srv := serve(t, f, func(o *Options) { o.MaxStreams = 8 })
	open := func(tenants string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/api/v1/health/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(wire.TenantsHeader, tenants)
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp.StatusCode
	}
	for i := range 8 {
		want := http.StatusOK
		if i >= 4 {
			want = http.StatusServiceUnavailable
		}
		if code := open("evil"); code != want {
			t.Errorf("stream %d of one tenant: %d, want %d", i, code, want)
		}
	}
	for _, who := range []string{"acme", "acme", "*"} {
		if code := open(who); code != http.StatusOK {
			t.Errorf("%s: %d", who, code)
		}
	}
}

// A client that does not read must not hold up anybody, and is let go of.
func TestSlowClientIsDropped(t *testing.T) {
	f := &fake{}
	v := fixture(t)
	f.view.Store(v)
	srv := serve(t, f, func(o *Options) { o.StreamQueue, o.MaxStreams = 2, 1 })
	req, err := http.NewRequest(http.MethodGet, srv.URL+"/api/v1/health/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(wire.TenantsHeader, "*")
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp2, _ := get(t, srv, "stream", "*"); resp2.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a second stream: %s", resp2.Status)
	}
	// Far more than the sockets' buffers hold.
	big := v.Find("a", "oslo")
	long := *big.Site
	long.VirtualSites = []string{strings.Repeat("x", 4<<20)}
	site := *big
	site.Site = &long
	dropped := 0
	deadline := time.Now().Add(20 * time.Second)
	for dropped == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the slow client was never dropped")
		}
		dropped = f.Publish(&engine.Update{View: v, Sites: []*engine.Site{&site}})
	}
	if f.Publish(&engine.Update{View: v}) != 0 {
		t.Error("it is still there")
	}
}

func BenchmarkList10k(b *testing.B) {
	f := &fake{}
	var entries []entry
	for i := range 10_000 {
		entries = append(entries, entry{id: fmt.Sprintf("a/site-%05d", i), score: 50 + float64(i%50)})
	}
	f.view.Store(view(b, 1, entries...))
	s, err := New(Options{Source: f, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	mux := http.NewServeMux()
	s.Register(mux)
	b.ReportAllocs()
	for b.Loop() {
		req := httptest.NewRequest(http.MethodGet, "/api/v1/health/sites?sort=score&limit=100", nil)
		req.Header.Set(wire.TenantsHeader, "*")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, req)
		if w.Code != http.StatusOK {
			b.Fatal(w.Code)
		}
	}
}
