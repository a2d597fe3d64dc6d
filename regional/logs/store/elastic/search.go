package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"muster.dev/muster/internal/logquery"
	"muster.dev/muster/regional/logs/store"
)

type object = map[string]any

// Search returns one page, newest first; see store.Store. Clusters that are joined to
// this one and don't answer are named in the page.
func (s *Store) Search(ctx context.Context, q store.Query) (store.Page, error) {
	p, err := q.Plan(s.opts.Now(), s.window)
	if err != nil {
		return store.Page{}, err
	}
	page := store.Page{Hits: []store.Record{}, Histogram: p.NewHistogram()}
	if p.Nothing() {
		return page, nil
	}
	targets := s.targets(p)
	if p, err = s.resolve(ctx, targets, p, planQuery); err != nil {
		return store.Page{}, err
	}
	body := object{
		"size": p.Limit + 1, "query": planQuery(p), "track_total_hits": true,
		"timeout": fmt.Sprintf("%dms", s.opts.MaxQueryTime.Milliseconds()),
		"sort": []any{
			object{logquery.FieldTimestamp: nanosSort("desc")},
			object{logquery.FieldID: object{"order": "desc", "unmapped_type": "keyword"}},
		},
	}
	if p.Before != nil {
		body["search_after"] = []any{p.Before.Nanos, p.Before.ID}
	}
	if page.Histogram != nil {
		body["aggs"] = object{"over_time": object{"date_histogram": object{
			"field": logquery.FieldTimestamp, "fixed_interval": fmt.Sprintf("%ds", int64(p.Step/time.Second)), "min_doc_count": 1,
		}}}
	}
	answer, err := s.search(ctx, targets, body)
	if err != nil {
		return store.Page{}, err
	}
	if page.Missing, err = s.missing(answer); err != nil {
		return store.Page{}, err
	}
	page.Total = answer.Hits.Total.Value
	for _, b := range answer.Aggregations.OverTime.Buckets {
		page.Histogram.Add(max(b.Key*int64(time.Millisecond), page.Histogram.Start.UnixNano()), b.Count)
	}
	for _, h := range answer.Hits.Hits {
		r, err := decode(h.Source)
		if err != nil {
			return store.Page{}, fmt.Errorf("elasticsearch: document %s in %s: %w", h.ID, h.Index, err)
		}
		page.Hits = append(page.Hits, r)
	}
	if len(page.Hits) > p.Limit {
		page.Hits = page.Hits[:p.Limit]
		page.Next = store.PageCursor(page.Hits[p.Limit-1])
	}
	return page, nil
}

func nanosSort(order string) object {
	return object{"order": order, "numeric_type": "date_nanos", "unmapped_type": "date_nanos"}
}

// targets are the tenant's indices here and in the clusters that are joined.
func (s *Store) targets(p store.Plan) []string {
	pattern := s.tenantPrefix(p.Tenant) + "*"
	out := []string{pattern}
	if !p.Local {
		for _, c := range slices.Sorted(maps.Keys(s.opts.Clusters)) {
			out = append(out, c+":"+pattern)
		}
	}
	return out
}

// planQuery is the tenant's wall, a second one after the index pattern, and inside it the query.
func planQuery(p store.Plan) object {
	filter := []any{
		object{"term": object{logquery.FieldTenant: p.Tenant}},
		rangeQuery(logquery.FieldTimestamp, p.From, p.To),
	}
	for _, f := range p.Filters {
		filter = append(filter, object{"terms": object{f.Field: f.Values}})
	}
	return object{"bool": object{"filter": append(filter, translate(p.Root))}}
}

type answer struct {
	TimedOut bool `json:"timed_out"`
	Shards   struct {
		Failed   int            `json:"failed"`
		Failures []shardFailure `json:"failures"`
	} `json:"_shards"`
	Clusters struct {
		Details map[string]struct {
			Status   string         `json:"status"`
			Failures []shardFailure `json:"failures"`
			TimedOut bool           `json:"timed_out"`
		} `json:"details"`
	} `json:"_clusters"`
	Hits struct {
		Total struct {
			Value int64 `json:"value"`
		} `json:"total"`
		Hits []struct {
			Index  string          `json:"_index"`
			ID     string          `json:"_id"`
			Source json.RawMessage `json:"_source"`
		} `json:"hits"`
	} `json:"hits"`
	Aggregations struct {
		OverTime struct {
			Buckets []struct {
				Key   int64 `json:"key"` // milliseconds
				Count int64 `json:"doc_count"`
			} `json:"buckets"`
		} `json:"over_time"`
		Groups struct {
			After   map[string]any `json:"after_key"`
			Buckets []groupBucket  `json:"buckets"`
		} `json:"groups"`
		Values struct {
			Others  int64 `json:"sum_other_doc_count"`
			Buckets []struct {
				Key string `json:"key"`
			} `json:"buckets"`
		} `json:"values"`
	} `json:"aggregations"`
}

type shardFailure struct {
	Index  string `json:"index"`
	Reason cause  `json:"reason"`
}

// search asks, and asks again if it met an index that is being made: a day's first
// record makes one, and for a moment it can't be searched.
func (s *Store) search(ctx context.Context, targets []string, body object) (*answer, error) {
	for began := time.Now(); ; {
		a, err := s.searchOnce(ctx, targets, body)
		if !errors.Is(err, errNoShard) || time.Since(began) > newIndexWait {
			return a, err
		}
		health := esapi.ClusterHealthRequest{Index: targets[:1], WaitForStatus: "yellow", Timeout: newIndexWait}
		if s.do(ctx, health, nil) != nil {
			return a, err
		}
	}
}

const newIndexWait = 5 * time.Second

var errNoShard = errors.New("some shards are on no node, or not ready yet")

func (s *Store) searchOnce(ctx context.Context, targets []string, body object) (*answer, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	// Elasticsearch checks its own timeout between documents only; this one also
	// bounds the network, and a request that is given up is cancelled there.
	ctx, cancel := context.WithTimeout(ctx, s.opts.MaxQueryTime+time.Second)
	defer cancel()
	yes := true
	var a answer
	err = s.do(ctx, esapi.SearchRequest{
		Index: targets, Body: bytes.NewReader(data), IgnoreUnavailable: &yes, AllowNoIndices: &yes, AllowPartialSearchResults: &yes,
		CcsMinimizeRoundtrips: &yes,
	}, &a)
	var e *Error
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		return nil, store.ErrTimeout
	case errors.As(err, &e) && e.Status == http.StatusBadRequest && strings.Contains(e.Type, "too_many"):
		return nil, &store.QueryError{Field: "query", Err: errors.New("it has too many parts for Elasticsearch: make it shorter")}
	case errors.As(err, &e) && e.Status == http.StatusBadRequest: // such as a regular expression of too many states
		return nil, &store.QueryError{Field: "query", Err: fmt.Errorf("Elasticsearch refuses it: %s", e.Reason)}
	case errors.As(err, &e) && e.Status == http.StatusServiceUnavailable:
		return nil, fmt.Errorf("search: %w: %w", errNoShard, err)
	default:
		return nil, fmt.Errorf("search: %w", err)
	}
	if a.TimedOut && len(a.Clusters.Details) == 0 {
		return nil, store.ErrTimeout
	}
	if f := a.Shards.Failures; a.Shards.Failed > 0 && len(a.Clusters.Details) == 0 {
		if len(f) > 0 && f[0].Reason.Type == "no_shard_available_action_exception" {
			return nil, fmt.Errorf("search: %w: %s", errNoShard, failures(f))
		}
		return nil, fmt.Errorf("search: %s", failures(f))
	}
	return &a, nil
}

// missing names the joined clusters that did not answer in full. A failure of this
// cluster itself is an error.
func (s *Store) missing(a *answer) ([]store.Missing, error) {
	var out []store.Missing
	for name, d := range a.Clusters.Details {
		if d.Status == "successful" {
			continue
		}
		if name == "(local)" || name == "" {
			if d.TimedOut {
				return nil, store.ErrTimeout
			}
			return nil, fmt.Errorf("search: %s", failures(d.Failures))
		}
		reason := d.Status
		if d.TimedOut {
			reason = "did not answer in time"
		} else if len(d.Failures) > 0 {
			reason = failures(d.Failures)
		}
		region := s.opts.Clusters[name]
		if region == "" {
			region = name
		}
		out = append(out, store.Missing{Region: region, Reason: reason})
	}
	slices.SortFunc(out, func(a, b store.Missing) int { return strings.Compare(a.Region, b.Region) })
	return out, nil
}

func failures(f []shardFailure) string {
	if len(f) == 0 {
		return "some shards did not answer"
	}
	text := f[0].Reason.text()
	if len(f) > 1 {
		text += fmt.Sprintf(" (and %d more)", len(f)-1)
	}
	return text
}

// Tail returns what came in after the cursor; see store.Store. It looks at this
// cluster only, and goes no further than Now.
func (s *Store) Tail(ctx context.Context, q store.Query, after store.Cursor) (store.TailPage, error) {
	p, pos, err := q.PlanTail(after, s.opts.Now(), s.window)
	if err != nil {
		return store.TailPage{}, err
	}
	p.Local = true
	now, err := s.Now(ctx)
	if err != nil {
		return store.TailPage{}, fmt.Errorf("tail: %w", err)
	}
	horizon := now.UnixNano() + 1 // all below it is known
	page := store.TailPage{Hits: []store.Record{}, Next: store.TailCursor(store.Position{Ingested: horizon})}
	if after != "" && pos.Ingested >= horizon {
		page.Next = after
		return page, nil
	}
	if after == "" || p.Nothing() {
		return page, nil
	}
	targets := s.targets(p)
	yes := true
	if err := s.do(ctx, esapi.IndicesRefreshRequest{Index: targets, IgnoreUnavailable: &yes, AllowNoIndices: &yes}, nil); err != nil {
		return store.TailPage{}, fmt.Errorf("tail: refresh: %w", err)
	}
	within := func(p store.Plan) object {
		return ingestedBetween(p, time.Unix(0, pos.Ingested), time.Unix(0, horizon))
	}
	if p, err = s.resolve(ctx, targets, p, within); err != nil {
		return store.TailPage{}, err
	}
	a, err := s.search(ctx, targets, object{
		"size": p.Limit + 1, "query": within(p), "track_total_hits": false,
		"timeout":      fmt.Sprintf("%dms", s.opts.MaxQueryTime.Milliseconds()),
		"search_after": []any{pos.Ingested, pos.Nanos, pos.ID},
		"sort": []any{
			object{logquery.FieldIngested: nanosSort("asc")},
			object{logquery.FieldTimestamp: nanosSort("asc")},
			object{logquery.FieldID: object{"order": "asc", "unmapped_type": "keyword"}},
		},
	})
	if err != nil {
		return store.TailPage{}, err
	}
	for _, h := range a.Hits.Hits {
		r, err := decode(h.Source)
		if err != nil {
			return store.TailPage{}, fmt.Errorf("elasticsearch: document %s in %s: %w", h.ID, h.Index, err)
		}
		page.Hits = append(page.Hits, r)
	}
	if len(page.Hits) > p.Limit {
		page.Hits = page.Hits[:p.Limit]
		last := page.Hits[p.Limit-1]
		page.More = true
		page.Next = store.TailCursor(store.Position{Ingested: last.Ingested.UnixNano(), Nanos: last.Timestamp.UnixNano(), ID: last.ID})
	}
	return page, nil
}
