package health

import (
	"time"

	"muster.dev/muster/internal/fleet"
)

// Saved is what of a State must outlive a restart, so that colours don't flap and
// no "since" is lost. It is plain data for an encoder.
type Saved struct {
	// Names of the model's signals. Savers of many states may share the slice.
	Names     []string
	At        int64 // milliseconds since 1970, like all times here
	Score     float64
	Known     bool
	Colour    string
	Since     int64
	EverKnown bool
	Against   int
	Better    bool
	Relapses  int
	Healed    int64
	Link      uint8
	LinkSince int64
	// Dead is when each unknown dimension became so; 0 where it is known.
	Dead    [4]int64
	Stale   [4]bool
	Signals []SavedSignal
	// Packs by name, and when each was found last.
	Packs map[string]int64
	// First is the first reason, for a colour that holds; nil if there is none.
	First *SavedReason
}

// SavedReason is one reason of a Saved.
type SavedReason struct {
	Dimension, Signal string
	Value, Threshold  float64
	HasValue, Held    bool
	Since             int64
	Objects           []string
	Text              string
}

// SavedSignal is one signal of a Saved.
type SavedSignal struct {
	Value      float64
	Known      bool
	Err        string
	Garbage    bool
	At, Losing int64
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Names returns the names of the model's signals, in order.
func (m *Model) Names() []string {
	out := make([]string, len(m.Signals))
	for i := range m.Signals {
		out[i] = m.Signals[i].Name
	}
	return out
}

// Save returns what Restore needs. names is Model.Names().
func (s *State) Save(names []string) Saved {
	out := Saved{
		Names: names, At: millis(s.At), Score: s.Score, Known: s.Known, Colour: string(s.Colour), Since: millis(s.Since), EverKnown: s.EverKnown,
		Against: s.Against, Better: s.Better, Relapses: s.Relapses, Healed: millis(s.Healed), Link: uint8(s.Link), LinkSince: millis(s.LinkSince), Signals: make([]SavedSignal, len(s.Signals)),
	}
	for i := range s.Signals {
		x := &s.Signals[i]
		out.Signals[i] = SavedSignal{Value: x.Value, Known: x.Known, Garbage: x.Garbage, At: x.At, Losing: x.Losing}
	}
	for _, n := range s.Notes {
		out.Signals[n.Signal].Err = n.Err
	}
	if r := first(s.Reasons); r != nil && s.Colour != fleet.Green {
		out.First = &SavedReason{Dimension: string(r.Dimension), Signal: r.Signal, Value: r.Value, Threshold: r.Threshold, HasValue: r.HasValue, Held: r.Held, Since: millis(r.Since), Objects: r.Objects, Text: r.Text}
	}
	for i, at := range s.Packs {
		if out.Packs == nil {
			out.Packs = make(map[string]int64, len(s.Packs))
		}
		out.Packs[s.Model.Packs[i].Name] = at
	}
	for d := range s.Dimensions {
		out.Stale[d] = s.Dimensions[d].Stale
		for i := range s.Reasons {
			if r := &s.Reasons[i]; r.Signal == "" && r.Dimension == fleet.Dimensions[d] {
				out.Dead[d] = millis(r.Since)
			}
		}
	}
	return out
}

// Restore returns a State that serves as prev of Evaluate and for nothing else:
// its model knows only the names of its signals. ok is false if s makes no sense.
func (s *Saved) Restore() (st *State, ok bool) {
	switch fleet.Colour(s.Colour) {
	case fleet.Grey, fleet.Green, fleet.Orange, fleet.Red:
	default:
		return nil, false
	}
	if len(s.Names) != len(s.Signals) || s.Link > uint8(LinkDown) || s.Against < 0 {
		return nil, false
	}
	m := &Model{uplink: -1, flapping: -1, budget: -1, index: make(map[string]int, len(s.Names))}
	for i, n := range s.Names {
		m.index[n] = i
	}
	st = &State{
		Model: m, At: fromMillis(s.At), Score: s.Score, Known: s.Known, Colour: fleet.Colour(s.Colour), Since: fromMillis(s.Since), EverKnown: s.EverKnown,
		Against: s.Against, Better: s.Better, Relapses: min(max(s.Relapses, 0), maxRelapses), Healed: fromMillis(s.Healed), Link: Link(s.Link), LinkSince: fromMillis(s.LinkSince), Signals: make([]SignalState, len(s.Signals)),
	}
	for i, x := range s.Signals {
		st.Signals[i] = SignalState{Value: x.Value, Known: x.Known && finite(x.Value), Garbage: x.Garbage, At: x.At, Losing: x.Losing}
		if x.Err != "" {
			st.Notes = append(st.Notes, Note{Signal: i, Err: x.Err})
		}
	}
	for name, at := range s.Packs {
		m.Packs = append(m.Packs, Pack{Name: name})
		st.Packs = append(st.Packs, at)
	}
	if r := s.First; r != nil {
		st.Reasons = append(st.Reasons, Reason{Dimension: fleet.Dimension(r.Dimension), Signal: r.Signal, Value: r.Value, Threshold: r.Threshold, HasValue: r.HasValue && finite(r.Value) && finite(r.Threshold), Held: r.Held, Since: fromMillis(r.Since), Objects: r.Objects, Text: r.Text})
	}
	for d := range s.Dead {
		st.Dimensions[d].Stale = s.Stale[d]
		if s.Dead[d] != 0 {
			st.Reasons = append(st.Reasons, Reason{Dimension: fleet.Dimensions[d], Since: fromMillis(s.Dead[d])})
		}
	}
	return st, true
}
