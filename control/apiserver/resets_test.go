package apiserver_test

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// Who may write Sites may not have one reset by that: it takes a verb of its own. Nor does
// anybody exchange a site's key by hand.
func TestResettingTakesAVerb(t *testing.T) {
	tenantWithUser(t, "rs", "{}")
	owner := inRoles(t, "rs", "system")[fleet.TenantAdmin]
	admin, ns := kubeapi.Start(t), "rs-system"
	k := kubernetes.NewForConfigOrDie(admin)
	if _, err := k.RbacV1().Roles(ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "rs-clerk"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"muster.dev"}, Resources: []string{"sites"}, Verbs: []string{"get", "create", "update", "patch"}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "rs-clerk"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "rs-clerk"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: kubeapi.Prefix + "rs-clerk"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubeapi.WaitAllowed(t, admin, kubeapi.Prefix+"rs-clerk", nil, "patch", "sites.muster.dev", ns)
	clerk := under{t, dynamic.NewForConfigOrDie(quick(kubeapi.As(t, "rs-clerk"))), ns}

	key := strings.Repeat("a", 64)
	owner.create("sites", `{apiVersion: muster.dev/v1alpha1, kind: Site, metadata: {name: paris}, spec: {publicKey: "`+key+`"}}`)
	patch := func(u under, doc string) error {
		_, err := u.of("sites").Patch(t.Context(), "paris", types.MergePatchType, []byte(doc), metav1.PatchOptions{})
		return err
	}
	const ask = `{"spec":{"reset":{"id":"one","expires":"2040-01-01T00:00:00Z"}}}`
	if err := patch(clerk, ask); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the verb reset on sites") {
		t.Errorf("%v", err)
	}
	if err := patch(owner, ask); err != nil {
		t.Error(err)
	}
	for _, doc := range []string{`{"spec":{"reset":{"id":"two"}}}`, `{"spec":{"reset":{"expires":"2041-01-01T00:00:00Z"}}}`} {
		if err := patch(clerk, doc); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", doc, err)
		}
	}
	for _, doc := range []string{`{"metadata":{"labels":{"a":"b"}}}`, `{"spec":{"reset":null}}`} {
		if err := patch(clerk, doc); err != nil {
			t.Errorf("%s: %v", doc, err)
		}
	}
	if err := patch(owner, `{"spec":{"publicKey":"`+strings.Repeat("b", 64)+`"}}`); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "can't be exchanged") {
		t.Errorf("%v", err)
	}
}
