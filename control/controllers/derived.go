package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

// maxMembers is how many names of members a virtual site's status lists.
const maxMembers = 1000

// maintenances ends those that a person began and whose time is over, and writes into
// each site's status what is going on: by hand or in a window, of the site or of a
// virtual site of it.
func (r *Runner) maintenances(ctx context.Context, sites []*inventory.Site, now time.Time) error {
	var errs []error
	for _, s := range sites {
		if m := s.ByHand; m != nil && m.Until != nil && !m.Until.After(now) {
			errs = append(errs, r.endMaintenance(ctx, s, now))
		}
		if !sameMaintenance(s.InStatus, s.MaintenanceAt(now)) {
			errs = append(errs, r.writeMaintenance(ctx, s, now))
		}
	}
	return errors.Join(errs...)
}

func (r *Runner) endMaintenance(ctx context.Context, site *inventory.Site, now time.Time) error {
	var s v1alpha1.Site
	if err := r.o.Cache.Get(ctx, client.ObjectKey{Namespace: fleet.SystemNamespace(site.ID.Tenant), Name: site.ID.Name}, &s); err != nil {
		return client.IgnoreNotFound(err)
	}
	m := s.Spec.Maintenance
	if m == nil || m.Until == nil || m.Until.After(now) {
		return nil // it was changed meanwhile
	}
	before := s.DeepCopy()
	s.Spec.Maintenance = nil
	if err := r.o.Client.Patch(ctx, &s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		return fmt.Errorf("end maintenance of site %s: %w", s.Name, err)
	}
	return nil
}

func sameMaintenance(told *v1alpha1.SiteMaintenance, m *inventory.Maintenance) bool {
	if told == nil || m == nil {
		return told == nil && m == nil
	}
	// The API server keeps whole seconds.
	return told.Reason == m.Reason && told.Window == m.Window && (told.Until == nil) == m.Until.IsZero() && (told.Until == nil || told.Until.Unix() == m.Until.Unix())
}

func (r *Runner) writeMaintenance(ctx context.Context, site *inventory.Site, now time.Time) error {
	var s v1alpha1.Site
	if err := r.o.Cache.Get(ctx, client.ObjectKey{Namespace: fleet.SystemNamespace(site.ID.Tenant), Name: site.ID.Name}, &s); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := s.DeepCopy()
	s.Status.Maintenance = nil
	if m := site.MaintenanceAt(now); m != nil {
		s.Status.Maintenance = &v1alpha1.SiteMaintenance{Reason: m.Reason, Window: m.Window}
		if !m.Until.IsZero() {
			s.Status.Maintenance.Until = &metav1.Time{Time: m.Until}
		}
	}
	return r.patchStatus(ctx, &s, before)
}

// virtualSites counts the members of each virtual site of the tenant. One that the
// inventory does not know yet is counted when it does.
func (r *Runner) virtualSites(ctx context.Context, known *inventory.Snapshot, tenant string, now time.Time) error {
	var errs []error
	for _, v := range known.VirtualSitesOf(tenant) {
		var o v1alpha1.VirtualSite
		if err := r.o.Cache.Get(ctx, client.ObjectKey{Namespace: tenant + "-" + v.Namespace, Name: v.Name}, &o); err != nil {
			errs = append(errs, client.IgnoreNotFound(err))
			continue
		}
		if v.Generation < o.Generation {
			continue // the inventory has not read the change yet; its own comes here again
		}
		before := o
		before.Status = *o.Status.DeepCopy()
		status, populated := virtualSiteStatus(known, v, now)
		if _, err := metav1.LabelSelectorAsSelector(&o.Spec.SiteSelector); err != nil { // refused at admission
			populated = metav1.Condition{Type: conditionPopulated, Status: metav1.ConditionFalse, Reason: "BadSelector", Message: "spec.siteSelector: " + err.Error()}
		}
		status.Conditions = o.Status.Conditions
		o.Status = status
		populated.ObservedGeneration = o.Generation
		meta.SetStatusCondition(&o.Status.Conditions, populated)
		errs = append(errs, r.patchStatus(ctx, &o, &before))
	}
	return errors.Join(errs...)
}

// virtualSiteStatus counts the members, and explains in the condition Populated why
// there are none, or not all.
func virtualSiteStatus(known *inventory.Snapshot, v *inventory.VirtualSite, now time.Time) (v1alpha1.VirtualSiteStatus, metav1.Condition) {
	st := v1alpha1.VirtualSiteStatus{Sites: int32(len(v.Members))}
	for _, i := range v.Members {
		s := known.Sites[i]
		if len(st.Members) < maxMembers {
			st.Members = append(st.Members, s.ID.Name) // sorted, as the sites are
		}
		switch c := colour(s); {
		case s.MaintenanceAt(now) != nil:
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
	populated := metav1.Condition{Type: conditionPopulated, Status: metav1.ConditionTrue, Reason: "SitesMatch", Message: "sites join and leave by their labels"}
	if st.Sites == 0 {
		populated.Status, populated.Reason, populated.Message = metav1.ConditionFalse, "NoSiteMatches", "the selector takes none of the tenant's sites"
	}
	if v.Waiting > 0 {
		populated.Message += fmt.Sprintf("; %d more would match and wait for approval", v.Waiting)
	}
	return st, populated
}

// conditionPopulated of a virtual site tells whether it has members.
const conditionPopulated = "Populated"

func colour(s *inventory.Site) fleet.Colour {
	if s.Health == nil {
		return fleet.Grey
	}
	return s.Health.Colour
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
