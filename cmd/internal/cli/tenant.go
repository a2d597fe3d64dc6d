package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	authnv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// tenantName is the tenant that was asked for; "": none.
func (g *Globals) tenantName() string {
	if g.AllTenants {
		return ""
	}
	if g.Tenant != "" {
		return g.Tenant
	}
	if env := os.Getenv("MUSTER_TENANT"); env != "" {
		return env
	}
	return g.contextExtra().Tenant
}

// tenants returns the tenants to work on: the one that was asked for, else every one
// that the user has a role in, by name. A tenant that the user may not read has
// nothing but its name: rights in it can come from bindings of its own.
func (g *Globals) tenants(ctx context.Context, c client.Client) ([]v1alpha1.Tenant, error) {
	if name := g.tenantName(); name != "" {
		if err := fleet.ValidateTenant(name); err != nil {
			return nil, fmt.Errorf("--tenant: %w", err)
		}
		t := v1alpha1.Tenant{}
		err := c.Get(ctx, client.ObjectKey{Name: name}, &t)
		switch {
		case name == fleet.PlatformTenant, apierrors.IsForbidden(err):
			t.Name = name
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("there is no tenant %q; `muster get tenants` lists them", name)
		case err != nil:
			return nil, fmt.Errorf("tenant %s: %w", name, err)
		}
		return []v1alpha1.Tenant{t}, nil
	}
	list, err := visibleTenants(ctx, c)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("there is no tenant yet; make one: kubectl apply a Tenant object, or list it under control.tenants in the config")
	}
	return list, nil
}

// visibleTenants are all for who may list them, else those whose groups the user is in.
func visibleTenants(ctx context.Context, c client.Client) ([]v1alpha1.Tenant, error) {
	var list v1alpha1.TenantList
	err := c.List(ctx, &list)
	if err == nil {
		return list.Items, nil
	}
	if !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list tenants: %w", err)
	}
	who := &authnv1.SelfSubjectReview{}
	if err := c.Create(ctx, who); err != nil {
		return nil, fmt.Errorf("ask who I am: %w", err)
	}
	names := map[string]bool{}
	var out []v1alpha1.Tenant
	for _, group := range who.Status.UserInfo.Groups {
		name, ok := fleet.TenantOfGroup(group)
		if !ok || names[name] {
			continue
		}
		names[name] = true
		var t v1alpha1.Tenant
		err := c.Get(ctx, client.ObjectKey{Name: name}, &t)
		switch {
		case err == nil:
			out = append(out, t)
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // another installation's group
		default:
			return nil, fmt.Errorf("tenant %s: %w", name, err)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s is in no tenant's group; name the tenant with --tenant or $MUSTER_TENANT, or ask its administrator to add you to %s", who.Status.UserInfo.Username, fleet.TenantGroup("TENANT", fleet.TenantViewer))
	}
	slices.SortFunc(out, func(a, b v1alpha1.Tenant) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// connect is the beginning of every verb: a client and the tenants to work on.
func (g *Globals) connect(ctx context.Context) (client.Client, []v1alpha1.Tenant, error) {
	c, err := g.client()
	if err != nil {
		return nil, nil, err
	}
	tenants, err := g.tenants(ctx, c)
	return c, tenants, err
}

// connectOne is connect for a verb that needs one tenant.
func (g *Globals) connectOne(ctx context.Context) (client.Client, string, error) {
	c, tenants, err := g.connect(ctx)
	if err != nil {
		return nil, "", err
	}
	if len(tenants) > 1 {
		return nil, "", fmt.Errorf("you have %d tenants; choose one with --tenant or $MUSTER_TENANT: %s", len(tenants), strings.Join(tenantNames(tenants), ", "))
	}
	return c, tenants[0].Name, nil
}

func tenantNames(tenants []v1alpha1.Tenant) []string {
	var out []string
	for _, t := range tenants {
		out = append(out, t.Name)
	}
	return out
}

// namespacesOf are the Kubernetes namespaces of a tenant. Of one that the user may
// not read, only those that every tenant has are known.
func namespacesOf(t v1alpha1.Tenant) []string {
	short := t.Status.Namespaces
	if len(short) == 0 {
		short = []string{"shared", "system"}
	}
	if t.Name == fleet.PlatformTenant {
		short = []string{"system"}
	}
	var out []string
	for _, n := range short {
		out = append(out, t.Name+"-"+n)
	}
	return out
}

// find reads the object of a name in whichever of the tenants has it. noun and list
// are for people: "site" and "sites".
func find[T client.Object](ctx context.Context, c client.Client, tenants []v1alpha1.Tenant, noun, list, name string, empty func() T, key func(tenant string) client.ObjectKey) (T, string, error) {
	var found T
	var in []string
	for _, t := range tenants {
		obj := empty()
		err := c.Get(ctx, key(t.Name), obj)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && len(tenants) > 1:
		case err != nil:
			return found, "", fmt.Errorf("%s %s: %w", noun, name, err)
		default:
			found = obj
			in = append(in, t.Name)
		}
	}
	switch len(in) {
	case 1:
		return found, in[0], nil
	case 0:
		where := "tenant " + tenants[0].Name + " has"
		if len(tenants) > 1 {
			where = "none of your tenants has a"
			return found, "", fmt.Errorf("%s %s %q; `muster get %s` lists them", where, noun, name, list)
		}
		return found, "", fmt.Errorf("%s no %s %q; `muster get %s` lists them", where, noun, name, list)
	default:
		return found, "", fmt.Errorf("%d tenants have a %s %q; choose one with --tenant: %s", len(in), noun, name, strings.Join(in, ", "))
	}
}

func findSite(ctx context.Context, c client.Client, tenants []v1alpha1.Tenant, name string) (*v1alpha1.Site, string, error) {
	return find(ctx, c, tenants, "site", "sites", name, func() *v1alpha1.Site { return &v1alpha1.Site{} },
		func(tenant string) client.ObjectKey {
			return client.ObjectKey{Namespace: fleet.SystemNamespace(tenant), Name: name}
		})
}

// findVirtualSite takes NAME, in the shared namespace, or NAMESPACE/NAME.
func findVirtualSite(ctx context.Context, c client.Client, tenants []v1alpha1.Tenant, name string) (*v1alpha1.VirtualSite, string, error) {
	ns, short, ok := strings.Cut(name, "/")
	if !ok {
		ns, short = "shared", name
	}
	// NAMESPACE must be the tenant's: acme's eu-shop would be the shop of acme-eu.
	var with []v1alpha1.Tenant
	for _, t := range tenants {
		if slices.Contains(namespacesOf(t), t.Name+"-"+ns) {
			with = append(with, t)
		}
	}
	if len(with) == 0 {
		return nil, "", fmt.Errorf("virtual site %s: %s has no namespace %q; `muster describe tenant` lists them", name, strings.Join(tenantNames(tenants), ", "), ns)
	}
	return find(ctx, c, with, "virtual site", "virtualsites", name, func() *v1alpha1.VirtualSite { return &v1alpha1.VirtualSite{} },
		func(tenant string) client.ObjectKey {
			return client.ObjectKey{Namespace: tenant + "-" + ns, Name: short}
		})
}

// completeSites completes a name of a site of the user's tenants; where a verb takes several, of
// one that is not there yet.
func (g *Globals) completeSites(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && !strings.Contains(cmd.Use, "...") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, tenants, err := g.connect(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, t := range tenants {
		var list v1alpha1.SiteList
		if err := c.List(cmd.Context(), &list, client.InNamespace(fleet.SystemNamespace(t.Name))); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for _, s := range list.Items {
			if strings.HasPrefix(s.Name, typed) && !slices.Contains(args, s.Name) {
				names = append(names, s.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

// completeTenants completes names of the user's tenants.
func (g *Globals) completeTenants(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	_, tenants, err := (&Globals{DataDir: g.DataDir, Kubeconfig: g.Kubeconfig, Context: g.Context, AllTenants: true}).connect(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return tenantNames(tenants), cobra.ShellCompDirectiveNoFileComp
}
