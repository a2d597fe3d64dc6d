package sitequery

import (
	"cmp"
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

// Order is what sites are sorted by; names and tenants decide between equals.
type Order []orderColumn

type orderColumn struct {
	Column
	down bool
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
		if out = append(out, orderColumn{c, down}); len(out) > maxOrder {
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
}

// Key of a site.
func (o Order) Key(r *Row, asOf time.Time) Key {
	k := Key{Name: r.Name, Tenant: r.Tenant}
	if len(o) > 0 {
		k.Parts = make([]KeyPart, len(o))
		for i := range o {
			k.Parts[i] = o[i].part(r, asOf)
		}
	}
	return k
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
		c.field.list(r, func(s string) bool { p.Text = s; return false })
		p.Unknown = p.Text == ""
	default:
		p.Text = c.field.text(r, c.key)
		p.Unknown = p.Text == ""
	}
	p.Text = short(p.Text)
	return p
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

// Valid tells whether a key is of this order; one that came from outside may not be.
func (o Order) Valid(k *Key) bool {
	if len(k.Parts) != len(o) || k.Name == "" {
		return false
	}
	for _, p := range k.Parts {
		if math.IsNaN(p.Number) || math.IsInf(p.Number, 0) {
			return false
		}
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
			n = strings.Compare(x.Text, y.Text)
			if n != 0 && o[i].field.Kind == Version { // a fleet has few
				n = cmp.Or(compareVersions(x.Text, y.Text), n)
			}
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

// compareVersions compares by the numbers in versions, as people do: 1.10 is after 1.9,
// 1.4.0-rc.1 before 1.4.0, and a v before the first number and what stands behind a + don't
// count. What has no numbers is compared as text.
func compareVersions(a, b string) int {
	a, b = plainVersion(a), plainVersion(b)
	mainA, preA, _ := strings.Cut(a, "-")
	mainB, preB, _ := strings.Cut(b, "-")
	if n := compareRuns(noZeros(mainA), noZeros(mainB)); n != 0 {
		return n
	}
	switch {
	case preA == preB:
		return 0
	case preA == "":
		return 1
	case preB == "":
		return -1
	}
	return compareRuns(preA, preB)
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

// compareRuns compares runs of digits as numbers and everything between them as text;
// numbers come before text, and the end before both.
func compareRuns(a, b string) int {
	for a != "" || b != "" {
		var x, y string
		x, a = run(a)
		y, b = run(b)
		n := 0
		switch {
		case digits(x) && digits(y):
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			n = cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y))
		case digits(x) && y != "":
			n = -1
		case digits(y) && x != "":
			n = 1
		default:
			n = strings.Compare(x, y)
		}
		if n != 0 {
			return n
		}
	}
	return 0
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
