package decide

import (
	"fmt"
	"slices"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

// outside says where sites are that may not begin.
const outside = "outside of {their} window"

// calendar says when sites of a time zone may begin to change, by the clock on their wall.
// An hour that the clock skips in spring has no window in it; one that it has twice in
// autumn has it twice.
type calendar struct {
	windows []window
	freezes []v1alpha1.RolloutFreeze
	now     time.Time
	zones   map[string]opening
}

type window struct {
	days     [7]bool
	from, to int // minutes of the day; to may be the smaller: it ends on the next day
}

// opening is what a calendar says of a zone.
type opening struct {
	open bool
	next time.Time // when it opens; zero: not within a year
	why  string
}

func newCalendar(p *v1alpha1.RolloutPlan, now time.Time) (*calendar, error) {
	c := &calendar{now: now, zones: map[string]opening{}, freezes: p.Freezes}
	for i := range p.Windows {
		w := &p.Windows[i]
		from, err1 := time.Parse("15:04", w.From)
		to, err2 := time.Parse("15:04", w.To)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("spec.windows[%d]: %q to %q: want times of the day such as 22:00 and 04:30", i, w.From, w.To)
		}
		x := window{from: from.Hour()*60 + from.Minute(), to: to.Hour()*60 + to.Minute()}
		for _, day := range w.Days {
			at := slices.Index(days, day)
			if at < 0 {
				return nil, fmt.Errorf("spec.windows[%d].days: %q: want Mon, Tue, Wed, Thu, Fri, Sat or Sun", i, day)
			}
			x.days[at] = true
		}
		if len(w.Days) == 0 {
			x.days = [7]bool{true, true, true, true, true, true, true}
		}
		c.windows = append(c.windows, x)
	}
	for i, f := range p.Freezes {
		from, err1 := time.Parse(time.DateOnly, f.From)
		to, err2 := time.Parse(time.DateOnly, f.To)
		if err1 != nil || err2 != nil || to.Before(from) {
			return nil, fmt.Errorf("spec.freezes[%d]: %q to %q: want two days such as 2026-12-20 and 2027-01-02, the earlier first", i, f.From, f.To)
		}
	}
	return c, nil
}

var days = []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"} // as time.Weekday counts

// of says whether sites of a zone may begin to change now.
func (c *calendar) of(zone *time.Location) opening {
	if len(c.windows) == 0 && len(c.freezes) == 0 {
		return opening{open: true}
	}
	if zone == nil {
		zone = time.UTC
	}
	if o, ok := c.zones[zone.String()]; ok {
		return o
	}
	local := c.now.In(zone)
	var o opening
	if o.open, o.why = c.openAt(local); !o.open {
		o.next = c.next(local)
	}
	c.zones[zone.String()] = o
	return o
}

func (c *calendar) openAt(local time.Time) (bool, string) {
	day := local.Format(time.DateOnly)
	for _, f := range c.freezes {
		if f.From <= day && day <= f.To {
			if f.Reason != "" {
				return false, "frozen until " + f.To + " (" + f.Reason + ")"
			}
			return false, "frozen until " + f.To
		}
	}
	if len(c.windows) == 0 {
		return true, ""
	}
	m := local.Hour()*60 + local.Minute()
	today := int(local.Weekday())
	for _, w := range c.windows {
		if w.from < w.to {
			if w.days[today] && m >= w.from && m < w.to {
				return true, ""
			}
		} else if w.days[today] && m >= w.from || w.days[(today+6)%7] && m < w.to {
			return true, ""
		}
	}
	return false, "" // outside of all of them
}

// next is when it opens: at the beginning of a window, of the day after a freeze, or where the
// clock leaps into a window, or back into one.
func (c *calendar) next(local time.Time) time.Time {
	y, mo, day := local.Date()
	for d := range 400 {
		at := func(day, minute int) time.Time {
			return time.Date(y, mo, day, minute/60, minute%60, 0, 0, local.Location())
		}
		begins := []time.Time{at(day+d, 0)}
		for _, w := range c.windows {
			begins = append(begins, at(day+d, w.from))
		}
		if begin, end := begins[0], at(day+d+1, 0); end.Sub(begin) != 24*time.Hour {
			for m := begin; m.Before(end); m = m.Add(15 * time.Minute) {
				begins = append(begins, m)
				for _, w := range c.windows { // the second of an hour that comes twice
					begins = append(begins, m.Truncate(time.Hour).Add(time.Duration(w.from%60)*time.Minute))
				}
			}
		}
		slices.SortFunc(begins, time.Time.Compare)
		for _, t := range begins {
			if t.After(local) {
				if open, _ := c.openAt(t); open {
					return t
				}
			}
		}
	}
	return time.Time{}
}
