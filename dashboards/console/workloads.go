package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/internal/wire"
)

// labelSite is the label of what the API server shows of a site.
const labelSite = "muster.dev/site"

// workloads reads what a virtual Kubernetes says of its workloads, as the user in ctx;
// with a site, those on it, each with this site alone.
func (k *kube) workloads(ctx context.Context, ref virtualRef, site string) (wire.WorkloadList, error) {
	req := k.user.Get().AbsPath(ref.path("muster", "workloads")...)
	if site != "" {
		req = req.Param("site", site)
	}
	var out wire.WorkloadList
	raw, err := body(ctx, req)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, fmt.Errorf("read the workloads of %s: %w", ref.kubeNamespace(), err)
	}
	if out.Items == nil {
		out.Items = []wire.Workload{}
	}
	for i := range out.Items {
		wholeWorkload(&out.Items[i])
	}
	return out, nil
}

// wholeWorkload has lists where the contract promises them.
func wholeWorkload(w *wire.Workload) {
	if w.VirtualSites == nil {
		w.VirtualSites = []string{}
	}
	if w.Reasons == nil {
		w.Reasons = []wire.WorkloadReason{}
	}
}

func (c *Console) listWorkloads(w http.ResponseWriter, cl *call) error {
	ref, err := c.virtualOf(cl)
	if err != nil {
		return err
	}
	list, err := c.kube.workloads(cl.Context(), ref, "")
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, list)
}

// workloadDetail is a workload with its sites, which is an empty list rather than none.
type workloadDetail struct {
	wire.Workload
	Sites []wire.WorkloadSite `json:"sites"`
}

func (c *Console) getWorkload(w http.ResponseWriter, cl *call) error {
	ref, err := c.virtualOf(cl)
	if err != nil {
		return err
	}
	raw, err := body(cl.Context(), c.kube.user.Get().AbsPath(ref.path("muster", "workloads", cl.PathValue("kind"), cl.PathValue("workload"))...))
	if err != nil {
		return err
	}
	var out workloadDetail
	if err := json.Unmarshal(raw, &out.Workload); err != nil {
		return fmt.Errorf("read the workload: %w", err)
	}
	wholeWorkload(&out.Workload)
	if out.Sites = out.Workload.Sites; out.Sites == nil {
		out.Sites = []wire.WorkloadSite{}
	}
	return writeJSON(w, http.StatusOK, out)
}

// resource is where objects of a kind are.
type resource struct{ group, version, plural string }

func (r resource) path() []string {
	if r.group == "" {
		return []string{"api", r.version}
	}
	return []string{"apis", r.group, r.version}
}

// objectPath is the path of one object of the virtual Kubernetes.
func (ref virtualRef) objectPath(r resource, name string) []string {
	return ref.path(append(r.path(), "namespaces", ref.kubeNamespace(), r.plural, name)...)
}

// resourceOf asks the discovery of a virtual Kubernetes where objects of a kind are, with
// "" in the version that it prefers. The error says when there is no such kind.
func (k *kube) resourceOf(ctx context.Context, ref virtualRef, group, version, kind string) (resource, error) {
	r := resource{group: group, version: version}
	if group == "" {
		r.version = cmp.Or(version, "v1")
	} else if version == "" {
		raw, err := body(ctx, k.user.Get().AbsPath(ref.path("apis", group)...))
		if err != nil {
			return r, err
		}
		var g metav1.APIGroup
		if err := json.Unmarshal(raw, &g); err != nil {
			return r, fmt.Errorf("read the API group %s: %w", group, err)
		}
		r.version = g.PreferredVersion.Version
	}
	raw, err := body(ctx, k.user.Get().AbsPath(ref.path(r.path()...)...))
	if err != nil {
		return r, err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(raw, &list); err != nil {
		return r, fmt.Errorf("read the resources of %s/%s: %w", group, r.version, err)
	}
	for _, a := range list.APIResources {
		if a.Kind == kind && a.Namespaced && !strings.Contains(a.Name, "/") {
			r.plural = a.Name
			return r, nil
		}
	}
	return r, notFound("there is no kind %s in %s", printable(kind), strings.TrimPrefix(group+"/"+r.version, "/"))
}

// object reads the workload that the path names, and where it is.
func (c *Console) object(cl *call, ref virtualRef) (*unstructured.Unstructured, error) {
	kind, group, _ := strings.Cut(cl.PathValue("kind"), ".")
	r, err := c.kube.resourceOf(cl.Context(), ref, group, "", kind)
	if err != nil {
		return nil, err
	}
	raw, err := body(cl.Context(), c.kube.user.Get().AbsPath(ref.objectPath(r, cl.PathValue("workload"))...))
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("read the object: %w", err)
	}
	return out, nil
}

// objectView is an object as people read it.
type objectView struct {
	YAML            string            `json:"yaml"`
	Annotations     map[string]string `json:"annotations"`
	Labels          map[string]string `json:"labels"`
	ResourceVersion string            `json:"resourceVersion"`
}

// lastApplied is kubectl's own copy of an object within the object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func (c *Console) getWorkloadObject(w http.ResponseWriter, cl *call) error {
	ref, err := c.virtualOf(cl)
	if err != nil {
		return err
	}
	o, err := c.object(cl, ref)
	if err != nil {
		return err
	}
	out := objectView{ResourceVersion: o.GetResourceVersion(), Annotations: o.GetAnnotations(), Labels: o.GetLabels()}
	delete(out.Annotations, lastApplied)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	b, err := yaml.Marshal(plainObject(o).Object)
	if err != nil {
		return fmt.Errorf("write the object as YAML: %w", err)
	}
	out.YAML = string(b)
	return writeJSON(w, http.StatusOK, out)
}

// plainObject is what somebody wrote of an object: without status and without what the
// API server keeps for itself.
func plainObject(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	delete(o.Object, "status")
	for _, f := range []string{"managedFields", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink"} {
		unstructured.RemoveNestedField(o.Object, "metadata", f)
	}
	unstructured.RemoveNestedField(o.Object, "metadata", "annotations", lastApplied)
	if len(o.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
	}
	return o
}

// podView is a pod of a site.
type podView struct {
	Name       string    `json:"name"`
	Site       string    `json:"site"`
	Node       string    `json:"node"`
	Phase      string    `json:"phase"`
	Ready      int       `json:"ready"`      // of its containers
	Containers []string  `json:"containers"` // by name, those for its start at the end
	Restarts   int64     `json:"restarts"`
	CreatedAt  time.Time `json:"createdAt"`
	Deleting   bool      `json:"deleting"`
	Reason     string    `json:"reason"` // why it is not ready, CamelCase
	Message    string    `json:"message"`
}

type podListView struct {
	Pods       []podView `json:"pods"`
	NextCursor string    `json:"nextCursor,omitempty"`
}

func viewPod(p *corev1.Pod) podView {
	v := podView{Name: p.Name, Site: p.Labels[labelSite], Node: p.Spec.NodeName, Phase: string(cmp.Or(p.Status.Phase, corev1.PodUnknown)), Containers: []string{},
		CreatedAt: p.CreationTimestamp.UTC(), Deleting: p.DeletionTimestamp != nil, Reason: p.Status.Reason, Message: p.Status.Message}
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		v.Containers = append(v.Containers, c.Name)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && v.Reason == "" {
			v.Reason, v.Message = c.Reason, c.Message
		}
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		v.Restarts += int64(s.RestartCount)
		if v.Reason != "" || s.Ready {
			continue
		}
		last := s.LastTerminationState.Terminated
		switch w, t := s.State.Waiting, s.State.Terminated; {
		// What a container died of says more than that it is started again and again.
		case w != nil && w.Reason == "CrashLoopBackOff" && last != nil && last.Reason == "OOMKilled":
			v.Reason, v.Message = last.Reason, cmp.Or(last.Message, w.Message)
		case w != nil && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating":
			v.Reason, v.Message = w.Reason, w.Message
		case t != nil && (t.ExitCode != 0 || t.Signal != 0):
			v.Reason, v.Message = cmp.Or(t.Reason, "Error"), cmp.Or(t.Message, "exit code "+strconv.Itoa(int(t.ExitCode)))
		}
	}
	for _, s := range p.Status.ContainerStatuses {
		if s.Ready {
			v.Ready++
		}
	}
	return v
}

// selectorOf is the label selector of an object's pods, and false where its kind has none.
func selectorOf(o *unstructured.Unstructured) (string, bool, error) {
	raw, ok, err := unstructured.NestedMap(o.Object, "spec", "selector")
	if err != nil || !ok {
		return "", false, nil
	}
	var s metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &s); err != nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return "", false, nil
	}
	sel, err := metav1.LabelSelectorAsSelector(&s)
	if err != nil {
		return "", false, fmt.Errorf("read the selector of %s: %w", o.GetName(), err)
	}
	return sel.String(), true, nil
}

// mostPodPages bounds how many pages of pods are looked through for those of a workload
// whose kind has no selector.
const mostPodPages = 20

// listWorkloadPods lists the pods of a workload on all sites or on one, a page at a time.
func (c *Console) listWorkloadPods(w http.ResponseWriter, cl *call) error {
	ref, err := c.virtualOf(cl)
	if err != nil {
		return err
	}
	o, err := c.object(cl, ref)
	if err != nil {
		return err
	}
	selector, selects, err := selectorOf(o)
	if err != nil {
		return err
	}
	limit := limitOf(cl.q)
	ask := metav1.ListOptions{LabelSelector: selector, Limit: int64(limit), Continue: cl.q.Get("cursor")}
	if !selects {
		ask.Limit = maxLimit
	}
	if site := cl.q.Get("site"); site != "" {
		ask.LabelSelector = strings.TrimPrefix(ask.LabelSelector+","+labelSite+"="+site, ",")
	}
	out := podListView{Pods: []podView{}}
	for range mostPodPages {
		list, err := c.kube.listPods(cl.Context(), ref, ask)
		if err != nil {
			return err
		}
		for i := range list.Items {
			if ownedBy(&list.Items[i], o, selects) {
				out.Pods = append(out.Pods, viewPod(&list.Items[i]))
			}
		}
		ask.Continue, out.NextCursor = list.Continue, list.Continue
		if list.Continue == "" || len(out.Pods) >= limit {
			break
		}
	}
	return writeJSON(w, http.StatusOK, out)
}

// ownedBy tells whether a pod belongs to an object; selected pods without an owner do.
func ownedBy(p *corev1.Pod, o *unstructured.Unstructured, selected bool) bool {
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return selected
	}
	return owner.Kind == o.GetKind() && owner.Name == o.GetName()
}

func (k *kube) listPods(ctx context.Context, ref virtualRef, o metav1.ListOptions) (*corev1.PodList, error) {
	req := k.user.Get().AbsPath(ref.path("api", "v1", "namespaces", ref.kubeNamespace(), "pods")...).Param("limit", strconv.FormatInt(o.Limit, 10))
	if o.LabelSelector != "" {
		req = req.Param("labelSelector", o.LabelSelector)
	}
	if o.Continue != "" {
		req = req.Param("continue", o.Continue)
	}
	raw, err := body(ctx, req)
	if err != nil {
		return nil, err
	}
	out := &corev1.PodList{}
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("read the pods of %s: %w", ref.kubeNamespace(), err)
	}
	return out, nil
}

func (ref virtualRef) podPath(cl *call, below ...string) []string {
	return ref.path(append([]string{"api", "v1", "namespaces", ref.kubeNamespace(), "pods", cl.PathValue("pod")}, below...)...)
}

func (c *Console) deletePod(w http.ResponseWriter, cl *call) error {
	ref, err := c.virtualOf(cl)
	if err != nil {
		return err
	}
	if err := c.kube.user.Delete().AbsPath(ref.podPath(cl)...).Do(cl.Context()).Error(); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
