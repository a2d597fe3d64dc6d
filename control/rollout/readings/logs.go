package readings

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
)

// logSites is how many sites one log query names.
const logSites = 500

// errNoSites says that nobody has the change yet.
var errNoSites = errors.New("no site has the change yet")

// logs counts the lines of the wave's sites since it began.
func (r *Readings) logs(ctx context.Context, q *Question, g *v1alpha1.GateLogs) *decide.Outside {
	if len(q.Changed) == 0 {
		out := unknown("the logs: %v", errNoSites)
		return &out
	}
	since, key := q.Since, q.key(g.Query, strconv.FormatInt(g.MaxCount, 10))
	if since.IsZero() {
		since = time.Now().Add(-time.Hour)
	}
	sites := slices.Clone(q.Changed)
	out, _, err := r.lines.get(ctx, key, func(ctx context.Context) (decide.Outside, error) {
		release, err := r.slots.Acquire(ctx, turns.Class{Tenant: q.Tenant})
		if err != nil {
			return decide.Outside{}, errors.New("too many log queries of this tenant's gates are under way")
		}
		defer release()
		var count int64
		missing := map[string]bool{}
		for batch := range slices.Chunk(sites, logSites) {
			page, p := r.o.Logs.Search(ctx, q.Tenant, wire.LogQuery{Text: g.Query, Sites: batch, From: since.UTC().Format(time.RFC3339Nano), Limit: 1})
			if p != nil {
				return decide.Outside{}, p
			}
			count += page.Total
			for _, m := range page.MissingRegions {
				missing[m.Region] = true
			}
		}
		return counted(count, g.MaxCount, missing), nil
	})
	if err != nil {
		out = unknown("the logs: %v", plain(err))
	}
	return &out
}

// counted is the reading of a count. Lines don't become fewer: too many are too many,
// though a region may be missing.
func counted(count, limit int64, missing map[string]bool) decide.Outside {
	out := decide.Outside{Verdict: v1alpha1.GatePass, Value: fmt.Sprint(count), Text: fmt.Sprintf("%d lines match, of at most %d", count, limit)}
	var names []string
	for name := range missing {
		names = append(names, name)
	}
	slices.Sort(names)
	switch {
	case count > limit:
		out.Verdict = v1alpha1.GateFail
	case len(names) > 0:
		out.Verdict = v1alpha1.GateUnknown
		out.Text += "; without the logs of " + strings.Join(names, ", ")
	}
	return out
}

// key is who asks, in which wave, and what.
func (q *Question) key(what ...string) string {
	return strings.Join(append([]string{q.Tenant, q.Namespace, q.Rollout, q.Since.UTC().Format(time.RFC3339Nano)}, what...), "\x00")
}
