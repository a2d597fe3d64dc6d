package health

import "math"

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
	for _, i := range e.losing {
		if e.st.Signals[i].Score >= 0.5 || e.m.Signals[i].Cap >= NoCap {
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

// snap takes the noise of floating point off a score, so that exactly 75 is
// orange however it was computed.
func snap(x float64) float64 { return min(100, max(0, math.Round(x*1e9)/1e9)) }
