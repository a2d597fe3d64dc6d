package apiserver

import (
	"context"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"

	"muster.dev/muster/control/api/v1alpha1"
)

const changedByPluginName = "MusterChangedBy"

// changedBy notes on an object of Muster's who changed its spec last: managed fields name a
// program, and the timeline should name a person. It stands behind everything that may change
// the spec.
type changedBy struct{}

var _ admission.MutationInterface = changedBy{}

func registerChangedBy(p *admission.Plugins) {
	p.Register(changedByPluginName, func(io.Reader) (admission.Interface, error) { return changedBy{}, nil })
}

// Handles implements admission.Interface.
func (changedBy) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Admit implements admission.MutationInterface.
func (changedBy) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	u, ok := a.GetObject().(*unstructured.Unstructured)
	kind := a.GetKind()
	// RolloutStates are control's alone, and large.
	if !ok || u == nil || kind.Group != v1alpha1.GroupVersion.Group || kind.Kind == "RolloutState" || a.GetSubresource() != "" {
		return nil
	}
	who := a.GetUserInfo().GetName()
	if old, ok := a.GetOldObject().(*unstructured.Unstructured); ok && old != nil && !specChanged(a) {
		who = old.GetAnnotations()[v1alpha1.AnnotationChangedBy]
	}
	annotate(u, v1alpha1.AnnotationChangedBy, who)
	return nil
}
