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

// wantsRoom tells whether what is left out for a reason comes in when there is room.
func wantsRoom(reason string) bool {
	return reason == noRoom || reason == tooManyObjects || reason == tooManyEvents || reason == tooManyStates
}

// roomAgainLocked tells, once, that all that was left out for want of room would be taken now.
func (s *Store) roomAgainLocked(st *site) bool {
	n := st.left.Counts()
	maps.DeleteFunc(n, func(reason string, _ int) bool { return !wantsRoom(reason) })
	if st.left.Asked || len(n) == 0 {
		return false
	}
	objects, states, bytes := 0, 0, 0
	for key, o := range st.left.Known {
		switch {
		case !wantsRoom(o.Reason):
			continue
		case strings.HasPrefix(key, "item/"):
			states++
		default:
			objects++
		}
		bytes += o.Bytes
	}
	// Of those that are not known nobody knows more than how often they came.
	objects += st.left.More[noRoom] + st.left.More[tooManyObjects]
	l := s.o.Limits
	if len(st.items)+objects > l.Objects || st.events+n[tooManyEvents] > l.Events || len(st.states)+states+st.left.More[tooManyStates] > l.Workloads || !s.room.TakeN(st.id.Tenant, bytes) {
		return false
	}
	s.room.GiveN(st.id.Tenant, bytes)
	st.left.Asked = true
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
	n := st.left.Counts()
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%d dropped: %s", n[reason], reason))
	}
	return strings.Join(parts, "; ")
}
