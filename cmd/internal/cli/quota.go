package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
)

func getTenantsCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "tenants [NAME...]", Aliases: []string{"tenant"}, Short: "Tenants that you have a role in, with what they use of their quotas",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			tenants, err := g.tenantsNamed(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			return g.printTenants(cmd.OutOrStdout(), c, tenants)
		}}
	g.AddFlags(cmd)
	g.addOutput(cmd)
	return cmd
}

// tenantsNamed returns these tenants, or without names all that the user sees.
func (g *Globals) tenantsNamed(ctx context.Context, c client.Client, names []string) ([]v1alpha1.Tenant, error) {
	if len(names) == 0 {
		return g.tenants(ctx, c)
	}
	var out []v1alpha1.Tenant
	for _, name := range names {
		t := v1alpha1.Tenant{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &t); client.IgnoreNotFound(err) != nil {
			return nil, err
		} else if err != nil {
			return nil, fmt.Errorf("there is no tenant %q; `muster get tenants` lists them", name)
		}
		out = append(out, t)
	}
	return out, nil
}

func (g *Globals) printTenants(w io.Writer, c client.Client, tenants []v1alpha1.Tenant) error {
	t := table{header: []string{"NAME", "SITES", "SERIES", "LOGS TODAY", "OBJECTS", "OBJECT BYTES", "WITHIN QUOTAS", "READY", "AGE", "NAMESPACES", "DISPLAY"}, wide: 9}
	items := []client.Object{}
	for i := range tenants {
		x := &tenants[i]
		gvk, err := c.GroupVersionKindFor(x)
		if err != nil {
			return err
		}
		x.SetGroupVersionKind(gvk)
		items = append(items, x)
		within, _ := condition(x.Status.Conditions, v1alpha1.ConditionWithinQuotas)
		ready, _ := condition(x.Status.Conditions, "Ready")
		row := []string{x.Name}
		for _, q := range v1alpha1.Quotas {
			row = append(row, usageText(x.Status.Usage, q))
		}
		t.rows = append(t.rows, append(row, within, ready, age(&x.CreationTimestamp), orDash(strings.Join(x.Status.Namespaces, ",")), orDash(x.Spec.DisplayName)))
	}
	return g.print(w, objects(items), t)
}

// usageText is USED/LIMIT of a quota, or USED where there is no limit.
func usageText(all []v1alpha1.QuotaUsage, quota string) string {
	i := slices.IndexFunc(all, func(u v1alpha1.QuotaUsage) bool { return u.Quota == quota })
	if i < 0 {
		return "-"
	}
	number := func(n int64) string { return fmt.Sprint(n) }
	if quota == v1alpha1.QuotaLogBytesPerDay || quota == v1alpha1.QuotaObjectBytes {
		number = func(n int64) string { return bytesText(float64(n)) }
	}
	u := all[i]
	if u.Limit == 0 {
		return number(u.Used)
	}
	return number(u.Used) + "/" + number(u.Limit)
}

func describeTenantCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "tenant [NAME]", Short: "One tenant: namespaces, quotas and what is used of them, conditions", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			tenants, err := g.tenantsNamed(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			for i, t := range tenants {
				if i > 0 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				describeTenant(cmd.OutOrStdout(), t)
			}
			return nil
		}}
	g.AddFlags(cmd)
	return cmd
}

func describeTenant(w io.Writer, t v1alpha1.Tenant) {
	line := func(k, format string, args ...any) {
		fmt.Fprintf(w, "%-22s%s\n", k+":", printable(fmt.Sprintf(format, args...)))
	}
	line("Name", "%s", t.Name)
	line("Display name", "%s", orDash(t.Spec.DisplayName))
	line("Namespaces", "%s", orDash(strings.Join(t.Status.Namespaces, ", ")))
	line("Created", "%s ago", age(&t.CreationTimestamp))
	fmt.Fprintln(w, "Quotas:")
	for _, q := range v1alpha1.Quotas {
		share := ""
		for _, u := range t.Status.Usage {
			if u.Quota == q && u.Limit > 0 {
				share = fmt.Sprintf("  %d%%", u.Used*100/u.Limit)
			}
		}
		fmt.Fprintf(w, "  %-20s%s%s\n", q, usageText(t.Status.Usage, q), share)
	}
	fmt.Fprintln(w, "Conditions:")
	for _, c := range t.Status.Conditions {
		fmt.Fprintf(w, "  %-20s%-8s%s: %s\n", c.Type, c.Status, c.Reason, printable(c.Message))
	}
}
