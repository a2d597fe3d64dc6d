package fleetload

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/internal/holdings"
	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// cluster is what a site says of a cluster that it does not have: what it should hold is
// fetched, and is there and ready at once, Deployments with pods and a status. It belongs
// to the site's stream, but for the mirror, which guards itself.
type cluster struct {
	site   *site
	held   map[string]string   // item → digest
	pods   map[string][]string // item → keys in the mirror
	mirror *mirror.Mirror
	wake   chan struct{}
}

func newCluster(s *site) *cluster {
	c := &cluster{site: s, held: map[string]string{}, pods: map[string][]string{}, wake: make(chan struct{}, 1)}
	c.mirror = mirror.New(mirror.DefaultLimits, func() {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	})
	return c
}

// apply takes what the site should hold.
func (c *cluster) apply(ctx context.Context, client wire.UplinkClient, items []*wire.Item) error {
	wanted := map[string]bool{}
	for _, it := range items {
		if it.GetKind() != workload.Kind {
			continue
		}
		wanted[it.GetName()] = true
		if c.held[it.GetName()] == it.GetDigest() {
			continue
		}
		var blob bytes.Buffer
		if _, err := (holdings.Fetcher{}).To(ctx, client, it.GetDigest(), it.GetSize(), &blob); err != nil {
			return fmt.Errorf("fetch %s: %w", it.GetName(), err)
		}
		if err := c.hold(it, blob.Bytes()); err != nil {
			return fmt.Errorf("%s: %w", it.GetName(), err)
		}
	}
	for item := range c.held {
		if !wanted[item] {
			c.dropPods(item)
			c.mirror.Drop(wire.WorkloadKey(item))
			delete(c.held, item)
		}
	}
	if epoch, _ := c.mirror.Version(); epoch == "" && len(c.held) > 0 {
		c.mirror.Begin()
	}
	c.site.items.Store(maps.Clone(c.held))
	return nil
}

func (c *cluster) dropPods(item string) {
	for _, key := range c.pods[item] {
		c.mirror.Drop(key)
	}
	delete(c.pods, item)
}

// deployment is what of one counts here.
type deployment struct {
	Spec struct {
		Replicas *int32 `json:"replicas"`
		Template struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
			Spec     corev1.PodSpec    `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

func (c *cluster) hold(it *wire.Item, blob []byte) error {
	_, kind, namespace, name, err := workload.ParseItemName(it.GetName())
	if err != nil {
		return err
	}
	st := &wire.WorkloadStatus{Name: it.GetName(), Digest: it.GetDigest(), Wanted: it.GetDigest(), State: string(workload.Ready)}
	if kind == "Deployment" {
		var d deployment
		if err := json.Unmarshal(blob, &d); err != nil {
			return err
		}
		replicas := int32(1)
		if d.Spec.Replicas != nil {
			replicas = *d.Spec.Replicas
		}
		c.dropPods(it.GetName())
		for i := range replicas {
			if err := c.pod(it, namespace, name, i, &d); err != nil {
				return err
			}
		}
		st.Status = fmt.Appendf(nil, `{"observedGeneration":1,"replicas":%d,"updatedReplicas":%[1]d,"readyReplicas":%[1]d,"availableReplicas":%[1]d}`, replicas)
	}
	c.held[it.GetName()] = it.GetDigest()
	c.mirror.PutWorkload(st)
	return nil
}

// pod is one that runs, on one of the site's three nodes.
func (c *cluster) pod(it *wire.Item, namespace, name string, i int32, d *deployment) error {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s-%.10s-%05x", name, it.GetDigest(), (c.site.seed+uint64(i))%(1<<20)),
			UID: types.UID(fmt.Sprintf("%s-%s-%d", c.site.name, it.GetDigest()[:8], i)), Labels: d.Spec.Template.Metadata.Labels, CreationTimestamp: now,
		},
		Spec:   d.Spec.Template.Spec,
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.0.0.%d", i+1), HostIP: "192.0.2.1", StartTime: &now, QOSClass: corev1.PodQOSBurstable},
	}
	pod.Spec.NodeName = fmt.Sprintf("node%d", i%3+1)
	for _, typ := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: typ, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, ct := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: ct.Name, Image: ct.Image, ImageID: ct.Image + "@sha256:" + it.GetDigest(), ContainerID: "containerd://" + it.GetDigest(), Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	b, err := pod.Marshal()
	if err != nil {
		return err
	}
	m := &wire.Mirrored{Kind: "Pod", Namespace: namespace, Name: pod.Name, Object: b}
	c.mirror.Put(m)
	c.pods[it.GetName()] = append(c.pods[it.GetName()], wire.KeyOf(m))
	return nil
}

// Digests is how many sites hold each version of an item (workload.ItemName), by digest;
// "" for none.
func (f *Fleet) Digests(item string) map[string]int {
	out := map[string]int{}
	for _, s := range f.sites {
		digest := ""
		if held, _ := s.items.Load().(map[string]string); held != nil {
			digest = held[item]
		}
		out[digest]++
	}
	return out
}
