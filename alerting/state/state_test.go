package state

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/alerting/manager"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

const dropAll = `
route: {receiver: none}
receivers: [{name: none}]
inhibit_rules: [{source_matchers: [alertname=Big], target_matchers: [alertname=Small], equal: [tenant, site]}]`

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// alertmanager runs a real one.
func alertmanager(t testing.TB, config string) (*manager.Manager, *amclient.Client, func()) {
	t.Helper()
	m, err := manager.New(manager.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Logger: quiet()})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	must(t, m.SetConfig([]byte(config)))
	c, err := amclient.New(amclient.Options{URLs: []string{m.URL()}})
	must(t, err)
	return m, c, stop
}

type server struct {
	t testing.TB
	s *State
	*httptest.Server
}

func serve(t testing.TB, o Options) *server {
	t.Helper()
	o.Logger = quiet()
	if o.File == "" {
		o.File = filepath.Join(t.TempDir(), "history.db")
	}
	s, err := New(o)
	must(t, err)
	mux := http.NewServeMux()
	s.Register(mux)
	h := &server{t, s, httptest.NewServer(mux)}
	t.Cleanup(func() { h.Close(); _ = s.Close() })
	return h
}

func (h *server) poll() {
	h.t.Helper()
	must(h.t, h.s.poll(h.t.Context()))
}

// do returns the status and the body.
func (h *server) do(tenants, method, path, body string) (int, string) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.URL+path, strings.NewReader(body))
	must(h.t, err)
	if tenants != "" {
		req.Header.Set(wire.TenantsHeader, tenants)
	}
	req.Header.Set(wire.UserHeader, "alice")
	resp, err := http.DefaultClient.Do(req)
	must(h.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(h.t, err)
	if resp.StatusCode >= 400 && resp.Header.Get("Content-Type") != "application/problem+json" {
		h.t.Errorf("%s %s: %d as %s", method, path, resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	return resp.StatusCode, string(b)
}

func get[T any](h *server, tenants, path string) T {
	h.t.Helper()
	var out T
	code, body := h.do(tenants, "GET", path, "")
	if code != 200 {
		h.t.Fatalf("GET %s: %d %s", path, code, body)
	}
	must(h.t, json.Unmarshal([]byte(body), &out))
	return out
}

func names(l wire.AlertList) string {
	var out []string
	for _, a := range l.Alerts {
		out = append(out, a.Name+"@"+a.Tenant+"/"+a.Site)
	}
	return strings.Join(out, " ")
}

func alert(name, tenant, site, severity, virtual string, age time.Duration) wire.Alert {
	l := map[string]string{"alertname": name, "tenant": tenant, "site": site, "severity": severity, "virtual_sites": virtual, "region": "eu"}
	return wire.Alert{Labels: l, StartsAt: time.Now().Add(-age), Annotations: map[string]string{"summary": "Something with " + name}}
}

func TestAlerts(t *testing.T) {
	m, c, _ := alertmanager(t, dropAll)
	for name, source := range map[string]Source{"over HTTP": External{Client: c}, "embedded": m} {
		t.Run(name, func(t *testing.T) { testAlerts(t, c, source) })
	}
}

func testAlerts(t *testing.T, c *amclient.Client, source Source) {
	h := serve(t, Options{Source: source, Silences: c})
	if code, _ := h.do("*", "GET", "/api/v1/alerts", ""); code != 503 || h.s.Ready() == nil {
		t.Errorf("before the first answer: %d", code)
	}
	must(t, c.PostAlerts(t.Context(), []wire.Alert{
		alert("Big", "acme", "paris", "critical", "|shared/eu|team/x|", 2*time.Minute),
		alert("Small", "acme", "paris", "critical", "|shared/eu|", time.Minute),
		alert("Old", "acme", "lyon", "warning", "|shared/eu|team/x|", 3*time.Minute),
		alert("New", "acme", "lyon", "odd", "|team/x|", time.Minute),
		alert("Big", "zeta", "paris", "info", "|shared/eu|", time.Minute),
		{Labels: map[string]string{"alertname": "Own"}, StartsAt: time.Now()},
	}))
	testkit.EventuallyTrue(t, "six alerts, one inhibited", func() bool { h.poll(); v := h.s.view.Load(); return len(v.all) == 6 && v.suppressed["critical"] == 1 })
	for _, x := range []struct{ tenants, query, want string }{
		{"acme", "", "Small@acme/paris Big@acme/paris New@acme/lyon Old@acme/lyon"},
		{"acme,zeta", "", "Small@acme/paris Big@acme/paris New@acme/lyon Old@acme/lyon Big@zeta/paris"},
		{"*", "", "Small@acme/paris Big@acme/paris Own@/ New@acme/lyon Old@acme/lyon Big@zeta/paris"},
		{"*", "tenant=zeta", "Big@zeta/paris"},
		{"acme,zeta", "tenant=zeta", "Big@zeta/paris"},
		{"acme", "site=lyon", "New@acme/lyon Old@acme/lyon"},
		{"*", "site=paris", "Small@acme/paris Big@acme/paris Big@zeta/paris"},
		{"acme", "virtualSite=eu", "Small@acme/paris Big@acme/paris Old@acme/lyon"},
		{"acme", "virtualSite=eu&virtualSite=team/x", "Small@acme/paris Big@acme/paris New@acme/lyon Old@acme/lyon"},
		{"acme", "virtualSite=team/x&site=paris", "Big@acme/paris"},
		{"acme", "severity=warning,info", "New@acme/lyon Old@acme/lyon"},
		{"acme", "state=suppressed", "Small@acme/paris"},
		{"acme", "state=active&severity=critical", "Big@acme/paris"},
		{"acme", "q=with+old", "Old@acme/lyon"},
		{"acme", "virtualSite=none", ""},
	} {
		l := get[wire.AlertList](h, x.tenants, "/api/v1/alerts?"+x.query)
		if got := names(l); got != x.want || l.Total != len(l.Alerts) || l.Counts.Critical+l.Counts.Warning+l.Counts.Info != l.Total {
			t.Errorf("%s %s: %q, want %q (%+v of %d)", x.tenants, x.query, got, x.want, l.Counts, l.Total)
		}
	}
	var paged []string
	for path := "/api/v1/alerts?limit=2"; ; {
		l := get[wire.AlertList](h, "acme", path)
		if l.Total != 4 || len(l.Alerts) == 0 {
			t.Fatalf("a page of %d, total %d", len(l.Alerts), l.Total)
		}
		paged = append(paged, names(l))
		if l.NextCursor == "" {
			break
		}
		path = "/api/v1/alerts?limit=2&cursor=" + l.NextCursor
	}
	if got := strings.Join(paged, " | "); got != "Small@acme/paris Big@acme/paris | New@acme/lyon Old@acme/lyon" {
		t.Errorf("pages %s", got)
	}
	for _, x := range []struct{ tenants, query, want string }{
		{"acme", "", "{1 2 0} 1 2"},
		{"*", "", "{1 3 1} 1 3"},
		{"acme", "virtualSite=eu", "{1 1 0} 1 2"},
		{"acme", "virtualSite=eu,team/x", "{1 2 0} 1 2"},
		{"acme", "site=lyon", "{0 2 0} 0 1"},
		{"acme", "site=nowhere", "{0 0 0} 0 0"},
	} {
		s := get[wire.AlertState](h, x.tenants, "/api/v1/alerts/state?"+x.query)
		if got := fmt.Sprint(s.Firing, s.Suppressed, s.Sites); got != x.want {
			t.Errorf("state of %s %s: %s, want %s", x.tenants, x.query, got, x.want)
		}
	}
	// Gates: what is suppressed, is of another tenant or of no site is not in it.
	_, body := h.do("*", "GET", wire.FiringPath+"?tenant=acme", "")
	if f, err := wire.DecodeFiringAlerts([]byte(body), "acme"); err != nil || fmt.Sprint(f.Sites) != "map[lyon:[warning/New warning/Old] paris:[critical/Big]]" || time.Since(f.AsOf) > time.Minute {
		t.Errorf("firing: %s: %v", body, err)
	}
	_, body = h.do("nobody", "GET", wire.FiringPath, "")
	if f, err := wire.DecodeFiringAlerts([]byte(body), "nobody"); err != nil || len(f.Sites) != 0 {
		t.Errorf("firing at a tenant without alerts: %s: %v", body, err)
	}
	small := get[wire.AlertList](h, "acme", "/api/v1/alerts?state=suppressed").Alerts[0]
	big := get[wire.AlertList](h, "acme", "/api/v1/alerts?state=active&severity=critical").Alerts[0]
	if len(small.InhibitedBy) != 1 || small.InhibitedBy[0] != big.Fingerprint || small.Labels["region"] != "eu" || big.VirtualSites[1] != "team/x" {
		t.Errorf("%+v", small)
	}
	for _, x := range []struct {
		tenants, path string
		code          int
	}{
		{"", "/api/v1/alerts", 403},
		{" ", "/api/v1/alerts/state", 403},
		{"Not_A_Tenant", "/api/v1/alerts", 403},
		{"acme", "/api/v1/alerts?tenant=zeta", 403},
		{"acme", "/api/v1/alerts?sites=a", 400},
		{"acme", "/api/v1/alerts/state?q=a", 400},
		{"acme", "/api/v1/alerts?severity=bad", 400},
		{"acme", "/api/v1/alerts?state=firing", 400},
		{"acme", "/api/v1/alerts?limit=0", 400},
		{"acme", "/api/v1/alerts?cursor=%25", 400},
		{"acme", "/api/v1/alerts?cursor=e30", 400},
		{"acme", "/api/v1/alerts/UPPER", 400},
		{"acme", "/api/v1/alerts/0000000000000000", 404},
		{"zeta", "/api/v1/alerts/" + big.Fingerprint, 404},
		{"acme", "/api/v1/alerts/" + big.Fingerprint + "?tenant=acme", 200},
		{"acme", "/api/v1/alerts/a/b", 404},
		{"acme,zeta", wire.FiringPath, 400},
		{"*", wire.FiringPath, 400},
		{"zeta", wire.FiringPath + "?tenant=acme", 403},
		{"acme", wire.FiringPath + "?site=paris", 400},
	} {
		if code, body := h.do(x.tenants, "GET", x.path, ""); code != x.code {
			t.Errorf("%s as %q: %d %s, want %d", x.path, x.tenants, code, body, x.code)
		}
	}
	if code, _ := h.do("acme", "PUT", "/api/v1/alerts", ""); code != 404 {
		t.Errorf("PUT: %d", code)
	}
}

func TestHistory(t *testing.T) {
	var fires []wire.Alert
	source := SourceFunc(func(context.Context) ([]wire.Alert, error) { return fires, nil })
	_, c, _ := alertmanager(t, dropAll)
	file := filepath.Join(t.TempDir(), "history.db")
	o := Options{Source: source, Silences: c, File: file}
	h := serve(t, o)
	a := alert("A", "acme", "paris", "critical", "", 0)
	a.Fingerprint = "00000000000000aa"
	path := "/api/v1/alerts/" + a.Fingerprint
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range maxSpansOfOne + 5 {
		a.StartsAt = start.Add(time.Duration(i) * time.Minute)
		fires = []wire.Alert{a}
		h.poll()
		fires = nil
		h.poll()
	}
	d := get[wire.AlertDetail](h, "acme", path)
	if d.State != wire.AlertResolved || len(d.History) != maxSpansOfOne || !d.History[0].StartsAt.Equal(a.StartsAt) || d.History[0].EndsAt == nil || !d.History[1].StartsAt.Before(d.History[0].StartsAt) {
		t.Fatalf("%s, %d times, the last %+v", d.State, len(d.History), d.History[0])
	}
	fires = []wire.Alert{a} // again, of the same start: Alertmanager had forgotten it
	h.poll()
	if d = get[wire.AlertDetail](h, "acme", path); d.State != wire.AlertActive || d.History[0].EndsAt != nil || len(d.History) != maxSpansOfOne {
		t.Errorf("fires again: %s, %d times, the last %+v", d.State, len(d.History), d.History[0])
	}

	// A restart with an Alertmanager that has forgotten everything.
	h.Close()
	must(t, h.s.Close())
	fires = nil
	h = serve(t, o)
	h.poll()
	if l := get[wire.AlertList](h, "acme", "/api/v1/alerts"); l.Total != 1 || l.Alerts[0].Fingerprint != a.Fingerprint {
		t.Errorf("after a restart: %+v", l)
	}
	h.s.started = h.s.started.Add(-time.Hour) // settled
	h.poll()
	if l := get[wire.AlertList](h, "acme", "/api/v1/alerts"); l.Total != 0 {
		t.Errorf("after it settled: %+v", l)
	}
	must(t, h.s.history.prune(time.Now()))
	if d := get[wire.AlertDetail](h, "acme", path); len(d.History) != maxSpansOfOne {
		t.Errorf("%d times after a prune of nothing", len(d.History))
	}
	h.s.history.limit = 10
	must(t, h.s.history.prune(time.Now()))
	if d := get[wire.AlertDetail](h, "acme", path); len(d.History) != 10 || !d.History[0].StartsAt.Equal(a.StartsAt) {
		t.Errorf("%d times after a prune to 10", len(d.History))
	}
	must(t, h.s.history.prune(time.Now().Add(h.s.history.age+time.Hour)))
	if code, _ := h.do("acme", "GET", path, ""); code != 404 {
		t.Errorf("after its age: %d", code)
	}
}

func TestSilences(t *testing.T) {
	m, c, _ := alertmanager(t, dropAll)
	h := serve(t, Options{Source: m, Silences: c})
	must(t, c.PostAlerts(t.Context(), []wire.Alert{alert("A", "acme", "paris", "critical", "", 0), alert("A", "zeta", "paris", "critical", "", 0)}))
	const body = `{"matchers": [{"name": "alertname", "value": "A.*", "isRegex": true}, {"name": "site", "value": "rome", "isEqual": false}], "duration": "1h", "comment": " why "}`
	code, out := h.do("acme", "POST", "/api/v1/silences?tenant=acme", body)
	var made struct{ ID string }
	if code != 201 || json.Unmarshal([]byte(out), &made) != nil || made.ID == "" {
		t.Fatalf("POST: %d %s", code, out)
	}
	l := get[wire.SilenceList](h, "acme", "/api/v1/silences?state=active").Silences
	if len(l) != 1 || l[0].ID != made.ID || l[0].Tenant != "acme" || l[0].CreatedBy != "alice" || l[0].Comment != "why" || l[0].Maintenance || len(l[0].Matchers) != 3 {
		t.Fatalf("%+v", l)
	}
	h.poll()
	if got := names(get[wire.AlertList](h, "*", "/api/v1/alerts?state=suppressed")); got != "A@acme/paris" {
		t.Errorf("silenced: %s", got)
	}
	platform, err := c.SetSilence(t.Context(), amclient.Silence{Matchers: []wire.Matcher{wire.EqualMatcher("site", "x")}, StartsAt: time.Now(), EndsAt: time.Now().Add(time.Hour), CreatedBy: "root", Comment: "x"})
	must(t, err)
	window, err := c.SetSilence(t.Context(), amclient.Silence{Matchers: []wire.Matcher{wire.EqualMatcher("tenant", "acme"), wire.EqualMatcher("site", "x")}, StartsAt: time.Now(), EndsAt: time.Now().Add(time.Hour), CreatedBy: amclient.CreatedByMaintenance, Comment: "x"})
	must(t, err)
	for tenants, want := range map[string]int{"acme": 2, "zeta": 0, "*": 3, "zeta,acme": 2} {
		if got := get[wire.SilenceList](h, tenants, "/api/v1/silences").Silences; len(got) != want {
			t.Errorf("%s sees %d silences", tenants, len(got))
		}
	}
	for _, x := range []struct {
		tenants, method, path, body string
		code                        int
	}{
		{"acme", "DELETE", "/api/v1/silences/" + platform, "", 404},
		{"acme", "DELETE", "/api/v1/silences/" + window, "", 409},
		{"zeta", "DELETE", "/api/v1/silences/" + made.ID, "", 404},
		{"*", "DELETE", "/api/v1/silences/" + made.ID + "?tenant=zeta", "", 404},
		{"acme", "DELETE", "/api/v1/silences/nonsense", "", 404},
		{"acme", "DELETE", "/api/v1/silences/00000000-0000-4000-8000-000000000000", "", 404},
		{"", "POST", "/api/v1/silences", body, 403},
		{"acme", "POST", "/api/v1/silences?tenant=zeta", body, 403},
		{"*", "POST", "/api/v1/silences", body, 400},
		{"acme,zeta", "POST", "/api/v1/silences", body, 400},
		{"acme", "POST", "/api/v1/silences", `{"matchers": [{"name": "tenant", "value": "zeta"}], "duration": "1h", "comment": "x"}`, 400},
		{"acme", "POST", "/api/v1/silences", `{"matchers": [{"name": "a", "value": "(", "isRegex": true}], "duration": "1h", "comment": "x"}`, 400},
		{"acme", "POST", "/api/v1/silences", `{"matchers": [], "duration": "1h", "comment": "x"}`, 400},
		{"acme", "POST", "/api/v1/silences", `{"matchers": [{"name": "a", "value": "b"}], "comment": "x"}`, 400},
		{"acme", "POST", "/api/v1/silences", `{"matchers": [{"name": "a", "value": "b"}], "duration": "1h"}`, 400},
		{"acme", "POST", "/api/v1/silences", `{"matchers": [{"name": "a", "value": "b"}], "duration": "9y", "comment": "x"}`, 400},
		{"acme", "POST", "/api/v1/silences", `{"matchers": [{"name": "a", "value": "b"}], "duration": "1h", "comment": "x", "createdBy": "bob"}`, 400},
		{"acme", "POST", "/api/v1/silences", body + body, 400},
		{"acme", "GET", "/api/v1/silences?state=gone", "", 400},
		{"acme", "DELETE", "/api/v1/silences/" + made.ID, "", 204},
		{"acme", "DELETE", "/api/v1/silences/" + made.ID, "", 204},
	} {
		if code, out := h.do(x.tenants, x.method, x.path, x.body); code != x.code {
			t.Errorf("%s %s as %q %s: %d %s, want %d", x.method, x.path, x.tenants, x.body, code, out, x.code)
		}
	}
	if l := get[wire.SilenceList](h, "acme", "/api/v1/silences?state=expired").Silences; len(l) != 1 || l[0].ID != made.ID {
		t.Errorf("expired: %+v", l)
	}
	h.poll()
	if l := get[wire.AlertList](h, "*", "/api/v1/alerts?state=suppressed"); l.Total != 0 {
		t.Errorf("silenced after its end: %s", names(l))
	}
}

// A silence that an operator made in Alertmanager itself, for no tenant: whoever has alerts that it keeps quiet sees that, and
// nothing of what it says of others.
func TestSilencesOfOperators(t *testing.T) {
	m, c, _ := alertmanager(t, dropAll)
	h := serve(t, Options{Source: m, Silences: c})
	must(t, c.PostAlerts(t.Context(), []wire.Alert{alert("A", "acme", "paris", "critical", "", 0), alert("A", "zeta", "rome", "critical", "", 0), alert("B", "acme", "oslo", "critical", "", 0)}))
	end := time.Now().Add(time.Hour).UTC()
	silence := func(by, comment string, matchers ...wire.Matcher) string {
		id, err := c.SetSilence(t.Context(), amclient.Silence{Matchers: matchers, StartsAt: time.Now(), EndsAt: end, CreatedBy: by, Comment: comment})
		must(t, err)
		return id
	}
	two := silence("root", "acme and zeta move house", wire.Matcher{Name: "tenant", Value: "acme|zeta", IsRegex: true, IsEqual: true}, wire.EqualMatcher("alertname", "A"))
	other := silence("root", "theirs", wire.EqualMatcher("site", "rome"))
	silence("root", "nobody's", wire.EqualMatcher("site", "elsewhere"))
	h.poll()
	if a := get[wire.AlertList](h, "acme", "/api/v1/alerts?state=suppressed").Alerts; len(a) != 1 || strings.Join(a[0].SilencedBy, " ") != two {
		t.Fatalf("%+v", a)
	}
	l := get[wire.SilenceList](h, "acme", "/api/v1/silences?state=active").Silences
	if len(l) != 1 || l[0].ID != two || !l[0].EndsAt.Truncate(time.Second).Equal(end.Truncate(time.Second)) || l[0].State != "active" {
		t.Fatalf("acme sees %+v", l)
	}
	if x := l[0]; x.Tenant != "" || len(x.Matchers) != 0 || x.CreatedBy != "" || x.Comment != "" || x.Maintenance {
		t.Errorf("acme is told %+v", x)
	}
	if code, body := h.do("acme", "DELETE", "/api/v1/silences/"+two, ""); code != 404 {
		t.Errorf("acme ends it: %d %s", code, body)
	}
	ids := func(tenants, path string) (out []string) {
		for _, x := range get[wire.SilenceList](h, tenants, path).Silences {
			out = append(out, x.ID)
		}
		slices.Sort(out)
		return out
	}
	if got, want := ids("zeta", "/api/v1/silences"), slices.Sorted(slices.Values([]string{two, other})); !slices.Equal(got, want) {
		t.Errorf("zeta sees %s, want %s", got, want)
	}
	// Who may read all sees what it says, also on the way from an alert of one tenant.
	if l := get[wire.SilenceList](h, "*", "/api/v1/silences?tenant=acme").Silences; len(l) != 1 || l[0].Comment != "acme and zeta move house" || len(l[0].Matchers) != 2 {
		t.Errorf("of all, of acme: %+v", l)
	}
	if got := ids("*", "/api/v1/silences"); len(got) != 3 {
		t.Errorf("of all: %s", got)
	}
	if got := ids("beta", "/api/v1/silences"); len(got) != 0 {
		t.Errorf("beta sees %s", got)
	}
}

// The last answer stands while Alertmanager is away, with its age; silences say so.
func TestAlertmanagerAway(t *testing.T) {
	_, c, stop := alertmanager(t, dropAll)
	h := serve(t, Options{Source: External{Client: c}, Silences: c})
	must(t, c.PostAlerts(t.Context(), []wire.Alert{alert("A", "acme", "paris", "critical", "", 0)}))
	h.poll()
	before := get[wire.AlertList](h, "acme", "/api/v1/alerts")
	stop()
	if h.s.poll(t.Context()) == nil {
		t.Fatal("no error")
	}
	if after := get[wire.AlertList](h, "acme", "/api/v1/alerts"); after.Total != 1 || !after.AsOf.Equal(before.AsOf) {
		t.Errorf("%+v", after)
	}
	if code, _ := h.do("acme", "GET", "/api/v1/silences", ""); code != 503 {
		t.Errorf("silences: %d", code)
	}
}

func FuzzDecodeSilence(f *testing.F) {
	f.Add([]byte(`{"matchers": [{"name": "alertname", "value": "A.*", "isRegex": true}], "duration": "1h", "comment": "x"}`))
	f.Add([]byte(`{"matchers": [{"name": "a", "value": "b", "isEqual": false}], "startsAt": "2026-01-01T00:00:00Z", "endsAt": "2026-01-02T00:00:00Z", "comment": "x"}`))
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSilence(strings.NewReader(string(b)), now)
		if err != nil {
			return
		}
		if len(s.Matchers) == 0 || s.Comment == "" || s.StartsAt.Before(now) || !s.EndsAt.After(s.StartsAt) || tenantOf(s) != "" {
			t.Errorf("%s gives %+v", b, s)
		}
	})
}

func FuzzDecodeCursor(f *testing.F) {
	f.Add(position{1, 2, "00000000000000aa"}.encode())
	f.Add("e30")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := decodeCursor(s)
		if err == nil && p != nil {
			if q, err := decodeCursor(p.encode()); err != nil || *q != *p {
				t.Errorf("%q: %v, then %v, %v", s, p, q, err)
			}
		}
	})
}

// Groups are those of the routes, narrowed to what the reader may see; a silence shows in the
// answer that comes after it.
func TestGroupsAndSilencesAtOnce(t *testing.T) {
	m, c, _ := alertmanager(t, `
route:
  receiver: none
  routes:
    - {receiver: acme/default/on-call, matchers: [tenant=acme], group_by: [tenant, alertname], group_wait: 1h}
    - {receiver: b/default/mail, matchers: [tenant=b], group_by: [tenant], group_wait: 1h}
receivers: [{name: none}, {name: acme/default/on-call}, {name: b/default/mail}]`)
	fire := func(tenant, name, site, severity string) wire.Alert {
		return wire.Alert{Labels: map[string]string{"alertname": name, "tenant": tenant, "site": site, "severity": severity}}
	}
	must(t, c.PostAlerts(t.Context(), []wire.Alert{fire("acme", "Disk", "x", "warning"), fire("acme", "Disk", "y", "warning"), fire("acme", "Down", "x", "critical"), fire("b", "Disk", "z", "warning"), fire("b", "Down", "z", "critical")}))
	for name, source := range map[string]Source{"over HTTP": External{Client: c}, "embedded": m} {
		t.Run(name, func(t *testing.T) {
			h := serve(t, Options{Source: source, Silences: c, Every: time.Hour})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { _ = h.s.Run(ctx); close(done) }()
			defer func() { cancel(); <-done }()
			testkit.EventuallyTrue(t, "five alerts and three groups", func() bool {
				h.s.refresh(ctx)
				return get[wire.AlertList](h, "*", "/api/v1/alerts").Total == 5 && get[wire.AlertGroupList](h, "*", "/api/v1/alerts/groups").Total == 3
			})
			l := get[wire.AlertGroupList](h, "acme", "/api/v1/alerts/groups")
			if l.Total != 2 || l.Groups[0].Labels["alertname"] != "Down" || l.Groups[0].Receiver != "on-call" || l.Groups[1].Total != 2 || l.Groups[1].Labels["tenant"] != "" || l.Groups[1].Counts.Warning != 2 {
				t.Errorf("%+v", l)
			}
			if l := get[wire.AlertGroupList](h, "acme", "/api/v1/alerts/groups?sort=count&limit=1"); l.Total != 2 || len(l.Groups) != 1 || l.Groups[0].Labels["alertname"] != "Disk" {
				t.Errorf("by count: %+v", l)
			}
			if l := get[wire.AlertGroupList](h, "b", "/api/v1/alerts/groups?severity=critical"); l.Total != 1 || l.Groups[0].Total != 1 || len(l.Groups[0].Labels) != 0 {
				t.Errorf("of b: %+v", l)
			}
			if code, _ := h.do("acme", "GET", "/api/v1/alerts/groups?sort=age", ""); code != 400 {
				t.Errorf("sort=age: %d", code)
			}
			code, body := h.do("acme", "POST", "/api/v1/silences", `{"matchers":[{"name":"alertname","value":"Disk"}],"duration":"1h","comment":"known"}`)
			if code != 201 {
				t.Fatalf("%d %s", code, body)
			}
			if l := get[wire.AlertList](h, "acme", "/api/v1/alerts?state=suppressed"); l.Total != 2 {
				t.Errorf("after the silence: %+v", l)
			}
			var made struct{ ID string }
			must(t, json.Unmarshal([]byte(body), &made))
			if code, body := h.do("acme", "DELETE", "/api/v1/silences/"+made.ID, ""); code != 204 {
				t.Fatalf("%d %s", code, body)
			}
			if l := get[wire.AlertList](h, "acme", "/api/v1/alerts?state=suppressed"); l.Total != 0 {
				t.Errorf("after its end: %+v", l)
			}
		})
	}
}

func TestTally(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tally.json")
	tally, err := OpenTally(file)
	must(t, err)
	now := time.Now()
	tally.Add(now.Add(-30*time.Hour), "acme", "mail", []string{"Old", "Disk"}, false)
	for range 3 {
		tally.Add(now.Add(-2*time.Hour), "acme", "on-call", []string{"Disk"}, false)
	}
	tally.Add(now, "acme", "mail", []string{"Disk", "Down"}, true)
	tally.Add(now, "b", "mail", []string{"Theirs"}, false)
	must(t, tally.Save(now))
	if tally, err = OpenTally(file); err != nil {
		t.Fatal(err)
	}
	h := serve(t, Options{Source: SourceFunc(func(context.Context) ([]wire.Alert, error) { return nil, nil }), Silences: &amclient.Client{}, Tally: tally})
	l := get[wire.LoudnessList](h, "acme", "/api/v1/alerts/notifications")
	if !l.Counted || l.Total != 3 || len(l.Rules) != 2 || l.Rules[0].Rule != "Disk" || l.Rules[0].Notifications != 3 || l.Rules[0].Failed != 1 || l.Rules[1].Rule != "Down" || l.Rules[1].Notifications != 0 || l.Rules[1].Failed != 1 || strings.Join(l.Rules[0].Receivers, " ") != "mail on-call" {
		t.Errorf("%+v", l)
	}
	if l := get[wire.LoudnessList](h, "*", "/api/v1/alerts/notifications?limit=1"); l.Total != 4 || len(l.Rules) != 1 {
		t.Errorf("of all: %+v", l)
	}
	if l := get[wire.LoudnessList](h, "*", "/api/v1/alerts/notifications?tenant=b"); l.Total != 1 {
		t.Errorf("asked for b: %+v", l)
	}
	none := serve(t, Options{Source: SourceFunc(func(context.Context) ([]wire.Alert, error) { return nil, nil }), Silences: &amclient.Client{}})
	if l := get[wire.LoudnessList](none, "acme", "/api/v1/alerts/notifications"); l.Counted || l.Rules == nil {
		t.Errorf("without a tally: %+v", l)
	}
}

// Of several alerting roles each knows what all of them sent, however often and in whichever order they tell each other,
// and what a crash lost of its own comes back from the others.
func TestTalliesOfSeveralRoles(t *testing.T) {
	open := func(name string) *Tally {
		tally, err := OpenTally(filepath.Join(t.TempDir(), name))
		must(t, err)
		return tally
	}
	tell := func(from, to *Tally) {
		b, err := from.MarshalBinary()
		must(t, err)
		must(t, to.Merge(b))
	}
	one, two, now := open("one"), open("two"), time.Now()
	sums := func(of *Tally) string {
		return fmt.Sprint(of.loudest(now, func(string) bool { return true }))
	}
	one.Add(now, "acme", "mail", []string{"Disk"}, false)
	must(t, one.Save(now))
	one.Add(now, "acme", "mail", []string{"Disk"}, true)
	two.Add(now, "acme", "mail", []string{"Disk", "Down"}, false)
	two.Add(now.Add(-3*time.Hour), "acme", "on-call", []string{"Disk"}, false)
	two.Add(now.Add(-30*time.Hour), "acme", "old", []string{"Old"}, false)
	for range 3 {
		tell(one, two)
		tell(two, one)
	}
	const want = "[{acme Disk 3 1 [mail on-call]} {acme Down 1 0 [mail]}]"
	for name, of := range map[string]*Tally{"one": one, "two": two} {
		if got := sums(of); got != want {
			t.Errorf("%s knows %s, want %s", name, got, want)
		}
	}
	again, err := OpenTally(one.file)
	must(t, err)
	if got := sums(again); got != "[{acme Disk 1 0 [mail]}]" {
		t.Errorf("saved: %s", got)
	}
	tell(two, again)
	if got := sums(again); got != want {
		t.Errorf("after a crash: %s, want %s", got, want)
	}
	again.Add(now, "acme", "mail", []string{"Down"}, false)
	tell(again, two)
	if got := sums(two); got != "[{acme Disk 3 1 [mail on-call]} {acme Down 2 0 [mail]}]" {
		t.Errorf("one more: %s", got)
	}
	must(t, two.Merge([]byte("nonsense")))
}

func FuzzTally(f *testing.F) {
	f.Add([]byte(`{"self":"me","counts":[{"from":"me","tenant":"a","rule":"b","hours":{"1":2},"receivers":{"x":1}},null]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		file := filepath.Join(t.TempDir(), "tally.json")
		must(t, os.WriteFile(file, b, 0o600))
		tally, err := OpenTally(file)
		must(t, err)
		tally.Add(time.Now(), "a", "r", []string{"b"}, true)
		tally.loudest(time.Now(), func(string) bool { return true })
		must(t, tally.Save(time.Now()))
		must(t, tally.Merge(b))
	})
}

// What gates ask for is made with the poll while they ask, is what fires by then, and is not made
// for tenants that ask no more, or have no alerts.
func TestAnswersForGatesAreMadeInAdvance(t *testing.T) {
	var list []wire.Alert
	h := serve(t, Options{Source: SourceFunc(func(context.Context) ([]wire.Alert, error) { return list, nil }), Silences: &amclient.Client{}})
	names := func(tenant string) string {
		t.Helper()
		_, body := h.do("*", "GET", wire.FiringPath+"?tenant="+tenant, "")
		f, err := wire.DecodeFiringAlerts([]byte(body), tenant)
		must(t, err)
		return fmt.Sprint(f.Sites)
	}
	fires := func(name string) {
		list = nil
		for i, tenant := range []string{"acme", "zeta"} {
			a := alert(name, tenant, "paris", "critical", "", time.Minute)
			a.Fingerprint = fmt.Sprintf("%016x", i)
			list = append(list, a)
		}
		h.poll()
	}
	fires("First")
	if v := h.s.view.Load(); len(v.answered) != 0 {
		t.Errorf("nobody asks, and there are answers: %v", v.answered)
	}
	if got := names("acme") + names("nobody"); got != "map[paris:[critical/First]]map[]" {
		t.Error(got)
	}
	fires("Second")
	if v := h.s.view.Load(); len(v.answered) != 1 || !strings.Contains(string(v.answered["acme"]), "Second") {
		t.Errorf("made in advance: %s", v.answered)
	}
	if got := names("acme") + names("zeta"); got != "map[paris:[critical/Second]]map[paris:[critical/Second]]" {
		t.Error(got)
	}
	if got := h.s.firingOf.wanted(time.Now().Add(askedFor + time.Second)); len(got) != 0 {
		t.Errorf("long after the last question %v are made", got)
	}
}
