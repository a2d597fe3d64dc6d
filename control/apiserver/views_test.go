package apiserver_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// Everybody in a tenant keeps views of their own and writes nobody else's; those that are
// shared are editors' to write.
func TestSavedViewsAreTheirOwners(t *testing.T) {
	tenantWithUser(t, "sv", "{}")
	roles := inRoles(t, "sv", "system")
	viewer, editor := roles[fleet.TenantViewer], roles[fleet.TenantEditor]
	of := func(user string) string {
		return `{apiVersion: muster.dev/v1alpha1, kind: SavedViews, metadata: {name: ` + v1alpha1.ViewsName(user) + `}, spec: {owner: "` + user + `", views: [{name: A, query: "score<60"}]}}`
	}
	viewer.create("savedviews", of(kubeapi.Prefix+"sv-"+fleet.TenantViewer))
	patch := func(u under, name, doc string) error {
		_, err := u.of("savedviews").Patch(t.Context(), name, types.MergePatchType, []byte(doc), metav1.PatchOptions{})
		return err
	}
	mine := v1alpha1.ViewsName(kubeapi.Prefix + "sv-" + fleet.TenantViewer)
	if err := patch(viewer, mine, `{"spec":{"views":[{"name":"B"}]}}`); err != nil {
		t.Error(err)
	}
	if err := patch(editor, mine, `{"spec":{"views":[]}}`); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "another user's") {
		t.Errorf("%v", err)
	}
	if err := patch(viewer, mine, `{"spec":{"views":[{"name":"B","query":"score<"}]}}`); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.views[0].query") {
		t.Errorf("%v", err)
	}
	if err := patch(viewer, mine, `{"spec":{"owner":"somebody"}}`); !apierrors.IsInvalid(err) {
		t.Errorf("%v", err)
	}
	shared := `{apiVersion: muster.dev/v1alpha1, kind: SavedViews, metadata: {name: shared}, spec: {views: [{name: All}]}}`
	editor.create("savedviews", shared)
	if err := patch(viewer, "shared", `{"spec":{"views":[]}}`); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the verb share") {
		t.Errorf("%v", err)
	}
	if err := viewer.of("savedviews").Delete(t.Context(), "shared", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("%v", err)
	}
}
