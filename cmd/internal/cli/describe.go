package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	healthapi "muster.dev/muster/health/api"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

func describeCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "describe site|tenant", Short: "Show all about one thing", Example: "  muster describe site paris-07\n  muster describe tenant acme"}
	site := &cobra.Command{
		Use: "site NAME", Short: "One site: health with its reasons, alerts, versions, labels, conditions, events, edits of its policies",
		Long: `All about one site. What it is comes from the Kubernetes API; scores, reasons with the
points that each costs, and alerts come from the console, as on the site's page.`,
		Example: "  muster describe site paris-07\n  muster describe site paris-07 -o json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: g.completeSites,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, tenants, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			s, name, err := findSite(cmd.Context(), c, tenants, args[0])
			if err != nil {
				return err
			}
			var vs []v1alpha1.VirtualSite
			for _, t := range tenants {
				if t.Name != name {
					continue
				}
				for _, ns := range namespacesOf(t) {
					var list v1alpha1.VirtualSiteList
					if err := c.List(cmd.Context(), &list, client.InNamespace(ns)); err != nil {
						return fmt.Errorf("virtual sites in %s: %w", ns, err)
					}
					vs = append(vs, list.Items...)
				}
			}
			now := g.siteNow(cmd.Context(), c, name, s)
			if done, err := g.encode(cmd.OutOrStdout(), now); done || err != nil {
				return err
			}
			describeSite(cmd.OutOrStdout(), name, now, vs)
			return nil
		},
	}
	g.AddFlags(site)
	g.addConsole(site)
	g.addOutput(site)
	cmd.AddCommand(site, describeTenantCmd(g))
	return cmd
}

// siteNow is all that is known of a site.
type siteNow struct {
	Site   *v1alpha1.Site        `json:"site"`
	Health *healthapi.SiteDetail `json:"health,omitempty"`
	Alerts *wire.AlertList       `json:"alerts,omitempty"`
	Events *[]corev1.Event       `json:"events,omitempty"` // the newest first
	// Edits are those of the policies that select it, the newest first.
	Edits *[]wire.TimelineEvent `json:"edits,omitempty"`
	// Missing says what could not be read, and why.
	Missing []string `json:"missing,omitempty"`
}

// maxEvents and maxEdits are how many of a site's newest events, and of the edits of its policies, are shown.
const maxEvents, maxEdits = 10, 5

// siteNow asks everybody who knows of a site; who does not answer is named.
func (g *Globals) siteNow(ctx context.Context, c client.Client, tenant string, s *v1alpha1.Site) *siteNow {
	now := &siteNow{Site: s}
	if a, err := g.api(); err != nil {
		now.missing("scores, alerts and edits", err)
	} else {
		now.askConsole(ctx, a, tenant)
	}
	var events corev1.EventList
	err := c.List(ctx, &events, client.InNamespace(s.Namespace), client.MatchingFieldsSelector{Selector: fields.Set{"involvedObject.kind": "Site", "involvedObject.name": s.Name}.AsSelector()})
	if err != nil {
		now.missing("events", err)
		return now
	}
	slices.SortFunc(events.Items, func(a, b corev1.Event) int { return eventTime(&b).Compare(eventTime(&a).Time) })
	events.Items = events.Items[:min(len(events.Items), maxEvents)]
	now.Events = &events.Items
	return now
}

func (now *siteNow) missing(what string, err error) {
	now.Missing = append(now.Missing, what+": "+printable(err.Error()))
}

// askConsole asks for what the API server does not have.
func (now *siteNow) askConsole(ctx context.Context, a *api, tenant string) {
	name := now.Site.Name
	detail := &healthapi.SiteDetail{}
	if err := a.get(ctx, "/api/v1/health/sites/"+url.PathEscape(name), url.Values{"tenant": {tenant}}, detail); err != nil {
		now.missing("scores", err)
	} else {
		now.Health = detail
	}
	alerts := &wire.AlertList{}
	if err := a.get(ctx, "/api/v1/alerts", url.Values{"tenant": {tenant}, "site": {name}, "limit": {"1000"}}, alerts); err != nil {
		now.missing("alerts", err)
	} else {
		now.Alerts = alerts
	}
	var page wire.TimelinePage
	err := a.get(ctx, wire.TimelinePath, url.Values{"tenant": {tenant}, "site": {name}, "kind": {wire.EventPolicy}, "limit": {strconv.Itoa(maxEdits)}}, &page)
	for _, m := range page.Missing {
		if slices.Contains(m.Kinds, wire.EventPolicy) {
			err = fmt.Errorf("%s did not answer", m.Role)
		}
	}
	if err != nil {
		now.missing("edits of its policies", err)
	} else {
		now.Edits = &page.Events
	}
}

// eventTime is when an event happened last.
func eventTime(e *corev1.Event) *metav1.Time {
	switch {
	case e.Series != nil:
		return &metav1.Time{Time: e.Series.LastObservedTime.Time}
	case !e.LastTimestamp.IsZero():
		return &e.LastTimestamp
	case !e.EventTime.IsZero():
		return &metav1.Time{Time: e.EventTime.Time}
	}
	return &e.CreationTimestamp
}

func describeSite(w io.Writer, tenant string, now *siteNow, vs []v1alpha1.VirtualSite) {
	s := now.Site
	line := func(k, format string, args ...any) { fmt.Fprintf(w, "%-22s%s\n", k+":", fmt.Sprintf(format, args...)) }
	line("Name", "%s", s.Name)
	line("Tenant", "%s", tenant)
	line("Phase", "%s", orDash(string(s.Status.Phase)))
	line("Approved", "%v", s.Spec.Approved)
	if m := s.MaintenanceAt(time.Now()); m != nil {
		until := "until it is ended"
		if m.Until != nil {
			until = "until " + m.Until.UTC().Format(time.RFC3339)
		}
		line("Maintenance", "%s (%s)", printable(m.Reason), until)
	}
	if r := s.Status.Reset; r != nil {
		line("Factory reset", "%s, for %s", resetText(r), age(&r.Since))
	}
	if p := s.Spec.Place; p != nil {
		line("Place", "%s, %s %s", p.Latitude, p.Longitude, printable(p.Address))
	}
	seen := s.Status.LastSeen
	if h := now.Health; h != nil {
		line("Health", "%s, score %s, for %s", h.Colour, scoreText(h.Score), sinceOrDash(h.Since))
		d := h.Dimensions
		line("Dimensions", "connectivity %s, reliability %s, security %s, performance %s", scoreText(d.Connectivity.Score), scoreText(d.Reliability.Score), scoreText(d.Security.Score), scoreText(d.Performance.Score))
		if h.LastSeen != nil {
			seen = &metav1.Time{Time: *h.LastSeen}
		}
	} else if h := s.Status.Health; h != nil {
		line("Health", "%s, score %s, for %s", h.Colour, scoreText(h.Score), age(h.Since))
		if h.Reason != "" {
			line("Reason", "%s", printable(h.Reason))
		}
	}
	switch {
	case seen == nil:
		line("Last seen", "never")
	case now.Health == nil && s.Status.Phase == fleet.PhaseOnline: // the object's time may be minutes old
		line("Last seen", "now, regional %s", orDash(s.Status.Regional))
	default:
		line("Last seen", "%s ago, regional %s", age(seen), orDash(s.Status.Regional))
	}
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
	if len(s.Status.Software) > 0 {
		runs := map[string]string{}
		for i := range s.Status.Software {
			runs[string(s.Status.Software[i].Component)] = softwareText(&s.Status.Software[i])
		}
		section("Software", runs)
	}
	section("Labels", s.Labels)
	fmt.Fprintln(w, "Conditions:")
	for _, c := range s.Status.Conditions {
		fmt.Fprintf(w, "  %-26s%-8s%s\n", c.Type, c.Status, strings.TrimSuffix(c.Reason+": "+c.Message, ": "))
	}
	describeNow(w, now)
}

func sinceOrDash(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return since(*t)
}

func scoreText[T int32 | float64](score *T) string {
	if score == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.0f", float64(*score))
}

// describeNow prints what changes from minute to minute: reasons, alerts, events, edits.
func describeNow(w io.Writer, now *siteNow) {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	list := func(title string, n int, row func(int) []string) {
		fmt.Fprintln(tw, title+":")
		if n == 0 {
			fmt.Fprintln(tw, "  (none)")
		}
		for i := range n {
			cells := row(i)
			for j := range cells {
				cells[j] = strings.ReplaceAll(printable(cells[j]), "\t", " ")
			}
			fmt.Fprintln(tw, "  "+strings.Join(cells, "\t"))
		}
		_ = tw.Flush() // each list has columns of its own; w tells of errors
	}
	if h := now.Health; h != nil {
		list("Reasons", len(h.Reasons), func(i int) []string {
			r := h.Reasons[i]
			points := "-"
			if r.PointsLost > 0 {
				points = fmt.Sprintf("-%.1f points", r.PointsLost)
			}
			return []string{points, string(r.Dimension), "for " + since(r.Since), r.Text}
		})
	}
	if a := now.Alerts; a != nil {
		list("Alerts", len(a.Alerts), func(i int) []string {
			x := a.Alerts[i]
			return []string{cmp.Or(x.Severity, "-"), x.Name, x.State, "for " + since(x.StartsAt), x.Annotations["summary"]}
		})
	}
	if e := now.Events; e != nil {
		list("Events", len(*e), func(i int) []string {
			x := (*e)[i]
			return []string{age(eventTime(&x)) + " ago", x.Type, x.Reason, x.Message}
		})
	}
	if e := now.Edits; e != nil {
		list("Edits of its policies", len(*e), func(i int) []string {
			x := (*e)[i]
			return []string{age(&metav1.Time{Time: x.Time}) + " ago", orDash(x.By), x.Text}
		})
	}
	for _, m := range now.Missing {
		fmt.Fprintln(w, "Not known, "+m)
	}
}
