package fleet

// Dimension is one of the four aspects of a site's health.
type Dimension string

// The four dimensions, in the order in which people read them.
const (
	Connectivity Dimension = "connectivity"
	Reliability  Dimension = "reliability"
	Security     Dimension = "security"
	Performance  Dimension = "performance"
)

// Dimensions lists all four in reading order.
var Dimensions = []Dimension{Connectivity, Reliability, Security, Performance}

// Colour is what a score looks like on the map.
type Colour string

// The colours. Grey means unknown: it is neither good nor bad.
const (
	Grey   Colour = "grey"
	Green  Colour = "green"
	Orange Colour = "orange"
	Red    Colour = "red"
)

// Thresholds between colours, after the reference system: greater than 75 is
// green, 40 to 75 is orange, less than 40 is red.
const (
	GreenAbove = 75.0
	RedBelow   = 40.0
	// CriticalCap is the highest score of a dimension and site with a failed
	// critical signal: an average must never hide an outage.
	CriticalCap = 39.0
)

// ColourOf returns the colour of a known score in [0, 100].
func ColourOf(score float64) Colour {
	switch {
	case score > GreenAbove:
		return Green
	case score >= RedBelow:
		return Orange
	default:
		return Red
	}
}

// Number is the colour as a sample value: 0 grey, 1 green, 2 orange, 3 red.
func (c Colour) Number() float64 {
	switch c {
	case Green:
		return 1
	case Orange:
		return 2
	case Red:
		return 3
	default:
		return 0
	}
}

// Phase is where a site is in its life.
type Phase string

// The phases of a site.
const (
	PhasePending        Phase = "Pending"        // registered, waiting for approval
	PhaseApproved       Phase = "Approved"       // certificate may be issued, never connected yet
	PhaseOnline         Phase = "Online"         // holds a stream to a regional
	PhaseOffline        Phase = "Offline"        // was online; no stream now
	PhaseDecommissioned Phase = "Decommissioned" // refused for good
)
