package console

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/wire"
)

const fakeMountRoot = "/api/vK8s/namespaces/"

// fakeMount is as much of the virtual Kubernetes as the console uses: acme and globex
// have one each, NAMESPACE shop and name vk8s, with a Deployment, a CronJob, a ConfigMap
// and a kind of the platform's own. It is strict: it fails the test on what it doesn't
// know, and lets a user do what the grants say.
type fakeMount struct {
	api     *fakeAPI
	objects map[string]map[string]any // namespace/resource/name
	pods    []corev1.Pod
	applies []string    // queries of apply requests, in their order
	deleted []string    // pods
	logs    []string    // queries of log requests
	lines   chan string // what a followed log says; closed: the container ended
	list503 bool
}

func newFakeMount(f *fakeAPI) *fakeMount {
	m := &fakeMount{api: f, objects: map[string]map[string]any{}, lines: make(chan string, 2000)}
	for _, tenant := range []string{"acme", "globex"} {
		ns := tenant + "-shop"
		m.objects[ns+"/deployments/web"] = map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"name": "web", "namespace": ns, "uid": "u", "resourceVersion": "7", "generation": 2, "managedFields": []any{map[string]any{"manager": "helm"}},
				"annotations": map[string]any{"ves.io/virtual-sites": "shared/stores", "kubectl.kubernetes.io/last-applied-configuration": "{}"}},
			"spec": map[string]any{"replicas": 3, "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}}, "status": map[string]any{"replicas": 3}}
		m.objects[ns+"/cronjobs/nightly"] = map[string]any{"apiVersion": "batch/v1", "kind": "CronJob", "metadata": map[string]any{"name": "nightly", "namespace": ns}, "spec": map[string]any{"schedule": "0 2 * * *"}}
	}
	pod := func(name, site, app, owner, kind string, change func(*corev1.Pod)) {
		yes := true
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "acme-shop", Labels: map[string]string{"app": app, "muster.dev/site": site}, CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC)),
			OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: &yes}}},
			Spec: corev1.PodSpec{NodeName: site + "-n1", Containers: []corev1.Container{{Name: app}}, InitContainers: []corev1.Container{{Name: "init"}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		if change != nil {
			change(&p)
		}
		m.pods = append(m.pods, p)
	}
	pod("web-1", "paris-07", "web", "web", "Deployment", func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", Ready: true, RestartCount: 2}}
	})
	pod("web-2", "oslo-001", "web", "web", "Deployment", func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", RestartCount: 9, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}}}}
	})
	pod("web-3", "oslo-001", "web", "web", "Deployment", func(p *corev1.Pod) {
		p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available: 1 Insufficient cpu."}}
	})
	pod("web-4", "oslo-001", "web", "web", "Deployment", func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}}}
	})
	pod("web-canary-1", "paris-07", "web", "web-canary", "Deployment", nil) // its labels match too
	pod("nightly-28-x", "paris-07", "nightly", "nightly", "CronJob", nil)
	return m
}

func virtualKubernetes(ns string) v1alpha1.VirtualKubernetes {
	v := v1alpha1.VirtualKubernetes{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "vk8s", CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 30, 0, 0, 0, 0, time.UTC))},
		Spec: v1alpha1.VirtualKubernetesSpec{DefaultVirtualSite: "shared/all-eu"}, Status: v1alpha1.VirtualKubernetesStatus{URL: fakeMountRoot + ns + "/vk8s", Sites: 3, Online: 2, Objects: 4}}
	if ns == "globex-shop" {
		v.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "VirtualSiteMissing", Message: "there is no virtual site shared/all-eu"}}
	}
	return v
}

func (m *fakeMount) list(w http.ResponseWriter) {
	out := v1alpha1.VirtualKubernetesList{TypeMeta: metav1.TypeMeta{APIVersion: "muster.dev/v1alpha1", Kind: "VirtualKubernetesList"}}
	for _, ns := range []string{"globex-shop", "acme-shop", "nobodys-shop"} {
		out.Items = append(out.Items, virtualKubernetes(ns))
	}
	reply(w, 200, out)
}

func (m *fakeMount) one(w http.ResponseWriter, as, ns, name string) {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	if !m.api.may(as, "get/virtualkubernetes", ns) {
		status(w, 403, metav1.StatusReasonForbidden, "User %q cannot get resource \"virtualkubernetes\" in namespace %q", as, ns)
		return
	}
	if name != "vk8s" {
		status(w, 404, metav1.StatusReasonNotFound, "virtualkubernetes.muster.dev %q not found", name)
		return
	}
	v := virtualKubernetes(ns)
	v.APIVersion, v.Kind = "muster.dev/v1alpha1", "VirtualKubernetes"
	reply(w, 200, v)
}

func (m *fakeMount) ServeHTTP(w http.ResponseWriter, r *http.Request, as string) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, fakeMountRoot), "/")
	if len(parts) < 3 {
		m.api.t.Errorf("mount: unexpected path %s", r.URL)
		status(w, 404, metav1.StatusReasonNotFound, "no such path")
		return
	}
	ns, name, below := parts[0], parts[1], strings.Join(parts[2:], "/")
	q := r.URL.Query()
	f := m.api
	f.mu.Lock()
	f.impersonated(r, as)
	if r.Method != "GET" {
		f.audit = append(f.audit, as+" "+strings.ToLower(r.Method)+" "+ns+"/"+below)
	}
	may := func(grant string) bool {
		if f.may(as, grant, ns) {
			return true
		}
		status(w, 403, metav1.StatusReasonForbidden, "User %q cannot do this in namespace %q", as, ns)
		return false
	}
	unlocked := false
	defer func() {
		if !unlocked {
			f.mu.Unlock()
		}
	}()
	if name != "vk8s" {
		status(w, 404, metav1.StatusReasonNotFound, "virtualkubernetes.muster.dev %q not found", name)
		return
	}
	switch {
	case below == "muster/workloads" && r.Method == "GET":
		switch {
		case m.list503:
			status(w, 503, metav1.StatusReasonServiceUnavailable, "the status of sites is being read")
		case may("get/virtualkubernetes"):
			reply(w, 200, fakeWorkloads(q.Get("site")))
		}
	case strings.HasPrefix(below, "muster/workloads/") && r.Method == "GET":
		if !may("get/virtualkubernetes") {
			return
		}
		if below != "muster/workloads/Deployment.apps/web" {
			status(w, 404, metav1.StatusReasonNotFound, "there is no such workload")
			return
		}
		one := fakeWorkloads("").Items[0]
		one.Sites = fakeSites
		reply(w, 200, one)
	case below == "apis/apps" || below == "apis/batch" || below == "apis/example.org":
		reply(w, 200, metav1.APIGroup{PreferredVersion: metav1.GroupVersionForDiscovery{Version: "v1"}})
	case below == "api/v1":
		reply(w, 200, metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}, {Name: "namespaces", Kind: "Namespace"}}})
	case below == "apis/apps/v1":
		reply(w, 200, metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "deployments/scale", Kind: "Deployment", Namespaced: true}, {Name: "deployments", Kind: "Deployment", Namespaced: true}}})
	case below == "apis/batch/v1":
		reply(w, 200, metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "cronjobs", Kind: "CronJob", Namespaced: true}}})
	case r.Method == "GET" && len(parts) > 3 && parts[2] == "apis" && len(parts) <= 5:
		status(w, 404, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case below == "api/v1/namespaces/"+ns+"/pods" && r.Method == "GET":
		if may("objects") {
			m.listPods(w, q.Get("labelSelector"), q.Get("limit"), q.Get("continue"))
		}
	case strings.HasPrefix(below, "api/v1/namespaces/"+ns+"/pods/"):
		pod := parts[7]
		if len(parts) == 8 && r.Method == "DELETE" {
			if !may("delete/pods") {
				return
			}
			if pod != "web-1" {
				status(w, 404, metav1.StatusReasonNotFound, "pods %q not found", pod)
				return
			}
			m.deleted = append(m.deleted, pod)
			reply(w, 200, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"})
			return
		}
		if len(parts) != 9 || parts[8] != "log" || r.Method != "GET" {
			f.t.Errorf("mount: unexpected %s %s", r.Method, r.URL)
			return
		}
		if !may("get/pods/log") {
			return
		}
		m.logs = append(m.logs, r.URL.RawQuery)
		lines := m.lines
		unlocked = true
		f.mu.Unlock()
		fakeLog(w, r, pod, lines)
	case len(parts) > 4 && parts[len(parts)-4] == "namespaces" && parts[len(parts)-3] == ns:
		if may("objects") {
			m.object(w, r, ns+"/"+parts[len(parts)-2]+"/"+parts[len(parts)-1])
		}
	default:
		f.t.Errorf("mount: unexpected request %s %s as %q", r.Method, r.URL, as)
		status(w, 404, metav1.StatusReasonNotFound, "no such path")
	}
}

func (m *fakeMount) object(w http.ResponseWriter, r *http.Request, key string) {
	have, ok := m.objects[key]
	switch r.Method {
	case "GET":
		if !ok {
			status(w, 404, metav1.StatusReasonNotFound, "%s not found", key)
			return
		}
		reply(w, 200, have)
	case "PATCH":
		q := r.URL.Query()
		m.applies = append(m.applies, key+" "+r.URL.RawQuery)
		if ct := r.Header.Get("Content-Type"); ct != string(types.ApplyYAMLPatchType) || q.Get("fieldManager") != "muster-console" || q.Get("fieldValidation") != "Strict" {
			m.api.t.Errorf("apply with Content-Type %q and %s", ct, r.URL.RawQuery)
		}
		var doc map[string]any
		if err := json.NewDecoder(r.Body).Decode(&doc); err != nil {
			m.api.t.Error(err)
		}
		data, _ := doc["data"].(map[string]any)
		switch {
		case data["refuse"] != nil:
			status(w, 422, metav1.StatusReasonInvalid, "ConfigMap is invalid: spec.place.latitude: does not match")
			return
		case data["conflict"] != nil && q.Get("force") != "true":
			reply(w, 409, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 409, Reason: metav1.StatusReasonConflict, Message: `Apply failed with 1 conflict: conflict with "helm": .data.x`,
				Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Field: ".data.x", Message: `conflict with "helm"`}}}})
			return
		case data["late"] != nil && q.Get("dryRun") == "":
			status(w, 403, metav1.StatusReasonForbidden, "exceeded quota")
			return
		}
		if data["warn"] != nil {
			w.Header().Add("Warning", `299 - "this is deprecated"`)
		}
		out := maps.Clone(have)
		if out == nil {
			out = map[string]any{}
		}
		merge(out, doc)
		if q.Get("dryRun") != "All" {
			m.objects[key] = out
		}
		reply(w, 200, out)
	default:
		m.api.t.Errorf("mount: %s of an object", r.Method)
	}
}

// listPods knows the selectors that the console makes, and pages of the wanted size.
func (m *fakeMount) listPods(w http.ResponseWriter, selector, limit, cont string) {
	var want []string
	if selector != "" {
		want = strings.Split(selector, ",")
	}
	var found []corev1.Pod
	for _, p := range m.pods {
		if !slices.ContainsFunc(want, func(s string) bool { k, v, _ := strings.Cut(s, "="); return p.Labels[k] != v }) {
			found = append(found, p)
		}
	}
	var from, n int
	if _, err := fmt.Sscan(limit, &n); err != nil {
		m.api.t.Errorf("pods are listed without a limit: %q", limit)
	}
	_, _ = fmt.Sscan(cont, &from)
	out := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: found[from:min(len(found), from+n)]}
	if from+n < len(found) {
		out.Continue = fmt.Sprint(from + n)
	}
	reply(w, 200, out)
}

func fakeLog(w http.ResponseWriter, r *http.Request, pod string, lines <-chan string) {
	switch pod {
	case "web-1":
	case "web-2":
		status(w, 503, metav1.StatusReasonServiceUnavailable, "site oslo-001 is not connected")
		return
	default:
		status(w, 404, metav1.StatusReasonNotFound, "pods %q not found", pod)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(200)
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case l, more := <-lines:
			if !more {
				return
			}
			_, _ = io.WriteString(w, l)
		}
	}
}

var fakeSites = []wire.WorkloadSite{
	{Site: "oslo-001", Online: true, State: "Failed", Reason: "ImagePullBackOff", Message: "no such image", Since: time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC), Pods: wire.WorkloadPods{Desired: 3}, Wanted: "sha256:b", Digest: "sha256:a", Drifted: true},
	{Site: "paris-07", Online: true, State: "Ready", Pods: wire.WorkloadPods{Desired: 3, Ready: 3}, Wanted: "sha256:a", Digest: "sha256:a"},
}

// fakeWorkloads is the list of all, or of those on a site.
func fakeWorkloads(site string) wire.WorkloadList {
	web := wire.Workload{Group: "apps", Version: "v1", Kind: "Deployment", Name: "web", Created: time.Date(2026, 1, 30, 0, 0, 0, 0, time.UTC), Images: []string{"shop/web:1"}, VirtualSites: []string{"shared/all-eu"},
		Counts: wire.WorkloadCounts{Sites: 2, Ready: 1, Failed: 1, Drifted: 1}, Pods: wire.WorkloadPods{Desired: 6, Ready: 3}, Reasons: []wire.WorkloadReason{{Reason: "ImagePullBackOff", Message: "no such image", Sites: 1, Example: "oslo-001"}}}
	settings := wire.Workload{Version: "v1", Kind: "ConfigMap", Name: "settings"}
	if site == "" {
		return wire.WorkloadList{Items: []wire.Workload{web, settings}}
	}
	i := slices.IndexFunc(fakeSites, func(s wire.WorkloadSite) bool { return s.Site == site })
	if i < 0 {
		return wire.WorkloadList{}
	}
	web.Sites = fakeSites[i : i+1]
	return wire.WorkloadList{Items: []wire.Workload{web}}
}
