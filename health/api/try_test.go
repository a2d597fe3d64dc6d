package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/wire"
)

func postTry(t *testing.T, url, query, tenants, body string) (int, string) {
	t.Helper()
	return postTo(t, url+"/api/v1/health/try"+query, tenants, body)
}

func postTo(t *testing.T, url, tenants, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if tenants != "" {
		req.Header.Set(wire.TenantsHeader, tenants)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func shippedJSON(t testing.TB) string {
	t.Helper()
	data, err := yaml.YAMLToJSON(defaults.HealthPolicyYAML)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestTry(t *testing.T) {
	m := model(t)
	state := func(cpu float64) health.State {
		return health.Evaluate(m, health.Readings{Link: health.LinkUp, Signals: []health.Reading{{Value: cpu, Known: true}}}, nil, now)
	}
	site := func(name string) *engine.Site {
		return &engine.Site{Site: &inventory.Site{ID: fleet.SiteID{Tenant: "a", Name: name}}}
	}
	f := &fake{try: func(tenant string, p *v1alpha1.HealthPolicy) (*engine.Trial, error) {
		switch {
		case tenant == "busy":
			return nil, engine.ErrTrying
		case tenant != "a" || p.Name != "default" || len(p.Spec.Signals) < 50:
			t.Errorf("tried %s of %s with %d signals", p.Name, tenant, len(p.Spec.Signals))
		}
		return &engine.Trial{AsOf: now, Sites: []engine.Tried{
			{Site: site("same"), Before: state(0), After: state(0)},
			{Site: site("better"), Before: state(80), After: state(0)},
			{Site: site("worse"), Before: state(0), After: state(80)},
			{Site: site("bit"), Before: state(10), After: state(12)},
		}, Signals: []engine.SignalStat{{Name: "cpu", Dimension: fleet.Performance, Err: "broken", SitesKnown: 4}}}, nil
	}}
	srv := serve(t, f)
	code, body := postTry(t, srv.URL, "", "a", shippedJSON(t))
	var x Trial
	if err := json.Unmarshal([]byte(body), &x); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s: %v", code, body, err)
	}
	if x.Sites != 4 || x.Changed != 2 || len(x.Results) != 3 || x.Results[0].Site != "worse" || x.Results[2].Site != "bit" {
		t.Errorf("%s", body)
	}
	var text strings.Builder
	if err := x.WriteText(&text, false); err != nil {
		t.Fatal(err)
	}
	const want = `signal cpu fails: broken
SITE    COLOUR          SCORE     WHY
worse   green → orange  100 → 60  80% of the CPU is in use
better  orange → green  60 → 100  no longer counts as much: 80% of the CPU is in use
bit     green           95 → 94   12% of the CPU is in use
2 of 4 sites would change colour with policy default: 1 green → orange, 1 orange → green
`
	if got := text.String(); got != want {
		t.Errorf("got:\n%s", got)
	}
	// Of many whose score alone moves, those that lose most.
	for range 30 {
		x.Results = append(x.Results, x.Results[2])
	}
	for all, lines := range map[bool]int{false: 16, true: 36} {
		text.Reset()
		if err := x.WriteText(&text, all); err != nil || strings.Count(text.String(), "\n") != lines {
			t.Errorf("all %v: %v, want %d lines:\n%s", all, err, lines, text.String())
		}
		if strings.Contains(text.String(), "and 21 more, whose score alone would move, by -1 to -1 points") == all {
			t.Errorf("all %v:\n%s", all, text.String())
		}
	}
	for _, c := range []struct {
		query, tenants, body string
		code                 int
		detail               string
	}{
		{"", "", "{}", 403, "X-Muster-Tenants"},
		{"?tenant=b", "a", "{}", 403, "may not"},
		{"", "a,b", "{}", 400, "tenant="},
		{"", "*", "{}", 400, "tenant="},
		{"?tenant=busy", "a,busy", shippedJSON(t), 503, "another policy"},
		{"", "a", `{"kind":"HealthPolicy","spec":{"signal":[]}}`, 400, "signal"},
		{"", "a", `{"kind":"AlertRules"}`, 400, "want HealthPolicy"},
		// A site's score would be settled billions of times over, which nothing interrupts.
		{"", "a", `{"kind":"HealthPolicy","metadata":{"name":"x"},"spec":{"evaluations":2147483647,"recoveryEvaluations":2147483647,"signals":[{"name":"a","dimension":"security","query":"up","good":"0","bad":"1"}]}}`, 400, "spec.evaluations"},
		{"", "a", `{"kind":"HealthPolicy","metadata":{"name":"x"},"spec":{"recoveryEvaluations":101,"signals":[{"name":"a","dimension":"security","query":"up","good":"0","bad":"1"}]}}`, 400, "spec.recoveryEvaluations"},
		{"", "a", `{"kind":"HealthPolicy","metadata":{"name":"x"},"spec":{"overrides":[{"reason":"` + strings.Repeat("x", 5000) + `"}],"signals":[{"name":"a","dimension":"security","query":"up","good":"0","bad":"1"}]}}`, 400, "spec.overrides[0]"},
		{"", "a", `{"kind":"HealthPolicy"}`, 400, "metadata.name"},
		{"", "a", `{"kind":"HealthPolicy","metadata":{"name":"x"}}`, 400, "signals"},
		{"", "a", `{"kind":"HealthPolicy","metadata":{"name":"x"},"spec":{"signals":[{"name":"a","dimension":"security","query":"sum(up","good":"0","bad":"1"}]}}`, 400, "spec.signals[0].query"},
		{"", "a", `{"kind":"HealthPolicy","metadata":{"name":"x"},"spec":{"signals":[{"name":"a","dimension":"security","query":"max by (tenant, site) (max_over_time(rate(x[1d])[90d:1s]))","good":"0","bad":"1"}]}}`, 400, "spec.signals[0].query"},
		{"", "a", strings.Repeat(" ", MaxPolicyBytes+1), 413, "larger"},
	} {
		if code, body := postTry(t, srv.URL, c.query, c.tenants, c.body); code != c.code || !strings.Contains(body, c.detail) {
			t.Errorf("%s as %q, %.80s: %d %s, want %d with %q", c.query, c.tenants, c.body, code, body, c.code, c.detail)
		}
	}
}

func TestReplay(t *testing.T) {
	site := func(name string) *engine.Site {
		return &engine.Site{Site: &inventory.Site{ID: fleet.SiteID{Tenant: "a", Name: name}}}
	}
	f := &fake{replay: func(tenant string, _ *v1alpha1.HealthPolicy, since time.Duration, after string) (*engine.Replay, error) {
		if since < engine.MinSince {
			return nil, fmt.Errorf("since: %s: too short", since)
		}
		if tenant == "lost" {
			return nil, fmt.Errorf("%w: there is none", engine.ErrStore)
		}
		if since != 24*time.Hour || after != "oslo" {
			t.Errorf("since %s after %q", since, after)
		}
		change := func(minutes int, from, to fleet.Colour, why string) engine.Recolour {
			return engine.Recolour{At: now.Add(time.Duration(minutes) * time.Minute), From: from, To: to, Reason: why}
		}
		return &engine.Replay{From: now, To: now.Add(since), Step: time.Minute, Done: 3, Total: 12, Next: "rome", Sites: []engine.Replayed{
			{Site: site("paris"), Would: []engine.Recolour{change(3, "green", "orange", "hot"), change(9, "orange", "green", "")}, Did: []engine.Recolour{change(6, "green", "red", "")}},
			{Site: site("rome"), Would: []engine.Recolour{change(3, "green", "orange", "hot")}, Did: []engine.Recolour{change(5, "green", "orange", "")}},
			// All the time another colour, and no change.
			{Site: site("turin"), WouldBegin: change(0, "red", "red", "full"), DidBegin: change(1, "green", "green", "")},
		}}, nil
	}}
	srv := serve(t, f)
	post := func(query, tenants string) (int, string) {
		return postTo(t, srv.URL+"/api/v1/health/replay"+query, tenants, shippedJSON(t))
	}
	code, body := post("?since=24h&cursor=oslo", "a")
	var x Replay
	if err := json.Unmarshal([]byte(body), &x); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s: %v", code, body, err)
	}
	if !x.Sites[0].Differs || x.Sites[1].Differs || x.NextCursor != "rome" || x.Done != 3 {
		t.Errorf("%s", body)
	}
	var text strings.Builder
	if err := x.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	const want = `paris
  2026-05-01T12:03:00Z  would  green → orange  hot
  2026-05-01T12:06:00Z  did    green → red     
  2026-05-01T12:09:00Z  would  orange → green  
turin
  2026-05-01T12:00:00Z  would  red from then on    full
  2026-05-01T12:01:00Z  did    green from then on  
2 of 12 sites would have had other colours with policy default, 2026-05-01T12:00:00Z to 2026-05-02T12:00:00Z, readings 1m0s apart
`
	if got := text.String(); got != want {
		t.Errorf("got:\n%s", got)
	}
	for _, c := range []struct {
		query, tenants string
		code           int
	}{{"", "a", 400}, {"?since=x", "a", 400}, {"?since=1m", "a", 400}, {"?since=24h", "a,b", 400}, {"?since=24h", "lost", 503}, {"?since=24h&tenant=b", "a", 403}} {
		if code, body := post(c.query, c.tenants); code != c.code {
			t.Errorf("%s as %s: %d %s", c.query, c.tenants, code, body)
		}
	}
}

// FuzzPolicy: whatever comes as a policy, it is refused or one that makes a model.
func FuzzPolicy(f *testing.F) {
	f.Add([]byte(shippedJSON(f)))
	f.Add([]byte(`{"kind":"HealthPolicy","metadata":{"name":"x"},"spec":{"signals":[{"name":"a","dimension":"security","query":"max by (tenant, site) (x)","good":"0","bad":"1"}]}}`))
	f.Add([]byte(`{"kind":"HealthPolicy"} {}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, problem := policyOf(data)
		if (p == nil) == (problem == nil) {
			t.Fatalf("%v and %v", p, problem)
		}
		if p != nil {
			_, _ = health.FromPolicy(&p.Spec)
		}
	})
}
