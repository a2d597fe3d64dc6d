package apiserver

import (
	"context"
	"errors"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	genericinitializer "k8s.io/apiserver/pkg/admission/initializer"

	"muster.dev/muster/control/api/v1alpha1"
)

const viewsPluginName = "MusterSavedViews"

// verbShare on savedviews is what writing those takes that all users of a tenant have.
const verbShare = "share"

// views lets whoever may create and update SavedViews write their own; those that are shared
// take a right of their own. Others' are the platform's to write, which puts back a backup.
type views struct{ rights }

var (
	_ admission.ValidationInterface      = &views{}
	_ genericinitializer.WantsAuthorizer = &views{}
)

func registerViews(p *admission.Plugins) {
	p.Register(viewsPluginName, func(io.Reader) (admission.Interface, error) { return &views{rightsOf(viewsPluginName)}, nil })
}

// Validate implements admission.ValidationInterface. The name follows from the owner, which
// validation looks at, so an update can't take over somebody's object.
func (v *views) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	u, ok := a.GetObject().(*unstructured.Unstructured)
	if a.GetKind().GroupKind() != v1alpha1.GroupVersion.WithKind("SavedViews").GroupKind() || !ok || trusted(a.GetUserInfo()) {
		return nil
	}
	refused := func(why string) error {
		return apierrors.NewForbidden(a.GetResource().GroupResource(), u.GetName(), errors.New(why))
	}
	switch u.GetName() {
	case v1alpha1.ViewsName(a.GetUserInfo().GetName()):
		return nil
	case v1alpha1.SharedViews:
		if v.may(ctx, a, verbShare, a.GetResource(), u.GetName()) {
			return nil
		}
		return refused("views of all users of the tenant take the verb share on savedviews: ask a tenant editor or administrator, or keep a view of your own")
	}
	return refused("these are another user's views: keep your own")
}
