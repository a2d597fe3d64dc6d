package elastic

import (
	"fmt"
	"strings"
	"time"

	"muster.dev/muster/internal/logquery"
)

// translate turns a query's tree into Elasticsearch's query language.
func translate(n logquery.Node) object {
	switch n := n.(type) {
	case logquery.And:
		return object{"bool": object{"filter": list(n)}}
	case logquery.Or:
		return object{"bool": object{"should": list(n), "minimum_should_match": 1}}
	case logquery.Not:
		return object{"bool": object{"must_not": []any{translate(n.Node)}}}
	case logquery.All:
		return object{"match_all": object{}}
	case logquery.Term:
		if n.Field.Kind == logquery.Text {
			return object{"match_phrase": object{n.Field.Name: n.Value}}
		}
		return object{"term": object{path(n.Field, n.Key): object{"value": n.Value}}}
	case anyOf:
		return object{"terms": object{path(n.Of()): n.values}}
	case logquery.Wildcard:
		if beginning(n) {
			return object{"prefix": object{path(n.Field, n.Key): object{"value": n.Pattern[0].Literal}}}
		}
		return object{"wildcard": object{path(n.Field, n.Key): object{"value": pattern(n.Pattern)}}}
	case logquery.Regexp:
		return object{"regexp": object{path(n.Field, n.Key): object{"value": n.Lucene, "flags": "NONE"}}}
	case logquery.Exists:
		return object{"exists": object{"field": path(n.Field, n.Key)}}
	case logquery.Range:
		return rangeQuery(n.Field.Name, n.From, n.To)
	}
	panic(fmt.Sprintf("query node %T", n))
}

func list(nodes []logquery.Node) []any {
	out := make([]any, len(nodes))
	for i, n := range nodes {
		out[i] = translate(n)
	}
	return out
}

func path(f logquery.Field, key string) string {
	if f.Kind == logquery.Labels {
		return logquery.FieldLabels + "." + key
	}
	return f.Name
}

var escapeWildcard = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`)

func pattern(pieces []logquery.Piece) string {
	var b strings.Builder
	for _, p := range pieces {
		switch {
		case p.Any:
			b.WriteByte('*')
		case p.One:
			b.WriteByte('?')
		default:
			b.WriteString(escapeWildcard.Replace(p.Literal))
		}
	}
	return b.String()
}

// rangeQuery is from ≤ field < to; a zero time is an open end.
func rangeQuery(field string, from, to time.Time) object {
	r := object{"format": "strict_date_optional_time_nanos"}
	if !from.IsZero() {
		r["gte"] = from.UTC().Format(time.RFC3339Nano)
	}
	if !to.IsZero() {
		r["lt"] = to.UTC().Format(time.RFC3339Nano)
	}
	return object{"range": object{field: r}}
}
