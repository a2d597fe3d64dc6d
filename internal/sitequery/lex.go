package sitequery

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind int

const (
	tokenEnd tokenKind = iota
	tokenWord
	tokenQuoted
	tokenRegexp
	tokenOperator
	tokenOpen
	tokenClose
	tokenComma
)

type token struct {
	kind     tokenKind
	text     string // without quotes and escapes
	from, to int    // in the query, in bytes
}

// is tells whether the token is a keyword.
func (t token) is(keyword string) bool {
	return t.kind == tokenWord && strings.EqualFold(t.text, keyword)
}

func wordRune(r rune) bool {
	return !unicode.IsSpace(r) && !strings.ContainsRune(`"(),=!<>~`, r) && unicode.IsPrint(r)
}

var operators = []string{"!=", "<=", ">=", "!~", "=", "<", ">", "~"}

// next reads the token that begins at offset from; afterTilde says that a value follows
// that may be a regular expression.
func next(text string, from int, afterTilde bool) (token, *Error) {
	for from < len(text) {
		r, n := utf8.DecodeRuneInString(text[from:])
		if !unicode.IsSpace(r) {
			break
		}
		from += n
	}
	t := token{from: from, to: from}
	if from == len(text) {
		return t, nil
	}
	rest := text[from:]
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			return token{tokenOperator, op, from, from + len(op)}, nil
		}
	}
	switch rest[0] {
	case '(':
		return token{tokenOpen, "(", from, from + 1}, nil
	case ')':
		return token{tokenClose, ")", from, from + 1}, nil
	case ',':
		return token{tokenComma, ",", from, from + 1}, nil
	case '!':
		return t, &Error{Offset: from, Length: 1, Detail: "a ! stands before = or ~; to turn a term round, write NOT before it"}
	case '"':
		s, n, ok := quoted(rest, '"')
		if !ok {
			return t, &Error{Offset: from, Length: len(rest), Detail: `the text has no closing "`}
		}
		return token{tokenQuoted, s, from, from + n}, nil
	}
	if afterTilde && rest[0] == '/' {
		s, n, ok := quoted(rest, '/')
		if !ok {
			return t, &Error{Offset: from, Length: len(rest), Detail: "the regular expression has no closing /; a text that begins with / needs quotes"}
		}
		return token{tokenRegexp, s, from, from + n}, nil
	}
	n := strings.IndexFunc(rest, func(r rune) bool { return !wordRune(r) })
	switch {
	case n < 0:
		n = len(rest)
	case n == 0:
		r, size := utf8.DecodeRuneInString(rest)
		return t, &Error{Offset: from, Length: size, Detail: fmt.Sprintf("%q can't stand here; put text with it in quotes", r)}
	}
	return token{tokenWord, rest[:n], from, from + n}, nil
}

// quoted reads what stands between two delimiters. A backslash takes the delimiter, and in
// text itself, literally; a regular expression keeps its other escapes.
func quoted(rest string, delimiter byte) (text string, length int, ok bool) {
	var b strings.Builder
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == delimiter:
			return b.String(), i + 1, true
		case c == '\\' && i+1 < len(rest) && (rest[i+1] == delimiter || delimiter == '"' && rest[i+1] == '\\'):
			i++
			b.WriteByte(rest[i])
		case c == '\\' && delimiter == '/' && i+1 < len(rest):
			b.WriteByte(c)
			i++
			b.WriteByte(rest[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, false
}
