package control

import (
	"context"
	"strconv"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/fleetapi"
	"muster.dev/muster/control/granted"
	"muster.dev/muster/control/rollout"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/control/rollout/gatecheck"
	"muster.dev/muster/control/rollout/readings"
	"muster.dev/muster/control/vk8s/sum"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/hostconfig"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/workload"
)

// rolloutParts is what rollouts are moved with.
type rolloutParts struct {
	client    client.Client
	cache     cache.Cache
	objects   dynamic.Interface
	inventory *inventory.Inventory
	grants    *granted.Grants
	store     *desired.Store
	clusters  *virtual
	fleet     *fleetapi.Server
	readings  *readings.Readings
	recorder  record.EventRecorder
}

// startRollouts moves rollouts.
func startRollouts(env *role.Env, p rolloutParts) {
	online := func(tenant, site string) bool {
		return p.clusters.store.IsOnline(fleet.SiteID{Tenant: tenant, Name: site})
	}
	c := rollout.New(rollout.Options{Client: p.client, Cache: p.cache, Dynamic: p.objects, Inventory: p.inventory, Offered: p.grants.Set, Readings: p.readings, Recorder: p.recorder, Logger: env.Log, Registerer: env.Reg,
		Sites:  &rolloutSites{store: p.store, sum: p.clusters.sum, fleet: p.fleet, inventory: p.inventory},
		Online: online})
	checks := gatecheck.New(gatecheck.Options{Client: p.client, Cache: p.cache, Inventory: p.inventory, Readings: p.readings, Online: online, Logger: env.Log, Registerer: env.Reg})
	env.Go("gate checks", checks.Run)
	p.clusters.store.OnWorkloads(func(items []string) {
		tenants := map[string]bool{}
		for _, item := range items {
			if _, _, ns, _, err := workload.ParseItemName(item); err == nil && ns != "" {
				tenants[p.clusters.tenantOf(ns)] = true
			}
		}
		for t := range tenants {
			c.Touch(t)
		}
	})
	p.fleet.SubscribePolicies(c.Touch)
	changed := p.inventory.Changed()
	env.Go("rollouts", func(ctx context.Context) error {
		select { // before that, a kind that is granted is unknown
		case <-ctx.Done():
			return ctx.Err()
		case <-p.grants.Synced():
		}
		return c.Run(ctx)
	})
	env.Go("rollouts of sites that changed", func(ctx context.Context) error {
		last := p.inventory.Snapshot()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			}
			now := p.inventory.Snapshot()
			if last != nil {
				for _, tenant := range inventory.Differ(last, now) {
					c.Touch(tenant)
				}
			}
			last = now
		}
	})
}

// rolloutSites tells what sites say of what rollouts move.
type rolloutSites struct {
	store     *desired.Store
	sum       *sum.Controller
	fleet     *fleetapi.Server
	inventory *inventory.Inventory
}

// Of implements rollout.Sites.
func (r *rolloutSites) Of(kind offered.Kind, namespace, name string, state *v1alpha1.RolloutState) ([]rollout.Site, bool) {
	if !r.store.Started() {
		return nil, false
	}
	if tenant, ok := fleet.TenantOfSystemNamespace(namespace); ok {
		return r.ofPolicy(kind, tenant, name, state)
	}
	if _, ok := r.store.Workloads(namespace); !ok {
		return nil, true // without a virtual Kubernetes nothing is carried
	}
	item := workload.ItemName(kind.Group, kind.Kind, namespace, name)
	if state != nil && state.Spec.Held {
		if name, version := r.store.RolloutOf(item); name != state.Name || strconv.FormatUint(version, 10) != state.ResourceVersion {
			return nil, false
		}
	}
	list, ok := r.sum.Sites(item)
	if !ok {
		return nil, true // carried nowhere
	}
	out := make([]rollout.Site, len(list))
	for i, at := range list {
		s := rollout.Site{Name: at.Site.Name}
		switch {
		case at.Ready:
			s.State = decide.Ready
		case at.Over:
			s.State, s.Why = decide.Failed, at.Why
		case at.Applied:
			s.State = decide.Progressing
		}
		out[i] = s
	}
	return out, true
}

// ofPolicy: the sites of a policy are those that any of its contents selects.
func (r *rolloutSites) ofPolicy(kind offered.Kind, tenant, name string, state *v1alpha1.RolloutState) ([]rollout.Site, bool) {
	known := r.inventory.Snapshot()
	if known == nil {
		return nil, false
	}
	p := policySites{kind: kind.Kind, name: name, state: state, rendered: r.store.Site}
	switch kind.Kind { // a health policy is in effect where it is resolved
	case fleet.KindCollectionPolicy:
		p.told = r.policyState
	case desired.KindSoftwarePolicy:
		p.told = func(site *inventory.Site) (decide.Applied, string) { return r.softwareState(site.ID, name) }
	case hostconfig.Kind:
		p.told = func(site *inventory.Site) (decide.Applied, string) {
			return hostState(r.fleet.HostOf(site.ID), r.store.HostDigest(site.ID))
		}
	}
	return p.of(known.SitesOf(tenant)), true
}

// hostState is what a site makes of how its host shall be configured.
func hostState(said fleetapi.HostSaid, digest string) (decide.Applied, string) {
	switch {
	case said.Refused:
		return decide.Failed, said.Why
	case said.Told && said.Hash == digest: // both are empty where no object selects it any more
		return decide.Ready, ""
	}
	return decide.NotYet, ""
}

// softwareState is how far a site is with the version that it shall run by a policy; ready
// where something else decides: there the policy changes nothing.
func (r *rolloutSites) softwareState(id fleet.SiteID, policy string) (decide.Applied, string) {
	site := r.store.Site(id)
	if site == nil {
		return decide.NotYet, ""
	}
	return softwareStanding(site, policy, r.fleet.SoftwareOf(id), func(c v1alpha1.SoftwareComponent) string { return r.store.SoftwareDigest(id, c) })
}

// softwareStanding judges what the site said by the digest of what it shall run of a
// component.
func softwareStanding(site *inventory.Site, policy string, said fleetapi.SoftwareSaid, digest func(v1alpha1.SoftwareComponent) string) (decide.Applied, string) {
	for _, p := range site.PoliciesOf(desired.KindSoftwarePolicy) {
		if p.Name != policy {
			continue
		}
		spec := &p.Object.(*v1alpha1.SoftwarePolicy).Spec
		if _, decides, _ := desired.SoftwareFor(site, spec.Component); decides != p {
			break
		}
		standing, why := said.Standing(spec.Component, digest(spec.Component), spec.Version)
		switch standing {
		case fleetapi.SoftwareDone:
			return decide.Ready, ""
		case fleetapi.SoftwareFailed:
			return decide.Failed, why
		case fleetapi.SoftwareWaits:
			return decide.Waits, why
		case fleetapi.SoftwareMoves:
			if said.Of(spec.Component).State == v1alpha1.SoftwareInstalling {
				return decide.Restarting, ""
			}
			return decide.Progressing, ""
		}
		return decide.NotYet, ""
	}
	return decide.Ready, ""
}

// policyState is what a site makes of what it should have of its collection policies.
func (r *rolloutSites) policyState(site *inventory.Site) (decide.Applied, string) {
	has, refused := site.PolicyHash, site.PolicyRefused
	if h, ref, told := r.fleet.PolicyOf(site.ID); told {
		has, refused = h, ref
	}
	switch {
	case refused:
		return decide.Failed, "the site refuses the policy; why is in its condition " + fleet.KindCollectionPolicy + "Applied"
	case has != "" && has == r.store.PolicyHash(site.ID):
		return decide.Ready, ""
	}
	return decide.NotYet, ""
}
