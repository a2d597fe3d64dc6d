// Package maintenance works out when the maintenance windows of Sites and
// VirtualSites are open. It is pure: the health inventory, the alerting role and the
// admission plugin ask it, each with its own clock.
package maintenance

import (
	"fmt"
	"slices"
	"strings"
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

// Between lists the spans that are open at some time from from to before until, in
// order of their starts. Windows that can't be read give none: Check told so when they
// were written.
func Between(windows []v1alpha1.MaintenanceWindow, from, until time.Time) []Span {
	var out []Span
	for _, w := range windows {
		out = append(out, spans(w, from, until)...)
	}
	slices.SortStableFunc(out, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return out
}

// Open returns the span that is open at now and ends last, and false if none is.
func Open(windows []v1alpha1.MaintenanceWindow, now time.Time) (Span, bool) {
	var best Span
	for _, s := range Between(windows, now, now.Add(time.Nanosecond)) {
		if s.Covers(now) && s.End.After(best.End) {
			best = s
		}
	}
	return best, !best.End.IsZero()
}

// NextEdge is the first time after now at which some window opens or closes, within
// the horizon; zero if none does.
func NextEdge(windows []v1alpha1.MaintenanceWindow, now time.Time, horizon time.Duration) time.Time {
	var next time.Time
	for _, s := range Between(windows, now, now.Add(horizon)) {
		for _, t := range []time.Time{s.Start, s.End} {
			if t.After(now) && (next.IsZero() || t.Before(next)) {
				next = t
			}
		}
	}
	return next
}

func spans(w v1alpha1.MaintenanceWindow, from, until time.Time) []Span {
	length := w.Duration.Duration
	if length <= 0 {
		return nil
	}
	span := func(start time.Time) Span {
		return Span{Name: w.Name, Reason: w.Reason, Start: start.UTC(), End: start.Add(length).UTC()}
	}
	overlaps := func(s Span) bool { return s.Start.Before(until) && s.End.After(from) }
	if w.Start != nil {
		if s := span(w.Start.Time); overlaps(s) {
			return []Span{s}
		}
		return nil
	}
	schedule, zone, err := parse(w)
	if err != nil {
		return nil
	}
	var out []Span
	for at := schedule.Next(from.Add(-length).In(zone)); !at.IsZero() && at.Before(until) && len(out) < maxSpans; at = schedule.Next(at) {
		if s := span(at); overlaps(s) {
			out = append(out, s)
		}
	}
	return out
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
		schedule, zone, err := parse(w)
		if err != nil {
			if err == errZone {
				errs = append(errs, field.Invalid(at.Child("timeZone"), w.TimeZone, err.Error()))
			} else {
				errs = append(errs, field.Invalid(at.Child("schedule"), w.Schedule, err.Error()))
			}
			continue
		}
		// A year from a fixed time is enough to see a rhythm.
		first := schedule.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, zone))
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
