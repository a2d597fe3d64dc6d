package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/contributing.md names places; a place that has moved must move there, too.
func TestContributingNamesWhatExists(t *testing.T) {
	b, err := os.ReadFile("../../docs/contributing.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range regexp.MustCompile("`((?:cmd|control|internal|alerting)/[^`]+)`").FindAllStringSubmatch(string(b), -1) {
		if strings.Contains(m[1], "ROLE") || strings.Contains(m[1], "NAME") {
			continue
		}
		found++
		if _, err := os.Stat(filepath.Join("../..", m[1])); err != nil {
			t.Errorf("%v", err)
		}
	}
	if found < 8 {
		t.Errorf("only %d places are named", found)
	}
}
