package logquery

import (
	"strings"
	"unicode/utf8"
)

// Matcher is a leaf that looks at each value on its own: Wildcard, Regexp or Number. A store that has
// no better way goes through the values that there are.
type Matcher interface {
	Node
	// Of is the field, and for Labels the key.
	Of() (Field, string)
	// Prefix is what every value that it wants begins with; "" if there is no such.
	Prefix() string
	// Matches tells whether it wants the value, or for a Text field the word in lower case.
	Matches(value string) bool
}

func (n Wildcard) Of() (Field, string) { return n.Field, n.Key }
func (n Regexp) Of() (Field, string)   { return n.Field, n.Key }
func (n Number) Of() (Field, string)   { return n.Field, n.Key }

func (n Wildcard) Prefix() string { return n.Pattern[0].Literal }
func (n Regexp) Prefix() string   { return n.prefix }
func (n Number) Prefix() string   { return "" }

func (n Regexp) Matches(value string) bool { return n.re.MatchString(value) }

func (n Number) Matches(value string) bool {
	v, ok := parseNumber(value)
	switch {
	case !ok, v < n.From, v > n.To:
		return false
	case v == n.From && n.FromOpen, v == n.To && n.ToOpen:
		return false
	}
	return true
}

// Matches takes at most len(s) · len(n.Pattern) steps.
func (n Wildcard) Matches(s string) bool {
	star, retry := -1, ""
	i := 0
	for {
		if i < len(n.Pattern) && n.Pattern[i].Any {
			star, retry = i, s
			i++
			continue
		}
		if i == len(n.Pattern) && s == "" {
			return true
		}
		if i < len(n.Pattern) {
			if rest, ok := n.Pattern[i].cut(s); ok {
				s = rest
				i++
				continue
			}
		}
		if star < 0 || retry == "" {
			return false
		}
		_, n := utf8.DecodeRuneInString(retry)
		retry = retry[n:]
		s, i = retry, star+1
	}
}

// cut takes a literal, or the one character of ?, off the beginning.
func (p Piece) cut(s string) (rest string, ok bool) {
	if p.One {
		_, n := utf8.DecodeRuneInString(s)
		return s[n:], n > 0
	}
	return strings.CutPrefix(s, p.Literal)
}
