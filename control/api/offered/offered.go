// Package offered is the table of the kinds that a virtual Kubernetes takes: the stock
// ones, and those of CRDs that the platform's administrators grant. What is checked when
// an object is let in, what tenants' roles may do, what is rendered for sites and what the
// virtual API serves all read it.
//
// It is pure and does no I/O; control/granted follows the CRDs.
package offered

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/internal/fleet"
)

// LabelGranted, with the value Granted, is the label of a CRD whose objects tenants may
// have and that are carried to their sites. Only the platform's administrators write CRDs.
const (
	LabelGranted = "muster.dev/vk8s"
	Granted      = "offered"
)

// Kind is one kind that is carried to sites.
type Kind struct {
	Group, Version string // the version in which it is read and carried
	Kind, Resource string // as in an object's kind, and in a URL
	Short          string // as kubectl abbreviates the resource; "": it does not
	// Template is where its pods' template stands, such as spec.template; nil: it makes
	// no pods that Muster knows of.
	Template []string
	// Spec: it has a spec, which an Override can replace.
	Spec bool
	// Scale: it has the subresource scale.
	Scale bool
	// Secret: who may only read may not read it.
	Secret bool
	// Custom: it is of a CRD.
	Custom bool
}

// GroupVersionResource names it to clients.
func (k Kind) GroupVersionResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource}
}

// GroupVersionKind is what its objects say.
func (k Kind) GroupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}
}

// GroupKind names it whatever the version.
func (k Kind) GroupKind() schema.GroupKind { return schema.GroupKind{Group: k.Group, Kind: k.Kind} }

var template = []string{"spec", "template"}

// Stock are the kinds of Kubernetes' own, in the order in which people are told of them.
var Stock = []Kind{
	{Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Short: "deploy", Template: template, Spec: true, Scale: true},
	{Group: "apps", Version: "v1", Kind: "StatefulSet", Resource: "statefulsets", Short: "sts", Template: template, Spec: true, Scale: true},
	{Group: "apps", Version: "v1", Kind: "DaemonSet", Resource: "daemonsets", Short: "ds", Template: template, Spec: true},
	{Group: "batch", Version: "v1", Kind: "Job", Resource: "jobs", Template: template, Spec: true},
	{Group: "batch", Version: "v1", Kind: "CronJob", Resource: "cronjobs", Short: "cj", Template: []string{"spec", "jobTemplate", "spec", "template"}, Spec: true},
	{Version: "v1", Kind: "Service", Resource: "services", Short: "svc", Spec: true},
	{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Short: "cm"},
	{Version: "v1", Kind: "Secret", Resource: "secrets", Secret: true},
	{Version: "v1", Kind: "PersistentVolumeClaim", Resource: "persistentvolumeclaims", Short: "pvc", Spec: true},
	{Version: "v1", Kind: "ServiceAccount", Resource: "serviceaccounts", Short: "sa"},
	{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler", Resource: "horizontalpodautoscalers", Short: "hpa", Spec: true},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget", Resource: "poddisruptionbudgets", Short: "pdb", Spec: true},
	{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress", Resource: "ingresses", Short: "ing", Spec: true},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy", Resource: "networkpolicies", Short: "netpol", Spec: true},
}

// ofSites are the groups that a CRD can't be granted in: Muster's own objects and the
// machinery of Kubernetes mean something else on a site.
var ofSites = []string{"muster.dev", "apiextensions.k8s.io", "apiregistration.k8s.io", "admissionregistration.k8s.io", "rbac.authorization.k8s.io", "certificates.k8s.io", "metrics.k8s.io"}

// ErrNotGranted is the answer for a CRD without the label.
var ErrNotGranted = errors.New("not granted: it lacks the label " + LabelGranted + "=" + Granted)

// FromCRD is the kind of a CRD that is granted. The error says what keeps it from being
// offered.
func FromCRD(crd *apiextensionsv1.CustomResourceDefinition) (Kind, error) {
	spec := &crd.Spec
	switch {
	case crd.Labels[LabelGranted] != Granted:
		return Kind{}, ErrNotGranted
	case slices.Contains(ofSites, spec.Group):
		return Kind{}, fmt.Errorf("group %s can't be granted: its objects are of the platform", spec.Group)
	case spec.Scope != apiextensionsv1.NamespaceScoped:
		return Kind{}, fmt.Errorf("%s is not namespaced: a tenant's objects stand in its namespaces", spec.Names.Kind)
	}
	k := Kind{Group: spec.Group, Kind: spec.Names.Kind, Resource: spec.Names.Plural, Custom: true}
	for _, v := range spec.Versions {
		// What is stored is what was written; it needs no conversion on its way.
		if !v.Served || k.Version != "" && !v.Storage {
			continue
		}
		k.Version = v.Name
		k.Scale = v.Subresources != nil && v.Subresources.Scale != nil
		k.Spec = true
		if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
			s := v.Schema.OpenAPIV3Schema
			_, has := s.Properties["spec"]
			k.Spec = has || s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields
		}
	}
	if k.Version == "" {
		return Kind{}, fmt.Errorf("%s serves no version", crd.Name)
	}
	return k, nil
}

// Set is what is offered at one moment. It is never changed once made.
type Set struct {
	kinds      []Kind
	byKind     map[schema.GroupKind]int
	byResource map[schema.GroupResource]int
}

// NewSet is the stock kinds and these; of two that share a group with a kind or a
// resource the first counts.
func NewSet(granted ...Kind) *Set {
	s := &Set{byKind: map[schema.GroupKind]int{}, byResource: map[schema.GroupResource]int{}}
	granted = slices.SortedFunc(slices.Values(granted), func(a, b Kind) int { return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Kind, b.Kind)) })
	for _, k := range slices.Concat(Stock, granted) {
		gk, gr := k.GroupKind(), schema.GroupResource{Group: k.Group, Resource: k.Resource}
		if _, ok := s.byKind[gk]; ok {
			continue
		}
		if _, ok := s.byResource[gr]; ok {
			continue
		}
		s.byKind[gk], s.byResource[gr] = len(s.kinds), len(s.kinds)
		s.kinds = append(s.kinds, k)
	}
	return s
}

// Kinds are all of them, the stock ones first. The result must not be changed.
func (s *Set) Kinds() []Kind { return s.kinds }

// Of returns the kind of an object, whatever its version.
func (s *Set) Of(gk schema.GroupKind) (Kind, bool) { return s.at(s.byKind[gk], has(s.byKind, gk)) }

// OfResource returns the kind of a URL's resource.
func (s *Set) OfResource(gr schema.GroupResource) (Kind, bool) {
	return s.at(s.byResource[gr], has(s.byResource, gr))
}

func (s *Set) at(i int, ok bool) (Kind, bool) {
	if !ok {
		return Kind{}, false
	}
	return s.kinds[i], true
}

func has[K comparable](m map[K]int, k K) bool { _, ok := m[k]; return ok }

// Names of the kinds, for people.
func (s *Set) Names() []string {
	out := make([]string, len(s.kinds))
	for i, k := range s.kinds {
		out[i] = k.Kind
	}
	return out
}

// Role is one of a tenant's roles in the namespaces where its workloads stand.
type Role struct {
	Name   string // of the ClusterRole
	Suffix string // of the group, as of kinds.TenantRole
	write  bool
}

// Roles are those of each of a tenant's roles, bound in its namespaces but the system
// one: what stands there, such as the passwords of alert routes, is the administrators'.
var Roles = []Role{
	{"muster:workload-admin", fleet.TenantAdmin, true},
	{"muster:workload-editor", fleet.TenantEditor, true},
	{"muster:workload-viewer", fleet.TenantViewer, false},
}

var (
	read  = []string{"get", "list", "watch"}
	write = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
)

// Rules of a role for what is offered.
func (r Role) Rules(s *Set) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for group, kinds := range byGroup(s.kinds) {
		var all, status, scale []string
		for _, k := range kinds {
			if k.Secret && !r.write {
				continue
			}
			all = append(all, k.Resource)
			if k.Spec {
				status = append(status, k.Resource+"/status")
			}
			if k.Scale {
				scale = append(scale, k.Resource+"/scale")
			}
		}
		verbs, scaling := read, []string{"get"}
		if r.write {
			verbs, scaling = write, []string{"get", "update", "patch"}
		}
		out = append(out, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: all, Verbs: verbs})
		if len(status) > 0 {
			out = append(out, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: status, Verbs: []string{"get"}})
		}
		if len(scale) > 0 {
			out = append(out, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: scale, Verbs: scaling})
		}
	}
	slices.SortStableFunc(out, func(a, b rbacv1.PolicyRule) int { return strings.Compare(a.APIGroups[0], b.APIGroups[0]) })
	// What sites report of it, and what kubectl reads beside.
	out = append(out,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "nodes", "events", "endpoints"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/status", "pods/log"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"replicasets", "controllerrevisions"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"metrics.k8s.io"}, Resources: []string{"pods", "nodes"}, Verbs: []string{"get", "list"}},
	)
	if r.write {
		out = append(out,
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"delete", "deletecollection"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/exec", "pods/attach", "pods/portforward"}, Verbs: []string{"get", "create"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
			// kubectl cordon is to hear from the virtual Kubernetes, which refuses it, what to do
			// instead; in a namespace this is a right to nothing.
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"patch"}},
		)
	}
	return out
}

func byGroup(kinds []Kind) map[string][]Kind {
	out := map[string][]Kind{}
	for _, k := range kinds {
		out[k.Group] = append(out[k.Group], k)
	}
	return out
}
