// Package maintenance works out when the maintenance windows of Sites and
// VirtualSites are open. It is pure: internal/inventory, which puts together what
// holds for a site, and the admission plugin ask it, each with its own clock.
package maintenance

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/v1alpha1"
)

// Span is one time that a window is open, from Start to before End.
type Span struct {
	Name, Reason string
	Start, End   time.Time
}

// Covers tells whether the window is open at t.
func (s Span) Covers(t time.Time) bool { return !t.Before(s.Start) && t.Before(s.End) }

// maxSpans bounds what one window gives, so that a schedule of every minute costs
// no more than one of every day.
const maxSpans = 200

// day is how far ahead a Plan remembers what its windows give.
const day = 24 * time.Hour

// Plan is what some windows say, read once: asking it is cheap. Windows that can't be
// read are never open: Check told so when they were written. A nil Plan has no windows.
// Safe for concurrent use.
type Plan struct {
	windows []window

	mu          sync.Mutex
	from, until time.Time // when spans may be asked
	spans       []Span
}

type window struct {
	name, reason string
	length       time.Duration
	start        time.Time     // of one that comes once
	schedule     cron.Schedule // of one that comes again
	zone         *time.Location
}

// NewPlan reads windows; nil if there are none.
func NewPlan(windows []v1alpha1.MaintenanceWindow) *Plan {
	if len(windows) == 0 {
		return nil
	}
	p := &Plan{}
	for _, w := range windows {
		x := window{name: w.Name, reason: w.Reason, length: w.Duration.Duration}
		if x.length <= 0 {
			continue
		}
		if w.Start != nil {
			x.start = w.Start.UTC()
		} else if s, zone, err := parse(w); err == nil {
			x.schedule, x.zone = s, zone
		} else {
			continue
		}
		p.windows = append(p.windows, x)
	}
	return p
}

// Between lists the spans that are open at some time from from to before until, in
// order of their starts.
func (p *Plan) Between(from, until time.Time) []Span {
	if p == nil {
		return nil
	}
	var out []Span
	for _, w := range p.windows {
		out = append(out, w.spans(from, until)...)
	}
	slices.SortStableFunc(out, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return out
}

// around returns the spans of a day from now on, or as many as are worked out at once.
func (p *Plan) around(now time.Time) []Span {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.from) || !now.Before(p.until) {
		p.from, p.until, p.spans = now, now.Add(day), nil
		for _, w := range p.windows {
			more := w.spans(now, now.Add(2*day))
			if n := len(more); n == maxSpans && more[n-1].Start.Before(p.until) {
				p.until = more[n-1].Start
			}
			p.spans = append(p.spans, more...)
		}
		slices.SortStableFunc(p.spans, func(a, b Span) int { return a.Start.Compare(b.Start) })
	}
	return p.spans // never changed, only replaced
}

// Open returns the span that is open at now and ends last, and false if none is.
func (p *Plan) Open(now time.Time) (Span, bool) {
	if p == nil {
		return Span{}, false
	}
	var best Span
	for _, s := range p.around(now) {
		if s.Start.After(now) {
			break
		}
		if s.Covers(now) && s.End.After(best.End) {
			best = s
		}
	}
	return best, !best.End.IsZero()
}

// NextEdge is the first time after now at which some window opens or closes, within
// a day; zero if none does.
func (p *Plan) NextEdge(now time.Time) time.Time {
	if p == nil {
		return time.Time{}
	}
	var next time.Time
	for _, s := range p.around(now) {
		for _, t := range [2]time.Time{s.Start, s.End} {
			if t.After(now) && !t.After(now.Add(day)) && (next.IsZero() || t.Before(next)) {
				next = t
			}
		}
	}
	return next
}

// Between is Plan.Between of windows that are asked once.
func Between(windows []v1alpha1.MaintenanceWindow, from, until time.Time) []Span {
	return NewPlan(windows).Between(from, until)
}

func (w *window) spans(from, until time.Time) []Span {
	if w.schedule == nil {
		if s := w.span(w.start); s.overlaps(from, until) {
			return []Span{s}
		}
		return nil
	}
	var out []Span
	for at := range starts(w.schedule, w.zone, from.Add(-w.length), until) {
		if s := w.span(at); s.overlaps(from, until) {
			if out = append(out, s); len(out) == maxSpans {
				break
			}
		}
	}
	return out
}

func (w *window) span(start time.Time) Span {
	return Span{Name: w.name, Reason: w.reason, Start: start.UTC(), End: start.Add(w.length).UTC()}
}

func (s Span) overlaps(from, until time.Time) bool { return s.Start.Before(until) && s.End.After(from) }

// shift bounds by how much clocks are put forward or back at once: Samoa left out a
// day.
const shift = 25 * time.Hour

// starts yields the times of a schedule after from and before until, rising, each
// once. A schedule that names hours is one of the wall clock: what falls into an hour
// that is left out in spring comes by as much later, and what falls into one that
// comes twice in autumn comes the first time. The library would leave out the former,
// and gives the latter twice. A schedule of every hour is one of elapsed time, as with
// cron: it knows no other.
func starts(schedule cron.Schedule, zone *time.Location, from, until time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		if everyHour(schedule) || zone == time.UTC {
			for at := schedule.Next(from.In(zone)); !at.IsZero() && at.Before(until) && yield(at); at = schedule.Next(at) {
			}
			return
		}
		// The wall clock runs through in UTC, where no hour is missing.
		wall := func(t time.Time) time.Time {
			_, offset := t.In(zone).Zone()
			return t.UTC().Add(time.Duration(offset) * time.Second)
		}
		var found []time.Time
		end := wall(until).Add(shift)
		for w := schedule.Next(wall(from).Add(-shift)); !w.IsZero() && w.Before(end); w = schedule.Next(w) {
			at := instant(w, zone)
			if !at.After(from) || !at.Before(until) {
				continue
			}
			// What was put off may come after, or with, what follows it on the clock.
			i, same := slices.BinarySearchFunc(found, at, time.Time.Compare)
			if !same {
				found = slices.Insert(found, i, at)
			}
			if len(found) > 2*maxSpans {
				break
			}
		}
		for _, at := range found {
			if !yield(at) {
				return
			}
		}
	}
}

// instant is when the wall clock, given as if it were UTC, shows a time in the zone: the
// first time if it does so twice, and as much later as the clock is put forward if never.
func instant(wall time.Time, zone *time.Location) time.Time {
	at := func(reference time.Time) (time.Time, bool) {
		_, offset := reference.In(zone).Zone()
		t := wall.Add(-time.Duration(offset) * time.Second)
		_, then := t.In(zone).Zone()
		return t, then == offset
	}
	before, ok := at(wall.Add(-shift)) // with the offset that holds before any change
	if ok {
		return before
	}
	if after, ok := at(wall.Add(shift)); ok {
		return after
	}
	return before
}

// everyHour says whether the schedule leaves no hour out.
func everyHour(s cron.Schedule) bool {
	spec, ok := s.(*cron.SpecSchedule)
	const all = 1<<24 - 1
	return ok && spec.Hour&all == all
}

func parse(w v1alpha1.MaintenanceWindow) (cron.Schedule, *time.Location, error) {
	// The library would take a zone within the schedule; there is a field for it.
	if strings.Contains(w.Schedule, "TZ=") || strings.HasPrefix(w.Schedule, "@") {
		return nil, nil, fmt.Errorf("want cron's five fields, such as 0 2 * * SUN")
	}
	s, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(w.Schedule)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; want cron's five fields, such as 0 2 * * SUN", err)
	}
	zone := time.UTC
	if w.TimeZone != "" {
		if zone, err = time.LoadLocation(w.TimeZone); err != nil || w.TimeZone == "Local" {
			return nil, nil, errZone
		}
	}
	return s, zone, nil
}

var errZone = fmt.Errorf("no such time zone; want a name such as Europe/Berlin")

// Check says what is wrong with windows.
func Check(at *field.Path, windows []v1alpha1.MaintenanceWindow) field.ErrorList {
	var errs field.ErrorList
	for i, w := range windows {
		at := at.Index(i)
		if w.Start != nil {
			if w.TimeZone != "" {
				errs = append(errs, field.Invalid(at.Child("timeZone"), w.TimeZone, "is for a schedule; start says its own zone"))
			}
			continue
		}
		schedule, _, err := parse(w)
		if err != nil {
			if errors.Is(err, errZone) {
				errs = append(errs, field.Invalid(at.Child("timeZone"), w.TimeZone, err.Error()))
			} else {
				errs = append(errs, field.Invalid(at.Child("schedule"), w.Schedule, err.Error()))
			}
			continue
		}
		first := schedule.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		if first.IsZero() {
			errs = append(errs, field.Invalid(at.Child("schedule"), w.Schedule, "never comes"))
			continue
		}
		if second := schedule.Next(first); !second.IsZero() && second.Sub(first) < w.Duration.Duration {
			errs = append(errs, field.Invalid(at.Child("duration"), w.Duration.Duration.String(), fmt.Sprintf("is longer than the %s between two windows of the schedule: they would never close", second.Sub(first))))
		}
	}
	return errs
}
