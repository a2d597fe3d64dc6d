package simcluster

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// maxPods bounds how many pods one object has.
const maxPods = 1000

// controller is an object that makes pods: what of it counts here, and its pods.
type controller struct {
	Spec struct {
		Replicas, Completions *int32
		Template              struct {
			Metadata metav1.ObjectMeta
			Spec     corev1.PodSpec
		}
	}

	item, kind, namespace, name string
	hash                        string // of the template
	pods                        []*pod // by their ordinals
}

// pod is one of a controller, as much as differs between them.
type pod struct {
	name    string
	ordinal int
	serial  int // how many were in its place before
	made    time.Time
}

func makesPods(kind string) bool {
	return slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet", "Job"}, kind)
}

func parseController(item, kind, namespace, name string, blob []byte) (*controller, error) {
	w := &controller{item: item, kind: kind, namespace: namespace, name: name}
	if err := json.Unmarshal(blob, w); err != nil {
		return nil, err
	}
	template, err := json.Marshal(w.Spec.Template)
	if err != nil {
		return nil, err
	}
	w.hash = letters(hashOf(string(template)), 10)
	return w, nil
}

// size is how many pods it has.
func (w *controller) size() int {
	n := w.Spec.Replicas
	switch w.kind {
	case "DaemonSet":
		return Nodes
	case "Job":
		n = w.Spec.Completions
	}
	if n == nil {
		return 1
	}
	return int(min(max(*n, 0), maxPods))
}

// why the containers of its pods do not run; nil: they do.
func (w *controller) broken() *corev1.ContainerStateWaiting {
	for _, ct := range w.Spec.Template.Spec.Containers {
		if why := broken(ct.Image); why != nil {
			return why
		}
	}
	return nil
}

func (w *controller) key(p *pod) string {
	return wire.KeyOf(&wire.Mirrored{Kind: "Pod", Namespace: w.namespace, Name: p.name})
}

// runLocked has a controller in the place of the one of before, whose pods stay as far as
// it makes the same, and says how it is.
func (c *Cluster) runLocked(w *controller, st *wire.WorkloadStatus) {
	was := c.running[w.item]
	if was == nil {
		was = &controller{}
	}
	for i := range w.size() {
		if was.hash == w.hash && i < len(was.pods) {
			w.pods = append(w.pods, was.pods[i])
			continue
		}
		p := &pod{ordinal: i}
		if i < len(was.pods) {
			p.serial = was.pods[i].serial + 1
		}
		w.pods = append(w.pods, c.beginPod(w, p))
	}
	for _, p := range was.pods {
		if !slices.ContainsFunc(w.pods, func(o *pod) bool { return o.name == p.name }) {
			c.mirror.Drop(was.key(p))
		}
	}
	c.running[w.item] = w
	for i, p := range w.pods {
		if was.hash != w.hash || i >= len(was.pods) {
			c.put("Pod", w.namespace, p.name, c.pod(w, p))
		}
	}
	if why := w.broken(); why != nil {
		st.State, st.Reason, st.Message = string(workload.Progressing), why.Reason, why.Message
		if w.kind == "Job" && why.Reason == crashLoop {
			st.State, st.Reason = string(workload.Failed), "BackoffLimitExceeded"
		}
	}
	st.Status = w.status()
}

// beginPod gives a pod its name and its time.
func (c *Cluster) beginPod(w *controller, p *pod) *pod {
	p.made = time.Now().Truncate(time.Second)
	if w.kind == "StatefulSet" {
		p.name = fmt.Sprintf("%s-%d", w.name, p.ordinal)
	} else {
		p.name = w.prefix() + letters(hashOf(c.site, w.item, w.hash, fmt.Sprint(p.ordinal, p.serial)), 5)
	}
	return p
}

// prefix is what the names of its pods begin with.
func (w *controller) prefix() string {
	if w.kind == "Deployment" {
		return w.name + "-" + w.hash + "-"
	}
	return w.name + "-"
}

// status is its own, as the site's API server would have it.
func (w *controller) status() []byte {
	n := len(w.pods)
	ready := n
	why := w.broken()
	if why != nil {
		ready = 0
	}
	switch w.kind {
	case "DaemonSet":
		return fmt.Appendf(nil, `{"observedGeneration":1,"currentNumberScheduled":%d,"desiredNumberScheduled":%[1]d,"updatedNumberScheduled":%[1]d,"numberReady":%d,"numberAvailable":%[2]d,"numberUnavailable":%d}`, n, ready, n-ready)
	case "Job":
		s := batchv1.JobStatus{StartTime: &metav1.Time{}}
		if n > 0 {
			s.StartTime.Time = w.pods[0].made
		}
		switch {
		case why == nil:
			s.Succeeded, s.CompletionTime = int32(n), s.StartTime
			s.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		case why.Reason == crashLoop:
			s.Failed = int32(n)
			s.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded"}}
		default:
			s.Active = int32(n)
		}
		b, err := json.Marshal(s)
		if err != nil {
			panic(err) // of types that are made here
		}
		return b
	}
	return fmt.Appendf(nil, `{"observedGeneration":1,"replicas":%d,"updatedReplicas":%[1]d,"readyReplicas":%d,"availableReplicas":%[2]d,"unavailableReplicas":%d}`, n, ready, n-ready)
}

// pod is one on one of the nodes.
func (c *Cluster) pod(w *controller, p *pod) *corev1.Pod {
	made, yes := metav1.NewTime(p.made), true
	ip := fmt.Sprintf("10.0.%d.%d", p.ordinal%Nodes, 2+p.ordinal%250)
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: p.name, GenerateName: w.prefix(), UID: c.uid(w, p), Labels: maps.Clone(w.Spec.Template.Metadata.Labels), Annotations: w.Spec.Template.Metadata.Annotations, CreationTimestamp: made,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: w.kind, Name: w.name, UID: types.UID(c.site + "-" + w.item), Controller: &yes}},
		},
		Spec: w.Spec.Template.Spec,
		Status: corev1.PodStatus{Phase: corev1.PodRunning, HostIP: fmt.Sprintf("192.0.2.%d", p.ordinal%Nodes+1), PodIP: ip,
			PodIPs: []corev1.PodIP{{IP: ip}}, StartTime: &made, QOSClass: corev1.PodQOSBurstable},
	}
	owner := &out.OwnerReferences[0]
	switch w.kind {
	case "Deployment": // a ReplicaSet stands between them
		owner.Kind, owner.Name = "ReplicaSet", w.name+"-"+w.hash
		metav1.SetMetaDataLabel(&out.ObjectMeta, "pod-template-hash", w.hash)
	case "Job":
		owner.APIVersion = "batch/v1"
		metav1.SetMetaDataLabel(&out.ObjectMeta, batchv1.JobNameLabel, w.name)
	}
	out.Spec.NodeName = nodeName(p.ordinal)
	ready := corev1.ConditionTrue
	for _, ct := range out.Spec.Containers {
		cs := containerStatus(w, ct, made)
		switch {
		case cs.State.Waiting != nil && cs.State.Waiting.Reason != crashLoop:
			out.Status.Phase = corev1.PodPending
		case cs.State.Terminated != nil && cs.State.Terminated.ExitCode != 0:
			out.Status.Phase = corev1.PodFailed
		case cs.State.Terminated != nil && out.Status.Phase == corev1.PodRunning:
			out.Status.Phase = corev1.PodSucceeded
		}
		if !cs.Ready {
			ready = corev1.ConditionFalse
		}
		out.Status.ContainerStatuses = append(out.Status.ContainerStatuses, cs)
	}
	for typ, is := range map[corev1.PodConditionType]corev1.ConditionStatus{corev1.PodScheduled: corev1.ConditionTrue, corev1.PodInitialized: corev1.ConditionTrue, corev1.ContainersReady: ready, corev1.PodReady: ready} {
		out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{Type: typ, Status: is, LastTransitionTime: made})
	}
	slices.SortFunc(out.Status.Conditions, func(a, b corev1.PodCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	return out
}

// containerStatus is how one of its containers is.
func containerStatus(w *controller, ct corev1.Container, at metav1.Time) corev1.ContainerStatus {
	running := true
	cs := corev1.ContainerStatus{Name: ct.Name, Image: ct.Image, Ready: true, Started: &running, ImageID: ct.Image + "@sha256:" + wire.DigestOf([]byte(ct.Image)), ContainerID: "containerd://" + wire.DigestOf([]byte(w.item)),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}}
	why := broken(ct.Image)
	if why == nil && w.kind != "Job" {
		return cs
	}
	cs.Ready, running = false, false
	ended := &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: at, FinishedAt: at}
	if why != nil {
		ended.ExitCode, ended.Reason = 1, "Error"
	}
	switch {
	case why == nil || w.kind == "Job" && why.Reason == crashLoop:
		cs.State = corev1.ContainerState{Terminated: ended}
	case why.Reason == crashLoop:
		cs.RestartCount, cs.State, cs.LastTerminationState.Terminated = 5, corev1.ContainerState{Waiting: why}, ended
	default:
		cs.State = corev1.ContainerState{Waiting: why}
	}
	return cs
}

func (c *Cluster) uid(w *controller, p *pod) types.UID {
	return types.UID(fmt.Sprintf("%s-%s-%d-%d", c.site, letters(hashOf(w.item, w.hash), 10), p.ordinal, p.serial))
}

const crashLoop = "CrashLoopBackOff"

// broken says why a container of the image does not run; nil: it does.
func broken(image string) *corev1.ContainerStateWaiting {
	switch {
	case strings.HasSuffix(image, ":missing"):
		return &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: fmt.Sprintf("Back-off pulling image %q: not found", image)}
	case strings.HasSuffix(image, ":crash"):
		return &corev1.ContainerStateWaiting{Reason: crashLoop, Message: "back-off 2m40s restarting failed container"}
	}
	return nil
}

func hashOf(parts ...string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(strings.Join(parts, "/")))
	return h.Sum64()
}

// letters are n characters as Kubernetes gives names.
func letters(of uint64, n int) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[of%uint64(len(alphabet))]
		of /= uint64(len(alphabet))
	}
	return string(b)
}
