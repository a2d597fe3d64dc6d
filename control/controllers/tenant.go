package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/kinds"
	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// tenant brings one tenant up to date. It returns when to look again without an
// event: at the next expiry of a token or a maintenance.
func (r *Runner) tenant(ctx context.Context, name string) (time.Duration, error) {
	if name == "" {
		return 0, nil
	}
	if name == fleet.PlatformTenant {
		return look, r.platform(ctx)
	}
	var t v1alpha1.Tenant
	if err := r.o.Cache.Get(ctx, client.ObjectKey{Name: name}, &t); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	if t.DeletionTimestamp != nil {
		return 0, r.endTenant(ctx, &t)
	}
	if err := r.holdTenant(ctx, &t); err != nil {
		return 0, err
	}
	blocked, err := r.namespaces(ctx, &t)
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "NamespacesReady", Message: "every namespace is there"}
	switch {
	case err != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "NotSetUp", err.Error()
		return 0, errors.Join(err, r.tenantStatus(ctx, &t, ready, t.Status))
	case len(blocked) > 0:
		ready.Status, ready.Reason = metav1.ConditionFalse, blocked[0].reason
		var says []string
		for _, b := range blocked {
			says = append(says, b.namespace+" "+b.why)
		}
		ready.Message = strings.Join(says, "; ")
		if slices.ContainsFunc(blocked, func(b blockedNamespace) bool { return b.namespace == fleet.SystemNamespace(name) }) {
			return 0, r.tenantStatus(ctx, &t, ready, v1alpha1.TenantStatus{})
		}
	}
	var own []string
	own, err = r.ownNamespaces(ctx, name)
	if err != nil {
		return 0, err
	}
	setUp := errors.Join(r.rbac(ctx, name), r.readTenant(ctx, &t), r.defaults(ctx, &t))
	if setUp != nil && ready.Status == metav1.ConditionTrue {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "NotSetUp", setUp.Error()
	}
	known := r.o.Inventory.Snapshot()
	now := v1alpha1.TenantStatus{Namespaces: own}
	for _, s := range known.SitesOf(name) {
		if s.Listed() {
			now.Sites++
		}
	}
	now.Usage = usage(t.Status.Usage, r.used(name, now), t.Spec.Quotas.InEffect(r.o.Quotas))
	next := &soonest{now: r.o.Now()}
	next.add(next.now.Add(look))
	next.add(known.NextEdgeOf(name, next.now))
	err = errors.Join(setUp,
		r.tenantStatus(ctx, &t, ready, now),
		r.maintenances(ctx, known.SitesOf(name), next.now),
		r.virtualSites(ctx, known, name, next.now),
		r.tokens(ctx, name, next),
		r.policies(ctx, known, name, next),
		r.software(ctx, known, name, next),
		r.hosts(ctx, known, name, next),
		r.tellHealthShipped(ctx, name),
		r.rules(ctx, name),
		r.virtualKubernetes(ctx, known, name, own),
		r.overrides(ctx, known, name, own),
		r.virtualHosts(ctx, known, name, own),
	)
	return next.wait(), err
}

// soonest keeps the nearest of several moments.
type soonest struct {
	now time.Time
	at  time.Time
}

func (s *soonest) add(t time.Time) {
	if t.After(s.now) && (s.at.IsZero() || t.Before(s.at)) {
		s.at = t
	}
}

// wait is how long until the moment has passed; 0: there is none.
func (s *soonest) wait() time.Duration {
	if s.at.IsZero() {
		return 0
	}
	return s.at.Sub(s.now) + time.Second
}

// blockedNamespace is one that the tenant should have and has not.
type blockedNamespace struct{ namespace, reason, why string }

// namespaces makes the tenant's namespaces, and names those that it can't have:
// they belong to somebody else, or are being deleted.
func (r *Runner) namespaces(ctx context.Context, t *v1alpha1.Tenant) (blocked []blockedNamespace, err error) {
	names := []string{fleet.SystemNamespace(t.Name), fleet.SharedNamespace(t.Name)}
	for _, n := range t.Spec.Namespaces {
		names = append(names, t.Name+"-"+n)
	}
	for _, name := range names {
		var ns corev1.Namespace
		err := r.o.Cache.Get(ctx, client.ObjectKey{Name: name}, &ns)
		switch {
		case apierrors.IsNotFound(err):
			ns = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelTenant: t.Name}}}
			if err := r.o.Client.Create(ctx, &ns); err != nil && !apierrors.IsAlreadyExists(err) {
				return nil, fmt.Errorf("make namespace %s: %w", name, err)
			}
		case err != nil:
			return nil, err
		case ns.Labels[fleet.LabelTenant] != t.Name:
			owner := ns.Labels[fleet.LabelTenant]
			if owner == "" {
				owner = "nobody known to Muster"
			}
			blocked = append(blocked, blockedNamespace{name, "NamespaceCollision", "belongs to " + owner + ": rename the tenant's namespace or delete the other one"})
		case ns.DeletionTimestamp != nil:
			blocked = append(blocked, blockedNamespace{name, "NamespaceTerminating", "is being deleted: it is made again when it is gone"})
		}
	}
	return blocked, nil
}

// used is what the tenant uses of each quota that is known of.
func (r *Runner) used(tenant string, now v1alpha1.TenantStatus) map[string]int64 {
	out := map[string]int64{v1alpha1.QuotaSites: int64(now.Sites)}
	if r.o.Stored != nil {
		s := r.o.Stored(tenant)
		out[v1alpha1.QuotaObjects], out[v1alpha1.QuotaObjectBytes] = s.Objects, s.ObjectBytes
	}
	if r.o.Sent != nil {
		out[v1alpha1.QuotaSeries], out[v1alpha1.QuotaLogBytesPerDay] = r.o.Sent(tenant)
	}
	return out
}

// ownNamespaces are the tenant's, as users type them.
func (r *Runner) ownNamespaces(ctx context.Context, tenant string) ([]string, error) {
	var list corev1.NamespaceList
	if err := r.o.Cache.List(ctx, &list, client.MatchingLabels{fleet.LabelTenant: tenant}); err != nil {
		return nil, err
	}
	var out []string
	for _, ns := range list.Items {
		if short, ok := strings.CutPrefix(ns.Name, tenant+"-"); ok && ns.DeletionTimestamp == nil {
			out = append(out, short)
		}
	}
	slices.Sort(out)
	return out, nil
}

func (r *Runner) tenantStatus(ctx context.Context, t *v1alpha1.Tenant, ready metav1.Condition, now v1alpha1.TenantStatus) error {
	before := t.DeepCopy()
	t.Status.Sites, t.Status.Namespaces, t.Status.Usage = now.Sites, now.Namespaces, now.Usage
	for _, c := range []metav1.Condition{ready, withinQuotas(now.Usage)} {
		c.ObservedGeneration = t.Generation
		if old := meta.FindStatusCondition(t.Status.Conditions, c.Type); old == nil || old.Status != c.Status || old.Reason != c.Reason {
			kind := corev1.EventTypeNormal
			if c.Status != metav1.ConditionTrue {
				kind = corev1.EventTypeWarning
			}
			r.event(t, kind, c.Reason, c.Message)
		}
		meta.SetStatusCondition(&t.Status.Conditions, c)
	}
	return r.patchStatus(ctx, t, before)
}

// patchStatus writes the status if it differs.
func (r *Runner) patchStatus(ctx context.Context, obj, before client.Object) error {
	if equality.Semantic.DeepEqual(obj, before) {
		return nil
	}
	err := r.o.Client.Status().Patch(ctx, obj, client.MergeFrom(before))
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("status of %T %s: %w", obj, obj.GetName(), err)
	}
	return nil
}

// rbac binds the tenant's groups, such as muster:tenant:<t>:admin, in all of its
// namespaces.
func (r *Runner) rbac(ctx context.Context, tenant string) error {
	var list corev1.NamespaceList
	if err := r.o.Cache.List(ctx, &list, client.MatchingLabels{fleet.LabelTenant: tenant}); err != nil {
		return err
	}
	for _, ns := range list.Items {
		if ns.DeletionTimestamp != nil {
			continue
		}
		type bound struct{ role, suffix string }
		var all []bound
		for _, tr := range kinds.TenantRoles {
			all = append(all, bound{tr.Name, tr.Suffix})
		}
		if ns.Name != fleet.SystemNamespace(tenant) {
			for _, wr := range offered.Roles {
				all = append(all, bound{wr.Name, wr.Suffix})
			}
		}
		for _, want := range all {
			role := want.role
			b := &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: role, Namespace: ns.Name, Labels: map[string]string{fleet.LabelTenant: tenant}},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
				Subjects:   r.groups(tenant, want.suffix),
			}
			var have rbacv1.RoleBinding
			err := r.o.Cache.Get(ctx, client.ObjectKeyFromObject(b), &have)
			switch {
			case err == nil && equality.Semantic.DeepEqual(have.RoleRef, b.RoleRef) && equality.Semantic.DeepEqual(have.Subjects, b.Subjects):
				continue
			case err == nil && have.RoleRef == b.RoleRef:
				have.Subjects = b.Subjects
				if err := r.o.Client.Update(ctx, &have); err != nil {
					return fmt.Errorf("restore the binding of %s in %s: %w", role, ns.Name, err)
				}
				continue
			case err == nil: // a role can't be exchanged in a binding
				if err := r.o.Client.Delete(ctx, &have); client.IgnoreNotFound(err) != nil {
					return fmt.Errorf("restore the binding of %s in %s: %w", role, ns.Name, err)
				}
			case !apierrors.IsNotFound(err):
				return err
			}
			if err := r.o.Client.Create(ctx, b); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("bind %s in %s: %w", role, ns.Name, err)
			}
		}
	}
	return nil
}

// groups are the subjects that have a role in a tenant: the group of that name, and
// the identity provider's.
func (r *Runner) groups(tenant, role string) []rbacv1.Subject {
	names := []string{fleet.TenantGroup(tenant, role)}
	if r.o.GroupsPrefix != "" {
		names = append(names, r.o.GroupsPrefix+names[0])
	}
	var out []rbacv1.Subject
	for _, n := range names {
		out = append(out, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: n})
	}
	return out
}

// readTenant lets the tenant's users read their own Tenant, which has no namespace:
// its namespaces, its quotas and what they use of them. The objects go with it.
func (r *Runner) readTenant(ctx context.Context, t *v1alpha1.Tenant) error {
	name := fleet.TenantGroup(t.Name, "reader")
	at := metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelTenant: t.Name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Tenant", Name: t.Name, UID: t.UID}}}
	role := &rbacv1.ClusterRole{ObjectMeta: at, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"tenants"}, ResourceNames: []string{t.Name}, Verbs: []string{"get", "list", "watch"}}}}
	bind := &rbacv1.ClusterRoleBinding{ObjectMeta: at, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}
	for _, tr := range kinds.TenantRoles {
		bind.Subjects = append(bind.Subjects, r.groups(t.Name, tr.Suffix)...)
	}
	var haveRole rbacv1.ClusterRole
	err := r.o.Cache.Get(ctx, client.ObjectKeyFromObject(role), &haveRole)
	switch {
	case apierrors.IsNotFound(err):
		err = ignoreExists(r.o.Client.Create(ctx, role)) // the cache may not know it yet
	case err == nil && !equality.Semantic.DeepEqual(haveRole.Rules, role.Rules):
		haveRole.Rules = role.Rules
		err = r.o.Client.Update(ctx, &haveRole)
	}
	if err != nil {
		return fmt.Errorf("role %s: %w", name, err)
	}
	var haveBind rbacv1.ClusterRoleBinding
	err = r.o.Cache.Get(ctx, client.ObjectKeyFromObject(bind), &haveBind)
	switch {
	case apierrors.IsNotFound(err):
		err = ignoreExists(r.o.Client.Create(ctx, bind))
	case err == nil && !equality.Semantic.DeepEqual(haveBind.Subjects, bind.Subjects):
		haveBind.Subjects = bind.Subjects
		err = r.o.Client.Update(ctx, &haveBind)
	}
	if err != nil {
		return fmt.Errorf("bind %s: %w", name, err)
	}
	return nil
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// ClusterRoles are the roles that tenants' groups are bound to; the caller applies
// them at start.
func ClusterRoles() []*rbacv1.ClusterRole {
	var out []*rbacv1.ClusterRole
	for _, r := range kinds.TenantRoles {
		out = append(out, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: r.Name}, Rules: r.Rules()})
	}
	for _, r := range offered.Roles {
		out = append(out, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: r.Name}, Rules: r.Rules(offered.NewSet())})
	}
	return out
}
