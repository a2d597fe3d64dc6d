package health

import (
	"time"

	"muster.dev/muster/internal/fleet"
)

// A colour that comes back within relapseWithin of having gone is waited for twice as long before
// it goes again, at most maxRelapses times: what comes and goes is not over in between.
const (
	relapseWithin = 15 * time.Minute
	maxRelapses   = 3
)

// turned notes a change of colour.
func (e *evaluation) turned(to fleet.Colour) {
	switch was := e.st.Colour; {
	case e.st.Better:
		e.st.Healed = e.nowTime
	case to == fleet.Grey || was == fleet.Grey:
	case !e.st.Healed.IsZero() && e.nowTime.Sub(e.st.Healed) < relapseWithin:
		e.st.Relapses = min(e.st.Relapses+1, maxRelapses)
	default:
		e.st.Relapses = 0
	}
}

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
			e.st.Against, e.st.Needed = 1, e.m.Recovery
			e.st.Known, e.st.Score, e.unknown = false, 0, 0
		}
		return
	}
	e.st.EverKnown = e.st.EverKnown || e.prev.EverKnown
	e.st.Colour, e.st.Since = e.prev.Colour, e.prev.Since
	e.st.Relapses, e.st.Healed = e.prev.Relapses, e.prev.Healed
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
		need = e.m.Recovery << e.st.Relapses
		flaps := e.m.flapping >= 0 && e.st.Signals[e.m.flapping].Known && e.st.Signals[e.m.flapping].Score < 1
		if r := first(e.prev.Reasons); r != nil && r.Signal == SignalUplink {
			if need = 1; flaps {
				need = 2 * e.m.Recovery // between two losses it is not over
			}
		}
	}
	e.st.Needed = need
	if e.st.Against >= need || raw == fleet.Red && e.st.Critical || !e.prev.EverKnown && !early {
		e.turned(raw)
		e.st.Colour, e.st.Since, e.st.Against, e.st.Needed, e.st.Better = raw, e.nowTime, 0, 0, false
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
