package logquery

import (
	"math"
	"strconv"
	"strings"
)

// numberRange takes [a TO b], {a TO b}, mixed brackets, or >, >=, <, <= and a number, where the
// stores hold text. So 500 is not between 5 and 60, as it would be by the alphabet.
func (p *parser) numberRange(s scope) (Node, error) {
	start := p.pos
	n := Number{Field: s.field, Key: s.key, From: math.Inf(-1), To: math.Inf(1)}
	var err error
	switch c := p.peek(); c {
	case '>', '<':
		p.pos++
		open := p.peek() != '='
		if !open {
			p.pos++
		}
		if c == '>' {
			n.FromOpen = open
			n.From, err = p.number(" \t\r\n)", n.From)
		} else {
			n.ToOpen = open
			n.To, err = p.number(" \t\r\n)", n.To)
		}
	default:
		err = p.numberBrackets(&n)
	}
	if err != nil {
		return nil, err
	}
	switch infinite := math.IsInf(n.From, 0) && math.IsInf(n.To, 0); {
	case n.From > n.To || n.From == n.To && (n.FromOpen || n.ToOpen):
		return nil, p.errorf(start, "no number is in this range")
	case infinite: // as in Lucene
		if err := p.leaf(start); err != nil {
			return nil, err
		}
		return Exists{s.field, s.key}, p.noSuffix()
	}
	if err := p.pattern(start); err != nil {
		return nil, err
	}
	return n, p.noSuffix()
}

func (p *parser) numberBrackets(n *Number) (err error) {
	start := p.pos
	n.FromOpen = p.peek() == '{'
	p.pos++
	p.space()
	if n.From, err = p.number(" \t\r\n]}", n.From); err != nil {
		return err
	}
	p.space()
	if !p.operator("TO") {
		return p.errorf(p.pos, "a range is [FROM TO UNTIL]: TO is missing")
	}
	p.space()
	if n.To, err = p.number(" \t\r\n]}", n.To); err != nil {
		return err
	}
	p.space()
	n.ToOpen = p.peek() == '}'
	if !n.ToOpen && p.peek() != ']' {
		return p.errorf(start, "the range is not closed")
	}
	p.pos++
	return nil
}

// number takes one end of a range, up to one of the ending bytes; * is the open one.
func (p *parser) number(end string, open float64) (float64, error) {
	start := p.pos
	for !p.done() && strings.IndexByte(end, p.text[p.pos]) < 0 {
		p.pos++
	}
	text := p.text[start:p.pos]
	if text == "*" {
		return open, nil
	}
	v, ok := parseNumber(text)
	if !ok {
		return 0, p.errorf(start, "%.20q is no number: want one such as 500, -3 or 0.25, or * for an open end", text)
	}
	return v, nil
}

// parseNumber reads a number as people write it: digits, at most 15 before the point and 15 behind it.
// What else a computer would take for one, such as 1e5 and Infinity, is as often a name.
func parseNumber(text string) (float64, bool) {
	whole, fraction, point := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	digits := func(s string) bool { return s != "" && len(s) <= 15 && strings.Trim(s, "0123456789") == "" }
	if !digits(whole) || point && !digits(fraction) {
		return 0, false
	}
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil
}
