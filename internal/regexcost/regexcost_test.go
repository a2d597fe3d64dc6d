package regexcost

import (
	"regexp/syntax"
	"strings"
	"testing"
)

// What is said of an expression is not less than half of what it compiles to, and the bound
// of a text not less than that of any expression in it.
func TestWhatItCompilesTo(t *testing.T) {
	for _, pattern := range []string{"", "abc", "a|b|cd", "a{10}", "(ab{5}c){7}", ".{999}", strings.Repeat("x{100}", 5), "[a-z]+(foo|bar)?", `\pL{20}`, "(?i)abc{3,}", "a{0,50}"} {
		re, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		prog, err := syntax.Compile(re.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		is := float64(len(prog.Inst))
		if said := Program(re); 3*said+4 < is {
			t.Errorf("%q: %g said, %g are", pattern, said, is)
		}
		if bound := atMost(`name=~"` + pattern + `"`); 3*bound+4 < is {
			t.Errorf("%q: at most %g said, %g are", pattern, bound, is)
		}
	}
}

func TestBudget(t *testing.T) {
	b := Budget{1800}
	if err := b.Take("a)|(b"); err == nil || !strings.Contains(err.Error(), "RE2") {
		t.Error(err)
	}
	for i, err := range []error{b.Take("x{400}"), b.Take("x{400}"), b.TakeText(`severity=~"critical|warning"`)} {
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	if err := b.Take("x{400}"); err == nil || !strings.Contains(err.Error(), "shorten") {
		t.Error(err)
	}
	if err := b.TakeText(`a=~"x{900}"`); err == nil {
		t.Error("a matcher that repeats is taken")
	}
}
