package sitequery

import (
	"fmt"
	"strings"
)

type parser struct {
	text  string
	query *Query
	tok   token // the next one
	terms int
	depth int
	steps int // of all its regular expressions
}

func (p *parser) parse() *Error {
	if err := p.advance(false); err != nil {
		return err
	}
	if p.tok.kind == tokenEnd {
		return nil
	}
	root, err := p.or()
	if err != nil {
		return err
	}
	if p.tok.kind != tokenEnd { // only a parenthesis ends an expression before the end
		return p.wrong(p.tok, "there is no ( for this )")
	}
	p.query.root = root
	return nil
}

func (p *parser) advance(afterTilde bool) *Error {
	t, err := next(p.text, p.tok.to, afterTilde)
	p.tok = t
	return err
}

func (p *parser) wrong(t token, format string, args ...any) *Error {
	return &Error{Offset: t.from, Length: t.to - t.from, Detail: fmt.Sprintf(format, args...)}
}

func (p *parser) or() (node, *Error) {
	var any anyOf
	for {
		n, err := p.and()
		if err != nil {
			return nil, err
		}
		any = append(any, n)
		if !p.tok.is("or") {
			break
		}
		if err := p.advance(false); err != nil {
			return nil, err
		}
	}
	if len(any) == 1 {
		return any[0], nil
	}
	return any, nil
}

func (p *parser) and() (node, *Error) {
	var all allOf
	for {
		n, err := p.not()
		if err != nil {
			return nil, err
		}
		all = append(all, n)
		if p.tok.is("and") {
			if err := p.advance(false); err != nil {
				return nil, err
			}
			continue
		}
		if p.tok.kind == tokenEnd || p.tok.kind == tokenClose || p.tok.is("or") {
			break
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return all, nil
}

func (p *parser) not() (node, *Error) {
	turned := false
	for p.tok.is("not") {
		turned = !turned
		if err := p.advance(false); err != nil {
			return nil, err
		}
	}
	n, err := p.term()
	if err == nil && turned {
		n = none{n}
	}
	return n, err
}

func (p *parser) term() (node, *Error) {
	if p.terms++; p.terms > maxTerms {
		return nil, p.wrong(p.tok, "want at most %d terms", maxTerms)
	}
	t := p.tok
	switch t.kind {
	case tokenOpen:
		return p.parentheses()
	case tokenQuoted:
		if err := p.advance(false); err != nil {
			return nil, err
		}
		if p.tok.kind == tokenOperator || p.tok.is("in") {
			return nil, p.wrong(t, "a field's name stands without quotes")
		}
		return p.free(t), nil
	case tokenWord:
		return p.comparison()
	case tokenOperator:
		return nil, p.wrong(t, "%s needs a field before it, such as score%s60", t.text, t.text)
	case tokenEnd:
		return nil, p.wrong(t, "a term is missing at the end")
	}
	return nil, p.wrong(t, "want a term such as score<60 here, not %q", t.text)
}

func (p *parser) parentheses() (node, *Error) {
	open := p.tok
	if p.depth++; p.depth > maxDepth {
		return nil, p.wrong(open, "want at most %d parentheses in each other", maxDepth)
	}
	if err := p.advance(false); err != nil {
		return nil, err
	}
	n, err := p.or()
	if err != nil {
		return nil, err
	}
	if p.tok.kind != tokenClose {
		return nil, p.wrong(open, "there is no ) for this (")
	}
	p.depth--
	return n, p.advance(false)
}

// comparison reads FIELD OPERATOR VALUE, FIELD [not] in (VALUES), or a word to look for.
func (p *parser) comparison() (node, *Error) {
	name := p.tok
	if name.is("and") || name.is("or") {
		return nil, p.wrong(name, "%s stands between two terms; to look for the word, put it in quotes", strings.ToUpper(name.text))
	}
	if err := p.advance(false); err != nil {
		return nil, err
	}
	op := p.tok
	negate := false
	if op.is("not") && p.inFollows() {
		negate = true
		if err := p.advance(false); err != nil {
			return nil, err
		}
		op = p.tok
	}
	if op.kind != tokenOperator && (!op.is("in") || !negate && !p.openFollows()) {
		return p.word(name)
	}
	c, err := ParseColumn(name.text)
	if err != nil {
		return nil, p.wrong(name, "%s", err)
	}
	p.query.uses(c)
	if op.kind == tokenWord {
		n, err := p.in(name, c)
		if err == nil && negate {
			n = none{n}
		}
		return n, err
	}
	if err := p.advance(op.text == "~" || op.text == "!~"); err != nil {
		return nil, err
	}
	v := p.tok
	switch v.kind {
	case tokenWord, tokenQuoted, tokenRegexp:
	case tokenEnd:
		return nil, p.wrong(v, "%s%s needs a value; for none write %s%s\"\"", name.text, op.text, name.text, op.text)
	default:
		return nil, p.wrong(v, "want a value behind %s%s, not %q; put text with it in quotes", name.text, op.text, v.text)
	}
	n, wrong := p.compare(name, c, op.text, v)
	if wrong != nil {
		return nil, wrong
	}
	return n, p.advance(false)
}

// word is free text without quotes. What is a field's name was hardly meant so.
func (p *parser) word(t token) (node, *Error) {
	if c, err := ParseColumn(t.text); err == nil && c.field.Name != fieldLabel {
		return nil, p.wrong(t, "%s needs an operator and a value, such as %s; to look for the word, put it in quotes", t.text, c.field.Example)
	}
	return p.free(t), nil
}

func (p *parser) inFollows() bool {
	t, err := next(p.text, p.tok.to, false)
	return err == nil && t.is("in")
}

func (p *parser) openFollows() bool {
	t, err := next(p.text, p.tok.to, false)
	return err == nil && t.kind == tokenOpen
}

// in reads the list behind the keyword, at which the parser stands.
func (p *parser) in(name token, c Column) (node, *Error) {
	if err := p.advance(false); err != nil {
		return nil, err
	}
	if p.tok.kind != tokenOpen {
		return nil, p.wrong(p.tok, "want a list behind in, such as %s in (a, b)", name.text)
	}
	var any anyOf
	for {
		if err := p.advance(false); err != nil {
			return nil, err
		}
		v := p.tok
		if v.kind != tokenWord && v.kind != tokenQuoted {
			return nil, p.wrong(v, "want a value here, as in %s in (a, b)", name.text)
		}
		if p.terms++; p.terms > maxTerms {
			return nil, p.wrong(v, "want at most %d terms and values", maxTerms)
		}
		n, err := p.compare(name, c, "=", v)
		if err != nil {
			return nil, err
		}
		any = append(any, n)
		if err := p.advance(false); err != nil {
			return nil, err
		}
		switch p.tok.kind {
		case tokenComma:
		case tokenClose:
			return any, p.advance(false)
		default:
			return nil, p.wrong(p.tok, "want a comma or ) here; values with spaces need quotes")
		}
	}
}

func (p *parser) free(t token) node {
	p.query.text = true
	return freeText(strings.ToLower(t.text))
}
