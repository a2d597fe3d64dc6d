package logquery

import "time"

// Group is the lines that have the same values in the fields by which a log store was
// asked to group, and fall in the same step of time.
type Group struct {
	Key         []string  // for each of the fields, its first KiB; "" where a line has no such field
	Time        time.Time // where the step begins: a multiple of its length since 1970 in UTC; zero without steps
	Count       int64
	First, Last time.Time // the earliest and the latest Timestamp, to the millisecond
	// MetricCount lines have a number of at most 1e100 as the metric; Min, Max and Sum
	// are theirs.
	MetricCount   int64
	Min, Max, Sum float64
	Spread        Spread // of theirs, where it was asked for
	Message       string // of the newest line, its first KiB
	// Include are values of that line, of the fields that the question includes.
	Include []string
}

// MaxGroupBy is how many fields lines can be grouped by.
const MaxGroupBy = 8

// MaxInclude is how many fields of the newest line can be asked for.
const MaxInclude = 5

// Groups are in the order of Key and Time.
type Groups struct {
	Groups []Group
	// Truncated: there were more than the question allows, and lines of further ones are
	// not counted.
	Truncated bool
}
