package fleet

import "time"

// Moment is a time in a text that is made once for readers in all zones: with its day, to the minute, in
// UTC. The console finds what has this form in texts and shows it in its reader's zone.
func Moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
