package cli

import (
	"context"
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

// window is what `muster site plan` is told of a maintenance window.
type window struct {
	reason, start, schedule, zone string
	length                        time.Duration
	drop                          bool
}

func (w *window) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.reason, "reason", "", "why; shown beside the site and in the silence")
	f.StringVar(&w.start, "start", "", "begin of a window that comes once, such as 2026-01-31T22:00:00Z")
	f.StringVar(&w.schedule, "schedule", "", "begin of a window that comes again, in cron's five fields, such as '0 2 * * SUN'")
	f.StringVar(&w.zone, "time-zone", "", "of the schedule, such as Europe/Berlin (default UTC)")
	f.DurationVar(&w.length, "for", time.Hour, "how long the window is, 1m to 168h")
	f.BoolVar(&w.drop, "drop", false, "remove the window")
}

// run lists a site's windows, or adds, replaces or drops one.
func (w *window) run(ctx context.Context, out io.Writer, c client.Client, s *v1alpha1.Site, args []string) (string, error) {
	if len(args) == 0 {
		listWindows(out, s.Spec.MaintenanceWindows, time.Now())
		return fmt.Sprintf("%s: %d planned", s.Name, len(s.Spec.MaintenanceWindows)), nil
	}
	name := args[0]
	rest := slices.DeleteFunc(slices.Clone(s.Spec.MaintenanceWindows), func(x v1alpha1.MaintenanceWindow) bool { return x.Name == name })
	if w.drop {
		if len(rest) == len(s.Spec.MaintenanceWindows) {
			return "", fmt.Errorf("%s has no window %q; muster site plan %s lists them", s.Name, name, s.Name)
		}
		return name + " of " + s.Name + " is dropped", patchSite(ctx, c, s, func() { s.Spec.MaintenanceWindows = rest })
	}
	made, err := w.build(name)
	if err != nil {
		return "", err
	}
	if errs := maintenance.Check(field.NewPath("window"), []v1alpha1.MaintenanceWindow{made}); len(errs) > 0 {
		return "", errs.ToAggregate()
	}
	return name + " of " + s.Name + " is planned", patchSite(ctx, c, s, func() { s.Spec.MaintenanceWindows = append(rest, made) })
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
