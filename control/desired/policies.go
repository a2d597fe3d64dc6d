package desired

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// effectiveName is the name of a site's one collection policy.
const effectiveName = "effective"

// policies is the Source of collection policies.
type policies struct {
	byTenant map[string][]*policy // strongest first
	// merged is the result for a set of policies, so that a thousand sites that are
	// selected by the same ones are merged and encoded once.
	merged map[string]Piece
}

type policy struct {
	name     string
	selector labels.Selector
	spec     v1alpha1.CollectionPolicySpec
}

func newPolicies() *policies {
	return &policies{byTenant: map[string][]*policy{}, merged: map[string]Piece{}}
}

// SetPolicy adds or changes a collection policy of a tenant; the sites that it
// selected or selects are rendered. An error means that the selector can't be
// used: what the policy said before, if anything, stays in force.
func (s *Store) SetPolicy(tenant, name string, spec v1alpha1.CollectionPolicySpec) error {
	selector, err := metav1.LabelSelectorAsSelector(&spec.SiteSelector)
	if err != nil {
		return fmt.Errorf("collection policy %s/%s: spec.siteSelector: %w", tenant, name, err)
	}
	p := &policy{name: name, selector: selector, spec: *spec.DeepCopy()}
	s.update(func() {
		old := s.policies.put(tenant, name, p)
		s.fleet.setPolicies(tenant, s.policies.byTenant[tenant])
		s.renderWhereLocked(tenant, func(l labels.Set) bool {
			return p.selector.Matches(l) || (old != nil && old.selector.Matches(l))
		})
	})
	return nil
}

// DeletePolicy forgets a collection policy; the sites that it selected are rendered.
func (s *Store) DeletePolicy(tenant, name string) {
	s.update(func() {
		if old := s.policies.put(tenant, name, nil); old != nil {
			s.fleet.setPolicies(tenant, s.policies.byTenant[tenant])
			s.renderWhereLocked(tenant, func(l labels.Set) bool { return old.selector.Matches(l) })
		}
	})
}

// put replaces the policy (nil: removes it) and returns the old one.
func (ps *policies) put(tenant, name string, p *policy) (old *policy) {
	list := ps.byTenant[tenant]
	if i := slices.IndexFunc(list, func(x *policy) bool { return x.name == name }); i >= 0 {
		old = list[i]
		list = slices.Delete(list, i, i+1)
	}
	if p != nil {
		list = append(list, p)
		slices.SortFunc(list, func(a, b *policy) int {
			if a.spec.Priority != b.spec.Priority {
				return int(b.spec.Priority - a.spec.Priority)
			}
			return strings.Compare(a.name, b.name)
		})
	}
	ps.byTenant[tenant] = list
	if len(list) == 0 {
		delete(ps.byTenant, tenant)
	}
	// A change makes some merges worthless; which ones is not worth knowing.
	clear(ps.merged)
	return old
}

// Kind implements Source.
func (ps *policies) Kind() string { return fleet.KindCollectionPolicy }

// Render implements Source: always one policy, the defaults if none selects the site.
func (ps *policies) Render(site fleet.SiteID, set labels.Set) []Piece {
	var chosen []*policy
	var key strings.Builder
	for _, p := range ps.byTenant[site.Tenant] {
		if p.selector.Matches(set) {
			chosen = append(chosen, p)
			fmt.Fprintf(&key, "%s/%s\n", site.Tenant, p.name)
		}
	}
	piece, ok := ps.merged[key.String()]
	if !ok {
		specs := make([]v1alpha1.CollectionPolicySpec, len(chosen))
		for i, p := range chosen {
			specs[i] = p.spec
		}
		piece = NewPiece(effectiveName, Merge(specs).Encode())
		ps.merged[key.String()] = piece
	}
	return []Piece{piece}
}

// Merge joins policies, strongest first, by the rule that the CollectionPolicy
// type states: lists are joined; each scalar, and each metric's aggregation, comes
// from the strongest policy that sets it; what none sets has its default.
//
// It does not validate: a policy that admission let through by mistake reaches the
// site, which keeps its last good one and says so in a condition.
func Merge(specs []v1alpha1.CollectionPolicySpec) fleet.CollectionPolicy {
	out := fleet.CollectionPolicy{
		SeriesBudget: fleet.DefaultSeriesBudget, Interval: fleet.DefaultInterval,
		SpoolMaxBytes: fleet.DefaultSpoolMaxBytes, SpoolMaxAge: fleet.DefaultSpoolMaxAge,
	}
	for _, sp := range slices.Backward(specs) { // weakest first: each overwrites what it sets
		out.AllowNames = append(out.AllowNames, sp.Allow.Names...)
		out.AllowPatterns = append(out.AllowPatterns, sp.Allow.Patterns...)
		out.DropLabels = append(out.DropLabels, sp.DropLabels...)
		for _, a := range sp.Aggregations {
			if out.Aggregations == nil {
				out.Aggregations = map[string]string{}
			}
			out.Aggregations[a.Metric] = a.Op
		}
		if sp.SeriesBudget != nil {
			out.SeriesBudget = int(*sp.SeriesBudget)
		}
		if sp.Interval != nil {
			out.Interval = sp.Interval.Duration
		}
		if sp.Spool != nil && sp.Spool.MaxBytes != nil {
			out.SpoolMaxBytes = sp.Spool.MaxBytes.Value()
		}
		if sp.Spool != nil && sp.Spool.MaxAge != nil {
			out.SpoolMaxAge = sp.Spool.MaxAge.Duration
		}
	}
	return out
}
