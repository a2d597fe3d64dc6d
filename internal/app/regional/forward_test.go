package regional

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/internal/app"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/lifecycle"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/regional/logs/intake"
	"muster.dev/muster/regional/logs/store"
)

// cortexStub is a receiver that refuses one tenant for its limits, as Cortex does.
type cortexStub struct {
	mu   sync.Mutex
	got  map[string]int
	full string
}

func (s *cortexStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tenant := r.Header.Get("X-Scope-OrgID")
	if tenant == s.full {
		w.Header().Set("Retry-After", "60")
		http.Error(w, "limit", http.StatusTooManyRequests)
		return
	}
	s.got[tenant]++
	w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", "1")
	w.WriteHeader(http.StatusNoContent)
}

func (s *cortexStub) count(tenant string) int { s.mu.Lock(); defer s.mu.Unlock(); return s.got[tenant] }

func env() *app.Env {
	log := slog.New(slog.DiscardHandler)
	return &app.Env{Role: "regional", Log: log, Reg: obs.NewRegistry("regional"), Stack: lifecycle.New(log)}
}

func batch() []remotewrite.Series {
	return []remotewrite.Series{{Labels: labels.FromStrings("__name__", "up"), Samples: []remotewrite.Sample{{T: 1000, V: 1}}}}
}

func TestARefusedTenantHoldsUpNobodyElseAndLosesNothing(t *testing.T) {
	st := &cortexStub{got: map[string]int{}, full: "greedy"}
	srv := httptest.NewServer(st)
	defer srv.Close()
	dir := t.TempDir()
	e := env()
	f, err := newForwarder(e, dir, srv.URL, 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		for _, tenant := range []string{"greedy", "modest"} {
			if err := f.forward(tenant, batch()); err != nil {
				t.Fatal(err)
			}
		}
	}
	await(t, "all of the other tenant's batches arrive", func() bool { return st.count("modest") == 20 })
	if n := st.count("greedy"); n != 0 {
		t.Errorf("%d batches of the refused tenant were taken", n)
	}
	if err := f.forward("../escape", batch()); err == nil {
		t.Error("a tenant that is no name was queued")
	}
	if err := e.Stack.Stop(5 * time.Second); err != nil {
		t.Fatal(err)
	}

	// After a restart what was refused is sent, without a new batch to wake it.
	st.mu.Lock()
	st.full = ""
	st.mu.Unlock()
	e = env()
	if _, err := newForwarder(e, dir, srv.URL, 16<<20); err != nil {
		t.Fatal(err)
	}
	await(t, "the refused tenant's batches arrive after a restart", func() bool { return st.count("greedy") == 20 })
	if err := e.Stack.Stop(5 * time.Second); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// The queues of metrics and of logs are spools that tell the same figures in one
// registry.
func TestQueuesShareARegistry(t *testing.T) {
	e := env()
	f, err := newForwarder(e, t.TempDir(), "http://127.0.0.1:1", 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	in, err := intake.New(intake.Options{Name: "one", Dir: t.TempDir(), Sink: nothing{}, Limits: func(fleet.SiteID) intake.SiteLimits { return intake.SiteLimits{} }, Logger: e.Log, Registerer: e.Reg})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, tenant := range []string{"acme", "umbrella"} {
		if _, err := f.tenant(tenant); err != nil {
			t.Error(err)
		}
	}
	if err := e.Stack.Stop(5 * time.Second); err != nil {
		t.Error(err)
	}
}

// nothing takes all records.
type nothing struct{}

func (nothing) Write(_ context.Context, records []store.Record) (store.Result, error) {
	return store.Result{Stored: len(records)}, nil
}
