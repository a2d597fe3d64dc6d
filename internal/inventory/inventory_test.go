package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

func scheme(t testing.TB) *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(s), corev1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return s
}

func ns(name, tenant string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelTenant: tenant}}}
}

func site(tenant, name string, labels map[string]string) *v1alpha1.Site {
	return &v1alpha1.Site{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant + "-system", Name: name, Labels: labels},
		Spec:       v1alpha1.SiteSpec{Approved: true, Place: &v1alpha1.Place{Latitude: "48.5", Longitude: "-2.25"}},
		Status:     v1alpha1.SiteStatus{Phase: fleet.PhaseOnline},
	}
}

func virtual(namespace, name string, sel metav1.LabelSelector, windows ...v1alpha1.MaintenanceWindow) *v1alpha1.VirtualSite {
	return &v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.VirtualSiteSpec{SiteSelector: sel, MaintenanceWindows: windows}}
}

func match(kv ...string) metav1.LabelSelector {
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return metav1.LabelSelector{MatchLabels: m}
}

func policy(tenant, name string, priority int32, sel metav1.LabelSelector) *v1alpha1.HealthPolicy {
	return &v1alpha1.HealthPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant + "-system", Name: name, Generation: 1, UID: "1"},
		Spec:       v1alpha1.HealthPolicySpec{SiteSelector: sel, Priority: priority},
	}
}

func window(name string, start time.Time, length time.Duration) v1alpha1.MaintenanceWindow {
	return v1alpha1.MaintenanceWindow{Name: name, Reason: name, Start: &metav1.Time{Time: start}, Duration: metav1.Duration{Duration: length}}
}

// lists tells the reflectors that the fake client can't stream its first list.
type lists struct{ client.WithWatch }

func (lists) IsWatchListSemanticsUnSupported() bool { return true }

func builder(t testing.TB, objs ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(scheme(t)).WithStatusSubresource(&v1alpha1.Site{}).WithObjects(objs...).Build()
}

// start runs an inventory in the test's bubble until stop.
func start(t testing.TB, c client.WithWatch, opts ...func(*Options)) (inv *Inventory, stop func()) {
	t.Helper()
	o := Options{Client: lists{c}, Policies: []PolicyKind{HealthPolicies()}, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range opts {
		f(&o)
	}
	inv, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = inv.Run(ctx) }()
	settle()
	return inv, func() { cancel(); <-done }
}

// settle lets everything that was written come through.
func settle() {
	for range 3 {
		time.Sleep(time.Second)
		synctest.Wait()
	}
}

func members(s *Snapshot, key string) string {
	for _, v := range s.VirtualSites {
		if v.Tenant+":"+v.Key() == key {
			var out []string
			for _, i := range v.Members {
				out = append(out, s.Sites[i].ID.Name)
			}
			return strings.Join(out, " ")
		}
	}
	return "no such virtual site"
}

func TestFollowsTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		waiting := site("a", "waiting", map[string]string{"region": "eu"})
		waiting.Spec.Approved, waiting.Status.Phase = false, ""
		c := builder(t,
			ns("a-system", "a"), ns("a-shared", "a"), ns("a-shop", "a"), ns("b-system", "b"), ns("b-shared", "b"),
			&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.TenantSpec{Quotas: v1alpha1.TenantQuotas{LogBytesPerDay: 7}}}, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "empty"}},
			site("a", "paris", map[string]string{"region": "eu", "model": "x"}), site("a", "rome", map[string]string{"region": "eu"}), waiting,
			site("a", "tokyo", map[string]string{"region": "asia"}), site("b", "paris", map[string]string{"region": "eu"}),
			virtual("a-shared", "eu", match("region", "eu")), virtual("a-shop", "eu", match("region", "eu", "model", "x")),
			virtual("b-shared", "all", metav1.LabelSelector{}), virtual("a-shared", "none", match("region", "mars")),
			policy("a", "default", 0, metav1.LabelSelector{}), policy("a", "strict", 10, match("model", "x")), policy("a", "also", 0, metav1.LabelSelector{}),
			// Where applications live nobody may place policies.
			&v1alpha1.HealthPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a-shop", Name: "sly"}, Spec: v1alpha1.HealthPolicySpec{Priority: 1000}},
		)
		inv, stop := start(t, c)
		defer stop()
		s := inv.Snapshot()
		if err := inv.Ready(); err != nil || !inv.Fresh() {
			t.Fatal(err)
		}
		var ids, tenants []string
		for i, site := range s.Sites {
			ids = append(ids, site.ID.String())
			if s.Find(site.ID.Tenant, site.ID.Name) != i {
				t.Errorf("Find(%s) = %d, want %d", site.ID, s.Find(site.ID.Tenant, site.ID.Name), i)
			}
		}
		for _, x := range s.Tenants {
			tenants = append(tenants, fmt.Sprint(x.Name, x.Exists, x.Quotas.LogBytesPerDay))
		}
		if got := strings.Join(ids, " "); got != "a/paris a/rome a/tokyo a/waiting b/paris" {
			t.Errorf("sites %s", got)
		}
		if s.Find("a", "oslo") != -1 || s.Find("zzz", "paris") != -1 {
			t.Error("Find of an unknown site is not -1")
		}
		if got := strings.Join(tenants, " "); got != "atrue 7 bfalse 0 emptytrue 0" || s.Tenant("a").Quotas.LogBytesPerDay != 7 || s.Tenant("c") != nil {
			t.Errorf("tenants %s", got)
		}
		for key, want := range map[string]string{"a:shared/eu": "paris rome", "a:shop/eu": "paris", "b:shared/all": "paris", "a:shared/none": ""} {
			if got := members(s, key); got != want {
				t.Errorf("%s: %q, want %q", key, got, want)
			}
		}
		if v := s.VirtualSitesOf("a"); len(v) != 3 || v[0].Key() != "shared/eu" || v[0].Waiting != 1 || len(s.VirtualSitesOf("c")) != 0 {
			t.Errorf("virtual sites of a: %+v", v)
		}
		paris := s.Sites[0]
		if !slices.Equal(paris.VirtualSites, []string{"shared/eu", "shop/eu"}) || paris.Place == nil || *paris.Place != (Place{48.5, -2.25, ""}) || paris.Region != "eu" {
			t.Errorf("paris: %+v", paris)
		}
		var names []string
		for _, p := range paris.PoliciesOf("HealthPolicy") {
			names = append(names, p.Name)
		}
		if !slices.Equal(names, []string{"strict", "also", "default"}) || len(s.Sites[4].Policies) != 0 || len(s.PoliciesOf("a", "HealthPolicy")) != 3 || len(paris.PoliciesOf("Other")) != 0 {
			t.Errorf("policies of paris %v, all %+v", names, s.Policies)
		}

		// A label change moves the site within its virtual sites, and leaves old
		// snapshots, and other sites, alone.
		var o v1alpha1.Site
		if err := c.Get(ctx, client.ObjectKey{Namespace: "a-system", Name: "tokyo"}, &o); err != nil {
			t.Fatal(err)
		}
		o.Labels["region"] = "eu"
		if err := c.Update(ctx, &o); err != nil {
			t.Fatal(err)
		}
		changed := inv.Changed()
		settle()
		if got := members(inv.Snapshot(), "a:shared/eu"); got != "paris rome tokyo" || len(changed) != 1 {
			t.Errorf("eu has %s", got)
		}
		if members(s, "a:shared/eu") != "paris rome" || inv.Snapshot().Sites[0] != paris {
			t.Error("an old snapshot changed, or a site that did not")
		}
		if s := inv.Snapshot(); inv.Snapshot() != s {
			t.Error("a new snapshot though nothing changed")
		}
		// Decommissioned sites are no members.
		o.Spec.Decommissioned = true
		if err := c.Update(ctx, &o); err != nil {
			t.Fatal(err)
		}
		settle()
		if got := members(inv.Snapshot(), "a:shared/eu"); got != "paris rome" || inv.Snapshot().Sites[2].Phase != fleet.PhaseDecommissioned {
			t.Errorf("eu has %s, tokyo is %s", got, inv.Snapshot().Sites[2].Phase)
		}
		// New virtual sites, new policies, deletions.
		if err := errors.Join(c.Create(ctx, virtual("a-shop", "all", metav1.LabelSelector{})), c.Delete(ctx, virtual("a-shared", "eu", metav1.LabelSelector{})),
			c.Create(ctx, policy("b", "mine", 1, metav1.LabelSelector{})), c.Delete(ctx, policy("a", "strict", 0, metav1.LabelSelector{})), c.Delete(ctx, site("a", "rome", nil))); err != nil {
			t.Fatal(err)
		}
		settle()
		s = inv.Snapshot()
		if members(s, "a:shop/all") != "paris" || members(s, "a:shared/eu") != "no such virtual site" || s.Find("a", "rome") >= 0 ||
			len(s.Sites[s.Find("b", "paris")].Policies) != 1 || s.Sites[s.Find("a", "paris")].Policies[0].Name != "also" {
			t.Errorf("after all changes: %s", dump(s))
		}
	})
}

// The namespace's label decides whose it is: "a-b-shared" may be tenant a's
// namespace "b-shared" or tenant a-b's "shared".
func TestNamespaceLabelDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := builder(t,
			ns("a-system", "a"), ns("a-b-system", "a-b"), ns("a-b-shared", "a"),
			site("a", "one", nil), site("a-b", "two", nil), virtual("a-b-shared", "all", metav1.LabelSelector{}),
			// A namespace without Muster's label has no tenant at all.
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "c-system"}}, site("c", "three", nil),
			// A label that doesn't fit the name is not believed.
			ns("d-system", "a"), site("d", "four", nil),
		)
		inv, stop := start(t, c)
		defer stop()
		s := inv.Snapshot()
		if got := members(s, "a:b-shared/all"); got != "one" || len(s.Sites) != 2 {
			t.Errorf("a:b-shared/all has %q of %d sites, want the site of tenant a", got, len(s.Sites))
		}
		// The site of a namespace that gets its label later appears then. The fake client
		// doesn't turn a label change into an ADDED event for a selector's watch.
		if err := errors.Join(c.Delete(t.Context(), ns("c-system", "")), c.Create(t.Context(), ns("c-system", "c"))); err != nil {
			t.Fatal(err)
		}
		settle()
		if inv.Snapshot().Find("c", "three") < 0 {
			t.Error("c/three is not there")
		}
	})
}

// dump is everything that a snapshot says.
func dump(s *Snapshot) string {
	var b strings.Builder
	for i, x := range s.Sites {
		var policies []string
		for _, p := range x.Policies {
			policies = append(policies, p.Kind+"/"+p.Name)
		}
		h, _ := json.Marshal(x.Health)
		fmt.Fprintf(&b, "site %s %s %v virtual=%v would=%v policies=%v plans=%d health=%s at=%d\n", x.ID, x.Phase, x.Labels, x.VirtualSites, x.would, policies, len(x.plans), h, s.Find(x.ID.Tenant, x.ID.Name)-i)
	}
	for _, v := range s.VirtualSites {
		fmt.Fprintf(&b, "virtual %s %s %v waiting=%d windows=%d\n", v.Tenant, v.Key(), v.Members, v.Waiting, len(v.Windows))
	}
	for _, p := range s.Policies {
		fmt.Fprintf(&b, "policy %s %s %s %d\n", p.Tenant, p.Kind, p.Name, p.Priority)
	}
	for _, x := range s.Tenants {
		fmt.Fprintf(&b, "tenant %s %v %v\n", x.Name, x.Exists, x.Quotas)
	}
	return b.String()
}

// What is worked out change by change is what is worked out from all objects at once.
func TestChangesAddUp(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		log := slog.New(slog.DiscardHandler)
		st := newState(log)
		kind := HealthPolicies()
		type world struct {
			ns       map[string]string
			tenants  map[string]bool
			sites    map[objectKey]*v1alpha1.Site
			virtual  map[objectKey]*v1alpha1.VirtualSite
			policies map[objectKey]*v1alpha1.HealthPolicy
		}
		w := world{map[string]string{}, map[string]bool{}, map[objectKey]*v1alpha1.Site{}, map[objectKey]*v1alpha1.VirtualSite{}, map[objectKey]*v1alpha1.HealthPolicy{}}
		tenants := []string{"a", "a-b", "c"}
		spaces := []string{"system", "shared", "shop"}
		pick := func(of []string) string { return of[r.IntN(len(of))] }
		space := func() string { return pick(tenants) + "-" + pick(spaces) }
		labels := func() map[string]string {
			return map[string]string{"region": pick([]string{"eu", "us"}), "model": pick([]string{"x", "y", "z"})}
		}
		selector := func() metav1.LabelSelector {
			switch r.IntN(5) {
			case 0:
				return metav1.LabelSelector{}
			case 1:
				return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "model", Operator: "Nonsense"}}}
			case 2:
				return match("region", "eu")
			}
			return match("model", pick([]string{"x", "y", "z"}))
		}
		generation := int64(0)
		var last *Snapshot
		for step := range 300 {
			switch r.IntN(12) {
			case 0:
				name, tenant := space(), pick(append(tenants, ""))
				w.ns[name] = tenant
				st.putNamespace(name, tenant)
			case 1:
				name := space()
				delete(w.ns, name)
				st.dropNamespace(name)
			case 2:
				name := pick(tenants)
				if w.tenants[name] = !w.tenants[name]; w.tenants[name] {
					st.putTenant(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}})
				} else {
					delete(w.tenants, name)
					st.dropTenant(name)
				}
			case 3, 4, 5, 6:
				o := site("x", fmt.Sprint("s", r.IntN(6)), labels())
				o.Namespace = pick(tenants) + "-" + pick([]string{"system", "system", "system", "shop"})
				o.Spec.Approved, o.Spec.Decommissioned = r.IntN(5) > 0, r.IntN(8) == 0
				if r.IntN(3) == 0 {
					o.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{window("w", time.Unix(0, 0), time.Hour)}
				}
				if old := w.sites[keyOf(o)]; old != nil && r.IntN(2) == 0 { // only its status changes
					o = old.DeepCopy()
					o.Status.Health = &v1alpha1.SiteHealth{Colour: fleet.Colour(pick([]string{"red", "green"}))}
				}
				w.sites[keyOf(o)] = o
				st.putSite(o)
			case 7:
				k := objectKey{pick(tenants) + "-system", fmt.Sprint("s", r.IntN(6))}
				delete(w.sites, k)
				st.dropSite(k)
			case 8, 9:
				o := virtual(space(), fmt.Sprint("v", r.IntN(4)), selector())
				if r.IntN(3) == 0 {
					o.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{window("w", time.Unix(0, 0), time.Hour)}
				}
				w.virtual[keyOf(o)] = o
				st.putVirtual(o)
			case 10:
				k := objectKey{space(), fmt.Sprint("v", r.IntN(4))}
				delete(w.virtual, k)
				st.dropVirtual(k)
			case 11:
				generation++
				o := policy("x", fmt.Sprint("p", r.IntN(3)), int32(r.IntN(3)), selector())
				o.Namespace, o.Generation = space(), generation
				if r.IntN(3) == 0 {
					delete(w.policies, keyOf(o))
					st.dropPolicy(policyKey{kind.Kind, keyOf(o)})
				} else {
					w.policies[keyOf(o)] = o
					st.putPolicy(&kind, o)
				}
			}
			if r.IntN(3) > 0 {
				continue // several changes at a time
			}
			last, _ = st.next(last)
			whole := newState(log)
			for name, tenant := range w.ns {
				whole.putNamespace(name, tenant)
			}
			for name := range w.tenants {
				whole.putTenant(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			for _, o := range w.virtual {
				whole.putVirtual(o)
			}
			for _, o := range w.policies {
				whole.putPolicy(&kind, o)
			}
			for _, o := range w.sites {
				whole.putSite(o)
			}
			want, _ := whole.next(nil)
			if a, b := dump(last), dump(want); a != b {
				t.Fatalf("seed %d, step %d: change by change\n%s\nat once\n%s", seed, step, a, b)
			}
		}
	}
}

// A site is in maintenance while a window of its own, or of a virtual site of it, is
// open, or a person says so; the answer depends on the time alone.
func TestMaintenanceAt(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	st := newState(slog.New(slog.DiscardHandler))
	st.putNamespace("a-system", "a")
	st.putNamespace("a-shared", "a")
	paris, rome, oslo := site("a", "paris", map[string]string{"region": "eu"}), site("a", "rome", map[string]string{"region": "eu"}), site("a", "oslo", nil)
	paris.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{window("own", start.Add(time.Hour), time.Hour)}
	rome.Spec.Maintenance = &v1alpha1.Maintenance{Reason: "by hand"}
	// What a person said ends before the window does.
	bern := site("a", "bern", nil)
	bern.Spec.Maintenance = &v1alpha1.Maintenance{Reason: "short", Until: &metav1.Time{Time: start.Add(70 * time.Minute)}}
	bern.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{window("long", start.Add(time.Hour), time.Hour)}
	oslo.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Name: "daily", Reason: "daily", Schedule: "0 15 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
	for _, o := range []*v1alpha1.Site{paris, rome, oslo, bern} {
		st.putSite(o)
	}
	st.putVirtual(virtual("a-shared", "eu", match("region", "eu"), window("all of eu", start.Add(90*time.Minute), time.Hour)))
	s, _ := st.next(nil)
	for _, step := range []struct {
		at, next time.Duration
		want     string
	}{
		{0, time.Hour, "bern short, rome by hand"}, {time.Hour - 1, time.Hour, "bern short, rome by hand"}, {time.Hour, 70 * time.Minute, "bern long, paris own, rome by hand"},
		{100 * time.Minute, 2 * time.Hour, "bern long, paris all of eu, rome by hand"}, {150*time.Minute - 1, 150 * time.Minute, "paris all of eu, rome by hand"},
		{150 * time.Minute, 3 * time.Hour, "rome by hand"}, {75 * time.Hour, 76 * time.Hour, "oslo daily, rome by hand"},
	} {
		now := start.Add(step.at)
		var out []string
		for _, x := range s.Sites {
			if m := x.MaintenanceAt(now); m != nil {
				out = append(out, x.ID.Name+" "+m.Reason)
			}
		}
		if got := strings.Join(out, ", "); got != step.want {
			t.Errorf("after %s: %q, want %q", step.at, got, step.want)
		}
		if next := s.NextEdge(now).Sub(start); next != step.next {
			t.Errorf("after %s something changes at %s, want %s", step.at, next, step.next)
		}
	}
}

// At the edges of windows readers are told, though nobody changed anything.
func TestTellsAtEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := builder(t, ns("a-system", "a"), ns("a-shared", "a"), site("a", "paris", nil), virtual("a-shared", "all", metav1.LabelSelector{}, window("w", began.Add(2*time.Hour), time.Hour)))
		inv, stop := start(t, c)
		defer stop()
		changed := inv.Changed()
		for _, want := range []struct {
			at time.Duration
			in bool
		}{{2 * time.Hour, true}, {3 * time.Hour, false}} {
			before := inv.Snapshot()
			<-changed
			now := time.Now()
			if d := now.Sub(began); d < want.at || d > want.at+time.Second {
				t.Errorf("told after %s, want %s", d, want.at)
			}
			s := inv.Snapshot()
			if in := s.Sites[0].MaintenanceAt(now) != nil; in != want.in || s == before {
				t.Errorf("after %s: in maintenance %v, another snapshot %v", want.at, in, s != before)
			}
		}
	})
}

// A restart without the API server begins with what the last run knew; with it, what
// was deleted meanwhile is gone.
func TestKeepsACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "deep", "inventory.json")
		began := time.Now()
		paris := site("a", "paris", map[string]string{"region": "eu"})
		paris.Spec.Maintenance = &v1alpha1.Maintenance{Reason: "by hand"}
		gone := site("a", "gone", map[string]string{"region": "eu"})
		gone.Spec.Decommissioned = true
		waiting := site("a", "waiting", map[string]string{"region": "eu"})
		waiting.Spec.Approved = false
		p := policy("a", "p", 3, match("region", "eu"))
		p.Spec.Signals = []v1alpha1.Signal{{Name: "cpu", Query: "cpu"}}
		objs := []client.Object{
			ns("a-system", "a"), ns("a-shared", "a"), paris, gone, waiting, site("b", "nobodys", nil), p,
			virtual("a-shared", "all", metav1.LabelSelector{}, window("w", began.Add(time.Hour), time.Hour)),
			virtual("a-shared", "bad", metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Nonsense"}}}),
			&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.TenantSpec{Quotas: v1alpha1.TenantQuotas{LogBytesPerDay: 7}}},
		}
		withFile := func(o *Options) { o.File = file }
		inv, stop := start(t, builder(t, objs...), withFile)
		want := dump(inv.Snapshot())
		stop()

		again, err := New(Options{Client: builder(t), File: file, Policies: []PolicyKind{HealthPolicies()}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Ready(); err != nil || again.Fresh() {
			t.Fatal(err, again.Fresh())
		}
		if got := dump(again.Snapshot()); got != want {
			t.Errorf("from the disk\n%s\nwant\n%s", got, want)
		}
		s := again.Snapshot()
		if m := s.Sites[s.Find("a", "paris")].MaintenanceAt(began.Add(90 * time.Minute)); m == nil || m.Reason != "by hand" {
			t.Errorf("maintenance %+v", m)
		}
		if hp, ok := s.Policies[0].Object.(*v1alpha1.HealthPolicy); !ok || len(hp.Spec.Signals) != 1 || hp.Name != "p" {
			t.Errorf("policy %+v", s.Policies[0].Object)
		}
		// The API server is back, with less.
		inv, stop = start(t, builder(t, ns("a-system", "a"), paris.DeepCopy()), withFile, func(o *Options) { o.Client = lists{builder(t, ns("a-system", "a"), site("a", "paris", nil))} })
		defer stop()
		if s := inv.Snapshot(); len(s.Sites) != 1 || len(s.VirtualSites)+len(s.Policies) != 0 || s.Tenant("a").Exists || !inv.Fresh() {
			t.Errorf("after the API server came back: %s", dump(s))
		}
	})
}

func TestDamagedCopy(t *testing.T) {
	for _, b := range []string{"", "{", "[]", `{"format":9}`, `{"sites":[]}`, `{"format":1,"sites":[{"metadata":{"name":"../x"}}]}`, `{"format":1,"namespaces":{"x-system":"X Y"}}`} {
		file := filepath.Join(t.TempDir(), "inventory.json")
		if err := os.WriteFile(file, []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
		inv, err := New(Options{Client: builder(t), File: file, Logger: slog.New(slog.DiscardHandler)})
		if err != nil || inv.Snapshot() != nil || inv.Ready() == nil {
			t.Errorf("%q: %v, snapshot %v", b, err, inv.Snapshot())
		}
	}
}

func FuzzDecode(f *testing.F) {
	st := newState(slog.New(slog.DiscardHandler))
	st.putNamespace("a-system", "a")
	st.putSite(site("a", "paris", map[string]string{"region": "eu"}))
	st.putVirtual(virtual("a-system", "eu", match("region", "eu"), window("w", time.Unix(0, 0), time.Hour)))
	kind := HealthPolicies()
	st.putRollout(rollout(f, "r", "paris", "1", policy("a", "p", 1, match("region", "eu")), policy("a", "p", 2, metav1.LabelSelector{})))
	st.putPolicy(&kind, generation(policy("a", "p", 1, metav1.LabelSelector{}), 2, "r"))
	b, err := st.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		st := newState(slog.New(slog.DiscardHandler))
		if st.decode(b, []PolicyKind{kind}) != nil {
			return
		}
		s, _ := st.next(nil)
		for _, x := range s.Sites {
			x.MaintenanceAt(time.Unix(1e9, 0))
		}
		again, err := st.encode()
		if err != nil {
			t.Fatal(err)
		}
		st2 := newState(slog.New(slog.DiscardHandler))
		if err := st2.decode(again, []PolicyKind{kind}); err != nil {
			t.Fatalf("what was written can't be read: %v", err)
		}
	})
}

// BenchmarkLabelChange is one site's label at 10,000 sites and 100 virtual sites of
// one tenant, against working out everything anew.
func BenchmarkLabelChange(b *testing.B) {
	fill := func() (*state, []*v1alpha1.Site) {
		st := newState(slog.New(slog.DiscardHandler))
		st.putNamespace("a-system", "a")
		st.putNamespace("a-shared", "a")
		for i := range 100 {
			st.putVirtual(virtual("a-shared", fmt.Sprintf("v%d", i), match("region", fmt.Sprintf("r%d", i%20))))
		}
		objs := make([]*v1alpha1.Site, 10_000)
		for i := range objs {
			objs[i] = site("a", fmt.Sprintf("site-%05d", i), map[string]string{"region": fmt.Sprintf("r%d", i%20), "model": "x"})
			st.putSite(objs[i])
		}
		return st, objs
	}
	b.Run("change", func(b *testing.B) {
		st, objs := fill()
		last, _ := st.next(nil)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			o := objs[i%len(objs)].DeepCopy()
			o.Labels["region"] = fmt.Sprintf("r%d", (i/len(objs)+i+1)%20)
			st.putSite(o)
			last, _ = st.next(last)
		}
	})
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			st, _ := fill()
			b.StartTimer()
			st.next(nil)
		}
	})
}
