// Package logquery parses Muster's log queries, a subset of Lucene's query
// string syntax, into a tree that every store translates for itself. One parser for
// all stores is what makes the same text find the same records in each of them, and
// what bounds a hostile query before a store sees it.
//
// It reads text and a table of fields and does no I/O. The log stores call it, and
// whoever wants to check a query before sending it.
//
// The language:
//
//	timeout                      the word, in the message
//	"out of memory"              the words, next to each other
//	severity:error               a field's exact value (severity in any case)
//	pod:(checkout-1 OR web-1)    several values for one field
//	pod:checkout-*  con?ection   * is any run, ? any one character
//	labels.app:web  labels.app:*we*   a label
//	labels.path:/\/api\/v[12].*/   a regular expression (RE2) that the whole value fits
//	pod:*  _exists_:pod          the field is there
//	@timestamp:[2026-11-21 TO now-1h}   a range; [ ] include their end, { } don't, * is open
//	@timestamp:>=2026-11-21T10:00:00Z   the same with one end
//	labels.status:[500 TO 599]   values that are numbers, such as 500, 503 and 599.0
//	labels.status:>=500  labels.took:{0.5 TO *]   the same with one end
//	a AND b  a && b  a b         both
//	a OR b   a || b              one of them
//	NOT a    !a  -a              the records without it
//	( … )                        grouping
//	\                            takes the next character as it stands
//
// Differences from Lucene's classic parser: words side by side mean AND (there a
// record matches with any one of them, which its order by score makes up for; log
// records are ordered by time); NOT binds tighter than AND, and AND tighter than OR; +a
// is a. Ranges over labels and keywords are of numbers, not of the alphabet. A regular
// expression or a pattern over the message has to fit one word of it, in any case of its letters.
// Fuzzy terms (a~), proximity ("a b"~3), boosts (a^2) and ranges over anything else are
// refused with an error that says so.
package logquery

import (
	"fmt"
	"regexp"
	"time"
)

// Bounds on one query, so that no text can cost much more than another.
const (
	MaxLength    = 4096 // bytes of text
	MaxDepth     = 50   // of parentheses and NOTs
	MaxClauses   = 256  // leaves
	MaxWildcards = 16   // leaves that are patterns, regular expressions or ranges of numbers
	MaxPattern   = 128  // bytes of one pattern
	MaxRegexp    = 200  // bytes of one regular expression
	MaxSteps     = 1000 // that a query's regular expressions take for a character, with their repetitions written out
)

// Kind says how a field's values are matched.
type Kind int

const (
	Keyword Kind = iota // whole value, as written
	Lower               // whole value, stored in lower case, matched in any
	Text                // analysed into words
	Time
	Labels // a field a key: FIELD.KEY:VALUE, each a Keyword
)

// Field is one field that queries may name.
type Field struct {
	Name string // as the stores know it
	Kind Kind
}

// Fields are the fields a query may name, by each name that it may use for them.
// The name "" is the field searched when a query names none.
type Fields map[string]Field

// Node is one part of a parsed query: And, Or, Not, All, Term, Wildcard, Regexp, Number, Exists or Range.
type Node interface{ node() }

type (
	// And holds where all of its (at least two) nodes do.
	And []Node
	// Or holds where one of its (at least two) nodes does.
	Or []Node
	// Not holds where its node doesn't.
	Not struct{ Node Node }
	// All holds everywhere; an empty query is All.
	All struct{}
	// Term wants a value of a Keyword field, or words next to each other of a Text field.
	// Key is set for Labels only, here and below.
	Term struct {
		Field Field
		Key   string
		Value string
	}
	// Wildcard wants a value, or for a Text field one word, of the pattern's form.
	Wildcard struct {
		Field   Field
		Key     string
		Pattern []Piece
	}
	// Regexp wants a value, or for a Text field one word, that all of the expression fits.
	Regexp struct {
		Field  Field
		Key    string
		Text   string // RE2
		Lucene string // the same in Lucene's own syntax, without its optional operators
		prefix string
		re     *regexp.Regexp
	}
	// Number wants a value that is a number from From to To, which are infinite for an open end.
	Number struct {
		Field            Field
		Key              string
		From, To         float64
		FromOpen, ToOpen bool // the end itself is not in it
	}
	// Exists wants any value.
	Exists struct {
		Field Field
		Key   string
	}
	// Range is From ≤ t < To; a zero time is an open end.
	Range struct {
		Field    Field
		From, To time.Time
	}
)

func (And) node()      {}
func (Or) node()       {}
func (Not) node()      {}
func (All) node()      {}
func (Term) node()     {}
func (Wildcard) node() {}
func (Regexp) node()   {}
func (Number) node()   {}
func (Exists) node()   {}
func (Range) node()    {}

// Piece of a pattern: a literal, or one of the two wildcards.
type Piece struct {
	Literal string // set when both others are false
	Any     bool   // *
	One     bool   // ?
}

// Error is what is wrong with a query, and where.
type Error struct {
	Pos int // bytes before the place in the text, from 0
	Msg string
}

func (e *Error) Error() string { return fmt.Sprintf("query, at character %d: %s", e.Pos+1, e.Msg) }
