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
		text = t.fieldsOf(strings.TrimSpace(text))
		if operator, _ := of["default_operator"].(string); !strings.EqualFold(operator, "and") {
			text = t.orBetween(text)
		}
		return "(" + text + ")", nil
	case "match_all":
		return "", nil
	case "type":
		t.remark("filter: type %v: lines have no document type here", of["value"])
		return "", nil
	case "term", "match", "match_phrase", "match_phrase_prefix", "terms", "prefix", "wildcard", "regexp":
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
	return "", fmt.Errorf("it is not known: write it as a query_string; known are bool, exists, match, match_phrase, prefix, query_string, range, regexp, term, terms, wildcard")
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
	if _, ok := of["minimum_should_match"]; !ok && of["should"] != nil && (of["must"] != nil || of["filter"] != nil) {
		t.remark("filter: bool: should beside must or filter finds no lines and keeps none away; it is left out")
		delete(of, "should")
	}
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
		operator := " OR "
		if long, ok := v.(map[string]any); ok {
			if said, _ := long["operator"].(string); strings.EqualFold(said, "and") {
				operator = " AND "
			}
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
		values := texts(v)
		if kind == "match" && field == logquery.FieldMessage && len(values) == 1 { // of which each word is looked for
			values = strings.Fields(values[0])
		} else {
			operator = " OR "
		}
		var parts []string
		for _, value := range values {
			switch kind {
			case "prefix":
				value = escape(value) + "*"
			case "wildcard":
				value = escape(value, '*', '?')
			case "regexp":
				if strings.ContainsAny(value, "~&<>#@\"") {
					t.remark("filter: regexp: %s: ~ & < > # @ and quotes stand for themselves here, which in Elasticsearch are operators: see that it means the same", value)
				}
				value = "/" + strings.ReplaceAll(strings.ReplaceAll(value, `\/`, "/"), "/", `\/`) + "/"
			default:
				value = quote(value)
			}
			parts = append(parts, field+":"+value)
		}
		if len(parts) == 1 {
			return parts[0], nil
		}
		return "(" + strings.Join(parts, operator) + ")", nil
	}
	return "", nil
}

// orBetween writes the OR that Lucene means between two clauses without an operator, where
// here it would be AND. Of clauses that are required (+) it says that the others are not.
func (t *translator) orBetween(text string) string {
	var b strings.Builder
	clause := false // one has just ended, and nothing came since
	or, not := false, false
	defer func() {
		if or && not {
			t.remark("filter: query_string: words without an operator beside NOT or -: put the words into brackets, so that what is not meant is kept away from all of them")
		}
	}()
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			b.WriteByte(c)
			i++
			continue
		case c == ')':
			b.WriteByte(c)
			i++
			clause = true
			continue
		}
		end := i
		for end < len(text) && strings.IndexByte(" \t\r\n()", text[end]) < 0 {
			end = endOf(text, end)
		}
		switch word := text[i:end]; {
		case word == "AND" || word == "OR" || word == "&&" || word == "||":
			clause = false
		case word == "NOT" || strings.HasPrefix(word, "-") || strings.HasPrefix(word, "!"):
			clause, not = word != "NOT" && word != "!", true
		default:
			if strings.HasPrefix(word, "+") {
				t.remark("filter: query_string: %s is required, and so is here what stands beside it without an operator", word)
			}
			if clause {
				b.WriteString("OR ")
				or = true
			}
			clause = word != ""
		}
		b.WriteString(text[i:end])
		if i = end; i < len(text) && text[i] == '(' {
			b.WriteByte('(')
			i++
			clause = false
		}
	}
	return b.String()
}

// endOf is where what begins at i ends: a quoted text, a regular expression, a range, or one character.
func endOf(text string, i int) int {
	closing := map[byte]string{'"': `"`, '[': "]}", '{': "]}"}[text[i]]
	if text[i] == '/' && (i == 0 || strings.IndexByte(" \t\r\n(:+-!", text[i-1]) >= 0) {
		closing = "/"
	}
	if text[i] == '\\' {
		return min(i+2, len(text))
	}
	if closing == "" {
		return i + 1
	}
	for j := i + 1; j < len(text); j++ {
		if text[j] == '\\' {
			j++
		} else if strings.IndexByte(closing, text[j]) >= 0 {
			return j + 1
		}
	}
	return len(text)
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
		case endOf(text, i) > i+1 && c != '[' && c != '{':
			end := endOf(text, i)
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
