package software

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/mod/semver"

	"muster.dev/muster/internal/software"
)

// Wanted is what a site shall run, and when it may begin.
type Wanted struct {
	// Unheard: control has not been heard since this process started. Nothing is begun, and
	// what an earlier process began is neither gone on with nor dropped.
	Unheard bool
	// Version; empty: nothing is wanted, or with Back what ran before.
	Version string
	// Back: what ran before control asked for another version.
	Back bool
	// Item is the digest of what control said; it is told with the status.
	Item   string
	Target string // its name in the signed repository
	Digest string // SHA-256 in hex
	Size   int64  // bytes
	Lacks  string // why there is no such file; empty: there is
	// NotBefore is when it may begin; the download, too. Windows are times of day, in Zone,
	// in which it may, and in which it may restart; none: at any time.
	NotBefore time.Time
	Windows   []software.Window
	Zone      *time.Location // nil: UTC
	// DeferBy is how long after it was offered the site's own operator may put it off.
	DeferBy time.Duration
	// Requires is the oldest version by component that has to run before.
	Requires map[string]string
	// Withdrawn says why nobody may begin any more; WithdrawnOf says it by version, of what
	// may have run before.
	Withdrawn      string
	WithdrawnOf    map[string]string
	BytesPerSecond int // of the download; 0: no limit
	// Retry counts how often somebody asked to try again what had failed.
	Retry int
}

// From is what control said, for a machine of an architecture (runtime.GOARCH). item is
// the digest of it.
func From(s *software.Wanted, architecture, item string) Wanted {
	w := Wanted{
		Version: s.Version, Back: s.Version == "", Item: item, NotBefore: s.NotBefore, Windows: s.Windows, DeferBy: s.DeferBy,
		Requires: s.Requires, Withdrawn: s.Withdrawn, WithdrawnOf: s.WithdrawnOf, BytesPerSecond: s.BytesPerSecond, Retry: s.Retry,
	}
	w.Zone, _ = time.LoadLocation(s.TimeZone) // Decode has checked it
	f, ok := s.For(architecture)
	switch w.Target, w.Digest, w.Size = f.Target, f.Digest, f.Size; {
	case ok, w.Back:
	case len(s.Files) == 0:
		w.Lacks = "it was not released, or is not any more"
	default:
		w.Lacks = "it has no file for " + architecture + ", which this site is"
	}
	return w
}

func (w Wanted) is(r *record) bool { return w.Version == r.Version && w.Retry == r.Retry }

// Opens is the first moment from t on in which it may begin, by the clock on the site's wall, as
// windows of a Rollout are: an hour that the clock skips has no window in it, and one that it has
// twice has it twice. The zero time: not within two weeks.
func (w Wanted) Opens(t time.Time) time.Time {
	zone := w.Zone
	if zone == nil {
		zone = time.UTC
	}
	local := t.In(zone)
	if w.open(local) {
		return t
	}
	var first time.Time
	for day := range 15 {
		for _, x := range w.Windows {
			for _, begin := range starts(local.AddDate(0, 0, day), x.From) {
				if begin.After(t) && (first.IsZero() || begin.Before(first)) && w.open(begin) {
					first = begin
				}
			}
		}
	}
	return first
}

// open tells whether the clock on the wall is within a window.
func (w Wanted) open(local time.Time) bool {
	if len(w.Windows) == 0 {
		return true
	}
	clock, day := local.Format("15:04"), local.Format("Mon")
	yesterday := ((local.Weekday() + 6) % 7).String()[:3]
	on := func(x software.Window, day string) bool { return len(x.Days) == 0 || slices.Contains(x.Days, day) }
	return slices.ContainsFunc(w.Windows, func(x software.Window) bool {
		if x.From < x.To {
			return on(x, day) && x.From <= clock && clock < x.To
		}
		return on(x, day) && x.From <= clock || on(x, yesterday) && clock < x.To // past midnight
	})
}

// starts are the moments of a day at which a window may begin that does so at a time such as
// 22:00: it, the same again where the clocks go back, and when the clocks go forward over it.
func starts(day time.Time, clock string) []time.Time {
	at, err := time.Parse("15:04", clock)
	if err != nil {
		return nil // Decode has checked it
	}
	begin := time.Date(day.Year(), day.Month(), day.Day(), at.Hour(), at.Minute(), 0, 0, day.Location())
	out := []time.Time{begin}
	_, is := begin.Zone()
	from, to := begin.ZoneBounds()
	if !from.IsZero() {
		_, was := from.Add(-time.Second).Zone()
		out = append(out, from, begin.Add(time.Duration(is-was)*time.Second))
	}
	if !to.IsZero() {
		_, then := to.Zone()
		out = append(out, to, begin.Add(time.Duration(is-then)*time.Second))
	}
	return out
}

// unmet names what is required and does not run; empty: nothing.
func (w Wanted) unmet(running map[string]string) string {
	for _, c := range slices.Sorted(maps.Keys(w.Requires)) {
		want, has := w.Requires[c], running[c]
		switch {
		case !semver.IsValid("v" + has):
			return fmt.Sprintf("it needs %s %s or later, and this site does not know which %s it runs", c, want, c)
		case semver.Compare("v"+has, "v"+want) < 0:
			return fmt.Sprintf("it needs %s %s or later, and %s runs", c, want, has)
		}
	}
	return ""
}
