package logquery

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// timeRange takes [a TO b], {a TO b}, mixed brackets, or >, >=, <, <= and a time.
func (p *parser) timeRange(s scope) (Node, error) {
	start := p.pos
	if s.field.Kind != Time {
		if !s.named {
			return nil, p.errorf(start, "%q is not expected here; to search for it, put it in quotes", p.text[start:start+1])
		}
		if s.field.Kind == Labels || s.field.Kind == Keyword && s.field.Name != "_exists_" {
			return p.numberRange(s)
		}
		return nil, p.errorf(start, "ranges work on times (@timestamp) and on numbers in labels, not on %s", s.field.Name)
	}
	if err := p.leaf(start); err != nil {
		return nil, err
	}
	if c := p.peek(); c == '>' || c == '<' {
		p.pos++
		inclusive := p.peek() == '='
		if inclusive {
			p.pos++
		}
		r := Range{Field: s.field}
		if c == '>' {
			from, err := p.timeValue(" \t\r\n)")
			if err != nil {
				return nil, err
			}
			r.From = from.lower(inclusive)
		} else {
			to, err := p.timeValue(" \t\r\n)")
			if err != nil {
				return nil, err
			}
			r.To = to.upper(inclusive)
		}
		return r, nil
	}
	return p.bracketRange(s)
}

func (p *parser) bracketRange(s scope) (Node, error) {
	start := p.pos
	fromInclusive := p.peek() == '['
	p.pos++
	p.space()
	from, err := p.timeValue(" \t\r\n]}")
	if err != nil {
		return nil, err
	}
	p.space()
	if !p.operator("TO") {
		return nil, p.errorf(p.pos, "a range is [FROM TO UNTIL]: TO is missing")
	}
	to, err := p.timeValue(" \t\r\n]}")
	if err != nil {
		return nil, err
	}
	p.space()
	toInclusive := p.peek() == ']'
	if !toInclusive && p.peek() != '}' {
		return nil, p.errorf(start, "the range is not closed")
	}
	p.pos++
	return Range{s.field, from.lower(fromInclusive), to.upper(toInclusive)}, p.noSuffix()
}

// span is the time that a value covers: a day for 2026-11-21, a second for a full time.
// Both are zero for an open end.
type span struct{ from, to time.Time }

func (s span) lower(inclusive bool) time.Time {
	switch {
	case inclusive || s.from.IsZero():
		return s.from
	case s.to.Equal(s.from):
		return s.from.Add(1)
	}
	return s.to
}

func (s span) upper(inclusive bool) time.Time {
	switch {
	case !inclusive || s.from.IsZero():
		return s.from
	case s.to.Equal(s.from):
		return s.from.Add(1)
	}
	return s.to
}

// timeValue takes one end of a range, up to one of the ending bytes.
func (p *parser) timeValue(end string) (span, error) {
	start := p.pos
	var value string
	if p.peek() == '"' {
		v, err := p.quoted()
		if err != nil {
			return span{}, err
		}
		value = v
	} else {
		for !p.done() && strings.IndexByte(end, p.text[p.pos]) < 0 {
			p.pos++
		}
		value = p.text[start:p.pos]
	}
	if value == "*" {
		return span{}, nil
	}
	from, to, err := parseTime(value, p.now)
	if err != nil {
		return span{}, p.errorf(start, "%s", err)
	}
	return span{from, to}, nil
}

var relative = regexp.MustCompile(`^now(?:([+-])([0-9]{1,9})([smhdw]))?$`)

var units = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour}

// layouts, with how long a time written so lasts.
var layouts = []struct {
	layout string
	next   func(time.Time) time.Time
}{
	{time.RFC3339Nano, func(t time.Time) time.Time { return t }},
	{"2006-01-02T15:04:05.999999999", func(t time.Time) time.Time { return t }},
	{"2006-01-02T15:04Z07:00", func(t time.Time) time.Time { return t.Add(time.Minute) }},
	{"2006-01-02T15:04", func(t time.Time) time.Time { return t.Add(time.Minute) }},
	{"2006-01-02", func(t time.Time) time.Time { return t.AddDate(0, 0, 1) }},
}

// parseTime reads a time and says what it covers: from ≤ t < to; from = to is an instant.
// Times without a zone are UTC.
func parseTime(value string, now time.Time) (from, to time.Time, err error) {
	if m := relative.FindStringSubmatch(value); m != nil {
		if m[1] == "" {
			return now, now, nil
		}
		n, err := strconv.ParseInt(m[2], 10, 64)
		if err != nil {
			return from, to, err
		}
		if n > int64(200*365*24*time.Hour/units[m[3]]) {
			return from, to, fmt.Errorf("%q is more than 200 years away", value)
		}
		d := time.Duration(n) * units[m[3]]
		if m[1] == "-" {
			d = -d
		}
		return now.Add(d), now.Add(d), nil
	}
	for _, l := range layouts {
		if t, err := time.Parse(l.layout, value); err == nil {
			if y := t.Year(); y < 1970 || y > 2261 {
				return from, to, fmt.Errorf("the year of %q is not between 1970 and 2261", value)
			}
			return t, l.next(t), nil
		}
	}
	return from, to, fmt.Errorf("%q is not a time: write it as 2026-11-21, 2026-11-21T10:30:00Z or now-15m", value)
}
