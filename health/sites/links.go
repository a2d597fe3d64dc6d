package sites

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/sitequery"
	"muster.dev/muster/internal/wire"
)

// defaultLinkOrder has the worst links first.
const defaultLinkOrder = "connectivity,-link.loss,-link.roundTrip"

// maxLinkGroups bounds the groups that are made of labels that are different at each site.
const maxLinkGroups = 2000

// linksAsked reads what links are asked for: a question of sites, and what to group them by.
func linksAsked(in url.Values) (*question, sitequery.Column, *wire.Problem) {
	limit := cmp.Or(in.Get("limit"), strconv.Itoa(wire.DefaultLinks))
	if n, err := strconv.Atoi(limit); err != nil || n < 0 || n > wire.MaxLinks {
		return nil, sitequery.Column{}, wire.Invalid(wire.FieldError{Field: "limit", Detail: fmt.Sprintf("%.20q: want a number from 0 to %d", limit, wire.MaxLinks)})
	}
	by, err := sitequery.ParseColumn(cmp.Or(in.Get("by"), "region"))
	if err == nil && !by.Grouped() {
		err = fmt.Errorf("links can't be grouped by %s, which is different for most; a label, region or virtualSite can be", by.Name())
	}
	if err != nil {
		return nil, by, wire.Invalid(wire.FieldError{Field: "by", Detail: err.Error()})
	}
	q, p := questionOf(url.Values{"q": in["q"], "sort": {cmp.Or(in.Get("sort"), defaultLinkOrder)}, "limit": {limit}, "cursor": in["cursor"]})
	if p != nil {
		return nil, by, p
	}
	q.columns, q.links = nil, true
	return q, by, nil
}

// links answers with the links of a query's sites, and summaries of all of them.
func (s *Server) links(w http.ResponseWriter, r *http.Request, t *table, sc *wire.Scope) *wire.Problem {
	q, by, p := linksAsked(r.URL.Query())
	if p != nil {
		return p
	}
	counts := newCounts()
	regionals := map[string]*linkRegional{}
	f, p := s.find(r, t, sc, q, func(i int, row *sitequery.Row) {
		colour := connectivityOf(t.view.Sites[i])
		counts[string(colour)]++
		reg := regionals[row.Regional]
		if reg == nil {
			reg = &linkRegional{all: newLinkSum(), groups: map[string]*linkSum{}}
			regionals[row.Regional] = reg
		}
		reg.all.add(row, colour)
		by.Groups(row, func(value string) {
			g := reg.groups[value]
			if g == nil {
				if len(reg.groups) == maxLinkGroups {
					return
				}
				g = newLinkSum()
				reg.groups[value] = g
			}
			g.add(row, colour)
		})
	})
	if p != nil {
		return p
	}
	out := wire.LinkPage{AsOf: f.page.AsOf, Readable: f.page.Readable, Total: f.page.Total, Counts: counts, By: by.Name(), Regionals: []wire.LinkRegional{}, Links: []wire.Link{}, Notes: f.page.Notes}
	for name, reg := range regionals {
		out.Regionals = append(out.Regionals, reg.as(name, by))
	}
	slices.SortFunc(out.Regionals, func(a, b wire.LinkRegional) int {
		return cmp.Or(cmp.Compare(b.Sites, a.Sites), strings.Compare(a.Name, b.Name))
	})
	out.NextCursor = f.rows(q, func(i int, row *sitequery.Row) { out.Links = append(out.Links, linkOf(t.view.Sites[i], row)) })
	return s.writeJSON(w, r.URL.Path, &out)
}

// connectivityOf is the colour of a site's connectivity.
func connectivityOf(s *engine.Site) fleet.Colour {
	if s.State == nil {
		return fleet.Grey
	}
	return cmp.Or(s.State.Dimensions[connectivity].Colour, fleet.Grey)
}

var connectivity = slices.Index(fleet.Dimensions, fleet.Connectivity)

func linkOf(s *engine.Site, row *sitequery.Row) wire.Link {
	figure := func(i int) *float64 { return known(row.Link.Number(i)) }
	l := wire.Link{
		Tenant: row.Tenant, Site: row.Name, Regional: row.Regional, Region: row.Region, Phase: string(row.Phase), LastSeen: row.LastSeen.UTC(),
		Colour: string(connectivityOf(s)), Connectivity: known(row.Dimensions[connectivity]), Window: int(fleet.RateWindow(linkPace(s.Site)).Seconds()),
		RoundTrip: figure(sitequery.LinkRoundTrip), Loss: figure(sitequery.LinkLoss), Sent: figure(sitequery.LinkSent), Received: figure(sitequery.LinkReceived),
		Handshake: figure(sitequery.LinkHandshake), Reconnects: figure(sitequery.LinkReconnects), Requests: figure(sitequery.LinkRequests), Errors: figure(sitequery.LinkErrors),
	}
	if s.State != nil {
		for i := range s.State.Reasons {
			if x := &s.State.Reasons[i]; x.Dimension == fleet.Connectivity {
				l.Reason = x.Text
				break
			}
		}
	}
	return l
}

// known is a number with one digit, as tables have it; nil where it is not known.
func known(n sitequery.Number) *float64 {
	if !n.Known {
		return nil
	}
	v := tenths(n.Value)
	return &v
}

// linkRegional adds up the links of one regional.
type linkRegional struct {
	all    *linkSum
	groups map[string]*linkSum
}

func (r *linkRegional) as(name string, by sitequery.Column) wire.LinkRegional {
	column, err := sitequery.ParseColumn("regional")
	if err != nil {
		panic(err) // it is a field
	}
	mine := sitequery.Equals(column, name)
	out := wire.LinkRegional{Name: name, LinkSummary: r.all.as(mine), Groups: []wire.LinkGroup{}}
	for value, g := range r.groups {
		out.Groups = append(out.Groups, wire.LinkGroup{Value: value, LinkSummary: g.as(mine + " " + sitequery.Equals(by, value))})
	}
	bad := func(g *wire.LinkGroup) int { return 2*g.Counts[string(fleet.Red)] + g.Counts[string(fleet.Orange)] }
	slices.SortFunc(out.Groups, func(a, b wire.LinkGroup) int {
		return cmp.Or(cmp.Compare(bad(&b), bad(&a)), cmp.Compare(b.Sites, a.Sites), strings.Compare(a.Value, b.Value))
	})
	if len(out.Groups) > wire.MaxLinkGroups {
		rest := newLinkSum()
		for _, g := range out.Groups[wire.MaxLinkGroups-1:] {
			rest.join(r.groups[g.Value])
		}
		out.Groups = out.Groups[:wire.MaxLinkGroups-1]
		more := rest.as("")
		out.More = &more
	}
	return out
}

// linkSum adds up links.
type linkSum struct {
	sites     int
	counts    map[string]int
	worst     sitequery.Number
	roundTrip []float64
	loss      []float64
	// sent, received, reconnects
	sums [3]sitequery.Number
}

func newLinkSum() *linkSum { return &linkSum{counts: newCounts()} }

func (s *linkSum) add(row *sitequery.Row, colour fleet.Colour) {
	s.sites++
	s.counts[string(colour)]++
	s.lowest(row.Dimensions[connectivity])
	if n := row.Link.Number(sitequery.LinkRoundTrip); n.Known {
		s.roundTrip = append(s.roundTrip, n.Value)
	}
	if n := row.Link.Number(sitequery.LinkLoss); n.Known {
		s.loss = append(s.loss, n.Value)
	}
	for i, figure := range [...]int{sitequery.LinkSent, sitequery.LinkReceived, sitequery.LinkReconnects} {
		s.plus(i, row.Link.Number(figure))
	}
}

func (s *linkSum) plus(i int, n sitequery.Number) {
	if n.Known {
		s.sums[i].Value, s.sums[i].Known = s.sums[i].Value+n.Value, true
	}
}

func (s *linkSum) lowest(n sitequery.Number) {
	if n.Known && (!s.worst.Known || n.Value < s.worst.Value) {
		s.worst = n
	}
}

func (s *linkSum) join(o *linkSum) {
	s.sites += o.sites
	for c, n := range o.counts {
		s.counts[c] += n
	}
	s.lowest(o.worst)
	s.roundTrip, s.loss = append(s.roundTrip, o.roundTrip...), append(s.loss, o.loss...)
	for i := range s.sums {
		s.plus(i, o.sums[i])
	}
}

func (s *linkSum) as(query string) wire.LinkSummary {
	return wire.LinkSummary{
		Query: query, Sites: s.sites, Counts: s.counts, Worst: known(s.worst), RoundTrip: known(median(s.roundTrip)), Loss: known(median(s.loss)),
		Sent: known(s.sums[0]), Received: known(s.sums[1]), Reconnects: known(s.sums[2]),
	}
}

// median is the lower one of an even number.
func median(values []float64) sitequery.Number {
	if len(values) == 0 {
		return sitequery.Number{}
	}
	slices.Sort(values)
	return sitequery.Number{Value: values[(len(values)-1)/2], Known: true}
}
