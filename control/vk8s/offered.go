package vk8s

import (
	"fmt"
	"slices"
	"strings"

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
	writeVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
)

// beside is what is served besides the kinds that are carried to sites.
var beside = []entry{
	{resource: "pods", verbs: []string{"delete", "deletecollection", "get", "list", "watch"}, own: mirrored, subs: map[string][]string{
		"log": {"get"}, "exec": {"create", "get"}, "attach": {"create", "get"}, "portforward": {"create", "get"}, "eviction": {"create"}, "status": {"get"}}},
	{resource: "nodes", verbs: readVerbs, own: mirrored, cluster: true},
	{resource: "events", verbs: readVerbs, own: mirrored},
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
	if i := slices.IndexFunc(beside, func(e entry) bool { return e.group == gr.Group && e.resource == gr.Resource }); i >= 0 {
		return beside[i], true
	}
	carried := stockOffered
	if b := m.backend.Load(); b != nil && b.Offered != nil {
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
