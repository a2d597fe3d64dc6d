package vk8s_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	corev1 "k8s.io/api/core/v1"

	"muster.dev/muster/internal/testkit/kubeapi"
)

// What follows are cases of Kubernetes' conformance suite that need no node, each under its
// name there, for every kind that is carried. Some of the suite itself runs with make
// test-conformance, which takes too long to compile for each change.

const conformance = "conformance" // the label of what these tests make

// TestConformanceAPIOperations is "should support creating … API operations" of Ingress,
// NetworkPolicy, CronJob, PodDisruptionBudget and so on, for each kind that is carried: it is
// discovered, made, read, listed in the namespace and across all, watched, patched, updated,
// deleted alone and all together; and its status is read, patched and updated where upstream does.
func TestConformanceAPIOperations(t *testing.T) {
	_, edits := start(t)
	cfg := through(edits, mine)
	pods := `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}],"restartPolicy":"%s"}}`
	workload := `{"selector":{"matchLabels":{"a":"b"}},"template":` + fmt.Sprintf(pods, "Always") + `}`
	job := `{"template":` + fmt.Sprintf(pods, "Never") + `,"suspend":true}`
	for _, k := range []struct {
		gvr    schema.GroupVersionResource
		kind   string
		spec   string // "": none
		status string // a merge patch of the status; "": has none of its own
	}{
		{gvr: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, kind: "Deployment", spec: workload, status: `{"observedGeneration":7}`},
		{gvr: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}, kind: "StatefulSet", spec: `{"serviceName":"s",` + workload[1:], status: `{"observedGeneration":7,"replicas":0}`},
		{gvr: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, kind: "DaemonSet", spec: workload, status: `{"observedGeneration":7}`},
		{gvr: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, kind: "Job", spec: job},
		{gvr: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}, kind: "CronJob", spec: `{"schedule":"0 0 31 2 *","jobTemplate":{"spec":` + job + `}}`, status: `{"lastScheduleTime":"2026-01-02T03:04:05Z"}`},
		{gvr: schema.GroupVersionResource{Version: "v1", Resource: "services"}, kind: "Service", spec: `{"type":"LoadBalancer","ports":[{"port":80}]}`, status: `{"loadBalancer":{"ingress":[{"ip":"203.0.113.1"}]}}`},
		{gvr: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, kind: "ConfigMap"},
		{gvr: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, kind: "Secret"},
		{gvr: schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, kind: "ServiceAccount"},
		{gvr: schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}, kind: "PersistentVolumeClaim", spec: `{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}`},
		{gvr: schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}, kind: "Ingress", spec: `{"defaultBackend":{"service":{"name":"s","port":{"number":80}}}}`, status: `{"loadBalancer":{"ingress":[{"ip":"203.0.113.1"}]}}`},
		{gvr: schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}, kind: "NetworkPolicy", spec: `{"podSelector":{}}`},
		{gvr: schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}, kind: "PodDisruptionBudget", spec: `{"minAvailable":1,"selector":{"matchLabels":{"a":"b"}}}`},
		{gvr: schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}, kind: "HorizontalPodAutoscaler", spec: `{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}`},
	} {
		t.Run(k.kind, func(t *testing.T) {
			drawn := strings.ToLower(rand.Text()[:8]) // what an earlier run made may not be wholly gone
			one, two, three := "conformance-1-"+drawn, "conformance-2-"+drawn, "conformance-3-"+drawn
			ctx, client := t.Context(), dynamic.NewForConfigOrDie(cfg).Resource(k.gvr)
			here := client.Namespace(mine)
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			discovered, err := kubernetes.NewForConfigOrDie(cfg).Discovery().ServerResourcesForGroupVersion(k.gvr.GroupVersion().String())
			must(err)
			if !slices.ContainsFunc(discovered.APIResources, func(r metav1.APIResource) bool { return r.Name == k.gvr.Resource && r.Kind == k.kind && r.Namespaced }) {
				t.Error("it is not discovered")
			}
			object := func(name string) *unstructured.Unstructured {
				o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name, "labels": map[string]any{conformance: drawn}}}}
				o.SetGroupVersionKind(k.gvr.GroupVersion().WithKind(k.kind))
				if k.spec != "" {
					var spec map[string]any
					must(json.Unmarshal([]byte(k.spec), &spec))
					o.Object["spec"] = spec
				}
				return o
			}
			ours := metav1.ListOptions{LabelSelector: conformance + "=" + drawn}
			made, err := here.Create(ctx, object(one), metav1.CreateOptions{FieldValidation: "Strict"})
			must(err)
			t.Cleanup(func() { _ = here.DeleteCollection(context.Background(), metav1.DeleteOptions{}, ours) })
			_, err = here.Create(ctx, object(one), metav1.CreateOptions{})
			if !apierrors.IsAlreadyExists(err) {
				t.Errorf("made twice: %v", err)
			}
			for _, name := range []string{two, three} {
				_, err := here.Create(ctx, object(name), metav1.CreateOptions{})
				must(err)
			}
			got, err := here.Get(ctx, one, metav1.GetOptions{})
			must(err)
			if got.GetUID() != made.GetUID() || got.GetUID() == "" {
				t.Errorf("got %s, made %s", got.GetUID(), made.GetUID())
			}
			list, err := here.List(ctx, ours)
			must(err)
			everywhere, err := client.List(ctx, ours)
			must(err)
			if len(list.Items) != 3 || len(everywhere.Items) != 3 {
				t.Errorf("%d are listed, %d across namespaces", len(list.Items), len(everywhere.Items))
			}
			from := ours
			from.ResourceVersion = list.GetResourceVersion()
			w, err := here.Watch(ctx, from)
			must(err)
			defer w.Stop()
			patched, err := here.Patch(ctx, one, types.MergePatchType, []byte(`{"metadata":{"annotations":{"patched":"true"}}}`), metav1.PatchOptions{})
			must(err)
			if patched.GetAnnotations()["patched"] != "true" {
				t.Errorf("patched: %v", patched.GetAnnotations())
			}
			for updated := false; !updated; { // controllers write too
				o, err := here.Get(ctx, one, metav1.GetOptions{})
				must(err)
				o.SetAnnotations(map[string]string{"patched": "true", "updated": "true"})
				_, err = here.Update(ctx, o, metav1.UpdateOptions{})
				if updated = err == nil; !updated && !apierrors.IsConflict(err) {
					t.Fatal(err)
				}
			}
			awaitEvent(t, w, func(e watch.Event, o *unstructured.Unstructured) bool {
				return e.Type == watch.Modified && o.GetName() == one && o.GetAnnotations()["updated"] == "true"
			})
			if k.status != "" {
				_, err := here.Get(ctx, one, metav1.GetOptions{}, "status")
				must(err)
				o, err := here.Patch(ctx, one, types.MergePatchType, []byte(`{"metadata":{"annotations":{"patchedstatus":"true"}},"status":`+k.status+`}`), metav1.PatchOptions{}, "status")
				must(err)
				var want map[string]any
				must(json.Unmarshal([]byte(k.status), &want))
				for field, value := range want {
					if got := o.Object["status"].(map[string]any)[field]; fmt.Sprint(got) != fmt.Sprint(value) && field != "loadBalancer" {
						t.Errorf("status.%s is %v, want %v", field, got, value)
					}
				}
			}
			must(here.Delete(ctx, one, metav1.DeleteOptions{PropagationPolicy: &background}))
			awaitEvent(t, w, func(e watch.Event, o *unstructured.Unstructured) bool {
				return (e.Type == watch.Deleted || o.GetDeletionTimestamp() != nil) && o.GetName() == one
			})
			must(here.DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, ours))
			gone := map[string]bool{}
			awaitEvent(t, w, func(e watch.Event, o *unstructured.Unstructured) bool {
				if e.Type == watch.Deleted || o.GetDeletionTimestamp() != nil { // finalizers of claims and jobs are taken off later
					gone[o.GetName()] = true
				}
				return gone[two] && gone[three]
			})
		})
	}
}

var background = metav1.DeletePropagationBackground

// awaitEvent reads a watch until an event is the one; it fails if the watch ends before.
func awaitEvent(t *testing.T, w watch.Interface, is func(watch.Event, *unstructured.Unstructured) bool) {
	t.Helper()
	for e := range w.ResultChan() {
		if o, ok := e.Object.(*unstructured.Unstructured); ok && is(e, o) {
			return
		}
	}
	t.Fatal("the watch has ended")
}

// TestConformanceWatchers is of "Watchers": "should observe add, update, and delete watch
// notifications on configmaps", "should be able to start watching from a specific resource
// version", "should be able to restart watching from the last resource version observed by the
// previous watch", "should observe an object deletion if it stops meeting the requirements of
// the selector", "should receive events on concurrent watches in same order".
func TestConformanceWatchers(t *testing.T) {
	_, edits := start(t)
	ctx := t.Context()
	maps := kubernetes.NewForConfigOrDie(through(edits, mine)).CoreV1().ConfigMaps(mine)
	label := func(v string) metav1.ListOptions {
		return metav1.ListOptions{LabelSelector: "watch-this-configmap=" + v}
	}
	write := func(name, label, value string) *corev1.ConfigMap {
		t.Helper()
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"watch-this-configmap": label}}, Data: map[string]string{"mutation": value}}
		out, err := maps.Create(ctx, cm, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			out, err = maps.Update(ctx, cm, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	remove := func(name string) {
		t.Helper()
		if err := maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	follow := func(o metav1.ListOptions) watch.Interface {
		t.Helper()
		w, err := maps.Watch(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		return w
	}
	says := func(w watch.Interface, want ...string) (version string) {
		t.Helper()
		for _, line := range want {
			e := <-w.ResultChan()
			cm, ok := e.Object.(*corev1.ConfigMap)
			if !ok || fmt.Sprintf("%s %s %s", e.Type, cm.Name, cm.Data["mutation"]) != line {
				t.Fatalf("%+v, want %s", e, line)
			}
			version = cm.ResourceVersion
		}
		return version
	}
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	from := func(o metav1.ListOptions, version string) metav1.ListOptions {
		o.ResourceVersion = version
		return o
	}
	a, b := follow(from(label("a"), list.ResourceVersion)), follow(from(label("b"), list.ResourceVersion))
	both := follow(metav1.ListOptions{LabelSelector: "watch-this-configmap in (a,b)", ResourceVersion: list.ResourceVersion})
	write("e2e-a", "a", "")
	second := write("e2e-a", "a", "1")
	write("e2e-a", "a", "2")
	remove("e2e-a")
	write("e2e-b", "b", "")
	remove("e2e-b")
	says(a, "ADDED e2e-a ", "MODIFIED e2e-a 1", "MODIFIED e2e-a 2", "DELETED e2e-a 2")
	says(b, "ADDED e2e-b ", "DELETED e2e-b ")
	says(both, "ADDED e2e-a ", "MODIFIED e2e-a 1", "MODIFIED e2e-a 2", "DELETED e2e-a 2", "ADDED e2e-b ", "DELETED e2e-b ")

	// From a version, and again from what was seen last.
	w := follow(from(label("a"), second.ResourceVersion))
	last := says(w, "MODIFIED e2e-a 2")
	w.Stop()
	says(follow(from(label("a"), last)), "DELETED e2e-a 2")

	// Out of the selector, changed there, and back.
	w = follow(from(label("c"), write("e2e-c", "c", "0").ResourceVersion))
	write("e2e-c", "other", "1")
	write("e2e-c", "other", "2")
	write("e2e-c", "c", "3")
	remove("e2e-c")
	e := <-w.ResultChan()
	if e.Type != watch.Deleted {
		t.Fatalf("%+v, want that it is gone", e)
	}
	says(w, "ADDED e2e-c 3", "DELETED e2e-c 3")

	// In the same order, whenever a watch begins.
	var versions []string
	for i := range 20 {
		versions = append(versions, write("e2e-order", "order", fmt.Sprint(i)).ResourceVersion)
	}
	for i := range len(versions) - 1 {
		w := follow(from(label("order"), versions[i]))
		for _, want := range versions[i+1:] {
			if cm := (<-w.ResultChan()).Object.(*corev1.ConfigMap); cm.ResourceVersion != want {
				t.Fatalf("from %s: %s, want %s", versions[i], cm.ResourceVersion, want)
			}
		}
		w.Stop()
	}
	remove("e2e-order")
}

// TestConformanceRequests is of "FieldValidation": "should detect unknown and duplicate fields
// of a typed object", "should detect unknown metadata fields in both the root and embedded
// object"; of "Servers with support for API chunking": "should return chunks of results for
// list calls"; of "Discovery": "should validate PreferredVersion for each APIGroup"; of
// "server version": "should find the server version"; of "ServerSideApply": "should work for
// subresources", "should remove a field if it is owned but removed in the apply request".
func TestConformanceRequests(t *testing.T) {
	_, edits := start(t)
	ctx, cfg := t.Context(), through(edits, mine)
	kube := kubernetes.NewForConfigOrDie(cfg)
	post := func(body, validation string) error {
		return kube.AppsV1().RESTClient().Post().Namespace(mine).Resource("deployments").Param("fieldValidation", validation).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(ctx).Error()
	}
	const head = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"e2e-fields"%s},"spec":{%s"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}%s},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	for want, body := range map[string]string{
		`unknown field "spec.unknown1"`:                  fmt.Sprintf(head, "", `"unknown1":"v",`, ""),
		`duplicate field "spec.replicas"`:                fmt.Sprintf(head, "", `"replicas":2,`, ""),
		`unknown field "metadata.unknownMeta"`:           fmt.Sprintf(head, `,"unknownMeta":"v"`, "", ""),
		`unknown field "spec.template.metadata.foreign"`: fmt.Sprintf(head, "", "", `,"foreign":"v"`),
	} {
		if err := post(body, "Strict"); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := post(fmt.Sprintf(head, "", `"unknown1":"v",`, ""), "Ignore"); err != nil {
		t.Errorf("unknown fields, which are to be ignored: %v", err)
	}
	if err := kube.AppsV1().Deployments(mine).Delete(ctx, "e2e-fields", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}

	const chunks = 40
	for i := range chunks {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("e2e-chunk-%02d", i), Labels: map[string]string{conformance: "chunks"}}}
		if _, err := kube.CoreV1().ConfigMaps(mine).Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	o := metav1.ListOptions{LabelSelector: conformance + "=chunks", Limit: 7}
	found, first := 0, ""
	for {
		list, err := kube.CoreV1().ConfigMaps(mine).List(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = list.ResourceVersion
		}
		for _, cm := range list.Items {
			if cm.Name != fmt.Sprintf("e2e-chunk-%02d", found) || list.ResourceVersion != first {
				t.Errorf("%s of version %s comes as number %d, at first %s", cm.Name, list.ResourceVersion, found, first)
			}
			found++
		}
		if o.Continue = list.Continue; o.Continue == "" {
			break
		}
	}
	if found != chunks {
		t.Errorf("%d of %d were found", found, chunks)
	}
	if err := kube.CoreV1().ConfigMaps(mine).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: conformance + "=chunks"}); err != nil {
		t.Error(err)
	}

	groups, err := kube.Discovery().ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		if !slices.Contains(g.Versions, g.PreferredVersion) {
			t.Errorf("the preferred version %v of %s is none of %v", g.PreferredVersion, g.Name, g.Versions)
		}
	}
	if v, err := kube.Discovery().ServerVersion(); err != nil || v.Major != "1" || v.Minor == "" {
		t.Errorf("version %+v, %v", v, err)
	}

	apply := func(sub, body string) *corev1.Service {
		t.Helper()
		out := &corev1.Service{}
		req := kube.CoreV1().RESTClient().Patch(types.ApplyPatchType).Namespace(mine).Resource("services").Name("e2e-apply").Param("fieldManager", "e2e").Body([]byte(body))
		if sub != "" {
			req = req.SubResource(sub)
		}
		if err := req.Do(ctx).Into(out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	const service = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"e2e-apply"%s},"spec":{"ports":[{"port":80}]}}`
	if s := apply("", fmt.Sprintf(service, `,"labels":{"a":"b"}`)); s.Labels["a"] != "b" {
		t.Errorf("labels %v", s.Labels)
	}
	if s := apply("", fmt.Sprintf(service, "")); s.Labels["a"] != "" {
		t.Errorf("a label that was owned, and left out: %v", s.Labels)
	}
	if s := apply("status", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"e2e-apply"},"status":{"conditions":[{"type":"Said","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`); len(s.Status.Conditions) != 1 ||
		!slices.ContainsFunc(s.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "e2e" && f.Subresource == "status" }) {
		t.Errorf("status %+v, managed by %+v", s.Status, s.ManagedFields)
	}
	if err := kube.CoreV1().Services(mine).Delete(ctx, "e2e-apply", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	// Who has no right here gets none of it.
	stranger := rest.CopyConfig(through(kubeapi.As(t, "vk-stranger"), mine))
	if _, err := kubernetes.NewForConfigOrDie(stranger).CoreV1().ConfigMaps(mine).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a stranger lists: %v", err)
	}
}
