package timeline

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"muster.dev/muster/internal/wire"
)

// Part is a role that keeps a part of the timeline, and the kinds of events in it.
type Part struct {
	Role  string
	URL   string // without a slash at its end
	Kinds []string
}

// Merger puts the parts of several roles together. Safe for concurrent use.
type Merger struct {
	Parts  []Part
	Client *http.Client
	// Patience is how long a part is waited for; default 2 s. What a part does not give is
	// missing from the page, which says so.
	Patience time.Duration
	Logger   *slog.Logger

	complain rate.Sometimes
}

// maxPartBytes bounds the answer of a part: events have bounded texts.
const maxPartBytes = 16 << 20

// Page is what all parts have, the newest first. tenants is wire.TenantsHeader; q has the
// parameters of wire.TimelinePath, checked or not: parts check them. A problem says that the
// question is wrong, or that no part answers.
func (m *Merger) Page(ctx context.Context, tenants string, q url.Values) (*wire.TimelinePage, *wire.Problem) {
	limit := defaultLimit
	if n, err := strconv.Atoi(q.Get("limit")); err == nil {
		limit = n
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(m.Patience, 2*time.Second))
	defer cancel()
	pages, problems := make([]*wire.TimelinePage, len(m.Parts)), make([]*wire.Problem, len(m.Parts))
	kinds := wire.Values(q["kind"])
	var wg sync.WaitGroup
	asked := 0
	for i, p := range m.Parts {
		// A kind that there is not is for the parts to refuse.
		if len(kinds) > 0 && !slices.ContainsFunc(kinds, func(k string) bool { return slices.Contains(p.Kinds, k) || !slices.Contains(wire.TimelineKinds, k) }) {
			continue
		}
		asked++
		wg.Go(func() { pages[i], problems[i] = m.ask(ctx, p, tenants, q) })
	}
	wg.Wait()
	out := &wire.TimelinePage{Events: []wire.TimelineEvent{}}
	more := false
	for i, p := range m.Parts {
		switch page, problem := pages[i], problems[i]; {
		case page != nil:
			out.Events = append(out.Events, page.Events...)
			more = more || page.NextCursor != ""
		case problem != nil && problem.Status < 500:
			return nil, problem
		case problem != nil:
			m.complain.Do(func() {
				m.Logger.Warn("a part of the timeline does not answer", "role", p.Role, "err", problem.Detail)
			})
			out.Missing = append(out.Missing, wire.TimelineMissing{Role: p.Role, Kinds: p.Kinds, Reason: problem.Detail})
		}
	}
	if asked > 0 && len(out.Missing) == asked {
		return nil, wire.Failure(http.StatusServiceUnavailable, "no role that keeps the timeline answers; try again in a few seconds: %s", out.Missing[0].Reason)
	}
	slices.SortFunc(out.Events, func(a, b wire.TimelineEvent) int {
		return cmp.Or(strings.Compare(b.ID, a.ID), strings.Compare(a.Tenant, b.Tenant))
	})
	if len(out.Events) > limit {
		out.Events, more = out.Events[:limit], true
	}
	if more && len(out.Events) > 0 {
		last := out.Events[len(out.Events)-1]
		out.NextCursor = wire.EncodeCursor(wire.TimelinePosition{ID: last.ID, Tenant: last.Tenant})
	}
	return out, nil
}

func (m *Merger) ask(ctx context.Context, p Part, tenants string, q url.Values) (*wire.TimelinePage, *wire.Problem) {
	away := func(err error) (*wire.TimelinePage, *wire.Problem) {
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer in time: %w", ctx.Err())
		}
		return nil, wire.Failure(http.StatusServiceUnavailable, "%s: %v", p.Role, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+wire.TimelinePath+"?"+q.Encode(), nil)
	if err != nil {
		return away(err)
	}
	r.Header.Set(wire.TenantsHeader, tenants)
	res, err := m.Client.Do(r)
	if err != nil {
		return away(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxPartBytes))
	if err != nil {
		return away(err)
	}
	if res.StatusCode != http.StatusOK {
		var problem wire.Problem
		if res.StatusCode == http.StatusBadRequest && json.Unmarshal(body, &problem) == nil && problem.Detail != "" {
			problem.Status = res.StatusCode
			return nil, &problem
		}
		return away(fmt.Errorf("answers %s", res.Status))
	}
	var page wire.TimelinePage
	if err := json.Unmarshal(body, &page); err != nil {
		return away(fmt.Errorf("an answer that is no page: %w", err))
	}
	return &page, nil
}
