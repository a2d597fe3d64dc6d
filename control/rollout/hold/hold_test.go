package hold

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
)

func kindOf(t *testing.T, group, kind string) offered.Kind {
	t.Helper()
	k, ok := KindOf(offered.NewSet(), schema.GroupKind{Group: group, Kind: kind})
	if !ok {
		t.Fatalf("a rollout can't move a %s", kind)
	}
	return k
}

func raw(s string) runtime.RawExtension { return runtime.RawExtension{Raw: []byte(s)} }

func TestContentIsWhatMoves(t *testing.T) {
	deployment := kindOf(t, "apps", "Deployment")
	object := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"}, "spec": map[string]any{
		"replicas": int64(3), "template": map[string]any{"metadata": map[string]any{"creationTimestamp": nil}, "spec": map[string]any{"hostname": "a"}}}}
	c, ok, err := Content(deployment, object)
	if err != nil || !ok || string(c.Raw) != `{"spec":{"hostname":"a"}}` {
		t.Errorf("a Deployment's: %s, %v, %v", c.Raw, ok, err)
	}
	if _, has := object["spec"].(map[string]any)["template"].(map[string]any)["metadata"]; !has {
		t.Error("the object itself was changed")
	}
	with, err := With(deployment, object, raw(`{"spec":{"hostname":"b","n":5}}`))
	if err != nil {
		t.Fatal(err)
	}
	spec := with["spec"].(map[string]any)
	if got := fmt.Sprint(spec); got != "map[replicas:3 template:map[spec:map[hostname:b n:5]]]" {
		t.Errorf("with another: %s", got)
	}
	policy := kindOf(t, "muster.dev", "CollectionPolicy")
	c, ok, err = Content(policy, map[string]any{"kind": "CollectionPolicy", "metadata": map[string]any{"name": "p"}, "spec": map[string]any{"priority": int64(1)}, "status": map[string]any{}})
	if err != nil || !ok || string(c.Raw) != `{"spec":{"priority":1}}` {
		t.Errorf("a policy's: %s, %v, %v", c.Raw, ok, err)
	}
	if _, ok := KindOf(offered.NewSet(), schema.GroupKind{Kind: "Secret"}); ok {
		t.Error("a rollout moves Secrets, and its state tells them to whoever reads the namespace")
	}
	if _, err := With(policy, object, raw(`[]`)); err == nil {
		t.Error("a content that is no object is taken")
	}
	if !Same(raw(`{"a":1, "b":2}`), raw(`{"b":2,"a":1}`)) || Same(raw(`{"a":1}`), raw(`{"a":2}`)) {
		t.Error("contents are compared as text")
	}
}

func TestSelect(t *testing.T) {
	policy := func(name string, priority int32, selector map[string]string, kinds ...string) v1alpha1.RolloutPolicy {
		return v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RolloutPolicySpec{Priority: priority, Kinds: kinds, Selector: metav1.LabelSelector{MatchLabels: selector}}}
	}
	list := []v1alpha1.RolloutPolicy{policy("b", 1, nil), policy("a", 1, nil), policy("strong", 5, map[string]string{"tier": "front"}), policy("maps", 0, nil, "ConfigMap")}
	for _, c := range []struct {
		kind   string
		system bool
		labels map[string]string
		want   string
	}{
		{"Deployment", false, nil, "a"},
		{"DaemonSet", false, map[string]string{"tier": "front"}, "strong"},
		{"ConfigMap", false, nil, "maps"},
		{"Service", false, nil, ""},
		{"HealthPolicy", false, nil, ""},
		{"HealthPolicy", true, nil, "a"},
		{"SoftwarePolicy", true, nil, "a"},
		{"Deployment", true, nil, ""},
	} {
		got := ""
		if p := Select(list, c.kind, c.system, c.labels); p != nil {
			got = p.Name
		}
		if got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestName(t *testing.T) {
	a, same := Name("web", "u", "7", raw("{}")), Name("web", "u", "7", raw("{}"))
	if a != same || !strings.HasPrefix(a, "web-") || len(a) != len("web-")+8 {
		t.Errorf("%s, %s", a, same)
	}
	for _, other := range []string{Name("web", "v", "7", raw("{}")), Name("web", "u", "8", raw("{}")), Name("web", "u", "7", raw(`{"a":1}`))} {
		if other == a {
			t.Error("two writes have the name of one")
		}
	}
	if n := Name(strings.Repeat("a", 253), "u", "1", raw("{}")); len(n) > 253 {
		t.Errorf("%d characters", len(n))
	}
}

func TestNewState(t *testing.T) {
	object := Object{Kind: kindOf(t, "apps", "Deployment"), Name: "web", From: raw(`{"v":1}`), To: raw(`{"v":2}`)}
	first, err := NewState(nil, "acme-shop", "web-1", object, "careful", "anna")
	if err != nil {
		t.Fatal(err)
	}
	contents := func(st *v1alpha1.RolloutState, i int) string {
		var out []string
		for _, c := range st.Spec.Objects[i].Contents {
			out = append(out, string(c.Raw))
		}
		return strings.Join(out, " ")
	}
	s := first.Spec
	if !s.Held || s.Policy != "careful" || s.By != "anna" || s.Supersedes != "" || s.Sites+s.Steps+s.Has != "" || contents(first, 0) != `{"v":1} {"v":2}` || first.Labels[LabelKind] != "Deployment" {
		t.Errorf("the first: %+v, %v", s, first.Labels)
	}

	// Sites one and three got it; another write comes.
	first.Spec.Sites, first.Spec.Steps, first.Spec.Has = "one two three", "pwu", "101"
	object.From, object.To = raw(`{"v":2}`), raw(`{"v":3}`)
	second, err := NewState(first, "acme-shop", "web-2", object, "careful", "ben")
	if err != nil {
		t.Fatal(err)
	}
	s = second.Spec
	if s.Supersedes != "web-1" || s.Sites != "one two three" || s.Steps != "www" || s.Has != "101" || contents(second, 0) != `{"v":1} {"v":2} {"v":3}` {
		t.Errorf("what supersedes: %+v %s", s, contents(second, 0))
	}

	// What no site has any more is left out, and digits follow.
	second.Spec.Has = "200"
	object.To = raw(`{"v":4}`)
	third, err := NewState(second, "acme-shop", "web-3", object, "", "")
	if err != nil {
		t.Fatal(err)
	}
	if third.Spec.Has != "100" || contents(third, 0) != `{"v":1} {"v":3} {"v":4}` {
		t.Errorf("without what nobody has: %s, %s", third.Spec.Has, contents(third, 0))
	}

	// One that holds nothing is not taken over from.
	third.Spec.Held = false
	object.From, object.To = raw(`{"v":4}`), raw(`{"v":5}`)
	fourth, err := NewState(third, "acme-shop", "web-4", object, "", "")
	if err != nil || fourth.Spec.Supersedes != "" || contents(fourth, 0) != `{"v":4} {"v":5}` {
		t.Errorf("after one that has ended: %+v, %v", fourth, err)
	}
}

func TestBeginTakesOverBundles(t *testing.T) {
	web := Object{Kind: kindOf(t, "apps", "Deployment"), Name: "web", From: raw(`{"v":1}`), To: raw(`{"v":2}`), Written: true}
	conf := Object{Kind: kindOf(t, "", "ConfigMap"), Name: "web", From: raw(`{"c":1}`), To: raw(`{"c":2}`), Written: true}
	old, err := Begin(Start{Namespace: "acme-shop", Name: "both", Objects: []Object{web, conf}})
	if err != nil {
		t.Fatal(err)
	}
	old.Spec.Sites, old.Spec.Has = "one", "1"
	web.From, web.To, web.Written = web.To, raw(`{"v":3}`), false
	next, err := Begin(Start{Namespace: "acme-shop", Name: "next", Objects: []Object{web}, Old: old})
	if err != nil {
		t.Fatal(err)
	}
	c, w := Find(&next.Spec, conf.Kind, "web"), Find(&next.Spec, web.Kind, "web")
	if c == nil || w == nil || len(c.Contents) != 3 || len(w.Contents) != 3 || string(c.Contents[2].Raw) != `{"c":2}` || !c.Written || w.Written || string(w.Contents[1].Raw) != `{"v":2}` || next.Spec.Has != "1" {
		t.Errorf("%+v\n%+v", c, w)
	}
}

func TestBeginRefusesWhatDoesNotFit(t *testing.T) {
	object := Object{Kind: kindOf(t, "apps", "Deployment"), Name: "web", From: raw(`{"v":0}`), To: raw(`{"v":1}`)}
	var st *v1alpha1.RolloutState
	for i := 0; ; i++ {
		next, err := NewState(st, "acme-shop", fmt.Sprint("web-", i), object, "", "")
		if err != nil {
			if i != MaxContents-1 || !strings.Contains(err.Error(), "abort rollout web-8") {
				t.Errorf("after %d writes: %v", i, err)
			}
			break
		}
		st = next
		n := len(st.Spec.Objects[0].Contents)
		st.Spec.Sites += fmt.Sprint("s", i, " ")
		st.Spec.Has += fmt.Sprint(n - 1) // each has one of its own
		object.To = raw(fmt.Sprintf(`{"v":%d}`, i+2))
	}
	object.To = raw(`"` + strings.Repeat("x", MaxBytes) + `"`)
	if _, err := NewState(nil, "acme-shop", "web-x", object, "", ""); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("too large: %v", err)
	}
}
