// Package fairshare divides a room, of bytes or of slots, among strangers who come and
// go, without fixed shares: each may hold as much as is free, or a multiple of it. One
// alone gets most of the room, n of them get equal parts, and there is always some left
// for the next. The idea is the dynamic threshold by which switches share their buffers
// (A. K. Choudhury, E. L. Hahne, "Dynamic queue length thresholds for shared-memory
// packet switches", 1998).
//
// Fits holds no state and no lock; Shares are slots that are given out by it. The log intake,
// the log queries, software, streams of events and the line in which pushes wait use it.
package fairshare

// Fits tells whether somebody who holds mine may take n more of a room of total of
// which used is taken, mine included. greed is how many times what is free one may
// hold, at least 1: the n-th part that n may have each is greed/(1+n·greed) of the room.
// Who holds nothing may take whatever is free.
func Fits(mine, n, used, total, greed int64) bool {
	free := total - used
	return n <= free && (mine <= 0 || mine+n <= greed*free)
}
