package embedded

import (
	"context"

	index "github.com/blevesearch/bleve_index_api"

	"muster.dev/muster/internal/turns"
	"muster.dev/muster/regional/logs/store"
)

// Groups counts what came in; see store.Store. It reads each record once, and takes
// time in proportion to those that the text finds.
func (s *Store) Groups(ctx context.Context, q store.GroupQuery) (store.Groups, error) {
	if err := s.enter(); err != nil {
		return store.Groups{}, err
	}
	defer s.inflight.Done()
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
	from, to := max(q.After.UnixNano(), -1)+1, q.UpTo.UnixNano()+1
	if to > s.clock.Horizon() {
		return store.Groups{}, store.ErrNotKnown
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.MaxQueryTime)
	defer cancel()
	t, err := s.opts.Processors.Begin(ctx, turns.Class{Tenant: p.Tenant, Background: true})
	if err != nil {
		return store.Groups{}, queryError(ctx, err)
	}
	defer t.End()
	for _, k := range s.writtenSince(s.keys(p.Tenant, p.From, p.To), from) {
		for at := from; at < to; {
			next := to
			err := s.read(ctx, t, k, func(b *builder) error {
				terms, err := b.stampTerms(at, to)
				if err != nil || len(terms) == 0 {
					return err
				}
				if len(terms) == maxStamps {
					next = parseHex([]byte(terms[maxStamps-1])) + 1
				}
				return b.each(p, terms, func(id index.IndexInternalID) error {
					r, err := b.record(id)
					if err == nil {
						g.Add(&r)
					}
					return err
				})
			})
			if err != nil {
				return store.Groups{}, queryError(ctx, err)
			}
			at = next
		}
	}
	return g.Groups(), nil
}

// record reads a whole record.
func (b *builder) record(id index.IndexInternalID) (store.Record, error) {
	name, err := b.reader.ExternalID(id)
	if err != nil {
		return store.Record{}, err
	}
	return b.recordOf(name)
}
