package obs

import (
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

func get(t *testing.T, o *Ops, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	o.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	b, _ := io.ReadAll(w.Body)
	return w.Code, string(b)
}

func TestOps(t *testing.T) {
	o := NewOps("regional", NewRegistry("regional"))
	var broken error = errors.New("replaying the WAL")
	o.Ready("edge", func() error { return broken })
	o.Status("spool", func() any { return map[string]int{"pending": 7} })

	if code, body := get(t, o, "/-/ready"); code != 503 || !strings.Contains(body, "edge: replaying the WAL") {
		t.Errorf("ready: %d %q", code, body)
	}
	broken = nil
	if code, _ := get(t, o, "/-/ready"); code != 200 {
		t.Errorf("ready: %d", code)
	}
	if code, body := get(t, o, "/metrics"); code != 200 || !strings.Contains(body, `muster_role_info{role="regional"`) {
		t.Errorf("metrics: %d", code)
	}
	for _, path := range []string{"/debug/", "/debug/status"} {
		if code, body := get(t, o, path); code != 200 || !strings.Contains(body, "pending") {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	if code, _ := get(t, o, "/debug/pprof/cmdline"); code != 200 {
		t.Errorf("pprof: %d", code)
	}
}

func TestLoggerOptions(t *testing.T) {
	for _, o := range []LogOptions{{Level: "loud"}, {Format: "xml"}} {
		if _, err := NewLogger(io.Discard, o); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%+v: err = %v", o, err)
		}
	}
}

func TestWithoutProcess(t *testing.T) {
	own, library := NewRegistry("x"), prometheus.NewRegistry()
	library.MustRegister(collectors.NewGoCollector(), prometheus.NewCounter(prometheus.CounterOpts{Name: "library_total"}))
	o := NewOps("x", prometheus.Gatherers{own, WithoutProcess(library)})
	if code, body := get(t, o, "/metrics"); code != 200 || !strings.Contains(body, "library_total") || !strings.Contains(body, "go_goroutines") {
		t.Errorf("%d\n%s", code, body)
	}
}
