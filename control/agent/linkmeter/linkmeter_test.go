package linkmeter_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"muster.dev/muster/control/agent/linkmeter"
)

// gather returns what the meter says, by name and labels' values.
func gather(t *testing.T, m *linkmeter.Meter) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			key := strings.TrimPrefix(f.GetName(), "muster_agent_link_")
			for _, l := range x.GetLabel() {
				key += " " + l.GetValue()
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				out[key] = x.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				out[key] = x.GetGauge().GetValue()
			default:
				out[key] = float64(x.GetSummary().GetSampleCount())
			}
		}
	}
	return out
}

func TestMeasuresConnectionsAndRequests(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/api/v1/logs":
			w.WriteHeader(http.StatusTooManyRequests)
		case "/software/a":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	m := linkmeter.New()
	var dialer net.Dialer
	client := &http.Client{Transport: m.Transport(&http.Transport{DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := m.Dial(ctx, linkmeter.Requests, func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, network, addr) })
		if err != nil {
			return nil, err
		}
		conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // of the test's own server
		began := time.Now()
		err = conn.HandshakeContext(ctx)
		m.Handshake(linkmeter.Requests, time.Since(began), err)
		return conn, err
	}})}
	body := strings.Repeat("x", 100_000)
	for _, path := range []string{"/api/v1/push", "/api/v1/push", "/api/v1/logs", "/software/a"} {
		resp, err := client.Post(server.URL+path, "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	got := gather(t, m)
	for key, want := range map[string]float64{
		"connects_total requests": 1, "connect_errors_total requests": 0,
		"request_seconds push": 2, "request_seconds logs": 1, "request_seconds software": 1,
		"request_errors_total refused logs": 1, "request_errors_total failed software": 1, "request_errors_total unreachable push": 0,
	} {
		if v, ok := got[key]; !ok || v != want {
			t.Errorf("%s: %v (%v), want %v", key, v, ok, want)
		}
	}
	if got["sent_bytes_total requests"] < 400_000 || got["received_bytes_total requests"] < 500 || got["handshake_seconds requests"] <= 0 {
		t.Errorf("bytes and handshake: %v", got)
	}
	if runtime.GOOS == "linux" {
		if got["round_trip_seconds requests"] <= 0 || got["segments_sent_total requests"] < 5 || got["delivery_rate_bytes_per_second requests"] <= 0 {
			t.Errorf("the kernel's: %v", got)
		}
	}

	// What is closed goes on to count, and has no round trip any more.
	client.CloseIdleConnections()
	server.Close()
	if _, err := client.Get(server.URL + "/api/v1/push"); err == nil {
		t.Fatal("a closed server answers")
	}
	after := gather(t, m)
	if _, ok := after["round_trip_seconds requests"]; ok || after["segments_sent_total requests"] < got["segments_sent_total requests"] {
		t.Errorf("after the connection's end: %v", after)
	}
	if after["connect_errors_total requests"] != 1 || after["request_errors_total unreachable push"] != 1 {
		t.Errorf("a server that is away: %v", after)
	}
	// Nor is it the link's fault when somebody gives up.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/v1/push", nil)
	if _, err := client.Do(req); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if now := gather(t, m); now["request_seconds push"] != after["request_seconds push"] {
		t.Errorf("a request that was given up counts: %v", now)
	}
}

// TestMetricsAreDocumented holds the reference to the code.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/link-metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	ch := make(chan *prometheus.Desc, 100)
	linkmeter.New().Describe(ch)
	close(ch)
	for d := range ch {
		name, _, _ := strings.Cut(strings.SplitN(d.String(), `"`, 3)[1], `"`)
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/reference/link-metrics.md does not have %s", name)
		}
	}
}
