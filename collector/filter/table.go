package filter

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
)

// ErrOutOfOrder is a sample that is older than one of its series that was taken.
var ErrOutOfOrder = errors.New("out of order sample")

// Reason says why samples were dropped.
type Reason uint8

// The reasons, in the order of the filter's stages.
const (
	ByAllowlist Reason = iota // also by the scrape config's own metric_relabel_configs
	ByDuplicate               // became equal to another series, and no aggregation says what to do
	ByBudget
	numReasons
)

// String is the value of the label "reason" in metrics.
func (r Reason) String() string {
	return [numReasons]string{"allowlist", "duplicate", "budget"}[r]
}

// Reasons lists all reasons.
func Reasons() []Reason { return []Reason{ByAllowlist, ByDuplicate, ByBudget} }

// Out is one sample that leaves the site. H or FH is set for a native histogram.
type Out struct {
	Labels labels.Labels
	Type   model.MetricType
	Unit   string
	T      int64 // milliseconds since 1970
	V      float64
	H      *histogram.Histogram
	FH     *histogram.FloatHistogram
}

// Stats is the state of a Table. Counts are since NewTable.
type Stats struct {
	Series  int // that leave the site and count against the budget
	Budget  int
	Exempt  int // that leave the site whatever the policy says
	Refused int // series that want to leave and find no place in the budget
	// RefusedReserved is how many of those are of metrics with reserved places, and
	// RefusedByName all of them by metric, at most RefusedNames names: of reserved ones
	// first, then of those with most series.
	RefusedReserved int
	RefusedByName   map[string]int
	Duplicates      int // series that are dropped as duplicates
	KeptSamples     uint64
	Dropped         [numReasons]uint64 // samples
}

// RefusedNames bounds Stats.RefusedByName.
const RefusedNames = 50

// Times after which a series that is not seen any more is forgotten.
const (
	freeAfterScrapes   = 3              // of its target, when it ended with a stale marker
	vanishAfterScrapes = 5              // of its target, when it did not
	vanishAfter        = 5 * 60 * 1000  // at least, in milliseconds
	maxInterval        = 60 * 60 * 1000 // of a target, in milliseconds
	maxAhead           = 10 * 60 * 1000 // of this machine's clock, in milliseconds, as the scrape package and the gateway have it
	sweepEvery         = 10 * 1000      // milliseconds, at most this often
)

// Table knows every series that the scrapes brought, and what becomes of each.
// Safe for concurrent use: scrapes of several targets run at once.
type Table struct {
	mu      sync.Mutex
	policy  *Policy
	members []member
	free    []uint32
	byRaw   map[uint64]uint32 // hash of labels and owner → first member, chained by next
	outs    map[uint64]*output
	owners  map[uint64]*owner
	order   uint64
	scrapes uint64 // begun
	swept   int64
	drop    *labels.Builder
	stats   Stats
	plain   []*output // without a reserved place, in the order of admission; some are dead
	bad     map[badKey]badSince
	evicted []*output // since the last Commit, which ends them
	pool    sync.Pool // of *Scrape
}

// member is one series of one target, as scraped.
type member struct {
	labels   labels.Labels
	out      *output // nil: dropped, for reason
	blocker  *output // of a duplicate: who has its place
	owner    uint64
	lastT    int64 // of its newest sample, milliseconds
	lastSeen int64 // when it was last in a scrape
	hash     uint64
	next     uint32 // in the chain of equal hashes; index+1
	gen      uint32 // grows each time that the slot is used again
	reason   Reason
	report   report
	used     bool
	exempt   bool
	live     bool   // its newest sample was no stale marker
	native   bool   // histograms
	pendBy   uint64 // scrape that it last had a sample in, and the sample's time
	pendT    int64  // of its sample in the scrape that goes on
}

// report tells the scrape loop's own series apart, which say how many samples the
// target's page had and how many were left after relabelling.
type report uint8

const (
	notReport report = iota
	reportScraped
	reportPostRelabel
)

// output is one series that leaves the site.
type output struct {
	labels   labels.Labels
	hash     uint64
	next     *output // in the chain of equal hashes
	typ      model.MetricType
	unit     string
	owner    uint64
	order    uint64 // of admission: when the budget shrinks, the oldest stay
	lastT    int64
	staleAt  int64 // 0: flows, or never did
	members  int
	live     int
	op       op
	exempt   bool
	reserved bool
	flows    bool // its newest sample that left was no stale marker
	dead     bool
	acc      accumulator
}

// accumulator combines the samples of one scrape.
type accumulator struct {
	touched bool
	n       int
	t       int64
	v       float64
}

// owner is a target.
type owner struct {
	lastScrape int64
	interval   int64

	job, instance string
}

// NewTable returns an empty table.
func NewTable(p *Policy) *Table {
	return &Table{
		policy: p, byRaw: map[uint64]uint32{}, outs: map[uint64]*output{}, owners: map[uint64]*owner{}, bad: map[badKey]badSince{},
		drop: labels.NewBuilder(labels.EmptyLabels()),
	}
}

// Stats returns the state now.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.stats
	st.Budget = t.policy.budget
	refused := map[string]int{}
	for i := range t.members {
		if m := &t.members[i]; m.used && m.out == nil {
			switch m.reason {
			case ByBudget:
				st.Refused++
				name := m.labels.Get(model.MetricNameLabel)
				refused[name]++
				if t.policy.Reserves(name) {
					st.RefusedReserved++
				}
			case ByDuplicate:
				st.Duplicates++
			}
		}
	}
	st.RefusedByName = t.policy.firstNames(refused, RefusedNames)
	return st
}

// Names are the metrics that the targets have now and the policy allows, with the number
// of series of each by job.
func (t *Table) Names() map[string]map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[string]map[string]int{}
	for i := range t.members {
		m := &t.members[i]
		if !m.used || !m.exempt && !t.policy.Allows(m.labels.Get(model.MetricNameLabel)) || m.out != nil && !m.live {
			continue
		}
		name := m.labels.Get(model.MetricNameLabel)
		if out[name] == nil {
			out[name] = map[string]int{}
		}
		job := m.labels.Get(model.JobLabel)
		if o := t.owners[m.owner]; o != nil && o.job != "" {
			job = o.job // labels may be the exporter's own
		}
		out[name][job]++
	}
	return out
}

// firstNames returns the n names that matter most: reserved ones, then the largest.
func (p *Policy) firstNames(all map[string]int, n int) map[string]int {
	if len(all) <= n {
		return all
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		if ra, rb := p.Reserves(a), p.Reserves(b); ra != rb {
			if ra {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(all[b], all[a]), cmp.Compare(a, b))
	})
	out := make(map[string]int, n)
	for _, name := range names[:n] {
		out[name] = all[name]
	}
	return out
}

// SetPolicy applies another policy to the series that are known. Series that were
// flowing and are not let through any more get a stale marker, handed to emit with
// the time now. It is not safe to call back into the table from emit.
func (t *Table) SetPolicy(p *Policy, now int64, emit func(Out)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.policy = p
	old := t.outs
	t.outs = make(map[uint64]*output, len(old))
	t.stats.Series, t.stats.Exempt, t.plain = 0, 0, nil

	// Those with reserved places choose first, then the oldest: existing ones keep
	// flowing.
	idx := make([]uint32, 0, len(t.members))
	order := func(i uint32) uint64 {
		if p.Reserves(t.members[i].labels.Get(model.MetricNameLabel)) {
			return 0
		}
		if o := t.members[i].out; o != nil {
			return o.order
		}
		return math.MaxUint64
	}
	for i := range t.members {
		if t.members[i].used {
			idx = append(idx, uint32(i))
		}
	}
	slices.SortStableFunc(idx, func(a, b uint32) int { return cmp.Compare(order(a), order(b)) })
	for _, i := range idx {
		t.redecideLocked(i, old)
	}
	var was []*output
	for _, o := range old {
		for ; o != nil; o = o.next {
			was = append(was, o)
		}
	}
	slices.SortFunc(was, func(a, b *output) int { return cmp.Compare(a.order, b.order) })
	for _, o := range was {
		o.dead = true
		t.endLocked(o, now, emit)
	}
}

// endLocked ends a dead output that was flowing, unless another goes on in its place.
func (t *Table) endLocked(o *output, now int64, emit func(Out)) {
	n := t.lookupLocked(o.hash, o.labels)
	if !o.flows || n != nil && n.live > 0 {
		return
	}
	at := o.endsAt(now)
	emit(o.marker(at))
	if n != nil {
		n.staleAt, n.lastT, n.flows = now, at, false
	}
}

// redecideLocked finds member i its place under a new policy.
func (t *Table) redecideLocked(i uint32, old map[uint64]*output) {
	m := &t.members[i]
	was := m.out
	m.out, m.blocker = nil, nil
	t.decideLocked(m)
	if m.out == nil {
		m.live = false
		if m.reason == ByAllowlist && m.report == notReport {
			t.freeLocked(i)
		}
		return
	}
	o := m.out
	if o.members == 1 { // made just now
		if prev := find(old[o.hash], o.labels); prev != nil {
			o.lastT, o.staleAt, o.flows = prev.lastT, prev.staleAt, prev.flows
			o.typ, o.unit, o.order = prev.typ, prev.unit, prev.order
		} else if was != nil {
			o.typ, o.unit = was.typ, was.unit
		}
	}
	if m.live {
		o.live++
	}
}

// endsAt is the time of a marker that ends the series now: behind its newest sample,
// unless that is so far in the future that the regional has refused it.
func (o *output) endsAt(now int64) int64 {
	if o.lastT > now+maxAhead {
		return now
	}
	return max(now, o.lastT+1)
}

func (o *output) marker(t int64) Out {
	return Out{Labels: o.labels, Type: o.typ, Unit: o.unit, T: t, V: math.Float64frombits(value.StaleNaN)}
}

func find(o *output, ls labels.Labels) *output {
	for ; o != nil; o = o.next {
		if labels.Equal(o.labels, ls) {
			return o
		}
	}
	return nil
}

func (t *Table) lookupLocked(hash uint64, ls labels.Labels) *output { return find(t.outs[hash], ls) }

// decideLocked gives m a place among the outputs, or the reason why not.
func (t *Table) decideLocked(m *member) {
	name := m.labels.Get(model.MetricNameLabel)
	if !m.exempt && !t.policy.Allows(name) {
		m.reason = ByAllowlist
		return
	}
	exempt := m.exempt || name == "up"
	ls, how := m.labels, opNone
	if !m.exempt {
		ls = t.withoutDropped(ls)
		if !m.native { // native histograms of different layouts don't add up
			how = t.policy.ops[name]
		}
	}
	hash := ls.Hash()
	if o := t.lookupLocked(hash, ls); o != nil {
		switch {
		case o.owner == m.owner && o.op == how && how != opNone:
			o.members++
			m.out = o
		case o.live == 0 && o.staleAt != 0:
			t.replaceLocked(o, m, how)
		default:
			m.reason, m.blocker = ByDuplicate, o
		}
		return
	}
	reserved := !exempt && t.policy.Reserves(name)
	if !exempt && t.stats.Series >= t.policy.budget && (!reserved || !t.evictLocked()) {
		m.reason = ByBudget
		return
	}
	t.order++
	m.out = &output{labels: ls, hash: hash, owner: m.owner, order: t.order, op: how, exempt: exempt, reserved: reserved, members: 1, next: t.outs[hash]}
	t.outs[hash] = m.out
	t.countLocked(m.out, 1)
	t.notePlainLocked(m.out)
}

// notePlainLocked remembers an output that others may take the place of.
func (t *Table) notePlainLocked(o *output) {
	if o.exempt || o.reserved {
		return
	}
	if len(t.plain) > 2*t.stats.Series+64 {
		t.plain = slices.DeleteFunc(t.plain, func(o *output) bool { return o.dead })
	}
	t.plain = append(t.plain, o)
}

// evictLocked makes room for a series with a reserved place: the youngest one without
// has to go. Series that exist only while something is wrong come last, and are what
// health is about.
func (t *Table) evictLocked() bool {
	for n := len(t.plain); n > 0; n = len(t.plain) {
		o := t.plain[n-1]
		t.plain[n-1], t.plain = nil, t.plain[:n-1]
		if o.dead {
			continue
		}
		t.unlinkLocked(o)
		t.countLocked(o, -1)
		t.evicted = append(t.evicted, o)
		return true
	}
	return false
}

// endEvictedLocked ends the series that had to make room.
func (t *Table) endEvictedLocked(now int64, emit func(Out)) {
	for i, o := range t.evicted {
		t.evicted[i] = nil
		t.endLocked(o, now, emit)
	}
	t.evicted = t.evicted[:0]
}

func (t *Table) countLocked(o *output, d int) {
	if o.exempt {
		t.stats.Exempt += d
	} else {
		t.stats.Series += d
	}
}

// replaceLocked gives the place of an output that ended to a newcomer.
func (t *Table) replaceLocked(o *output, m *member, how op) {
	n := *o
	n.owner, n.op, n.members, n.live, n.acc = m.owner, how, 1, 0, accumulator{}
	t.unlinkLocked(o)
	n.next = t.outs[o.hash]
	t.outs[o.hash] = &n
	m.out = &n
	t.notePlainLocked(&n)
}

func (t *Table) unlinkLocked(o *output) {
	o.dead = true
	if first := t.outs[o.hash]; first == o {
		if o.next == nil {
			delete(t.outs, o.hash)
		} else {
			t.outs[o.hash] = o.next
		}
		return
	}
	for p := t.outs[o.hash]; p != nil; p = p.next {
		if p.next == o {
			p.next = o.next
			return
		}
	}
}

func (t *Table) withoutDropped(ls labels.Labels) labels.Labels {
	hit := false
	for _, l := range t.policy.dropLabels {
		hit = hit || ls.Has(l)
	}
	if !hit {
		return ls // shares the scrape loop's memory
	}
	t.drop.Reset(ls)
	t.drop.Del(t.policy.dropLabels...)
	return t.drop.Labels()
}

// memberLocked returns the index of the series that ref names, or else that has
// these labels. If there is none it makes one, or returns false.
func (t *Table) memberLocked(s *Scrape, ref uint64, ls labels.Labels, native, create bool) (uint32, bool) {
	if i, gen := uint32(ref)-1, uint32(ref>>32); ref != 0 && int(i) < len(t.members) && t.members[i].used && t.members[i].gen == gen {
		return i, true
	}
	hash := ls.Hash() ^ s.owner*0x9e3779b97f4a7c15
	for n := t.byRaw[hash]; n != 0; n = t.members[n-1].next {
		if m := &t.members[n-1]; m.owner == s.owner && labels.Equal(m.labels, ls) {
			return n - 1, true
		}
	}
	if !create {
		return 0, false
	}
	var i uint32
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		t.members = append(t.members, member{})
		i = uint32(len(t.members) - 1)
	}
	t.members[i] = member{
		labels: ls, owner: s.owner, hash: hash, next: t.byRaw[hash], gen: t.members[i].gen + 1,
		used: true, exempt: s.exempt, native: native, lastT: math.MinInt64, pendT: math.MinInt64,
	}
	t.byRaw[hash] = i + 1
	m := &t.members[i]
	switch ls.Get(model.MetricNameLabel) {
	case "scrape_samples_scraped":
		m.report = reportScraped
	case "scrape_samples_post_metric_relabeling":
		m.report = reportPostRelabel
	}
	t.decideLocked(m)
	return i, true
}

func (t *Table) refOf(i uint32) uint64 { return uint64(t.members[i].gen)<<32 | uint64(i+1) }

// freeLocked forgets member i; the caller has ended its output if it was live.
func (t *Table) freeLocked(i uint32) {
	m := &t.members[i]
	if o := m.out; o != nil && !o.dead {
		if m.live {
			o.live--
		}
		if o.members--; o.members == 0 {
			t.unlinkLocked(o)
			t.countLocked(o, -1)
		}
	}
	if t.byRaw[m.hash] == i+1 {
		if m.next == 0 {
			delete(t.byRaw, m.hash)
		} else {
			t.byRaw[m.hash] = m.next
		}
	} else {
		for n := t.byRaw[m.hash]; n != 0; n = t.members[n-1].next {
			if p := &t.members[n-1]; p.next == i+1 {
				p.next = m.next
				break
			}
		}
	}
	*m = member{gen: m.gen}
	t.free = append(t.free, i)
}

// sweepLocked forgets the series that have not been seen for long. A series whose
// target went away without a stale marker gets one from here.
func (t *Table) sweepLocked(now int64, emit func(Out)) {
	if now-t.swept < sweepEvery && now >= t.swept {
		return
	}
	t.swept = now
	for i := range t.members {
		m := &t.members[i]
		if !m.used {
			continue
		}
		interval := t.policy.interval
		if o := t.owners[m.owner]; o != nil && o.interval > 0 {
			interval = o.interval
		}
		idle := now - m.lastSeen
		if m.live && idle <= max(vanishAfter, vanishAfterScrapes*interval) || !m.live && idle <= freeAfterScrapes*interval {
			continue
		}
		if o := m.out; m.live && o != nil && !o.dead {
			m.live = false
			if o.live--; o.live == 0 && o.flows {
				o.staleAt, o.lastT, o.flows = now, o.endsAt(now), false
				emit(o.marker(o.lastT))
			}
		}
		t.freeLocked(uint32(i))
	}
	for id, o := range t.owners {
		if now-o.lastScrape > 2*max(vanishAfter, vanishAfterScrapes*o.interval) {
			delete(t.owners, id)
		}
	}
}
