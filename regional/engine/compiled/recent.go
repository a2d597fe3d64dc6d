package compiled

import (
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
)

// Recent keeps the newest samples of the series that programs read, so that an evaluation
// does not decode each series' chunk from its beginning again: it sees what is appended,
// and is filled out of the head where it does not know enough. It holds no pointers by
// series, and at most sixteen values of each.
//
// It is told of a batch after that was committed and before Commit returns. A series is
// filled while nothing can be told, by a reader of the head that is opened then: what such
// a reader does not see yet is told later.
type Recent struct {
	mu       sync.Mutex
	families map[string]*family
	byID     []*family // nil: free
	places   places

	use     Use           // without Head
	head    atomic.Uint64 // Use.Head
	batches sync.Pool     // of *[]sample
}

// Use says what Recent holds, and how often it sufficed.
type Use struct {
	Series int
	Bytes  int64 // of their samples
	// Kept and Head are how often a series was read out of Recent, and out of the head.
	Kept, Head uint64
}

// Use may be called at any time.
func (r *Recent) Use() Use {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.use
	u.Series, u.Head = r.places.n, r.head.Load()
	for _, f := range r.families {
		u.Bytes += int64(len(f.pages)) * int64(unsafe.Sizeof(page{})+uintptr(pageSlots*f.runs)*unsafe.Sizeof(run{}))
	}
	return u
}

// NewRecent returns an empty one, of one database. All that is appended to the database has
// to go through Appender.
func NewRecent() *Recent {
	return &Recent{families: map[string]*family{}, places: places{chunks: map[storage.SeriesRef]*chunk{}}}
}

// place says where a series is kept.
type place struct{ family, slot uint32 }

// places are those of all series. A head numbers its series as they come, so those of one site
// have numbers that follow on each other, and a push finds them side by side.
type places struct {
	n      int
	chunks map[storage.SeriesRef]*chunk // by the number of the first series
}

type chunk struct {
	n  int
	at [chunkRefs]place // family is one more than its number; 0: none
}

const chunkRefs = 256

// chunk returns the one that has the series, or nil, and where the series is in it.
func (p *places) chunk(ref storage.SeriesRef) (c *chunk, first storage.SeriesRef) {
	first = ref &^ (chunkRefs - 1)
	return p.chunks[first], first
}

func (c *chunk) get(ref storage.SeriesRef) (place, bool) {
	if c == nil {
		return place{}, false
	}
	at := c.at[ref%chunkRefs]
	return place{family: at.family - 1, slot: at.slot}, at.family != 0
}

func (p *places) get(ref storage.SeriesRef) (place, bool) {
	c, _ := p.chunk(ref)
	return c.get(ref)
}

// add takes in a series that is not there.
func (p *places) add(ref storage.SeriesRef, at place) {
	c, first := p.chunk(ref)
	if c == nil {
		c = &chunk{}
		p.chunks[first] = c
	}
	at.family++
	c.at[ref%chunkRefs] = at
	c.n++
	p.n++
}

// remove forgets a series that is there.
func (p *places) remove(ref storage.SeriesRef) {
	c, first := p.chunk(ref)
	c.at[ref%chunkRefs] = place{}
	c.n--
	p.n--
	if c.n == 0 {
		delete(p.chunks, first)
	}
}

const (
	// interval is how often sites push, in milliseconds. Who pushes more often has less of
	// the past kept, and is read out of the head where that does not suffice.
	interval = 15_000
	// hold is the longest time between two samples of one run.
	hold = 60_000
	// maxRuns of a series are kept.
	maxRuns = 16

	pageSlots = 256
	unknown   = math.MaxInt64 // slot.since of a series of which nothing is known
)

// run is a value that one or more samples had, the first and the last of them at these
// milliseconds. A family whose readers need each sample has runs of one.
type run struct {
	first, last int64
	v           float64
}

// slot is what is kept of a series: all samples after since are in its runs.
type slot struct {
	ref   storage.SeriesRef
	since int64
	n     int32
}

// family are the series of one metric.
type family struct {
	id    uint32
	users int
	each  bool // each sample is a run of its own
	runs  int  // of a series
	pages []*page
	free  []uint32
	next  uint32
}

type page struct {
	slots [pageSlots]slot
	runs  []run // family.runs of each
}

// atRuns are functions for which a value counts once, however often it was sampled.
var atRuns = map[string]bool{"changes": true, "max_over_time": true, "min_over_time": true, "resets": true}

// want joins a leaf to the family of its metric, if so much is kept as it asks for.
func (r *Recent) want(l *leaf) {
	each, runs := l.fn != nil && (!atRuns[l.fnName] || l.window < hold), 3
	switch {
	case each:
		runs = int((l.window+max(0, l.offset)+2*interval)/interval) + 1
	case l.fn == nil && l.offset == 0:
		runs = 2
	}
	if runs > maxRuns {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.families[l.metric]
	if f == nil {
		f = &family{}
		for f.id = 0; int(f.id) < len(r.byID) && r.byID[f.id] != nil; f.id++ {
		}
		if int(f.id) == len(r.byID) {
			r.byID = append(r.byID, nil)
		}
		r.families[l.metric], r.byID[f.id] = f, f
	}
	f.users++
	if each && !f.each || runs > f.runs {
		r.clearLocked(f)
		f.each, f.runs = f.each || each, max(f.runs, runs)
	}
	l.family, l.keeps = f, true
}

// leave undoes want.
func (r *Recent) leave(l *leaf) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := l.family
	if f == nil {
		return
	}
	l.family = nil
	if f.users--; f.users == 0 {
		r.clearLocked(f)
		delete(r.families, l.metric)
		r.byID[f.id] = nil
	}
}

func (r *Recent) clearLocked(f *family) {
	for _, p := range f.pages {
		for i := range p.slots {
			if p.slots[i].ref != 0 {
				r.places.remove(p.slots[i].ref)
			}
		}
	}
	f.pages, f.free, f.next = nil, nil, 0
}

// drop forgets a series that is gone.
func (r *Recent) drop(ref storage.SeriesRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.places.get(ref); ok {
		f := r.byID[at.family]
		r.places.remove(ref)
		f.pages[at.slot/pageSlots].slots[at.slot%pageSlots] = slot{}
		f.free = append(f.free, at.slot)
	}
}

// kept is a series' slot with its runs, good while Recent is locked.
type kept struct {
	*slot
	runs []run
	each bool
}

func (f *family) at(i uint32) kept {
	p := f.pages[i/pageSlots]
	i %= pageSlots
	return kept{slot: &p.slots[i], runs: p.runs[int(i)*f.runs : int(i+1)*f.runs], each: f.each}
}

// keptLocked returns what is kept of a series; hint is where it was the last time.
func (r *Recent) keptLocked(f *family, ref storage.SeriesRef, hint *uint32) kept {
	if int(*hint/pageSlots) < len(f.pages) {
		if k := f.at(*hint); k.ref == ref {
			return k
		}
	}
	if at, ok := r.places.get(ref); ok {
		*hint = at.slot
		return f.at(at.slot)
	}
	if n := len(f.free); n > 0 {
		*hint, f.free = f.free[n-1], f.free[:n-1]
	} else {
		*hint = f.next
		if f.next++; int(*hint/pageSlots) == len(f.pages) {
			f.pages = append(f.pages, &page{runs: make([]run, pageSlots*f.runs)})
		}
	}
	r.places.add(ref, place{family: f.id, slot: *hint})
	k := f.at(*hint)
	*k.slot = slot{ref: ref, since: unknown}
	return k
}

// forget says that nothing is known any more.
func (k kept) forget() { k.since, k.n = unknown, 0 }

// add takes in a sample that came.
func (k kept) add(t int64, v float64) {
	if t <= k.since {
		return
	}
	if k.n > 0 {
		last := &k.runs[k.n-1]
		switch {
		case t == last.last: // the first one counts
			return
		case t < last.last:
			k.forget()
			return
		case !k.each && math.Float64bits(v) == math.Float64bits(last.v) && t-last.last <= hold:
			last.last = t
			return
		}
	}
	if int(k.n) == len(k.runs) {
		k.since = k.runs[0].last
		copy(k.runs, k.runs[1:])
		k.n--
	}
	k.runs[k.n] = run{first: t, last: t, v: v}
	k.n++
}

// newest returns the newest sample after mint and not after maxt; with timed, its time
// too. known: what is kept suffices to say so.
func (k kept) newest(mint, maxt int64, timed bool) (p promql.FPoint, ok, known bool) {
	for i := k.n - 1; i >= 0; i-- {
		switch r := k.runs[i]; {
		case r.last <= maxt:
			return promql.FPoint{T: r.last, F: r.v}, r.last > mint, true
		case r.first <= maxt: // a sample is at most hold before maxt
			return promql.FPoint{T: maxt, F: r.v}, true, !timed && maxt-mint >= hold
		}
	}
	return p, false, k.since <= mint
}

// between appends the samples after mint and not after maxt, one of each run.
func (k kept) between(to []promql.FPoint, mint, maxt int64) (points []promql.FPoint, known bool) {
	if k.since > mint {
		return to, false
	}
	for _, r := range k.runs[:k.n] {
		if r.last > mint && r.first <= maxt {
			to = append(to, promql.FPoint{T: min(r.last, maxt), F: r.v})
		}
	}
	return to, true
}

// Appender returns one that appends to app and tells of what was committed.
func (r *Recent) Appender(app storage.Appender) storage.Appender {
	a := &appender{Appender: app, r: r}
	if a.batch, _ = r.batches.Get().(*[]sample); a.batch == nil {
		a.batch = new([]sample)
	}
	return a
}

type appender struct {
	storage.Appender
	r     *Recent
	batch *[]sample
}

type sample struct {
	ref storage.SeriesRef
	t   int64
	v   float64
	odd bool // not a plain sample: nothing is known of the series
}

// GetRef implements storage.GetRef.
func (a *appender) GetRef(l labels.Labels, hash uint64) (storage.SeriesRef, labels.Labels) {
	return a.Appender.(storage.GetRef).GetRef(l, hash)
}

// Append implements storage.Appender.
func (a *appender) Append(ref storage.SeriesRef, l labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	ref, err := a.Appender.Append(ref, l, t, v)
	if err == nil {
		*a.batch = append(*a.batch, sample{ref: ref, t: t, v: v})
	}
	return ref, err
}

// AppendHistogram implements storage.Appender.
func (a *appender) AppendHistogram(ref storage.SeriesRef, l labels.Labels, t int64, h *histogram.Histogram, fh *histogram.FloatHistogram) (storage.SeriesRef, error) {
	return a.odd(a.Appender.AppendHistogram(ref, l, t, h, fh))
}

// AppendCTZeroSample implements storage.Appender.
func (a *appender) AppendCTZeroSample(ref storage.SeriesRef, l labels.Labels, t, ct int64) (storage.SeriesRef, error) {
	return a.odd(a.Appender.AppendCTZeroSample(ref, l, t, ct))
}

func (a *appender) odd(ref storage.SeriesRef, err error) (storage.SeriesRef, error) {
	if err == nil {
		*a.batch = append(*a.batch, sample{ref: ref, odd: true})
	}
	return ref, err
}

// Commit implements storage.Appender.
func (a *appender) Commit() error {
	err := a.Appender.Commit()
	a.r.takeIn(*a.batch, err != nil)
	a.done()
	return err
}

// Rollback implements storage.Appender.
func (a *appender) Rollback() error {
	a.done()
	return a.Appender.Rollback()
}

// done gives the batch back; the next appender has it.
func (a *appender) done() {
	*a.batch = (*a.batch)[:0]
	a.r.batches.Put(a.batch)
	a.batch = new([]sample)
}

// takeIn adds a batch to what is kept; with failed nobody knows which of its samples were appended.
func (r *Recent) takeIn(batch []sample, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, c := storage.SeriesRef(1), (*chunk)(nil) // no chunk has this number
	for _, s := range batch {
		if s.ref&^(chunkRefs-1) != first {
			c, first = r.places.chunk(s.ref)
		}
		at, ok := c.get(s.ref)
		if !ok {
			continue
		}
		if k := r.byID[at.family].at(at.slot); s.odd || failed {
			k.forget()
		} else {
			k.add(s.t, s.v)
		}
	}
}
