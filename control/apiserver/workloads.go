package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/api/validation"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/internal/few"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/workload"
)

const workloadsPluginName = "MusterWorkloads"

// workloads checks what is carried to sites: annotations, the Pod Security Standard of the
// tenant and size; and that a namespace has one virtual Kubernetes. It asks the API server
// itself, so that what was written a moment ago counts.
type workloads struct {
	stock  *offered.Set
	client atomic.Pointer[dynamic.DynamicClient] // nil: the API server is starting
	now    func() time.Time

	mu sync.Mutex
	// claims are virtual Kubernetes that were let in and may not be stored yet.
	claims map[string]claim
}

type claim struct {
	name  string
	until time.Time
}

// claimFor is how long one that was let in stands in the way of others though it is not
// there: requests end before, or were refused after this plugin.
const claimFor = 5 * time.Second

var _ admission.ValidationInterface = &workloads{}

func newWorkloads() *workloads {
	return &workloads{stock: offered.NewSet(), now: time.Now, claims: map[string]claim{}}
}

func (w *workloads) register(p *admission.Plugins) {
	p.Register(workloadsPluginName, func(io.Reader) (admission.Interface, error) { return w, nil })
}

// use gives it the API server to ask.
func (w *workloads) use(cfg *rest.Config) error {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // as fast as objects are written
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	w.client.Store(c)
	return nil
}

// Handles implements admission.Interface.
func (*workloads) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Validate implements admission.ValidationInterface.
func (w *workloads) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetNamespace() == "" || a.GetSubresource() != "" || w.client.Load() == nil {
		return nil
	}
	if a.GetKind().Group == v1alpha1.GroupVersion.Group {
		switch a.GetKind().Kind {
		case "VirtualKubernetes":
			return w.virtualKubernetes(ctx, a)
		case "Override":
			return w.override(ctx, a)
		}
		return nil
	}
	kind, ok := w.stock.Of(a.GetKind().GroupKind())
	if _, custom := a.GetObject().(*unstructured.Unstructured); !ok && custom {
		kind, ok = offered.Kind{Group: a.GetKind().Group, Version: a.GetKind().Version, Kind: a.GetKind().Kind, Resource: a.GetResource().Resource, Spec: true, Custom: true}, true
	}
	if !ok {
		return nil
	}
	return w.carried(ctx, a, kind)
}

// place is whose namespace it is.
type place struct {
	tenant, short string
	level         v1alpha1.PodSecurityLevel
}

// placeOf says whose namespace it is; false for one where no workloads run.
func (w *workloads) placeOf(ctx context.Context, namespace string) (place, bool, error) {
	if !strings.Contains(namespace, "-") {
		return place{}, false, nil // all namespaces of tenants are <tenant>-<name>
	}
	ns, err := w.get(ctx, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", namespace)
	if err != nil || ns == nil {
		return place{}, false, err
	}
	p := place{tenant: ns.GetLabels()[fleet.LabelTenant], level: v1alpha1.PodSecurityBaseline}
	var ok bool
	if p.short, ok = render.Short(p.tenant, namespace); p.tenant == "" || !ok || namespace == fleet.SystemNamespace(p.tenant) {
		return place{}, false, nil
	}
	tenant, err := w.get(ctx, v1alpha1.GroupVersion.WithResource("tenants"), "", p.tenant)
	if err != nil {
		return place{}, false, err
	}
	if tenant != nil {
		if level, _, _ := unstructured.NestedString(tenant.Object, "spec", "podSecurity"); level != "" {
			p.level = v1alpha1.PodSecurityLevel(level)
		}
	}
	return p, true, nil
}

// get returns nil for what there is not.
func (w *workloads) get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	u, err := w.client.Load().Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("look up %s %s: %w", gvr.Resource, name, err))
	}
	return u, nil
}

var annotations = field.NewPath("metadata", "annotations")

// carried checks an object that sites may get.
func (w *workloads) carried(ctx context.Context, a admission.Attributes, kind offered.Kind) error {
	now, before := annotationsOf(a.GetObject()), annotationsOf(a.GetOldObject())
	create := a.GetOperation() == admission.Create
	changed := func(key string) bool { return create || now[key] != before[key] }
	ours := false
	for key := range now {
		ours = ours || validation.OurAnnotation(key)
	}
	if kind.Custom && !ours { // it may not even be granted
		return w.customSize(ctx, a, kind)
	}
	p, ok, err := w.placeOf(ctx, a.GetNamespace())
	if err != nil || !ok {
		return err
	}
	errs, warnings := validation.WorkloadAnnotations(kind, now, changed)
	for _, text := range warnings {
		warning.AddWarning(ctx, "", text)
	}
	for _, check := range []func() (field.ErrorList, error){
		func() (field.ErrorList, error) { return w.virtualSites(ctx, p, now, changed) },
		func() (field.ErrorList, error) {
			return w.overridesOf(ctx, a.GetNamespace(), kind, now, changed, create)
		},
	} {
		more, err := check()
		if err != nil {
			return err
		}
		errs = append(errs, more...)
	}
	if kind.Kind == "NetworkPolicy" && create && a.GetName() == render.IsolationName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), a.GetName(), "every namespace has one of this name on its sites, which keeps other tenants out; choose another name: policies add up"))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), errs)
	}
	if kind.Custom {
		return w.customSize(ctx, a, kind)
	}
	object, err := contentOf(a, a.GetObject())
	if err != nil {
		return err
	}
	if kind.Template != nil {
		old, err := contentOf(a, a.GetOldObject())
		if err != nil {
			return err
		}
		template, _, _ := unstructured.NestedMap(object, kind.Template...)
		was, had, _ := unstructured.NestedMap(old, kind.Template...)
		if !had || !equality.Semantic.DeepEqual(template, was) {
			if err := podSecurity(a, p, template); err != nil {
				return err
			}
		}
		if create {
			if vks, err := w.virtual(ctx, a.GetNamespace()); err == nil && len(vks) == 0 {
				warning.AddWarning(ctx, "", "namespace "+a.GetNamespace()+" has no VirtualKubernetes: the object is stored, and runs nowhere until there is one")
			}
		}
	}
	return tooLarge(a, render.Check(kind, a.GetNamespace(), p.short, object))
}

// tooLarge refuses an object for its size; nil: it has none that stands in the way.
func tooLarge(a admission.Attributes, why error) error {
	if why == nil {
		return nil
	}
	return apierrors.NewRequestEntityTooLargeError(a.GetKind().Kind + " " + a.GetName() + ": " + why.Error())
}

// customSize checks the size of an object of a CRD. Whether it is carried at all is asked of
// those alone that would be too large.
func (w *workloads) customSize(ctx context.Context, a admission.Attributes, kind offered.Kind) error {
	object, err := contentOf(a, a.GetObject())
	if err != nil {
		return err
	}
	too := render.Check(kind, a.GetNamespace(), "", object)
	if too == nil {
		return nil
	}
	crd, err := w.get(ctx, apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), "", kind.Resource+"."+kind.Group)
	if err != nil || crd == nil || crd.GetLabels()[offered.LabelGranted] != offered.Granted {
		return err
	}
	if _, ok, err := w.placeOf(ctx, a.GetNamespace()); err != nil || !ok {
		return err
	}
	return tooLarge(a, too)
}

func podSecurity(a admission.Attributes, p place, template map[string]any) error {
	if err := validation.PodSecurity(p.level, template); err != nil {
		return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf("tenant %s runs pods of the Pod Security Standard %q: %w; the platform's operators may set spec.podSecurity of the Tenant", p.tenant, p.level, err))
	}
	return nil
}

// virtualSites refuses those that do not exist.
func (w *workloads) virtualSites(ctx context.Context, p place, now map[string]string, changed func(string) bool) (field.ErrorList, error) {
	value, has := now[workload.VirtualSites]
	if !has || !changed(workload.VirtualSites) {
		return nil, nil
	}
	at := annotations.Key(workload.VirtualSites)
	keys, err := render.VirtualSites(value, p.short)
	if err != nil {
		return field.ErrorList{field.Invalid(at, value, err.Error())}, nil
	}
	var errs field.ErrorList
	for _, key := range keys {
		ns, name, _ := strings.Cut(key, "/")
		found, err := w.get(ctx, v1alpha1.GroupVersion.WithResource("virtualsites"), p.tenant+"-"+ns, name)
		if err != nil {
			return nil, err
		}
		if found != nil {
			continue
		}
		there, err := w.virtualSitesOf(ctx, p)
		if err != nil {
			return nil, err
		}
		errs = append(errs, field.Invalid(at, value, "there is no virtual site "+key+"; want some of "+there))
	}
	return errs, nil
}

// virtualSitesOf names a tenant's virtual sites, as its users type them.
func (w *workloads) virtualSitesOf(ctx context.Context, p place) (string, error) {
	spaces, err := w.client.Load().Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).List(ctx, metav1.ListOptions{LabelSelector: fleet.LabelTenant + "=" + p.tenant})
	if err != nil {
		return "", apierrors.NewInternalError(fmt.Errorf("list the tenant's namespaces: %w", err))
	}
	var names []string
	for _, ns := range spaces.Items {
		short, ok := render.Short(p.tenant, ns.GetName())
		if !ok {
			continue
		}
		list, err := w.client.Load().Resource(v1alpha1.GroupVersion.WithResource("virtualsites")).Namespace(ns.GetName()).List(ctx, metav1.ListOptions{Limit: maxNamed})
		if err != nil {
			return "", apierrors.NewInternalError(fmt.Errorf("list virtual sites: %w", err))
		}
		for _, vs := range list.Items {
			names = append(names, short+"/"+vs.GetName())
		}
	}
	slices.Sort(names)
	return named(names, "no virtual site: the tenant has none yet"), nil
}

// maxNamed is how many names a refusal tells.
const maxNamed = 20

func named(names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	return few.Of(names, maxNamed, ", ")
}

// overridesOf refuses Overrides that do not exist, or are for another kind; of what is created
// those may come after it.
func (w *workloads) overridesOf(ctx context.Context, namespace string, kind offered.Kind, now map[string]string, changed func(string) bool, create bool) (field.ErrorList, error) {
	value, has := now[workload.Overrides]
	if !has || !changed(workload.Overrides) || !kind.Spec {
		return nil, nil
	}
	at := annotations.Key(workload.Overrides)
	names, err := render.Overrides(value)
	if err != nil {
		return field.ErrorList{field.Invalid(at, value, err.Error())}, nil
	}
	list, err := w.client.Load().Resource(v1alpha1.GroupVersion.WithResource("overrides")).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("list Overrides: %w", err))
	}
	kinds := map[string]string{}
	var fit []string
	for _, o := range list.Items {
		of, _, _ := unstructured.NestedString(o.Object, "spec", "kind")
		kinds[o.GetName()] = of
		if of == "" || of == kind.Kind {
			fit = append(fit, o.GetName())
		}
	}
	slices.Sort(fit)
	var errs field.ErrorList
	for _, name := range names {
		of, there := kinds[name]
		switch {
		case !there && create: // it may come with the same manifests; until then sites get its own spec
			warning.AddWarning(ctx, "", "there is no Override "+name+" in this namespace: it counts as soon as there is one")
		case !there:
			errs = append(errs, field.Invalid(at, value, "there is no Override "+name+" in this namespace; want some of "+named(fit, "none: it has none for a "+kind.Kind)))
		case of != "" && of != kind.Kind:
			errs = append(errs, field.Invalid(at, value, "Override "+name+" is for a "+of+", and this is a "+kind.Kind+"; want some of "+named(fit, "none: there is none for it")))
		}
	}
	return errs, nil
}

// override checks the pods that an Override would make.
func (w *workloads) override(ctx context.Context, a admission.Attributes) error {
	now, err := contentOf(a, a.GetObject())
	if err != nil {
		return err
	}
	if !specChanged(a) {
		return nil
	}
	spec, _, _ := unstructured.NestedFieldNoCopy(now, "spec", "spec")
	if err := tooLarge(a, render.CheckOverride(spec)); err != nil {
		return err
	}
	var templates []map[string]any
	for _, path := range [][]string{{"spec", "spec", "template"}, {"spec", "spec", "jobTemplate", "spec", "template"}} {
		if t, ok, _ := unstructured.NestedMap(now, path...); ok {
			templates = append(templates, t)
		}
	}
	p, ok, err := w.placeOf(ctx, a.GetNamespace())
	if err != nil || !ok {
		return err
	}
	for _, t := range templates {
		if err := podSecurity(a, p, t); err != nil {
			return err
		}
	}
	return nil
}

// virtual are the virtual Kubernetes of a namespace.
func (w *workloads) virtual(ctx context.Context, namespace string) ([]string, error) {
	list, err := w.client.Load().Resource(v1alpha1.GroupVersion.WithResource("virtualkubernetes")).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: maxNamed})
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("list virtual Kubernetes: %w", err))
	}
	var out []string
	for _, vk := range list.Items {
		out = append(out, vk.GetName())
	}
	return out, nil
}

// virtualKubernetes lets a namespace have one.
func (w *workloads) virtualKubernetes(ctx context.Context, a admission.Attributes) error {
	if a.GetOperation() != admission.Create {
		return nil
	}
	name, namespace := a.GetName(), a.GetNamespace()
	if m, err := meta.Accessor(a.GetObject()); err == nil && m.GetName() != "" {
		name = m.GetName()
	}
	refuse := func(why string) error {
		return apierrors.NewForbidden(a.GetResource().GroupResource(), name, fmt.Errorf("%s", why))
	}
	_, ok, err := w.placeOf(ctx, namespace)
	if err != nil {
		return err
	}
	if !ok {
		return refuse("namespace " + namespace + " is none of a tenant's where workloads run; want one of spec.namespaces of a Tenant")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	there, err := w.virtual(ctx, namespace)
	if err != nil {
		return err
	}
	now := w.now()
	for ns, c := range w.claims {
		if now.After(c.until) {
			delete(w.claims, ns)
		}
	}
	if c, ok := w.claims[namespace]; ok && c.name != name {
		there = append(there, c.name)
	}
	if i := slices.IndexFunc(there, func(other string) bool { return other != name }); i >= 0 {
		return refuse(fmt.Sprintf("namespace %s has a virtual Kubernetes already, %s, and can have one: change that one, or delete it first", namespace, there[i]))
	}
	if !a.IsDryRun() {
		w.claims[namespace] = claim{name, now.Add(claimFor)}
	}
	return nil
}

func annotationsOf(obj runtime.Object) map[string]string {
	if m, err := meta.Accessor(obj); obj != nil && err == nil {
		return m.GetAnnotations()
	}
	return nil
}

// contentOf is an object as JSON has it; nil for none. It may be changed.
func contentOf(a admission.Attributes, obj runtime.Object) (map[string]any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if u == nil {
			return nil, nil
		}
		return u.DeepCopy().Object, nil
	}
	if obj == nil {
		return nil, nil
	}
	b, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(a.GetKind().GroupVersion()), obj)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("encode %s: %w", a.GetKind().Kind, err))
	}
	out := map[string]any{}
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("read %s: %w", a.GetKind().Kind, err))
	}
	return out, nil
}
