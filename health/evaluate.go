package health

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/internal/fleet"
)

// Link is what the gateways say about a site's stream.
type Link uint8

// The states of a link.
const (
	LinkUnknown Link = iota // nobody can say
	LinkNever               // registered, but never connected
	LinkUp
	LinkDown // was connected once, and is not now
)

// String is the lower-case word.
func (l Link) String() string {
	switch l {
	case LinkNever:
		return "never"
	case LinkUp:
		return "up"
	case LinkDown:
		return "down"
	default:
		return "unknown"
	}
}

// Reading is one signal's value at one site.
type Reading struct {
	Value float64
	Known bool
	// Err says why the value is unknown when its query failed; "" when the query
	// simply has no result for the site.
	Err string
	// Objects that are to blame, the worst first, as people call them. nil: nobody asked,
	// what was said last stands.
	Objects []string
}

// Readings are what is known about one site at one moment.
type Readings struct {
	Link      Link
	LinkSince time.Time
	// Reconnects is how many connections the site lost in the last ten minutes.
	Reconnects int
	// Signals in the order of the model's. Missing ones are unknown. The entries of
	// the uplink and flapping signals are ignored: Link and Reconnects decide.
	Signals []Reading
	// Packs says which of the model's packs were found now. Missing ones were not.
	Packs []bool
	// At is when the readings were true, if that is not now: readings from Cortex
	// about a site whose regional can't be reached. They are marked stale.
	At time.Time
	// LiveOnly says that only Link is news: the signals keep their last values, and
	// the evaluation doesn't count towards a change of colour, except into red by a
	// critical signal.
	LiveOnly bool
}

// SignalState is one signal's part of a State.
type SignalState struct {
	Value float64
	Score float64 // 0..1
	Known bool
	// Applies says that the site should have it: it belongs to no pack, or its pack was
	// found within a day.
	Applies bool
	// Counted says that it has a part in its dimension's score.
	Counted bool
	// Err says why it is unknown, if that is known. Garbage: the value is none that the
	// signal can have.
	Err     string
	Garbage bool
	Objects []string
	// At is when the value was true, Losing since when Score is less than 1 without a
	// break; milliseconds since 1970, 0 for never.
	At, Losing int64
}

// DimensionState is one dimension's part of a State.
type DimensionState struct {
	Score float64 // 0..100
	// Raw is the mean of its signals, before caps.
	Raw    float64
	Known  bool
	Colour fleet.Colour
	// Applies says that the site should have it. Incomplete: it is unknown, or lacks a
	// critical signal, or has one whose value is garbage.
	Applies, Incomplete bool
	// Stale: the score rests on values that were true at At, not now.
	Stale bool
	At    int64 // milliseconds since 1970
}

// StaleSeconds is the age of a stale dimension at now, 0 for a fresh one.
func (d *DimensionState) StaleSeconds(now time.Time) int64 {
	if !d.Stale || d.At == 0 {
		return 0
	}
	return max(0, (now.UnixMilli()-d.At)/1000)
}

// Reason is one cause of lost points, or of not knowing.
type Reason struct {
	Dimension fleet.Dimension
	Signal    string // "" when a dimension is unknown or incomplete
	// Value and Threshold are numbers in the signal's unit if HasValue. Threshold is
	// the bound that was crossed last: bad when the signal scores 0, else good.
	Value, Threshold float64
	HasValue         bool
	// PointsLost of the site's 100, see Evaluate.
	PointsLost float64
	// Caps: a critical signal at 0.
	Caps bool
	// Held: it is over, or smaller than it was, and the colour that it caused is watched
	// before it changes.
	Held  bool
	Since time.Time
	// Objects that are to blame, the worst first. Text names them too.
	Objects []string
	Text    string
}

// State is a site's health after one evaluation. It is never changed once made.
type State struct {
	Model *Model
	At    time.Time
	// Score from 0 to 100, if Known. Raw is what the formula gives before caps, Capped
	// after them; Score may be less while a colour holds.
	Score, Raw, Capped float64
	Known              bool
	Colour             fleet.Colour
	Since              time.Time // when Colour changed
	// Critical: a critical signal is at 0.
	Critical bool
	// EverKnown: the site had another colour than grey at some time.
	EverKnown bool
	// Against counts the evaluations in a row that disagreed with Colour to the same
	// side; Better is that side.
	Against    int
	Better     bool
	Link       Link
	LinkSince  time.Time
	Dimensions [4]DimensionState // in the order of fleet.Dimensions
	Signals    []SignalState     // in the order of Model.Signals
	Packs      []int64           // when each of Model.Packs was found last, milliseconds since 1970
	Reasons    []Reason          // ranked
}

// Evaluate computes a site's health. prev is its last state, or nil.
//
// Signals count where they apply, see SignalState. One that the answer lacks keeps its
// value for two minutes; one whose value is not finite, absurdly large or outside of its
// Min and Max is unknown at once, and says so.
//
// Dimension: 100·Σ(w·s)/Σw over its known signals; unknown when they have less than half
// of the weight of those that apply, unless a critical signal is at 0: a known outage is
// not hidden by what else is unknown. A dimension all of whose signals belong to packs
// that the site does not have does not apply.
//
// Site: (1−v)·mean + v·worst, where mean is the weighted mean of the known dimensions,
// worst the lowest of those that weigh something, and v the model's WorstShare; unknown
// when the known dimensions have less than half of the weight of those that apply, so
// that a site of which only the uplink is known is grey and not green.
//
// Caps: a signal at a score s below one half caps its dimension and the site at
// c = Cap + (100−Cap)·2s. Within the band of c's colour (from 0, 40 or 75), what else is
// lost goes on counting: the cap is f + (c−f)·r/100, where f is the band's floor and r the
// score before caps if that signal were at 1. The lowest cap binds. So an average never
// hides an outage, red comes after orange where a signal moves slowly, and of two sites
// under the same cap the one that lacks more ranks worse. Site of which a dimension is
// Incomplete: at most 75.
//
// Offline (LinkDown): connectivity is 0, by the uplink signal alone. The signals of the
// other dimensions keep the value of the last evaluation while the link was up.
//
// PointsLost: a signal of weight w and score s, in dimension d whose known signals weigh
// Σw and which weighs W of ΣW known, loses 100·w·(1−s)/Σw·((1−v)·W/ΣW + v·[d is the
// worst]) points. What a cap takes beyond that goes to the signal that caps, what not
// knowing takes to the dimensions that are not known. So the reasons of a site with a
// score sum to 100 − score. For an unknown site the points are those of the formula over
// what is known.
//
// Reasons rank: failed critical signals, then by points lost, then in the order of the
// policy; but a signal that causes others comes before them. Unknown dimensions come
// first when the site is unknown.
//
// Colour: the first known colour counts at once, or when Model.Recovery evaluations said
// so while something is still unknown. After that it gets worse when
// Model.Evaluations evaluations in a row said so, and better when Model.Recovery did; into
// red by a critical signal it changes at once, and out of red by a lost uplink with the first
// evaluation, or with twice Model.Recovery while it flaps. While a colour holds against a better score, the
// score stays at the top of the colour's band, and the reason for it stays first.
func Evaluate(m *Model, r Readings, prev *State, now time.Time) State {
	e := evaluation{m: m, r: &r, prev: prev, now: now.UnixMilli(), nowTime: now, worst: -1}
	e.st = State{Model: m, At: now, Link: r.Link, LinkSince: r.LinkSince, Colour: fleet.Grey, Since: now, Signals: make([]SignalState, len(m.Signals))}
	e.packs()
	e.refused = m.budget >= 0 && m.budget < len(r.Signals) && r.Signals[m.budget].Known && r.Signals[m.budget].Value > 0
	for i := range m.Signals {
		e.signal(i)
	}
	for d := range e.st.Dimensions {
		e.dimension(d)
	}
	e.site()
	e.colour()
	e.reasons()
	return e.st
}

type evaluation struct {
	m       *Model
	r       *Readings
	prev    *State
	now     int64
	nowTime time.Time
	refused bool // series, by the site's budget
	st      State

	total   [4]float64 // weight of the signals that apply
	known   [4]float64 // and of those that are known
	sum     [4]float64 // of weight times score
	failed  [4]bool    // a critical signal is at 0
	blind   [4]bool    // a critical signal is unknown, or one is garbage
	weight  float64    // of the known dimensions
	worst   int        // dimension, -1: none
	binds   int        // signal whose cap binds, -1: none
	unknown float64    // points that not knowing takes
	held    float64    // points that a colour that holds takes

	incomplete bool // a dimension that weighs something is
}

// before returns the previous state of signal i.
func (e *evaluation) before(i int) *SignalState {
	if e.prev == nil {
		return nil
	}
	if e.prev.Model == e.m {
		return &e.prev.Signals[i]
	}
	if e.prev.Model == nil {
		return nil
	}
	if j, ok := e.prev.Model.index[e.m.Signals[i].Name]; ok {
		return &e.prev.Signals[j]
	}
	return nil
}

func (e *evaluation) packs() {
	if len(e.m.Packs) == 0 {
		return
	}
	e.st.Packs = make([]int64, len(e.m.Packs))
	for i := range e.m.Packs {
		if i < len(e.r.Packs) && e.r.Packs[i] && !e.r.LiveOnly {
			e.st.Packs[i] = e.now
		} else if e.prev != nil && e.prev.Model != nil {
			for j := range e.prev.Packs {
				if e.prev.Model.Packs[j].Name == e.m.Packs[i].Name {
					e.st.Packs[i] = e.prev.Packs[j]
				}
			}
		}
	}
}

func (e *evaluation) recent(ms int64) bool {
	return ms != 0 && e.now-ms < forgetAfter.Milliseconds()
}

func (e *evaluation) signal(i int) {
	sig, st, before := &e.m.Signals[i], &e.st.Signals[i], e.before(i)
	switch {
	case i == e.m.uplink:
		st.Known, st.At = e.r.Link == LinkUp || e.r.Link == LinkDown, e.now
		if e.r.Link == LinkUp {
			st.Value = 1
		}
	case i == e.m.flapping:
		st.Known, st.At, st.Value = e.r.Link == LinkUp || e.r.Link == LinkDown, e.now, float64(e.r.Reconnects)
	case before != nil && before.Known && (e.r.LiveOnly || e.r.Link == LinkDown):
		st.Value, st.Known, st.At, st.Objects = before.Value, true, before.At, before.Objects
	case e.r.LiveOnly && before != nil:
		st.Err, st.Garbage, st.At = before.Err, before.Garbage, before.At
	case i < len(e.r.Signals):
		e.read(i, st, e.r.Signals[i], before)
	}
	if st.Known {
		st.Score = sig.Score(st.Value)
	}
	switch {
	case st.Known && st.Score < 1:
		st.Losing = e.now
		if i == e.m.uplink && !e.r.LinkSince.IsZero() {
			st.Losing = e.r.LinkSince.UnixMilli()
		} else if before != nil && before.Losing != 0 {
			st.Losing = before.Losing
		}
	case !st.Known && before != nil:
		// It may come back as bad as it was: an unknown moment is not a recovery.
		st.Losing = before.Losing
	}
	e.count(i, sig, st)
}

// count adds a signal to what its dimension is made of.
func (e *evaluation) count(i int, sig *Signal, st *SignalState) {
	d := sig.dim
	switch {
	case sig.pack >= 0:
		st.Applies = e.recent(e.st.Packs[sig.pack])
	case i == e.m.flapping:
		st.Applies = st.Known
	default:
		st.Applies = true
	}
	if !st.Applies || d == 0 && e.r.Link == LinkDown && i != e.m.uplink {
		return
	}
	e.total[d] += sig.Weight
	if !st.Known {
		e.blind[d] = e.blind[d] || st.Garbage || sig.Critical() && i != e.m.uplink
		return
	}
	st.Counted = true
	e.known[d] += sig.Weight
	e.sum[d] += sig.Weight * st.Score
	if st.Score == 0 && sig.Critical() {
		e.failed[d], e.st.Critical = true, true
	}
}

func (e *evaluation) read(i int, st *SignalState, r Reading, before *SignalState) {
	sig := &e.m.Signals[i]
	at := e.now
	if !e.r.At.IsZero() {
		at = min(at, e.r.At.UnixMilli())
	}
	switch why := sig.garbage(r.Value); {
	case !r.Known && e.r.Link == LinkUp && before != nil && before.Known && e.now-before.At < holdFor.Milliseconds():
		st.Value, st.Known, st.At, st.Objects = before.Value, true, before.At, before.Objects
	case !r.Known:
		st.Err = r.Err
	case why != "":
		st.Err, st.Garbage = why, true
	case sig.Sparse && e.refused && sig.Score(r.Value) == 1:
		st.Err = "the site's series budget is used up, so finding nothing is no proof"
	default:
		st.Value, st.Known, st.At, st.Objects = r.Value, true, at, r.Objects
		if r.Objects == nil && before != nil && sig.Score(r.Value) < 1 {
			st.Objects = before.Objects
		}
	}
}

// garbage says why v is none that the signal can have; "": it can.
func (s *Signal) garbage(v float64) string {
	switch {
	case math.IsNaN(v):
		return "the value is NaN, which is no number"
	case math.IsInf(v, 0):
		return fmt.Sprintf("the value is %v, which is no finite number", v)
	case math.Abs(v) > absurd, s.Min != nil && v < *s.Min, s.Max != nil && v > *s.Max:
		return "the value is " + FormatValue(v, s.Unit) + ", which it can't be"
	}
	return ""
}

func (e *evaluation) dimension(d int) {
	st := &e.st.Dimensions[d]
	st.Colour = fleet.Grey
	for i := range e.m.Signals {
		if s := &e.st.Signals[i]; e.m.Signals[i].dim == d && s.Counted && i != e.m.uplink && i != e.m.flapping && (st.At == 0 || s.At < st.At) {
			st.At = s.At
		}
	}
	offline := d == 0 && e.r.Link == LinkDown
	enough := e.known[d] > 0 && 2*e.known[d] >= e.total[d]
	st.Applies = e.total[d] > 0 || e.failed[d] || offline
	st.Known = offline || enough || e.failed[d]
	st.Incomplete = st.Applies && (!st.Known || e.blind[d])
	if !st.Known {
		return
	}
	if !offline && e.known[d] > 0 {
		st.Raw = snap(100 * e.sum[d] / e.known[d])
	}
	if offline {
		st.At = e.now
	} else {
		e.stale(d, st)
	}
	st.Score = st.Raw
	for i := range e.m.Signals {
		if e.m.Signals[i].dim == d && e.st.Signals[i].Score < 0.5 {
			st.Score = min(st.Score, e.capOf(i, e.mended(i)))
		}
	}
	st.Score = snap(st.Score)
	st.Colour = fleet.ColourOf(st.Score)
}

// mended is what the signal's dimension would have before caps if the signal were at 1.
func (e *evaluation) mended(i int) float64 {
	sig, st := &e.m.Signals[i], &e.st.Signals[i]
	switch d := sig.dim; {
	case i == e.m.uplink && e.r.Link == LinkDown:
		return 100
	case e.known[d] > 0:
		return snap(100 * (e.sum[d] + sig.Weight*(1-st.Score)) / e.known[d])
	default:
		return e.st.Dimensions[d].Raw
	}
}

// capOf is the most that a signal leaves, where r is what there would be without it.
func (e *evaluation) capOf(i int, r float64) float64 {
	st := &e.st.Signals[i]
	if !st.Counted {
		return NoCap
	}
	c := e.m.Signals[i].CapAt(st.Score)
	if c >= NoCap {
		return NoCap
	}
	f := floorOf(c)
	return f + (c-f)*r/100
}

// floorOf is where the band of a score's colour begins.
func floorOf(score float64) float64 {
	switch fleet.ColourOf(score) {
	case fleet.Red:
		return 0
	case fleet.Orange:
		return 40
	default:
		return unknownCap
	}
}

func (e *evaluation) stale(d int, st *DimensionState) {
	switch {
	case st.At == 0:
	case e.r.Link == LinkDown, !e.r.At.IsZero() && !e.r.LiveOnly:
		st.Stale = st.At < e.now
	case e.r.LiveOnly && e.prev != nil:
		st.Stale = e.prev.Dimensions[d].Stale
	}
}

// base is the formula over the dimensions' scores before caps; worst is the dimension
// that it follows.
func (e *evaluation) base(of [4]float64) (score float64, worst int) {
	var sum, weight, plain, count float64
	worst = -1
	for d := range of {
		if !e.st.Dimensions[d].Known {
			continue
		}
		sum += e.m.Weights[d] * of[d]
		weight += e.m.Weights[d]
		plain += of[d]
		count++
		if e.m.Weights[d] > 0 && (worst < 0 || of[d] < of[worst]) {
			worst = d
		}
	}
	switch v := e.m.WorstShare; {
	case weight > 0:
		return snap((1-v)*sum/weight + v*of[worst]), worst
	case count > 0: // a critical failure where the policy gives no weight
		return snap(plain / count), -1
	}
	return 100, -1
}

func (e *evaluation) site() {
	var raw [4]float64
	used := 0.0
	for d := range e.st.Dimensions {
		st := &e.st.Dimensions[d]
		raw[d] = st.Raw
		if st.Applies {
			used += e.m.Weights[d]
		}
		if st.Known {
			e.weight += e.m.Weights[d]
		}
		e.incomplete = e.incomplete || st.Incomplete && e.m.Weights[d] > 0
	}
	e.binds = -1
	e.st.Known = e.st.Critical || e.weight > 0 && 2*e.weight >= used
	var score float64
	score, e.worst = e.base(raw)
	if !e.st.Known {
		return
	}
	e.st.Raw = score
	for i := range e.m.Signals {
		if st := &e.st.Signals[i]; !st.Counted || st.Score >= 0.5 || e.m.Signals[i].Cap >= NoCap {
			continue
		}
		d := e.m.Signals[i].dim
		keep := raw[d]
		raw[d] = e.mended(i)
		without, _ := e.base(raw)
		raw[d] = keep
		if c := snap(e.capOf(i, without)); c < score {
			score, e.binds = c, i
		}
	}
	if e.incomplete && score > unknownCap {
		e.unknown, score = score-unknownCap, unknownCap
	}
	e.st.Score, e.st.Capped = score, score
}

// snap takes the noise of floating point off a score, so that exactly 75 is
// orange however it was computed.
func snap(x float64) float64 { return min(100, max(0, math.Round(x*1e9)/1e9)) }

func (e *evaluation) colour() {
	raw := fleet.Grey
	if e.st.Known {
		raw = fleet.ColourOf(e.st.Score)
	}
	e.st.EverKnown = raw != fleet.Grey
	early := e.incomplete && !e.st.Critical // what is missing may be on its way
	if e.prev == nil {
		if !early {
			e.st.Colour = raw
		} else if raw != fleet.Grey {
			e.st.Against = 1
			e.st.Known, e.st.Score, e.unknown = false, 0, 0
		}
		return
	}
	e.st.EverKnown = e.st.EverKnown || e.prev.EverKnown
	e.st.Colour, e.st.Since = e.prev.Colour, e.prev.Since
	if e.st.Colour == "" {
		e.st.Colour = fleet.Grey
	}
	if raw == e.st.Colour {
		return
	}
	e.st.Better = raw != fleet.Grey && e.st.Colour != fleet.Grey && raw.Number() < e.st.Colour.Number()
	if e.prev.Better == e.st.Better {
		e.st.Against = e.prev.Against
	}
	if !e.r.LiveOnly {
		e.st.Against++
	}
	need := e.m.Evaluations
	switch {
	case e.st.Colour == fleet.Grey && early:
		need = e.m.Recovery
	case e.st.Better:
		need = e.m.Recovery
		flaps := e.m.flapping >= 0 && e.st.Signals[e.m.flapping].Known && e.st.Signals[e.m.flapping].Score < 1
		if r := first(e.prev.Reasons); r != nil && r.Signal == SignalUplink {
			if need = 1; flaps {
				need = 2 * e.m.Recovery // between two losses it is not over
			}
		}
	}
	if e.st.Against >= need || raw == fleet.Red && e.st.Critical || !e.prev.EverKnown && !early {
		e.st.Colour, e.st.Since, e.st.Against, e.st.Better = raw, e.nowTime, 0, false
		return
	}
	if early && e.st.Colour == fleet.Grey {
		e.st.Known, e.st.Score, e.unknown = false, 0, 0
		return
	}
	if e.st.Better {
		top := unknownCap
		if e.st.Colour == fleet.Red {
			top = fleet.CriticalCap
		}
		e.held = e.st.Score - top
		e.st.Score = top
	}
}

func first(r []Reason) *Reason {
	if len(r) == 0 {
		return nil
	}
	return &r[0]
}

func (e *evaluation) reasons() {
	losing, unknown := 0, 0
	for i := range e.st.Signals {
		if st := &e.st.Signals[i]; st.Counted && st.Score < 1 {
			losing++
		}
	}
	for d := range e.st.Dimensions {
		if e.st.Dimensions[d].Incomplete {
			unknown++
		}
	}
	if losing+unknown == 0 && e.held == 0 && e.st.Known {
		return
	}
	out := make([]Reason, 0, losing+unknown+1)
	sum, bound := 0.0, -1
	for i := range e.st.Signals {
		sig, st := &e.m.Signals[i], &e.st.Signals[i]
		if !st.Counted || st.Score >= 1 {
			continue
		}
		caps := st.Score == 0 && sig.Critical()
		if sig.Weight == 0 && !caps && i != e.binds {
			continue
		}
		r := e.reason(i, caps)
		sum += r.PointsLost
		if i == e.binds {
			bound = len(out)
		}
		out = append(out, r)
	}
	if bound < 0 { // a failure in dimensions that weigh nothing
		bound = slices.IndexFunc(out, func(r Reason) bool { return r.Caps })
	}
	if bound >= 0 && e.st.Known {
		// What no mean explains, the cap does.
		rest := 100 - e.st.Score - e.unknown - e.held - sum
		out[bound].PointsLost = max(0, out[bound].PointsLost+rest)
	}
	if unknown > 0 {
		u := e.unknowns(make([]Reason, 0, unknown))
		if e.st.Known {
			out = append(out, u...)
			e.rank(out)
		} else {
			e.rank(out)
			out = append(u, out...)
		}
	} else {
		e.rank(out)
	}
	if e.held > 0 {
		out = e.hold(out)
	}
	if !e.st.Known && len(out) == 0 {
		out = append(out, Reason{Dimension: fleet.Connectivity, Since: e.nowTime, Text: "nothing that the policy measures was found at the site"})
	}
	e.st.Reasons = out
}

// rank sorts by what is lost, and puts causes before what they cause.
func (e *evaluation) rank(out []Reason) {
	slices.SortStableFunc(out, func(a, b Reason) int {
		if a.Caps != b.Caps {
			if a.Caps {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.PointsLost, a.PointsLost)
	})
	for n := 1; n < len(out); n++ {
		i, ok := e.m.index[out[n].Signal]
		if !ok || e.st.Signals[i].Score >= causeBelow {
			continue
		}
		for at := range n {
			j, ok := e.m.index[out[at].Signal]
			if ok && slices.Contains(e.m.causes[j], i) && !slices.Contains(e.m.causes[i], j) {
				r := out[n]
				copy(out[at+1:n+1], out[at:n])
				out[at] = r
				break
			}
		}
	}
}

// hold puts the reason for a colour that holds first.
func (e *evaluation) hold(out []Reason) []Reason {
	const note = " (watched before the colour changes)"
	was := Reason{Dimension: fleet.Reliability, Since: e.st.Since, Text: "the site was " + string(e.st.Colour)}
	if p := first(e.prev.Reasons); p != nil && p.Text != "" {
		was = *p
	}
	for i := range out {
		if out[i].Signal == was.Signal && out[i].Dimension == was.Dimension {
			r := out[i]
			r.Held, r.PointsLost = true, r.PointsLost+e.held
			copy(out[1:i+1], out[:i])
			out[0] = r
			return out
		}
	}
	was.PointsLost, was.Caps = e.held, false
	if !was.Held {
		was.Held, was.Text = true, was.Text+note
	}
	return slices.Insert(out, 0, was)
}

func (e *evaluation) reason(i int, caps bool) Reason {
	sig, st := &e.m.Signals[i], &e.st.Signals[i]
	d, dim := sig.dim, &e.st.Dimensions[sig.dim]
	r := Reason{Dimension: sig.Dimension, Signal: sig.Name, Value: st.Value, Threshold: sig.Good, HasValue: true, Caps: caps, Since: time.UnixMilli(st.Losing).UTC(), Objects: st.Objects}
	if st.Score == 0 {
		r.Threshold = sig.Bad
	}
	r.PointsLost = e.loss(i, d)
	r.Text = sig.render(st.Value, r.Threshold)
	if f := e.m.flapping; i == e.m.uplink && f >= 0 && e.st.Signals[f].Known && e.st.Signals[f].Score < 1 {
		r.Text += "; " + e.m.Signals[f].render(e.st.Signals[f].Value, e.m.Signals[f].Good)
	}
	if len(st.Objects) > 0 {
		r.Text += ": " + strings.Join(st.Objects, ", ")
	}
	if dim.Stale {
		r.Text += " (last known value)"
	}
	return r
}

// loss is what a signal loses by the formula, before caps.
func (e *evaluation) loss(i, d int) float64 {
	if !e.st.Dimensions[d].Known || e.weight == 0 {
		return 0
	}
	share := (1 - e.m.WorstShare) * e.m.Weights[d] / e.weight
	if d == e.worst {
		share += e.m.WorstShare
	}
	if i == e.m.uplink && e.r.Link == LinkDown {
		return 100 * share
	}
	if e.known[d] == 0 {
		return 0
	}
	return 100 * e.m.Signals[i].Weight * (1 - e.st.Signals[i].Score) / e.known[d] * share
}

func (e *evaluation) unknowns(out []Reason) []Reason {
	weight := 0.0
	for d := range e.st.Dimensions {
		if e.st.Dimensions[d].Incomplete {
			weight += e.m.Weights[d]
		}
	}
	for d, dim := range fleet.Dimensions {
		if !e.st.Dimensions[d].Incomplete {
			continue
		}
		r := Reason{Dimension: dim, Since: e.nowTime}
		if weight > 0 && e.r.Link == LinkNever { // one reason speaks for all
			r.PointsLost = e.unknown
		} else if weight > 0 {
			r.PointsLost = e.unknown * e.m.Weights[d] / weight
		}
		if e.prev != nil {
			for i := range e.prev.Reasons {
				if p := &e.prev.Reasons[i]; p.Signal == "" && p.Dimension == dim {
					r.Since = p.Since
				}
			}
		}
		r.Text = e.unknownText(d)
		out = append(out, r)
		if e.r.Link == LinkNever {
			break
		}
	}
	return out
}

func (e *evaluation) unknownText(d int) string {
	dim := fleet.Dimensions[d]
	switch {
	case e.r.Link == LinkNever:
		return "the site has never connected"
	case d == 0 && e.r.Link == LinkUnknown && !e.st.Dimensions[d].Known:
		return "connectivity is unknown: the site's regional can't be asked"
	}
	known, total, failing := 0, 0, ""
	var lacks []string
	for i := range e.m.Signals {
		sig, st := &e.m.Signals[i], &e.st.Signals[i]
		if sig.dim != d || !st.Applies {
			continue
		}
		total++
		switch {
		case st.Known:
			known++
		case st.Garbage || st.Err != "" && failing == "":
			failing = sig.Name + ": " + st.Err
		default:
			lacks = append(lacks, sig.Name)
		}
	}
	state := "unknown"
	if e.st.Dimensions[d].Known {
		state = "not fully known"
	}
	if total == 0 {
		return fmt.Sprintf("%s is %s: none of its signals ever had a value", dim, state)
	}
	text := fmt.Sprintf("%s is %s: %d of %d signals have a value", dim, state, known, total)
	if failing != "" {
		return text + "; " + failing
	}
	if n := len(lacks); n > 3 {
		return text + fmt.Sprintf("; nothing gives %s and %d more", strings.Join(lacks[:3], ", "), n-3)
	} else if n > 0 {
		return text + "; nothing gives " + strings.Join(lacks, ", ")
	}
	return text
}
