package engine

import (
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health"
	"muster.dev/muster/internal/inventory"
)

// healthPolicies is the kind of policies that the engine applies.
var healthPolicies = inventory.HealthPolicies().Kind

// policy is a HealthPolicy with its model.
type policy struct {
	*inventory.Policy
	// model is nil if the policy has never been valid; with an err it is the last
	// valid one.
	model *health.Model
	err   error // what is wrong with the policy as it stands
}

// roster is a snapshot of the inventory, and the policy that applies to each site.
type roster struct {
	*inventory.Snapshot
	policies []*policy // in the order of the snapshot
	of       []*policy // by the site's position; nil: the shipped one
}

// rosters makes rosters, and remembers the models of policies.
type rosters struct {
	e    *Engine
	last *roster
	made map[*inventory.Policy]*policy
	good map[[2]string]*health.Model // the last valid one, by tenant and name
}

// now returns the roster of the inventory as it is now, the same as long as that is.
func (r *rosters) now() *roster {
	s := r.e.opts.Inventory.Snapshot()
	if r.last != nil && r.last.Snapshot == s {
		return r.last
	}
	out := &roster{Snapshot: s, of: make([]*policy, len(s.Sites))}
	made, good := map[*inventory.Policy]*policy{}, map[[2]string]*health.Model{}
	for _, p := range s.Policies {
		hp, ok := p.Object.(*v1alpha1.HealthPolicy)
		if !ok {
			continue
		}
		x, key := r.made[p], [2]string{p.Tenant, p.Name}
		if x == nil {
			x = &policy{Policy: p}
			if x.model, x.err = health.FromPolicy(&hp.Spec); x.err != nil {
				r.e.log.Warn("health policy can't be used as it is; the last valid one stays in force", "tenant", p.Tenant, "policy", p.Name, "err", x.err)
				x.model = r.good[key]
			}
		}
		made[p], good[key] = x, x.model
		out.policies = append(out.policies, x)
	}
	r.made, r.good, r.last = made, good, out
	for i, site := range s.Sites {
		for _, p := range site.PoliciesOf(healthPolicies) {
			if x := made[p]; x != nil && x.model != nil {
				out.of[i] = x
				break
			}
		}
	}
	return out
}
