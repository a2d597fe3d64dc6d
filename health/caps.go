package health

import "muster.dev/muster/internal/fleet"

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
