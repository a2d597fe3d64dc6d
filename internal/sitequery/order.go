package sitequery

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"
)

// maxOrder is how many columns sites can be sorted by.
const maxOrder = 3

// maxKey is how many bytes of a text count for the order, as JSON writes them, so that a
// cursor stays short.
const maxKey = 64

// Order is what sites are sorted by; names and tenants decide between equals. It is of one
// goroutine.
type Order []orderColumn

type orderColumn struct {
	Column
	down bool
	// ranks of the versions that were met, of a Version: a fleet has few.
	ranks map[string]string
}

// ParseOrder reads columns separated by commas, each with a - before it for the largest
// first; empty: by name. Unknown values come last either way.
func ParseOrder(text string) (Order, error) {
	var out Order
	if strings.TrimSpace(text) == "" {
		return out, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, down := strings.CutPrefix(strings.TrimSpace(part), "-")
		c, err := ParseColumn(name)
		if err != nil {
			return nil, err
		}
		if out = append(out, orderColumn{c, down, map[string]string{}}); len(out) > maxOrder {
			return nil, fmt.Errorf("want at most %d columns to sort by", maxOrder)
		}
	}
	return out, nil
}

// Columns of the order.
func (o Order) Columns() []Column {
	out := make([]Column, len(o))
	for i := range o {
		out[i] = o[i].Column
	}
	return out
}

// String is what ParseOrder reads.
func (o Order) String() string {
	parts := make([]string, len(o))
	for i, c := range o {
		if parts[i] = c.Name(); c.down {
			parts[i] = "-" + parts[i]
		}
	}
	return strings.Join(parts, ",")
}

// Key is where a site stands in an order. It can be kept as JSON and compared later
// with those of other sites, whatever has become of the first.
type Key struct {
	Parts  []KeyPart `json:"k,omitempty"`
	Name   string    `json:"n"`
	Tenant string    `json:"t"`
}

// KeyPart is one column's.
type KeyPart struct {
	Unknown bool    `json:"u,omitempty"`
	Number  float64 `json:"v,omitempty"`
	Text    string  `json:"s,omitempty"`
	rank    string  // of a Version's text
}

// Key of a site.
func (o Order) Key(r *Row, asOf time.Time) Key {
	var k Key
	o.Set(&k, r, asOf)
	return k
}

// Set makes k the key of a site, with the memory that it has.
func (o Order) Set(k *Key, r *Row, asOf time.Time) {
	k.Name, k.Tenant = r.Name, r.Tenant
	if len(k.Parts) != len(o) {
		k.Parts = make([]KeyPart, len(o))
	}
	for i := range o {
		k.Parts[i] = o[i].part(r, asOf)
		o[i].setRank(&k.Parts[i])
	}
}

func (c *orderColumn) setRank(p *KeyPart) {
	if c.field.Kind != Version {
		return
	}
	rank, ok := c.ranks[p.Text]
	if !ok {
		rank = versionRank(p.Text)
		c.ranks[p.Text] = rank
	}
	p.rank = rank
}

// recently is how long ago a site may have been heard of and counts as heard of now: who is there is heard
// of every few seconds, and while somebody turns pages they would all have moved before the cursor.
const recently = time.Minute

func (c Column) part(r *Row, asOf time.Time) (p KeyPart) {
	switch c.field.Kind {
	case Numeric:
		n := c.field.number(r, c.key)
		p.Unknown = !n.Known
		if n.Known {
			p.Number = n.Value
		}
	case Time:
		t := c.field.time(r)
		if c.field.Name == fieldLastSeen && t.After(asOf.Add(-recently)) {
			t = asOf
		}
		p.Unknown = t.IsZero()
		if !p.Unknown {
			p.Number = float64(t.UnixMilli())
		}
	case Flag:
		if c.field.flag(r) {
			p.Number = 1
		}
	case Choice:
		p.Number = float64(choiceIndex(c.field, c.field.text(r, c.key)))
	case List:
		p.Text = c.first(r)
		p.Unknown = p.Text == ""
	default:
		p.Text = c.field.text(r, c.key)
		p.Unknown = p.Text == ""
	}
	p.Text = short(p.Text)
	return p
}

// first of a list; what a closure has in hand goes to the heap, so it is not part's.
func (c Column) first(r *Row) (text string) {
	c.field.list(r, func(s string) bool { text = s; return false })
	return text
}

func short(s string) string {
	length := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c == '<' || c == '>' || c == '&':
			length += 6
		case c == '"' || c == '\\' || c >= 0x7f:
			length += 2
		default:
			length++
		}
		if length > maxKey {
			return strings.ToValidUTF8(s[:i], "")
		}
	}
	return s
}

func choiceIndex(f *Field, value string) int {
	for i, v := range f.Values {
		if v == value {
			return i
		}
	}
	return len(f.Values)
}

// Adopt makes a key that came from outside fit to be compared. It returns false if it is
// none of this order.
func (o Order) Adopt(k *Key) bool {
	if len(k.Parts) != len(o) || k.Name == "" {
		return false
	}
	for i := range k.Parts {
		p := &k.Parts[i]
		if math.IsNaN(p.Number) || math.IsInf(p.Number, 0) {
			return false
		}
		o[i].setRank(p)
	}
	return true
}

// Compare tells which of two keys of this order comes first.
func (o Order) Compare(a, b *Key) int {
	for i := range o {
		x, y := &a.Parts[i], &b.Parts[i]
		if x.Unknown != y.Unknown {
			if x.Unknown {
				return 1
			}
			return -1
		}
		n := cmp.Compare(x.Number, y.Number)
		if n == 0 {
			n = cmp.Or(strings.Compare(x.rank, y.rank), strings.Compare(x.Text, y.Text))
		}
		if n != 0 {
			if o[i].down {
				return -n
			}
			return n
		}
	}
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Tenant, b.Tenant))
}

// What a rank is made of. At the same place digits come before text, and the end before both;
// a version that is out comes after those before it.
const (
	rankEnd = iota
	rankDigits
	rankText
	rankOut
)

// versionRank is a text whose order as bytes is that of the version among versions, by the
// numbers in them, as people do it: 1.10 is after 1.9, 1.4.0-rc.1 before 1.4.0, and a v before
// the first number and what stands behind a + don't count. What has no numbers is text.
func versionRank(s string) string {
	main, pre, _ := strings.Cut(plainVersion(s), "-")
	out := append(appendRuns(make([]byte, 0, 2*len(s)+8), noZeros(main)), rankEnd)
	if pre == "" {
		return string(append(out, rankOut))
	}
	return string(appendRuns(out, pre))
}

// appendRuns appends each run of digits, which are a number, and of anything else, which is
// text. The longer number is the larger one, once it has no zeros before it.
func appendRuns(out []byte, s string) []byte {
	for s != "" {
		var x string
		if x, s = run(s); !digits(x) {
			out = append(append(out, rankText), x...)
			continue
		}
		x = strings.TrimLeft(x, "0")
		out = binary.BigEndian.AppendUint32(append(out, rankDigits), uint32(len(x)))
		out = append(out, x...)
	}
	return out
}

func plainVersion(s string) string {
	s, _, _ = strings.Cut(s, "+")
	if len(s) > 1 && (s[0] == 'v' || s[0] == 'V') && s[1] >= '0' && s[1] <= '9' {
		s = s[1:]
	}
	return s
}

// noZeros takes the end off that makes no difference: 1.4.0 is 1.4.
func noZeros(s string) string {
	for {
		short, ok := strings.CutSuffix(strings.TrimRight(s, "0"), ".")
		if !ok {
			return s
		}
		s = short
	}
}

func digits(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }

// run cuts the first run of digits, or of anything else, off.
func run(s string) (first, rest string) {
	i := 0
	for i < len(s) && digits(s[i:]) == digits(s) {
		i++
	}
	return s[:i], s[i:]
}
