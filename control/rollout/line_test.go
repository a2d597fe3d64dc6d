package rollout

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestLine(t *testing.T) {
	now := time.Now()
	set := func(names string) map[string]bool {
		out := map[string]bool{}
		for _, n := range strings.Fields(names) {
			out[n] = true
		}
		return out
	}
	of := func(object string, age int, sites, moving string, begun bool) place {
		return place{tenant: "acme", created: now.Add(-time.Duration(age) * time.Minute), objects: []string{object}, sites: set(sites), moving: set(moving), begun: begun}
	}
	key := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: "acme-shop", Name: name}
	}
	mine := of("web", 5, "a b c", "", false)
	for name, c := range map[string]struct {
		others map[string]place
		want   string // in the answer; "": it may begin
	}{
		"alone":                         {nil, ""},
		"one changes a shared site":     {map[string]place{"x": of("api", 9, "a b c d", "b", true)}, "rollout x, which is changing site b"},
		"one changes two of them":       {map[string]place{"x": of("api", 9, "a b c d", "b c", true)}, "2 of the same sites, such as b"},
		"one changes others":            {map[string]place{"x": of("api", 9, "a b c d", "d", true)}, ""},
		"a newer one that has begun":    {map[string]place{"x": of("api", 1, "a", "a", true)}, "rollout x"},
		"an older one that waits":       {map[string]place{"x": of("api", 9, "c", "", false)}, "about to change site c"},
		"a newer one that waits":        {map[string]place{"x": of("api", 1, "c", "", false)}, ""},
		"an older one on other sites":   {map[string]place{"x": of("api", 9, "d", "", false)}, ""},
		"of the same object":            {map[string]place{"x": of("web", 9, "a", "a", true)}, ""},
		"of another tenant":             {map[string]place{"x": {tenant: "other", created: now.Add(-time.Hour), objects: []string{"api"}, sites: set("a"), moving: set("a"), begun: true}}, ""},
		"the first of several is named": {map[string]place{"x": of("api", 7, "a", "", false), "y": of("db", 9, "a", "", false), "z": of("q", 8, "a", "", false)}, "rollout y"},
	} {
		t.Run(name, func(t *testing.T) {
			ctl := &Controller{known: map[types.NamespacedName]*known{key("mine"): {place: mine}}}
			for n, p := range c.others {
				ctl.known[key(n)] = &known{place: p}
			}
			got := ctl.queued(key("mine"), mine)
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	paused := of("api", 9, "a", "", false)
	paused.paused = true
	ctl := &Controller{known: map[types.NamespacedName]*known{key("x"): {place: paused}}}
	if got := ctl.queued(key("mine"), mine); got != "" {
		t.Errorf("one that people paused before it began is in the way: %s", got)
	}
}
