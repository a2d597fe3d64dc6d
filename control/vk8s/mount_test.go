package vk8s_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/applyconfigurations/apps/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"muster.dev/muster/control/vk8s"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
	"muster.dev/muster/internal/wire"
)

const (
	mine   = "vk-shop"
	theirs = "vk-other"
	editor = "vk-editor"
)

// through is a client configuration for a virtual Kubernetes.
func through(cfg *rest.Config, namespace string) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Host += wire.VirtualPath(namespace, "vk8s")
	cfg.QPS = -1
	return cfg
}

// start makes two namespaces with a virtual Kubernetes each, and an editor of the first.
func start(t *testing.T) (admin, edits *rest.Config) {
	t.Helper()
	admin = kubeapi.Start(t)
	kubeapi.Mount(t).Serve(vk8s.Backend{Virtual: func(ns, name string) (vk8s.Virtual, bool) {
		return vk8s.Virtual{Namespace: ns, Name: name}, name == "vk8s" && (ns == mine || ns == theirs)
	}})
	kube := kubernetes.NewForConfigOrDie(admin)
	for _, ns := range []string{mine, theirs} {
		if _, err := kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "editor", Namespace: mine}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}}
	if _, err := kube.RbacV1().Roles(mine).Create(t.Context(), role, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "editor", Namespace: mine}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "editor"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: kubeapi.Prefix + editor}}}
	if _, err := kube.RbacV1().RoleBindings(mine).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	kubeapi.WaitAllowed(t, admin, kubeapi.Prefix+editor, nil, "create", "deployments.apps", mine)
	return admin, kubeapi.As(t, editor)
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"ves.io/workload-flavor": "tiny"}}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx:1"}}}}}}
}

func TestClientsCannotTell(t *testing.T) {
	admin, edits := start(t)
	ctx := t.Context()
	kube := kubernetes.NewForConfigOrDie(through(edits, mine))
	factory := informers.NewSharedInformerFactory(kube, 0) // across namespaces, as most controllers
	informer := factory.Apps().V1().Deployments()
	synced := informer.Informer().HasSynced
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced) {
		t.Fatal("the informer does not sync")
	}

	deployments := kube.AppsV1().Deployments(mine)
	if _, err := deployments.Create(ctx, deployment("web"), metav1.CreateOptions{FieldValidation: "Strict"}); err != nil {
		t.Fatal(err)
	}
	for patch, kind := range map[string]types.PatchType{
		`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"nginx:2"}]}}}}`: types.StrategicMergePatchType,
		`{"metadata":{"labels":{"merged":"yes"}}}`:                                       types.MergePatchType,
		`[{"op":"add","path":"/metadata/annotations/patched","value":"yes"}]`:            types.JSONPatchType,
	} {
		if _, err := deployments.Patch(ctx, "web", kind, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	applied, err := deployments.Apply(ctx, v1.Deployment("web", mine).WithSpec(v1.DeploymentSpec().WithReplicas(3).
		WithSelector(applymetav1.LabelSelector().WithMatchLabels(map[string]string{"app": "web"})).
		WithTemplate(applycorev1.PodTemplateSpec().WithLabels(map[string]string{"app": "web"}).WithSpec(applycorev1.PodSpec().WithContainers(applycorev1.Container().WithName("c").WithImage("nginx:2"))))),
		metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err != nil || *applied.Spec.Replicas != 3 || applied.Labels["merged"] != "yes" || applied.Annotations["patched"] != "yes" {
		t.Fatalf("server-side apply: %+v, %v", applied, err)
	}
	scale, err := deployments.GetScale(ctx, "web", metav1.GetOptions{})
	if err != nil || scale.Spec.Replicas != 3 {
		t.Fatalf("scale: %+v, %v", scale, err)
	}
	scale.Spec.Replicas = 5
	if _, err := deployments.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{}); err != nil {
		t.Errorf("scale: %v", err)
	}
	testkit.Eventually(t, "the informer sees the deployment", func() error {
		d, err := informer.Lister().Deployments(mine).Get("web")
		if err == nil && *d.Spec.Replicas != 5 {
			err = fmt.Errorf("%d replicas", *d.Spec.Replicas)
		}
		return err
	})
	// It is an ordinary object of the stock API server.
	if d, err := kubernetes.NewForConfigOrDie(admin).AppsV1().Deployments(mine).Get(ctx, "web", metav1.GetOptions{}); err != nil || *d.Spec.Replicas != 5 {
		t.Errorf("%v, %v", d, err)
	}

	nss, err := kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil || len(nss.Items) != 1 || nss.Items[0].Name != mine {
		t.Errorf("namespaces: %+v, %v", nss, err)
	}
	if _, err := kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + theirs}); err != nil {
		t.Errorf("another namespace by selector: %v", err)
	}
	_, err = kube.CoreV1().Secrets(theirs).List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), mine) {
		t.Errorf("another namespace: %v; want Forbidden that says which one this is", err)
	}
	if _, err := kube.CoreV1().Pods(mine).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, metav1.CreateOptions{}); !apierrors.IsMethodNotSupported(err) || !strings.Contains(err.Error(), "Deployment") {
		t.Errorf("a pod is made: %v", err)
	}
	if _, err := kube.CoreV1().Nodes().Patch(ctx, "paris-n1", types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{}); !apierrors.IsMethodNotSupported(err) || !strings.Contains(err.Error(), "cordon a node on its site's own cluster") {
		t.Errorf("a node is cordoned: %v", err)
	}
	// What sites say is theirs to say: pods may be deleted, and that is all.
	merge := []byte(`{"metadata":{"labels":{"a":"b"}}}`)
	for what, try := range map[string]func() error{
		"update a pod": func() error {
			_, err := kube.CoreV1().Pods(mine).Update(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: "1"}}, metav1.UpdateOptions{})
			return err
		},
		"patch a pod": func() error {
			_, err := kube.CoreV1().Pods(mine).Patch(ctx, "p", types.MergePatchType, merge, metav1.PatchOptions{})
			return err
		},
		"patch a pod's status": func() error {
			_, err := kube.CoreV1().Pods(mine).Patch(ctx, "p", types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
			return err
		},
		"make an event": func() error {
			_, err := kube.CoreV1().Events(mine).Create(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}}, metav1.CreateOptions{})
			return err
		},
		"patch an event": func() error {
			_, err := kube.CoreV1().Events(mine).Patch(ctx, "e", types.MergePatchType, merge, metav1.PatchOptions{})
			return err
		},
		"make a node": func() error {
			_, err := kube.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
			return err
		},
		"delete a node": func() error {
			return kube.CoreV1().Nodes().Delete(ctx, "paris-n1", metav1.DeleteOptions{})
		},
	} {
		if err := try(); !apierrors.IsMethodNotSupported(err) {
			t.Errorf("%s: %v; want it refused", what, err)
		}
	}
	for verb, c := range map[string]struct {
		resource, group, namespace string
		want                       bool
	}{"patch": {"nodes", "", "", false}, "create": {"deployments", "apps", "", true}, "get": {"secrets", "", theirs, false}, "list": {"nodes", "", "", true}, "delete": {"clusterroles", "rbac.authorization.k8s.io", "", false}} {
		got, err := kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: c.group, Resource: c.resource, Namespace: c.namespace}}}, metav1.CreateOptions{})
		if err != nil || got.Status.Allowed != c.want {
			t.Errorf("can-i %s %s: %+v, %v", verb, c.resource, got.Status, err)
		}
	}
	if _, err := kube.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: mine}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("can-i --list: %v", err)
	}
	// A stranger learns nothing, not even that it is there.
	stranger := kubernetes.NewForConfigOrDie(through(kubeapi.As(t, "vk-stranger"), mine))
	if _, err := stranger.Discovery().ServerGroups(); !apierrors.IsForbidden(err) {
		t.Errorf("a stranger discovers: %v", err)
	}
	none := rest.CopyConfig(edits)
	none.Host += wire.VirtualPath(mine, "none")
	if _, err := kubernetes.NewForConfigOrDie(none).CoreV1().ConfigMaps(mine).List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "virtualkubernetes") {
		t.Errorf("a virtual Kubernetes that isn't there: %v", err)
	}
	if err := deployments.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

func TestDiscoveryTellsWhatIsServed(t *testing.T) {
	_, edits := start(t)
	client := kubernetes.NewForConfigOrDie(through(edits, mine)).Discovery()
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.APIResources {
			got = append(got, gv.WithResource(r.Name).GroupResource().String())
		}
	}
	for _, want := range []string{"deployments.apps", "deployments.apps/scale", "pods", "pods/log", "pods/eviction", "roles.rbac.authorization.k8s.io", "resourcequotas", "limitranges", "nodes", "events", "namespaces", "secrets", "virtualhosts.muster.dev", "advertisepolicies.muster.dev", "networkpolicies.networking.k8s.io", "selfsubjectaccessreviews.authorization.k8s.io"} {
		resource, sub, _ := strings.Cut(want, "/")
		gr := schema.ParseGroupResource(resource)
		if sub != "" {
			gr.Resource += "/" + sub
		}
		if !slices.Contains(got, gr.String()) {
			t.Errorf("%s is not there", want)
		}
	}
	for _, not := range []string{"clusterroles.rbac.authorization.k8s.io", "persistentvolumes", "services/proxy", "nodes/proxy", "sites.muster.dev", "tenants.muster.dev", "subjectaccessreviews.authorization.k8s.io"} {
		if slices.Contains(got, not) {
			t.Errorf("%s is there", not)
		}
	}
	// The old form says the same.
	legacy := client.WithLegacy()
	groups, err := legacy.ServerGroups()
	if err != nil || !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == "apps" }) || slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return strings.HasPrefix(g.Name, "apiregistration") }) {
		t.Errorf("groups: %+v, %v", groups, err)
	}
	core, err := legacy.ServerResourcesForGroupVersion("v1")
	if err != nil || slices.ContainsFunc(core.APIResources, func(r metav1.APIResource) bool { return r.Name == "persistentvolumes" }) || !slices.ContainsFunc(core.APIResources, func(r metav1.APIResource) bool { return r.Name == "configmaps" && r.Namespaced }) {
		t.Errorf("core: %+v, %v", core, err)
	}

	// OpenAPI, as kubectl apply and explain read it.
	v2, err := client.OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	paths, definitions := map[string]bool{}, map[string]bool{}
	for _, p := range v2.GetPaths().GetPath() {
		paths[p.GetName()] = true
	}
	for _, d := range v2.GetDefinitions().GetAdditionalProperties() {
		definitions[d.GetName()] = true
	}
	if !paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"] || paths["/apis/rbac.authorization.k8s.io/v1/clusterroles"] || paths["/api/v1/persistentvolumes"] {
		t.Errorf("OpenAPI v2 has the wrong paths of %d", len(paths))
	}
	if !definitions["io.k8s.api.apps.v1.Deployment"] || definitions["io.k8s.api.rbac.v1.ClusterRole"] {
		t.Errorf("OpenAPI v2 has the wrong types of %d", len(definitions))
	}
	root := openapi3.NewRoot(client.OpenAPIV3())
	gvs, err := root.GroupVersions()
	if err != nil || !slices.Contains(gvs, appsv1.SchemeGroupVersion) || !slices.Contains(gvs, rbacv1.SchemeGroupVersion) || slices.ContainsFunc(gvs, func(gv schema.GroupVersion) bool { return gv.Group == "apiregistration.k8s.io" }) {
		t.Errorf("OpenAPI v3: %v, %v", gvs, err)
	}
	spec, err := root.GVSpec(appsv1.SchemeGroupVersion)
	if err != nil || spec.Components.Schemas["io.k8s.api.apps.v1.Deployment"] == nil || spec.Paths.Paths["/apis/apps/v1/namespaces/{namespace}/deployments"] == nil {
		t.Errorf("OpenAPI v3 of apps/v1: %v", err)
	}
}

// TestNothingOutsideIsReached tries every path of the stock API server's discovery
// through a virtual Kubernetes, as an administrator of everything and as somebody who may
// do anything in that namespace.
func TestNothingOutsideIsReached(t *testing.T) {
	admin, edits := start(t)
	everything := kubernetes.NewForConfigOrDie(admin)
	_, lists, err := everything.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	// Something outside to find.
	if _, err := everything.CoreV1().Secrets(theirs).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "outside-secret"}, Data: map[string][]byte{"k": []byte("outside-value")}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := everything.AppsV1().Deployments(theirs).Create(t.Context(), deployment("outside-web"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := outside(t, admin, lists)
	if len(before) < 50 {
		t.Fatalf("only %d objects outside", len(before))
	}
	tried, served := 0, 0
	for who, cfg := range map[string]*rest.Config{"admin": admin, "editor": edits} {
		cfg = through(cfg, mine)
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		try := func(method, path, contentType string, body string) {
			tried++
			req, err := http.NewRequestWithContext(t.Context(), method, cfg.Host+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", contentType)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			resp, err := client.Do(req.WithContext(ctx))
			if err != nil {
				t.Errorf("%s: %s %s: %v", who, method, path, err)
				return
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Errorf("%s: %s %s: %v", who, method, path, err)
			}
			if bytes.Contains(b, []byte("b3V0c2lkZS12YWx1ZQ")) || bytes.Contains(b, []byte(`"outside-web"`)) && resp.StatusCode < 300 {
				t.Errorf("%s: %s %s: shows what is outside: %.200s", who, method, path, b)
			}
			if resp.StatusCode >= 500 && resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%s: %s %s: %d %.200s", who, method, path, resp.StatusCode, b)
			}
			if resp.StatusCode >= 300 {
				if !bytes.Contains(b, []byte(`"kind":"Status"`)) {
					t.Errorf("%s: %s %s: %d without a Status: %.200s", who, method, path, resp.StatusCode, b)
				}
				return
			}
			served++
			for line := range bytes.Lines(b) {
				if place, ok := foreign(line); ok {
					t.Errorf("%s: %s %s: answers with what stands in %q", who, method, path, place)
				}
			}
		}
		for _, l := range lists {
			base := "/apis/" + l.GroupVersion
			if l.GroupVersion == "v1" {
				base = "/api/v1"
			}
			for _, r := range l.APIResources {
				plural, sub, _ := strings.Cut(r.Name, "/")
				object := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"outside-new","namespace":%q}}`, l.GroupVersion, r.Kind, theirs)
				for _, path := range []string{base + "/" + plural, base + "/namespaces/" + theirs + "/" + plural, base + "/watch/" + plural} {
					if sub == "" {
						try("GET", path, "", "")
						try("GET", path+"?watch=1&timeoutSeconds=1&allowWatchBookmarks=true", "", "")
						try("POST", path, "application/json", object)
						try("DELETE", path, "application/json", "{}")
					}
					for _, name := range []string{"outside-secret", "outside-web", theirs, "kube-system", "cluster-admin"} {
						full := path + "/" + name
						if sub != "" {
							full += "/" + sub
						}
						try("GET", full, "", "")
						if name == "outside-web" || name == theirs {
							try("PATCH", full, "application/merge-patch+json", `{"metadata":{"labels":{"reached":"yes"}}}`)
							try("PATCH", full+"?fieldManager=x&force=true", "application/apply-patch+yaml", object)
							try("PUT", full, "application/json", object)
							try("DELETE", full, "application/json", "{}")
						}
						if sub != "" && name == theirs {
							try("POST", full, "application/json", object)
						}
					}
				}
			}
		}
		for _, path := range []string{"/metrics", "/debug/pprof/", "/logs", "/logs/x", "/readyz/etcd", "/configz", "/.well-known/openid-configuration", "/openid/v1/jwks", "/swagger.json", "/api/v1/proxy/nodes/x", "/apis/apps/v1/../../../api/v1/secrets",
			"/%2e%2e/%2e%2e/%2e%2e/%2e%2e/api/v1/secrets", "/api/v1/namespaces/" + mine + "%2f..%2f" + theirs + "/secrets", "//api/v1/secrets", "/api/v1/namespaces//secrets", "/api/v1/namespaces/" + theirs, "/api/v1/namespaces/" + theirs + "/status",
			"/api/vK8s/namespaces/" + theirs + "/vk8s/api/v1/secrets", "/apis/apps/v1/namespaces/" + theirs + "/status", "/api/v1/secrets?fieldSelector=metadata.namespace%3D" + theirs} {
			try("GET", path, "", "")
			try("POST", path, "application/json", "{}")
		}
	}
	t.Logf("%d requests, %d served", tried, served)
	if served < 20 {
		t.Errorf("only %d requests were served: the test tries nothing", served)
	}
	after := outside(t, admin, lists)
	for key, version := range before {
		if after[key] != version {
			t.Errorf("%s: was %s, is %q", key, version, after[key])
		}
	}
	for key := range after {
		if before[key] == "" {
			t.Errorf("%s: was not there", key)
		}
	}
}

// foreign finds an object that is not in the namespace of the virtual Kubernetes.
func foreign(b []byte) (string, bool) {
	var o map[string]any
	if json.Unmarshal(b, &o) != nil {
		return "", false
	}
	if inner, ok := o["object"].(map[string]any); ok {
		o = inner
	}
	items, ok := o["items"].([]any)
	if !ok {
		items = []any{o}
	}
	listKind, _ := o["kind"].(string)
	for _, i := range items {
		item, _ := i.(map[string]any)
		meta, _ := item["metadata"].(map[string]any)
		ns, _ := meta["namespace"].(string)
		name, _ := meta["name"].(string)
		kind, _ := item["kind"].(string)
		switch {
		case meta == nil, ns == mine, ns == "" && name == "" && kind != "": // a bookmark, a review
		case (listKind == "NamespaceList" || kind == "Namespace") && name == mine:
		default:
			return ns + "/" + name, true
		}
	}
	return "", false
}

// outside are the objects outside of the namespace, with their versions; without what
// the server changes by itself.
func outside(t *testing.T, admin *rest.Config, lists []*metav1.APIResourceList) map[string]string {
	t.Helper()
	client := dynamic.NewForConfigOrDie(admin)
	out := map[string]string{}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains([]string{"leases", "events", "componentstatuses", "apiservices", "flowschemas", "prioritylevelconfigurations", "customresourcedefinitions"}, r.Name) {
				continue
			}
			list, err := client.Resource(gv.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("%s: %v", r.Name, err)
			}
			for _, o := range list.Items {
				if o.GetNamespace() != mine && !(r.Name == "namespaces" && o.GetName() == mine) {
					out[r.Name+"."+gv.Group+" "+o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
				}
			}
		}
	}
	return out
}
