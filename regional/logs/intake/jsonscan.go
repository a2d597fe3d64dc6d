package intake

import (
	"bytes"
	"encoding/json"
	"errors"
)

// JSON is checked by the standard library's json.Valid, which allocates nothing and
// bounds the nesting; what it has passed is then walked in place. Building maps
// would cost a hostile sender's bytes some twenty times over.

func skipSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t' || b[0] == '\n' || b[0] == '\r') {
		b = b[1:]
	}
	return b
}

// jsonEnd is where the first value of b ends by its brackets and quotes alone;
// the value itself is not checked. It returns false if it does not end in b.
func jsonEnd(b []byte) (int, bool) {
	if len(b) == 0 {
		return 0, false
	}
	switch b[0] {
	case '{', '[':
	case '"':
		return stringEnd(b, 0)
	default:
		for i, c := range b {
			if c == ',' || c == '}' || c == ']' || c == ':' || c == ' ' || c == '\n' || c == '\r' || c == '\t' {
				return i, i > 0
			}
		}
		return len(b), true
	}
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, true
			}
		case '"':
			end, ok := stringEnd(b, i)
			if !ok {
				return 0, false
			}
			i = end - 1
		}
	}
	return 0, false
}

// stringEnd is the index behind the string that starts at i.
func stringEnd(b []byte, i int) (int, bool) {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1, true
		case '\\':
			i++
		}
	}
	return 0, false
}

// eachJSON walks the fields of a valid JSON object.
func eachJSON(raw []byte, f func(key []byte, val value) bool) {
	b := skipSpace(raw[1:])
	for len(b) > 0 && b[0] != '}' {
		end, ok := jsonEnd(b)
		if !ok {
			return
		}
		key := unquote(b[:end])
		b = skipSpace(skipSpace(b[end:])[1:]) // the colon
		if end, ok = jsonEnd(b); !ok {
			return
		}
		if !f(key, value{raw: b[:end], json: true}) {
			return
		}
		if b = skipSpace(b[end:]); len(b) > 0 && b[0] == ',' {
			b = skipSpace(b[1:])
		}
	}
}

var errNoObject = errors.New("want a JSON object")

// object checks one record.
func object(b []byte) (value, error) {
	if len(b) == 0 || b[0] != '{' || !json.Valid(b) {
		return value{}, errNoObject
	}
	return value{raw: b, json: true}, nil
}

// eachLine calls f for the records of newline-delimited JSON: one object a line.
// A line that is none is passed with an error, and the next one is good again.
func eachLine(body []byte, f func(value, error) bool) {
	for len(body) > 0 {
		line, rest, _ := bytes.Cut(body, []byte("\n"))
		body = rest
		if line = bytes.Trim(line, " \t\r"); len(line) == 0 {
			continue
		}
		if !f(object(line)) {
			return
		}
	}
}

// eachObject calls f for the records of a JSON array, or of objects one after
// another with or without space between them. What follows a broken one can't be
// told apart: it is passed as one error.
func eachObject(body []byte, f func(value, error) bool) {
	body = skipSpace(body)
	array := len(body) > 0 && body[0] == '['
	if array {
		body = body[1:]
	}
	for {
		if body = skipSpace(body); len(body) == 0 {
			if array {
				f(value{}, errShort)
			}
			return
		}
		if array && body[0] == ']' {
			if len(skipSpace(body[1:])) > 0 {
				f(value{}, errors.New("something follows the array"))
			}
			return
		}
		end, ok := jsonEnd(body)
		if !ok {
			f(value{}, errShort)
			return
		}
		v, err := object(body[:end])
		if !f(v, err) {
			return
		}
		if err != nil && body[0] != '{' && body[0] != '[' && body[0] != '"' {
			return // no JSON at all; more of it would only be counted
		}
		body = skipSpace(body[end:])
		if array && len(body) > 0 && body[0] == ',' {
			body = body[1:]
		} else if array && len(body) > 0 && body[0] != ']' {
			f(value{}, errors.New("want a comma between records"))
			return
		}
	}
}
