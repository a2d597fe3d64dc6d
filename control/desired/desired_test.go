package desired

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

var update = flag.Bool("update", false, "rewrite the expected files in testdata")

func newStore(t testing.TB) *tested {
	t.Helper()
	return test(New(Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}))
}

func siteNamed(name string) fleet.SiteID { return fleet.SiteID{Tenant: "acme", Name: name} }

func allow(names ...string) v1alpha1.CollectionPolicySpec {
	return v1alpha1.CollectionPolicySpec{Allow: v1alpha1.MetricAllow{Names: names}}
}

func selecting(spec v1alpha1.CollectionPolicySpec, k, v string) v1alpha1.CollectionPolicySpec {
	spec.SiteSelector = metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
	return spec
}

func set(t testing.TB, s *tested, name string, spec v1alpha1.CollectionPolicySpec) {
	t.Helper()
	s.SetPolicy("acme", name, spec)
}

// policyOf is what the site would apply.
func policyOf(t testing.TB, s *tested, name string) fleet.CollectionPolicy {
	t.Helper()
	b, ok := s.Blob(s.PolicyHash(siteNamed(name)))
	if !ok {
		t.Fatalf("site %s: no blob for its policy %q", name, s.PolicyHash(siteNamed(name)))
	}
	p, err := fleet.DecodeCollectionPolicy(b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestMerge: testdata/merge/*.yaml holds policies and the labels of a site; the
// expected file is what the site gets.
func TestMerge(t *testing.T) {
	inputs, _ := filepath.Glob("testdata/merge/*.yaml")
	if len(inputs) < 5 {
		t.Fatalf("only %d inputs", len(inputs))
	}
	for _, in := range inputs {
		t.Run(strings.TrimSuffix(filepath.Base(in), ".yaml"), func(t *testing.T) {
			raw, err := os.ReadFile(in)
			if err != nil {
				t.Fatal(err)
			}
			var input struct {
				SiteLabels map[string]string           `json:"siteLabels"`
				Policies   []v1alpha1.CollectionPolicy `json:"policies"`
			}
			if err := yaml.UnmarshalStrict(raw, &input); err != nil {
				t.Fatal(err)
			}
			// The order in which things become known must not matter.
			var first []byte
			for round := range 2 {
				s := newStore(t)
				if round == 1 {
					slices.Reverse(input.Policies)
					s.Start()
				}
				s.SetSite(siteNamed("x"), input.SiteLabels)
				for _, p := range input.Policies {
					s.SetPolicy("acme", p.Name, p.Spec)
				}
				s.Start()
				b, ok := s.Blob(s.PolicyHash(siteNamed("x")))
				if !ok {
					t.Fatal("no policy")
				}
				if round == 1 && !bytes.Equal(first, b) {
					t.Errorf("another order gives\n%s\nnot\n%s", b, first)
				}
				first = b
				// Who asks how often a site is scraped is told the same.
				known := s.book.Snapshot()
				p, err := fleet.DecodeCollectionPolicy(b)
				if i := known.Find("acme", "x"); err != nil || i < 0 || known.Sites[i].Interval() != p.Interval {
					t.Errorf("site %d of the inventory has another interval than %s: %v", i, p.Interval, err)
				}
			}
			var got bytes.Buffer
			if err := json.Indent(&got, first, "", "  "); err != nil {
				t.Fatal(err)
			}
			got.WriteByte('\n')
			file := strings.TrimSuffix(in, ".yaml") + ".expected.json"
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
}

func TestNothingIsAnsweredBeforeStart(t *testing.T) {
	s := newStore(t)
	var told []string
	s.Subscribe(func(id fleet.SiteID) { told = append(told, id.Name) })
	s.SetSite(siteNamed("a"), nil)
	set(t, s, "p", allow("up"))
	if s.State(siteNamed("a")) != nil || len(told) != 0 {
		t.Errorf("state %v, told %v before Start", s.State(siteNamed("a")), told)
	}
	s.Start()
	if st := s.State(siteNamed("a")); len(st.GetItems()) != 1 || len(told) != 1 {
		t.Errorf("state %v, told %v after Start", st, told)
	}
}

func TestOnlyAffectedSitesAreRendered(t *testing.T) {
	s := newStore(t)
	for i := range 100 {
		s.book.Put(siteObject(siteNamed(fmt.Sprintf("s-%03d", i)), map[string]string{"ring": fmt.Sprint(i % 10)}, ""))
	}
	s.apply()
	set(t, s, "all", allow("up"))
	s.Start()
	var mu sync.Mutex
	var told []string
	cancel := s.Subscribe(func(id fleet.SiteID) { mu.Lock(); told = append(told, id.Name); mu.Unlock() })
	take := func() []string {
		mu.Lock()
		defer mu.Unlock()
		out := told
		told = nil
		slices.Sort(out)
		return out
	}
	renders := func() int { return int(testutil.ToFloat64(s.rendered)) }

	before := renders()
	set(t, s, "ring3", selecting(allow("node_load1"), "ring", "3"))
	if n := renders() - before; n != 10 || len(take()) != 10 {
		t.Errorf("a policy for 10 of 100 sites rendered %d", n)
	}
	before = renders()
	set(t, s, "ring3", selecting(allow("node_load1"), "ring", "4")) // the old ten and the new ten
	if n := renders() - before; n != 20 || len(take()) != 20 {
		t.Errorf("moving a policy rendered %d, want 20", n)
	}
	before = renders()
	s.SetSite(siteNamed("s-003"), map[string]string{"ring": "4"})
	if n := renders() - before; n != 1 {
		t.Errorf("a label change rendered %d", n)
	}
	if got := take(); len(got) != 1 || got[0] != "s-003" {
		t.Errorf("told %v", got)
	}
	before = renders()
	s.SetSite(siteNamed("s-003"), map[string]string{"ring": "4"}) // e.g. only its status changed
	if n := renders() - before; n != 0 {
		t.Errorf("no change rendered %d", n)
	}
	s.SetSite(siteNamed("s-003"), map[string]string{"ring": "4", "colour": "blue"}) // nothing selects by colour
	if got := take(); len(got) != 0 {
		t.Errorf("told %v of a change that changed nothing", got)
	}
	set(t, s, "ring3", selecting(allow("node_load1"), "ring", "4")) // e.g. only its status changed
	if got := take(); len(got) != 0 {
		t.Errorf("told %v of the same policy", got)
	}
	s.DeletePolicy("acme", "ring3")
	if got := take(); len(got) != 11 {
		t.Errorf("told %d sites of a deleted policy, want 11", len(got))
	}
	if got := policyOf(t, s, "s-003"); len(got.AllowNames) != 1 {
		t.Errorf("policy %v", got.AllowNames)
	}
	before = renders()
	s.SetPolicy("globex", "all", allow("secret"))
	if n := renders() - before; n != 0 {
		t.Errorf("another tenant's policy rendered %d sites of acme", n)
	}
	s.DeleteSite(siteNamed("s-000"))
	if got := take(); len(got) != 1 || s.State(siteNamed("s-000")) != nil {
		t.Errorf("after deletion: told %v, state %v", got, s.State(siteNamed("s-000")))
	}
	cancel()
	s.DeleteSite(siteNamed("s-001"))
	if got := take(); len(got) != 0 {
		t.Errorf("told %v after cancel", got)
	}
}

// The design's promise: sites with the same policy share the same blob.
func TestBlobsForThreeThousandSites(t *testing.T) {
	now := time.Now()
	s := test(New(Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Now: func() time.Time { return now }}))
	for i := range 3000 {
		s.book.Put(siteObject(siteNamed(fmt.Sprintf("s-%04d", i)), map[string]string{"region": fmt.Sprint(i % 3)}, ""))
	}
	s.apply()
	set(t, s, "all", allow("up"))
	s.Start()
	if st := s.Stats(); st.Sites != 3000 || st.Blobs != 2 {
		t.Errorf("%+v, want 1 blob for 3,000 sites with one policy, and the inventory of the regionals", st)
	}
	old := s.PolicyHash(siteNamed("s-0000"))
	set(t, s, "eu", selecting(allow("node_load1"), "region", "0"))
	if st := s.Stats(); st.Blobs != 3 {
		t.Errorf("%+v, want 3 blobs", st)
	}
	set(t, s, "all", allow("up", "node_load5"))
	if _, ok := s.Blob(old); !ok {
		t.Error("a blob is gone while downloads may be under way")
	}
	now = now.Add(time.Hour)
	s.SetSite(siteNamed("new"), nil)
	if st := s.Stats(); st.Blobs != 3 {
		t.Errorf("%+v after the grace time, want 3 blobs", st)
	}
	if _, ok := s.Blob(old); ok {
		t.Error("a blob that nobody needs stays for ever")
	}
	// A blob that comes back into use in its grace time must stay.
	set(t, s, "all", allow("up"))
	set(t, s, "all", allow("up", "node_load5"))
	now = now.Add(time.Hour)
	s.SetSite(siteNamed("new2"), nil)
	for _, n := range []string{"s-0000", "s-0001", "new"} {
		policyOf(t, s, n)
	}
}

func TestRevisionAndSizeAreTrue(t *testing.T) {
	s := newStore(t)
	s.SetSite(siteNamed("a"), nil)
	s.Start()
	st := s.State(siteNamed("a"))
	if st.Revision != wire.RevisionOf(st.Items) {
		t.Errorf("revision %s", st.Revision)
	}
	b, _ := s.Blob(st.Items[0].Digest)
	if int64(len(b)) != st.Items[0].Size || wire.DigestOf(b) != st.Items[0].Digest {
		t.Errorf("item %v for %d bytes", st.Items[0], len(b))
	}
}

// FuzzDecodePolicyBlob: what the site decodes is outside bytes for it; what it
// accepts can be encoded and decoded again.
func FuzzDecodePolicyBlob(f *testing.F) {
	f.Add(Merge([]v1alpha1.CollectionPolicySpec{allow("up")}).Encode())
	f.Add([]byte(`{"allowPatterns":["("]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := fleet.DecodeCollectionPolicy(b)
		if err != nil {
			return
		}
		if _, err := fleet.DecodeCollectionPolicy(p.Encode()); err != nil {
			t.Errorf("%s: %v", b, err)
		}
	})
}

func BenchmarkPolicyChange3000Sites(b *testing.B) {
	s := newStore(b)
	for i := range 3000 {
		s.book.Put(siteObject(siteNamed(fmt.Sprintf("s-%04d", i)), map[string]string{"region": fmt.Sprint(i % 3)}, ""))
	}
	s.apply()
	s.Start()
	names := make([]string, 300)
	for i := range names {
		names[i] = fmt.Sprintf("node_metric_%d", i)
	}
	for i := 0; b.Loop(); i++ {
		set(b, s, "all", allow(append(names, fmt.Sprint("m", i))...))
	}
}

func BenchmarkLabelChange(b *testing.B) {
	s := newStore(b)
	for i := range 3000 {
		s.book.Put(siteObject(siteNamed(fmt.Sprintf("s-%04d", i)), map[string]string{"region": "x"}, ""))
	}
	s.apply()
	for i := range 20 {
		set(b, s, fmt.Sprint("p", i), selecting(allow("up"), "region", fmt.Sprint(i)))
	}
	s.Start()
	for i := 0; b.Loop(); i++ {
		s.SetSite(siteNamed("s-0000"), map[string]string{"region": fmt.Sprint(i % 20)})
	}
}

// TestReservedPlaces: what the HealthPolicy in effect reads has places in the budget.
func TestReservedPlaces(t *testing.T) {
	signal := func(q, objects string) v1alpha1.HealthPolicySpec {
		return v1alpha1.HealthPolicySpec{Signals: []v1alpha1.Signal{{Name: "s", Query: q, Objects: objects}, {Name: "broken", Query: "sum by ("}}}
	}
	shipped := signal(`sum by (tenant, site) (rate(shipped_total[1m])) or 0 * count by (tenant, site) ({__name__="also"})`, "")
	s := test(New(Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), ShippedHealth: &shipped}))
	s.SetSite(siteNamed("x"), nil)
	s.Start()
	want := func(names ...string) {
		t.Helper()
		if got := policyOf(t, s, "x").Reserve; !slices.Equal(got, names) {
			t.Errorf("reserved %v, want %v", got, names)
		}
	}
	want("also", "shipped_total")
	own := &v1alpha1.HealthPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "own"}, Spec: signal("max by (tenant, site) (a / b)", "c")}
	s.book.Put(own)
	s.apply()
	want("a", "b", "c")
	// A score needs none of what only names objects.
	if diff := cmp.Diff([]fleet.HealthRead{{Metrics: []string{"a", "b"}}}, policyOf(t, s, "x").Reads); diff != "" {
		t.Error(diff)
	}
	own = own.DeepCopy()
	own.Generation, own.Spec = 2, signal("max by (tenant, site) (d)", "")
	s.book.Put(own)
	s.apply()
	want("d")
	// So has what the strongest in shadow reads, however strong it is.
	shadow := &v1alpha1.HealthPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "a-shadow"}, Spec: signal("max by (tenant, site) (e)", "d")}
	shadow.Spec.Mode, shadow.Spec.Priority = v1alpha1.HealthPolicyShadow, 9
	s.book.Put(shadow)
	s.apply()
	want("d", "e")
	s.book.Drop(own)
	s.apply()
	want("also", "d", "e", "shipped_total")
	s.book.Drop(shadow)
	s.book.Put(own)
	s.apply()
	want("d")
	s.book.Drop(own)
	s.apply()
	want("also", "shipped_total")
}
