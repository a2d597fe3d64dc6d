package store

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"muster.dev/muster/internal/logquery"
)

// Limits on one query.
const (
	DefaultLimit = 100
	MaxLimit     = 10_000
	MaxBuckets   = 1000
	MaxFilter    = 20_000 // values in one filter
	// MaxLabelValues is how many values of a label one pattern, regular expression or range may look
	// at: those in the records of the time and the sites that are searched.
	MaxLabelValues = 50_000
)

// Query asks for records of one tenant. In each filter nil means any value, and an
// empty list that is not nil means none: a virtual site without members finds nothing.
type Query struct {
	Tenant     string    // required
	Text       string    // in the language of package logquery; empty finds all
	From       time.Time // included; zero: as far back as the retention goes
	To         time.Time // excluded; zero: open
	Sites      []string
	Namespaces []string
	Severities []string
	Limit      int    // 0: DefaultLimit
	Cursor     Cursor // Page.Next, for the page after it
	Buckets    int    // at most so many in the histogram; 0: no histogram
	Local      bool   // don't ask the clusters that are joined to this one
}

// Plan is a checked Query, as the implementations use it.
type Plan struct {
	Query
	Root    logquery.Node
	Filters []Filter
	Before  *Position     // search strictly below it
	Step    time.Duration // of the histogram, 0 without
	// Until is where the histogram ends: To, or now if that is open, though a site whose
	// clock is ahead may have hits after it.
	Until time.Time
}

// Filter wants one of the values; with no values it finds nothing.
type Filter struct {
	Field  string
	Values []string
}

// Plan checks a query. Its errors are *QueryError.
func (q Query) Plan(now time.Time, w Window) (Plan, error) {
	bad := func(field, format string, args ...any) (Plan, error) {
		return Plan{}, &QueryError{field, fmt.Errorf(format, args...)}
	}
	if err := CheckTenant(q.Tenant); err != nil {
		return Plan{}, &QueryError{"tenant", err}
	}
	if q.Limit < 0 || q.Limit > MaxLimit {
		return bad("limit", "%d is not between 0 (meaning %d) and %d", q.Limit, DefaultLimit, MaxLimit)
	}
	if q.Buckets < 0 || q.Buckets > MaxBuckets {
		return bad("buckets", "%d is not between 0 and %d", q.Buckets, MaxBuckets)
	}
	if q.Limit == 0 {
		q.Limit = DefaultLimit
	}
	// Nothing is stored outside of these, so they bound the histogram and nothing else.
	if oldest := Day(now.Add(-w.Retention)); q.From.Before(oldest) {
		q.From = oldest
	}
	open := q.To.IsZero()
	if newest := now.Add(w.Future + 1).UTC(); open || q.To.After(newest) {
		q.To = newest
	}
	until := q.To
	if open {
		until = now.UTC()
	}
	q.From, q.To = q.From.UTC(), q.To.UTC()
	if q.To.Before(q.From) {
		q.To = q.From // finds nothing, as a range wholly outside of what is kept should
	}
	root, err := logquery.Parse(q.Text, logquery.LogFields(), now)
	if err != nil {
		return Plan{}, &QueryError{"query", err}
	}
	p := Plan{Query: q, Root: root, Until: until.UTC()}
	for _, f := range []struct {
		name, field string
		values      []string
	}{{"site", logquery.FieldSite, q.Sites}, {"namespace", logquery.FieldNamespace, q.Namespaces}, {"severity", logquery.FieldSeverity, q.Severities}} {
		if f.values == nil {
			continue
		}
		if len(f.values) > MaxFilter {
			return bad(f.name, "%d values, the limit is %d", len(f.values), MaxFilter)
		}
		values := make([]string, len(f.values))
		for i, v := range f.values {
			if values[i] = v; f.field == logquery.FieldSeverity {
				values[i] = strings.ToLower(v)
			}
		}
		p.Filters = append(p.Filters, Filter{f.field, values})
	}
	if q.Cursor != "" {
		pos, err := q.Cursor.position(kindPage)
		if err != nil {
			return Plan{}, &QueryError{"cursor", err}
		}
		p.Before = &pos
	}
	if q.Buckets > 0 {
		p.Step = step(p.Until.Sub(q.From), q.Buckets)
	}
	return p, nil
}

// TooManyValues says that n would have a store look at more values than it may.
func TooManyValues(n logquery.Matcher) error {
	f, key := n.Of()
	name := f.Name
	if key != "" {
		name += "." + key
	}
	return &QueryError{"query", fmt.Errorf("%s has too many different values for a pattern, a regular expression or a range: let it begin with more letters, or search less time or fewer sites", name)}
}

// PlanTail checks a query and its cursor for Tail; the position is the zero one for an empty cursor.
func (q Query) PlanTail(after Cursor, now time.Time, w Window) (Plan, Position, error) {
	q.Cursor, q.Buckets = "", 0
	p, err := q.Plan(now, w)
	if err != nil || after == "" {
		return p, Position{}, err
	}
	pos, err := after.position(kindTail)
	if err != nil {
		return p, pos, &QueryError{"cursor", err}
	}
	return p, pos, nil
}

// Nothing says that a filter leaves no record, so no store needs to be asked.
func (p Plan) Nothing() bool {
	if !p.From.Before(p.To) {
		return true
	}
	for _, f := range p.Filters {
		if len(f.Values) == 0 {
			return true
		}
	}
	return false
}

var steps = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour}

// step is the smallest readable step that cuts d into no more than n buckets, the
// partial ones at both ends included.
func step(d time.Duration, n int) time.Duration {
	for _, s := range steps {
		if int(d/s)+2 <= n {
			return s
		}
	}
	day := 24 * time.Hour
	return day * time.Duration(int(d/day)/max(1, n-2)+1)
}

// NewHistogram returns an empty one from From up to Until, or nil if none is wanted.
// Buckets start at whole steps since 1970.
func (p Plan) NewHistogram() *Histogram {
	if p.Step == 0 {
		return nil
	}
	h := &Histogram{Start: time.Unix(0, p.From.UnixNano()/int64(p.Step)*int64(p.Step)).UTC(), Step: p.Step, Counts: []int64{}}
	if p.From.Before(p.Until) {
		h.Counts = make([]int64, (p.Until.UnixNano()-1-h.Start.UnixNano())/int64(p.Step)+1)
	}
	return h
}

// Add counts n hits at a time, in Unix nanoseconds. Times outside are ignored.
func (h *Histogram) Add(nanos, n int64) {
	if i := (nanos - h.Start.UnixNano()) / int64(h.Step); nanos >= h.Start.UnixNano() && i < int64(len(h.Counts)) {
		h.Counts[i] += n
	}
}

// Position of a record in the order of Search (Nanos, then ID, both descending) or of
// Tail (Ingested, Nanos, ID, ascending).
type Position struct {
	Ingested int64 // Unix nanoseconds; Tail only
	Nanos    int64 // of the Timestamp
	ID       string
}

// Cursor is a position in text, opaque to users. A page's cursor holds in every
// store: after merging pages of several regions, the cursor of the last record that was
// shown continues in all of them.
type Cursor string

const (
	kindPage = 1
	kindTail = 2
)

// PageCursor continues a search below the record.
func PageCursor(r Record) Cursor {
	return encodeCursor(kindPage, Position{Nanos: r.Timestamp.UnixNano(), ID: r.ID})
}

// TailCursor continues a tail after the position.
func TailCursor(p Position) Cursor { return encodeCursor(kindTail, p) }

func encodeCursor(kind byte, p Position) Cursor {
	b := []byte{kind}
	if kind == kindTail {
		b = binary.BigEndian.AppendUint64(b, uint64(p.Ingested))
	}
	b = binary.BigEndian.AppendUint64(b, uint64(p.Nanos))
	b = append(b, p.ID...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return Cursor(base64.RawURLEncoding.EncodeToString(b))
}

var errCursor = errors.New("not a cursor of this search: start again without one")

func (c Cursor) position(kind byte) (Position, error) {
	if len(c) > 2*MaxFieldBytes {
		return Position{}, errCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(string(c))
	if err != nil || len(b) < 5 || strings.ContainsAny(string(c), "\r\n") { // which the decoder skips
		return Position{}, errCursor
	}
	b, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if sum != crc32.ChecksumIEEE(b) || b[0] != kind {
		return Position{}, errCursor
	}
	b = b[1:]
	var p Position
	if kind == kindTail {
		if len(b) < 8 {
			return Position{}, errCursor
		}
		p.Ingested, b = int64(binary.BigEndian.Uint64(b)), b[8:]
	}
	if len(b) < 8 {
		return Position{}, errCursor
	}
	p.Nanos, p.ID = int64(binary.BigEndian.Uint64(b)), string(b[8:])
	if p.Nanos < 0 || p.Ingested < 0 || len(p.ID) > MaxFieldBytes || strings.ToValidUTF8(p.ID, "") != p.ID {
		return Position{}, errCursor
	}
	return p, nil
}
