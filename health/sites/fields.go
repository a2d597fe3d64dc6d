package sites

import (
	"cmp"
	"maps"
	"net/http"
	"slices"

	"muster.dev/muster/health"
	"muster.dev/muster/internal/sitequery"
	"muster.dev/muster/internal/wire"
)

const (
	maxKeys      = 500 // of labels and of components that are told of
	maxKeyValues = 20
	// maxCounted bounds the values of one key that are counted, for labels that are
	// different at each site.
	maxCounted = 2000
)

// fields tells what the user's sites can be asked for by, for completion.
func (s *Server) fields(w http.ResponseWriter, r *http.Request, t *table, sc *wire.Scope) *wire.Problem {
	out := wire.SiteFields{Fields: make([]wire.SiteField, 0, len(sitequery.Fields))}
	for i := range sitequery.Fields {
		f := &sitequery.Fields[i]
		x := wire.SiteField{Name: f.Name, Aliases: f.Aliases, Kind: string(f.Kind), Values: f.Values, Keyed: f.Keyed, Doc: f.Doc, Example: f.Example, Grouped: f.Keyed && f.Kind != sitequery.Numeric}
		if c, err := sitequery.ParseColumn(f.Name); err == nil {
			x.Grouped = c.Grouped()
		}
		x.Aliases, x.Values = orEmpty(x.Aliases), orEmpty(x.Values)
		out.Fields = append(out.Fields, x)
	}
	labels, versions := counter{}, counter{}
	models, signals := map[*health.Model]bool{}, map[string]bool{}
	p := s.inTurn(r, func(pass func() error) error {
		return t.readable(sc, func(i int) error {
			labels.add(t.rows[i].Labels)
			versions.add(t.rows[i].Versions)
			if st := t.view.Sites[i].State; st != nil && st.Model != nil && !models[st.Model] {
				models[st.Model] = true
				for j := range st.Model.Signals {
					signals[st.Model.Signals[j].Name] = true
				}
			}
			return pass()
		})
	})
	if p != nil {
		return p
	}
	out.Labels, out.Versions = labels.keys(), versions.keys()
	out.Measured = slices.AppendSeq([]string{}, maps.Keys(signals))
	slices.Sort(out.Measured)
	out.Measured = out.Measured[:min(len(out.Measured), maxKeys)]
	return s.writeJSON(w, r.URL.Path, &out)
}

func orEmpty(in []string) []string {
	if in == nil {
		return []string{}
	}
	return in
}

// counter counts sites by key and value.
type counter map[string]map[string]int

func (c counter) add(set map[string]string) {
	for k, v := range set {
		if c[k] == nil {
			c[k] = map[string]int{}
		}
		if _, ok := c[k][v]; ok || len(c[k]) < maxCounted {
			c[k][v]++
		}
	}
}

func (c counter) keys() []wire.SiteKey {
	out := []wire.SiteKey{}
	for _, k := range slices.Sorted(maps.Keys(c)) {
		if len(out) == maxKeys {
			break
		}
		values := slices.SortedFunc(maps.Keys(c[k]), func(a, b string) int { return cmp.Or(cmp.Compare(c[k][b], c[k][a]), cmp.Compare(a, b)) })
		n := min(len(values), maxKeyValues)
		out = append(out, wire.SiteKey{Key: k, Values: values[:n], More: len(values) - n})
	}
	return out
}
