package status

import (
	"slices"
	"sort"
)

const (
	// changeBytes bounds what the changes of all tenants take that are kept for those who
	// are behind.
	changeBytes = 256 << 20
	// encodedChanges is how many of a ring's last changes keep their encodings, and
	// encodedBytes of how many bytes as sites sent them.
	encodedChanges = 256
	encodedBytes   = 1 << 20
)

// ring is the last changes of a table's objects of one tenant: what others say and how much
// takes nothing from them, and wakes nobody who watches.
type ring struct {
	changes []change // oldest at first
	bytes   int      // of them
	floor   uint64   // the version of the last change that is lost
	touched bool     // since the last announcement
	wake    chan struct{}

	encoded, encodedBytes int // of the last changes: how many have their encodings
}

// change is one change of a table.
type change struct {
	version uint64
	was, is *item // nil: there was none, is none
	shared  *shared
}

// bytes is what is kept for the change's sake: what is now is kept anyway.
func (c *change) bytes() int {
	const own = 128
	if c.was == nil {
		return own
	}
	return own + c.was.bytesKept()
}

// encodable is about how much of it is encoded.
func (c *change) encodable() int {
	if c.is == nil {
		return len(c.was.bytes)
	}
	return len(c.is.bytes)
}

// tenantOf is whose ring an item's changes are in.
func (s *Store) tenantOf(it *item) string {
	if it.site == s.centre {
		return s.o.TenantOf(it.namespace)
	}
	return it.site.id.Tenant
}

// ringLocked is a tenant's; it needs the lock for writing.
func (t *table) ringLocked(tenant string) *ring {
	r := t.rings[tenant]
	if r == nil {
		r = &ring{floor: t.began, wake: make(chan struct{})}
		t.rings[tenant] = r
		t.store.rings = append(t.store.rings, r)
	}
	return r
}

func (t *table) record(it *item, c change) {
	s := t.store
	r := t.ringLocked(s.tenantOf(it))
	if !r.touched {
		r.touched = true
		t.touched = append(t.touched, r)
	}
	r.changes = append(r.changes, c)
	r.bytes += c.bytes()
	s.changeBytes += c.bytes()
	if len(r.changes) > s.o.Ring {
		s.forgetChange(r)
	}
	// Those who watch are past it by now; whoever is not encodes it again.
	r.encoded, r.encodedBytes = r.encoded+1, r.encodedBytes+c.encodable()
	for r.encoded > encodedChanges || r.encodedBytes > encodedBytes && r.encoded > 1 {
		r.withoutEncodings(&r.changes[len(r.changes)-r.encoded])
	}
	for s.changeBytes > s.o.ChangeBytes { // who has most gives: whoever has less than an equal part keeps it
		s.forgetChange(slices.MaxFunc(s.rings, func(a, b *ring) int { return a.bytes - b.bytes }))
	}
}

func (r *ring) withoutEncodings(oldest *change) {
	oldest.shared = nil
	r.encoded, r.encodedBytes = r.encoded-1, r.encodedBytes-oldest.encodable()
}

// forgetChange forgets a ring's oldest change.
func (s *Store) forgetChange(r *ring) {
	c := &r.changes[0]
	if r.encoded == len(r.changes) {
		r.withoutEncodings(c)
	}
	r.floor = c.version
	r.bytes -= c.bytes()
	s.changeBytes -= c.bytes()
	*c = change{}
	r.changes = r.changes[1:]
}

// announce wakes those who wait for changes of the tenants that had some.
func (t *table) announce() {
	for _, r := range t.touched {
		r.touched = false
		close(r.wake)
		r.wake = make(chan struct{})
	}
	t.touched = t.touched[:0]
}

// since returns a tenant's changes after a version, oldest first, as many as take up to so
// many bytes, but one at least; false: some of them are lost. No ring is one in which nothing
// happened.
func (t *table) since(tenant string, version uint64, bytes int) ([]change, bool) {
	r := t.rings[tenant]
	if r == nil {
		return nil, version >= t.began
	}
	if version < r.floor {
		return nil, false
	}
	from := sort.Search(len(r.changes), func(i int) bool { return r.changes[i].version > version })
	to := from
	for ; to < len(r.changes) && (to == from || bytes > 0); to++ {
		bytes -= r.changes[to].bytes() + r.changes[to].encodable()
	}
	return slices.Clone(r.changes[from:to]), true
}
