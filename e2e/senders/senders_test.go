package senders

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/health"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/health/engine"
	"muster.dev/muster/health/status"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/realregional"
	"muster.dev/muster/internal/testkit/senders"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/loadtest/simsite"
)

// shelf is an inventory of one site.
type shelf struct{ snap *inventory.Snapshot }

func (s shelf) Ready() error                         { return nil }
func (s shelf) Snapshot() *inventory.Snapshot        { return s.snap }
func (s shelf) Changed() <-chan struct{}             { return nil }
func (s shelf) ForgetSites([]fleet.SiteID)           {}
func (s shelf) ReportSites([]status.SiteReport)      {}
func (s shelf) ReportPolicies([]status.PolicyReport) {}

// sender is a program that pushes a site's metrics with the site's certificate.
type sender struct {
	build func() (string, error)
	// args of the program, with the sample configuration; env is added to its environment.
	args func(t *testing.T, p place) (args, env []string)
}

// place is where a sender pushes, and from where.
type place struct{ push, tls, exporter string }

var stock = map[string]sender{
	"collector": {build: senders.Collector, args: func(_ *testing.T, p place) (args, env []string) {
		return []string{"--config", sample("otel-collector", "config.yaml")}, []string{"MUSTER_PUSH=" + p.push, "MUSTER_TLS=" + p.tls, "NODE_EXPORTER=" + p.exporter}
	}},
	"prometheus": {build: senders.Prometheus, args: func(t *testing.T, p place) (args, env []string) {
		b, err := os.ReadFile(sample("prometheus-agent", "prometheus.yml"))
		if err != nil {
			t.Fatal(err)
		}
		config := string(b)
		for of, is := range map[string]string{"https://regional.example.com:7443/api/v1/push": p.push, "/var/lib/muster-site": p.tls, "127.0.0.1:9100": p.exporter} {
			if !strings.Contains(config, of) {
				t.Fatalf("the sample has no %s", of)
			}
			config = strings.ReplaceAll(config, of, is)
		}
		file := filepath.Join(t.TempDir(), "prometheus.yml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{"--agent", "--config.file", file, "--storage.agent.path", t.TempDir(), "--web.listen-address", "127.0.0.1:0"}, nil
	}},
}

func sample(path ...string) string {
	return filepath.Join(append([]string{"..", "..", "deploy", "samples"}, path...)...)
}

// TestStockSenders: a site that a sample configuration has pushed is on line and green by its
// pushes alone, a fault there is named, and it is off line when they stop.
func TestStockSenders(t *testing.T) {
	if os.Getenv("MUSTER_SENDERS") == "" {
		t.Skip("run make test-senders: it builds an OpenTelemetry Collector and a Prometheus")
	}
	for name, sender := range stock {
		t.Run(name, func(t *testing.T) { testSender(t, sender) })
	}
}

func testSender(t *testing.T, s sender) {
	site, err := simsite.New(simsite.Options{Name: "stock", Nodes: 1, Pods: 20, Series: 4000})
	if err != nil {
		t.Fatal(err)
	}
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req.URL.Path = "/node-exporter" + req.URL.Path
		site.Handler().ServeHTTP(w, req)
	}))
	defer exporter.Close()

	reg := realregional.Start(t, "one", 0)
	mux := http.NewServeMux()
	reg.Edge.Register(mux, prometheus.NewRegistry())
	mux.Handle("GET "+wire.LivePath, reg.Gateway.LiveHandler())
	regional := httptest.NewServer(mux)
	defer regional.Close()
	id := fleet.SiteID{Tenant: "acme", Name: "stock"}
	inv := shelf{inventory.NewSnapshot(1, []*inventory.Site{{ID: id, Region: "eu", Phase: fleet.PhaseApproved, CreatedAt: time.Now().Add(-time.Hour)}}, nil, nil)}
	e, err := engine.New(engine.Options{
		Inventory: inv, Status: inv, Shipped: defaults.Model(), Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		Regionals: []engine.Regional{{Name: "one", URL: regional.URL}}, Tick: 2 * time.Second, PushPatience: 40 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = e.Run(ctx) }()
	defer func() { cancel(); <-done }()

	stop := run(t, s, reg, id, strings.TrimPrefix(exporter.URL, "http://"))
	until := func(what string, ok func(*engine.Site) bool) {
		t.Helper()
		var s *engine.Site
		defer func() {
			if t.Failed() && s != nil && s.State != nil {
				x, _ := health.Explain(s.State)
				var b bytes.Buffer
				_ = x.WriteText(&b, true)
				t.Log(b.String())
			}
		}()
		began := time.Now()
		for ; time.Since(began) < 4*time.Minute; time.Sleep(time.Second) {
			if v := e.View(); v != nil {
				if s = v.Find(id.Tenant, id.Name); s != nil && s.State != nil && ok(s) {
					t.Logf("figure: %s after %s: %s", what, time.Since(began).Round(time.Second), first(s))
					return
				}
			}
		}
		t.Fatalf("waited %s for: %s", time.Since(began).Round(time.Second), what)
	}
	until("green by its pushes", func(s *engine.Site) bool { return s.Phase == fleet.PhaseOnline && s.Colour() == fleet.Green })
	if err := site.Set("filesystem/n1:/", "used", "0.97"); err != nil {
		t.Fatal(err)
	}
	until("a full disk is named", func(s *engine.Site) bool {
		return s.Colour() == fleet.Red && strings.Contains(first(s), "stock-n1") && strings.Contains(first(s), "filesystem")
	})
	if err := site.Set("filesystem/n1:/", "used", ""); err != nil {
		t.Fatal(err)
	}
	until("green again", func(s *engine.Site) bool { return s.Colour() == fleet.Green })
	stop()
	until("off line without pushes", func(s *engine.Site) bool {
		return s.Phase == fleet.PhaseOffline && s.Colour() == fleet.Red && s.State.Reasons[0].Signal == health.SignalUplink
	})
}

func first(s *engine.Site) string {
	if len(s.State.Reasons) == 0 {
		return "nothing to say"
	}
	return s.State.Reasons[0].Text
}

// run starts a sender with its sample configuration, and waits for its first push.
func run(t *testing.T, s sender, reg *realregional.Regional, id fleet.SiteID, exporter string) (stop func()) {
	t.Helper()
	bin, err := s.build()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := reg.PEM(id)
	for name, pem := range map[string][]byte{"cert.pem": files.Cert, "key.pem": files.Key, "bundle.pem": files.CA} {
		if err := os.WriteFile(filepath.Join(dir, name), pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args, env := s.args(t, place{push: reg.PushURL(), tls: dir, exporter: exporter})
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), env...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			stop()
		}
		if t.Failed() {
			t.Logf("%s:\n%s", bin, log.String())
		}
	})
	testkit.EventuallyTrue(t, "the first push", func() bool { return len(slices.Collect(reg.Gateway.Live())) > 0 })
	return stop
}
