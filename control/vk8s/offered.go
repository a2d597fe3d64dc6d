package vk8s

import (
	"fmt"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/control/api/offered"
)

// entry is what of a resource is served. Whatever has none is not.
type entry struct {
	group, resource string
	verbs           []string
	subs            map[string][]string // subresource → verbs
	// own: served by this package, or changed by it on its way.
	own own
	// cluster: the resource is outside of namespaces for the stock API server.
	cluster bool
}

type own int

const (
	stock      own = iota // passed on
	mirrored              // Pods, Nodes, Events: what sites report
	namespaces            // the one namespace
	review                // what the user may do
)

var (
	readVerbs  = []string{"get", "list", "watch"}
	usageVerbs = []string{"get", "list"}
	writeVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
)

// metricsGroup is what pods and nodes use, of which the stock API server knows nothing.
const metricsGroup = "metrics.k8s.io"

// usageGroup is how it is discovered.
func usageGroup() apidiscoveryv2.APIGroupDiscovery {
	of := func(plural, kind string, scope apidiscoveryv2.ResourceScope) apidiscoveryv2.APIResourceDiscovery {
		return apidiscoveryv2.APIResourceDiscovery{Resource: plural, Scope: scope, Verbs: usageVerbs, ResponseKind: &metav1.GroupVersionKind{Group: metricsGroup, Version: "v1beta1", Kind: kind}}
	}
	return apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: metricsGroup}, Versions: []apidiscoveryv2.APIVersionDiscovery{{
		Version: "v1beta1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
		Resources: []apidiscoveryv2.APIResourceDiscovery{of("nodes", "NodeMetrics", apidiscoveryv2.ScopeCluster), of("pods", "PodMetrics", apidiscoveryv2.ScopeNamespace)},
	}}}
}

// beside is what is served besides the kinds that are carried to sites.
var beside = []entry{
	{resource: "pods", verbs: []string{"delete", "deletecollection", "get", "list", "watch"}, own: mirrored, subs: map[string][]string{
		"log": {"get"}, "exec": {"create", "get"}, "attach": {"create", "get"}, "portforward": {"create", "get"}, "eviction": {"create"}, "status": {"get"}}},
	{resource: "nodes", verbs: readVerbs, own: mirrored, cluster: true},
	{resource: "events", verbs: readVerbs, own: mirrored},
	{group: metricsGroup, resource: "pods", verbs: usageVerbs, own: mirrored},
	{group: metricsGroup, resource: "nodes", verbs: usageVerbs, own: mirrored, cluster: true},
	{resource: "namespaces", verbs: readVerbs, own: namespaces, cluster: true},
	// What kubectl rollout reads.
	{group: "apps", resource: "replicasets", verbs: readVerbs},
	{group: "apps", resource: "controllerrevisions", verbs: readVerbs},
	// Who may do what here, and how much there may be: the platform's administrators decide.
	{group: "rbac.authorization.k8s.io", resource: "roles", verbs: readVerbs},
	{group: "rbac.authorization.k8s.io", resource: "rolebindings", verbs: readVerbs},
	{resource: "resourcequotas", verbs: readVerbs, subs: map[string][]string{"status": {"get"}}},
	{resource: "limitranges", verbs: readVerbs},
	{group: "authorization.k8s.io", resource: "selfsubjectaccessreviews", verbs: []string{"create"}, own: review, cluster: true},
	{group: "authorization.k8s.io", resource: "selfsubjectrulesreviews", verbs: []string{"create"}, own: review, cluster: true},
	{group: "authentication.k8s.io", resource: "selfsubjectreviews", verbs: []string{"create"}, cluster: true},
	{group: "muster.dev", resource: "overrides", verbs: writeVerbs, subs: map[string][]string{"status": {"get"}}},
	{group: "muster.dev", resource: "virtualhosts", verbs: writeVerbs, subs: map[string][]string{"status": {"get"}}},
	{group: "muster.dev", resource: "advertisepolicies", verbs: writeVerbs, subs: map[string][]string{"status": {"get"}}},
	{group: "muster.dev", resource: "virtualsites", verbs: readVerbs},
	{group: "muster.dev", resource: "virtualkubernetes", verbs: readVerbs},
}

// refusal says why a verb is not served, and what is to be done instead.
func (e entry) refusal(verb string) string {
	switch {
	case e.resource == "pods" && e.group == "":
		return "pods run on sites: make a Deployment, or another workload, instead; pods can be read and deleted"
	case e.resource == "nodes" && e.group == "":
		return "nodes are their sites': cordon a node on its site's own cluster, with the rights of who runs it; once it is cordoned there, kubectl drain here evicts the pods of this namespace from it. " +
			"To take all of a site out of use, take it out of the virtual sites that are named here"
	}
	gr := schema.GroupResource{Group: e.group, Resource: e.resource}
	return fmt.Sprintf("%s is not allowed on %s of a virtual Kubernetes: allowed are %s", verb, gr, strings.Join(e.verbs, ", "))
}

// entryOf is what is served of a resource.
func (m *Mount) entryOf(gr schema.GroupResource) (entry, bool) {
	b := m.backend.Load()
	if gr.Group == metricsGroup && (b == nil || !b.Usage) {
		return entry{}, false
	}
	if i := slices.IndexFunc(beside, func(e entry) bool { return e.group == gr.Group && e.resource == gr.Resource }); i >= 0 {
		return beside[i], true
	}
	carried := stockOffered
	if b != nil && b.Offered != nil {
		carried = b.Offered
	}
	if !carried(gr) {
		return entry{}, false
	}
	subs := map[string][]string{"status": {"get", "patch", "update"}, "scale": {"get", "patch", "update"}}
	if gr == (schema.GroupResource{Resource: "serviceaccounts"}) {
		subs = map[string][]string{"token": {"create"}}
	}
	return entry{group: gr.Group, resource: gr.Resource, verbs: writeVerbs, subs: subs}, true
}

// stockOffered are Kubernetes' own kinds that are carried to sites.
func stockOffered(gr schema.GroupResource) bool {
	_, ok := stockSet.OfResource(gr)
	return ok
}

var stockSet = offered.NewSet()
