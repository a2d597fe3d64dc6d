package rollout_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/testkit"
)

// A person's write into one object of a bundle that is under way takes over all of it: the
// others go on to what the bundle brought.
func TestAWriteIntoABundle(t *testing.T) {
	w := newWorld(t, "ro-bundle")
	w.deployment("web", "web:1")
	w.deployment("api", "api:1")
	w.control()
	w.rollout("both", "web", "web:2", func(r *v1alpha1.Rollout) {
		r.Spec.Changes = append(r.Spec.Changes, v1alpha1.RolloutChange{APIVersion: "apps/v1", Kind: "Deployment", Name: "api", Images: map[string]string{"c": "api:2"}})
		r.Spec.Soak.Duration = time.Hour
	})
	testkit.EventuallyTrue(t, "the first wave has both", func() bool { return len(w.sitesThatHad("web:2")) == 1 && len(w.sitesThatHad("api:2")) == 1 })
	w.policy()
	var next string
	testkit.EventuallyTrue(t, "the write is under a rollout of its own", func() bool {
		next = w.write("web", "web:3")
		return next != "" && next != "both"
	})
	w.becomes(next, v1alpha1.RolloutCompleted)
	w.becomes("both", v1alpha1.RolloutSuperseded, next)
	if web, api := w.image("web"), w.image("api"); web != "web:3" || api != "api:2" {
		t.Errorf("the objects have %s and %s", web, api)
	}
	if had := w.sitesThatHad("web:2"); len(had) != 1 {
		t.Errorf("what the write replaced went on to %v", had)
	}
	if had := w.sitesThatHad("api:2"); len(had) != sitesOfAWorld {
		t.Errorf("the rest of the bundle went to %v", had)
	}
}

// A rollout back to a revision brings what kubectl rollout history shows of it.
func TestARolloutToARevision(t *testing.T) {
	w := newWorld(t, "ro-revision")
	w.deployment("web", "web:2")
	var d appsv1.Deployment
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.in(), Name: "web"}, &d); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "web", "pod-template-hash": "one"}
	yes := true
	w.create(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web-one", Namespace: w.in(), Labels: labels, Annotations: map[string]string{"deployment.kubernetes.io/revision": "1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: d.UID, Controller: &yes}}},
		Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "web:1"}}}}}})
	w.control()
	revision := func(n int64) func(*v1alpha1.Rollout) {
		return func(r *v1alpha1.Rollout) { r.Spec.Changes[0].Images, r.Spec.Changes[0].Revision = nil, &n }
	}
	w.rollout("none", "web", "", revision(7))
	w.becomes("none", v1alpha1.RolloutInvalid, "7")
	w.rollout("back", "web", "", revision(1))
	w.becomes("back", v1alpha1.RolloutCompleted)
	if got, had := w.image("web"), w.sitesThatHad("web:1"); got != "web:1" || len(had) != sitesOfAWorld {
		t.Errorf("the object has %s; %v have it", got, had)
	}
}
