package elastic

import (
	"context"
	"fmt"
	"slices"

	"muster.dev/muster/internal/logquery"
	"muster.dev/muster/regional/logs/store"
)

// anyOf is a Matcher with the values that it wants among those that there are.
type anyOf struct {
	logquery.Matcher
	values []string
}

// beginning tells whether a pattern is letters with one * behind.
func beginning(n logquery.Wildcard) bool {
	return len(n.Pattern) == 2 && n.Pattern[0].Literal != "" && n.Pattern[1].Any
}

// elsewhere tells whether Elasticsearch can't look for n itself: it compares numbers in keywords by the
// alphabet, and of a field of type flattened it knows beginnings only.
func elsewhere(n logquery.Matcher) bool {
	of, _ := n.Of()
	switch n := n.(type) {
	case logquery.Number:
		return true
	case logquery.Wildcard:
		return of.Kind == logquery.Labels && !beginning(n)
	}
	return of.Kind == logquery.Labels
}

// resolve returns the plan with values in place of what Elasticsearch can't look for. within is what the
// records are that will be searched, so that only their values are read; a record that came in
// later has others perhaps, and is not found.
func (s *Store) resolve(ctx context.Context, targets []string, p store.Plan, within func(store.Plan) object) (store.Plan, error) {
	everything := p
	everything.Root = logquery.All{}
	root, err := replace(p.Root, func(n logquery.Matcher) (logquery.Node, error) {
		if !elsewhere(n) {
			return n, nil
		}
		values, err := s.values(ctx, targets, n, within(everything))
		return anyOf{n, values}, err
	})
	p.Root = root
	return p, err
}

// replace returns the tree with f of each Matcher in it.
func replace(n logquery.Node, f func(logquery.Matcher) (logquery.Node, error)) (logquery.Node, error) {
	each := func(nodes []logquery.Node) (out []logquery.Node, err error) {
		out = make([]logquery.Node, len(nodes))
		for i := range nodes {
			if out[i], err = replace(nodes[i], f); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	switch n := n.(type) {
	case logquery.And:
		out, err := each(n)
		return logquery.And(out), err
	case logquery.Or:
		out, err := each(n)
		return logquery.Or(out), err
	case logquery.Not:
		inner, err := replace(n.Node, f)
		return logquery.Not{Node: inner}, err
	case logquery.Matcher:
		return f(n)
	}
	return n, nil
}

// values are those that n wants, of the records that the query finds.
func (s *Store) values(ctx context.Context, targets []string, n logquery.Matcher, query object) ([]string, error) {
	of, key := n.Of()
	has := object{"exists": object{"field": path(of, key)}}
	if prefix := n.Prefix(); prefix != "" {
		has = object{"prefix": object{path(of, key): object{"value": prefix}}}
	}
	b := query["bool"].(object)
	b["filter"] = append(b["filter"].([]any), has)
	a, err := s.search(ctx, targets, object{
		"size": 0, "track_total_hits": false, "query": query,
		"timeout": fmt.Sprintf("%dms", s.opts.MaxQueryTime.Milliseconds()),
		"aggs":    object{"values": object{"terms": object{"field": path(of, key), "size": store.MaxLabelValues}}},
	})
	if err != nil {
		return nil, err
	}
	if _, err := s.missing(a); err != nil { // the search itself names the clusters that don't answer
		return nil, err
	}
	got := a.Aggregations.Values
	if got.Others > 0 {
		return nil, store.TooManyValues(n)
	}
	values := []string{}
	for _, v := range got.Buckets {
		if n.Matches(v.Key) {
			values = append(values, v.Key)
		}
	}
	slices.Sort(values)
	return values, nil
}
