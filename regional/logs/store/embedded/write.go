package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/blevesearch/bleve/v2/analysis"
	"github.com/blevesearch/bleve/v2/analysis/token/lowercase"
	"github.com/blevesearch/bleve/v2/document"
	index "github.com/blevesearch/bleve_index_api"
	"github.com/blevesearch/segment"

	"muster.dev/muster/internal/logquery"
	"muster.dev/muster/regional/logs/store"
)

// Fields of the documents, beside the keyword fields of store.Record.Keywords.
const (
	fieldTime   = "t" // timestamp: 16 hex digits of Unix nanoseconds, in the doc values
	fieldMinute = "m" // of the day, 4 digits: time ranges read whole minutes by term
	fieldStamp  = "g" // ingest stamp as 16 hex digits: one term a Write, so tails find their records by term
	fieldHas    = "f" // names of the fields that the record has
	fieldRecord = "r" // the record as JSON, stored
)

// Bounds on one batch, so that a large Write needs no more memory than a small one.
const (
	batchRecords = 4000
	batchBytes   = 8 << 20
)

// words is how messages are cut into words: by Unicode's rules (UAX #29), in lower
// case, no word longer than 255, as Elasticsearch's standard analyzer does.
var words analysis.Analyzer = &analysis.DefaultAnalyzer{
	Tokenizer:    tokenizer{},
	TokenFilters: []analysis.TokenFilter{lowercase.NewLowerCaseFilter(), splitLong{}},
}

const maxWord = 255

// tokenizer cuts at Unicode's word boundaries. The segmenter's tables are older than
// most emoji, so these are picked out here, one by one.
type tokenizer struct{}

func (tokenizer) Tokenize(input []byte) analysis.TokenStream {
	seg := segment.NewWordSegmenterDirect(input)
	out := make(analysis.TokenStream, 0, len(input)/6+1)
	tokens := make([]analysis.Token, 0, len(input)/6+1)
	start := 0
	for seg.Segment() {
		word := seg.Bytes()
		if seg.Type() != segment.None || isEmoji(word) {
			tokens = append(tokens, analysis.Token{Term: word, Start: start, End: start + len(word), Position: len(out) + 1, Type: analysis.AlphaNumeric})
			out = append(out, &tokens[len(tokens)-1])
		}
		start += len(word)
	}
	return out
}

func isEmoji(word []byte) bool {
	r, _ := utf8.DecodeRune(word)
	return r >= 0x1F300 && r <= 0x1FAFF
}

type splitLong struct{}

func (splitLong) Filter(in analysis.TokenStream) analysis.TokenStream {
	long := false
	for _, t := range in {
		long = long || len(t.Term) > maxWord
	}
	if !long {
		return in
	}
	out := make(analysis.TokenStream, 0, len(in)+8)
	for _, t := range in {
		for term := []rune(string(t.Term)); len(term) > 0; {
			n := min(len(term), maxWord)
			out = append(out, &analysis.Token{Start: t.Start, End: t.End, Term: []byte(string(term[:n])), Position: len(out) + 1, Type: t.Type})
			term = term[n:]
		}
	}
	return out
}

// Write stores records; see store.Store.
func (s *Store) Write(ctx context.Context, records []store.Record) (store.Result, error) {
	if err := s.enter(); err != nil {
		return store.Result{}, err
	}
	defer s.inflight.Done()
	if err := ctx.Err(); err != nil {
		return store.Result{}, err
	}
	var res store.Result
	now := s.opts.Now()
	stamp, done := s.clock.Begin()
	defer done()
	parts := map[key]*part{}
	for i, r := range records {
		if reason := s.window.Check(&r, now); reason != "" {
			res.Dead = append(res.Dead, store.Failure{Index: i, Reason: reason})
			continue
		}
		r.Ingested = time.Unix(0, stamp).UTC()
		k := key{r.Tenant, store.Day(r.Timestamp)}
		p := parts[k]
		if p == nil {
			p = &part{seen: map[string]bool{}}
			parts[k] = p
		}
		if p.seen[r.ID] {
			res.Duplicates++
			continue
		}
		p.seen[r.ID] = true
		p.records, p.indices = append(p.records, r), append(p.indices, i)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	limit := make(chan struct{}, 4)
	for k, p := range parts {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			part, err := s.writePart(ctx, k, p, stamp)
			mu.Lock()
			defer mu.Unlock()
			res.Stored += part.Stored
			res.Duplicates += part.Duplicates
			if err != nil {
				for _, i := range p.indices[part.Stored+part.Duplicates:] {
					res.Retry = append(res.Retry, store.Failure{Index: i, Reason: err.Error()})
				}
			}
		})
	}
	wg.Wait()
	s.metrics.count(res)
	return res, nil
}

// part of a Write that goes into one shard.
type part struct {
	records []store.Record
	indices []int // in the slice handed to Write
	seen    map[string]bool
}

// writePart stores the records in order, batch by batch. With an error, what it
// counted is the head of the records, and the rest is not stored.
func (s *Store) writePart(ctx context.Context, k key, p *part, stamp int64) (store.Result, error) {
	var res store.Result
	if (*s.over.Load())[k.tenant] {
		return res, s.fullError()
	}
	sh, err := s.acquire(k, true)
	if err != nil {
		return res, err
	}
	defer s.release(sh)
	// Looking for what is there already and adding the rest is one step to other writers.
	sh.writing.Lock()
	defer sh.writing.Unlock()
	for rest := p.records; len(rest) > 0; {
		if err := ctx.Err(); err != nil {
			return res, err
		}
		n, size := 0, 0
		for n < len(rest) && n < batchRecords && (n == 0 || size < batchBytes) {
			size += len(rest[n].Message)
			n++
		}
		// Also a batch that fails may be found: see settle.
		s.mu.Lock()
		sh.last = max(sh.last, stamp)
		s.mu.Unlock()
		stored, err := sh.write(rest[:n], stamp)
		if err != nil {
			return res, fmt.Errorf("write to shard %s: %w", sh.dir, err)
		}
		res.Stored += stored
		res.Duplicates += n - stored
		rest = rest[n:]
	}
	return res, nil
}

// write adds the records that the shard doesn't have yet, and returns how many. They are
// on disk when it returns.
func (sh *shard) write(records []store.Record, stamp int64) (int, error) {
	if err := sh.settle(); err != nil {
		return 0, err
	}
	have, err := sh.have(records)
	if err != nil {
		return 0, err
	}
	batch := index.NewBatch()
	stored := 0
	for i := range records {
		if have[records[i].ID] {
			continue
		}
		doc, err := newDocument(&records[i], stamp)
		if err != nil {
			return 0, err
		}
		batch.Update(doc)
		stored++
	}
	if stored == 0 {
		return 0, nil
	}
	if err := sh.idx.Batch(batch); err != nil {
		sh.unsure = true
		return 0, err
	}
	return stored, nil
}

// settle makes sure that what the index finds is on disk. scorch shows a batch to its
// readers before it writes it: when the write fails, the records are found and would
// count as stored before, though kill -9 loses them. An empty batch is answered after
// everything before it is written.
func (sh *shard) settle() error {
	if !sh.unsure {
		return nil
	}
	if err := sh.idx.Batch(index.NewBatch()); err != nil {
		return fmt.Errorf("earlier records are not on disk yet: %w", err)
	}
	sh.unsure = false
	return nil
}

// have returns which of the records are in the shard, by ID.
func (sh *shard) have(records []store.Record) (have map[string]bool, err error) {
	ids := make([]string, len(records))
	for i := range records {
		ids[i] = records[i].ID
	}
	sort.Strings(ids)
	reader, err := sh.idx.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	it, err := reader.DocIDReaderOnly(ids)
	if err != nil {
		return nil, err
	}
	defer it.Close()
	for {
		id, err := it.Next()
		if err != nil || id == nil {
			return have, err
		}
		ext, err := reader.ExternalID(id)
		if err != nil {
			return nil, err
		}
		if have == nil {
			have = map[string]bool{}
		}
		have[ext] = true
	}
}

const term = index.IndexField | index.SkipFreqNorm

func newDocument(r *store.Record, stamp int64) (*document.Document, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	doc := document.NewDocument(r.ID)
	add := func(field string, value []byte, options index.FieldIndexingOptions, analyzer analysis.Analyzer) {
		doc.AddField(document.NewTextFieldCustom(field, nil, value, options, analyzer))
	}
	add(fieldRecord, data, index.StoreField, nil)
	add(fieldTime, []byte(hexNanos(r.Timestamp.UnixNano())), term|index.DocValues, nil)
	add(fieldMinute, []byte(minuteTerm(minuteOf(r.Timestamp))), term, nil)
	add(fieldStamp, []byte(hexNanos(stamp)), term|index.DocValues, nil)
	add(logquery.FieldMessage, []byte(r.Message), index.IndexField|index.IncludeTermVectors, words)
	r.Keywords(func(field, value string) {
		if field != logquery.FieldID { // the document's own name
			add(field, []byte(value), term, nil)
			add(fieldHas, []byte(field), term, nil)
		}
	})
	for k, v := range r.Labels {
		add(logquery.FieldLabels, labelTerm(k, v), term, nil)
		add(fieldHas, []byte(logquery.FieldLabels+"."+k), term, nil)
	}
	return doc, nil
}

func labelTerm(k, v string) []byte { return []byte(k + "\x00" + v) }

// hexNanos sorts as text the way the times do. Times are not before 1970 here.
func hexNanos(n int64) string { return fmt.Sprintf("%016x", uint64(n)) }

func parseHex(b []byte) int64 {
	var n uint64
	for _, c := range b {
		if c >= 'a' {
			c -= 'a' - 10
		} else {
			c -= '0'
		}
		n = n<<4 | uint64(c)
	}
	return int64(n)
}

func minuteOf(t time.Time) int { return t.UTC().Hour()*60 + t.UTC().Minute() }

func minuteTerm(m int) string { return fmt.Sprintf("%04d", m) }
