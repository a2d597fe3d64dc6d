package deadman

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// regionalView is a regional's live view over HTTP.
type regionalView struct {
	mu   sync.Mutex
	body string
}

func (v *regionalView) set(body string) { v.mu.Lock(); defer v.mu.Unlock(); v.body = body }

func (v *regionalView) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	body := v.body
	v.mu.Unlock()
	if body == "" || r.URL.Path != "/api/v1/live" {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, body)
}

// box is the sink; it fails while broken is set.
type box struct {
	mu     sync.Mutex
	broken bool
	sent   []wire.Alert
	posts  int
}

func (b *box) PostAlerts(_ context.Context, alerts []wire.Alert) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken {
		return errors.New("not now")
	}
	b.sent = append(b.sent, alerts...)
	b.posts++
	return nil
}

func (b *box) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, a := range b.sent {
		out = append(out, a.Labels["alertname"]+" "+a.Labels["site"]+a.Labels["regional"]+" until "+a.EndsAt.Sub(t0).String())
	}
	b.sent = nil
	return strings.Join(out, "\n")
}

// The runner looks over HTTP, sends what is new and again in time, ends what is over,
// sends again what the sink did not take, and goes on after a restart where it was.
func TestRunner(t *testing.T) {
	one := &regionalView{}
	srv := httptest.NewServer(one)
	defer srv.Close()
	online := `{"regional":"one","sites":[{"tenant":"acme","site":"paris","connected":true,"lastHeartbeat":"2026-03-01T12:00:00Z"}]}`
	offline := `{"regional":"one","sites":[{"tenant":"acme","site":"paris","connected":false,"lastHeartbeat":"2026-03-01T12:00:00Z"}]}`
	one.set(online)
	out, clock := &box{}, t0
	file := filepath.Join(t.TempDir(), "sub", "state.json")
	start := func() *Deadman {
		d, err := New(Options{Regionals: []Regional{{"one", srv.URL}}, File: file, Sink: out, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Now: func() time.Time { return clock },
			Sites: func() ([]Site, bool) {
				return []Site{{ID: fleet.SiteID{Tenant: "acme", Name: "paris"}, Regional: "one", Connected: true, Created: t0}}, true
			}})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := start()
	step := func(after time.Duration, want string) {
		t.Helper()
		clock = clock.Add(after)
		d.askRegionals(t.Context())
		d.act(t.Context())
		if got := out.take(); got != want {
			t.Errorf("at %s:\n%s\nwant:\n%s", clock.Sub(t0), got, want)
		}
	}
	const watchdog = "Watchdog  until "
	step(0, watchdog+"3m3s")
	step(31*time.Second, "")
	one.set(offline)
	step(time.Second, "")
	out.broken = true
	step(15*time.Second, "")
	if d.Status().LastError == "" || d.Status().Firing[AlertSiteDown] != 1 {
		t.Errorf("status %+v", d.Status())
	}
	out.broken = false
	step(3*time.Second, "SiteDown parisone until 3m53s\n"+watchdog+"3m53s")
	step(10*time.Second, "")
	step(35*time.Second, "SiteDown parisone until 4m38s\n"+watchdog+"4m38s")
	// After a restart it is the same alert, still firing, and from the same time.
	d = start()
	step(3*time.Second, "SiteDown parisone until 4m41s\n"+watchdog+"4m41s")
	one.set(online)
	step(3*time.Second, "SiteDown parisone until 1m41s") // over: it ends now
	// What is no live view is an outage of the regional.
	one.set(`{"regional":"two"}`)
	step(3*time.Second, "")
	step(16*time.Second, "RegionalDown one until 5m3s\nRegionalDown one until 5m3s")
	if d.Status().Regionals["one"] {
		t.Error("a view of another regional counts as an answer")
	}
}

// A region and its sites are sent in one post, so that Alertmanager has what inhibits
// before it notifies; the region is first to begin and last to end.
func TestRegionIsSentWithItsSites(t *testing.T) {
	view := func(connected, last bool) string {
		var sites []string
		for i := range 7 {
			sites = append(sites, fmt.Sprintf(`{"tenant":"acme","site":"s%d","connected":%t,"lastHeartbeat":"2026-03-01T12:00:00Z"}`, i, connected || last && i == 6))
		}
		return `{"regional":"one","sites":[` + strings.Join(sites, ",") + `]}`
	}
	one := &regionalView{}
	srv := httptest.NewServer(one)
	defer srv.Close()
	var sites []Site
	for i := range 7 {
		sites = append(sites, Site{ID: fleet.SiteID{Tenant: "acme", Name: fmt.Sprintf("s%d", i)}, Region: "eu", Regional: "one", Connected: true, Created: t0})
	}
	out, clock := &box{}, t0
	d, err := New(Options{Regionals: []Regional{{"one", srv.URL}}, File: filepath.Join(t.TempDir(), "state.json"), Sink: out, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		Now: func() time.Time { return clock }, Sites: func() ([]Site, bool) { return sites, true }})
	if err != nil {
		t.Fatal(err)
	}
	look := func(after time.Duration, connected, last bool) {
		t.Helper()
		out.sent, out.posts, clock = nil, 0, clock.Add(after)
		one.set(view(connected, last))
		d.askRegionals(t.Context())
		d.act(t.Context())
	}
	look(0, true, true)
	look(31*time.Second, true, true)
	look(3*time.Second, false, true)
	look(15*time.Second, false, true)
	if n := len(out.sent); out.posts != 1 || n != 8 || out.sent[0].Labels["alertname"] != AlertRegionDown {
		t.Fatalf("%d alerts in %d posts, first of all %v; want the region, 6 sites and the watchdog in one", n, out.posts, out.sent[:min(n, 1)])
	}
	// One that falls silent later takes the region along.
	look(3*time.Second, false, false)
	look(15*time.Second, false, false)
	if n := len(out.sent); out.posts != 1 || n != 2 || out.sent[0].Labels["alertname"] != AlertRegionDown {
		t.Fatalf("%d alerts in %d posts; want the region and the site in one: %v", n, out.posts, out.sent)
	}
	look(3*time.Second, true, true)
	if n := len(out.sent); out.posts != 1 || n != 8 || out.sent[n-1].Labels["alertname"] != AlertRegionDown {
		t.Fatalf("%d alerts in %d posts; want the 7 sites and then the region in one: %v", n, out.posts, out.sent)
	}
	for _, a := range out.sent {
		if a.EndsAt.After(clock) {
			t.Errorf("%v does not end", a.Labels)
		}
	}
}

func TestRunEnds(t *testing.T) {
	d, err := New(Options{Sites: func() ([]Site, bool) { return nil, false }, Sink: &box{}, File: filepath.Join(t.TempDir(), "s"), Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Run(ctx); err != nil {
		t.Error(err)
	}
	if _, err := New(Options{}); err == nil {
		t.Error("options without anything were taken")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"regional":"one","sites":[{"tenant":"acme","site":"paris","connected":true,"lastHeartbeat":"2026-03-01T12:00:00Z"}]}`))
	f.Add([]byte(`{"silent":{"acme/paris":"2026-03-01T12:00:00Z"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if sites, err := decodeLive(b, "one"); err == nil && sites == nil {
			t.Fatal("neither sites nor an error")
		}
		s, err := decodeState(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Skip() // years that RFC 3339 has not
		}
		if _, err := decodeState(again); err != nil {
			t.Fatal(err)
		}
	})
}
