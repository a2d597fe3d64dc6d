package logquery

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var fields = Fields{
	"": {"message", Text}, "message": {"message", Text},
	"severity": {"log.level", Lower}, "log.level": {"log.level", Lower},
	"pod": {"pod", Keyword}, "@timestamp": {"@timestamp", Time}, "labels": {"labels", Labels},
}

func show(n Node) string {
	list := func(op string, nodes []Node) string {
		var parts []string
		for _, n := range nodes {
			parts = append(parts, show(n))
		}
		return "(" + strings.Join(parts, " "+op+" ") + ")"
	}
	name := func(f Field, key string) string {
		if key != "" {
			return f.Name + "." + key
		}
		return f.Name
	}
	ts := func(t time.Time) string {
		if t.IsZero() {
			return "*"
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	switch n := n.(type) {
	case And:
		return list("AND", n)
	case Or:
		return list("OR", n)
	case Not:
		return "NOT " + show(n.Node)
	case All:
		return "*:*"
	case Term:
		return fmt.Sprintf("%s=%q", name(n.Field, n.Key), n.Value)
	case Exists:
		return name(n.Field, n.Key) + "=any"
	case Wildcard:
		s := name(n.Field, n.Key) + "~"
		for _, p := range n.Pattern {
			switch {
			case p.Any:
				s += "*"
			case p.One:
				s += "?"
			default:
				s += fmt.Sprintf("%q", p.Literal)
			}
		}
		return s
	case Range:
		return n.Field.Name + "[" + ts(n.From) + " " + ts(n.To) + ")"
	}
	return fmt.Sprintf("?%T", n)
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "*:*"},
		{"  ", "*:*"},
		{"*", "*:*"},
		{"timeout", `message="timeout"`},
		{"a b", `(message="a" AND message="b")`},
		{"a AND b OR c d", `((message="a" AND message="b") OR (message="c" AND message="d"))`},
		{"a && b || !c", `((message="a" AND message="b") OR NOT message="c")`},
		{"+a -b", `(message="a" AND NOT message="b")`},
		{"labels.status:[500 TO 502]", `(labels.status="500" OR labels.status="501" OR labels.status="502")`},
		{"labels.status:{500 TO 502}", `labels.status="501"`},
		{"NOT labels.n:[ -1 TO 0 ] b", `(NOT (labels.n="-1" OR labels.n="0") AND message="b")`},
		{"pod:[9 TO 10]", `(pod="9" OR pod="10")`},
		{"a NOT (b OR c)", `(message="a" AND NOT (message="b" OR message="c"))`},
		{"foo-bar", `message="foo-bar"`},
		{"ANDROID ORDER NOTE", `(message="ANDROID" AND message="ORDER" AND message="NOTE")`},
		{`severity:ERROR AND "out of memory"`, `(log.level="error" AND message="out of memory")`},
		{`"say \"hi\" \\"`, `message="say \"hi\" \\"`},
		{`a\:b\*`, `message="a:b*"`},
		{"pod:(web-1 OR web-2*)", `(pod="web-1" OR pod~"web-2"*)`},
		{"pod:web-?-**x", `pod~"web-"?"-"*"x"`},
		{"CON?ection", `message~"con"?"ection"`},
		{"pod:*", "pod=any"},
		{"_exists_:pod", "pod=any"},
		{"_exists_:labels.app", "labels.app=any"},
		{"labels.app:x*", `labels.app~"x"*`},
		{"labels.app:x", `labels.app="x"`},
		{"labels.app.kubernetes.io/name:x", `labels.app.kubernetes.io/name="x"`},
		{"@timestamp:[2026-11-21 TO 2026-11-21]", "@timestamp[2026-11-21T00:00:00Z 2026-11-22T00:00:00Z)"},
		{"@timestamp:{2026-11-20 TO 2026-11-22}", "@timestamp[2026-11-21T00:00:00Z 2026-11-22T00:00:00Z)"},
		{"@timestamp:[* TO now-1h}", "@timestamp[* 2026-11-21T11:00:00Z)"},
		{"@timestamp:>=2026-11-21T10:00:00+01:00", "@timestamp[2026-11-21T09:00:00Z *)"},
		{"@timestamp:>2026-11-21T10:00:00Z", "@timestamp[2026-11-21T10:00:00.000000001Z *)"},
		{"@timestamp:<=2026-11-21T10:00", "@timestamp[* 2026-11-21T10:01:00Z)"},
		{`@timestamp:"2026-11-21T10:00:00Z"`, "@timestamp[2026-11-21T10:00:00Z 2026-11-21T10:00:00.000000001Z)"},
		{"@timestamp:2026-11-21", "@timestamp[2026-11-21T00:00:00Z 2026-11-22T00:00:00Z)"},
		{"(@timestamp:>now-1h) x", `(@timestamp[2026-11-21T11:00:00.000000001Z *) AND message="x")`},
		{"größe 日本", `(message="größe" AND message="日本")`},
	} {
		n, err := Parse(c.text, fields, now)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
		} else if got := show(n); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

func TestErrorsSayWhere(t *testing.T) {
	for _, c := range []struct {
		text string
		pos  int
		want string
	}{
		{`a "b`, 2, "quote is not closed"},
		{"(a", 0, "parenthesis is not closed"},
		{"a)", 1, "closes nothing"},
		{"a AND", 5, "ends where"},
		{"AND a", 0, "before the operator"},
		{"a OR OR b", 5, "before the operator"},
		{"()", 1, `before ")"`},
		{"nosuch:x", 0, `no field "nosuch"`},
		{"x nosuch:y", 2, "labels.KEY"},
		{"labels:x", 0, `no field "labels"`},
		{"pod: x", 4, "right after"},
		{"pod:", 4, "right after"},
		{"(pod:)", 5, "right after"},
		{"*foo", 0, "can't start"},
		{"a pod:?x", 6, "can't start"},
		{"labels.app:a*b", 11, "only be a beginning"},
		{"labels.app:a?", 11, "only be a beginning"},
		{"/a.*b/", 0, "regular expressions"},
		{"roam~2", 4, "fuzzy"},
		{`"a b"~3`, 5, "proximity"},
		{"a^2", 1, "boosts"},
		{"pod:[a TO b]", 5, "no whole number"},
		{"severity:[1 TO 2]", 9, "ranges work on times"},
		{"labels.n:[1 TO 2.5]", 15, "no whole number"},
		{"labels.n:[1 TO *]", 15, "both ends"},
		{"labels.n:>=500", 9, "both ends"},
		{"labels.n:[5 TO 5}", 9, "no whole number is in"},
		{"labels.n:[007 TO 9]", 10, "no whole number"},
		{"labels.n:[1 TO 999999]", 9, "999999 numbers"},
		{"labels.n:[1 TO 200] labels.n:[1 TO 200]", 29, "200 numbers"},
		{"labels.n:[1 TO 2", 9, "not closed"},
		{"_exists_:[1 TO 2]", 9, "ranges work on times"},
		{"[a TO b]", 0, "not expected"},
		{"@timestamp:[2026 TO *]", 12, "not a time"},
		{"@timestamp:[2026-11-21 *]", 23, "TO is missing"},
		{"@timestamp:[2026-11-21 TO *", 11, "not closed"},
		{"@timestamp:>0001-01-01", 12, "year"},
		{"@timestamp:>now-999999999w", 12, "200 years"},
		{`a\`, 1, "backslash"},
		{"a:b", 0, "no field"},
		{"10:20", 0, "no field"},
		{"é:b", 2, "colon"},
		{"a }", 2, "not expected"},
		{"_exists_:nosuch", 9, "no field"},
		{strings.Repeat("(", 60), MaxDepth, "deep"},
		{strings.Repeat("!", 60), MaxDepth + 1, "deep"},
		{strings.Repeat("a ", 300), 512, "more than 256"},
		{strings.Repeat("a* ", 20), 48, "more than 16"},
		{"a*" + strings.Repeat("b", 200), 0, "longer than 128"},
		{strings.Repeat("a", 5000), MaxLength, "longer than 4096"},
		{"\xff", 0, "UTF-8"},
	} {
		_, err := Parse(c.text, fields, now)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%.40s: %v, want an *Error", c.text, err)
		} else if e.Pos != c.pos || !strings.Contains(e.Msg, c.want) {
			t.Errorf("%.40s: at %d: %s; want at %d: …%s…", c.text, e.Pos, e.Msg, c.pos, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "a AND (b OR NOT c)", `severity:error "out of memory"`, "pod:web-?* @timestamp:[now-1h TO *}", "labels.a:b _exists_:pod -x", `a\`, "((", "!!x", "@timestamp:>="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := Parse(text, fields, now)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Pos < 0 || e.Pos > len(text) && e.Pos != MaxLength {
				t.Fatalf("%q: %#v", text, err)
			}
			return
		}
		leaves := 0
		check(t, n, &leaves, 0)
		if leaves > MaxClauses {
			t.Fatalf("%q: %d leaves", text, leaves)
		}
	})
}

// check that a tree keeps what its types promise the stores.
func check(t *testing.T, n Node, leaves *int, depth int) {
	if depth > 4*MaxDepth {
		t.Fatal("too deep")
	}
	both := func(nodes []Node) {
		if len(nodes) < 2 {
			t.Fatalf("a list of %d", len(nodes))
		}
		for _, n := range nodes {
			check(t, n, leaves, depth+1)
		}
	}
	switch n := n.(type) {
	case And:
		both(n)
	case Or:
		both(n)
	case Not:
		check(t, n.Node, leaves, depth+1)
	case Wildcard:
		*leaves++
		if len(n.Pattern) < 2 || n.Pattern[0].Literal == "" {
			t.Fatalf("pattern %+v", n.Pattern)
		}
	case Term, Exists, Range, All:
		*leaves++
	default:
		t.Fatalf("%T", n)
	}
}
