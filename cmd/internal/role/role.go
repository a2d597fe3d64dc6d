// Package role runs one role in this process: it binds the role's listeners, hands
// it a log, a registry and an ops page, and takes everything down again when the role
// fails or is stopped. It knows no role; the rooms beside it, one a role, call it.
package role

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"muster.dev/muster/internal/diskshare"
	"muster.dev/muster/internal/lifecycle"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/turns"
)

// StopTimeout bounds the clean stop of a role. `muster up` waits a little longer
// before it kills, and stays below 10 s in all.
const StopTimeout = 8 * time.Second

// Env is what every role gets: how to log, count, explain itself and clean up.
type Env struct {
	Role  string
	Log   *slog.Logger
	Reg   *prometheus.Registry
	Ops   *obs.Ops
	Stack *lifecycle.Stack

	fail chan error
}

// Options say how a role is run.
type Options struct {
	Role      string
	OpsListen string // HOST:PORT of /metrics, /-/ready, /-/healthy, /debug/
	// Guard keeps OpsListen to those who may call it; nil: plain HTTP for whoever reaches it.
	Guard Guard
	// Hosts are the names that OpsListen is reached by, beside addresses: see obs.Guard.
	Hosts []string
	Log   obs.LogOptions
	LogTo io.Writer // nil: standard error
	// Shared is set by roles whose processors many tenants share: see turns.Threads.
	Shared bool
	// GCPercent is how much the heap may grow before garbage is collected, if that is more than
	// 128 MiB; 0: Go's default.
	// A role that holds much for long has the more memory to spare the lower it is.
	GCPercent int
	// Gather adds further registries to /metrics: libraries that keep their own.
	Gather []prometheus.Gatherer
}

// Guard is peers.Listener.
type Guard interface {
	// Secure has a server speak TLS and let only those through who may call it.
	Secure(srv *http.Server, log *slog.Logger)
	// Covers is an error that names a route that nobody may call.
	Covers(patterns []string) error
	TLS() bool
	// Register adds its figures to the role's; before Secure.
	Register(reg prometheus.Registerer)
}

// Fail ends the role with this error. Only the first one counts; a nil error and a
// cancellation are ignored.
func (e *Env) Fail(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	select {
	case e.fail <- err:
	default:
	}
}

// Go runs a part of the role until the role stops. A part that ends before, with an
// error or without, ends the role: whoever supervises it starts it whole again, and a
// role that lives on without a part of it is found by nobody.
func (e *Env) Go(name string, fn func(context.Context) error) {
	e.Stack.Go(name, func(ctx context.Context) error {
		err := fn(ctx)
		if ctx.Err() == nil && (err == nil || errors.Is(err, context.Canceled)) {
			return fmt.Errorf("ended by itself (%v)", err) //nolint:errorlint // a wrapped cancellation would count as a stop
		}
		return err
	}, e.Fail)
}

// Once runs what has an end; its error ends the role, its end does not.
func (e *Env) Once(name string, fn func(context.Context) error) { e.Stack.Go(name, fn, e.Fail) }

// Serve serves h on a listener that is already bound, until the role stops.
func (e *Env) Serve(name string, ln net.Listener, srv *http.Server) {
	srv.ErrorLog = obs.ServerLog(e.Log.With("server", name))
	go func() {
		var err error
		if srv.TLSConfig != nil {
			err = srv.ServeTLS(ln, "", "")
		} else {
			err = srv.Serve(ln)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			e.Fail(fmt.Errorf("serve %s on %s: %w", name, ln.Addr(), err))
		}
	}()
	e.Stack.OnStop(name, func(ctx context.Context) error {
		// Streams (server-sent events, profiles) don't end by themselves: give
		// plain requests a moment, then close.
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			return srv.Close()
		}
		return nil
	})
}

// Listen binds an address, with an error that says which setting it came from.
func Listen(field, addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("%s: %s can't be used: %w; stop what holds it or set another address in the config file", field, addr, err)
	}
	return ln, nil
}

// ShareOfDisk shares the disk that a directory is on among tenants, as long as the role runs.
func (e *Env) ShareOfDisk(dir string) *diskshare.Shares {
	share, err := diskshare.Of(dir, e.Reg)
	if err != nil {
		e.Log.Warn("the disk is shared anew", "err", err)
	}
	e.Go("share of the disk", share.Run)
	return share
}

// Run runs one role until ctx ends or a part of it fails. start acquires what the
// role needs and returns; what runs on was handed to the Env.
func Run(ctx context.Context, o Options, start func(context.Context, *Env) error) (err error) {
	if o.LogTo == nil {
		o.LogTo = os.Stderr
	}
	log, err := obs.NewLogger(o.LogTo, o.Log)
	if err != nil {
		return err
	}
	klog.SetSlogLogger(log) // what Kubernetes' libraries say is part of the role's log
	limitMemory(ctx, log, o.GCPercent)
	if o.Shared {
		turns.Threads()
	}
	reg := obs.NewRegistry(o.Role)
	gather := prometheus.Gatherers{reg}
	for _, g := range o.Gather {
		gather = append(gather, obs.WithoutProcess(g))
	}
	env := &Env{Role: o.Role, Log: log, Reg: reg, Ops: obs.NewOps(o.Role, gather), Stack: lifecycle.New(log), fail: make(chan error, 1)}
	defer func() {
		if stopErr := env.Stack.Stop(StopTimeout); stopErr != nil {
			log.Warn("stop was not clean", "err", stopErr)
		}
		log.Info("stopped", "role", o.Role)
	}()

	started := make(chan struct{})
	env.Ops.Ready("start", func() error {
		select {
		case <-started:
			return nil
		default:
			return errors.New("starting")
		}
	})
	ln, err := Listen(o.Role+" opsListen", o.OpsListen)
	if err != nil {
		return err
	}
	srv, scheme := &http.Server{Handler: obs.Guard(env.Ops, o.Hosts), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}, "http://"
	if o.Guard != nil {
		o.Guard.Register(reg)
		o.Guard.Secure(srv, log)
		if o.Guard.TLS() {
			scheme = "https://"
		}
	}
	env.Serve("ops", ln, srv)

	began := time.Now()
	if err := start(ctx, env); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if o.Guard != nil {
		if err := o.Guard.Covers(env.Ops.Mux().Patterns()); err != nil {
			return err
		}
	}
	close(started)
	log.Info("started", "role", o.Role, "ops", scheme+ln.Addr().String(), "took", time.Since(began).Round(time.Millisecond))
	select {
	case <-ctx.Done():
		return nil
	case err := <-env.fail:
		return err
	}
}
