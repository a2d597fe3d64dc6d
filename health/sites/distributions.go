package sites

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"muster.dev/muster/internal/sitequery"
	"muster.dev/muster/internal/wire"
)

// defaultDistributions are those of who asks for none.
const defaultDistributions = "cpuUsed,memoryUsed,diskUsed"

// bins of a distribution; of 0 to 100 each is five wide.
const bins = 20

// distributions answers how numbers spread over the sites of a query.
func (s *Server) distributions(w http.ResponseWriter, r *http.Request, t *table, sc *wire.Scope) *wire.Problem {
	q, p := columnsAsked(r.URL.Query(), "of", cmp.Or(r.URL.Query().Get("of"), defaultDistributions), wire.MaxSiteDistribution)
	if p != nil {
		return p
	}
	for _, c := range q.columns {
		if c.Field().Kind != sitequery.Numeric {
			return wire.Invalid(wire.FieldError{Field: "of", Detail: fmt.Sprintf("%s is no number; want columns that are, such as %s", c.Name(), defaultDistributions)})
		}
	}
	values := make([][]float64, len(q.columns))
	f, p := s.find(r, t, sc, q, func(_ int, row *sitequery.Row) {
		for i, c := range q.columns {
			if x, ok := c.Value(row).(float64); ok { // rounded as people see it and queries compare it
				values[i] = append(values[i], x)
			}
		}
	})
	if p != nil {
		return p
	}
	out := wire.SiteDistributions{AsOf: f.page.AsOf, Readable: f.page.Readable, Total: f.page.Total, Notes: f.page.Notes, Distributions: []wire.SiteDistribution{}}
	for i, c := range q.columns {
		out.Distributions = append(out.Distributions, distribution(c, values[i], f.page.Total))
	}
	return s.writeJSON(w, r.URL.Path, &out)
}

func distribution(c sitequery.Column, values []float64, total int) wire.SiteDistribution {
	column := c.Name()
	out := wire.SiteDistribution{Column: column, Known: len(values), Unknown: total - len(values), Bins: []wire.Bin{}}
	if len(values) == 0 {
		return out
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	mean := math.Round(10*sum/float64(len(values))) / 10
	at := func(q float64) *float64 { return &values[max(0, int(math.Ceil(q*float64(len(values))))-1)] }
	out.Mean, out.Least, out.P10, out.Median, out.P90, out.Most = &mean, at(0), at(0.1), at(0.5), at(0.9), at(1)
	from, width := 0.0, 100.0/bins
	if c.Field().Keyed || strings.HasPrefix(column, "alerts") || strings.HasPrefix(column, "link.") { // all other numbers are percents and scores
		from, width = scale(*out.Least, *out.Most)
	}
	for i := range bins {
		out.Bins = append(out.Bins, wire.Bin{From: edge(from, width, i), To: edge(from, width, i+1)})
	}
	for _, v := range values {
		// The edges as they are told decide, not what a division makes of them.
		i, found := slices.BinarySearchFunc(out.Bins, v, func(b wire.Bin, v float64) int { return cmp.Compare(b.From, v) })
		if !found {
			i--
		}
		out.Bins[min(max(i, 0), bins-1)].Sites++
	}
	for i := range out.Bins {
		b := &out.Bins[i]
		b.Query = fmt.Sprintf("%s>=%s", column, plain(b.From))
		if i == 0 { // what is beyond the ends counts to the last bins
			b.Query = fmt.Sprintf("%s<%s", column, plain(b.To))
		} else if i < bins-1 {
			b.Query += fmt.Sprintf(" %s<%s", column, plain(b.To))
		}
	}
	return out
}

// scale is where bins begin and how wide they are, in round numbers, so that they hold all.
func scale(least, most float64) (from, width float64) {
	span := max(most-least, 0.1*bins)
	step := math.Pow(10, math.Floor(math.Log10(span/bins)))
	for _, f := range []float64{1, 2, 5, 10, 20} {
		width = step * f
		from = math.Floor(least/width) * width
		if from+bins*width > most {
			break
		}
	}
	return from, width
}

// edge is a bound of bins with one digit, as queries compare numbers.
func edge(from, width float64, i int) float64 { return math.Round(10*(from+float64(i)*width)) / 10 }

func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
