package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/health/defaults"
	healthengine "muster.dev/muster/health/engine"
	"muster.dev/muster/health/status"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/testkit/fakeregional"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/engine"
)

// centre is what a site reports to: a regional that enrols whoever has the token, with a
// real engine behind it, and the real health engine above.
type centre struct {
	*fakeregional.Regional
	t      testing.TB
	eng    *engine.Engine
	health *healthengine.Engine
	site   fleet.SiteID

	mu       sync.Mutex
	lastPush time.Time
	logs     []string // bodies that came to the log intake
}

const tenant = "acme"

// startCentre starts one for a site of that name.
func startCentre(t *testing.T, site string) *centre {
	t.Helper()
	c := &centre{t: t, site: fleet.SiteID{Tenant: tenant, Name: site}}
	var err error
	if c.eng, err = engine.New(engine.Options{Name: engine.Edge, Dir: t.TempDir(), OutOfOrderWindow: time.Hour, Registerer: prometheus.NewRegistry()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.eng.Close() })
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/push", c.push)
	mux.HandleFunc("POST /api/v1/logs", func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		c.mu.Lock()
		c.logs = append(c.logs, r.TLS.PeerCertificates[0].URIs[0].String()+" "+string(b))
		c.mu.Unlock()
	})
	c.Regional = fakeregional.Start(t, fakeregional.Options{Name: "eu-1", HTTP: mux})
	return c
}

// push appends what a site sends, stamped with who its certificate says it is.
func (c *centre) push(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	v2, err := remotewrite.IsV2(r.Header.Get("Content-Type"))
	raw, derr := snappy.Decode(nil, body)
	if err != nil || derr != nil {
		http.Error(w, fmt.Sprint(err, derr), http.StatusBadRequest)
		return
	}
	name := r.TLS.PeerCertificates[0].URIs[0].String()
	app := c.eng.Storage().Appender(r.Context())
	var d remotewrite.Decoder
	for d.Reset(raw, v2, remotewrite.Limits{}); d.Next(); {
		b := labels.NewScratchBuilder(8)
		pairs := d.Pairs()
		for i := 0; i+1 < len(pairs); i += 2 {
			b.Add(strings.Clone(pairs[i]), strings.Clone(pairs[i+1]))
		}
		b.Add(fleet.SeriesTenant, tenant)
		b.Add(fleet.SeriesSite, name[strings.LastIndexByte(name, '/')+1:])
		b.Add(fleet.SeriesRegion, "eu")
		b.Sort()
		ls := b.Labels()
		for _, s := range d.Samples {
			if _, err := app.Append(0, ls, s.T, s.V); err != nil {
				c.t.Logf("append %s: %v", ls, err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	c.mu.Lock()
	c.lastPush = time.Now()
	c.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// policy is the shipped one, at an interval that a test has the time for.
func policy() fleet.CollectionPolicy {
	p := desired.Merge([]v1alpha1.CollectionPolicySpec{defaults.CollectionPolicy().Spec})
	p.Reserve = desired.MetricNames(&defaults.HealthPolicy().Spec)
	p.Reads = desired.HealthReads(&defaults.HealthPolicy().Spec)
	p.Interval = time.Second
	return p
}

// judge starts health above what has come.
func (c *centre) judge() {
	c.t.Helper()
	mux := http.NewServeMux()
	c.eng.Register(mux, prometheus.NewRegistry())
	mux.HandleFunc("GET "+wire.LivePath, func(w http.ResponseWriter, _ *http.Request) {
		seen := c.Seen(c.site)
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = json.NewEncoder(w).Encode(wire.LiveView{Regional: "eu-1", Region: "eu", AsOf: time.Now(), Sites: []wire.SiteLive{{
			Tenant: tenant, Site: c.site.Name, Region: "eu", Connected: seen.Connected, ConnectedSince: time.Now().Add(-time.Minute), LastHeartbeat: time.Now(), LastPush: c.lastPush,
		}}})
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != wire.LivePath {
			r.URL.Path = "/edge/api/v1" + strings.TrimPrefix(r.URL.Path, "/edge/api/v1")
		}
		mux.ServeHTTP(w, r)
	}))
	c.t.Cleanup(srv.Close)
	inv := &shelf{inventory.NewSnapshot(1, []*inventory.Site{{ID: c.site, Region: "eu", Phase: fleet.PhaseApproved}}, nil, nil), make(chan struct{})}
	var err error
	c.health, err = healthengine.New(healthengine.Options{
		Inventory: inv, Status: inv, Shipped: defaults.Model(), Dir: c.t.TempDir(), Tick: time.Second, LiveInterval: 500 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Regionals: []healthengine.Regional{{Name: "eu-1", URL: srv.URL}},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.health.Run(ctx) }()
	c.t.Cleanup(func() { cancel(); <-done })
	go func() { // what the gateway writes of each site
		for ; ctx.Err() == nil; time.Sleep(time.Second) {
			c.mu.Lock()
			last := c.lastPush
			c.mu.Unlock()
			app := c.eng.Storage().Appender(ctx)
			for name, v := range map[string]float64{fleet.MetricSiteConnected: 1, fleet.MetricSiteLastPush: float64(last.UnixMilli()) / 1000} {
				_, _ = app.Append(0, labels.FromStrings(labels.MetricName, name, "regional", "eu-1", fleet.SeriesRegion, "eu", fleet.SeriesSite, c.site.Name, fleet.SeriesTenant, tenant), time.Now().UnixMilli(), v)
			}
			_ = app.Commit()
		}
	}()
}

type shelf struct {
	snap    *inventory.Snapshot
	changed chan struct{}
}

func (s *shelf) Ready() error                         { return nil }
func (s *shelf) Snapshot() *inventory.Snapshot        { return s.snap }
func (s *shelf) Changed() <-chan struct{}             { return s.changed }
func (s *shelf) ForgetSites([]fleet.SiteID)           {}
func (s *shelf) ReportSites([]status.SiteReport)      {}
func (s *shelf) ReportPolicies([]status.PolicyReport) {}

// serve serves h on an address of its own until the test ends, and returns the port. A
// TLS configuration makes it HTTPS.
func serve(t *testing.T, ip string, h http.Handler, cfg *tls.Config) int {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, TLSConfig: cfg, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	go func() {
		if cfg != nil {
			_ = srv.ServeTLS(ln, "", "")
		} else {
			_ = srv.Serve(ln)
		}
	}()
	t.Cleanup(func() { _ = srv.Close() })
	return ln.Addr().(*net.TCPAddr).Port
}
