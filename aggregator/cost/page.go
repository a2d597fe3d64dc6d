package cost

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/wire"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// query is a checked question.
type query struct {
	*wire.Scope
	by, sort, virtualSite, text string
	limit                       int
	after                       *position
}

func parse(r *http.Request) (*query, *wire.Problem) {
	in := r.URL.Query()
	sc, p := wire.ScopeOf(r, in["tenant"])
	if p != nil {
		return nil, p
	}
	q := &query{Scope: sc, by: cmp.Or(in.Get("by"), wire.CostBySite), sort: cmp.Or(in.Get("sort"), "series"), virtualSite: in.Get("virtualSite"), text: strings.ToLower(in.Get("q")), limit: defaultLimit}
	if !slices.Contains([]string{wire.CostByTenant, wire.CostByVirtualSite, wire.CostBySite}, q.by) {
		return nil, wire.Invalid(wire.FieldError{Field: "by", Detail: "want tenant, virtualsite or site"})
	}
	if q.sort != wire.CostByName && !slices.Contains(wire.CostColumns, q.sort) {
		return nil, wire.Invalid(wire.FieldError{Field: "sort", Detail: "want name, " + strings.Join(wire.CostColumns, ", ")})
	}
	if v := in.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > maxLimit {
			return nil, wire.Invalid(wire.FieldError{Field: "limit", Detail: "want a number from 1 to 1000"})
		}
		q.limit = n
	}
	if q.virtualSite != "" && q.by != wire.CostBySite {
		return nil, wire.Invalid(wire.FieldError{Field: "virtualSite", Detail: "narrows a list of sites; want by=site"})
	}
	var err error
	if q.after, err = decodeCursor(in.Get("cursor"), q); err != nil {
		return nil, wire.Invalid(wire.FieldError{Field: "cursor", Detail: err.Error()})
	}
	return q, nil
}

// page is the answer to a question.
func page(a *answers, snap *inventory.Snapshot, q *query) *wire.CostPage {
	out := &wire.CostPage{AsOf: a.at, By: q.by, MissingRegions: a.missing, Rows: []wire.CostRow{}}
	for i, r := range a.good {
		if i == 0 || r.Window < out.Window {
			out.Window = r.Window
		}
	}
	if q.Fleet() {
		for _, r := range a.good {
			out.Regionals = append(out.Regionals, wire.RegionalRoom{Name: r.Regional, Region: r.Region, Headroom: r.Headroom, Process: r.Process})
		}
	}
	var rows []*wire.CostRow
	switch q.by {
	case wire.CostByTenant:
		rows = tenants(a, snap, q)
		for _, r := range rows {
			out.Sum.Add(r.Use)
		}
	case wire.CostByVirtualSite:
		rows = virtualSites(a, snap, q, &out.Sum)
	default:
		for i, r := range sites(a, snap, q.Scope) {
			if r != nil && q.wants(snap.Sites[i]) {
				rows = append(rows, r)
				out.Sum.Add(r.Use)
			}
		}
	}
	out.Total = len(rows)
	keys := make([]position, len(rows))
	order := make([]int, 0, len(rows))
	for i, r := range rows {
		keys[i] = positionOf(r, q)
		if q.after == nil || keys[i].compare(q.after) > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return keys[a].compare(&keys[b]) })
	for n, i := range order {
		if n == q.limit {
			out.NextCursor = keys[order[n-1]].encode()
			break
		}
		out.Rows = append(out.Rows, *rows[i])
	}
	return out
}

// wants says whether a site is asked for.
func (q *query) wants(s *inventory.Site) bool {
	if q.virtualSite != "" {
		want := q.virtualSite
		if !strings.Contains(want, "/") {
			want = "shared/" + want
		}
		if !slices.Contains(s.VirtualSites, want) {
			return false
		}
	}
	return q.text == "" || strings.Contains(s.ID.Name, q.text)
}

// sites are the rows of the inventory's sites that are in scope, by their position; nil for the
// others. What a regional says of a site that the inventory does not know is left out: it
// was deleted, or a rule made series with its name. The tenant's row has it.
func sites(a *answers, snap *inventory.Snapshot, sc *wire.Scope) []*wire.CostRow {
	out := make([]*wire.CostRow, len(snap.Sites))
	for i, s := range snap.Sites {
		if sc.Has(s.ID.Tenant) && s.Listed() {
			out[i] = &wire.CostRow{Tenant: s.ID.Tenant, Name: s.ID.Name, Sites: 1, Regionals: []string{}}
		}
	}
	for _, r := range a.good {
		for k := range r.Sites {
			c := &r.Sites[k]
			if i := snap.Find(c.Tenant, c.Site); i >= 0 && out[i] != nil {
				out[i].Add(c.Use)
				out[i].Regionals = append(out[i].Regionals, r.Regional)
			}
		}
	}
	return out
}

func tenants(a *answers, snap *inventory.Snapshot, q *query) []*wire.CostRow {
	byName := map[string]*wire.CostRow{}
	row := func(name string) *wire.CostRow {
		if !q.Has(name) || q.text != "" && !strings.Contains(name, q.text) {
			return nil
		}
		if byName[name] == nil {
			byName[name] = &wire.CostRow{Tenant: name, Regionals: []string{}}
		}
		return byName[name]
	}
	for _, t := range snap.Tenants {
		row(t.Name)
	}
	for _, s := range snap.Sites {
		if r := row(s.ID.Tenant); r != nil && s.Listed() {
			r.Sites++
		}
	}
	unlimited := map[string]bool{}
	for _, g := range a.good {
		for i := range g.Tenants {
			t := &g.Tenants[i]
			if r := row(t.Tenant); r != nil {
				r.Add(t.Use)
				r.Regionals = append(r.Regionals, g.Regional)
				r.SeriesLimit += t.SeriesLimit
				unlimited[t.Tenant] = unlimited[t.Tenant] || t.SeriesLimit == 0
			}
		}
	}
	out := make([]*wire.CostRow, 0, len(byName))
	for _, r := range byName {
		if unlimited[r.Tenant] {
			r.SeriesLimit = 0
		}
		r.MoreSites = wire.MoreSites(r.SeriesLimit, r.Series, r.Sites)
		out = append(out, r)
	}
	return out
}

// virtualSites adds up members, and in sum each site once.
func virtualSites(a *answers, snap *inventory.Snapshot, q *query, sum *wire.Use) []*wire.CostRow {
	members := sites(a, snap, q.Scope)
	counted := make([]bool, len(members))
	var out []*wire.CostRow
	for _, v := range snap.VirtualSites {
		if !q.Has(v.Tenant) || q.text != "" && !strings.Contains(v.Key(), q.text) {
			continue
		}
		r := &wire.CostRow{Tenant: v.Tenant, Namespace: v.Namespace, Name: v.Name, Regionals: []string{}}
		for _, i := range v.Members {
			m := members[i]
			if m == nil {
				continue
			}
			r.Sites++
			r.Add(m.Use)
			for _, name := range m.Regionals {
				if !slices.Contains(r.Regionals, name) {
					r.Regionals = append(r.Regionals, name)
				}
			}
			if !counted[i] {
				counted[i] = true
				sum.Add(m.Use)
			}
		}
		slices.Sort(r.Regionals)
		out = append(out, r)
	}
	return out
}

// position is where a page ended: the sort key of its last row. The next page begins
// behind it, wherever figures have moved meanwhile: a row that moved over it may be seen
// twice or not at all, but for the order by name.
type position struct {
	By     string  `json:"b"`
	Sort   string  `json:"s"`
	Value  float64 `json:"v,omitempty"`
	Tenant string  `json:"t"`
	Space  string  `json:"ns,omitempty"`
	Name   string  `json:"n,omitempty"`
}

func positionOf(r *wire.CostRow, q *query) position {
	return position{By: q.by, Sort: q.sort, Value: r.Column(q.sort), Tenant: r.Tenant, Space: r.Namespace, Name: r.Name}
}

// compare puts the largest value first.
func (a *position) compare(b *position) int {
	return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Space, b.Space), cmp.Compare(a.Name, b.Name))
}

var errCursor = errors.New("it is none of this list; begin without one")

func (a *position) encode() string { return wire.EncodeCursor(a) }

func decodeCursor(s string, q *query) (*position, error) {
	if s == "" {
		return nil, nil
	}
	var p position
	if wire.DecodeCursor(s, &p) != nil || p.By != q.by || p.Sort != q.sort || math.IsNaN(p.Value) || p.Tenant == "" {
		return nil, errCursor
	}
	return &p, nil
}
