package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"muster.dev/muster/internal/logquery"
	"muster.dev/muster/regional/logs/store"
)

// groupPage is how many groups one answer has. Each costs a look at its newest record,
// and each answer another pass over the records.
const groupPage = 5000

// Groups counts what came in; see store.Store. Elasticsearch does the counting, from
// its columns: a composite aggregation over the fields, the time and the metric's own
// values, which are added up here. Only messages have no column: grouped by those, and
// by parts of a millisecond, the records are read one by one.
func (s *Store) Groups(ctx context.Context, q store.GroupQuery) (store.Groups, error) {
	g, err := q.Grouping()
	if err != nil {
		return store.Groups{}, err
	}
	p, err := q.Plan(s.opts.Now(), s.window)
	if err != nil {
		return store.Groups{}, err
	}
	if !q.After.Before(q.UpTo) || p.Nothing() {
		return store.Groups{}, nil
	}
	now, err := s.Now(ctx)
	if err != nil {
		return store.Groups{}, fmt.Errorf("groups: %w", err)
	}
	if q.UpTo.After(now) {
		return store.Groups{}, store.ErrNotKnown
	}
	noColumn := func(f store.GroupField) bool { return f.Name == logquery.FieldMessage }
	if slices.ContainsFunc(g.By, noColumn) || g.Metric != nil && noColumn(*g.Metric) || q.Step%time.Millisecond != 0 {
		return s.groupsByReading(ctx, q, g)
	}
	p.Local = true
	targets := s.targets(p)
	yes := true
	if err := s.do(ctx, esapi.IndicesRefreshRequest{Index: targets, IgnoreUnavailable: &yes, AllowNoIndices: &yes}, nil); err != nil {
		return store.Groups{}, fmt.Errorf("groups: refresh: %w", err)
	}
	within := func(p store.Plan) object { return ingestedBetween(p, q.After.Add(1), q.UpTo.Add(1)) }
	if p, err = s.resolve(ctx, targets, p, within); err != nil {
		return store.Groups{}, err
	}
	composite := object{"size": groupPage, "sources": sources(g, q.Step)}
	body := object{
		"size": 0, "track_total_hits": false, "query": within(p),
		"timeout": fmt.Sprintf("%dms", s.opts.MaxQueryTime.Milliseconds()),
		"aggs": object{"groups": object{
			"composite": composite,
			"aggs": object{
				"first":  object{"min": object{"field": logquery.FieldTimestamp}},
				"last":   object{"max": object{"field": logquery.FieldTimestamp}},
				"newest": object{"top_hits": object{"size": 1, "sort": object{logquery.FieldTimestamp: nanosSort("desc")}, "_source": sourceOf(g)}},
			},
		}},
	}
	for {
		a, err := s.search(ctx, targets, body)
		if err != nil {
			return store.Groups{}, err
		}
		got := a.Aggregations.Groups
		for _, b := range got.Buckets {
			some, metric, err := b.group(g, q.Step)
			if err != nil {
				return store.Groups{}, fmt.Errorf("elasticsearch: groups: %w", err)
			}
			if !g.Merge(some, metric) {
				return g.Groups(), nil // they come in order: no room for one, none for the rest
			}
		}
		if len(got.After) == 0 || len(got.Buckets) < groupPage {
			return g.Groups(), nil
		}
		composite["after"] = got.After
	}
}

// ingestedBetween adds bounds of the ingest time, the second excluded, to a plan's query.
func ingestedBetween(p store.Plan, from, to time.Time) object {
	query := planQuery(p)
	b := query["bool"].(object)
	b["filter"] = append(b["filter"].([]any), rangeQuery(logquery.FieldIngested, from, to))
	return query
}

// sources name the columns by their place: 0, 1, … for By, then time and metric.
func sources(g *store.Grouping, step time.Duration) []object {
	terms := func(name, field string) object {
		return object{name: object{"terms": object{"field": field, "missing_bucket": true}}}
	}
	var out []object
	for i, f := range g.By {
		out = append(out, terms(strconv.Itoa(i), f.Name))
	}
	if step > 0 {
		out = append(out, object{"time": object{"date_histogram": object{"field": logquery.FieldTimestamp, "fixed_interval": fmt.Sprintf("%dms", step.Milliseconds())}}})
	}
	if g.Metric != nil {
		out = append(out, terms("metric", g.Metric.Name))
	}
	if len(out) == 0 { // there must be one: all have the same tenant
		out = append(out, terms("all", logquery.FieldTenant))
	}
	return out
}

// sourceOf is what is read of the newest record. Of labels it is all: their names have dots.
func sourceOf(g *store.Grouping) []string {
	out := []string{logquery.FieldMessage}
	for _, f := range g.Include {
		if strings.HasPrefix(f.Name, logquery.FieldLabels+".") {
			out = append(out, logquery.FieldLabels)
		} else {
			out = append(out, f.Name)
		}
	}
	return out
}

// groupBucket is one of a composite aggregation.
type groupBucket struct {
	Key         map[string]any `json:"key"`
	Count       int64          `json:"doc_count"`
	First, Last struct {
		Value json.Number `json:"value"` // milliseconds
	}
	Newest struct {
		Hits struct {
			Hits []struct {
				Source document `json:"_source"`
			} `json:"hits"`
		} `json:"hits"`
	} `json:"newest"`
}

func (b *groupBucket) group(g *store.Grouping, step time.Duration) (some store.Group, metric string, err error) {
	text := func(name string) string {
		v, _ := b.Key[name].(string) // null: the record has no such field
		return v
	}
	some = store.Group{Key: make([]string, len(g.By)), Count: b.Count}
	for i := range g.By {
		some.Key[i] = text(strconv.Itoa(i))
	}
	if step > 0 {
		n, ok := b.Key["time"].(json.Number)
		if !ok {
			return some, "", fmt.Errorf("a step begins at %v, which is no number", b.Key["time"])
		}
		if some.Time, err = milliseconds(n); err != nil {
			return some, "", err
		}
	}
	first, err1 := milliseconds(b.First.Value)
	last, err2 := milliseconds(b.Last.Value)
	some.First, some.Last = first, last
	if h := b.Newest.Hits.Hits; len(h) > 0 {
		r := h[0].Source.record()
		some.Message, some.Include = r.Message, g.Included(&r)
	}
	return some, text("metric"), errors.Join(err1, err2)
}

func milliseconds(n json.Number) (time.Time, error) {
	f, err := n.Float64()
	if err != nil || math.IsNaN(f) || math.Abs(f) > 1e15 {
		return time.Time{}, fmt.Errorf("%q is no time in milliseconds", n)
	}
	return time.UnixMilli(int64(f)).UTC(), nil
}

// groupsByReading goes through the records, page by page.
func (s *Store) groupsByReading(ctx context.Context, q store.GroupQuery, g *store.Grouping) (store.Groups, error) {
	const page = 2000 // records held at once
	query := store.Query{Tenant: q.Tenant, Text: q.Text, Sites: q.Sites, Limit: page, Local: true}
	until := q.UpTo.UnixNano()
	at := store.TailCursor(store.Position{Ingested: max(q.After.UnixNano(), -1) + 1})
	for {
		page, err := s.Tail(ctx, query, at)
		if err != nil {
			return store.Groups{}, err
		}
		for i := range page.Hits {
			if page.Hits[i].Ingested.UnixNano() > until {
				return g.Groups(), nil
			}
			g.Add(&page.Hits[i])
		}
		if !page.More {
			return g.Groups(), nil
		}
		at = page.Next
	}
}
