package embedded

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/blevesearch/bleve/v2/search"
	"github.com/blevesearch/bleve/v2/search/searcher"
	index "github.com/blevesearch/bleve_index_api"

	"muster.dev/muster/internal/logquery"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/regional/logs/store"
)

// Bounds on one pattern in one shard: how much of the dictionary it may read, and how
// many terms it may match.
const (
	maxScanned = 2_000_000
	maxMatched = 5_000
)

// builder turns a query's tree into bleve's searchers over one shard.
type builder struct {
	ctx    context.Context
	turn   *turns.Turn
	reader index.IndexReader
	day    time.Time
	// Doc values, opened when first asked for. One reader each: a reader loads all its fields.
	times, stamps index.DocValueReader
	lastID        index.IndexInternalID
	lastNanos     int64
}

// passEvery is after how many documents or terms a loop calls pass: some tenths of a
// millisecond.
const passEvery = 256

// pass lets others go on, or says why the query must end.
func (b *builder) pass() error { return b.turn.Pass(b.ctx) }

// No scores: records are ordered by time, and bleve can then work on bitmaps.
var noScore = search.SearcherOptions{Score: "none"}

// plan returns the searcher of everything that p asks for: text, filters and time.
// stamps, if not nil, are the only ingest stamps that count.
func (b *builder) plan(p store.Plan, stamps []string) (search.Searcher, error) {
	nodes := logquery.And{p.Root, logquery.Range{From: p.From, To: p.To}}
	var all []search.Searcher
	for _, n := range nodes {
		if _, ok := n.(logquery.All); ok {
			continue
		}
		if r, ok := n.(logquery.Range); ok && b.whole(r) {
			continue
		}
		s, err := b.node(n)
		if err != nil {
			return nil, closeAll(all, err)
		}
		all = append(all, s)
	}
	for _, f := range p.Filters {
		s, err := b.anyOf(f.Field, f.Values)
		if err != nil {
			return nil, closeAll(all, err)
		}
		all = append(all, s)
	}
	if stamps != nil {
		s, err := b.terms(fieldStamp, stamps)
		if err != nil {
			return nil, closeAll(all, err)
		}
		all = append(all, s)
	}
	switch len(all) {
	case 0:
		return searcher.NewMatchAllSearcher(b.ctx, b.reader, 1, noScore)
	case 1:
		return all[0], nil
	}
	s, err := searcher.NewConjunctionSearcher(b.ctx, b.reader, all, noScore)
	return s, closeAll(all, err)
}

// closeAll closes searchers that an error made useless.
func closeAll(all []search.Searcher, err error) error {
	if err != nil {
		for _, s := range all {
			_ = s.Close()
		}
	}
	return err
}

func (b *builder) node(n logquery.Node) (search.Searcher, error) {
	switch n := n.(type) {
	case logquery.And:
		return b.and(n)
	case logquery.Or:
		all, err := b.list(n)
		if err != nil {
			return nil, err
		}
		s, err := searcher.NewDisjunctionSearcher(b.ctx, b.reader, all, 1, noScore)
		return s, closeAll(all, err)
	case logquery.Not:
		return b.and(logquery.And{n})
	case logquery.All:
		return searcher.NewMatchAllSearcher(b.ctx, b.reader, 1, noScore)
	case logquery.Term:
		return b.term(n)
	case logquery.Matcher:
		return b.matching(n)
	case logquery.Exists:
		switch {
		case n.Field.Kind == logquery.Labels:
			return b.one(fieldHas, logquery.FieldLabels+"."+n.Key)
		case n.Field.Name == logquery.FieldMessage || n.Field.Name == logquery.FieldTimestamp || n.Field.Name == logquery.FieldID:
			return searcher.NewMatchAllSearcher(b.ctx, b.reader, 1, noScore)
		}
		return b.one(fieldHas, n.Field.Name)
	case logquery.Range:
		return b.timeRange(n)
	}
	return nil, fmt.Errorf("query node %T", n)
}

func (b *builder) list(nodes []logquery.Node) ([]search.Searcher, error) {
	var all []search.Searcher
	for _, n := range nodes {
		s, err := b.node(n)
		if err != nil {
			return nil, closeAll(all, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// and takes the NOTs among the nodes out of what must hold.
func (b *builder) and(nodes logquery.And) (search.Searcher, error) {
	var must, not []logquery.Node
	for _, n := range nodes {
		if inner, ok := n.(logquery.Not); ok {
			not = append(not, inner.Node)
		} else {
			must = append(must, n)
		}
	}
	if len(must) == 0 {
		must = append(must, logquery.All{})
	}
	musts, err := b.list(must)
	if err != nil {
		return nil, err
	}
	m := musts[0]
	if len(musts) > 1 {
		if m, err = searcher.NewConjunctionSearcher(b.ctx, b.reader, musts, noScore); err != nil {
			return nil, closeAll(musts, err)
		}
	}
	if len(not) == 0 {
		return m, nil
	}
	nots, err := b.list(not)
	if err != nil {
		return nil, closeAll([]search.Searcher{m}, err)
	}
	n, err := searcher.NewDisjunctionSearcher(b.ctx, b.reader, nots, 1, noScore)
	if err != nil {
		return nil, closeAll(append(nots, m), err)
	}
	s, err := searcher.NewBooleanSearcher(b.ctx, b.reader, m, nil, n, noScore)
	if err != nil {
		return nil, closeAll([]search.Searcher{m, n}, err)
	}
	return s, nil
}

func (b *builder) one(field, term string) (search.Searcher, error) {
	return searcher.NewTermSearcher(b.ctx, b.reader, term, field, 1, noScore)
}

func (b *builder) none() (search.Searcher, error) { return searcher.NewMatchNoneSearcher(b.reader) }

// bleveField is the field that holds the values of the query's field.
func bleveField(f logquery.Field) string {
	if f.Name == logquery.FieldID {
		return "_id"
	}
	return f.Name
}

func (b *builder) term(n logquery.Term) (search.Searcher, error) {
	switch n.Field.Kind {
	case logquery.Labels:
		return b.one(logquery.FieldLabels, string(labelTerm(n.Key, n.Value)))
	case logquery.Text:
		tokens := words.Analyze([]byte(n.Value))
		switch len(tokens) {
		case 0:
			return b.none()
		case 1:
			return b.one(n.Field.Name, string(tokens[0].Term))
		}
		terms := make([]string, len(tokens))
		for i, t := range tokens {
			terms[i] = string(t.Term)
		}
		return searcher.NewPhraseSearcher(b.ctx, b.reader, terms, 0, false, n.Field.Name, 1, noScore)
	}
	return b.one(bleveField(n.Field), n.Value)
}

// terms finds documents with any of the terms, which must not be many.
func (b *builder) terms(field string, terms []string) (search.Searcher, error) {
	switch len(terms) {
	case 0:
		return b.none()
	case 1:
		return b.one(field, terms[0])
	}
	return searcher.NewMultiTermSearcher(b.ctx, b.reader, terms, field, 1, noScore, false)
}

// anyOf is terms for a filter of any length: only those in the shard's dictionary cost
// anything, and for sites and namespaces that is short.
func (b *builder) anyOf(field string, values []string) (search.Searcher, error) {
	if len(values) <= 32 {
		return b.terms(field, values)
	}
	want := make(map[string]bool, len(values))
	for _, v := range values {
		want[v] = true
	}
	var found []string
	err := b.dict(field, "", func(term string) (bool, error) {
		if want[term] {
			found = append(found, term)
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return b.terms(field, found)
}

// dict calls f with the field's terms that have the prefix, in order, until it says stop.
func (b *builder) dict(field, prefix string, f func(term string) (more bool, err error)) error {
	d, err := b.reader.FieldDictPrefix(field, []byte(prefix))
	if err != nil {
		return err
	}
	defer d.Close()
	for i := 0; ; i++ {
		if i%passEvery == 0 {
			if err := b.pass(); err != nil {
				return err
			}
		}
		e, err := d.Next()
		if err != nil || e == nil {
			return err
		}
		if more, err := f(e.Term); err != nil || !more {
			return err
		}
	}
}

// matching reads the part of the dictionary that begins as every value does that n wants. bleve's
// own way, a regular expression, has no bound.
func (b *builder) matching(n logquery.Matcher) (search.Searcher, error) {
	of, key := n.Of()
	field, prefix, most := bleveField(of), "", maxMatched
	if of.Kind == logquery.Labels {
		prefix, most = string(labelTerm(key, "")), store.MaxLabelValues
	}
	var found []string
	scanned := 0
	err := b.dict(field, prefix+n.Prefix(), func(term string) (bool, error) {
		scanned++
		if n.Matches(term[len(prefix):]) {
			found = append(found, term)
		}
		if len(found) > most || scanned > maxScanned {
			return false, store.TooManyValues(n)
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return b.terms(field, found)
}

// whole says that the range covers all of the shard's day.
func (b *builder) whole(r logquery.Range) bool {
	return (r.From.IsZero() || !r.From.After(b.day)) && (r.To.IsZero() || !r.To.Before(b.day.Add(24*time.Hour)))
}

// timeRange finds whole minutes by their term, and looks at each record's time only
// in the two minutes at the ends.
func (b *builder) timeRange(r logquery.Range) (search.Searcher, error) {
	if b.whole(r) {
		return searcher.NewMatchAllSearcher(b.ctx, b.reader, 1, noScore)
	}
	from, to := b.day, b.day.Add(24*time.Hour)
	if r.From.After(from) {
		from = r.From
	}
	if !r.To.IsZero() && r.To.Before(to) {
		to = r.To
	}
	if !from.Before(to) {
		return b.none()
	}
	first, last := minuteOf(from), minuteOf(to.Add(-1))
	var inside []string
	edges := []int{}
	for m := first; m <= last; m++ {
		start := b.day.Add(time.Duration(m) * time.Minute)
		if start.Before(from) || start.Add(time.Minute).After(to) {
			edges = append(edges, m)
		} else {
			inside = append(inside, minuteTerm(m))
		}
	}
	var all []search.Searcher
	if len(inside) > 0 {
		s, err := b.terms(fieldMinute, inside)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	lo, hi := from.UnixNano(), to.UnixNano()
	for _, m := range edges {
		s, err := b.one(fieldMinute, minuteTerm(m))
		if err != nil {
			return nil, closeAll(all, err)
		}
		all = append(all, searcher.NewFilteringSearcher(b.ctx, s, func(_ *search.SearchContext, d *search.DocumentMatch) bool {
			n, err := b.nanos(d.IndexInternalID)
			return err == nil && n >= lo && n < hi
		}))
	}
	if len(all) == 1 {
		return all[0], nil
	}
	s, err := searcher.NewDisjunctionSearcher(b.ctx, b.reader, all, 1, noScore)
	return s, closeAll(all, err)
}

// nanos returns a document's timestamp. It is the costliest step of a query with many
// hits, and often asked for twice in a row: by a range's edge, then for the page.
func (b *builder) nanos(id index.IndexInternalID) (int64, error) {
	if bytes.Equal(id, b.lastID) {
		return b.lastNanos, nil
	}
	n, err := value(b.reader, &b.times, fieldTime, id)
	b.lastID, b.lastNanos = append(b.lastID[:0], id...), n
	return n, err
}

// stamp returns a document's ingest stamp.
func (b *builder) stamp(id index.IndexInternalID) (int64, error) {
	return value(b.reader, &b.stamps, fieldStamp, id)
}

func value(r index.IndexReader, dv *index.DocValueReader, field string, id index.IndexInternalID) (n int64, err error) {
	if *dv == nil {
		if *dv, err = r.DocValueReader([]string{field}); err != nil {
			return 0, err
		}
	}
	err = (*dv).VisitDocValues(id, func(_ string, term []byte) { n = parseHex(term) })
	return n, err
}

// stampTerms are the ingest stamps from ≤ stamp < to in the shard.
func (b *builder) stampTerms(from, to int64) ([]string, error) {
	d, err := b.reader.FieldDictRange(fieldStamp, []byte(hexNanos(from)), []byte(hexNanos(to-1)))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var out []string
	for {
		e, err := d.Next()
		if err != nil || e == nil {
			return slices.Clip(out), err
		}
		if out = append(out, e.Term); len(out) == maxStamps {
			return out, nil
		}
	}
}

// maxStamps bounds how many Writes one page of a tail looks at.
const maxStamps = 2000
