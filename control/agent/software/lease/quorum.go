package lease

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// controlPlane are the labels of nodes that hold a part of the cluster's state: kubeadm's,
// its former one, and the one that RKE2 and k3s give to members of etcd.
var controlPlane = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "node-role.kubernetes.io/etcd"}

func holdsState(n *corev1.Node) bool {
	for _, label := range controlPlane {
		if v, ok := n.Labels[label]; ok && v != "false" {
			return true
		}
	}
	return false
}

func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// spare says why the cluster can't do without a node: with it gone, more than half of all
// control-plane nodes have to be Ready. With one or two there is no such majority to keep,
// and all others have to be.
func spare(nodes []corev1.Node, self string, minAvailable int) error {
	members, up, available, isMember := 0, 0, 0, false
	var down []string
	for i := range nodes {
		n := &nodes[i]
		if holdsState(n) {
			members++
			isMember = isMember || n.Name == self
			if n.Name != self && ready(n) {
				up++
			} else if n.Name != self {
				down = append(down, n.Name)
			}
		}
		if n.Name != self && ready(n) && !n.Spec.Unschedulable {
			available++
		}
	}
	want := members/2 + 1
	if members <= 2 {
		want = members - 1
	}
	if isMember && up < want {
		return fmt.Errorf("without %s %d of %d control-plane nodes would be Ready, want %d; not Ready: %s", self, up, members, want, some(down))
	}
	if available < minAvailable {
		return fmt.Errorf("without %s %d nodes would be Ready and schedulable, want %d", self, available, minAvailable)
	}
	return nil
}

// replaceable tells whether another node could run what this one does.
func replaceable(nodes []corev1.Node, self string) bool {
	for i := range nodes {
		if n := &nodes[i]; n.Name != self && ready(n) && !n.Spec.Unschedulable {
			return true
		}
	}
	return false
}
