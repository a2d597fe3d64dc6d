package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

func softwareStatusCmd(g *Globals) *cobra.Command {
	var selector, component string
	var watch, all bool
	cmd := &cobra.Command{
		Use: "status [SITE...]", Short: "What each site runs, and how far it is with what it shall run", ValidArgsFunction: g.completeSites,
		Long: `Show what sites run of each component, and how far they are with the version that they shall
run: Available, Scheduled, Downloading 40 %, Installing, Done, or Failed and back on what
ran before, with the reason. First come sums; then the sites on which something is going on
or failed, with --all or by name also those that are done.

With --watch it is shown anew as it changes.`,
		Example: "  muster software status\n  muster software status paris-07\n  muster software status --component agent -l region=eu -w",
		RunE: func(cmd *cobra.Command, args []string) error {
			sel, err := labels.Parse(selector)
			if err != nil {
				return fmt.Errorf("--selector %q: %w", selector, err)
			}
			if component != "" && !slices.Contains([]string{"os", "agent", "platform"}, component) {
				return fmt.Errorf("--component %q: want os, agent or platform", component)
			}
			c, tenants, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			v := &softwareView{g: g, c: c, tenants: tenants, selector: sel, component: component, names: args, all: all || len(args) > 0}
			if !watch {
				return v.show(cmd.Context(), cmd.OutOrStdout())
			}
			if g.Output == "json" || g.Output == "yaml" {
				return fmt.Errorf("--watch has no --output %s; read it with `kubectl get sites -w -o %s`", g.Output, g.Output)
			}
			return v.watch(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&selector, "selector", "l", "", "label selector of sites, in Kubernetes set syntax")
	f.StringVar(&component, "component", "", "os, agent or platform alone")
	f.BoolVar(&all, "all", false, "also sites that are done")
	f.BoolVarP(&watch, "watch", "w", false, "show it anew as it changes")
	g.AddFlags(cmd)
	g.addOutput(cmd)
	return cmd
}

// softwareView is one look at sites' software, again and again.
type softwareView struct {
	g         *Globals
	c         client.Client
	tenants   []v1alpha1.Tenant
	selector  labels.Selector
	component string
	names     []string
	all       bool
}

func (v *softwareView) show(ctx context.Context, w io.Writer) error {
	sums := map[string]map[string]int{} // component version → state → sites
	t := table{header: []string{"TENANT", "SITE", "COMPONENT", "RUNS", "WANTED", "STATE", "SINCE", "MESSAGE"}}
	items := []client.Object{}
	missing := map[string]bool{}
	for _, n := range v.names {
		missing[n] = true
	}
	sites, silent := 0, 0
	for _, tenant := range v.tenants {
		var list v1alpha1.SiteList
		if err := v.c.List(ctx, &list, client.InNamespace(fleet.SystemNamespace(tenant.Name)), client.MatchingLabelsSelector{Selector: v.selector}); err != nil {
			return fmt.Errorf("tenant %s: %w", tenant.Name, err)
		}
		for i := range list.Items {
			s := &list.Items[i]
			if len(v.names) > 0 && !slices.Contains(v.names, s.Name) {
				continue
			}
			delete(missing, s.Name)
			sites++
			if len(s.Status.Software) == 0 {
				silent++
				if len(v.names) > 0 {
					t.rows = append(t.rows, []string{tenant.Name, s.Name, "-", orDash(s.Status.Versions["agent"]), "-", "it reports no software yet", "-", "-"})
				}
				continue
			}
			gvk, err := v.c.GroupVersionKindFor(s)
			if err != nil {
				return err
			}
			s.SetGroupVersionKind(gvk)
			items = append(items, s)
			for _, x := range s.Status.Software {
				if v.component != "" && string(x.Component) != v.component {
					continue
				}
				of, state := x.Wanted, string(x.State)
				if of == "" {
					of, state = x.Running, "Done"
				}
				at := string(x.Component) + " " + orDash(of)
				if sums[at] == nil {
					sums[at] = map[string]int{}
				}
				sums[at][state]++
				if v.all || state != string(v1alpha1.SoftwareDone) {
					t.rows = append(t.rows, []string{tenant.Name, s.Name, string(x.Component), orDash(x.Running), orDash(x.Wanted), softwareState(x), age(x.Since), orDash(x.Message)})
				}
			}
		}
	}
	for _, n := range v.names {
		if missing[n] {
			return fmt.Errorf("%s: no site %q; `muster get sites` lists them", strings.Join(tenantNames(v.tenants), ", "), n)
		}
	}
	if done, err := v.g.encode(w, objects(items)); done || err != nil {
		return err
	}
	for _, at := range slices.Sorted(maps.Keys(sums)) {
		var parts []string
		for _, state := range []v1alpha1.SoftwareState{v1alpha1.SoftwareDone, v1alpha1.SoftwareInstalling, v1alpha1.SoftwareDownloading, v1alpha1.SoftwareScheduled, v1alpha1.SoftwareAvailable, v1alpha1.SoftwareFailed} {
			if n := sums[at][string(state)]; n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(string(state))))
			}
		}
		fmt.Fprintf(w, "%-24s%s\n", printable(at), strings.Join(parts, ", "))
	}
	if silent > 0 {
		fmt.Fprintf(w, "%d of %d sites report no software yet\n", silent, sites)
	}
	if len(t.rows) == 0 {
		if sites == 0 {
			fmt.Fprintln(w, "(no sites)")
		}
		return nil
	}
	fmt.Fprintln(w)
	return v.g.print(w, objects(items), t)
}

// softwareState is how people say it.
func softwareState(s v1alpha1.SiteSoftware) string {
	switch {
	case s.State == v1alpha1.SoftwareDownloading && s.Percent != nil:
		return fmt.Sprintf("Downloading %d %%", *s.Percent)
	case s.State == v1alpha1.SoftwareScheduled && s.StartsAt != nil:
		return "Scheduled for " + s.StartsAt.UTC().Format(time.RFC3339)
	case s.State == v1alpha1.SoftwareFailed && s.Running != "":
		return "Failed, on " + s.Running
	}
	return orDash(string(s.State))
}

// watch shows it anew when it has changed: in a terminal over what was there before.
func (v *softwareView) watch(ctx context.Context, w io.Writer) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	fancy, lines, failures, was := styleOf(w).colour, 0, 0, ""
	for {
		var b bytes.Buffer
		err := v.show(ctx, &b)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if failures++; failures > 30 || was == "" {
				return err
			}
		default:
			failures = 0
		}
		if err == nil && b.String() != was {
			was = b.String()
			if fancy && lines > 0 {
				fmt.Fprintf(w, "\x1b[%dA\x1b[J", lines)
			} else if !fancy {
				fmt.Fprintln(w, time.Now().UTC().Format(time.RFC3339))
			}
			if fancy {
				fmt.Fprint(w, "\x1b[?7l"+was+"\x1b[?7h")
			} else {
				fmt.Fprintln(w, was)
			}
			lines = strings.Count(was, "\n")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
