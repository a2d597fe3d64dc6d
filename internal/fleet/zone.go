package fleet

import (
	"strings"
	"time"
)

// LabelTimeZone of a Site is its time zone, such as Europe.Berlin (labels know no slash),
// by whose clock windows and freezes are; without it: UTC.
const LabelTimeZone = "muster.dev/time-zone"

// TimeZone is a site's time zone by its labels; nil: UTC.
func TimeZone(labels map[string]string) *time.Location {
	name := labels[LabelTimeZone]
	if name == "" {
		return nil
	}
	for _, try := range []string{strings.ReplaceAll(name, ".", "/"), name} {
		if l, err := time.LoadLocation(try); err == nil && try != "Local" {
			return l
		}
	}
	return nil
}
