package logrules

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/control/api/logrule"
	"muster.dev/muster/internal/logquery"
)

// Bounds on what top_count_keys may cost at the end of one stretch.
const (
	maxTopCounts  = 10 // alerts that are counted for; the others come without
	maxTopGroups  = 1000
	topCountsTime = 10 * time.Second
	maxTopSpan    = 7 * 24 * time.Hour // of a longer timeframe the last of it
)

// topCounts writes into the alerts that a stretch has raised which values of top_count_keys their
// lines have most. It counts anew what came in during the last timeframe or aggregation: a
// window knows no other fields. An alert does not wait for it, and goes without if the store has no answer.
func (u *unit) topCounts(ctx context.Context, w *owner, told []*active, upTo time.Time) {
	r := u.plan.rule
	if len(r.TopCountKeys) == 0 || len(told) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, topCountsTime)
	defer cancel()
	span := time.Duration(max(u.plan.timeframe, millis(r.Aggregation))) * time.Millisecond
	from := upTo.Add(-min(span, maxTopSpan))
	if u.st.Position.Before(from) {
		from = u.st.Position
	}
	slices.SortStableFunc(told, func(a, b *active) int { return cmp.Compare(a.Site, b.Site) })
	for _, a := range told[:min(len(told), maxTopCounts)] {
		for _, name := range r.TopCountKeys {
			f, err := logrule.ParseField(name)
			annotation := "top_" + f.Label
			if err != nil || r.Annotations[annotation] != "" {
				continue
			}
			g, err := w.Source.Groups(ctx, Query{Tenant: u.id.Sites, Text: u.plan.linesOf(a), Sites: []string{a.Site}, After: from, UpTo: upTo,
				By: []string{logquery.FieldSite, f.Name}, Step: maxLearn, MaxGroups: maxTopGroups})
			if err != nil {
				w.Logger.Warn("an alert of a log rule goes without its top_count_keys", "rule", u.id.String(), "site", a.Site, "error", err)
				return
			}
			a.Annotations[annotation] = top(g, cmp.Or(int(r.TopCountNumber), logrule.DefaultTopCount))
		}
	}
}

// linesOf is a query for the lines that an alert is of.
func (p *plan) linesOf(a *active) string {
	var parts []string
	if p.rule.Filter != "" {
		parts = append(parts, "("+p.rule.Filter+")")
	}
	for _, f := range p.alertOf {
		if v := a.Labels[f.Label]; v != "" {
			parts = append(parts, f.Name+`:"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v)+`"`)
		}
	}
	return strings.Join(parts, " AND ")
}

// top lists the values that most lines have, the first n of them.
func top(g Groups, n int) string {
	lines := map[string]int64{}
	for _, of := range g.Groups {
		if v := of.Key[len(of.Key)-1]; v != "" {
			lines[v] += of.Count
		}
	}
	var out []string
	for _, v := range slices.SortedFunc(maps.Keys(lines), func(a, b string) int { return cmp.Or(cmp.Compare(lines[b], lines[a]), cmp.Compare(a, b)) }) {
		if len(out) == n {
			out = append(out, fmt.Sprintf("%d more", len(lines)-n))
			break
		}
		out = append(out, fmt.Sprintf("%s: %d", clip(v), lines[v]))
	}
	switch {
	case len(out) == 0:
		return "no line has it"
	case g.Truncated:
		out = append(out, "and more that were not counted")
	}
	return strings.Join(out, ", ")
}
