package filter

import (
	"math"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
)

// Scrape takes the samples of one scrape of one target. End it with Commit or
// Rollback, and don't use it afterwards. Not safe for concurrent use.
type Scrape struct {
	table   *Table
	owner   uint64
	seq     uint64 // of all scrapes, tells them apart
	exempt  bool
	now     int64
	pend    []pending
	native  []nativePending
	touched []*output
	dropped [numReasons]uint64
	scraped int64 // of the report samples; -1: not seen
	post    int64
}

// pending is a sample that waits for Commit.
type pending struct {
	i, gen uint32
	t      int64
	v      float64
	native uint32 // index+1 into Scrape.native; 0: a float
}

type nativePending struct {
	h  *histogram.Histogram
	fh *histogram.FloatHistogram
}

// Begin starts a scrape. Owner names the target; exempt targets pass the filter
// whole and don't count against the budget. Now is milliseconds since 1970.
func (t *Table) Begin(ownerID uint64, exempt bool, now int64) *Scrape {
	s, _ := t.pool.Get().(*Scrape)
	if s == nil {
		s = &Scrape{}
	}
	s.table, s.owner, s.exempt, s.now = t, ownerID, exempt, now
	s.dropped = [numReasons]uint64{}
	s.scraped, s.post = -1, -1
	t.mu.Lock()
	defer t.mu.Unlock()
	t.scrapes++
	s.seq = t.scrapes
	o := t.owners[ownerID]
	if o == nil {
		o = &owner{}
		t.owners[ownerID] = o
	} else if d := now - o.lastScrape; d >= 500 { // a failed scrape begins twice
		o.interval = min(d, maxInterval)
	}
	o.lastScrape = now
	return s
}

// Append takes a sample. Ref is what an earlier call returned for the series, or
// 0. A sample that the policy drops is no error: it gets a ref as well, which
// makes dropping it again cheap. ErrOutOfOrder means that the series has a newer
// sample that is not of the future, or for a stale marker one as new.
func (s *Scrape) Append(ref uint64, ls labels.Labels, t int64, v float64) (uint64, error) {
	return s.append(ref, ls, t, v, nil, nil)
}

// AppendHistogram is Append for a native histogram; one of h and fh is set.
func (s *Scrape) AppendHistogram(ref uint64, ls labels.Labels, t int64, h *histogram.Histogram, fh *histogram.FloatHistogram) (uint64, error) {
	return s.append(ref, ls, t, 0, h, fh)
}

func (s *Scrape) append(ref uint64, ls labels.Labels, at int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram) (uint64, error) {
	t := s.table
	native := h != nil || fh != nil
	stale := !native && value.IsStaleNaN(v)
	t.mu.Lock()
	defer t.mu.Unlock()
	i, ok := t.memberLocked(s, ref, ls, native, !stale)
	if !ok {
		return 0, nil // the end of a series that is not known any more
	}
	m := &t.members[i]
	ref = t.refOf(i)
	if !stale {
		m.lastSeen = s.now
	}
	if m.report != notReport && !stale {
		s.noteReport(m.report, v)
	}
	if m.out == nil || m.out.dead {
		t.retryLocked(m)
	}
	if m.out == nil {
		if !stale {
			s.dropped[m.reason]++
		}
		return ref, nil
	}
	switch {
	case at < m.lastT && m.lastT <= s.now, stale && at == m.lastT:
		return 0, ErrOutOfOrder
	case at == m.lastT:
		return ref, nil // the exporter's own timestamp did not move: nothing new
	case at == m.pendT && s.seq == m.pendBy:
		t.noteLocked(s.owner, m.labels.Get(model.MetricNameLabel), Duplicate, s.now)
		return ref, nil
	}
	m.pendT, m.pendBy = at, s.seq
	p := pending{i: i, gen: m.gen, t: at, v: v}
	if native {
		s.native = append(s.native, nativePending{h, fh})
		p.native = uint32(len(s.native))
	}
	s.pend = append(s.pend, p)
	return ref, nil
}

// retryLocked looks again for a place for a series that had none, if one may have
// come free.
func (t *Table) retryLocked(m *member) {
	switch {
	case m.out != nil: // its output was replaced
		m.out, m.live = nil, false
	case m.reason == ByBudget && (t.stats.Series < t.policy.budget || len(t.plain) > 0 && t.policy.Reserves(m.labels.Get(model.MetricNameLabel))):
	case m.reason == ByDuplicate && (m.blocker == nil || m.blocker.dead || (m.blocker.live == 0 && m.blocker.staleAt != 0)):
	default:
		return
	}
	m.blocker = nil
	t.decideLocked(m)
}

func (s *Scrape) noteReport(r report, v float64) {
	if r == reportScraped {
		s.scraped = int64(v)
	} else {
		s.post = int64(v)
	}
}

// SetMetadata notes the type and the unit of the series that ref names.
func (s *Scrape) SetMetadata(ref uint64, typ model.MetricType, unit string) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	i, gen := uint32(ref)-1, uint32(ref>>32)
	if ref == 0 || int(i) >= len(t.members) || t.members[i].gen != gen {
		return
	}
	if o := t.members[i].out; o != nil {
		if o.op != opCount && o.typ != "" && o.typ != typ && o.typ != model.MetricTypeUnknown && typ != model.MetricTypeUnknown {
			t.noteLocked(s.owner, o.labels.Get(model.MetricNameLabel), TypeChanged, s.now)
		}
		if o.op == opCount {
			typ, unit = model.MetricTypeGauge, "" // a count of series is neither counter nor bytes
		}
		o.typ, o.unit = typ, unit
	}
}

// Rollback forgets the scrape.
func (s *Scrape) Rollback() { s.release() }

// Commit applies the scrape and hands what leaves the site to emit, in the order
// of the target's page; aggregated series come last. It is not safe to call back
// into the table from emit.
func (s *Scrape) Commit(emit func(Out)) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := uint64(0)
	count := func(o Out) {
		kept++
		emit(o)
	}
	for _, p := range s.pend {
		m := &t.members[p.i]
		if !m.used || m.gen != p.gen || m.out == nil || m.out.dead {
			continue // the policy changed in between
		}
		s.applyLocked(m, p, count)
	}
	for _, o := range s.touched {
		o.finish(s.now, count)
	}
	t.endEvictedLocked(s.now, count)
	t.sweepLocked(s.now, count)
	if s.scraped > s.post && s.post >= 0 && !s.exempt {
		s.dropped[ByAllowlist] += uint64(s.scraped - s.post)
	}
	for r, n := range s.dropped {
		t.stats.Dropped[r] += n
	}
	t.stats.KeptSamples += kept
	s.release()
}

func (s *Scrape) applyLocked(m *member, p pending, emit func(Out)) {
	o := m.out
	stale := p.native == 0 && value.IsStaleNaN(p.v)
	if stale && !m.live {
		return // it never flowed, or has ended already
	}
	if p.native == 0 && !stale {
		if what := problemOf(p.v, m.labels, o.typ); what != "" {
			s.table.noteLocked(s.owner, m.labels.Get(model.MetricNameLabel), what, s.now)
		}
	}
	m.lastT = p.t
	if stale {
		m.live = false
		o.live--
	} else if !m.live {
		m.live = true
		o.live++
	}
	if o.op != opNone {
		if !o.acc.touched {
			o.acc = accumulator{touched: true}
			s.touched = append(s.touched, o)
		}
		o.acc.add(o.op, p.t, p.v, stale)
		return
	}
	if o.before(p.t, s.now) {
		return // the series' former owner was newer
	}
	if stale && !o.flows {
		o.staleAt = max(s.now, 1)
		return
	}
	o.lastT, o.staleAt, o.flows = p.t, 0, !stale
	if stale {
		o.staleAt = max(s.now, 1)
	}
	out := Out{Labels: o.labels, Type: o.typ, Unit: o.unit, T: p.t, V: p.v}
	if p.native > 0 {
		n := s.native[p.native-1]
		out.H, out.FH = n.h, n.fh
	}
	emit(out)
}

// before tells whether a sample of time t comes too late for the series. One whose
// newest sample is of the future takes what comes: an exporter's clock was ahead, or
// this machine's, and waiting until it has caught up would silence the series.
func (o *output) before(t, now int64) bool {
	return o.lastT != 0 && (t == o.lastT || t < o.lastT && o.lastT <= now)
}

func (a *accumulator) add(how op, t int64, v float64, stale bool) {
	a.t = max(a.t, t)
	if stale {
		return
	}
	switch {
	case how == opCount:
		a.v++
	case a.n == 0:
		a.v = v
	case how == opSum:
		a.v += v
	case how == opMax && (v > a.v || math.IsNaN(a.v)):
		a.v = v
	case how == opMin && (v < a.v || math.IsNaN(a.v)):
		a.v = v
	}
	a.n++
}

// finish emits an aggregated series: its value, or a stale marker when the last
// of its members ended.
func (o *output) finish(now int64, emit func(Out)) {
	a := o.acc
	o.acc = accumulator{}
	if o.dead || o.before(a.t, now) {
		return
	}
	switch {
	case a.n > 0:
		o.lastT, o.staleAt, o.flows = a.t, 0, true
		emit(Out{Labels: o.labels, Type: o.typ, Unit: o.unit, T: a.t, V: a.v})
	case o.live == 0 && o.flows:
		o.lastT, o.staleAt, o.flows = a.t, max(now, 1), false
		emit(o.marker(a.t))
	case o.live == 0:
		o.staleAt = max(now, 1)
	}
}

func (s *Scrape) release() {
	clear(s.native)
	clear(s.touched)
	s.pend, s.native, s.touched = s.pend[:0], s.native[:0], s.touched[:0]
	t := s.table
	s.table = nil
	if cap(s.pend) <= 64<<10 {
		t.pool.Put(s)
	}
}
