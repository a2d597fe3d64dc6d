package decide

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// One site is, and many are.
func TestNumbersAgree(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{countedOf(1, 1, "{are} ready."), "1 of 1 site is ready."},
		{countedOf(1, 3, "{are} ready."), "1 of 3 sites is ready."},
		{countedOf(0, 1, "{are} ready."), "0 of 1 site is ready."},
		{countedOf(2, 3, "{have} just changed, and what {they} {show}"), "2 of 3 sites have just changed, and what they show"},
		{counted(1, "{have} it and {begin} later, in {their} own window or when {their} {operators} {have} it."), "1 site has it and begins later, in its own window or when its operator has it."},
		{counted(2, "{have} it and {begin} later, in {their} own window or when {their} {operators} {have} it."), "2 sites have it and begin later, in their own window or when their operators have it."},
		{counted(1, outside), "1 site outside of its window"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// wrong is a number and a word that don't go together, or a word that was left in braces.
var wrong = regexp.MustCompile(`\b1 (of \d+ )?sites? (that came back )?(are|have|were|change|get|begin|return|show)\b|\b1 sites\b|\b([2-9]|[1-9]\d+) site\b|(^|[^f] )([2-9]|\d\d+) sites (is|has|was|changes|gets)\b|\{\w+\}`)

// agrees looks at all that a rollout says.
func (w *world) agrees() {
	w.t.Helper()
	st := &w.out.Status
	texts := []string{st.Message, st.Next}
	for _, g := range st.Gates {
		texts = append(texts, g.Text)
	}
	for _, d := range st.Decisions {
		texts = append(texts, d.Text)
	}
	for _, text := range texts {
		if at := wrong.FindString(text); at != "" {
			w.t.Errorf("%q in %q", at, text)
		}
	}
}

// No text of the package puts a verb after a number by itself.
func TestCountsAreMadeInOnePlace(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	byHand := regexp.MustCompile(`(%d of %[sd]|%s|%d of them|%d sites?) (are|have|were|change|get|begin|return|show)\b[^"]*"[^\n]*(sites|len)\(`)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range byHand.FindAllString(string(text), -1) {
			t.Errorf("%s: %s", name, at)
		}
	}
}
