package engine

import (
	"time"

	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
)

// A site that is deleted and registered again is another site, mostly another machine: its
// memory begins anew (align), what regionals heard under its name before counts for nothing
// (listen), and neither do samples from before, which this file is about. Nobody ends them in
// the store, because a site that comes back under its name mostly wants its history.

const (
	// lookback is how old a sample may be that PromQL takes for an instant's.
	lookback = 5 * time.Minute
	// leftFor is for how long it is remembered that a site went: longer than shipped
	// signals look back.
	leftFor = 3 * time.Hour
)

// settled is after how long a link is up that a new site's own samples are there.
const settled = 45 * time.Second

// withhold takes out of a site's readings what may be another one's doing, that had the name
// until before: what loses, for as long as the other one's samples are in reach, and all until
// there are samples of its own. What is well over a time that is partly the other one's is well
// over its own part.
func (b *binding) withhold(r *health.Readings, m *memory, now time.Time) {
	if m.before.IsZero() {
		return
	}
	r.Spread()
	own := m.link == health.LinkUp && now.Sub(m.since) >= settled
	for i := range r.Signals {
		rd, until := &r.Signals[i], m.before.Add(b.reach[i])
		if i == b.model.Uplink() || !rd.Known || !now.Before(until) || own && b.model.Signals[i].Score(rd.Value) >= 1 {
			continue
		}
		*rd = health.Reading{Err: "the name was another site's until " + fleet.Moment(m.before) + ", and until " + fleet.Moment(until) + " this may be its doing"}
	}
	for i := range r.Packs {
		r.Packs[i] = r.Packs[i] && (own || !now.Before(m.before.Add(b.packReach[i])))
	}
}
