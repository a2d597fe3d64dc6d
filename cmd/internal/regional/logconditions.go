package regional

import (
	"sync"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/logs/intake"
)

// logConditions pass on to control what the intake says of its sites, as conditions of
// Sites: that one is over its budget, and that its lines are not accepted, because its
// tenant's quota of the day is used up or because there is no room in the queue. Safe
// for concurrent use.
type logConditions struct {
	up interface {
		SiteConditions(id fleet.SiteID, conds []*wire.Condition)
	}

	mu    sync.Mutex
	sites map[fleet.SiteID]map[string]intake.Condition // the last of each type
}

func newLogConditions(up interface {
	SiteConditions(id fleet.SiteID, conds []*wire.Condition)
}) *logConditions {
	return &logConditions{up: up, sites: map[fleet.SiteID]map[string]intake.Condition{}}
}

// changed is intake.Options.OnCondition.
func (l *logConditions) changed(c intake.Condition) {
	if c.Site == (fleet.SiteID{}) {
		return // the regional's own: its metrics have alerts
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sites[c.Site]
	if s == nil {
		s = map[string]intake.Condition{}
		l.sites[c.Site] = s
	}
	s[c.Type] = c
	var conds []*wire.Condition
	if c, ok := s[intake.ConditionOverBudget]; ok {
		cond := &wire.Condition{Type: c.Type, Status: "False", Reason: "WithinBudget", Message: c.Message}
		if c.Active {
			cond.Status, cond.Reason = "True", "OverBudget"
		}
		conds = append(conds, cond)
	}
	for _, cause := range []struct{ typ, reason string }{{intake.ConditionOverQuota, "QuotaExceeded"}, {intake.ConditionQueueFull, "QueueFull"}} {
		if c := s[cause.typ]; c.Active {
			conds = append(conds, &wire.Condition{Type: "LogsAccepted", Status: "False", Reason: cause.reason, Message: c.Message})
			break
		}
	}
	l.up.SiteConditions(c.Site, conds)
}
