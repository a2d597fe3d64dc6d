package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/maintenance"
	"muster.dev/muster/control/api/v1alpha1"
)

// window is what `muster site plan` and `muster virtualsite plan` are told of a
// maintenance window.
type window struct {
	reason, start, schedule, zone string
	length                        time.Duration
	drop                          bool
}

func (w *window) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.reason, "reason", "", "why; shown on the page and in the silence")
	f.StringVar(&w.start, "start", "", "begin of a window that comes once, such as 2026-01-31T22:00:00Z")
	f.StringVar(&w.schedule, "schedule", "", "begin of a window that comes again, in cron's five fields, such as '0 2 * * SUN'")
	f.StringVar(&w.zone, "time-zone", "", "of the schedule, such as Europe/Berlin (default UTC)")
	f.DurationVar(&w.length, "for", time.Hour, "how long the window is, 1m to 168h")
	f.BoolVar(&w.drop, "drop", false, "remove the window")
}

// planned is a site or a virtual site, whose windows are listed and changed.
type planned struct {
	name    string // as it was typed
	kind    string // of `muster KIND plan`
	windows *[]v1alpha1.MaintenanceWindow
	patch   func(change func()) error
}

// run lists the windows, or adds, replaces or drops one.
func (w *window) run(out io.Writer, on planned, args []string) (string, error) {
	if len(args) == 0 {
		listWindows(out, *on.windows, time.Now())
		return fmt.Sprintf("%s: %d planned", on.name, len(*on.windows)), nil
	}
	name := args[0]
	rest := slices.DeleteFunc(slices.Clone(*on.windows), func(x v1alpha1.MaintenanceWindow) bool { return x.Name == name })
	if w.drop {
		if len(rest) == len(*on.windows) {
			return "", fmt.Errorf("%s has no window %q; muster %s plan %s lists them", on.name, name, on.kind, on.name)
		}
		return name + " of " + on.name + " is dropped", on.patch(func() { *on.windows = rest })
	}
	made, err := w.build(name)
	if err != nil {
		return "", err
	}
	if errs := maintenance.Check(field.NewPath("window"), []v1alpha1.MaintenanceWindow{made}); len(errs) > 0 {
		return "", errs.ToAggregate()
	}
	return name + " of " + on.name + " is planned", on.patch(func() { *on.windows = append(rest, made) })
}

func (w *window) build(name string) (v1alpha1.MaintenanceWindow, error) {
	out := v1alpha1.MaintenanceWindow{Name: name, Reason: w.reason, Schedule: w.schedule, TimeZone: w.zone, Duration: metav1.Duration{Duration: w.length}}
	switch {
	case w.reason == "":
		return out, errors.New("say why with --reason, or remove the window with --drop")
	case (w.start == "") == (w.schedule == ""):
		return out, errors.New("want either --start, for once, or --schedule, for again and again")
	}
	if w.start != "" {
		at, err := time.Parse(time.RFC3339, w.start)
		if err != nil {
			return out, fmt.Errorf("--start %q: want a time such as 2026-01-31T22:00:00Z", w.start)
		}
		out.Start = &metav1.Time{Time: at}
	}
	return out, nil
}

func listWindows(out io.Writer, windows []v1alpha1.MaintenanceWindow, now time.Time) {
	if len(windows) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 4, 3, ' ', 0)
	fmt.Fprintln(w, "WINDOW\tWHEN\tFOR\tNEXT\tREASON")
	for _, x := range windows {
		when, next := x.Schedule+" "+x.TimeZone, "-"
		if x.Start != nil {
			when = x.Start.UTC().Format(time.RFC3339)
		}
		if spans := maintenance.Between([]v1alpha1.MaintenanceWindow{x}, now, now.AddDate(1, 0, 0)); len(spans) > 0 {
			if next = spans[0].Start.Format(time.RFC3339); spans[0].Covers(now) {
				next = "open until " + spans[0].End.Format(time.RFC3339)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", x.Name, when, x.Duration.Duration, next, printable(x.Reason))
	}
	_ = w.Flush()
}

func virtualSiteCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "virtualsite", Aliases: []string{"vs"}, Short: "Change a virtual site: plan"}
	var w window
	plan := &cobra.Command{
		Use: "plan NAME [WINDOW]", Short: "List, plan or drop maintenance windows of all members", Args: cobra.RangeArgs(1, 2), ValidArgsFunction: g.completeVirtualSites,
		Long: `Plan maintenance of every site that is a member, once or again and again. While a
window is open its members are in maintenance and their alerts are silenced.
NAME is that of a virtual site in the shared namespace, or NAMESPACE/NAME.
Without WINDOW, list what is planned.`,
		Example: `  muster virtualsite plan stores
  muster virtualsite plan stores updates --schedule '0 2 * * SUN' --time-zone Europe/Paris --for 2h --reason updates
  muster virtualsite plan shop/canary move --start 2026-01-31T22:00:00Z --for 4h --reason 'new racks'
  muster virtualsite plan stores updates --drop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, tenants, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			v, _, err := findVirtualSite(cmd.Context(), c, tenants, args[0])
			if err != nil {
				return err
			}
			said, err := w.run(cmd.OutOrStdout(), planned{args[0], "virtualsite", &v.Spec.MaintenanceWindows, func(change func()) error {
				before := v.DeepCopy()
				change()
				if err := c.Patch(cmd.Context(), v, client.MergeFrom(before)); err != nil {
					return fmt.Errorf("virtual site %s: %w", args[0], err)
				}
				return nil
			}}, args[1:])
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), said)
			}
			return err
		},
	}
	w.flags(plan)
	g.AddFlags(plan)
	cmd.AddCommand(plan)
	return cmd
}
