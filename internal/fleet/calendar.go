package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Calendar says when something may begin at sites, by the clock on their wall: in windows, or at
// any time if there are none, and not in freezes. An hour that the clock skips in spring has no
// window in it; one that it has twice in autumn has it twice. Check comes before the rest.
type Calendar struct {
	Windows []Window
	Freezes []Freeze
}

// Window is a part of the week, past midnight if To is not after From: the same time is a whole day.
type Window struct {
	Days []string `json:"days,omitempty"` // Mon to Sun, on which it begins; none: each
	From string   `json:"from"`           // such as 22:00
	To   string   `json:"to"`
}

// Freeze is days of the calendar, both included, such as 2026-12-20 and 2027-01-02.
type Freeze struct{ From, To, Reason string }

var weekdays = []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}

// Check says what is wrong, beginning with the field.
func (c *Calendar) Check() error {
	for i, w := range c.Windows {
		if minuteOf(w.From) < 0 || minuteOf(w.To) < 0 {
			return fmt.Errorf("windows[%d]: %.20q to %.20q: want times of the day such as 22:00 and 04:30", i, w.From, w.To)
		}
		for _, day := range w.Days {
			if !slices.Contains(weekdays, day) {
				return fmt.Errorf("windows[%d].days: %.20q: want some of %s", i, day, strings.Join(weekdays, ", "))
			}
		}
	}
	for i, f := range c.Freezes {
		from, err1 := time.Parse(time.DateOnly, f.From)
		to, err2 := time.Parse(time.DateOnly, f.To)
		if err1 != nil || err2 != nil || to.Before(from) {
			return fmt.Errorf("freezes[%d]: %.20q to %.20q: want two days such as 2026-12-20 and 2027-01-02, the earlier first", i, f.From, f.To)
		}
	}
	return nil
}

// minuteOf is the minute of the day of a time such as 22:00; -1: it is none.
func minuteOf(clock string) int {
	t, err := time.Parse("15:04", clock)
	if err != nil || len(clock) != len("15:04") {
		return -1
	}
	return t.Hour()*60 + t.Minute()
}

// Open tells whether something may begin at t, by the clock of t's location.
func (c *Calendar) Open(t time.Time) bool {
	if c.Frozen(t) != nil {
		return false
	}
	m, today := t.Hour()*60+t.Minute(), t.Weekday()
	return len(c.Windows) == 0 || slices.ContainsFunc(c.Windows, func(w Window) bool {
		from, to := minuteOf(w.From), minuteOf(w.To)
		if from < to {
			return w.on(today) && m >= from && m < to
		}
		return w.on(today) && m >= from || w.on((today+6)%7) && m < to // past midnight
	})
}

func (w *Window) on(day time.Weekday) bool {
	return len(w.Days) == 0 || slices.Contains(w.Days, day.String()[:3])
}

// Frozen is the freeze in which t is, by the clock of t's location; nil: none.
func (c *Calendar) Frozen(t time.Time) *Freeze {
	if len(c.Freezes) == 0 {
		return nil
	}
	day := t.Format(time.DateOnly)
	i := slices.IndexFunc(c.Freezes, func(f Freeze) bool { return f.From <= day && day <= f.To })
	if i < 0 {
		return nil
	}
	return &c.Freezes[i]
}

// Opens is the first moment from t on at which it is open, by the clock of t's location; the zero
// time: there is none within a year.
func (c *Calendar) Opens(t time.Time) time.Time {
	begins := []int{0} // minutes of a day at which it may open, and the end of a freeze
	for _, w := range c.Windows {
		begins = append(begins, minuteOf(w.From))
	}
	slices.Sort(begins)
	begins = slices.Compact(begins)
	// Between two changes of the clocks a day has each minute once.
	for end := t.AddDate(1, 1, 0); t.Before(end); {
		_, change := t.ZoneBounds()
		if change.IsZero() || change.After(end) {
			change = end
		}
		if at, ok := c.opensBefore(change, t, begins); ok {
			return at
		}
		t = change
	}
	return time.Time{}
}

// opensBefore is Opens as if the clocks of t never changed, until end.
func (c *Calendar) opensBefore(end, t time.Time, begins []int) (time.Time, bool) {
	if c.Open(t) {
		return t, true
	}
	wall := time.FixedZone(t.Zone())
	y, m, d := t.Date()
	for ; ; d++ {
		for _, minute := range begins {
			at := time.Date(y, m, d, 0, minute, 0, 0, wall)
			if !at.Before(end) {
				return time.Time{}, false
			}
			if at.After(t) && c.Open(at) {
				return at.In(t.Location()), true
			}
		}
	}
}
