package timeline

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
)

// Query is what is asked of a Store.
type Query struct {
	// Tenants to look in; AllTenants: all.
	Tenants    []string
	AllTenants bool
	// Sites, VirtualSites (NAMESPACE/NAME) and Kinds narrow, each to any of its values;
	// empty: not.
	Sites, VirtualSites, Kinds []string
	// From is the first moment, To the one after the last; zero: unbounded.
	From, To time.Time
	// Limit is how many events at most; at least 1.
	Limit int
	// After is the last event of the page before; nil: from the newest on.
	After *wire.TimelinePosition
}

// checkEvery is how many rows are looked at before others may go on.
const checkEvery = 1024

// Page returns events, the newest first, and whether there are more.
func (s *Store) Page(ctx context.Context, q Query) (events []wire.TimelineEvent, more bool, err error) {
	kinds, err := kindSet(q.Kinds)
	if err != nil {
		return nil, false, err
	}
	turn, err := s.processors.Begin(ctx, q.class())
	if err != nil {
		return nil, false, fmt.Errorf("timeline: wait for the turn to read: %w", err)
	}
	defer turn.End()
	events = []wire.TimelineEvent{}
	err = s.db.View(func(tx *bolt.Tx) error {
		rows, err := s.open(tx.Bucket(bucketTenants), &q)
		if err != nil {
			return err
		}
		heap.Init(&rows)
		for n := 1; len(rows) > 0; n++ {
			if n%checkEvery == 0 {
				if err := turn.Pass(ctx); err != nil {
					return err
				}
			}
			r := rows[0]
			k, tenant := r.key, r.tenant
			if kinds[k.kind()] {
				if last := len(events) - 1; last < 0 || events[last].ID != k.String() || events[last].Tenant != tenant {
					e, err := decode(k, r.events.Get(k[:]))
					// What can't be read, of another version perhaps, hides nothing else.
					if err == nil && q.wants(&e, r.related) {
						if more = len(events) == q.Limit; more {
							return nil
						}
						e.Tenant = tenant
						events = append(events, e)
					}
				}
			}
			if r.next() {
				heap.Fix(&rows, 0)
			} else {
				heap.Pop(&rows)
			}
		}
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("timeline: read: %w", err)
	}
	return events, more, nil
}

// class is whose processor time a page is: those who may read the same.
func (q *Query) class() turns.Class {
	if q.AllTenants {
		return turns.Class{Tenant: wire.AllTenants}
	}
	return turns.Class{Tenant: strings.Join(q.Tenants, ",")}
}

// wants compares names, of which the index has digests only.
func (q *Query) wants(e *wire.TimelineEvent, related []string) bool {
	if len(q.Sites) > 0 && !slices.Contains(q.Sites, e.Site) && !(ofTenant(e) && slices.Contains(related, e.Object)) {
		return false
	}
	return len(q.VirtualSites) == 0 || slices.ContainsFunc(q.VirtualSites, func(v string) bool { return slices.Contains(e.VirtualSites, v) })
}

func kindSet(kinds []string) (*[256]bool, error) {
	var set [256]bool
	for i, k := range wire.TimelineKinds {
		set[i] = len(kinds) == 0 || slices.Contains(kinds, k)
	}
	for _, k := range kinds {
		if !slices.Contains(wire.TimelineKinds, k) {
			return nil, fmt.Errorf("kind %q: there is none", k)
		}
	}
	return &set, nil
}

// row walks backwards over the keys of one tenant, one site, one virtual site or one object.
type row struct {
	tenant  string
	related []string // objects of the tenant whose edits belong to the sites that are asked for
	events  *bolt.Bucket
	c       *bolt.Cursor
	prefix  []byte
	from    uint64
	key     key
}

// relatedTo are the objects whose edits belong to some of the sites, each once.
func (s *Store) relatedTo(tenant string, sites []string) []string {
	f := s.related.Load()
	if f == nil {
		return nil
	}
	var out []string
	for _, site := range sites {
		out = append(out, (*f)(tenant, site)...)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxNames)]
}

// open has a row for everything that is asked for, each at its newest event.
func (s *Store) open(tenants *bolt.Bucket, q *Query) (rows, error) {
	names := q.Tenants
	if q.AllTenants {
		names = nil
		if err := tenants.ForEachBucket(func(k []byte) error { names = append(names, string(k)); return nil }); err != nil {
			return nil, err
		}
	}
	var out rows
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		b := tenants.Bucket([]byte(name))
		if b == nil {
			continue
		}
		events, index := b.Bucket(bucketEvents), b.Bucket(bucketIndex)
		if events == nil || index == nil {
			continue
		}
		related := s.relatedTo(name, q.Sites)
		add := func(c *bolt.Cursor, prefix []byte) {
			r := &row{tenant: name, related: related, events: events, c: c, prefix: prefix}
			if !q.From.IsZero() {
				r.from = uint64(max(q.From.UnixNano(), 0))
			}
			if r.start(q) {
				out = append(out, r)
			}
		}
		switch {
		case len(q.Sites) > 0:
			for _, x := range q.Sites {
				add(index.Cursor(), indexKey('s', x))
			}
			for _, x := range related {
				add(index.Cursor(), indexKey('o', x))
			}
		case len(q.VirtualSites) > 0:
			for _, x := range q.VirtualSites {
				add(index.Cursor(), indexKey('v', x))
			}
		default:
			add(events.Cursor(), nil)
		}
	}
	return out, nil
}

// start goes to the newest key before the end and the cursor.
func (r *row) start(q *Query) bool {
	end := bytes.Repeat([]byte{0xff}, keyBytes+1) // after every key
	if !q.To.IsZero() {
		end = binary.BigEndian.AppendUint64(nil, uint64(max(q.To.UnixNano(), 0)))
	}
	if q.After != nil {
		if k, ok := parseKey(q.After.ID); ok {
			last := k[:]
			if r.tenant > q.After.Tenant {
				last = append(last, 0) // that very key is still to come here
			}
			if bytes.Compare(last, end) < 0 {
				end = last
			}
		}
	}
	k, _ := r.c.Seek(append(slices.Clone(r.prefix), end...))
	if k == nil {
		k, _ = r.c.Last()
	} else {
		k, _ = r.c.Prev()
	}
	return r.take(k)
}

func (r *row) next() bool {
	k, _ := r.c.Prev()
	return r.take(k)
}

func (r *row) take(k []byte) bool {
	if len(k) != len(r.prefix)+keyBytes || !bytes.HasPrefix(k, r.prefix) {
		return false
	}
	r.key = key(k[len(r.prefix):])
	return binary.BigEndian.Uint64(r.key[:8]) >= r.from
}

// rows is a heap, the newest first and then by tenant.
type rows []*row

func (h rows) Len() int      { return len(h) }
func (h rows) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h rows) Less(i, j int) bool {
	return cmp.Or(bytes.Compare(h[j].key[:], h[i].key[:]), strings.Compare(h[i].tenant, h[j].tenant)) < 0
}
func (h *rows) Push(x any) { *h = append(*h, x.(*row)) }
func (h *rows) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
