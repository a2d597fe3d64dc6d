package engine

import (
	"os"
	"path/filepath"
	"testing"
)

// Of a change of one file the others are not parsed again, nor their expressions by the rule
// manager; a file without content is read, and parsed when it differs.
func TestOnlyWhatChangedIsParsed(t *testing.T) {
	e := open(t, Options{})
	onDisk := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(onDisk, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set := func(expr string) map[string]*ruleFile {
		t.Helper()
		refused, err := e.SetRules([]RuleGroup{
			alerting("acme/a", "acme", "A", expr, "a"), alerting("acme/b", "acme", "B", "vector(1)", "b"), {File: onDisk},
		})
		if err != nil || len(refused) > 0 {
			t.Fatal(refused, err)
		}
		return e.loader.files
	}
	write("groups: [{name: g, rules: [{record: 'a:b', expr: vector(1)}]}]")
	before := set("vector(1)")
	write("groups: [{name: g, rules: [{record: 'a:b', expr: vector(2)}]}]")
	after := set("vector(2)")
	for file, same := range map[string]bool{"acme/a": false, "acme/b": true, onDisk: false} {
		if before[file] == nil || (before[file] == after[file]) != same {
			t.Errorf("%s: parsed once is %v, want %v", file, before[file] == after[file], same)
		}
	}
	expr := after["acme/b"].exprs["vector(1)"]
	for _, g := range e.rules.RuleGroups() {
		for _, r := range g.Rules() {
			if g.File() == "acme/b" && r.Query() != expr {
				t.Error("the rule manager parsed an expression again")
			}
		}
	}
	if again := set("vector(2)"); again["acme/a"] != after["acme/a"] {
		t.Error("nothing changed, and it was parsed again")
	}
}
