package health

import (
	"fmt"
	"math"
	"slices"
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
}

// Readings are what is known about one site at one moment.
type Readings struct {
	Link      Link
	LinkSince time.Time
	// Signals in the order of the model's. Missing ones are unknown. The entry of
	// the uplink signal is ignored: Link decides.
	Signals []Reading
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
	// Counted says that it has a part in its dimension's score.
	Counted bool
	Err     string
	// At is when the value was true, Losing since when Score is less than 1 without
	// a break; milliseconds since 1970, 0 for never.
	At     int64
	Losing int64
}

// DimensionState is one dimension's part of a State.
type DimensionState struct {
	Score  float64 // 0..100
	Known  bool
	Colour fleet.Colour
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
	Signal    string // "" when a whole dimension is unknown
	// Value and Threshold are numbers in the signal's unit if HasValue. Threshold is
	// the bound that was crossed last: bad when the signal scores 0, else good.
	Value, Threshold float64
	HasValue         bool
	// PointsLost of the site's 100, see Evaluate.
	PointsLost float64
	// Caps: a critical signal at 0.
	Caps  bool
	Since time.Time
	Text  string
}

// State is a site's health after one evaluation. It is never changed once made.
type State struct {
	Model *Model
	At    time.Time
	// Score from 0 to 100, if Known.
	Score  float64
	Known  bool
	Colour fleet.Colour
	Since  time.Time // when Colour changed
	// Critical: a critical signal is at 0.
	Critical bool
	// EverKnown: the site had another colour than grey at some time.
	EverKnown bool
	// Against counts the evaluations in a row that disagreed with Colour.
	Against    int
	Link       Link
	LinkSince  time.Time
	Dimensions [4]DimensionState // in the order of fleet.Dimensions
	Signals    []SignalState     // in the order of Model.Signals
	Reasons    []Reason          // ranked
}

// Evaluate computes a site's health. prev is its last state, or nil.
//
// Dimension: 100·Σ(w·s)/Σw over its known signals; unknown when they have less
// than half of the weight. A critical signal at 0 makes it known and at most 39: a
// known outage is not hidden by what else is unknown.
//
// Site: weighted mean of the known dimensions; unknown when they have less than
// half of the weight of the dimensions that the model has signals for, so that a
// site of which only the uplink is known is grey and not green. A critical signal
// at 0 anywhere makes it known and at most 39.
//
// Offline (LinkDown): connectivity is 0, by the uplink signal alone, which is
// critical whatever the policy says. The signals of the other dimensions keep the
// value of the last evaluation while the link was up.
//
// Values that are not finite are unknown, with an error that says so.
//
// PointsLost: a signal of weight w and score s, in a dimension whose known
// signals weigh Σw and which weighs W of ΣW known, loses 100·w·(1−s)/Σw·W/ΣW
// points. What a cap takes beyond that is shared equally by the critical signals
// that caused it. So the reasons of a site with a score sum to 100 − score. For an
// unknown site the points are those of the mean over what is known.
//
// Reasons rank: failed critical signals, then by points lost, then in the order of
// the policy; unknown dimensions come last, or first when the site is unknown.
//
// Colour: the first known colour counts at once. After that it changes when
// Model.Evaluations evaluations in a row disagreed with it, to the newest; into
// red by a critical signal it changes at once.
func Evaluate(m *Model, r Readings, prev *State, now time.Time) State {
	e := evaluation{m: m, r: &r, prev: prev, now: now.UnixMilli(), nowTime: now}
	e.st = State{Model: m, At: now, Link: r.Link, LinkSince: r.LinkSince, Colour: fleet.Grey, Since: now, Signals: make([]SignalState, len(m.Signals))}
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
	st      State

	known  [4]float64 // weight of the known signals
	failed [4]int     // critical signals at 0
	capped [4]float64 // points that the dimension's cap took
	weight float64    // of the known dimensions
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

func (e *evaluation) signal(i int) {
	sig, st, before := &e.m.Signals[i], &e.st.Signals[i], e.before(i)
	keep := before != nil && before.Known && (e.r.LiveOnly || e.r.Link == LinkDown)
	switch {
	case i == e.m.uplink:
		st.Known, st.At = e.r.Link == LinkUp || e.r.Link == LinkDown, e.now
		if e.r.Link == LinkUp {
			st.Value = 1
		}
	case keep:
		st.Value, st.Known, st.At = before.Value, true, before.At
	case e.r.LiveOnly && before != nil:
		st.Err, st.At = before.Err, before.At
	case i < len(e.r.Signals):
		e.read(st, e.r.Signals[i])
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
	offline := e.r.Link == LinkDown && sig.dim == 0 && i != e.m.uplink
	st.Counted = st.Known && !offline
	if st.Counted {
		e.known[sig.dim] += sig.Weight
		if st.Score == 0 && (sig.Critical || i == e.m.uplink) {
			e.failed[sig.dim]++
			e.st.Critical = true
		}
	}
}

func (e *evaluation) read(st *SignalState, r Reading) {
	switch {
	case !r.Known:
		st.Err = r.Err
	case math.IsNaN(r.Value):
		st.Err = "the query returned NaN, which is no number; guard its divisions"
	case math.IsInf(r.Value, 0):
		st.Err = fmt.Sprintf("the query returned %v, which is no finite number; guard its divisions", r.Value)
	default:
		st.Value, st.Known, st.At = r.Value, true, e.now
		if !e.r.At.IsZero() {
			st.At = min(e.now, e.r.At.UnixMilli())
		}
	}
}

func (e *evaluation) dimension(d int) {
	st := &e.st.Dimensions[d]
	st.Colour = fleet.Grey
	var sum float64
	for i := range e.m.Signals {
		if s := &e.st.Signals[i]; e.m.Signals[i].dim == d && s.Counted {
			sum += e.m.Signals[i].Weight * s.Score
			if i != e.m.uplink && (st.At == 0 || s.At < st.At) {
				st.At = s.At
			}
		}
	}
	offline := d == 0 && e.r.Link == LinkDown
	enough := e.m.total[d] > 0 && e.known[d] > 0 && 2*e.known[d] >= e.m.total[d]
	if !offline && !enough && e.failed[d] == 0 {
		return
	}
	st.Known = true
	if e.known[d] > 0 {
		st.Score = snap(100 * sum / e.known[d])
	}
	if e.failed[d] > 0 && st.Score > fleet.CriticalCap {
		e.capped[d] = st.Score - fleet.CriticalCap
		st.Score = fleet.CriticalCap
	}
	if offline {
		st.Score, st.At = 0, e.now
	} else {
		e.stale(d, st)
	}
	st.Colour = fleet.ColourOf(st.Score)
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

func (e *evaluation) site() {
	var sum, plain, count float64
	for d := range e.st.Dimensions {
		if st := &e.st.Dimensions[d]; st.Known {
			sum += e.m.Weights[d] * st.Score
			e.weight += e.m.Weights[d]
			plain += st.Score
			count++
		}
	}
	mean := 100.0
	switch {
	case e.weight > 0:
		mean = snap(sum / e.weight)
	case count > 0: // a critical failure where the policy gives no weight
		mean = snap(plain / count)
	}
	e.st.Known = e.st.Critical || e.weight > 0 && 2*e.weight >= e.m.used
	if e.st.Known {
		e.st.Score = mean
		if e.st.Critical {
			e.st.Score = min(mean, fleet.CriticalCap)
		}
	}
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
	if e.prev == nil {
		e.st.Colour = raw
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
	e.st.Against = e.prev.Against
	if !e.r.LiveOnly {
		e.st.Against++
	}
	if e.st.Against >= e.m.Evaluations || raw == fleet.Red && e.st.Critical || !e.prev.EverKnown {
		e.st.Colour, e.st.Since, e.st.Against = raw, e.nowTime, 0
	}
}

func (e *evaluation) reasons() {
	losing, unknown := 0, 0
	for i := range e.st.Signals {
		if st := &e.st.Signals[i]; st.Counted && st.Score < 1 {
			losing++
		}
	}
	for d := range e.st.Dimensions {
		if !e.st.Dimensions[d].Known && e.m.total[d] > 0 {
			unknown++
		}
	}
	if losing+unknown == 0 {
		return
	}
	out := make([]Reason, 0, losing+unknown)
	sum := 0.0
	for i := range e.st.Signals {
		sig, st := &e.m.Signals[i], &e.st.Signals[i]
		if !st.Counted || st.Score >= 1 {
			continue
		}
		caps := st.Score == 0 && (sig.Critical || i == e.m.uplink)
		if sig.Weight == 0 && !caps {
			continue
		}
		r := e.reason(i, caps)
		sum += r.PointsLost
		out = append(out, r)
	}
	e.shareCap(out, sum)
	slices.SortStableFunc(out, func(a, b Reason) int {
		if a.Caps != b.Caps {
			if a.Caps {
				return -1
			}
			return 1
		}
		switch {
		case a.PointsLost > b.PointsLost:
			return -1
		case a.PointsLost < b.PointsLost:
			return 1
		}
		return 0
	})
	if unknown > 0 {
		u := e.unknowns(make([]Reason, 0, unknown))
		if e.st.Known {
			out = append(out, u...)
		} else {
			out = append(u, out...)
		}
	}
	e.st.Reasons = out
}

func (e *evaluation) reason(i int, caps bool) Reason {
	sig, st := &e.m.Signals[i], &e.st.Signals[i]
	d, dim := sig.dim, &e.st.Dimensions[sig.dim]
	r := Reason{Dimension: sig.Dimension, Signal: sig.Name, Value: st.Value, Threshold: sig.Good, HasValue: true, Caps: caps, Since: time.UnixMilli(st.Losing).UTC()}
	if st.Score == 0 {
		r.Threshold = sig.Bad
	}
	if dim.Known && e.weight > 0 {
		share := e.m.Weights[d] / e.weight
		if e.known[d] > 0 {
			r.PointsLost = 100 * sig.Weight * (1 - st.Score) / e.known[d] * share
		}
		if caps {
			r.PointsLost += e.capped[d] / float64(e.failed[d]) * share
		}
	}
	r.Text = sig.render(st.Value, r.Threshold)
	if dim.Stale {
		r.Text += " (last known value)"
	}
	return r
}

// shareCap gives the points that no average explains to the signals that capped.
func (e *evaluation) shareCap(reasons []Reason, sum float64) {
	if !e.st.Critical {
		return
	}
	n := 0
	for d := range e.failed {
		n += e.failed[d]
	}
	rest := 100 - e.st.Score - sum
	for i := range reasons {
		if reasons[i].Caps {
			reasons[i].PointsLost = max(0, reasons[i].PointsLost+rest/float64(n))
		}
	}
}

func (e *evaluation) unknowns(out []Reason) []Reason {
	for d, dim := range fleet.Dimensions {
		if e.st.Dimensions[d].Known || e.m.total[d] == 0 {
			continue
		}
		r := Reason{Dimension: dim, Since: e.nowTime}
		if e.prev != nil {
			for i := range e.prev.Reasons {
				if p := &e.prev.Reasons[i]; p.Signal == "" && p.Dimension == dim {
					r.Since = p.Since
				}
			}
		}
		known, total, failing := 0, 0, ""
		for i := range e.m.Signals {
			if e.m.Signals[i].dim != d {
				continue
			}
			total++
			if e.st.Signals[i].Known {
				known++
			} else if failing == "" && e.st.Signals[i].Err != "" {
				failing = e.m.Signals[i].Name + ": " + e.st.Signals[i].Err
			}
		}
		switch {
		case e.r.Link == LinkNever:
			r.Text = "the site has never connected"
		case d == 0 && e.r.Link == LinkUnknown:
			r.Text = "connectivity is unknown: the site's regional can't be asked"
		case failing != "":
			r.Text = fmt.Sprintf("%s is unknown: %d of %d signals have a value; %s", dim, known, total, failing)
		default:
			r.Text = fmt.Sprintf("%s is unknown: %d of %d signals have a value", dim, known, total)
		}
		out = append(out, r)
		if e.r.Link == LinkNever {
			break
		}
	}
	return out
}
