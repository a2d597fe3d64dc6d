// Package runbooks has a text for each alert that ships with Muster: what it means, and
// what to do first. The console serves them, and the alerts' runbook_url leads there. When
// an alert fires is no business of it: alerting/rules and alerting/deadman know.
package runbooks

import (
	"embed"
	"strings"
)

//go:embed texts/*.md
var texts embed.FS

// Text is an alert's runbook as Markdown without headings above level 2 and without HTML;
// false if there is none.
func Text(alert string) (string, bool) {
	b, err := texts.ReadFile("texts/" + alert + ".md")
	return string(b), err == nil
}

// Names of the alerts that have a runbook, in order.
func Names() []string {
	list, err := texts.ReadDir("texts")
	if err != nil {
		panic(err) // embedded
	}
	out := make([]string, len(list))
	for i, f := range list {
		out[i] = strings.TrimSuffix(f.Name(), ".md")
	}
	return out
}

// URL is where the console whose address is given shows an alert's runbook; without an
// address it is a path of the console.
func URL(console, alert string) string { return strings.TrimRight(console, "/") + "/runbooks/" + alert }
