package mirror

import "maps"

// maxKnown is of how many things that are left out it is known which they are; the rest is counted.
const maxKnown = 1000

// Leavings are what a site said and a hop does not keep, by how wire.KeyOf and wire.WorkloadKey name it, until it
// is taken, or gone from the site. Not safe for concurrent use.
type Leavings struct {
	Known map[string]Leaving
	More  map[string]int // how often something beyond those was left out, by reason, since the last snapshot
	Asked bool           // a snapshot was asked for, since there is room again
}

// Leaving is one of them.
type Leaving struct {
	Reason string
	Bytes  int // for which there was no room
}

// NewLeavings are none yet.
func NewLeavings() Leavings { return Leavings{Known: map[string]Leaving{}, More: map[string]int{}} }

// Add leaves something out.
func (l *Leavings) Add(key, reason string, bytes int) {
	if _, known := l.Known[key]; !known && len(l.Known) >= maxKnown || len(key) > 1000 {
		l.More[reason]++
		return
	}
	l.Known[key] = Leaving{reason, bytes}
}

// Remove says that it is taken, or gone.
func (l *Leavings) Remove(key string) { delete(l.Known, key) }

// Counts tells how much is left out, by reason.
func (l *Leavings) Counts() map[string]int {
	n := maps.Clone(l.More)
	for _, o := range l.Known {
		n[o.Reason]++
	}
	return n
}

// Len tells how much is left out.
func (l *Leavings) Len() int {
	n := len(l.Known)
	for _, more := range l.More {
		n += more
	}
	return n
}
