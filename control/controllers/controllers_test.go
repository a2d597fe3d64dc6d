package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/controllers"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// events keeps what the controllers told people.
type events struct {
	mu   sync.Mutex
	said []string
}

func (e *events) Event(o runtime.Object, kind, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said = append(e.said, fmt.Sprintf("%s %s %s: %s", o.(client.Object).GetName(), kind, reason, message))
}

func (e *events) has(part string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.said, func(s string) bool { return strings.Contains(s, part) })
}

// run runs the controllers against the real API server until the test ends.
func run(t *testing.T, with ...func(*controllers.Options)) client.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c, ended := start(t, ctx, with...)
	t.Cleanup(func() { cancel(); <-ended })
	return c
}

// start starts the controllers; what Run returned is in the channel in the end.
func start(t *testing.T, ctx context.Context, with ...func(*controllers.Options)) (client.Client, <-chan error) {
	t.Helper()
	cfg := kubeapi.Start(t)
	scheme := runtime.NewScheme()
	if err := controllers.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := cache.New(cfg, cache.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = ca.Start(ctx) }()
	inv, err := inventory.New(inventory.Options{Cache: ca, Policies: []inventory.PolicyKind{inventory.CollectionPolicies()}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = inv.Run(ctx) }()
	o := controllers.Options{
		Client: c, Cache: ca, Inventory: inv, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		RenderedPolicy: func(id fleet.SiteID) string { return "hash-of-" + id.Tenant },
		DefaultHealthPolicy: v1alpha1.HealthPolicySpec{Evaluations: 2, RecoveryEvaluations: 4, Signals: []v1alpha1.Signal{{Name: "up", Dimension: fleet.Connectivity, Query: "up",
			Good: resource.MustParse("1"), Bad: resource.MustParse("0")}}},
	}
	for _, change := range with {
		change(&o)
	}
	r := controllers.New(o)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return c, ended
}

func create(t *testing.T, c client.Client, objs ...client.Object) {
	t.Helper()
	for _, o := range objs {
		// The namespace may be about to be made.
		testkit.Eventually(t, "create "+o.GetName(), func() error { return c.Create(context.Background(), o) })
	}
}

func site(tenant, name string, labels map[string]string) *v1alpha1.Site {
	return &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: tenant + "-system", Labels: labels}, Spec: v1alpha1.SiteSpec{Approved: true}}
}

func TestTenantGetsItsNamespacesPoliciesAndRoles(t *testing.T) {
	var told events
	c := run(t, func(o *controllers.Options) { o.Recorder = &told })
	ctx := context.Background()
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "alpha-taken"}},
		&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "alpha"}, Spec: v1alpha1.TenantSpec{Namespaces: []string{"pay", "taken"}}})
	testkit.Eventually(t, "the tenant is set up", func() error {
		for _, n := range []string{"alpha-system", "alpha-shared", "alpha-pay"} {
			var ns corev1.Namespace
			if err := c.Get(ctx, client.ObjectKey{Name: n}, &ns); err != nil || ns.Labels[fleet.LabelTenant] != "alpha" {
				return fmt.Errorf("%s: %v %v", n, ns.Labels, err)
			}
		}
		var tn v1alpha1.Tenant
		if err := c.Get(ctx, client.ObjectKey{Name: "alpha"}, &tn); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(tn.Status.Conditions, "Ready")
		if cond == nil || cond.Status != metav1.ConditionFalse || !strings.Contains(cond.Message, "alpha-taken belongs to nobody") {
			return fmt.Errorf("a namespace of somebody else was not named: %+v", cond)
		}
		key := client.ObjectKey{Namespace: "alpha-system", Name: "default"}
		if err := c.Get(ctx, key, &v1alpha1.CollectionPolicy{}); err != nil {
			return err
		}
		return c.Get(ctx, key, &v1alpha1.HealthPolicy{})
	})
	for _, want := range []string{"alpha Warning NamespaceCollision: alpha-taken belongs to nobody", "alpha Normal DefaultPolicyMade"} {
		if !told.has(want) {
			t.Errorf("no event %q in %q", want, told.said)
		}
	}
	var taken corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: "alpha-taken"}, &taken); err != nil || taken.Labels[fleet.LabelTenant] != "" {
		t.Errorf("a namespace of somebody else was taken over: %v %v", taken.Labels, err)
	}

	// A default policy is the user's once it is made.
	var hp v1alpha1.HealthPolicy
	key := client.ObjectKey{Namespace: "alpha-system", Name: "default"}
	testkit.Eventually(t, "the user edits it", func() error { // its status is written meanwhile
		if err := c.Get(ctx, key, &hp); err != nil {
			return err
		}
		hp.Spec.Evaluations = 7
		return c.Update(ctx, &hp)
	})
	create(t, c, site("alpha", "any", nil))
	testkit.Eventually(t, "the site is counted", func() error {
		var tn v1alpha1.Tenant
		if err := c.Get(ctx, client.ObjectKey{Name: "alpha"}, &tn); err != nil || tn.Status.Sites != 1 {
			return fmt.Errorf("%d sites, %v", tn.Status.Sites, err)
		}
		return nil
	})
	if err := c.Get(ctx, key, &hp); err != nil || hp.Spec.Evaluations != 7 {
		t.Errorf("the user's edit was overwritten: %d, %v", hp.Spec.Evaluations, err)
	}

	// A namespace that the other one left is made.
	if err := c.Delete(ctx, &taken); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the namespace is made when it is free", func() error {
		var ns corev1.Namespace
		if err := c.Get(ctx, client.ObjectKey{Name: "alpha-taken"}, &ns); err != nil || ns.Labels[fleet.LabelTenant] != "alpha" {
			return fmt.Errorf("%v %v", ns.Labels, err)
		}
		var tn v1alpha1.Tenant
		if err := c.Get(ctx, client.ObjectKey{Name: "alpha"}, &tn); err != nil || !meta.IsStatusConditionTrue(tn.Status.Conditions, "Ready") {
			return fmt.Errorf("%+v, %v", tn.Status.Conditions, err)
		}
		return nil
	})
}

// A deleted default comes back to a tenant that has no other, and stays away else.
func TestDefaultPolicyIsTheUsersToDelete(t *testing.T) {
	c := run(t)
	ctx := t.Context()
	create(t, c, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "beta"}})
	key := client.ObjectKey{Namespace: "beta-system", Name: "default"}
	var first v1alpha1.CollectionPolicy
	testkit.Eventually(t, "the default is made", func() error { return c.Get(ctx, key, &first) })
	if err := c.Delete(ctx, &first); err != nil {
		t.Fatal(err)
	}
	var second v1alpha1.CollectionPolicy
	testkit.Eventually(t, "the only one comes back", func() error { return c.Get(ctx, key, &second) })

	create(t, c, &v1alpha1.CollectionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mine", Namespace: "beta-system"}})
	counted := func(sites int32) func() error {
		return func() error {
			var p v1alpha1.CollectionPolicy
			if err := c.Get(ctx, client.ObjectKey{Namespace: "beta-system", Name: "mine"}, &p); err != nil || len(p.Status.Conditions) == 0 || p.Status.Sites != sites {
				return fmt.Errorf("%+v, %v", p.Status, err)
			}
			return nil
		}
	}
	testkit.Eventually(t, "a pass has seen the user's policy", counted(0))
	if err := c.Delete(ctx, &second); err != nil {
		t.Fatal(err)
	}
	create(t, c, site("beta", "s", nil))
	testkit.Eventually(t, "a pass has seen the deletion", counted(1))
	if err := c.Get(ctx, key, &second); !apierrors.IsNotFound(err) {
		t.Errorf("the default came back beside the user's policy: %v", err)
	}
}

// A policy that is applied together with its tenant does not stand in for the default.
func TestDefaultPolicyBesideWhatComesWithTheTenant(t *testing.T) {
	c := run(t)
	ctx := t.Context()
	create(t, c, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "companion"}})
	testkit.Eventually(t, "the tenant's own policy is taken", func() error {
		return c.Create(ctx, &v1alpha1.CollectionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mine", Namespace: "companion-system"}})
	})
	testkit.Eventually(t, "the defaults are made", func() error {
		key := client.ObjectKey{Namespace: "companion-system", Name: "default"}
		return errors.Join(c.Get(ctx, key, &v1alpha1.CollectionPolicy{}), c.Get(ctx, key, &v1alpha1.HealthPolicy{}))
	})
}

// The tenant's groups may do their work in its namespaces and nowhere else, and a
// binding that somebody bent is straightened.
func TestTenantGroups(t *testing.T) {
	c := run(t)
	ctx := t.Context()
	for _, role := range controllers.ClusterRoles() {
		if err := c.Create(ctx, role); err != nil {
			t.Fatal(err)
		}
	}
	create(t, c, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "delta"}}, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "epsilon"}})
	b := &rbacv1.RoleBinding{}
	key := client.ObjectKey{Namespace: "delta-system", Name: "muster:tenant-admin"}
	testkit.Eventually(t, "the binding is made", func() error { return c.Get(ctx, key, b) })
	testkit.Eventually(t, "the other tenant is there", func() error {
		return c.Get(ctx, client.ObjectKey{Namespace: "epsilon-system", Name: "muster:tenant-viewer"}, &rbacv1.RoleBinding{})
	})
	as := func(group string) client.Client {
		cfg := kubeapi.Start(t)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{group}}
		as, err := client.New(cfg, client.Options{Scheme: c.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		return as
	}
	admin, viewer := as("muster:tenant:delta:admin"), as("muster:tenant:delta:viewer")
	testkit.Eventually(t, "the administrator may make a virtual site", func() error {
		return client.IgnoreAlreadyExists(admin.Create(ctx, &v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Name: "v", Namespace: "delta-shared"}}))
	})
	testkit.Eventually(t, "the viewer may read it", func() error {
		return viewer.Get(ctx, client.ObjectKey{Namespace: "delta-shared", Name: "v"}, &v1alpha1.VirtualSite{})
	})
	for what, err := range map[string]error{
		"a viewer made a virtual site":  viewer.Create(ctx, &v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Name: "w", Namespace: "delta-shared"}}),
		"read another tenant's sites":   admin.List(ctx, &v1alpha1.SiteList{}, client.InNamespace("epsilon-system")),
		"wrote a site's status":         admin.Status().Update(ctx, site("delta", "s", nil)),
		"read the tenants":              admin.List(ctx, &v1alpha1.TenantList{}),
		"gave rights to others":         admin.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "delta-system"}, RoleRef: b.RoleRef}),
		"a viewer read secrets":         viewer.List(ctx, &corev1.SecretList{}, client.InNamespace("delta-system")),
		"read another tenant's secrets": admin.List(ctx, &corev1.SecretList{}, client.InNamespace("epsilon-system")),
		"read Muster's own secrets":     admin.List(ctx, &corev1.SecretList{}, client.InNamespace("muster-system")),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}

	b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "eve"})
	if err := c.Update(ctx, b); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "eve is out again", func() error {
		if err := c.Get(ctx, key, b); err != nil || len(b.Subjects) != 1 {
			return fmt.Errorf("%v, %v", b.Subjects, err)
		}
		return nil
	})
}

func TestVirtualSiteFollowsLabelsWithin2s(t *testing.T) {
	c := run(t)
	ctx := context.Background()
	create(t, c, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "two-part"}})
	vs := &v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Name: "eu", Namespace: "two-part-shared"}, Spec: v1alpha1.VirtualSiteSpec{SiteSelector: metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "region", Operator: metav1.LabelSelectorOpIn, Values: []string{"eu", "uk"}}, {Key: "old", Operator: metav1.LabelSelectorOpDoesNotExist}}}}}
	create(t, c, site("two-part", "paris", map[string]string{"region": "eu"}), site("two-part", "tokyo", map[string]string{"region": "jp"}),
		site("two-part", "rome", map[string]string{"region": "eu", "old": "yes"}), vs)
	members := func(want ...string) func() error {
		return func() error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(vs), vs); err != nil {
				return err
			}
			if !slices.Equal(vs.Status.Members, want) || int(vs.Status.Sites) != len(want) {
				return fmt.Errorf("members %v, %d", vs.Status.Members, vs.Status.Sites)
			}
			return nil
		}
	}
	testkit.Eventually(t, "the first members", members("paris"))

	patch := func(name, json string) {
		t.Helper()
		if err := c.Patch(ctx, site("two-part", name, nil), client.RawPatch("application/merge-patch+json", []byte(json))); err != nil {
			t.Fatal(err)
		}
	}
	patch("tokyo", `{"metadata":{"labels":{"region":"uk"}}}`)
	t.Logf("joined after %s", testkit.Eventually(t, "tokyo joins", members("paris", "tokyo")))
	patch("paris", `{"metadata":{"labels":{"old":"yes"}}}`)
	testkit.Eventually(t, "paris leaves", members("tokyo"))
	create(t, c, site("two-part", "leeds", map[string]string{"region": "uk"}))
	testkit.Eventually(t, "a new site joins by its labels alone", members("leeds", "tokyo"))

	leeds := site("two-part", "leeds", nil)
	if err := c.Get(ctx, client.ObjectKeyFromObject(leeds), leeds); err != nil {
		t.Fatal(err)
	}
	leeds.Status.Health = &v1alpha1.SiteHealth{Colour: fleet.Red}
	if err := c.Status().Update(ctx, leeds); err != nil {
		t.Fatal(err)
	}
	patch("tokyo", `{"spec":{"maintenance":{"reason":"disks"}}}`)
	pending := site("two-part", "york", map[string]string{"region": "uk"})
	pending.Spec.Approved = false
	create(t, c, pending)
	testkit.Eventually(t, "why a site is no member is said", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(vs), vs); err != nil {
			return err
		}
		if cond := meta.FindStatusCondition(vs.Status.Conditions, "Populated"); cond == nil || cond.Status != metav1.ConditionTrue || !strings.Contains(cond.Message, "1 more would match and wait for approval") {
			return fmt.Errorf("%+v", cond)
		}
		return nil
	})
	testkit.Eventually(t, "colours are counted, maintenance apart", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(vs), vs); err != nil {
			return err
		}
		if st := vs.Status; st.Red != 1 || st.Maintenance != 1 || st.Grey != 0 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
}

func TestTokensMaintenanceAndPolicyCounts(t *testing.T) {
	var told events
	c := run(t, func(o *controllers.Options) { o.Recorder = &told })
	ctx := context.Background()
	create(t, c, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "gamma"}})
	soon := metav1.NewTime(time.Now().Add(3 * time.Second))
	tok := &v1alpha1.RegistrationToken{ObjectMeta: metav1.ObjectMeta{Name: "t", Namespace: "gamma-system"}, Spec: v1alpha1.RegistrationTokenSpec{SecretHash: strings.Repeat("a", 64)}}
	s := site("gamma", "s", map[string]string{"region": "eu"})
	s.Spec.Maintenance = &v1alpha1.Maintenance{Reason: "x", Until: &soon}
	create(t, c, tok, s)
	s.Status.PolicyHash = "hash-of-gamma"
	if err := c.Status().Update(ctx, s); err != nil {
		t.Fatal(err)
	}
	state := func(want string) func() error {
		return func() error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(tok), tok); err != nil || tok.Status.State != want {
				return fmt.Errorf("%q, %v", tok.Status.State, err)
			}
			return nil
		}
	}
	testkit.Eventually(t, "the token is active", state("Active"))
	before := tok.DeepCopy()
	tok.Spec.Expires = &metav1.Time{Time: time.Now().Add(2 * time.Second)}
	if err := c.Patch(ctx, tok, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it expires by itself", state("Expired"))
	testkit.Eventually(t, "the maintenance ends by itself", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil || s.Spec.Maintenance != nil {
			return fmt.Errorf("%v, %v", s.Spec.Maintenance, err)
		}
		return nil
	})
	testkit.Eventually(t, "an event tells that the token expired", func() error {
		if !told.has("t Normal Expired: was Active") {
			return fmt.Errorf("events: %q", told.said)
		}
		return nil
	})
	testkit.Eventually(t, "the policy counts its sites", func() error {
		var p v1alpha1.CollectionPolicy
		if err := c.Get(ctx, client.ObjectKey{Namespace: "gamma-system", Name: "default"}, &p); err != nil || p.Status.Sites != 1 || p.Status.Applied != 1 {
			return fmt.Errorf("%+v, %v", p.Status, err)
		}
		return nil
	})
}

// reports is a fleet API whose sites said something.
type reports struct {
	mu   sync.Mutex
	has  map[string]string // hashes by site
	tell func(tenant string)
}

func (r *reports) PolicyOf(id fleet.SiteID) (hash string, refused, told bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	hash, told = r.has[id.Name]
	return hash, hash == "", told
}

func (r *reports) SubscribePolicies(fn func(string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell = fn
}

func (r *reports) report(t *testing.T, tenant, site, hash string) {
	testkit.Eventually(t, "the controllers listen", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.tell == nil {
			return errors.New("not yet")
		}
		r.has[site] = hash
		return nil
	})
	r.tell(tenant)
}

// What sites report counts before it stands in their status.
func TestPolicyCountsFollowReports(t *testing.T) {
	said := &reports{has: map[string]string{}}
	c := run(t, func(o *controllers.Options) { o.Reports = said })
	create(t, c, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "reporting"}}, site("reporting", "a", nil), site("reporting", "b", nil))
	counts := func(applied, rejected int32) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("%d applied, %d rejected", applied, rejected), func() error {
			var p v1alpha1.CollectionPolicy
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "reporting-system", Name: "default"}, &p); err != nil || p.Status.Sites != 2 || p.Status.Applied != applied || p.Status.Rejected != rejected {
				return fmt.Errorf("%+v, %v", p.Status, err)
			}
			return nil
		})
	}
	counts(0, 0)
	said.report(t, "reporting", "a", "hash-of-reporting")
	counts(1, 0)
	said.report(t, "reporting", "b", "")
	counts(1, 1)
	said.report(t, "reporting", "b", "hash-of-reporting")
	counts(2, 0)
}

func TestRejectedPolicyIsNamed(t *testing.T) {
	c := run(t)
	ctx := t.Context()
	create(t, c, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "theta"}})
	for _, name := range []string{"b", "a"} {
		s := site("theta", name, nil)
		create(t, c, s)
		s.Status.Phase, s.Status.PolicyHash = fleet.PhaseOnline, "hash-of-theta"
		if name == "a" {
			meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: "CollectionPolicyApplied", Status: metav1.ConditionFalse, Reason: "Rejected", Message: "bad regex"})
		}
		if err := c.Status().Update(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "the condition names the site", func() error {
		var p v1alpha1.CollectionPolicy
		if err := c.Get(ctx, client.ObjectKey{Namespace: "theta-system", Name: "default"}, &p); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(p.Status.Conditions, "Applied")
		if p.Status.Sites != 2 || p.Status.Applied != 1 || p.Status.Rejected != 1 || cond == nil || cond.Reason != "Rejected" || !strings.Contains(cond.Message, "refused by a;") {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
}

func TestTokenState(t *testing.T) {
	now := time.Now()
	past := metav1.NewTime(now.Add(-time.Second))
	for want, tok := range map[string]v1alpha1.RegistrationToken{
		"Active":    {Spec: v1alpha1.RegistrationTokenSpec{MaxUses: 2}, Status: v1alpha1.RegistrationTokenStatus{Uses: 1}},
		"Exhausted": {Spec: v1alpha1.RegistrationTokenSpec{MaxUses: 1}, Status: v1alpha1.RegistrationTokenStatus{Uses: 1}},
		"Expired":   {Spec: v1alpha1.RegistrationTokenSpec{Expires: &past}},
		"Revoked":   {Spec: v1alpha1.RegistrationTokenSpec{Expires: &past, Revoked: true}},
	} {
		if got := controllers.TokenState(&tok, now); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// While a window is open kubectl shows it on the site and in the counts of its virtual
// sites, as the console and the CLI do; at its end it is gone without anybody's doing.
func TestWindowsShowInStatus(t *testing.T) {
	c := run(t)
	ctx := t.Context()
	create(t, c, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "kappa"}})
	began := time.Now()
	opens, ends := began.Add(3*time.Second).Truncate(time.Second), began.Add(9*time.Second).Truncate(time.Second)
	window := func(name string, start time.Time, length time.Duration) []v1alpha1.MaintenanceWindow {
		return []v1alpha1.MaintenanceWindow{{Name: name, Reason: name, Start: &metav1.Time{Time: start}, Duration: metav1.Duration{Duration: length}}}
	}
	long := []v1alpha1.MaintenanceWindow{{Name: "nightly", Reason: "every minute of the year", Schedule: "* * * * *", Duration: metav1.Duration{Duration: time.Minute}}}
	eu := &v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Name: "eu", Namespace: "kappa-shared"}, Spec: v1alpha1.VirtualSiteSpec{SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}},
		MaintenanceWindows: window("all-of-eu", opens.Add(-time.Minute), ends.Sub(opens)+time.Minute)}}
	own := site("kappa", "own", nil)
	own.Spec.MaintenanceWindows = long
	all := &v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Name: "all", Namespace: "kappa-shared"}}
	create(t, c, site("kappa", "paris", map[string]string{"region": "eu"}), site("kappa", "tokyo", nil), own, all, eu)
	show := func(name string) string {
		var s v1alpha1.Site
		if err := c.Get(ctx, client.ObjectKey{Namespace: "kappa-system", Name: name}, &s); err != nil {
			t.Fatal(err)
		}
		if s.Status.Maintenance == nil {
			return ""
		}
		return s.Status.Maintenance.Reason
	}
	want := func(what string, paris string, inEU, inAll int32) {
		t.Helper()
		testkit.Eventually(t, what, func() error {
			if err := errors.Join(c.Get(ctx, client.ObjectKeyFromObject(eu), eu), c.Get(ctx, client.ObjectKeyFromObject(all), all)); err != nil {
				return err
			}
			got := fmt.Sprintf("paris %q tokyo %q own %q eu %d of %d all %d of %d", show("paris"), show("tokyo"), show("own"), eu.Status.Maintenance, eu.Status.Sites, all.Status.Maintenance, all.Status.Sites)
			if want := fmt.Sprintf("paris %q tokyo %q own %q eu %d of 1 all %d of 3", paris, "", "every minute of the year", inEU, inAll); got != want {
				return fmt.Errorf("%s, want %s", got, want)
			}
			return nil
		})
	}
	want("open", "all-of-eu", 1, 2)
	want("over", "", 0, 1)
}

// A file or a chart with a Tenant and what stands in its namespaces is applied in one
// try.
func TestTenantAndItsObjectsInOneGo(t *testing.T) {
	c := run(t)
	for _, o := range []client.Object{
		&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "one-go"}, Spec: v1alpha1.TenantSpec{Namespaces: []string{"pay"}}},
		&v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: "one-go-shared", Name: "eu"}},
		&v1alpha1.CollectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "one-go-system", Name: "p"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "one-go-pay", Name: "s"}},
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Errorf("%T: %v", o, err)
		}
	}
	if err := c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "one-go-nosuch", Name: "s"}}); !apierrors.IsNotFound(err) {
		t.Errorf("a namespace that no tenant names: %v", err)
	}
}

// What a tenant has and uses stands in its status, and whether it is within its quotas.
func TestTenantUsage(t *testing.T) {
	c := run(t, func(o *controllers.Options) {
		o.Stored = kubeapi.Server(t).Usage
		o.Sent = func(string) (int64, int64) { return 1000, 5 }
		o.Quotas = v1alpha1.TenantQuotas{Series: 1000, Objects: 100}
	})
	create(t, c, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "omega"}, Spec: v1alpha1.TenantSpec{Quotas: v1alpha1.TenantQuotas{Sites: 4}}}, site("omega", "paris", nil))
	testkit.Eventually(t, "the use is told", func() error {
		var tenant v1alpha1.Tenant
		if err := c.Get(t.Context(), client.ObjectKey{Name: "omega"}, &tenant); err != nil {
			return err
		}
		got := map[string]v1alpha1.QuotaUsage{}
		for _, u := range tenant.Status.Usage {
			got[u.Quota] = u
		}
		within := meta.FindStatusCondition(tenant.Status.Conditions, v1alpha1.ConditionWithinQuotas)
		if got["sites"].Used != 1 || got["sites"].Limit != 4 || got["series"].Used != 1000 || got["logBytesPerDay"].Used != 5 || got["objects"].Used < 5 || got["objects"].Limit != 100 || got["objectBytes"].Used < 1000 ||
			within == nil || within.Status != metav1.ConditionFalse || !strings.Contains(within.Message, "series: 1000 of 1000") {
			return fmt.Errorf("%+v, %+v", tenant.Status.Usage, within)
		}
		return nil
	})
}
