package logrules

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/control/api/logrule"
)

// kind is a type of rule. Each stands in a file of its own and embeds plain for what it
// has no need of; the round does what all have in common: windows, quotas, sites, time.
type kind interface {
	// about is what has to be known before a line is read, by control too: it only returns a
	// literal, without the name, which is the file's. make generate copies it, and lists the type.
	about() logrule.Type
	// plan asks the rule's questions of the store and says what the round is to keep. The
	// rule's options have been checked (control/api/logrule).
	plan(p *plan, ask askFunc) (traits, error)
	// take sees each item of the answer to a question, in order of time.
	take(r *round, query int, it item)
	// taken is called after the items of a question.
	taken(r *round, items []item)
	// judge looks at a window at the end of a step, if traits.judged.
	judge(r *round, key string, w *window, t int64)
}

// askFunc adds a question: a filter, a field with numbers, which may be empty, and fields
// whose values tell items apart beside query_key.
type askFunc func(text, metric string, fields ...string) error

// traits are what the round has to know of a rule.
type traits struct {
	judged    bool  // at the ends of steps
	repeats   bool  // what lasts matches again at each end of a step
	inventory bool  // without query_key every site has a window, heard of or not
	transient bool  // a window with nothing in it need not be kept
	frames    int64 // how many timeframes a window goes back; 0: one
	late      bool  // lines of long ago are kept for a timeframe after they came in
	terms     bool  // windows remember values
	termsFor  int64 // for how long, in ms; 0: a timeframe
	learns    bool  // a new rule begins with what is in the store for termsFor
	// forgetAfter is how long a key is known that no line comes for; 0: a week.
	forgetAfter int64
}

// plain is a type that asks for the lines of its filter and does nothing with them.
type plain struct{}

func (plain) plan(p *plan, ask askFunc) (traits, error) { return traits{}, ask(p.rule.Filter, "") }
func (plain) taken(*round, []item)                      {}
func (plain) judge(*round, string, *window, int64)      {}

// round is one evaluation of one rule: the lines of one stretch of ingest, and the
// ends of steps that are to be judged. It changes the state and collects events; it
// does no I/O and knows no clock.
type round struct {
	p      *plan
	st     *state
	sites  map[string]Site
	limits limits
	// upTo is where the stretch ends, in the store's time; the round judges the ends of steps in
	// (from, to].
	after, upTo, from, to int64
	learn                 bool // new_term: remember, and tell nothing

	events  []event
	changed bool // the state has to be written
	holding map[string]bool
	fresh   map[string]bool
	windows *quota
	terms   *quota
}

type eventKind int

const (
	matched eventKind = iota // once
	holds                    // from now on
	ended                    // no more
)

// event is what a type of rule found.
type event struct {
	kind  eventKind
	key   string
	more  string // of aggregation_key
	at    int64  // when it happened, by the lines' time
	seen  int64  // when it was found out, for realert and aggregation
	value float64
	sample
	summary string
}

// sample is what an alert tells of one line.
type sample struct {
	message string
	include []string // values of the plan's include
}

const keySep = "\x00"

func joinKey(parts []string) string { return strings.Join(parts, keySep) }

func siteOf(key string) string {
	site, _, _ := strings.Cut(key, keySep)
	return site
}

// item is a Group, in order of time.
type item struct {
	key         string
	more        string // of aggregation_key, beside query_key
	value       string // of the fields that are not of query_key
	null        bool   // the line has not all of these
	n           Group
	t           int64
	first, last int64
}

func (it *item) sample() sample { return sample{it.n.Message, it.n.Include} }

// run evaluates: groups are the answers to the plan's queries, in their order.
func (r *round) run(groups [][]Group) {
	r.holding, r.fresh = map[string]bool{}, map[string]bool{}
	r.forget()
	r.windows, r.terms = count(r.st.Keys, r.limits.keys, len(r.sites)), newQuota(r.limits.terms, len(r.sites), leastTerms)
	if r.p.traits.terms {
		for key, w := range r.st.Keys {
			r.terms.give(siteOf(key), -len(w.Terms))
		}
	}
	for i, gs := range groups {
		items := r.items(gs, len(r.p.queries[i].by))
		r.changed = r.changed || len(items) > 0
		for _, it := range items {
			r.p.kind.take(r, i, it)
		}
		r.p.kind.taken(r, items)
	}
	r.judge()
}

// items drops what is of no site of the rule. A line from the future is one whose
// site has a wrong clock: it counts as written when it was taken in.
func (r *round) items(gs []Group, fields int) []item {
	out := make([]item, 0, len(gs))
	ofKey := 1 + len(r.p.keys)
	rest := ofKey + len(r.p.more)
	for _, g := range gs {
		if len(g.Key) != fields || g.Count <= 0 {
			continue
		}
		if _, ok := r.sites[g.Key[0]]; !ok {
			continue
		}
		it := item{n: g, t: g.Time.UnixMilli(), first: g.First.UnixMilli(), last: g.Last.UnixMilli()}
		it.first, it.last = min(it.first, r.upTo), min(it.last, r.upTo)
		it.t = min(it.t, floor(r.upTo, r.p.step))
		it.key, it.more, it.value = joinKey(g.Key[:ofKey]), joinKey(g.Key[ofKey:rest]), joinKey(g.Key[rest:])
		it.null = slices.Contains(g.Key[rest:], "")
		out = append(out, it)
	}
	slices.SortStableFunc(out, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.key, b.key), cmp.Compare(a.more, b.more), cmp.Compare(a.value, b.value))
	})
	return out
}

func joinFields(names []string) string { return strings.Join(names, ", ") }

// written is how values are told in a text.
func written(values string) string { return strings.ReplaceAll(values, keySep, ", ") }

func floor(t, step int64) int64 {
	if t < 0 {
		return (t - step + 1) / step * step
	}
	return t / step * step
}

// window returns the window of a key, a new one if there is room, or nil.
func (r *round) window(key string) *window {
	w := r.st.Keys[key]
	if w == nil {
		if !r.windows.take(siteOf(key)) {
			r.st.Cut++
			return nil
		}
		w = &window{First: r.upTo, Last: r.upTo}
		r.st.Keys[key] = w
		r.changed = true
	}
	return w
}

// seen tells when something of a stretch was found out: at its own time, or late.
func (r *round) seen(at int64) int64 {
	if at > r.after && at <= r.upTo {
		return at
	}
	return r.upTo
}

// line tells of a line that matches by itself.
func (r *round) line(it item, format string, args ...any) {
	r.match(it.key, it.first, float64(it.n.Count), it.sample(), format, args...)
	r.events[len(r.events)-1].more = it.more
}

func (r *round) match(key string, at int64, value float64, of sample, format string, args ...any) {
	r.event(matched, key, at, r.seen(at), value, of, format, args...)
}

func (r *round) event(kind eventKind, key string, at, seen int64, value float64, of sample, format string, args ...any) {
	r.events = append(r.events, event{kind: kind, key: key, at: at, seen: seen, value: value, sample: of, summary: fmt.Sprintf(format, args...)})
}

// level reports whether what a rule looks for holds at the end of a step.
func (r *round) level(holding bool, key string, t int64, value float64, format string, args ...any) {
	a := r.st.Active[key]
	firing := a != nil && a.Lasting
	switch {
	case holding && !firing:
		r.holding[key] = true
		r.event(holds, key, t, t, value, sample{}, format, args...)
	case !holding && (firing || r.holding[key]):
		delete(r.holding, key)
		r.event(ended, key, t, t, value, sample{}, "")
	}
}

// bucket is where an item is counted, or nil if there is no room for its key.
func (r *round) bucket(it item) (w *window, b *bucket, added bool) {
	if w = r.window(it.key); w == nil {
		return nil, nil, false
	}
	w.Last, w.sample = r.upTo, it.sample()
	i, found := slices.BinarySearchFunc(w.Buckets, it.t, func(b bucket, t int64) int { return cmp.Compare(b.T, t) })
	if !found {
		w.Buckets = slices.Insert(w.Buckets, i, bucket{T: it.t})
	}
	return w, &w.Buckets[i], !found
}

// count adds the lines, and the numbers in them, to the key's window.
func (r *round) count(it item) {
	_, b, _ := r.bucket(it)
	if b == nil {
		return
	}
	if it.n.MetricCount > 0 {
		if b.M == 0 {
			b.Min, b.Max = it.n.Min, it.n.Max
		}
		b.M += it.n.MetricCount
		b.Min, b.Max, b.Sum = math.Min(b.Min, it.n.Min), math.Max(b.Max, it.n.Max), b.Sum+it.n.Sum
		b.Spread = b.Spread.Merge(it.n.Spread)
	}
	b.N += it.n.Count
}

// maxBuckets bounds what lines of long ago can add to a window.
const maxBuckets = 1000

// remember notes when a value was last seen, if there is room.
func (r *round) remember(w *window, key, term string, at int64) bool {
	makeIfNil(&w.Terms)
	last, old := w.Terms[term]
	if !old && !r.terms.take(siteOf(key)) {
		r.st.Cut++
		return false
	}
	w.Terms[term] = max(last, at)
	return true
}

func (w *window) dropTerms(upTo int64) (dropped int) {
	n := len(w.Terms)
	maps.DeleteFunc(w.Terms, func(_ string, t int64) bool { return t <= upTo })
	return n - len(w.Terms)
}

// forget drops what no window needs any more, and keys that nothing was heard of for
// long.
//
// A window of frequency keeps lines of long ago for a timeframe after they came in: a
// site that was cut off may send them in several pieces.
func (r *round) forget() {
	p := r.p
	keep := max(p.timeframe, p.step) * max(p.traits.frames, 1)
	forgetAfter := max(cmp.Or(p.traits.forgetAfter, forgetAfter.Milliseconds()), keep)
	old := min(r.from, r.to) - keep
	for key, w := range r.st.Keys {
		w.sample = sample{}
		w.Buckets = slices.DeleteFunc(w.Buckets, func(b bucket) bool {
			return b.T+p.step <= old && (!p.traits.late || b.Seen <= r.after-keep)
		})
		for i, g := 0, grain(p.step); i < len(w.Buckets); i++ {
			b := &w.Buckets[i]
			b.First, b.Last = floor(b.First, g), floor(b.Last, g)
		}
		if extra := len(w.Buckets) - maxBuckets; extra > 0 {
			w.Buckets = slices.Delete(w.Buckets, 0, extra)
			r.st.Cut++
		}
		switch {
		case p.traits.termsFor > 0:
			w.dropTerms(r.after - p.traits.termsFor)
		case p.traits.terms:
			w.dropTerms(old)
		}
		empty := len(w.Buckets) == 0 && len(w.Terms) == 0 && w.ValueAt == 0
		if p.fromInventory || !(p.traits.transient && empty || w.Last < r.after-forgetAfter) {
			continue
		}
		delete(r.st.Keys, key)
		r.level(false, key, r.upTo, 0, "")
	}
}

// grain is how exact a place in a step is kept once its lines were looked at: about a
// sixteenth of it. Milliseconds would not pack.
func grain(step int64) int64 {
	g := step / 16
	for _, part := range []int64{1000, 500, 125, 50} {
		if g >= part {
			return g / part * part
		}
	}
	return 1
}

// full says whether a key was known for the whole segment that ends at t, which without
// bucket_interval is the timeframe.
func (r *round) full(w *window, t int64) bool { return t-w.First >= r.p.segment }

// segments are where those of the timeframe end that is looked at, the latest first.
func (r *round) segments(t int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for end := t; end > t-r.p.timeframe && yield(end); end -= r.p.segment {
		}
	}
}

// judge looks at the ends of steps.
func (r *round) judge() {
	if !r.p.traits.judged {
		return
	}
	first := floor(r.from, r.p.step) + r.p.step
	if r.p.perValue { // of values only the last time is known: only the present can be judged
		first = max(first, floor(r.to, r.p.step))
	}
	for t := first; t <= r.to; t += r.p.step {
		for key, w := range r.st.Keys {
			r.p.kind.judge(r, key, w, t)
		}
	}
}

// sum adds up the lines of (t-timeframe, t].
func (w *window) sum(t, timeframe int64) bucket {
	var out bucket
	for i := len(w.Buckets) - 1; i >= 0; i-- {
		b := w.Buckets[i]
		if b.T >= t {
			continue
		}
		if b.T < t-timeframe {
			break
		}
		if b.M > 0 {
			if out.M == 0 {
				out.Min, out.Max = b.Min, b.Max
			}
			out.Min, out.Max = math.Min(out.Min, b.Min), math.Max(out.Max, b.Max)
			out.Spread = out.Spread.Merge(b.Spread)
		}
		out.N, out.M, out.Sum = out.N+b.N, out.M+b.M, out.Sum+b.Sum
	}
	return out
}

func (w *window) terms(after int64) int {
	n := 0
	for _, t := range w.Terms {
		if t > after {
			n++
		}
	}
	return n
}

// threshold matches a value over the maximum, or under the minimum if the window is
// full enough to say that, and says whether it did.
func (r *round) threshold(key string, t int64, v float64, of sample, lowCounts bool, what string) bool {
	switch {
	case r.p.hasHigh && v > r.p.high:
		r.event(matched, key, t, t, v, of, "%.6g%s within %s, more than %v", v, what, ms(r.p.segment), r.p.high)
	case r.p.hasLow && v < r.p.low && lowCounts:
		r.event(matched, key, t, t, v, of, "%.6g%s within %s, less than %v", v, what, ms(r.p.segment), r.p.low)
	default:
		return false
	}
	return true
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func ms(d int64) string {
	s := (time.Duration(d) * time.Millisecond).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// clip shortens a message for a summary.
func clip(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
