package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/sitequery"
	"muster.dev/muster/internal/wire"
)

// siteQuestion is what `muster get sites` asks the inventory for.
type siteQuestion struct{ view, query, sort, columns, group string }

// siteColumns are those of -o table and, with siteColumnsWide, of -o wide, as the list
// without a query has them.
const (
	siteColumns     = "name,phase,region,score,colour,lastSeen,created"
	siteColumnsWide = ",version,version.os,kubernetes,regional,reason"
)

// addSiteTable gives `muster get sites` the flags that ask the console's inventory, which filters
// and sorts where the sites are, instead of the Kubernetes API.
func (g *Globals) addSiteTable(cmd *cobra.Command) {
	var t siteQuestion
	cmd.Long = `List sites. With -q, --sort-by, --columns, --group-by, --view or -o csv the console's inventory is
asked, which filters and sorts where the sites are. The query language is that of the
page Sites (docs/inventory.md):

  kind=store version!=1.4 score<60 "disk"

--view takes what the page Sites keeps under a name: your own view, else the shared one. Other
flags go before what it says, and -q narrows it.

-o json has the columns that were asked for, and how many sites there are by colour.`
	cmd.Example = `  muster get sites -l region=eu -o wide
  muster get sites -q 'kind=store score<60 "disk"' --sort-by score
  muster get sites -q 'lastSeen>10m' --columns name,lastSeen,label.tier,version.os
  muster get sites --group-by version
  muster get sites --view Flagships -q 'score<60'
  muster get sites -q 'alerts.critical>0' -o csv > sites.csv`
	cmd.Flags().StringVarP(&t.query, "query", "q", "", `which sites, such as 'kind=store score<60 "disk"'`)
	cmd.Flags().StringVar(&t.view, "view", "", "a saved view, by its name")
	cmd.Flags().StringVar(&t.sort, "sort-by", "", "up to three columns; a - before one puts its largest first, such as -alerts,score")
	cmd.Flags().StringVar(&t.columns, "columns", "", "columns to show, such as name,score,label.tier,version.os")
	cmd.Flags().StringVar(&t.group, "group-by", "", "count the sites by a column, such as label.tier or version, instead of listing them")
	g.addConsole(cmd)
	for _, flag := range []string{"sort-by", "columns", "group-by"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, g.completeColumns)
	}
	_ = cmd.RegisterFlagCompletionFunc("query", g.completeQuery)
	_ = cmd.RegisterFlagCompletionFunc("view", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		a, err := g.api()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		views, err := g.savedViews(cmd.Context(), a)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return viewNames(views), cobra.ShellCompDirectiveNoFileComp
	})
	list := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if i := slices.IndexFunc(args, func(a string) bool { return strings.ContainsAny(a, "=<>!~\" ") }); i >= 0 {
			return fmt.Errorf("%q is no name of a site; a query goes after -q: muster get sites -q '%s'", args[i], strings.Join(args, " "))
		}
		asked := slices.DeleteFunc([]string{"query", "sort-by", "columns", "group-by", "view"}, func(name string) bool { return !cmd.Flags().Changed(name) })
		if len(asked) == 0 && g.Output != "csv" {
			return list(cmd, args)
		}
		asked = append(asked, "output csv")
		for flag, instead := range map[string]string{"selector": "put the labels into -q, such as -q 'region in (eu, us)'", "watch": "ask again instead"} {
			if f := cmd.Flags().Lookup(flag); f != nil && f.Changed {
				return fmt.Errorf("--%s does not go with --%s: %s", flag, asked[0], instead)
			}
		}
		if len(args) > 0 {
			return fmt.Errorf("names do not go with --%s: put them into -q, such as -q 'name in (%s)'", asked[0], strings.Join(args, ", "))
		}
		if _, err := sitequery.Parse(t.query); err != nil {
			return fmt.Errorf("--query: %w", err)
		}
		a, err := g.api()
		if err != nil {
			return err
		}
		if t.view != "" {
			if t, err = g.openView(cmd.Context(), a, t); err != nil {
				return err
			}
		}
		return g.tableOfSites(cmd, a, t)
	}
}

func (g *Globals) tableOfSites(cmd *cobra.Command, a *api, t siteQuestion) error {
	q := g.query()
	for name, v := range map[string]string{"q": t.query, "sort": t.sort, "group": t.group} {
		if v != "" {
			q.Set(name, v)
		}
	}
	columns := t.columns
	if columns == "" {
		if columns = siteColumns; g.Output != "table" && g.Output != "" {
			columns += siteColumnsWide
		}
		if g.AllTenants || g.Output == "csv" && g.tenantName() == "" {
			columns = "tenant," + columns
		}
	}
	q.Set("columns", columns)
	w := cmd.OutOrStdout()
	switch {
	case g.Output == "csv" && t.group != "":
		return errors.New("--group-by does not go with -o csv: use -o json, or list the sites with the column in --columns")
	case g.Output == "csv":
		return a.copyCSV(cmd.Context(), w, q)
	case t.group != "":
		q.Set("limit", "0")
	default:
		q.Set("limit", strconv.Itoa(wire.MaxSites))
	}
	var all *wire.SitePage
	for all == nil || all.NextCursor != "" {
		var page wire.SitePage
		if all != nil {
			q.Set("cursor", all.NextCursor)
		}
		if err := a.get(cmd.Context(), wire.SitesPath, q, &page); err != nil {
			return err
		}
		if all != nil {
			page.Sites = append(all.Sites, page.Sites...)
		}
		all = &page
	}
	for _, note := range all.Notes {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: "+printable(note))
	}
	if t.group != "" {
		return g.print(w, all, groupTable(t.group, all))
	}
	// Each row says whose it is; where all are one's, a column of it says nothing.
	if t.columns == "" && !slices.Contains(all.Columns, "tenant") && slices.ContainsFunc(all.Sites, func(s wire.SiteRow) bool { return s["tenant"] != all.Sites[0]["tenant"] }) {
		all.Columns = append([]string{"tenant"}, all.Columns...)
	}
	out := table{}
	for _, c := range all.Columns {
		out.header = append(out.header, columnTitle(c))
	}
	for _, s := range all.Sites {
		row := make([]string, len(all.Columns))
		for i, c := range all.Columns {
			row[i] = siteCell(c, s[c])
		}
		out.rows = append(out.rows, row)
	}
	return g.print(w, all, out)
}

// copyCSV copies the answer as it comes.
func (a *api) copyCSV(ctx context.Context, w io.Writer, q url.Values) error {
	q.Set("format", "csv")
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	resp, err := a.do(ctx, http.MethodGet, wire.SitesPath, q, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(w, resp.Body)
	return err
}

func groupTable(by string, p *wire.SitePage) table {
	t := table{header: []string{columnTitle(by), "SITES", "GREEN", "ORANGE", "RED", "UNKNOWN", "MEAN", "WORST"}}
	score := func(x *float64) string {
		if x == nil {
			return "-"
		}
		return strconv.FormatFloat(*x, 'f', -1, 64)
	}
	for _, g := range p.Groups {
		row := []string{g.Value, fmt.Sprint(g.Sites)}
		if g.Value == "" {
			row[0] = "(none)"
		}
		for _, c := range []fleet.Colour{fleet.Green, fleet.Orange, fleet.Red, fleet.Grey} {
			row = append(row, fmt.Sprint(g.Counts[string(c)]))
		}
		t.rows = append(t.rows, append(row, score(g.Mean), score(g.Worst)))
	}
	return t
}

// columnTitle is a column's heading: what the list without a query calls it, else its
// name: lastSeen is LAST SEEN, label.tier is TIER.
func columnTitle(name string) string {
	switch name {
	case "created":
		return "AGE"
	case "version":
		return "AGENT"
	}
	name = strings.TrimPrefix(strings.TrimPrefix(name, "label."), "version.")
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}

// siteCell is a value as a cell: times as ages, lists with commas, what is not known as -.
func siteCell(column string, v any) string {
	switch v := v.(type) {
	case string:
		if c, err := sitequery.ParseColumn(column); err == nil && c.Field().Kind == sitequery.Time {
			if t, err := time.Parse(time.RFC3339, v); err == nil {
				return age(&metav1.Time{Time: t})
			}
		}
		return orDash(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = fmt.Sprint(v[i])
		}
		return orDash(strings.Join(parts, ","))
	}
	return "-"
}
