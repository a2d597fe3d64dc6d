package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/hold"
)

// fieldManager is who writes into objects.
const fieldManager = "muster-rollout"

// object is one that a rollout moves, as it is now.
type object struct {
	kind offered.Kind
	name string
	live *unstructured.Unstructured // nil: there is none
}

func (o *object) String() string { return o.kind.Kind + " " + o.name }

// under is the state that the object's annotation names.
func (o *object) under() string {
	if o.live == nil {
		return ""
	}
	return o.live.GetAnnotations()[v1alpha1.AnnotationRollout]
}

// invalid is what keeps a rollout from being begun, in words for its author.
type invalid struct{ why string }

func (e *invalid) Error() string { return e.why }

func invalidf(format string, args ...any) error { return &invalid{fmt.Sprintf(format, args...)} }

func (c *Controller) kindOf(apiVersion, kind, field string) (offered.Kind, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return offered.Kind{}, invalidf("%s.apiVersion: %q is none: want GROUP/VERSION, such as apps/v1", field, apiVersion)
	}
	set := c.o.Offered()
	k, ok := hold.KindOf(set, gv.WithKind(kind).GroupKind())
	if !ok {
		return offered.Kind{}, invalidf("%s.kind: a rollout can't move a %s of %s: want a policy, or a kind that is carried to sites, which are %s", field, kind, apiVersion, strings.Join(set.Names(), ", "))
	}
	return k, nil
}

func (c *Controller) live(ctx context.Context, kind offered.Kind, namespace, name string) (*object, error) {
	u, err := c.o.Dynamic.Resource(kind.GroupVersionResource()).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &object{kind: kind, name: name}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", kind.Kind, name, err)
	}
	return &object{kind: kind, name: name, live: u}, nil
}

// objectsOf are the objects of a state, in its order.
func (c *Controller) objectsOf(ctx context.Context, st *v1alpha1.RolloutState) ([]*object, error) {
	var out []*object
	for i, o := range st.Spec.Objects {
		kind, err := c.kindOf(o.APIVersion, o.Kind, fmt.Sprintf("objects[%d]", i))
		if err != nil {
			return nil, errors.New("the state: " + err.Error()) // not wrapped: it was taken once, and may be again, so nothing ends by it
		}
		live, err := c.live(ctx, kind, st.Namespace, o.Name)
		if err != nil {
			return nil, err
		}
		out = append(out, live)
	}
	return out, nil
}

// put writes a content into an object, or leaves it as it is if content is nil, and puts it
// under a state, or leaves that if state is empty. It is refused with a conflict if the
// object has changed since it was read.
func (c *Controller) put(ctx context.Context, o *object, content *runtime.RawExtension, state string) error {
	next := o.live.DeepCopy()
	if content != nil {
		with, err := hold.With(o.kind, next.Object, *content)
		if err != nil {
			return err
		}
		next = &unstructured.Unstructured{Object: with}
	}
	if state != "" {
		set := next.GetAnnotations()
		if set == nil {
			set = map[string]string{}
		}
		set[v1alpha1.AnnotationRollout] = state
		next.SetAnnotations(set)
	}
	_, err := c.o.Dynamic.Resource(o.kind.GroupVersionResource()).Namespace(o.live.GetNamespace()).Update(ctx, next, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("write %s: %w", o, err)
	}
	return nil
}

// stored is a content as the API server would store it, with defaults filled in: what is
// there later is compared with it.
func (c *Controller) stored(ctx context.Context, o *object, content runtime.RawExtension, field string) (runtime.RawExtension, error) {
	with, err := hold.With(o.kind, o.live.DeepCopy().Object, content)
	if err != nil {
		return content, err
	}
	u, err := c.o.Dynamic.Resource(o.kind.GroupVersionResource()).Namespace(o.live.GetNamespace()).Update(ctx, &unstructured.Unstructured{Object: with}, metav1.UpdateOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}})
	switch {
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err):
		return content, invalidf("%s: %v", field, err)
	case err != nil:
		return content, fmt.Errorf("try what %s would be: %w", o, err)
	}
	return (&object{kind: o.kind, live: u}).content()
}

// content is the moved part of an object as it is.
func (o *object) content() (runtime.RawExtension, error) {
	content, ok, err := hold.Content(o.kind, o.live.Object)
	if err == nil && !ok {
		err = invalidf("%s has no %s", o, strings.Join(o.kind.Template, "."))
	}
	return content, err
}

// wanted is the content that a change makes of an object.
func (c *Controller) wanted(ctx context.Context, o *object, change *v1alpha1.RolloutChange, field string) (runtime.RawExtension, error) {
	switch {
	case len(change.Images) > 0:
		return withImages(o, change.Images, field)
	case change.Content != nil:
		to, err := given(o, change.Content, field)
		if err != nil {
			return to, err
		}
		return c.stored(ctx, o, to, field)
	case change.Revision != nil:
		return c.revision(ctx, o, *change.Revision, field)
	}
	return runtime.RawExtension{}, invalidf("%s: want one of images, content and revision: a rollout without them is made by the API server, of a write to an object that a RolloutPolicy selects", field)
}

func withImages(o *object, images map[string]string, field string) (runtime.RawExtension, error) {
	none := runtime.RawExtension{}
	if len(o.kind.Template) == 0 {
		return none, invalidf("%s.images: a %s has no containers: want content", field, o.kind.Kind)
	}
	content, err := o.content()
	if err != nil {
		return none, err
	}
	in := map[string]any{}
	if err := utiljson.Unmarshal(content.Raw, &in); err != nil {
		return none, err
	}
	missing := map[string]bool{}
	for name := range images {
		missing[name] = true
	}
	var names []string
	for _, list := range []string{"initContainers", "containers"} {
		containers, _, _ := unstructured.NestedSlice(in, "spec", list)
		for _, x := range containers {
			container, _ := x.(map[string]any)
			name, _ := container["name"].(string)
			names = append(names, name)
			if image, ok := images[name]; ok {
				container["image"] = image
				delete(missing, name)
			}
		}
		if len(containers) > 0 {
			if err := unstructured.SetNestedSlice(in, containers, "spec", list); err != nil {
				return none, err
			}
		}
	}
	for name := range missing {
		return none, invalidf("%s.images: %s has no container %s: want one of %s", field, o, name, strings.Join(names, ", "))
	}
	return encode(in)
}

// given is a content that stands in the Rollout: what moves as a whole, or, of what has a
// spec, the spec.
func given(o *object, content *runtime.RawExtension, field string) (runtime.RawExtension, error) {
	in := map[string]any{}
	if err := utiljson.Unmarshal(content.Raw, &in); err != nil {
		return runtime.RawExtension{}, invalidf("%s.content: want an object: %v", field, err)
	}
	if len(o.kind.Template) == 0 && o.kind.Spec {
		if _, whole := in["spec"].(map[string]any); !whole || len(in) != 1 {
			in = map[string]any{"spec": in}
		}
	}
	return encode(in)
}

func encode(in map[string]any) (runtime.RawExtension, error) {
	b, err := utiljson.Marshal(in)
	return runtime.RawExtension{Raw: b}, err
}

// annotationRevision numbers the ReplicaSets of a Deployment.
const annotationRevision = "deployment.kubernetes.io/revision"

// revision is what a workload was, as `kubectl rollout history` shows it.
func (c *Controller) revision(ctx context.Context, o *object, n int64, field string) (runtime.RawExtension, error) {
	none := runtime.RawExtension{}
	var have []int64
	in := client.InNamespace(o.live.GetNamespace())
	mine := func(x client.Object) bool {
		ref := metav1.GetControllerOf(x)
		return ref != nil && ref.UID == o.live.GetUID()
	}
	switch o.kind.Kind {
	case "Deployment":
		var list appsv1.ReplicaSetList
		if err := c.o.Client.List(ctx, &list, in); err != nil {
			return none, fmt.Errorf("read the revisions of %s: %w", o, err)
		}
		for i := range list.Items {
			rs := &list.Items[i]
			var number int64
			if _, err := fmt.Sscan(rs.Annotations[annotationRevision], &number); err != nil || !mine(rs) {
				continue
			}
			if have = append(have, number); number != n {
				continue
			}
			template := rs.Spec.Template.DeepCopy()
			delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
			return templateOf(template)
		}
	case "StatefulSet", "DaemonSet":
		var list appsv1.ControllerRevisionList
		if err := c.o.Client.List(ctx, &list, in); err != nil {
			return none, fmt.Errorf("read the revisions of %s: %w", o, err)
		}
		for i := range list.Items {
			r := &list.Items[i]
			if !mine(r) {
				continue
			}
			if have = append(have, r.Revision); r.Revision != n {
				continue
			}
			patch := map[string]any{}
			if err := utiljson.Unmarshal(r.Data.Raw, &patch); err != nil {
				return none, fmt.Errorf("read revision %d of %s: %w", n, o, err)
			}
			template, _, _ := unstructured.NestedMap(patch, "spec", "template")
			delete(template, "$patch")
			return encode(template)
		}
	default:
		return none, invalidf("%s.revision: of a %s no revisions are kept: want images or content", field, o.kind.Kind)
	}
	slices.Sort(have)
	return none, invalidf("%s.revision: %s has no revision %d: there are %v", field, o, n, have)
}

func templateOf(o any) (runtime.RawExtension, error) {
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return runtime.RawExtension{}, err
	}
	if meta, ok := u["metadata"].(map[string]any); ok {
		delete(meta, "creationTimestamp")
		if len(meta) == 0 {
			delete(u, "metadata")
		}
	}
	return encode(u)
}
