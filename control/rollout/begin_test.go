package rollout_test

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/testkit"
)

func TestWhatCantBeBegunSaysWhy(t *testing.T) {
	w := newWorld(t, "ro-bad")
	w.deployment("web", "web:1")
	w.deployment("nowhere", "nowhere:1")
	w.control()
	w.rollout("kind", "web", "web:2", func(r *v1alpha1.Rollout) { r.Spec.Changes[0].Kind = "Dinosaur" })
	w.becomes("kind", v1alpha1.RolloutInvalid, "spec.changes[0].kind", "Dinosaur", "Deployment")
	w.rollout("container", "web", "web:2", func(r *v1alpha1.Rollout) { r.Spec.Changes[0].Images = map[string]string{"x": "web:2"} })
	w.becomes("container", v1alpha1.RolloutInvalid, "spec.changes[0].images", "no container x", "want one of c")
	w.rollout("virtual", "web", "web:2", func(r *v1alpha1.Rollout) { r.Spec.VirtualSites = []string{"shared/all", "shared/none"} })
	w.becomes("virtual", v1alpha1.RolloutInvalid, "spec.virtualSites[1]", "shared/none")
	w.rollout("nowhere", "nowhere", "nowhere:2")
	w.becomes("nowhere", v1alpha1.RolloutInvalid, "Deployment nowhere is on no site")
	w.rollout("same", "web", "web:1")
	w.becomes("same", v1alpha1.RolloutCompleted, "already")
	// What may still come is waited for.
	w.rollout("early", "late", "late:2")
	w.becomes("early", v1alpha1.RolloutQueued, "spec.changes[0].name", "no Deployment late")
	if got := w.image("web"); got != "web:1" {
		t.Errorf("what can't be begun has written %s", got)
	}
	// Before it has begun, a Rollout that is deleted goes at once.
	r, err := w.get("early")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "early is gone", func() bool { _, err := w.get("early"); return apierrors.IsNotFound(err) })
}
