package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"muster.dev/muster/internal/wire"
)

type timelineFlags struct {
	scope scope
	kinds []string
	since string
	limit int
	watch bool
}

func timelineCmd(g *Globals) *cobra.Command {
	var f timelineFlags
	cmd := &cobra.Command{
		Use:   "timeline",
		Short: "What happened: colours, alerts, edits, rollouts, maintenance, software",
		Long: `Print what happened, the oldest first: the newest events of --since, at most --limit of them.
With --watch it goes on as things happen.

Kinds: ` + strings.Join(wire.TimelineKinds, ", ") + `.`,
		Example: `  muster timeline --site paris-07
  muster timeline --virtual-site stores --kind colour,alert --since 7d
  muster timeline --kind rollout -w`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := g.api()
			if err != nil {
				return err
			}
			return g.timeline(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), a, &f)
		},
	}
	f.scope.addFlags(cmd)
	cmd.Flags().StringSliceVar(&f.kinds, "kind", nil, "only these kinds")
	cmd.Flags().StringVar(&f.since, "since", "24h", "how far back, such as 30m, 24h or 7d")
	cmd.Flags().IntVar(&f.limit, "limit", 200, "how many events at most")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on as things happen")
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(wire.TimelineKinds, cobra.ShellCompDirectiveNoFileComp))
	g.AddFlags(cmd)
	g.addOutput(cmd)
	g.addConsole(cmd)
	return cmd
}

// Events may come into the timeline some time after they happened: a watch looks so far back
// each time, and prints what it has not printed.
const (
	timelineEvery = 3 * time.Second
	timelineLate  = 5 * time.Minute
)

func (g *Globals) timeline(ctx context.Context, w, complain io.Writer, a *api, f *timelineFlags) error {
	d, err := model.ParseDuration(f.since)
	if err != nil || d <= 0 {
		return fmt.Errorf("--since %q: want such as 30m, 24h or 7d", f.since)
	}
	if f.limit < 1 {
		return fmt.Errorf("--limit %d: want at least 1", f.limit)
	}
	if f.watch && g.Output != "table" && g.Output != "wide" && g.Output != "json" {
		return fmt.Errorf("--watch prints a table, or with --output json an object a line; not %s", g.Output)
	}
	q := f.scope.query(g)
	for _, k := range f.kinds {
		if !slices.Contains(wire.TimelineKinds, k) {
			return fmt.Errorf("--kind %q: want one of %s", k, strings.Join(wire.TimelineKinds, ", "))
		}
		q.Add("kind", k)
	}
	began := time.Now()
	events, err := f.fetch(ctx, a, q, began.Add(-time.Duration(d)), f.limit, complain)
	if err != nil {
		return err
	}
	if len(events) == 0 { // what is no more may have happened before
		if err := f.scope.known(ctx, g, a); err != nil {
			return err
		}
	}
	if !f.watch {
		t := table{header: []string{"TIME", "KIND", "WHERE", "BY", "WHAT", "TENANT", "SEVERITY", "ID"}, wide: 5}
		for _, e := range events {
			t.rows = append(t.rows, timelineRow(&e))
		}
		return g.print(w, events, t)
	}
	seen := map[string]time.Time{}
	var newest time.Time // by the fleet's clocks: this machine's may be ahead of them
	for {
		for i := range events {
			e := &events[i]
			if _, is := seen[e.Tenant+e.ID]; is {
				continue
			}
			seen[e.Tenant+e.ID] = e.Time
			if e.Time.After(newest) {
				newest = e.Time
			}
			if g.Output == "json" {
				if _, err := g.encode(w, e); err != nil {
					return err
				}
				continue
			}
			row := timelineRow(e)
			fmt.Fprintf(w, "%s  %-12s  %-20s  %s\n", row[0], row[1], row[2], row[4])
		}
		from := newest.Add(-timelineLate)
		for id, at := range seen {
			if at.Before(from.Add(-timelineLate)) {
				delete(seen, id)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(timelineEvery):
		}
		// What was older than the first page's is no news.
		if start := began.Add(-time.Duration(d)); from.Before(start) {
			from = start
		}
		if events, err = f.fetch(ctx, a, q, from, 1000, complain); err != nil && ctx.Err() == nil {
			fmt.Fprintf(complain, "%v; still trying\n", err)
		}
	}
}

// fetch returns the newest events since from, the oldest first.
func (f *timelineFlags) fetch(ctx context.Context, a *api, q url.Values, from time.Time, limit int, complain io.Writer) ([]wire.TimelineEvent, error) {
	q.Set("from", from.UTC().Format(time.RFC3339))
	q.Del("cursor")
	all := []wire.TimelineEvent{}
	for len(all) < limit {
		q.Set("limit", strconv.Itoa(min(limit-len(all), 1000)))
		var page wire.TimelinePage
		if err := a.get(ctx, wire.TimelinePath, q, &page); err != nil {
			return nil, err
		}
		for _, m := range page.Missing {
			if q.Get("cursor") == "" {
				fmt.Fprintf(complain, "not here: %s, which %s keeps (%s)\n", strings.Join(m.Kinds, ", "), m.Name(), m.Reason)
			}
		}
		all = append(all, page.Events...)
		if page.NextCursor == "" {
			break
		}
		if len(page.Events) == 0 {
			return nil, errors.New("the console gave a page without events, and another after it")
		}
		q.Set("cursor", page.NextCursor)
	}
	slices.Reverse(all)
	return all, nil
}

func timelineRow(e *wire.TimelineEvent) []string {
	where := e.Site
	if where == "" {
		where = e.Object
		if e.Namespace != "" {
			where = e.Namespace + "/" + where
		}
	}
	return []string{e.Time.UTC().Format("2006-01-02 15:04:05Z"), e.Kind, orDash(printable(where)), orDash(printable(e.By)), printable(e.Text), e.Tenant, e.Severity, e.ID}
}
