package sites

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/sitequery"
	"muster.dev/muster/internal/wire"
)

// letters of colours in a wire.SiteMap.
var letters = map[fleet.Colour]byte{fleet.Green: 'g', fleet.Orange: 'o', fleet.Red: 'r', fleet.Grey: 'x'}

// columnsAsked are the columns of a parameter, beside those of the query, which is asked
// for no rows: what is wanted comes to each.
func columnsAsked(in url.Values, param, names string, most int) (*question, *wire.Problem) {
	q, p := questionOf(url.Values{"q": in["q"], "limit": {"0"}})
	if p != nil {
		return nil, p
	}
	var errs []wire.FieldError
	q.columns = nil
	for _, name := range wire.Values([]string{names}) {
		c, err := sitequery.ParseColumn(name)
		if err != nil {
			errs = append(errs, wire.FieldError{Field: param, Detail: err.Error()})
		}
		q.columns = append(q.columns, c)
	}
	if n := len(q.columns); n > most {
		errs = append(errs, wire.FieldError{Field: param, Detail: fmt.Sprintf("%d columns, want at most %d", n, most)})
	}
	if len(errs) > 0 {
		return nil, wire.Invalid(errs...)
	}
	return q, nil
}

// worldMap answers with the sites of a query that have a place.
func (s *Server) worldMap(w http.ResponseWriter, r *http.Request, t *table, sc *wire.Scope) *wire.Problem {
	q, p := columnsAsked(r.URL.Query(), "by", r.URL.Query().Get("by"), 1)
	if p != nil {
		return p
	}
	out := wire.SiteMap{Tenants: []string{}, Names: []string{}, Tenant: []int{}, Latitude: []float64{}, Longitude: []float64{}, Score: []*int{}, InMaintenance: []int{}}
	var by *sitequery.Column
	numeric := false
	if len(q.columns) > 0 {
		by = &q.columns[0]
		out.By, out.Kind = by.Name(), string(by.Field().Kind)
		numeric = by.Field().Kind == sitequery.Numeric
	}
	var colours []byte
	var cells []string
	f, p := s.find(r, t, sc, q, func(i int, row *sitequery.Row) {
		if row.Maintenance != nil {
			out.Maintenance++
		}
		place := t.view.Sites[i].Place
		if place == nil {
			out.Unplaced++
			return
		}
		if row.Maintenance != nil {
			out.InMaintenance = append(out.InMaintenance, len(out.Names))
		}
		if n := len(out.Tenants); n == 0 || out.Tenants[n-1] != row.Tenant { // the table is sorted by tenant
			out.Tenants = append(out.Tenants, row.Tenant)
		}
		out.Names = append(out.Names, row.Name)
		out.Tenant = append(out.Tenant, len(out.Tenants)-1)
		out.Latitude = append(out.Latitude, degrees(place.Latitude))
		out.Longitude = append(out.Longitude, degrees(place.Longitude))
		colours = append(colours, letters[row.Colour])
		var score *int
		if row.Score.Known {
			n := int(math.Round(row.Score.Value))
			score = &n
		}
		out.Score = append(out.Score, score)
		switch {
		case numeric:
			var value *float64
			if x, ok := by.Value(row).(float64); ok {
				value = &x
			}
			out.Values = append(out.Values, value)
		case by != nil:
			cells = append(cells, by.Cell(row))
		}
	})
	if p != nil {
		return p
	}
	out.AsOf, out.Readable, out.Total, out.Counts, out.Notes = f.page.AsOf, f.page.Readable, f.page.Total, f.page.Counts, f.page.Notes
	out.Colour = string(colours)
	out.Categories, out.Category = categories(cells)
	return s.writeJSON(w, r.URL.Path, &out)
}

// degrees with four digits: ten metres, and half the bytes.
func degrees(x float64) float64 { return math.Round(x*1e4) / 1e4 }

// categories are the commonest cells, and for each cell which of them it is, -1 for none.
func categories(cells []string) (names []string, of []int) {
	count := map[string]int{}
	for _, c := range cells {
		count[c]++
	}
	names = slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b)) })
	names = names[:min(len(names), wire.MaxMapCategories)]
	index := map[string]int{}
	for i, n := range names {
		index[n] = i
	}
	for _, c := range cells {
		i, ok := index[c]
		if !ok {
			i = -1
		}
		of = append(of, i)
	}
	return names, of
}
