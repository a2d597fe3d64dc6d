package sites

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/sitequery"
)

const (
	// linksFresh is how long figures are used without asking anew: what is asked for covers
	// all tenants, and sites tell no oftener.
	linksFresh = 15 * time.Second
	// linksPatience is what a page waits for them: then it has older ones, or those that came.
	linksPatience = 2 * time.Second
	// linksWait is what a regional may take where there are older ones meanwhile.
	linksWait = 5 * time.Second
	// linksKept is how old figures may be that stand for those that are late.
	linksKept = 2 * time.Minute
)

// linkQueries are what the figures of sitequery.Link are, at their positions: what agents
// measure (docs/reference/link-metrics.md).
var linkQueries = func() []string {
	of := func(expr string) string { return strings.ReplaceAll(expr, "$", "muster_agent_link_") }
	q := make([]string, len(sitequery.Link{}))
	q[sitequery.LinkRoundTrip] = of(`1000 * max by (tenant, site) ($round_trip_seconds{connection="stream"})`)
	q[sitequery.LinkLoss] = of(`100 * sum by (tenant, site) (rate($segments_retransmitted_total[5m])) / (sum by (tenant, site) (rate($segments_sent_total[5m])) > 0)`)
	q[sitequery.LinkSent] = of(`sum by (tenant, site) (rate($sent_bytes_total[2m]))`)
	q[sitequery.LinkReceived] = of(`sum by (tenant, site) (rate($received_bytes_total[2m]))`)
	q[sitequery.LinkHandshake] = of(`1000 * max by (tenant, site) ($handshake_seconds{connection="stream"})`)
	q[sitequery.LinkReconnects] = of(`round(sum by (tenant, site) (increase($connects_total{connection="stream"}[1h])))`)
	q[sitequery.LinkRequests] = of(`60 * sum by (tenant, site) (rate($request_seconds_count[5m]))`)
	q[sitequery.LinkErrors] = of(`100 * sum by (tenant, site) (rate($request_errors_total[5m])) / (sum by (tenant, site) (rate($request_seconds_count[5m])) > 0)`)
	return q
}()

// Measure asks the regionals for figures of a view's sites, as engine.Engine.Measure does.
type Measure func(ctx context.Context, view *engine.View, queries []string) (values [][]float64, failed map[string]error)

// links remembers the figures of links for as long as they are asked about.
type links struct {
	measure Measure
	log     *slog.Logger
	flights singleflight.Group
	mu      sync.Mutex
	last    *measured
}

// measured are the figures of a snapshot's sites, in their order.
type measured struct {
	at     time.Time
	snap   *inventory.Snapshot
	links  []sitequery.Link
	failed []string // regionals
}

// of are the figures of the sites of a view, in its order, and notes about who did not tell.
// nil: none are known.
func (l *links) of(ctx context.Context, view *engine.View) ([]sitequery.Link, []string) {
	if l.measure == nil {
		return nil, []string{"what links are like is not known: no regional is asked"}
	}
	l.mu.Lock()
	m := l.last
	l.mu.Unlock()
	if m != nil && time.Since(m.at) >= linksKept {
		m = nil
	}
	late := false
	if m == nil || time.Since(m.at) >= linksFresh {
		wait, patience := linksWait, linksPatience
		if m == nil {
			wait, patience = linksPatience, linksWait
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		select {
		case r := <-l.flights.DoChan("", func() (any, error) { return l.ask(ctx, view, wait), nil }):
			m = r.Val.(*measured)
		case <-ctx.Done():
			if m == nil {
				return nil, []string{"what links are like is not known: the regionals have not answered within " + patience.String()}
			}
			late = true
		}
	}
	notes := make([]string, len(m.failed))
	for i, name := range m.failed {
		notes[i] = "the figures of links to regional " + name + " are not all known: it did not answer"
	}
	if late && len(notes) == 0 {
		notes = append(notes, "the figures of links are "+time.Since(m.at).Round(time.Second).String()+" old: the regionals have not all answered yet")
	}
	return m.as(view), notes
}

func (l *links) ask(ctx context.Context, view *engine.View, wait time.Duration) *measured {
	// Whoever asked first may go away before the others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	m := &measured{snap: view.Snapshot, links: make([]sitequery.Link, len(view.Sites))}
	values, failed := l.measure(ctx, view, linkQueries)
	for i := range m.links {
		for q := range values {
			v := values[q][i]
			if math.IsInf(v, 0) || v < 0 { // no figure of a link can be
				v = math.NaN()
			}
			m.links[i][q] = v
		}
	}
	m.failed = slices.Sorted(maps.Keys(failed))
	for _, name := range m.failed {
		l.log.Warn("figures of links can't be read", "regional", name, "err", failed[name])
	}
	m.at = time.Now()
	l.mu.Lock()
	l.last = m
	l.mu.Unlock()
	return m
}

// as is the same in the order of another view.
func (m *measured) as(view *engine.View) []sitequery.Link {
	if m.snap == view.Snapshot {
		return m.links
	}
	unknown := sitequery.Link(slices.Repeat([]float64{math.NaN()}, len(sitequery.Link{})))
	out := make([]sitequery.Link, len(view.Sites))
	for i, s := range view.Sites {
		if j := m.snap.Find(s.ID.Tenant, s.ID.Name); j >= 0 {
			out[i] = m.links[j]
		} else {
			out[i] = unknown
		}
	}
	return out
}
