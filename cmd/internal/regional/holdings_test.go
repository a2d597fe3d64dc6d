package regional

import (
	"strings"
	"testing"
	"time"

	"muster.dev/muster/regional/engine"
)

// An object whose rule gives too much is named with it, once; others are not.
func TestFailingObjectsAreNamed(t *testing.T) {
	e, err := engine.New(engine.Options{Name: engine.Edge, Dir: t.TempDir(), EvaluationInterval: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	rule := func(name, annotation string) string {
		return "  - alert: " + name + "\n    expr: vector(1)\n    annotations: {a: '" + annotation + "'}\n"
	}
	long := strings.Repeat("x", 16<<10)
	if _, err := e.SetRules([]engine.RuleGroup{
		{File: "acme/long", Tenant: "acme", Content: []byte("groups:\n- name: g\n  rules:\n" + rule("Second", long) + rule("First", long) + rule("Good", "short"))},
		{File: "acme/good", Tenant: "acme", Content: []byte("groups:\n- name: g\n  rules:\n" + rule("Good", "short"))},
	}); err != nil {
		t.Fatal(err)
	}
	h := &holdings{engines: map[string]*engine.Engine{engine.Edge: e}}
	awaitLong(t, "the object is named", func() bool {
		f := h.failing()
		return len(f) == 1 && f[0].Kind == "AlertRules" && f[0].Name == "acme/long" && strings.Contains(f[0].Err.Error(), "rule First: labels and annotations of an alert are longer than 16384 bytes")
	})
}
