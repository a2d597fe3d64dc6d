package sum

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/internal/workload"
)

// Kubernetes keeps what a workload was: a ReplicaSet for each template that a Deployment
// had, a ControllerRevision for those of a StatefulSet and of a DaemonSet. `kubectl rollout
// history` and `undo` read them, and Helm looks at the newest ReplicaSet to know whether a
// Deployment is ready. The controllers that make them run on the sites; here they are made
// for those readers alone, and carried nowhere.

// annotationRevision numbers the ReplicaSets of a Deployment, and says which one it has.
const annotationRevision = "deployment.kubernetes.io/revision"

// defaultHistory is how many former templates are kept, as Kubernetes does.
const defaultHistory = 10

// fewest is how many of the pods that it wants, of the newest version, the site has that has fewest. Sites that
// the workload's annotation leaves out are not among all.
func fewest(all []place, desired int32) int32 {
	least := desired
	for _, at := range all {
		ready := int32(0)
		if at.updated() {
			s := parse[appsv1.DeploymentStatus](at)
			old := max(0, positive(s.Replicas)-positive(s.UpdatedReplicas)) // which are the ready ones, for all that is known
			ready = max(0, positive(s.ReadyReplicas)-old)
		}
		least = min(least, ready)
	}
	if len(all) == 0 {
		return 0
	}
	return least
}

func hashOf(o any) (string, []byte, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return "", nil, err
	}
	h := fnv.New32a()
	h.Write(b)
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10)), b, nil
}

func controllerRef(kind string, o client.Object) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: o.GetName(), UID: o.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes}}
}

func ownedBy(o, owner client.Object) bool {
	ref := metav1.GetControllerOf(o)
	return ref != nil && ref.UID == owner.GetUID()
}

// adopt makes what nobody controls, as kubectl delete --cascade=orphan leaves it, the
// owner's, as Kubernetes' own controllers do. As they do it looks at the owner anew: what was
// just orphaned by one that goes would be its own again, and be collected as soon as it is gone.
func adopt[T client.Object](ctx context.Context, c *Controller, kind string, o T, owner client.Object) (T, error) {
	if metav1.GetControllerOf(o) != nil || o.GetDeletionTimestamp() != nil {
		return o, nil
	}
	now := owner.DeepCopyObject().(client.Object)
	if err := c.o.Client.Get(ctx, client.ObjectKeyFromObject(owner), now); err != nil {
		return o, fmt.Errorf("revisions: adopt %s: %w", o.GetName(), err)
	}
	if now.GetUID() != owner.GetUID() || now.GetDeletionTimestamp() != nil {
		return o, fmt.Errorf("revisions: adopt %s: %w", o.GetName(), apierrors.NewNotFound(schema.GroupResource{Group: appsv1.GroupName, Resource: kind}, string(owner.GetUID())))
	}
	o = o.DeepCopyObject().(T)
	o.SetOwnerReferences(append(o.GetOwnerReferences(), controllerRef(kind, owner)...))
	if err := c.o.Client.Update(ctx, o); err != nil {
		return o, fmt.Errorf("revisions: adopt %s: %w", o.GetName(), err)
	}
	return o, nil
}

// kept is where the revisions of a workload are read: of one that has just changed from the
// API server, since the cache may not have yet what was kept a moment ago.
func (c *Controller) kept(o client.Object, observed int64) client.Reader {
	if o.GetGeneration() != observed {
		return c.o.Client
	}
	return c.o.Cache
}

// reviseDeployment has a ReplicaSet for the template that the Deployment has now.
func (c *Controller) reviseDeployment(ctx context.Context, d *appsv1.Deployment, all []place) error {
	if d.DeletionTimestamp != nil {
		return nil
	}
	var list appsv1.ReplicaSetList
	if err := c.kept(d, d.Status.ObservedGeneration).List(ctx, &list, client.InNamespace(d.Namespace)); err != nil {
		return fmt.Errorf("revisions: %w", err)
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return fmt.Errorf("revisions: %w", err)
	}
	var sets []*appsv1.ReplicaSet
	newest, highest := (*appsv1.ReplicaSet)(nil), int64(0)
	for i := range list.Items {
		rs := &list.Items[i]
		if selector.Matches(labels.Set(rs.Labels)) {
			if rs, err = adopt(ctx, c, "Deployment", rs, d); err != nil {
				return err
			}
		}
		if !ownedBy(rs, d) {
			continue
		}
		sets = append(sets, rs)
		highest = max(highest, revisionOf(rs))
		if sameTemplate(&rs.Spec.Template, &d.Spec.Template) {
			newest = rs
		}
	}
	desired := replicas(d.Spec.Replicas)
	switch {
	case newest == nil:
		if newest, err = newReplicaSet(d, desired, highest+1); err != nil {
			return err
		}
		err = c.o.Client.Create(ctx, newest)
	case revisionOf(newest) < highest || *newest.Spec.Replicas != desired:
		newest = newest.DeepCopy()
		if revisionOf(newest) < highest { // it was gone back to
			metav1.SetMetaDataAnnotation(&newest.ObjectMeta, annotationRevision, strconv.FormatInt(highest+1, 10))
		}
		newest.Spec.Replicas = &desired
		err = c.o.Client.Update(ctx, newest)
	}
	if err != nil {
		return fmt.Errorf("revisions: %w", err)
	}
	if err := c.settle(ctx, newest, fewest(all, desired)); err != nil {
		return err
	}
	none := int32(0)
	for _, rs := range sets {
		if rs.UID != newest.UID && *rs.Spec.Replicas != 0 {
			old := rs.DeepCopy()
			old.Spec.Replicas = &none
			if err := c.o.Client.Update(ctx, old); err != nil {
				return fmt.Errorf("revisions: %w", err)
			}
			if err := c.settle(ctx, old, 0); err != nil {
				return err
			}
		}
	}
	if is := newest.Annotations[annotationRevision]; d.Annotations[annotationRevision] != is {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, annotationRevision, is)
		if err := c.o.Client.Patch(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}}, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return fmt.Errorf("revisions: %w", err)
		}
	}
	return forget(ctx, c, sets, newest, d.Spec.RevisionHistoryLimit, revisionOf)
}

// settle writes what a ReplicaSet would say of itself.
func (c *Controller) settle(ctx context.Context, rs *appsv1.ReplicaSet, ready int32) error {
	st := appsv1.ReplicaSetStatus{Replicas: *rs.Spec.Replicas, FullyLabeledReplicas: *rs.Spec.Replicas, ReadyReplicas: ready, AvailableReplicas: ready, ObservedGeneration: rs.Generation}
	if equality.Semantic.DeepEqual(rs.Status, st) {
		return nil
	}
	rs = rs.DeepCopy()
	rs.Status = st
	if err := c.o.Client.Status().Update(ctx, rs); err != nil {
		return fmt.Errorf("revisions: %w", err)
	}
	return nil
}

func newReplicaSet(d *appsv1.Deployment, replicas int32, revision int64) (*appsv1.ReplicaSet, error) {
	hash, _, err := hashOf(d.Spec.Template)
	if err != nil {
		return nil, fmt.Errorf("revisions: %w", err)
	}
	labelled := func(of map[string]string) map[string]string {
		out := maps.Clone(of)
		if out == nil {
			out = map[string]string{}
		}
		out[appsv1.DefaultDeploymentUniqueLabelKey] = hash
		return out
	}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name + "-" + hash, Labels: labelled(d.Spec.Template.Labels), Annotations: map[string]string{}, OwnerReferences: controllerRef("Deployment", d)},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &replicas, MinReadySeconds: d.Spec.MinReadySeconds, Selector: d.Spec.Selector.DeepCopy(), Template: *d.Spec.Template.DeepCopy()},
	}
	for k, v := range d.Annotations {
		if k != corev1.LastAppliedConfigAnnotation && k != workload.VirtualSites && k != workload.Overrides {
			rs.Annotations[k] = v // such as kubernetes.io/change-cause
		}
	}
	rs.Annotations[annotationRevision] = strconv.FormatInt(revision, 10)
	rs.Spec.Selector.MatchLabels = labelled(rs.Spec.Selector.MatchLabels)
	rs.Spec.Template.Labels = labelled(rs.Spec.Template.Labels)
	return rs, nil
}

func revisionOf(rs *appsv1.ReplicaSet) int64 {
	n, _ := strconv.ParseInt(rs.Annotations[annotationRevision], 10, 64)
	return n
}

func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	delete(a.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	delete(b.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return equality.Semantic.DeepEqual(a, b)
}

// forget removes the oldest of those that are not in effect, beyond the limit.
func forget[T client.Object](ctx context.Context, c *Controller, all []T, newest client.Object, limit *int32, number func(T) int64) error {
	keep := int32(defaultHistory)
	if limit != nil {
		keep = *limit
	}
	old := slices.DeleteFunc(slices.Clone(all), func(o T) bool { return o.GetUID() == newest.GetUID() })
	slices.SortFunc(old, func(a, b T) int { return cmp.Compare(number(b), number(a)) })
	for i, o := range old {
		if i < int(keep) {
			continue
		}
		if err := c.o.Client.Delete(ctx, o); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("revisions: %w", err)
		}
	}
	return nil
}

// revise has a ControllerRevision for the template that a StatefulSet or a DaemonSet has
// now: its data is the patch that goes back to it.
func (c *Controller) revise(ctx context.Context, kind string, o client.Object, observed int64, template *corev1.PodTemplateSpec, limit *int32) error {
	if o.GetDeletionTimestamp() != nil {
		return nil
	}
	labels := template.Labels
	patch := map[string]any{}
	b, err := json.Marshal(template)
	if err == nil {
		err = json.Unmarshal(b, &patch)
	}
	if err != nil {
		return fmt.Errorf("revisions: %w", err)
	}
	patch["$patch"] = "replace"
	hash, data, err := hashOf(map[string]any{"spec": map[string]any{"template": patch}})
	if err != nil {
		return fmt.Errorf("revisions: %w", err)
	}
	var list appsv1.ControllerRevisionList
	if err := c.kept(o, observed).List(ctx, &list, client.InNamespace(o.GetNamespace())); err != nil {
		return fmt.Errorf("revisions: %w", err)
	}
	var all []*appsv1.ControllerRevision
	newest, highest := (*appsv1.ControllerRevision)(nil), int64(0)
	for i := range list.Items {
		r := &list.Items[i]
		if strings.HasPrefix(r.Name, o.GetName()+"-") && maps.Equal(r.Labels, labels) {
			if r, err = adopt(ctx, c, kind, r, o); err != nil {
				return err
			}
		}
		if !ownedBy(r, o) {
			continue
		}
		all = append(all, r)
		highest = max(highest, r.Revision)
		if r.Name == o.GetName()+"-"+hash {
			newest = r
		}
	}
	switch {
	case newest == nil:
		newest = &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName() + "-" + hash, Labels: maps.Clone(labels), OwnerReferences: controllerRef(kind, o)},
			Data:       runtime.RawExtension{Raw: data}, Revision: highest + 1,
		}
		if cause := o.GetAnnotations()["kubernetes.io/change-cause"]; cause != "" {
			newest.Annotations = map[string]string{"kubernetes.io/change-cause": cause}
		}
		err = c.o.Client.Create(ctx, newest)
	case newest.Revision < highest:
		newest = newest.DeepCopy()
		newest.Revision = highest + 1
		err = c.o.Client.Update(ctx, newest)
	}
	if err != nil {
		return fmt.Errorf("revisions: %w", err)
	}
	return forget(ctx, c, all, newest, limit, func(r *appsv1.ControllerRevision) int64 { return r.Revision })
}
