package logquery

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"
)

// maxLucene is how many bytes an expression may have in Lucene's syntax, which has no names for
// classes of letters: of Elasticsearch's index.max_regex_length, 1000.
const maxLucene = 1000

// regexp takes /…/, in which \/ is a slash.
func (p *parser) regexp(s scope) (Node, error) {
	start := p.pos
	if s.field.Kind == Time || s.field.Name == "_exists_" {
		return nil, p.errorf(start, "a regular expression can't be used here")
	}
	var b strings.Builder
	for p.pos++; p.peek() != '/' || p.done(); p.pos++ {
		if p.done() {
			return nil, p.errorf(start, "the regular expression is not closed by a slash; to search for a slash, put the text in quotes")
		}
		if p.peek() == '\\' && p.pos+1 < len(p.text) {
			if p.pos++; p.peek() != '/' {
				b.WriteByte('\\')
			}
		}
		b.WriteByte(p.peek())
	}
	p.pos++
	if !p.done() && strings.IndexByte(" \t\r\n)~^]}", p.peek()) < 0 {
		return nil, p.errorf(p.pos, "a space is wanted behind a regular expression; to search for text with slashes, put it in quotes")
	}
	if err := p.noSuffix(); err != nil {
		return nil, err
	}
	if b.Len() > MaxRegexp {
		return nil, p.errorf(start, "the regular expression is longer than %d bytes", MaxRegexp)
	}
	if err := p.pattern(start); err != nil {
		return nil, err
	}
	n, steps, err := newRegexp(b.String(), s.field.Kind == Text || s.field.Kind == Lower)
	if err != nil {
		return nil, p.errorf(start, "%s", err)
	}
	if p.steps += steps; p.steps > MaxSteps {
		return nil, p.errorf(start, "the regular expressions of the query take %d steps for a character, written out, want at most %d: repeat less", p.steps, MaxSteps)
	}
	n.Field, n.Key = s.field, s.key
	return n, nil
}

// newRegexp reads an expression, and says how many instructions it has with its repetitions written out.
func newRegexp(text string, anyCase bool) (n Regexp, steps int, err error) {
	flags := syntax.Perl | syntax.DotNL
	if anyCase {
		flags |= syntax.FoldCase
	}
	tree, err := syntax.Parse(text, flags)
	if err != nil {
		return n, 0, fmt.Errorf("not a regular expression: %w", err)
	}
	var b strings.Builder
	if err := lucene(&b, tree); err != nil {
		return n, 0, err
	}
	if b.Len() > maxLucene {
		return n, 0, fmt.Errorf("the regular expression has %d bytes with its classes of letters written out, want at most %d: use smaller ones, such as [a-z]", b.Len(), maxLucene)
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return n, 0, err
	}
	re, err := regexp.Compile(`\A(?:` + tree.String() + `)\z`)
	if err != nil {
		return n, 0, err
	}
	return Regexp{Text: text, Lucene: b.String(), prefix: prefixOf(tree), re: re}, len(prog.Inst), nil
}

func prefixOf(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return string(re.Rune)
		}
	case syntax.OpConcat, syntax.OpCapture:
		return prefixOf(re.Sub[0])
	}
	return ""
}

var errAnchor = errors.New(`the whole value has to fit the regular expression: leave out ^, $, \A, \z, \b and \B, and write .* where anything may stand`)

// lucene writes the expression in the syntax that Elasticsearch takes (org.apache.lucene.util.automaton.RegExp
// with no flags), in which . is any character too.
func lucene(b *strings.Builder, re *syntax.Regexp) error {
	each := func(between string) error {
		for i, sub := range re.Sub {
			if i > 0 {
				b.WriteString(between)
			}
			if err := lucene(b, sub); err != nil {
				return err
			}
		}
		return nil
	}
	grouped := func(behind string) error {
		b.WriteByte('(')
		err := each("")
		b.WriteString(")" + behind)
		return err
	}
	switch re.Op {
	case syntax.OpEmptyMatch:
		b.WriteString("()")
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			other := unicode.SimpleFold(r)
			if re.Flags&syntax.FoldCase == 0 || other == r {
				escapeRune(b, r)
				continue
			}
			b.WriteByte('[')
			for escapeRune(b, r); other != r; other = unicode.SimpleFold(other) {
				escapeRune(b, other)
			}
			b.WriteByte(']')
		}
	case syntax.OpCharClass:
		b.WriteByte('[')
		for i := 0; i < len(re.Rune); i += 2 {
			escapeRune(b, re.Rune[i])
			if re.Rune[i] != re.Rune[i+1] {
				b.WriteByte('-')
				escapeRune(b, re.Rune[i+1])
			}
		}
		b.WriteByte(']')
		if len(re.Rune) == 0 {
			return errors.New("nothing fits the regular expression")
		}
	case syntax.OpAnyChar:
		b.WriteByte('.')
	case syntax.OpAnyCharNotNL:
		b.WriteString("[^\n]")
	case syntax.OpStar:
		return grouped("*")
	case syntax.OpPlus:
		return grouped("+")
	case syntax.OpQuest:
		return grouped("?")
	case syntax.OpRepeat:
		most := ""
		if re.Max >= 0 {
			most = strconv.Itoa(re.Max)
		}
		return grouped("{" + strconv.Itoa(re.Min) + "," + most + "}")
	case syntax.OpCapture:
		return grouped("")
	case syntax.OpConcat:
		return each("")
	case syntax.OpAlternate:
		b.WriteByte('(')
		err := each("|")
		b.WriteByte(')')
		return err
	case syntax.OpNoMatch:
		return errors.New("nothing fits the regular expression")
	default:
		return errAnchor
	}
	return nil
}

// escapeRune writes a character that stands for itself.
func escapeRune(b *strings.Builder, r rune) {
	if r > ' ' && r < 0x7f && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
		b.WriteByte('\\')
	}
	b.WriteRune(r)
}
