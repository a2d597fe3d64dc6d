// Package regexcost says what a regular expression takes before it is compiled: x{1000} is a
// thousand instructions, so that 4 KiB of text become 26 MB of memory, and a step of each of
// them for each character that is looked at. It reads text, and compiles nothing.
//
// Whoever takes expressions from tenants uses it: PromQL, silences, alert routes, policies.
package regexcost

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
)

// Program is about how many instructions a regular expression compiles to.
func Program(re *syntax.Regexp) float64 {
	size := 1.0
	if re.Op == syntax.OpLiteral || re.Op == syntax.OpCharClass {
		size = float64(max(1, len(re.Rune)))
	}
	for _, sub := range re.Sub {
		size += Program(sub)
	}
	if re.Op == syntax.OpRepeat {
		size *= float64(max(1, re.Min, re.Max))
	}
	return size
}

// Budget is what the expressions of one object may take together.
type Budget struct{ Left float64 }

// Take refuses what is no expression, and one for which nothing is left.
func (b *Budget) Take(pattern string) error {
	// By itself, not anchored: "a)|(b" would compile between "^(?:" and ")$".
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return fmt.Errorf("not a regular expression in RE2 syntax: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return b.take(Program(re))
}

// TakeText is Take for a text of which a part may be an expression, such as a matcher.
func (b *Budget) TakeText(text string) error { return b.take(atMost(text)) }

func (b *Budget) take(n float64) error {
	if n > b.Left {
		return fmt.Errorf("the regular expression has %.0f instructions, and of the object's %.0f are left: shorten it, x{1000} counts a thousand times", n, b.Left)
	}
	b.Left -= n
	return nil
}

var repetition = regexp.MustCompile(`\{(\d{1,4})(?:,(\d{0,4}))?\}`)

// maxRepeat is how often anything in an expression may be repeated, with all that stands around it.
const maxRepeat = 1000

// atMost is a bound of the instructions of whatever part of a text is an expression.
func atMost(text string) float64 {
	times := 1
	for _, m := range repetition.FindAllStringSubmatch(text, -1) {
		from, _ := strconv.Atoi(m[1])
		to, _ := strconv.Atoi(m[2])
		times = min(maxRepeat, times*max(1, from, to))
	}
	return float64(len(text) * times)
}
