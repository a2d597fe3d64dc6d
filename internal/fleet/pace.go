package fleet

import "time"

// Paces are how often sites are scraped, rounded up: as few as serve what asks for the figures of each
// of them. A policy may say 10 minutes at most.
var Paces = []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute}

// Pace is that of an interval.
func Pace(interval time.Duration) time.Duration {
	for _, pace := range Paces {
		if interval <= pace {
			return pace
		}
	}
	return Paces[len(Paces)-1]
}

// RateWindow is what rates are over at a pace: four scrapes, so that one that is late or lost leaves
// a figure; 2 minutes at least, as the quickest pace gives.
func RateWindow(pace time.Duration) time.Duration { return 4 * pace }

// Quick is the pace up to which windows of a minute, and PromQL's look back, find samples enough:
// what looks at such sites looks at all of them alike.
const Quick = time.Minute

// Slow is the pace of an interval at which what is asked of a site, and when, depends on it; 0: it is asked as
// quick ones are.
func Slow(interval time.Duration) time.Duration {
	if p := Pace(interval); p >= Quick {
		return p
	}
	return 0
}

// Seen is how long after something happened at a site of a pace it shows in what is known of it, at the latest: the
// site is scraped, and is asked about some five times between two scrapes.
func Seen(pace time.Duration) time.Duration { return pace + pace/5 + 30*time.Second }

// TwoScrapes is a window in which there are two samples, be the older one half a minute late.
func TwoScrapes(pace time.Duration) time.Duration { return 2*pace + 30*time.Second }

// Lookback is how old the sample of an instant may be: PromQL's own 5 minutes, or so that a scrape that is
// late, or lost, does not leave a gap.
func Lookback(pace time.Duration) time.Duration { return max(5*time.Minute, TwoScrapes(pace)) }
