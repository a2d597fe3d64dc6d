package logquery

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Parse reads a query. Its errors are *Error. now is what "now" in a range means.
func Parse(text string, fields Fields, now time.Time) (Node, error) {
	if len(text) > MaxLength {
		return nil, &Error{MaxLength, fmt.Sprintf("the query is longer than %d bytes", MaxLength)}
	}
	if !utf8.ValidString(text) {
		return nil, &Error{0, "the query is not valid UTF-8"}
	}
	p := &parser{text: text, fields: fields, now: now}
	p.space()
	if p.done() {
		return All{}, nil
	}
	n, err := p.or(scope{field: fields[""]})
	if err != nil {
		return nil, err
	}
	if !p.done() { // only a closing bracket ends an expression early
		return nil, p.errorf(p.pos, "%q closes nothing", p.text[p.pos:p.pos+1])
	}
	return n, nil
}

type parser struct {
	text      string
	pos       int
	fields    Fields
	now       time.Time
	depth     int
	clauses   int
	wildcards int
	steps     int
}

// scope is the field that bare values belong to.
type scope struct {
	field Field
	key   string
	named bool
}

func (p *parser) errorf(pos int, format string, args ...any) error {
	return &Error{pos, fmt.Sprintf(format, args...)}
}

func (p *parser) done() bool { return p.pos >= len(p.text) }

func (p *parser) peek() byte {
	if p.done() {
		return 0
	}
	return p.text[p.pos]
}

func (p *parser) space() {
	for !p.done() && strings.IndexByte(" \t\r\n", p.text[p.pos]) >= 0 {
		p.pos++
	}
}

// operator takes one of the words if it stands here on its own.
func (p *parser) operator(words ...string) bool {
	for _, w := range words {
		rest, ok := strings.CutPrefix(p.text[p.pos:], w)
		if !ok {
			continue
		}
		letters := w[0] >= 'A'
		if w == "||" || !letters || rest == "" || strings.IndexByte(" \t\r\n()", rest[0]) >= 0 {
			p.pos += len(w)
			p.space()
			return true
		}
	}
	return false
}

// at says whether one of the words stands here, without taking it.
func (p *parser) at(words ...string) bool {
	before := p.pos
	ok := p.operator(words...)
	p.pos = before
	return ok
}

func (p *parser) or(s scope) (Node, error) {
	var nodes Or
	for {
		n, err := p.and(s)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
		if !p.operator("OR", "||") {
			break
		}
	}
	if len(nodes) == 1 {
		return nodes[0], nil
	}
	return nodes, nil
}

func (p *parser) and(s scope) (Node, error) {
	var nodes And
	for {
		n, err := p.not(s)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
		p.space()
		if p.operator("AND", "&&") {
			continue
		}
		if p.done() || p.peek() == ')' || p.at("OR", "||") {
			break
		}
	}
	if len(nodes) == 1 {
		return nodes[0], nil
	}
	return nodes, nil
}

func (p *parser) not(s scope) (Node, error) {
	p.space()
	if p.peek() == '+' {
		p.pos++
		p.space()
	}
	if p.operator("NOT", "!", "-") {
		if err := p.deeper(); err != nil {
			return nil, err
		}
		defer p.shallower()
		n, err := p.not(s)
		if err != nil {
			return nil, err
		}
		return Not{n}, nil
	}
	return p.clause(s)
}

func (p *parser) deeper() error {
	if p.depth++; p.depth > MaxDepth {
		return p.errorf(p.pos, "more than %d levels deep", MaxDepth)
	}
	return nil
}

func (p *parser) shallower() { p.depth-- }

func (p *parser) clause(s scope) (Node, error) {
	start := p.pos
	switch c := p.peek(); {
	case p.done():
		return nil, p.errorf(start, "the query ends where a word or a phrase is wanted")
	case c == '(':
		return p.group(s)
	case c == ')':
		return nil, p.errorf(start, "a word or a phrase is wanted before %q", ")")
	case c == '"':
		return p.phrase(s)
	case p.at("AND", "&&", "OR", "||"):
		return nil, p.errorf(start, "a word or a phrase is wanted before the operator; to search for the word itself, put it in quotes")
	case c == '[' || c == '{' || c == '>' || c == '<':
		return p.timeRange(s)
	}
	if !s.named && p.peek() != '/' {
		if inner, ok, err := p.fieldName(); err != nil {
			return nil, err
		} else if ok {
			if p.peek() == ' ' || p.done() {
				return nil, p.errorf(p.pos, "a value is wanted right after %q", p.text[start:p.pos])
			}
			if p.peek() == ')' {
				return nil, p.errorf(p.pos, "a value is wanted right after %q", p.text[start:p.pos])
			}
			return p.clause(inner)
		}
	}
	return p.word(s)
}

func (p *parser) group(s scope) (Node, error) {
	open := p.pos
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer p.shallower()
	p.pos++
	n, err := p.or(s)
	if err != nil {
		return nil, err
	}
	if p.peek() != ')' {
		return nil, p.errorf(open, "the parenthesis is not closed")
	}
	p.pos++
	return n, p.noSuffix()
}

// fieldName takes NAME: if that is what comes next. A colon that follows no known
// field is an error, not text: a misspelt field would otherwise find nothing, silently.
func (p *parser) fieldName() (scope, bool, error) {
	i := p.pos
	for i < len(p.text) && isNameByte(p.text[i]) {
		i++
	}
	if i == p.pos || i == len(p.text) || p.text[i] != ':' {
		return scope{}, false, nil
	}
	start, name := p.pos, p.text[p.pos:i]
	p.pos = i + 1
	if name == "_exists_" {
		return scope{field: Field{Name: name}, named: true}, true, nil
	}
	s, err := p.lookup(start, name)
	return s, err == nil, err
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '@' || c == '-' || c == '/'
}

func (p *parser) lookup(pos int, name string) (scope, error) {
	if f, ok := p.fields[name]; ok && name != "" && f.Kind != Labels {
		return scope{field: f, named: true}, nil
	}
	if prefix, key, ok := strings.Cut(name, "."); ok {
		if f, ok := p.fields[prefix]; ok && f.Kind == Labels && key != "" {
			return scope{field: f, key: key, named: true}, nil
		}
	}
	var known []string
	for _, n := range slices.Sorted(maps.Keys(p.fields)) {
		if p.fields[n].Kind == Labels {
			n += ".KEY"
		}
		if n != "" {
			known = append(known, n)
		}
	}
	return scope{}, p.errorf(pos, "there is no field %q (if it is text to search for, put it in quotes); the fields are %s", name, strings.Join(known, ", "))
}

func (p *parser) leaf(pos int) error {
	if p.clauses++; p.clauses > MaxClauses {
		return p.errorf(pos, "more than %d words and phrases", MaxClauses)
	}
	return nil
}

// pattern counts a leaf for which a store may have to look at many values.
func (p *parser) pattern(pos int) error {
	if p.wildcards++; p.wildcards > MaxWildcards {
		return p.errorf(pos, "more than %d patterns, regular expressions and ranges of numbers", MaxWildcards)
	}
	return p.leaf(pos)
}

func (p *parser) phrase(s scope) (Node, error) {
	start := p.pos
	value, err := p.quoted()
	if err != nil {
		return nil, err
	}
	if err := p.noSuffix(); err != nil {
		return nil, err
	}
	return p.term(s, start, value)
}

// quoted takes a quoted string.
func (p *parser) quoted() (string, error) {
	start := p.pos
	var b strings.Builder
	for p.pos++; ; p.pos++ {
		switch c := p.peek(); {
		case p.done():
			return "", p.errorf(start, "the quote is not closed")
		case c == '"':
			p.pos++
			return b.String(), nil
		case c == '\\' && p.pos+1 < len(p.text):
			p.pos++
			b.WriteByte(p.text[p.pos])
		default:
			b.WriteByte(c)
		}
	}
}

func (p *parser) term(s scope, pos int, value string) (Node, error) {
	if err := p.leaf(pos); err != nil {
		return nil, err
	}
	switch {
	case s.field.Name == "_exists_":
		f, err := p.lookup(pos, value)
		return Exists{f.field, f.key}, err
	case s.field.Kind == Time:
		from, to, err := parseTime(value, p.now)
		if err != nil {
			return nil, p.errorf(pos, "%s", err)
		}
		if to.Equal(from) {
			to = from.Add(1)
		}
		return Range{s.field, from, to}, nil
	case s.field.Kind == Lower:
		value = strings.ToLower(value)
	}
	return Term{s.field, s.key, value}, nil
}

// word takes an unquoted value, which may be a pattern.
func (p *parser) word(s scope) (Node, error) {
	start := p.pos
	if p.peek() == '/' {
		return p.regexp(s)
	}
	pieces, wild, err := p.pieces()
	if err != nil {
		return nil, err
	}
	if err := p.noSuffix(); err != nil {
		return nil, err
	}
	if !wild {
		return p.term(s, start, pieces[0].Literal)
	}
	if len(pieces) == 1 && pieces[0].Any {
		if err := p.leaf(start); err != nil {
			return nil, err
		}
		if !s.named {
			return All{}, nil
		}
		if s.field.Name == "_exists_" {
			return nil, p.errorf(start, "_exists_ wants the name of a field")
		}
		return Exists{s.field, s.key}, nil
	}
	return p.wildcard(s, start, pieces)
}

func (p *parser) wildcard(s scope, start int, pieces []Piece) (Node, error) {
	switch {
	case s.field.Kind == Time || s.field.Name == "_exists_":
		return nil, p.errorf(start, "a pattern can't be used here")
	case p.pos-start > MaxPattern:
		return nil, p.errorf(start, "the pattern is longer than %d bytes", MaxPattern)
	}
	if err := p.pattern(start); err != nil {
		return nil, err
	}
	if s.field.Kind == Text || s.field.Kind == Lower {
		for i := range pieces {
			pieces[i].Literal = strings.ToLower(pieces[i].Literal)
		}
	}
	return Wildcard{s.field, s.key, pieces}, nil
}

// pieces splits an unquoted value at its wildcards. A run of * counts once.
func (p *parser) pieces() (pieces []Piece, wild bool, err error) {
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			pieces = append(pieces, Piece{Literal: b.String()})
			b.Reset()
		}
	}
	start := p.pos
loop:
	for ; !p.done(); p.pos++ {
		switch c := p.text[p.pos]; c {
		case ' ', '\t', '\r', '\n', '(', ')', '"', '[', ']', '{', '}', '~', '^':
			break loop
		case '*':
			flush()
			wild = true
			if len(pieces) == 0 || !pieces[len(pieces)-1].Any {
				pieces = append(pieces, Piece{Any: true})
			}
		case '?':
			flush()
			wild = true
			pieces = append(pieces, Piece{One: true})
		case ':':
			return nil, false, p.errorf(p.pos, "a colon stands between a field and a value; to search for it, put the text in quotes")
		case '\\':
			if p.pos+1 >= len(p.text) {
				return nil, false, p.errorf(p.pos, "the query ends with a backslash")
			}
			p.pos++
			b.WriteByte(p.text[p.pos])
		default:
			b.WriteByte(c)
		}
	}
	flush()
	if len(pieces) == 0 {
		return nil, false, p.errorf(start, "%q is not expected here; to search for it, put it in quotes", p.text[start:start+1])
	}
	return pieces, wild, nil
}

// noSuffix refuses what Lucene allows after a value and this language doesn't.
func (p *parser) noSuffix() error {
	switch p.peek() {
	case '~':
		return p.errorf(p.pos, "fuzzy and proximity searches (~) are not supported")
	case '^':
		return p.errorf(p.pos, "boosts (^) are not supported: records are ordered by time")
	case ']', '}':
		return p.errorf(p.pos, "%q closes nothing", p.text[p.pos:p.pos+1])
	}
	return nil
}
