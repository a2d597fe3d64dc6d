package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/few"
	"muster.dev/muster/internal/fleet"
)

// holdTenant has a later deletion of the tenant wait for its namespaces.
func (r *Runner) holdTenant(ctx context.Context, t *v1alpha1.Tenant) error {
	before := t.DeepCopy()
	if !controllerutil.AddFinalizer(t, v1alpha1.FinalizerTenant) {
		return nil
	}
	return r.patchFinalizers(ctx, t, before)
}

// endTenant deletes the namespaces of a tenant that is being deleted, and lets it go when
// they are gone. Each of them that goes brings it back here.
func (r *Runner) endTenant(ctx context.Context, t *v1alpha1.Tenant) error {
	if !controllerutil.ContainsFinalizer(t, v1alpha1.FinalizerTenant) {
		return nil // somebody else holds it
	}
	// Not the cache: it may not know yet what was made a moment ago.
	var list corev1.NamespaceList
	if err := r.o.Client.List(ctx, &list, client.MatchingLabels{fleet.LabelTenant: t.Name}); err != nil {
		return fmt.Errorf("end tenant %s: %w", t.Name, err)
	}
	before := t.DeepCopy()
	if len(list.Items) == 0 {
		controllerutil.RemoveFinalizer(t, v1alpha1.FinalizerTenant)
		return r.patchFinalizers(ctx, t, before)
	}
	var left []string
	for i := range list.Items {
		ns := &list.Items[i]
		left = append(left, ns.Name+whyLeft(ns))
		if ns.DeletionTimestamp != nil {
			continue
		}
		if err := r.o.Client.Delete(ctx, ns, client.Preconditions{UID: &ns.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("end tenant %s: %w", t.Name, err)
		}
	}
	slices.Sort(left)
	now := t.Status
	now.Namespaces = nil
	return r.tenantStatus(ctx, t, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Deleting",
		Message: cut("still there: " + few.Of(left, maxNamed, "; "))}, now)
}

// whyLeft is what keeps a namespace that is being deleted, as Kubernetes says it.
func whyLeft(ns *corev1.Namespace) string {
	var says []string
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			says = append(says, c.Message)
		}
	}
	if len(says) == 0 {
		return ""
	}
	return " (" + strings.Join(says, "; ") + ")"
}

func (r *Runner) patchFinalizers(ctx context.Context, t, before *v1alpha1.Tenant) error {
	if equality.Semantic.DeepEqual(t.Finalizers, before.Finalizers) {
		return nil
	}
	err := r.o.Client.Patch(ctx, t, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("finalizers of tenant %s: %w", t.Name, err)
	}
	return nil
}
