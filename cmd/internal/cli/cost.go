package cli

import (
	"fmt"
	"io"
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
-o wide adds pushes, and those that got 429 and were sent again.`,
		Example: `  muster cost                                   the sites with the most series
  muster cost --sort cpu -n 5
  muster cost --by virtualsite
  muster cost --by tenant --sort logBytes
  muster cost --virtual-site shared/all-eu -o json`,
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
				var page wire.CostPage
				have := 0
				if all != nil {
					have = len(all.Rows)
					q.Set("cursor", all.NextCursor)
				}
				q.Set("limit", strconv.Itoa(min(limit-have, 1000)))
				if err := a.get(cmd.Context(), wire.CostPath, q, &page); err != nil {
					return err
				}
				if all != nil {
					page.Rows = append(all.Rows, page.Rows...)
				}
				all = &page
			}
			for _, m := range all.MissingRegions {
				fmt.Fprintf(cmd.ErrOrStderr(), "regional %s is missing from these figures: %s\n", printable(m.Region), printable(m.Reason))
			}
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
	return cmd
}

func (g *Globals) printCost(w io.Writer, page *wire.CostPage) error {
	if done, err := g.encode(w, page); done || err != nil {
		return err
	}
	lead := map[string][]string{wire.CostBySite: {"SITE", "TENANT"}, wire.CostByVirtualSite: {"VIRTUAL SITE", "TENANT", "SITES"}, wire.CostByTenant: {"TENANT", "SITES"}}[page.By]
	header := append(slices.Clone(lead), "SERIES", "SAMPLES/S", "BYTES/S", "LOG LINES/S", "LOG BYTES/S", "CPU", "MEMORY")
	t := table{header: append(header, "PUSHES/S", "REFUSED/S", "REGIONALS"), wide: len(header)}
	line := func(lead []string, u wire.Use, regionals string) {
		t.rows = append(t.rows, append(lead, strconv.FormatInt(u.Series, 10), figure(u.SamplesPerSecond), bytesText(u.WireBytesPerSecond), figure(u.LogLinesPerSecond), bytesText(u.LogBytesPerSecond),
			fmt.Sprintf("%.4f", u.CPUCores), bytesText(u.MemoryBytes), figure(u.PushesPerSecond), figure(u.RefusedPerSecond), regionals))
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
		line(first, r.Use, orDash(strings.Join(r.Regionals, ",")))
	}
	if len(page.Rows) > 1 {
		all := make([]string, len(lead))
		all[0] = fmt.Sprintf("all %d", page.Total)
		line(all, page.Sum, "")
	}
	if err := g.print(w, page, t); err != nil {
		return err
	}
	if page.NextCursor != "" {
		fmt.Fprintf(w, "%d of %d; more with -n\n", len(page.Rows), page.Total)
	}
	return nil
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
