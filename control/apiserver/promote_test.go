package apiserver_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/internal/fleet"
)

// A Rollout of one's own may ask for more than the policy of its objects, and for less only of
// whoever may skip gates; and who may not does not write the policy either.
func TestARolloutIsNoWayRoundItsPolicy(t *testing.T) {
	user := under{t, dynamic.NewForConfigOrDie(tenantWithUser(t, "rw", "{}")), "rw-shop"}
	as := inRoles(t, "rw", "shop")
	editor, owner := as[fleet.TenantEditor], as[fleet.TenantAdmin]
	const plan = `soak: 30m, strategy: {waves: [{percent: 10}, {percent: 100, approval: true}]}, windows: [{from: "22:00", to: "04:30"}]`
	owner.create("rolloutpolicies", `{apiVersion: muster.dev/v1alpha1, kind: RolloutPolicy, metadata: {name: careful}, spec: {selector: {matchLabels: {app: web}}, `+plan+`}}`)
	user.create("deployments", webDeployment("web"))
	user.create("deployments", strings.ReplaceAll(webDeployment("tool"), "app: web", "app: tool"))

	n := 0
	start := func(u under, object, spec string) (string, error) {
		n++
		o := &unstructured.Unstructured{}
		doc := fmt.Sprintf(`{apiVersion: muster.dev/v1alpha1, kind: Rollout, metadata: {name: r%d}, spec: {changes: [{apiVersion: apps/v1, kind: Deployment, name: %s, images: {a: "web:2"}}], %s}}`, n, object, spec)
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatal(err)
		}
		_, err := u.of("rollouts").Create(t.Context(), o, metav1.CreateOptions{})
		return o.GetName(), err
	}
	short := func(what, field string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), field+": RolloutPolicy careful selects Deployment web") || !strings.Contains(err.Error(), "skip-gates") {
			t.Errorf("%s: %v, want %s and what it takes", what, err, field)
		}
	}
	for field, spec := range map[string]string{
		"spec.soak":         strings.Replace(plan, "30m", "0s", 1),
		"spec.strategy":     strings.Replace(plan, "{percent: 10}, ", "", 1),
		"spec.gates":        plan + `, gates: [{name: ready, ready: {}}]`,
		"spec.onFailure":    plan + `, onFailure: Pause`,
		"spec.windows":      strings.Replace(plan, `"22:00"`, `"08:00"`, 1),
		"spec.virtualSites": plan + `, virtualSites: [tiny]`,
	} {
		_, err := start(editor, "web", spec)
		short(spec, field, err)
	}
	if _, err := start(editor, "tool", "soak: 0s"); err != nil {
		t.Errorf("of what no policy selects: %v", err)
	}
	name, err := start(editor, "web", strings.Replace(strings.Replace(plan, "30m", "1h", 1), "{percent: 10}", "{percent: 1}, {percent: 10}", 1))
	if err != nil {
		t.Fatalf("what asks for more: %v", err)
	}
	edit := func(u under, spec string) error {
		_, err := u.of("rollouts").Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
		return err
	}
	short("less later", "spec.soak", edit(editor, `{"soak":"1m"}`))
	if err := edit(editor, `{"soak":"30m"}`); err != nil {
		t.Errorf("as much as the policy: %v", err)
	}
	if err := edit(owner, `{"soak":"1m"}`); err != nil {
		t.Errorf("whoever may skip gates: %v", err)
	}
	if err := edit(editor, `{"soak":"2m","control":{"paused":true}}`); err != nil {
		t.Errorf("one that asks less than the policy may ask for more, and be paused: %v", err)
	}
	if _, err := start(owner, "web", "soak: 0s"); err != nil {
		t.Errorf("whoever may skip gates: %v", err)
	}
	_, err = editor.of("rolloutpolicies").Patch(t.Context(), "careful", types.MergePatchType, []byte(`{"spec":{"soak":"0s"}}`), metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("an editor weakens the policy: %v", err)
	}
	if err := editor.of("rolloutpolicies").Delete(t.Context(), "careful", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("an editor deletes the policy: %v", err)
	}
}
