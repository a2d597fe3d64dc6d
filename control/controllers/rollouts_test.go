package controllers_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// rolled writes a Deployment under a RolloutPolicy: its sites get it when the state says
// so, and after a restart too.
func rolled(t *testing.T, c client.Client, store *desired.Store, again func() *desired.Store) {
	ctx := t.Context()
	control, err := client.New(kubeapi.Server(t).ConfigOf("muster:control"), client.Options{Scheme: c.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	create(t, c, &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "tau-shop", Name: "all"}})
	const item = "Deployment.apps/tau-shop/moved"
	paris, oslo := fleet.SiteID{Tenant: "tau", Name: "paris"}, fleet.SiteID{Tenant: "tau", Name: "oslo"}
	create(t, c, site("tau", "oslo", map[string]string{"region": "eu"}), parse(t, deployment("moved", "", "", "")))
	runs := func(store *desired.Store, paris, oslo fleet.SiteID, first, second string) error {
		p, ok := store.Placed(item)
		if !ok {
			return errors.New("it is not carried")
		}
		for id, want := range map[fleet.SiteID]string{paris: first, oslo: second} {
			if b, _ := store.Blob(p.Digests[id]); !strings.Contains(string(b), fmt.Sprintf(`"image":%q`, want)) {
				return fmt.Errorf("%s: want %s in %s", id, want, b)
			}
		}
		return nil
	}
	have := func(first, second string) {
		t.Helper()
		testkit.Eventually(t, "paris to have "+first+" and oslo "+second, func() error { return runs(store, paris, oslo, first, second) })
	}
	have("a:1", "a:1")
	d := parse(t, deployment("moved", "", "", ""))
	const second = `{"spec":{"paused":true,"template":{"spec":{"containers":[{"name":"a","image":"a:2"}]}}}}`
	if err := c.Patch(ctx, d, client.RawPatch(types.MergePatchType, []byte(second))); err != nil {
		t.Fatal(err)
	}
	state := &v1alpha1.RolloutState{ObjectMeta: metav1.ObjectMeta{Namespace: "tau-shop", Name: d.GetAnnotations()[v1alpha1.AnnotationRollout]}}
	testkit.Eventually(t, "what does not move to be everywhere", func() error {
		p, _ := store.Placed(item)
		if b, _ := store.Blob(p.Digests[oslo]); !strings.Contains(string(b), `"paused":true`) {
			return fmt.Errorf("%s", b)
		}
		return nil
	})
	have("a:1", "a:1")
	if err := control.Patch(ctx, state, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"sites":"paris","steps":"u","has":"1"}}`))); err != nil {
		t.Fatal(err)
	}
	have("a:2", "a:1")

	anew := again()
	if err := runs(anew, paris, oslo, "a:2", "a:1"); err != nil {
		t.Errorf("as it starts again: %v", err)
	}
	// A state that somebody removed: the object counts as it stands.
	if err := control.Delete(ctx, state); err != nil {
		t.Fatal(err)
	}
	have("a:2", "a:2")
	if err := runs(again(), paris, oslo, "a:2", "a:2"); err != nil {
		t.Errorf("as it starts again without the state: %v", err)
	}
	// So does one that names a state which never was.
	if err := control.Patch(ctx, d, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"muster.dev/rollout":"never"}},"spec":{"template":{"spec":{"hostname":"h","containers":[{"name":"a","image":"a:3"}]}}}}`))); err != nil {
		t.Fatal(err)
	}
	have("a:3", "a:3")
	if err := errors.Join(c.Delete(ctx, d), c.Delete(ctx, &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "tau-shop", Name: "all"}})); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, site("tau", "oslo", nil)); err != nil {
		t.Fatal(err)
	}
}
