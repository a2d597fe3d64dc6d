package software

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/mod/semver"

	"muster.dev/muster/internal/fleet"
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
	Windows   []fleet.Window
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

// Opens is the first moment from t on in which it may begin, by the clock on the site's wall. The
// zero time: not within a year.
func (w Wanted) Opens(t time.Time) time.Time {
	zone := w.Zone
	if zone == nil {
		zone = time.UTC
	}
	c := fleet.Calendar{Windows: w.Windows} // Decode has checked them
	return c.Opens(t.In(zone))
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
