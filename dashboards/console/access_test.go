package console

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/oidclogin"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

func serve(t *testing.T, c *Console) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = c.NewServer()
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

func parseQueryString(raw string) (url.Values, error) { return url.ParseQuery(raw) }

// TestTenantsAreWalls tries everything that alice of acme could send to see or change
// something of globex.
func TestTenantsAreWalls(t *testing.T) {
	h := newHarness(t)
	forged := []string{"X-Muster-Tenants", "globex", "X-Scope-OrgID", "globex", "Impersonate-User", "root", "Impersonate-Group", "system:masters",
		"X-Remote-User", "root", "X-Forwarded-For", "127.0.0.1", "X-Original-URL", "/api/v1/health/sites?tenant=globex"}

	t.Run("by parameter", func(t *testing.T) {
		for _, c := range []struct{ method, target, body string }{
			{"GET", "/api/v1/health/sites?tenant=globex", ""},
			{"GET", "/api/v1/health/sites?tenant=globex&limit=5&sort=name", ""},
			{"GET", "/api/v1/health/sites/lima-1?tenant=globex", ""},
			{"GET", "/api/v1/health/virtualsites?tenant=globex", ""},
			{"GET", "/api/v1/health/virtualsites/all-eu?tenant=globex&namespace=shared", ""},
			{"GET", "/api/v1/health/stream?tenant=globex", ""},
			{"GET", "/api/v1/cost?tenant=globex&by=tenant", ""},
			{"GET", "/api/v1/cost/names?tenant=globex&site=lima-1", ""},
			{"GET", "/api/v1/sites/lima-1?tenant=globex", ""},
			{"GET", "/api/v1/sites/twin?tenant=globex", ""},
			{"PUT", "/api/v1/sites/lima-1/maintenance?tenant=globex", `{"reason":"x"}`},
			{"DELETE", "/api/v1/sites/lima-1/maintenance?tenant=globex", ""},
			{"POST", "/api/v1/sites/lima-1/reset?tenant=globex", `{"wait":"1h"}`},
			{"DELETE", "/api/v1/sites/lima-1/reset?tenant=globex", ""},
			{"GET", "/api/v1/registrations?tenant=globex", ""},
			{"POST", "/api/v1/registrations/lima-1/approve?tenant=globex", `{}`},
			{"POST", "/api/v1/registrations/lima-1/reject?tenant=globex", ""},
			{"PUT", "/api/v1/sites/lima-1/maintenance/windows/w?tenant=globex", `{"reason":"x","schedule":"0 2 * * *","duration":"2h"}`},
			{"DELETE", "/api/v1/sites/lima-1/maintenance/windows/w?tenant=globex", ""},
			{"GET", "/api/v1/virtualsites/shared/all-eu/maintenance/windows?tenant=globex", ""},
			{"PUT", "/api/v1/virtualsites/shared/all-eu/maintenance/windows/w?tenant=globex", `{"reason":"x","schedule":"0 2 * * *","duration":"2h"}`},
			{"DELETE", "/api/v1/virtualsites/shared/all-eu/maintenance/windows/w?tenant=globex", ""},
			{"GET", "/api/v1/logs/search?tenant=globex", ""},
			{"GET", "/api/v1/logs/tail?tenant=globex", ""},
			{"GET", "/api/v1/alerts?tenant=globex", ""},
			{"GET", "/api/v1/alerts/state?tenant=globex", ""},
			{"GET", "/api/v1/alerts/8a1f6b7c2d3e4f50?tenant=globex", ""},
			{"GET", "/api/v1/silences?tenant=globex", ""},
			{"POST", "/api/v1/silences?tenant=globex", `{"matchers":[{"name":"a","value":"b"}],"duration":"1h","comment":"x"}`},
			{"DELETE", "/api/v1/silences/5f1d8a52?tenant=globex", ""},
			{"GET", "/api/v1/metrics/query?query=up&tenant=globex", ""},
			{"GET", "/api/v1/metrics/query_range?query=up&start=0&end=1&step=1&tenant=globex", ""},
		} {
			a := h.want(403, "alice", c.method, c.target, c.body, forged...)
			// A tenant that doesn't exist looks the same.
			b := h.want(403, "alice", c.method, strings.Replace(c.target, "globex", "nobody", 1), c.body, forged...)
			if got, want := strings.ReplaceAll(string(b.body), "nobody", "globex"), string(a.body); got != want {
				t.Errorf("%s %s tells whether the tenant exists:\n%s\n%s", c.method, c.target, want, got)
			}
		}
		h.want(403, "alice", "POST", "/api/v1/metrics/query", "query=up&tenant=globex", append(forged, "Content-Type", "application/x-www-form-urlencoded")...)
		h.want(400, "alice", "POST", "/api/v1/metrics/query?tenant=acme", "query=up&tenant=globex", append(forged, "Content-Type", "application/x-www-form-urlencoded")...)
		h.want(400, "alice", "GET", "/api/v1/health/sites?tenant=acme&tenant=globex", "", forged...)
		h.want(400, "alice", "GET", "/api/v1/sites/globex-system%2flima-1?tenant=acme", "", forged...)
		h.want(404, "alice", "GET", "/api/v1/sites/lima-1", "", forged...)
		if n := h.health.asked(); n != 0 {
			t.Errorf("%d requests reached the health role", n)
		}
		if n := h.alerts.asked(); n != 0 {
			t.Errorf("%d requests reached the alerting role", n)
		}
		if _, _, _, n := h.logs.last(); n != 0 {
			t.Errorf("%d requests reached the log stores", n)
		}
		for _, e := range h.api.auditLog() {
			if strings.Contains(e, "globex") {
				t.Errorf("the API server was asked: %s", e)
			}
		}
	})
	t.Run("by header", func(t *testing.T) {
		h.want(200, "alice", "GET", "/api/v1/health/sites", "", append(forged, "Cookie", "a=b", "Connection", "X-Muster-Tenants")...)
		r := h.health.last()
		if got := r.Header.Values("X-Muster-Tenants"); !slices.Equal(got, []string{"acme"}) {
			t.Errorf("tenants: %q", got)
		}
		for _, name := range []string{"Authorization", "Cookie", "X-Scope-Orgid", "Impersonate-User", "X-Remote-User", "X-Forwarded-For", "X-Original-Url"} {
			if v := r.Header.Values(name); len(v) > 0 {
				t.Errorf("%s: %q reached the health role", name, v)
			}
		}
		h.want(200, "alice", "GET", "/api/v1/metrics/query?query=up", "", forged...)
		if h.metrics.tenant != "acme" {
			t.Errorf("metrics: tenant %q", h.metrics.tenant)
		}
	})
	t.Run("by cursor", func(t *testing.T) {
		var list registrationList
		for _, at := range []position{{0, "globex", "a"}, {0, "acme", "a"}, {1 << 40, "globex", "a"}} {
			h.want(200, "alice", "GET", "/api/v1/registrations?cursor="+at.cursor(), "", forged...).json(t, &list)
			for _, r := range list.Registrations {
				if r.Tenant != "acme" {
					t.Errorf("cursor %+v shows %s/%s", at, r.Tenant, r.Name)
				}
			}
		}
		// A cursor that bob was given is no key to his tenant either.
		var bobs registrationList
		h.api.site("globex", "lima-02")
		testkit.EventuallyTrue(t, "bob sees two", func() bool {
			h.want(200, "bob", "GET", "/api/v1/registrations?limit=1", "").json(t, &bobs)
			return bobs.NextCursor != ""
		})
		h.want(200, "alice", "GET", "/api/v1/registrations?cursor="+bobs.NextCursor, "").json(t, &list)
		for _, r := range list.Registrations {
			if r.Tenant != "acme" {
				t.Errorf("bob's cursor shows alice %s/%s", r.Tenant, r.Name)
			}
		}
	})
}

func TestScopes(t *testing.T) {
	h := newHarness(t)
	for _, c := range []struct{ user, query, want string }{
		{"alice", "", "acme"},
		{"both", "", "acme,globex"},
		{"both", "?tenant=globex", "globex"},
		{"root", "", "*"},
		{"root", "?tenant=acme", "acme"},
	} {
		h.want(200, c.user, "GET", "/api/v1/health/sites"+c.query, "")
		r := h.health.last()
		if got := r.Header.Get("X-Muster-Tenants"); got != c.want {
			t.Errorf("%s%s: %q, want %q", c.user, c.query, got, c.want)
		}
		if want := strings.TrimPrefix(c.query, "?"); r.URL.RawQuery != want {
			t.Errorf("query %q, want %q", r.URL.RawQuery, want)
		}
	}
	var s sessionView
	h.want(200, "root", "GET", "/api/v1/session", "").json(t, &s)
	if !slices.Equal(s.Tenants, []string{"acme", "globex"}) {
		t.Errorf("root reads %v", s.Tenants)
	}
	h.want(200, "nobody", "GET", "/api/v1/session", "").json(t, &s)
	if len(s.Tenants) != 0 {
		t.Errorf("nobody reads %v", s.Tenants)
	}
	if p := h.want(400, "both", "GET", "/api/v1/metrics/query?query=up", "").problem(t); p.Errors[0].Field != "tenant" {
		t.Errorf("%+v", p)
	}
	if p := h.want(409, "both", "GET", "/api/v1/sites/twin", "").problem(t); !slices.Equal(p.Tenants, []string{"acme", "globex"}) || p.Type != wire.ProblemAmbiguousSite {
		t.Errorf("%+v", p)
	}
	var site siteView
	h.want(200, "both", "GET", "/api/v1/sites/paris-07", "").json(t, &site)
	if site.Tenant != "acme" || site.Phase != "Online" || site.Labels["region"] != "eu-west" || site.SystemLabels["muster.dev/system-arch"] != "amd64" {
		t.Errorf("%+v", site)
	}
	// What other tenants have neither makes a name ambiguous nor finds it.
	h.api.mu.Lock()
	h.api.tenants = append(h.api.tenants, "initech")
	h.api.mu.Unlock()
	h.api.site("initech", "paris-07", approved)
	h.api.site("initech", "ghost", approved)
	h.clock.advance(11 * time.Second)
	testkit.EventuallyTrue(t, "root finds initech's site", func() bool { return h.send("root", "GET", "/api/v1/sites/ghost", "").StatusCode == 200 })
	h.want(200, "both", "GET", "/api/v1/sites/paris-07", "")
	h.want(404, "both", "GET", "/api/v1/sites/ghost", "")
	// Rights that are taken away are noticed after ten seconds.
	h.api.grant("alice")
	h.clock.advance(11 * time.Second)
	h.want(403, "alice", "GET", "/api/v1/health/sites", "")
}

func TestAccessIsCached(t *testing.T) {
	h := newHarness(t)
	for range 20 {
		h.want(200, "both", "GET", "/api/v1/health/sites", "")
		h.want(200, "both", "GET", "/api/v1/health/sites?tenant=acme", "")
	}
	if n := h.api.count("access"); n > 3 {
		t.Errorf("%d access reviews, want one for all namespaces and one a tenant", n)
	}
	if n := h.api.count("tenants"); n != 1 {
		t.Errorf("%d lists of tenants, want 1", n)
	}
}

func TestWritesAreTheUsers(t *testing.T) {
	h := newHarness(t)
	h.want(200, "alice", "PUT", "/api/v1/sites/paris-07/maintenance", `{"reason":"router","until":"2026-02-01T00:00:00Z"}`)
	var s siteView
	h.want(200, "carol", "GET", "/api/v1/sites/paris-07", "").json(t, &s)
	if s.Maintenance == nil || s.Maintenance.Reason != "router" || s.Maintenance.Until == nil {
		t.Errorf("%+v", s.Maintenance)
	}
	h.want(200, "alice", "PUT", "/api/v1/sites/paris-07/maintenance", `{"reason":"forever"}`).json(t, &s)
	if s.Maintenance == nil || s.Maintenance.Until != nil {
		t.Errorf("the old end was left: %+v", s.Maintenance)
	}
	h.want(204, "alice", "DELETE", "/api/v1/sites/paris-07/maintenance", "")
	h.want(403, "carol", "POST", "/api/v1/registrations/rome-01/reject", "")
	want := []string{"alice patch acme-system/paris-07", "carol get acme-system/paris-07", "alice patch acme-system/paris-07",
		"alice patch acme-system/paris-07", "carol get acme-system/rome-01", "carol patch acme-system/rome-01"}
	if got := h.api.auditLog(); !slices.Equal(got, want) {
		t.Errorf("audit log:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestApproveAndReject(t *testing.T) {
	h := newHarness(t)
	names := func(user string) (out []string) {
		for cursor := ""; ; {
			var list registrationList
			h.want(200, user, "GET", "/api/v1/registrations?limit=1&cursor="+cursor, "").json(t, &list)
			for _, r := range list.Registrations {
				out = append(out, r.Tenant+"/"+r.Name)
			}
			if cursor = list.NextCursor; cursor == "" {
				return out
			}
		}
	}
	if got := names("root"); !slices.Equal(got, []string{"globex/lima-1", "acme/rome-01", "acme/oslo-001"}) {
		t.Errorf("pending, oldest first: %v", got)
	}
	const approve = "/api/v1/registrations/rome-01/approve?tenant=acme"
	h.want(409, "alice", "POST", approve, `{"publicKey":"`+strings.Repeat("cd", 32)+`"}`)
	var s siteView
	body := `{"labels":{"store":"7"},"place":{"latitude":41.9027836,"longitude":-12.50,"address":"Rome"},"publicKey":"` + strings.Repeat("ab", 32) + `"}`
	h.want(200, "alice", "POST", approve, body).json(t, &s)
	if !s.Approved || s.Phase != "Approved" || s.Labels["store"] != "7" || s.Labels["region"] != "eu-west" || *s.Place != (placeView{41.902784, -12.5, "Rome"}) {
		t.Errorf("%+v %+v", s, s.Place)
	}
	if got := names("alice"); !slices.Equal(got, []string{"acme/oslo-001"}) {
		t.Errorf("the approved one is still listed: %v", got)
	}
	h.want(200, "alice", "POST", approve, body) // a repeated click
	h.want(200, "alice", "POST", approve, "")
	h.want(409, "alice", "POST", approve, `{"labels":{"store":"8"}}`)
	h.want(409, "alice", "POST", "/api/v1/registrations/rome-01/reject?tenant=acme", "")

	h.want(204, "alice", "POST", "/api/v1/registrations/oslo-001/reject?tenant=acme", "")
	h.want(204, "alice", "POST", "/api/v1/registrations/oslo-001/reject?tenant=acme", "")
	h.want(409, "alice", "POST", "/api/v1/registrations/oslo-001/approve?tenant=acme", "")
	if got := names("alice"); len(got) != 0 {
		t.Errorf("the rejected one is still listed: %v", got)
	}
	h.want(404, "alice", "POST", "/api/v1/registrations/nowhere/approve?tenant=acme", "")
}

// TestApproveDecidesAboutWhatWasRead changes the site between read and write.
func TestApproveDecidesAboutWhatWasRead(t *testing.T) {
	h := newHarness(t)
	change := func(f func(*v1alpha1.Site)) {
		done := false
		h.api.mu.Lock()
		h.api.before = func(verb, key string) {
			if verb == "patch" && !done {
				done = true
				h.api.mu.Lock()
				s := h.api.sites[key].DeepCopy()
				f(s)
				h.api.put(s, "MODIFIED")
				h.api.mu.Unlock()
			}
		}
		h.api.mu.Unlock()
	}
	// A controller writes the status: try again.
	change(func(s *v1alpha1.Site) { s.Status.Regional = "eu-1" })
	h.want(200, "alice", "POST", "/api/v1/registrations/rome-01/approve?tenant=acme", "")
	// Somebody else rejects it: don't.
	change(func(s *v1alpha1.Site) { s.Spec.Decommissioned = true })
	h.want(409, "alice", "POST", "/api/v1/registrations/oslo-001/approve?tenant=acme", "")
	// Another machine takes the name: don't.
	h.api.site("acme", "nice-01")
	change(func(s *v1alpha1.Site) { s.UID = "another" })
	h.want(409, "alice", "POST", "/api/v1/registrations/nice-01/approve?tenant=acme", "")
}

func TestStream(t *testing.T) {
	h := newHarness(t, func(_ *Options, tm *timing) { tm.streamCheck, tm.streamWrite = 20*time.Millisecond, time.Second })
	open := func(user, query string) (*bufio.Reader, *http.Response) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		t.Cleanup(cancel)
		req, err := http.NewRequestWithContext(ctx, "GET", h.srv.URL+"/api/v1/health/stream"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer token-"+user)
		req.Header.Set("X-Muster-Tenants", "globex")
		req.Header.Set("Last-Event-ID", "41")
		want := ""
		if user == "alice" || user == "root" {
			want = "gzip"
		}
		req.Header.Set("Accept-Encoding", cmp.Or(want, "br"))
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("Content-Encoding") != want || res.Header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%d %v", res.StatusCode, res.Header)
		}
		if want == "" {
			return bufio.NewReader(res.Body), res
		}
		zr, err := gzip.NewReader(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return bufio.NewReader(zr), res
	}
	line := func(r *bufio.Reader) string {
		t.Helper()
		s, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	r, _ := open("alice", "")
	if got := h.health.last(); got.Header.Get("X-Muster-Tenants") != "acme" || got.Header.Get("Last-Event-ID") != "41" || got.Header.Get("Authorization") != "" {
		t.Errorf("upstream headers: %v", got.Header)
	}
	for i := range 3 { // each event arrives by itself, not in a buffer's time
		h.health.events <- fmt.Sprintf("id: %d\nevent: tick\ndata: {}", i)
		if got := line(r) + line(r) + line(r) + line(r); got != fmt.Sprintf("id: %d\nevent: tick\ndata: {}\n\n", i) {
			t.Errorf("got %q", got)
		}
	}
	if n := testutil.ToFloat64(h.con.met.streams); n != 1 {
		t.Errorf("%v streams counted", n)
	}

	ended := func(r *bufio.Reader, why string) {
		t.Helper()
		if rest, err := io.ReadAll(r); err != nil || len(rest) != 0 {
			t.Errorf("%s: the stream did not end in good order: %q %v", why, rest, err)
		}
	}
	// The clock stands still, so the caches hold until it is moved.
	h.api.grant("alice")
	h.clock.advance(11 * time.Second)
	ended(r, "rights taken away")

	r, _ = open("bob", "?tenant=globex")
	h.api.revoke("token-bob")
	h.clock.advance(11 * time.Second)
	ended(r, "token revoked")

	r, _ = open("carol", "")
	h.api.grant("carol", "list acme-system", "list globex-system")
	h.clock.advance(11 * time.Second)
	ended(r, "more rights")

	r, _ = open("root", "")
	h.clock.advance(time.Minute)
	testkit.EventuallyTrue(t, "the ended streams have ended at the health role too", func() bool { return h.health.open.Load() == 1 })
	h.health.events <- "event: tick\ndata: {}"
	if got := line(r) + line(r) + line(r); got != "event: tick\ndata: {}\n\n" {
		t.Errorf("a stream with its rights ended: %q", got)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := h.srv.Config.Shutdown(ctx); err != nil {
		t.Errorf("shutdown waits for streams: %v", err)
	}
	ended(r, "shutdown")
	testkit.EventuallyTrue(t, "all streams are counted out", func() bool { return testutil.ToFloat64(h.con.met.streams) == 0 })
	h.con.streams.mu.Lock()
	defer h.con.streams.mu.Unlock()
	if len(h.con.streams.users) != 0 {
		t.Errorf("left: %v", h.con.streams.users)
	}
}

func TestStreamOutlivesTheServersTimeouts(t *testing.T) {
	h := newHarness(t)
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = h.con.NewServer()
	srv.Config.ReadTimeout, srv.Config.WriteTimeout = 50*time.Millisecond, 50*time.Millisecond
	srv.Start()
	defer srv.Close()
	req, _ := http.NewRequest("GET", srv.URL+"/api/v1/health/stream", nil)
	req.Header.Set("Authorization", "Bearer token-alice")
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	r := bufio.NewReader(res.Body)
	<-time.After(200 * time.Millisecond) // real deadlines of real sockets: there is nothing to poll
	h.health.events <- "event: tick"
	if s, err := r.ReadString('\n'); s != "event: tick\n" {
		t.Errorf("%q %v", s, err)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	h := newStreams(allStreams)
	enter := func(user string, n int) bool {
		_, p := h.enter(user, n, []string{"acme"})
		return p == nil
	}
	leave, p := h.enter("a", 1, []string{"acme"})
	if p != nil {
		t.Fatal(p)
	}
	for range maxStreams - 1 {
		if !enter("a", 1) {
			t.Fatal("refused too early")
		}
	}
	if enter("a", 1) || !enter("b", 1) {
		t.Error("one user's streams are not bounded apart from another's")
	}
	leave()
	if !enter("a", 1) {
		t.Error("leaving doesn't make room")
	}
	if !enter("c", maxStreams-1) || enter("c", 2) {
		t.Error("one that counts as several is no larger than any other")
	}
}

// A tenant makes as many users as it likes, and lets others' people read it. Neither takes
// another tenant's streams away.
func TestATenantsStreamsLeaveRoomForOthers(t *testing.T) {
	h := newStreams(400)
	open := func(user string, of ...string) bool {
		_, p := h.enter(user, 1, of)
		return p == nil
	}
	took := 0
	for i := range 1000 {
		if open(fmt.Sprintf("evil-%d", i), "evil") {
			took++
		}
	}
	if took != 200 {
		t.Errorf("one tenant alone holds %d of 400", took)
	}
	for i := range 50 {
		if !open(fmt.Sprintf("acme-%d", i), "acme") {
			t.Fatalf("stream %d of another tenant was refused", i)
		}
	}
	if !open("bob", "evil", "umbrella") || !open("bob", "acme", "evil") {
		t.Error("somebody who may read the greedy one too was refused")
	}
	if !open("operator", readable{all: true, names: []string{"acme", "evil"}}.payers()...) {
		t.Error("somebody who may read everything was refused")
	}
	if open("evil-2000", "evil") {
		t.Error("the greedy one got more when others came")
	}
}

// Streams of rollouts in many namespaces hold a watch of the API server for each: a user
// gets as many tabs of them as people open, and not thousands of watches.
func TestWatchesOfStreamsAreBounded(t *testing.T) {
	h := newHarness(t)
	c, cl := h.con, &call{Request: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), id: identity{name: "alice"}}
	open, serving, stop := 0, make(chan struct{}), make(chan struct{})
	defer close(stop)
	for range maxStreams {
		done := make(chan error, 1)
		go func() {
			done <- c.streaming(httptest.NewRecorder(), cl, []string{"acme"}, func(context.Context, identity) bool { return true }, maxStreamNamespaces, func(http.ResponseWriter, context.Context, *atomic.Bool) {
				serving <- struct{}{}
				<-stop
			})
		}()
		select {
		case <-serving:
			open++
			continue
		case err := <-done:
			if p := asProblem(err, "stream"); p.Status != http.StatusTooManyRequests {
				t.Error(err)
			}
		}
		break
	}
	if open < 4 || open > 8 {
		t.Errorf("%d streams over %d namespaces each", open, maxStreamNamespaces)
	}
}

func TestHealthRoleTrouble(t *testing.T) {
	h := newHarness(t)
	for name, f := range map[string]http.HandlerFunc{
		"not an API":   func(w http.ResponseWriter, r *http.Request) { http.Error(w, "secret stack", 500) },
		"plain 403":    func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no header", 403) },
		"HTML":         func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>hello") },
		"redirect":     func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://evil.example/", 302) },
		"cut short":    func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
		"other switch": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(418) },
	} {
		h.health.mu.Lock()
		h.health.answer = f
		h.health.mu.Unlock()
		a := h.want(503, "alice", "GET", "/api/v1/health/sites", "")
		if strings.Contains(string(a.body), "secret") || a.Header.Get("Location") != "" {
			t.Errorf("%s: %v %s", name, a.Header, a.body)
		}
	}
	h.health.mu.Lock()
	h.health.answer = nil
	h.health.mu.Unlock()
	if a := h.want(200, "alice", "GET", "/api/v1/health/sites", ""); a.Header.Get("Set-Cookie") != "" {
		t.Error("the health role set a cookie")
	}
	h.health.srv.Close()
	h.want(503, "alice", "GET", "/api/v1/health/sites", "")
	h.want(503, "alice", "GET", "/api/v1/health/stream", "")
}

func TestMetricQueries(t *testing.T) {
	h := newHarness(t)
	form := []string{"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}
	h.want(200, "both", "POST", "/api/v1/metrics/query_range?tenant=globex", "query=sum(up)&start=1&end=2&step=1&timeout=5s&limit=9", form...)
	want := MetricQuery{Expr: "sum(up)", Start: time.Unix(1, 0), End: time.Unix(2, 0), Step: time.Second, Timeout: 5 * time.Second, Limit: 9}
	if h.metrics.tenant != "globex" || h.metrics.query != want {
		t.Errorf("%s %+v", h.metrics.tenant, h.metrics.query)
	}
	h.want(200, "both", "GET", "/api/v1/metrics/query?tenant=acme&query=a%20and%20b&time=7.5", "")
	if want := (MetricQuery{Expr: "a and b", Time: time.UnixMilli(7500)}); h.metrics.tenant != "acme" || h.metrics.query != want {
		t.Errorf("%s %+v", h.metrics.tenant, h.metrics.query)
	}
	// The platform's own series, which its rules are about, are for those who may read it.
	h.want(200, "root", "GET", "/api/v1/metrics/query_range?tenant=muster&query=up&start=1&end=2&step=1", "")
	h.want(200, "root", "GET", "/api/v1/metrics/names?tenant=muster&label=__name__", "")
	if h.metrics.tenant != "muster" {
		t.Errorf("asked for %s", h.metrics.tenant)
	}
	h.want(403, "alice", "GET", "/api/v1/metrics/query_range?tenant=muster&query=up&start=1&end=2&step=1", "")
	none := newHarness(t, func(o *Options, _ *timing) { o.Metrics = nil })
	none.want(503, "alice", "GET", "/api/v1/metrics/query?query=up", "")
	none.want(503, "alice", "GET", "/api/v1/metrics/names", "")
}

func TestMetricNamesAndConditions(t *testing.T) {
	h := newHarness(t)
	h.want(200, "both", "GET", "/api/v1/metrics/names?tenant=globex&label=job&match=up%7Bsite%3D%22x%22%7D&q=ku&start=100&end=200&limit=7", "")
	if want := (NameQuery{Label: "job", Match: `up{site="x"}`, Contains: "ku", Start: time.Unix(100, 0), End: time.Unix(200, 0), Limit: 7}); h.metrics.tenant != "globex" || h.metrics.names != want {
		t.Errorf("%s %+v", h.metrics.tenant, h.metrics.names)
	}
	h.want(200, "alice", "GET", "/api/v1/metrics/names?label=__name__", "")
	if got := h.metrics.names; got.End.Sub(got.Start) != time.Hour || got.Limit != defaultLimit {
		t.Errorf("without a time: %+v", got)
	}
	h.want(400, "both", "GET", "/api/v1/metrics/names", "")
	h.want(400, "alice", "GET", "/api/v1/metrics/names?start=2&end=1", "")
	h.want(403, "alice", "GET", "/api/v1/metrics/names?tenant=globex", "")
	h.want(401, "", "GET", "/api/v1/metrics/names", "")

	var c Condition
	answer := h.want(200, "alice", "GET", "/api/v1/metrics/condition?site=paris-07&query=max%20by%20(site)%20(x)%20%3E%205", "")
	if err := json.Unmarshal(answer.body, &c); err != nil || c.Value != `max by (site) (x{site="paris-07"})` || !slices.Equal(c.Bounds, []ConditionBound{{">", 5}}) || strings.Contains(c.Query, "paris") {
		t.Errorf("%+v, %v", c, err)
	}
	h.want(400, "alice", "GET", "/api/v1/metrics/condition?query=max(", "")
	h.want(400, "alice", "GET", "/api/v1/metrics/condition", "")
	h.want(400, "alice", "GET", "/api/v1/metrics/condition?query=x%20%3E%201&site=Not_A_Site", "")
	h.want(400, "alice", "GET", "/api/v1/metrics/condition?query=sum_over_time(sum_over_time(x%5B1d%3A1s%5D)%5B1d%3A1s%5D)", "")
	h.want(401, "", "GET", "/api/v1/metrics/condition?query=x", "")
}

// A viewer's query that no timeout would stop does not reach the metric store.
func TestDearQueriesAreRefused(t *testing.T) {
	h := newHarness(t)
	for path, want := range map[string]string{
		"query?query=" + url.QueryEscape("sum_over_time(sum_over_time(vector(1)[1d:1s])[1d:1s])"):     "longer step",
		"query_range?start=0&end=10000&step=1&query=" + url.QueryEscape("avg_over_time(x[30d])"):      "longer step",
		"query_range?start=0&end=1&step=0.0000001&query=" + url.QueryEscape("avg_over_time(x[300d])"): "longer step",
		"query?query=" + url.QueryEscape("up ==") + "":                                                "parse error",
	} {
		p := h.want(400, "alice", "GET", "/api/v1/metrics/"+path, "").problem(t)
		if len(p.Errors) != 1 || p.Errors[0].Field != "query" || !strings.Contains(p.Errors[0].Detail, want) {
			t.Errorf("%s: %+v, want %q", path, p.Errors, want)
		}
	}
	if h.metrics.asked != 0 {
		t.Errorf("%d reached the store", h.metrics.asked)
	}
}

func TestStatic(t *testing.T) {
	big := strings.Repeat("body{color:red}", 200)
	h := newHarness(t, func(o *Options, _ *timing) {
		o.UI = fstest.MapFS{
			"index.html":            {Data: []byte("<!doctype html><title>Muster</title>")},
			"assets/app-1a2b3c.js":  {Data: []byte("console.log(1)")},
			"assets/app-1a2b3c.css": {Data: []byte(big)},
			"favicon.svg":           {Data: []byte("<svg/>")},
		}
	})
	get := func(path string, code int, header ...string) answer {
		return h.want(code, "", "GET", path, "", header...)
	}

	for _, path := range []string{"/", "/index.html", "/sites/acme/paris-07", "/virtualsites/shared/all-eu"} {
		a := get(path, 200)
		if !strings.Contains(string(a.body), "Muster") || a.Header.Get("Cache-Control") != "no-cache" || a.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s: %v %s", path, a.Header, a.body)
		}
		csp := a.Header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'self'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("CSP %q", csp)
		}
	}
	get("/virtualsites/shared/all.eu", 200, "Accept", "text/html,*/*")
	get("/missing.png", 404)
	get("/assets/old-hash.js", 404, "Accept", "text/html")
	get("/api/v1/none", 404, "Accept", "text/html")
	js := get("/assets/app-1a2b3c.js", 200)
	if !strings.Contains(js.Header.Get("Cache-Control"), "immutable") || js.Header.Get("Content-Type") != "text/javascript; charset=utf-8" {
		t.Errorf("%v", js.Header)
	}
	css := get("/assets/app-1a2b3c.css", 200, "Accept-Encoding", "br, gzip;q=0.5")
	if css.Header.Get("Content-Encoding") != "gzip" || len(css.body) >= len(big) || css.Header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("%v, %d bytes", css.Header, len(css.body))
	}
	if plain := get("/assets/app-1a2b3c.css", 200, "Accept-Encoding", "gzip;q=0"); string(plain.body) != big || plain.Header.Get("ETag") == css.Header.Get("ETag") {
		t.Errorf("%v", plain.Header)
	}
	index := get("/", 200)
	get("/", 304, "If-None-Match", index.Header.Get("ETag"))
	if a := h.want(200, "", "HEAD", "/", ""); len(a.body) != 0 {
		t.Errorf("HEAD has a body")
	}

	if _, err := newStatic(fstest.MapFS{"x": {}}); err == nil || !strings.Contains(err.Error(), "index.html") {
		t.Errorf("a UI without index.html: %v", err)
	}
}

func TestWithoutUI(t *testing.T) {
	h := newHarness(t)
	if a := h.want(200, "", "GET", "/sites/acme/x", ""); !strings.Contains(string(a.body), "make build") {
		t.Errorf("%s", a.body)
	}
	h.want(404, "", "GET", "/assets/app.js", "")
	if UI() != nil {
		t.Skip("built with the console")
	}
}

func TestJSONIsCompressed(t *testing.T) {
	h := newHarness(t)
	h.health.mu.Lock()
	h.health.answer = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("Accept-Encoding %q went on", r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"asOf":"2026-01-31T12:00:00Z","total":0,"sites":[]`+strings.Repeat(" ", 5000)+`}`)
	}
	h.health.mu.Unlock()
	req, _ := http.NewRequest("GET", h.srv.URL+"/api/v1/health/sites", nil)
	req.Header.Set("Authorization", "Bearer token-alice")
	req.Header.Set("Accept-Encoding", "gzip")
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	if res.Header.Get("Content-Encoding") != "gzip" || len(body) > 1000 {
		t.Errorf("%v, %d bytes", res.Header, len(body))
	}
}

func TestMetricsOfTheConsole(t *testing.T) {
	h := newHarness(t)
	h.want(200, "alice", "GET", "/api/v1/sites/paris-07?tenant=acme", "")
	h.want(404, "alice", "GET", "/api/v1/sites/nowhere?tenant=acme", "")
	h.send("alice", "GET", "/api/v1/made-up/path/4711", "")
	h.login("alice")
	check := func() error {
		return testutil.GatherAndCompare(h.reg, strings.NewReader(`
# HELP muster_console_logins_total Attempts to open a session, by result.
# TYPE muster_console_logins_total counter
muster_console_logins_total{result="accepted"} 1
# HELP muster_console_requests_total Requests answered, by route pattern, method and status code.
# TYPE muster_console_requests_total counter
muster_console_requests_total{code="200",method="GET",route="/api/v1/sites/{site}"} 1
muster_console_requests_total{code="404",method="GET",route="/api/v1/sites/{site}"} 1
muster_console_requests_total{code="404",method="GET",route="/api/"} 1
muster_console_requests_total{code="204",method="POST",route="/api/v1/session"} 1
`), "muster_console_logins_total", "muster_console_requests_total")
	}
	testkit.EventuallyTrue(t, "requests are counted", func() bool { return check() == nil })
	if log := h.log.String(); strings.Contains(log, "token-alice") {
		t.Error("the log has a token in it")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	h := newHarness(t)
	good := Options{RestConfig: h.api.config(), HealthURL: h.con.opt.HealthURL, SessionKeyFile: keyFile(t, 1)}
	for want, change := range map[string]func(*Options){
		"RestConfig":  func(o *Options) { o.RestConfig = nil },
		"HealthURL":   func(o *Options) { o.HealthURL = &url.URL{} },
		"no key":      func(o *Options) { o.SessionKeyFile = keyFile(t) },
		"Dir":         func(o *Options) { o.SessionKeyFile = "" },
		"index.html":  func(o *Options) { o.UI = fstest.MapFS{} },
		"ExternalURL": func(o *Options) { o.ExternalURL = &url.URL{Path: "muster.example.com"} },
		"OIDC needs":  func(o *Options) { o.OIDC = &oidclogin.Options{IssuerURL: "https://x.example.com", ClientID: "m"} },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want %q", err, want)
		}
	}
	c, err := New(good)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(); !errors.Is(err, errNotLoaded) {
		t.Errorf("ready before it runs: %v", err)
	}
	// An empty list would be a lie.
	h.srv = serve(t, c)
	h.want(503, "alice", "GET", "/api/v1/registrations", "")
	h.want(503, "both", "GET", "/api/v1/sites/paris-07", "")
	h.want(200, "both", "GET", "/api/v1/sites/paris-07?tenant=acme", "")
}

// Pages offer what may be done: what a right is held in is told tenant by tenant, and asked of the API server once.
func TestRights(t *testing.T) {
	h := newHarness(t)
	h.api.user("patcher", "list acme-system", "patch acme-system", "create/silences acme-system", "create/silences "+fleet.SystemNamespace(fleet.PlatformTenant))
	h.api.user("viewer", "list acme-system", "list globex-system")
	rights := func(user string) map[string]heldRight {
		var v rightsView
		h.want(200, user, "GET", "/api/v1/rights", "").json(t, &v)
		out := map[string]heldRight{}
		for _, r := range v.Rights {
			out[r.Right] = r
		}
		return out
	}
	for _, c := range []struct {
		user, right string
		all         bool
		tenants     []string
	}{
		{"patcher", "patch sites.muster.dev", false, []string{"acme"}},
		{"patcher", "create silences.muster.dev", false, []string{"acme", fleet.PlatformTenant}},
		{"patcher", "delete silences.muster.dev", false, []string{}},
		{"viewer", "patch sites.muster.dev", false, []string{}},
		{"root", "patch sites.muster.dev", true, []string{"acme", "globex"}},
	} {
		if got := rights(c.user)[c.right]; got.All != c.all || !slices.Equal(got.Tenants, c.tenants) {
			t.Errorf("%s: %s: %+v", c.user, c.right, got)
		}
	}
	before := h.api.count("access")
	rights("viewer")
	if n := h.api.count("access") - before; n != 0 {
		t.Errorf("asked again, it costs %d reviews", n)
	}
}
