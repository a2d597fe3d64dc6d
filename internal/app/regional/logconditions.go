package regional

import (
	"sync"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/logs/intake"
)

// logConditions pass on to control what the intake says, as conditions of Sites: that
// one is over its budget, and, while the queue is full, that the logs of every site of
// this regional have to wait. Safe for concurrent use.
type logConditions struct {
	up interface {
		SiteConditions(id fleet.SiteID, conds []*wire.Condition)
	}
	inv      *inventory
	regional string

	mu     sync.Mutex
	budget map[fleet.SiteID]*wire.Condition
	full   *wire.Condition       // nil: the queue takes lines
	told   map[fleet.SiteID]bool // that it is full
}

func newLogConditions(up interface {
	SiteConditions(id fleet.SiteID, conds []*wire.Condition)
}, inv *inventory, regional string) *logConditions {
	return &logConditions{up: up, inv: inv, regional: regional, budget: map[fleet.SiteID]*wire.Condition{}, told: map[fleet.SiteID]bool{}}
}

// changed is intake.Options.OnCondition.
func (l *logConditions) changed(c intake.Condition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.Site != fleet.SiteID{}:
		cond := &wire.Condition{Type: c.Type, Status: "False", Reason: "WithinBudget", Message: c.Message}
		if c.Active {
			cond.Status, cond.Reason = "True", "OverBudget"
		}
		l.budget[c.Site] = cond
		l.tell(c.Site)
	case c.Type == intake.ConditionQueueFull && c.Active:
		l.full = &wire.Condition{Type: "LogsAccepted", Status: "False", Reason: "QueueFull", Message: c.Message}
		for _, id := range l.inv.sitesOf(l.regional) {
			l.told[id] = true
			l.tell(id)
		}
	case c.Type == intake.ConditionQueueFull:
		l.full = nil
		for id := range l.told {
			l.tell(id)
		}
		clear(l.told)
	}
}

func (l *logConditions) tell(id fleet.SiteID) {
	var conds []*wire.Condition
	if c := l.budget[id]; c != nil {
		conds = append(conds, c)
	}
	if l.full != nil && l.told[id] {
		conds = append(conds, l.full)
	}
	l.up.SiteConditions(id, conds)
}

// sitesOf are the sites that are, or were last, connected to a regional.
func (i *inventory) sitesOf(regional string) []fleet.SiteID {
	i.mu.RLock()
	defer i.mu.RUnlock()
	var out []fleet.SiteID
	for tenant, t := range i.tenants {
		for _, s := range t.Sites {
			if s.Regional == regional {
				out = append(out, fleet.SiteID{Tenant: tenant, Name: s.Name})
			}
		}
	}
	return out
}
