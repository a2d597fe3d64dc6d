package sites

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"golang.org/x/sync/singleflight"

	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/fleet"
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

// linkPace is the pace of a site: the regionals are asked for the figures of each that occurs.
func linkPace(s *inventory.Site) time.Duration { return fleet.Pace(s.Interval()) }

// freshGauge is how old the sample of a gauge may be, which is PromQL's default.
const freshGauge = 5 * time.Minute

// linkQueries are what the figures of sitequery.Link are, at their positions, for sites of a pace:
// what agents measure (docs/reference/link-metrics.md). Tenants narrow them; none: all are meant.
func linkQueries(pace time.Duration, tenants []string) []string {
	window := fleet.RateWindow(pace)
	metric := func(name string, matchers ...string) string {
		if len(tenants) > 0 {
			matchers = append(matchers, "tenant=~"+strconv.Quote(strings.Join(tenants, "|")))
		}
		return "muster_agent_link_" + name + "{" + strings.Join(matchers, ",") + "}"
	}
	sum := func(f, name string, over time.Duration, matchers ...string) string {
		return "sum by (tenant, site) (" + f + "(" + metric(name, matchers...) + "[" + model.Duration(over).String() + "]))"
	}
	const stream = `connection="stream"`
	millis := func(name string) string {
		gauge := metric(name, stream)
		if 2*pace > freshGauge { // else a scrape that is lost, or late, leaves nothing to see
			gauge = "last_over_time(" + gauge + "[" + model.Duration(window).String() + "])"
		}
		return "1000 * max by (tenant, site) (" + gauge + ")"
	}
	share := func(of, all string) string {
		over := max(5*time.Minute, window)
		return "100 * " + sum("rate", of, over) + " / (" + sum("rate", all, over) + " > 0)"
	}
	q := make([]string, len(sitequery.Link{}))
	q[sitequery.LinkRoundTrip] = millis("round_trip_seconds")
	q[sitequery.LinkLoss] = share("segments_retransmitted_total", "segments_sent_total")
	q[sitequery.LinkSent] = sum("rate", "sent_bytes_total", window)
	q[sitequery.LinkReceived] = sum("rate", "received_bytes_total", window)
	q[sitequery.LinkHandshake] = millis("handshake_seconds")
	q[sitequery.LinkReconnects] = "round(" + sum("increase", "connects_total", time.Hour, stream) + ")"
	q[sitequery.LinkRequests] = "60 * " + sum("rate", "request_seconds_count", max(5*time.Minute, window))
	q[sitequery.LinkErrors] = share("request_errors_total", "request_seconds_count")
	return q
}

// linkQuestions are the queries for all sites of a view, a pace after the other, and where those of each
// site's pace begin.
func linkQuestions(view *engine.View) (queries []string, of []int) {
	tenants := map[time.Duration][]string{}
	for _, s := range view.Sites { // by tenant
		pace := linkPace(s.Site)
		if t := tenants[pace]; len(t) == 0 || t[len(t)-1] != s.ID.Tenant {
			tenants[pace] = append(t, s.ID.Tenant)
		}
	}
	from := map[time.Duration]int{}
	for _, pace := range fleet.Paces {
		mean := tenants[pace]
		if len(mean) == 0 {
			continue
		}
		if pace == fleet.Paces[0] {
			mean = nil // most of them, so that to name them saves nothing
		}
		from[pace] = len(queries)
		queries = append(queries, linkQueries(pace, mean)...)
	}
	of = make([]int, len(view.Sites))
	for i, s := range view.Sites {
		of[i] = from[linkPace(s.Site)]
	}
	return queries, of
}

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
		first, began := m == nil, time.Now()
		wait, patience := linksWait, linksPatience
		if first {
			wait, patience = linksPatience, linksWait
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		flight := func(wait time.Duration) <-chan singleflight.Result {
			return l.flights.DoChan("", func() (any, error) { return l.ask(ctx, view, wait), nil })
		}
		select {
		case r := <-flight(wait):
			m = r.Val.(*measured)
			if first && len(m.failed) > 0 && time.Since(began) >= linksPatience {
				flight(linksWait) // those that were late may have answered when the page asks again
			}
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
	queries, of := linkQuestions(view)
	values, failed := l.measure(ctx, view, queries)
	for i := range m.links {
		for q := range m.links[i] {
			v := values[of[i]+q][i]
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
