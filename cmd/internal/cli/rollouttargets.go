package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/software"
	"muster.dev/muster/internal/workload"
)

// softwareWithin is how long a site may take for a version of its software: it downloads,
// boots, and tries it.
const softwareWithin = 2 * time.Hour

// target is an object that a rollout changes.
type target struct {
	kind   offered.Kind
	o      *unstructured.Unstructured
	change v1alpha1.RolloutChange
	fresh  *v1alpha1.SoftwarePolicy // that is made first
}

// make makes what has to be there.
func (t *target) make(ctx context.Context, c client.Client, dryRun bool) error {
	if t.fresh == nil {
		return nil
	}
	var how []client.CreateOption
	if dryRun {
		how = append(how, client.DryRunAll)
	}
	if err := c.Create(ctx, t.fresh.DeepCopy(), how...); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("SoftwarePolicy %s: %w", t.fresh.Name, err)
	}
	return nil
}

// targets reads what is there, and what becomes of it.
func (f *startFlags) targets(ctx context.Context, c client.Client, tenant, namespace string, typed []string) ([]target, error) {
	if len(f.images) == 0 && f.file == "" && f.revision == 0 {
		return nil, errors.New("what becomes of it? Give --image, --file or --revision")
	}
	if f.several = len(typed) > 1; f.several && f.revision != 0 {
		return nil, errors.New("--revision is for one object: each counts its own")
	}
	f.used = map[string]bool{}
	var out []target
	for _, x := range typed {
		kind, name, err := objectKind(c, x)
		if err != nil {
			return nil, err
		}
		t := target{kind: kind, o: &unstructured.Unstructured{}}
		t.o.SetGroupVersionKind(kind.GroupVersionKind())
		if err := c.Get(ctx, client.ObjectKey{Namespace: tenant + "-" + namespace, Name: name}, t.o); apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is no %s %s in namespace %s: a rollout changes what there is; create it first", kind.Kind, name, namespace)
		} else if err != nil {
			return nil, fmt.Errorf("%s %s: %w", kind.Kind, name, err)
		}
		if t.change, err = f.change(kind, t.o); err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	for _, image := range f.images {
		if !f.used[image] {
			return nil, fmt.Errorf("--image %q: want CONTAINER=IMAGE of a container that one of %s has", image, strings.Join(typed, ", "))
		}
	}
	return out, nil
}

// softwareTargets are the policies of components, with other versions.
func (f *startFlags) softwareTargets(ctx context.Context, c client.Client, tenant string, typed []string) ([]target, error) {
	if len(f.images) > 0 || f.file != "" || f.revision != 0 {
		return nil, errors.New("--image, --file and --revision are for objects: start software is told versions, such as agent=1.4.2")
	}
	var policies v1alpha1.SoftwarePolicyList
	if err := c.List(ctx, &policies, client.InNamespace(fleet.SystemNamespace(tenant))); err != nil {
		return nil, fmt.Errorf("software policies: %w", err)
	}
	var out []target
	for _, x := range typed {
		component, version, _ := strings.Cut(x, "=")
		if !slices.Contains(software.Components, component) || version == "" {
			return nil, fmt.Errorf("%q: want COMPONENT=VERSION, such as agent=1.4.2, with one of %s", x, strings.Join(software.Components, ", "))
		}
		var v v1alpha1.SoftwareVersion
		switch err := c.Get(ctx, client.ObjectKey{Namespace: fleet.SystemNamespace(tenant), Name: component + "-" + version}, &v); {
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("%s: there is no such version: release it with `muster software add` first", x)
		case err != nil:
			return nil, fmt.Errorf("SoftwareVersion %s-%s: %w", component, version, err)
		case v.Spec.Withdrawn != "":
			return nil, fmt.Errorf("%s was withdrawn: %s", x, v.Spec.Withdrawn)
		}
		t, err := softwareTarget(policies.Items, tenant, component, version)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// softwareTarget is the policy of a component that gets the version: the one that is named
// after it, the only one there is, or a new one.
func softwareTarget(policies []v1alpha1.SoftwarePolicy, tenant, component, version string) (target, error) {
	var of []*v1alpha1.SoftwarePolicy
	var names []string
	for i := range policies {
		if p := &policies[i]; string(p.Spec.Component) == component {
			of, names = append(of, p), append(names, p.Name)
		}
	}
	t := target{}
	policy := &v1alpha1.SoftwarePolicy{}
	switch at := slices.Index(names, component); {
	case at >= 0:
		policy = of[at]
	case len(of) == 1:
		policy = of[0]
	case len(of) > 1:
		return t, fmt.Errorf("%s: there are %d policies of the component, %s, and none is named %s: say which with `muster rollout start system softwarepolicy/NAME --file FILE`", component, len(of), strings.Join(names, ", "), component)
	default:
		policy.Namespace, policy.Name, policy.Spec.Component = fleet.SystemNamespace(tenant), component, v1alpha1.SoftwareComponent(component)
		t.fresh = policy
	}
	if policy.Spec.Version == version {
		return t, fmt.Errorf("SoftwarePolicy %s says %s %s already", policy.Name, component, version)
	}
	next := policy.DeepCopy()
	next.Spec.Version = version
	content, err := json.Marshal(map[string]any{"spec": next.Spec})
	if err != nil {
		return t, err
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy)
	if err != nil {
		return t, err
	}
	t.kind, t.o = offered.Kind{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Kind: "SoftwarePolicy", Resource: "softwarepolicies", Spec: true, Custom: true}, &unstructured.Unstructured{Object: object}
	t.change = v1alpha1.RolloutChange{APIVersion: apiVersion(t.kind), Kind: "SoftwarePolicy", Name: policy.Name, Content: &runtime.RawExtension{Raw: content}}
	return t, nil
}

// document is what the file says of an object; of several, each is a whole one.
func (f *startFlags) document(kind offered.Kind, name string) (map[string]any, error) {
	raw, err := os.ReadFile(f.file)
	if err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	if !f.several {
		var doc map[string]any
		if err := yaml.UnmarshalStrict(raw, &doc); err != nil {
			return nil, fmt.Errorf("--file %s: %w", f.file, err)
		}
		return doc, nil
	}
	for docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw))); ; {
		part, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("--file %s: has no %s %s: of several objects it has each as a whole, with --- between them", f.file, kind.Kind, name)
		}
		var doc map[string]any
		if err == nil {
			err = yaml.UnmarshalStrict(part, &doc)
		}
		if err != nil {
			return nil, fmt.Errorf("--file %s: %w", f.file, err)
		}
		if o := (&unstructured.Unstructured{Object: doc}); doc != nil && o.GetKind() == kind.Kind && o.GetName() == name {
			return doc, nil
		}
	}
}

// change is what becomes of the object.
func (f *startFlags) change(kind offered.Kind, o *unstructured.Unstructured) (v1alpha1.RolloutChange, error) {
	out := v1alpha1.RolloutChange{APIVersion: apiVersion(kind), Kind: kind.Kind, Name: o.GetName()}
	switch {
	case f.file != "":
		doc, err := f.document(kind, o.GetName())
		if err != nil {
			return out, err
		}
		if has, _ := doc["kind"].(string); has != "" { // the whole object
			if has != kind.Kind {
				return out, fmt.Errorf("--file %s: is a %s, want a %s, or what moves of one", f.file, has, kind.Kind)
			}
			doc = workload.Moved(doc, kind.Template)
		}
		if len(doc) == 0 {
			return out, fmt.Errorf("--file %s: has nothing at %s, which is what a rollout of a %s moves", f.file, strings.Join(orPath(kind.Template), "."), kind.Kind)
		}
		b, err := json.Marshal(doc)
		if err != nil {
			return out, fmt.Errorf("--file %s: %w", f.file, err)
		}
		out.Content = &runtime.RawExtension{Raw: b}
	case f.revision != 0:
		if f.revision < 1 || len(kind.Template) == 0 {
			return out, fmt.Errorf("--revision %d: want the number of a revision of a workload, as kubectl rollout history counts them", f.revision)
		}
		out.Revision = &f.revision
	default:
		if len(kind.Template) == 0 {
			return out, fmt.Errorf("--image: a %s has no containers; give its new content with --file", kind.Kind)
		}
		have := containersOf(o, kind.Template)
		out.Images = map[string]string{}
		for _, typed := range f.images {
			container, image, ok := strings.Cut(typed, "=")
			if !ok && len(have) == 1 && !f.several {
				container, image = have[0], typed
			} else if !ok || container == "" || image == "" {
				return out, fmt.Errorf("--image %q: want CONTAINER=IMAGE, such as %s=shop/web:2", typed, append(have, "web")[0])
			}
			if !slices.Contains(have, container) {
				if f.several {
					continue
				}
				return out, fmt.Errorf("--image %q: %s %s has no container %q; it has %s", typed, kind.Kind, o.GetName(), container, strings.Join(have, ", "))
			}
			out.Images[container] = image
			if f.used != nil {
				f.used[typed] = true
			}
		}
		if len(out.Images) == 0 {
			return out, fmt.Errorf("--image: none is of a container of %s %s; it has %s", kind.Kind, o.GetName(), strings.Join(have, ", "))
		}
	}
	return out, nil
}

func orPath(template []string) []string {
	if len(template) == 0 {
		return []string{"spec"}
	}
	return template
}

// containersOf are the names of a pods' template's containers, those for its start at the end.
func containersOf(o *unstructured.Unstructured, template []string) []string {
	var out []string
	for _, field := range []string{"containers", "initContainers"} {
		list, _, _ := unstructured.NestedSlice(o.Object, append(slices.Clone(template), "spec", field)...)
		for _, c := range list {
			if m, ok := c.(map[string]any); ok {
				name, _ := m["name"].(string)
				out = append(out, name)
			}
		}
	}
	return out
}
