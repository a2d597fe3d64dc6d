// Package backoff says how long to wait before trying again. It waits for nobody and
// keeps nothing: what counts as a failure, and what ends a row of them, callers know.
package backoff

import (
	"math/rand/v2"
	"time"
)

// FullJitter is anything up to a bound that begins at least and doubles with each failed
// attempt before, from 0, until it is most: those who failed together don't come back
// together. (The libraries at hand spread by a share of the bound, and so keep a fleet in
// step.) It is never less than 1 ms, so that no loop spins.
func FullJitter(failed int, least, most time.Duration) time.Duration {
	return Jitter(Bound(failed, least, most))
}

// Bound is what FullJitter spreads over.
func Bound(failed int, least, most time.Duration) time.Duration {
	for range failed {
		if least >= most/2 {
			return most
		}
		least *= 2
	}
	return min(least, most)
}

// Jitter is anything up to bound, at least 1 ms.
func Jitter(bound time.Duration) time.Duration {
	return rand.N(max(bound, 1)) + time.Millisecond
}
