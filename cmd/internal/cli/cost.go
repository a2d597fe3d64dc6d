package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"muster.dev/muster/internal/wire"
)

func costCmd(g *Globals) *cobra.Command {
	var by, sort, virtualSite, text string
	var limit int
	cmd := &cobra.Command{
		Use: "cost", Short: "What sites, virtual sites and tenants take of the regionals", Args: cobra.NoArgs,
		Long: `Show what sites, virtual sites or tenants take of the regionals: series in memory,
samples a second, bytes on the wire (as they come, compressed), log lines and bytes.

Rates are means over the last minutes. CPU and MEMORY are estimates: a process
can't tell whom its memory is for. Samples are charged for the time that they were
worked on, and the rest goes by series (docs/operations.md, "What a site costs").
Below the table stands, for those who may see all tenants, how many more sites like
these each regional carries, and what ends first. --by tenant shows the same of a
tenant's limit of series.
-o wide adds pushes, and those that got 429 and were sent again.`,
		Example: `  muster cost                                   the sites with the most series
  muster cost --sort cpu -n 5
  muster cost --by virtualsite
  muster cost --by tenant --sort logBytes
  muster cost --virtual-site shared/all-eu -o json
  muster cost names paris-07                    what its series are, and how to drop them`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return fmt.Errorf("--limit %d: want 1 or more", limit)
			}
			a, err := g.api()
			if err != nil {
				return err
			}
			q := g.query()
			q.Set("by", by)
			q.Set("sort", sort)
			if virtualSite != "" {
				q.Set("virtualSite", virtualSite)
			}
			if text != "" {
				q.Set("q", text)
			}
			var all *wire.CostPage
			for all == nil || all.NextCursor != "" && len(all.Rows) < limit {
				have := 0
				if all != nil {
					have = len(all.Rows)
					q.Set("cursor", all.NextCursor)
				}
				q.Set("limit", strconv.Itoa(min(limit-have, 1000)))
				page, err := getOfRegionals(cmd.Context(), a, cmd.ErrOrStderr(), wire.CostPath, q, func(p *wire.CostPage) []wire.MissingRegion { return p.MissingRegions })
				if err != nil {
					return err
				}
				if all != nil {
					page.Rows = append(all.Rows, page.Rows...)
				}
				all = page
			}
			printMissing(cmd.ErrOrStderr(), all.MissingRegions)
			return g.printCost(cmd.OutOrStdout(), all)
		},
	}
	byWhat, sorts := []string{wire.CostBySite, wire.CostByVirtualSite, wire.CostByTenant}, append([]string{wire.CostByName}, wire.CostColumns...)
	cmd.Flags().StringVar(&by, "by", wire.CostBySite, "what the rows are: "+strings.Join(byWhat, ", "))
	cmd.Flags().StringVar(&sort, "sort", "series", "the column whose largest come first: "+strings.Join(wire.CostColumns, ", ")+"; or name, A to Z")
	cmd.Flags().StringVar(&virtualSite, "virtual-site", "", "only sites of this virtual site, such as shared/all-eu")
	cmd.Flags().StringVarP(&text, "query", "q", "", "only rows with this text in their name")
	cmd.Flags().IntVarP(&limit, "limit", "n", 20, "how many rows")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(byWhat, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(sorts, cobra.ShellCompDirectiveNoFileComp))
	g.AddFlags(cmd)
	g.addOutput(cmd)
	g.addConsole(cmd)
	cmd.AddCommand(costNamesCmd(g))
	return cmd
}

func costNamesCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use: "names [SITE]", Short: "The metrics with the most series of a site or a tenant", Args: cobra.MaximumNArgs(1),
		Long: `Show the ten metrics with the most series of a site, or without one of the tenant, and
the fields of the CollectionPolicies that let them leave the sites. A metric is
dropped by taking it out of each of these; spec.dropSeries drops only a part of its
series, spec.dropLabels with spec.aggregations makes fewer of them.`,
		Example: "  muster cost names paris-07\n  muster cost names -T acme",
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := g.api()
			if err != nil {
				return err
			}
			q := g.query()
			if len(args) > 0 {
				q.Set("site", args[0])
			}
			page, err := getOfRegionals(cmd.Context(), a, cmd.ErrOrStderr(), wire.CostNamesPath, q, func(p *wire.NamesPage) []wire.MissingRegion { return p.MissingRegions })
			if err != nil {
				return err
			}
			printMissing(cmd.ErrOrStderr(), page.MissingRegions)
			t := table{header: []string{"METRIC", "SERIES", "SHARE", "KEPT BY"}}
			for _, n := range page.Names {
				var by []string
				for _, k := range n.KeptBy {
					by = append(by, strings.TrimSpace(k.Policy+": "+k.Field+" "+k.Value))
				}
				t.rows = append(t.rows, []string{n.Name, strconv.FormatInt(n.Series, 10), fmt.Sprintf("%.0f%%", 100*float64(n.Series)/float64(max(page.Series, 1))), orDash(strings.Join(by, ", "))})
			}
			if err := g.print(cmd.OutOrStdout(), page, t); err != nil || g.Output == "json" || g.Output == "yaml" {
				return err
			}
			about := ""
			if page.Sampled {
				about = "; the figures are estimates from a part of them"
			}
			fmt.Fprintf(cmd.OutOrStdout(), "of %d series%s\n", page.Series, about)
			return nil
		},
	}
	g.AddFlags(cmd)
	g.addOutput(cmd)
	g.addConsole(cmd)
	return cmd
}

// getOfRegionals gets an answer of all regionals, and tells progress who is late.
func getOfRegionals[T any](ctx context.Context, a *api, progress io.Writer, path string, q url.Values, missing func(*T) []wire.MissingRegion) (*T, error) {
	get := func(q url.Values, out *T) error { return a.get(ctx, path, q, out) }
	return askAll(q, get, missing, func(_ *T, late string) {
		fmt.Fprintf(progress, "no answer yet from %s: waiting\n", late)
	})
}

func printMissing(w io.Writer, missing []wire.MissingRegion) {
	for _, m := range missing {
		fmt.Fprintf(w, "regional %s is missing from these figures: %s\n", printable(m.Region), printable(m.Reason))
	}
}

func (g *Globals) printCost(w io.Writer, page *wire.CostPage) error {
	if done, err := g.encode(w, page); done || err != nil {
		return err
	}
	lead := map[string][]string{wire.CostBySite: {"SITE", "TENANT"}, wire.CostByVirtualSite: {"VIRTUAL SITE", "TENANT", "SITES"}, wire.CostByTenant: {"TENANT", "SITES"}}[page.By]
	header := append(slices.Clone(lead), "SERIES", "SAMPLES/S", "BYTES/S", "LOG LINES/S", "LOG BYTES/S", "CPU", "MEMORY")
	if page.By == wire.CostByTenant {
		header = append(header, "SERIES LIMIT", "MORE SITES")
	}
	t := table{header: append(header, "PUSHES/S", "REFUSED/S", "REGIONALS"), wide: len(header)}
	line := func(lead []string, u wire.Use, room []string, regionals string) {
		row := append(lead, strconv.FormatInt(u.Series, 10), figure(u.SamplesPerSecond), bytesText(u.WireBytesPerSecond), figure(u.LogLinesPerSecond), bytesText(u.LogBytesPerSecond),
			fmt.Sprintf("%.4f", u.CPUCores), bytesText(u.MemoryBytes))
		if page.By == wire.CostByTenant {
			row = append(row, room...)
		}
		t.rows = append(t.rows, append(row, figure(u.PushesPerSecond), figure(u.RefusedPerSecond), regionals))
	}
	for _, r := range page.Rows {
		var first []string
		switch page.By {
		case wire.CostBySite:
			first = []string{r.Name, r.Tenant}
		case wire.CostByVirtualSite:
			first = []string{r.Namespace + "/" + r.Name, r.Tenant, strconv.Itoa(r.Sites)}
		default:
			first = []string{r.Tenant, strconv.Itoa(r.Sites)}
		}
		limit := "-"
		if r.SeriesLimit > 0 {
			limit = strconv.FormatInt(r.SeriesLimit, 10)
		}
		line(first, r.Use, []string{limit, moreText(r.MoreSites)}, orDash(strings.Join(r.Regionals, ",")))
	}
	if len(page.Rows) > 1 {
		all := make([]string, len(lead))
		all[0] = fmt.Sprintf("all %d", page.Total)
		line(all, page.Sum, []string{"", ""}, "")
	}
	if err := g.print(w, page, t); err != nil {
		return err
	}
	if page.NextCursor != "" {
		fmt.Fprintf(w, "%d of %d; more with -n\n", len(page.Rows), page.Total)
	}
	for _, r := range page.Regionals {
		fmt.Fprintln(w, printable(headroomText(r)))
	}
	return nil
}

// moreText is how many more sites there is room for.
func moreText(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

// headroomText says how many more sites a regional carries, and why not more.
func headroomText(r wire.RegionalRoom) string {
	h := r.Headroom
	switch {
	case h.Sites == 0:
		return fmt.Sprintf("regional %s has no sites yet", r.Name)
	case h.MoreSites == nil:
		return fmt.Sprintf("regional %s, %d sites: how many more it carries is not known yet", r.Name, h.Sites)
	}
	why := h.First
	for _, x := range h.Resources {
		if x.Name == h.First {
			switch x.Name {
			case wire.ResourceMemory, wire.ResourceDisk:
				why = fmt.Sprintf("%s ends first, %s of %s used, %s a site", x.Name, bytesText(x.Used), bytesText(x.Limit), bytesText(x.PerSite))
			default:
				why = fmt.Sprintf("%s ends first, %s of %s used, %s a site", x.Name, figure(x.Used), figure(x.Limit), figure(x.PerSite))
				if x.Others > 0 {
					why += fmt.Sprintf("; other processes of its machine take %s more, without which it would carry more", figure(x.Others))
				}
			}
		}
	}
	if *h.MoreSites == 0 {
		return fmt.Sprintf("regional %s carries no more sites like its %d (%s)", r.Name, h.Sites, why)
	}
	return fmt.Sprintf("regional %s carries about %d more sites like its %d (%s)", r.Name, roughly(*h.MoreSites), h.Sites, why)
}

// roughly cuts an estimate to two digits.
func roughly(n int64) int64 {
	unit := int64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return n / unit * unit
}

// figure is a rate with about three digits.
func figure(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 1:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

func bytesText(v float64) string {
	return strings.ReplaceAll(humanize.IBytes(uint64(max(v, 0))), " ", "")
}
