package sitequery

import (
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

type node interface {
	match(r *Row, now time.Time) bool
}

type (
	allOf []node
	anyOf []node
	none  struct{ node }
	// freeText, in lower case, is looked for wherever people would.
	freeText string
	// strs matches if test holds for the value, or for one of a list's.
	strs struct {
		Column
		test func(string) bool
	}
	numbers struct {
		Column
		test func(float64) bool
	}
	unknown struct{ Column }
	moments struct {
		Column
		test func(t, now time.Time) bool
	}
	flags struct {
		Column
		want bool
	}
)

func (n allOf) match(r *Row, now time.Time) bool {
	for _, x := range n {
		if !x.match(r, now) {
			return false
		}
	}
	return true
}

func (n anyOf) match(r *Row, now time.Time) bool {
	return slices.ContainsFunc(n, func(x node) bool { return x.match(r, now) })
}

func (n none) match(r *Row, now time.Time) bool { return !n.node.match(r, now) }

func (n freeText) match(r *Row, _ time.Time) bool {
	lasting := r.Searched
	if lasting == "" {
		lasting = SearchedText(r)
	}
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), string(n)) }
	if strings.Contains(lasting, string(n)) || r.Maintenance != nil && has(r.Maintenance.Reason) || slices.ContainsFunc(r.Alerts, has) {
		return true
	}
	for i := range r.Reasons {
		if has(r.Reasons[i].Text) || has(r.Reasons[i].Signal) {
			return true
		}
	}
	return false
}

// between two texts: no text that is looked for has it, since it is not UTF-8.
const between = "\xff"

// SearchedText is what free text is looked for in of what stays the same for days: name, address and
// the values of labels, in lower case. Their keys say nothing of one site.
func SearchedText(r *Row) string {
	var b strings.Builder
	b.WriteString(strings.ToLower(r.Name) + between + strings.ToLower(r.Address))
	for _, v := range r.Labels {
		b.WriteString(between + strings.ToLower(v))
	}
	return b.String()
}

func (n strs) match(r *Row, _ time.Time) bool {
	if n.field.Kind != List {
		return n.test(n.field.text(r, n.key))
	}
	found, any := false, false
	n.field.list(r, func(s string) bool {
		found, any = n.test(s), true
		return !found
	})
	return found || !any && n.test("")
}

func (n numbers) match(r *Row, _ time.Time) bool {
	x := n.field.number(r, n.key)
	return x.Known && n.test(x.Value)
}

func (n unknown) match(r *Row, _ time.Time) bool { return !n.field.number(r, n.key).Known }

func (n moments) match(r *Row, now time.Time) bool { return n.test(n.field.time(r), now) }

func (n flags) match(r *Row, _ time.Time) bool { return n.field.flag(r) == n.want }

// compare makes the node of FIELD OPERATOR VALUE.
func (p *parser) compare(name token, c Column, op string, v token) (node, *Error) {
	positive, turned := op, false
	switch op {
	case "!=":
		positive, turned = "=", true
	case "!~":
		positive, turned = "~", true
	}
	var n node
	var err *Error
	switch c.field.Kind {
	case Numeric:
		n, err = p.number(name, c, positive, v)
	case Time:
		n, err = p.moment(name, c, positive, v)
	case Flag:
		n, err = p.flag(name, c, positive, v)
	case Choice:
		n, err = p.choice(name, c, positive, v)
	default:
		n, err = p.string(name, c, positive, v)
	}
	if err == nil && turned {
		n = none{n}
	}
	return n, err
}

func (p *parser) operator(name token, v token, op, want string) *Error {
	return p.wrong(token{from: name.from, to: v.to}, "%s can't be compared with %s: want %s", name.text, op, want)
}

func (p *parser) number(name token, c Column, op string, v token) (node, *Error) {
	if op == "~" {
		return nil, p.operator(name, v, op, "= != < <= > >= or in")
	}
	if v.text == "unknown" || v.text == "" {
		if op != "=" {
			return nil, p.wrong(v, "unknown is neither more nor less than anything; want = or != before it")
		}
		return unknown{c}, nil
	}
	want, err := strconv.ParseFloat(v.text, 64)
	if err != nil || math.IsNaN(want) || math.IsInf(want, 0) {
		return nil, p.wrong(v, "%s is a number: want one, such as %s, or unknown", name.text, c.field.Example)
	}
	// What is compared is what people see.
	return numbers{c, func(x float64) bool { return ordered(op, compareNumbers(math.Round(x*10)/10, want)) }}, nil
}

func compareNumbers(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// ordered tells whether an operator holds for the outcome of a comparison.
func ordered(op string, n int) bool {
	switch op {
	case "<":
		return n < 0
	case "<=":
		return n <= 0
	case ">":
		return n > 0
	case ">=":
		return n >= 0
	}
	return n == 0
}

// moment compares with an age, which grows with time gone by, or with a date.
func (p *parser) moment(name token, c Column, op string, v token) (node, *Error) {
	if op == "~" {
		return nil, p.operator(name, v, op, "< <= > >= with an age such as 10m or 7d or a date such as 2026-01-31, or = never")
	}
	if v.text == "never" || v.text == "" {
		if op != "=" {
			return nil, p.wrong(v, "want = or != before never")
		}
		return moments{c, func(t, _ time.Time) bool { return t.IsZero() }}, nil
	}
	if op == "=" {
		return nil, p.wrong(token{from: name.from, to: v.to}, "%s is compared with < <= > >= and an age such as 10m or 7d or a date such as 2026-01-31; = is for never", name.text)
	}
	if d, err := model.ParseDuration(v.text); err == nil {
		// What was never is longer ago than anything.
		return moments{c, func(t, now time.Time) bool {
			if t.IsZero() {
				return ordered(op, 1)
			}
			return ordered(op, int(min(max(now.Sub(t)-time.Duration(d), -1), 1)))
		}}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if want, err := time.Parse(layout, v.text); err == nil {
			return moments{c, func(t, _ time.Time) bool { return ordered(op, t.Compare(want)) }}, nil
		}
	}
	return nil, p.wrong(v, "%q is no time: want an age such as 10m, 36h or 7d, or a date such as 2026-01-31 or 2026-01-31T12:00:00Z", v.text)
}

func (p *parser) flag(name token, c Column, op string, v token) (node, *Error) {
	if op != "=" {
		return nil, p.operator(name, v, op, "= or !=")
	}
	switch strings.ToLower(v.text) {
	case "true", "yes":
		return flags{c, true}, nil
	case "false", "no":
		return flags{c, false}, nil
	}
	return nil, p.wrong(v, "want %s=true or %s=false", name.text, name.text)
}

func (p *parser) choice(name token, c Column, op string, v token) (node, *Error) {
	if op != "=" {
		return nil, p.operator(name, v, op, "=, != or in")
	}
	for _, value := range c.field.Values {
		if strings.EqualFold(value, v.text) {
			return strs{c, func(s string) bool { return s == value }}, nil
		}
	}
	return nil, p.wrong(v, "%q is no %s: want %s", v.text, name.text, strings.Join(c.field.Values, ", "))
}

// steps is what one character of text costs a regular expression at most: as many as it has
// instructions, with all its repetitions written out.
func steps(re string) int {
	tree, err := syntax.Parse(re, syntax.Perl)
	if err != nil {
		return 0 // and it does not compile
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return 0
	}
	return len(prog.Inst)
}

// literalOf is a text that all have that match a regular expression, the longest that is seen at
// once: to look for it is much cheaper. "" if there is none.
func literalOf(re string) string {
	tree, err := syntax.Parse(re, syntax.Perl)
	if err != nil {
		return "" // and it does not compile
	}
	return literal(tree)
}

func literal(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return string(re.Rune)
		}
	case syntax.OpCapture, syntax.OpPlus:
		return literal(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return literal(re.Sub[0])
		}
	case syntax.OpConcat:
		longest := ""
		for _, sub := range re.Sub {
			if l := literal(sub); len(l) > len(longest) {
				longest = l
			}
		}
		return longest
	}
	return ""
}

func (p *parser) string(name token, c Column, op string, v token) (node, *Error) {
	want := v.text
	switch {
	case v.kind == tokenRegexp:
		if len(want) > maxRegexp {
			return nil, p.wrong(v, "the regular expression has %d bytes, want at most %d", len(want), maxRegexp)
		}
		re, err := regexp.Compile(want)
		if err != nil {
			return nil, p.wrong(v, "not a regular expression: %s", err)
		}
		if p.steps += steps(want); p.steps > maxSteps {
			return nil, p.wrong(v, "the regular expressions of the query take %d steps a character, written out, want at most %d: repeat less", p.steps, maxSteps)
		}
		always := literalOf(want)
		return strs{c, func(s string) bool { return strings.Contains(s, always) && re.MatchString(s) }}, nil
	case op == "~":
		want = strings.ToLower(want)
		return strs{c, func(s string) bool { return strings.Contains(strings.ToLower(s), want) }}, nil
	case op != "=" && c.field.Kind == Version:
		if want == "" {
			return nil, p.wrong(v, "want a version behind %s%s, such as %s", name.text, op, c.field.Example)
		}
		rank := versionRank(want)
		return strs{c, func(s string) bool { return s != "" && ordered(op, strings.Compare(versionRank(s), rank)) }}, nil
	case op != "=":
		return nil, p.operator(name, v, op, "=, !=, ~, !~ or in; it is text")
	case v.kind == tokenWord && strings.Contains(want, "*"):
		parts := strings.Split(want, "*")
		if c.field.Name == "virtualSite" && !strings.Contains(want, "/") {
			return strs{c, func(s string) bool { return glob(s[strings.LastIndexByte(s, '/')+1:], parts) }}, nil
		}
		return strs{c, func(s string) bool { return glob(s, parts) }}, nil
	case c.field.Name == "virtualSite" && want != "":
		return strs{c, func(s string) bool { return s == want || s[strings.LastIndexByte(s, '/')+1:] == want }}, nil
	case c.field.Kind == Version && v.kind != tokenQuoted:
		rank := versionRank(want)
		return strs{c, func(s string) bool { return s == want || s != "" && want != "" && versionRank(s) == rank }}, nil
	}
	return strs{c, func(s string) bool { return s == want }}, nil
}

// glob tells whether s is the parts, with anything between them.
func glob(s string, parts []string) bool {
	first, last := parts[0], parts[len(parts)-1]
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}
