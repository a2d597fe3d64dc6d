package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/alertmanager"
	"muster.dev/muster/internal/wire"
)

// hook is a real webhook receiver.
type hook struct {
	*httptest.Server
	mu  sync.Mutex
	got []notification
}

type notification struct {
	Receiver          string            `json:"receiver"`
	Status            string            `json:"status"`
	CommonAnnotations map[string]string `json:"commonAnnotations"`
	Alerts            []struct {
		Status      string            `json:"status"`
		Labels      map[string]string `json:"labels"`
		Fingerprint string            `json:"fingerprint"`
	} `json:"alerts"`
}

func newHook(t testing.TB) *hook {
	h := &hook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var n notification
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
			t.Errorf("webhook: %v", err)
		}
		h.mu.Lock()
		h.got = append(h.got, n)
		h.mu.Unlock()
	}))
	t.Cleanup(h.Close)
	return h
}

// names of the alerts notified so far, with their status, in order.
func (h *hook) names() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, n := range h.got {
		for _, a := range n.Alerts {
			out = append(out, a.Labels["alertname"]+" "+a.Status)
		}
	}
	return strings.Join(out, ", ")
}

func (h *hook) config(more string) []byte {
	return []byte(fmt.Sprintf(`
route: {receiver: hook, group_by: [alertname], group_wait: 10ms, group_interval: 100ms}
receivers: [{name: hook, webhook_configs: [{url: %q}]}]
%s`, h.URL, more))
}

// start runs a Manager; the function ends it and waits.
func start(t testing.TB, o Options) (*Manager, *amclient.Client, func()) {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	o.Listen = "127.0.0.1:0"
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
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
	c, err := amclient.New(amclient.Options{URLs: []string{m.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	return m, c, stop
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func alert(name string, labels ...string) wire.Alert {
	a := wire.Alert{Labels: map[string]string{"alertname": name}}
	for i := 0; i < len(labels); i += 2 {
		a.Labels[labels[i]] = labels[i+1]
	}
	return a
}

func TestNotifySilenceInhibitResolve(t *testing.T) {
	h := newHook(t)
	m, c, _ := start(t, Options{})
	ctx := t.Context()
	if m.Ready() == nil {
		t.Error("ready before the first configuration")
	}
	must(t, m.SetConfig(h.config(`inhibit_rules: [{source_matchers: [alertname=Big], target_matchers: [alertname=Small], equal: [site]}]`)))
	must(t, m.Ready())

	id, err := c.SetSilence(ctx, amclient.Silence{Matchers: []wire.Matcher{wire.EqualMatcher("alertname", "Quiet")}, StartsAt: time.Now(), EndsAt: time.Now().Add(time.Hour), CreatedBy: "me", Comment: "test"})
	must(t, err)
	must(t, c.PostAlerts(ctx, []wire.Alert{alert("Big", "site", "a"), alert("Quiet")}))
	testkit.EventuallyTrue(t, "Big notified", func() bool { return h.names() == "Big firing" })
	must(t, c.PostAlerts(ctx, []wire.Alert{alert("Small", "site", "a"), alert("Small", "site", "b")}))
	testkit.EventuallyTrue(t, "only Small of site b notified", func() bool { return h.names() == "Big firing, Small firing" })
	h.mu.Lock()
	if got := h.got[1].Alerts[0].Labels["site"]; got != "b" {
		t.Errorf("notified Small of site %q", got)
	}
	h.mu.Unlock()

	all, err := c.Alerts(ctx)
	must(t, err)
	direct, err := m.Alerts(ctx)
	must(t, err)
	if describe(all) != describe(direct) {
		t.Errorf("over HTTP\n%s\ndirectly\n%s", describe(all), describe(direct))
	}
	big, err := c.Alerts(ctx, `alertname="Big"`)
	must(t, err)
	for _, want := range []string{"Big active [] [] a", "Quiet suppressed [" + id + "] [] ", "Small suppressed [] [" + big[0].Fingerprint + "] a", "Small active [] [] b"} {
		if !strings.Contains(describe(all), want) {
			t.Errorf("no %q in\n%s", want, describe(all))
		}
	}

	must(t, c.ExpireSilence(ctx, id))
	testkit.EventuallyTrue(t, "Quiet notified once its silence ended", func() bool { return strings.Contains(h.names(), "Quiet firing") })
	gone := alert("Big", "site", "a")
	gone.EndsAt = time.Now()
	must(t, c.PostAlerts(ctx, []wire.Alert{gone}))
	testkit.EventuallyTrue(t, "Big resolved", func() bool { return strings.Contains(h.names(), "Big resolved") })
	if s, err := c.Silence(ctx, id); err != nil || s.Status.State != "expired" {
		t.Errorf("silence %+v, %v", s, err)
	}
}

func describe(alerts []wire.Alert) string {
	var lines []string
	for _, a := range alerts {
		lines = append(lines, fmt.Sprintln(a.Labels["alertname"], a.Status.State, a.Status.SilencedBy, a.Status.InhibitedBy, a.Labels["site"], a.Fingerprint))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func TestSetConfig(t *testing.T) {
	h := newHook(t)
	m, c, _ := start(t, Options{})
	must(t, m.SetConfig(h.config("")))
	dispatcher := m.current.Load().shards[""].dispatcher
	must(t, m.SetConfig(h.config("")))
	if m.current.Load().shards[""].dispatcher != dispatcher {
		t.Error("the same configuration started anew")
	}
	for _, bad := range []string{"", "route: {receiver: x}", "nonsense: 1", "route: {receiver: a}\nreceivers: [{name: a, webhook_configs: [{url: 'http://x', http_config: {tls_config: {ca: nonsense}}}]}]"} {
		if err := m.SetConfig([]byte(bad)); err == nil || !strings.Contains(err.Error(), "configuration") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if m.current.Load().shards[""].dispatcher != dispatcher {
		t.Error("a bad configuration replaced the running one")
	}
	must(t, c.PostAlerts(t.Context(), []wire.Alert{alert("A")}))
	testkit.EventuallyTrue(t, "A notified with the old configuration", func() bool { return h.names() == "A firing" })
	// A new one does not notify again what was notified.
	must(t, m.SetConfig(h.config("# changed")))
	must(t, c.PostAlerts(t.Context(), []wire.Alert{alert("B")}))
	testkit.EventuallyTrue(t, "B notified", func() bool { return strings.Contains(h.names(), "B firing") })
	if got := h.names(); got != "A firing, B firing" {
		t.Errorf("notified %s", got)
	}
}

func TestRestartKeepsSilencesAndLog(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
	h := newHook(t)
	dir := t.TempDir()
	m, c, stop := start(t, Options{Dir: dir})
	must(t, m.SetConfig(h.config("")))
	id, err := c.SetSilence(t.Context(), amclient.Silence{Matchers: []wire.Matcher{wire.EqualMatcher("a", "b")}, StartsAt: time.Now(), EndsAt: time.Now().Add(time.Hour), CreatedBy: "me", Comment: "x"})
	must(t, err)
	must(t, c.PostAlerts(t.Context(), []wire.Alert{alert("A")}))
	testkit.EventuallyTrue(t, "A notified", func() bool { return h.names() == "A firing" })
	stop()
	if err := m.SetConfig(h.config("# after")); err == nil {
		t.Error("a stopped Manager took a configuration")
	}

	m, c, stop = start(t, Options{Dir: dir})
	must(t, m.SetConfig(h.config("")))
	if _, err := c.Silence(t.Context(), id); err != nil {
		t.Error(err)
	}
	must(t, c.PostAlerts(t.Context(), []wire.Alert{alert("A"), alert("B")}))
	testkit.EventuallyTrue(t, "B notified", func() bool { return strings.Contains(h.names(), "B firing") })
	if got := h.names(); got != "A firing, B firing" {
		t.Errorf("notified %s: A twice", got)
	}
	stop()
	h.Close()
}

// What a crash leaves is what is on disk while it runs.
func TestSilencesAreOnDiskWhenAnswered(t *testing.T) {
	dir := t.TempDir()
	_, c, _ := start(t, Options{Dir: dir})
	set := func() (string, error) {
		return c.SetSilence(t.Context(), amclient.Silence{Matchers: []wire.Matcher{wire.EqualMatcher("a", "b")}, StartsAt: time.Now(), EndsAt: time.Now().Add(time.Hour), CreatedBy: "me", Comment: "x"})
	}
	state := func(id string) string {
		after := t.TempDir()
		b, err := os.ReadFile(filepath.Join(dir, "silences"))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(after, "silences"), b, 0o600))
		_, c, stop := start(t, Options{Dir: after})
		defer stop()
		s, err := c.Silence(t.Context(), id)
		must(t, err)
		return s.Status.State
	}
	id, err := set()
	must(t, err)
	if got := state(id); got != "active" {
		t.Errorf("after a crash the silence is %q", got)
	}
	must(t, c.ExpireSilence(t.Context(), id))
	if got := state(id); got != "expired" {
		t.Errorf("after its end and a crash the silence is %q", got)
	}
	// A disk that fails is told.
	must(t, os.Remove(filepath.Join(dir, "silences")))
	must(t, os.Mkdir(filepath.Join(dir, "silences"), 0o700))
	if _, err := set(); err == nil || !strings.Contains(err.Error(), "restart would lose it") {
		t.Errorf("a silence that could not be saved: %v", err)
	}
}

func TestPages(t *testing.T) {
	reg := prometheus.NewRegistry()
	reloads := 0
	m, _, _ := start(t, Options{ExternalURL: "http://alerts.example.com/am/", Registerer: reg, OnReload: func() error { reloads++; return nil }})
	do := func(method, path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+m.Addr().String()+path, nil)
		must(t, err)
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		must(t, err)
		return resp.StatusCode, string(b)
	}
	if code, body := do("GET", "/am/-/ready"); code != 503 || !strings.Contains(body, "no configuration") {
		t.Errorf("ready: %d %s", code, body)
	}
	must(t, m.SetConfig(newHook(t).config("")))
	for _, c := range []struct {
		method, path string
		code         int
		has          string
	}{
		{"GET", "/am/-/ready", 200, "OK"},
		{"GET", "/am/-/healthy", 200, "OK"},
		{"POST", "/am/-/reload", 200, ""},
		{"GET", "/am/-/reload", 405, "POST"},
		{"GET", "/am/", 200, "<title>Alertmanager</title>"},
		{"GET", "/am/script.js", 200, "Elm"},
		{"GET", "/", 200, "<title>Alertmanager</title>"}, // redirected
		{"GET", "/am/metrics", 200, "alertmanager_integrations 1"},
		{"GET", "/am/api/v2/status", 200, "url: <secret>"},
		{"GET", "/am/debug/pprof/", 404, ""},
	} {
		if code, body := do(c.method, c.path); code != c.code || c.has != "" && !strings.Contains(body, c.has) {
			t.Errorf("%s %s: %d %.300s", c.method, c.path, code, body)
		}
	}
	if reloads != 1 {
		t.Errorf("%d reloads", reloads)
	}
}

func TestClusterNotifiesOnce(t *testing.T) {
	h := newHook(t)
	quick := Cluster{Listen: "127.0.0.1:0", PeerTimeout: 2 * time.Second, GossipInterval: 20 * time.Millisecond, PushPullInterval: 500 * time.Millisecond, SettleTimeout: 5 * time.Second}
	m1, c1, _ := start(t, Options{Cluster: quick})
	quick.Peers = []string{m1.ClusterAddr()}
	m2, c2, stop2 := start(t, Options{Cluster: quick})
	// Position in the cluster decides who notifies first: with one configuration both.
	must(t, m1.SetConfig(h.config("")))
	must(t, m2.SetConfig(h.config("")))
	testkit.EventuallyTrue(t, "both settled", func() bool { return m1.Ready() == nil && m2.Ready() == nil })
	s, err := c1.Status(t.Context())
	must(t, err)
	if len(s.Cluster.Peers) != 2 || s.Cluster.Status != "ready" {
		t.Fatalf("cluster: %+v", s.Cluster)
	}

	id, err := c1.SetSilence(t.Context(), amclient.Silence{Matchers: []wire.Matcher{wire.EqualMatcher("alertname", "Quiet")}, StartsAt: time.Now(), EndsAt: time.Now().Add(time.Hour), CreatedBy: "me", Comment: "x"})
	must(t, err)
	testkit.EventuallyTrue(t, "the silence at the other", func() bool { _, err := c2.Silence(t.Context(), id); return err == nil })

	both, err := amclient.New(amclient.Options{URLs: []string{m1.URL(), m2.URL()}})
	must(t, err)
	must(t, both.PostAlerts(t.Context(), []wire.Alert{alert("A"), alert("Quiet")}))
	for _, c := range []*amclient.Client{c1, c2} {
		l, err := c.Alerts(t.Context(), `alertname="Quiet"`)
		must(t, err)
		if len(l) != 1 || l[0].Status.State != "suppressed" {
			t.Errorf("Quiet: %+v", l)
		}
	}
	testkit.EventuallyTrue(t, "A notified", func() bool { return h.names() == "A firing" })
	// The second one would notify PeerTimeout after the first: B, sent to it alone when A
	// is past that, shows that it had its turn.
	testkit.EventuallyTrue(t, "the second's turn passed", func() bool { return logged(m1, "A") && logged(m2, "A") })
	must(t, both.PostAlerts(t.Context(), []wire.Alert{alert("B")}))
	testkit.EventuallyTrue(t, "B logged at both", func() bool { return logged(m1, "B") && logged(m2, "B") })
	end := time.Now().Add(2 * quick.PeerTimeout)
	testkit.EventuallyTrue(t, "twice the peer timeout passed", func() bool { return time.Now().After(end) })
	if got := h.names(); got != "A firing, B firing" {
		t.Errorf("notified %s", got)
	}

	// One is gone: the other one notifies alone, and a client of both still answers.
	stop2()
	must(t, both.PostAlerts(t.Context(), []wire.Alert{alert("C")}))
	testkit.EventuallyTrue(t, "C notified", func() bool { return strings.Contains(h.names(), "C firing") })
}

// logged says whether the notification log knows of a group.
func logged(m *Manager, name string) bool {
	b, err := m.nflog.MarshalBinary()
	return err == nil && strings.Contains(string(b), `alertname="`+name+`"`)
}

func amtool(t *testing.T) func(args ...string) string {
	bin := alertmanager.Build(t, "amtool")
	return func(args ...string) string {
		t.Helper()
		out, err := exec.Command(bin, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("amtool %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
}

func TestAmtool(t *testing.T) {
	run := amtool(t)
	h := newHook(t)
	m, _, _ := start(t, Options{})
	must(t, m.SetConfig(h.config("")))
	at := "--alertmanager.url=" + m.URL()
	run(at, "alert", "add", "alertname=Disk", "site=paris")
	if out := run(at, "alert", "query", "site=paris"); !strings.Contains(out, "Disk") {
		t.Errorf("alert query: %s", out)
	}
	testkit.EventuallyTrue(t, "Disk notified", func() bool { return h.names() == "Disk firing" })
	id := strings.TrimSpace(run(at, "silence", "add", "--author=me", "--comment=x", "--duration=1h", "alertname=Disk"))
	if out := run(at, "silence", "query"); !strings.Contains(out, id) {
		t.Errorf("silence query: %s", out)
	}
	if out := run(at, "alert", "query", "--silenced"); !strings.Contains(out, "Disk") {
		t.Errorf("silenced: %s", out)
	}
	run(at, "silence", "expire", id)
	if out := run(at, "silence", "query"); strings.Contains(out, id) {
		t.Errorf("after expire: %s", out)
	}
	if out := run(at, "config", "show"); !strings.Contains(out, "receiver: hook") || strings.Contains(out, h.URL) {
		t.Errorf("config show: %s", out)
	}
	if out := run(at, "config", "routes", "test", "alertname=Disk"); !strings.Contains(out, "hook") {
		t.Errorf("routes test: %s", out)
	}
	if out := run(at, "cluster", "show"); !strings.Contains(out, "disabled") {
		t.Errorf("cluster show: %s", out)
	}
}

// A web page in an operator's browser neither silences nor reads: Alertmanager itself
// answers every origin.
func TestOtherOriginsAreRefused(t *testing.T) {
	m, _, _ := start(t, Options{})
	do := func(method, path, origin, host, body string) int {
		req, err := http.NewRequestWithContext(t.Context(), method, m.URL()+path, strings.NewReader(body))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		if host != "" {
			req.Host = host
		}
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	silence := fmt.Sprintf(`{"matchers":[{"name":"a","value":".+","isRegex":true,"isEqual":true}],"startsAt":%q,"endsAt":%q,"createdBy":"x","comment":"x"}`,
		time.Now().UTC().Format(time.RFC3339), time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/api/v2/silences", silence}, {"GET", "/api/v2/alerts", ""}, {"POST", "/-/reload", ""}, {"OPTIONS", "/api/v2/silences", ""},
	} {
		if got := do(c.method, c.path, "https://evil.example", "", c.body); got != http.StatusForbidden {
			t.Errorf("%s %s of another origin: %d", c.method, c.path, got)
		}
		if got := do(c.method, c.path, "", "evil.example:9093", c.body); got != http.StatusMisdirectedRequest {
			t.Errorf("%s %s by another name: %d", c.method, c.path, got)
		}
	}
	for _, origin := range []string{"", "http://" + m.Addr().String()} {
		if got := do("POST", "/api/v2/silences", origin, "", silence); got != http.StatusOK {
			t.Errorf("a silence from origin %q: %d", origin, got)
		}
	}
}
