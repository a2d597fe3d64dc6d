package rollout_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/hold"
	"muster.dev/muster/internal/testkit"
)

// write is what kubectl set image does; it returns the rollout that it became.
func (w *world) write(object, image string) (rollout string) {
	w.t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: object, Namespace: w.tenant + "-shop"}}
	patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image)
	if err := w.client.Patch(context.Background(), d, client.RawPatch("application/strategic-merge-patch+json", patch)); err != nil {
		w.t.Fatal(err)
	}
	return d.Annotations[v1alpha1.AnnotationRollout]
}

func (w *world) policy() {
	w.t.Helper()
	w.create(&v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful", Namespace: w.tenant + "-shop"}, Spec: v1alpha1.RolloutPolicySpec{RolloutPlan: quick()}})
}

func TestAnOrdinaryWriteUnderAPolicy(t *testing.T) {
	w := newWorld(t, "ro-write")
	w.deployment("web", "web:1")
	w.policy()
	w.control()
	good := w.write("web", "web:2")
	r := w.becomes(good, v1alpha1.RolloutCompleted)
	if r.Annotations[v1alpha1.AnnotationStartedBy] == "" {
		t.Error("it does not say whose write it was made of")
	}
	if r.Labels[hold.LabelKind] != "Deployment" || len(r.Status.Waves) != 2 || r.Spec.Changes[0].Name != "web" {
		t.Errorf("%v, %d waves, %+v", r.Labels, len(r.Status.Waves), r.Spec.Changes)
	}
	w.ended(good, false)

	// A bad one stays where it began. The object is as the person left it, and its sites
	// keep what they had until somebody writes again.
	bad := w.write("web", "web:bad")
	if r := w.becomes(bad, v1alpha1.RolloutRolledBack); len(r.Status.Gates) == 0 {
		t.Error("it does not tell what its gates read as it failed")
	}
	w.ended(bad, true)
	if got, had := w.image("web"), w.sitesThatHad("web:bad"); got != "web:bad" || len(had) != 1 {
		t.Errorf("the object has %s; %v had it", got, had)
	}
	fixed := w.write("web", "web:3")
	w.becomes(fixed, v1alpha1.RolloutCompleted)
	w.ended(fixed, false)
	if had := w.sitesThatHad("web:bad"); len(had) != 1 {
		t.Errorf("the next write took the bad one to %v", had)
	}
}

// A Rollout that was made of a write, has ended and was deleted does not come back.
func TestWhatHasEndedStaysGone(t *testing.T) {
	w := newWorld(t, "ro-stay")
	w.deployment("web", "web:1")
	w.policy()
	stop := w.control()
	name := w.write("web", "web:bad")
	r := w.becomes(name, v1alpha1.RolloutRolledBack)
	if err := w.client.Delete(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "it is gone", func() bool { _, err := w.get(name); return err != nil && strings.Contains(err.Error(), "not found") })
	stop()
	w.control()
	next := w.write("web", "web:2") // once that has ended the other would be back
	w.becomes(next, v1alpha1.RolloutCompleted)
	if _, err := w.get(name); err == nil {
		t.Error("it was made anew")
	}
}

// A pipeline writes a hundred times; what ended is kept for a while, and no longer.
func TestOldRolloutsOfWritesGo(t *testing.T) {
	w := newWorld(t, "ro-old")
	w.deployment("web", "web:1")
	w.policy()
	ctx := context.Background()
	old := func(name, object string) {
		kind, _ := hold.KindOf(offered.NewSet(), schema.GroupKind{Group: "apps", Kind: "Deployment"})
		r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.tenant + "-shop", Labels: hold.Labels(kind, object)}, Spec: v1alpha1.RolloutSpec{Changes: []v1alpha1.RolloutChange{{APIVersion: "apps/v1", Kind: "Deployment", Name: object}}}}
		w.create(r)
		r.Status.Phase = v1alpha1.RolloutCompleted
		if err := w.client.Status().Update(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 12 {
		old(fmt.Sprintf("web-%02d", i), "web")
	}
	old("other", "other")
	w.control()
	last := w.write("web", "web:2")
	w.becomes(last, v1alpha1.RolloutCompleted)
	testkit.Eventually(t, "ten are left, the last one among them", func() error {
		var list v1alpha1.RolloutList
		if err := w.client.List(ctx, &list, client.InNamespace(w.tenant+"-shop")); err != nil {
			return err
		}
		var names []string
		for _, r := range list.Items {
			names = append(names, r.Name)
		}
		if len(names) != 11 || !slices.Contains(names, last) || !slices.Contains(names, "other") {
			return fmt.Errorf("%v", names)
		}
		return nil
	})
}

// Of those that somebody started ten are kept as well, but for those in somebody's files.
func TestOldRolloutsGo(t *testing.T) {
	w := newWorld(t, "ro-history")
	w.deployment("web", "web:1")
	ctx := context.Background()
	for i := range 13 {
		r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("old-%02d", i), Namespace: w.tenant + "-shop"}, Spec: v1alpha1.RolloutSpec{Changes: []v1alpha1.RolloutChange{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Images: map[string]string{"c": "web:1"}}}}}
		if i == 12 {
			r.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"}
		}
		w.create(r)
		r.Status.Phase = v1alpha1.RolloutCompleted
		if err := w.client.Status().Update(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	w.control()
	w.rollout("last", "web", "web:2")
	if r := w.becomes("last", v1alpha1.RolloutCompleted); r.Annotations[v1alpha1.AnnotationStartedBy] == "" {
		t.Error("it does not say who started it")
	}
	testkit.Eventually(t, "ten are left, and the one of the files", func() error {
		var list v1alpha1.RolloutList
		if err := w.client.List(ctx, &list, client.InNamespace(w.tenant+"-shop")); err != nil {
			return err
		}
		var names []string
		for _, r := range list.Items {
			names = append(names, r.Name)
		}
		if len(names) != 11 || !slices.Contains(names, "last") || !slices.Contains(names, "old-12") {
			return fmt.Errorf("%v", names)
		}
		return nil
	})
}
