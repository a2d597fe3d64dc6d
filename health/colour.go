package health

import "muster.dev/muster/internal/fleet"

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
	e.st.Needed = need
	if e.st.Against >= need || raw == fleet.Red && e.st.Critical || !e.prev.EverKnown && !early {
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
