package controllers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// defaultPolicy is the name of the default policies.
const defaultPolicy = "default"

const (
	// fieldManager owns the default policies as they are shipped.
	fieldManager = "muster-control"
	// oldFieldManager made them in versions before annotationShipped.
	oldFieldManager = "muster"
	// annotationShipped of a default policy is the generation at which its spec was the
	// shipped one; without it, 1. A person who sets it to askShipped gets the shipped spec.
	annotationShipped = "muster.dev/shipped"
	askShipped        = "reset"
)

// defaults makes the policies named "default" for a new tenant, whatever came with it,
// and where a tenant has no policy of the kind: without any it would send and score
// nothing. One that nobody else wrote to stays as this version ships it. What a user
// edited stays, and so does the deletion by a user who has policies of another name.
func (r *Runner) defaults(ctx context.Context, t *v1alpha1.Tenant) error {
	isNew := !meta.IsStatusConditionTrue(t.Status.Conditions, "Ready")
	at := metav1.ObjectMeta{Name: defaultPolicy, Namespace: fleet.SystemNamespace(t.Name), Annotations: map[string]string{annotationShipped: "1"}}
	for _, d := range []struct {
		list       client.ObjectList
		have, make client.Object
	}{
		{&v1alpha1.CollectionPolicyList{}, &v1alpha1.CollectionPolicy{}, &v1alpha1.CollectionPolicy{ObjectMeta: *at.DeepCopy(), Spec: *r.o.DefaultCollectionPolicy.DeepCopy()}},
		{&v1alpha1.HealthPolicyList{}, &v1alpha1.HealthPolicy{}, &v1alpha1.HealthPolicy{ObjectMeta: *at.DeepCopy(), Spec: *r.o.DefaultHealthPolicy.DeepCopy()}},
	} {
		err := r.o.Cache.Get(ctx, client.ObjectKeyFromObject(d.make), d.have)
		if err == nil {
			if err := r.followShipped(ctx, t, d.have, d.make); err != nil {
				return err
			}
			continue
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		if err := r.o.Cache.List(ctx, d.list, client.InNamespace(at.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		if meta.LenList(d.list) > 0 && !isNew {
			continue
		}
		err = r.o.Client.Create(ctx, d.make, client.FieldOwner(fieldManager))
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

// followShipped gives a default policy that nobody else wrote to, or whose user asks for
// it, the shipped spec.
func (r *Runner) followShipped(ctx context.Context, t *v1alpha1.Tenant, have, shipped client.Object) error {
	asked := have.GetAnnotations()[annotationShipped] == askShipped
	same := sameSpec(have, shipped)
	if !asked && (same || !untouched(have)) {
		return nil
	}
	next, generation := shipped, have.GetGeneration()
	if !same {
		generation++
	}
	annotations := have.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationShipped] = strconv.FormatInt(generation, 10)
	next.SetAnnotations(annotations)
	next.SetLabels(have.GetLabels())
	next.SetOwnerReferences(have.GetOwnerReferences())
	next.SetFinalizers(have.GetFinalizers())
	next.SetUID(have.GetUID())
	next.SetResourceVersion(have.GetResourceVersion())
	// Whoever wrote to it before has no part in what it is from now on. The API server
	// adds the fields that change; with no entry at all it would track nobody any more.
	managed := slices.DeleteFunc(have.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Subresource == "" })
	next.SetManagedFields(append(managed, metav1.ManagedFieldsEntry{
		Manager: fieldManager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: v1alpha1.GroupVersion.String(), FieldsType: "FieldsV1",
		FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:annotations":{"f:` + annotationShipped + `":{}}}}`)},
	}))
	switch err := r.o.Client.Update(ctx, next, client.FieldOwner(fieldManager)); {
	case apierrors.IsConflict(err): // somebody wrote, or the cache is behind: what it gets next brings the next pass
		return nil
	case err != nil:
		return fmt.Errorf("default %T: %w", have, err)
	}
	r.event(t, corev1.EventTypeNormal, "DefaultPolicyUpdated", fmt.Sprintf("%T %s/%s is now what this version of Muster ships", have, have.GetNamespace(), have.GetName()))
	return nil
}

// untouched tells whether a default policy is as Muster wrote it. Its generation tells
// of every change of the spec, removals too. Other writers are looked for besides: they
// may have stated what was there already, or made the policy anew with Muster's annotation
// in their file.
func untouched(o client.Object) bool {
	generation, noted := o.GetAnnotations()[annotationShipped]
	if !noted {
		generation = "1"
	}
	return generation == strconv.FormatInt(o.GetGeneration(), 10) && len(otherWriters(o)) == 0
}

// otherWriters are the managers besides Muster that own a part of a default policy, its
// status apart; where nobody is known to own anything, "somebody".
func otherWriters(o client.Object) []string {
	_, noted := o.GetAnnotations()[annotationShipped]
	known, others := false, []string(nil)
	for _, e := range o.GetManagedFields() {
		if e.Subresource != "" {
			continue
		}
		known = true
		ours := e.Manager == fieldManager || e.Manager == oldFieldManager && !noted && e.Operation == metav1.ManagedFieldsOperationUpdate
		if !ours {
			others = append(others, e.Manager)
		}
	}
	if !known {
		others = append(others, "somebody")
	}
	slices.Sort(others)
	return slices.Compact(others)
}

func sameSpec(a, b client.Object) bool {
	switch a := a.(type) {
	case *v1alpha1.CollectionPolicy:
		return equality.Semantic.DeepEqual(a.Spec, b.(*v1alpha1.CollectionPolicy).Spec)
	case *v1alpha1.HealthPolicy:
		return equality.Semantic.DeepEqual(a.Spec, b.(*v1alpha1.HealthPolicy).Spec)
	}
	return false
}

// tellShipped says in a default policy's conditions whether upgrades change it, and how
// to get the shipped one back.
func (r *Runner) tellShipped(p client.Object, conditions *[]metav1.Condition) {
	if p.GetName() != defaultPolicy {
		return
	}
	c := metav1.Condition{Type: v1alpha1.ConditionFollowsShipped, ObservedGeneration: p.GetGeneration(),
		Status: metav1.ConditionTrue, Reason: "Untouched", Message: "is what Muster ships; an upgrade that ships another brings it here"}
	if !untouched(p) {
		var shipped client.Object = &v1alpha1.CollectionPolicy{Spec: r.o.DefaultCollectionPolicy}
		resource := "collectionpolicy"
		if _, ok := p.(*v1alpha1.HealthPolicy); ok {
			shipped, resource = &v1alpha1.HealthPolicy{Spec: r.o.DefaultHealthPolicy}, "healthpolicy"
		}
		who := "somebody"
		if others := otherWriters(p); len(others) > 0 {
			who = strings.Join(others, ", ")
		}
		than := "differs from"
		if sameSpec(p, shipped) {
			than = "equals"
		}
		c.Status, c.Reason = metav1.ConditionFalse, "Edited"
		c.Message = fmt.Sprintf("%s wrote to it, so upgrades leave it as it is; it %s what this version of Muster ships. To have the shipped one, now and after upgrades: kubectl annotate --overwrite -n %s %s %s %s=%s",
			who, than, p.GetNamespace(), resource, defaultPolicy, annotationShipped, askShipped)
	}
	meta.SetStatusCondition(conditions, c)
}

// tellHealthShipped does so for the default health policy. The health role writes the
// same list of conditions, so the patch must be of the list as it is.
func (r *Runner) tellHealthShipped(ctx context.Context, tenant string) error {
	var p v1alpha1.HealthPolicy
	if err := r.o.Cache.Get(ctx, client.ObjectKey{Namespace: fleet.SystemNamespace(tenant), Name: defaultPolicy}, &p); err != nil {
		return client.IgnoreNotFound(err)
	}
	told := slices.Clone(p.Status.Conditions)
	r.tellShipped(&p, &told)
	if equality.Semantic.DeepEqual(told, p.Status.Conditions) {
		return nil // each pass looks: a policy is large, and is neither copied nor compared for it
	}
	before := p.DeepCopy()
	p.Status.Conditions = told
	err := r.o.Client.Status().Patch(ctx, &p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err = client.IgnoreNotFound(err); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("status of %T %s: %w", &p, p.Name, err)
	}
	return nil
}
