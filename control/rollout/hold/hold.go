// Package hold says how an object comes under a rollout: which RolloutPolicy selects it,
// what of it moves, and which RolloutState follows from the one before and the new content.
//
// It is pure: no I/O and no clock. Admission in control/apiserver asks it for ordinary
// writes, control/rollout for Rollouts that somebody made.
package hold

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/workload"
)

// Labels of a Rollout and its state that say what was written, if it was made of an
// ordinary write.
const (
	LabelKind = "muster.dev/object-kind"
	LabelName = "muster.dev/object-name" // the first 63 characters
)

// MaxContents is how many contents of an object a state may have: a digit a site says
// which one it has.
const MaxContents = 10

// MaxBytes is how large all contents of a state may be together.
const MaxBytes = 1 << 20

// Policies are the kinds of Muster's own that a rollout can move.
var Policies = []offered.Kind{
	{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Kind: "CollectionPolicy", Resource: "collectionpolicies", Spec: true, Custom: true},
	{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Kind: "HealthPolicy", Resource: "healthpolicies", Spec: true, Custom: true},
	{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Kind: "SoftwarePolicy", Resource: "softwarepolicies", Spec: true, Custom: true},
	{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Kind: "HostConfiguration", Resource: "hostconfigurations", Spec: true, Custom: true},
}

// KindOf is the kind of objects that a rollout can move; false: it can't move any of
// these. Secrets are among those: the state, which whoever may read the namespace may
// read, would tell them.
func KindOf(set *offered.Set, gk schema.GroupKind) (offered.Kind, bool) {
	if i := slices.IndexFunc(Policies, func(k offered.Kind) bool { return k.GroupKind() == gk }); i >= 0 {
		return Policies[i], true
	}
	k, ok := set.Of(gk)
	return k, ok && !k.Secret
}

// Content is the part of an object that a rollout moves, as JSON that is the same for the
// same content. ok is false if the object has no such part.
func Content(kind offered.Kind, object map[string]any) (content runtime.RawExtension, ok bool, _ error) {
	moved := workload.Moved(object, kind.Template)
	if moved == nil {
		return runtime.RawExtension{}, false, nil
	}
	if len(kind.Template) > 0 {
		// The API server writes the empty creation time into some templates.
		if meta, has := moved["metadata"].(map[string]any); has && meta["creationTimestamp"] == nil {
			moved, meta = clone(moved), clone(meta)
			delete(meta, "creationTimestamp")
			if moved["metadata"] = meta; len(meta) == 0 {
				delete(moved, "metadata")
			}
		}
	}
	b, err := json.Marshal(moved)
	if err != nil {
		return runtime.RawExtension{}, false, fmt.Errorf("encode the content of a %s: %w", kind.Kind, err)
	}
	return runtime.RawExtension{Raw: b}, true, nil
}

func clone(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// With is the object with this content in the place of its own, which is not changed.
func With(kind offered.Kind, object map[string]any, content runtime.RawExtension) (map[string]any, error) {
	in := map[string]any{}
	if err := utiljson.Unmarshal(content.Raw, &in); err != nil {
		return nil, fmt.Errorf("the content of a %s in a RolloutState is no object: %w", kind.Kind, err)
	}
	return workload.WithMoved(object, kind.Template, in), nil
}

// Same tells whether two contents are equal.
func Same(a, b runtime.RawExtension) bool {
	if bytes.Equal(a.Raw, b.Raw) {
		return true
	}
	x, err1 := canonical(a.Raw)
	y, err2 := canonical(b.Raw)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

func canonical(raw []byte) ([]byte, error) {
	var v any
	if err := utiljson.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// workloads are the kinds of a policy that names none, elsewhere than in a system namespace.
var workloads = []string{"Deployment", "StatefulSet", "DaemonSet"}

// Select returns the policy whose plan a change of an object follows; nil: none selects it.
// system: the object is in its tenant's system namespace.
func Select(policies []v1alpha1.RolloutPolicy, kind string, system bool, set map[string]string) *v1alpha1.RolloutPolicy {
	var out *v1alpha1.RolloutPolicy
	for i := range policies {
		p := &policies[i]
		kinds := p.Spec.Kinds
		if len(kinds) == 0 {
			kinds = workloads
			if system {
				kinds = nil
				for _, k := range Policies {
					kinds = append(kinds, k.Kind)
				}
			}
		}
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.Selector)
		if err != nil || !slices.Contains(kinds, kind) || p.DeletionTimestamp != nil || !selector.Matches(labels.Set(set)) {
			continue // admission refuses selectors that can't be read
		}
		if out == nil || cmp.Or(cmp.Compare(out.Spec.Priority, p.Spec.Priority), strings.Compare(p.Name, out.Name)) < 0 {
			out = p
		}
	}
	return out
}

// Name of the state, and of the Rollout, that an ordinary write makes: the same for the
// same write of the same object, so that a write that is tried again makes no second one.
func Name(object, uid, resourceVersion string, to runtime.RawExtension) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", uid, resourceVersion)
	h.Write(to.Raw)
	if len(object) > 200 {
		object = strings.TrimRight(object[:200], "-.")
	}
	return object + "-" + hex.EncodeToString(h.Sum(nil)[:4])
}

// Labels of what an ordinary write of an object makes.
func Labels(kind offered.Kind, name string) map[string]string {
	if len(name) > 63 {
		name = strings.TrimRight(name[:63], "-.")
	}
	return map[string]string{LabelKind: kind.Kind, LabelName: name}
}
