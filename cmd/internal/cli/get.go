package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// kind is one word of `muster get`: what is listed, and how it is shown.
type kind struct {
	use     string
	aliases []string
	short   string
	noun    string // of one object, in errors
	header  []string
	wide    int
	// everywhere in the tenant's namespaces, not in the system namespace alone.
	everywhere bool
	lists      func() []client.ObjectList
	row        func(tenant string, o client.Object) []string
}

func one[T client.ObjectList](empty func() T) func() []client.ObjectList {
	return func() []client.ObjectList { return []client.ObjectList{empty()} }
}

var kinds = []kind{
	{use: "sites", aliases: []string{"site"}, short: "Sites with phase, score and colour", noun: "site",
		header: []string{"NAME", "PHASE", "REGION", "SCORE", "COLOUR", "LAST SEEN", "AGE", "AGENT", "OS", "KUBERNETES", "REGIONAL", "REASON"}, wide: 7,
		lists: one(func() *v1alpha1.SiteList { return &v1alpha1.SiteList{} }), row: siteRow},
	{use: "virtualsites", aliases: []string{"virtualsite", "vs"}, short: "Virtual sites with their counts by colour", noun: "virtual site", everywhere: true,
		header: []string{"NAME", "SITES", "GREEN", "ORANGE", "RED", "UNKNOWN", "MAINTENANCE", "SELECTOR", "DESCRIPTION"}, wide: 7,
		lists: one(func() *v1alpha1.VirtualSiteList { return &v1alpha1.VirtualSiteList{} }), row: virtualSiteRow},
	{use: "virtualhosts", aliases: []string{"virtualhost", "vhosts", "vhost"}, short: "Services of some sites that others reach by name, and whether they do", noun: "virtual host", everywhere: true,
		header: []string{"NAME", "HOST", "SERVICE", "SERVED BY", "ONLINE", "REACHED FROM", "READY", "AGE", "VIRTUAL SITE", "MESSAGE"}, wide: 8,
		lists: one(func() *v1alpha1.VirtualHostList { return &v1alpha1.VirtualHostList{} }), row: virtualHostRow},
	{use: "tokens", aliases: []string{"token"}, short: "Registration tokens and what is left of them", noun: "token",
		header: []string{"NAME", "STATE", "USED", "MAX", "AUTO-APPROVE", "EXPIRES", "AGE", "STAMPS"}, wide: 7,
		lists: one(func() *v1alpha1.RegistrationTokenList { return &v1alpha1.RegistrationTokenList{} }), row: tokenRow},
	{use: "policies", aliases: []string{"policy"}, short: "Collection and health policies, and configurations of hosts", noun: "policy",
		header: []string{"KIND", "NAME", "PRIORITY", "SITES", "APPLIED", "REJECTED", "SHIPPED", "AGE", "MESSAGE"}, wide: 8,
		lists: func() []client.ObjectList {
			return []client.ObjectList{&v1alpha1.CollectionPolicyList{}, &v1alpha1.HealthPolicyList{}, &v1alpha1.HostConfigurationList{}}
		}, row: policyRow},
	{use: "software", short: "Software policies: which version sites shall run, and how many do", noun: "software policy",
		header: []string{"NAME", "COMPONENT", "VERSION", "PRIORITY", "SITES", "DONE", "FAILED", "APPLIED", "AGE", "MESSAGE"}, wide: 10,
		lists: one(func() *v1alpha1.SoftwarePolicyList { return &v1alpha1.SoftwarePolicyList{} }), row: softwareRow},
	{use: "rules", aliases: []string{"rule"}, short: "Alert rules and log rules, and whether the regionals evaluate them", noun: "rules object",
		header: []string{"KIND", "NAME", "ENGINE", "RULES", "REGIONALS", "APPLIED", "AGE", "MESSAGE"}, wide: 7,
		lists: func() []client.ObjectList {
			return []client.ObjectList{&v1alpha1.AlertRulesList{}, &v1alpha1.LogRulesList{}}
		}, row: rulesRow},
	{use: "routes", aliases: []string{"route"}, short: "Alert routes, and whether Alertmanager uses them", noun: "route",
		header: []string{"NAME", "RECEIVERS", "APPLIED", "AGE", "MESSAGE"}, wide: 4,
		lists: one(func() *v1alpha1.AlertRouteList { return &v1alpha1.AlertRouteList{} }), row: routeRow},
}

func getCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get tenants|sites|virtualsites|virtualhosts|tokens|policies|software|rules|routes [NAME...]",
		Short: "List what there is",
		Long: `List what your tenants have. Without --tenant, of all that you have a role in, with
a column that tells them apart; with --all-tenants it is there for one, too.`,
		Example: `  muster get sites
  muster get sites -l region=eu -o wide
  muster get site paris-07 -w
  muster get virtualsites --tenant main
  muster get tenants`,
	}
	for _, k := range kinds {
		var selector string
		var watch bool
		sub := &cobra.Command{Use: k.use + " [NAME...]", Aliases: k.aliases, Short: k.short, RunE: func(cmd *cobra.Command, args []string) error {
			sel, err := labels.Parse(selector)
			if err != nil {
				return fmt.Errorf("--selector %q: %w", selector, err)
			}
			c, tenants, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			var watcher client.WithWatch
			if watch {
				if watcher, err = g.clientFor(0); err != nil {
					return err
				}
			}
			return g.get(cmd.Context(), cmd.OutOrStdout(), c, k, tenants, sel, args, watcher)
		}}
		sub.ValidArgsFunction = map[string]cobra.CompletionFunc{"sites": g.completeSites, "virtualsites": g.completeVirtualSites}[k.use]
		sub.Flags().StringVarP(&selector, "selector", "l", "", "label selector in Kubernetes set syntax, e.g. 'region in (eu,us),model-year!=2015'")
		sub.Flags().BoolVarP(&watch, "watch", "w", false, "after the list, print what changes")
		g.AddFlags(sub)
		g.addOutput(sub)
		if k.use == "sites" {
			g.addSiteTable(sub)
		} else {
			g.addSort(sub, k.header)
		}
		cmd.AddCommand(sub)
	}
	cmd.AddCommand(getTenantsCmd(g))
	return cmd
}

// get prints the objects of a kind that the tenants have; with names, only those,
// and an error if one of them is missing. With watch, nil for none, it goes on with what
// changes.
func (g *Globals) get(ctx context.Context, w io.Writer, c client.Client, k kind, tenants []v1alpha1.Tenant, sel labels.Selector, names []string, watch client.WithWatch) error {
	if watch != nil && g.Output == "name" {
		return errors.New("--watch does not go with -o name: what changes is not in a name")
	}
	if watch != nil && g.SortBy != "" {
		return errors.New("--watch does not go with --sort-by: what changes comes when it changes")
	}
	t := table{header: k.header, wide: k.wide}
	withTenant := g.AllTenants || len(tenants) > 1
	if withTenant {
		t.header = append([]string{"TENANT"}, t.header...)
		if t.wide > 0 {
			t.wide++
		}
	}
	missing := map[string]bool{}
	for _, n := range names {
		missing[n] = true
	}
	of := map[string]string{} // tenant by namespace
	row := func(obj client.Object) []string {
		tenant := of[obj.GetNamespace()]
		if len(names) > 0 && !asked(missing, tenant, obj) {
			return nil
		}
		row := k.row(tenant, obj)
		if withTenant {
			row = append([]string{tenant}, row...)
		}
		return row
	}
	items := []client.Object{}
	var lists []watched
	for _, tenant := range tenants {
		spaces := []string{fleet.SystemNamespace(tenant.Name)}
		if k.everywhere {
			spaces = namespacesOf(tenant)
		}
		for _, ns := range spaces {
			of[ns] = tenant.Name
			for _, list := range k.lists() {
				options := []client.ListOption{client.InNamespace(ns), client.MatchingLabelsSelector{Selector: sel}}
				if err := c.List(ctx, list, options...); err != nil {
					return fmt.Errorf("tenant %s: %w", tenant.Name, err)
				}
				lists = append(lists, watched{list, options, list.GetResourceVersion()})
				err := meta.EachListItem(list, func(o runtime.Object) error {
					obj := o.(client.Object)
					gvk, err := c.GroupVersionKindFor(obj)
					if err != nil {
						return err
					}
					if row := row(obj); row != nil {
						obj.GetObjectKind().SetGroupVersionKind(gvk)
						items, t.rows = append(items, obj), append(t.rows, row)
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
		}
	}
	for _, n := range names {
		if missing[n] {
			return fmt.Errorf("%s: no %s %q; `muster get %s` lists them", strings.Join(tenantNames(tenants), ", "), k.noun, n, k.use)
		}
	}
	var out any = objects(items)
	if len(names) == 1 && len(items) == 1 && watch == nil {
		out = items[0] // as kubectl does of one that is named
	}
	if err := g.print(w, out, t); err != nil || watch == nil {
		return err
	}
	return g.follow(ctx, w, watch, lists, g.widths(t), row)
}

// asked tells whether an object's name is among those that were asked for, as NAME or
// NAMESPACE/NAME, and notes that it was found.
func asked(missing map[string]bool, tenant string, o client.Object) bool {
	short := strings.TrimPrefix(o.GetNamespace(), tenant+"-")
	found := false
	for _, name := range []string{o.GetName(), short + "/" + o.GetName()} {
		if _, ok := missing[name]; ok && (name != o.GetName() || short == "system" || short == "shared") {
			missing[name], found = false, true
		}
	}
	return found
}

// objects is what -o json and -o yaml print: a list as kubectl's.
func objects(items []client.Object) any {
	return map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
}

func siteRow(_ string, o client.Object) []string {
	s := o.(*v1alpha1.Site)
	score, colour, reason := "-", "grey", "-"
	if h := s.Status.Health; h != nil {
		colour, reason = string(h.Colour), orDash(h.Reason)
		if h.Score != nil {
			score = fmt.Sprint(*h.Score)
		}
	}
	phase := string(s.Status.Phase)
	if s.MaintenanceAt(time.Now()) != nil {
		phase += ",Maintenance"
	}
	// The object's time is minutes old while the site is there: each contact in it would be a write.
	seen := age(s.Status.LastSeen)
	if s.Status.Phase == fleet.PhaseOnline {
		seen = "now"
	}
	v := s.Status.Versions
	return []string{s.Name, orDash(phase), orDash(s.Labels[fleet.LabelRegion]), score, colour, seen, age(&s.CreationTimestamp),
		orDash(v["agent"]), orDash(v["os"]), orDash(v["kubernetes"]), orDash(s.Status.Regional), reason}
}

func virtualSiteRow(tenant string, o client.Object) []string {
	v := o.(*v1alpha1.VirtualSite)
	s := v.Status
	return []string{strings.TrimPrefix(v.Namespace, tenant+"-") + "/" + v.Name, fmt.Sprint(s.Sites), fmt.Sprint(s.Green), fmt.Sprint(s.Orange),
		fmt.Sprint(s.Red), fmt.Sprint(s.Grey), fmt.Sprint(s.Maintenance), selectorText(*v), orDash(v.Spec.Description)}
}

func virtualHostRow(tenant string, o client.Object) []string {
	h := o.(*v1alpha1.VirtualHost)
	ready, why := condition(h.Status.Conditions, "Ready")
	service := fmt.Sprintf("%s:%d", h.Spec.Service.Name, h.Spec.Service.Port)
	if n := len(h.Spec.Routes); n > 0 {
		service += fmt.Sprintf(" +%d routes", n)
	}
	return []string{strings.TrimPrefix(h.Namespace, tenant+"-") + "/" + h.Name, orDash(h.Status.Host), service,
		fmt.Sprint(h.Status.Providers), fmt.Sprint(h.Status.ProvidersOnline), fmt.Sprint(h.Status.Consumers), ready, age(&h.CreationTimestamp), h.Spec.VirtualSite, why}
}

func tokenRow(_ string, o client.Object) []string {
	r := o.(*v1alpha1.RegistrationToken)
	maxUses, expires := "any", "never"
	if r.Spec.MaxUses > 0 {
		maxUses = fmt.Sprint(r.Spec.MaxUses)
	}
	if r.Spec.Expires != nil {
		expires = r.Spec.Expires.UTC().Format(time.RFC3339)
	}
	return []string{r.Name, orDash(r.Status.State), fmt.Sprint(r.Status.Uses), maxUses, fmt.Sprint(r.Spec.AutoApprove), expires,
		age(&r.CreationTimestamp), orDash(labelText(r.Spec.SiteLabels))}
}

func policyRow(_ string, o client.Object) []string {
	row := func(kind string, m metav1.ObjectMeta, priority, sites int32, applied, rejected string, conditions []metav1.Condition) []string {
		shipped, why := condition(conditions, v1alpha1.ConditionFollowsShipped)
		return []string{kind, m.Name, fmt.Sprint(priority), fmt.Sprint(sites), applied, rejected, shipped, age(&m.CreationTimestamp), why}
	}
	switch p := o.(type) {
	case *v1alpha1.CollectionPolicy:
		return row("CollectionPolicy", p.ObjectMeta, p.Spec.Priority, p.Status.Sites, fmt.Sprint(p.Status.Applied), fmt.Sprint(p.Status.Rejected), p.Status.Conditions)
	case *v1alpha1.HostConfiguration:
		out := row("HostConfiguration", p.ObjectMeta, p.Spec.Priority, p.Status.Sites, fmt.Sprint(p.Status.Applied), fmt.Sprint(p.Status.Rejected), nil)
		if conflict, why := condition(p.Status.Conditions, v1alpha1.ConditionConflict); conflict == "True" {
			out[len(out)-1] = why
		} else if _, why := condition(p.Status.Conditions, "Applied"); why != "" {
			out[len(out)-1] = why
		}
		return out
	case *v1alpha1.HealthPolicy:
		return row("HealthPolicy", p.ObjectMeta, p.Spec.Priority, p.Status.Sites, "-", "-", p.Status.Conditions)
	}
	return nil
}

func softwareRow(_ string, o client.Object) []string {
	p := o.(*v1alpha1.SoftwarePolicy)
	applied, why := condition(p.Status.Conditions, "Applied")
	if overridden, by := condition(p.Status.Conditions, "Overridden"); overridden == "True" {
		why += "; " + by
	}
	return []string{p.Name, string(p.Spec.Component), orDash(p.Spec.Version), fmt.Sprint(p.Spec.Priority), fmt.Sprint(p.Status.Sites), fmt.Sprint(p.Status.Done), fmt.Sprint(p.Status.Failed),
		applied, age(&p.CreationTimestamp), why}
}

// softwareText is how far a site is with a component, in a line.
func softwareText(s *v1alpha1.SiteSoftware) string {
	out := orDash(s.Running)
	if s.Wanted != "" && s.Wanted != s.Running {
		out += " → " + s.Wanted
	}
	if s.State != "" {
		out += ", " + strings.ToLower(string(s.State))
	}
	if s.Percent != nil {
		out += fmt.Sprintf(" %d %%", *s.Percent)
	}
	if s.StartsAt != nil {
		out += " for " + s.StartsAt.UTC().Format(time.RFC3339)
	}
	if s.Message != "" && s.State != v1alpha1.SoftwareDone {
		out += ": " + printable(s.Message)
	}
	return out
}

func rulesRow(_ string, o client.Object) []string {
	row := func(kind, engine string, m metav1.ObjectMeta, s v1alpha1.RulesStatus) []string {
		applied, why := condition(s.Conditions, "Applied")
		return []string{kind, m.Name, engine, fmt.Sprint(s.Rules), fmt.Sprint(s.Regionals), applied, age(&m.CreationTimestamp), why}
	}
	switch r := o.(type) {
	case *v1alpha1.AlertRules:
		return row("AlertRules", orDash(r.Spec.Engine), r.ObjectMeta, r.Status)
	case *v1alpha1.LogRules:
		return row("LogRules", "-", r.ObjectMeta, r.Status)
	}
	return nil
}

func routeRow(_ string, o client.Object) []string {
	r := o.(*v1alpha1.AlertRoute)
	applied, why := condition(r.Status.Conditions, "Applied")
	return []string{r.Name, fmt.Sprint(r.Status.Receivers), applied, age(&r.CreationTimestamp), why}
}

// condition is the status and the message of a condition, fit for a cell.
func condition(all []metav1.Condition, kind string) (status, message string) {
	c := meta.FindStatusCondition(all, kind)
	if c == nil {
		return "-", "-"
	}
	return string(c.Status), orDash(printable(c.Message))
}

func selectorText(v v1alpha1.VirtualSite) string {
	var parts []string
	if s := labelText(v.Spec.SiteSelector.MatchLabels); s != "" {
		parts = append(parts, s)
	}
	for _, e := range v.Spec.SiteSelector.MatchExpressions {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Key, e.Operator, strings.Join(e.Values, "|"))))
	}
	if len(parts) == 0 {
		return "(all sites)"
	}
	return strings.Join(parts, ", ")
}

func labelText(m map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+"="+m[k])
	}
	return strings.Join(parts, ",")
}
