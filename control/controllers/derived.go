package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
		}
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
			conditions := v.Status.Conditions
			v.Status = VirtualSiteStatus(v.Spec, sites)
			v.Status.Conditions = conditions
			errs = append(errs, r.patchStatus(ctx, v, before))
		}
	}
	return errors.Join(errs...)
}

// VirtualSiteStatus counts the sites that the selector takes. Decommissioned and
// pending sites are no members: neither has anything to run or to measure.
func VirtualSiteStatus(spec v1alpha1.VirtualSiteSpec, sites []v1alpha1.Site) v1alpha1.VirtualSiteStatus {
	var st v1alpha1.VirtualSiteStatus
	sel, err := metav1.LabelSelectorAsSelector(&spec.SiteSelector)
	if err != nil {
		return st // refused at admission
	}
	for i := range sites {
		s := &sites[i]
		if s.Spec.Decommissioned || !s.Spec.Approved || !sel.Matches(labels.Set(s.Labels)) {
			continue
		}
		st.Sites++
		st.Members = append(st.Members, s.Name)
		colour := fleet.Grey
		if s.Status.Health != nil {
			colour = s.Status.Health.Colour
		}
		switch {
		case s.Spec.Maintenance != nil:
			st.Maintenance++
		case colour == fleet.Green:
			st.Green++
		case colour == fleet.Orange:
			st.Orange++
		case colour == fleet.Red:
			st.Red++
		default:
			st.Grey++
		}
	}
	slices.Sort(st.Members)
	if len(st.Members) > maxMembers {
		st.Members = st.Members[:maxMembers]
	}
	return st
}

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
		each(p.Spec.SiteSelector, sites, func(s *v1alpha1.Site) {
			st.Sites++
			switch want := r.o.RenderedPolicy(fleet.SiteID{Tenant: tenant, Name: s.Name}); {
			case want != "" && want == s.Status.PolicyHash:
				st.Applied++
			case meta.IsStatusConditionFalse(s.Status.Conditions, fleet.KindCollectionPolicy+"Applied"):
				st.Rejected++
			}
		})
		errs = append(errs, r.patchStatus(ctx, p, before))
	}
	return errors.Join(errs...)
}

func each(selector metav1.LabelSelector, sites []v1alpha1.Site, fn func(*v1alpha1.Site)) {
	sel, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return
	}
	for i := range sites {
		if s := &sites[i]; !s.Spec.Decommissioned && sel.Matches(labels.Set(s.Labels)) {
			fn(s)
		}
	}
}
