package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

// forgedHeaders are what a client could try to be somebody else with.
var forgedHeaders = []string{"X-Muster-Tenants", "globex", "X-Muster-Tenant", "globex", "X-Muster-User", "root", "X-Forwarded-For", "127.0.0.1", "Cookie", "a=b"}

func TestAlertsAndSilencesAreScoped(t *testing.T) {
	h := newHarness(t)
	for _, c := range []struct{ user, target, tenants string }{
		{"alice", "/api/v1/alerts", "acme"},
		{"both", "/api/v1/alerts", "acme,globex"},
		{"both", "/api/v1/alerts/state?tenant=globex", "globex"},
		{"root", "/api/v1/alerts", "*"},
		{"root", "/api/v1/alerts?tenant=muster", "muster"}, // the platform's own
		{"carol", "/api/v1/alerts/8a1f6b7c2d3e4f50", "acme"},
		{"both", "/api/v1/silences", "acme"}, // the right is one of its own
		{"root", "/api/v1/silences", "*"},
	} {
		h.want(200, c.user, "GET", c.target, "", forgedHeaders...)
		r, _ := h.alerts.last()
		if got := fmt.Sprint(r.Header["X-Muster-Tenants"], r.Header["X-Muster-User"], r.Header["Cookie"], r.Header["Authorization"]); got != fmt.Sprintf("[%s] [%s] [] []", c.tenants, c.user) {
			t.Errorf("%s %s: headers %s", c.user, c.target, got)
		}
		if path, query, _ := strings.Cut(c.target, "?"); r.URL.Path != path || r.URL.RawQuery != query {
			t.Errorf("%s: asked %s", c.target, r.URL)
		}
	}
	h.want(403, "both", "GET", "/api/v1/silences?tenant=globex", "")
	h.want(403, "alice", "GET", "/api/v1/alerts?tenant=muster", "")
	h.want(403, "root", "GET", "/api/v1/sites/x?tenant=muster", "") // no sites there
	h.want(403, "both", "DELETE", "/api/v1/silences/5f1d8a52", "")

	h.want(201, "both", "POST", "/api/v1/silences?tenant=globex", `{"matchers":[{"name":"site","value":"a.*","isRegex":true},{"name":"b","value":"c","isEqual":false}],"duration":"1d","comment":" why "}`, forgedHeaders...)
	r, body := h.alerts.last()
	const want = `{"matchers":[{"name":"site","value":"a.*","isRegex":true,"isEqual":true},{"name":"b","value":"c","isRegex":false,"isEqual":false}],"duration":"1d","comment":"why"}`
	if body != want || r.Header.Get("X-Muster-Tenants") != "globex" || r.Header.Get("X-Muster-User") != "both" || r.URL.RawQuery != "tenant=globex" || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %v\n%s", r.URL, r.Header, body)
	}
	// What would be large once it is compiled goes no further.
	h.want(400, "both", "POST", "/api/v1/silences?tenant=globex", `{"matchers":[{"name":"site","value":"`+strings.Repeat(".{999}", 500)+`","isRegex":true}],"duration":"1d","comment":"why"}`)
	// For which tenant is not guessed, also for who may do it in all.
	for _, user := range []string{"both", "root"} {
		p := h.want(400, user, "POST", "/api/v1/silences", `{"matchers":[{"name":"a","value":"b"}],"duration":"1h","comment":"x"}`).problem(t)
		if p.Errors[0].Field != "tenant" || !strings.Contains(p.Detail, "acme, globex") {
			t.Errorf("%s: %+v", user, p)
		}
	}
	h.want(201, "root", "POST", "/api/v1/silences?tenant=acme", `{"matchers":[{"name":"a","value":"b"}],"duration":"1h","comment":"x"}`)
	if r, _ := h.alerts.last(); r.Header.Get("X-Muster-Tenants") != "acme" {
		t.Errorf("root's silence in acme was sent for %q", r.Header.Get("X-Muster-Tenants"))
	}
	only := newHarness(t)
	only.api.tenants = []string{"acme"}
	only.want(201, "root", "POST", "/api/v1/silences", `{"matchers":[{"name":"a","value":"b"}],"duration":"1h","comment":"x"}`)
	if r, _ := only.alerts.last(); r.Header.Get("X-Muster-Tenants") != "acme" || r.URL.RawQuery != "tenant=acme" {
		t.Errorf("the only tenant's silence was sent for %q: %s", r.Header.Get("X-Muster-Tenants"), r.URL)
	}
	h.want(204, "alice", "DELETE", "/api/v1/silences/5f1d8a52", "", forgedHeaders...)
	if r, _ := h.alerts.last(); r.Method != "DELETE" || r.Header.Get("X-Muster-Tenants") != "acme" {
		t.Errorf("%s %v", r.Method, r.Header)
	}
	// A page of another origin can't silence.
	h.want(403, "alice", "POST", "/api/v1/silences", `{}`, "Sec-Fetch-Site", "cross-site")
	// Rights that are taken away are noticed.
	h.api.grant("alice", "list acme-system")
	h.clock.advance(11 * time.Second)
	h.want(200, "alice", "GET", "/api/v1/alerts", "")
	h.want(403, "alice", "GET", "/api/v1/silences", "")
	h.want(403, "alice", "GET", "/api/v1/logs/search", "")
}

func TestAlertingRoleTrouble(t *testing.T) {
	h := newHarness(t)
	for name, f := range map[string]http.HandlerFunc{
		"not an API": func(w http.ResponseWriter, r *http.Request) { http.Error(w, "secret stack", 500) },
		"HTML":       func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>hello") },
		"redirect":   func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://evil.example/", 302) },
		"cut short":  func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
	} {
		h.alerts.mu.Lock()
		h.alerts.answer = f
		h.alerts.mu.Unlock()
		for _, path := range []string{"/api/v1/alerts", "/api/v1/silences"} {
			if a := h.want(503, "alice", "GET", path, ""); strings.Contains(string(a.body), "secret") || !strings.Contains(string(a.body), "alerting role") {
				t.Errorf("%s: %s", name, a.body)
			}
		}
	}
	none := newHarness(t, func(o *Options, _ *timing) { o.AlertingURL, o.Logs = nil, nil })
	for _, path := range []string{"/api/v1/alerts", "/api/v1/alerts/state", "/api/v1/silences", "/api/v1/logs/search", "/api/v1/logs/tail"} {
		if a := none.want(503, "alice", "GET", path, ""); !strings.Contains(string(a.body), "configured") {
			t.Errorf("%s: %s", path, a.body)
		}
		none.want(403, "nobody", "GET", path, "") // rights first
	}
	o := h.con.opt
	o.AlertingURL = &url.URL{}
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "AlertingURL") {
		t.Errorf("err = %v", err)
	}
}

func TestLogSearchIsRebuilt(t *testing.T) {
	h := newHarness(t)
	h.want(200, "both", "GET", "/api/v1/logs/search?tenant=globex&query=a%26b&site=x,y&site=z&severity=&from=now-1h", "", append([]string{"Last-Event-ID", "7"}, forgedHeaders...)...)
	tenant, q, _, _ := h.logs.last()
	if want := (wire.LogQuery{Text: "a&b", Sites: []string{"x", "y", "z"}, From: "now-1h", Limit: 100}); tenant != "globex" || !reflect.DeepEqual(q, want) {
		t.Errorf("%s %+v, want %+v", tenant, q, want)
	}
	h.want(200, "both", "GET", "/api/v1/logs/search?tenant=acme&to=now&namespace=n&severity=error,warning&virtualSite=v&limit=7&cursor=c", "")
	tenant, q, _, _ = h.logs.last()
	if want := (wire.LogQuery{To: "now", Namespaces: []string{"n"}, Severities: []string{"error", "warning"}, VirtualSite: "v", Limit: 7, Cursor: "c"}); tenant != "acme" || !reflect.DeepEqual(q, want) {
		t.Errorf("%s %+v, want %+v", tenant, q, want)
	}
	for _, path := range []string{"/api/v1/logs/search", "/api/v1/logs/tail"} {
		if p := h.want(400, "alice", "GET", path+"?query=(", "").problem(t); len(p.Errors) != 1 || p.Errors[0].Field != "query" {
			t.Errorf("%s: %+v", path, p)
		}
	}
	if p := h.want(400, "both", "GET", "/api/v1/logs/search", "").problem(t); p.Errors[0].Field != "tenant" || !strings.Contains(p.Detail, "acme, globex") {
		t.Errorf("%+v", p)
	}
	h.want(200, "alice", "GET", "/api/v1/logs/search", "")
	if tenant, _, _, _ := h.logs.last(); tenant != "acme" {
		t.Errorf("alice searched %q", tenant)
	}
}

func lines(t *testing.T, r *bufio.Reader, want ...string) {
	t.Helper()
	for _, want := range want {
		if got, err := r.ReadString('\n'); err != nil || got != want+"\n" {
			t.Fatalf("%q %v, want %q", got, err, want)
		}
	}
}

func TestLogTail(t *testing.T) {
	h := newHarness(t, func(o *Options, tm *timing) {
		tm.streamCheck, tm.streamWrite, o.SessionTTL = 20*time.Millisecond, time.Second, time.Hour
	})
	open := func(query string, header ...string) *bufio.Reader {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		t.Cleanup(cancel)
		req, err := http.NewRequestWithContext(ctx, "GET", h.srv.URL+"/api/v1/logs/tail"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%d %v", res.StatusCode, res.Header)
		}
		r := bufio.NewReader(res.Body)
		lines(t, r, "retry: 2000", "", ": alive", "id: 0", "")
		return r
	}
	ended := func(r *bufio.Reader, why string) {
		t.Helper()
		if rest, err := io.ReadAll(r); err != nil || len(rest) != 0 {
			t.Errorf("%s: the tail did not end in good order: %q %v", why, rest, err)
		}
		testkit.EventuallyTrue(t, why+": it ended behind the console too", func() bool { return h.logs.open.Load() == 0 })
	}
	alice := []string{"Authorization", "Bearer token-alice", "Last-Event-ID", strings.Repeat("x", 3000)}
	r := open("?query=x&severity=error,warning", alice...)
	tenant, q, after, _ := h.logs.last()
	if tenant != "acme" || q.Text != "x" || !slices.Equal(q.Severities, []string{"error", "warning"}) || len(after) != 3000 {
		t.Errorf("%s %+v %s", tenant, q, after)
	}
	h.logs.events <- wire.LogEvent{MissingRegions: []wire.MissingRegion{}}
	h.logs.events <- wire.LogEvent{Hits: []wire.LogHit{{ID: "1"}}}
	h.logs.events <- wire.LogEvent{}
	hit, _ := json.Marshal(wire.LogHit{ID: "1"})
	lines(t, r, "event: missing", "id: 1", `data: {"missingRegions":[]}`, "", "event: hits", "id: 2", `data: {"hits":[`+string(hit)+`]}`, "", ": alive", "id: 3", "")
	h.api.grant("alice", "list acme-system") // still a reader of the tenant, but of no logs
	h.clock.advance(11 * time.Second)
	ended(r, "the right to logs taken away")

	cookie := h.login("bob")
	r = open("", "Cookie", cookie)
	h.clock.advance(2 * time.Hour)
	ended(r, "session expired")

	r = open("?tenant=globex", "Authorization", "Bearer token-both")
	h.api.revoke("token-both")
	h.clock.advance(11 * time.Second)
	ended(r, "token revoked")

	r = open("?tenant=acme", "Authorization", "Bearer token-root")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := h.srv.Config.Shutdown(ctx); err != nil {
		t.Errorf("shutdown waits for tails: %v", err)
	}
	ended(r, "shutdown")
	testkit.EventuallyTrue(t, "all streams are counted out", func() bool { return testutil.ToFloat64(h.con.met.streams) == 0 })
}

func TestMaintenanceWindows(t *testing.T) {
	h := newHarness(t)
	const path = "/api/v1/sites/paris-07/maintenance/windows/"
	var s siteView
	h.want(200, "alice", "PUT", path+"weekly", `{"reason":"updates","schedule":"0 2 * * SUN","timeZone":"Europe/Berlin","duration":"2h"}`)
	h.want(200, "alice", "PUT", path+"once", `{"reason":"router","start":"2026-02-01T01:00:00+01:00","duration":"90m"}`)
	for _, schedule := range []string{"TZ=x", "TZ=", "CRON_TZ=Europe/Berlin 0 2 * * *", "@every 1h", "0 2 * *", "sometimes"} {
		h.want(400, "alice", "PUT", path+"weekly", fmt.Sprintf(`{"reason":"x","schedule":%q,"duration":"2h"}`, schedule))
	}
	h.want(200, "alice", "PUT", path+"weekly", `{"reason":"more updates","schedule":"0 3 * * SUN","duration":"3h"}`).json(t, &s)
	h.want(200, "carol", "GET", "/api/v1/sites/paris-07", "").json(t, &s)
	b, _ := json.Marshal(s.MaintenanceWindows)
	const want = `[{"name":"weekly","reason":"more updates","start":null,"schedule":"0 3 * * SUN","timeZone":"","duration":"3h0m0s"},` +
		`{"name":"once","reason":"router","start":"2026-02-01T00:00:00Z","schedule":"","timeZone":"","duration":"1h30m0s"}]`
	if string(b) != want {
		t.Errorf("windows\n%s\nwant\n%s", b, want)
	}

	// A write by somebody else in between loses neither theirs nor ours.
	done := false
	h.api.mu.Lock()
	h.api.before = func(verb, key string) {
		if verb == "patch" && !done {
			done = true
			h.api.mu.Lock()
			o := h.api.sites[key].DeepCopy()
			o.Spec.MaintenanceWindows = append(o.Spec.MaintenanceWindows, v1alpha1.MaintenanceWindow{Name: "theirs", Reason: "x"})
			h.api.put(o, "MODIFIED")
			h.api.mu.Unlock()
		}
	}
	h.api.mu.Unlock()
	h.want(204, "alice", "DELETE", path+"once", "")
	h.want(200, "alice", "GET", "/api/v1/sites/paris-07", "").json(t, &s)
	if !done || len(s.MaintenanceWindows) != 2 || s.MaintenanceWindows[0].Name != "weekly" || s.MaintenanceWindows[1].Name != "theirs" {
		t.Errorf("%+v", s.MaintenanceWindows)
	}
	for i := range maxWindows - 2 {
		h.want(200, "alice", "PUT", fmt.Sprintf("%sw%d", path, i), `{"reason":"x","schedule":"0 3 * * *","duration":"1h"}`)
	}
	h.want(409, "alice", "PUT", path+"one-more", `{"reason":"x","schedule":"0 3 * * *","duration":"1h"}`)

	const virtual = "/api/v1/virtualsites/shared/all-eu/maintenance/windows"
	var v virtualSiteWindows
	h.want(200, "alice", "PUT", virtual+"/w", `{"reason":"x","schedule":"0 3 * * *","duration":"1h"}`)
	h.want(200, "alice", "GET", virtual, "").json(t, &v)
	if v.Tenant != "acme" || v.Namespace != "shared" || v.Name != "all-eu" || len(v.MaintenanceWindows) != 1 || v.MaintenanceWindows[0].Schedule != "0 3 * * *" {
		t.Errorf("%+v", v)
	}
	h.want(400, "both", "GET", virtual, "") // of which tenant?
	h.want(204, "alice", "DELETE", virtual+"/w", "")
	h.want(200, "alice", "GET", virtual, "").json(t, &v)
	if len(v.MaintenanceWindows) != 0 {
		t.Errorf("%+v", v)
	}
	for _, e := range h.api.auditLog() {
		if !strings.HasPrefix(e, "alice ") && !strings.HasPrefix(e, "carol get") {
			t.Errorf("not in the user's name: %s", e)
		}
	}
}
