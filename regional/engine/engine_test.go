package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	apiv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/testkit"
)

const childEnv = "MUSTER_ENGINE_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		appendForEver(dir)
		return
	}
	os.Exit(m.Run())
}

func open(t testing.TB, o Options) *Engine {
	t.Helper()
	if o.Name == "" {
		o.Name = Edge
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func add(t testing.TB, e *Engine, at time.Time, v float64, kv ...string) {
	t.Helper()
	app := e.Storage().Appender(t.Context())
	if _, err := app.Append(0, labels.FromStrings(kv...), at.UnixMilli(), v); err != nil {
		t.Fatal(err)
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

// sink is a Forward.
type sink struct {
	mu  sync.Mutex
	got map[string][]string // tenant → labels of what came
	err error
}

func (s *sink) forward(tenant string, series []remotewrite.Series) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if s.got == nil {
		s.got = map[string][]string{}
	}
	for _, x := range series {
		if len(x.Samples) > 0 {
			s.got[tenant] = append(s.got[tenant], x.Labels.String())
		}
	}
	return nil
}

func (s *sink) has(tenant, want string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.got[tenant] {
		if strings.Contains(l, want) {
			return true
		}
	}
	return false
}

func serve(t *testing.T, engines ...*Engine) *httptest.Server {
	mux := http.NewServeMux()
	for _, e := range engines {
		e.Register(mux, prometheus.NewRegistry())
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv
}

// TestAPI asks as promtool and Grafana do: with Prometheus' own client and the
// engine's URL as the server.
func TestAPI(t *testing.T) {
	reg := prometheus.NewRegistry()
	e := open(t, Options{Registerer: reg, ExternalLabels: labels.FromStrings("regional", "one"),
		Rules: []RuleGroup{{File: "builtin.yaml", Content: []byte("groups:\n- name: g\n  rules:\n  - record: a:b\n    expr: up * 2\n")}}})
	local := open(t, Options{Name: Local, Registerer: reg}) // both in one process and registry
	srv := serve(t, e, local)
	now := time.Now()
	add(t, e, now, 1, "__name__", "up", "site", "paris", "tenant", "acme")

	client, err := api.NewClient(api.Config{Address: srv.URL + "/edge"})
	if err != nil {
		t.Fatal(err)
	}
	v1, ctx := apiv1.NewAPI(client), t.Context()
	val, _, err := v1.Query(ctx, `up{site="paris"}`, now)
	if vec, ok := val.(model.Vector); err != nil || !ok || len(vec) != 1 || vec[0].Value != 1 {
		t.Errorf("query = %v, %v", val, err)
	}
	val, _, err = v1.QueryRange(ctx, "sum(up)", apiv1.Range{Start: now.Add(-time.Minute), End: now, Step: 15 * time.Second})
	if m, ok := val.(model.Matrix); err != nil || !ok || len(m) != 1 {
		t.Errorf("query_range = %v, %v", val, err)
	}
	if s, _, err := v1.Series(ctx, []string{"up"}, now.Add(-time.Minute), now); err != nil || len(s) != 1 || s[0]["tenant"] != "acme" {
		t.Errorf("series = %v, %v", s, err)
	}
	if n, _, err := v1.LabelNames(ctx, nil, now.Add(-time.Minute), now); err != nil || len(n) != 3 {
		t.Errorf("labels = %v, %v", n, err)
	}
	if n, _, err := v1.LabelValues(ctx, "site", nil, now.Add(-time.Minute), now); err != nil || len(n) != 1 {
		t.Errorf("label values = %v, %v", n, err)
	}
	if r, err := v1.Rules(ctx); err != nil || len(r.Groups) != 1 {
		t.Errorf("rules = %+v, %v", r, err)
	}
	if _, err := v1.Targets(ctx); err != nil {
		t.Error(err)
	}
	if _, err := v1.AlertManagers(ctx); err != nil {
		t.Error(err)
	}
	if b, err := v1.Buildinfo(ctx); err != nil || !strings.HasPrefix(b.Version, "3.") {
		t.Errorf("buildinfo = %+v, %v", b, err)
	}
	if _, err := v1.Runtimeinfo(ctx); err != nil {
		t.Error(err)
	}
	if st, err := v1.TSDB(ctx); err != nil || st.HeadStats.NumSeries != 1 {
		t.Errorf("tsdb = %+v, %v", st, err)
	}
	if _, err := v1.Config(ctx); err != nil {
		t.Error(err)
	}
	if _, _, err := v1.Query(ctx, "up{", now); err == nil || !strings.Contains(err.Error(), "bad_data") {
		t.Errorf("a bad query: %v", err)
	}

	body := get(t, srv.URL+"/edge/federate?match[]=up", 200)
	if !strings.Contains(body, `up{regional="one",site="paris",tenant="acme"} 1`) {
		t.Errorf("federate: %s", body)
	}
	get(t, srv.URL+"/edge/federate", 400)
	for _, path := range []string{"/edge/-/ready", "/local/-/healthy", "/edge/", "/local/api/v1/status/tsdb/blocks", "/edge/api/v1/status/walreplay"} {
		get(t, srv.URL+path, 200)
	}
	get(t, srv.URL+"/other/api/v1/query", 404)
}

func get(t *testing.T, url string, want int) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != want {
		t.Errorf("%s: %s, want %d: %.300s", url, resp.Status, want, b)
	}
	return string(b)
}

// TestWriteReceiverIsNotForwarded: scores are written there; they reach the store
// by another way.
func TestWriteReceiverIsNotForwarded(t *testing.T) {
	var s sink
	e := open(t, Options{Forward: s.forward})
	srv := serve(t, e)
	now := time.Now()
	series := []remotewrite.Series{{Labels: labels.FromStrings("__name__", fleet.MetricSiteScore, "site", "paris"), Samples: []remotewrite.Sample{{T: now.UnixMilli(), V: 88}}}}
	for ct, body := range map[string][]byte{remotewrite.ContentTypeV2: remotewrite.EncodeV2(series), remotewrite.ContentTypeV1: remotewrite.EncodeV1(series)} {
		req, _ := http.NewRequest(http.MethodPost, srv.URL+"/edge/api/v1/write", bytes.NewReader(body))
		req.Header.Set("Content-Type", ct)
		req.Header.Set("Content-Encoding", "snappy")
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode/100 != 2 {
			t.Fatalf("%s: %v, %v", ct, resp, err)
		}
		resp.Body.Close()
	}
	vec, err := e.Query(t.Context(), fleet.MetricSiteScore, now)
	if err != nil || len(vec) != 1 || vec[0].F != 88 {
		t.Errorf("query = %v, %v", vec, err)
	}
	if len(s.got) != 0 {
		t.Errorf("forwarded: %v", s.got)
	}
}

func TestRuleResultsAreForwarded(t *testing.T) {
	var s sink
	alerts := make(chan []byte, 10)
	am := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		select {
		case alerts <- b:
		default:
		}
	}))
	defer am.Close()
	e := open(t, Options{
		Forward: s.forward, ExternalLabels: labels.FromStrings("regional", "one", "site", "not-overwritten"),
		EvaluationInterval: 100 * time.Millisecond, Alertmanagers: []string{am.URL},
		Rules: []RuleGroup{{File: "r.yaml", Content: []byte(`
groups:
- name: g
  rules:
  - record: site:up:sum
    expr: sum by (tenant, site) (up)
  - record: fleet:up:sum
    expr: sum(up)
  - alert: Down
    expr: up == 0
`)}},
	})
	add(t, e, time.Now(), 0, "__name__", "up", "site", "paris", "tenant", "acme")
	testkit.EventuallyTrue(t, "the results with a tenant go to it", func() bool {
		return s.has("acme", `{__name__="site:up:sum", regional="one", site="paris", tenant="acme"}`)
	})
	testkit.EventuallyTrue(t, "the others go to the platform", func() bool {
		return s.has(fleet.PlatformTenant, `{__name__="fleet:up:sum", regional="one", site="not-overwritten"}`)
	})
	var got []map[string]any
	if err := json.Unmarshal(<-alerts, &got); err != nil || len(got) == 0 || !strings.Contains(fmt.Sprint(got[0]["labels"]), "Down") {
		t.Errorf("alert: %v, %v", got, err)
	}

	// A queue that takes nothing does not stop the rules.
	s.mu.Lock()
	s.err = io.ErrShortWrite
	s.mu.Unlock()
	testkit.EventuallyTrue(t, "failures are counted", func() bool { return e.Status().ForwardErrors > 0 })
	if vec, err := e.Query(t.Context(), "fleet:up:sum", time.Now()); err != nil || len(vec) != 1 {
		t.Errorf("query = %v, %v", vec, err)
	}
}

func TestSetRules(t *testing.T) {
	if _, err := New(Options{Name: Edge, Dir: t.TempDir(), Rules: []RuleGroup{{File: "bad.yaml", Content: []byte("groups:\n- name: g\n  rules:\n  - record: a\n    expr: sum(\n")}}}); err == nil || !strings.Contains(err.Error(), "bad.yaml") {
		t.Errorf("a bad rule: %v", err)
	}
	one := []byte("groups:\n- name: one\n  rules:\n  - {record: x, expr: vector(1)}\n")
	e := open(t, Options{Rules: []RuleGroup{{File: "a", Content: one}}})
	refused, err := e.SetRules([]RuleGroup{{File: "a", Content: []byte("groups: nonsense")}, {File: "b", Content: one}})
	if err != nil || len(refused) != 1 || refused[0].File != "a" {
		t.Errorf("nonsense: %v, %v", refused, err)
	}
	if g := e.rules.RuleGroups(); len(g) != 1 || g[0].File() != "b" {
		t.Errorf("%v beside nonsense, want b", g)
	}
	if refused, err := e.SetRules(nil); err != nil || len(refused) != 0 || len(e.rules.RuleGroups()) != 0 {
		t.Errorf("%v, %v, %d groups", err, refused, len(e.rules.RuleGroups()))
	}
}

func TestLocalScrapes(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "answer 42") }))
	defer target.Close()
	var s sink
	e := open(t, Options{Name: Local, Forward: s.forward, Tenant: fleet.PlatformTenant, ExternalLabels: labels.FromStrings("regional", "one"),
		ScrapeConfigs: []byte("- job_name: roles\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n  static_configs:\n  - targets: [" + strings.TrimPrefix(target.URL, "http://") + "]\n    labels: {tenant: acme}\n")})
	testkit.EventuallyTrue(t, "the target is scraped", func() bool {
		vec, err := e.Query(t.Context(), `answer{job="roles"}`, time.Now())
		return err == nil && len(vec) == 1 && vec[0].F == 42
	})
	testkit.EventuallyTrue(t, "and forwarded as the platform's", func() bool { return s.has(fleet.PlatformTenant, `__name__="answer"`) })
	if s.has("acme", "answer") {
		t.Error("a label chose the tenant of the local engine")
	}
	if e.Status().Targets != 1 {
		t.Errorf("status %+v", e.Status())
	}
	if _, err := New(Options{Name: Local, Dir: t.TempDir(), ScrapeConfigs: []byte("- job_nam: x\n")}); err == nil || !strings.Contains(err.Error(), "job_nam") {
		t.Errorf("a bad scrape config: %v", err)
	}
}

func TestOutOfOrderWindow(t *testing.T) {
	e := open(t, Options{OutOfOrderWindow: 48 * time.Hour})
	now := time.Now()
	add(t, e, now, 1, "__name__", "x")
	add(t, e, now.Add(-24*time.Hour), 2, "__name__", "x")
	if vec, err := e.Query(t.Context(), "x", now.Add(-24*time.Hour)); err != nil || len(vec) != 1 || vec[0].F != 2 {
		t.Errorf("query = %v, %v", vec, err)
	}
}

// A stop leaves a snapshot of the head; a damaged one, or none, only takes longer.
func TestRestartKeepsSamples(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	o := Options{Dir: dir, OutOfOrderWindow: time.Hour}
	e := open(t, o)
	for i := range 100 {
		add(t, e, now.Add(time.Duration(i)*time.Second), float64(i), "__name__", "x")
	}
	add(t, e, now.Add(-time.Minute), 7, "__name__", "x") // late: it is in the other log
	for i, harm := range []func(file string) error{
		func(string) error { return nil },
		func(file string) error { return os.Truncate(file, 100) },
		func(file string) error { return os.WriteFile(file, bytes.Repeat([]byte{0xa5}, 40<<10), 0o600) },
		func(file string) error { return os.RemoveAll(filepath.Dir(file)) },
	} {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil || e.Ready() == nil {
			t.Errorf("closed twice: %v, ready %v", err, e.Ready())
		}
		snapshots, err := filepath.Glob(filepath.Join(dir, "chunk_snapshot.*", "*"))
		if err != nil || len(snapshots) != 1 {
			t.Fatalf("snapshots: %v, %v", snapshots, err)
		}
		if err := harm(snapshots[0]); err != nil {
			t.Fatal(err)
		}
		e = open(t, o)
		if vec, err := e.Query(t.Context(), "count_over_time(x[10m])", now.Add(2*time.Minute)); err != nil || len(vec) != 1 || vec[0].F != float64(101+i) {
			t.Errorf("after stop %d: %v, %v", i, vec, err)
		}
		add(t, e, now.Add(time.Duration(100+i)*time.Second), 1, "__name__", "x") // only in the log
	}
}

// appendForEver is the child of TestKillKeepsAcknowledged: it writes a line for
// each sample that was committed.
func appendForEver(dir string) {
	e, err := New(Options{Name: Edge, Dir: dir, OutOfOrderWindow: time.Hour})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	for i := int64(1); ; i++ {
		app := e.Storage().Appender(context.Background())
		if _, err := app.Append(0, labels.FromStrings("__name__", "x"), i*1000, float64(i)); err != nil {
			fmt.Println("error", err)
			return
		}
		if err := app.Commit(); err != nil {
			fmt.Println("error", err)
			return
		}
		fmt.Println(i)
	}
}

func TestKillKeepsAcknowledged(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acked := 0
	lines := bufio.NewScanner(out)
	for acked < 5000 && lines.Scan() {
		if _, err := fmt.Sscanf(lines.Text(), "%d", &acked); err != nil {
			t.Fatal(lines.Text())
		}
	}
	if err := cmd.Process.Kill(); err != nil { // SIGKILL, while it writes
		t.Fatal(err)
	}
	for lines.Scan() { // what it said before it died counts too
		if n := 0; lines.Text() != "" {
			if _, err := fmt.Sscanf(lines.Text(), "%d", &n); err == nil && n == acked+1 {
				acked = n
			}
		}
	}
	_ = cmd.Wait()
	e := open(t, Options{Dir: dir, OutOfOrderWindow: time.Hour})
	vec, err := e.Query(t.Context(), "count_over_time(x[1w])", time.UnixMilli(int64(acked)*1000))
	if err != nil || len(vec) != 1 || int(vec[0].F) < acked {
		t.Errorf("acknowledged %d samples, after kill -9: %v, %v", acked, vec, err)
	}
	t.Logf("acknowledged %d, kept %v", acked, vec)
}
