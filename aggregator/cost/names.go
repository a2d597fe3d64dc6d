package cost

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/wire"
)

// topNames is how many metrics are told of.
const topNames = 10

// names are the metrics with the most series of a site, or of a tenant.
func (s *Server) names(r *http.Request, snap *inventory.Snapshot) (any, *wire.Problem) {
	q := r.URL.Query()
	sc, p := wire.ScopeOf(r, q["tenant"])
	if p != nil {
		return nil, p
	}
	tenant, site, p := subject(sc, snap, q.Get("site"))
	if p != nil {
		return nil, p
	}
	patience, p := wire.PatienceOf(r)
	if p != nil {
		return nil, p
	}
	out := &wire.NamesPage{AsOf: s.opts.Now(), Tenant: tenant, Site: site, Names: []wire.HeavyName{}}
	ask := "?" + url.Values{"tenant": {tenant}, "site": {site}}.Encode()
	asked := gather(r.Context(), s, func(ctx context.Context, r Regional) (*wire.RegionalNames, error) {
		b, err := s.get(ctx, r.URL+wire.CostNamesPath+ask)
		if err != nil {
			return nil, err
		}
		return decoded(wire.DecodeRegionalNames(b, r.Name, tenant, site))
	})
	good, missing := asked.wait(patience)
	out.MissingRegions = missing
	sums := map[string]int64{}
	for _, g := range good {
		out.Series += g.Series
		out.Sampled = out.Sampled || g.Sampled
		for _, n := range g.Names {
			sums[n.Name] += n.Series
		}
	}
	kept := newKeepers(snap, tenant, site)
	for name, n := range sums {
		out.Names = append(out.Names, wire.HeavyName{NameSeries: wire.NameSeries{Name: name, Series: n}})
	}
	slices.SortFunc(out.Names, func(a, b wire.HeavyName) int {
		return cmp.Or(cmp.Compare(b.Series, a.Series), cmp.Compare(a.Name, b.Name))
	})
	out.Names = out.Names[:min(topNames, len(out.Names))]
	for i := range out.Names {
		out.Names[i].KeptBy = kept.of(out.Names[i].Name)
	}
	return out, nil
}

// subject is the tenant, and the site if there is a name of one, that a request is about.
func subject(sc *wire.Scope, snap *inventory.Snapshot, site string) (tenant, name string, _ *wire.Problem) {
	if site == "" {
		if tenant, ok := sc.One(); ok {
			return tenant, "", nil
		}
		return "", "", wire.Invalid(wire.FieldError{Field: "tenant", Detail: "is missing: names are of one tenant, or of one site"})
	}
	var found []string
	for _, t := range snap.Tenants {
		if sc.Has(t.Name) && snap.Find(t.Name, site) >= 0 {
			found = append(found, t.Name)
		}
	}
	switch len(found) {
	case 0:
		return "", "", wire.Failure(http.StatusNotFound, "no site %q that you may read", site)
	case 1:
		return found[0], site, nil
	}
	p := wire.Failure(http.StatusConflict, "several tenants have a site %q; say which with tenant=", site)
	p.Tenants = found
	return "", "", p
}

// keepers are the fields of collection policies that let metrics leave sites.
type keepers struct {
	names    map[string][]wire.PolicyField
	patterns []pattern
}

type pattern struct {
	re    *regexp.Regexp
	field wire.PolicyField
}

// newKeepers takes the policies that select the site, or without one all of the tenant.
func newKeepers(snap *inventory.Snapshot, tenant, site string) *keepers {
	policies := snap.PoliciesOf(tenant, fleet.KindCollectionPolicy)
	if i := snap.Find(tenant, site); i >= 0 {
		policies = snap.Sites[i].PoliciesOf(fleet.KindCollectionPolicy)
	}
	k := &keepers{names: map[string][]wire.PolicyField{}}
	for _, p := range policies {
		cp, ok := p.Object.(*v1alpha1.CollectionPolicy)
		if !ok {
			continue
		}
		for _, n := range cp.Spec.Allow.Names {
			k.names[n] = append(k.names[n], wire.PolicyField{Policy: p.Name, Field: "spec.allow.names"})
		}
		for i, text := range cp.Spec.Allow.Patterns {
			if re, err := regexp.Compile("^(?:" + text + ")$"); err == nil { // else admission has refused it
				k.patterns = append(k.patterns, pattern{re, wire.PolicyField{Policy: p.Name, Field: fmt.Sprintf("spec.allow.patterns[%d]", i), Value: text}})
			}
		}
	}
	return k
}

func (k *keepers) of(name string) []wire.PolicyField {
	out := slices.Clone(k.names[name])
	for _, p := range k.patterns {
		if p.re.MatchString(name) {
			out = append(out, p.field)
		}
	}
	if out == nil {
		out = []wire.PolicyField{}
	}
	return out
}
