package logquery

import (
	"strconv"
	"strings"
)

// numberRange takes [a TO b] of whole numbers, where the stores hold text: it finds what a
// search for each of the numbers would find, and counts as that many words. So 500 is not
// between 5 and 60, as it would be by the alphabet, and 007 and 7.0 are not 7.
func (p *parser) numberRange(s scope) (Node, error) {
	start := p.pos
	const how = "want both ends of a range of whole numbers, such as [500 TO 599]"
	if c := p.peek(); c != '[' && c != '{' {
		return nil, p.errorf(start, "%s", how)
	}
	fromInclusive := p.peek() == '['
	p.pos++
	p.space()
	from, err := p.number(how)
	if err != nil {
		return nil, err
	}
	p.space()
	if !p.operator("TO") {
		return nil, p.errorf(p.pos, "a range is [FROM TO UNTIL]: TO is missing")
	}
	p.space()
	to, err := p.number(how)
	if err != nil {
		return nil, err
	}
	p.space()
	toInclusive := p.peek() == ']'
	if !toInclusive && p.peek() != '}' {
		return nil, p.errorf(start, "the range is not closed")
	}
	p.pos++
	if !fromInclusive {
		from++
	}
	if toInclusive {
		to++
	}
	switch n := to - from; {
	case n <= 0:
		return nil, p.errorf(start, "no whole number is in this range")
	case n > int64(MaxClauses-p.clauses):
		return nil, p.errorf(start, "%d numbers, of which each counts as a word, of %d in all: want a smaller range, or patterns such as 5*", n, MaxClauses)
	}
	var nodes Or
	for n := from; n < to; n++ {
		if err := p.leaf(start); err != nil {
			return nil, err
		}
		nodes = append(nodes, Term{s.field, s.key, strconv.FormatInt(n, 10)})
	}
	if err := p.noSuffix(); err != nil {
		return nil, err
	}
	if len(nodes) == 1 {
		return nodes[0], nil
	}
	return nodes, nil
}

// number takes one end of a range, of at most 15 digits.
func (p *parser) number(how string) (int64, error) {
	start := p.pos
	for !p.done() && strings.IndexByte(" \t\r\n]}", p.text[p.pos]) < 0 {
		p.pos++
	}
	text := p.text[start:p.pos]
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || len(text) > 15 || strconv.FormatInt(n, 10) != text {
		return 0, p.errorf(start, "%.20q is no whole number: %s", text, how)
	}
	return n, nil
}
