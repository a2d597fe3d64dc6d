package engine

import (
	"fmt"
	"slices"
	"time"

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
	// base is the policy of which this is what overrides make of it; nil for a policy
	// itself.
	base      *policy
	overrides []*v1alpha1.SignalOverride // that are in it
	// pace of the sites that it is for, 0 for all quick ones. Of the shipped policy what is for
	// another pace has no Policy.
	pace time.Duration
}

// plain is the policy without overrides and for quick sites; nil: the shipped one.
func (p *policy) plain() *policy {
	switch {
	case p == nil || p.Policy == nil:
		return nil
	case p.base != nil:
		return p.base
	}
	return p
}

// roster is a snapshot of the inventory, and the policy that applies to each site.
type roster struct {
	*inventory.Snapshot
	policies []*policy // in the order of the snapshot
	variants []*policy // what overrides and paces make of them, and of the shipped one
	of       []*policy // by the site's position; nil: the shipped one
	shadow   []*policy // by the site's position, the policy in shadow; nil: none anywhere
	// until when the overrides stay as they are; zero: for good.
	until time.Time
}

// asked are all policies whose queries a tick asks; nil among them is the shipped one. What is only at
// other paces in force is asked at these alone.
func (r *roster) asked() []*policy {
	slow, used := map[*policy]bool{}, map[*policy]bool{}
	for _, v := range r.variants {
		slow[v.base] = slow[v.base] || v.pace > 0
	}
	if len(slow) > 0 {
		for i, site := range r.Sites {
			if !site.Counts() {
				continue
			}
			used[r.of[i]] = true
			if shadow := r.shadowOf(i); shadow != nil {
				used[shadow] = true
			}
		}
	}
	var out []*policy
	for _, p := range append([]*policy{nil}, r.policies...) {
		if used[p] || !slow[p] {
			out = append(out, p)
		}
	}
	return append(out, r.variants...)
}

// shadowOf is the policy in shadow of the site at a position, nil if there is none.
func (r *roster) shadowOf(i int) *policy {
	if r.shadow == nil {
		return nil
	}
	return r.shadow[i]
}

// rosters makes rosters, and remembers the models of policies.
type rosters struct {
	e    *Engine
	last *roster
	made map[*inventory.Policy]*policy
	// variants that the last roster had.
	variants []*policy
	good     map[[2]string]*health.Model // the last valid one, by tenant and name
}

// now returns the roster of the inventory as it is now, the same as long as that is.
func (r *rosters) now() *roster {
	s := r.e.opts.Inventory.Snapshot()
	now := r.e.now()
	if r.last != nil && r.last.Snapshot == s && (r.last.until.IsZero() || now.Before(r.last.until)) {
		return r.last
	}
	out := r.cast(s, now)
	r.last, r.variants = out, out.variants
	return out
}

// cast finds the policy of each site of a snapshot.
func (r *rosters) cast(s *inventory.Snapshot, now time.Time) *roster {
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
			if x.model, x.err = modelOf(&hp.Spec); x.err != nil {
				r.e.log.Warn("health policy can't be used as it is; the last valid one stays in force", "tenant", p.Tenant, "policy", p.Name, "err", x.err)
				x.model = r.good[key]
			}
		}
		made[p], good[key] = x, x.model
		out.policies = append(out.policies, x)
	}
	r.made, r.good = made, good
	for i, site := range s.Sites {
		if site.Counts() {
			out.of[i] = r.variant(out, nil, site, now)
		}
		governed := false
		for _, p := range site.PoliciesOf(healthPolicies) {
			x := made[p]
			switch {
			case x == nil || x.model == nil:
			case !p.Shadow():
				if !governed {
					out.of[i], governed = r.variant(out, x, site, now), true
				}
			default:
				if out.shadow == nil {
					out.shadow = make([]*policy, len(s.Sites))
				}
				if out.shadow[i] == nil {
					out.shadow[i] = r.variant(out, x, site, now)
				}
			}
		}
	}
	return out
}

// modelOf makes a policy's model, and tries its overrides.
func modelOf(spec *v1alpha1.HealthPolicySpec) (*health.Model, error) {
	m, err := health.FromPolicy(spec)
	if err != nil {
		return nil, err
	}
	for i := range spec.Overrides {
		if _, err := m.With(changes(&spec.Overrides[i])); err != nil {
			return nil, fmt.Errorf("overrides[%d]: %w", i, err)
		}
	}
	return m, nil
}

func changes(o *v1alpha1.SignalOverride) map[string]health.Change {
	out := make(map[string]health.Change, len(o.Signals))
	for _, s := range o.Signals {
		c := health.Change{Ignore: s.Ignore}
		if s.Good != nil {
			v := s.Good.AsApproximateFloat64()
			c.Good = &v
		}
		if s.Bad != nil {
			v := s.Bad.AsApproximateFloat64()
			c.Bad = &v
		}
		out[s.Name] = c
	}
	return out
}

// variant is what the overrides that are in force for a site, and its pace, make of its policy; p is
// nil for the shipped one.
func (r *rosters) variant(out *roster, p *policy, site *inventory.Site, now time.Time) *policy {
	var in []*v1alpha1.SignalOverride
	if p != nil && p.err == nil && p.Object != nil {
		hp := p.Object.(*v1alpha1.HealthPolicy)
		for i := range hp.Spec.Overrides {
			o := &hp.Spec.Overrides[i]
			if !now.Before(o.Until.Time) {
				continue
			}
			if out.until.IsZero() || o.Until.Time.Before(out.until) {
				out.until = o.Until.Time
			}
			if slices.Contains(o.Sites, site.ID.Name) || slices.ContainsFunc(o.VirtualSites, func(v string) bool { return slices.Contains(site.VirtualSites, v) }) {
				in = append(in, o)
			}
		}
	}
	return r.with(out, p, in, site, site.Pace())
}

// with is a policy with overrides that are in force for a site, at a pace.
func (r *rosters) with(out *roster, p *policy, in []*v1alpha1.SignalOverride, site *inventory.Site, pace time.Duration) *policy {
	if len(in) == 0 && pace == 0 {
		return p
	}
	for _, list := range [][]*policy{out.variants, r.variants} { // the same as before, so that plans stay
		for _, v := range list {
			if v.base == p && v.pace == pace && slices.Equal(v.overrides, in) {
				if !slices.Contains(out.variants, v) {
					out.variants = append(out.variants, v)
				}
				return v
			}
		}
	}
	v := &policy{model: r.e.opts.Shipped, base: p, overrides: in, pace: pace}
	if p != nil {
		v.Policy, v.model = p.Policy, p.model
	}
	for _, o := range in {
		next, err := v.model.With(changes(o))
		if err != nil { // tried by modelOf; two together may make good and bad equal
			r.e.log.Warn("overrides of a health policy can't be used together", "tenant", p.Tenant, "policy", p.Name, "site", site.ID, "err", err)
			return r.with(out, p, nil, site, pace)
		}
		v.model = next
	}
	v.model = patient(v.model, pace, r.e.opts.Tick)
	out.variants = append(out.variants, v)
	return v
}
