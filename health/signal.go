package health

import (
	"fmt"
	"math"
)

// signals goes through all of them. Nearly all of a fleet's are well, and that is soon said:
// signal and count would say the same.
func (e *evaluation) signals() {
	var plain []float64
	if e.plain {
		plain = e.r.Plain
	}
	for i := range e.st.Signals {
		if i >= len(plain) {
			e.signal(i)
			continue
		}
		l, v := &e.m.lanes[i], plain[i]
		if !(v >= l.lowest && v <= l.highest) || l.link {
			e.signal(i)
			continue
		}
		st := &e.st.Signals[i]
		st.Value, st.Known, st.At, st.Score = v, true, e.readAt, 1
		if st.Applies = l.pack < 0 || e.recent(e.st.Packs[l.pack]); !st.Applies {
			continue
		}
		st.Counted = true
		e.total[l.dim] += l.weight
		e.known[l.dim] += l.weight
		e.sum[l.dim] += l.weight
		if dim := &e.st.Dimensions[l.dim]; dim.At == 0 || st.At < dim.At {
			dim.At = st.At
		}
	}
}

func (e *evaluation) signal(i int) {
	sig, st := &e.m.Signals[i], &e.st.Signals[i]
	if e.plain && i != e.m.uplink && i != e.m.flapping {
		if r := e.r.of(i); r.Known && sig.Well(r.Value) {
			st.Value, st.Known, st.At, st.Score = r.Value, true, e.readAt, 1
			e.count(i, sig, st)
			return
		}
	}
	before, place := e.before(i)
	switch {
	case i == e.m.uplink:
		st.Known, st.At = e.r.Link == LinkUp || e.r.Link == LinkDown, e.now
		if e.r.Link == LinkUp {
			st.Value = 1
		}
	case i == e.m.flapping:
		st.Known, st.At, st.Value = e.r.Link == LinkUp || e.r.Link == LinkDown, e.now, float64(e.r.Reconnects)
	case before != nil && before.Known && (e.r.LiveOnly || e.r.Link == LinkDown):
		e.holdOn(i, st, before, place)
	case e.r.LiveOnly && before != nil:
		st.Garbage, st.At = before.Garbage, before.At
		e.note(i, e.prev.NoteOf(place).Err, nil)
	case i < max(len(e.r.Signals), len(e.r.Plain)):
		r := e.r.of(i)
		e.read(i, st, &r, before, place)
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
	if dim := &e.st.Dimensions[d]; i != e.m.uplink && i != e.m.flapping && (dim.At == 0 || st.At < dim.At) {
		dim.At = st.At
	}
	if st.Score < 1 {
		if e.losing == nil {
			e.losing = make([]int, 0, 8)
		}
		e.losing = append(e.losing, i)
	}
	if st.Score == 0 && sig.Critical() {
		e.failed[d], e.st.Critical = true, true
	}
}

// holdOn keeps the value that a signal had.
func (e *evaluation) holdOn(i int, st, before *SignalState, place int) {
	st.Value, st.Known, st.At = before.Value, true, before.At
	e.note(i, "", e.objects(place))
}

func (e *evaluation) read(i int, st *SignalState, r *Reading, before *SignalState, place int) {
	sig := &e.m.Signals[i]
	switch why := sig.garbage(r.Value); {
	case !r.Known && e.r.Link == LinkUp && before != nil && before.Known && e.now-before.At < holdFor.Milliseconds():
		e.holdOn(i, st, before, place)
	case !r.Known:
		e.note(i, r.Err, nil)
	case why != "":
		st.Garbage = true
		e.note(i, why, nil)
	case sig.Sparse && e.refused && sig.Score(r.Value) == 1:
		e.note(i, "the site's series budget is used up, so finding nothing is no proof", nil)
	default:
		st.Value, st.Known, st.At = r.Value, true, e.readAt
		objects := r.Objects
		if objects == nil && before != nil && len(e.prev.Notes) > 0 && sig.Score(r.Value) < 1 {
			objects = e.objects(place)
		}
		e.note(i, "", objects)
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
