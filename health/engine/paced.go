package engine

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/promexpr"
)

// How often a site is scraped is what its CollectionPolicies say. Sites of a slow pace are asked about by
// queries of their own, which look back as far as that needs (promexpr.Paced, fleet.Lookback), and are
// judged by a model that waits an interval longer for telemetry. A fleet of one pace has
// queries of that pace alone.

// telemetryAges are the metrics that tell how old what a site sent is.
var telemetryAges = []string{fleet.MetricSiteLastPush, "muster_collector_push_delay_seconds"}

// early is by how much the samples that were sent last may be older than their push, since a site's targets are
// scraped one after the other, and how long a colour waits for a second look.
const early = 90 * time.Second

// patient is a model for the sites of a pace: the thresholds of signals that are the age of telemetry, in
// seconds, are the interval higher. Up to a minute they allow for it already. One that a quick site reaches as what
// it sent last ceases to say anything is bad before that at a slow one too, which is then red and not
// grey first: as much later as a sample says something, less the looks that may come between and what is early.
func patient(m *health.Model, pace, tick time.Duration) *health.Model {
	if pace <= fleet.Quick {
		return m
	}
	later := map[string]health.Change{}
	for i := range m.Signals {
		s := &m.Signals[i]
		expr, err := parser.ParseExpr(s.Query)
		if err != nil || s.Unit != "seconds" || s.Good > s.Bad || !promexpr.Reads(expr, telemetryAges...) {
			continue
		}
		good, bad := s.Good+pace.Seconds(), s.Bad+pace.Seconds()
		if s.Bad > lookback.Seconds() {
			bad = min(bad, s.Bad+(fleet.Lookback(pace)-lookback-2*time.Duration(askedEvery(pace))*tick-early).Seconds())
			good = min(good, bad-(s.Bad-s.Good)/4)
		}
		later[s.Name] = health.Change{Good: &good, Bad: &bad}
	}
	out, err := m.With(later)
	if err != nil {
		return m // two thresholds stay as far apart as they are
	}
	return out
}

// askedEvery is how many ticks apart sites of a pace are asked about, at least: four or five times
// between two scrapes, as the quickest ones are once.
func askedEvery(pace time.Duration) int { return max(1, int(pace/(75*time.Second))) }

// Query is a signal's query as it is asked at the site, for whoever can't say how far PromQL is to look back.
func (s *Site) Query(signal *health.Signal) string {
	pace := s.Site.Pace()
	expr, err := parser.ParseExpr(signal.Query)
	if pace == 0 || err != nil || signal.Name == health.SignalUplink || signal.Name == health.SignalFlapping {
		return signal.Query
	}
	expr = promexpr.Paced(expr, pace)
	if d := fleet.Lookback(pace); d > lookback {
		expr = promexpr.Held(expr, d)
	}
	return expr.String()
}

// patience is how long a site that never had a stream may be without an acknowledged push.
func (o *Options) patience(site *inventory.Site) time.Duration { return o.patienceAt(site.Pace()) }

func (o *Options) patienceAt(pace time.Duration) time.Duration {
	if pace > fleet.Quick {
		return max(o.PushPatience, fleet.TwoScrapes(pace))
	}
	return o.PushPatience
}

// members are the names of the sites of each pace at a place.
type members map[time.Duration][]string

func (m members) add(pace time.Duration, name string) {
	if pace > 0 && len(m[pace]) <= namedAtOnce {
		m[pace] = append(m[pace], name)
	}
}

const (
	// maxPattern bounds what names sites in a query, maxNamed all of it in one query, whose selectors
	// each have it: what regionals answer is bounded (promcost.Query).
	maxPattern = 4000
	maxNamed   = 16 << 10
)

// about puts sites at each sitesMark of a query, or any site where they are too many to be named.
func (q query) about(names []string) query {
	list := ".+"
	if n := len(names); n > 0 && n <= namedAtOnce {
		quoted := make([]string, n)
		for i, name := range names {
			quoted[i] = regexp.QuoteMeta(name)
		}
		text := strconv.Quote(strings.Join(quoted, "|"))
		if text = text[1 : len(text)-1]; len(text) <= maxPattern && len(text)*strings.Count(q.text, sitesMark) <= maxNamed {
			list = text
		}
	}
	q.text = strings.ReplaceAll(q.text, sitesMark, list)
	return q
}
