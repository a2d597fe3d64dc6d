package cli

import (
	"context"
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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

func getCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get sites|virtualsites|tokens|policies|rules|routes",
		Short: "List what a tenant has",
		Example: `  muster get sites
  muster get sites -l region=eu -o wide
  muster get virtualsites --tenant main`,
	}
	var selector string
	add := func(use string, aliases []string, short string, run func(context.Context, io.Writer, client.Client, string, labels.Selector) error) {
		sub := &cobra.Command{Use: use, Aliases: aliases, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			sel, err := labels.Parse(selector)
			if err != nil {
				return fmt.Errorf("--selector %q: %w", selector, err)
			}
			c, tenant, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			return run(cmd.Context(), cmd.OutOrStdout(), c, tenant, sel)
		}}
		sub.Flags().StringVarP(&selector, "selector", "l", "", "label selector in Kubernetes set syntax, e.g. 'region in (eu,us),model-year!=2015'")
		g.AddFlags(sub)
		g.addOutput(sub)
		cmd.AddCommand(sub)
	}
	add("sites", []string{"site"}, "Sites with phase, score and colour", g.getSites)
	add("virtualsites", []string{"virtualsite", "vs"}, "Virtual sites with their counts by colour", g.getVirtualSites)
	add("tokens", []string{"token"}, "Registration tokens and what is left of them", g.getTokens)
	add("policies", []string{"policy"}, "Collection and health policies", g.getPolicies)
	add("rules", []string{"rule"}, "Alert rules and log rules, and whether the regionals evaluate them", g.getRules)
	add("routes", []string{"route"}, "Alert routes, and whether Alertmanager uses them", g.getRoutes)
	return cmd
}

func (g *Globals) getSites(ctx context.Context, w io.Writer, c client.Client, tenant string, sel labels.Selector) error {
	var list v1alpha1.SiteList
	if err := c.List(ctx, &list, client.InNamespace(fleet.SystemNamespace(tenant)), client.MatchingLabelsSelector{Selector: sel}); err != nil {
		return err
	}
	t := table{header: []string{"NAME", "PHASE", "REGION", "SCORE", "COLOUR", "LAST SEEN", "AGE", "AGENT", "OS", "KUBERNETES", "REGIONAL", "REASON"}, wide: 7}
	for _, s := range list.Items {
		score, colour, reason := "-", "grey", "-"
		if h := s.Status.Health; h != nil {
			colour, reason = string(h.Colour), orDash(h.Reason)
			if h.Score != nil {
				score = fmt.Sprint(*h.Score)
			}
		}
		phase := string(s.Status.Phase)
		if s.Spec.Maintenance != nil {
			phase += ",Maintenance"
		}
		v := s.Status.Versions
		t.rows = append(t.rows, []string{s.Name, orDash(phase), orDash(s.Labels[fleet.LabelRegion]), score, colour, age(s.Status.LastSeen), age(&s.CreationTimestamp),
			orDash(v["agent"]), orDash(v["os"]), orDash(v["kubernetes"]), orDash(s.Status.Regional), reason})
	}
	return g.print(w, list, t)
}

func (g *Globals) getVirtualSites(ctx context.Context, w io.Writer, c client.Client, tenant string, sel labels.Selector) error {
	var all v1alpha1.VirtualSiteList
	if err := c.List(ctx, &all, client.MatchingLabelsSelector{Selector: sel}); err != nil {
		return err
	}
	all.Items = slices.DeleteFunc(all.Items, func(v v1alpha1.VirtualSite) bool { return !strings.HasPrefix(v.Namespace, tenant+"-") })
	t := table{header: []string{"NAME", "SITES", "GREEN", "ORANGE", "RED", "UNKNOWN", "MAINTENANCE", "SELECTOR", "DESCRIPTION"}, wide: 7}
	for _, v := range all.Items {
		s := v.Status
		t.rows = append(t.rows, []string{strings.TrimPrefix(v.Namespace, tenant+"-") + "/" + v.Name, fmt.Sprint(s.Sites), fmt.Sprint(s.Green), fmt.Sprint(s.Orange),
			fmt.Sprint(s.Red), fmt.Sprint(s.Grey), fmt.Sprint(s.Maintenance), selectorText(v), orDash(v.Spec.Description)})
	}
	return g.print(w, all, t)
}

func (g *Globals) getTokens(ctx context.Context, w io.Writer, c client.Client, tenant string, sel labels.Selector) error {
	var list v1alpha1.RegistrationTokenList
	if err := c.List(ctx, &list, client.InNamespace(fleet.SystemNamespace(tenant)), client.MatchingLabelsSelector{Selector: sel}); err != nil {
		return err
	}
	t := table{header: []string{"NAME", "STATE", "USED", "MAX", "AUTO-APPROVE", "EXPIRES", "AGE", "STAMPS"}, wide: 7}
	for _, r := range list.Items {
		maxUses, expires := "any", "never"
		if r.Spec.MaxUses > 0 {
			maxUses = fmt.Sprint(r.Spec.MaxUses)
		}
		if r.Spec.Expires != nil {
			expires = r.Spec.Expires.UTC().Format(time.RFC3339)
		}
		t.rows = append(t.rows, []string{r.Name, orDash(r.Status.State), fmt.Sprint(r.Status.Uses), maxUses, fmt.Sprint(r.Spec.AutoApprove), expires,
			age(&r.CreationTimestamp), orDash(labelText(r.Spec.SiteLabels))})
	}
	return g.print(w, list, t)
}

func (g *Globals) getPolicies(ctx context.Context, w io.Writer, c client.Client, tenant string, sel labels.Selector) error {
	ns := client.InNamespace(fleet.SystemNamespace(tenant))
	var cps v1alpha1.CollectionPolicyList
	var hps v1alpha1.HealthPolicyList
	if err := c.List(ctx, &cps, ns, client.MatchingLabelsSelector{Selector: sel}); err != nil {
		return err
	}
	if err := c.List(ctx, &hps, ns, client.MatchingLabelsSelector{Selector: sel}); err != nil {
		return err
	}
	t := table{header: []string{"KIND", "NAME", "PRIORITY", "SITES", "APPLIED", "REJECTED", "AGE"}}
	for _, p := range cps.Items {
		t.rows = append(t.rows, []string{"CollectionPolicy", p.Name, fmt.Sprint(p.Spec.Priority), fmt.Sprint(p.Status.Sites), fmt.Sprint(p.Status.Applied), fmt.Sprint(p.Status.Rejected), age(&p.CreationTimestamp)})
	}
	for _, p := range hps.Items {
		t.rows = append(t.rows, []string{"HealthPolicy", p.Name, fmt.Sprint(p.Spec.Priority), fmt.Sprint(p.Status.Sites), "-", "-", age(&p.CreationTimestamp)})
	}
	return g.print(w, map[string]any{"collectionPolicies": cps.Items, "healthPolicies": hps.Items}, t)
}

func (g *Globals) getRules(ctx context.Context, w io.Writer, c client.Client, tenant string, sel labels.Selector) error {
	ns := client.InNamespace(fleet.SystemNamespace(tenant))
	var ars v1alpha1.AlertRulesList
	var lrs v1alpha1.LogRulesList
	if err := c.List(ctx, &ars, ns, client.MatchingLabelsSelector{Selector: sel}); err != nil {
		return err
	}
	if err := c.List(ctx, &lrs, ns, client.MatchingLabelsSelector{Selector: sel}); err != nil {
		return err
	}
	t := table{header: []string{"KIND", "NAME", "ENGINE", "RULES", "REGIONALS", "APPLIED", "AGE", "MESSAGE"}, wide: 7}
	row := func(kind, engine string, m metav1.ObjectMeta, s v1alpha1.RulesStatus) {
		applied, why := condition(s.Conditions, "Applied")
		t.rows = append(t.rows, []string{kind, m.Name, engine, fmt.Sprint(s.Rules), fmt.Sprint(s.Regionals), applied, age(&m.CreationTimestamp), why})
	}
	for _, r := range ars.Items {
		row("AlertRules", orDash(r.Spec.Engine), r.ObjectMeta, r.Status)
	}
	for _, r := range lrs.Items {
		row("LogRules", "-", r.ObjectMeta, r.Status)
	}
	return g.print(w, map[string]any{"alertRules": ars.Items, "logRules": lrs.Items}, t)
}

func (g *Globals) getRoutes(ctx context.Context, w io.Writer, c client.Client, tenant string, sel labels.Selector) error {
	var list v1alpha1.AlertRouteList
	if err := c.List(ctx, &list, client.InNamespace(fleet.SystemNamespace(tenant)), client.MatchingLabelsSelector{Selector: sel}); err != nil {
		return err
	}
	t := table{header: []string{"NAME", "RECEIVERS", "APPLIED", "AGE", "MESSAGE"}, wide: 4}
	for _, r := range list.Items {
		applied, why := condition(r.Status.Conditions, "Applied")
		t.rows = append(t.rows, []string{r.Name, fmt.Sprint(r.Status.Receivers), applied, age(&r.CreationTimestamp), why})
	}
	return g.print(w, list, t)
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

func describeCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "describe site", Short: "Show all about one thing", Example: "  muster describe site paris-07"}
	site := &cobra.Command{
		Use: "site NAME", Short: "One site: phase, health, versions, labels, conditions", Args: cobra.ExactArgs(1), ValidArgsFunction: g.completeSites,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, tenant, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			s, err := getSite(cmd.Context(), c, tenant, args[0])
			if err != nil {
				return err
			}
			var vs v1alpha1.VirtualSiteList
			if err := c.List(cmd.Context(), &vs); err != nil {
				return err
			}
			describeSite(cmd.OutOrStdout(), tenant, s, vs.Items)
			return nil
		},
	}
	g.AddFlags(site)
	cmd.AddCommand(site)
	return cmd
}

func describeSite(w io.Writer, tenant string, s *v1alpha1.Site, vs []v1alpha1.VirtualSite) {
	line := func(k, format string, args ...any) { fmt.Fprintf(w, "%-22s%s\n", k+":", fmt.Sprintf(format, args...)) }
	line("Name", "%s", s.Name)
	line("Tenant", "%s", tenant)
	line("Phase", "%s", orDash(string(s.Status.Phase)))
	line("Approved", "%v", s.Spec.Approved)
	if m := s.Spec.Maintenance; m != nil {
		until := "until it is ended"
		if m.Until != nil {
			until = "until " + m.Until.UTC().Format(time.RFC3339)
		}
		line("Maintenance", "%s (%s)", m.Reason, until)
	}
	if p := s.Spec.Place; p != nil {
		line("Place", "%s, %s %s", p.Latitude, p.Longitude, p.Address)
	}
	if h := s.Status.Health; h != nil {
		score := "unknown"
		if h.Score != nil {
			score = fmt.Sprint(*h.Score)
		}
		line("Health", "%s, score %s, for %s", h.Colour, score, age(h.Since))
		if h.Reason != "" {
			line("Reason", "%s", h.Reason)
		}
	}
	line("Last seen", "%s ago, regional %s", age(s.Status.LastSeen), orDash(s.Status.Regional))
	if n := s.Status.CertificateNotAfter; n != nil {
		line("Certificate until", "%s", n.UTC().Format(time.RFC3339))
	}
	line("Registered", "%s ago, token %s", age(&s.CreationTimestamp), orDash(s.Spec.Token))
	line("Collection policy", "%s", orDash(s.Status.PolicyHash))
	var member []string
	for _, v := range vs {
		if ns, ok := strings.CutPrefix(v.Namespace, tenant+"-"); ok && slices.Contains(v.Status.Members, s.Name) {
			member = append(member, ns+"/"+v.Name)
		}
	}
	line("Virtual sites", "%s", orDash(strings.Join(member, ", ")))
	section := func(title string, m map[string]string) {
		fmt.Fprintln(w, title+":")
		for _, k := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(w, "  %-30s%s\n", k, m[k])
		}
	}
	section("Versions", s.Status.Versions)
	section("Labels", s.Labels)
	fmt.Fprintln(w, "Conditions:")
	for _, c := range s.Status.Conditions {
		fmt.Fprintf(w, "  %-26s%-8s%s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
}
