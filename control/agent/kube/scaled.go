package kube

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/internal/workload"
)

// replicasManager holds the replicas of what an autoscaler is to scale until it does.
const replicasManager = workload.FieldManager + "-replicas"

// scalesByOthers tells whether an object leaves its replicas to an autoscaler: the set has
// one, or control has left them out, which an API server never does for these kinds.
func scalesByOthers(obj *unstructured.Unstructured, scaled bool) bool {
	if _, there, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "replicas"); there {
		return false
	}
	gk := obj.GroupVersionKind().GroupKind()
	return scaled || gk.Group == "apps" && (gk.Kind == "Deployment" || gk.Kind == "StatefulSet")
}

// leaveReplicas gives the replicas that an object has to another manager, if they are this
// one's: a field that its only manager leaves out is set to its default, and one replica is
// none that an autoscaler would have chosen.
func (c *cluster) leaveReplicas(ctx context.Context, gvr schema.GroupVersionResource, obj *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	objects := c.of(gvr, obj.GetNamespace())
	now, err := objects.Get(ctx, obj.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	n, there, err := unstructured.NestedInt64(now.Object, "spec", "replicas")
	if err != nil || !there || !appliedReplicas(now.GetManagedFields()) {
		return nil
	}
	hand := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": obj.GetAPIVersion(), "kind": obj.GetKind(),
		"metadata": map[string]any{"name": obj.GetName(), "namespace": obj.GetNamespace()},
		"spec":     map[string]any{"replicas": n},
	}}
	_, err = objects.Apply(ctx, obj.GetName(), hand, metav1.ApplyOptions{FieldManager: replicasManager})
	if apierrors.IsConflict(err) {
		return nil // somebody has set others meanwhile, whose they are
	}
	return err
}

func appliedReplicas(entries []metav1.ManagedFieldsEntry) bool {
	for _, e := range entries {
		if e.Manager != workload.FieldManager || e.Operation != metav1.ManagedFieldsOperationApply || e.Subresource != "" || e.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if json.Unmarshal(e.FieldsV1.Raw, &fields) == nil && fields.Spec["f:replicas"] != nil {
			return true
		}
	}
	return false
}
