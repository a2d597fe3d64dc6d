package regional

import (
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/regional/engine"
)

// The shipped rules are evaluated for the paces of the slow sites that the regional answers for, and follow the inventory.
func TestRulesFollowPaces(t *testing.T) {
	h := &holdings{inv: newInventory("one"), shipped: true, engines: map[string]*engine.Engine{}}
	shipped := func() string {
		groups, errs := h.groups(engine.Edge, nil)
		if len(groups) != 1 || len(errs) > 0 {
			t.Fatal(groups, errs)
		}
		return string(groups[0].Content)
	}
	told := func(sites ...region.Site) string {
		h.inv.set([]region.Inventory{{Tenant: "acme", Sites: sites}})
		return shipped()
	}
	quick := shipped()
	if got := told(region.Site{Name: "paris", Regional: "one"}, region.Site{Name: "rome", Regional: "two", PaceSeconds: 300}); got != quick {
		t.Error("rules for the sites of another regional")
	}
	got := told(region.Site{Name: "paris", Regional: "one"}, region.Site{Name: "rome", Regional: "one", PaceSeconds: 300})
	if !strings.Contains(got, "muster-site-node-every-5m") || strings.Contains(got, "every-10m") || strings.Contains(quick, "every-") {
		t.Errorf("want rules for 5 minutes alone:\n%s", got)
	}
	if got := h.inv.pace(fleet.SiteID{Tenant: "acme", Name: "rome"}); got != 5*time.Minute {
		t.Errorf("rome is at %s", got)
	}
}

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
