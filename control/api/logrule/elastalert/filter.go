package elastalert

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster.dev/muster/internal/logquery"
)

// filter makes a query of a list of Elasticsearch's queries, all of which have to hold.
func (t *translator) filter(name string, to *string) error {
	v, ok := t.take(name)
	if !ok {
		return nil
	}
	text, err := t.every(v)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if _, err := logquery.Parse(text, logquery.LogFields(), time.Unix(0, 0)); err != nil {
		return fmt.Errorf("%s: became %s, and that is no query: %w", name, text, err)
	}
	*to = text
	return nil
}

// every is one query, or a list of which all hold.
func (t *translator) every(v any) (string, error) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	var parts []string
	for i, q := range list {
		of, ok := q.(map[string]any)
		if !ok || len(of) != 1 {
			return "", fmt.Errorf("[%d]: want one query, such as {term: {FIELD: VALUE}}", i)
		}
		for kind, body := range of {
			text, err := t.query(kind, body)
			if err != nil {
				return "", fmt.Errorf("[%d].%s: %w", i, kind, err)
			}
			if text != "" {
				parts = append(parts, text)
			}
		}
	}
	return strings.Join(parts, " AND "), nil
}

func (t *translator) query(kind string, body any) (string, error) {
	of, _ := body.(map[string]any)
	switch kind {
	case "query":
		return t.every(body)
	case "query_string":
		text, ok := of["query"].(string)
		if !ok {
			return "", errors.New("want query: TEXT")
		}
		return "(" + t.fieldsOf(strings.TrimSpace(text)) + ")", nil
	case "match_all":
		return "", nil
	case "type":
		t.remark("filter: type %v: lines have no document type here", of["value"])
		return "", nil
	case "term", "match", "match_phrase", "match_phrase_prefix", "terms", "prefix", "wildcard":
		return t.values(kind, of)
	case "exists":
		f, ok := of["field"].(string)
		if !ok {
			return "", errors.New("want field: NAME")
		}
		return "_exists_:" + t.field(f), nil
	case "range":
		return t.between(of)
	case "not":
		inner, err := t.every(body)
		return "NOT (" + inner + ")", err
	case "and", "or":
		return t.some(body, map[string]string{"and": " AND ", "or": " OR "}[kind])
	case "bool":
		return t.boolean(of)
	}
	return "", fmt.Errorf("it is not known: write it as a query_string; known are bool, exists, match, match_phrase, prefix, query_string, range, term, terms, wildcard")
}

func (t *translator) some(body any, operator string) (string, error) {
	list, ok := body.([]any)
	if !ok {
		list = []any{body}
	}
	var parts []string
	for _, q := range list {
		text, err := t.every(q)
		if err != nil {
			return "", err
		}
		if text != "" {
			parts = append(parts, "("+text+")")
		}
	}
	if len(parts) == 0 {
		return "", nil
	}
	return "(" + strings.Join(parts, operator) + ")", nil
}

func (t *translator) boolean(of map[string]any) (string, error) {
	var parts []string
	for _, part := range slices.Sorted(maps.Keys(of)) {
		operator, not := " AND ", ""
		switch part {
		case "must", "filter":
		case "should":
			operator = " OR "
		case "must_not":
			operator, not = " OR ", "NOT "
		case "minimum_should_match":
			if fmt.Sprint(of[part]) != "1" {
				return "", fmt.Errorf("minimum_should_match: %v: want 1", of[part])
			}
			continue
		default:
			return "", fmt.Errorf("%s: want must, filter, should or must_not", part)
		}
		text, err := t.some(of[part], operator)
		if err != nil {
			return "", fmt.Errorf("%s: %w", part, err)
		}
		if text != "" {
			parts = append(parts, not+text)
		}
	}
	return strings.Join(parts, " AND "), nil
}

// values is FIELD: VALUE, in the forms that Elasticsearch has for it.
func (t *translator) values(kind string, of map[string]any) (string, error) {
	delete(of, "boost")
	if len(of) != 1 {
		return "", errors.New("want {FIELD: VALUE}")
	}
	for name, v := range of {
		if long, ok := v.(map[string]any); ok {
			for _, key := range []string{"value", "query", "wildcard"} {
				if inner, ok := long[key]; ok {
					v = inner
				}
			}
		}
		field := t.field(name)
		if field == "" { // _type
			return "", nil
		}
		var parts []string
		for _, value := range texts(v) {
			switch kind {
			case "prefix":
				value = escape(value) + "*"
			case "wildcard":
				value = escape(value, '*', '?')
			default:
				value = quote(value)
			}
			parts = append(parts, field+":"+value)
		}
		if len(parts) == 1 {
			return parts[0], nil
		}
		return "(" + strings.Join(parts, " OR ") + ")", nil
	}
	return "", nil
}

// between is a range of times or of whole numbers.
func (t *translator) between(of map[string]any) (string, error) {
	if len(of) != 1 {
		return "", errors.New("want {FIELD: {gte: FROM, lt: UNTIL}}")
	}
	for name, v := range of {
		field, ends := t.field(name), [2]string{"*", "*"}
		brackets := [2]string{"[", "]"}
		bounds, _ := v.(map[string]any)
		for op, bound := range bounds {
			text := fmt.Sprint(bound)
			if f, ok := bound.(float64); ok {
				text = strconv.FormatFloat(f, 'f', -1, 64)
			}
			switch op {
			case "gte", "from":
				ends[0] = text
			case "gt":
				ends[0], brackets[0] = text, "{"
			case "lte", "to":
				ends[1] = text
			case "lt":
				ends[1], brackets[1] = text, "}"
			case "format", "time_zone":
			default:
				return "", fmt.Errorf("%s: want gt, gte, lt or lte", op)
			}
		}
		return field + ":" + brackets[0] + ends[0] + " TO " + ends[1] + brackets[1], nil
	}
	return "", nil
}

// known are the fields that lines of Elasticsearch have as well: those of the Elastic Common
// Schema. Muster's own short names, such as id and node, mean another field there.
var known = func() map[string]bool {
	out := map[string]bool{logquery.FieldMessage: true, logquery.FieldTimestamp: true, "level": true, "severity": true}
	for name := range logquery.LogFields() {
		if strings.Contains(name, ".") {
			out[name] = true
		}
	}
	return out
}()

// field is the name that a field of Elasticsearch has here: its own, or that of a label.
func (t *translator) field(name string) string {
	name = strings.TrimSuffix(name, ".keyword")
	if name == "_type" || name == "" {
		t.remark("filter: %s: lines have no document type here", name)
		return ""
	}
	if name == "@message" { // of the first Logstash
		return logquery.FieldMessage
	}
	if known[name] || strings.HasPrefix(name, logquery.FieldLabels+".") {
		return name
	}
	return logquery.FieldLabels + "." + name
}

// fieldsOf is a query string with the fields' names that they have here. What stands in
// quotes or behind a backslash is left alone.
func (t *translator) fieldsOf(text string) string {
	var b strings.Builder
	word := 0 // where the current one began, in b
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			b.WriteByte(c)
			i++
			b.WriteByte(text[i])
		case c == '"':
			end := i + 1
			for end < len(text) && text[end] != '"' {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(text))
			b.WriteString(text[i:end])
			i = end - 1
		case c == ':':
			whole := b.String()
			name := whole[word:]
			b.Reset()
			b.WriteString(whole[:word])
			if name == "_exists_" {
				b.WriteString(name)
			} else {
				b.WriteString(t.field(name))
			}
			b.WriteByte(':')
			for i+1 < len(text) && text[i+1] == ' ' { // Lucene lets a space stand here
				i++
			}
			word = b.Len()
		case strings.IndexByte(" \t\r\n()[]{}!+-", c) >= 0 && (c != '-' || b.Len() == word):
			b.WriteByte(c)
			word = b.Len()
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func quote(v string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`
}

// escape is a value without quotes, in which some characters keep their meaning.
func escape(v string, but ...rune) string {
	var b strings.Builder
	for _, r := range v {
		if strings.ContainsRune(" \t\r\n()[]{}\"~^:*?\\/+-!<>&|", r) && !slices.Contains(but, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
