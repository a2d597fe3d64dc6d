package desired

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

func stock(t testing.TB, group, kind string) offered.Kind {
	t.Helper()
	k, ok := offered.NewSet().Of(schema.GroupKind{Group: group, Kind: kind})
	if !ok {
		t.Fatalf("%s is not offered", kind)
	}
	return k
}

func (t *tested) put(tb testing.TB, group, kind, doc string) {
	tb.Helper()
	var o map[string]any
	if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
		tb.Fatal(err)
	}
	t.gen++
	if err := t.SetWorkload(stock(tb, group, kind), "acme-shop", uint64(t.gen), o); err != nil {
		tb.Fatal(err)
	}
}

func deployment(name, image, annotations string) string {
	return fmt.Sprintf("metadata: {name: %s, annotations: {%s}}\nspec: {replicas: 2, template: {spec: {containers: [{name: a, image: %q}]}}}", name, annotations, image)
}

// objectsOf are the names of the workload items of a site, without those that every
// namespace has.
func objectsOf(s *tested, site string) []string {
	var out []string
	for _, it := range s.State(siteNamed(site)).GetItems() {
		if it.Kind == workload.Kind && !strings.HasPrefix(it.Name, "Namespace/") && !strings.Contains(it.Name, "/muster-") {
			out = append(out, it.Name)
		}
	}
	return out
}

// shop is a fleet of n sites, half of them in each of shared/even and shared/odd, with a
// virtual Kubernetes in acme-shop on shared/even.
func shop(t testing.TB, n int) *tested {
	s := newStore(t)
	for _, parity := range []string{"even", "odd"} {
		s.book.Put(&v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-shared", Name: parity},
			Spec: v1alpha1.VirtualSiteSpec{SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{"parity": parity}}}})
	}
	for i := range n {
		s.book.Put(siteObject(siteNamed(fmt.Sprintf("s-%04d", i)), map[string]string{"parity": []string{"even", "odd"}[i%2]}, ""))
	}
	s.apply()
	if !s.ConfigureWorkloads("acme", "acme-shop", render.Settings{DefaultVirtualSite: "shared/even"}) {
		t.Fatal("the namespace is not new")
	}
	return s
}

func TestWorkloadsReachTheirSites(t *testing.T) {
	s := shop(t, 4)
	s.put(t, "apps", "Deployment", deployment("web", "web:1", ""))
	s.put(t, "apps", "Deployment", deployment("odd", "odd:1", "ves.io/virtual-sites: shared/odd"))
	s.put(t, "", "ConfigMap", `metadata: {name: config, creationTimestamp: "2026-01-30T00:00:00Z"}`)
	s.Start()
	check := func(site string, want ...string) {
		t.Helper()
		if got := objectsOf(s, site); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", site, got, want)
		}
	}
	const web, odd, config = "Deployment.apps/acme-shop/web", "Deployment.apps/acme-shop/odd", "ConfigMap/acme-shop/config"
	if p, _ := s.Placed(config); !p.Created.Equal(time.Date(2026, 1, 30, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%s was made at %s", config, p.Created)
	}
	if p, _ := s.Placed(web); !p.Created.IsZero() {
		t.Errorf("%s, of which it is not known, was made at %s", web, p.Created)
	}
	check("s-0000", config, web)
	check("s-0001", config, odd)
	// A site that joins gets it by its label alone, and one that leaves loses all.
	s.SetSite(siteNamed("s-0009"), map[string]string{"parity": "even"})
	check("s-0009", config, web)
	s.SetSite(siteNamed("s-0000"), map[string]string{"parity": "neither"})
	if items := s.State(siteNamed("s-0000")).Items; len(items) != 1 {
		t.Errorf("a site that is in no virtual site any more holds %v", items)
	}
	s.DeleteWorkload(stock(t, "apps", "Deployment"), "acme-shop", "odd", 100)
	s.renderWorkloads()
	if items := s.State(siteNamed("s-0001")).Items; len(items) != 1 {
		t.Errorf("a site that nothing names any more holds %v", items)
	}
	if r, ok := s.Workloads("acme-shop"); !ok || len(r.Sites) != 2 || r.Objects != 2 {
		t.Errorf("reach %+v", r)
	}
	s.RemoveWorkloads("acme-shop")
	s.renderWorkloads()
	check("s-0002")
	if st := s.Stats(); st.Objects != 0 || st.States != 1 {
		t.Errorf("%+v", st)
	}
}

// A change of one workload writes one blob, tells each of its sites once, and nobody else.
func TestAChangeWritesOneBlob(t *testing.T) {
	s := shop(t, 200)
	for i := range 20 {
		s.put(t, "apps", "Deployment", deployment(fmt.Sprintf("web-%02d", i), "web:1", ""))
	}
	s.Start()
	before := s.Stats()
	told := map[string]int{}
	s.Subscribe(func(id fleet.SiteID) { told[id.Name]++ })
	s.put(t, "apps", "Deployment", deployment("web-07", "web:2", ""))
	s.renderWorkloads()
	if after := s.Stats(); after.Blobs != before.Blobs+1 || after.States != before.States {
		t.Errorf("from %+v to %+v", before, after)
	}
	if len(told) != 100 {
		t.Errorf("%d sites were told", len(told))
	}
	for name, n := range told {
		if n != 1 || name[5]%2 == 1 {
			t.Errorf("%s was told %d times", name, n)
		}
	}
	a, b := s.State(siteNamed("s-0000")), s.State(siteNamed("s-0002"))
	if a != b {
		t.Error("two sites that hold the same have states of their own")
	}
	if a.Revision != wire.RevisionOf(a.Items) {
		t.Error("the revision does not name the items")
	}
	for _, it := range a.Items {
		if blob, ok := s.Blob(it.Digest); !ok || wire.DigestOf(blob) != it.Digest || int64(len(blob)) != it.Size {
			t.Errorf("no blob for %v", it)
		}
	}
	// The same again, and a status that somebody wrote, tell nobody.
	clear(told)
	s.put(t, "apps", "Deployment", deployment("web-07", "web:2", "")+"\nstatus: {replicas: 3}")
	s.renderWorkloads()
	if len(told) != 0 {
		t.Errorf("%d sites were told of nothing", len(told))
	}
}

// Ten thousand objects of one site are a blob each and one list, which fits into a message;
// one that changes is one blob more, and the list differs in it alone.
func TestTenThousandObjectsOfASite(t *testing.T) {
	const n = 10000
	s := shop(t, 1)
	for i := range n {
		s.put(t, "", "ConfigMap", fmt.Sprintf("metadata: {name: config-%05d}\ndata: {number: %q}", i, fmt.Sprint(i)))
	}
	s.Start()
	id := siteNamed("s-0000")
	before, had := s.Stats(), s.State(id)
	if len(had.Items) < n || before.Blobs < n || before.Blobs > n+10 {
		t.Fatalf("%d items, %d blobs", len(had.Items), before.Blobs)
	}
	size := proto.Size(had)
	t.Logf("the list of %d items has %d bytes", len(had.Items), size)
	if size > 160*len(had.Items) || size > wire.MaxDown/8 {
		t.Errorf("the list has %d bytes, of %d that a message has", size, wire.MaxDown)
	}
	told := 0
	s.Subscribe(func(fleet.SiteID) { told++ })
	s.put(t, "", "ConfigMap", "metadata: {name: config-00077}\ndata: {number: another}")
	s.renderWorkloads()
	after, has := s.Stats(), s.State(id)
	changed, bytes := 0, int64(0)
	for i, it := range has.Items {
		if it.Digest != had.Items[i].Digest {
			changed++
			bytes += it.Size
		}
	}
	if changed != 1 || bytes > 500 || len(has.Items) != len(had.Items) || after.Blobs > before.Blobs+1 || told != 1 {
		t.Errorf("%d items of %d bytes changed, %d blobs became %d, told %d times", changed, bytes, before.Blobs, after.Blobs, told)
	}
	change := wire.ChangeBetween(had, has)
	if got, err := wire.Changed(had, change); err != nil || got.Revision != has.Revision {
		t.Errorf("the change of the list: %v", err)
	}
	t.Logf("its change has %d bytes", proto.Size(change))
	if proto.Size(change) > 500 {
		t.Errorf("the change of the list has %d bytes", proto.Size(change))
	}
}

// An Override concerns the sites that it names.
func TestOverridesOfSites(t *testing.T) {
	s := shop(t, 10)
	s.put(t, "apps", "Deployment", deployment("web", "web:1", "ves.io/overrides: canary"))
	s.Start()
	told := map[string]int{}
	s.Subscribe(func(id fleet.SiteID) { told[id.Name]++ })
	spec := &v1alpha1.OverrideSpec{SiteList: []string{"s-0004", "s-0005", "gone"}, Spec: apiruntime.RawExtension{Raw: []byte(`{"replicas":1}`)}}
	s.SetOverride("acme-shop", "canary", spec)
	s.renderWorkloads()
	if len(told) != 1 || told["s-0004"] != 1 {
		t.Errorf("told: %v", told)
	}
	if got := blobOf(t, s, "s-0004", "Deployment.apps/acme-shop/web"); !strings.Contains(got, `"replicas":1`) {
		t.Error(got)
	}
	spec.Spec.Raw = []byte(`{"replicas":5}`)
	s.SetOverride("acme-shop", "canary", spec)
	s.renderWorkloads()
	if got := blobOf(t, s, "s-0004", "Deployment.apps/acme-shop/web"); !strings.Contains(got, `"replicas":5`) {
		t.Errorf("after a change of the Override: %s", got)
	}
	s.DeleteOverride("acme-shop", "canary")
	s.renderWorkloads()
	if got := blobOf(t, s, "s-0004", "Deployment.apps/acme-shop/web"); !strings.Contains(got, `"replicas":2`) {
		t.Error(got)
	}
	if st := s.Stats(); st.States != 2 {
		t.Errorf("%+v", st)
	}
}

func blobOf(t testing.TB, s *tested, site, item string) string {
	t.Helper()
	for _, it := range s.State(siteNamed(site)).GetItems() {
		if it.Name == item {
			b, _ := s.Blob(it.Digest)
			return string(b)
		}
	}
	t.Fatalf("%s does not hold %s", site, item)
	return ""
}

// Another tenant's sites get nothing, though they have a virtual site of that name.
func TestTenantsAreApart(t *testing.T) {
	s := shop(t, 2)
	s.book.Put(&v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: "globex-shared", Name: "even"}})
	s.book.Put(siteObject(fleet.SiteID{Tenant: "globex", Name: "s-0000"}, map[string]string{"parity": "even"}, ""))
	s.apply()
	s.put(t, "apps", "Deployment", deployment("web", "web:1", ""))
	s.Start()
	if items := s.State(fleet.SiteID{Tenant: "globex", Name: "s-0000"}).Items; len(items) != 1 {
		t.Errorf("%v", items)
	}
	if got := objectsOf(s, "s-0000"); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// A site that would get more than it takes keeps what it has, and its policies go on.
func TestTooManyObjects(t *testing.T) {
	s := shop(t, 2)
	s.opts.MaxItems = 6 // a policy, a namespace, its isolation and quota, and two more
	for _, name := range []string{"a", "b"} {
		s.put(t, "", "ConfigMap", "metadata: {name: "+name+"}")
	}
	s.Start()
	s.put(t, "", "ConfigMap", "metadata: {name: c}")
	s.renderWorkloads()
	set(t, s, "p", allow("up"))
	if got := objectsOf(s, "s-0000"); !slices.Equal(got, []string{"ConfigMap/acme-shop/a", "ConfigMap/acme-shop/b"}) {
		t.Errorf("%v", got)
	}
	if p := policyOf(t, s, "s-0000"); !slices.Contains(p.AllowNames, "up") {
		t.Errorf("%+v", p)
	}
	if r, _ := s.Workloads("acme-shop"); !slices.Equal(r.TooMany, []string{"s-0000"}) {
		t.Errorf("%+v", r)
	}
	s.DeleteWorkload(stock(t, "", "ConfigMap"), "acme-shop", "a", 100)
	s.renderWorkloads()
	if r, _ := s.Workloads("acme-shop"); len(r.TooMany) != 0 || !slices.Equal(objectsOf(s, "s-0000"), []string{"ConfigMap/acme-shop/b", "ConfigMap/acme-shop/c"}) {
		t.Errorf("%+v, %v", r, objectsOf(s, "s-0000"))
	}
}

// What comes in one go, as a chart's objects do, is told once.
func TestChangesThatComeTogetherAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shop(t, 2)
		s.Start()
		var mu sync.Mutex
		told := 0
		s.Subscribe(func(fleet.SiteID) { mu.Lock(); told++; mu.Unlock() })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Run(ctx) }()
		synctest.Wait()
		began := time.Now()
		for i := range 5 {
			s.put(t, "", "ConfigMap", fmt.Sprintf("metadata: {name: c-%d}", i))
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(quiet)
		synctest.Wait()
		mu.Lock()
		if told != 1 || len(objectsOf(s, "s-0000")) != 5 {
			t.Errorf("told %d times of %v after %v", told, objectsOf(s, "s-0000"), time.Since(began))
		}
		mu.Unlock()
		// A stream that does not end is not waited for.
		for i := range 30 {
			s.put(t, "", "ConfigMap", fmt.Sprintf("metadata: {name: d-%d}", i))
			time.Sleep(20 * time.Millisecond)
		}
		synctest.Wait()
		mu.Lock()
		if told < 3 {
			t.Errorf("told %d times in 600 ms", told)
		}
		mu.Unlock()
		cancel()
		<-done
	})
}

// The budget of what a fleet's desired state takes: 3,000 sites with 50 objects each share
// what they have in common.
func TestMemoryOfAFleet(t *testing.T) {
	s := shop(t, 6000)
	for i := range 50 {
		s.put(t, "apps", "Deployment", deployment(fmt.Sprintf("web-%02d", i), "web:1", ""))
	}
	before := heap()
	s.Start()
	took := heap() - before
	t.Logf("6,000 sites, 3,000 of them with 50 objects: %.1f MiB", float64(took)/(1<<20))
	if took > 16<<20 {
		t.Errorf("%d bytes, want at most 16 MiB", took)
	}
	runtime.KeepAlive(s)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkOneOfMany: one of 50 workloads of 3,000 sites changes.
func BenchmarkOneOfMany(b *testing.B) {
	s := shop(b, 6000)
	for i := range 50 {
		s.put(b, "apps", "Deployment", deployment(fmt.Sprintf("web-%02d", i), "web:1", ""))
	}
	s.Start()
	for i := 0; b.Loop(); i++ {
		s.put(b, "apps", "Deployment", deployment("web-07", fmt.Sprintf("web:%d", i+2), ""))
		s.renderWorkloads()
	}
}

// BenchmarkOverrideEach: as above, where an Override of its own names each of the sites.
func BenchmarkOverrideEach(b *testing.B) {
	s := shop(b, 6000)
	var names []string
	for i := range 3000 {
		name := fmt.Sprintf("o-%04d", i)
		s.SetOverride("acme-shop", name, &v1alpha1.OverrideSpec{SiteList: []string{fmt.Sprintf("s-%04d", 2*i)}, Spec: apiruntime.RawExtension{Raw: fmt.Appendf(nil, `{"replicas":%d}`, i)}})
		names = append(names, name)
	}
	for i := range 50 {
		s.put(b, "apps", "Deployment", deployment(fmt.Sprintf("web-%02d", i), "web:1", ""))
	}
	s.put(b, "apps", "Deployment", deployment("each", "web:1", `ves.io/overrides: "`+strings.Join(names, ",")+`"`))
	s.Start()
	for i := 0; b.Loop(); i++ {
		s.put(b, "apps", "Deployment", deployment("web-07", fmt.Sprintf("web:%d", i+2), ""))
		s.renderWorkloads()
	}
}

// BenchmarkLargeSite: one of 10,000 objects of one site changes.
func BenchmarkLargeSite(b *testing.B) {
	s := shop(b, 1)
	for i := range 10000 {
		s.put(b, "", "ConfigMap", fmt.Sprintf("metadata: {name: config-%05d}\ndata: {a: b}", i))
	}
	s.Start()
	for i := 0; b.Loop(); i++ {
		s.put(b, "", "ConfigMap", fmt.Sprintf("metadata: {name: config-00077}\ndata: {a: b%d}", i))
		s.renderWorkloads()
	}
}

// BenchmarkReadObject: an object of ordinary size comes from the API server.
func BenchmarkReadObject(b *testing.B) {
	s := shop(b, 1)
	for i := 0; b.Loop(); i++ {
		s.put(b, "apps", "Deployment", deployment("web", fmt.Sprintf("web:%d", i), ""))
	}
}
