package decide

import (
	"fmt"
	"slices"
	"time"

	"muster.dev/muster/internal/fleet"
)

// defaultSettle is what the API server writes into a plan that does not say it: the ten
// minutes that the shipped signals of workloads look back at most (restarts, crash loops,
// flapping), one until a sample is collected and scored, and four for which a colour that has
// changed to and fro may hold a site's score down after it is well again. Signals that look
// back further tell of a site's hardware, and of more than one boot.
const defaultSettle = 15 * time.Minute

// settle is for how long after it became ready what a site shows may be the update itself.
func (r *run) settle() time.Duration {
	if d := r.in.Spec.Settle; d != nil {
		return d.Duration
	}
	return defaultSettle
}

// back is how far a measure of a site ("": its alerts) looks back.
func (j *judge) back(measure string) time.Duration {
	if back, ok := j.reach[measure]; ok {
		return back
	}
	return j.settle
}

// backOf is how far it does at a site: there where it is scraped seldom, four scrapes further.
func (j *judge) backOf(s *subject, measure string) time.Duration {
	return j.back(measure) + fleet.RateWindow(s.s.Pace)
}

// unsee takes what a site shows for unknown that was scraped last before the change, at a time; zero: it is
// under way. A site of before is as well as it was, whatever the change does to it.
func (s *subject) unsee(change, now time.Time) {
	if s.s.Pace == 0 || !change.IsZero() && !now.Before(change.Add(fleet.Seen(s.s.Pace))) {
		return
	}
	unseen := *s.s
	unseen.Measures = nil
	s.s, s.unseen = &unseen, true
}

// unseen says of how many sites nothing is known because they are scraped seldom; "": none.
func (j *judge) unseen() string {
	n, slowest := 0, time.Duration(0)
	for i := range j.changed {
		if s := &j.changed[i]; s.unseen && s.s.Online && !s.failed {
			n, slowest = n+1, max(slowest, s.s.Pace)
		}
	}
	if n == 0 {
		return ""
	}
	return agree(n, fmt.Sprintf(" %d of them {are} scraped seldom, up to every %s, and {have} not shown yet what the change does.", n, words(slowest)))
}

// unsettled tells whether what a measure of a site ("": its alerts) is may be of the update
// itself, and until when if it is ready. A slow update looks like a bad one until then; one
// that never gets ready is found by that.
func (j *judge) unsettled(s *subject, measure string) (until time.Time, is bool) {
	if s.updating || s.ready.IsZero() {
		return time.Time{}, s.updating
	}
	until = s.ready.Add(j.backOf(s, measure))
	return until, j.now.Before(until)
}

// readFrom is from when on a site's measure is read: over the window, no further back than
// the site is what it is, and once it has settled not from before that.
func (j *judge) readFrom(s *subject, measure string) time.Time {
	from := j.now.Add(-j.window())
	if s.from.After(from) {
		from = s.from
	}
	if at := s.ready.Add(j.backOf(s, measure)); !s.ready.IsZero() && !j.now.Before(at) && at.After(from) {
		from = at
	}
	if at := s.ready.Add(fleet.Seen(s.s.Pace)); s.s.Pace > 0 && !s.ready.IsZero() && at.After(from) {
		from = at // what was read until then is of before the change
	}
	return from
}

// doubt is what speaks against sites that may still show the update itself: it holds, and
// fails nothing.
type doubt struct {
	sites []string
	until time.Time // of the last of them
}

func (d *doubt) add(s *subject, until time.Time) {
	d.sites = append(d.sites, s.s.Name)
	if until.After(d.until) {
		d.until = until
	}
}

// words say of a reading at so many sites what of it is outstanding; "": nothing.
func (d *doubt) words(of int) string {
	if len(d.sites) == 0 {
		return ""
	}
	when := "until {they} {have} been ready for a while"
	if !d.until.IsZero() {
		when = "until " + fleet.Moment(d.until)
	}
	return " " + countedOf(len(d.sites), of, "{have} just changed, and what {they} {show} may be of the update itself "+when+"; that holds.")
}

// without gives sites in doubt the benefit of it: they have moved as their peers have.
func (d *doubt) without(list []moved) []moved {
	if len(d.sites) == 0 {
		return list
	}
	out := slices.Clone(list)
	for i := range out {
		if slices.Contains(d.sites, out[i].s.s.Name) {
			out[i].by -= out[i].against
			out[i].against = 0
		}
	}
	return out
}

// doubted are those that have fallen and may still show the update itself.
func (j *judge) doubted(list []moved, m measure) (d doubt) {
	for i := range list {
		if list[i].against > -m.limit {
			continue
		}
		if until, is := j.unsettled(list[i].s, m.name); is {
			d.add(list[i].s, until)
		}
	}
	return d
}
