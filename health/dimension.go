package health

import "muster.dev/muster/internal/fleet"

func (e *evaluation) dimension(d int) {
	st := &e.st.Dimensions[d]
	st.Colour = fleet.Grey
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
	for _, i := range e.losing {
		if e.m.Signals[i].dim == d && e.st.Signals[i].Score < 0.5 {
			st.Score = min(st.Score, e.capOf(i, e.mended(i)))
		}
	}
	st.Score = snap(st.Score)
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
