// Package filter decides which series leave a site: metric allowlist, then label
// blocklist, then aggregation of the series that became equal, then the series
// budget, in which the metrics that the policy reserves places for come first. It also carries staleness through all of that: a series that stops, or
// that the policy no longer lets through, ends with a stale marker.
//
// It is pure: no I/O, no goroutines, no clock. Times come in with the samples. The
// collector feeds it one scrape at a time.
package filter

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"muster.dev/muster/internal/fleet"
)

// op is how series that became equal are combined.
type op uint8

const (
	opNone op = iota // not at all: the later ones are dropped
	opSum
	opMax
	opMin
	opCount
)

var ops = map[string]op{"sum": opSum, "max": opMax, "min": opMin, "count": opCount}

// Policy is a compiled collection policy. It is immutable.
type Policy struct {
	names      map[string]struct{}
	patterns   *regexp.Regexp // nil: none
	keep       string
	dropLabels []string
	ops        map[string]op
	budget     int
	reserve    map[string]struct{}
	interval   int64 // milliseconds
}

// Compile checks and compiles a policy. The error names the field.
func Compile(p fleet.CollectionPolicy) (*Policy, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	c := &Policy{
		names: make(map[string]struct{}, len(p.AllowNames)), dropLabels: slices.Clone(p.DropLabels),
		ops: make(map[string]op, len(p.Aggregations)), budget: p.SeriesBudget, interval: p.Interval.Milliseconds(),
	}
	for _, n := range p.AllowNames {
		c.names[n] = struct{}{}
	}
	if len(p.AllowPatterns) > 0 {
		// Validate tried each alone; together they can still be too large.
		re, err := regexp.Compile("^(?:(?:" + strings.Join(p.AllowPatterns, ")|(?:") + "))$")
		if err != nil {
			return nil, fmt.Errorf("allow.patterns: %w", err)
		}
		c.patterns = re
	}
	c.reserve = make(map[string]struct{}, len(p.Reserve))
	for _, n := range p.Reserve {
		c.reserve[n] = struct{}{}
	}
	for name, o := range p.Aggregations {
		c.ops[name] = ops[o]
	}
	c.keep = keepRegexp(p)
	return c, nil
}

// Allows tells whether series of this metric leave the site.
func (p *Policy) Allows(name string) bool {
	if _, ok := p.names[name]; ok || name == "up" {
		return true
	}
	return p.patterns != nil && p.patterns.MatchString(name)
}

// Reserves tells whether places in the budget are reserved for series of this metric.
func (p *Policy) Reserves(name string) bool {
	_, ok := p.reserve[name]
	return ok
}

// KeepRegexp is the allowlist as one regular expression over the metric name, to
// be anchored at both ends: the form that a scrape's relabelling takes. A series
// that is dropped there costs the scrape loop far less memory than one that is
// dropped here.
func (p *Policy) KeepRegexp() string { return p.keep }

func keepRegexp(p fleet.CollectionPolicy) string {
	alternatives := []string{"up"}
	for _, n := range slices.Sorted(slices.Values(p.AllowNames)) {
		alternatives = append(alternatives, regexp.QuoteMeta(n))
	}
	for _, pat := range slices.Sorted(slices.Values(p.AllowPatterns)) {
		alternatives = append(alternatives, "(?:"+pat+")")
	}
	return strings.Join(slices.Compact(alternatives), "|")
}
