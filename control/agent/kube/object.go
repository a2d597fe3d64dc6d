package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/internal/workload"
)

// maxObject is more than an API server takes (etcd's limit is 1.5 MiB), in bytes.
const maxObject = 3 << 20

// decode reads the blob of an item. It refuses an object that is not the one that the item
// names: the name is what it is ordered, told and removed by.
func decode(item string, blob []byte) (*unstructured.Unstructured, error) {
	group, kind, namespace, name, err := workload.ParseItemName(item)
	if err != nil {
		return nil, err
	}
	if len(blob) > maxObject {
		return nil, fmt.Errorf("%d bytes are more than a Kubernetes API server takes (1.5 MiB); split it", len(blob))
	}
	dec := json.NewDecoder(bytes.NewReader(blob))
	dec.UseNumber()
	var content map[string]any
	if err := dec.Decode(&content); err != nil {
		return nil, fmt.Errorf("no object in JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one object")
	}
	if err := numbers(content); err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{Object: content}
	for _, f := range []string{"apiVersion", "kind"} {
		if s, ok := content[f].(string); !ok || s == "" {
			return nil, fmt.Errorf("%s: want a string", f)
		}
	}
	meta, ok := content["metadata"].(map[string]any)
	if !ok {
		return nil, errors.New("metadata: want an object")
	}
	for _, f := range []string{"labels", "annotations"} {
		if v, there := meta[f]; there && v != nil {
			m, ok := v.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("metadata.%s: want an object", f)
			}
			for k, s := range m {
				if _, ok := s.(string); !ok {
					return nil, fmt.Errorf("metadata.%s[%.80q]: want a string", f, k)
				}
			}
		} else {
			delete(meta, f)
		}
	}
	gv, err := schema.ParseGroupVersion(obj.GetAPIVersion())
	if err != nil || gv.Version == "" {
		return nil, fmt.Errorf("apiVersion: %.80q is none", obj.GetAPIVersion())
	}
	if gv.Group != group || obj.GetKind() != kind || obj.GetNamespace() != namespace || obj.GetName() != name {
		return nil, fmt.Errorf("the content is %.200s, not what the item names", workload.ItemName(gv.Group, obj.GetKind(), obj.GetNamespace(), obj.GetName()))
	}
	for _, n := range []string{namespace, name} {
		if why := path.IsValidPathSegmentName(n); len(why) > 0 {
			return nil, fmt.Errorf("name %.80q: %s", n, strings.Join(why, ", "))
		}
	}
	if strings.HasSuffix(kind, "List") && content["items"] != nil {
		return nil, errors.New("items: a list is no object")
	}
	// What an API server says of its own object means nothing on another one; an owner
	// that does not exist there would even have it collected as garbage.
	delete(content, "status")
	for _, f := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "generateName", "ownerReferences", "selfLink"} {
		delete(meta, f)
	}
	return obj, nil
}

// numbers makes json.Numbers what unstructured objects hold: int64 or float64.
func numbers(v any) error {
	each := func(v any, set func(any)) error {
		n, ok := v.(json.Number)
		if !ok {
			return numbers(v)
		}
		if i, err := n.Int64(); err == nil {
			set(i)
			return nil
		}
		f, err := n.Float64()
		if err != nil {
			return fmt.Errorf("number %.40s: %w", n, err)
		}
		set(f)
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if err := each(e, func(n any) { v[k] = n }); err != nil {
				return err
			}
		}
	case []any:
		for i, e := range v {
			if err := each(e, func(n any) { v[i] = n }); err != nil {
				return err
			}
		}
	}
	return nil
}

// mark makes the object Muster's, of this item's digest. refused is the version that it is
// gone back from; empty: from none.
func mark(obj *unstructured.Unstructured, digest, refused string) {
	labels, annotations := obj.GetLabels(), obj.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[workload.Owned] = "true"
	annotations[workload.Digest] = digest
	if delete(annotations, workload.Refused); refused != "" {
		annotations[workload.Refused] = refused
	}
	obj.SetLabels(labels)
	obj.SetAnnotations(annotations)
}

// facts are what the worker must know of an item's content without holding it.
type facts struct {
	gvk         schema.GroupVersionKind
	bundle      string
	pessimistic bool
	deadline    time.Duration
	leave       bool // drift
	prepull     time.Duration
	ttl         bool   // a Job that removes itself
	scales      string // the item whose replicas this HorizontalPodAutoscaler sets
}

// factsOf reads them; an annotation that says nothing known is an error.
func factsOf(obj *unstructured.Unstructured) (facts, error) {
	f := facts{gvk: obj.GroupVersionKind(), deadline: workload.DefaultApplyDeadline}
	a := obj.GetAnnotations()
	f.bundle = a[workload.Bundle]
	switch v := a[workload.Apply]; v {
	case "", workload.Optimistic:
	case workload.Pessimistic:
		f.pessimistic = true
	default:
		return f, fmt.Errorf("annotation %s: %.80q: want %s or %s", workload.Apply, v, workload.Optimistic, workload.Pessimistic)
	}
	switch v := a[workload.Drift]; v {
	case "", workload.Mend:
	case workload.Leave:
		f.leave = true
	default:
		return f, fmt.Errorf("annotation %s: %.80q: want %s or %s", workload.Drift, v, workload.Mend, workload.Leave)
	}
	duration := func(name string, to *time.Duration) error {
		v := a[name]
		if v == "" {
			return nil
		}
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return fmt.Errorf("annotation %s: %.80q: want a duration such as 10m", name, v)
		}
		*to = d
		return nil
	}
	if err := duration(workload.ApplyDeadline, &f.deadline); err != nil {
		return f, err
	}
	switch v := a[workload.Prepull]; v {
	case "", "false":
	case "true":
		f.prepull = workload.DefaultPrepullDeadline
		if err := duration(workload.PrepullDeadline, &f.prepull); err != nil {
			return f, err
		}
	default:
		return f, fmt.Errorf("annotation %s: %.80q: want true or false", workload.Prepull, v)
	}
	switch f.gvk.GroupKind() {
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		_, f.ttl, _ = unstructured.NestedFieldNoCopy(obj.Object, "spec", "ttlSecondsAfterFinished")
	case schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}:
		ref, _, _ := unstructured.NestedStringMap(obj.Object, "spec", "scaleTargetRef")
		if gv, err := schema.ParseGroupVersion(ref["apiVersion"]); err == nil && ref["kind"] != "" && ref["name"] != "" {
			f.scales = workload.ItemName(gv.Group, ref["kind"], obj.GetNamespace(), ref["name"])
		}
	}
	return f, nil
}

// The order in which kinds are applied; they are removed in reverse.
var ranks = map[schema.GroupKind]int{
	{Kind: "Namespace"}: rankNamespace,
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: rankCRD,
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:               rankCRD,
	{Group: "storage.k8s.io", Kind: "StorageClass"}:                   rankCRD,
	{Kind: "ResourceQuota"}:                                           2,
	{Kind: "LimitRange"}:                                              2,
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}:               2,
	{Kind: "ServiceAccount"}:                                          3,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:         4,
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:                4,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}:  5,
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:         5,
	{Kind: "Secret"}:                     6,
	{Kind: "ConfigMap"}:                  6,
	{Kind: "PersistentVolume"}:           7,
	{Kind: "PersistentVolumeClaim"}:      7,
	{Kind: "Service"}:                    8,
	{Group: "apps", Kind: "Deployment"}:  9,
	{Group: "apps", Kind: "StatefulSet"}: 9,
	{Group: "apps", Kind: "DaemonSet"}:   9,
	{Group: "apps", Kind: "ReplicaSet"}:  9,
	{Kind: "ReplicationController"}:      9,
	{Kind: "Pod"}:                        9,
	{Group: "batch", Kind: "Job"}:        9,
	{Group: "batch", Kind: "CronJob"}:    9,
}

const (
	rankNamespace = 0
	rankCRD       = 1
	rankRest      = 10
)

func rankOf(gk schema.GroupKind) int {
	if r, ok := ranks[gk]; ok {
		return r
	}
	return rankRest
}

// stateless are kinds of whose objects only the metadata is watched: they have no status
// that anybody reads, and may be large.
var stateless = map[schema.GroupKind]bool{
	{Kind: "Secret"}: true, {Kind: "ConfigMap"}: true, {Kind: "ServiceAccount"}: true, {Kind: "LimitRange"}: true,
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}: true, {Group: "rbac.authorization.k8s.io", Kind: "Role"}: true,
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}: true, {Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}: true,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}: true, {Group: "storage.k8s.io", Kind: "StorageClass"}: true,
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}: true,
}

// podSpecs is where kinds keep the template or spec of their pods.
var podSpecs = map[schema.GroupKind][]string{
	{Group: "apps", Kind: "Deployment"}:  {"spec", "template", "spec"},
	{Group: "apps", Kind: "StatefulSet"}: {"spec", "template", "spec"},
	{Group: "apps", Kind: "DaemonSet"}:   {"spec", "template", "spec"},
	{Group: "apps", Kind: "ReplicaSet"}:  {"spec", "template", "spec"},
	{Group: "batch", Kind: "Job"}:        {"spec", "template", "spec"},
	{Group: "batch", Kind: "CronJob"}:    {"spec", "jobTemplate", "spec", "template", "spec"},
	{Kind: "Pod"}:                        {"spec"},
}

// podSpecOf returns the spec of an object's pods; nil: it has none.
func podSpecOf(obj *unstructured.Unstructured) map[string]any {
	path := podSpecs[obj.GroupVersionKind().GroupKind()]
	if path == nil {
		return nil
	}
	v, _, _ := unstructured.NestedFieldNoCopy(obj.Object, path...)
	spec, _ := v.(map[string]any)
	return spec
}

// imagesOf returns the images of a pod's spec, each once, in order.
func imagesOf(spec map[string]any) []string {
	var out []string
	seen := map[string]bool{}
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := spec[list].([]any)
		for _, c := range containers {
			m, _ := c.(map[string]any)
			if image, _ := m["image"].(string); image != "" && !seen[image] {
				seen[image] = true
				out = append(out, image)
			}
		}
	}
	return out
}
