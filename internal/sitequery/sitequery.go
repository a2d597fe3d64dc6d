// Package sitequery is the language in which people ask for sites, in the console, on the
// command line and in the API alike:
//
//	kind=store version!=1.4 score<60 "disk"
//
// It has the fields of a site (Fields), their order and their text, and tells which sites
// a query means. It is pure: no I/O, no clock, nothing of where a Row comes from. health/sites
// answers with it, the console and the CLI pass queries on. docs/inventory.md is its guide.
package sitequery

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"muster.dev/muster/internal/fleet"
)

// Bounds of a query. What is beyond them is an error, not cut off.
const (
	MaxLength = 2000 // bytes
	maxTerms  = 200
	maxDepth  = 20
	maxRegexp = 200 // bytes
	maxSteps  = 1000
)

// Row is one site as queries see it. It is only read.
type Row struct {
	Tenant, Name string
	Region       string
	Regional     string // that it is or was last connected to
	Policy       string // name of the HealthPolicy; "" for the shipped one
	Address      string
	Placed       bool // it has a place on the map
	Phase        fleet.Phase
	Colour       fleet.Colour
	Score        Number
	Dimensions   [4]Number // in the order of fleet.Dimensions
	// Reading is the value of a signal in its unit, by name; nil: none is known.
	Reading      func(signal string) Number
	Since        time.Time // of the colour; zero: never evaluated
	LastSeen     time.Time // zero: never
	Created      time.Time
	Labels       map[string]string
	Versions     map[string]string // by component
	VirtualSites []string          // "namespace/name"
	Reasons      []Reason          // ranked
	Maintenance  *Maintenance      // that goes on
	// Alerts that fire and are not suppressed, as SEVERITY/NAME. AlertsKnown is false
	// while nobody could be asked.
	Alerts      []string
	AlertsKnown bool
	// Searched is its SearchedText, kept by who is asked often; "": it is made for each query.
	Searched string
	// Link is what its link to the regional is like; nil: nobody could be asked.
	Link *Link
}

// Link has a figure of a site's link for each of the constants, NaN where it is not known.
type Link [linkFigures]float64

// The figures of a Link, in the units of their fields.
const (
	LinkRoundTrip = iota
	LinkLoss
	LinkSent
	LinkReceived
	LinkHandshake
	LinkReconnects
	LinkRequests
	LinkErrors
	linkFigures
)

// Number is a figure; of no link it is not known.
func (l *Link) Number(figure int) Number {
	if l == nil || math.IsNaN(l[figure]) {
		return Number{}
	}
	return Number{l[figure], true}
}

// Number is a value, or not known: of a score 0 to 100.
type Number struct {
	Value float64
	Known bool
}

// Reason for lost points.
type Reason struct{ Signal, Text string }

// Maintenance that goes on; a zero Until has no end.
type Maintenance struct {
	Reason string
	Until  time.Time
}

// Error is what is wrong with a query, and what would be right.
type Error struct {
	// Offset in the query, in bytes from 0, and how many of them it is about; a Length of
	// 0 is the end of the query.
	Offset, Length int
	Detail         string
	at             int // in characters, from 1
}

func (e *Error) Error() string { return fmt.Sprintf("at character %d: %s", e.at, e.Detail) }

// Query is a parsed query. It may be used by any number of goroutines.
type Query struct {
	root   node // nil: every site
	fields map[string]bool
	labels []string
	text   bool
}

// Parse reads a query; an empty one means every site. The error is an *Error.
func Parse(text string) (*Query, error) {
	if len(text) > MaxLength {
		return nil, &Error{Offset: MaxLength, at: MaxLength + 1, Detail: fmt.Sprintf("the query has %d bytes, want at most %d", len(text), MaxLength)}
	}
	if !utf8.ValidString(text) {
		return nil, &Error{at: 1, Detail: "the query is not UTF-8 text"}
	}
	p := &parser{text: text, query: &Query{fields: map[string]bool{}}}
	if err := p.parse(); err != nil {
		err.at = utf8.RuneCountInString(text[:err.Offset]) + 1
		return nil, err
	}
	return p.query, nil
}

// Match tells whether the query means the site; now is what ages are measured from.
func (q *Query) Match(r *Row, now time.Time) bool {
	return q.root == nil || q.root.match(r, now)
}

// Uses tells whether the query names a field, by its name in Fields.
func (q *Query) Uses(field string) bool { return q.fields[field] }

// HasText tells whether it has free text, which is looked for in alerts as well.
func (q *Query) HasText() bool { return q.text }

// Labels are the keys of labels that the query names, sorted.
func (q *Query) Labels() []string { return q.labels }

func (q *Query) uses(c Column) {
	q.fields[c.field.Name] = true
	if c.field.Name == fieldLabel && !slices.Contains(q.labels, c.key) {
		q.labels = append(q.labels, c.key)
		slices.Sort(q.labels)
	}
}

// Equals is the term that means the sites with this value in a column, fit to be added
// to a query.
func Equals(c Column, value string) string {
	// Of a version without quotes 1.4 is 1.4.0 and 1.4+b7 as well.
	if c.field.Kind == Flag || c.field.Kind != Version && plainWord(value) && !strings.Contains(value, "*") {
		return c.Name() + "=" + value
	}
	return c.Name() + "=" + quote(value)
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func plainWord(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !wordRune(r) }) && s[0] != '/'
}
