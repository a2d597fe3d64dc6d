package kube

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// A StatefulSet that changes its pods one after the other waits for the one that it has changed
// until that is ready. If its content is changed again meanwhile, such as put back, it still
// waits, for a pod that may never be ready since it is of the content that nobody wants any more
// (https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#forced-rollback). Such
// a pod is removed here, and comes again as it should be.

// revisionsOf are those of the content that a StatefulSet has and of the one that it goes to.
func revisionsOf(o object, gvk schema.GroupVersionKind, generation int64) []string {
	if gvk.GroupKind() != (schema.GroupKind{Group: "apps", Kind: "StatefulSet"}) ||
		o.at("spec", "podManagementPolicy") == string(appsv1.ParallelPodManagement) || o.at("spec", "updateStrategy", "type") == string(appsv1.OnDeleteStatefulSetStrategyType) {
		return nil
	}
	if seen, ok := o.num("status", "observedGeneration"); !ok || seen != generation {
		return nil
	}
	current, _ := o.at("status", "currentRevision").(string)
	update, _ := o.at("status", "updateRevision").(string)
	if current == "" || update == "" {
		return nil
	}
	return []string{current, update}
}

// unblock removes pods of a StatefulSet that ail and are of neither of its revisions.
func (w *worker) unblock(ctx context.Context, it *item) error {
	l := w.lives.get(it.name)
	if l == nil || l.revisions == nil || l.deleting || it.err != nil {
		return nil
	}
	for name, uid := range w.mirror.ofOther(it.namespace, l.uid, l.revisions) {
		err := w.cluster.removePod(ctx, it.namespace, name, uid)
		if err == nil {
			w.opts.Logger.Info("removed a pod of a content that is not wanted any more, for which its StatefulSet waited", "item", it.name, "pod", name)
		} else if err := explain(err, corev1.SchemeGroupVersion.WithKind("Pod"), w.Version()); errors.Is(err, errDown) {
			return err
		} else {
			w.opts.Logger.Warn("a pod that keeps a StatefulSet from going on can't be removed", "item", it.name, "pod", name, "err", err)
		}
	}
	return nil
}

// ofOther are pods of an owner that ail and are of none of these revisions.
func (m *mirror) ofOther(namespace string, owner types.UID, revisions []string) map[string]types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out map[string]types.UID
	for name, t := range m.troubles[namespace] {
		revision := t.labels[appsv1.ControllerRevisionHashLabelKey]
		if t.owner != owner || revision == "" || revision == revisions[0] || revision == revisions[1] {
			continue
		}
		if out == nil {
			out = map[string]types.UID{}
		}
		out[name] = t.uid
	}
	return out
}

// removePod deletes a pod, if it is still the one that was seen.
func (c *cluster) removePod(ctx context.Context, namespace, name string, uid types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := c.dyn.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone, or another one by now
		return nil
	}
	return err
}
