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
	"k8s.io/kubernetes/pkg/apis/core"

	"muster.dev/muster/control/api/kinds"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/api/validation"
	"muster.dev/muster/control/quota"
)

// SystemGroup is the group of Muster's own roles: only they, and cluster
// administrators, may set labels under muster.dev/.
const SystemGroup = "muster:system"

const pluginName = "MusterValidation"

// addAdmission puts Muster's validation and quotas at the end of the stock chain, where
// every mutation has been made. Quotas come last: what is let in counts at once.
func addAdmission(o *options.ServerRunOptions, env kinds.Env, ledger *quota.Ledger, w *workloads, r *rollouts) {
	a := o.Admission.GenericAdmission
	a.Plugins.Register(pluginName, func(io.Reader) (admission.Interface, error) { return validator{env}, nil })
	w.register(a.Plugins)
	r.register(a.Plugins)
	registerPromote(a.Plugins, r)
	registerGateTokens(a.Plugins, r)
	registerResets(a.Plugins)
	registerViews(a.Plugins)
	registerChangedBy(a.Plugins)
	a.Plugins.Register(quotaPluginName, func(io.Reader) (admission.Interface, error) { return quotas{ledger}, nil })
	a.Plugins.Register(comingPluginName, func(io.Reader) (admission.Interface, error) { return coming{ledger}, nil })
	a.RecommendedPluginOrder = slices.Concat([]string{comingPluginName}, a.RecommendedPluginOrder, []string{rolloutsPluginName, pluginName, workloadsPluginName, promotePluginName, gateTokensPluginName, resetsPluginName, viewsPluginName, changedByPluginName, quotaPluginName})
}

type validator struct{ env kinds.Env }

var _ admission.ValidationInterface = validator{}

// Handles implements admission.Interface.
func (validator) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Validate implements admission.ValidationInterface.
func (v validator) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if ev, ok := a.GetObject().(*core.Event); ok && !trusted(a.GetUserInfo()) && (quota.OwnReporter(ev.Source.Component) || quota.OwnReporter(ev.ReportingController)) {
		return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), field.ErrorList{field.Forbidden(field.NewPath("reportingComponent"),
			"names that begin with muster- are Muster's own; give your component another")})
	}
	if a.GetKind().Group != v1alpha1.GroupVersion.Group || a.GetSubresource() != "" {
		return nil
	}
	errs, err := v.check(a)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), errs)
}

func (v validator) check(a admission.Attributes) (field.ErrorList, error) {
	kind, err := kinds.Of(a.GetKind().Kind)
	if err != nil {
		return nil, err
	}
	var errs field.ErrorList
	if a.GetOperation() == admission.Create && kind.Scope == kinds.System {
		errs = validation.InSystemNamespace(a.GetNamespace())
	}
	if a.GetOperation() == admission.Create && kind.Scope == kinds.Workloads {
		errs = validation.OutsideSystemNamespace(a.GetNamespace())
	}
	if kind.Name == "Site" && !trusted(a.GetUserInfo()) {
		errs = append(errs, validation.ReservedLabels(labelsOf(a.GetOldObject()), labelsOf(a.GetObject()))...)
	}
	u, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok || !specChanged(a) {
		return errs, nil
	}
	more, err := kind.Check(u.Object, v.env)
	return append(errs, more...), err
}

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

func trusted(u user.Info) bool {
	return slices.ContainsFunc(u.GetGroups(), func(g string) bool { return g == SystemGroup || g == user.SystemPrivilegedGroup })
}
