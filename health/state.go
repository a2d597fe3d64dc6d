package health

import (
	"cmp"
	"slices"
	"time"

	"muster.dev/muster/internal/fleet"
)

// SignalState is one signal's part of a State. There are some ten million of them in a
// large fleet, made anew in every tick: it holds no pointers, so that collecting garbage
// need not look at them. What few of them need stands in State.Notes.
type SignalState struct {
	Value float64
	Score float64 // 0..1
	// At is when the value was true, Losing since when Score is less than 1 without a
	// break; milliseconds since 1970, 0 for never.
	At, Losing int64
	Known      bool
	// Applies says that the site should have it: it belongs to no pack, or its pack was
	// found within a day.
	Applies bool
	// Counted says that it has a part in its dimension's score.
	Counted bool
	// Garbage: the value is none that the signal can have.
	Garbage bool
}

// Note is what is said of a signal beside its numbers.
type Note struct {
	Signal int // position in Model.Signals
	// Err says why it is unknown.
	Err string
	// Objects that are to blame, the worst first.
	Objects []string
}

// DimensionState is one dimension's part of a State.
type DimensionState struct {
	Score float64 // 0..100
	// Raw is the mean of its signals, before caps.
	Raw    float64
	Known  bool
	Colour fleet.Colour
	// Applies says that the site should have it. Incomplete: it is unknown, or lacks a
	// critical signal, or has one whose value is garbage.
	Applies, Incomplete bool
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
	Signal    string // "" when a dimension is unknown or incomplete
	// Value and Threshold are numbers in the signal's unit if HasValue. Threshold is
	// the bound that was crossed last: bad when the signal scores 0, else good.
	Value, Threshold float64
	HasValue         bool
	// PointsLost of the site's 100, see Evaluate.
	PointsLost float64
	// Caps: a critical signal at 0.
	Caps bool
	// Held: it is over, or smaller than it was, and the colour that it caused is watched
	// before it changes.
	Held  bool
	Since time.Time
	// Objects that are to blame, the worst first. Text names them too.
	Objects []string
	Text    string
}

// State is a site's health after one evaluation. It is never changed once made.
type State struct {
	Model *Model
	At    time.Time
	// Score from 0 to 100, if Known. Raw is what the formula gives before caps, Capped
	// after them; Score may be less while a colour holds.
	Score, Raw, Capped float64
	Known              bool
	Colour             fleet.Colour
	Since              time.Time // when Colour changed
	// Critical: a critical signal is at 0.
	Critical bool
	// EverKnown: the site had another colour than grey at some time.
	EverKnown bool
	// Against counts the evaluations in a row that disagreed with Colour to the same
	// side; Better is that side.
	Against int
	// Needed is how many of them change Colour; 0 while none disagrees.
	Needed int
	Better bool
	// Relapses are how often Colour got worse again soon after it had got better, which was at
	// Healed; each doubles what getting better needs.
	Relapses   int
	Healed     time.Time
	Link       Link
	LinkSince  time.Time
	Dimensions [4]DimensionState // in the order of fleet.Dimensions
	Signals    []SignalState     // in the order of Model.Signals
	Notes      []Note            // in the same order, of those of which there is something to say
	Packs      []int64           // when each of Model.Packs was found last, milliseconds since 1970
	Reasons    []Reason          // ranked
}

// NoteOf returns what is said of the signal at a position in Model.Signals; the zero Note
// if that is nothing.
func (s *State) NoteOf(signal int) Note {
	if i, ok := slices.BinarySearchFunc(s.Notes, signal, func(n Note, signal int) int { return cmp.Compare(n.Signal, signal) }); ok {
		return s.Notes[i]
	}
	return Note{Signal: signal}
}
