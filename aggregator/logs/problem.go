package logs

import (
	"strings"
	"unicode"
)

// clean makes a line out of what a regional says, for people to read.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if r := []rune(strings.TrimSpace(s)); len(r) > 300 {
		return string(r[:300]) + "…"
	}
	return strings.TrimSpace(s)
}
