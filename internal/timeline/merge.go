package timeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
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

// Part is a role that keeps a part of the timeline, and the kinds of events in it. There may be several of one
// role, each with a store of its own.
type Part struct {
	Role  string
	URL   string // without a slash at its end
	Kinds []string
	// Shared are the kinds of which each part of the role has what happened, as it saw it.
	Shared []string
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
	kinds := wire.Values(q["kind"])
	var roles [][]Part
	for _, p := range m.Parts {
		// A kind that there is not is for the parts to refuse.
		if len(kinds) > 0 && !slices.ContainsFunc(kinds, func(k string) bool { return slices.Contains(p.Kinds, k) || !slices.Contains(wire.TimelineKinds, k) }) {
			continue
		}
		if i := slices.IndexFunc(roles, func(parts []Part) bool { return parts[0].Role == p.Role }); i >= 0 {
			roles[i] = append(roles[i], p)
		} else {
			roles = append(roles, []Part{p})
		}
	}
	answers := make([]told, len(roles))
	var wg sync.WaitGroup
	for i, parts := range roles {
		wg.Go(func() { answers[i] = m.of(ctx, parts, tenants, q, limit) })
	}
	wg.Wait()
	out := &wire.TimelinePage{Events: []wire.TimelineEvent{}}
	more, asked, from := false, 0, wire.TimelineEvent{}
	for i, t := range answers {
		if t.problem != nil {
			return nil, t.problem
		}
		asked += len(roles[i])
		out.Events = append(out.Events, t.events...)
		out.Missing = append(out.Missing, t.missing...)
		if n := len(t.events); t.more && n > 0 {
			if last := t.events[n-1]; !more || newestFirst(last, from) < 0 {
				from = last
			}
			more = true
		}
	}
	if asked > 0 && len(out.Missing) == asked {
		return nil, wire.Failure(http.StatusServiceUnavailable, "no role that keeps the timeline answers; try again in a few seconds: %s", out.Missing[0].Reason)
	}
	slices.SortFunc(out.Events, newestFirst)
	if more { // what is older than the last that a role told may have others of that role before it
		out.Events = slices.DeleteFunc(out.Events, func(e wire.TimelineEvent) bool { return newestFirst(e, from) > 0 })
	}
	if len(out.Events) > limit {
		out.Events, more = out.Events[:limit], true
	}
	if more && len(out.Events) > 0 {
		out.NextCursor = cursorAt(out.Events[len(out.Events)-1])
	}
	return out, nil
}

func newestFirst(a, b wire.TimelineEvent) int {
	return cmp.Or(strings.Compare(b.ID, a.ID), strings.Compare(a.Tenant, b.Tenant))
}

func cursorAt(e wire.TimelineEvent) string {
	return wire.EncodeCursor(wire.TimelinePosition{ID: e.ID, Tenant: e.Tenant})
}

// told is what the parts of one role have: events, the newest first, and which parts don't answer.
type told struct {
	events  []wire.TimelineEvent
	more    bool
	missing []wire.TimelineMissing
	problem *wire.Problem // with the question
}

const (
	// twinsWithin is how far apart two parts see the same thing: each looks every few seconds, and
	// what one of them had to be sent again came later there.
	twinsWithin = time.Minute
	// maxRounds bounds how often parts are asked until a page is full of what none of them tells
	// twice. One that isn't by then is short.
	maxRounds = 5
)

// of asks the parts of one role. Of several, what more than one has seen is told once, as the first
// that saw it tells it: whether an event is left out depends on older ones alone, so that pages fit together.
func (m *Merger) of(ctx context.Context, parts []Part, tenants string, q url.Values, limit int) told {
	var out told
	away := make([]bool, len(parts))
	if len(parts) == 1 {
		for _, s := range m.round(ctx, parts, away, tenants, q, &out) {
			out.events = append(out.events, s.TimelineEvent)
		}
		return out
	}
	asked := url.Values{}
	maps.Copy(asked, q)
	q = asked
	most := min(max(2*limit, 2*defaultLimit), maxLimit)
	if limit >= 1 && limit <= maxLimit { // else it is for the parts to refuse
		q.Set("limit", strconv.Itoa(most))
	}
	var all []sighting
	for range maxRounds {
		round := sameOnce(m.round(ctx, parts, away, tenants, q, &out))
		if len(round) > most {
			round, out.more = round[:most], true // what follows may lack some of a part's
		}
		if all = append(all, round...); len(all) == 0 {
			return out
		}
		out.events = twinsOnce(all, parts[0].Shared)
		if !out.more {
			break
		}
		// Of what is younger than this the first to see it is here.
		oldest := all[len(all)-1].TimelineEvent
		sure := slices.IndexFunc(out.events, func(e wire.TimelineEvent) bool { return e.Time.Before(oldest.Time.Add(twinsWithin)) })
		if sure > 0 {
			out.events = out.events[:sure]
		}
		if sure >= limit || len(round) == 0 {
			break
		}
		q.Set("cursor", cursorAt(oldest))
	}
	if len(out.events) > limit {
		out.events, out.more = out.events[:limit], true
	}
	return out
}

// sighting is an event, and the parts that have told it, a bit each.
type sighting struct {
	wire.TimelineEvent
	by uint64
}

// sameOnce sorts, the newest first, and has what several parts have as the very same event once.
func sameOnce(list []sighting) []sighting {
	slices.SortFunc(list, func(a, b sighting) int { return newestFirst(a.TimelineEvent, b.TimelineEvent) })
	out := list[:0]
	for _, s := range list {
		if n := len(out); n > 0 && newestFirst(out[n-1].TimelineEvent, s.TimelineEvent) == 0 {
			out[n-1].by |= s.by
			continue
		}
		out = append(out, s)
	}
	return out
}

// twinsOnce leaves out what another part has told, and sooner: the same thing of the same kind.
func twinsOnce(all []sighting, shared []string) []wire.TimelineEvent {
	type thing struct{ kind, tenant, site, object, link, after string }
	type first struct {
		at time.Time
		by uint64
	}
	seen := map[thing][]*first{}
	var out []wire.TimelineEvent
	for _, s := range slices.Backward(all) {
		if slices.Contains(shared, s.Kind) {
			is := thing{s.Kind, s.Tenant, s.Site, s.Object, s.Link, s.After}
			i := slices.IndexFunc(seen[is], func(f *first) bool { return f.by&s.by == 0 && s.Time.Sub(f.at) <= twinsWithin })
			if i >= 0 {
				seen[is][i].by |= s.by
				continue
			}
			seen[is] = append(seen[is], &first{s.Time, s.by})
		}
		out = append(out, s.TimelineEvent)
	}
	slices.Reverse(out)
	return out
}

// round asks each part that is not away, at the same time, and notes in out what became of it.
func (m *Merger) round(ctx context.Context, parts []Part, away []bool, tenants string, q url.Values, out *told) []sighting {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(m.Patience, 2*time.Second))
	defer cancel()
	pages, refusals := make([]*wire.TimelinePage, len(parts)), make([]*refusal, len(parts))
	var wg sync.WaitGroup
	for i, p := range parts {
		if !away[i] {
			wg.Go(func() { pages[i], refusals[i] = m.ask(ctx, p, tenants, q) })
		}
	}
	wg.Wait()
	had := out.more
	out.more = false
	var all []sighting
	for i, p := range parts {
		switch page, r := pages[i], refusals[i]; {
		case page != nil:
			for _, e := range page.Events {
				all = append(all, sighting{e, 1 << i})
			}
			out.more = out.more || page.NextCursor != ""
		case r != nil && r.Status < 500:
			out.problem = &r.Problem
		case r != nil:
			away[i], out.more = true, out.more || had
			m.complain.Do(func() {
				m.Logger.Warn("a part of the timeline does not answer", "role", p.Role, "url", p.URL, "err", r.Detail)
			})
			missing := wire.TimelineMissing{Role: p.Role, Kinds: p.Kinds, Reason: r.Detail, Late: r.late}
			if len(parts) > 1 {
				missing.At = p.URL[strings.LastIndexByte(p.URL, '/')+1:]
			}
			out.missing = append(out.missing, missing)
		}
	}
	return all
}

// refusal is why a part gives no page; late: it may still.
type refusal struct {
	wire.Problem
	late bool
}

func (m *Merger) ask(ctx context.Context, p Part, tenants string, q url.Values) (*wire.TimelinePage, *refusal) {
	away := func(err error) (*wire.TimelinePage, *refusal) {
		late := errors.Is(ctx.Err(), context.DeadlineExceeded)
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer in time: %w", ctx.Err())
		}
		return nil, &refusal{*wire.Failure(http.StatusServiceUnavailable, "%s: %v", p.Role, err), late}
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
			return nil, &refusal{Problem: problem}
		}
		return away(fmt.Errorf("answers %s", res.Status))
	}
	var page wire.TimelinePage
	if err := json.Unmarshal(body, &page); err != nil {
		return away(fmt.Errorf("an answer that is no page: %w", err))
	}
	return &page, nil
}
