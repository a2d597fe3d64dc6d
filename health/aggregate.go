package health

import (
	"math"
	"slices"

	"muster.dev/muster/internal/fleet"
)

// Member is one site of a virtual site.
type Member struct {
	Name        string
	Score       float64
	Known       bool
	Colour      fleet.Colour
	Maintenance bool
}

// Counts are sites by colour.
type Counts struct{ Green, Orange, Red, Grey int }

// Sum of all four.
func (c Counts) Sum() int { return c.Green + c.Orange + c.Red + c.Grey }

// Add counts a site.
func (c *Counts) Add(colour fleet.Colour) {
	switch colour {
	case fleet.Green:
		c.Green++
	case fleet.Orange:
		c.Orange++
	case fleet.Red:
		c.Red++
	default:
		c.Grey++
	}
}

// Aggregate is the health of a virtual site.
type Aggregate struct {
	// Sites is the number of members, those in maintenance included.
	Sites int
	// Known says that some member outside maintenance has a score: without one there
	// is no Mean, P10 and Worst.
	Known bool
	Mean  float64
	// P10 is the 10th percentile by the nearest-rank method: with n known scores in
	// rising order, the one at position ⌈n/10⌉. It is always the score of a real
	// site, and for ten sites or fewer that of the worst.
	P10       float64
	Worst     float64
	WorstSite string // the first by name of those with the score Worst
	Counts    Counts
	// Maintenance counts members in maintenance; they are in nothing else but Sites.
	Maintenance int
	// PercentUnhealthy is 100·(orange+red)/(green+orange+red+grey), 0 without members.
	// Grey is not unhealthy but unknown: who decides by this looks at Counts.Grey too.
	PercentUnhealthy float64
}

// Summarize computes a virtual site's health. scratch may be nil; it is returned,
// grown, for the next call.
func Summarize(members []Member, scratch []float64) (Aggregate, []float64) {
	a := Aggregate{Sites: len(members)}
	scores, sum := scratch[:0], 0.0
	for i := range members {
		m := &members[i]
		if m.Maintenance {
			a.Maintenance++
			continue
		}
		a.Counts.Add(m.Colour)
		if !m.Known {
			continue
		}
		if len(scores) == 0 || m.Score < a.Worst || m.Score == a.Worst && m.Name < a.WorstSite {
			a.Worst, a.WorstSite = m.Score, m.Name
		}
		scores = append(scores, m.Score)
		sum += m.Score
	}
	if n := len(scores); n > 0 {
		slices.Sort(scores)
		a.Known = true
		a.Mean = min(100, max(a.Worst, sum/float64(n)))
		a.P10 = scores[int(math.Ceil(float64(n)/10))-1]
	}
	if n := a.Counts.Sum(); n > 0 {
		a.PercentUnhealthy = 100 * float64(a.Counts.Orange+a.Counts.Red) / float64(n)
	}
	return a, scores
}
