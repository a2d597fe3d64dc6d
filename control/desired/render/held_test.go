package render

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiyaml "k8s.io/apimachinery/pkg/util/yaml"

	"k8s.io/apimachinery/pkg/runtime"

	"muster.dev/muster/control/api/v1alpha1"
)

// putAt is put at a resource version.
func putAt(t testing.TB, sp *Space, version uint64, doc string) bool {
	t.Helper()
	var o map[string]any
	if err := apiyaml.NewYAMLOrJSONDecoder(strings.NewReader(doc), 4096).Decode(&o); err != nil {
		t.Fatal(err)
	}
	changed, err := sp.Set(mustKind(t, o["apiVersion"].(string), o["kind"].(string)), version, o)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// webUnder is a Deployment under a rollout, "" for none.
func webUnder(image, rollout, more string) string {
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, annotations: {muster.dev/rollout: %q, %s}}, spec: {replicas: 2, template: {spec: {containers: [{name: a, image: %q}]}}}}`, rollout, more, image)
}

func template(image string) runtime.RawExtension {
	return runtime.RawExtension{Raw: []byte(fmt.Sprintf(`{"spec":{"containers":[{"name":"a","image":%q}]}}`, image))}
}

func state(sites, has string, contents ...runtime.RawExtension) *v1alpha1.RolloutStateSpec {
	return &v1alpha1.RolloutStateSpec{Held: true, Sites: sites, Has: has, Objects: []v1alpha1.RolloutObject{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Contents: contents}}}
}

var all = []string{"shared/all"}

func held(t testing.TB) *Space {
	t.Helper()
	sp := NewSpace("acme", "acme-shop")
	sp.Configure(Settings{DefaultVirtualSite: "shared/all"})
	return sp
}

// blobOn is an object on a site; nil: the site does not get it.
func blobOn(t testing.TB, sp *Space, site, item string) map[string]any {
	t.Helper()
	for _, p := range sp.On(site, all).Pieces {
		if p.Item.Name == item {
			var o map[string]any
			if err := json.Unmarshal(p.Blob, &o); err != nil {
				t.Fatal(err)
			}
			return o
		}
	}
	return nil
}

func imageOn(t testing.TB, sp *Space, site string) string {
	t.Helper()
	o := blobOn(t, sp, site, "Deployment.apps/acme-shop/web")
	if o == nil {
		return ""
	}
	if a := child(o, "metadata", "annotations"); a[v1alpha1.AnnotationRollout] != nil {
		t.Errorf("sites get the centre's annotation: %v", a)
	}
	containers, _ := child(o, "spec", "template", "spec")["containers"].([]any)
	image, _ := containers[0].(map[string]any)["image"].(string)
	return fmt.Sprint(image, "x", child(o, "spec")["replicas"])
}

func wantImages(t testing.TB, sp *Space, when string, want ...string) {
	t.Helper()
	var got []string
	for _, site := range []string{"one", "two", "three"} {
		got = append(got, imageOn(t, sp, site))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", when, got, want)
	}
}

func TestASiteHasTheContentThatItsRolloutSays(t *testing.T) {
	sp := held(t)
	putAt(t, sp, 1, webUnder("web:1", "", ""))
	sp.On("one", all)
	// The state comes after the object that names it.
	putAt(t, sp, 3, webUnder("web:2", "r", ""))
	wantImages(t, sp, "before the state is known", "web:1x2", "web:1x2", "web:1x2")
	if v, _ := sp.VersionOf("Deployment.apps/acme-shop/web"); v != 1 {
		t.Errorf("version %d is said to be on the sites", v)
	}
	if got := sp.WaitsFor(); !slices.Equal(got, []string{"r"}) {
		t.Errorf("waits for %v", got)
	}
	if got := sp.SetRollout("r", 2, state("", "", template("web:1"), template("web:2")), false); !got.All {
		t.Errorf("what waited is not rendered: %+v", got)
	}
	wantImages(t, sp, "as it begins", "web:1x2", "web:1x2", "web:1x2")
	if v, _ := sp.VersionOf("Deployment.apps/acme-shop/web"); v != 3 || sp.WaitsFor() != nil {
		t.Errorf("version %d, waits for %v", v, sp.WaitsFor())
	}
	sp.Settled()

	// One site moves, and nobody else is touched.
	before := sp.On("two", all)
	if got := sp.SetRollout("r", 4, state("one two", "10", template("web:1"), template("web:2")), false); got.All || !slices.Equal(got.Sites, []string{"one"}) {
		t.Errorf("one site's content touched %+v", got)
	}
	wantImages(t, sp, "with one moved", "web:2x2", "web:1x2", "web:1x2")
	if sp.On("two", all) != before || sp.On("three", all) != before {
		t.Error("sites that nothing changed for have another list")
	}
	// An older state comes late: nothing goes back.
	if got := sp.SetRollout("r", 2, state("", "", template("web:1"), template("web:2")), false); got.All || got.Sites != nil {
		t.Errorf("an older state touched %+v", got)
	}
	// What does not move is everywhere at once.
	putAt(t, sp, 5, strings.Replace(webUnder("web:2", "r", ""), "replicas: 2", "replicas: 5", 1))
	wantImages(t, sp, "scaled", "web:2x5", "web:1x5", "web:1x5")

	// A newer write supersedes: first its object comes, then its state.
	putAt(t, sp, 8, webUnder("web:3", "s", ""))
	wantImages(t, sp, "before the next state is known", "web:2x5", "web:1x5", "web:1x5")
	sp.SetRollout("s", 7, state("one two", "12", template("web:1"), template("web:2"), template("web:3")), false)
	wantImages(t, sp, "superseded", "web:2x2", "web:3x2", "web:1x2")
	if one := sp.On("one", all); one == sp.On("two", all) || one == sp.On("three", all) {
		t.Error("sites with other contents share a list")
	}

	// Completed: what stands in the object counts.
	done := state("one two", "12", template("web:1"), template("web:2"), template("web:3"))
	done.Held = false
	if got := sp.SetRollout("s", 9, done, false); !got.All {
		t.Errorf("the end touched %+v", got)
	}
	wantImages(t, sp, "completed", "web:3x2", "web:3x2", "web:3x2")
	if sp.On("one", all) != sp.On("three", all) {
		t.Error("sites with the same have lists of their own")
	}
}

func TestAStateThatIsGoneHoldsNothing(t *testing.T) {
	sp := held(t)
	putAt(t, sp, 3, webUnder("web:2", "r", ""))
	wantImages(t, sp, "never rendered, and not known", "", "", "")
	if sp.Objects() != 0 {
		t.Errorf("%d objects are carried", sp.Objects())
	}
	if got := sp.NoRollout("r"); !got.All {
		t.Errorf("%+v", got)
	}
	wantImages(t, sp, "there is no state", "web:2x2", "web:2x2", "web:2x2")
	sp.SetRollout("r", 4, state("one", "1", template("web:1"), template("web:2")), false)
	wantImages(t, sp, "there is one", "web:2x2", "web:1x2", "web:1x2")
	if got := sp.NoRollout("r"); got.All {
		t.Error("an answer that came too late counts")
	}
	if got := sp.DeleteRollout("r"); !got.All {
		t.Errorf("%+v", got)
	}
	wantImages(t, sp, "removed", "web:2x2", "web:2x2", "web:2x2")

	// One that waits can be deleted, and doesn't come back with its state.
	putAt(t, sp, 6, webUnder("web:3", "s", ""))
	sp.Delete(mustKind(t, "apps/v1", "Deployment"), "web", 7)
	sp.SetRollout("s", 5, state("", "", template("web:2"), template("web:3")), false)
	wantImages(t, sp, "deleted", "", "", "")
	// A state of other objects says nothing of this one.
	other := state("", "", template("db:1"))
	other.Objects[0].Name = "db"
	sp.SetRollout("o", 8, other, false)
	putAt(t, sp, 9, webUnder("web:4", "o", ""))
	wantImages(t, sp, "another's state", "web:4x2", "web:4x2", "web:4x2")
}

func TestHeldContentIsRenderedAsAnyOther(t *testing.T) {
	sp := held(t)
	const item = "Deployment.apps/acme-shop/web"
	sp.SetOverride("big", &v1alpha1.OverrideSpec{SiteList: []string{"two"}, Spec: runtime.RawExtension{Raw: []byte(`{"replicas":9,"template":{"spec":{"containers":[{"name":"a","image":"own:1"}]}}}`)}})
	sp.SetRollout("r", 1, state("one two", "11", template("web:1"), template("web:2")), false)
	putAt(t, sp, 2, webUnder("web:2", "r", `ves.io/overrides: big, ves.io/workload-flavor: large`))
	wantImages(t, sp, "with an Override", "web:2x2", "own:1x9", "web:1x2")
	limits := func(site string) string {
		containers := child(blobOn(t, sp, site, item), "spec", "template", "spec")["containers"].([]any)
		return fmt.Sprint(child(containers[0].(map[string]any), "resources", "limits"))
	}
	if one, three := limits("one"), limits("three"); one != three || one == "map[]" {
		t.Errorf("sizes: %s, %s", one, three)
	}
	// What an autoscaler sets is left out of each content.
	putAt(t, sp, 3, `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: h}, spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}}`)
	wantImages(t, sp, "scaled by itself", "web:2x<nil>", "own:1x<nil>", "web:1x<nil>")
}

func TestOfAKindWithoutPodsAllIsHeld(t *testing.T) {
	sp := held(t)
	spec := &v1alpha1.RolloutStateSpec{Held: true, Sites: "one", Has: "1", Objects: []v1alpha1.RolloutObject{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "conf", Contents: []runtime.RawExtension{{Raw: []byte(`{"data":{"a":"1"}}`)}, {Raw: []byte(`{"data":{"a":"2"},"immutable":true}`)}}},
		{APIVersion: "v1", Kind: "Service", Name: "web", Contents: []runtime.RawExtension{{Raw: []byte(`{"spec":{"clusterIP":"10.96.0.9","ports":[{"port":80,"protocol":"TCP","nodePort":30001}]}}`)}, {Raw: []byte(`{"spec":{"clusterIP":"10.96.0.9","ports":[{"port":81,"protocol":"TCP"}]}}`)}}},
	}}
	sp.SetRollout("r", 1, spec, false)
	putAt(t, sp, 2, `{apiVersion: v1, kind: ConfigMap, metadata: {name: conf, labels: {v: "2"}, annotations: {muster.dev/rollout: r}}, data: {a: "2"}, immutable: true}`)
	putAt(t, sp, 3, `{apiVersion: v1, kind: Service, metadata: {name: web, annotations: {muster.dev/rollout: r}}, spec: {clusterIP: 10.96.0.9, ports: [{port: 81, protocol: TCP}]}}`)
	one, two := blobOn(t, sp, "one", "ConfigMap/acme-shop/conf"), blobOn(t, sp, "two", "ConfigMap/acme-shop/conf")
	if one["immutable"] != true || child(one, "data")["a"] != "2" || two["immutable"] != nil || child(two, "data")["a"] != "1" || child(two, "metadata", "labels")["v"] != "2" {
		t.Errorf("%v\n%v", one, two)
	}
	if got := fmt.Sprint(blobOn(t, sp, "two", "Service/acme-shop/web")["spec"]); got != "map[ports:[map[port:80 protocol:TCP]]]" {
		t.Errorf("what the centre allocated is held as well: %s", got)
	}
}
