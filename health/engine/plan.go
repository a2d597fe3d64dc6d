package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/promcost"
	"muster.dev/muster/internal/promexpr"
)

// query is one query of a tick, asked once of every regional whatever the number
// of sites and policies that use it.
type query struct {
	text string
	// tenant confines the query: it is in every selector, and no other tenant's
	// series are taken from the answer. "": a shipped query, for all tenants.
	tenant string
	// storeOnly: asked only about sites whose regional is away or has no live view.
	storeOnly bool
	// lookback is how old the sample of an instant may be; 0: PromQL's default.
	lookback time.Duration
	// pace of the sites that it is about alone, which stand at sitesMark in it; 0: all.
	pace time.Duration
}

// binding says which query answers each signal of a model, for one tenant.
type binding struct {
	model *health.Model
	// query of each signal; -1 for one that can't be parsed.
	query []int
	err   []string // why, for each signal; ""
	// objects of each signal is the position of its query in plan.objects; -1: none.
	objects []int
	packs   []int // query of each pack; -1 for one that can't be parsed
	// reach is how far back each signal looks, packReach each pack.
	reach, packReach []time.Duration
}

// pushedQuery tells, from the store, until when a site's samples reach.
const pushedQuery = "max by (tenant, site) (" + fleet.MetricSiteLastPush + ")"

// newestQuery tells how new the store's samples are, of each regional.
const newestQuery = "max by (regional) (timestamp(" + fleet.MetricSiteConnected + "))"

// plan is what a tick asks.
type plan struct {
	queries  []query
	every    []int   // of each query: it is asked every so many ticks
	objects  []query // what names the objects to blame, with sitesMark for their sites
	pushed   int     // position of pushedQuery
	shipped  *binding
	policies map[*policy]*binding
}

func (p *plan) binding(policy *policy) *binding {
	if b := p.policies[policy]; b != nil {
		return b
	}
	return p.shipped
}

// planner makes plans, and remembers what it parsed.
type planner struct {
	shipped *health.Model
	known   map[string]bool // the shipped queries in canonical form
	parsed  map[question]parsedQuery
	last    *plan
	lastFor []*policy
}

// question is a query as it was written, and of whom it is asked.
type question struct {
	tenant, text string
	pace         time.Duration
}

type parsedQuery struct {
	query query
	slow  bool          // all of its windows are of slowWindow or more
	reach time.Duration // how far it looks back
	err   string
}

func newPlanner(shipped *health.Model) (*planner, error) {
	p := &planner{shipped: shipped, known: map[string]bool{}, parsed: map[question]parsedQuery{}}
	for i := range shipped.Signals {
		s := &shipped.Signals[i]
		if err := p.ship("signal "+s.Name, s.Query); err != nil {
			return nil, err
		}
		if s.Objects != "" {
			if err := p.ship("objects of signal "+s.Name, s.Objects); err != nil {
				return nil, err
			}
		}
	}
	for i := range shipped.Packs {
		if err := p.ship("pack "+shipped.Packs[i].Name, shipped.Packs[i].Query); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *planner) ship(what, text string) error {
	expr, err := parser.ParseExpr(text)
	if err != nil {
		return fmt.Errorf("shipped policy: %s: %w", what, err)
	}
	p.known[expr.String()] = true
	return nil
}

// plan returns what to ask for these policies, of which nil is the shipped one. The same policies give the same plan.
func (p *planner) plan(policies []*policy) *plan {
	if p.last != nil && slices.Equal(p.lastFor, policies) {
		return p.last
	}
	out := &plan{policies: map[*policy]*binding{}}
	index, objects := map[query]int{}, map[query]int{}
	used := map[question]parsedQuery{}
	// place finds a query's position in a list, -1 if it can't be asked.
	place := func(key question, change func(*query), index map[query]int, list *[]query) (int, string) {
		pq, ok := p.parsed[key]
		if !ok {
			pq = p.parse(key)
		}
		used[key] = pq
		if pq.err != "" {
			return -1, pq.err
		}
		q := pq.query
		if change != nil {
			change(&q)
		}
		if _, ok := index[q]; !ok {
			index[q] = len(*list)
			*list = append(*list, q)
		}
		return index[q], ""
	}
	// often says every how many ticks a query is asked: as often as one of its users
	// wants it.
	often := func(q, every int) {
		if q == len(out.every) {
			out.every = append(out.every, every)
		} else if q >= 0 {
			out.every[q] = min(out.every[q], every)
		}
	}
	bind := func(tenant string, m *health.Model, pace time.Duration) *binding {
		n := len(m.Signals)
		b := &binding{model: m, query: make([]int, n), err: make([]string, n), objects: make([]int, n), packs: make([]int, len(m.Packs)),
			reach: make([]time.Duration, n), packReach: make([]time.Duration, len(m.Packs))}
		for i := range m.Signals {
			s := &m.Signals[i]
			ofGateway := i == m.Uplink() || s.Name == health.SignalFlapping
			asked := question{tenant, s.Query, pace}
			if ofGateway {
				asked.pace = 0 // it writes every 15 s of each
			}
			b.query[i], b.err[i] = place(asked, func(q *query) { q.storeOnly = ofGateway }, index, &out.queries)
			b.reach[i] = used[asked].reach
			every := askedEvery(asked.pace)
			// It says nothing else a tick later, and costs a regional the most to answer. A
			// critical signal does not wait.
			if !s.Critical() && (s.Unit == "days" || used[asked].slow) {
				every = max(every, slowTicks)
			}
			often(b.query[i], every)
			if b.objects[i] = -1; s.Objects != "" {
				b.objects[i], _ = place(question{tenant, s.Objects, pace}, func(q *query) { q.text = worst(q.text, s.Good > s.Bad) }, objects, &out.objects)
			}
		}
		for i := range m.Packs {
			asked := question{tenant, m.Packs[i].Query, pace}
			b.packs[i], _ = place(asked, nil, index, &out.queries)
			b.packReach[i] = used[asked].reach
			often(b.packs[i], max(packTicks, askedEvery(pace)))
		}
		return b
	}
	for _, policy := range policies {
		switch {
		case policy == nil:
			out.shipped = bind("", p.shipped, 0)
		case policy.model == nil:
		case policy.Policy == nil:
			out.policies[policy] = bind("", policy.model, policy.pace)
		default:
			out.policies[policy] = bind(policy.Tenant, policy.model, policy.pace)
		}
	}
	for _, policy := range policies { // who is not asked about has what a variant has
		switch {
		case policy == nil || policy.pace == 0:
		case policy.base == nil && out.shipped == nil:
			out.shipped = out.policies[policy]
		case policy.base != nil && out.policies[policy.base] == nil:
			out.policies[policy.base] = out.policies[policy]
		}
	}
	out.pushed = len(out.queries)
	out.queries = append(out.queries, query{text: pushedQuery, storeOnly: true})
	out.every = append(out.every, 1)
	p.last, p.lastFor, p.parsed = out, slices.Clone(policies), used
	return out
}

const (
	// Signals that move slowly are asked for every slowTicks ticks, packs, which stand for a
	// day, every packTicks.
	slowTicks, packTicks = 3, 4
	// slowWindow is how far a slow signal looks back at least, unless it counts days.
	slowWindow = 5 * time.Minute
)

// looksBack is the shortest window of a query; negative for one without.
func looksBack(expr parser.Expr) time.Duration {
	shortest := time.Duration(-1)
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		window := time.Duration(-1)
		switch n := n.(type) {
		case *parser.MatrixSelector:
			window = n.Range
		case *parser.SubqueryExpr:
			window = n.Range
		}
		if window >= 0 && (shortest < 0 || window < shortest) {
			shortest = window
		}
		return nil
	})
	return shortest
}

func (p *planner) parse(of question) parsedQuery {
	expr, err := promcost.Rule.Parse(of.text, promcost.Window{})
	known := err == nil && p.known[expr.String()]
	pq := parsedQuery{query: query{tenant: of.tenant}}
	if known {
		pq.query.tenant = ""
	}
	if err == nil && of.pace > 0 {
		expr, err = pq.query.slow(expr, of.pace)
	}
	if tooMuch := (*promcost.Error)(nil); errors.As(err, &tooMuch) {
		return parsedQuery{err: "the query is not asked: " + err.Error()}
	} else if err != nil {
		return parsedQuery{err: "the query can't be parsed: " + strings.TrimSpace(err.Error())}
	}
	if t := expr.Type(); t != parser.ValueTypeVector {
		return parsedQuery{err: fmt.Sprintf("the query returns a %s, want an instant vector: aggregate `by (tenant, site)`", parser.DocumentedType(t))}
	}
	pq.slow, pq.reach = looksBack(expr) >= slowWindow, promexpr.Reach(expr, max(lookback, pq.query.lookback))
	if !known {
		if err := confine(expr, of.tenant); err != nil {
			return parsedQuery{err: err.Error()}
		}
	}
	pq.query.text = expr.String()
	return pq
}

// slow makes a query one about the sites of a pace, unless it is the same for them as for all.
func (q *query) slow(expr parser.Expr, pace time.Duration) (parser.Expr, error) {
	was := expr.String()
	expr = promexpr.Paced(expr, pace)
	if d := fleet.Lookback(pace); d > lookback {
		q.lookback = d
	}
	if q.lookback == 0 && expr.String() == was {
		return expr, nil
	}
	q.pace = pace
	// Wider windows cost more.
	if err := promcost.Rule.Check(expr, promcost.Window{}); err != nil {
		return nil, fmt.Errorf("at sites that are scraped every %s: %w", pace, err)
	}
	promexpr.Narrow(expr, labels.MustNewMatcher(labels.MatchRegexp, fleet.SeriesSite, sitesMark))
	return expr, nil
}

const (
	// sitesMark stands in queries for objects where the sites come.
	sitesMark = "__sites__"
	// maxObjects of a site are named with a reason.
	maxObjects = 3
)

// worst makes of a query for objects one for the largest, or smallest, of each site.
func worst(text string, smallest bool) string {
	expr, err := parser.ParseExpr(text)
	if err != nil {
		return text // it came out of the parser
	}
	promexpr.Narrow(expr, labels.MustNewMatcher(labels.MatchRegexp, fleet.SeriesSite, sitesMark))
	op := "topk"
	if smallest {
		op = "bottomk"
	}
	return fmt.Sprintf("%s by (tenant, site) (%d, %s)", op, maxObjects, expr)
}

// confine puts tenant="…" into every selector of a query, so that no tenant's
// policy sees another's series, whatever else it selects.
func confine(expr parser.Expr, tenant string) error {
	if tenant == "" {
		return fmt.Errorf("the query has no tenant to be confined to")
	}
	m, err := labels.NewMatcher(labels.MatchEqual, fleet.SeriesTenant, tenant)
	if err != nil {
		return fmt.Errorf("tenant %q: %w", tenant, err)
	}
	promexpr.Narrow(expr, m)
	return nil
}
