package control

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/control/api/kinds"
	"muster.dev/muster/control/apiserver"
	"muster.dev/muster/dashboards/console"
)

// beside are rights of Muster's own roles on what is no kind of Muster's; a role that
// is not named here reads namespaces. Those on its kinds are in control/api/kinds.
var beside = map[string][]rbacv1.PolicyRule{
	// Only those that an AlertRoute names are asked for, one by one.
	"alerting": {namespaces, {APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}},
	"console":  console.Rules(),
}

var namespaces = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: kinds.Read.Verbs()}

// ownRoles are the rights of Muster's own roles, each bound to the user of its name.
func ownRoles() []*rbacv1.ClusterRole {
	var out []*rbacv1.ClusterRole
	for _, role := range config.Roles {
		if !role.Client {
			continue
		}
		other, ok := beside[role.Name]
		if !ok {
			other = []rbacv1.PolicyRule{namespaces}
		}
		out = append(out, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: userOf(role.Name)}, Rules: append(kinds.OwnRules(role.Name), other...)})
	}
	return out
}

// ownUsers are the users of Muster's own roles, with their groups.
func ownUsers() map[string][]string {
	out := map[string][]string{controlUser: {"system:masters"}}
	for _, role := range config.Roles {
		if role.Client {
			out[userOf(role.Name)] = []string{apiserver.SystemGroup}
		}
	}
	return out
}

const controlUser = "muster:control"

func userOf(role string) string { return "muster:" + role }
