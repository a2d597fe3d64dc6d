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

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// The name of the default policies, and those of the cluster roles that tenants' groups are bound to.
const (
	defaultPolicy = "default"
	roleAdmin     = "muster:tenant-admin"
	roleViewer    = "muster:tenant-viewer"
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
		return 0, nil
	}
	blocked, err := r.namespaces(ctx, &t)
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "NamespacesReady", Message: "every namespace is there"}
	switch {
	case err != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "NotSetUp", err.Error()
		return 0, errors.Join(err, r.tenantStatus(ctx, &t, ready, t.Status.Sites))
	case len(blocked) > 0:
		ready.Status, ready.Reason = metav1.ConditionFalse, blocked[0].reason
		var says []string
		for _, b := range blocked {
			says = append(says, b.namespace+" "+b.why)
		}
		ready.Message = strings.Join(says, "; ")
		if slices.ContainsFunc(blocked, func(b blockedNamespace) bool { return b.namespace == fleet.SystemNamespace(name) }) {
			return 0, r.tenantStatus(ctx, &t, ready, 0)
		}
	}
	setUp := errors.Join(r.rbac(ctx, name), r.defaults(ctx, &t))
	if setUp != nil && ready.Status == metav1.ConditionTrue {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "NotSetUp", setUp.Error()
	}
	var sites v1alpha1.SiteList
	if err := r.o.Cache.List(ctx, &sites, client.InNamespace(fleet.SystemNamespace(name)), client.UnsafeDisableDeepCopy); err != nil {
		return 0, err
	}
	count := int32(0)
	for i := range sites.Items {
		if !sites.Items[i].Spec.Decommissioned {
			count++
		}
	}
	next := &soonest{now: r.o.Now()}
	next.add(next.now.Add(look))
	err = errors.Join(setUp,
		r.tenantStatus(ctx, &t, ready, count),
		r.maintenances(ctx, sites.Items, next),
		r.virtualSites(ctx, name, sites.Items),
		r.tokens(ctx, name, next),
		r.policies(ctx, name, sites.Items),
		r.rules(ctx, name),
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

func (r *Runner) tenantStatus(ctx context.Context, t *v1alpha1.Tenant, ready metav1.Condition, sites int32) error {
	before := t.DeepCopy()
	t.Status.Sites = sites
	ready.ObservedGeneration = t.Generation
	if old := meta.FindStatusCondition(t.Status.Conditions, ready.Type); old == nil || old.Status != ready.Status || old.Reason != ready.Reason {
		kind := corev1.EventTypeNormal
		if ready.Status != metav1.ConditionTrue {
			kind = corev1.EventTypeWarning
		}
		r.event(t, kind, ready.Reason, ready.Message)
	}
	meta.SetStatusCondition(&t.Status.Conditions, ready)
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

// rbac binds the tenant's groups, muster:tenant:<t>:admin and …:viewer, in all of
// its namespaces.
func (r *Runner) rbac(ctx context.Context, tenant string) error {
	var list corev1.NamespaceList
	if err := r.o.Cache.List(ctx, &list, client.MatchingLabels{fleet.LabelTenant: tenant}); err != nil {
		return err
	}
	for _, ns := range list.Items {
		if ns.DeletionTimestamp != nil {
			continue
		}
		for suffix, role := range map[string]string{"admin": roleAdmin, "viewer": roleViewer} {
			b := &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: role, Namespace: ns.Name, Labels: map[string]string{fleet.LabelTenant: tenant}},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "muster:tenant:" + tenant + ":" + suffix}},
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

// ClusterRoles are the roles that tenants' groups are bound to; the caller applies
// them at start.
func ClusterRoles() []*rbacv1.ClusterRole {
	read := []string{"get", "list", "watch"}
	all := append(slices.Clone(read), "create", "update", "patch", "delete")
	role := func(name string, verbs, silences []string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"sites", "virtualsites", "registrationtokens", "collectionpolicies", "healthpolicies", "alertrules", "logrules", "alertroutes"}, Verbs: verbs},
			// No object of the API server: the console asks for these rights.
			{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"silences"}, Verbs: silences},
			{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"logs"}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: read},
		}}
	}
	admin := role(roleAdmin, all, []string{"get", "list", "create", "delete"})
	// AlertRoutes take passwords from them.
	admin.Rules = append(admin.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: all})
	return []*rbacv1.ClusterRole{admin, role(roleViewer, read, []string{"get", "list"})}
}

// defaults makes the policies named "default" where a tenant has no policy of the
// kind: without any it would send and score nothing. What a user edited stays, and
// so does the deletion by a user who has policies of another name.
func (r *Runner) defaults(ctx context.Context, t *v1alpha1.Tenant) error {
	at := metav1.ObjectMeta{Name: defaultPolicy, Namespace: fleet.SystemNamespace(t.Name)}
	for _, d := range []struct {
		have client.ObjectList
		make client.Object
	}{
		{&v1alpha1.CollectionPolicyList{}, &v1alpha1.CollectionPolicy{ObjectMeta: at, Spec: *r.o.DefaultCollectionPolicy.DeepCopy()}},
		{&v1alpha1.HealthPolicyList{}, &v1alpha1.HealthPolicy{ObjectMeta: at, Spec: *r.o.DefaultHealthPolicy.DeepCopy()}},
	} {
		if err := r.o.Cache.List(ctx, d.have, client.InNamespace(at.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		if meta.LenList(d.have) > 0 {
			continue
		}
		err := r.o.Client.Create(ctx, d.make)
		switch {
		case apierrors.IsAlreadyExists(err): // the cache does not know it yet
		case err != nil:
			return fmt.Errorf("make default %T: %w", d.make, err)
		default:
			r.event(t, corev1.EventTypeNormal, "DefaultPolicyMade", fmt.Sprintf("made %T %s/%s", d.make, at.Namespace, at.Name))
		}
	}
	return nil
}
