package regional

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/internal/app"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/spool"
)

// forwarder queues what is acknowledged but not yet in Cortex, a queue and a sender
// for each tenant: a tenant that Cortex refuses for its limits must not hold up the
// others. At its cap a queue refuses, the gateway pushes back, and the tenant's
// sites keep their samples.
type forwarder struct {
	env      *app.Env
	dir      string
	push     string // URL
	maxBytes int64  // of one tenant's queue

	mu     sync.Mutex
	queues map[string]*tenantQueue
}

type tenantQueue struct {
	queue  *spool.Spool
	sender *remotewrite.Sender
}

// newForwarder opens the queues that an earlier run left.
func newForwarder(env *app.Env, dir, push string, maxBytes int64) (*forwarder, error) {
	f := &forwarder{env: env, dir: dir, push: push, maxBytes: maxBytes, queues: map[string]*tenantQueue{}}
	left, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("forward queues: %w", err)
	}
	for _, e := range left {
		if e.IsDir() && fleet.ValidateTenant(e.Name()) == nil {
			if _, err := f.tenant(e.Name()); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// forward has the batch on disk when it returns nil.
func (f *forwarder) forward(tenant string, series []remotewrite.Series) error {
	q, err := f.tenant(tenant)
	if err != nil {
		return err
	}
	_, err = q.queue.Append(remotewrite.Encode(tenant, series))
	return err
}

// tenant returns the tenant's queue; the first call opens it and starts its sender.
func (f *forwarder) tenant(name string) (*tenantQueue, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if q, ok := f.queues[name]; ok {
		return q, nil
	}
	if err := fleet.ValidateTenant(name); err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	reg := prometheus.WrapRegistererWith(prometheus.Labels{"tenant": name}, f.env.Reg)
	log := f.env.Log.With("tenant", name)
	queue, err := spool.Open(spool.Options{Dir: filepath.Join(f.dir, name), MaxBytes: f.maxBytes, OnFull: spool.RefuseNew, Logger: log,
		Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"spool": "forward"}, reg)})
	if err != nil {
		return nil, err
	}
	f.env.Stack.OnStop("forward queue of "+name, func(context.Context) error { return queue.Close() })
	sender := remotewrite.NewSender(remotewrite.SenderOptions{
		Source: queue, Endpoint: func() string { return f.push }, Client: func() *http.Client { return http.DefaultClient }, Concurrency: 4,
		UserAgent: "muster-regional/" + obs.Version, Header: func(tenant string) http.Header { return http.Header{"X-Scope-Orgid": {tenant}} },
		Logger: log, Registerer: reg,
	})
	f.env.Go("forward of "+name, sender.Run)
	q := &tenantQueue{queue, sender}
	f.queues[name] = q
	return q, nil
}

// status is shown on /debug/.
func (f *forwarder) status() any {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]any{}
	for name, q := range f.queues {
		out[name] = map[string]any{"queue": q.queue.Stats(), "sender": q.sender.Status()}
	}
	return out
}
