package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// maxMembers is how many names of members a virtual site's status lists.
const maxMembers = 1000

// maintenances ends those whose time is over.
func (r *Runner) maintenances(ctx context.Context, sites []v1alpha1.Site, next *soonest) error {
	var errs []error
	for i := range sites {
		m := sites[i].Spec.Maintenance
		if m == nil || m.Until == nil {
			continue
		}
		if m.Until.After(next.now) {
			next.add(m.Until.Time)
			continue
		}
		s := sites[i].DeepCopy()
		before := s.DeepCopy()
		s.Spec.Maintenance = nil
		if err := r.o.Client.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("end maintenance of site %s: %w", s.Name, err))
			continue
		}
		r.event(s, corev1.EventTypeNormal, "MaintenanceEnded", fmt.Sprintf("maintenance %q was set to end at %s", m.Reason, m.Until.UTC().Format(time.RFC3339)))
	}
	return errors.Join(errs...)
}

// virtualSites counts the members of each virtual site of the tenant.
func (r *Runner) virtualSites(ctx context.Context, tenant string, sites []v1alpha1.Site) error {
	var spaces corev1.NamespaceList
	if err := r.o.Cache.List(ctx, &spaces, client.MatchingLabels{fleet.LabelTenant: tenant}); err != nil {
		return err
	}
	var errs []error
	for _, ns := range spaces.Items {
		var list v1alpha1.VirtualSiteList
		if err := r.o.Cache.List(ctx, &list, client.InNamespace(ns.Name)); err != nil {
			return err
		}
		for i := range list.Items {
			v := &list.Items[i]
			before := v.DeepCopy()
			status, populated := VirtualSiteStatus(v.Spec, sites)
			status.Conditions = v.Status.Conditions
			v.Status = status
			populated.ObservedGeneration = v.Generation
			meta.SetStatusCondition(&v.Status.Conditions, populated)
			errs = append(errs, r.patchStatus(ctx, v, before))
		}
	}
	return errors.Join(errs...)
}

// VirtualSiteStatus counts the sites that the selector takes, and explains in the
// condition Populated why there are none, or not all. Decommissioned and pending
// sites are no members: neither has anything to run or to measure.
func VirtualSiteStatus(spec v1alpha1.VirtualSiteSpec, sites []v1alpha1.Site) (v1alpha1.VirtualSiteStatus, metav1.Condition) {
	var st v1alpha1.VirtualSiteStatus
	sel, err := metav1.LabelSelectorAsSelector(&spec.SiteSelector)
	if err != nil { // refused at admission
		return st, metav1.Condition{Type: conditionPopulated, Status: metav1.ConditionFalse, Reason: "BadSelector", Message: "spec.siteSelector: " + err.Error()}
	}
	pending := 0
	for i := range sites {
		s := &sites[i]
		if s.Spec.Decommissioned || !sel.Matches(labels.Set(s.Labels)) {
			continue
		}
		if !s.Spec.Approved {
			pending++
			continue
		}
		st.Sites++
		st.Members = append(st.Members, s.Name)
		switch c := colour(s); {
		case s.Spec.Maintenance != nil:
			st.Maintenance++
		case c == fleet.Green:
			st.Green++
		case c == fleet.Orange:
			st.Orange++
		case c == fleet.Red:
			st.Red++
		default:
			st.Grey++
		}
	}
	slices.Sort(st.Members)
	if len(st.Members) > maxMembers {
		st.Members = st.Members[:maxMembers]
	}
	populated := metav1.Condition{Type: conditionPopulated, Status: metav1.ConditionTrue, Reason: "SitesMatch", Message: "sites join and leave by their labels"}
	if st.Sites == 0 {
		populated.Status, populated.Reason, populated.Message = metav1.ConditionFalse, "NoSiteMatches", "the selector takes none of the tenant's sites"
	}
	if pending > 0 {
		populated.Message += fmt.Sprintf("; %d more would match and wait for approval", pending)
	}
	return st, populated
}

// conditionPopulated of a virtual site tells whether it has members.
const conditionPopulated = "Populated"

func colour(s *v1alpha1.Site) fleet.Colour {
	if s.Status.Health == nil {
		return fleet.Grey
	}
	return s.Status.Health.Colour
}

// rejected tells whether the site keeps its last good policy.
func rejected(s *v1alpha1.Site) bool {
	return meta.IsStatusConditionFalse(s.Status.Conditions, conditionPolicyApplied)
}

// conditionPolicyApplied is reported by sites.
const conditionPolicyApplied = fleet.KindCollectionPolicy + "Applied"

// tokens sets what has become of each.
func (r *Runner) tokens(ctx context.Context, tenant string, next *soonest) error {
	var list v1alpha1.RegistrationTokenList
	if err := r.o.Cache.List(ctx, &list, client.InNamespace(fleet.SystemNamespace(tenant))); err != nil {
		return err
	}
	var errs []error
	for i := range list.Items {
		t := &list.Items[i]
		before := t.DeepCopy()
		t.Status.State = TokenState(t, next.now)
		if was := before.Status.State; was != "" && was != t.Status.State {
			r.event(t, corev1.EventTypeNormal, t.Status.State, fmt.Sprintf("was %s; %d sites registered with it", was, t.Status.Uses))
		}
		if e := t.Spec.Expires; e != nil {
			next.add(e.Time)
		}
		errs = append(errs, r.patchStatus(ctx, t, before))
	}
	return errors.Join(errs...)
}

// TokenState is Revoked, Expired, Exhausted or Active, whichever comes first.
func TokenState(t *v1alpha1.RegistrationToken, now time.Time) string {
	switch {
	case t.Spec.Revoked:
		return "Revoked"
	case t.Spec.Expires != nil && !now.Before(t.Spec.Expires.Time):
		return "Expired"
	case t.Spec.MaxUses > 0 && t.Status.Uses >= t.Spec.MaxUses:
		return "Exhausted"
	default:
		return "Active"
	}
}

// policies counts the sites that each collection policy selects, and those that
// have it in effect. A health policy's status is written by the health role, which
// knows what its queries give.
func (r *Runner) policies(ctx context.Context, tenant string, sites []v1alpha1.Site) error {
	in := client.InNamespace(fleet.SystemNamespace(tenant))
	var cps v1alpha1.CollectionPolicyList
	if err := r.o.Cache.List(ctx, &cps, in); err != nil {
		return err
	}
	var errs []error
	for i := range cps.Items {
		p := &cps.Items[i]
		before := p.DeepCopy()
		st := &p.Status
		st.Sites, st.Applied, st.Rejected = 0, 0, 0
		var refusing []string
		each(p.Spec.SiteSelector, sites, func(s *v1alpha1.Site) {
			st.Sites++
			switch want := r.o.RenderedPolicy(fleet.SiteID{Tenant: tenant, Name: s.Name}); {
			case rejected(s):
				st.Rejected++
				refusing = append(refusing, s.Name)
			case want != "" && want == s.Status.PolicyHash:
				st.Applied++
			}
		})
		applied := appliedCondition(*st, refusing)
		applied.ObservedGeneration = p.Generation
		meta.SetStatusCondition(&st.Conditions, applied)
		errs = append(errs, r.patchStatus(ctx, p, before))
	}
	return errors.Join(errs...)
}

// appliedCondition tells how far a policy has come, and where it was refused.
func appliedCondition(st v1alpha1.CollectionPolicyStatus, refusing []string) metav1.Condition {
	c := metav1.Condition{Type: "Applied", Status: metav1.ConditionFalse}
	switch {
	case st.Sites == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NoSiteMatches", "the selector takes none of the tenant's sites"
	case len(refusing) > 0:
		slices.Sort(refusing)
		more := ""
		if n := len(refusing) - maxNamed; n > 0 {
			refusing, more = refusing[:maxNamed], fmt.Sprintf(" and %d more", n)
		}
		c.Reason, c.Message = "Rejected", fmt.Sprintf("refused by %s%s; why is in the site's condition %s", strings.Join(refusing, ", "), more, conditionPolicyApplied)
	case st.Applied < st.Sites:
		c.Reason, c.Message = "InProgress", fmt.Sprintf("in effect on %d of %d sites; the others take it when they are online", st.Applied, st.Sites)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Applied", "in effect on every site that it selects"
	}
	return c
}

// maxNamed is how many sites a condition names.
const maxNamed = 5

func each(selector metav1.LabelSelector, sites []v1alpha1.Site, fn func(*v1alpha1.Site)) {
	sel, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return
	}
	for i := range sites {
		if s := &sites[i]; !s.Spec.Decommissioned && s.Spec.Approved && sel.Matches(labels.Set(s.Labels)) {
			fn(s)
		}
	}
}
