package health

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"muster.dev/muster/internal/few"
	"muster.dev/muster/internal/fleet"
)

func (e *evaluation) reasons() {
	losing, unknown := len(e.losing), 0
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
	for _, i := range e.losing {
		sig, st := &e.m.Signals[i], &e.st.Signals[i]
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

func first(r []Reason) *Reason {
	if len(r) == 0 {
		return nil
	}
	return &r[0]
}

func (e *evaluation) reason(i int, caps bool) Reason {
	sig, st := &e.m.Signals[i], &e.st.Signals[i]
	d, dim := sig.dim, &e.st.Dimensions[sig.dim]
	r := Reason{Dimension: sig.Dimension, Signal: sig.Name, Value: st.Value, Threshold: sig.Good, HasValue: true, Caps: caps, Since: time.UnixMilli(st.Losing).UTC()}
	if len(e.st.Notes) > 0 {
		r.Objects = e.st.NoteOf(i).Objects
	}
	if st.Score == 0 {
		r.Threshold = sig.Bad
	}
	r.PointsLost = e.loss(i, d)
	if p := e.asBefore(i, &r); p != nil {
		r.Text = p.Text
		return r
	}
	var room [256]byte
	text := sig.render(room[:0], st.Value, r.Threshold)
	if f := e.m.flapping; i == e.m.uplink && f >= 0 && e.st.Signals[f].Known && e.st.Signals[f].Score < 1 {
		text = e.m.Signals[f].render(append(text, "; "...), e.st.Signals[f].Value, e.m.Signals[f].Good)
	}
	for n, object := range r.Objects {
		sep := ", "
		if n == 0 {
			sep = ": "
		}
		text = append(append(text, sep...), object...)
	}
	if dim.Stale {
		text = append(text, " (last known value)"...)
	}
	r.Text = e.said(sig.Name, text)
	return r
}

// asBefore is the reason that the site had before, if its text says what r's would.
func (e *evaluation) asBefore(i int, r *Reason) *Reason {
	if e.prev == nil || e.prev.Model != e.m || i == e.m.uplink || e.st.Dimensions[e.m.Signals[i].dim].Stale || e.prev.Dimensions[e.m.Signals[i].dim].Stale {
		return nil
	}
	for k := range e.prev.Reasons {
		if p := &e.prev.Reasons[k]; p.Signal == r.Signal {
			if p.Held || p.Value != r.Value || p.Threshold != r.Threshold || !slices.Equal(p.Objects, r.Objects) {
				return nil
			}
			return p
		}
	}
	return nil
}

// said is the text as a string: the one that the reason had before, if that is the same.
func (e *evaluation) said(signal string, text []byte) string {
	if e.prev != nil {
		for i := range e.prev.Reasons {
			if p := &e.prev.Reasons[i]; p.Signal == signal && p.Text == string(text) {
				return p.Text
			}
		}
	}
	return string(text)
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
		default:
			if why := e.st.NoteOf(i).Err; st.Garbage || why != "" && failing == "" {
				failing = sig.Name + ": " + why
			} else {
				lacks = append(lacks, sig.Name)
			}
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
	if len(lacks) > 0 {
		return text + "; nothing gives " + few.Of(lacks, 3, ", ")
	}
	return text
}
