package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"muster.dev/muster/internal/wire"
)

// errNoSite is what every series without a site gets.
var errNoSite = errors.New("the query returns series without the labels tenant and site; aggregate `by (tenant, site)`")

// decodeVector reads the Prometheus API's answer to an instant query and hands
// each series to add: its tenant, its site (both empty when the label is missing,
// and valid only during the call) and its value. It holds to the format: anything
// but a success with a float vector is an error, and a failure of the query comes
// back as queryError.
//
// It is written by hand because a tick reads tens of megabytes of this: a general
// decoder would be most of the tick.
func decodeVector(data []byte, add func(tenant, site []byte, value float64) error) error {
	return decode(jsonParser{in: data}, add)
}

// decodeLabelled does the same and, before it hands a series to add, all of its labels to
// label.
func decodeLabelled(data []byte, label func(name, value []byte), add func(tenant, site []byte, value float64) error) error {
	return decode(jsonParser{in: data, label: label}, add)
}

// expectation guesses how the next series begins, so that its labels need not be read.
type expectation interface {
	// head is the text of the next series up to its value, as appendHead writes it; empty
	// when there is no guess.
	head() []byte
	// briefHead is the same as wire.AppendSeriesHead writes it.
	briefHead() []byte
	// came takes the value of the series that was expected.
	came(value float64) error
}

// decodeExpected does what decodeVector does, but for series that begin as expected, which
// are not handed to add; and the answer may be in wire.VectorType.
func decodeExpected(data []byte, expect expectation, add func(tenant, site []byte, value float64) error) error {
	if wire.IsVector(data) {
		return decodeBrief(data, expect, add)
	}
	return decode(jsonParser{in: data, expect: expect}, add)
}

func decodeBrief(data []byte, expect expectation, add func(tenant, site []byte, value float64) error) error {
	r, err := wire.ReadVector(data)
	if err != nil {
		return err
	}
	for {
		if more, err := r.More(); !more || err != nil {
			return err
		}
		if v, ok := r.Expected(expect.briefHead()); ok {
			if err := expect.came(v); err != nil {
				return err
			}
			continue
		}
		tenant, site, v, err := r.Next()
		if err != nil {
			return err
		}
		if err := add(tenant, site, v); err != nil {
			return err
		}
	}
}

// appendHead writes how Prometheus begins a series of `by (tenant, site)`. Nothing is
// written for names that JSON would escape.
func appendHead(b []byte, tenant, site string) []byte {
	for _, s := range []string{tenant, site} {
		for i := range len(s) {
			if c := s[i]; c < 0x20 || c >= utf8.RuneSelf || c == '"' || c == '\\' {
				return b
			}
		}
	}
	b = append(append(b, `{"metric":{"site":"`...), site...)
	b = append(append(b, `","tenant":"`...), tenant...)
	return append(b, `"},"value":[`...)
}

func decode(p jsonParser, add func(tenant, site []byte, value float64) error) error {
	var status, kind, errType, errText string
	result := -1
	err := p.object(func(key []byte) error {
		switch string(key) {
		case "status":
			return p.stringTo(&status)
		case "errorType":
			return p.stringTo(&errType)
		case "error":
			return p.stringTo(&errText)
		case "data":
			return p.object(func(key []byte) error {
				switch string(key) {
				case "resultType":
					return p.stringTo(&kind)
				case "result":
					result = p.at
					if kind == "vector" && status == "success" {
						result = math.MaxInt // read here, not again
						return p.series(add)
					}
				}
				return p.skip(0)
			})
		}
		return p.skip(0)
	})
	if err == nil {
		if p.space(); p.at != len(p.in) {
			err = p.bad("something after the end")
		}
	}
	var syntax *syntaxError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("not an answer of the Prometheus API: %w", err)
	case err != nil:
		return err
	case status == "error":
		return &queryError{kind: errType, text: errText}
	case status != "success":
		return fmt.Errorf("not an answer of the Prometheus API: status %q", status)
	case result < 0:
		return errors.New("not an answer of the Prometheus API: it has no result")
	case kind != "vector":
		return fmt.Errorf("the query returns a %s, want an instant vector: aggregate `by (tenant, site)`", kind)
	case result < math.MaxInt: // the keys came in another order than Prometheus writes them
		p.at = result
		return p.series(add)
	}
	return nil
}

// queryError is what the Prometheus API says about a failed query.
type queryError struct{ kind, text string }

func (e *queryError) Error() string {
	text := e.text
	if len(text) > 500 {
		text = text[:500] + " …"
	}
	if e.kind == "" {
		return text
	}
	return e.kind + ": " + text
}

// series reads the array of series. It makes no closures and no copies: it runs
// once for each site and signal.
func (p *jsonParser) series(add func(tenant, site []byte, value float64) error) error {
	if err := p.take('['); err != nil {
		return err
	}
	for first := true; ; first = false {
		if end, err := p.end(']', first); end || err != nil {
			return err
		}
		if v, ok := p.expected(); ok {
			if err := p.expect.came(v); err != nil {
				return err
			}
			continue
		}
		tenant, site, value, err := p.one()
		if err != nil {
			return err
		}
		if err := add(tenant, site, value); err != nil {
			return err
		}
	}
}

// expected reads a series if it is the expected one.
func (p *jsonParser) expected() (float64, bool) {
	if p.expect == nil {
		return 0, false
	}
	head := p.expect.head()
	rest := p.in[p.at:]
	if len(head) == 0 || !bytes.HasPrefix(rest, head) {
		return 0, false
	}
	rest = rest[len(head):]
	// All series of an answer have the same time.
	if len(p.time) == 0 || !bytes.HasPrefix(rest, p.time) {
		return 0, false
	}
	rest = rest[len(p.time):]
	if !bytes.HasPrefix(rest, commaQuote) {
		return 0, false
	}
	rest = rest[len(commaQuote):]
	end := bytes.IndexByte(rest[:min(len(rest), 32)], '"')
	if end < 0 || !bytes.HasPrefix(rest[end:], tail) {
		return 0, false
	}
	v, ok := parseValue(rest[:end])
	if ok {
		p.at = len(p.in) - len(rest) + end + len(tail)
	}
	return v, ok
}

var commaQuote, tail = []byte(`,"`), []byte(`"]}`)

// parseValue reads a sample's value; most are small whole numbers.
func parseValue(s []byte) (float64, bool) {
	if len(s) > 0 && len(s) < 10 {
		n := 0
		for _, c := range s {
			if c < '0' || c > '9' {
				n = -1
				break
			}
			n = 10*n + int(c-'0')
		}
		if n >= 0 {
			return float64(n), true
		}
	}
	v, err := strconv.ParseFloat(string(s), 64)
	return v, err == nil || math.IsInf(v, 0)
}

func (p *jsonParser) one() (tenant, site []byte, value float64, err error) {
	if err = p.take('{'); err != nil {
		return
	}
	seen := false
	for first := true; ; first = false {
		var end bool
		if end, err = p.end('}', first); err != nil {
			return
		}
		if end {
			if !seen {
				err = p.bad("a series without a value")
			}
			return
		}
		var key []byte
		if key, err = p.key(); err != nil {
			return
		}
		switch string(key) {
		case "metric":
			tenant, site, err = p.metric()
		case "value":
			seen = true
			value, err = p.sample()
		case "histogram":
			err = errors.New("the query returns histograms, want numbers: apply histogram_quantile, histogram_count or the like")
		default:
			err = p.skip(0)
		}
		if err != nil {
			return
		}
	}
}

func (p *jsonParser) metric() (tenant, site []byte, err error) {
	if err = p.take('{'); err != nil {
		return
	}
	for first := true; ; first = false {
		var end bool
		if end, err = p.end('}', first); end || err != nil {
			return
		}
		var key, val []byte
		if key, err = p.key(); err != nil {
			return
		}
		if val, err = p.str(); err != nil {
			return
		}
		if p.label != nil {
			p.label(key, val)
		}
		switch string(key) {
		case "tenant":
			tenant = val
		case "site":
			site = val
		}
	}
}

// sample reads [time, "value"].
func (p *jsonParser) sample() (float64, error) {
	if err := p.take('['); err != nil {
		return 0, err
	}
	if p.space(); len(p.time) > 0 && bytes.HasPrefix(p.in[p.at:], p.time) && p.at+len(p.time) < len(p.in) && p.in[p.at+len(p.time)] == ',' {
		p.at += len(p.time)
	} else {
		from := p.at
		if err := p.skip(0); err != nil {
			return 0, err
		}
		p.time = p.in[from:p.at]
	}
	if err := p.take(','); err != nil {
		return 0, err
	}
	s, err := p.str()
	if err != nil {
		return 0, err
	}
	v, ok := parseValue(s)
	if !ok {
		return 0, p.bad("a value that is no number")
	}
	return v, p.take(']')
}

// jsonParser walks over JSON.
type jsonParser struct {
	in    []byte
	at    int
	label func(name, value []byte) // nil: nobody wants labels

	expect expectation // may be nil
	time   []byte      // as the last sample had it
}

// syntaxError is a break of the format, at a byte.
type syntaxError struct {
	at   int
	what string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.at, e.what) }

func (p *jsonParser) bad(what string) error { return &syntaxError{p.at, what} }

func (p *jsonParser) space() {
	for p.at < len(p.in) {
		switch p.in[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// next returns the next byte that is no white space without taking it; 0 at the end.
func (p *jsonParser) next() byte {
	p.space()
	if p.at < len(p.in) {
		return p.in[p.at]
	}
	return 0
}

func (p *jsonParser) take(c byte) error {
	if p.next() != c {
		return p.bad(fmt.Sprintf("want %q", c))
	}
	p.at++
	return nil
}

// end takes the closing bracket of an object or array, or the comma before the
// next element.
func (p *jsonParser) end(closing byte, first bool) (bool, error) {
	switch c := p.next(); {
	case c == closing && c != 0:
		p.at++
		return true, nil
	case first:
		return false, nil
	case c == ',':
		p.at++
		if p.next() == closing {
			return false, p.bad("a comma before the end")
		}
		return false, nil
	}
	return false, p.bad("want ',' or the end")
}

func (p *jsonParser) key() ([]byte, error) {
	key, err := p.str()
	if err != nil {
		return nil, err
	}
	return key, p.take(':')
}

// object reads an object; f is called after each key and must read the value.
func (p *jsonParser) object(f func(key []byte) error) error {
	if err := p.take('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		if end, err := p.end('}', first); end || err != nil {
			return err
		}
		key, err := p.key()
		if err != nil {
			return err
		}
		if err := f(key); err != nil {
			return err
		}
	}
}

func (p *jsonParser) array(f func() error) error {
	if err := p.take('['); err != nil {
		return err
	}
	for first := true; ; first = false {
		if end, err := p.end(']', first); end || err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
	}
}

// str reads a string. The result points into the input unless it has escapes.
func (p *jsonParser) str() ([]byte, error) {
	if err := p.take('"'); err != nil {
		return nil, err
	}
	from := p.at
	rest := p.in[from:]
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return nil, p.bad("a string without an end")
	}
	plain := rest[:end]
	simple := true
	for _, c := range plain {
		if c == '\\' || c < 0x20 || c >= utf8.RuneSelf {
			simple = false
			break
		}
	}
	if simple {
		p.at = from + end + 1
		return plain, nil
	}
	// The slow way: find the end behind escapes, and let encoding/json read it.
	for i := 0; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '"':
			var s string
			if err := json.Unmarshal(p.in[from-1:from+i+1], &s); err != nil {
				return nil, p.bad("a string that is none")
			}
			p.at = from + i + 1
			return []byte(s), nil
		}
	}
	return nil, p.bad("a string without an end")
}

func (p *jsonParser) stringTo(s *string) error {
	b, err := p.str()
	*s = string(b)
	return err
}

// maxDepth of values that are skipped.
const maxDepth = 32

// skip reads any value.
func (p *jsonParser) skip(depth int) error {
	if depth > maxDepth {
		return p.bad("too deeply nested")
	}
	switch c := p.next(); {
	case c == '{':
		return p.object(func([]byte) error { return p.skip(depth + 1) })
	case c == '[':
		return p.array(func() error { return p.skip(depth + 1) })
	case c == '"':
		_, err := p.str()
		return err
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	default:
		for _, word := range []string{"true", "false", "null"} {
			if bytes.HasPrefix(p.in[p.at:], []byte(word)) {
				p.at += len(word)
				return nil
			}
		}
		return p.bad("want a value")
	}
}

func (p *jsonParser) number() error {
	from := p.at
	for p.at < len(p.in) {
		switch c := p.in[p.at]; {
		case c >= '0' && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
			p.at++
			continue
		}
		break
	}
	if !json.Valid(p.in[from:p.at]) {
		p.at = from
		return p.bad("a number that is none")
	}
	return nil
}
