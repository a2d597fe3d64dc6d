package decide

import (
	"fmt"
	"regexp"
)

// Texts that count sites are made here, and nowhere else: English has another form for one of
// them. Words in braces stand as they are of many, such as "{are} ready with {their} content".

var braced = regexp.MustCompile(`\{(\w+)\}`)

// ofOne are the words that don't just take an s.
var ofOne = map[string]string{"are": "is", "have": "has", "were": "was", "they": "it", "them": "it", "their": "its", "do": "does", "operators": "operator"}

// agree puts the words in braces into the form that goes with a number.
func agree(n int, text string) string {
	return braced.ReplaceAllStringFunc(text, func(word string) string {
		word = word[1 : len(word)-1]
		if n != 1 {
			return word
		}
		if one, ok := ofOne[word]; ok {
			return one
		}
		return word + "s"
	})
}

// counted says something of so many sites.
func counted(n int, text string) string { return sites(n) + " " + agree(n, text) }

// countedOf says something of so many of all.
func countedOf(n, all int, text string) string {
	one := n
	if n == 0 {
		one = all
	}
	return fmt.Sprintf("%d of %s %s", n, sites(all), agree(one, text))
}

func sites(n int) string { return plural(n, "site") }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
