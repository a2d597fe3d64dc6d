package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"muster.dev/muster/control/api/v1alpha1"
)

// rollout is a state of policy p whose contents are these.
func rollout(t testing.TB, name, sites, has string, contents ...*v1alpha1.HealthPolicy) *v1alpha1.RolloutState {
	t.Helper()
	o := v1alpha1.RolloutObject{APIVersion: "muster.dev/v1alpha1", Kind: "HealthPolicy", Name: "p"}
	for _, c := range contents {
		raw, err := json.Marshal(map[string]any{"spec": c.Spec})
		if err != nil {
			t.Fatal(err)
		}
		o.Contents = append(o.Contents, runtime.RawExtension{Raw: raw})
	}
	return &v1alpha1.RolloutState{ObjectMeta: metav1.ObjectMeta{Namespace: "a-system", Name: name}, Spec: v1alpha1.RolloutStateSpec{Held: true, Sites: sites, Has: has, Objects: []v1alpha1.RolloutObject{o}}}
}

func generation(p *v1alpha1.HealthPolicy, n int64, rollout string) *v1alpha1.HealthPolicy {
	p = p.DeepCopy()
	p.Generation = n
	if rollout != "" {
		p.Annotations = map[string]string{v1alpha1.AnnotationRollout: rollout}
	}
	return p
}

// choices are the policies of each site, by priority.
func choices(s *Snapshot) string {
	var out []string
	for _, x := range s.Sites {
		line := x.ID.Name
		for _, p := range x.PoliciesOf("HealthPolicy") {
			line += fmt.Sprintf(" %s:%d", p.Name, p.Priority)
		}
		out = append(out, line)
	}
	return strings.Join(out, ", ")
}

func TestASiteHasTheVariantThatItsRolloutSays(t *testing.T) {
	eu, us := match("region", "eu"), match("region", "us")
	one, two, three := policy("a", "p", 1, eu), policy("a", "p", 9, metav1.LabelSelector{}), policy("a", "p", 3, us)
	b := NewBook("a").Put(site("a", "lyon", map[string]string{"region": "eu"}), site("a", "nice", map[string]string{"region": "eu"}), site("a", "ohio", map[string]string{"region": "us"}),
		policy("a", "q", 5, metav1.LabelSelector{}), generation(one, 1, ""))
	check := func(when, want string) *Snapshot {
		t.Helper()
		s := b.Snapshot()
		if got := choices(s); got != want {
			t.Errorf("%s: %s\nwant %s", when, got, want)
		}
		return s
	}
	const before = "lyon q:5 p:1, nice q:5 p:1, ohio q:5"
	check("at first", before)
	// The policy is written, and its state comes later.
	b.Put(generation(two, 2, "r"))
	check("before the state is known", before)
	b.Put(rollout(t, "r", "", "", one, two))
	s := check("as it begins", before)
	for _, p := range s.Policies {
		if p.Name == "p" && p.Generation != 2 {
			t.Errorf("content %d is said to be of generation %d", p.Content, p.Generation)
		}
	}
	// One site gets it: with its selector and its priority.
	b.Put(rollout(t, "r", "ohio lyon", "10", one, two))
	next := check("with one moved", "lyon q:5 p:1, nice q:5 p:1, ohio p:9 q:5")
	if s.Sites[0] != next.Sites[0] || s.Sites[1] != next.Sites[1] || s.Sites[2] == next.Sites[2] {
		t.Error("others than the site that moved were worked out anew")
	}
	// A site that joins has what all had before.
	b.Put(site("a", "oslo", map[string]string{"region": "eu"}))
	check("with one more site", "lyon q:5 p:1, nice q:5 p:1, ohio p:9 q:5, oslo q:5 p:1")
	b.Drop(site("a", "oslo", nil))
	// Superseded, state first.
	b.Put(rollout(t, "s", "ohio lyon", "12", one, two, three))
	b.Put(generation(three, 3, "s"))
	check("superseded", "lyon q:5, nice q:5 p:1, ohio p:9 q:5")
	done := rollout(t, "s", "ohio lyon", "22", one, two, three)
	done.Spec.Held = false
	b.Put(done)
	check("completed", "lyon q:5, nice q:5, ohio q:5 p:3")
	// Without its state it counts as it stands.
	b.Put(rollout(t, "s", "", "", one, two, three))
	check("held again", before)
	b.Drop(done)
	check("removed", "lyon q:5, nice q:5, ohio q:5 p:3")
	b.Put(generation(one, 4, "s"))
	check("written while its state is gone", before)
}

// Software policies have variants as the others do: one version for the sites that got it.
func TestSoftwarePolicyUnderARollout(t *testing.T) {
	version := func(v, rollout string, generation int64) *v1alpha1.SoftwarePolicy {
		p := &v1alpha1.SoftwarePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a-system", Name: "agent", Generation: generation}, Spec: v1alpha1.SoftwarePolicySpec{Component: "agent", Version: v}}
		if rollout != "" {
			p.Annotations = map[string]string{v1alpha1.AnnotationRollout: rollout}
		}
		return p
	}
	state := func(has string) *v1alpha1.RolloutState {
		o := v1alpha1.RolloutObject{APIVersion: "muster.dev/v1alpha1", Kind: "SoftwarePolicy", Name: "agent"}
		for _, v := range []string{"", "1.4.2"} {
			o.Contents = append(o.Contents, runtime.RawExtension{Raw: []byte(fmt.Sprintf(`{"spec":{"component":"agent","version":%q}}`, v))})
		}
		return &v1alpha1.RolloutState{ObjectMeta: metav1.ObjectMeta{Namespace: "a-system", Name: "r"}, Spec: v1alpha1.RolloutStateSpec{Held: has != "", Sites: "lyon nice", Has: has, Objects: []v1alpha1.RolloutObject{o}}}
	}
	pinned := site("a", "nice", nil)
	pinned.Spec.Software = map[v1alpha1.SoftwareComponent]string{"agent": "1.0.0"}
	pinned.Annotations = map[string]string{v1alpha1.AnnotationSoftwareRetry: "3"}
	b := NewBook("a").Put(site("a", "lyon", nil), pinned, version("", "", 1))
	check := func(when, want string) {
		t.Helper()
		var got []string
		for _, s := range b.Snapshot().Sites {
			for _, p := range s.PoliciesOf("SoftwarePolicy") {
				got = append(got, fmt.Sprintf("%s %q", s.ID.Name, p.Object.(*v1alpha1.SoftwarePolicy).Spec.Version))
			}
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: %s\nwant %s", when, text, want)
		}
	}
	check("at first", `lyon "", nice ""`)
	b.Put(state("00"), version("1.4.2", "r", 2))
	check("as it begins", `lyon "", nice ""`)
	b.Put(state("10"))
	check("with one moved", `lyon "1.4.2", nice ""`)
	b.Put(state("00"))
	check("put back", `lyon "", nice ""`)
	b.Put(state(""))
	check("completed", `lyon "1.4.2", nice "1.4.2"`)
	if s := b.Snapshot().Sites[1]; s.Pins["agent"] != "1.0.0" || s.Retry != 3 {
		t.Errorf("what the site itself says: %+v, %d", s.Pins, s.Retry)
	}
}

func TestUnknownRollouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "inventory.json")
		withFile := func(o *Options) { o.File = file }
		one, two := policy("a", "p", 1, match("region", "eu")), policy("a", "p", 9, match("region", "us"))
		paris, ohio := site("a", "paris", map[string]string{"region": "eu"}), site("a", "ohio", map[string]string{"region": "us"})
		c := builder(t, ns("a-system", "a"), paris, ohio, generation(two, 2, "r"), rollout(t, "r", "ohio", "1", one, two))
		const held = "ohio p:9, paris p:1"
		inv, stop := start(t, c, withFile)
		if got := choices(inv.Snapshot()); got != held {
			t.Errorf("%s, want %s", got, held)
		}
		stop()
		again, err := New(Options{Client: builder(t), File: file, Policies: []PolicyKind{HealthPolicies()}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil || choices(again.Snapshot()) != held {
			t.Errorf("from the disk: %v, %v", choices(again.Snapshot()), err)
		}

		// After a restart without a copy a state that is nowhere is waited for.
		c = builder(t, ns("a-system", "a"), paris.DeepCopy(), ohio.DeepCopy(), generation(two, 2, "gone"))
		inv, stop = start(t, c)
		defer stop()
		if s := inv.Snapshot(); s != nil {
			t.Errorf("there is a snapshot in which a policy is missing: %s", choices(s))
		}
		for range 30 {
			settle()
		}
		if s := inv.Snapshot(); s == nil || choices(s) != "ohio p:9, paris" {
			t.Fatalf("the state does not come: %v", s)
		}
		// A policy that is known stays as it was until its state is.
		three := generation(policy("a", "p", 4, metav1.LabelSelector{}), 3, "late")
		three.ResourceVersion = ""
		if err := c.Delete(context.Background(), generation(two, 2, "gone")); err != nil {
			t.Fatal(err)
		}
		settle()
		if err := c.Create(context.Background(), rollout(t, "late", "paris", "1", two, three)); err != nil {
			t.Fatal(err)
		}
		if err := c.Create(context.Background(), three); err != nil {
			t.Fatal(err)
		}
		settle()
		if got := choices(inv.Snapshot()); got != "ohio p:9, paris p:4" {
			t.Errorf("with its state: %s", got)
		}
	})
}
