package state

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/wire"
)

// Each order is one rule from the first group to the last, whatever order they come in: what tells nobody counts
// for how large a group is, and not for how severe.
func TestGroupsAreSortedByOneRule(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	group := func(name string, critical, warning, info, suppressed int, age time.Duration) wire.AlertGroup {
		return wire.AlertGroup{Receiver: name, Total: critical + warning + info + suppressed, Suppressed: suppressed, NewestAt: now.Add(-age),
			Counts: wire.AlertCounts{Critical: critical, Warning: warning, Info: info}}
	}
	groups := []wire.AlertGroup{
		group("two-critical", 2, 0, 0, 0, 9*time.Hour), group("critical-and-warnings", 1, 9, 0, 0, 8*time.Hour), group("critical-and-info", 1, 0, 3, 0, 7*time.Hour),
		group("critical", 1, 0, 0, 0, 6*time.Hour), group("warnings", 0, 20, 0, 0, 5*time.Hour), group("warning-new", 0, 1, 0, 0, time.Minute),
		group("warning-old", 0, 1, 0, 0, time.Hour), group("info", 0, 0, 40, 0, 3*time.Hour), group("silenced", 0, 0, 0, 50, 2*time.Hour), group("silenced-b", 0, 0, 0, 50, 2*time.Hour),
	}
	for order, want := range map[string]string{
		"severity": "two-critical critical-and-warnings critical-and-info critical warnings warning-new warning-old info silenced silenced-b",
		"count":    "silenced silenced-b info warnings critical-and-warnings critical-and-info two-critical warning-new warning-old critical",
		"newest":   "warning-new warning-old silenced silenced-b info warnings critical critical-and-info critical-and-warnings two-critical",
	} {
		for range 20 {
			rand.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
			slices.SortStableFunc(groups, groupOrders[order])
			var got []string
			for _, g := range groups {
				got = append(got, g.Receiver)
			}
			if s := strings.Join(got, " "); s != want {
				t.Fatalf("%s: %s", order, s)
			}
		}
	}
}
