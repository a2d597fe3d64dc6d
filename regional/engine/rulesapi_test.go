package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/rules"

	"muster.dev/muster/internal/testkit"
)

type alertAnswer struct {
	Data struct {
		Alerts []struct {
			Labels map[string]string `json:"labels"`
			State  string            `json:"state"`
		} `json:"alerts"`
		NextToken string `json:"nextToken"`
	} `json:"data"`
	Warnings []string `json:"warnings"`
}

type rulesAnswer struct {
	Data struct {
		Groups []struct {
			File  string `json:"file"`
			Rules []struct {
				Name   string `json:"name"`
				Alerts []any  `json:"alerts"`
			} `json:"rules"`
		} `json:"groups"`
		GroupNextToken string `json:"groupNextToken"`
	} `json:"data"`
}

// With tens of thousands of alerts of one tenant the API answers: rules without them,
// alerts in pages that miss none, and another tenant's at once.
func TestRulesAPIWithManyAlerts(t *testing.T) {
	e := open(t, Options{EvaluationInterval: 200 * time.Millisecond, TenantAlertBytes: 1 << 30})
	app := e.Storage().Appender(t.Context())
	const each = 4500
	for i := range each {
		if _, err := app.Append(0, labels.FromStrings("__name__", "x", "tenant", "acme", "i", fmt.Sprint(i)), time.Now().UnixMilli(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	set := []RuleGroup{alerting("umbrella/one", "umbrella", "One", "vector(1)", "a"), alerting("shipped", "", "Shipped", "vector(1)", "a")}
	for i := range 3 {
		set = append(set, alerting(fmt.Sprintf("acme/%d", i), "acme", fmt.Sprintf("Many%d", i), "x", strings.Repeat("y", 100)))
	}
	if _, err := e.SetRules(set); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "the alerts fire", func() bool { return (ruleView{e: e}).countAlerts(nil, nil, nil) == 3*each+2 })
	srv := serve(t, e)
	ask := func(path string, into any) {
		t.Helper()
		if err := json.Unmarshal([]byte(get(t, srv.URL+"/edge/api/v1/"+path, http.StatusOK)), into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	seen, pages, token := map[string]bool{}, 0, ""
	for {
		var a alertAnswer
		ask("alerts?tenant=acme&next_token="+token, &a)
		for _, x := range a.Data.Alerts {
			key := x.Labels["alertname"] + x.Labels["i"]
			if seen[key] || x.State != "firing" {
				t.Fatalf("%s comes twice, or is %s", key, x.State)
			}
			seen[key] = true
		}
		pages++
		if token = a.Data.NextToken; token == "" {
			break
		}
		if len(a.Data.Alerts) != maxAlertsAnswered || len(a.Warnings) != 1 {
			t.Fatalf("a page of %d alerts, %q", len(a.Data.Alerts), a.Warnings)
		}
	}
	if len(seen) != 3*each || pages != 2 {
		t.Errorf("%d alerts on %d pages", len(seen), pages)
	}
	var a alertAnswer
	if ask("alerts?limit=5", &a); len(a.Data.Alerts) != 5 || a.Data.NextToken == "" {
		t.Errorf("%d alerts", len(a.Data.Alerts))
	}
	a = alertAnswer{}
	if ask("alerts?tenant=umbrella", &a); len(a.Data.Alerts) != 1 || a.Data.NextToken != "" || a.Data.Alerts[0].Labels["alertname"] != "One" {
		t.Errorf("another tenant's: %+v", a)
	}
	for query, want := range map[string]struct{ groups, alerts int }{
		"": {5, 0}, "?tenant=acme": {3, 0}, "?tenant=umbrella": {1, 1}, "?file[]=acme/1": {1, each}, "?rule_name[]=Many2": {1, each},
		"?group_limit=2": {2, 0}, "?tenant=nobody": {0, 0}, "?exclude_alerts=true&tenant=umbrella": {1, 0},
	} {
		var r rulesAnswer
		ask("rules"+query, &r)
		alerts := 0
		for _, g := range r.Data.Groups {
			for _, x := range g.Rules {
				alerts += len(x.Alerts)
			}
		}
		if len(r.Data.Groups) != want.groups || alerts != want.alerts || (r.Data.GroupNextToken != "") != (query == "?group_limit=2") {
			t.Errorf("rules%s: %d groups with %d alerts, want %v", query, len(r.Data.Groups), alerts, want)
		}
	}
	for _, bad := range []string{"limit=0", "limit=x", "next_token=x", "next_token=" + url.QueryEscape("e30=x")} {
		get(t, srv.URL+"/edge/api/v1/alerts?"+bad, http.StatusBadRequest)
	}
}

// The API answers while a change of rules waits for what is evaluated, with the manager's
// lock held.
func TestRulesAPITakesNoLockOfRules(t *testing.T) {
	e := open(t, Options{Rules: []RuleGroup{alerting("acme/a", "acme", "A", "vector(1)", "a")}})
	srv := serve(t, e)
	running, released := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	block := func(context.Context, *rules.Group, time.Time) {
		select {
		case running <- struct{}{}:
		case <-released:
		}
		<-released
	}
	files, _, _ := e.loader.set([]RuleGroup{alerting("acme/a", "acme", "B", "vector(1)", "a")})
	if err := e.rules.Update(50*time.Millisecond, files, labels.EmptyLabels(), "", block); err != nil {
		t.Fatal(err)
	}
	<-running
	files, _, _ = e.loader.set([]RuleGroup{alerting("acme/a", "acme", "C", "vector(1)", "a")})
	done := make(chan error, 1)
	go func() { done <- e.rules.Update(time.Second, files, labels.EmptyLabels(), "", nil) }()
	client := &http.Client{Timeout: 10 * time.Second}
	for begun := false; !begun; { // until Update has the lock, which nothing else tells
		locked := make(chan struct{})
		go func() { e.rules.RuleGroups(); close(locked) }()
		select {
		case <-locked:
		case <-time.After(200 * time.Millisecond):
			begun = true
		}
	}
	for _, path := range []string{"rules", "alerts"} {
		resp, err := client.Get(srv.URL + "/edge/api/v1/" + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func FuzzParsePlace(f *testing.F) {
	f.Add(place{File: "a", Group: "b", Rule: 1, Hash: 2}.token())
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePlace(s)
		if err != nil {
			return
		}
		if again, err := parsePlace(p.token()); err != nil || again != p {
			t.Errorf("%+v, %v", again, err)
		}
	})
}
