package amclient_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/alerting/manager"
	"muster.dev/muster/internal/wire"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// alertmanager runs a real one and returns its URL.
func alertmanager(t *testing.T) string {
	m, err := manager.New(manager.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), ExternalURL: "http://x.example/am"})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() { cancel(); must(t, <-done) })
	return m.URL()
}

func client(t *testing.T, urls ...string) *amclient.Client {
	c, err := amclient.New(amclient.Options{URLs: urls, Timeout: 5 * time.Second})
	must(t, err)
	return c
}

func TestAlertsAndSilences(t *testing.T) {
	ctx := t.Context()
	c := client(t, alertmanager(t)+"/")
	a := wire.Alert{Labels: map[string]string{"alertname": "A", "site": "a \"b\" ü"}, Annotations: map[string]string{"x": "y"}, GeneratorURL: "http://g.example/", StartsAt: time.Now().Add(-time.Minute), EndsAt: time.Now().Add(time.Minute)}
	must(t, c.PostAlerts(ctx, nil))
	must(t, c.PostAlerts(ctx, []wire.Alert{a, {Labels: map[string]string{"alertname": "B"}}}))
	l, err := c.Alerts(ctx, `alertname="A"`, `site=~"a.*"`)
	must(t, err)
	if len(l) != 1 || l[0].Labels["site"] != a.Labels["site"] || l[0].Annotations["x"] != "y" || l[0].GeneratorURL != a.GeneratorURL || l[0].StartsAt.Sub(a.StartsAt).Abs() > time.Millisecond || len(l[0].Fingerprint) != 16 || l[0].Status.State == "" {
		t.Errorf("%+v", l)
	}
	if err := c.PostAlerts(ctx, []wire.Alert{{Labels: map[string]string{}}}); err == nil || !strings.Contains(err.Error(), "400") {
		t.Errorf("an alert without labels: %v", err)
	}
	if _, err := c.Alerts(ctx, `a b`); err == nil {
		t.Error("took a filter that is none")
	}

	s := amclient.Silence{Matchers: []wire.Matcher{wire.EqualMatcher("alertname", "A"), {Name: "site", Value: "b.*", IsRegex: true}}, StartsAt: time.Now(), EndsAt: time.Now().Add(time.Hour), CreatedBy: "me", Comment: "why"}
	id, err := c.SetSilence(ctx, s)
	must(t, err)
	got, err := c.Silence(ctx, id)
	must(t, err)
	if got.Status.State != "active" || len(got.Matchers) != 2 || got.Matchers[1] != s.Matchers[1] || got.CreatedBy != "me" {
		t.Errorf("%+v", got)
	}
	got.EndsAt = got.EndsAt.Add(time.Hour) // what was read can be written
	again, err := c.SetSilence(ctx, *got)
	must(t, err)
	if again != id {
		t.Errorf("changed as another one: %s, was %s", again, id)
	}
	all, err := c.Silences(ctx, `alertname="A"`)
	must(t, err)
	if len(all) != 1 || all[0].ID != id {
		t.Errorf("%+v", all)
	}
	must(t, c.ExpireSilence(ctx, id))
	const unknown = "00000000-0000-4000-8000-000000000000"
	if err := c.ExpireSilence(ctx, unknown); !errors.Is(err, amclient.ErrNotFound) || !strings.Contains(err.Error(), unknown) {
		t.Errorf("an unknown silence: %v", err)
	}
	st, err := c.Status(ctx)
	must(t, err)
	if st.Cluster.Status != "disabled" || st.Uptime.IsZero() || !strings.Contains(st.Config.Original, "receiver: none") {
		t.Errorf("%+v", st)
	}
}

func TestSeveral(t *testing.T) {
	ctx := t.Context()
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	one, two := alertmanager(t), alertmanager(t)
	alerts := []wire.Alert{{Labels: map[string]string{"alertname": "A"}}}
	must(t, client(t, down.URL, one, two).PostAlerts(ctx, alerts))
	for _, u := range []string{one, two} {
		if l, err := client(t, u).Alerts(ctx); err != nil || len(l) != 1 {
			t.Errorf("%s has %v, %v", u, l, err)
		}
	}
	if l, err := client(t, down.URL, two).Alerts(ctx); err != nil || len(l) != 1 {
		t.Errorf("not asked the one that answers: %v, %v", l, err)
	}
	for what, err := range map[string]error{
		"post": client(t, down.URL).PostAlerts(ctx, alerts),
		"list": func() error { _, err := client(t, down.URL).Alerts(ctx); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), down.URL) {
			t.Errorf("%s: the error does not say which: %v", what, err)
		}
	}
}

func TestWrongAnswers(t *testing.T) {
	for body, says := range map[string]string{"<html>": "not what Alertmanager", `{"a": 1}`: "not what Alertmanager", `[{"startsAt": 5}]`: "not what Alertmanager"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		if _, err := client(t, s.URL).Alerts(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", body, err)
		}
		s.Close()
	}
	for _, u := range []string{"", "127.0.0.1:9093", "ftp://a", "http://", "http://a?b=c"} {
		if _, err := amclient.New(amclient.Options{URLs: []string{u}}); err == nil {
			t.Errorf("took %q", u)
		}
	}
	if _, err := amclient.New(amclient.Options{}); err == nil {
		t.Error("took no URL")
	}
}
