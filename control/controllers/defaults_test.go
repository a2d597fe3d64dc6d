package controllers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/controllers"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// version is what one version of Muster ships.
type version struct {
	collection v1alpha1.CollectionPolicySpec
	health     v1alpha1.HealthPolicySpec
}

// versions are an earlier one, and what is shipped now.
func versions(t *testing.T) (earlier, now version) {
	t.Helper()
	var cp v1alpha1.CollectionPolicy
	var hp v1alpha1.HealthPolicy
	for file, into := range map[string]any{"collectionpolicy.yaml": &cp, "healthpolicy.yaml": &hp} {
		data, err := os.ReadFile("../../health/defaults/" + file)
		if err == nil {
			err = yaml.UnmarshalStrict(data, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	now = version{cp.Spec, hp.Spec}
	earlier = version{*cp.Spec.DeepCopy(), *hp.Spec.DeepCopy()}
	earlier.collection.DropSeries, earlier.collection.Aggregations = nil, nil
	earlier.health.Packs, earlier.health.RecoveryEvaluations = nil, 7
	for i := range earlier.health.Signals {
		earlier.health.Signals[i].Pack = ""
	}
	return earlier, now
}

func (v version) ship(o *controllers.Options) {
	o.DefaultCollectionPolicy, o.DefaultHealthPolicy = v.collection, v.health
}

// defaultsOf reads a tenant's default policies.
func defaultsOf(ctx context.Context, c client.Client, tenant string) (cp v1alpha1.CollectionPolicy, hp v1alpha1.HealthPolicy, err error) {
	key := client.ObjectKey{Namespace: tenant + "-system", Name: "default"}
	if err = c.Get(ctx, key, &cp); err == nil {
		err = c.Get(ctx, key, &hp)
	}
	return cp, hp, err
}

// follows fails until both policies of a tenant are those of a version, and say so.
func follows(ctx context.Context, c client.Client, tenant string, v version) error {
	cp, hp, err := defaultsOf(ctx, c, tenant)
	if err != nil {
		return err
	}
	for what, same := range map[string]bool{"CollectionPolicy": equality.Semantic.DeepEqual(cp.Spec, v.collection), "HealthPolicy": equality.Semantic.DeepEqual(hp.Spec, v.health)} {
		if !same {
			return fmt.Errorf("%s of %s is not the shipped one", what, tenant)
		}
	}
	for _, conditions := range [][]metav1.Condition{cp.Status.Conditions, hp.Status.Conditions} {
		if !meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionFollowsShipped) {
			return fmt.Errorf("%s: %+v", tenant, conditions)
		}
	}
	return nil
}

// What nobody touched is what the running version ships; what a person wrote, however
// they wrote it, is never written over, and says how to get the shipped one.
func TestDefaultPoliciesFollowUpgrades(t *testing.T) {
	earlier, now := versions(t)
	ctx := t.Context()
	scheme := runtime.NewScheme()
	if err := controllers.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(kubeapi.Start(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	running := func(v version, do func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(ctx)
		_, ended := start(t, ctx, v.ship)
		defer func() { cancel(); <-ended }()
		do()
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	policy := func(tenant string, spec v1alpha1.HealthPolicySpec) *v1alpha1.HealthPolicy {
		return &v1alpha1.HealthPolicy{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "HealthPolicy"},
			ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: tenant + "-system"}, Spec: spec}
	}
	patch := func(hp *v1alpha1.HealthPolicy, manager, json string) error {
		return c.Patch(ctx, hp, client.RawPatch(types.MergePatchType, []byte(json)), client.FieldOwner(manager))
	}
	asFile := func(hp *v1alpha1.HealthPolicy) *unstructured.Unstructured {
		hp = policy(strings.TrimSuffix(hp.Namespace, "-system"), *hp.Spec.DeepCopy())
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(hp)
		must(err)
		delete(o, "status")
		return &unstructured.Unstructured{Object: o}
	}

	// What a person does to the health policy, by tenant; whether the edit leaves it equal
	// to what the earlier version ships.
	own := *earlier.health.DeepCopy()
	own.Evaluations = 3
	people := map[string]func(hp *v1alpha1.HealthPolicy) error{
		"ship-edited": func(hp *v1alpha1.HealthPolicy) error { return patch(hp, "kubectl-edit", `{"spec":{"evaluations":9}}`) },
		"ship-removed": func(hp *v1alpha1.HealthPolicy) error {
			return patch(hp, "kubectl-edit", `{"spec":{"worstShare":null}}`)
		},
		"ship-and-back": func(hp *v1alpha1.HealthPolicy) error {
			if err := patch(hp, "kubectl-edit", `{"spec":{"worstShare":null}}`); err != nil {
				return err
			}
			hp.Spec = *earlier.health.DeepCopy()
			return c.Update(ctx, hp, client.FieldOwner("kubectl-replace"))
		},
		"ship-same": func(hp *v1alpha1.HealthPolicy) error { // states what is there
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(asFile(hp)), client.FieldOwner("flux"))
		},
		"ship-same-kubectl": func(hp *v1alpha1.HealthPolicy) error { // which keeps its file in an annotation
			return patch(hp, "kubectl-client-side-apply", `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}}}`)
		},
		"ship-copied": func(hp *v1alpha1.HealthPolicy) error { // made anew with Muster's annotation
			file := policy("ship-copied", own)
			file.Annotations = maps.Clone(hp.Annotations)
			if err := c.Delete(ctx, hp); err != nil {
				return err
			}
			for {
				err := c.Create(ctx, file, client.FieldOwner("kubectl-create"))
				if !apierrors.IsAlreadyExists(err) {
					return err
				}
				// The shipped one was there first.
				if err := c.Get(ctx, client.ObjectKeyFromObject(file), hp); err != nil {
					return err
				}
				if err := client.IgnoreNotFound(c.Delete(ctx, hp)); err != nil {
					return err
				}
			}
		},
	}
	tenants := slices.Sorted(maps.Keys(people))

	// Before this version: copies without an annotation, one Muster's and one a person's.
	for tenant, manager := range map[string]string{"ship-old": "muster", "ship-own": "kubectl-create", "ship-old-edited": "muster"} {
		must(c.Create(ctx, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: tenant}}))
		must(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant + "-system", Labels: map[string]string{fleet.LabelTenant: tenant}}}))
		must(c.Create(ctx, policy(tenant, earlier.health), client.FieldOwner(manager)))
		must(c.Create(ctx, &v1alpha1.CollectionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: tenant + "-system"}, Spec: earlier.collection}, client.FieldOwner(manager)))
	}
	must(patch(policy("ship-old-edited", own), "muster", `{"spec":{"worstShare":null}}`))

	specs := map[string]v1alpha1.HealthPolicySpec{} // what people wrote
	running(earlier, func() {
		for _, tenant := range append(tenants, "ship-untouched") {
			must(c.Create(ctx, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: tenant}}))
			testkit.Eventually(t, "the defaults are made", func() error { return follows(ctx, c, tenant, earlier) })
		}
		for tenant, edit := range people {
			testkit.Eventually(t, tenant, func() error { // health's and the controllers' status come between
				_, hp, err := defaultsOf(ctx, c, tenant)
				if err == nil {
					err = edit(&hp)
				}
				return err
			})
		}
		// A file of a tenant with its own default, applied in one go.
		must(c.Create(ctx, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "ship-applied"}}))
		file := policy("ship-applied", own)
		raw, err := json.Marshal(asFile(file))
		must(err)
		testkit.Eventually(t, "the file is applied", func() error { // the namespace may be late on a slow machine
			err := c.Create(ctx, file.DeepCopy(), client.FieldOwner("kubectl-client-side-apply"))
			if apierrors.IsAlreadyExists(err) {
				return patch(file, "kubectl-client-side-apply", string(raw))
			}
			return err
		})
		// The health role's part of the status is not an edit.
		status := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "HealthPolicy",
			"metadata": map[string]any{"namespace": "ship-untouched-system", "name": "default"},
			"status":   map[string]any{"conditions": []any{map[string]any{"type": "SignalsHealthy", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}}}}}
		must(c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(status), client.FieldOwner("muster-health")))
		testkit.Eventually(t, "an old copy says that it follows", func() error { return follows(ctx, c, "ship-old", earlier) })
		tenants = append(tenants, "ship-own", "ship-old-edited", "ship-applied")
		for _, tenant := range tenants { // some may still be on their way
			testkit.Eventually(t, "the policies of "+tenant, func() error {
				_, hp, err := defaultsOf(ctx, c, tenant)
				specs[tenant] = hp.Spec
				return err
			})
		}
	})

	running(now, func() {
		for _, tenant := range []string{"ship-untouched", "ship-old"} {
			testkit.Eventually(t, tenant+" follows the upgrade", func() error { return follows(ctx, c, tenant, now) })
		}
		_, hp, err := defaultsOf(ctx, c, "ship-untouched")
		must(err)
		if meta.FindStatusCondition(hp.Status.Conditions, "SignalsHealthy") == nil {
			t.Errorf("the health role's condition is gone: %+v", hp.Status.Conditions)
		}
		for _, tenant := range tenants {
			create(t, c, site(tenant, "any", nil))
			testkit.Eventually(t, tenant+" says that it was edited", func() error {
				var of v1alpha1.Tenant
				if err := c.Get(ctx, client.ObjectKey{Name: tenant}, &of); err != nil || of.Status.Sites != 1 {
					return fmt.Errorf("no pass of this version yet: %+v, %v", of.Status, err)
				}
				_, hp, err := defaultsOf(ctx, c, tenant)
				if err != nil {
					return err
				}
				said := meta.FindStatusCondition(hp.Status.Conditions, v1alpha1.ConditionFollowsShipped)
				if said == nil || said.Status != metav1.ConditionFalse || !strings.Contains(said.Message, "it differs from what") {
					return fmt.Errorf("%+v", said)
				}
				if !equality.Semantic.DeepEqual(hp.Spec, specs[tenant]) {
					t.Errorf("%s: what a person wrote was written over", tenant)
				}
				return nil
			})
		}

		// Who asks for the shipped one gets it, also beside policies of another name.
		for _, tenant := range tenants {
			mine := policy(tenant, own)
			mine.Name = "mine"
			must(c.Create(ctx, mine))
			must(patch(policy(tenant, own), "kubectl-annotate", `{"metadata":{"annotations":{"muster.dev/shipped":"reset"}}}`))
			if tenant == "ship-own" {
				cp := &v1alpha1.CollectionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "ship-own-system"}}
				must(c.Patch(ctx, cp, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"muster.dev/shipped":"reset"}}}`)), client.FieldOwner("kubectl-annotate")))
			}
			testkit.Eventually(t, tenant+" has the shipped one back", func() error { return follows(ctx, c, tenant, now) })
		}
		// A removal in what has followed once.
		testkit.Eventually(t, "edit what followed", func() error {
			return patch(policy("ship-old", own), "kubectl-edit", `{"spec":{"worstShare":null}}`)
		})
	})
	_, hp, err := defaultsOf(ctx, c, "ship-old")
	must(err)
	edited := hp.Spec

	// The way back to the earlier version, and what is stored is what is shipped: a policy
	// that follows is written once.
	running(earlier, func() {
		for _, tenant := range append(tenants, "ship-untouched") {
			testkit.Eventually(t, tenant+" follows the way back", func() error { return follows(ctx, c, tenant, earlier) })
		}
		create(t, c, site("ship-old", "any", nil))
		testkit.Eventually(t, "a pass", func() error {
			var of v1alpha1.Tenant
			if err := c.Get(ctx, client.ObjectKey{Name: "ship-old"}, &of); err != nil || of.Status.Sites != 1 {
				return fmt.Errorf("%+v, %v", of.Status, err)
			}
			return nil
		})
		_, hp, err := defaultsOf(ctx, c, "ship-old")
		must(err)
		if !equality.Semantic.DeepEqual(hp.Spec, edited) {
			t.Error("ship-old: an edit after an upgrade was written over")
		}
		_, hp, err = defaultsOf(ctx, c, "ship-untouched")
		must(err)
		if hp.Generation != 3 || hp.Annotations["muster.dev/shipped"] != "3" {
			t.Errorf("two changes of version: generation %d, noted %q", hp.Generation, hp.Annotations["muster.dev/shipped"])
		}
	})
}
