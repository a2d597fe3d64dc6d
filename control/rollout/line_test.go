package rollout

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/decide"
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
	// Of another namespace it has the name that the tenant's users type, and `muster rollout status` takes.
	other := types.NamespacedName{Namespace: "acme-pay", Name: "x"}
	moving := of("api", 9, "a", "a", true)
	elsewhere := &Controller{known: map[types.NamespacedName]*known{other: {place: moving}}}
	if got := elsewhere.queued(key("mine"), mine); !strings.HasPrefix(got, "waits behind rollout pay/x, ") {
		t.Errorf("it %s", got)
	}
	if got := elsewhere.busy(key("mine"), mine)["a"].why; got != "being changed by rollout pay/x" {
		t.Errorf("a site is %s", got)
	}
	paused := of("api", 9, "a", "", false)
	paused.paused = true
	ctl := &Controller{known: map[types.NamespacedName]*known{key("x"): {place: paused}}}
	if got := ctl.queued(key("mine"), mine); got != "" {
		t.Errorf("one that people paused before it began is in the way: %s", got)
	}
}

// A site that another rollout is changing is held, whoever comes to it second; the younger's wave
// waits for it, the older's goes on without, and neither for one that failed.
func TestWhoIsBusy(t *testing.T) {
	set := func(names string) map[string]bool {
		out := map[string]bool{}
		for _, n := range strings.Fields(names) {
			out[n] = true
		}
		return out
	}
	now := time.Now()
	key := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: "acme-shop", Name: name}
	}
	of := func(object string, age time.Duration, sites, moving, failed string) place {
		return place{tenant: "acme", created: now.Add(-age), objects: []string{object}, sites: set(sites), moving: set(moving), failed: set(failed), begun: true}
	}
	c := &Controller{known: map[types.NamespacedName]*known{
		key("old"):    {place: of("web", 3*time.Hour, "a b c d", "a", "d")},
		key("mine"):   {place: of("api", 2*time.Hour, "a b c d", "", "")},
		key("young"):  {place: of("db", time.Hour, "a b c d", "a b", "")},
		key("same"):   {place: of("api", time.Hour, "c", "c", "")},
		key("others"): {place: place{tenant: "other", begun: true, moving: set("c")}},
	}}
	got := c.busy(key("mine"), c.known[key("mine")].place)
	want := map[string]hindrance{"a": {"being changed by rollout old", false}, "b": {"being changed by rollout young", true}, "d": {"not well with rollout old", true}}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}

	state := func(has, steps string) *v1alpha1.RolloutStateSpec {
		return &v1alpha1.RolloutStateSpec{Held: true, Sites: "a b c d", Has: has, Steps: steps, Decided: &runtime.RawExtension{Raw: []byte(`{}`)}}
	}
	for next, may := range map[string]bool{"0010 wwuw": true, "1000 uwww": false, "0100 wuww": false, "0110 wuuw": false} {
		has, steps, _ := strings.Cut(next, " ")
		c.known[key("mine")].place.moving = nil
		if c.claim(key("mine"), c.known[key("mine")], state("0000", "wwww"), state(has, steps)) != may {
			t.Errorf("%s may be claimed: %v", next, !may)
		}
	}
	if !c.known[key("mine")].place.moving["c"] {
		c.claim(key("mine"), c.known[key("mine")], state("0000", "wwww"), state("0010", "wwuw"))
	}
	if !c.known[key("mine")].place.moving["c"] {
		t.Error("what it claimed is nobody's")
	}
	if !c.claim(key("mine"), c.known[key("mine")], state("1100", "uuww"), state("0000", "bbww")) {
		t.Error("what another changes can't be put back")
	}
}

func TestMoving(t *testing.T) {
	for decided, want := range map[string]string{`{}`: "b c/e", `{"back":"wave"}`: "b c f/e", `{"done":7}`: "b c/", `{`: "/"} {
		moving, failed := decide.Moving(&v1alpha1.RolloutStateSpec{Sites: "a b c d e f", Has: "011110", Steps: "wurpfb", Decided: &runtime.RawExtension{Raw: []byte(decided)}})
		if got := strings.Join(slices.Sorted(maps.Keys(moving)), " ") + "/" + strings.Join(slices.Sorted(maps.Keys(failed)), " "); got != want {
			t.Errorf("%s: %s, want %s", decided, got, want)
		}
	}
}
