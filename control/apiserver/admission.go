package apiserver

import (
	"context"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
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
	var errs field.ErrorList
	if a.GetOperation() == admission.Create && systemKinds[a.GetKind().Kind] {
		errs = validation.InSystemNamespace(a.GetNamespace())
	}
	if a.GetKind().Kind == "Site" && !trusted(a.GetUserInfo()) {
		errs = append(errs, validation.ReservedLabels(labelsOf(a.GetOldObject()), labelsOf(a.GetObject()))...)
	}
	if !specChanged(a) {
		return errs, nil
	}
	more, err := checkSpec(a)
	return append(errs, more...), err
}

func checkSpec(a admission.Attributes) (field.ErrorList, error) {
	switch a.GetKind().Kind {
	case "Tenant":
		return typed(a.GetObject(), validation.Tenant)
	case "Site":
		return typed(a.GetObject(), validation.Site)
	case "VirtualSite":
		return typed(a.GetObject(), validation.VirtualSite)
	case "RegistrationToken":
		return typed(a.GetObject(), validation.RegistrationToken)
	case "CollectionPolicy":
		return typed(a.GetObject(), validation.CollectionPolicy)
	case "HealthPolicy":
		return typed(a.GetObject(), validation.HealthPolicy)
	case "AlertRules":
		return typed(a.GetObject(), validation.AlertRules)
	case "LogRules":
		return typed(a.GetObject(), validation.LogRules)
	case "AlertRoute":
		return typed(a.GetObject(), validation.AlertRoute)
	}
	return nil, nil
}

// systemKinds live in <tenant>-system.
var systemKinds = map[string]bool{"Site": true, "RegistrationToken": true, "CollectionPolicy": true, "HealthPolicy": true,
	"AlertRules": true, "LogRules": true, "AlertRoute": true}

// specChanged spares what was let in before: an object that a stricter rule would
// refuse today can still be labelled and deleted.
func specChanged(a admission.Attributes) bool {
	if a.GetOperation() != admission.Update {
		return true
	}
	before, ok1 := a.GetOldObject().(*unstructured.Unstructured)
	now, ok2 := a.GetObject().(*unstructured.Unstructured)
	return !ok1 || !ok2 || !equality.Semantic.DeepEqual(before.Object["spec"], now.Object["spec"])
}

func labelsOf(obj runtime.Object) map[string]string {
	if u, ok := obj.(*unstructured.Unstructured); ok && u != nil {
		return u.GetLabels()
	}
	return nil
}

func typed[T any](obj runtime.Object, validate func(*T) field.ErrorList) (field.ErrorList, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil, err
	}
	return validate(out), nil
}

func trusted(u user.Info) bool {
	return slices.ContainsFunc(u.GetGroups(), func(g string) bool { return g == SystemGroup || g == user.SystemPrivilegedGroup })
}
