package decide

import (
	"fmt"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// outside says where sites are that may not begin.
const outside = "outside of {their} window"

// calendar says when sites of a time zone may begin to change.
type calendar struct {
	fleet.Calendar
	now   time.Time
	zones map[string]opening
}

// opening is what a calendar says of a zone.
type opening struct {
	open bool
	next time.Time // when it opens; zero: not within a year
	why  string
}

func newCalendar(p *v1alpha1.RolloutPlan, now time.Time) (*calendar, error) {
	c := &calendar{now: now, zones: map[string]opening{}}
	for _, w := range p.Windows {
		c.Windows = append(c.Windows, fleet.Window(w))
	}
	for _, f := range p.Freezes {
		c.Freezes = append(c.Freezes, fleet.Freeze(f))
	}
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("spec.%w", err)
	}
	return c, nil
}

// of says whether sites of a zone may begin to change now.
func (c *calendar) of(zone *time.Location) opening {
	if zone == nil {
		zone = time.UTC
	}
	if o, ok := c.zones[zone.String()]; ok {
		return o
	}
	local := c.now.In(zone)
	o := opening{open: c.Open(local)}
	if !o.open {
		o.next, o.why = c.Opens(local), c.frozen(local)
	}
	c.zones[zone.String()] = o
	return o
}

// frozen says until when and why; empty: it is outside of all windows.
func (c *calendar) frozen(local time.Time) string {
	f := c.Frozen(local)
	switch {
	case f == nil:
		return ""
	case f.Reason != "":
		return "frozen until " + f.To + " (" + f.Reason + ")"
	default:
		return "frozen until " + f.To
	}
}
