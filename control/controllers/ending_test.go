package controllers_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/controllers"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
)

// A tenant that is deleted goes with all that it has, and not before; then its name is
// free again.
func TestDeletedTenantGoesWithAllItHas(t *testing.T) {
	var told events
	c := run(t, func(o *controllers.Options) { o.Recorder = &told })
	ctx := t.Context()
	tenant := func() *v1alpha1.Tenant {
		return &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "leaving"}, Spec: v1alpha1.TenantSpec{Namespaces: []string{"shop"}}}
	}
	create(t, c, tenant())
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Namespace: "leaving-shop", Finalizers: []string{"example.com/wait"}}}
	create(t, c, site("leaving", "paris", nil), held, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "leaving-not"}})
	reader := &rbacv1.ClusterRole{}
	testkit.Eventually(t, "the tenant's role", func() error {
		return c.Get(ctx, client.ObjectKey{Name: fleet.TenantGroup("leaving", "reader")}, reader)
	})
	var now v1alpha1.Tenant
	if err := c.Delete(ctx, tenant()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the tenant says what holds it", func() error {
		if err := c.Get(ctx, client.ObjectKey{Name: "leaving"}, &now); err != nil {
			return err
		}
		if r := meta.FindStatusCondition(now.Status.Conditions, "Ready"); r == nil || r.Reason != "Deleting" || !strings.Contains(r.Message, "leaving-shop (") || !strings.Contains(r.Message, "example.com/wait") {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	if err := c.Get(ctx, client.ObjectKeyFromObject(held), held); err != nil {
		t.Fatal(err)
	}
	held.Finalizers = nil
	if err := c.Update(ctx, held); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{&now, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "leaving-system"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "leaving-shop"}},
		site("leaving", "paris", nil), reader, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: reader.Name}}} {
		testkit.Eventually(t, fmt.Sprintf("%T %s is gone", o, o.GetName()), func() error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%v, held by %v", err, o.GetFinalizers())
			}
			return nil
		})
	}
	var other corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: "leaving-not"}, &other); err != nil || other.DeletionTimestamp != nil {
		t.Errorf("somebody else's namespace: %v, %v", other.DeletionTimestamp, err)
	}
	create(t, c, tenant())
	testkit.Eventually(t, "a new tenant of the name", func() error {
		return c.Get(ctx, client.ObjectKey{Namespace: "leaving-system", Name: "default"}, &v1alpha1.CollectionPolicy{})
	})
}

// Whoever waits for a policy waits for the sites that are connected, and for the policy
// as it is now.
func TestAppliedIsAboutConnectedSites(t *testing.T) {
	var mu sync.Mutex
	rendered := map[string]int64{"default": 1}
	c := run(t, func(o *controllers.Options) {
		o.RenderedPolicies = func(string) map[string]int64 {
			mu.Lock()
			defer mu.Unlock()
			return map[string]int64{"default": rendered["default"]}
		}
	})
	ctx := t.Context()
	create(t, c, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "waiting"}})
	report := func(name string, phase fleet.Phase, hash string) {
		t.Helper()
		testkit.Eventually(t, "the report of "+name, func() error {
			s := site("waiting", name, nil)
			if err := c.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
				return err
			}
			s.Status.Phase, s.Status.PolicyHash = phase, hash
			return c.Status().Update(ctx, s)
		})
	}
	policy := func(status metav1.ConditionStatus, reason string, generation int64, says ...string) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("%s %s", status, reason), func() error {
			var p v1alpha1.CollectionPolicy
			if err := c.Get(ctx, client.ObjectKey{Namespace: "waiting-system", Name: "default"}, &p); err != nil {
				return err
			}
			a := meta.FindStatusCondition(p.Status.Conditions, "Applied")
			if a == nil || a.Status != status || a.Reason != reason || a.ObservedGeneration != generation {
				return fmt.Errorf("%+v", a)
			}
			for _, s := range says {
				if !strings.Contains(a.Message, s) {
					return fmt.Errorf("%q does not say %q", a.Message, s)
				}
			}
			return nil
		})
	}
	create(t, c, site("waiting", "oslo", nil), site("waiting", "paris", nil), site("waiting", "rome", nil))
	policy(metav1.ConditionTrue, "NoSiteConnected", 1, "oslo, paris, rome")
	report("oslo", fleet.PhaseOnline, "hash-of-waiting")
	report("paris", fleet.PhaseOnline, "")
	policy(metav1.ConditionFalse, "InProgress", 1, "on 1 of 3 sites; not yet on paris", "not connected, and will take it when they return: rome")
	report("paris", fleet.PhaseOffline, "")
	policy(metav1.ConditionTrue, "AppliedOnConnected", 1, "1 of 3", "paris, rome")
	report("paris", fleet.PhaseOnline, "hash-of-waiting")
	report("rome", fleet.PhaseOffline, "hash-of-waiting")
	policy(metav1.ConditionTrue, "Applied", 1)

	// The sites have what was rendered before the edit: that is no answer to it.
	var p v1alpha1.CollectionPolicy
	if err := c.Get(ctx, client.ObjectKey{Namespace: "waiting-system", Name: "default"}, &p); err != nil {
		t.Fatal(err)
	}
	before := p.DeepCopy()
	p.Spec.Priority = 7
	if err := c.Patch(ctx, &p, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	report("paris", fleet.PhaseOffline, "other")
	testkit.Eventually(t, "a pass after the edit", func() error {
		var n v1alpha1.Tenant
		if err := c.Get(ctx, client.ObjectKey{Name: "waiting"}, &n); err != nil {
			return err
		}
		if n.Status.Sites == 4 {
			return nil
		}
		return client.IgnoreAlreadyExists(c.Create(ctx, site("waiting", "late", nil)))
	})
	policy(metav1.ConditionTrue, "Applied", 1)
	mu.Lock()
	rendered["default"] = p.Generation
	mu.Unlock()
	policy(metav1.ConditionTrue, "AppliedOnConnected", p.Generation, "late, paris")
}
