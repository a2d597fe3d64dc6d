package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kubeyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
	"muster.dev/muster/internal/yamlsize"
)

const (
	maxApplyObjects = 200 // of one request
	// maxWrittenOut is what a document may come to when its aliases are written out; no API
	// server takes more.
	maxWrittenOut = 3 << 20
)

type applyRequest struct {
	YAML string `json:"yaml"`
	// VirtualSite, NAMESPACE/NAME, is where all objects go; "": where each says itself, or
	// the default.
	VirtualSite string `json:"virtualSite"`
	// DryRun asks the API server what it would do.
	DryRun bool `json:"dryRun"`
	// Force takes over fields that somebody else manages.
	Force bool `json:"force"`
}

// applyView tells what became of the objects, in their order.
type applyView struct {
	// Applied: all objects are stored. Nothing is when one of them would be refused.
	Applied bool          `json:"applied"`
	Objects []appliedView `json:"objects"`
}

type appliedView struct {
	Document     int      `json:"document"` // from 1
	Group        string   `json:"group"`
	Version      string   `json:"version"`
	Kind         string   `json:"kind"`
	Name         string   `json:"name"`
	Change       string   `json:"change"`       // create, change, none; "" with an error
	VirtualSites []string `json:"virtualSites"` // that it names; none: the default one
	Warnings     []string `json:"warnings"`     // of the API server
	Error        *refusal `json:"error"`
}

// refusal is why an object can't be applied.
type refusal struct {
	Detail string `json:"detail"`
	// Conflict: somebody else manages fields, which force takes over.
	Conflict bool              `json:"conflict"`
	Errors   []wire.FieldError `json:"errors"`
}

func refuse(err error) *refusal {
	p := asProblem(err, "apply")
	out := &refusal{Detail: p.Detail, Conflict: apierrors.IsConflict(err), Errors: p.Errors}
	var s apierrors.APIStatus
	if errors.As(err, &s) && len(out.Errors) == 0 && s.Status().Details != nil {
		for _, c := range s.Status().Details.Causes {
			if c.Field != "" {
				out.Errors = append(out.Errors, wire.FieldError{Field: c.Field, Detail: c.Message})
			}
		}
	}
	if errors.As(err, &s) {
		out.Detail = s.Status().Message
	}
	if out.Errors == nil {
		out.Errors = []wire.FieldError{}
	}
	return out
}

// document is one object of a YAML text.
type document struct {
	number int
	object *unstructured.Unstructured
	err    *refusal
}

// documents reads a YAML text of objects, apart by ---. Lists are taken to pieces, empty
// documents left out.
func documents(text string) ([]document, error) {
	var out []document
	tooMany := invalid("yaml", "has more than %d objects; apply them in several parts", maxApplyObjects)
	reader := kubeyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for n := 1; ; n++ {
		if len(out) > maxApplyObjects || n > 10*maxApplyObjects { // of which many are empty
			return nil, tooMany
		}
		raw, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, invalid("yaml", "document %d: %s", n, err)
		}
		if err := yamlsize.Check(raw, maxWrittenOut); err != nil {
			return nil, invalid("yaml", "document %d %s", n, err)
		}
		var o map[string]any
		if err := yaml.UnmarshalStrict(raw, &o); err != nil {
			why := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: ")
			out = append(out, document{number: n, err: &refusal{Detail: why, Errors: []wire.FieldError{}}})
			continue
		}
		if len(o) == 0 {
			continue
		}
		u := &unstructured.Unstructured{Object: o}
		if items, ok := o["items"].([]any); ok && strings.HasSuffix(u.GetKind(), "List") {
			if len(items) > maxApplyObjects {
				return nil, tooMany
			}
			for _, item := range items {
				m, _ := item.(map[string]any)
				out = append(out, document{number: n, object: &unstructured.Unstructured{Object: m}})
			}
			continue
		}
		out = append(out, document{number: n, object: u})
	}
	switch {
	case len(out) == 0:
		return nil, invalid("yaml", "has no object; paste at least one, such as a Deployment")
	case len(out) > maxApplyObjects:
		return nil, tooMany
	}
	return out, nil
}

// prepare says what is wrong with an object, or makes it one of the virtual Kubernetes.
func (d *document) prepare(ref virtualRef, virtualSite string) *refusal {
	var errs []wire.FieldError
	bad := func(field, format string, args ...any) {
		errs = append(errs, wire.FieldError{Field: field, Detail: fmt.Sprintf(format, args...)})
	}
	o := d.object
	// The accessors of unstructured objects take a wrong type for an absent field.
	meta, ok := o.Object["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		if o.Object == nil {
			o.Object = map[string]any{}
		}
		o.Object["metadata"] = meta
	}
	if o.GetAPIVersion() == "" || strings.Count(o.GetAPIVersion(), "/") > 1 || len(path.ValidatePathSegmentName(strings.ReplaceAll(o.GetAPIVersion(), "/", ""), false)) > 0 {
		bad("apiVersion", "want the kind's group and version, such as apps/v1")
	}
	if o.GetKind() == "" {
		bad("kind", "is missing: want a kind such as Deployment")
	}
	if name := o.GetName(); name == "" || len(path.ValidatePathSegmentName(name, false)) > 0 {
		bad("metadata.name", "is missing, or no name: each object needs one")
	}
	switch ns := o.GetNamespace(); ns {
	case "", ref.namespace, ref.kubeNamespace():
		o.SetNamespace(ref.kubeNamespace())
	default:
		bad("metadata.namespace", "%q: this virtual Kubernetes is the namespace %s; leave it out", printable(ns), ref.namespace)
	}
	if v, ok := meta["annotations"]; ok && v != nil {
		if m, ok := v.(map[string]any); !ok {
			bad("metadata.annotations", "want names with texts")
		} else {
			for k, v := range m {
				if _, ok := v.(string); !ok {
					bad("metadata.annotations."+printable(k), "want a text: put it in quotes")
				}
			}
		}
	}
	if len(errs) > 0 {
		p := invalidFields(errs)
		return &refusal{Detail: p.Detail, Errors: errs}
	}
	if virtualSite != "" {
		a := o.GetAnnotations()
		if a == nil {
			a = map[string]string{}
		}
		a[workload.VirtualSites] = virtualSite
		o.SetAnnotations(a)
	}
	delete(o.Object, "status")
	delete(meta, "managedFields") // an apply must not have any
	return nil
}

// applyObjects asks the API server to apply objects, as the user: first whether it would
// take each of them, and only then, unless that was the question, for good.
func (c *Console) applyObjects(w http.ResponseWriter, cl *call) error {
	ref, err := c.virtualOf(cl)
	if err != nil {
		return err
	}
	// Without one, each kind would look as if it were not served.
	if _, err := c.kube.virtual(cl.Context(), ref); err != nil {
		return err
	}
	end, err := c.turn(w, cl, []string{ref.tenant})
	if err != nil {
		return err
	}
	defer end()
	var in applyRequest
	if err := readJSON(cl.Request, &in, false); err != nil {
		return err
	}
	if err := virtualSiteName(in.VirtualSite); err != nil {
		return invalid("virtualSite", "%s", err)
	}
	docs, err := documents(in.YAML)
	if err != nil {
		return err
	}
	a := applier{kube: c.kube, ref: ref, force: in.Force, resources: map[string]resource{}}
	out := applyView{Objects: []appliedView{}}
	refused := false
	for i := range docs {
		v := a.apply(cl.Context(), &docs[i], in.VirtualSite, true)
		refused = refused || v.Error != nil
		out.Objects = append(out.Objects, v)
	}
	if err := cl.Context().Err(); err != nil {
		return err
	}
	if in.DryRun || refused {
		return writeJSON(w, http.StatusOK, out)
	}
	for i := range docs {
		v := a.apply(cl.Context(), &docs[i], in.VirtualSite, false)
		if v.Error != nil && i > 0 {
			v.Error.Detail = fmt.Sprintf("%s (the %d before it are applied)", v.Error.Detail, i)
		}
		if out.Objects[i] = v; v.Error != nil {
			return writeJSON(w, http.StatusOK, out)
		}
	}
	out.Applied = true
	return writeJSON(w, http.StatusOK, out)
}

func virtualSiteName(s string) error {
	if s == "" {
		return nil
	}
	for _, part := range strings.Split(s, "/") {
		if len(path.ValidatePathSegmentName(part, false)) > 0 || part == "" || strings.ContainsAny(part, ", ") {
			return fmt.Errorf("%q: want NAMESPACE/NAME, such as shared/all-eu", printable(s))
		}
	}
	if strings.Count(s, "/") > 1 || len(s) > 320 {
		return fmt.Errorf("%q: want NAMESPACE/NAME, such as shared/all-eu", printable(s))
	}
	return nil
}

// applier applies the objects of one request.
type applier struct {
	kube      *kube
	ref       virtualRef
	force     bool
	resources map[string]resource // by apiVersion and kind
}

func (a *applier) apply(ctx context.Context, d *document, virtualSite string, dry bool) appliedView {
	v := appliedView{Document: d.number, VirtualSites: []string{}, Warnings: []string{}}
	if d.err != nil {
		v.Error = d.err
		return v
	}
	o := d.object
	if r := d.prepare(a.ref, virtualSite); r != nil {
		v.Kind, v.Name, v.Error = o.GetKind(), o.GetName(), r
		return v
	}
	gvk := o.GroupVersionKind()
	v.Group, v.Version, v.Kind, v.Name = gvk.Group, gvk.Version, gvk.Kind, o.GetName()
	v.VirtualSites = append(v.VirtualSites, workload.List(o.GetAnnotations()[workload.VirtualSites])...)
	r, err := a.resource(ctx, gvk.Group, gvk.Version, gvk.Kind)
	if err != nil {
		v.Error = refuse(err)
		if isNotFound(err) {
			v.Error.Errors = []wire.FieldError{{Field: "kind", Detail: fmt.Sprintf("%s of %s is not served here; `kubectl api-resources` lists what is", printable(gvk.Kind), printable(o.GetAPIVersion()))}}
			v.Error.Detail = v.Error.Errors[0].Field + ": " + v.Error.Errors[0].Detail
		}
		return v
	}
	before, err := a.get(ctx, r, o.GetName())
	if err != nil && !apierrors.IsNotFound(err) {
		v.Error = refuse(err)
		return v
	}
	warnings := &warningList{}
	after, err := a.patch(ctx, r, o, dry, warnings)
	v.Warnings = append(v.Warnings, warnings.texts...)
	switch {
	case err != nil:
		v.Error = refuse(err)
	case before == nil:
		v.Change = "create"
	case equality.Semantic.DeepEqual(plainObject(before).Object, plainObject(after).Object):
		v.Change = "none"
	default:
		v.Change = "change"
	}
	return v
}

func isNotFound(err error) bool {
	var p *problem
	return apierrors.IsNotFound(err) || errors.As(err, &p) && p.Status == http.StatusNotFound
}

func (a *applier) resource(ctx context.Context, group, version, kind string) (resource, error) {
	key := group + "/" + version + "/" + kind
	if r, ok := a.resources[key]; ok {
		return r, nil
	}
	r, err := a.kube.resourceOf(ctx, a.ref, group, version, kind)
	if err == nil {
		a.resources[key] = r
	}
	return r, err
}

func (a *applier) get(ctx context.Context, r resource, name string) (*unstructured.Unstructured, error) {
	raw, err := body(ctx, a.kube.user.Get().AbsPath(a.ref.objectPath(r, name)...))
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{}
	return out, out.UnmarshalJSON(raw)
}

func (a *applier) patch(ctx context.Context, r resource, o *unstructured.Unstructured, dry bool, warnings *warningList) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(o.Object)
	if err != nil {
		return nil, err
	}
	req := a.kube.user.Patch(types.ApplyYAMLPatchType).AbsPath(a.ref.objectPath(r, o.GetName())...).WarningHandler(warnings).
		Param("fieldManager", fieldManager).Param("fieldValidation", metav1.FieldValidationStrict)
	if a.force {
		req = req.Param("force", "true")
	}
	if dry {
		req = req.Param("dryRun", metav1.DryRunAll)
	}
	raw, err := body(ctx, req.Body(text))
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{}
	return out, out.UnmarshalJSON(raw)
}

// warningList keeps what the API server warns of.
type warningList struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (l *warningList) HandleWarningHeader(code int, _, text string) {
	if code != 299 || text == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.texts = append(l.texts, text)
}
