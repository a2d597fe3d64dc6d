package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// answered is how long a request under way may take when the time to drain is over. A
// client's limiter refuses what would wait up to the deadline, and a reader wants to know
// who was in the way rather than that.
const answered = 30 * time.Second

// drain evicts the node's pods until they are gone. Each is asked for again while a
// PodDisruptionBudget refuses it.
func (t *Turn) drain(ctx context.Context) error {
	late := fmt.Errorf("not drained within %s", t.o.DrainWithin)
	ctx, cancel := context.WithTimeoutCause(ctx, t.o.DrainWithin+answered, late)
	defer cancel()
	over := time.NewTimer(t.o.DrainWithin)
	defer over.Stop()
	left := "" // who is, and why
	for {
		n, said, err := t.evict(ctx)
		switch {
		case err == nil && n == 0:
			return nil
		case err == nil:
			left = said
		case ctx.Err() == nil:
			return fmt.Errorf("drain node %s: %w", t.o.Node, err)
		}
		tick := time.NewTimer(t.o.Every)
		select {
		case <-tick.C:
		case <-over.C:
			tick.Stop()
			return fmt.Errorf("node %s: %w: %s", t.o.Node, late, left)
		case <-ctx.Done():
			tick.Stop()
			return fmt.Errorf("node %s: %w: %s", t.o.Node, context.Cause(ctx), left)
		}
	}
}

// evict asks once for each pod that has to go, and returns how many are still there.
func (t *Turn) evict(ctx context.Context) (n int, said string, err error) {
	pods, err := t.o.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", t.o.Node).String()})
	if err != nil {
		return 0, "", fmt.Errorf("list its pods: %w", err)
	}
	var left []string
	refused := ""
	for i := range pods.Items {
		p := &pods.Items[i]
		if stays(p) {
			continue
		}
		left = append(left, p.Namespace+"/"+p.Name)
		if p.DeletionTimestamp != nil {
			continue
		}
		// As Evictions.Evict, but once: it would ask again ten times of one pod, as long as a
		// Retry-After says, while the others wait.
		err := t.o.Client.PolicyV1().RESTClient().Post().AbsPath("/api/v1").Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("eviction").MaxRetries(0).
			Body(&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}}}).
			Do(ctx).Error()
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another by now
		case apierrors.IsTooManyRequests(err):
			refused = fmt.Sprintf("; %s/%s: %v", p.Namespace, p.Name, reason(err))
		default:
			return 0, "", fmt.Errorf("evict %s/%s: %w", p.Namespace, p.Name, err)
		}
	}
	return len(left), "still there: " + some(left) + refused, nil
}

// reason is the API server's, down to the budget's name.
func reason(err error) string {
	if s := apierrors.APIStatus(nil); errors.As(err, &s) && s.Status().Details != nil && len(s.Status().Details.Causes) > 0 {
		return s.Status().Details.Causes[0].Message
	}
	return err.Error()
}

// stays is for pods that an eviction would not move: those of DaemonSets, of the node
// itself (mirror pods) and those that ended; and those that nobody would make anew, which
// come up again with the node.
func stays(p *corev1.Pod) bool {
	c := metav1.GetControllerOf(p)
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || c == nil || c.Kind == "DaemonSet" || c.Kind == "Node"
}
