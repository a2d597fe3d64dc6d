package kube

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/muster/internal/workload"
)

// noteChanged finds out which fields of an item somebody changed, once for each state of its
// object. It asks the API server for the object, which is not kept, only when there is drift;
// without an answer the fields are not known, and nothing waits for them.
func (w *worker) noteChanged(ctx context.Context, it *item, digest string) {
	l := w.lives.get(it.name)
	if !it.drifted || l == nil {
		it.changed, it.changes = nil, ""
		return
	}
	if of := string(l.uid) + "/" + l.rv + "/" + digest; it.changes != of {
		it.changed, it.changes = nil, ""
		if found, err := w.changed(ctx, it, l, digest); err == nil {
			it.changed, it.changes = found, of
		} else {
			w.opts.Logger.Debug("which fields were changed is not known", "item", it.name, "err", err)
		}
	}
}

func (w *worker) changed(ctx context.Context, it *item, l *live, digest string) ([]string, error) {
	blob, err := w.taken.Blob(digest)
	if err != nil {
		return nil, err
	}
	wanted, err := decode(it.name, blob)
	if err != nil {
		return nil, err
	}
	if w.plan.scaled[it.name] {
		unstructured.RemoveNestedField(wanted.Object, "spec", "replicas")
	}
	gvr, err := w.cluster.resource(l.gvk, it.namespace)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	live, err := w.cluster.of(gvr, it.namespace).Get(ctx, it.objName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	owned := []byte("{}")
	for _, e := range live.GetManagedFields() {
		if e.Manager == workload.FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "" && e.FieldsV1 != nil {
			owned = e.FieldsV1.Raw
		}
	}
	// By way of JSON, so that numbers are of one type on both sides.
	var is, has map[string]any
	for obj, to := range map[*unstructured.Unstructured]*map[string]any{wanted: &is, live: &has} {
		b, err := json.Marshal(obj.Object)
		if err == nil {
			err = json.Unmarshal(b, to)
		}
		if err != nil {
			return nil, err
		}
	}
	return workload.Changed(it.kind, is, has, owned), nil
}
