package health

import (
	"math"
	"time"
)

// Link is what the gateways say about a site's stream.
type Link uint8

// The states of a link.
const (
	LinkUnknown Link = iota // nobody can say
	LinkNever               // registered, but never connected
	LinkUp
	LinkDown // was connected once, and is not now
)

// String is the lower-case word.
func (l Link) String() string {
	switch l {
	case LinkNever:
		return "never"
	case LinkUp:
		return "up"
	case LinkDown:
		return "down"
	default:
		return "unknown"
	}
}

// Reading is one signal's value at one site.
type Reading struct {
	Value float64
	Known bool
	// Err says why the value is unknown when its query failed; "" when the query
	// simply has no result for the site.
	Err string
	// Objects that are to blame, the worst first, as people call them. nil: nobody asked,
	// what was said last stands.
	Objects []string
}

// Readings are what is known about one site at one moment.
type Readings struct {
	Link      Link
	LinkSince time.Time
	// Reconnects is how many connections the site lost in the last ten minutes.
	Reconnects int
	// Signals in the order of the model's. Missing ones are unknown. The entries of
	// the uplink and flapping signals are ignored: Link and Reconnects decide.
	Signals []Reading
	// Plain, if set, has the value of each signal of which there is no more to say than that;
	// NaN: Signals tells. Who evaluates a fleet is spared filling in most of Signals.
	Plain []float64
	// Packs says which of the model's packs were found now. Missing ones were not.
	Packs []bool
	// At is when the readings were true, if that is not now: readings from Cortex
	// about a site whose regional can't be reached. They are marked stale.
	At time.Time
	// LiveOnly says that only Link is news: the signals keep their last values, and
	// the evaluation doesn't count towards a change of colour, except into red by a
	// critical signal.
	LiveOnly bool
}

// of is what is known of a signal.
func (r *Readings) of(i int) Reading {
	if i < len(r.Plain) && !math.IsNaN(r.Plain[i]) {
		return Reading{Value: r.Plain[i], Known: true}
	}
	if i < len(r.Signals) {
		return r.Signals[i]
	}
	return Reading{}
}

// Spread moves what Plain has to Signals.
func (r *Readings) Spread() {
	for i := range r.Plain {
		r.Signals[i] = r.of(i)
		r.Plain[i] = math.NaN()
	}
}
