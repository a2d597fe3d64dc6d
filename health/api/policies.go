package api

import (
	"net/http"

	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/wire"
)

// ShippedName is what the shipped policy is called in a path, unless a tenant has a policy
// of that name.
const ShippedName = "shipped"

func (s *Server) policies(_ *http.Request, v *engine.View, sc *wire.Scope) (any, *wire.Problem) {
	out := PolicyList{AsOf: asOf(v), Policies: []Policy{}}
	for _, x := range v.Policies {
		if p, ok := policyFor(x, v, sc); ok {
			out.Policies = append(out.Policies, *p)
		}
	}
	return out, nil
}

func (s *Server) policy(r *http.Request, v *engine.View, sc *wire.Scope) (any, *wire.Problem) {
	name := r.PathValue("name")
	var found []PolicyDetail
	var shipped *PolicyDetail
	for _, x := range v.Policies {
		of := x.Tenant == ""
		if !of && x.Name != name || of && (name != ShippedName || s.opts.Shipped == nil) {
			continue
		}
		p, ok := policyFor(x, v, sc)
		switch {
		case !ok:
		case of:
			shipped = &PolicyDetail{AsOf: asOf(v), Policy: *p, Spec: s.opts.Shipped}
		case x.Spec != nil:
			found = append(found, PolicyDetail{AsOf: asOf(v), Policy: *p, Spec: x.Spec})
		}
	}
	switch {
	case len(found) == 1:
		return &found[0], nil
	case len(found) > 1:
		p := wire.Failure(http.StatusConflict, "several tenants have a health policy %q; say which with tenant=", name)
		for i := range found {
			p.Tenants = append(p.Tenants, found[i].Policy.Tenant)
		}
		return nil, p
	case shipped != nil:
		return shipped, nil
	}
	return nil, wire.Failure(http.StatusNotFound, "no health policy %q that you may read; GET /api/v1/health/policies lists those there are", name)
}

// policyFor is what a reader may see of a policy, if it is any of theirs.
func policyFor(x *engine.Policy, v *engine.View, sc *wire.Scope) (*Policy, bool) {
	shipped := x.Tenant == ""
	if !shipped && !sc.Has(x.Tenant) {
		return nil, false
	}
	p := &Policy{Tenant: x.Tenant, Name: x.Name, Sites: x.Sites, Error: x.Err, Shadow: x.Shadow, WouldChange: x.WouldChange, Examples: append([]string{}, x.Examples...), Signals: make([]PolicySignal, len(x.Signals))}
	for i, sig := range x.Signals {
		p.Signals[i] = PolicySignal{Name: sig.Name, Dimension: sig.Dimension, Error: sig.Err, SitesKnown: sig.SitesKnown, QueryMillis: sig.Millis}
	}
	return p, !shipped || recount(p, v, sc)
}

// recount counts the shipped policy's sites anew: only those that the reader may
// see. It says whether there are any.
func recount(p *Policy, v *engine.View, sc *wire.Scope) bool {
	p.Sites = 0
	for i := range p.Signals {
		p.Signals[i].SitesKnown = 0
	}
	for _, x := range v.Sites {
		if x.Policy != "" || x.State == nil || !sc.Has(x.ID.Tenant) {
			continue
		}
		p.Sites++
		for i := range x.State.Signals {
			if i < len(p.Signals) && x.State.Signals[i].Known {
				p.Signals[i].SitesKnown++
			}
		}
	}
	return p.Sites > 0
}
