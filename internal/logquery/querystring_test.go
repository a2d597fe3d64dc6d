package logquery

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
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
	case Regexp:
		return name(n.Field, n.Key) + "/" + n.Lucene + "/"
	case Number:
		open := map[bool]string{true: "{}", false: "[]"}
		return fmt.Sprintf("%s%c%v TO %v%c", name(n.Field, n.Key), open[n.FromOpen][0], n.From, n.To, open[n.ToOpen][1])
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
		{"labels.status:[500 TO 502]", `labels.status[500 TO 502]`},
		{"labels.status:{500 TO 502}", `labels.status{500 TO 502}`},
		{"labels.status:>=500", `labels.status[500 TO +Inf]`},
		{"labels.status:<0.50", `labels.status[-Inf TO 0.5}`},
		{"labels.status:{500 TO *]", `labels.status{500 TO +Inf]`},
		{"(labels.status:>500)", `labels.status{500 TO +Inf]`},
		{"labels.status:(>=500 <600)", `(labels.status[500 TO +Inf] AND labels.status[-Inf TO 600})`},
		{"labels.status:[* TO *]", `labels.status=any`},
		{"NOT labels.n:[ -1 TO 0 ] b", `(NOT labels.n[-1 TO 0] AND message="b")`},
		{"pod:[9 TO 10]", `pod[9 TO 10]`},
		{`labels.path:/\/api\/v[12].*/`, `labels.path/\/api\/v[1-2](.)*/`},
		{`pod:/(a|bc){2,3}?x+|\d\.~#@"<&/`, `pod/((((a|bc))){2,3}(x)+|[0-9]\.\~\#\@\"\<\&)/`},
		{`pod:/[^a]a{2,}()\x{10000}/`, "pod/[\x00-\\`b-\U0010ffff](a){2,}(())\U00010000/"},
		{`/Ok?/ x`, "(message/[Oo]([Kk\u212a])?/ AND message=\"x\")"},
		{`severity:(/warn.*/ OR error)`, `(log.level/[Ww][Aa][Rr][Nn](.)*/ OR log.level="error")`},
		{`pod:/(?-s)./`, "pod/[^\n]/"},
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
		{"labels.app:*a?", `labels.app~*"a"?`},
		{"*foo pod:?x", `(message~*"foo" AND pod~?"x")`},
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
		{"/a.*b", 0, "not closed by a slash"},
		{"/api/v1/users", 5, "put it in quotes"},
		{"pod:/a/~2", 7, "fuzzy"},
		{"pod:/a(b/", 4, "not a regular expression: error parsing regexp: missing closing )"},
		{"pod:/a)(b/", 4, "not a regular expression"},
		{"a /^b/", 2, "whole value has to fit"},
		{`pod:/a\b/`, 4, "whole value has to fit"},
		{`pod:/[^\x00-\x{10ffff}]/`, 4, "nothing fits"},
		{`pod:/\pL/`, 4, "written out, want at most 1000"},
		{"pod:/" + strings.Repeat("a", 201) + "/", 4, "longer than 200"},
		{"pod:/(a{40}){40}/", 4, "invalid repeat count"},
		{"pod:/(a{30}){20}/ pod:/(a{30}){20}/", 22, "steps for a character"},
		{strings.Repeat("/a/ ", 20), 64, "more than 16"},
		{"@timestamp:/a/", 11, "can't be used here"},
		{"_exists_:/a/", 9, "can't be used here"},
		{"roam~2", 4, "fuzzy"},
		{`"a b"~3`, 5, "proximity"},
		{"a^2", 1, "boosts"},
		{"pod:[a TO b]", 5, "no number"},
		{"severity:[1 TO 2]", 9, "ranges work on times"},
		{"message:>5", 8, "ranges work on times"},
		{"labels.n:[1 TO 1e5]", 15, "no number"},
		{"labels.n:>=", 11, "no number"},
		{"labels.n:>x", 10, "no number"},
		{"labels.n:[5 TO 5}", 9, "no number is in"},
		{"labels.n:[5 TO 4]", 9, "no number is in"},
		{"labels.n:[1. TO 9]", 10, "no number"},
		{"labels.n:[1234567890123456 TO *]", 10, "no number"},
		{strings.Repeat("labels.n:>1 ", 17), 16*12 + 9, "more than 16"},
		{"labels.n:[1 TO 2", 9, "not closed"},
		{"labels.n:>2^3", 10, "no number"},
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
	for _, s := range []string{"", "a AND (b OR NOT c)", `severity:error "out of memory"`, "pod:web-?* @timestamp:[now-1h TO *}", "labels.a:b _exists_:pod -x", `labels.a:/\/b[^c]{2,}|\d+/ AND NOT /x.y/`, "labels.n:>=0.5 labels.n:{* TO -3]", "labels.a:*b?", `a\`, "((", "!!x", "@timestamp:>="} {
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
		if len(n.Pattern) == 0 || len(n.Pattern) == 1 && !n.Pattern[0].One {
			t.Fatalf("pattern %+v", n.Pattern)
		}
	case Regexp:
		*leaves++
		if n.Matches("") && n.Prefix() != "" || len(n.Lucene) > maxLucene || !utf8.ValidString(n.Lucene) {
			t.Fatalf("%+v", n)
		}
	case Number:
		*leaves++
		if !(n.From <= n.To) || n.Matches("x") || !n.FromOpen && !math.IsInf(n.From, 0) && !n.Matches(strconv.FormatFloat(n.From, 'f', -1, 64)) {
			t.Fatalf("%+v", n)
		}
	case Term, Exists, Range, All:
		*leaves++
	default:
		t.Fatalf("%T", n)
	}
}

func TestNumbersOfAValue(t *testing.T) {
	n, err := Parse("labels.n:[7 TO 500}", fields, now)
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]bool{"7": true, "007": true, "7.0": true, "499.999": true, "500": false, "60": true, "6": false, "-8": false, "": false,
		"8x": false, "1e2": false, "NaN": false, "0x10": false, "8.": false, ".8": false, "+8": false, " 8": false, "--8": false} {
		if got := n.(Matcher).Matches(value); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
}
