package controllers_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/controllers"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// run starts the controllers against the real API server.
func run(t *testing.T) client.Client {
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
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	go func() { _ = ca.Start(ctx); ended <- struct{}{} }()
	r := controllers.New(controllers.Options{
		Client: c, Cache: ca, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		RenderedPolicy: func(id fleet.SiteID) string { return "hash-of-" + id.Tenant },
		DefaultHealthPolicy: v1alpha1.HealthPolicySpec{Signals: []v1alpha1.Signal{{Name: "up", Dimension: fleet.Connectivity, Query: "up",
			Good: resource.MustParse("1"), Bad: resource.MustParse("0")}}},
	})
	go func() { _ = r.Run(ctx); ended <- struct{}{} }()
	t.Cleanup(func() { cancel(); <-ended; <-ended })
	return c
}

func eventually(t *testing.T, what string, within time.Duration, ok func() error) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		err := ok()
		if err == nil {
			return time.Since(began)
		}
		if time.Since(began) > within {
			t.Fatalf("%s: not within %s: %v", what, within, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func create(t *testing.T, c client.Client, objs ...client.Object) {
	t.Helper()
	for _, o := range objs {
		// The namespace may be about to be made.
		eventually(t, "create "+o.GetName(), 10*time.Second, func() error { return c.Create(context.Background(), o) })
	}
}

func site(tenant, name string, labels map[string]string) *v1alpha1.Site {
	return &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: tenant + "-system", Labels: labels}, Spec: v1alpha1.SiteSpec{Approved: true}}
}

func TestTenantGetsItsNamespacesPoliciesAndRoles(t *testing.T) {
	c := run(t)
	ctx := context.Background()
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "alpha-taken"}},
		&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "alpha"}, Spec: v1alpha1.TenantSpec{Namespaces: []string{"pay", "taken"}}})
	eventually(t, "the tenant is set up", 10*time.Second, func() error {
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
	var taken corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: "alpha-taken"}, &taken); err != nil || taken.Labels[fleet.LabelTenant] != "" {
		t.Errorf("a namespace of somebody else was taken over: %v %v", taken.Labels, err)
	}

	// A default policy is the user's once it is made.
	var hp v1alpha1.HealthPolicy
	key := client.ObjectKey{Namespace: "alpha-system", Name: "default"}
	if err := c.Get(ctx, key, &hp); err != nil {
		t.Fatal(err)
	}
	hp.Spec.Evaluations = 7
	if err := c.Update(ctx, &hp); err != nil {
		t.Fatal(err)
	}
	create(t, c, site("alpha", "any", nil))
	eventually(t, "the site is counted", 5*time.Second, func() error {
		var tn v1alpha1.Tenant
		if err := c.Get(ctx, client.ObjectKey{Name: "alpha"}, &tn); err != nil || tn.Status.Sites != 1 {
			return fmt.Errorf("%d sites, %v", tn.Status.Sites, err)
		}
		return nil
	})
	if err := c.Get(ctx, key, &hp); err != nil || hp.Spec.Evaluations != 7 {
		t.Errorf("the user's edit was overwritten: %d, %v", hp.Spec.Evaluations, err)
	}
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
	eventually(t, "the first members", 10*time.Second, members("paris"))

	patch := func(name, json string) {
		t.Helper()
		if err := c.Patch(ctx, site("two-part", name, nil), client.RawPatch("application/merge-patch+json", []byte(json))); err != nil {
			t.Fatal(err)
		}
	}
	patch("tokyo", `{"metadata":{"labels":{"region":"uk"}}}`)
	t.Logf("joined after %s", eventually(t, "tokyo joins", 2*time.Second, members("paris", "tokyo")))
	patch("paris", `{"metadata":{"labels":{"old":"yes"}}}`)
	eventually(t, "paris leaves", 2*time.Second, members("tokyo"))
	create(t, c, site("two-part", "leeds", map[string]string{"region": "uk"}))
	eventually(t, "a new site joins by its labels alone", 2*time.Second, members("leeds", "tokyo"))

	leeds := site("two-part", "leeds", nil)
	if err := c.Get(ctx, client.ObjectKeyFromObject(leeds), leeds); err != nil {
		t.Fatal(err)
	}
	leeds.Status.Health = &v1alpha1.SiteHealth{Colour: fleet.Red}
	if err := c.Status().Update(ctx, leeds); err != nil {
		t.Fatal(err)
	}
	patch("tokyo", `{"spec":{"maintenance":{"reason":"disks"}}}`)
	eventually(t, "colours are counted, maintenance apart", 2*time.Second, func() error {
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
	c := run(t)
	ctx := context.Background()
	create(t, c, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "gamma"}})
	soon := metav1.NewTime(time.Now().Add(3 * time.Second))
	tok := &v1alpha1.RegistrationToken{ObjectMeta: metav1.ObjectMeta{Name: "t", Namespace: "gamma-system"}, Spec: v1alpha1.RegistrationTokenSpec{SecretHash: strings.Repeat("a", 64), Expires: &soon}}
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
	eventually(t, "the token is active", 3*time.Second, state("Active"))
	eventually(t, "it expires by itself", 10*time.Second, state("Expired"))
	eventually(t, "the maintenance ends by itself", 5*time.Second, func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil || s.Spec.Maintenance != nil {
			return fmt.Errorf("%v, %v", s.Spec.Maintenance, err)
		}
		return nil
	})
	eventually(t, "the policy counts its sites", 5*time.Second, func() error {
		var p v1alpha1.CollectionPolicy
		if err := c.Get(ctx, client.ObjectKey{Namespace: "gamma-system", Name: "default"}, &p); err != nil || p.Status.Sites != 1 || p.Status.Applied != 1 {
			return fmt.Errorf("%+v, %v", p.Status, err)
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
