package intake

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"muster.dev/muster/regional/logs/store"
)

// value is one value of a record in the form it came in, MessagePack or JSON,
// whole and checked: a slice of the message, so that the parts of a record that
// nobody asks for are never built.
type value struct {
	raw  []byte
	json bool
}

type valueType uint8

const (
	typeNull valueType = iota
	typeBool
	typeNumber
	typeText
	typeObject
	typeArray
	typeOther // an ext
)

func (v value) typ() valueType {
	if len(v.raw) == 0 {
		return typeNull
	}
	if v.json {
		switch v.raw[0] {
		case '{':
			return typeObject
		case '[':
			return typeArray
		case '"':
			return typeText
		case 't', 'f':
			return typeBool
		case 'n':
			return typeNull
		}
		return typeNumber
	}
	h, err := headOf(v.raw)
	if err != nil {
		return typeNull
	}
	switch h.kind {
	case kindBool:
		return typeBool
	case kindInt, kindUint, kindFloat:
		return typeNumber
	case kindStr, kindBin:
		return typeText
	case kindMap:
		return typeObject
	case kindArray:
		return typeArray
	case kindExt:
		return typeOther
	}
	return typeNull
}

// text is the value as a person would write it: a string without quotes, a number,
// true or false; JSON for an object or an array; nothing for null. The bytes may
// be part of the message, and may not be valid UTF-8.
func (v value) text() []byte { return v.textUpTo(math.MaxInt) }

// textUpTo is text for a caller that cuts it to limit bytes: JSON is not built much
// further than that.
func (v value) textUpTo(limit int) []byte {
	switch v.typ() {
	case typeNull:
		return nil
	case typeText:
		if v.json {
			return unquote(v.raw)
		}
		h, _ := headOf(v.raw)
		return h.body(v.raw)
	}
	if v.json {
		return v.raw
	}
	return v.appendJSON(nil, limit)
}

// unquote takes a valid JSON string.
func unquote(raw []byte) []byte {
	if in := raw[1 : len(raw)-1]; bytes.IndexByte(in, '\\') < 0 {
		return in
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return nil
	}
	return []byte(s)
}

// number returns false for what is no number and no string of one.
func (v value) number() (float64, bool) {
	if !v.json {
		h, err := headOf(v.raw)
		if err != nil {
			return 0, false
		}
		switch h.kind {
		case kindInt:
			return float64(int64(h.bits)), true
		case kindUint:
			return float64(h.bits), true
		case kindFloat:
			f := math.Float64frombits(h.bits)
			return f, !math.IsNaN(f) && !math.IsInf(f, 0)
		}
	}
	if t := v.typ(); t != typeText && t != typeNumber {
		return 0, false
	}
	t := v.text()
	if len(t) == 0 || len(t) > 32 {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(t), 64)
	return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
}

// each calls f for the fields of an object, in order, until it returns false. A
// key that is no string is passed in the form of keyText.
func (v value) each(f func(key []byte, val value) bool) {
	if v.typ() != typeObject {
		return
	}
	if v.json {
		eachJSON(v.raw, f)
		return
	}
	h, err := headOf(v.raw)
	if err != nil {
		return
	}
	rest := v.raw[h.size:]
	for range h.n {
		var k, val []byte
		if k, rest, err = cut(rest); err != nil {
			return
		}
		if val, rest, err = cut(rest); err != nil {
			return
		}
		if !f(keyText(k), value{raw: val}) {
			return
		}
	}
}

// keyText is the key of a field as text. A key that is an object or an array is its
// first bytes in hex: as JSON inside a JSON string it would double with every level
// of keys in keys, and no sender that means well has one.
func keyText(raw []byte) []byte {
	v := value{raw: raw}
	if t := v.typ(); t == typeObject || t == typeArray {
		return hex.AppendEncode(nil, raw[:min(len(raw), store.MaxFieldBytes/2)])
	}
	return v.text()
}

// appendJSON renders the value. Bytes that are no UTF-8 become U+FFFD, binary
// values base64 unless they are text. It stops, in the middle of the value, soon after
// b is longer than limit.
func (v value) appendJSON(b []byte, limit int) []byte {
	if v.json {
		return append(b, v.raw...)
	}
	b, _ = appendJSON(b, v.raw, limit)
	return b
}

func appendJSON(b, raw []byte, limit int) ([]byte, []byte) {
	h, err := headOf(raw)
	if err != nil {
		return append(b, "null"...), nil
	}
	rest := raw[h.size:]
	switch h.kind {
	case kindNil:
		return append(b, "null"...), rest
	case kindBool:
		return strconv.AppendBool(b, h.bits == 1), rest
	case kindInt:
		return strconv.AppendInt(b, int64(h.bits), 10), rest
	case kindUint:
		return strconv.AppendUint(b, h.bits, 10), rest
	case kindFloat:
		f := math.Float64frombits(h.bits)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return append(b, "null"...), rest
		}
		return strconv.AppendFloat(b, f, 'g', -1, 64), rest
	case kindStr, kindBin:
		body := upTo(rest[:h.n], limit)
		if h.kind == kindBin && !utf8.Valid(body) {
			b = append(b, '"')
			b = base64.StdEncoding.AppendEncode(b, body)
			return append(b, '"'), rest[h.n:]
		}
		return appendQuoted(b, body), rest[h.n:]
	case kindExt:
		if t, ok := eventTime(h, raw); ok {
			return appendQuoted(b, []byte(time.Unix(0, t).UTC().Format(time.RFC3339Nano))), rest[h.n:]
		}
		b = append(b, '"')
		b = base64.StdEncoding.AppendEncode(b, upTo(rest[:h.n], limit))
		return append(b, '"'), rest[h.n:]
	case kindArray:
		b = append(b, '[')
		for i := range h.n {
			if len(b) > limit {
				return b, nil
			}
			if i > 0 {
				b = append(b, ',')
			}
			b, rest = appendJSON(b, rest, limit)
		}
		return append(b, ']'), rest
	}
	b = append(b, '{')
	for i := range h.n {
		if len(b) > limit {
			return b, nil
		}
		if i > 0 {
			b = append(b, ',')
		}
		k, after, err := cut(rest)
		if err != nil {
			return append(b, '}'), nil
		}
		b = append(appendQuoted(b, upTo(keyText(k), limit)), ':')
		b, rest = appendJSON(b, after, limit)
	}
	return append(b, '}'), rest
}

// upTo is the head of b, one byte longer than limit if there is so much.
func upTo(b []byte, limit int) []byte {
	if len(b) > limit {
		return b[:limit+1]
	}
	return b
}

const hexDigits = "0123456789abcdef"

// appendQuoted writes a JSON string.
func appendQuoted(b, s []byte) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\t':
			b = append(b, '\\', 't')
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, n := utf8.DecodeRune(s[i:])
			b = utf8.AppendRune(b, r)
			i += n
			continue
		}
		i++
	}
	return append(b, '"')
}

// eventTime reads Fluentd's EventTime, ext type 0: seconds and nanoseconds, both
// uint32. It returns nanoseconds since 1970. Fluent Bit's group markers carry -1 or
// -2 as seconds; see groupMarker.
// https://github.com/fluent/fluentd/wiki/Forward-Protocol-Specification-v1#eventtime-ext-format
func eventTime(h head, raw []byte) (int64, bool) {
	if h.kind != kindExt || h.ext != 0 || h.n != 8 {
		return 0, false
	}
	b := h.body(raw)
	sec, nsec := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	if nsec >= 1e9 {
		nsec = 0
	}
	return int64(sec)*1e9 + int64(nsec), true
}

// The times by which Fluent Bit marks the start and the end of a group of records
// (FLB_LOG_EVENT_GROUP_START and _END in its flb_log_event.h), as unsigned seconds.
const (
	groupStart = 0xffffffff
	groupEnd   = 0xfffffffe
)

// entryTime reads the time of an entry: EventTime, an integer or a float of
// seconds. group is 0, groupStart or groupEnd.
func entryTime(raw []byte) (ns int64, group uint32, ok bool) {
	h, err := headOf(raw)
	if err != nil {
		return 0, 0, false
	}
	switch h.kind {
	case kindExt:
		if ns, ok = eventTime(h, raw); !ok {
			return 0, 0, false
		}
		if sec := binary.BigEndian.Uint32(h.body(raw)); sec >= groupEnd {
			return 0, sec, true
		}
		return ns, 0, true
	case kindInt, kindUint:
		if s := int64(h.bits); s == -1 || s == -2 || s == groupStart || s == groupEnd {
			return 0, uint32(s), true
		}
		return seconds(float64(h.bits))
	case kindFloat:
		f := math.Float64frombits(h.bits)
		if f == -1 || f == -2 {
			return 0, uint32(int64(f)), true
		}
		return seconds(f)
	}
	return 0, 0, false
}

func seconds(s float64) (int64, uint32, bool) {
	if !(s >= 0 && s < 9e9) {
		return 0, 0, true // a time that can't be: the time of receipt is taken
	}
	whole := math.Floor(s)
	return int64(whole)*1e9 + int64(math.Round((s-whole)*1e6))*1e3, 0, true
}

// timeFormats are those that Fluent Bit's json_date_format and common loggers write.
var timeFormats = []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", "2006-01-02T15:04:05.999999999Z0700"}

// fieldTime reads a time out of a field: seconds, milliseconds or nanoseconds since
// 1970, or text.
func fieldTime(v value) (int64, bool) {
	if f, ok := v.number(); ok {
		switch {
		case f <= 0 || f >= 9e18:
			return 0, false
		case f >= 1e17:
			if n, err := strconv.ParseInt(string(v.text()), 10, 64); err == nil {
				return n, true // a float has not digits enough
			}
			return int64(f), true
		case f >= 1e14:
			return int64(math.Round(f)) * 1e3, true
		case f >= 1e11:
			return int64(math.Round(f*1e3)) * 1e3, true
		}
		ns, _, _ := seconds(f)
		return ns, ns > 0
	}
	if v.typ() != typeText {
		return 0, false
	}
	t := v.text()
	if len(t) < 19 || len(t) > 40 {
		return 0, false
	}
	s := strings.TrimSpace(string(t))
	for _, f := range timeFormats {
		if at, err := time.Parse(f, s); err == nil && at.Year() > 1970 && at.Year() < 2200 {
			return at.UnixNano(), true
		}
	}
	return 0, false
}
