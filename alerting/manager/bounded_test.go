package manager

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	texttemplate "text/template"
	"time"

	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/config/receiver"
	"github.com/prometheus/alertmanager/dispatch"
	"github.com/prometheus/alertmanager/nflog"
	"github.com/prometheus/alertmanager/nflog/nflogpb"
	"github.com/prometheus/alertmanager/notify"
	"github.com/prometheus/alertmanager/types"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/model"

	"muster.dev/muster/control/api/templates"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

// sink takes whatever it is sent and counts its bytes.
type sink struct {
	*httptest.Server
	mu     sync.Mutex
	bodies [][]byte
}

func newSink(t *testing.T) *sink {
	s := &sink{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.bodies = append(s.bodies, b)
		s.mu.Unlock()
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *sink) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bodies) == 0 {
		return ""
	}
	return string(s.bodies[len(s.bodies)-1])
}

// integration is the first of a receiver that is written in YAML; and the same as
// Alertmanager makes it.
func integration(t *testing.T, m *Manager, yaml string) (ours, theirs notify.Integration) {
	t.Helper()
	conf, err := config.Load("route: {receiver: x}\nreceivers: [{name: x, " + yaml + "}]")
	if err != nil {
		t.Fatalf("%v in %s", err, yaml)
	}
	p, err := m.prepare([]byte("route: {receiver: x}\nreceivers: [{name: x}]"))
	must(t, err)
	out, err := m.integrations(conf.Receivers[0], p)
	must(t, err)
	raw, err := receiver.BuildReceiverIntegrations(conf.Receivers[0], p.tmpl, m.log)
	must(t, err)
	return out[0], raw[0]
}

func fleetOfAlerts(n int) []*types.Alert {
	var out []*types.Alert
	for i := range n {
		out = append(out, &types.Alert{Alert: model.Alert{
			Labels:      model.LabelSet{"alertname": "DiskFull", "site": model.LabelValue(fmt.Sprintf("site-%05d", i)), "tenant": "acme", "severity": "warning"},
			Annotations: model.LabelSet{"summary": "the disk is full"}, StartsAt: time.Unix(1e9+int64(i), 0), EndsAt: time.Now().Add(time.Hour),
		}})
	}
	return out
}

// What a notification is made of and made into has a bound, whoever it is for and however
// many alerts its group has: one notification of this group and these templates is
// gigabytes otherwise, and a tenant renders dozens at once.
func TestNotificationsAreBounded(t *testing.T) {
	m, _, _ := start(t, Options{})
	s, office := newSink(t), &postOffice{}
	smarthost := open(t, office, false, false)
	verbose := `{{ range .Alerts }}` + strings.Repeat("x", 4000) + `{{ end }}`                                               // a few KiB an alert
	wide := `{{ range .Alerts }}{{ printf "` + strings.Repeat("%999d", 50) + `"` + strings.Repeat(" 1", 50) + ` }}{{ end }}` // 50 KB
	nested := `{{ range .Alerts }}{{ range .Labels.SortedPairs }}` + strings.Repeat("y", 8000) + `{{ end }}{{ end }}`
	for _, text := range []string{verbose, wide, nested} {
		must(t, templates.Dialect{Template: true}.Check(text)) // tenants may write it
	}
	alerts := fleetOfAlerts(20_000)
	for name, yaml := range map[string]string{
		"webhook":              `webhook_configs: [{url: "URL"}]`,
		"webhook's URL":        `webhook_configs: [{url: "URL/?a={{ range .Alerts }}` + strings.Repeat("x", 4000) + `{{ end }}"}]`,
		"slack":                `slack_configs: [{api_url: "URL", channel: c, text: 'TEXT'}]`,
		"slack's fields":       `slack_configs: [{api_url: "URL", channel: c, fields: [{title: a, value: 'TEXT'}, {title: b, value: 'TEXT'}]}]`,
		"pagerduty":            `pagerduty_configs: [{url: "URL", routing_key: k, details: {a: 'TEXT'}}]`,
		"opsgenie":             `opsgenie_configs: [{api_url: "URL", api_key: k, details: {a: 'TEXT'}}]`,
		"msteams":              `msteams_configs: [{webhook_url: "URL", text: 'TEXT'}]`,
		"discord":              `discord_configs: [{webhook_url: "URL", content: 'TEXT'}]`,
		"jira":                 `jira_configs: [{api_url: "URL", project: p, issue_type: i, fields: {customfield_1: 'TEXT'}}]`,
		"mail":                 `email_configs: [{smarthost: "SMARTHOST", to: a@example.com, from: b@example.com, require_tls: false, text: 'TEXT'}]`,
		"mail of HTML":         `email_configs: [{smarthost: "SMARTHOST", to: a@example.com, from: b@example.com, require_tls: false, html: 'TEXT'}]`,
		"mail by the template": `email_configs: [{smarthost: "SMARTHOST", to: a@example.com, from: b@example.com, require_tls: false}]`,
	} {
		for kind, text := range map[string]string{"verbose": verbose, "wide": wide, "nested": nested} {
			if !strings.Contains(yaml, "TEXT") && kind != "verbose" {
				continue
			}
			t.Run(name+"/"+kind, func(t *testing.T) {
				s.bodies, office.got = nil, nil
				in, _ := integration(t, m, strings.NewReplacer("URL", s.URL, "SMARTHOST", smarthost, "TEXT", text).Replace(yaml))
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, _ = in.Notify(notifyContext(t.Context()), alerts...) // some don't like the sink's answer
				runtime.ReadMemStats(&after)
				if made := after.TotalAlloc - before.TotalAlloc; made > 80*maxNotification {
					t.Errorf("%d MiB of memory were allocated", made>>20)
				}
				size := 0
				for _, b := range s.bodies {
					size = max(size, len(b))
				}
				for _, l := range office.got {
					size = max(size, len(strings.Join(l.Parts, "")))
				}
				if size > 3*maxNotification { // JSON and headers come on top
					t.Errorf("the receiver got %d KiB", size>>10)
				}
				if len(s.bodies)+len(office.got) == 0 && name != "webhook's URL" {
					t.Error("the receiver got nothing")
				}
			})
		}
	}
}

// Templates that take long, and that write nothing while they do, are ended: what is
// rendered then is of fewer alerts, and of one that takes long by itself nothing is.
func TestSlowTemplatesAreEnded(t *testing.T) {
	m, _, _ := start(t, Options{})
	s := newSink(t)
	slow := func(n int) string {
		return `{{ range .Alerts }}{{ $a := .Annotations.a }}` + strings.Repeat(`{{ if match "(a?){100}b" $a }}x{{ end }}`, n) + `{{ end }}`
	}
	alerts := fleetOfAlerts(200)
	for _, a := range alerts { // some milliseconds for each match
		a.Annotations["a"] = model.LabelValue(strings.Repeat("a", 800))
	}
	notified := func(text string, within time.Duration) (int, error) {
		must(t, templates.Dialect{Template: true}.Check(text)) // tenants may write it
		s.bodies = nil
		conf, err := config.Load("route: {receiver: x}\nreceivers: [{name: x, slack_configs: [{api_url: \"" + s.URL + "\", channel: c, text: '" + text + "{{ range .CommonAnnotations.SortedPairs }}{{ .Name }}{{ end }}'}]}]")
		must(t, err)
		p, err := m.prepare([]byte("route: {receiver: x}\nreceivers: [{name: x}]"))
		must(t, err)
		raw, err := receiver.BuildReceiverIntegrations(conf.Receivers[0], p.tmpl, m.log)
		must(t, err)
		b := newBounded(raw[0], conf.Receivers[0].SlackConfigs[0], p, m.log, m.metrics.leftOut)
		b.within = within
		_, err = b.Notify(notifyContext(t.Context()), alerts...)
		return len(s.bodies), err
	}
	// The sink answers as no Slack does, which is an error.
	for within, cut := range map[time.Duration]bool{time.Hour: false, 60 * time.Millisecond: true} {
		if n, err := notified(slow(1), within); n != 1 {
			t.Errorf("within %s: %d requests, %v", within, n, err)
		} else if strings.Contains(s.last(), leftOutAnnotation) != cut {
			t.Errorf("within %s: alerts are left out: %t", within, !cut)
		}
	}
	if _, err := notified(slow(20), time.Nanosecond); !errors.Is(err, errSlow) {
		t.Errorf("%v", err)
	}
}

// countdown ends a template at a write.
type countdown int

func (c *countdown) Write(b []byte) (int, error) {
	if *c--; *c < 0 {
		return 0, errSlow
	}
	return len(b), nil
}

// What writes nothing is ended within a step, wherever it loops and compares, and what is
// not ended makes what it made before.
func TestTemplatesCanBeEnded(t *testing.T) {
	data := map[string]string{"a": "b", "c": "d", "e": "f"}
	for _, text := range []string{
		`{{ range . }}{{ $x := len . }}{{ end }}`,
		`{{ range . }}{{ if eq . "y" }}z{{ end }}{{ end }}`,
		`{{ range . }}{{ if eq . "y" }}{{ else }}{{ $x := 1 }}{{ end }}{{ end }}`,
		`{{ range $i, $x := . }}{{ with $x }}{{ range $.none }}{{ end }}{{ end }}{{ end }}`,
	} {
		plain := texttemplate.Must(texttemplate.New("x").Parse(text))
		var want, got strings.Builder
		must(t, plain.Execute(&want, data))
		interruptible(plain.Root)

		must(t, plain.Execute(&got, data))
		if got.String() != want.String() {
			t.Errorf("%s makes %q, and %q before", text, got.String(), want.String())
		}
		left := countdown(2)
		if err := plain.Execute(&left, data); !errors.Is(err, errSlow) {
			t.Errorf("%s runs on: %v", text, err)
		}
	}
}

// One alert that makes too much fails, and says why.
func TestOneAlertTooLongFails(t *testing.T) {
	m, _, _ := start(t, Options{})
	s := newSink(t)
	text := `{{ range .Alerts }}{{ printf "` + strings.Repeat("%999d", 1500) + `"` + strings.Repeat(" 1", 1500) + ` }}{{ end }}`
	must(t, templates.Dialect{Template: true}.Check(text))
	in, _ := integration(t, m, `slack_configs: [{api_url: "`+s.URL+`", channel: c, text: '`+text+`'}]`)
	retry, err := in.Notify(notifyContext(t.Context()), fleetOfAlerts(3)...)
	if retry || err == nil || !strings.Contains(err.Error(), "shorten its templates") {
		t.Errorf("retry %v, %.200v", retry, err)
	}
	if len(s.bodies) > 0 {
		t.Errorf("sent %d bytes", len(s.last()))
	}
}

// A group of a usual size goes out byte for byte as Alertmanager's own notifier sends it.
func TestUsualGroupIsUntouched(t *testing.T) {
	m, _, _ := start(t, Options{})
	s := newSink(t)
	for _, n := range []int{1, 30, maxAlertsNotified} {
		alerts := fleetOfAlerts(n)
		ours, theirs := integration(t, m, `webhook_configs: [{url: "`+s.URL+`"}]`)
		var got []string
		for _, in := range []notify.Integration{ours, theirs} {
			if _, err := in.Notify(notifyContext(t.Context()), alerts...); err != nil {
				t.Fatal(err)
			}
			got = append(got, s.last())
		}
		if got[0] != got[1] || strings.Count(got[0], `"site":"site-`) < n {
			t.Errorf("%d alerts: %d bytes, theirs %d", n, len(got[0]), len(got[1]))
		}
	}
	if n := testutil.ToFloat64(m.metrics.leftOut); n != 0 {
		t.Errorf("%v left out", n)
	}
}

// The worst and oldest stay, in their order; whether the group fires stays; and neither
// what fires nor what ended takes all the room.
func TestChoose(t *testing.T) {
	alerts := fleetOfAlerts(1000)
	alerts[700].Labels["severity"], alerts[900].Labels["severity"] = "critical", "critical"
	alerts[10].Labels["severity"] = "info"
	for _, a := range alerts[500:990] { // warnings that ended, and a critical one
		a.EndsAt = time.Unix(2e9-1e9, 1)
	}
	sites := func(kept []*types.Alert) (firing, resolved []string) {
		for _, a := range kept {
			if a.Resolved() {
				resolved = append(resolved, string(a.Labels["site"]))
			} else {
				firing = append(firing, string(a.Labels["site"]))
			}
		}
		return firing, resolved
	}
	for _, c := range []struct{ from, to, n, firing, resolved int }{
		{0, 1000, 1, 1, 0}, {0, 1000, 100, 50, 50}, {0, 1000, 999, 509, 490},
		{495, 1000, 100, 15, 85}, {499, 900, 100, 1, 99}, {300, 505, 100, 95, 5}, {500, 990, 100, 0, 100},
	} {
		firing, resolved := sites(choose(alerts[c.from:c.to], c.n))
		if len(firing) != c.firing || len(resolved) != c.resolved {
			t.Errorf("%+v: %d firing, %d resolved", c, len(firing), len(resolved))
		}
		if !slices.IsSorted(firing) || !slices.IsSorted(resolved) {
			t.Errorf("%+v: the order changed", c)
		}
	}
	firing, resolved := sites(choose(alerts, 100))
	if want := "site-00000"; firing[0] != want || slices.Contains(firing, "site-00010") || firing[49] != "site-00050" {
		t.Errorf("firing: %v", firing)
	}
	if !slices.Contains(resolved, "site-00700") || !slices.Contains(resolved, "site-00900") || resolved[0] != "site-00500" {
		t.Errorf("resolved: %v", resolved)
	}
}

// The log of notifications knows the whole group though the receiver is told a part: it is
// told once, and of the end of the same alerts.
func TestLargeGroupIsNotifiedOnceAndResolves(t *testing.T) {
	const n = 5000
	m, c, _ := start(t, Options{ShardBy: "tenant"})
	h := newHook(t)
	must(t, m.SetConfig(tenants(webhook("hook", h.URL), tenant("acme", `{receiver: hook, group_by: [tenant], group_wait: 10ms, group_interval: 100ms}`))))
	alerts := make([]wire.Alert, 0, n)
	begin := time.Now().Add(-time.Hour)
	for i := range n {
		a := alert(fmt.Sprintf("A%05d", i), "tenant", "acme", "severity", "warning")
		a.StartsAt = begin.Add(time.Duration(i) * time.Millisecond)
		alerts = append(alerts, a)
	}
	logged := func() (firing, resolved int) {
		groups, _, err := m.groups(t.Context(), func(*dispatch.Route) bool { return true }, func(*types.Alert, time.Time) bool { return true })
		must(t, err)
		key := ""
		for _, g := range groups {
			if g.Receiver == "hook" {
				key = g.GroupKey
			}
		}
		entries, err := m.nflog.Query(nflog.QGroupKey(key), nflog.QReceiver(&nflogpb.Receiver{GroupName: "hook", Integration: "webhook"}))
		if err != nil || len(entries) == 0 {
			return 0, 0
		}
		return len(entries[0].FiringAlerts), len(entries[0].ResolvedAlerts)
	}
	must(t, c.PostAlerts(t.Context(), alerts))
	testkit.EventuallyTrue(t, "the whole group in the log", func() bool { firing, _ := logged(); return firing == n })
	h.mu.Lock()
	told := map[string]bool{}
	count, last := len(h.got), h.got[len(h.got)-1]
	h.mu.Unlock()
	for _, a := range last.Alerts {
		told[a.Labels["alertname"]] = true
	}
	if len(last.Alerts) != maxAlertsNotified || !told["A00000"] || !told[fmt.Sprintf("A%05d", maxAlertsNotified-1)] {
		t.Errorf("told of %d alerts", len(last.Alerts))
	}
	if left := last.CommonAnnotations[leftOutAnnotation]; !strings.Contains(left, "4500 of 5000") {
		t.Errorf("it is not told that alerts are left out: %q", left)
	}
	// The same again is no news: several intervals pass without a notification.
	must(t, c.PostAlerts(t.Context(), alerts))
	end := time.Now().Add(time.Second)
	testkit.EventuallyTrue(t, "ten intervals", func() bool { return time.Now().After(end) })
	h.mu.Lock()
	if len(h.got) != count {
		t.Errorf("%d notifications of what was known", len(h.got)-count)
	}
	h.mu.Unlock()
	if testutil.ToFloat64(m.metrics.leftOut) < n-maxAlertsNotified {
		t.Error("not counted")
	}

	for i := range alerts {
		alerts[i].EndsAt = time.Now()
	}
	must(t, c.PostAlerts(t.Context(), alerts))
	testkit.EventuallyTrue(t, "the end", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.got[len(h.got)-1].Status == "resolved" })
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, got := range h.got[count:] {
		if len(got.Alerts) > maxAlertsNotified {
			t.Errorf("%d alerts at once", len(got.Alerts))
		}
	}
}

// Templates are admitted on the footing that an alert has annotations of 16 KiB at most;
// so it has, and what is short of it stays whole.
func TestLongAlertsAreShortened(t *testing.T) {
	m, c, _ := start(t, Options{ShardBy: "tenant"})
	long := alert("Long", "tenant", "acme")
	long.Annotations = map[string]string{"a": strings.Repeat("ä", 1<<20), "b": strings.Repeat("b", 1<<20), "summary": "short", "z": strings.Repeat("z", 1000)}
	many := alert("Many", "tenant", "acme")
	many.Annotations = map[string]string{}
	for i := range 20_000 {
		many.Annotations[fmt.Sprint("note_", i)] = "x"
	}
	usual := alert("Usual", "tenant", "acme")
	usual.Annotations = map[string]string{"summary": strings.Repeat("x", 15<<10)}
	labels := alert("Labels", "tenant", "acme", "more", strings.Repeat("x", maxLabels))
	must(t, c.PostAlerts(t.Context(), []wire.Alert{long, labels, many, usual}))
	alerts, err := m.Alerts(t.Context())
	must(t, err)
	got := map[string]wire.Alert{}
	for _, a := range alerts {
		size := 0
		for k, v := range a.Annotations {
			size += len(k) + len(v)
		}
		if size > maxAnnotations {
			t.Errorf("%s has annotations of %d bytes", a.Labels["alertname"], size)
		}
		got[a.Labels["alertname"]] = a
	}
	if len(got) != 3 || m.hub.refusals() != 1 {
		t.Errorf("%d alerts, %d refused; want the one with long labels refused", len(got), m.hub.refusals())
	}
	if a := got["Long"].Annotations; a["summary"] != "short" || len(a["z"]) != 1000 || !strings.HasSuffix(a["a"], "ä...") || len(a["a"]) < 7000 || len(a["b"]) < 7000 {
		t.Errorf("annotations of %d, %d and %d bytes, %q", len(a["a"]), len(a["b"]), len(a["z"]), a["summary"])
	}
	if !maps.Equal(got["Usual"].Annotations, usual.Annotations) {
		t.Error("a usual alert was changed")
	}
	if n := len(got["Many"].Annotations); n < 100 || n > 2000 {
		t.Errorf("%d annotations", n)
	}
}

// The log of notifications knows integrations by name and number.
func TestIntegrationsHaveAlertmanagersNumbers(t *testing.T) {
	m, _, _ := start(t, Options{})
	conf, err := config.Load(`
route: {receiver: x}
receivers:
  - name: x
    slack_configs: [{api_url: "http://a", channel: a}, {api_url: "http://a", channel: b}]
    webhook_configs: [{url: "http://a"}, {url: "http://b"}, {url: "http://c"}]
    email_configs: [{smarthost: "a:25", to: a@a, from: a@a}, {smarthost: "b:25", to: a@a, from: a@a}]`)
	must(t, err)
	p, err := m.prepare([]byte(dropAll))
	must(t, err)
	ours, err := m.integrations(conf.Receivers[0], p)
	must(t, err)
	theirs, err := receiver.BuildReceiverIntegrations(conf.Receivers[0], p.tmpl, m.log)
	must(t, err)
	names := func(all []notify.Integration) (out []string) {
		for _, in := range all {
			out = append(out, fmt.Sprint(in.String(), in.SendResolved()))
		}
		slices.Sort(out)
		return out
	}
	if got, want := names(ours), names(theirs); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
