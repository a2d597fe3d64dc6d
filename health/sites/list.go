package sites

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/sitequery"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
)

// defaultColumns are those of who asks for none.
const defaultColumns = "name,phase,colour,score,region,lastSeen,version,alerts,reason"

// maxGroups is how many groups are told of.
const maxGroups = 1000

// question is what a request asks for.
type question struct {
	text    string
	query   *sitequery.Query
	order   sitequery.Order
	columns []sitequery.Column
	group   *sitequery.Column
	limit   int // -1: all
	after   *sitequery.Key
	asOf    time.Time // of the first page; zero: this is it
	csv     bool
	links   bool // their figures are wanted, whatever the columns
}

// cursor is where a page ended, with the order that it is of: in another one the next
// page would begin anywhere.
type cursor struct {
	Of   string        `json:"o"`
	At   sitequery.Key `json:"a"`
	AsOf time.Time     `json:"t"` // of the first page
}

func questionOf(q url.Values) (*question, *wire.Problem) {
	var errs []wire.FieldError
	bad := func(field string, err error) {
		if err != nil {
			errs = append(errs, wire.FieldError{Field: field, Detail: err.Error()})
		}
	}
	out := &question{text: q.Get("q"), csv: q.Get("format") == "csv", limit: wire.DefaultSites}
	var err error
	out.query, err = sitequery.Parse(out.text)
	bad("q", err)
	out.order, err = sitequery.ParseOrder(q.Get("sort"))
	bad("sort", err)
	names := wire.Values([]string{cmp.Or(q.Get("columns"), defaultColumns)})
	if len(names) > wire.MaxSiteColumns {
		bad("columns", fmt.Errorf("%d columns, want at most %d", len(names), wire.MaxSiteColumns))
		names = nil
	}
	for _, name := range names {
		c, err := sitequery.ParseColumn(name)
		if bad("columns", err); err == nil && !slices.ContainsFunc(out.columns, func(o sitequery.Column) bool { return o.Name() == c.Name() }) {
			out.columns = append(out.columns, c)
		}
	}
	if name := q.Get("group"); name != "" {
		c, err := sitequery.ParseColumn(name)
		if err == nil && !c.Grouped() {
			err = fmt.Errorf("sites can't be grouped by %s, which is different for most; a label, phase, colour, region, virtualSite or version can be", c.Name())
		}
		bad("group", err)
		out.group = &c
	}
	if out.csv {
		out.limit = -1
	}
	if v := q.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > wire.MaxSites {
			bad("limit", fmt.Errorf("%.20q: want a number from 0 to %d", v, wire.MaxSites))
		}
		out.limit = n
	}
	if v := q.Get("cursor"); v != "" && len(errs) == 0 {
		var c cursor
		if wire.DecodeCursor(v, &c) != nil || c.Of != out.order.String() || !out.order.Adopt(&c.At) {
			bad("cursor", fmt.Errorf("it is none of this list; begin without one"))
		}
		out.after, out.asOf = &c.At, c.AsOf
	}
	if len(errs) > 0 {
		return nil, wire.Invalid(errs...)
	}
	return out, nil
}

// wantsAlerts tells whether the answer depends on them, whatever is shown of it.
func (q *question) wantsAlerts() bool {
	return q.query.HasText() || q.uses(func(name string) bool {
		return name == "alert" || name == "alerts" || strings.HasPrefix(name, "alerts.")
	})
}

// wantsLinks tells whether the answer depends on the figures of links.
func (q *question) wantsLinks() bool {
	return q.links || q.uses(func(name string) bool { return strings.HasPrefix(name, "link.") })
}

// uses tells whether the query, a column or the order has such a field.
func (q *question) uses(is func(name string) bool) bool {
	for _, f := range sitequery.Fields {
		if is(f.Name) && q.query.Uses(f.Name) {
			return true
		}
	}
	all := append(slices.Clone(q.columns), q.order.Columns()...)
	if q.group != nil {
		all = append(all, *q.group)
	}
	return slices.ContainsFunc(all, func(c sitequery.Column) bool { return is(c.Name()) })
}

// labels are those that the query, the order and the groups are about, each once. A column of
// one that no site has says so by itself.
func (q *question) labels() []string {
	out := slices.Clone(q.query.Labels())
	by := q.order.Columns()
	if q.group != nil {
		by = append(by, *q.group)
	}
	for _, c := range by {
		if l, ok := strings.CutPrefix(c.Name(), "label."); ok && !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

// found is what a question finds.
type found struct {
	table  *table
	alerts map[string]map[string][]string
	links  []sitequery.Link // in the order of the table; nil: not known, or not asked for
	page   wire.SitePage
	each   func(i int, row *sitequery.Row)
	key    sitequery.Key // of the site that is looked at
	keys   []position    // of the page and what is behind it, sorted
	cut    bool          // the first of keys, as many as the page needs, were sorted while the sites were looked through
}

type position struct {
	key sitequery.Key
	row int
}

// fill makes r one of the table's rows, with alerts. A row is large, and on the heap: who
// looks at ten thousand has one.
func (f *found) fill(r *sitequery.Row, i int) {
	*r = f.table.rows[i]
	if sites, ok := f.alerts[r.Tenant]; ok {
		r.Alerts, r.AlertsKnown = sites[r.Name], true
	}
	if f.links != nil {
		r.Link = &f.links[i]
	}
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, t *table, sc *wire.Scope) *wire.Problem {
	q, p := questionOf(r.URL.Query())
	if p != nil {
		return p
	}
	f, p := s.find(r, t, sc, q, nil)
	if p != nil {
		return p
	}
	if q.csv {
		return f.writeCSV(w, q)
	}
	rows := newRowWriter(q.columns)
	f.page.NextCursor = f.rows(q, func(_ int, row *sitequery.Row) { rows.add(row) })
	for _, c := range q.columns {
		f.page.Columns = append(f.page.Columns, c.Name())
	}
	body, err := rows.page(&f.page)
	return s.write(w, r.URL.Path, body, err)
}

// rows calls with the sites of the page, each row for as long as the call takes, and
// returns the cursor of the next page.
func (f *found) rows(q *question, each func(i int, row *sitequery.Row)) string {
	var row sitequery.Row
	for n := range f.keys {
		if n == q.limit {
			if n == 0 {
				return ""
			}
			return wire.EncodeCursor(cursor{q.order.String(), f.keys[n-1].key, q.asOf})
		}
		f.fill(&row, f.keys[n].row)
		each(f.keys[n].row, &row)
	}
	return ""
}

// find answers a question; each, if it is not nil, is called with every site that the query
// means, in the order of the table, and its row for as long as the call takes.
func (s *Server) find(r *http.Request, t *table, sc *wire.Scope, q *question, each func(i int, row *sitequery.Row)) (*found, *wire.Problem) {
	f := &found{table: t, each: each}
	if q.asOf.IsZero() {
		q.asOf = t.view.AsOf.UTC()
	}
	f.page = wire.SitePage{AsOf: t.view.AsOf.UTC(), Counts: newCounts(), Notes: []string{}}
	if q.wantsAlerts() {
		tenants := t.tenants(sc)
		f.alerts = s.alerts.of(r.Context(), tenants)
		if n := len(tenants) - len(f.alerts); n > 0 {
			f.page.Notes = append(f.page.Notes, "which alerts fire is not known: the alerting role can't be asked")
		}
		s.alerts.forget(func(name string) bool { return t.view.Snapshot.Tenant(name) != nil })
	}
	if q.wantsLinks() {
		var notes []string
		f.links, notes = s.figures.of(r.Context(), t.view)
		f.page.Notes = append(f.page.Notes, notes...)
	}
	return f, s.inTurn(r, func(pass func() error) error { return f.find(q, sc, pass) })
}

func newCounts() map[string]int {
	return map[string]int{string(fleet.Green): 0, string(fleet.Orange): 0, string(fleet.Red): 0, string(fleet.Grey): 0}
}

// inTurn does what takes time with the sites, as long as it may take, and lets others go on
// meanwhile: scores are made in this process as well.
func (s *Server) inTurn(r *http.Request, f func(pass func() error) error) *wire.Problem {
	ctx, cancel := context.WithTimeout(r.Context(), s.opts.Patience)
	defer cancel()
	turn, err := s.processors.Begin(ctx, turns.Class{Tenant: r.Header.Get(wire.TenantsHeader)})
	if err == nil {
		defer turn.End()
		err = f(func() error { return turn.Pass(ctx) })
	}
	if err != nil {
		return wire.Failure(http.StatusServiceUnavailable, "the query takes longer than %s, waiting for its turn included; ask for less, such as with fewer regular expressions", s.opts.Patience)
	}
	return nil
}

// find fills in counts and groups, and the keys of what comes after the cursor. It ends
// early with an error of pass.
func (f *found) find(q *question, sc *wire.Scope, pass func() error) error {
	now := f.table.view.AsOf
	all := q.query.Uses(sitequery.FieldPhase)
	groups := map[string]*group{}
	missing := map[string]bool{}
	for _, l := range q.labels() {
		missing[l] = true
	}
	var row sitequery.Row
	err := f.table.readable(sc, func(i int) error {
		if !all && f.table.rows[i].Phase == fleet.PhaseDecommissioned {
			return nil
		}
		if err := pass(); err != nil {
			return err
		}
		f.fill(&row, i)
		f.page.Readable++
		for l := range missing {
			if _, ok := row.Labels[l]; ok {
				delete(missing, l)
			}
		}
		if !q.query.Match(&row, now) {
			return nil
		}
		f.page.Total++
		f.page.Counts[string(row.Colour)]++
		if f.each != nil {
			f.each(i, &row)
		}
		if q.group != nil {
			q.group.Groups(&row, func(value string) {
				g := groups[value]
				if g == nil {
					g = &group{counts: newCounts()}
					groups[value] = g
				}
				g.add(&row)
			})
		}
		if q.limit != 0 {
			f.keep(q, &row, i)
		}
		return nil
	})
	if err != nil {
		return err
	}
	f.sort(q)
	for _, l := range q.labels() {
		if missing[l] {
			f.page.Notes = append(f.page.Notes, fmt.Sprintf("no site that you may read has a label %s, and no field has that name", l))
		}
	}
	if q.group != nil {
		f.page.Groups = []wire.SiteGroup{}
		for value, g := range groups {
			f.page.Groups = append(f.page.Groups, g.as(value, *q.group))
		}
		slices.SortFunc(f.page.Groups, func(a, b wire.SiteGroup) int {
			return cmp.Or(cmp.Compare(b.Sites, a.Sites), strings.Compare(a.Value, b.Value))
		})
		if n := len(f.page.Groups); n > maxGroups {
			f.page.Groups = f.page.Groups[:maxGroups]
			f.page.Notes = append(f.page.Notes, fmt.Sprintf("of %d groups these are the %d with the most sites", n, maxGroups))
		}
	}
	return nil
}

// keep takes a row for the page, if it may have room for it.
func (f *found) keep(q *question, row *sitequery.Row, i int) {
	key := &f.key
	q.order.Set(key, row, q.asOf)
	if q.after != nil && q.order.Compare(key, q.after) <= 0 {
		return
	}
	last := q.limit // of those that were sorted, the page and the one that says that there is another
	if f.cut && q.order.Compare(key, &f.keys[last].key) >= 0 {
		return
	}
	f.keys = append(f.keys, position{*key, i})
	*key = sitequery.Key{} // what it had is the page's now
	if q.limit > 0 && len(f.keys) >= 4*(q.limit+1) {
		f.sort(q)
		f.keys, f.cut = f.keys[:last+1], true
	}
}

func (f *found) sort(q *question) {
	slices.SortFunc(f.keys, func(a, b position) int { return q.order.Compare(&a.key, &b.key) })
}

type group struct {
	sites, known int
	counts       map[string]int
	sum, worst   float64
}

func (g *group) add(r *sitequery.Row) {
	g.sites++
	g.counts[string(r.Colour)]++
	if r.Score.Known {
		if g.known == 0 || r.Score.Value < g.worst {
			g.worst = r.Score.Value
		}
		g.known++
		g.sum += r.Score.Value
	}
}

func (g *group) as(value string, c sitequery.Column) wire.SiteGroup {
	out := wire.SiteGroup{Value: value, Query: sitequery.Equals(c, value), Sites: g.sites, Counts: g.counts}
	if g.known > 0 {
		mean, worst := tenths(g.sum/float64(g.known)), tenths(g.worst)
		out.Mean, out.Worst = &mean, &worst
	}
	return out
}

func tenths(x float64) float64 { return float64(int64(x*10+0.5)) / 10 }

// writeCSV writes all that was found, or as many as the limit says.
func (f *found) writeCSV(w http.ResponseWriter, q *question) *wire.Problem {
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	out := csv.NewWriter(w)
	var row sitequery.Row
	line := make([]string, len(q.columns))
	for i, c := range q.columns {
		line[i] = c.Name()
	}
	_ = out.Write(line) // errors stay in the writer, and nobody is left to be told
	for n := range f.keys {
		if n == q.limit {
			break
		}
		f.fill(&row, f.keys[n].row)
		for i, c := range q.columns {
			line[i] = c.Cell(&row)
			switch c.Field().Kind {
			case sitequery.Numeric, sitequery.Time, sitequery.Flag, sitequery.Choice: // what we write ourselves
			default:
				line[i] = plainCell(line[i])
			}
		}
		_ = out.Write(line)
	}
	out.Flush()
	return nil
}

// plainCell keeps spreadsheets from taking what a site or a user wrote for a formula.
func plainCell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
