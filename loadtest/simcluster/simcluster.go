// Package simcluster is a site's Kubernetes cluster that is not there: what the site should
// hold is held at once, Deployments, StatefulSets, DaemonSets and Jobs have pods on three
// nodes, and all of it is told as package control/agent/kube tells it of a real one. Pods
// have logs and metrics, and can be deleted; no process runs in them. The fleet of the load
// test and the sites of the demo have one each.
//
// Two images do not run: one whose tag is "missing" can't be pulled, and one whose tag is
// "crash" ends as soon as it has started. Nothing else of a kubelet is simulated; tests of
// how a cluster behaves use a real one (internal/testkit/kubesite).
package simcluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
	made   time.Time

	mu       sync.Mutex
	held     map[string]string      // item → digest
	running  map[string]*controller // item → what makes pods
	spent    [Nodes]float64         // seconds of CPU of each node, until spentAt
	spentAt  time.Time
	onImages func([]string)
}

// New returns the empty cluster of a site, which tells a mirror what it holds.
func New(site string, m *mirror.Mirror) *Cluster {
	now := time.Now()
	return &Cluster{site: site, mirror: m, made: now, spentAt: now, held: map[string]string{}, running: map[string]*controller{}}
}

// Held is what it holds, digests by item.
func (c *Cluster) Held() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.held)
}

// HeldDigest is the digest of one item; "" if it is not held.
func (c *Cluster) HeldDigest(item string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[item]
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
	for _, w := range c.running {
		if len(w.pods) == 0 || w.kind == "Job" {
			continue
		}
		for _, ct := range w.Spec.Template.Spec.Containers {
			all = append(all, ct.Image)
		}
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
	if makesPods(kind) {
		w, err := parseController(it.GetName(), kind, namespace, name, blob)
		if err != nil {
			return fmt.Errorf("%s: %w", it.GetName(), err)
		}
		c.runLocked(w, st)
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
	if w := c.running[it.GetName()]; w != nil {
		for _, p := range w.pods {
			c.mirror.Drop(w.key(p))
		}
		delete(c.running, it.GetName())
	}
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
		c.put("Node", "", nodeName(i), c.node(i))
	}
	c.mirror.Begin()
}

// put mirrors an object.
func (c *Cluster) put(kind, namespace, name string, o interface{ Marshal() ([]byte, error) }) {
	b, err := o.Marshal()
	if err != nil {
		panic(err) // of types that are made here
	}
	c.mirror.Put(&wire.Mirrored{Kind: kind, Namespace: namespace, Name: name, Object: b})
}

func nodeName(i int) string { return fmt.Sprintf("node%d", i%Nodes+1) }

func (c *Cluster) node(i int) *corev1.Node {
	now := metav1.NewTime(c.made.Truncate(time.Second))
	has := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110")}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), UID: types.UID(c.site + "-" + nodeName(i)), CreationTimestamp: now, Labels: map[string]string{"kubernetes.io/hostname": nodeName(i), "kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"}},
		Status: corev1.NodeStatus{
			Capacity: has, Allocatable: has,
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.34.2", OSImage: "Simulated Linux 1.0", KernelVersion: "6.12.48", ContainerRuntimeVersion: "containerd://2.1.4", Architecture: "arm64", OperatingSystem: "linux"},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", i+1)}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: now, LastHeartbeatTime: now}},
		},
	}
}
