package runbooks

import (
	"regexp"
	"strings"
	"testing"
)

// That each shipped alert has one, and no other, is checked where alerts are raised.
func TestTexts(t *testing.T) {
	html, heading := regexp.MustCompile(`<[a-zA-Z/!]`), regexp.MustCompile(`(?m)^#( |##)`)
	for _, name := range Names() {
		text, ok := Text(name)
		plain := regexp.MustCompile("(?s)`[^`]*`").ReplaceAllString(text, "")
		if !ok || strings.TrimSpace(text) == "" || html.MatchString(plain) || heading.MatchString(text) {
			t.Errorf("%s: want Markdown without HTML, and headings of level 2 alone:\n%s", name, text)
		}
	}
	for _, name := range []string{"Nothing", "", "../runbooks", "texts/SiteDown"} {
		if _, ok := Text(name); ok {
			t.Errorf("there is a runbook %q", name)
		}
	}
	if got := URL("https://muster.example.com/", "SiteDown"); got != "https://muster.example.com/runbooks/SiteDown" {
		t.Error(got)
	}
}
