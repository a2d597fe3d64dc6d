package regional

import (
	"slices"
	"strings"
	"testing"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/logs/intake"
)

// upstream is what control has been told last of each site.
type upstream map[string]string

func (u upstream) SiteConditions(id fleet.SiteID, conds []*wire.Condition) {
	var out []string
	for _, c := range conds {
		out = append(out, c.Type+"="+c.Status+" "+c.Reason)
	}
	u[id.Name] = strings.Join(out, ", ")
}

func (u upstream) String() string {
	var out []string
	for k, v := range u {
		out = append(out, k+": "+v)
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

func TestLogConditions(t *testing.T) {
	up := upstream{}
	l := newLogConditions(up)
	a, c := fleet.SiteID{Tenant: "acme", Name: "a"}, fleet.SiteID{Tenant: "acme", Name: "c"}
	for _, step := range []struct {
		c    intake.Condition
		want string
	}{
		{intake.Condition{Type: intake.ConditionStoreDown, Active: true}, ""},
		{intake.Condition{Site: a, Type: intake.ConditionOverBudget, Active: true}, "a: LogBudgetExceeded=True OverBudget"},
		{intake.Condition{Site: a, Type: intake.ConditionQueueFull, Active: true}, "a: LogBudgetExceeded=True OverBudget, LogsAccepted=False QueueFull"},
		{intake.Condition{Site: c, Type: intake.ConditionOverQuota, Active: true}, "a: LogBudgetExceeded=True OverBudget, LogsAccepted=False QueueFull; c: LogsAccepted=False QuotaExceeded"},
		{intake.Condition{Site: c, Type: intake.ConditionQueueFull, Active: true}, "a: LogBudgetExceeded=True OverBudget, LogsAccepted=False QueueFull; c: LogsAccepted=False QuotaExceeded"},
		{intake.Condition{Site: c, Type: intake.ConditionOverQuota}, "a: LogBudgetExceeded=True OverBudget, LogsAccepted=False QueueFull; c: LogsAccepted=False QueueFull"},
		{intake.Condition{Site: a, Type: intake.ConditionOverBudget}, "a: LogBudgetExceeded=False WithinBudget, LogsAccepted=False QueueFull; c: LogsAccepted=False QueueFull"},
		{intake.Condition{Site: a, Type: intake.ConditionQueueFull}, "a: LogBudgetExceeded=False WithinBudget; c: LogsAccepted=False QueueFull"},
		{intake.Condition{Site: c, Type: intake.ConditionQueueFull}, "a: LogBudgetExceeded=False WithinBudget; c: "},
	} {
		l.changed(step.c)
		if got := up.String(); got != step.want {
			t.Errorf("after %+v:\n%s\nwant\n%s", step.c, got, step.want)
		}
	}
}
