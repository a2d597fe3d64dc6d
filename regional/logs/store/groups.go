package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"muster.dev/muster/internal/logquery"
)

// Limits on a GroupQuery.
const (
	MaxBy            = 8
	DefaultMaxGroups = 10_000
	LargestMaxGroups = 100_000
	maxSample        = 1 << 10 // bytes of Group.Message and of a value of Group.Key
	groupPage        = 2000    // records held at once
	largestMetric    = 1e100   // larger numbers don't count: their sums would have no end
)

// GroupQuery counts one tenant's records by when the store took them in, which is
// what log rules go by: a record that comes late is in the next stretch of time,
// once.
type GroupQuery struct {
	Tenant string
	Text   string   // in the language of package logquery; empty finds all
	Sites  []string // nil: any; empty and not nil: none
	// After and UpTo bound the ingest time: After excluded, UpTo included. UpTo must be
	// a time that Store.Now has given, or before one.
	After, UpTo time.Time
	By          []string      // fields as a query names them, such as site or labels.user; at most MaxBy
	Step        time.Duration // of the record's own Timestamp; 0: no cutting by time
	Metric      string        // a field whose values are numbers; empty: none
	MaxGroups   int           // 0: DefaultMaxGroups; at most LargestMaxGroups
}

// Group is the records that have the same values and fall in the same step.
type Group struct {
	Key         []string  // for each of By, its first KiB; "" where a record has no such field
	Time        time.Time // start of the step, a multiple of Step since 1970; zero without Step
	Count       int64
	First, Last time.Time // the oldest and the newest Timestamp
	// MetricCount records have a number of at most 1e100 as the metric; Min, Max and Sum
	// are theirs.
	MetricCount   int64
	Min, Max, Sum float64
	Message       string // of the newest record, its first KiB
}

// Groups are in the order of Key and Time.
type Groups struct {
	Groups []Group
	// Truncated: there were more than MaxGroups, and records of further ones are not counted.
	Truncated bool
}

// field reads a value of a record.
type field func(*Record) string

func fieldOf(name string, fields logquery.Fields) (field, error) {
	if label, ok := strings.CutPrefix(name, logquery.FieldLabels+"."); ok && label != "" {
		return func(r *Record) string { return r.Labels[label] }, nil
	}
	f, ok := fields[name]
	if !ok || name == "" {
		return nil, fmt.Errorf("%q is no field: use one such as site, namespace, pod, severity, message or labels.NAME", name)
	}
	read := map[string]field{
		logquery.FieldMessage: func(r *Record) string { return r.Message }, logquery.FieldSeverity: func(r *Record) string { return r.Severity },
		logquery.FieldStream: func(r *Record) string { return r.Stream }, logquery.FieldID: func(r *Record) string { return r.ID },
		logquery.FieldNode: func(r *Record) string { return r.Node }, logquery.FieldNamespace: func(r *Record) string { return r.Namespace },
		logquery.FieldPod: func(r *Record) string { return r.Pod }, logquery.FieldContainer: func(r *Record) string { return r.Container },
		logquery.FieldUnit: func(r *Record) string { return r.Unit }, logquery.FieldSite: func(r *Record) string { return r.Site },
		logquery.FieldRegion: func(r *Record) string { return r.Region },
	}[f.Name]
	if read == nil {
		return nil, fmt.Errorf("records can't be grouped by %q", name)
	}
	return read, nil
}

// GroupBy reads what came in within the query's bounds and groups it. Its memory is
// bounded by MaxGroups, its time is linear in the records that the text finds. A
// *QueryError is the user's mistake.
func GroupBy(ctx context.Context, s Store, q GroupQuery) (Groups, error) {
	g, err := newGrouping(q)
	if err != nil {
		return Groups{}, err
	}
	if !q.After.Before(q.UpTo) {
		return Groups{}, nil
	}
	until := q.UpTo.UnixNano()
	query := Query{Tenant: q.Tenant, Text: q.Text, Sites: q.Sites, Limit: groupPage, Local: true}
	at := TailCursor(Position{Ingested: max(q.After.UnixNano(), -1) + 1})
	for {
		page, err := s.Tail(ctx, query, at)
		if err != nil {
			return Groups{}, err
		}
		for i := range page.Hits {
			if page.Hits[i].Ingested.UnixNano() > until {
				return g.result(), nil
			}
			g.add(&page.Hits[i])
		}
		pos, err := page.Next.position(kindTail)
		if err != nil {
			return Groups{}, fmt.Errorf("tail: %w", err)
		}
		switch {
		case pos.Ingested > until:
			return g.result(), nil
		case !page.More && page.Next == at:
			return Groups{}, fmt.Errorf("what came in up to %s is not known yet", q.UpTo.Format(time.RFC3339Nano))
		}
		at = page.Next
	}
}

type grouping struct {
	by     []field
	metric field
	step   int64
	limit  int
	groups map[string]*Group
	over   bool
}

func newGrouping(q GroupQuery) (*grouping, error) {
	if len(q.By) > MaxBy {
		return nil, &QueryError{"by", fmt.Errorf("%d fields, the limit is %d", len(q.By), MaxBy)}
	}
	if q.Step < 0 {
		return nil, &QueryError{"step", errors.New("must not be negative")}
	}
	g := &grouping{step: int64(q.Step), limit: min(cmp.Or(max(q.MaxGroups, 0), DefaultMaxGroups), LargestMaxGroups), groups: map[string]*Group{}}
	fields := logquery.LogFields()
	for _, name := range q.By {
		f, err := fieldOf(name, fields)
		if err != nil {
			return nil, &QueryError{"by", err}
		}
		g.by = append(g.by, f)
	}
	if q.Metric != "" {
		f, err := fieldOf(q.Metric, fields)
		if err != nil {
			return nil, &QueryError{"metric", err}
		}
		g.metric = f
	}
	return g, nil
}

func (g *grouping) add(r *Record) {
	at := int64(0)
	if g.step > 0 {
		n := r.Timestamp.UnixNano()
		if at = n / g.step * g.step; n < at {
			at -= g.step
		}
	}
	key := make([]string, len(g.by))
	id := make([]byte, 0, 64)
	for i, f := range g.by {
		key[i] = sample(f(r))
		id = append(strconv.AppendInt(id, int64(len(key[i])), 10), ':')
		id = append(id, key[i]...)
	}
	id = strconv.AppendInt(id, at, 10)
	x := g.groups[string(id)]
	if x == nil {
		if len(g.groups) >= g.limit {
			g.over = true
			return
		}
		x = &Group{Key: key, First: r.Timestamp, Last: r.Timestamp, Message: sample(r.Message)}
		if g.step > 0 {
			x.Time = time.Unix(0, at).UTC()
		}
		g.groups[string(id)] = x
	}
	x.Count++
	if r.Timestamp.Before(x.First) {
		x.First = r.Timestamp
	}
	if r.Timestamp.After(x.Last) {
		x.Last, x.Message = r.Timestamp, sample(r.Message)
	}
	if g.metric == nil {
		return
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(g.metric(r)), 64)
	if err != nil || math.IsNaN(v) || math.Abs(v) > largestMetric {
		return
	}
	if x.MetricCount == 0 {
		x.Min, x.Max = v, v
	}
	x.MetricCount++
	x.Min, x.Max, x.Sum = min(x.Min, v), max(x.Max, v), x.Sum+v
}

// sample is a copy, so that a group does not hold on to a whole record.
func sample(s string) string {
	if len(s) <= maxSample {
		return strings.Clone(s)
	}
	n := maxSample
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n])
}

func (g *grouping) result() Groups {
	out := Groups{Groups: make([]Group, 0, len(g.groups)), Truncated: g.over}
	for _, x := range g.groups {
		out.Groups = append(out.Groups, *x)
	}
	slices.SortFunc(out.Groups, func(a, b Group) int { return cmp.Or(slices.Compare(a.Key, b.Key), a.Time.Compare(b.Time)) })
	return out
}
