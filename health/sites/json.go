package sites

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster.dev/muster/internal/sitequery"
	"muster.dev/muster/internal/wire"
)

// rowWriter writes sites as JSON, byte for byte what json.Marshal makes of a wire.SiteRow. They
// are most of an answer, and by reflection they cost more than to find and sort them.
type rowWriter struct {
	columns []sitequery.Column // sorted by their names, each once
	names   []string           // theirs, as JSON with a colon
	out     []byte
	err     error
}

// newRowWriter has tenant and name in each row, whatever the columns.
func newRowWriter(columns []sitequery.Column) *rowWriter {
	w := &rowWriter{columns: slices.Clone(columns)}
	for _, name := range []string{"name", "tenant"} {
		c, _ := sitequery.ParseColumn(name) // a field's name
		w.columns = append(w.columns, c)
	}
	slices.SortFunc(w.columns, func(a, b sitequery.Column) int { return strings.Compare(a.Name(), b.Name()) })
	w.columns = slices.CompactFunc(w.columns, func(a, b sitequery.Column) bool { return a.Name() == b.Name() })
	for _, c := range w.columns {
		w.names = append(w.names, string(append(wire.AppendString(nil, c.Name()), ':')))
	}
	return w
}

func (w *rowWriter) add(row *sitequery.Row) {
	if len(w.out) > 0 {
		w.out = append(w.out, ',')
	}
	w.out = append(w.out, '{')
	for i, c := range w.columns {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = append(w.out, w.names[i]...)
		w.value(c.Value(row))
	}
	w.out = append(w.out, '}')
}

// value appends what Column.Value returned; what is rare json.Marshal may do.
func (w *rowWriter) value(v any) {
	switch v := v.(type) {
	case string:
		w.out = wire.AppendString(w.out, v)
		return
	case float64:
		if abs := math.Abs(v); v == 0 || abs >= 1e-6 && abs < 1e21 {
			w.out = strconv.AppendFloat(w.out, v, 'f', -1, 64)
			return
		}
	case time.Time:
		w.out = append(v.AppendFormat(append(w.out, '"'), time.RFC3339), '"')
		return
	}
	text, err := json.Marshal(v)
	if err != nil {
		w.err = err
	}
	w.out = append(w.out, text...)
}

// page is p with the rows for its sites.
func (w *rowWriter) page(p *wire.SitePage) ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	body, err := json.Marshal(struct {
		*wire.SitePage
		Sites *struct{} `json:"sites,omitempty"` // instead of the page's own, which come behind
	}{SitePage: p})
	if err != nil {
		return nil, err
	}
	body = append(body[:len(body)-1], `,"sites":[`...)
	return append(append(body, w.out...), "]}"...), nil
}
