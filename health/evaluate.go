package health

import (
	"time"

	"muster.dev/muster/internal/fleet"
)

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
	return *EvaluateNew(m, &r, prev, now)
}

// EvaluateNew is Evaluate for those who keep the state: it is made where it stays.
func EvaluateNew(m *Model, r *Readings, prev *State, now time.Time) *State {
	e := evaluation{m: m, r: r, prev: prev, now: now.UnixMilli(), nowTime: now, worst: -1}
	e.st = &State{Model: m, At: now, Link: r.Link, LinkSince: r.LinkSince, Colour: fleet.Grey, Since: now, Signals: make([]SignalState, len(m.Signals))}
	e.packs()
	if m.budget >= 0 {
		budget := r.of(m.budget)
		e.refused = budget.Known && budget.Value > 0
	}
	e.plain = !r.LiveOnly && r.Link != LinkDown && !e.refused
	if e.readAt = e.now; !r.At.IsZero() {
		e.readAt = min(e.now, r.At.UnixMilli())
	}
	e.signals()
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
	plain   bool // what is read counts, whatever was before
	readAt  int64
	st      *State

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
	losing  []int      // signals that are counted at less than 1

	incomplete bool // a dimension that weighs something is
}

// before returns the previous state of signal i, and its position there.
func (e *evaluation) before(i int) (st *SignalState, at int) {
	switch {
	case e.prev == nil || e.prev.Model == nil:
		return nil, -1
	case e.prev.Model == e.m:
		return &e.prev.Signals[i], i
	}
	if j, ok := e.prev.Model.index[e.m.Signals[i].Name]; ok {
		return &e.prev.Signals[j], j
	}
	return nil, -1
}

// note says something of signal i; signals come in order.
func (e *evaluation) note(i int, err string, objects []string) {
	if err == "" && len(objects) == 0 {
		return
	}
	if e.st.Notes == nil && e.prev != nil {
		e.st.Notes = make([]Note, 0, max(1, len(e.prev.Notes)))
	}
	e.st.Notes = append(e.st.Notes, Note{i, err, objects})
}

// objects that were to blame at position at of the previous state.
func (e *evaluation) objects(at int) []string {
	if len(e.prev.Notes) == 0 {
		return nil
	}
	return e.prev.NoteOf(at).Objects
}

func (e *evaluation) packs() {
	if len(e.m.Packs) == 0 {
		return
	}
	e.st.Packs = make([]int64, len(e.m.Packs))
	same := e.prev != nil && e.prev.Model == e.m
	if same {
		copy(e.st.Packs, e.prev.Packs)
	}
	for i := range e.m.Packs {
		if i < len(e.r.Packs) && e.r.Packs[i] && !e.r.LiveOnly {
			e.st.Packs[i] = e.now
		} else if !same && e.prev != nil && e.prev.Model != nil {
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

// Settle evaluates the same readings tick after tick until neither a value nor a colour
// holds any more: what the model makes of a site in the long run, after prev.
func Settle(m *Model, r Readings, prev *State, now time.Time, tick time.Duration) State {
	at := now.Add(holdFor)
	st := Evaluate(m, r, prev, at)
	for range m.Evaluations + 2*m.Recovery {
		if st.Needed == 0 {
			break
		}
		at = at.Add(tick)
		before := st
		st = Evaluate(m, r, &before, at)
	}
	return st
}
