package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"muster.dev/muster/internal/fleet"
)

// Why something of a site is left out though nothing is wrong with it: it comes in when there
// is room again.
const (
	noRoom         = "control has no more room for what this tenant's sites say"
	tooManyObjects = "too many objects"
	tooManyEvents  = "too many events"
	tooManyStates  = "too many states of items"
)

// maxLeft is of how many things a site's leavings know which they are; the rest is counted.
const maxLeft = 1000

// leavings are what a site said and is not kept, by how wire.KeyOf and wire.WorkloadKey name
// it, until it is taken, or gone from the site.
type leavings struct {
	known map[string]leaving
	more  map[string]int // of those beyond maxLeft, by reason, since the last snapshot
	asked bool           // a snapshot was asked for, since there is room again
}

type leaving struct {
	reason string
	bytes  int // for which there was no room
}

func newLeavings() leavings { return leavings{known: map[string]leaving{}, more: map[string]int{}} }

func (l *leavings) add(key, reason string, bytes int) {
	if _, known := l.known[key]; !known && len(l.known) >= maxLeft || len(key) > 1000 {
		l.more[reason]++
		return
	}
	l.known[key] = leaving{reason, bytes}
}

func (l *leavings) remove(key string) { delete(l.known, key) }

func (l *leavings) counts() map[string]int {
	n := maps.Clone(l.more)
	for _, o := range l.known {
		n[o.reason]++
	}
	return n
}

// roomAgainLocked tells, once, that all that was left out for want of room would be taken now.
func (s *Store) roomAgainLocked(st *site) bool {
	n := st.left.counts()
	if st.left.asked || n[noRoom]+n[tooManyObjects]+n[tooManyEvents]+n[tooManyStates] == 0 {
		return false
	}
	objects, states, bytes := 0, 0, 0
	for key, o := range st.left.known {
		switch {
		case o.reason != noRoom && o.reason != tooManyObjects && o.reason != tooManyEvents && o.reason != tooManyStates:
			continue
		case strings.HasPrefix(key, "item/"):
			states++
		default:
			objects++
		}
		bytes += o.bytes
	}
	// Of those beyond maxLeft nobody knows more than how often they came.
	objects += st.left.more[noRoom] + st.left.more[tooManyObjects]
	l := s.o.Limits
	if len(st.items)+objects > l.Objects || st.events+n[tooManyEvents] > l.Events || len(st.states)+states+st.left.more[tooManyStates] > l.Workloads || !s.room.TakeN(st.id.Tenant, bytes) {
		return false
	}
	s.room.GiveN(st.id.Tenant, bytes)
	st.left.asked = true
	return true
}

// Problem says what of a site's status could not be taken, in one line; "": nothing.
func (s *Store) Problem(id fleet.SiteID) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	st := s.sites[id]
	if st == nil {
		return ""
	}
	n := st.left.counts()
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%d dropped: %s", n[reason], reason))
	}
	return strings.Join(parts, "; ")
}
