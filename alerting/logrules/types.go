package logrules

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/control/api/logrule"
)

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
	kind    eventKind
	key     string
	at      int64 // when it happened, by the lines' time
	seen    int64 // when it was found out, for realert and aggregation
	value   float64
	message string
	summary string
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
	value       string // of the field that is not of query_key
	n           Group
	t           int64
	first, last int64
}

// run evaluates: groups are the answers to the plan's queries, in their order.
func (r *round) run(groups [][]Group) {
	r.holding, r.fresh = map[string]bool{}, map[string]bool{}
	r.forget()
	r.windows, r.terms = count(r.st.Keys, r.limits.keys, len(r.sites)), newQuota(r.limits.terms, len(r.sites), leastTerms)
	if r.remembers() {
		for key, w := range r.st.Keys {
			r.terms.give(siteOf(key), -len(w.Terms))
		}
	}
	for i, gs := range groups {
		items := r.items(gs)
		r.changed = r.changed || len(items) > 0
		r.take(i, items)
	}
	r.judge()
}

func (r *round) remembers() bool {
	return r.p.rule.Type == logrule.NewTerm || r.p.rule.Type == logrule.Cardinality || r.p.perValue && r.p.rule.Type == logrule.MetricAggregation
}

// items drops what is of no site of the rule. A line from the future is one whose
// site has a wrong clock: it counts as written when it was taken in.
func (r *round) items(gs []Group) []item {
	out := make([]item, 0, len(gs))
	for _, g := range gs {
		if len(g.Key) == 0 || g.Count <= 0 {
			continue
		}
		if _, ok := r.sites[g.Key[0]]; !ok {
			continue
		}
		it := item{n: g, t: g.Time.UnixMilli(), first: g.First.UnixMilli(), last: g.Last.UnixMilli()}
		it.first, it.last = min(it.first, r.upTo), min(it.last, r.upTo)
		it.t = min(it.t, floor(r.upTo, r.p.step))
		key := g.Key
		if r.p.perValue {
			key, it.value = key[:len(key)-1], key[len(key)-1]
		}
		it.key = joinKey(key)
		out = append(out, it)
	}
	slices.SortStableFunc(out, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.key, b.key), cmp.Compare(a.value, b.value))
	})
	return out
}

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

func (r *round) match(key string, at int64, value float64, message, format string, args ...any) {
	r.event(matched, key, at, r.seen(at), value, message, format, args...)
}

func (r *round) event(kind eventKind, key string, at, seen int64, value float64, message, format string, args ...any) {
	r.events = append(r.events, event{kind, key, at, seen, value, message, fmt.Sprintf(format, args...)})
}

// level reports whether what a rule looks for holds at the end of a step.
func (r *round) level(holding bool, key string, t int64, value float64, format string, args ...any) {
	a := r.st.Active[key]
	firing := a != nil && a.Lasting
	switch {
	case holding && !firing:
		r.holding[key] = true
		r.event(holds, key, t, t, value, "", format, args...)
	case !holding && (firing || r.holding[key]):
		delete(r.holding, key)
		r.event(ended, key, t, t, value, "", "")
	}
}

func (r *round) take(query int, items []item) {
	for _, it := range items {
		switch r.p.rule.Type {
		case logrule.Any:
			r.match(it.key, it.first, float64(it.n.Count), it.n.Message, "%s: %s", plural(it.n.Count, "line"), clip(it.n.Message))
		case logrule.Blacklist:
			if it.value != "" && r.p.blacklist[it.value] {
				r.match(it.key, it.first, float64(it.n.Count), it.n.Message, "%s is %q, which is on the blacklist: %s", r.p.rule.CompareKey, it.value, clip(it.n.Message))
			}
		case logrule.Whitelist:
			if it.value == "" && r.p.rule.IgnoreNull || it.value != "" && r.p.blacklist[it.value] {
				continue
			}
			r.match(it.key, it.first, float64(it.n.Count), it.n.Message, "%s is %q, which is not on the whitelist: %s", r.p.rule.CompareKey, it.value, clip(it.n.Message))
		case logrule.Change:
			r.pend(it)
		case logrule.NewTerm:
			r.newTerm(query, it)
		default:
			r.count(query, it)
		}
	}
	if r.p.rule.Type == logrule.Change {
		r.changes()
	}
	if r.p.rule.Type == logrule.Frequency {
		r.frequency(items)
	}
}

// count adds the lines to the key's window.
func (r *round) count(query int, it item) {
	w := r.window(it.key)
	if w == nil {
		return
	}
	w.Last, w.message = r.upTo, it.n.Message
	if r.p.perValue {
		r.cardinality(w, it)
		return
	}
	i, found := slices.BinarySearchFunc(w.Buckets, it.t, func(b bucket, t int64) int { return cmp.Compare(b.T, t) })
	if !found {
		w.Buckets = slices.Insert(w.Buckets, i, bucket{T: it.t})
		if r.p.rule.Type == logrule.Frequency {
			w.Buckets[i].First, w.Buckets[i].Last = it.first-it.t, it.last-it.t
		}
	}
	b := &w.Buckets[i]
	switch {
	case r.p.rule.Type == logrule.PercentageMatch && query == 1:
		b.M += it.n.Count
		return
	case it.n.MetricCount > 0:
		if b.M == 0 {
			b.Min, b.Max = it.n.Min, it.n.Max
		}
		b.M += it.n.MetricCount
		b.Min, b.Max, b.Sum = math.Min(b.Min, it.n.Min), math.Max(b.Max, it.n.Max), b.Sum+it.n.Sum
	}
	b.N += it.n.Count
	if r.p.rule.Type == logrule.Frequency {
		b.Seen, b.First, b.Last = r.upTo, min(b.First, it.first-it.t), max(b.Last, it.last-it.t)
	}
}

// maxBuckets bounds what lines of long ago can add to a window.
const maxBuckets = 1000

// frequency looks for num_events lines less than a timeframe apart. What led to a
// match is used up, as in ElastAlert.
func (r *round) frequency(items []item) {
	done := map[string]bool{}
	for _, it := range items {
		w := r.st.Keys[it.key]
		if w == nil || done[it.key] {
			continue
		}
		done[it.key] = true
		var sum int64
		from := 0
		for i := 0; i < len(w.Buckets); i++ {
			b := w.Buckets[i]
			sum += b.N
			for from < i && b.T+b.Last-(w.Buckets[from].T+w.Buckets[from].First) >= r.p.timeframe {
				sum -= w.Buckets[from].N
				from++
			}
			if sum >= r.p.rule.NumEvents {
				r.match(it.key, b.T+b.Last, float64(sum), w.message, "%s within %s: %s", plural(sum, "line"), ms(r.p.timeframe), clip(w.message))
				w.Buckets = slices.Delete(w.Buckets, 0, i+1)
				i, from, sum = -1, 0, 0
			}
		}
	}
}

// newTerm remembers the values of a field. A site and query_key that no value is
// known of learns those of its first stretch without telling.
func (r *round) newTerm(query int, it item) {
	if it.value == "" {
		return
	}
	w := r.window(it.key)
	if w == nil {
		return
	}
	w.Last = r.upTo
	field := r.p.rule.Fields[query]
	known := fmt.Sprintf("%d", query) // that some value of the field is known
	if _, ok := w.Terms[known]; !ok {
		r.fresh[it.key+keySep+known] = true
	}
	term := known + ":" + termHash(it.value)
	_, old := w.Terms[term]
	if !r.remember(w, it.key, term, it.last) {
		return
	}
	make2(&w.Terms)
	w.Terms[known] = r.upTo
	if !old && !r.learn && !r.fresh[it.key+keySep+known] {
		r.match(it.key, it.first, float64(it.n.Count), it.n.Message, "%s is %q, not seen in the last %s: %s", field, it.value, ms(r.p.terms), clip(it.n.Message))
	}
}

// remember notes when a value was last seen, if there is room.
func (r *round) remember(w *window, key, term string, at int64) bool {
	make2(&w.Terms)
	last, old := w.Terms[term]
	if !old && !r.terms.take(siteOf(key)) {
		r.st.Cut++
		return false
	}
	w.Terms[term] = max(last, at)
	return true
}

// cardinality counts a value; more than max_cardinality match at once.
func (r *round) cardinality(w *window, it item) {
	if it.value == "" || !r.remember(w, it.key, termHash(it.value), it.last) {
		return
	}
	if r.p.rule.Type != logrule.Cardinality || !r.p.hasHigh || float64(len(w.Terms)) <= r.p.high {
		return
	}
	site := siteOf(it.key)
	r.terms.give(site, w.dropTerms(it.last-r.p.timeframe))
	if n := len(w.Terms); float64(n) > r.p.high {
		r.match(it.key, it.first, float64(n), it.n.Message, "%d different values of %s within %s, more than %v", n, r.p.rule.CardinalityField, ms(r.p.timeframe), r.p.high)
		if !r.p.hasLow { // else they are still to be counted for the minimum
			r.terms.give(site, len(w.Terms))
			clear(w.Terms)
		}
	}
}

func (w *window) dropTerms(upTo int64) (dropped int) {
	n := len(w.Terms)
	maps.DeleteFunc(w.Terms, func(_ string, t int64) bool { return t <= upTo })
	return n - len(w.Terms)
}

// pend keeps a value of change until query_delay has passed: at its first and its last
// line of the step.
func (r *round) pend(it item) {
	if it.value == "" && r.p.rule.IgnoreNull {
		return
	}
	msg := clip(it.n.Message)
	r.st.Pending = append(r.st.Pending, pending{it.key, it.value, it.first, msg})
	if it.last != it.first {
		r.st.Pending = append(r.st.Pending, pending{it.key, it.value, it.last, msg})
	}
}

// changes compares the values, in order of their time. A line older than what is
// known already says nothing any more.
func (r *round) changes() {
	slices.SortStableFunc(r.st.Pending, func(a, b pending) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
	})
	n := 0
	for _, e := range r.st.Pending {
		if e.At > r.upTo-r.p.delay && len(r.st.Pending)-n <= r.limits.keys {
			break
		}
		n++
		w, known := r.st.Keys[e.Key], r.st.Keys[e.Key] != nil
		if w == nil {
			w = r.window(e.Key)
		}
		if w == nil || e.At < w.ValueAt {
			continue
		}
		if known && w.ValueAt != 0 && w.Value != e.Value && (r.p.timeframe == 0 || e.At-w.ValueAt <= millis(r.p.rule.Timeframe)) {
			r.event(matched, e.Key, e.At, r.seen(e.At), 1, e.Message, "%s changed from %q to %q: %s", r.p.rule.CompareKey, w.Value, e.Value, e.Message)
		}
		w.Value, w.ValueAt, w.Last = e.Value, e.At, r.upTo
	}
	if n > 0 {
		r.st.Pending = slices.Clone(r.st.Pending[n:])
		r.changed = true
	}
}

// forget drops what no window needs any more, and keys that nothing was heard of for
// long.
//
// A window of frequency keeps lines of long ago for a timeframe after they came in: a
// site that was cut off may send them in several pieces.
func (r *round) forget() {
	p := r.p
	keep := max(p.timeframe, p.step)
	if p.rule.Type == logrule.Spike {
		keep *= 2
	}
	forgetAfter := max(p.forgetAfter, p.terms)
	if p.rule.Type == logrule.Flatline {
		forgetAfter = max(24*60*minute, 4*p.timeframe)
	}
	old := min(r.from, r.to) - keep
	for key, w := range r.st.Keys {
		w.message = ""
		w.Buckets = slices.DeleteFunc(w.Buckets, func(b bucket) bool {
			return b.T+p.step <= old && (p.rule.Type != logrule.Frequency || b.Seen <= r.after-keep)
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
		case p.rule.Type == logrule.NewTerm:
			w.dropTerms(r.after - p.terms)
		case p.perValue && r.remembers():
			w.dropTerms(old)
		}
		empty := len(w.Buckets) == 0 && len(w.Terms) == 0 && w.ValueAt == 0
		transient := p.rule.Type == logrule.Frequency || p.rule.Type == logrule.PercentageMatch || p.rule.Type == logrule.Spike ||
			p.rule.Type == logrule.Cardinality && !p.hasLow || p.rule.Type == logrule.MetricAggregation
		if p.fromInventory || !(transient && empty || w.Last < r.after-forgetAfter) {
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

// judge looks at the ends of steps.
func (r *round) judge() {
	switch r.p.rule.Type {
	case logrule.Spike, logrule.Flatline, logrule.MetricAggregation, logrule.PercentageMatch, logrule.Cardinality:
	default:
		return
	}
	first := floor(r.from, r.p.step) + r.p.step
	if r.p.perValue { // of values only the last time is known: only the present can be judged
		first = max(first, floor(r.to, r.p.step))
	}
	for t := first; t <= r.to; t += r.p.step {
		for key, w := range r.st.Keys {
			r.judgeOne(key, w, t)
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
		}
		out.N, out.M, out.Sum = out.N+b.N, out.M+b.M, out.Sum+b.Sum
	}
	return out
}

func (r *round) judgeOne(key string, w *window, t int64) {
	p := r.p
	full := t-w.First >= p.timeframe // the key was known for the whole timeframe
	switch p.rule.Type {
	case logrule.Flatline:
		if n := w.sum(t, p.timeframe).N; full {
			r.level(n < p.rule.Threshold, key, t, float64(n), "%s within %s, fewer than %d", plural(n, "line"), ms(p.timeframe), p.rule.Threshold)
		}
	case logrule.Spike:
		r.spike(key, w, t)
	case logrule.Cardinality:
		if n := w.terms(t - p.timeframe); p.hasLow && full {
			r.level(float64(n) < p.low, key, t, float64(n), "%d different values of %s within %s, fewer than %v", n, p.rule.CardinalityField, ms(p.timeframe), p.low)
		}
	case logrule.PercentageMatch:
		b := w.sum(t, p.timeframe)
		if b.N < max(p.rule.MinDenominator, 1) {
			return
		}
		r.threshold(key, t, 100*float64(b.M)/float64(b.N), w.message, true, fmt.Sprintf("%% of %d lines", b.N))
	case logrule.MetricAggregation:
		if v, ok := r.metric(w, t); ok {
			additive := p.rule.MetricAggType != "min" && p.rule.MetricAggType != "max" && p.rule.MetricAggType != "avg"
			r.threshold(key, t, v, w.message, full || !additive, ": "+p.rule.MetricAggType+" of "+p.rule.MetricAggKey)
		}
	}
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

func (r *round) metric(w *window, t int64) (float64, bool) {
	if r.p.perValue {
		return float64(w.terms(t - r.p.timeframe)), true
	}
	b := w.sum(t, r.p.timeframe)
	switch r.p.rule.MetricAggType {
	case "min":
		return b.Min, b.M > 0
	case "max":
		return b.Max, b.M > 0
	case "avg":
		return b.Sum / float64(max(b.M, 1)), b.M > 0
	case "sum":
		return b.Sum, true
	}
	return float64(b.N), true // value_count
}

// threshold matches a value over the maximum, or under the minimum if the window is
// full enough to say that.
func (r *round) threshold(key string, t int64, v float64, message string, lowCounts bool, what string) {
	switch {
	case r.p.hasHigh && v > r.p.high:
		r.event(matched, key, t, t, v, message, "%.6g%s within %s, more than %v", v, what, ms(r.p.timeframe), r.p.high)
	case r.p.hasLow && v < r.p.low && lowCounts:
		r.event(matched, key, t, t, v, message, "%.6g%s within %s, less than %v", v, what, ms(r.p.timeframe), r.p.low)
	}
}

// spike compares a timeframe with the one before it. After a match both have to fill
// again, as in ElastAlert. Where there was nothing and is nothing, there is no spike.
func (r *round) spike(key string, w *window, t int64) {
	p := r.p
	if t-w.First < 2*p.timeframe {
		return
	}
	cur, ref := w.sum(t, p.timeframe).N, w.sum(t-p.timeframe, p.timeframe).N
	if cur == ref || cur < p.rule.ThresholdCur || ref < p.rule.ThresholdRef {
		return
	}
	up := p.rule.SpikeType != "down" && float64(cur) >= float64(ref)*p.height
	down := p.rule.SpikeType != "up" && float64(cur) <= float64(ref)/p.height
	if !up && !down {
		return
	}
	r.event(matched, key, t, t, float64(cur), w.message, "%s within %s, %d in the %s before", plural(cur, "line"), ms(p.timeframe), ref, ms(p.timeframe))
	w.First = t
	r.changed = true
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
