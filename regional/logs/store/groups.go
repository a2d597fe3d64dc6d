package store

import (
	"cmp"
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
	MaxBy            = logquery.MaxGroupBy
	MaxInclude       = logquery.MaxInclude
	DefaultMaxGroups = 10_000
	LargestMaxGroups = 100_000
	binsPerGroup     = 4       // of Group.Spread, for each of MaxGroups; in all
	maxSample        = 1 << 10 // bytes of Group.Message and of a value of Group.Key
	maxIncluded      = 256     // bytes of a value of Group.Include
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
	Spread      bool          // also of the metric, for percentiles
	Include     []string      // fields of each group's newest record; at most MaxInclude
	MaxGroups   int           // 0: DefaultMaxGroups; at most LargestMaxGroups
}

// What a GroupQuery finds.
type (
	Group  = logquery.Group
	Groups = logquery.Groups
)

// ErrNotKnown is a GroupQuery whose UpTo is later than what Store.Now has given.
var ErrNotKnown = errors.New("what came in until then is not known yet")

// Plan checks the text and the sites of a GroupQuery, as Query.Plan does.
func (q GroupQuery) Plan(now time.Time, w Window) (Plan, error) {
	return Query{Tenant: q.Tenant, Text: q.Text, Sites: q.Sites, Local: true}.Plan(now, w)
}

// GroupField is one of By, of Include, or the metric.
type GroupField struct {
	Name string // as the store names it; labels.KEY for a label
	read func(*Record) string
}

func groupField(name string, fields logquery.Fields) (GroupField, error) {
	if label, ok := strings.CutPrefix(name, logquery.FieldLabels+"."); ok && label != "" {
		return GroupField{name, func(r *Record) string { return r.Labels[label] }}, nil
	}
	f, ok := fields[name]
	if !ok || name == "" {
		return GroupField{}, fmt.Errorf("%q is no field: use one such as site, namespace, pod, severity, message or labels.NAME", name)
	}
	read := map[string]func(*Record) string{
		logquery.FieldMessage: func(r *Record) string { return r.Message }, logquery.FieldSeverity: func(r *Record) string { return r.Severity },
		logquery.FieldStream: func(r *Record) string { return r.Stream }, logquery.FieldID: func(r *Record) string { return r.ID },
		logquery.FieldNode: func(r *Record) string { return r.Node }, logquery.FieldNamespace: func(r *Record) string { return r.Namespace },
		logquery.FieldPod: func(r *Record) string { return r.Pod }, logquery.FieldContainer: func(r *Record) string { return r.Container },
		logquery.FieldUnit: func(r *Record) string { return r.Unit }, logquery.FieldSite: func(r *Record) string { return r.Site },
		logquery.FieldRegion: func(r *Record) string { return r.Region },
	}[f.Name]
	if read == nil {
		return GroupField{}, fmt.Errorf("records can't be grouped by %q", name)
	}
	return GroupField{f.Name, read}, nil
}

// Grouping gathers the groups of one GroupQuery. Its memory is bounded by MaxGroups.
type Grouping struct {
	By      []GroupField
	Metric  *GroupField // nil: none
	Include []GroupField
	step    int64
	limit   int
	spread  bool
	bins    int // of all groups' spreads
	groups  map[string]*Group
	over    bool
}

// Grouping checks By, Step, Metric and Include. A *QueryError is the user's mistake.
func (q GroupQuery) Grouping() (*Grouping, error) {
	if len(q.By) > MaxBy {
		return nil, &QueryError{"by", fmt.Errorf("%d fields, the limit is %d", len(q.By), MaxBy)}
	}
	if q.Step < 0 {
		return nil, &QueryError{"step", errors.New("must not be negative")}
	}
	g := &Grouping{step: int64(q.Step), spread: q.Spread, limit: min(cmp.Or(max(q.MaxGroups, 0), DefaultMaxGroups), LargestMaxGroups), groups: map[string]*Group{}}
	fields := logquery.LogFields()
	if len(q.Include) > MaxInclude {
		return nil, &QueryError{"include", fmt.Errorf("%d fields, the limit is %d", len(q.Include), MaxInclude)}
	}
	for _, of := range []struct {
		param string
		names []string
		to    *[]GroupField
	}{{"by", q.By, &g.By}, {"include", q.Include, &g.Include}} {
		for _, name := range of.names {
			f, err := groupField(name, fields)
			if err != nil {
				return nil, &QueryError{of.param, err}
			}
			*of.to = append(*of.to, f)
		}
	}
	if q.Metric != "" {
		f, err := groupField(q.Metric, fields)
		if err != nil {
			return nil, &QueryError{"metric", err}
		}
		g.Metric = &f
	}
	return g, nil
}

// Add counts a record.
func (g *Grouping) Add(r *Record) {
	one := Group{Key: make([]string, len(g.By)), Count: 1, First: r.Timestamp, Last: r.Timestamp, Message: r.Message, Include: g.Included(r)}
	for i, f := range g.By {
		one.Key[i] = f.read(r)
	}
	if g.step > 0 {
		n := r.Timestamp.UnixNano()
		at := n / g.step * g.step
		if n < at {
			at -= g.step
		}
		one.Time = time.Unix(0, at).UTC()
	}
	metric := ""
	if g.Metric != nil {
		metric = g.Metric.read(r)
	}
	g.Merge(one, metric)
}

// Included are a record's values of the fields of Include.
func (g *Grouping) Included(r *Record) (out []string) {
	for _, f := range g.Include {
		out = append(out, sample(f.read(r), maxIncluded))
	}
	return out
}

// Merge counts records that have the same Key, Time and value of the metric, of which
// it reads Key, Time, Count, First, Last, Message and Include. It is false, and counts nothing,
// if there is no room for one more group.
func (g *Grouping) Merge(some Group, metric string) bool {
	id := make([]byte, 0, 64)
	for i := range some.Key {
		some.Key[i] = sample(some.Key[i], maxSample)
		id = append(strconv.AppendInt(id, int64(len(some.Key[i])), 10), ':')
		id = append(id, some.Key[i]...)
	}
	id = strconv.AppendInt(id, some.Time.UnixNano(), 10)
	x := g.groups[string(id)]
	if x == nil {
		if len(g.groups) >= g.limit {
			g.over = true
			return false
		}
		x = &Group{Key: some.Key, Time: some.Time, First: some.First, Last: some.Last, Message: sample(some.Message, maxSample), Include: some.Include}
		g.groups[string(id)] = x
	}
	x.Count += some.Count
	if some.First.Before(x.First) {
		x.First = some.First
	}
	if some.Last.After(x.Last) {
		x.Last, x.Message, x.Include = some.Last, sample(some.Message, maxSample), some.Include
	}
	if g.Metric == nil {
		return true
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(metric), 64)
	if err != nil || math.IsNaN(v) || math.Abs(v) > largestMetric {
		return true
	}
	if x.MetricCount == 0 {
		x.Min, x.Max = v, v
	}
	x.MetricCount += some.Count
	x.Min, x.Max, x.Sum = min(x.Min, v), max(x.Max, v), x.Sum+v*float64(some.Count)
	if g.spread {
		g.bins -= len(x.Spread)
		x.Spread = x.Spread.Add(v, some.Count)
		if g.bins += len(x.Spread); g.bins > binsPerGroup*g.limit {
			g.over = true
			g.bins -= len(x.Spread)
			x.Spread = nil
		}
	}
	return true
}

// sample is a copy, so that a group does not hold on to a whole record.
func sample(s string, most int) string {
	if len(s) <= most {
		return strings.Clone(s)
	}
	n := most
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n])
}

// Groups are those gathered so far.
func (g *Grouping) Groups() Groups {
	out := Groups{Groups: make([]Group, 0, len(g.groups)), Truncated: g.over}
	for _, x := range g.groups {
		out.Groups = append(out.Groups, *x)
	}
	slices.SortFunc(out.Groups, func(a, b Group) int { return cmp.Or(slices.Compare(a.Key, b.Key), a.Time.Compare(b.Time)) })
	return out
}
