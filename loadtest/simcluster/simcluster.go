// Package simcluster is a site's Kubernetes cluster that is not there: what the site should
// hold is held at once, Deployments and StatefulSets have pods that run on three nodes, and
// all of it is told as package control/agent/kube tells it of a real one. The fleet of the
// load test and the sites of the demo have one each.
//
// Two images do not run: one whose tag is "missing" can't be pulled, and one whose tag is
// "crash" ends as soon as it has started. Nothing else of a kubelet is simulated; tests of
// how a cluster behaves use a real one (internal/testkit/kubesite).
package simcluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// Nodes of each cluster: node1, node2, …
const Nodes = 3

// Cluster is one site's. Safe for concurrent use.
type Cluster struct {
	site   string
	mirror *mirror.Mirror

	mu       sync.Mutex
	held     map[string]string   // item → digest
	pods     map[string][]string // item → keys in the mirror
	images   map[string][]string // item → what its pods run
	onImages func([]string)
}

// New returns the empty cluster of a site, which tells a mirror what it holds.
func New(site string, m *mirror.Mirror) *Cluster {
	return &Cluster{site: site, mirror: m, held: map[string]string{}, pods: map[string][]string{}, images: map[string][]string{}}
}

// Held is what it holds, digests by item.
func (c *Cluster) Held() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.held)
}

// OnImages has a function told which images run, each once and sorted, whenever something
// was applied or removed: for whoever simulates what they do to the site. It is called with
// the cluster locked, so it must not call it. Before the site runs.
func (c *Cluster) OnImages(f func(images []string)) { c.onImages = f }

func (c *Cluster) tellImagesLocked() {
	if c.onImages == nil {
		return
	}
	var all []string
	for _, of := range c.images {
		all = append(all, of...)
	}
	slices.Sort(all)
	c.onImages(slices.Compact(all))
}

// Apply implements agent.Applier.
func (c *Cluster) Apply(_ context.Context, it *wire.Item, blob []byte) error {
	_, kind, namespace, name, err := workload.ParseItemName(it.GetName())
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	st := &wire.WorkloadStatus{Name: it.GetName(), Digest: it.GetDigest(), Wanted: it.GetDigest(), State: string(workload.Ready)}
	if kind == "Deployment" || kind == "StatefulSet" {
		if err := c.runLocked(it, kind, namespace, name, blob, st); err != nil {
			return fmt.Errorf("%s: %w", it.GetName(), err)
		}
	}
	c.held[it.GetName()] = it.GetDigest()
	c.mirror.PutWorkload(st)
	c.beginLocked()
	c.tellImagesLocked()
	return nil
}

// Remove implements agent.Remover.
func (c *Cluster) Remove(_ context.Context, it *wire.Item) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropPodsLocked(it.GetName())
	delete(c.images, it.GetName())
	c.tellImagesLocked()
	c.mirror.Drop(wire.WorkloadKey(it.GetName()))
	delete(c.held, it.GetName())
	return nil
}

// beginLocked lets the mirror tell, once there is something: a site that nothing is
// deployed to says nothing of its cluster.
func (c *Cluster) beginLocked() {
	if epoch, _ := c.mirror.Version(); epoch != "" {
		return
	}
	for i := range Nodes {
		c.put("Node", "", node(i), c.node(i))
	}
	c.mirror.Begin()
}

func node(i int) string { return fmt.Sprintf("node%d", i%Nodes+1) }

func (c *Cluster) dropPodsLocked(item string) {
	for _, key := range c.pods[item] {
		c.mirror.Drop(key)
	}
	delete(c.pods, item)
}

// put mirrors an object.
func (c *Cluster) put(kind, namespace, name string, o interface{ Marshal() ([]byte, error) }) (key string) {
	b, err := o.Marshal()
	if err != nil {
		panic(err) // of types that are made here
	}
	m := &wire.Mirrored{Kind: kind, Namespace: namespace, Name: name, Object: b}
	c.mirror.Put(m)
	return wire.KeyOf(m)
}

// controller is what of a Deployment or a StatefulSet counts here.
type controller struct {
	Spec struct {
		Replicas *int32 `json:"replicas"`
		Template struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
			Spec     corev1.PodSpec    `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

// runLocked has the pods of one.
func (c *Cluster) runLocked(it *wire.Item, kind, namespace, name string, blob []byte, st *wire.WorkloadStatus) error {
	var d controller
	if err := json.Unmarshal(blob, &d); err != nil {
		return err
	}
	replicas, ready := int32(1), int32(0)
	if d.Spec.Replicas != nil {
		replicas = min(*d.Spec.Replicas, 1000)
	}
	c.dropPodsLocked(it.GetName())
	delete(c.images, it.GetName())
	if replicas > 0 {
		for _, ct := range d.Spec.Template.Spec.Containers {
			c.images[it.GetName()] = append(c.images[it.GetName()], ct.Image)
		}
	}
	for i := range replicas {
		pod := c.pod(it, kind, namespace, name, i, &d)
		if why := pod.Status.ContainerStatuses; len(why) > 0 && why[0].State.Waiting != nil {
			st.State, st.Reason, st.Message = string(workload.Progressing), why[0].State.Waiting.Reason, why[0].State.Waiting.Message
		} else {
			ready++
		}
		c.pods[it.GetName()] = append(c.pods[it.GetName()], c.put("Pod", namespace, pod.Name, pod))
	}
	st.Status = fmt.Appendf(nil, `{"observedGeneration":1,"replicas":%d,"updatedReplicas":%[1]d,"readyReplicas":%d,"availableReplicas":%[2]d,"unavailableReplicas":%d}`, replicas, ready, replicas-ready)
	return nil
}

func hashOf(parts ...string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(strings.Join(parts, "/")))
	return h.Sum64()
}

// pod is one on one of the nodes.
func (c *Cluster) pod(it *wire.Item, kind, namespace, name string, i int32, d *controller) *corev1.Pod {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, GenerateName: fmt.Sprintf("%s-%.10s-", name, it.GetDigest()),
			UID: types.UID(fmt.Sprintf("%s-%s-%d", c.site, it.GetDigest()[:8], i)), Labels: d.Spec.Template.Metadata.Labels, CreationTimestamp: now,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID(it.GetDigest()[:32])}},
		},
		Spec: d.Spec.Template.Spec,
		Status: corev1.PodStatus{Phase: corev1.PodRunning, HostIP: fmt.Sprintf("192.0.2.%d", i%Nodes+1), PodIP: fmt.Sprintf("10.0.%d.%d", i%Nodes, i+2),
			PodIPs: []corev1.PodIP{{IP: fmt.Sprintf("10.0.%d.%d", i%Nodes, i+2)}}, StartTime: &now, QOSClass: corev1.PodQOSBurstable},
	}
	pod.Name = pod.GenerateName + suffix(hashOf(c.site, it.GetName(), fmt.Sprint(i)))
	if kind == "StatefulSet" {
		pod.GenerateName, pod.Name = name+"-", fmt.Sprintf("%s-%d", name, i)
	}
	pod.Spec.NodeName = node(int(i))
	ready := corev1.ConditionTrue
	for _, ct := range pod.Spec.Containers {
		started := true
		cs := corev1.ContainerStatus{Name: ct.Name, Image: ct.Image, Ready: true, Started: &started, ImageID: ct.Image + "@sha256:" + it.GetDigest(), ContainerID: "containerd://" + it.GetDigest(),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}
		if why := broken(ct.Image); why != nil {
			ready, started = corev1.ConditionFalse, false
			cs.Ready, cs.State = false, corev1.ContainerState{Waiting: why}
			if why.Reason == "CrashLoopBackOff" {
				cs.RestartCount = 5
				cs.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", FinishedAt: now}
			} else {
				pod.Status.Phase = corev1.PodPending
			}
		}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, cs)
	}
	for typ, is := range map[corev1.PodConditionType]corev1.ConditionStatus{corev1.PodScheduled: corev1.ConditionTrue, corev1.PodInitialized: corev1.ConditionTrue, corev1.ContainersReady: ready, corev1.PodReady: ready} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: typ, Status: is, LastTransitionTime: now})
	}
	slices.SortFunc(pod.Status.Conditions, func(a, b corev1.PodCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	return pod
}

// suffix is five characters as Kubernetes gives names.
func suffix(n uint64) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	b := make([]byte, 5)
	for i := range b {
		b[i] = alphabet[n%uint64(len(alphabet))]
		n /= uint64(len(alphabet))
	}
	return string(b)
}

// broken says why a container of the image does not run; nil: it does.
func broken(image string) *corev1.ContainerStateWaiting {
	switch {
	case strings.HasSuffix(image, ":missing"):
		return &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: fmt.Sprintf("Back-off pulling image %q: not found", image)}
	case strings.HasSuffix(image, ":crash"):
		return &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 2m40s restarting failed container"}
	}
	return nil
}

func (c *Cluster) node(i int) *corev1.Node {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node(i), UID: types.UID(c.site + "-" + node(i)), CreationTimestamp: now, Labels: map[string]string{"kubernetes.io/hostname": node(i), "kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"}},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.34.2", OSImage: "Simulated Linux 1.0", KernelVersion: "6.12.48", ContainerRuntimeVersion: "containerd://2.1.4", Architecture: "arm64", OperatingSystem: "linux"},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", i+1)}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: now, LastHeartbeatTime: now}},
		},
	}
}

var logPath = regexp.MustCompile(`^/api/v1/namespaces/([^/]+)/pods/([^/]+)/log$`)

// Serve answers on a tunnel: the logs of pods, which are made up, and a refusal of all else.
func (c *Cluster) Serve(ctx context.Context, conn net.Conn) {
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	m := logPath.FindStringSubmatch(req.URL.Path)
	if m == nil || req.Method != http.MethodGet {
		b, _ := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonMethodNotAllowed, Code: http.StatusMethodNotAllowed,
			Message: "this site's cluster is simulated: its pods have logs, and nothing else"})
		fmt.Fprintf(conn, "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(b), b)
		return
	}
	fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")
	line := func(at time.Time) error {
		_, err := fmt.Fprintf(conn, "%s %s GET /healthz 200 %dms\n", at.UTC().Format(time.RFC3339), m[2], 1+at.Unix()%7)
		return err
	}
	now := time.Now().Truncate(time.Second)
	for i := range 10 {
		if line(now.Add(time.Duration(i-10)*5*time.Second)) != nil {
			return
		}
	}
	if req.URL.Query().Get("follow") != "true" {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-time.After(time.Second):
			if line(at) != nil {
				return
			}
		}
	}
}
