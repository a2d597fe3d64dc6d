package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/promcost"
)

// query is one query of a tick, asked once of every regional whatever the number
// of sites and policies that use it.
type query struct {
	text string
	// tenant confines the query: it is in every selector, and no other tenant's
	// series are taken from the answer. "": a shipped query, for all tenants.
	tenant string
	// storeOnly: asked only of the store, about sites whose regional is away.
	storeOnly bool
}

// binding says which query answers each signal of a model, for one tenant.
type binding struct {
	model *health.Model
	// query of each signal; -1 for one that can't be parsed.
	query []int
	err   []string // why, for each signal; ""
}

// pushedQuery tells, from the store, until when a site's samples reach.
const pushedQuery = "max by (tenant, site) (" + fleet.MetricSiteLastPush + ")"

// plan is what a tick asks.
type plan struct {
	queries  []query
	pushed   int // position of pushedQuery
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
	known   map[string]bool           // the shipped queries in canonical form
	parsed  map[[2]string]parsedQuery // by tenant and text as written
	last    *plan
	lastFor []*policy
}

type parsedQuery struct {
	query query
	err   string
}

func newPlanner(shipped *health.Model) (*planner, error) {
	p := &planner{shipped: shipped, known: map[string]bool{}, parsed: map[[2]string]parsedQuery{}}
	for i := range shipped.Signals {
		expr, err := parser.ParseExpr(shipped.Signals[i].Query)
		if err != nil {
			return nil, fmt.Errorf("shipped policy: signal %s: %w", shipped.Signals[i].Name, err)
		}
		p.known[expr.String()] = true
	}
	return p, nil
}

// plan returns what to ask for these policies. The same policies give the same plan.
func (p *planner) plan(policies []*policy) *plan {
	if p.last != nil && slices.Equal(p.lastFor, policies) {
		return p.last
	}
	out := &plan{policies: map[*policy]*binding{}}
	index := map[query]int{}
	used := map[[2]string]parsedQuery{}
	bind := func(tenant string, m *health.Model) *binding {
		b := &binding{model: m, query: make([]int, len(m.Signals)), err: make([]string, len(m.Signals))}
		for i := range m.Signals {
			key := [2]string{tenant, m.Signals[i].Query}
			pq, ok := p.parsed[key]
			if !ok {
				pq = p.parse(tenant, m.Signals[i].Query)
			}
			used[key] = pq
			if pq.err != "" {
				b.query[i], b.err[i] = -1, pq.err
				continue
			}
			q := pq.query
			q.storeOnly = i == m.Uplink()
			if _, ok := index[q]; !ok {
				index[q] = len(out.queries)
				out.queries = append(out.queries, q)
			}
			b.query[i] = index[q]
		}
		return b
	}
	out.shipped = bind("", p.shipped)
	for _, policy := range policies {
		if policy.model != nil {
			out.policies[policy] = bind(policy.Tenant, policy.model)
		}
	}
	out.pushed = len(out.queries)
	out.queries = append(out.queries, query{text: pushedQuery, storeOnly: true})
	p.last, p.lastFor, p.parsed = out, slices.Clone(policies), used
	return out
}

func (p *planner) parse(tenant, text string) parsedQuery {
	expr, err := promcost.Rule.Parse(text, promcost.Window{})
	if tooMuch := (*promcost.Error)(nil); errors.As(err, &tooMuch) {
		return parsedQuery{err: "the query is not asked: " + err.Error()}
	} else if err != nil {
		return parsedQuery{err: "the query can't be parsed: " + strings.TrimSpace(err.Error())}
	}
	if t := expr.Type(); t != parser.ValueTypeVector {
		return parsedQuery{err: fmt.Sprintf("the query returns a %s, want an instant vector: aggregate `by (tenant, site)`", parser.DocumentedType(t))}
	}
	canonical := expr.String()
	if p.known[canonical] {
		return parsedQuery{query: query{text: canonical}}
	}
	if err := confine(expr, tenant); err != nil {
		return parsedQuery{err: err.Error()}
	}
	return parsedQuery{query: query{text: expr.String(), tenant: tenant}}
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
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok {
			vs.LabelMatchers = append(vs.LabelMatchers, m)
		}
		return nil
	})
	return nil
}
