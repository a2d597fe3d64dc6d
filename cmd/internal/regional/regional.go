// Package regional composes one regional: the gateway that sites talk to, the two
// Prometheus engines, the forward queue towards Cortex, and the relay to control.
package regional

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/forward"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/peers"
	"muster.dev/muster/internal/spool"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/engine"
	"muster.dev/muster/regional/gateway"
	"muster.dev/muster/regional/hosts"
	"muster.dev/muster/regional/relay"
)

// window is how late a sample may be: as long as a site's spool keeps it.
const window = fleet.DefaultSpoolMaxAge

// gcPercent: most of the heap is series that live for hours. With Go's default of 100 as
// much again would lie there as garbage. docs/benchmarks.md has figures of 50 and 30.
const gcPercent = 30

// linger is for how long a batch waits for others on its way to the store.
const linger = 500 * time.Millisecond

// Run runs the regional until ctx ends.
func Run(ctx context.Context, c config.Config, r config.Regional) error {
	known, err := c.OpenPeers("regional-" + r.Name)
	if err != nil {
		return err
	}
	return role.Run(ctx, role.Options{Role: "regional", Shared: true, OpsListen: r.QueryListen, Guard: known.Listener(config.OpsRules("regional")), Hosts: c.HostNames(), Log: obs.LogOptions(c.Log), GCPercent: gcPercent},
		func(_ context.Context, env *role.Env) error { return start(env, c, r, known) })
}

func start(env *role.Env, c config.Config, r config.Regional, known *peers.Peers) error {
	dir := c.Path("regional-" + r.Name)
	id := "regional-" + r.Name
	files, err := identity.LoadFiles(c.PairFile(id), c.TrustFile(id))
	if err != nil {
		return fmt.Errorf("identity of regional %s: %w; `muster control` keeps it in %s", r.Name, err, c.Identity(id))
	}
	// At its cap a queue refuses, the gateway pushes back, and the tenant's sites keep
	// their samples.
	tr := known.Transport()
	tr.MaxIdleConns, tr.MaxIdleConnsPerHost = 0, 1024 // those of all senders are kept
	queues, err := forward.Open(forward.Options{Client: &http.Client{Transport: tr}, Dir: filepath.Join(dir, "forward"), URL: c.CortexURL() + "/api/v1/push", MaxBytes: r.ForwardBytes, SyncInterval: r.ForwardSync.D(), OnFull: spool.RefuseNew, Concurrency: 4, Linger: linger,
		UserAgent: "muster-regional/" + obs.Version, Logger: env.Log, Registerer: env.Reg})
	if err != nil {
		return err
	}
	env.Stack.OnStop("forward queues", func(context.Context) error { return queues.Close() })
	env.Ops.Status("forward", queues.Status)
	held, err := newHoldings(c, r, known.Client())
	if err != nil {
		return err
	}
	env.Ops.Status("rules", held.status)
	// What may wait, of tenants, takes no more than all processors but one, in whichever part.
	processors := turns.NewProcessors(0)
	env.Ops.Status("processors", func() any {
		platform, tenants, waiting := processors.Use()
		return map[string]int{"platform": platform, "tenants": tenants, "waiting": waiting}
	})
	series := gateway.NewHeadSeries(held.inv.tenantSeries(r.Limits.TenantSeries))
	edge, err := held.startEngine(env, engine.Options{Name: engine.Edge, Dir: filepath.Join(dir, "edge"), OutOfOrderWindow: window, Forward: queues.Append, SeriesLifecycle: series,
		MaxExemplars: 50_000, Processors: processors}, c, r)
	if err != nil {
		return err
	}
	series.Enforce()
	local, err := held.startEngine(env, engine.Options{Name: engine.Local, Dir: filepath.Join(dir, "local"), Forward: queues.Append, Tenant: fleet.PlatformTenant,
		ScrapeConfigs: []byte(localScrapes(c, r)), ExternalLabels: labels.FromStrings("regional", r.Name), Processors: processors}, c, r)
	if err != nil {
		return err
	}
	up, err := startRelay(env, c, r, files, held, filepath.Join(dir, "relay"))
	if err != nil {
		return err
	}
	logs, intake, err := startLogs(env, c, dir, r, files, held, up, processors)
	if err != nil {
		return err
	}
	env.Go("relay", up.Run)
	env.Go("rules that fail", func(ctx context.Context) error { return held.reportFailing(ctx, up.RulesFail) })
	env.Go("queues of deleted tenants", func(ctx context.Context) error { return queues.RunRetire(ctx, held.inv.gone) })
	env.Go("use of quotas", func(ctx context.Context) error { return reportUse(ctx, up, held.inv, series, intake) })
	between := hosts.New(hosts.Options{Providers: held.inv.providers, TenantConnections: r.Limits.TenantHostConnections, TenantBytesPerSecond: r.Limits.TenantHostBytesPerSecond, Logger: env.Log, Registerer: env.Reg})
	held.inv.onChange(between.Recheck)
	env.Ops.Status("virtual hosts", between.Status)
	images, err := startSoftware(env, c, r, filepath.Join(dir, "software"), known.Client(), up)
	if err != nil {
		return err
	}
	gw, err := gateway.New(gateway.Options{
		Disk: env.ShareOfDisk(dir), Hosts: between, Name: r.Name, Listen: r.Listen, Logs: logs, Software: images, TLS: files.ServerConfig(tls.RequestClientCert), Trust: trust(files),
		Edge: edge.Storage(), Series: series, Self: edge.Appendable(), Forward: queues.Put, ForwardRaw: queues.PutRaw, Upstream: up, Limits: limits(r), Pace: held.inv.pace, Past: window, Memory: r.PushMemory, Logger: env.Log, Registerer: env.Reg,
	})
	if err != nil {
		return fmt.Errorf("regionals[%s].listen: %w", r.Name, err)
	}
	env.Go("gateway", gw.Run)
	env.Ops.Status("gateway", func() any { return gw.Status() })
	env.Ops.Mux().Handle("GET "+wire.LivePath, gw.LiveHandler())
	if err := startCost(env, dir, r, gw, series, edge, local, intake); err != nil {
		return err
	}
	env.Log.Info("the gateway is up", "regional", r.Name, "address", gw.Addr())
	return nil
}

// startRelay connects to control. Its Run must come when all that it calls is there.
func startRelay(env *role.Env, c config.Config, r config.Regional, files *identity.Files, held *holdings, dir string) (*relay.Relay, error) {
	controlHost, _, err := net.SplitHostPort(c.Control.FleetEndpoint())
	if err != nil {
		return nil, fmt.Errorf("control.fleetAddress: %q: want HOST:PORT", c.Control.FleetEndpoint())
	}
	conn, err := grpc.NewClient(c.Control.FleetEndpoint(),
		grpc.WithTransportCredentials(credentials.NewTLS(files.ClientConfig(controlHost, identity.IsControl))),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxDown), grpc.ForceCodecV2(wire.Codec)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}))
	if err != nil {
		return nil, fmt.Errorf("control at %s: %w", c.Control.FleetEndpoint(), err)
	}
	env.Stack.OnStop("connection to control", func(context.Context) error { return conn.Close() })
	up, err := relay.New(relay.Options{Name: r.Name, Version: obs.Version, Dir: dir, Control: wire.NewControlClient(conn), OnRegional: held.apply, Logger: env.Log, Registerer: env.Reg})
	if err != nil {
		return nil, err
	}
	env.Ops.Status("relay", func() any { return up.Status() })
	return up, nil
}

// trust returns the CAs of today for the gateway.
func trust(files *identity.Files) func() *x509.CertPool {
	return func() *x509.CertPool {
		_, pool, err := files.Current()
		if err != nil {
			return x509.NewCertPool() // trusts nobody until the files are good again
		}
		return pool
	}
}

func limits(r config.Regional) func(fleet.SiteID) gateway.Limits {
	l := gateway.Limits{Series: r.Limits.Series, SamplesPerSecond: r.Limits.SamplesPerSecond, TenantSamplesPerSecond: r.Limits.TenantSamplesPerSecond, BodyBytes: r.Limits.BodyBytes, HistogramBuckets: r.Limits.HistogramBuckets}
	return func(fleet.SiteID) gateway.Limits { return l }
}

// librariesBuckets are histograms of what control is made of: two thirds of all series that
// a region's roles have, of which nothing is read here. Their sums and counts are kept, and a
// role's own /metrics has them all.
const librariesBuckets = "(apiserver|etcd|rest_client|thanos_objstore|workqueue)_.+_bucket"

// localScrapes are the region's own roles. The first regional of the config also
// looks at the central roles.
func localScrapes(c config.Config, r config.Regional) string {
	job := func(name, instance, addr string) string {
		out := fmt.Sprintf("- job_name: %s\n  scrape_interval: 15s\n  static_configs: [{targets: [%q]}]\n"+
			"  metric_relabel_configs: [{source_labels: [__name__], regex: %q, action: drop}]\n", name, addr, librariesBuckets)
		if !c.InsecureLoopback {
			out += fmt.Sprintf("  scheme: https\n  tls_config: {ca_file: %q, server_name: %q}\n", c.TrustFile("regional-"+r.Name), c.RoleHost(instance))
		}
		return out
	}
	out := job("regional", "regional-"+r.Name, r.QueryListen)
	if r.Name != c.Regionals[0].Name {
		return out
	}
	for _, role := range config.Roles {
		if role.Name == "regional" {
			continue // each its own
		}
		for _, i := range role.Instances(&c) {
			out += job(role.Name, i.Name, i.Ops)
		}
	}
	return out
}
