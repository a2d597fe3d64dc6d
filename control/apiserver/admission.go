package apiserver

import (
	"context"
	"io"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/api/validation"
)

// SystemGroup is the group of Muster's own roles: only they, and cluster
// administrators, may set labels under muster.dev/.
const SystemGroup = "muster:system"

const pluginName = "MusterValidation"

// addAdmission puts Muster's validation at the end of the stock chain, where every
// mutation has been made.
func addAdmission(o *options.ServerRunOptions) {
	a := o.Admission.GenericAdmission
	a.Plugins.Register(pluginName, func(io.Reader) (admission.Interface, error) { return validator{}, nil })
	a.RecommendedPluginOrder = append(slices.Clone(a.RecommendedPluginOrder), pluginName)
}

type validator struct{}

var _ admission.ValidationInterface = validator{}

// Handles implements admission.Interface.
func (validator) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Validate implements admission.ValidationInterface.
func (validator) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetKind().Group != v1alpha1.GroupVersion.Group || a.GetSubresource() != "" {
		return nil
	}
	errs, err := check(a)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), errs)
}

func check(a admission.Attributes) (field.ErrorList, error) {
	switch a.GetKind().Kind {
	case "Site":
		s, errs, err := typed(a.GetObject(), validation.Site)
		if err == nil && !trusted(a.GetUserInfo()) {
			var old v1alpha1.Site
			if u, ok := a.GetOldObject().(*unstructured.Unstructured); ok && u != nil {
				old.Labels = u.GetLabels()
			}
			errs = append(errs, validation.ReservedLabels(old.Labels, s.Labels)...)
		}
		return errs, err
	case "VirtualSite":
		_, errs, err := typed(a.GetObject(), validation.VirtualSite)
		return errs, err
	case "RegistrationToken":
		_, errs, err := typed(a.GetObject(), validation.RegistrationToken)
		return errs, err
	case "CollectionPolicy":
		_, errs, err := typed(a.GetObject(), validation.CollectionPolicy)
		return errs, err
	case "HealthPolicy":
		_, errs, err := typed(a.GetObject(), validation.HealthPolicy)
		return errs, err
	}
	return nil, nil
}

func typed[T any](obj runtime.Object, validate func(*T) field.ErrorList) (*T, field.ErrorList, error) {
	out := new(T)
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return out, nil, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return out, nil, err
	}
	return out, validate(out), nil
}

func trusted(u user.Info) bool {
	return slices.ContainsFunc(u.GetGroups(), func(g string) bool { return g == SystemGroup || g == user.SystemPrivilegedGroup })
}
