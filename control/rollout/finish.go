package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/hold"
)

// putBack writes the first content back into the objects that the rollout has written.
func (j *job) putBack(ctx context.Context) error {
	for i, o := range j.objects {
		of := &j.st.Spec.Objects[i]
		if !of.Written || o.live == nil || o.under() != j.key.Name || len(of.Contents) == 0 {
			continue
		}
		now, err := o.content()
		if err != nil {
			return err
		}
		if hold.Same(now, of.Contents[0]) {
			continue
		}
		if err := j.c.put(ctx, o, &of.Contents[0], ""); err != nil {
			return fmt.Errorf("put back: %w", err)
		}
	}
	return nil
}

// end ends a rollout without a decision.
func (j *job) end(ctx context.Context, phase v1alpha1.RolloutPhase, why string) error {
	if j.st != nil && (j.st.Annotations[annotationUID] == "" || j.st.Annotations[annotationUID] == string(j.r.UID)) {
		next := j.st.DeepCopy()
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, hold.AnnotationEnded, string(phase))
		if err := j.save(ctx, next); err != nil {
			return err
		}
	}
	status := *j.r.Status.DeepCopy()
	at := metav1.NewTime(j.now).Rfc3339Copy()
	status.Phase, status.Message, status.EndedAt, status.Next, status.NextAt = phase, why, &at, "", nil
	status.ObservedGeneration = j.r.Generation
	decision := v1alpha1.RolloutDecision{At: at, What: string(phase), Text: why}
	status.Decisions = append(status.Decisions, decision)
	status.Decisions = status.Decisions[max(0, len(status.Decisions)-50):]
	if err := j.writeStatus(ctx, status); err != nil {
		return err
	}
	j.c.events(ctx, j, nil, []v1alpha1.RolloutDecision{decision})
	j.c.metrics.see(j, j.now)
	return j.finish(ctx)
}

// kept is how many ended rollouts of the same objects are kept: of those that were made of
// writes, and of those that somebody started. Those that stand in somebody's files are
// theirs to delete: applied again, they would begin again.
const kept = 10

// finish lets go of a rollout that has ended.
func (j *job) finish(ctx context.Context) error {
	j.c.forget(j.key)
	if err := j.release(ctx); err != nil {
		return err
	}
	return j.prune(ctx)
}

// declared tells whether the Rollout stands in somebody's files.
func declared(r *v1alpha1.Rollout) bool {
	for _, key := range []string{"kubectl.kubernetes.io/last-applied-configuration", "argocd.argoproj.io/tracking-id", "meta.helm.sh/release-name"} {
		if _, ok := r.Annotations[key]; ok {
			return true
		}
	}
	for _, key := range []string{"app.kubernetes.io/instance", "kustomize.toolkit.fluxcd.io/name"} {
		if _, ok := r.Labels[key]; ok {
			return true
		}
	}
	return len(r.OwnerReferences) > 0 || slices.ContainsFunc(r.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Operation == metav1.ManagedFieldsOperationApply })
}

// prune deletes the oldest of those that ended, of the same objects.
func (j *job) prune(ctx context.Context) error {
	if j.r.DeletionTimestamp != nil {
		return nil
	}
	of := []client.ListOption{client.InNamespace(j.key.Namespace)}
	ofWrites := j.r.Labels[hold.LabelKind] != ""
	if ofWrites {
		of = append(of, client.MatchingLabels{hold.LabelKind: j.r.Labels[hold.LabelKind], hold.LabelName: j.r.Labels[hold.LabelName]})
	}
	var list v1alpha1.RolloutList
	if err := j.c.o.Cache.List(ctx, &list, of...); err != nil {
		return fmt.Errorf("list the rollouts before this one: %w", err)
	}
	// Equal labels may stand for two long names.
	ended := slices.DeleteFunc(list.Items, func(r v1alpha1.Rollout) bool {
		if !ofWrites && (r.Labels[hold.LabelKind] != "" || declared(&r)) {
			return true
		}
		return r.Name == j.key.Name || !r.Status.Phase.Ended() || !slices.EqualFunc(r.Spec.Changes, j.r.Spec.Changes, func(a, b v1alpha1.RolloutChange) bool { return a.Kind == b.Kind && a.Name == b.Name })
	})
	slices.SortFunc(ended, func(a, b v1alpha1.Rollout) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for i := kept - 1; i < len(ended); i++ {
		if err := j.c.o.Client.Delete(ctx, &ended[i], client.Preconditions{UID: &ended[i].UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete an old rollout: %w", err)
		}
	}
	return nil
}

// over is a pass of a rollout that ended before.
func (j *job) over(ctx context.Context) (time.Duration, error) {
	j.c.metrics.see(j, j.now)
	if err := j.finish(ctx); err != nil {
		return 0, err
	}
	if j.st == nil {
		return 0, nil
	}
	return j.collect(ctx)
}

// release lets a Rollout that is deleted go.
func (j *job) release(ctx context.Context) error {
	if !controllerutil.RemoveFinalizer(j.r, finalizer) {
		return nil
	}
	if err := j.c.o.Client.Update(ctx, j.r); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("remove the finalizer: %w", err))
	}
	return nil
}

// collect removes the state of a rollout that has ended, or has no Rollout, once no object
// names it.
func (j *job) collect(ctx context.Context) (time.Duration, error) {
	objects, err := j.c.objectsOf(ctx, j.st)
	if err != nil {
		return 0, err
	}
	for _, o := range objects {
		if o.under() == j.key.Name {
			return garbage, nil // its next write is marked by another state
		}
	}
	if left := garbage - j.now.Sub(j.st.CreationTimestamp.Time); left > 0 {
		return left, nil
	}
	version := j.st.ResourceVersion
	err = j.c.o.Client.Delete(ctx, j.st, client.Preconditions{UID: &j.st.UID, ResourceVersion: &version})
	return 0, client.IgnoreNotFound(err)
}

// drop gives up a rollout that is deleted before anything of it was decided.
func (j *job) drop(ctx context.Context) error {
	if err := j.putBack(ctx); err != nil {
		return err
	}
	next := j.st.DeepCopy()
	// As after an abort: also what it took over from another one is put back.
	next.Spec.Held = slices.ContainsFunc(next.Spec.Objects, func(o v1alpha1.RolloutObject) bool { return !o.Written })
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, hold.AnnotationEnded, string(v1alpha1.RolloutRolledBack))
	if err := j.save(ctx, next); err != nil {
		return err
	}
	return j.finish(ctx)
}

// takeName makes room for a Rollout whose name another one had, that has ended and is gone.
func (j *job) takeName(ctx context.Context) error {
	if j.st.Annotations[hold.AnnotationEnded] == "" && j.st.Labels[hold.LabelKind] != "" { // the Rollout was removed by force, and made again
		next := j.st.DeepCopy()
		next.Annotations[annotationUID] = string(j.r.UID)
		if err := j.save(ctx, next); err != nil {
			return err
		}
		return errAgain
	}
	if j.st.Annotations[hold.AnnotationEnded] == "" || j.st.Spec.Held {
		return j.end(ctx, v1alpha1.RolloutInvalid, fmt.Sprintf("metadata.name: sites still have what an earlier rollout %s gave them: choose another name", j.key.Name))
	}
	version := j.st.ResourceVersion
	if err := j.c.o.Client.Delete(ctx, j.st, client.Preconditions{UID: &j.st.UID, ResourceVersion: &version}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the state of an earlier rollout of the same name: %w", err)
	}
	return errAgain
}

// adopt makes the Rollout for a state that the API server made as somebody wrote an
// object, once that write is in.
func (j *job) adopt(ctx context.Context) (time.Duration, error) {
	kind := j.st.Labels[hold.LabelKind]
	if kind == "" || j.st.Annotations[hold.AnnotationEnded] != "" || !j.st.Spec.Held {
		return j.collect(ctx)
	}
	objects, err := j.c.objectsOf(ctx, j.st)
	if err != nil {
		return 0, err
	}
	written := false
	for _, o := range objects {
		written = written || o.under() == j.key.Name
	}
	if !written {
		left, err := j.collect(ctx)
		return min(left, j.c.o.Tick), err
	}
	r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: j.key.Namespace, Name: j.key.Name, Labels: j.st.Labels, Finalizers: []string{finalizer}}}
	if j.st.Spec.By != "" {
		r.Annotations = map[string]string{v1alpha1.AnnotationStartedBy: j.st.Spec.By}
	}
	for _, o := range j.st.Spec.Objects {
		r.Spec.Changes = append(r.Spec.Changes, v1alpha1.RolloutChange{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name})
	}
	if err := j.plan(ctx, &r.Spec); err != nil {
		return 0, err
	}
	if err := j.c.o.Client.Create(ctx, r); err != nil && !apierrors.IsAlreadyExists(err) {
		return 0, fmt.Errorf("make the Rollout of a write: %w", err)
	}
	return j.c.soon(), nil
}

// plan is how a write goes over the sites: as its policy says; where there is none (any
// more), as the rollout does that it takes over from; else by default.
func (j *job) plan(ctx context.Context, spec *v1alpha1.RolloutSpec) error {
	if name := j.st.Spec.Policy; name != "" {
		var p v1alpha1.RolloutPolicy
		err := j.c.o.Client.Get(ctx, client.ObjectKey{Namespace: j.key.Namespace, Name: name}, &p)
		if err == nil {
			spec.RolloutPlan = p.Spec.RolloutPlan
			return nil
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("read RolloutPolicy %s: %w", name, err)
		}
	}
	if name := j.st.Spec.Supersedes; name != "" {
		var r v1alpha1.Rollout
		err := j.c.o.Client.Get(ctx, client.ObjectKey{Namespace: j.key.Namespace, Name: name}, &r)
		if err == nil {
			spec.RolloutPlan, spec.VirtualSites = r.Spec.RolloutPlan, r.Spec.VirtualSites
		}
		return client.IgnoreNotFound(err)
	}
	return nil
}
