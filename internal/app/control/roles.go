package control

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/dashboards/console"
)

// ownRoles are the rights of Muster's own roles, each bound to the user of its name.
func ownRoles() []*rbacv1.ClusterRole {
	read := []string{"get", "list", "watch"}
	group := []string{v1alpha1.GroupVersion.Group}
	return []*rbacv1.ClusterRole{
		{ObjectMeta: metav1.ObjectMeta{Name: "muster:health"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: group, Resources: []string{"tenants", "sites", "virtualsites", "healthpolicies"}, Verbs: read},
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: read},
			{APIGroups: group, Resources: []string{"sites/status", "healthpolicies/status"}, Verbs: []string{"update", "patch"}},
		}},
		{ObjectMeta: metav1.ObjectMeta{Name: "muster:alerting"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: group, Resources: []string{"tenants", "sites", "virtualsites", "alertroutes"}, Verbs: read},
			{APIGroups: group, Resources: []string{"alertroutes/status"}, Verbs: []string{"update", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: read},
			// Only those that an AlertRoute names are asked for, one by one.
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}},
		}},
		{ObjectMeta: metav1.ObjectMeta{Name: "muster:console"}, Rules: console.Rules()},
	}
}
