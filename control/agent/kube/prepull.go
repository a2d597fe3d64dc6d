package kube

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/internal/workload"
)

// DaemonSets whose only purpose is that images are on the nodes are called so, and they and
// their pods have the label. Neither makes one: a tenant may choose both for its own.
const pullPrefix, pullLabel = "muster-prepull-", "muster.dev/prepull"

// isPuller tells whether a DaemonSet is one that the agent made to pull images: it is the
// agent's, and not of the set, of which all have a digest.
func isPuller(ds metav1.Object) bool {
	applied, _ := managed(ds.GetManagedFields())
	return strings.HasPrefix(ds.GetName(), pullPrefix) && ds.GetLabels()[workload.Owned] == "true" && ds.GetAnnotations()[workload.Digest] == "" && applied != 0
}

// onlyPulls tells whether an object is a pod of such a DaemonSet. They are not mirrored.
func (k *Kube) onlyPulls(o any) bool {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return false
	}
	of := metav1.GetControllerOf(pod)
	if of == nil || of.Kind != "DaemonSet" || !strings.HasPrefix(of.Name, pullPrefix) {
		return false
	}
	l := k.lives.get(workload.ItemName("apps", of.Kind, pod.Namespace, of.Name))
	return l == nil || l.digest == ""
}

var daemonSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}

const reasonPull = "Prepull"

// pullEvery is how often the pods that pull are looked at.
const pullEvery = 2 * time.Second

// prepull brings the images of a new version to the nodes before the old one is replaced.
// It tells whether that is done, or notes at the items how far it is.
func (w *worker) prepull(ctx context.Context, u *unit) (bool, error) {
	note := func(r *refusal) {
		for _, it := range u.items {
			if it.err == nil && w.lives.get(it.name).isOther(it.wanted) {
				it.err = r
			}
		}
	}
	refused := func(err error) (bool, error) {
		var r *refusal
		if errors.As(err, &r) {
			note(r)
			return false, nil
		}
		return false, err
	}
	if u.pulled == u.version {
		return true, nil
	}
	job, err := w.pullJob(ctx, u)
	if err != nil {
		return refused(err)
	}
	name := ""
	if job != nil {
		name = job.ns + "/" + job.name
	}
	if u.puller != "" && u.puller != name { // of a version that nobody wants any more
		ns, old, _ := strings.Cut(u.puller, "/")
		if err := w.removePuller(ctx, ns, old); err != nil {
			return refused(err)
		}
		u.puller = ""
	}
	if job == nil {
		u.pulled = u.version
		return true, nil
	}
	u.puller = name
	how, done, err := w.pull(ctx, job)
	if err != nil {
		return refused(err)
	}
	late := !job.began.IsZero() && time.Since(job.began) > job.deadline
	if !done && !late {
		r := wait(reasonPull, "images are pulled first: %s", how)
		r.settled = true // looked at again, but nothing failed
		note(r)
		u.look(time.Now().Add(pullEvery))
		return false, nil
	}
	if err := w.removePuller(ctx, job.ns, job.name); err != nil {
		return refused(err)
	}
	u.puller = ""
	if done {
		u.pulled = u.version
		return true, nil
	}
	note(refuse("PrepullDeadline", "the images are not on the nodes after %s, and the old version stays: %s", job.deadline, how))
	u.fails = max(u.fails, 8) // it took long enough: not again at once
	return false, nil
}

// isOther tells whether the object is there, in another version.
func (l *live) isOther(digest string) bool { return l == nil || l.digest != digest }

// pullJob is what is to be pulled for a unit.
type pullJob struct {
	ns, name string
	images   []string
	spec     map[string]any // of the pods that will use them
	deadline time.Duration
	began    time.Time
}

// pullJob returns nil if there is nothing to pull.
func (w *worker) pullJob(ctx context.Context, u *unit) (*pullJob, error) {
	job := &pullJob{}
	for _, it := range u.items {
		l := w.lives.get(it.name)
		if it.facts.prepull == 0 || podSpecs[it.groupKind()] == nil || l == nil || l.digest == it.wanted {
			continue
		}
		blob, err := w.taken.Blob(it.wanted)
		if err != nil {
			return nil, wait(reasonFetch, "%w", err)
		}
		obj, err := decode(it.name, blob)
		if err != nil {
			return nil, refuse("Invalid", "%w", err)
		}
		gvk := obj.GroupVersionKind()
		gvr, err := w.cluster.resource(gvk, it.namespace)
		if err != nil {
			return nil, explain(err, gvk, w.Version())
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		now, err := w.cluster.of(gvr, it.namespace).Get(call, it.objName, metav1.GetOptions{})
		cancel()
		if apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, explain(err, gvk, w.Version())
		}
		spec, there := podSpecOf(obj), imagesOf(podSpecOf(now))
		for _, image := range imagesOf(spec) {
			if !slices.Contains(there, image) && !slices.Contains(job.images, image) {
				job.images = append(job.images, image)
				job.spec = spec // of a bundle, the last: its pods run where these may
			}
		}
		job.ns, job.deadline = it.namespace, max(job.deadline, it.facts.prepull)
	}
	if len(job.images) == 0 {
		return nil, nil
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(u.key + "\n" + strings.Join(job.images, "\n")))
	job.name = fmt.Sprintf("%s%x", pullPrefix, h.Sum64())
	return job, nil
}

// pullObject is a DaemonSet whose pods have the images and do nothing. A container whose
// image has no `true` fails, which is as good: its image is there by then.
func pullObject(job *pullJob) *unstructured.Unstructured {
	pods := map[string]any{"automountServiceAccountToken": false, "terminationGracePeriodSeconds": int64(0)}
	for _, f := range []string{"nodeSelector", "tolerations", "imagePullSecrets", "serviceAccountName", "runtimeClassName", "securityContext", "priorityClassName"} {
		if v, ok := job.spec[f]; ok {
			pods[f] = v
		}
	}
	if nodes := object(job.spec).at("affinity", "nodeAffinity"); nodes != nil {
		pods["affinity"] = map[string]any{"nodeAffinity": nodes}
	}
	security := map[string]any{}
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := job.spec[list].([]any)
		for _, c := range containers {
			if m, ok := c.(map[string]any); ok {
				security[object(m).str("image")] = m["securityContext"]
			}
		}
	}
	var containers []any
	for i, image := range job.images {
		c := map[string]any{
			"name": fmt.Sprintf("image-%d", i), "image": image, "command": []any{"true"},
			"resources": map[string]any{
				"requests": map[string]any{"cpu": "1m", "memory": "4Mi"},
				"limits":   map[string]any{"cpu": "50m", "memory": "32Mi"},
			},
		}
		if s := security[image]; s != nil {
			c["securityContext"] = s
		}
		containers = append(containers, c)
	}
	pods["containers"] = containers
	labels := map[string]any{pullLabel: job.name}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "DaemonSet",
		"metadata": map[string]any{"name": job.name, "namespace": job.ns, "labels": map[string]any{pullLabel: job.name, workload.Owned: "true"}},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": pods},
		},
	}}
}

// pull makes the DaemonSet if it isn't there, and tells how far it is.
func (w *worker) pull(ctx context.Context, job *pullJob) (how string, done bool, err error) {
	gvk := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	sets := w.cluster.dyn.Resource(daemonSets).Namespace(job.ns)
	ds, err := sets.Get(ctx, job.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		ds, err = sets.Apply(ctx, job.name, pullObject(job), metav1.ApplyOptions{FieldManager: workload.FieldManager})
	}
	if err != nil {
		return "", false, explain(err, gvk, w.Version())
	}
	if !isPuller(ds) {
		return "", false, refuse("NameClash", "to pull its images first takes a DaemonSet %s, and there is one of that name which the agent did not make for it: rename that, or remove it", job.name)
	}
	job.began = ds.GetCreationTimestamp().Time
	o := object(ds.Object)
	if observed, _ := o.num("status", "observedGeneration"); observed < ds.GetGeneration() {
		return "the site's controller has not seen it yet", false, nil
	}
	nodes := int(o.numOr(0, "status", "desiredNumberScheduled"))
	pods, err := w.cluster.core.Pods(job.ns).List(ctx, metav1.ListOptions{LabelSelector: pullLabel + "=" + job.name})
	if err != nil {
		return "", false, explain(err, gvk, w.Version())
	}
	here, trouble := 0, ""
	for i := range pods.Items {
		if !metav1.IsControlledBy(&pods.Items[i], ds) {
			continue
		}
		if why, ok := pulledAll(&pods.Items[i], len(job.images)); ok {
			here++
		} else if why != "" {
			trouble = "; " + why
		}
	}
	if here < nodes && trouble == "" { // they count against the namespace's quota, as all pods do
		if why := w.mirror.cantMake(workload.ItemName("apps", "DaemonSet", job.ns, job.name)); why != "" {
			trouble = "; " + why
		}
	}
	return fmt.Sprintf("%d of %d nodes have them%s", here, nodes, trouble), here >= nodes, nil
}

// pulledAll tells whether the pod's node has the images of all its containers.
func pulledAll(pod *corev1.Pod, containers int) (trouble string, ok bool) {
	n := 0
	for _, cs := range pod.Status.ContainerStatuses {
		if w := cs.State.Waiting; w != nil {
			switch w.Reason {
			case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError":
				return fmt.Sprintf("node %s: %s: %s", pod.Spec.NodeName, w.Reason, orWord(w.Message, cs.Image)), false
			case "ContainerCreating", "PodInitializing", "":
				continue
			}
		}
		n++ // it runs, has run, or failed to start: its image was there before
	}
	return "", n >= containers
}

func (w *worker) removePuller(ctx context.Context, ns, name string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ds, err := w.cluster.meta.Resource(daemonSets).Namespace(ns).Get(ctx, name, metav1.GetOptions{})
	if err == nil && isPuller(ds) {
		background := metav1.DeletePropagationBackground
		err = w.cluster.dyn.Resource(daemonSets).Namespace(ns).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &ds.UID}})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return explain(err, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}, w.Version())
}

// pullsNoMore removes what pulls for a unit that has nothing to update any more, such as one that
// was put back meanwhile. It returns an error only if the API server can't be reached.
func (w *worker) pullsNoMore(ctx context.Context, u *unit) error {
	if u.puller == "" {
		return nil
	}
	ns, name, _ := strings.Cut(u.puller, "/")
	err := w.removePuller(ctx, ns, name)
	if err == nil {
		u.puller = ""
	} else if !errors.Is(err, errDown) {
		u.look(time.Now().Add(pullEvery))
		return nil
	}
	return err
}

// sweepPullers removes what pulled for a unit that no longer waits for it, as after a
// restart.
func (w *worker) sweepPullers(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := w.cluster.meta.Resource(daemonSets).List(call, metav1.ListOptions{LabelSelector: pullLabel})
	if err != nil {
		err = explain(err, schema.GroupVersionKind{}, w.Version())
		if errors.Is(err, errDown) {
			return err
		}
		return nil // a site without DaemonSets has none
	}
	for i := range list.Items {
		ds := &list.Items[i]
		key := ds.Namespace + "/" + ds.Name
		if isPuller(ds) && !slices.ContainsFunc(w.plan.units, func(u *unit) bool { return u.puller == key }) {
			if err := w.removePuller(ctx, ds.Namespace, ds.Name); errors.Is(err, errDown) {
				return err
			}
		}
	}
	return nil
}
