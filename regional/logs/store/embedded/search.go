package embedded

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/blevesearch/bleve/v2/search"
	index "github.com/blevesearch/bleve_index_api"

	"muster.dev/muster/internal/turns"
	"muster.dev/muster/regional/logs/store"
)

// Search returns one page, newest first; see store.Store.
func (s *Store) Search(ctx context.Context, q store.Query) (store.Page, error) {
	if err := s.enter(); err != nil {
		return store.Page{}, err
	}
	defer s.inflight.Done()
	p, err := q.Plan(s.opts.Now(), s.window)
	if err != nil {
		return store.Page{}, err
	}
	page := store.Page{Hits: []store.Record{}, Histogram: p.NewHistogram()}
	if p.Nothing() {
		return page, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.MaxQueryTime)
	defer cancel()
	t, err := s.opts.Processors.Begin(ctx, turns.Class{Tenant: p.Tenant})
	if err != nil {
		return store.Page{}, queryError(ctx, err)
	}
	defer t.End()
	more := false
	for _, k := range s.keys(p.Tenant, p.From, p.To) { // newest day first
		m, err := s.searchShard(ctx, t, k, p, &page)
		if err != nil {
			return store.Page{}, queryError(ctx, err)
		}
		more = more || m
	}
	if more && len(page.Hits) > 0 {
		page.Next = store.PageCursor(page.Hits[len(page.Hits)-1])
	}
	return page, nil
}

func queryError(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		return store.ErrTimeout
	}
	return err
}

// searchShard adds a shard's hits to the page. more says that it has hits below the
// page's last.
func (s *Store) searchShard(ctx context.Context, t *turns.Turn, k key, p store.Plan, page *store.Page) (more bool, err error) {
	want := p.Limit - len(page.Hits)
	err = s.read(ctx, t, k, func(b *builder) error {
		top := &top{limit: want, b: b, newest: true}
		if p.Before != nil {
			top.bound = &candidate{nanos: p.Before.Nanos, ext: p.Before.ID, known: true}
		}
		err := b.each(p, nil, func(id index.IndexInternalID) error {
			page.Total++
			// With older days still to count but the page full, the time is of no interest.
			if page.Histogram == nil && want == 0 && p.Before == nil {
				more = true
				return nil
			}
			n, err := b.nanos(id)
			if err != nil {
				return err
			}
			if page.Histogram != nil {
				page.Histogram.Add(n, 1)
			}
			return top.offer(candidate{nanos: n, id: id})
		})
		if err != nil {
			return err
		}
		hits, err := top.records()
		page.Hits = append(page.Hits, hits...)
		more = more || top.eligible > len(hits)
		return err
	})
	return more, err
}

// read calls f with an open shard, if there is one.
func (s *Store) read(ctx context.Context, t *turns.Turn, k key, f func(*builder) error) (err error) {
	sh, err := s.acquire(k, false)
	if err != nil || sh == nil {
		return err
	}
	defer s.release(sh)
	reader, err := sh.idx.Reader()
	if err != nil {
		return fmt.Errorf("read shard %s: %w", sh.dir, err)
	}
	defer func() {
		if cerr := reader.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("read shard %s: %w", sh.dir, cerr)
		}
	}()
	return f(&builder{ctx: ctx, turn: t, reader: reader, day: k.day})
}

// each calls f for every document of the shard that the plan wants. id is valid
// during the call only.
func (b *builder) each(p store.Plan, stamps []string, f func(id index.IndexInternalID) error) error {
	if err := b.pass(); err != nil {
		return err
	}
	sr, err := b.plan(p, stamps)
	if err != nil {
		return err
	}
	defer sr.Close()
	sctx := &search.SearchContext{DocumentMatchPool: search.NewDocumentMatchPool(sr.DocumentMatchPoolSize()+1, 0), IndexReader: b.reader}
	for i := 1; ; i++ {
		d, err := sr.Next(sctx)
		if err != nil || d == nil {
			return err
		}
		if err := f(d.IndexInternalID); err != nil {
			return err
		}
		sctx.DocumentMatchPool.Put(d)
		if i%passEvery == 0 {
			if err := b.pass(); err != nil {
				return err
			}
		}
	}
}

// Tail returns what came in after the cursor; see store.Store.
func (s *Store) Tail(ctx context.Context, q store.Query, after store.Cursor) (store.TailPage, error) {
	if err := s.enter(); err != nil {
		return store.TailPage{}, err
	}
	defer s.inflight.Done()
	p, pos, err := q.PlanTail(after, s.opts.Now(), s.window)
	if err != nil {
		return store.TailPage{}, err
	}
	horizon := s.clock.Horizon()
	page := store.TailPage{Hits: []store.Record{}, Next: store.TailCursor(store.Position{Ingested: max(horizon, pos.Ingested)})}
	if after == "" || pos.Ingested >= horizon || p.Nothing() {
		if after != "" && pos.Ingested >= horizon {
			page.Next = after
		}
		return page, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.MaxQueryTime)
	defer cancel()
	t, err := s.opts.Processors.Begin(ctx, turns.Class{Tenant: p.Tenant})
	if err != nil {
		return store.TailPage{}, queryError(ctx, err)
	}
	defer t.End()
	keys := s.writtenSince(s.keys(p.Tenant, p.From, p.To), pos.Ingested)
	// Each shard says up to which stamp this page can go without its terms getting too many.
	until := horizon
	stamps := map[key][]string{}
	for _, k := range keys {
		err := s.read(ctx, t, k, func(b *builder) error {
			terms, err := b.stampTerms(pos.Ingested, horizon)
			if len(terms) == maxStamps {
				until = min(until, parseHex([]byte(terms[maxStamps-1]))+1)
			}
			stamps[k] = terms
			return err
		})
		if err != nil {
			return store.TailPage{}, queryError(ctx, err)
		}
	}
	var all []tailHit
	for _, k := range keys {
		terms := slices.DeleteFunc(stamps[k], func(t string) bool { return parseHex([]byte(t)) >= until })
		if len(terms) == 0 {
			continue
		}
		hits, err := s.tailShard(ctx, t, k, p, pos, terms)
		if err != nil {
			return store.TailPage{}, queryError(ctx, err)
		}
		all = append(all, hits...)
	}
	slices.SortFunc(all, func(a, b tailHit) int { return comparePositions(a.pos, b.pos) })
	if until < horizon {
		page.More = true
		page.Next = store.TailCursor(store.Position{Ingested: until})
	}
	if len(all) > p.Limit {
		all = all[:p.Limit]
		page.More = true
		page.Next = store.TailCursor(all[p.Limit-1].pos)
	}
	for _, h := range all {
		page.Hits = append(page.Hits, h.record)
	}
	return page, nil
}

type tailHit struct {
	pos    store.Position
	record store.Record
}

func comparePositions(a, b store.Position) int {
	return cmp.Or(cmp.Compare(a.Ingested, b.Ingested), cmp.Compare(a.Nanos, b.Nanos), cmp.Compare(a.ID, b.ID))
}

// writtenSince leaves out the shards that can't hold a stamp so young.
func (s *Store) writtenSince(keys []key, stamp int64) []key {
	if stamp < s.start {
		return keys
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(keys, func(k key) bool { return s.shards[k] == nil || s.shards[k].last < stamp })
}

// tailShard returns the first Limit+1 hits of a shard after the position.
func (s *Store) tailShard(ctx context.Context, t *turns.Turn, k key, p store.Plan, after store.Position, stamps []string) (hits []tailHit, err error) {
	err = s.read(ctx, t, k, func(b *builder) error {
		top := &top{limit: p.Limit + 1, b: b, bound: &candidate{stamp: after.Ingested, nanos: after.Nanos, ext: after.ID, known: true}}
		err := b.each(p, stamps, func(id index.IndexInternalID) error {
			n, err := b.nanos(id)
			if err != nil {
				return err
			}
			stamp, err := b.stamp(id)
			if err != nil {
				return err
			}
			return top.offer(candidate{stamp: stamp, nanos: n, id: id})
		})
		if err != nil {
			return err
		}
		records, err := top.records()
		for _, r := range records {
			hits = append(hits, tailHit{store.Position{Ingested: r.Ingested.UnixNano(), Nanos: r.Timestamp.UnixNano(), ID: r.ID}, r})
		}
		return err
	})
	return hits, err
}

// candidate is a hit that may be on the page. Its ID costs a read, so it is looked up
// only to break a tie.
type candidate struct {
	stamp, nanos int64
	id           index.IndexInternalID
	ext          string
	known        bool
}

// top keeps the first limit candidates beyond the bound: the newest, or for a tail the
// earliest taken in. Its root is the one that the next better one replaces.
type top struct {
	limit    int
	newest   bool
	b        *builder
	bound    *candidate
	eligible int // offered beyond the bound
	items    []candidate
	err      error
}

func (t *top) offer(c candidate) error {
	if t.bound != nil && !t.before(t.bound, &c) {
		return t.err
	}
	t.eligible++
	if t.limit == 0 {
		return t.err
	}
	if len(t.items) == t.limit {
		if !t.before(&c, &t.items[0]) {
			return t.err
		}
		c.id = append(t.items[0].id[:0], c.id...)
		t.items[0] = c
		heap.Fix(t, 0)
		return t.err
	}
	c.id = slices.Clone(c.id)
	heap.Push(t, c)
	return t.err
}

// before says whether a comes on an earlier line of the page than b.
func (t *top) before(a, b *candidate) bool {
	c := cmp.Or(cmp.Compare(a.stamp, b.stamp), cmp.Compare(a.nanos, b.nanos))
	if c == 0 {
		c = cmp.Compare(t.external(a), t.external(b))
	}
	if t.newest {
		return c > 0
	}
	return c < 0
}

func (t *top) external(c *candidate) string {
	if !c.known {
		ext, err := t.b.reader.ExternalID(c.id)
		if err != nil && t.err == nil {
			t.err = err
		}
		c.ext, c.known = ext, true
	}
	return c.ext
}

func (t *top) Len() int           { return len(t.items) }
func (t *top) Less(i, j int) bool { return t.before(&t.items[j], &t.items[i]) }
func (t *top) Swap(i, j int)      { t.items[i], t.items[j] = t.items[j], t.items[i] }
func (t *top) Push(x any)         { t.items = append(t.items, x.(candidate)) }
func (t *top) Pop() any {
	last := t.items[len(t.items)-1]
	t.items = t.items[:len(t.items)-1]
	return last
}

// records reads the candidates' records, in the page's order.
func (t *top) records() ([]store.Record, error) {
	slices.SortFunc(t.items, func(a, b candidate) int {
		switch {
		case t.before(&a, &b):
			return -1
		case t.before(&b, &a):
			return 1
		}
		return 0
	})
	out := make([]store.Record, 0, len(t.items))
	for i := range t.items {
		name := t.external(&t.items[i])
		if t.err != nil {
			return nil, t.err
		}
		r, err := t.b.recordOf(name)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, t.err
}

// recordOf reads the record of a document.
func (b *builder) recordOf(name string) (r store.Record, err error) {
	if err := b.pass(); err != nil {
		return r, err
	}
	doc, err := b.reader.Document(name)
	if err != nil || doc == nil {
		return r, errors.Join(err, errors.New("a record that was found can't be read"))
	}
	doc.VisitFields(func(f index.Field) {
		if f.Name() == fieldRecord {
			err = json.Unmarshal(f.Value(), &r)
		}
	})
	if err != nil {
		return r, fmt.Errorf("read a record: %w", err)
	}
	r.Timestamp, r.Ingested = r.Timestamp.UTC(), r.Ingested.UTC()
	return r, nil
}
