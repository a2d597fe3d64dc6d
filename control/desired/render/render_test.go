package render

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

var update = flag.Bool("update", false, "rewrite the expected files in testdata")

var machines = offered.Kind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine", Resource: "virtualmachines", Spec: true, Custom: true}

// scene is one input: what stands in acme-shop, and the sites that are asked for.
type scene struct {
	DefaultVirtualSite string                           `json:"defaultVirtualSite"`
	PodSecurity        v1alpha1.PodSecurityLevel        `json:"podSecurity"`
	SiteQuotas         *v1alpha1.SiteQuotas             `json:"siteQuotas"`
	Sites              map[string][]string              `json:"sites"` // name → virtual sites
	Overrides          map[string]v1alpha1.OverrideSpec `json:"overrides"`
	// Whole shows the objects; else their names alone.
	Whole bool `json:"whole"`
	// Namespace shows what every site's namespace has, too.
	Namespace bool `json:"namespace"`
}

func mustKind(t testing.TB, apiVersion, kind string) offered.Kind {
	t.Helper()
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		t.Fatal(err)
	}
	k, ok := offered.NewSet(machines).Of(gv.WithKind(kind).GroupKind())
	if !ok {
		t.Fatalf("%s %s is not offered", apiVersion, kind)
	}
	return k
}

// load reads a scene and the objects after it.
func load(t testing.TB, file string) (*Space, scene) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	docs := bytes.Split(raw, []byte("\n---\n"))
	var sc scene
	if err := yaml.UnmarshalStrict(docs[0], &sc); err != nil {
		t.Fatal(err)
	}
	sp := NewSpace("acme", "acme-shop")
	sp.Configure(Settings{DefaultVirtualSite: sc.DefaultVirtualSite, PodSecurity: sc.PodSecurity, Quotas: sc.SiteQuotas})
	for name, spec := range sc.Overrides {
		sp.SetOverride(name, &spec)
	}
	for _, doc := range docs[1:] {
		put(t, sp, string(doc))
	}
	return sp, sc
}

func put(t testing.TB, sp *Space, doc string) bool {
	t.Helper()
	var o map[string]any
	if err := apiyaml.NewYAMLOrJSONDecoder(strings.NewReader(doc), 4096).Decode(&o); err != nil {
		t.Fatal(err)
	}
	changed, err := sp.Set(mustKind(t, o["apiVersion"].(string), o["kind"].(string)), 0, o)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// TestRender: testdata/*.yaml is a scene and the objects of a namespace as the API server
// has them; the expected file is what each site gets.
func TestRender(t *testing.T) {
	inputs, _ := filepath.Glob("testdata/*.yaml")
	for _, in := range inputs {
		t.Run(strings.TrimSuffix(filepath.Base(in), ".yaml"), func(t *testing.T) {
			sp, sc := load(t, in)
			var got bytes.Buffer
			for _, site := range sortedKeys(sc.Sites) {
				fmt.Fprintf(&got, "# %s\n", site)
				l := sp.On(site, sc.Sites[site])
				if l == nil {
					got.WriteString("nothing\n")
					continue
				}
				for _, p := range l.Pieces {
					if wire.DigestOf(p.Blob) != p.Item.Digest || int64(len(p.Blob)) != p.Item.Size || p.Item.Kind != workload.Kind {
						t.Errorf("%v does not name its blob", p.Item)
					}
					if !sc.Namespace && slices.ContainsFunc(sp.own, func(o *Piece) bool { return o == p }) {
						continue
					}
					fmt.Fprintf(&got, "## %s\n", p.Item.Name)
					if sc.Whole {
						y, err := yaml.JSONToYAML(p.Blob)
						if err != nil {
							t.Fatal(err)
						}
						got.Write(y)
					}
				}
			}
			file := strings.TrimSuffix(in, ".yaml") + ".expected"
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("got\n%s\nwant (%s; -update rewrites it)\n%s", got.String(), file, want)
			}
		})
	}
	if len(inputs) < 5 {
		t.Errorf("only %d inputs", len(inputs))
	}
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

const (
	web    = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: web, image: web:%d}]}}}"
	config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata: {a: b}"
)

// A change renders what it changes and nothing else, and sites that get the same share it.
func TestWhatIsRenderedIsShared(t *testing.T) {
	sp := NewSpace("acme", "acme-shop")
	sp.Configure(Settings{DefaultVirtualSite: "shared/all"})
	put(t, sp, fmt.Sprintf(web, 1))
	put(t, sp, config)
	all := []string{"shared/all"}
	first := sp.On("a", all)
	if sp.On("b", append([]string{"other/unnamed"}, all...)) != first {
		t.Error("two sites that get the same have lists of their own")
	}
	if put(t, sp, fmt.Sprintf(web, 1)) || sp.On("a", all) != first {
		t.Error("the same again is a change")
	}
	if !put(t, sp, fmt.Sprintf(web, 2)) {
		t.Fatal("a change is none")
	}
	second := sp.On("a", all)
	differ := 0
	for i := range second.Pieces {
		if second.Pieces[i] != first.Pieces[i] {
			differ++
		}
	}
	if second == first || differ != 1 || len(second.Pieces) != len(first.Pieces) {
		t.Errorf("%d of %d pieces are new after a change of one object", differ, len(second.Pieces))
	}
	// Something that only other sites get leaves the list as it is.
	sp.Settled()
	put(t, sp, "apiVersion: batch/v1\nkind: Job\nmetadata: {name: once, annotations: {ves.io/virtual-sites: shared/few}}\nspec: {template: {spec: {}}}")
	if sp.On("a", all) != second {
		t.Error("a change elsewhere made a list anew")
	}
	// An Override makes one variant, for the sites that it names.
	sp.Settled()
	put(t, sp, strings.Replace(fmt.Sprintf(web, 2), "{name: web}", "{name: web, annotations: {ves.io/overrides: canary}}", 1))
	sp.SetOverride("canary", &v1alpha1.OverrideSpec{SiteList: []string{"b"}, Spec: raw(`{"template":{"spec":{"containers":[{"name":"web","image":"web:3"}]}}}`)})
	if sp.On("a", all) != second || sp.On("b", all) == second {
		t.Error("an Override changes the sites that it does not name, or not the one that it does")
	}
	sp.DeleteOverride("canary")
	if sp.On("b", all) != sp.On("a", all) {
		t.Error("an Override that was deleted goes on")
	}
}

// What is said of an object's virtual sites is where it goes, whatever its kind.
func TestWhere(t *testing.T) {
	sp := NewSpace("acme", "acme-shop")
	sp.Configure(Settings{DefaultVirtualSite: "shared/all"})
	put(t, sp, fmt.Sprintf(web, 1))
	put(t, sp, config)
	put(t, sp, "apiVersion: v1\nkind: Service\nmetadata: {name: web, annotations: {ves.io/virtual-sites: 'lab, shared/eu'}}\nspec: {ports: [{port: 80}]}")
	for item, want := range map[string][]string{
		workload.ItemName("apps", "Deployment", "acme-shop", "web"): {"shared/all"},
		workload.ItemName("", "ConfigMap", "acme-shop", "config"):   {"shared/all", "shared/eu", "shop/lab"},
		workload.ItemName("", "Service", "acme-shop", "web"):        {"shared/eu", "shop/lab"},
		workload.ItemName("", "Service", "acme-shop", "none"):       nil,
	} {
		if got := sp.Where(item); !slices.Equal(got, want) {
			t.Errorf("%s goes to %v, want %v", item, got, want)
		}
	}
}

// What was deleted while a list was on its way does not come back by the list.
func TestLoading(t *testing.T) {
	sp := NewSpace("acme", "acme-shop")
	sp.Configure(Settings{DefaultVirtualSite: "shared/all"})
	kind := mustKind(t, "v1", "ConfigMap")
	object := func(v string) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "config"}, "data": map[string]any{"a": v}}
	}
	set := func(version uint64, v string) bool {
		changed, err := sp.Set(kind, version, object(v))
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	sp.Loading()
	sp.Delete(kind, "config", 10)
	if set(9, "listed"); sp.Objects() != 0 {
		t.Error("an object came back that was deleted after it was listed")
	}
	if set(11, "made anew"); sp.Objects() != 1 {
		t.Error("an object that was made after the deletion is missing")
	}
	if set(8, "old") {
		t.Error("an older version took the place of a newer one")
	}
	sp.Loaded()
}

func TestWhatIsWrittenInAnnotations(t *testing.T) {
	for value, want := range map[string]string{
		"shared/all-eu": "shared/all-eu", " here , shared/a,shared/a": "shared/a shop/here", "": "", ",": "", "a/b/c": "", "UPPER/x": "", "/x": "", "x/": "",
	} {
		got, err := VirtualSites(value, "shop")
		if strings.Join(got, " ") != want || (err == nil) != (want != "") {
			t.Errorf("%q: %v, %v", value, got, err)
		}
	}
	for value, want := range map[string]string{"b, a,b": "b a", "": "", "x/y": "", "a b": ""} {
		got, err := Overrides(value)
		if strings.Join(got, " ") != want || (err == nil) != (want != "") {
			t.Errorf("%q: %v, %v", value, got, err)
		}
	}
}

// What is made anew is another one on its sites, with whatever content, and they are told whose it
// is, by nobody but the centre.
func TestWhatIsMadeAnew(t *testing.T) {
	sp := held(t)
	for item, object := range map[string]string{
		"Job.batch":       "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x, uid: UID, annotations: {muster.dev/origin: other}}\nspec: {template: {spec: {}}}",
		"ConfigMap":       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, uid: UID, annotations: {muster.dev/origin: other}}",
		"Deployment.apps": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x, uid: UID}\nspec: {template: {spec: {}}}",
	} {
		seen := map[string]bool{}
		for _, uid := range []string{"a", "b"} {
			put(t, sp, strings.Replace(object, "UID", uid, 1))
			blob := blobOn(t, sp, "paris", item+"/acme-shop/x")
			if got := child(blob, "metadata", "annotations")[workload.Origin]; got != uid {
				t.Errorf("%s: origin %q, want %q", item, got, uid)
			}
			seen[fmt.Sprint(blob)] = true
		}
		if len(seen) != 2 {
			t.Errorf("%s: %d contents of two", item, len(seen))
		}
	}
}

// A bad annotation that stands there all the same sends nothing where nobody wanted it.
func TestBadAnnotations(t *testing.T) {
	sp := NewSpace("acme", "acme-shop")
	sp.Configure(Settings{DefaultVirtualSite: "shared/all"})
	var o map[string]any
	if err := yaml.Unmarshal([]byte(strings.Replace(fmt.Sprintf(web, 1), "{name: web}", "{name: web, annotations: {ves.io/virtual-sites: 'a/b/c'}}", 1)), &o); err != nil {
		t.Fatal(err)
	}
	if _, err := sp.Set(mustKind(t, "apps/v1", "Deployment"), 0, o); err == nil || !strings.Contains(err.Error(), "ves.io/virtual-sites") {
		t.Errorf("%v", err)
	}
	for _, p := range sp.On("a", []string{"shared/all"}).Pieces {
		if strings.HasPrefix(p.Item.Name, "Deployment") {
			t.Error("it goes to the default virtual site")
		}
	}
}

func TestCheckOfSize(t *testing.T) {
	kind := mustKind(t, "v1", "ConfigMap")
	object := func(name string, n int) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": name}, "data": map[string]any{"a": strings.Repeat("x", n)}}
	}
	if err := Check(kind, "acme-shop", "shop", object("config", MaxBlob-1000)); err != nil {
		t.Error(err)
	}
	if err := Check(kind, "acme-shop", "shop", object("config", MaxBlob)); err == nil || !strings.Contains(err.Error(), "1048576") {
		t.Errorf("%v", err)
	}
	if err := Check(kind, "acme-shop", "shop", object("kube-root-ca.crt", MaxBlob)); err != nil {
		t.Errorf("what is not carried: %v", err)
	}
}

func FuzzObject(f *testing.F) {
	f.Add("shared/a, b", "x,y", "tiny", []byte(`{"spec":{"template":{"spec":{"containers":[{}]}}}}`), []byte(`{"template":null}`))
	f.Add("", ",", "", []byte(`{"metadata":{"managedFields":[{"fieldsV1":{"f:spec":1}}],"labels":3},"spec":{"ports":[1,{"nodePort":3}],"template":[]}}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, where, overrides, flavor string, object, replacement []byte) {
		for _, kind := range append(slices.Clone(offered.Stock), machines) {
			var o map[string]any
			if yaml.Unmarshal(object, &o) != nil || o == nil {
				return
			}
			meta := child(o, "metadata")
			if meta == nil {
				meta = map[string]any{}
				o["metadata"] = meta
			}
			meta["name"] = "x"
			meta["annotations"] = map[string]any{workload.VirtualSites: where, workload.Overrides: overrides, workload.Flavor: flavor}
			sp := NewSpace("acme", "acme-shop")
			sp.Configure(Settings{DefaultVirtualSite: "shared/all"})
			sp.SetOverride("x", &v1alpha1.OverrideSpec{SiteList: []string{"a"}, Spec: raw(string(replacement))})
			_, _ = sp.Set(kind, 1, o)
			for _, p := range sp.On("a", []string{"shared/all"}).Pieces {
				var back map[string]any
				if err := yaml.Unmarshal(p.Blob, &back); err != nil {
					t.Fatalf("%s: %v: %s", p.Item.Name, err, p.Blob)
				}
			}
		}
	})
}
