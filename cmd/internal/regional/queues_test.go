package regional

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/forward"
	"muster.dev/muster/internal/lifecycle"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/regional/logs/intake"
	"muster.dev/muster/regional/logs/store"
)

func env() *role.Env {
	log := slog.New(slog.DiscardHandler)
	return &role.Env{Role: "regional", Log: log, Reg: obs.NewRegistry("regional"), Stack: lifecycle.New(log)}
}

// The queues of metrics and of logs are spools that tell the same figures in one
// registry.
func TestQueuesShareARegistry(t *testing.T) {
	e := env()
	f, err := forward.Open(forward.Options{Dir: t.TempDir(), URL: "http://127.0.0.1:1", Logger: e.Log, Registerer: e.Reg})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, err := intake.New(intake.Options{Name: "one", Dir: t.TempDir(), Sink: nothing{}, Limits: func(fleet.SiteID) intake.SiteLimits { return intake.SiteLimits{} }, Logger: e.Log, Registerer: e.Reg})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, tenant := range []string{"acme", "umbrella"} {
		if err := f.Append(tenant, nil); err != nil {
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
