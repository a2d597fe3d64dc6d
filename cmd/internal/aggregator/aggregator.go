// Package aggregator composes the metric store: Cortex in this process, or an
// external one by URL.
package aggregator

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/aggregator/cortex"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/peers"
)

// store is what embedded and external Cortex have in common.
type store interface {
	Run(ctx context.Context) error
	Ready() error
	URL() string
	Gatherer() prometheus.Gatherer
	Status() any
}

// Run runs the role until ctx ends.
func Run(ctx context.Context, c config.Config) error {
	late := &lateGatherer{}
	known, err := c.OpenPeers("aggregator")
	if err != nil {
		return err
	}
	return role.Run(ctx, role.Options{Role: "aggregator", Shared: true, OpsListen: c.Aggregator.OpsListen, Guard: known.Listener(config.OpsRules("aggregator")), Hosts: c.HostNames(), Log: obs.LogOptions(c.Log), GCPercent: cortex.GCPercent, Gather: []prometheus.Gatherer{late}},
		func(_ context.Context, env *role.Env) error {
			s, err := open(env, c, known)
			if err != nil {
				return err
			}
			late.set(s.Gatherer())
			env.Ops.Ready("cortex", s.Ready)
			env.Ops.Status("cortex", s.Status)
			env.Go("cortex", s.Run)
			env.Log.Info("the metric store is at", "url", s.URL())
			return nil
		})
}

func open(env *role.Env, c config.Config, known *peers.Peers) (store, error) {
	if url := c.Aggregator.Cortex.URL; url != "" {
		return cortex.NewExternal(cortex.ExternalOptions{URL: url, Transport: known.Transport(), Logger: env.Log})
	}
	// Cortex binds its own listener; this tells a taken port in Muster's words.
	probe, err := role.Listen("aggregator.cortex.listen", c.Aggregator.Cortex.Listen)
	if err != nil {
		return nil, err
	}
	_ = probe.Close()
	return cortex.New(cortex.Options{DataDir: c.Path("aggregator"), Disk: env.ShareOfDisk(c.Path("aggregator")), Listen: c.Aggregator.Cortex.Listen, Guard: known.Listener(config.CortexRules()), Retention: c.Aggregator.Cortex.Retention.D(), Limits: storeLimits(c), Logger: env.Log})
}

// storeLimits are derived from what the regionals take, the one place where limits are
// set: a tenant may have its most in each of them. A tenth more is for what does not come
// through a gateway, such as scores.
func storeLimits(c config.Config) cortex.Limits {
	n := 0
	for _, r := range c.Regionals {
		n += r.Limits.TenantSeries
	}
	return cortex.Limits{SeriesPerTenant: n + n/10}
}
