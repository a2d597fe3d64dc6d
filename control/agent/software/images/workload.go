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
	// Of a DaemonSet: whether its controller has seen what it asks for, the nodes that it is
	// for, that have a pod as it asks for, and that lack a ready one.
	seen               bool
	wanted, have, away int32
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

// rolled says what a DaemonSet lacks to have its image everywhere, and whether a pod is
// ready with it anywhere. Nodes that were away before are not waited for.
func (w workload) rolled(before int32) (lacks string, proven bool) {
	switch {
	case !w.seen:
		return w.name() + " was not looked at by its controller yet", false
	case w.wanted == 0 || w.away <= before && w.have >= w.wanted-before:
		return "", true
	}
	return fmt.Sprintf("%d of %d nodes have the new pod of %s, and %d have none that is ready", w.have, w.wanted, w.name(), w.away),
		w.have > 0 && w.away <= before
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
			w.seen, w.wanted, w.have, w.away = s.ObservedGeneration >= d.Generation, s.DesiredNumberScheduled, s.UpdatedNumberScheduled, s.NumberUnavailable
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
