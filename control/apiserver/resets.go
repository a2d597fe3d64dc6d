package apiserver

import (
	"context"
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	genericinitializer "k8s.io/apiserver/pkg/admission/initializer"

	"muster.dev/muster/control/api/v1alpha1"
)

const resetsPluginName = "MusterResets"

// verbReset on sites is what setting spec.reset takes.
const verbReset = "reset"

// resets asks who has a site reset for a right of its own, beside that to write the Site.
// Who takes a request back needs no such right.
type resets struct{ rights }

var (
	_ admission.ValidationInterface      = &resets{}
	_ genericinitializer.WantsAuthorizer = &resets{}
)

func registerResets(p *admission.Plugins) {
	p.Register(resetsPluginName, func(io.Reader) (admission.Interface, error) { return &resets{rightsOf(resetsPluginName)}, nil })
}

// Validate implements admission.ValidationInterface.
func (r *resets) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetKind().GroupKind() != v1alpha1.GroupVersion.WithKind("Site").GroupKind() || a.GetSubresource() != "" {
		return nil
	}
	asked := resetOf(a.GetObject())
	if asked == nil || equality.Semantic.DeepEqual(asked, resetOf(a.GetOldObject())) {
		return nil
	}
	if r.may(ctx, a, verbReset, a.GetResource(), a.GetName()) {
		return nil
	}
	return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), errors.New("spec.reset: to have a site reset takes the verb reset on sites: ask a tenant administrator"))
}

// resetOf is spec.reset as it was sent; nil: it is not there.
func resetOf(obj runtime.Object) any {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u == nil {
		return nil
	}
	v, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "reset")
	return v
}
