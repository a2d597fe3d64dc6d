// Package kinds is the table of Muster's kinds: where objects of each may stand, what
// is checked before one is let in, who may do what with it, which of Muster's roles
// read it, and which write its status.
//
// Admission, the CRDs' installation, the cluster roles of tenants and of Muster's own
// roles, the controllers' watches and docs/reference/kinds.md read it; a kind that is
// missing here fails this package's test, and admission refuses its objects. It holds
// no behaviour besides and does no I/O.
package kinds

import (
	"cmp"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/api/validation"
	"muster.dev/muster/internal/fleet"
)

// Scope says where objects of a kind may stand.
type Scope string

// The scopes.
const (
	// Cluster: outside of namespaces.
	Cluster Scope = "cluster"
	// System: in a tenant's system namespace alone; elsewhere nobody would look at it.
	System Scope = "system namespace"
	// Anywhere in a tenant's namespaces.
	Anywhere Scope = "any namespace of a tenant"
	// Workloads: in a tenant's namespaces but the system one.
	Workloads Scope = "any namespace of a tenant but its system namespace"
)

// Access is what one of a tenant's roles may do with objects of a kind.
type Access int

// The kinds of access.
const (
	None Access = iota
	Read
	Write // and read
)

// Verbs of the access in RBAC.
func (a Access) Verbs() []string {
	read := []string{"get", "list", "watch"}
	switch a {
	case Read:
		return read
	case Write:
		return append(read, "create", "update", "patch", "delete")
	}
	return nil
}

// Env is what checks know of the installation.
type Env struct {
	// Reach says whether receivers may connect to HOST:PORT; nil: all.
	Reach func(address string) error
}

// Kind is one row.
type Kind struct {
	Name     string // as in an object's kind
	Resource string // as in a URL
	Scope    Scope
	New      func() runtime.Object
	// Check is what a schema can't say: it gets the object as it was sent. A kind with
	// nothing to check says so, with Unchecked.
	Check func(object map[string]any, env Env) (field.ErrorList, error)
	// Admin, Edit and View are what the roles of a tenant may do.
	Admin, Edit, View Access
	// Readers are Muster's roles, besides control, that list and watch it; StatusBy
	// those that write its status. Control does everything.
	Readers, StatusBy []string
	// Recomputed: the controllers watch it and recompute its tenant when it changes.
	// Sites they have from the inventory.
	Recomputed bool
}

// All kinds, in the order in which people are told of them.
var All = []Kind{
	{Name: "Tenant", Resource: "tenants", Scope: Cluster, New: func() runtime.Object { return &v1alpha1.Tenant{} }, Check: check(validation.Tenant),
		// A tenant's users read their own one, by a role of its own.
		Readers: []string{"health", "alerting"}, Recomputed: true},
	{Name: "Site", Resource: "sites", Scope: System, New: func() runtime.Object { return &v1alpha1.Site{} }, Check: check(validation.Site),
		Admin: Write, Edit: Read, View: Read, Readers: []string{"health", "alerting"}, StatusBy: []string{"health"}},
	{Name: "VirtualSite", Resource: "virtualsites", Scope: Anywhere, New: func() runtime.Object { return &v1alpha1.VirtualSite{} }, Check: check(validation.VirtualSite),
		Admin: Write, Edit: Write, View: Read, Readers: []string{"health", "alerting"}, Recomputed: true},
	{Name: "RegistrationToken", Resource: "registrationtokens", Scope: System, New: func() runtime.Object { return &v1alpha1.RegistrationToken{} }, Check: check(validation.RegistrationToken),
		Admin: Write, Edit: Read, View: Read, Recomputed: true},
	{Name: "CollectionPolicy", Resource: "collectionpolicies", Scope: System, New: func() runtime.Object { return &v1alpha1.CollectionPolicy{} }, Check: check(validation.CollectionPolicy),
		Admin: Write, Edit: Write, View: Read, Readers: []string{"health"}, Recomputed: true},
	{Name: "HealthPolicy", Resource: "healthpolicies", Scope: System, New: func() runtime.Object { return &v1alpha1.HealthPolicy{} }, Check: check(validation.HealthPolicy),
		Admin: Write, Edit: Write, View: Read, Readers: []string{"health"}, StatusBy: []string{"health"}, Recomputed: true},
	{Name: "AlertRules", Resource: "alertrules", Scope: System, New: func() runtime.Object { return &v1alpha1.AlertRules{} }, Check: check(validation.AlertRules),
		Admin: Write, Edit: Write, View: Read, Recomputed: true},
	{Name: "LogRules", Resource: "logrules", Scope: System, New: func() runtime.Object { return &v1alpha1.LogRules{} }, Check: check(validation.LogRules),
		Admin: Write, Edit: Write, View: Read, Recomputed: true},
	{Name: "AlertRoute", Resource: "alertroutes", Scope: System, New: func() runtime.Object { return &v1alpha1.AlertRoute{} }, Check: checkIn(alertRoute),
		// A route sends the secrets that it names to the address that it names: who may
		// not read those may not write this.
		Admin: Write, Edit: Read, View: Read, Readers: []string{"alerting"}, StatusBy: []string{"alerting"}},
	{Name: "VirtualKubernetes", Resource: "virtualkubernetes", Scope: Workloads, New: func() runtime.Object { return &v1alpha1.VirtualKubernetes{} }, Check: Unchecked,
		Admin: Write, Edit: Write, View: Read, Recomputed: true},
	{Name: "Override", Resource: "overrides", Scope: Workloads, New: func() runtime.Object { return &v1alpha1.Override{} }, Check: check(validation.Override),
		Admin: Write, Edit: Write, View: Read, Recomputed: true},
	{Name: "Rollout", Resource: "rollouts", Scope: Anywhere, New: func() runtime.Object { return &v1alpha1.Rollout{} }, Check: check(validation.Rollout),
		Admin: Write, Edit: Write, View: Read},
	{Name: "RolloutPolicy", Resource: "rolloutpolicies", Scope: Anywhere, New: func() runtime.Object { return &v1alpha1.RolloutPolicy{} }, Check: check(validation.RolloutPolicy),
		// Who weakens it or takes it away goes on without its gates: for those who may skip them.
		Admin: Write, Edit: Read, View: Read},
	{Name: "RolloutState", Resource: "rolloutstates", Scope: Anywhere, New: func() runtime.Object { return &v1alpha1.RolloutState{} }, Check: Unchecked,
		// Written by control alone: it decides what sites get.
		Admin: Read, Edit: Read, View: Read, Readers: []string{"health"}},
	{Name: "SoftwareVersion", Resource: "softwareversions", Scope: System, New: func() runtime.Object { return &v1alpha1.SoftwareVersion{} }, Check: check(validation.SoftwareVersion),
		Admin: Write, Edit: Read, View: Read, Recomputed: true},
	{Name: "SoftwarePolicy", Resource: "softwarepolicies", Scope: System, New: func() runtime.Object { return &v1alpha1.SoftwarePolicy{} }, Check: check(validation.SoftwarePolicy),
		Admin: Write, Edit: Write, View: Read, Recomputed: true},
	{Name: "HostConfiguration", Resource: "hostconfigurations", Scope: System, New: func() runtime.Object { return &v1alpha1.HostConfiguration{} }, Check: check(validation.HostConfiguration),
		// It says who may log in to hosts: for those who may also take sites in.
		Admin: Write, Edit: Read, View: Read, Recomputed: true},
	{Name: "VirtualHost", Resource: "virtualhosts", Scope: Workloads, New: func() runtime.Object { return &v1alpha1.VirtualHost{} }, Check: check(validation.VirtualHost),
		Admin: Write, Edit: Write, View: Read, Recomputed: true},
	{Name: "AdvertisePolicy", Resource: "advertisepolicies", Scope: Workloads, New: func() runtime.Object { return &v1alpha1.AdvertisePolicy{} }, Check: Unchecked,
		Admin: Write, Edit: Write, View: Read, Recomputed: true},
	{Name: "GateCheck", Resource: "gatechecks", Scope: Anywhere, New: func() runtime.Object { return &v1alpha1.GateCheck{} }, Check: check(validation.GateCheck),
		Admin: Write, Edit: Write, View: Read},
	{Name: "SavedViews", Resource: "savedviews", Scope: System, New: func() runtime.Object { return &v1alpha1.SavedViews{} }, Check: check(validation.SavedViews),
		// Everybody has their own, by verbs beside; admission looks whose an object is.
		Admin: Write},
}

// beside are rights of a tenant's roles on what is no kind of Muster's: resources that
// are there for RBAC alone and that the console asks for, and Kubernetes' own kinds.
var beside = []struct {
	group, resource   string
	admin, edit, view []string
}{
	{v1alpha1.GroupVersion.Group, "silences", []string{"get", "list", "create", "delete"}, []string{"get", "list", "create", "delete"}, []string{"get", "list"}},
	{v1alpha1.GroupVersion.Group, "logs", []string{"get"}, []string{"get"}, []string{"get"}},
	// Verbs of their own on rollouts, which spec.control asks for.
	{v1alpha1.GroupVersion.Group, "rollouts", []string{"approve", "skip-gates"}, []string{"approve"}, nil},
	// To set spec.reset of a Site, beside the right to write Sites.
	{v1alpha1.GroupVersion.Group, "sites", []string{"reset"}, nil, nil},
	// Views of one's own, which nobody but administrators deletes as a whole, and those of all.
	{v1alpha1.GroupVersion.Group, "savedviews", []string{"share"}, []string{"get", "create", "update", "patch", "share"}, []string{"get", "create", "update", "patch"}},
	{"", "events", Read.Verbs(), Read.Verbs(), Read.Verbs()},
	{"", "secrets", Write.Verbs(), nil, nil}, // AlertRoutes take passwords from them
}

// Unchecked is the Check of a kind whose schema says all.
func Unchecked(map[string]any, Env) (field.ErrorList, error) { return nil, nil }

func check[T any](validate func(*T) field.ErrorList) func(map[string]any, Env) (field.ErrorList, error) {
	return checkIn(func(o *T, _ Env) field.ErrorList { return validate(o) })
}

func checkIn[T any](validate func(*T, Env) field.ErrorList) func(map[string]any, Env) (field.ErrorList, error) {
	return func(object map[string]any, env Env) (field.ErrorList, error) {
		out := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, out); err != nil {
			return nil, err
		}
		return validate(out, env), nil
	}
}

func alertRoute(r *v1alpha1.AlertRoute, env Env) field.ErrorList {
	return append(validation.AlertRoute(r), validation.Destinations(r, env.Reach)...)
}

// Of returns the row of a kind.
func Of(name string) (Kind, error) {
	if i := slices.IndexFunc(All, func(k Kind) bool { return k.Name == name }); i >= 0 {
		return All[i], nil
	}
	return Kind{}, fmt.Errorf("kind %s has no row in control/api/kinds: nothing says where it may stand and who may do what with it", name)
}

// TenantRole is one of the roles that a tenant's users have.
type TenantRole struct {
	Name   string // of the ClusterRole
	Suffix string // of the group, muster:tenant:<tenant>:<suffix>
	access func(Kind) Access
	beside func(admin, edit, view []string) []string
}

// TenantRoles from the most to the least powerful.
var TenantRoles = []TenantRole{
	{"muster:tenant-admin", fleet.TenantAdmin, func(k Kind) Access { return k.Admin }, func(a, _, _ []string) []string { return a }},
	{"muster:tenant-editor", fleet.TenantEditor, func(k Kind) Access { return k.Edit }, func(_, e, _ []string) []string { return e }},
	{"muster:tenant-viewer", fleet.TenantViewer, func(k Kind) Access { return k.View }, func(_, _, v []string) []string { return v }},
}

// Rules of the role, in every namespace of the tenant.
func (r TenantRole) Rules() []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, a := range []Access{Write, Read} {
		var resources []string
		for _, k := range All {
			if r.access(k) == a {
				resources = append(resources, k.Resource)
			}
		}
		if len(resources) > 0 {
			out = append(out, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: resources, Verbs: a.Verbs()})
		}
	}
	for _, b := range beside {
		if verbs := r.beside(b.admin, b.edit, b.view); len(verbs) > 0 {
			out = append(out, rbacv1.PolicyRule{APIGroups: []string{b.group}, Resources: []string{b.resource}, Verbs: verbs})
		}
	}
	return out
}

// OwnRules are the rights of one of Muster's own roles on Muster's kinds.
func OwnRules(role string) []rbacv1.PolicyRule {
	var read, status []string
	for _, k := range All {
		if slices.Contains(k.Readers, role) {
			read = append(read, k.Resource)
		}
		if slices.Contains(k.StatusBy, role) {
			status = append(status, k.Resource+"/status")
		}
	}
	var out []rbacv1.PolicyRule
	group := []string{v1alpha1.GroupVersion.Group}
	if len(read) > 0 {
		out = append(out, rbacv1.PolicyRule{APIGroups: group, Resources: read, Verbs: Read.Verbs()})
	}
	if len(status) > 0 {
		out = append(out, rbacv1.PolicyRule{APIGroups: group, Resources: status, Verbs: []string{"update", "patch"}})
	}
	return out
}

// String is how the documentation writes it.
func (a Access) String() string {
	return cmp.Or(map[Access]string{Read: "read", Write: "write"}[a], "-")
}
