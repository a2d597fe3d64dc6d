package cortex

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"muster.dev/muster/internal/testkit"
)

const childEnv = "MUSTER_TEST_CORTEX_CHILD"

// TestMain lets the test binary be Cortex itself, for the tests that kill it.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
		return
	}
	os.Exit(m.Run())
}

func child(dir string) {
	debug.SetGCPercent(GCPercent) // as the aggregator role does
	c, err := New(Options{DataDir: dir, Listen: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(c.URL())
	go func() { // dies with its parent
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stderr, c.Run(context.Background()))
}

// startLimit is how long Cortex may take until it is ready.
const startLimit = 3 * time.Minute

// start runs Cortex in this process and stops it when the returned function is
// called, or at the end of the test.
func start(t *testing.T, o Options) (*Cortex, func()) {
	t.Helper()
	o.Listen = "127.0.0.1:0"
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c.stopWithin = time.Minute // on a busy machine
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stopped := false
	stop := func() {
		t.Helper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	testkit.EventuallyWithin(t, "Cortex is ready", startLimit, c.Ready)
	return c, stop
}

type sample struct {
	series string
	at     time.Time
	value  float64
}

func pushV1(base, tenant string, samples ...sample) (*http.Response, error) {
	var req prompb.WriteRequest
	for _, s := range samples {
		req.Timeseries = append(req.Timeseries, prompb.TimeSeries{
			Labels:  []prompb.Label{{Name: "__name__", Value: "test_metric"}, {Name: "series", Value: s.series}},
			Samples: []prompb.Sample{{Timestamp: s.at.UnixMilli(), Value: s.value}},
		})
	}
	body, err := req.Marshal()
	if err != nil {
		return nil, err
	}
	return push(base, tenant, "application/x-protobuf", "0.1.0", body)
}

func pushV2(base, tenant string, samples ...sample) (*http.Response, error) {
	sym := writev2.NewSymbolTable()
	var req writev2.Request
	for _, s := range samples {
		refs := []uint32{sym.Symbolize("__name__"), sym.Symbolize("test_metric"), sym.Symbolize("series"), sym.Symbolize(s.series)}
		req.Timeseries = append(req.Timeseries, writev2.TimeSeries{
			LabelsRefs: refs,
			Samples:    []writev2.Sample{{Timestamp: s.at.UnixMilli(), Value: s.value}},
			Metadata:   writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_GAUGE, HelpRef: sym.Symbolize("A test.")},
		})
	}
	req.Symbols = sym.Symbols()
	body, err := req.Marshal()
	if err != nil {
		return nil, err
	}
	return push(base, tenant, "application/x-protobuf;proto=io.prometheus.write.v2.Request", "2.0.0", body)
}

func push(base, tenant, contentType, version string, body []byte) (*http.Response, error) {
	r, err := http.NewRequest(http.MethodPost, base+"/api/v1/push", bytes.NewReader(snappy.Encode(nil, body)))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Content-Encoding", "snappy")
	r.Header.Set("X-Prometheus-Remote-Write-Version", version)
	if tenant != "" {
		r.Header.Set("X-Scope-OrgID", tenant)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode/100 != 2 {
		return resp, fmt.Errorf("push: %s: %s", resp.Status, text)
	}
	return resp, nil
}

// query returns the value of each series by its label "series".
func query(base, tenant, expr string, at time.Time) (map[string]float64, error) {
	r, err := http.NewRequest(http.MethodGet, base+"/prometheus/api/v1/query?"+url.Values{
		"query": {expr}, "time": {strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)},
	}.Encode(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("X-Scope-OrgID", tenant)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return nil, fmt.Errorf("query: %s: %w", resp.Status, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("query: %s: %s", resp.Status, out.Error)
	}
	got := map[string]float64{}
	for _, s := range out.Data.Result {
		v, err := strconv.ParseFloat(s.Value[1].(string), 64)
		if err != nil {
			return nil, err
		}
		got[s.Metric["series"]] = v
	}
	return got, nil
}

func wantValues(t *testing.T, base, tenant string, at time.Time, want map[string]float64) {
	t.Helper()
	testkit.Eventually(t, "the values are there", func() error {
		got, err := query(base, tenant, "test_metric", at)
		if err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
			err = fmt.Errorf("tenant %s has %v, want %v", tenant, got, want)
		}
		return err
	})
}

func TestPushQueryIsolationBackfillRestart(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	dayAgo := now.Add(-24 * time.Hour)
	c, stop := start(t, Options{DataDir: dir})

	// Both versions of remote write are taken, and two tenants don't see each other.
	resp, err := pushV2(c.URL(), "acme", sample{"a", now, 1}, sample{"b", now, 2})
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get("X-Prometheus-Remote-Write-Samples-Written"); resp.StatusCode != http.StatusNoContent || got != "2" {
		t.Errorf("remote write 2.0: %s, %q samples written", resp.Status, got)
	}
	if resp, err = pushV1(c.URL(), "globex", sample{"a", now, 7}); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("remote write 1.0: %v", err)
	}
	acme, globex := map[string]float64{"a": 1, "b": 2}, map[string]float64{"a": 7}
	wantValues(t, c.URL(), "acme", now, acme)
	wantValues(t, c.URL(), "globex", now, globex)
	if got, err := query(c.URL(), "initech", "test_metric", now); err != nil || len(got) != 0 {
		t.Errorf("a third tenant sees %v, %v", got, err)
	}
	if resp, err := pushV2(c.URL(), "", sample{"a", now, 1}); err == nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a push without a tenant: %v", err)
	}

	// A gap of a day is filled after newer samples came; what is older than the window is not.
	if _, err := pushV2(c.URL(), "acme", sample{"a", dayAgo, 0.5}); err != nil {
		t.Errorf("a sample of yesterday: %v", err)
	}
	yesterday := map[string]float64{"a": 0.5}
	wantValues(t, c.URL(), "acme", dayAgo, yesterday)
	if resp, err := pushV2(c.URL(), "acme", sample{"a", now.Add(-72 * time.Hour), 0.1}); err == nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a sample of three days ago: %v", err)
	}

	// Cortex' parts drop each other without this.
	own, err := c.app.Cfg.Querier.StoreGatewayClient.TLS.GetTLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	stranger := own.Clone()
	stranger.Certificates = nil
	for what, creds := range map[string]credentials.TransportCredentials{"a part": credentials.NewTLS(own), "without TLS": insecure.NewCredentials(), "without a certificate": credentials.NewTLS(stranger)} {
		conn, err := grpc.NewClient(c.app.Server.GRPCListenAddr().String(), grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		health, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if what == "a part" && (err != nil || health.Status != grpc_health_v1.HealthCheckResponse_SERVING) || what != "a part" && err == nil {
			t.Errorf("gRPC health, %s: %v, %v", what, health, err)
		}
	}

	mfs, err := c.Gatherer().Gather()
	if err != nil {
		t.Error(err)
	}
	seen := map[string]bool{}
	for _, f := range mfs {
		seen[f.GetName()] = true
	}
	if !seen["cortex_ingester_memory_series"] || seen["go_goroutines"] || seen["process_cpu_seconds_total"] {
		t.Errorf("gathered %d families: cortex_ingester_memory_series %v, go_goroutines %v", len(mfs), seen["cortex_ingester_memory_series"], seen["go_goroutines"])
	}
	if _, err := New(Options{DataDir: t.TempDir(), Listen: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), "already runs") {
		t.Errorf("a second one in this process: %v", err)
	}

	stop()
	c, _ = start(t, Options{DataDir: dir})
	wantValues(t, c.URL(), "acme", now, acme)
	wantValues(t, c.URL(), "globex", now, globex)
	wantValues(t, c.URL(), "acme", dayAgo, yesterday)
}

func TestSeriesLimitIsRefusedWithAReason(t *testing.T) {
	c, _ := start(t, Options{DataDir: t.TempDir(), Limits: Limits{SeriesPerTenant: 2}})
	now := time.Now()
	if _, err := pushV2(c.URL(), "acme", sample{"a", now, 1}, sample{"b", now, 1}); err != nil {
		t.Fatal(err)
	}
	resp, err := pushV2(c.URL(), "acme", sample{"c", now, 1})
	if err == nil || resp.StatusCode/100 != 4 || !strings.Contains(err.Error(), "per-user series limit") {
		t.Errorf("a third series: %v", err)
	}
	if _, err := pushV2(c.URL(), "globex", sample{"a", now, 1}); err != nil {
		t.Errorf("another tenant suffers: %v", err)
	}
}

// TestDenseSeries: a series with a thousand samples a second makes of a query that its
// text calls cheap one that Cortex would finish long after its timeout.
func TestDenseSeries(t *testing.T) {
	c, _ := start(t, Options{DataDir: t.TempDir()})
	end := time.Now().Truncate(time.Second)
	var dense []sample
	for i := range 10_000 {
		dense = append(dense, sample{"a", end.Add(time.Duration(i-10_000) * time.Millisecond), 1})
	}
	for len(dense) > 0 {
		if _, err := pushV2(c.URL(), "acme", dense[:1000]...); err != nil {
			t.Fatal(err)
		}
		dense = dense[1000:]
	}
	ask := func(steps int) (int, string) {
		t.Helper()
		u := fmt.Sprintf("%s/prometheus/api/v1/query_range?query=sum_over_time(test_metric[10s])&start=%.3f&end=%.3f&step=0.001",
			c.URL(), float64(end.UnixMilli()-int64(steps))/1000, float64(end.UnixMilli())/1000)
		req, err := http.NewRequest(http.MethodGet, u, nil)
		if err != nil {
			t.Fatal(err)
		}
		code, body := answerTo(t, req)
		return code, string(body[:min(len(body), 300)])
	}
	testkit.Eventually(t, "ten steps", func() error {
		if status, body := ask(10); status != http.StatusOK || !strings.Contains(body, "1") {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	testkit.Eventually(t, "11,000 steps of 10,000 samples", func() error {
		status, body := ask(10_999)
		if status == http.StatusServiceUnavailable { // a busy machine has no time for it
			return errors.New(body)
		}
		if status != http.StatusUnprocessableEntity || !strings.Contains(body, "too many samples for this range") {
			t.Fatalf("%d %s", status, body)
		}
		return nil
	})
}

// TestOnlyPushesAndQueriesAreServed: Cortex' admin pages, some of which work by GET, are
// shut, and so is everything that nobody thought of.
func TestOnlyPushesAndQueriesAreServed(t *testing.T) {
	c, _ := start(t, Options{DataDir: t.TempDir()})
	var all atomic.Int64
	far := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { all.Add(1) }))
	defer far.Close()
	e, err := NewExternal(ExternalOptions{URL: far.URL, Listen: "127.0.0.1:0", CheckInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	testkit.Eventually(t, "the external one is ready", e.Ready)
	all.Store(0)
	ask := func(base, method, path string, header ...string) int {
		req, err := http.NewRequest(method, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Scope-OrgID", "acme")
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		tr := &http.Transport{}
		defer tr.CloseIdleConnections()
		resp, err := tr.RoundTrip(req) // no redirects
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	shut := []string{"/", "/config", "/services", "/runtime_config", "/memberlist", "/debug/pprof/", "/debug/fgprof",
		"/distributor/ring", "/distributor/all_user_stats", "/distributor/ha_tracker", "/all_user_stats", "/api/v1/user_stats",
		"/ring", "/store-gateway/ring", "/compactor/ring", "/ingester/ring", "/ingester/mode", "/ingester/renewTokens", "/ingester/all_user_stats",
		"/ingester/push", "/push", "/api/prom/push", "/api/v1/otlp/v1/metrics", "/purger/delete_tenant", "/api/v1/user-overrides",
		"/prometheus/api/v1/label/a/b/values", "/prometheus/api/v1/label/../values", "//ingester/mode", "/api/v1/push/../../../ingester/mode", "/%69ngester/mode",
		"/ingester/flush", "/flush", "/ingester/shutdown", "/shutdown"}
	for _, base := range []string{c.URL(), "http://" + e.Addr()} {
		for _, path := range shut {
			for _, method := range []string{"GET", "POST", "DELETE", "HEAD"} {
				if code := ask(base, method, path); code/100 != 4 {
					t.Errorf("%s %s%s: %d", method, base, path, code)
				}
			}
		}
		if code := ask(base, "DELETE", "/prometheus/api/v1/series?match[]=up"); code != http.StatusMethodNotAllowed {
			t.Errorf("DELETE series: %d", code)
		}
		for _, header := range [][]string{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}} {
			if code := ask(base, "POST", "/api/v1/push", header...); code != http.StatusForbidden {
				t.Errorf("a cross-origin POST with %v: %d", header, code)
			}
		}
	}
	if n := all.Load(); n != 0 {
		t.Errorf("%d requests reached the external Cortex", n)
	}
	for _, path := range []string{"/ready", "/metrics", "/prometheus/api/v1/status/buildinfo", "/prometheus/api/v1/labels", "/prometheus/api/v1/label/site/values",
		"/prometheus/api/v1/query?query=up", "/prometheus/api/v1/query_exemplars?query=up&start=1&end=2", "/prometheus/api/v1/rules"} {
		if code := ask(c.URL(), "GET", path); code != http.StatusOK {
			t.Errorf("GET %s: %d", path, code)
		}
	}
	if err := c.Ready(); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What Grafana asks before and beside queries has the form that it reads: a list that is empty and
// not null, and errors that are told as Prometheus tells them.
func TestWhatGrafanaAsks(t *testing.T) {
	c, _ := start(t, Options{DataDir: t.TempDir()})
	now := time.Now()
	req := prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:    []prompb.Label{{Name: "__name__", Value: "test_metric"}, {Name: "series", Value: "a"}},
		Samples:   []prompb.Sample{{Timestamp: now.UnixMilli(), Value: 7}},
		Exemplars: []prompb.Exemplar{{Labels: []prompb.Label{{Name: "trace_id", Value: "abc"}}, Timestamp: now.UnixMilli(), Value: 7}},
	}}}
	body, err := req.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := push(c.URL(), "acme", "application/x-protobuf", "0.1.0", body); err != nil {
		t.Fatalf("an exemplar, which is not kept, has its sample refused: %v", err)
	}
	wantValues(t, c.URL(), "acme", now, map[string]float64{"a": 7})
	at := func(d time.Duration) string {
		return strconv.FormatFloat(float64(now.Add(d).UnixMilli())/1000, 'f', -1, 64)
	}
	exemplars := func(query string) string {
		return "query_exemplars?" + url.Values{"query": {query}, "start": {at(-time.Hour)}, "end": {at(time.Hour)}}.Encode()
	}
	const none, noGroups = `{"status":"success","data":[]}`, `{"status":"success","data":{"groups":[]}}`
	for _, x := range []struct {
		method, path string
		code         int
		want         string // JSON, some fields of it
	}{
		{"GET", "status/buildinfo", http.StatusOK, `{"status":"success","data":{"version":"","revision":"","goVersion":"` + runtime.Version() + `"}}`}, // docs/grafana.md says so of the version
		{"GET", "rules", http.StatusOK, noGroups},
		{"GET", "rules?type=alert", http.StatusOK, noGroups},
		{"GET", "rules?type=record&exclude_alerts=true", http.StatusOK, noGroups},
		{"GET", exemplars("test_metric"), http.StatusOK, none},
		{"POST", exemplars("test_metric"), http.StatusOK, none},
		{"POST", exemplars(`histogram_quantile(0.9, sum by (le) (rate(test_metric[5m])))`), http.StatusOK, none},
		{"POST", exemplars("nothing_here"), http.StatusOK, none},
		{"POST", exemplars("sum("), http.StatusBadRequest, `{"status":"error","errorType":"bad_data"}`},
		{"POST", "query_exemplars?query=up&start=yesterday&end=2", http.StatusBadRequest, `{"status":"error","errorType":"bad_data"}`},
		{"POST", "query_exemplars?query=up&start=2&end=1", http.StatusBadRequest, `{"status":"error","errorType":"bad_data"}`},
	} {
		code, got := grafanaAsks(t, c.URL(), x.method, x.path)
		var want map[string]any
		if err := json.Unmarshal([]byte(x.want), &want); err != nil {
			t.Fatal(err)
		}
		if code != x.code {
			t.Errorf("%s %s: %d, want %d: %v", x.method, x.path, code, x.code, got)
		}
		if data, ok := want["data"].(map[string]any); ok {
			of, _ := got["data"].(map[string]any)
			for k, v := range data {
				if is, there := of[k]; !there || !reflect.DeepEqual(is, v) {
					t.Errorf("%s %s: data.%s is %v, want %v", x.method, x.path, k, is, v)
				}
			}
			delete(want, "data")
		}
		for k, v := range want {
			if !reflect.DeepEqual(got[k], v) {
				t.Errorf("%s %s: %s is %v, want %v", x.method, x.path, k, got[k], v)
			}
		}
		if text, _ := got["error"].(string); (x.code != http.StatusOK) != (text != "") {
			t.Errorf("%s %s: the error is %q", x.method, x.path, text)
		}
	}
}

// grafanaAsks asks as Grafana's data source does: parameters of a POST are a form.
func grafanaAsks(t *testing.T, base, method, path string) (int, map[string]any) {
	t.Helper()
	path, params, _ := strings.Cut(path, "?")
	at, body := base+"/prometheus/api/v1/"+path, ""
	if method == http.MethodPost {
		body = params
	} else {
		at += "?" + params
	}
	r, err := http.NewRequest(method, at, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	code, b := answerTo(t, r)
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Errorf("%s %s: %d %s", method, path, code, b)
	}
	return code, out
}

// answerTo is what tenant acme is answered.
func answerTo(t *testing.T, r *http.Request) (int, []byte) {
	t.Helper()
	r.Header.Set("X-Scope-OrgID", "acme")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b
}

// TestAPartThatEndsEndsTheStore: whatever stops a module, the role must notice, so that
// it is started again.
func TestAPartThatEndsEndsTheStore(t *testing.T) {
	c, err := New(Options{DataDir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(t.Context()) }()
	testkit.EventuallyWithin(t, "Cortex is ready", startLimit, c.Ready)
	c.app.Ingester.StopAsync() // what Cortex' own shutdown page does
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "ingester") {
			t.Errorf("Run ended with %v, which names no part", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the store runs on without its ingester")
	}
}

// runChild starts Cortex as a process of its own and returns its URL.
func runChild(t *testing.T, dir string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	base, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the child said nothing: %v", err)
	}
	base = strings.TrimSpace(base)
	testkit.EventuallyWithin(t, "Cortex is ready", startLimit, func() error {
		resp, err := http.Get(base + "/ready")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			b, _ := io.ReadAll(resp.Body)
			return fmt.Errorf("not ready: %s", b)
		}
		return nil
	})
	return cmd, base
}

// TestKillLosesNothingAcknowledged pushes while Cortex is killed, and counts.
func TestKillLosesNothingAcknowledged(t *testing.T) {
	dir := t.TempDir()
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	next, acked := 0, map[int]bool{} // sample n of each series stands n seconds after begin
	for range 3 {
		cmd, base := runChild(t, dir)
		var pushed atomic.Int64
		results := make(chan map[int]bool, 4)
		first := next
		for w := range 4 {
			go func() {
				ok := map[int]bool{}
				defer func() { results <- ok }()
				for n := first + w; ; n += 4 {
					at := begin.Add(time.Duration(n) * time.Second)
					if _, err := pushV2(base, "acme", sample{"w" + strconv.Itoa(w), at, float64(n)}); err != nil {
						return
					}
					ok[n] = true
					pushed.Add(1)
				}
			}()
		}
		testkit.EventuallyWithin(t, "a thousand pushes", startLimit, func() error {
			if n := pushed.Load(); n < 1000 {
				return fmt.Errorf("%d pushes", n)
			}
			return nil
		})
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		for range 4 {
			for n := range <-results {
				acked[n] = true
				next = max(next, n+1)
			}
		}
		next += 4 - next%4 // the next round's workers write their own series in order
	}

	_, base := runChild(t, dir)
	end := begin.Add(time.Duration(next) * time.Second)
	// Values are positions: their sum proves that these samples are there, and not others.
	counts, err := query(base, "acme", fmt.Sprintf("count_over_time(test_metric[%ds])", next+60), end)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, n := range counts {
		total += int(n)
	}
	lost := 0
	for w := range 4 {
		have, err := rangeOf(base, "acme", fmt.Sprintf(`test_metric{series="w%d"}[%ds]`, w, next+60), end)
		if err != nil {
			t.Fatal(err)
		}
		for n := range acked {
			if n%4 == w && !have[n] {
				lost++
			}
		}
	}
	t.Logf("acknowledged %d samples over 3 kills, found %d (the rest were written but not acknowledged), lost %d", len(acked), total, lost)
	if lost != 0 || total < len(acked) {
		t.Errorf("lost %d of %d acknowledged samples", lost, len(acked))
	}
}

// rangeOf returns the values of the one series of a range selector.
func rangeOf(base, tenant, selector string, at time.Time) (map[int]bool, error) {
	r, err := http.NewRequest(http.MethodGet, base+"/prometheus/api/v1/query?"+url.Values{"query": {selector}, "time": {strconv.FormatInt(at.Unix(), 10)}}.Encode(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("X-Scope-OrgID", tenant)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out struct {
		Error string
		Data  struct{ Result []struct{ Values [][2]any } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return nil, err
	}
	if len(out.Data.Result) != 1 {
		return nil, fmt.Errorf("%s: %d series, %s", selector, len(out.Data.Result), out.Error)
	}
	got := map[int]bool{}
	for _, v := range out.Data.Result[0].Values {
		n, err := strconv.Atoi(v[1].(string))
		if err != nil {
			return nil, err
		}
		got[n] = true
	}
	return got, nil
}

func TestDataDirIsHeldByOneProcess(t *testing.T) {
	dir := t.TempDir()
	runChild(t, dir)
	_, err := New(Options{DataDir: dir, Listen: "127.0.0.1:0"})
	if err == nil || !strings.Contains(err.Error(), "another process (pid ") {
		t.Errorf("err = %v", err)
	}
}

func TestBadOptions(t *testing.T) {
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	for want, o := range map[string]Options{
		"want a path":            {},
		"want HOST:PORT":         {DataDir: t.TempDir(), Listen: "9009"},
		"want a number":          {DataDir: t.TempDir(), Listen: "127.0.0.1:http"},
		"address already in use": {DataDir: t.TempDir(), Listen: strings.TrimPrefix(taken.URL, "http://")},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: err = %v, want %q", o, err, want)
		}
	}
}

func TestExternal(t *testing.T) {
	var ready atomic.Bool
	var gotPath, gotTenant atomic.Value
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/base/ready" {
			if !ready.Load() {
				http.Error(w, "replaying", http.StatusServiceUnavailable)
			}
			return
		}
		gotPath.Store(r.URL.Path)
		gotTenant.Store(r.Header.Get("X-Scope-OrgID"))
	}))
	defer far.Close()
	e, err := NewExternal(ExternalOptions{URL: far.URL + "/base/", Listen: "127.0.0.1:0", CheckInterval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Ready(); err == nil {
		t.Error("ready before the first probe")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	testkit.Eventually(t, "the far one's reason is told", func() error {
		if err := e.Ready(); err == nil || !strings.Contains(err.Error(), "replaying") {
			return fmt.Errorf("Ready() = %v", err)
		}
		return nil
	})
	ready.Store(true)
	testkit.Eventually(t, "the external one is ready", e.Ready)
	if _, err := pushV2("http://"+e.Addr(), "acme", sample{"a", time.Now(), 1}); err != nil {
		t.Error(err)
	}
	if gotPath.Load() != "/base/api/v1/push" || gotTenant.Load() != "acme" {
		t.Errorf("forwarded to %v for tenant %v", gotPath.Load(), gotTenant.Load())
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "cortex:9009", "ftp://x", "http://"} {
		if _, err := NewExternal(ExternalOptions{URL: bad}); err == nil {
			t.Errorf("url %q accepted", bad)
		}
	}
}

// Both have the small interface that the aggregator role needs.
type store interface {
	Run(context.Context) error
	Ready() error
	Addr() string
	URL() string
	Status() any
}

var _, _ store = (*Cortex)(nil), (*External)(nil)

// Names in UTF-8, which regionals take, are not refused by the store.
func TestNamesInUTF8(t *testing.T) {
	c, _ := start(t, Options{DataDir: t.TempDir()})
	base, now := c.URL(), time.Now()
	req := prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:  []prompb.Label{{Name: "__name__", Value: "http.server.requêtes"}, {Name: "k8s.pod.name", Value: "web-1"}, {Name: "series", Value: "a"}},
		Samples: []prompb.Sample{{Timestamp: now.UnixMilli(), Value: 7}},
	}}}
	body, err := req.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := push(base, "acme", "application/x-protobuf", "0.1.0", body); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the sample is found", func() error {
		got, err := query(base, "acme", `{"http.server.requêtes", "k8s.pod.name"="web-1"}`, now.Add(time.Second))
		if err == nil && got["a"] != 7 {
			err = fmt.Errorf("found %v", got)
		}
		return err
	})
}
