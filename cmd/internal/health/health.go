// Package health composes the health role: the inventory from the Kubernetes API,
// the engine that asks the regionals, what sites cost, and the APIs that the console proxies.
package health

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"

	"muster.dev/muster/aggregator/cost"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/control"
	"muster.dev/muster/cmd/internal/happened"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/health/api"
	"muster.dev/muster/health/colours"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/health/engine"
	"muster.dev/muster/health/sites"
	"muster.dev/muster/health/status"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/kubetls"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/peers"
)

// Run runs the role until ctx ends.
func Run(ctx context.Context, c config.Config) error {
	known, err := c.OpenPeers("health")
	if err != nil {
		return err
	}
	return role.Run(ctx, role.Options{Role: "health", Shared: true, OpsListen: c.Health.OpsListen, Guard: known.Listener(config.OpsRules("health")), Hosts: c.HostNames(), Log: obs.LogOptions(c.Log)},
		func(_ context.Context, env *role.Env) error { return start(env, c, known) })
}

func start(env *role.Env, c config.Config, known *peers.Peers) error {
	rest, _, err := kubetls.Load(control.Kubeconfig(c, "health"))
	if err != nil {
		return fmt.Errorf("kubeconfig of the health role: %w; `muster control` makes it", err)
	}
	client, err := inventory.NewClient(rest)
	if err != nil {
		return err
	}
	inv, err := inventory.New(inventory.Options{Client: client, Policies: []inventory.PolicyKind{inventory.HealthPolicies(), inventory.CollectionPolicies()}, File: filepath.Join(c.Path("health"), "inventory.json"), Logger: env.Log})
	if err != nil {
		return err
	}
	env.Go("inventory", inv.Run)
	env.Ops.Ready("inventory", inv.Ready)
	env.Ops.Status("inventory", inv.Status)
	writer := status.New(status.Options{Client: client, Logger: env.Log, Registerer: env.Reg})
	env.Go("status", writer.Run)

	var regionals []engine.Regional
	for _, r := range c.Regionals {
		regionals = append(regionals, engine.Regional{Name: r.Name, URL: c.QueryURL(r)})
	}
	t := known.Transport()
	t.MaxIdleConnsPerHost = 16
	e, err := engine.New(engine.Options{
		Disk:   env.ShareOfDisk(c.Path("health")),
		Client: &http.Client{Transport: t}, Regionals: regionals, Inventory: inv, Status: writer, Shipped: defaults.Model(), Dir: c.Path("health"), Tick: c.Health.Tick.D(), Patience: c.Health.OfflineAfter.D(),
		StoreQueryURL: c.CortexURL() + "/prometheus/api/v1", StoreWriteURL: c.CortexURL() + "/api/v1/push", Logger: env.Log, Registerer: env.Reg,
	})
	if err != nil {
		return err
	}
	env.Go("engine", e.Run)
	env.Ops.Ready("engine", e.Ready)
	told, err := happened.Open(env, c.Path("health"))
	if err != nil {
		return err
	}
	teller, err := colours.New(colours.Options{Source: e, Timeline: told, Logger: env.Log.With("part", "colours")})
	if err != nil {
		return err
	}
	env.Go("colours", teller.Run)
	h, err := api.New(api.Options{Source: e, Logger: env.Log, Registerer: env.Reg, Shipped: &defaults.HealthPolicy().Spec})
	if err != nil {
		return err
	}
	h.Register(env.Ops.Mux())
	alerting, err := url.Parse(c.AlertingURL())
	if err != nil {
		return err
	}
	asks, err := known.ClientOf(c.AlertingURLs())
	if err != nil {
		return err
	}
	table, err := sites.New(sites.Options{Source: e, Logger: env.Log.With("part", "sites"), Firing: sites.FiringFrom(asks, alerting), Measure: e.Measure})
	if err != nil {
		return err
	}
	table.Register(env.Ops.Mux())
	// It is here because the inventory is.
	var asked []cost.Regional
	for _, r := range c.Regionals {
		asked = append(asked, cost.Regional{Name: r.Name, URL: c.QueryURL(r)})
	}
	costs, err := cost.New(cost.Options{Client: known.Client(), Regionals: asked, Inventory: inv, Logger: env.Log.With("part", "cost"), Registerer: env.Reg})
	if err != nil {
		return err
	}
	costs.Register(env.Ops.Mux())
	return nil
}
