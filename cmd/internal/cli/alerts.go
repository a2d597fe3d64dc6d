package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/alertmanager/matcher/parse"
	"github.com/prometheus/alertmanager/pkg/labels"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"muster.dev/muster/internal/wire"
)

// scope are the flags that choose alerts.
type scope struct{ virtualSite, site, severity, state, text string }

func (s *scope) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.virtualSite, "virtual-site", "", "only sites of this virtual site: NAME in the shared namespace, or NAMESPACE/NAME")
	cmd.Flags().StringVar(&s.site, "site", "", "only this site")
}

func (s scope) query(g *Globals) url.Values {
	q := g.query()
	for k, v := range map[string]string{"virtualSite": s.virtualSite, "site": s.site, "severity": s.severity, "state": s.state, "q": s.text} {
		if v != "" {
			q.Set(k, v)
		}
	}
	return q
}

var alertHeader = []string{"ALERT", "SEVERITY", "SITE", "STATE", "SINCE", "SUMMARY", "REGION", "VIRTUAL SITES", "FINGERPRINT"}

func (s scope) known(ctx context.Context, g *Globals, a *api) error {
	return g.known(ctx, a, s.virtualSite, s.site)
}

func alertsCmd(g *Globals) *cobra.Command {
	var s scope
	cmd := &cobra.Command{
		Use:   "alerts",
		Short: "Alerts that fire now, their state in short, and one of them with its history",
		Example: `  muster alerts
  muster alerts --virtual-site stores --severity critical
  muster alerts --sort-by -severity,since
  muster alerts show 8a1f6b7c2d3e4f50
  muster alerts state --virtual-site canary`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := g.api()
			if err != nil {
				return err
			}
			return g.listAlerts(cmd.Context(), cmd.OutOrStdout(), a, s)
		},
	}
	s.addFlags(cmd)
	cmd.Flags().StringVar(&s.severity, "severity", "", "only this severity: critical, warning or info")
	cmd.Flags().StringVar(&s.state, "state", "", "active, suppressed (silenced or inhibited), or all (default)")
	cmd.Flags().StringVarP(&s.text, "query", "q", "", "only alerts with this text in a label or annotation")
	g.AddFlags(cmd)
	g.addOutput(cmd)
	g.addSort(cmd, alertHeader)
	g.addConsole(cmd)
	cmd.AddCommand(alertShowCmd(g), alertStateCmd(g))
	return cmd
}

func (g *Globals) listAlerts(ctx context.Context, w io.Writer, a *api, s scope) error {
	q := s.query(g)
	q.Set("limit", "1000")
	all := []*wire.KnownAlert{}
	for {
		var page wire.AlertList
		if err := a.get(ctx, "/api/v1/alerts", q, &page); err != nil {
			return err
		}
		all = append(all, page.Alerts...)
		if page.NextCursor == "" || len(page.Alerts) == 0 {
			break
		}
		q.Set("cursor", page.NextCursor)
	}
	if len(all) == 0 {
		if err := s.known(ctx, g, a); err != nil {
			return err
		}
	}
	t := table{header: alertHeader, wide: 6}
	for _, x := range all {
		t.rows = append(t.rows, []string{x.Name, orDash(x.Severity), orDash(x.Site), x.State, since(x.StartsAt), orDash(printable(x.Annotations["summary"])), orDash(x.Region), orDash(strings.Join(x.VirtualSites, ",")), x.Fingerprint})
	}
	return g.print(w, all, t)
}

func since(t time.Time) string { return duration.HumanDuration(time.Since(t)) }

func alertShowCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "show FINGERPRINT", Short: "One alert with its labels, annotations and history", Args: cobra.ExactArgs(1),
		Long: "Show one alert. `muster alerts -o wide` prints the fingerprints.",
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := g.api()
			if err != nil {
				return err
			}
			var x wire.AlertDetail
			if err := a.get(cmd.Context(), "/api/v1/alerts/"+url.PathEscape(args[0]), g.query(), &x); err != nil {
				return err
			}
			if g.Output != "table" && g.Output != "wide" {
				return g.print(cmd.OutOrStdout(), x, table{})
			}
			return showAlert(cmd.OutOrStdout(), x)
		}}
	g.AddFlags(cmd)
	g.addOutput(cmd)
	g.addConsole(cmd)
	return cmd
}

func showAlert(w io.Writer, x wire.AlertDetail) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	row := func(k, v string) { fmt.Fprintf(tw, "%s\t%s\n", k, printable(v)) }
	row("Alert:", x.Name)
	row("Severity:", x.Severity)
	row("Site:", orDash(x.Site))
	state := x.State + " since " + x.StartsAt.UTC().Format(time.RFC3339)
	if len(x.SilencedBy) > 0 {
		state += ", silenced by " + strings.Join(x.SilencedBy, ", ")
	}
	if len(x.InhibitedBy) > 0 {
		state += ", inhibited by " + strings.Join(x.InhibitedBy, ", ")
	}
	row("State:", state)
	for _, part := range []struct {
		title string
		m     map[string]string
	}{{"Labels:", x.Labels}, {"Annotations:", x.Annotations}} {
		title := part.title
		for _, k := range sortedKeys(part.m) {
			row(title, k+"="+part.m[k])
			title = ""
		}
	}
	title := "History:"
	for _, h := range x.History {
		end := "now"
		if h.EndsAt != nil {
			end = h.EndsAt.UTC().Format(time.RFC3339) + " (" + duration.HumanDuration(h.EndsAt.Sub(h.StartsAt)) + ")"
		}
		row(title, h.StartsAt.UTC().Format(time.RFC3339)+" to "+end)
		title = ""
	}
	return tw.Flush()
}

func sortedKeys(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func alertStateCmd(g *Globals) *cobra.Command {
	var s scope
	cmd := &cobra.Command{Use: "state", Short: "How many alerts fire, by severity: what a rollout gate asks", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := g.api()
			if err != nil {
				return err
			}
			var st wire.AlertState
			if err := a.get(cmd.Context(), "/api/v1/alerts/state", s.query(g), &st); err != nil {
				return err
			}
			if st.Firing == (wire.AlertCounts{}) && st.Suppressed == 0 {
				if err := s.known(cmd.Context(), g, a); err != nil {
					return err
				}
			}
			n := strconv.Itoa
			return g.print(cmd.OutOrStdout(), st, table{header: []string{"CRITICAL", "WARNING", "INFO", "SUPPRESSED", "SITES"},
				rows: [][]string{{n(st.Firing.Critical), n(st.Firing.Warning), n(st.Firing.Info), n(st.Suppressed), n(st.Sites)}}})
		}}
	s.addFlags(cmd)
	g.AddFlags(cmd)
	g.addOutput(cmd)
	g.addConsole(cmd)
	return cmd
}

func silenceCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "silence", Short: "Silence alerts for a while, list silences, or end one",
		Example: `  muster silence add --site paris --duration 2h --comment "changing the disk"
  muster silence add --virtual-site stores alertname=SiteDiskFilling --duration 1d --comment "known, fix rolls out"
  muster silence list
  muster silence expire 5f1d8a52-…`}
	cmd.AddCommand(silenceAddCmd(g), silenceListCmd(g), silenceExpireCmd(g))
	return cmd
}

func silenceAddCmd(g *Globals) *cobra.Command {
	var (
		s             scope
		length, start string
		comment       string
	)
	cmd := &cobra.Command{
		Use:   "add [MATCHER...]",
		Short: "Silence alerts of the tenant",
		Long: `Silence the tenant's alerts that all matchers fit. A matcher is written as in
amtool: alertname=SiteDown, severity!=critical, pod=~"checkout-.*". Alerts go on
being shown, as suppressed; nobody is notified of them.

For planned work on a site, better plan it: muster site plan.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := model.ParseDuration(length)
			if err != nil || d <= 0 {
				return fmt.Errorf("--duration %q: want such as 30m, 2h or 1d", length)
			}
			if comment == "" {
				return errors.New("--comment: say why, for those who find the silence later")
			}
			at := time.Now()
			if start != "" {
				if at, err = time.Parse(time.RFC3339, start); err != nil {
					return fmt.Errorf("--start %q: want a time such as 2026-01-31T12:00:00Z", start)
				}
			}
			matchers, err := parseMatchers(args, s)
			if err != nil {
				return err
			}
			a, err := g.api()
			if err != nil {
				return err
			}
			if err := s.known(cmd.Context(), g, a); err != nil {
				return err
			}
			var made struct {
				ID string `json:"id"`
			}
			body := map[string]any{"matchers": matchers, "endsAt": at.Add(time.Duration(d)).UTC(), "comment": comment}
			if start != "" {
				body["startsAt"] = at.UTC()
			}
			if err := a.send(cmd.Context(), http.MethodPost, "/api/v1/silences", g.query(), body, &made); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n", made.ID)
			return nil
		},
	}
	s.addFlags(cmd)
	cmd.Flags().StringVarP(&length, "duration", "d", "1h", "how long, such as 30m, 2h or 1d")
	cmd.Flags().StringVar(&start, "start", "", "when it begins, as RFC 3339; default: now")
	cmd.Flags().StringVarP(&comment, "comment", "c", "", "why (required)")
	g.AddFlags(cmd)
	g.addConsole(cmd)
	return cmd
}

// parseMatchers reads matchers with Alertmanager's own parser.
func parseMatchers(args []string, s scope) ([]wire.Matcher, error) {
	var out []wire.Matcher
	for _, arg := range args {
		m, err := parse.Matcher(arg)
		if err != nil {
			return nil, fmt.Errorf("matcher %q: %w; want such as alertname=SiteDown or pod=~\"web-.*\"", arg, err)
		}
		out = append(out, wire.Matcher{Name: m.Name, Value: m.Value, IsRegex: m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp, IsEqual: m.Type == labels.MatchEqual || m.Type == labels.MatchRegexp})
	}
	if s.site != "" {
		out = append(out, wire.EqualMatcher("site", s.site))
	}
	if v := s.virtualSite; v != "" {
		out = append(out, wire.Matcher{Name: "virtual_sites", Value: `.*[|]` + regexp.QuoteMeta(shared(v)) + `[|].*`, IsRegex: true, IsEqual: true})
	}
	if len(out) == 0 {
		return nil, errors.New("name what to silence: a matcher such as alertname=SiteDown, --site or --virtual-site")
	}
	return out, nil
}

func silenceListCmd(g *Globals) *cobra.Command {
	var state string
	cmd := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List silences", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := g.api()
			if err != nil {
				return err
			}
			q := g.query()
			q.Set("state", state)
			var list wire.SilenceList
			if err := a.get(cmd.Context(), "/api/v1/silences", q, &list); err != nil {
				return err
			}
			t := table{header: []string{"ID", "MATCHERS", "STATE", "ENDS", "CREATED BY", "COMMENT"}}
			for _, s := range list.Silences {
				var ms []string
				for _, m := range s.Matchers {
					ms = append(ms, m.String())
				}
				if s.Tenant == "" && len(ms) == 0 {
					s.CreatedBy, s.Comment = "an operator", "made in Alertmanager itself; it keeps alerts of yours quiet"
				}
				t.rows = append(t.rows, []string{s.ID, cmp.Or(strings.Join(ms, " "), "-"), s.State, s.EndsAt.UTC().Format(time.RFC3339), printable(s.CreatedBy), printable(s.Comment)})
			}
			return g.print(cmd.OutOrStdout(), list.Silences, t)
		}}
	cmd.Flags().StringVar(&state, "state", "active", "active, pending, expired or all")
	g.AddFlags(cmd)
	g.addOutput(cmd)
	g.addConsole(cmd)
	return cmd
}

func silenceExpireCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "expire ID...", Short: "End silences now", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := g.api()
			if err != nil {
				return err
			}
			for _, id := range args {
				if err := a.send(cmd.Context(), http.MethodDelete, "/api/v1/silences/"+url.PathEscape(id), g.query(), nil, nil); err != nil {
					return fmt.Errorf("silence %s: %w", id, err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s ended\n", id)
			}
			return nil
		}}
	g.AddFlags(cmd)
	g.addConsole(cmd)
	return cmd
}
