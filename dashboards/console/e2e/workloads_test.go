package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/control/vk8s"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// TestApplyThroughTheRealMount: what the console asks of a virtual Kubernetes is what one
// answers, and what it refuses comes back with the field.
func TestApplyThroughTheRealMount(t *testing.T) {
	w := start(t)
	const ns = "e2ea-shop"
	kubeapi.Mount(t).Serve(vk8s.Backend{Virtual: func(of, name string) (vk8s.Virtual, bool) {
		return vk8s.Virtual{Namespace: of, Name: name}, name == "vk8s" && of == ns
	}})
	ctx := context.Background()
	must(w.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{"muster.dev/tenant": "e2ea"}}}, metav1.CreateOptions{}))(t)
	virtual := schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: "virtualkubernetes"}
	must(w.dynamic.Resource(virtual).Namespace(ns).Create(ctx, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "muster.dev/v1alpha1", "kind": "VirtualKubernetes",
		"metadata": map[string]any{"name": "vk8s"}, "spec": map[string]any{"defaultVirtualSite": "shared/all"}}}, metav1.CreateOptions{}))(t)
	user := w.token("deployer")
	must(w.kube.RbacV1().Roles(ns).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "deployer"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}}, metav1.CreateOptions{}))(t)
	must(w.kube.RbacV1().RoleBindings(ns).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "deployer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "deployer"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: home, Name: "deployer"}}}, metav1.CreateOptions{}))(t)
	kubeapi.WaitAllowed(t, w.admin, "system:serviceaccount:"+home+":deployer", nil, "create", "deployments.apps", ns)

	const base, in = "/api/v1/vk8s/shop/vk8s", "?tenant=e2ea"
	if v := w.want(200, user, "GET", base+in, ""); fmt.Sprint(v["rights"]) != "map[deletePods:true deploy:true readLogs:true]" {
		t.Errorf("rights: %v", v["rights"])
	}
	w.want(403, w.token("nobody"), "GET", base+in, "")
	const web = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: %s, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: x}]}}%s}\n"
	apply := func(yaml string, dry bool) (applied bool, object map[string]any) {
		t.Helper()
		body, _ := json.Marshal(map[string]any{"yaml": yaml, "dryRun": dry})
		out := w.want(200, user, "POST", base+"/apply"+in, string(body))
		return out["applied"] == true, out["objects"].([]any)[0].(map[string]any)
	}
	good := fmt.Sprintf(web, "2", "")
	if applied, o := apply(good, true); applied || o["change"] != "create" || o["error"] != nil {
		t.Errorf("a dry run: %v", o)
	}
	w.want(404, user, "GET", base+"/workloads/Deployment.apps/web/object"+in, "")
	if _, o := apply(fmt.Sprintf(web, "2", ", replikas: 3"), false); !strings.Contains(fmt.Sprint(o["error"]), "replikas") {
		t.Errorf("an unknown field: %v", o)
	}
	if _, o := apply(fmt.Sprintf(web, "-1", ""), false); !strings.Contains(fmt.Sprint(o["error"]), "field:spec.replicas") {
		t.Errorf("a wrong value: %v", o)
	}
	if applied, o := apply(good, false); !applied || o["change"] != "create" {
		t.Errorf("applied: %v", o)
	}
	if _, o := apply(good, true); o["change"] != "none" {
		t.Errorf("applied again: %v", o)
	}
	if o := w.want(200, user, "GET", base+"/workloads/Deployment.apps/web/object"+in, ""); !strings.Contains(fmt.Sprint(o["yaml"]), "replicas: 2") {
		t.Errorf("%v", o)
	}
}
