package apiserver_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/kinds"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/hold"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// under are the resources of one namespace, as one user.
type under struct {
	t  *testing.T
	c  dynamic.Interface
	ns string
}

func (u under) of(resource string) dynamic.ResourceInterface {
	gvr := v1alpha1.GroupVersion.WithResource(resource)
	switch resource {
	case "deployments":
		gvr = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}
	case "configmaps":
		gvr = schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	return u.c.Resource(gvr).Namespace(u.ns)
}

func (u under) create(resource, doc string) *unstructured.Unstructured {
	u.t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
		u.t.Fatal(err)
	}
	out, err := u.of(resource).Create(u.t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		u.t.Fatalf("create %s: %v", resource, err)
	}
	return out
}

func (u under) patch(resource, name, patch string, o metav1.PatchOptions) *unstructured.Unstructured {
	u.t.Helper()
	out, err := u.of(resource).Patch(u.t.Context(), name, types.MergePatchType, []byte(patch), o)
	if err != nil {
		u.t.Fatalf("patch %s %s: %v", resource, name, err)
	}
	return out
}

func (u under) image(name, image string) *unstructured.Unstructured {
	u.t.Helper()
	return u.patch("deployments", name, imagePatch(image), metav1.PatchOptions{})
}

func imagePatch(image string) string {
	return fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"a","image":%q}]}}}}`, image)
}

// state is the one that an object names.
func (u under) state(o *unstructured.Unstructured) *v1alpha1.RolloutState {
	u.t.Helper()
	name := o.GetAnnotations()[v1alpha1.AnnotationRollout]
	if name == "" {
		u.t.Fatalf("%s names no rollout: %v", o.GetName(), o.GetAnnotations())
	}
	got, err := u.of("rolloutstates").Get(u.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	out := &v1alpha1.RolloutState{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, out); err != nil {
		u.t.Fatal(err)
	}
	return out
}

// images are those of the contents of a state's one object.
func images(t *testing.T, st *v1alpha1.RolloutState) string {
	t.Helper()
	var out []string
	for _, c := range st.Spec.Objects[0].Contents {
		var template struct {
			Spec struct{ Containers []struct{ Image string } }
		}
		if err := json.Unmarshal(c.Raw, &template); err != nil || len(template.Spec.Containers) != 1 {
			t.Fatalf("%s: %v", c.Raw, err)
		}
		out = append(out, template.Spec.Containers[0].Image)
	}
	return strings.Join(out, " ")
}

func webDeployment(name string) string {
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, labels: {app: web}, annotations: {muster.dev/rollout: forged}},
  spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: "web:1"}]}}}}`, name)
}

const rolloutPolicy = `{apiVersion: muster.dev/v1alpha1, kind: RolloutPolicy, metadata: {name: careful}, spec: {selector: {matchLabels: {app: web}}}}`

func TestOrdinaryWritesBecomeRollouts(t *testing.T) {
	user := tenantWithUser(t, "ro", "{}")
	u := under{t, dynamic.NewForConfigOrDie(user), "ro-shop"}
	control := under{t, dynamic.NewForConfigOrDie(kubeapi.Server(t).ConfigOf("muster:control")), "ro-shop"}

	web := u.create("deployments", webDeployment("web"))
	if a := web.GetAnnotations(); a[v1alpha1.AnnotationRollout] != "" {
		t.Errorf("what is new names a rollout: %v", a)
	}
	if web = u.image("web", "web:2"); web.GetAnnotations()[v1alpha1.AnnotationRollout] != "" {
		t.Errorf("without a policy: %v", web.GetAnnotations())
	}
	u.create("rolloutpolicies", rolloutPolicy)
	if web = u.patch("deployments", "web", `{"metadata":{"annotations":{"muster.dev/rollout":"forged"}},"spec":{"replicas":4}}`, metav1.PatchOptions{}); web.GetAnnotations()[v1alpha1.AnnotationRollout] != "" {
		t.Errorf("a write that moves nothing: %v", web.GetAnnotations())
	}

	// A dry run says what would be, and makes nothing.
	dry := u.patch("deployments", "web", imagePatch("web:3"), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	if list, err := u.of("rolloutstates").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 || dry.GetAnnotations()[v1alpha1.AnnotationRollout] == "" {
		t.Errorf("after a dry run: %v, %v; %v", list, err, dry.GetAnnotations())
	}

	web = u.image("web", "web:3")
	first := u.state(web)
	if s := first.Spec; !s.Held || s.Policy != "careful" || s.By != kubeapi.Prefix+"ro" || s.Objects[0].Written || images(t, first) != "web:2 web:3" || first.Labels[hold.LabelKind] != "Deployment" {
		t.Errorf("%+v %v", s, first.Labels)
	}

	// As helm does: an update with an object that has no annotations.
	put := web.DeepCopy()
	put.SetAnnotations(nil)
	put.SetLabels(map[string]string{"app": "web", "chart": "2"})
	put.SetResourceVersion("")
	put, err := u.of("deployments").Update(t.Context(), put, metav1.UpdateOptions{})
	if err != nil || put.GetAnnotations()[v1alpha1.AnnotationRollout] != first.Name {
		t.Fatalf("a replacement: %v, %v", put.GetAnnotations(), err)
	}
	if web = u.patch("deployments", "web", `{"metadata":{"annotations":{"muster.dev/rollout":null}}}`, metav1.PatchOptions{}); web.GetAnnotations()[v1alpha1.AnnotationRollout] != first.Name {
		t.Errorf("it can be taken away: %v", web.GetAnnotations())
	}

	// The rollout has brought it to a site; another write takes over.
	control.patch("rolloutstates", first.Name, `{"spec":{"sites":"one two","steps":"pw","has":"10"}}`, metav1.PatchOptions{})
	web = u.image("web", "web:4")
	second := u.state(web)
	if s := second.Spec; second.Name == first.Name || s.Supersedes != first.Name || s.Sites != "one two" || s.Has != "10" || s.Steps != "ww" || images(t, second) != "web:2 web:3 web:4" {
		t.Errorf("%+v: %s", s, images(t, second))
	}
	// Administrators are people; without the policy it goes on as it began.
	if err := u.of("rolloutpolicies").Delete(t.Context(), "careful", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	admin := under{t, dynamic.NewForConfigOrDie(kubeapi.Start(t)), "ro-shop"}
	third := u.state(admin.image("web", "web:2"))
	if s := third.Spec; s.Supersedes != second.Name || s.Policy != "" || images(t, third) != "web:2 web:3 web:2" {
		t.Errorf("%+v: %s", s, images(t, third))
	}
	// Once that has ended and nothing selects the object, a write goes everywhere.
	control.patch("rolloutstates", third.Name, `{"metadata":{"annotations":{"`+hold.AnnotationEnded+`":"RolledBack"}}}`, metav1.PatchOptions{})
	if web = u.image("web", "web:5"); web.GetAnnotations()[v1alpha1.AnnotationRollout] != "" {
		t.Errorf("after the end, without a policy: %v", web.GetAnnotations())
	}

	// Control itself writes as it decides.
	u.create("rolloutpolicies", rolloutPolicy)
	web = control.patch("deployments", "web", `{"metadata":{"annotations":{"muster.dev/rollout":"own"}},"spec":{"template":{"metadata":{"labels":{"v":"6"}}}}}`, metav1.PatchOptions{})
	if web.GetAnnotations()[v1alpha1.AnnotationRollout] != "own" {
		t.Errorf("control's own write: %v", web.GetAnnotations())
	}
	// Its state is not there: nothing is held.
	if st := u.state(u.image("web", "web:7")); st.Spec.Supersedes != "" || images(t, st) != "web:5 web:7" {
		t.Errorf("%+v", st.Spec)
	}
	if err := u.of("deployments").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// A label that is taken away, or given, in the write itself makes no way round a policy.
func TestLabelsAreNoWayRoundAPolicy(t *testing.T) {
	u := under{t, dynamic.NewForConfigOrDie(tenantWithUser(t, "rl", "{}")), "rl-shop"}
	u.create("rolloutpolicies", rolloutPolicy)
	u.create("deployments", webDeployment("web"))
	both := func(label, image string) *v1alpha1.RolloutState {
		return u.state(u.patch("deployments", "web", `{"metadata":{"labels":{"app":`+label+`}},`+imagePatch(image)[1:], metav1.PatchOptions{}))
	}
	st := both("null", "web:2")
	if st.Spec.Policy != "careful" || images(t, st) != "web:1 web:2" {
		t.Errorf("taken away: %+v", st.Spec)
	}
	control := under{t, dynamic.NewForConfigOrDie(kubeapi.Server(t).ConfigOf("muster:control")), "rl-shop"}
	control.patch("rolloutstates", st.Name, `{"metadata":{"annotations":{"`+hold.AnnotationEnded+`":"RolledBack"}}}`, metav1.PatchOptions{})
	if web := u.image("web", "web:3"); web.GetAnnotations()[v1alpha1.AnnotationRollout] != "" {
		t.Errorf("none selects it any more: %v", web.GetAnnotations())
	}
	if st := both(`"web"`, "web:4"); st.Spec.Policy != "careful" || images(t, st) != "web:3 web:4" {
		t.Errorf("given: %+v", st.Spec)
	}
}

// The state is there before the write is, in whichever way it is written.
func TestRolloutsOfOtherKindsAndWays(t *testing.T) {
	user := tenantWithUser(t, "rk", "{}")
	c := dynamic.NewForConfigOrDie(user)
	shop, system := under{t, c, "rk-shop"}, under{t, c, "rk-system"}
	shop.create("rolloutpolicies", `{apiVersion: muster.dev/v1alpha1, kind: RolloutPolicy, metadata: {name: all}, spec: {kinds: [ConfigMap, Deployment]}}`)
	system.create("rolloutpolicies", `{apiVersion: muster.dev/v1alpha1, kind: RolloutPolicy, metadata: {name: policies}, spec: {}}`)

	shop.create("configmaps", `{apiVersion: v1, kind: ConfigMap, metadata: {name: conf}, data: {a: "1"}}`)
	st := shop.state(shop.patch("configmaps", "conf", `{"data":{"a":"2"}}`, metav1.PatchOptions{}))
	if got := string(st.Spec.Objects[0].Contents[0].Raw) + string(st.Spec.Objects[0].Contents[1].Raw); got != `{"data":{"a":"1"}}{"data":{"a":"2"}}` {
		t.Errorf("a ConfigMap: %s", got)
	}
	system.create("collectionpolicies", `{apiVersion: muster.dev/v1alpha1, kind: CollectionPolicy, metadata: {name: base}, spec: {allow: {names: [up]}}}`)
	policy := system.patch("collectionpolicies", "base", `{"spec":{"priority":7}}`, metav1.PatchOptions{})
	if st := system.state(policy); !strings.Contains(string(st.Spec.Objects[0].Contents[1].Raw), `"priority":7`) || st.Spec.Objects[0].APIVersion != "muster.dev/v1alpha1" || st.Spec.Policy != "policies" {
		t.Errorf("a CollectionPolicy: %+v", st.Spec)
	}

	// Server-side apply, of nothing but the image.
	shop.create("deployments", webDeployment("web"))
	applied := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(webDeployment("web")), &applied.Object); err != nil {
		t.Fatal(err)
	}
	applied.SetAnnotations(nil)
	for _, image := range []string{"web:2", "web:3"} {
		if err := unstructured.SetNestedSlice(applied.Object, []any{map[string]any{"name": "a", "image": image}}, "spec", "template", "spec", "containers"); err != nil {
			t.Fatal(err)
		}
		got, err := shop.of("deployments").Apply(t.Context(), "web", applied, metav1.ApplyOptions{FieldManager: "argo", Force: true})
		if err != nil {
			t.Fatal(err)
		}
		if st := shop.state(got); !strings.HasSuffix(images(t, st), image) {
			t.Errorf("%s: %s", image, images(t, st))
		}
	}
	// What can't become a rollout is refused, and says why.
	conf := shop.patch("configmaps", "conf", `{"data":{"b":"`+strings.Repeat("x", 900<<10)+`"}}`, metav1.PatchOptions{})
	control := under{t, dynamic.NewForConfigOrDie(kubeapi.Server(t).ConfigOf("muster:control")), "rk-shop"}
	control.patch("rolloutstates", shop.state(conf).Name, `{"spec":{"sites":"one","steps":"p","has":"1"}}`, metav1.PatchOptions{})
	_, err := shop.of("configmaps").Patch(t.Context(), "conf", types.MergePatchType, []byte(`{"data":{"b":"`+strings.Repeat("y", 900<<10)+`"}}`), metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "split the object") {
		t.Errorf("too large for a state: %v", err)
	}
}

// inRoles returns a user of each role of a tenant, by its suffix, who has it in one of the
// tenant's namespaces.
func inRoles(t *testing.T, tenant, namespace string) map[string]under {
	t.Helper()
	admin, ns := kubeapi.Start(t), tenant+"-"+namespace
	k := kubernetes.NewForConfigOrDie(admin)
	as := map[string]under{}
	for _, role := range kinds.TenantRoles {
		name := tenant + "-" + role.Suffix
		if _, err := k.RbacV1().Roles(ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: role.Rules()}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := k.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: []rbacv1.Subject{{Kind: "User", Name: kubeapi.Prefix + name}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		kubeapi.WaitAllowed(t, admin, kubeapi.Prefix+name, nil, "get", "rollouts.muster.dev", ns)
		as[role.Suffix] = under{t, dynamic.NewForConfigOrDie(quick(kubeapi.As(t, name))), ns}
	}
	return as
}

func TestPromotingTakesAVerb(t *testing.T) {
	tenantWithUser(t, "rp", "{}")
	as := inRoles(t, "rp", "shop")
	editor, owner := as[fleet.TenantEditor], as[fleet.TenantAdmin]
	const doc = `{apiVersion: muster.dev/v1alpha1, kind: Rollout, metadata: {name: r}, spec: {changes: [{apiVersion: apps/v1, kind: Deployment, name: web, images: {a: "web:2"}}], strategy: {waves: [{percent: 10, approval: true}, {percent: 100}]}}}`
	editor.create("rollouts", doc)
	raise := func(u under, to int) error {
		_, err := u.of("rollouts").Patch(t.Context(), "r", types.MergePatchType, []byte(fmt.Sprintf(`{"spec":{"control":{"promote":%d}}}`, to)), metav1.PatchOptions{})
		return err
	}
	status := func(verdict string) {
		t.Helper()
		patch := fmt.Sprintf(`{"status":{"wave":1,"gates":[{"name":"ready","verdict":"Pass","text":"10 of 10"},{"name":"peers","verdict":%q,"text":"x"}]}}`, verdict)
		if _, err := dynamic.NewForConfigOrDie(kubeapi.Start(t)).Resource(v1alpha1.GroupVersion.WithResource("rollouts")).Namespace("rp-shop").Patch(t.Context(), "r", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what string, err error, want string) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want forbidden with %q", what, err, want)
		}
	}
	// A rollout is no way round the right to write a policy.
	hosts := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`{apiVersion: muster.dev/v1alpha1, kind: Rollout, metadata: {name: h}, spec: {changes: [{apiVersion: muster.dev/v1alpha1, kind: HostConfiguration, name: base, content: {spec: {sysctls: {vm.swappiness: "1"}}}}]}}`), &hosts.Object); err != nil {
		t.Fatal(err)
	}
	_, denied := editor.of("rollouts").Create(t.Context(), hosts.DeepCopy(), metav1.CreateOptions{})
	refused("of what an editor may only read", denied, "you may not write HostConfiguration base")
	if _, err := owner.of("rollouts").Create(t.Context(), hosts, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	refused("before anything is known", raise(editor, 1), "skip-gates")
	status("Wait")
	refused("with a gate that waits", raise(editor, 1), "skip-gates")
	status("Pass")
	refused("beyond the wave", raise(editor, 2), "skip-gates")
	if err := raise(editor, 1); err != nil {
		t.Errorf("an approval: %v", err)
	}
	if err := raise(editor, 0); err != nil {
		t.Errorf("lowered: %v", err)
	}
	status("Fail")
	if err := raise(owner, 2); err != nil {
		t.Errorf("whoever may skip gates: %v", err)
	}
	controlledBy := func(want string) {
		t.Helper()
		u, err := editor.of("rollouts").Get(t.Context(), "r", metav1.GetOptions{})
		if err != nil || u.GetAnnotations()[v1alpha1.AnnotationControlledBy] != want {
			t.Errorf("it names %v, %v; want %s", u.GetAnnotations(), err, want)
		}
	}
	controlledBy(kubeapi.Prefix + "rp-" + fleet.TenantAdmin)
	editor.patch("rollouts", "r", `{"spec":{"control":{"paused":true}}}`, metav1.PatchOptions{})
	controlledBy(kubeapi.Prefix + "rp-" + fleet.TenantEditor)
	if _, err := owner.of("rollouts").Patch(t.Context(), "r", types.MergePatchType, []byte(`{"metadata":{"annotations":{"muster.dev/controlled-by":"the boss"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	controlledBy(kubeapi.Prefix + "rp-" + fleet.TenantEditor)
	// The same of the whole spec, which a label is no part of, and nobody can put on another.
	changedBy := func(want string) {
		t.Helper()
		u, err := editor.of("rollouts").Get(t.Context(), "r", metav1.GetOptions{})
		if err != nil || u.GetAnnotations()[v1alpha1.AnnotationChangedBy] != want {
			t.Errorf("changed by %v, %v; want %s", u.GetAnnotations(), err, want)
		}
	}
	changedBy(kubeapi.Prefix + "rp-" + fleet.TenantEditor)
	owner.patch("rollouts", "r", `{"metadata":{"labels":{"a":"b"},"annotations":{"muster.dev/changed-by":"the boss"}}}`, metav1.PatchOptions{})
	changedBy(kubeapi.Prefix + "rp-" + fleet.TenantEditor)
	owner.patch("rollouts", "r", `{"spec":{"control":{"paused":false}}}`, metav1.PatchOptions{})
	changedBy(kubeapi.Prefix + "rp-" + fleet.TenantAdmin)
	// One that begins promoted needs the same.
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.Replace(strings.Replace(doc, "name: r}", "name: s}", 1), "strategy:", "control: {promote: 2}, strategy:", 1)), &o.Object); err != nil {
		t.Fatal(err)
	}
	_, err := editor.of("rollouts").Create(t.Context(), o, metav1.CreateOptions{})
	refused("made with it", err, "skip-gates")

	// Once a wave is under way, so does it to ask less of it; to ask for more does not.
	editor.create("rollouts", strings.Replace(doc, "name: r}", "name: t}", 1))
	spec := func(u under, patch string) error {
		_, err := u.of("rollouts").Patch(t.Context(), "t", types.MergePatchType, []byte(`{"spec":`+patch+`}`), metav1.PatchOptions{})
		return err
	}
	if err := spec(editor, `{"soak":"10m"}`); err != nil {
		t.Errorf("before a wave has begun: %v", err)
	}
	if _, err := dynamic.NewForConfigOrDie(kubeapi.Start(t)).Resource(v1alpha1.GroupVersion.WithResource("rollouts")).Namespace("rp-shop").Patch(t.Context(), "t", types.MergePatchType, []byte(`{"status":{"wave":1,"phase":"Progressing"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	const defaults = `{"name":"ready","ready":{"percent":100}},{"name":"alerts","alerts":{"severities":["critical"]}},{"name":"peers","peers":{"maxDrop":10}}`
	for _, patch := range []string{
		`{"gates":[{"name":"ready","ready":{"percent":100}}]}`, `{"soak":"0s"}`, `{"settle":"0s"}`, `{"budget":{"maxFailed":"100%"}}`, `{"budget":{"maxFailedInWave":"20"}}`, `{"budget":{"readyWithin":"2h"}}`,
		`{"onFailure":"Pause"}`, `{"strategy":{"waves":[{"percent":100}]}}`, `{"virtualSites":["other"]}`,
	} {
		refused(patch, spec(editor, patch), "skip-gates")
	}
	for _, patch := range []string{`{"gates":[` + defaults + `,{"name":"red","unhealthy":{"maxPercent":5}}]}`, `{"soak":"20m"}`, `{"budget":{"maxFailed":"1%","readyWithin":"5m"}}`, `{"strategy":{"maxInFlight":2}}`, `{"control":{"paused":true}}`} {
		if err := spec(editor, patch); err != nil {
			t.Errorf("%s: %v", patch, err)
		}
	}
	refused("more at once", spec(editor, `{"strategy":{"maxInFlight":0}}`), "skip-gates")
	if err := spec(owner, `{"soak":"1m","gates":null}`); err != nil {
		t.Errorf("whoever may skip gates: %v", err)
	}

	// What sites get is control's to write.
	state := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "muster.dev/v1alpha1", "kind": "RolloutState", "metadata": map[string]any{"name": "s"}, "spec": map[string]any{"held": true, "objects": []any{}}}}
	for _, u := range as {
		_, err := u.of("rolloutstates").Create(t.Context(), state, metav1.CreateOptions{})
		refused("a state", err, "rolloutstates")
	}
	refused("a viewer's abort", func() error {
		_, err := as[fleet.TenantViewer].of("rollouts").Patch(t.Context(), "r", types.MergePatchType, []byte(`{"spec":{"control":{"abort":true}}}`), metav1.PatchOptions{})
		return err
	}(), "rollouts")
}

func quick(cfg *rest.Config) *rest.Config {
	cfg.QPS = -1
	return cfg
}
