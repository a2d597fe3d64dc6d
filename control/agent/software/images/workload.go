package images

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// workload is what runs the agent's image, as it was seen.
type workload struct {
	daemonSet           bool
	namespace, resource string
	container           int // of the template, that has the image
	image, mark         string
	// Of a DaemonSet: whether its controller has seen what it asks for, how many nodes it is
	// for, and how many of them lack a ready pod, with whatever image.
	seen         bool
	wanted, away int32
}

func (w workload) name() string {
	if w.daemonSet {
		return "DaemonSet/" + w.resource
	}
	return "Deployment/" + w.resource
}

// exchange is a patch of the image, which has to be still the one that was seen.
func (w workload) exchange(image string) []operation {
	path := fmt.Sprintf("/spec/template/spec/containers/%d/image", w.container)
	return []operation{{"test", path, w.image}, {"replace", path, image}}
}

// rolled says what a DaemonSet lacks to have an image everywhere, and whether a pod is ready
// with it anywhere. Nodes that were away before are not waited for. Its status does not tell:
// which of the pods are ready is counted there with whatever image.
func (g *Guard) rolled(ctx context.Context, w workload, image string, before int32) (lacks string, proven bool, err error) {
	switch {
	case !w.seen:
		return w.name() + " was not looked at by its controller yet", false, nil
	case w.wanted == 0:
		return "", true, nil
	}
	pods, err := g.o.Client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + w.resource})
	if err != nil {
		return "", false, fmt.Errorf("pods of %s: %w", w.name(), err)
	}
	ready, others := int32(0), 0
	for i := range pods.Items {
		p := &pods.Items[i]
		switch {
		case p.DeletionTimestamp != nil || !slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == AgentName && c.Image == image }):
		case slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }):
			ready++
		default:
			others++
		}
	}
	if others > 0 || ready < w.wanted-before {
		lacks = fmt.Sprintf("%d of %d nodes have the new pod of %s ready, and on %d it is not", ready, w.wanted, w.name(), others)
	}
	return lacks, ready > 0, nil
}

func workloadOf(namespace, name string, daemonSet bool, template corev1.PodTemplateSpec) (workload, error) {
	i := slices.IndexFunc(template.Spec.Containers, func(c corev1.Container) bool { return c.Name == AgentName })
	w := workload{namespace: namespace, resource: name, daemonSet: daemonSet, container: i, mark: template.Annotations[Annotation]}
	if i < 0 {
		return w, fmt.Errorf("%s: %w", w.name(), errNoContainer)
	}
	w.image = template.Spec.Containers[i].Image
	return w, nil
}

// workloads are the DaemonSet, where there is one, and then the agent's Deployment.
func (g *Guard) workloads(ctx context.Context) ([]workload, error) {
	var out []workload
	if g.o.HostNamespace != "" {
		d, err := g.o.Client.AppsV1().DaemonSets(g.o.HostNamespace).Get(ctx, HostName, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("DaemonSet/%s: %w", HostName, err)
		}
		if err == nil {
			w, err := workloadOf(d.Namespace, d.Name, true, d.Spec.Template)
			if err != nil {
				return nil, err
			}
			s := d.Status
			w.seen, w.wanted, w.away = s.ObservedGeneration >= d.Generation, s.DesiredNumberScheduled, s.NumberUnavailable
			out = append(out, w)
		}
	}
	d, err := g.o.Client.AppsV1().Deployments(g.o.Namespace).Get(ctx, AgentName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("Deployment/%s: %w", AgentName, err)
	}
	w, err := workloadOf(d.Namespace, d.Name, false, d.Spec.Template)
	return append(out, w), err
}

// puts tells whether a container has an image of the trial.
func (t *trial) puts(containers []corev1.Container, name string) bool {
	for _, c := range containers {
		if c.Name == name {
			for _, is := range t.Images {
				if c.Image == is.New && is.New != is.Old {
					return true
				}
			}
		}
	}
	return false
}
