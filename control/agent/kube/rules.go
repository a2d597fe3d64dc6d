package kube

import rbacv1 "k8s.io/api/rbac/v1"

// Rules are what the agent may do on the site's cluster, exactly what it uses. They are for
// a ClusterRole: which namespaces are Muster's is known when control says so. For custom
// resources that it shall carry, admins bind its account to a further role.
func Rules() []rbacv1.PolicyRule {
	carry := []string{"get", "list", "watch", "create", "patch", "delete"}
	read := []string{"get", "list", "watch"}
	rule := func(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	return []rbacv1.PolicyRule{
		// What control puts on sites. Secrets are among it.
		rule("", carry, "namespaces", "resourcequotas", "limitranges", "serviceaccounts", "secrets", "configmaps", "persistentvolumeclaims", "services"),
		rule("apps", carry, "deployments", "statefulsets", "daemonsets"),
		rule("batch", carry, "jobs", "cronjobs"),
		rule("autoscaling", carry, "horizontalpodautoscalers"),
		rule("policy", carry, "poddisruptionbudgets"),
		rule("networking.k8s.io", carry, "networkpolicies", "ingresses"),
		// To see when a kind appears that an object waits for.
		rule("apiextensions.k8s.io", read, "customresourcedefinitions"),
		// What is mirrored.
		rule("", read, "pods", "nodes", "events"),
		// What is served to who may: logs, exec, port-forward, and the removal of a pod. The
		// verb is get for websockets and create for SPDY.
		rule("", []string{"get"}, "pods/log"),
		rule("", []string{"get", "create"}, "pods/exec", "pods/attach", "pods/portforward"),
		rule("", []string{"delete"}, "pods"),
		rule("", []string{"create"}, "pods/eviction"),
	}
}

// HostRules are what virtual hosts need beside Rules: Services without a selector are led to
// the agent, and those of other sites to the pods of Services without an address.
func HostRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"get", "list", "create", "patch", "delete"}},
	}
}
