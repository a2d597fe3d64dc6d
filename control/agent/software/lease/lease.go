// Package lease lets the nodes of a site restart one at a time: Take and GiveBack are
// BeforeBoot and AfterTrial of each node's software.Machine.
//
// Who may restart is in a Lease of coordination.k8s.io on the site's own cluster. Its
// holder is the name of a node, and it is no leader election: a node that restarts can't
// renew anything, so a holder is never timed out. Somebody else's turn ends when that node
// gives it back. Only if it did not for a long while, and its Node is gone, or Ready again
// in another boot than the one in which it took the lease, the next node takes it over.
// A node that is down for good keeps the others up, until somebody removes its Node.
//
// With the lease a node is cordoned, which an annotation says, and drained by evictions,
// which respect PodDisruptionBudgets. Somebody else's cordon is left as it is. A node that
// nothing can stand in for is neither cordoned nor drained: its pods come up with it.
//
// What is taken is on the cluster alone, and each call finds out anew how far an earlier
// one came; so whatever dies in between, the next Take goes on and the next GiveBack gives
// back. It decides nothing about versions, and restarts nothing.
package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"muster.dev/muster/internal/few"
)

// Annotations.
const (
	// Cordoned is on a node that was cordoned with the lease that it names.
	Cordoned = "muster.dev/cordoned-for"
	// Boot is on the lease: the boot of its holder in which it was taken.
	Boot = "muster.dev/boot"
)

// Options of a Turn.
type Options struct {
	Client kubernetes.Interface
	// Node is the name of this node.
	Node string
	// Namespace and Name of the Lease, the same on all nodes; empty Name: muster-restart.
	Namespace, Name string
	// MinAvailable is how many other nodes have to be Ready and schedulable meanwhile.
	MinAvailable int
	// DrainWithin is how long evictions may be refused, 0: 10 minutes. Then the turn is
	// given back, and the caller asks again later.
	DrainWithin time.Duration
	// StaleAfter is for how long this process has to have seen the same turn of another
	// node before it looks whether that one is back or gone; 0: 2 hours. Longer than
	// DrainWithin and two trials take.
	StaleAfter time.Duration
	// Every is how often the pods that are still there are looked at; 0: 5 seconds.
	Every time.Duration
	Now   func() time.Time // nil: time.Now
}

// Turn is a node's. Its methods are for one caller at a time.
type Turn struct {
	o Options
	// The turn of another node that was seen, and since when.
	seen      string
	seenSince time.Time
}

// New checks the options.
func New(o Options) (*Turn, error) {
	if o.Client == nil || o.Node == "" || o.Namespace == "" {
		return nil, errors.New("want a client, the node's name and the lease's namespace")
	}
	if o.MinAvailable < 0 {
		return nil, fmt.Errorf("minimum available nodes: %d; want 0 or more", o.MinAvailable)
	}
	if o.Name == "" {
		o.Name = "muster-restart"
	}
	if o.DrainWithin == 0 {
		o.DrainWithin = 10 * time.Minute
	}
	if o.StaleAfter == 0 {
		o.StaleAfter = 2 * time.Hour
	}
	if o.StaleAfter < o.DrainWithin {
		return nil, fmt.Errorf("a turn is stale after %s, and draining may take %s; want it longer", o.StaleAfter, o.DrainWithin)
	}
	if o.Every == 0 {
		o.Every = 5 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Turn{o: o}, nil
}

// Rules are what a Turn may do on the cluster, for a ClusterRole.
func Rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
		{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
	}
}

// LeaseRules are for a Role in the lease's namespace.
func LeaseRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
	}
}

func (t *Turn) id() string { return t.o.Namespace + "/" + t.o.Name }

// Take returns nil once this node may restart: it has the lease, the others are enough,
// and its pods are gone. An error says who or what is in the way; then it holds nothing,
// unless nobody could be told so, and the next call goes on. With ctx it stops where it
// stands.
func (t *Turn) Take(ctx context.Context) error {
	node, err := t.o.Client.CoreV1().Nodes().Get(ctx, t.o.Node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("the turn to restart: node %s: %w", t.o.Node, err)
	}
	if err := t.acquire(ctx, node); err != nil {
		return fmt.Errorf("the turn to restart: %w", err)
	}
	if err := t.clear(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return errors.Join(err, t.GiveBack(ctx))
	}
	return nil
}

// clear empties the node, which has the lease.
func (t *Turn) clear(ctx context.Context) error {
	list, err := t.o.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	for i := range list.Items {
		if n := &list.Items[i]; n.Name != t.o.Node { // of whom the lease was taken over from
			if err := t.uncordon(ctx, n); err != nil {
				return err
			}
		}
	}
	if err := spare(list.Items, t.o.Node, t.o.MinAvailable); err != nil {
		return err
	}
	if !replaceable(list.Items, t.o.Node) {
		return nil
	}
	if err := t.cordon(ctx); err != nil {
		return err
	}
	return t.drain(ctx)
}

// GiveBack makes the node schedulable again, if Take changed that, and gives the lease
// back, if this node has it.
func (t *Turn) GiveBack(ctx context.Context) error {
	node, err := t.o.Client.CoreV1().Nodes().Get(ctx, t.o.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err): // it was removed; there is the lease, still
	case err != nil:
		return fmt.Errorf("give the turn to restart back: node %s: %w", t.o.Node, err)
	default:
		if err := t.uncordon(ctx, node); err != nil {
			return err
		}
	}
	leases := t.o.Client.CoordinationV1().Leases(t.o.Namespace)
	l, err := leases.Get(ctx, t.o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && holder(l) != t.o.Node {
		return nil
	}
	if err == nil {
		l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.AcquireTime = nil, nil, nil
		delete(l.Annotations, Boot)
		_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("give the turn to restart back: lease %s: %w", t.id(), err)
	}
	return nil
}

func holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// acquire takes the lease, or says whose it is. Two that try at once: the API server lets
// the first one.
func (t *Turn) acquire(ctx context.Context, node *corev1.Node) error {
	leases := t.o.Client.CoordinationV1().Leases(t.o.Namespace)
	l, err := leases.Get(ctx, t.o.Name, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("lease %s: %w", t.id(), err)
	}
	if missing {
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: t.o.Namespace, Name: t.o.Name}}
	}
	now := metav1.NewMicroTime(t.o.Now())
	switch other := holder(l); other {
	case t.o.Node:
	case "":
		l.Spec.AcquireTime = &now
	default:
		if err := t.over(ctx, l, other); err != nil {
			return err
		}
		l.Spec.AcquireTime = &now
	}
	if holder(l) != t.o.Node {
		changes := int32(1)
		if l.Spec.LeaseTransitions != nil {
			changes += *l.Spec.LeaseTransitions
		}
		l.Spec.LeaseTransitions = &changes
	}
	l.Spec.HolderIdentity, l.Spec.RenewTime = &t.o.Node, &now
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, Boot, node.Status.NodeInfo.BootID)
	if missing {
		_, err = leases.Create(ctx, l, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("lease %s: another node was faster", t.id())
	case err != nil:
		return fmt.Errorf("lease %s: %w", t.id(), err)
	}
	return nil
}

// over tells whether another node's turn is over although it was not given back. The
// time is this process's own, so that clocks that differ don't matter.
func (t *Turn) over(ctx context.Context, l *coordinationv1.Lease, other string) error {
	if now := t.o.Now(); t.seen != l.ResourceVersion {
		t.seen, t.seenSince = l.ResourceVersion, now
	}
	has := fmt.Sprintf("node %s has it (lease %s)", other, t.id())
	if l.Spec.AcquireTime != nil {
		has += " since " + l.Spec.AcquireTime.UTC().Format(time.RFC3339)
	}
	if t.o.Now().Sub(t.seenSince) < t.o.StaleAfter {
		return errors.New(has)
	}
	n, err := t.o.Client.CoreV1().Nodes().Get(ctx, other, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", has, err)
	case !ready(n):
		return fmt.Errorf("%s and is not Ready; repair it, or remove its Node if it does not come back", has)
	case l.Annotations[Boot] == "" || n.Status.NodeInfo.BootID == l.Annotations[Boot]:
		return fmt.Errorf("%s and has not restarted since; if nothing will restart it any more, delete the lease and kubectl uncordon %s", has, other)
	}
	return nil
}

// cordon takes the node out of scheduling, with the annotation, unless somebody else did.
func (t *Turn) cordon(ctx context.Context) error {
	nodes := t.o.Client.CoreV1().Nodes()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := nodes.Get(ctx, t.o.Node, metav1.GetOptions{})
		if err != nil || n.Spec.Unschedulable {
			return err
		}
		// The version makes it fail if somebody else cordons it in between.
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q},"resourceVersion":%q},"spec":{"unschedulable":true}}`, Cordoned, t.id(), n.ResourceVersion)
		_, err = nodes.Patch(ctx, n.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("cordon node %s: %w", t.o.Node, err)
	}
	return nil
}

// uncordon puts a node back into scheduling that a turn took out.
func (t *Turn) uncordon(ctx context.Context, n *corev1.Node) error {
	if n.Annotations[Cordoned] != t.id() {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}},"spec":{"unschedulable":null}}`, Cordoned)
	if _, err := t.o.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("uncordon node %s: %w", n.Name, err)
	}
	return nil
}

// some names a few of many.
func some(names []string) string { return few.Of(names, 3, ", ") }
