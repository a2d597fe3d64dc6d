package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/few"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

// policySites are the names of the sites that a policy selects, by what became of it
// there. Each site is in one list.
type policySites struct {
	applied  []string
	refusing []string // connected
	waiting  []string // connected
	away     []string // not connected, and not known to have it
	rejected int32    // refusing, connected or not
}

func (p *policySites) all() int {
	return len(p.applied) + len(p.refusing) + len(p.waiting) + len(p.away)
}

// policies counts the sites that each collection policy selects, and those that
// have it in effect. The rest of a health policy's status is written by the health
// role, which knows what its queries give.
func (r *Runner) policies(ctx context.Context, known *inventory.Snapshot, tenant string, next *soonest) error {
	// Asked first: what sites should have is of these generations or later ones.
	generations := r.o.RenderedPolicies(tenant)
	byName := r.policySites(known, tenant)
	var cps v1alpha1.CollectionPolicyList
	if err := r.o.Cache.List(ctx, &cps, client.InNamespace(fleet.SystemNamespace(tenant))); err != nil {
		return err
	}
	var errs []error
	for i := range cps.Items {
		p := &cps.Items[i]
		if generations != nil && generations[p.Name] < p.Generation {
			next.add(next.now.Add(settle)) // not rendered yet: sites that have the one before would count
			continue
		}
		before := p.DeepCopy()
		sites := byName[p.Name]
		if sites == nil {
			sites = &policySites{}
		}
		st := &p.Status
		st.Sites, st.Applied, st.Rejected = int32(sites.all()), int32(len(sites.applied)), sites.rejected
		applied := appliedCondition(sites, conditionPolicyApplied)
		applied.ObservedGeneration = p.Generation
		meta.SetStatusCondition(&st.Conditions, applied)
		r.tellShipped(p, &st.Conditions)
		errs = append(errs, r.patchStatus(ctx, p, before))
	}
	return errors.Join(errs...)
}

func (r *Runner) policySites(known *inventory.Snapshot, tenant string) map[string]*policySites {
	return sitesByPolicy(known, tenant, fleet.KindCollectionPolicy, func(s *inventory.Site) (applied, refused bool) {
		has, refused := s.PolicyHash, s.PolicyRefused
		if r.o.Reports != nil {
			if h, ref, told := r.o.Reports.PolicyOf(s.ID); told {
				has, refused = h, ref
			}
		}
		want := r.o.RenderedPolicy(s.ID)
		return !refused && want != "" && want == has, refused
	})
}

// sitesByPolicy are the sites of each policy of a kind; said is what a site makes of what it
// should have of all of them.
func sitesByPolicy(known *inventory.Snapshot, tenant, kind string, said func(*inventory.Site) (applied, refused bool)) map[string]*policySites {
	byName := map[string]*policySites{}
	for _, s := range known.SitesOf(tenant) {
		policies := s.PoliciesOf(kind)
		if !s.Counts() || len(policies) == 0 { // decommissioned and pending ones have nothing to measure
			continue
		}
		applied, refused := said(s)
		for _, p := range policies {
			st := byName[p.Name]
			if st == nil {
				st = &policySites{}
				byName[p.Name] = st
			}
			if refused {
				st.rejected++
			}
			list := &st.waiting
			switch online := s.Phase == fleet.PhaseOnline; {
			case refused && online:
				list = &st.refusing
			case applied:
				list = &st.applied
			case !online:
				list = &st.away
			}
			*list = append(*list, s.ID.Name) // sorted, as the sites are
		}
	}
	return byName
}

// appliedCondition tells how far a policy has come. It is True when every connected
// site has it: one that is away takes it when it returns, and holds up nobody who waits.
// says is the condition in which sites say why they refuse.
func appliedCondition(p *policySites, says string) metav1.Condition {
	c := metav1.Condition{Type: conditionApplied, Status: metav1.ConditionFalse}
	var lines []string
	switch all := p.all(); {
	case all == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NoSiteMatches", "the selector takes none of the tenant's sites"
		return c
	case len(p.refusing) > 0:
		c.Reason = "Rejected"
		lines = append(lines, fmt.Sprintf("refused by %s; why is in the site's condition %s", few.Of(p.refusing, maxNamed, ", "), says))
	case len(p.waiting) > 0:
		c.Reason = "InProgress"
		lines = append(lines, fmt.Sprintf("in effect on %d of %d sites; not yet on %s", len(p.applied), all, few.Of(p.waiting, maxNamed, ", ")))
	case len(p.away) == all:
		c.Status, c.Reason = metav1.ConditionTrue, "NoSiteConnected"
		lines = append(lines, "no site that it selects is connected")
	case len(p.away) > 0:
		c.Status, c.Reason = metav1.ConditionTrue, "AppliedOnConnected"
		lines = append(lines, fmt.Sprintf("in effect on every connected site, %d of %d", len(p.applied), all))
	default:
		c.Status, c.Reason = metav1.ConditionTrue, "Applied"
		lines = append(lines, "in effect on every site that it selects")
	}
	if len(p.away) > 0 {
		lines = append(lines, "not connected, and will take it when they return: "+few.Of(p.away, maxNamed, ", "))
	}
	c.Message = cut(strings.Join(lines, "; "))
	return c
}

// maxNamed is how many sites a condition names.
const maxNamed = 5
