package inventory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

func scheme(t testing.TB) *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
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

func virtual(namespace, name string, sel metav1.LabelSelector) *v1alpha1.VirtualSite {
	return &v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.VirtualSiteSpec{SiteSelector: sel}}
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
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant + "-system", Name: name, Generation: 1},
		Spec: v1alpha1.HealthPolicySpec{SiteSelector: sel, Priority: priority, Signals: []v1alpha1.Signal{{
			Name: "cpu", Dimension: fleet.Performance, Query: "cpu", Good: resource.MustParse("0"), Bad: resource.MustParse("1"),
		}}},
	}
}

// eventually polls until ok, for things that another goroutine brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited 10 s for: %s", what)
		}
		<-tick.C
	}
}

// lists tells the reflectors that the fake client can't stream its first list.
type lists struct{ client.WithWatch }

func (lists) IsWatchListSemanticsUnSupported() bool { return true }

func start(t testing.TB, c client.WithWatch, opts ...func(*Options)) *Inventory {
	t.Helper()
	o := Options{Client: lists{c}, Logger: slog.New(slog.DiscardHandler)}
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
	t.Cleanup(func() { cancel(); <-done })
	eventually(t, "the first lists", inv.Synced)
	if err := inv.Ready(); err != nil {
		t.Error(err)
	}
	return inv
}

func names(s *Snapshot, key string) string {
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
	ctx := t.Context()
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithStatusSubresource(&v1alpha1.Site{}).WithObjects(
		ns("a-system", "a"), ns("a-shared", "a"), ns("a-shop", "a"), ns("b-system", "b"), ns("b-shared", "b"),
		&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "empty"}},
		site("a", "paris", map[string]string{"region": "eu", "model": "x"}), site("a", "rome", map[string]string{"region": "eu"}),
		site("a", "tokyo", map[string]string{"region": "asia"}), site("b", "paris", map[string]string{"region": "eu"}),
		virtual("a-shared", "eu", match("region", "eu")), virtual("a-shop", "eu", match("region", "eu", "model", "x")),
		virtual("b-shared", "all", metav1.LabelSelector{}), virtual("a-shared", "none", match("region", "mars")),
		policy("a", "default", 0, metav1.LabelSelector{}), policy("a", "strict", 10, match("model", "x")), policy("a", "also", 0, metav1.LabelSelector{}),
		// Where applications live nobody may place sites or policies.
		&v1alpha1.HealthPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a-shop", Name: "sly"}, Spec: policy("a", "x", 1000, metav1.LabelSelector{}).Spec},
	).Build()
	inv := start(t, c)
	s := inv.Snapshot()
	var ids []string
	for i, site := range s.Sites {
		ids = append(ids, site.ID.String())
		if s.Find(site.ID.Tenant, site.ID.Name) != i {
			t.Errorf("Find(%s) = %d, want %d", site.ID, s.Find(site.ID.Tenant, site.ID.Name), i)
		}
	}
	if got := strings.Join(ids, " "); got != "a/paris a/rome a/tokyo b/paris" {
		t.Errorf("sites %s", got)
	}
	if s.Find("a", "oslo") != -1 || s.Find("zzz", "paris") != -1 {
		t.Error("Find of an unknown site is not -1")
	}
	if !slices.Equal(s.Tenants, []string{"a", "b", "empty"}) {
		t.Errorf("tenants %v", s.Tenants)
	}
	for key, want := range map[string]string{"a:shared/eu": "paris rome", "a:shop/eu": "paris", "b:shared/all": "paris", "a:shared/none": ""} {
		if got := names(s, key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	paris := s.Sites[0]
	if !slices.Equal(paris.VirtualSites, []string{"shared/eu", "shop/eu"}) || paris.Place == nil || *paris.Place != (Place{48.5, -2.25, ""}) || paris.Region != "eu" {
		t.Errorf("paris: %+v", paris)
	}
	if paris.Policy == nil || paris.Policy.Name != "strict" || s.Sites[1].Policy.Name != "also" || s.Sites[3].Policy != nil || len(s.Policies) != 3 {
		t.Errorf("policies: paris %+v, rome %+v, other tenant %+v", paris.Policy, s.Sites[1].Policy, s.Sites[3].Policy)
	}
	if inv.Snapshot() != s {
		t.Error("a new snapshot though nothing changed")
	}

	// A label change moves the site within its virtual sites, and leaves old snapshots alone.
	var o v1alpha1.Site
	if err := c.Get(ctx, client.ObjectKey{Namespace: "a-system", Name: "tokyo"}, &o); err != nil {
		t.Fatal(err)
	}
	o.Labels["region"] = "eu"
	if err := c.Update(ctx, &o); err != nil {
		t.Fatal(err)
	}
	eventually(t, "tokyo to be in eu", func() bool { return names(inv.Snapshot(), "a:shared/eu") == "paris rome tokyo" })
	if names(s, "a:shared/eu") != "paris rome" {
		t.Error("an old snapshot changed")
	}
	// Decommissioned sites are no members.
	o.Spec.Decommissioned = true
	if err := c.Update(ctx, &o); err != nil {
		t.Fatal(err)
	}
	eventually(t, "tokyo to be gone from eu", func() bool { return names(inv.Snapshot(), "a:shared/eu") == "paris rome" })
	if p := inv.Snapshot().Sites[2].Phase; p != fleet.PhaseDecommissioned {
		t.Errorf("phase %s", p)
	}
	// New virtual sites, new policies, deletions.
	if err := errors.Join(c.Create(ctx, virtual("a-shop", "all", metav1.LabelSelector{})), c.Delete(ctx, virtual("a-shared", "eu", metav1.LabelSelector{})),
		c.Create(ctx, policy("b", "mine", 1, metav1.LabelSelector{})), c.Delete(ctx, policy("a", "strict", 0, metav1.LabelSelector{})), c.Delete(ctx, site("a", "rome", nil))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all to be there and eu gone", func() bool {
		s := inv.Snapshot()
		return names(s, "a:shop/all") == "paris" && names(s, "a:shared/eu") == "no such virtual site" && s.Find("a", "rome") < 0 &&
			s.Sites[s.Find("b", "paris")].Policy != nil && s.Sites[s.Find("a", "paris")].Policy.Name == "also"
	})
}

// The namespace's label decides whose it is: "a-b-shared" may be tenant a's
// namespace "b-shared" or tenant a-b's "shared".
func TestNamespaceLabelDecides(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(
		ns("a-system", "a"), ns("a-b-system", "a-b"), ns("a-b-shared", "a"),
		site("a", "one", nil), site("a-b", "two", nil), virtual("a-b-shared", "all", metav1.LabelSelector{}),
		// A namespace without Muster's label has no tenant at all.
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "c-system"}}, site("c", "three", nil),
		// A label that doesn't fit the name is not believed.
		ns("d-system", "a"), site("d", "four", nil),
	).Build()
	inv := start(t, c)
	s := inv.Snapshot()
	if got := names(s, "a:b-shared/all"); got != "one" {
		t.Errorf("a:b-shared/all has %q, want the site of tenant a", got)
	}
	if len(s.Sites) != 2 {
		t.Errorf("%d sites, want 2: %v", len(s.Sites), s.Tenants)
	}
	// The site of a namespace that gets its label later appears then.
	n := &corev1.Namespace{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "c-system"}, n); err != nil {
		t.Fatal(err)
	}
	// The fake client doesn't turn a label change into an ADDED event for a
	// selector's watch, so the namespace is made anew.
	if err := errors.Join(c.Delete(t.Context(), n), c.Create(t.Context(), ns("c-system", "c"))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "c/three", func() bool { return inv.Snapshot().Find("c", "three") >= 0 })
}

func TestInvalidPolicyKeepsTheLastValid(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(ns("a-system", "a"), site("a", "one", nil), policy("a", "p", 0, metav1.LabelSelector{})).Build()
	inv := start(t, c)
	good := inv.Snapshot().Sites[0].Policy
	var o v1alpha1.HealthPolicy
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a-system", Name: "p"}, &o); err != nil {
		t.Fatal(err)
	}
	o.Generation = 2
	o.Spec.Signals[0].Bad = resource.MustParse("0") // as good
	if err := c.Update(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the error", func() bool { p := inv.Snapshot().Sites[0].Policy; return p != nil && p.Err != nil })
	if p := inv.Snapshot().Sites[0].Policy; p.Model != good.Model {
		t.Error("the last valid model is gone")
	}
}

func TestWritesStatusSparingly(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := atomic.Int64{}
	clock.Store(now.Unix())
	var writes atomic.Int32
	fail := atomic.Bool{}
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithStatusSubresource(&v1alpha1.Site{}, &v1alpha1.HealthPolicy{}).
		WithObjects(ns("a-system", "a"), site("a", "one", nil), policy("a", "p", 0, metav1.LabelSelector{})).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			writes.Add(1)
			if fail.Load() {
				return errors.New("down")
			}
			return c.SubResource(sub).Apply(ctx, o, opts...)
		}}).Build()
	inv := start(t, c, func(o *Options) { o.Now = func() time.Time { return time.Unix(clock.Load(), 0) } })
	get := func() *v1alpha1.SiteHealth {
		var o v1alpha1.Site
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a-system", Name: "one"}, &o); err != nil {
			t.Fatal(err)
		}
		return o.Status.Health
	}
	report := func(score float64, colour fleet.Colour, reason string) {
		s := inv.Snapshot().Sites[0]
		inv.ReportSites([]SiteReport{{Site: s, Score: score, Known: colour != fleet.Grey, Colour: colour, Reason: reason, Since: now}})
	}
	settled := func(want int32, score int32) {
		t.Helper()
		eventually(t, fmt.Sprintf("write %d with score %d", want, score), func() bool {
			h := inv.Snapshot().Sites[0].health
			return writes.Load() == want && h != nil && (score < 0 && h.Score == nil || h.Score != nil && *h.Score == score)
		})
	}
	quiet := func(want int32) {
		t.Helper()
		eventually(t, "the writer to be idle", func() bool {
			inv.writer.mu.Lock()
			defer inv.writer.mu.Unlock()
			return len(inv.writer.want)+len(inv.writer.busy) == 0
		})
		if n := writes.Load(); n != want {
			t.Fatalf("%d writes, want %d", n, want)
		}
	}
	report(80.9, fleet.Green, "")
	settled(1, 80)
	report(80.1, fleet.Green, "") // the same
	quiet(1)
	report(76.5, fleet.Green, "") // less than 5
	quiet(1)
	report(84.5, fleet.Green, "a word") // the reason alone waits too
	quiet(1)
	report(75.9, fleet.Green, "") // 5
	settled(2, 75)
	report(75, fleet.Orange, "disk") // the colour
	settled(3, 75)
	if h := get(); h.Colour != fleet.Orange || h.Reason != "disk" {
		t.Errorf("%+v", h)
	}
	report(0, fleet.Grey, "who knows") // unknown: the score goes
	settled(4, -1)
	report(78, fleet.Green, "")
	settled(5, 78)
	clock.Add(599)
	report(79, fleet.Green, "")
	quiet(5)
	clock.Add(1)
	report(79, fleet.Green, "")
	settled(6, 79)
	if phase := inv.Snapshot().Sites[0].Phase; phase != fleet.PhaseOnline {
		t.Errorf("phase %q: another's field was lost", phase)
	}
	// A failed write is made again after a later report.
	fail.Store(true)
	report(20, fleet.Red, "fire")
	eventually(t, "the failing write", func() bool { return writes.Load() == 7 })
	fail.Store(false)
	eventually(t, "the write to be made again", func() bool { report(20, fleet.Red, "fire"); return writes.Load() >= 8 })
	settled(8, 20)
}

func TestWritesPolicyStatus(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithStatusSubresource(&v1alpha1.HealthPolicy{}).
		WithObjects(ns("a-system", "a"), site("a", "one", nil), policy("a", "p", 0, metav1.LabelSelector{})).Build()
	inv := start(t, c)
	p := inv.Snapshot().Policies[0]
	cond := func() *metav1.Condition {
		var o v1alpha1.HealthPolicy
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a-system", Name: "p"}, &o); err != nil {
			t.Fatal(err)
		}
		if len(o.Status.Conditions) == 0 || o.Status.Sites != 3 {
			return &metav1.Condition{}
		}
		return &o.Status.Conditions[0]
	}
	inv.ReportPolicies([]PolicyReport{{Policy: p, Sites: 3}})
	eventually(t, "SignalsHealthy=True", func() bool { return cond().Status == metav1.ConditionTrue && cond().Type == "SignalsHealthy" })
	inv.ReportPolicies([]PolicyReport{{Policy: p, Sites: 3, Failing: []string{"cpu: bad function", "disk: timed out"}}})
	eventually(t, "SignalsHealthy=False", func() bool {
		x := cond()
		return x.Status == metav1.ConditionFalse && strings.Contains(x.Message, "cpu: bad function") && strings.Contains(x.Message, "disk: timed out")
	})
}

func BenchmarkSnapshot10k(b *testing.B) {
	c := fake.NewClientBuilder().WithScheme(scheme(b)).Build()
	inv, err := New(Options{Client: c, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	inv.putNamespace("a-system", "a")
	inv.putNamespace("a-shared", "a")
	for i := range 20 {
		inv.putVirtual(virtual("a-shared", fmt.Sprintf("v%d", i), match("region", fmt.Sprintf("r%d", i))))
	}
	inv.putPolicy(policy("a", "default", 0, metav1.LabelSelector{}))
	objs := make([]*v1alpha1.Site, 10_000)
	for i := range objs {
		objs[i] = site("a", fmt.Sprintf("site-%05d", i), map[string]string{"region": fmt.Sprintf("r%d", i%20), "model": "x"})
		inv.putSite(objs[i])
	}
	inv.Snapshot()
	b.ReportAllocs()
	i := 0
	for b.Loop() { // one site's label changes
		i++
		o := objs[i%len(objs)].DeepCopy()
		o.Labels["model"] = fmt.Sprint(i)
		inv.putSite(o)
		inv.Snapshot()
	}
}

// A site is in maintenance while a window of its own, or of a virtual site of it, is
// open, and leaves it at the edge without any change in the API server.
func TestMaintenanceWindows(t *testing.T) {
	start0 := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var clock atomic.Pointer[time.Time]
	set := func(d time.Duration) { now := start0.Add(d); clock.Store(&now) }
	set(0)
	window := func(name string, from, length time.Duration) []v1alpha1.MaintenanceWindow {
		return []v1alpha1.MaintenanceWindow{{Name: name, Reason: name, Start: &metav1.Time{Time: start0.Add(from)}, Duration: metav1.Duration{Duration: length}}}
	}
	paris, rome, oslo := site("a", "paris", map[string]string{"region": "eu"}), site("a", "rome", map[string]string{"region": "eu"}), site("a", "oslo", nil)
	paris.Spec.MaintenanceWindows = window("own", time.Hour, time.Hour)
	rome.Spec.Maintenance = &v1alpha1.Maintenance{Reason: "by hand"}
	// What a person said ends before the window does.
	bern := site("a", "bern", nil)
	bern.Spec.Maintenance = &v1alpha1.Maintenance{Reason: "short", Until: &metav1.Time{Time: start0.Add(70 * time.Minute)}}
	bern.Spec.MaintenanceWindows = window("long", time.Hour, time.Hour)
	eu := virtual("a-shared", "eu", match("region", "eu"))
	eu.Spec.MaintenanceWindows = window("all of eu", 90*time.Minute, time.Hour)
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(ns("a-system", "a"), ns("a-shared", "a"), bern, paris, rome, oslo, eu).Build()
	inv := start(t, c, func(o *Options) { o.Now = func() time.Time { return *clock.Load() } })
	state := func() string {
		var out []string
		for _, s := range inv.Snapshot().Sites {
			if s.InMaintenance(*clock.Load()) {
				out = append(out, s.ID.Name+" "+s.Maintenance.Reason)
			}
		}
		return strings.Join(out, ", ")
	}
	for _, step := range []struct {
		at   time.Duration
		want string
	}{
		{0, "bern short, rome by hand"}, {time.Hour - 1, "bern short, rome by hand"}, {time.Hour, "bern long, paris own, rome by hand"}, {100 * time.Minute, "bern long, paris all of eu, rome by hand"},
		{150*time.Minute - 1, "paris all of eu, rome by hand"}, {150 * time.Minute, "rome by hand"}, {72 * time.Hour, "rome by hand"},
	} {
		set(step.at)
		if got := state(); got != step.want {
			t.Errorf("after %s: %q, want %q", step.at, got, step.want)
		}
	}
	var o v1alpha1.Site
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a-system", Name: "oslo"}, &o); err != nil {
		t.Fatal(err)
	}
	o.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Name: "daily", Reason: "daily", Schedule: "0 12 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
	if err := c.Update(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new window", func() bool { return state() == "oslo daily, rome by hand" })
	if s := inv.Snapshot(); inv.Snapshot() != s {
		t.Error("a new snapshot though no window opened or closed")
	}
}
