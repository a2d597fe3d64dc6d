package lease_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"muster.dev/muster/control/agent/software/lease"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubesite"
)

const namespace, account = "muster-host", "muster-edge"

// site is a cluster of three nodes with an app of six pods, of which a budget keeps four.
type site struct {
	*kubesite.Cluster
	t *testing.T
}

func start(t *testing.T) *site {
	s := &site{kubesite.Start(t, kubesite.Options{Nodes: 3}), t}
	ctx, c := t.Context(), s.Client
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}
	cr := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: account}, Rules: lease.Rules()}
	r := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: account}, Rules: lease.LeaseRules()}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}}
	_, err := c.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	s.must(err)
	_, err = c.CoreV1().ServiceAccounts(namespace).Create(ctx, sa, metav1.CreateOptions{})
	s.must(err)
	_, err = c.RbacV1().ClusterRoles().Create(ctx, cr, metav1.CreateOptions{})
	s.must(err)
	_, err = c.RbacV1().Roles(namespace).Create(ctx, r, metav1.CreateOptions{})
	s.must(err)
	_, err = c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: cr.ObjectMeta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account}}, metav1.CreateOptions{})
	s.must(err)
	_, err = c.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: account}, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account}}, metav1.CreateOptions{})
	s.must(err)

	labels := map[string]string{"app": "till"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr(int64(0)), Containers: []corev1.Container{{Name: "till", Image: "till:1"}}}}
	_, err = c.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "till"}, Spec: appsv1.DeploymentSpec{Replicas: ptr(int32(6)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}, metav1.CreateOptions{})
	s.must(err)
	_, err = c.PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "till"}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr(intstr.FromInt32(4)), Selector: &metav1.LabelSelector{MatchLabels: labels}}}, metav1.CreateOptions{})
	s.must(err)
	of := map[string]string{"of": "nodes"}
	template.Labels = of
	_, err = c.AppsV1().DaemonSets("default").Create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}, Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: of}, Template: template}}, metav1.CreateOptions{})
	s.must(err)
	s.steady()
	return s
}

func ptr[T any](v T) *T { return &v }

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// steady waits until the app is as it should be.
func (s *site) steady() {
	s.t.Helper()
	testkit.Eventually(s.t, "the app is ready", func() error {
		d, err := s.Client.AppsV1().Deployments("default").Get(s.t.Context(), "till", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != 6 {
			err = fmt.Errorf("%d are available", d.Status.AvailableReplicas)
		}
		if err != nil {
			return err
		}
		b, err := s.Client.PolicyV1().PodDisruptionBudgets("default").Get(s.t.Context(), "till", metav1.GetOptions{})
		if err == nil && (b.Status.CurrentHealthy != 6 || b.Status.ObservedGeneration != b.Generation) {
			err = fmt.Errorf("the budget sees %d", b.Status.CurrentHealthy)
		}
		return err
	})
}

func (s *site) turn(node string, change func(*lease.Options, *rest.Config)) *lease.Turn {
	s.t.Helper()
	cfg := s.ConfigAs(namespace, account)
	cfg.QPS, cfg.Burst = 200, 400
	o := lease.Options{Node: node, Namespace: namespace, Every: 50 * time.Millisecond, DrainWithin: time.Minute}
	if change != nil {
		change(&o, cfg)
	}
	var err error
	o.Client, err = kubernetes.NewForConfig(cfg)
	s.must(err)
	turn, err := lease.New(o)
	s.must(err)
	return turn
}

// holder of the lease, and the nodes that are cordoned.
func (s *site) holder() (holder, cordoned string) {
	s.t.Helper()
	l, err := s.Client.CoordinationV1().Leases(namespace).Get(context.Background(), "muster-restart", metav1.GetOptions{})
	s.must(err)
	if l.Spec.HolderIdentity != nil {
		holder = *l.Spec.HolderIdentity
	}
	nodes, err := s.Client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	s.must(err)
	for _, n := range nodes.Items {
		if n.Spec.Unschedulable {
			cordoned += n.Name + " "
		}
	}
	return holder, strings.TrimSpace(cordoned)
}

func (s *site) wantFree() {
	s.t.Helper()
	if holder, cordoned := s.holder(); holder != "" || cordoned != "" {
		s.t.Fatalf("%q has the lease, %q is cordoned; want none", holder, cordoned)
	}
}

// pods of the app on a node.
func (s *site) pods(node string) (n int) {
	s.t.Helper()
	list, err := s.Client.CoreV1().Pods("default").List(s.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node, LabelSelector: "app=till"})
	s.must(err)
	return len(list.Items)
}

func TestTurns(t *testing.T) {
	s := start(t)
	t.Run("one at a time", func(t *testing.T) { (&site{s.Cluster, t}).oneAtATime() })
	t.Run("a budget refuses", func(t *testing.T) { (&site{s.Cluster, t}).budget() })
	t.Run("cordoned by a person", func(t *testing.T) { (&site{s.Cluster, t}).person() })
	t.Run("killed anywhere", func(t *testing.T) { (&site{s.Cluster, t}).killed() })
	t.Run("taken over", func(t *testing.T) { (&site{s.Cluster, t}).takenOver() })
	t.Run("below quorum", func(t *testing.T) { (&site{s.Cluster, t}).quorum() })
}

// Three nodes want to restart at once, and all do: never two of them cordoned, and never
// fewer of the app than its budget says.
func (s *site) oneAtATime() {
	ctx, stop := context.WithCancel(s.t.Context())
	w, err := s.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	s.must(err)
	watched, most := make(chan struct{}), 0
	go func() {
		defer close(watched)
		now := map[string]bool{}
		for e := range w.ResultChan() {
			if n, ok := e.Object.(*corev1.Node); ok {
				if delete(now, n.Name); n.Spec.Unschedulable {
					now[n.Name] = true
				}
			}
			most = max(most, len(now))
		}
	}()
	var inside atomic.Int32
	var wg sync.WaitGroup
	for _, node := range []string{"node-1", "node-2", "node-3"} {
		turn := s.turn(node, nil)
		wg.Go(func() {
			testkit.Eventually(s.t, node+" has its turn", func() error { return turn.Take(ctx) })
			if n := inside.Add(1); n != 1 {
				s.t.Errorf("%d nodes have their turn at once", n)
			}
			if n := s.pods(node); n != 0 {
				s.t.Errorf("%s is not drained: %d pods", node, n)
			}
			list, err := s.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
			if err != nil || len(list.Items) != 1 {
				s.t.Errorf("%s: %d pods, want that of its DaemonSet: %v", node, len(list.Items), err)
			}
			if err := turn.Take(ctx); err != nil {
				s.t.Errorf("a second time: %v", err)
			}
			inside.Add(-1)
			for range 2 {
				if err := turn.GiveBack(ctx); err != nil {
					s.t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	stop()
	if <-watched; most != 1 {
		s.t.Errorf("%d nodes were cordoned at once, want 1", most)
	}
	s.wantFree()
}

// A budget that lets no pod go: it is said which, and all is given back.
func (s *site) budget() {
	s.steady()
	budgets := s.Client.PolicyV1().PodDisruptionBudgets("default")
	set := func(min int32) {
		_, err := budgets.Patch(s.t.Context(), "till", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"minAvailable":%d}}`, min), metav1.PatchOptions{})
		s.must(err)
		s.steady()
	}
	set(6)
	defer set(4)
	node := "node-1"
	for _, other := range []string{"node-2", "node-3"} {
		if s.pods(other) > s.pods(node) {
			node = other
		}
	}
	before := s.pods(node)
	// The API server may say when to ask again. The drain looks at its other pods meanwhile.
	var asked sync.Map
	err := s.turn(node, func(o *lease.Options, cfg *rest.Config) {
		o.DrainWithin, o.Every = time.Second, time.Hour
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return testkit.RoundTripper(func(req *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				if err == nil && resp.StatusCode == http.StatusTooManyRequests {
					resp.Header.Set("Retry-After", "1")
					if _, twice := asked.LoadOrStore(req.URL.Path, true); twice {
						s.t.Errorf("%s was asked again by itself", req.URL.Path)
					}
				}
				return resp, err
			})
		})
	}).Take(s.t.Context())
	if err == nil || !strings.Contains(err.Error(), "not drained within 1s") || !strings.Contains(err.Error(), "disruption budget till needs 6 healthy pods") {
		s.t.Errorf("%v", err)
	}
	if s.pods(node) != before {
		s.t.Error("pods were taken from the app all the same")
	}
	s.wantFree()
}

// Who cordoned a node by hand finds it so afterwards.
func (s *site) person() {
	s.steady()
	cordon := func(on bool) {
		_, err := s.Client.CoreV1().Nodes().Patch(s.t.Context(), "node-2", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on), metav1.PatchOptions{})
		s.must(err)
	}
	cordon(true)
	defer cordon(false)
	turn := s.turn("node-2", nil)
	s.must(turn.Take(s.t.Context()))
	s.must(turn.GiveBack(s.t.Context()))
	if holder, cordoned := s.holder(); holder != "" || cordoned != "node-2" {
		s.t.Errorf("%q has the lease, %q is cordoned", holder, cordoned)
	}
}

var errKilled = errors.New("killed")

// dying answers so many requests and none after; the last one may have been done.
type dying struct {
	next  http.RoundTripper
	left  *atomic.Int32
	after bool
}

func (d dying) RoundTrip(r *http.Request) (*http.Response, error) {
	n := d.left.Add(-1)
	if n < 0 && (!d.after || n < -1) {
		return nil, errKilled
	}
	resp, err := d.next.RoundTrip(r)
	if n < 0 && err == nil {
		_ = resp.Body.Close()
		return nil, errKilled
	}
	return resp, err
}

// An agent is killed before and after each of its requests, and starts again: it can go
// on, or give everything back.
func (s *site) killed() {
	for _, after := range []bool{false, true} {
		for n := int32(0); ; n++ {
			s.steady()
			var left atomic.Int32
			left.Store(n)
			turn := s.turn("node-3", func(o *lease.Options, cfg *rest.Config) {
				cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return dying{rt, &left, after} })
			})
			err := turn.Take(s.t.Context())
			if err == nil {
				err = turn.GiveBack(s.t.Context())
			}
			if again := s.turn("node-3", nil); n%2 == 0 {
				s.must(again.Take(s.t.Context()))
				if holder, cordoned := s.holder(); holder != "node-3" || cordoned != "node-3" {
					s.t.Fatalf("%q has the lease, %q is cordoned", holder, cordoned)
				}
				s.must(again.GiveBack(s.t.Context()))
			} else {
				s.must(again.GiveBack(s.t.Context()))
			}
			s.wantFree()
			if err == nil {
				if n < 8 {
					s.t.Fatalf("%d requests only", n)
				}
				s.t.Logf("killed at each of %d requests", n)
				break
			}
		}
	}
}

// A turn that nobody gives back.
func (s *site) takenOver() {
	s.steady()
	leases := s.Client.CoordinationV1().Leases(namespace)
	have := func(node, boot string) {
		err := leases.Delete(s.t.Context(), "muster-restart", metav1.DeleteOptions{})
		s.must(err)
		_, err = leases.Create(s.t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "muster-restart", Annotations: map[string]string{lease.Boot: boot}}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &node}}, metav1.CreateOptions{})
		s.must(err)
	}
	real, err := s.Client.CoreV1().Nodes().Get(s.t.Context(), "node-1", metav1.GetOptions{})
	s.must(err)
	for _, tc := range []struct{ name, node, boot, want string }{
		{"gone", "node-9", "x", ""},
		{"back", "node-1", "another boot", ""},
		{"not restarted", "node-1", real.Status.NodeInfo.BootID, "has not restarted since"},
		{"down", "node-1", "another boot", "not Ready"},
	} {
		have(tc.node, tc.boot)
		if tc.node == "node-1" {
			_, err := s.Client.CoreV1().Nodes().Patch(s.t.Context(), "node-1", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"unschedulable":true}}`, lease.Cordoned, namespace+"/muster-restart"), metav1.PatchOptions{})
			s.must(err)
		}
		if tc.name == "down" {
			s.CutNode("node-1")
			testkit.EventuallyTrue(s.t, "node-1 is not Ready", func() bool {
				n, err := s.Client.CoreV1().Nodes().Get(s.t.Context(), "node-1", metav1.GetOptions{})
				s.must(err)
				for _, c := range n.Status.Conditions {
					if c.Type == corev1.NodeReady {
						return c.Status != corev1.ConditionTrue
					}
				}
				return false
			})
		}
		now := time.Now()
		turn := s.turn("node-2", func(o *lease.Options, _ *rest.Config) { o.Now = func() time.Time { return now } })
		for _, wait := range []time.Duration{0, time.Hour, 119 * time.Minute} {
			now = now.Add(wait)
			if err := turn.Take(s.t.Context()); err == nil || !strings.Contains(err.Error(), "node "+tc.node+" has it") {
				s.t.Fatalf("%s: %v", tc.name, err)
			}
			if wait == time.Hour { // it is renewed
				l, err := leases.Get(s.t.Context(), "muster-restart", metav1.GetOptions{})
				s.must(err)
				l.Spec.RenewTime = ptr(metav1.NowMicro())
				_, err = leases.Update(s.t.Context(), l, metav1.UpdateOptions{})
				s.must(err)
				if err := turn.Take(s.t.Context()); err == nil {
					s.t.Fatal("taken")
				}
			}
		}
		now = now.Add(2 * time.Minute)
		err := turn.Take(s.t.Context())
		holder, cordoned := s.holder()
		switch {
		case tc.want == "" && (err != nil || holder != "node-2" || cordoned != "node-2"):
			s.t.Errorf("%s: %v; %q has the lease, %q is cordoned", tc.name, err, holder, cordoned)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || holder != tc.node || cordoned != tc.node):
			s.t.Errorf("%s: %v, want %q; %q has the lease, %q is cordoned", tc.name, err, tc.want, holder, cordoned)
		}
		s.must(turn.GiveBack(s.t.Context()))
		if tc.name == "down" {
			s.JoinNode("node-1")
		}
		s.must(s.turn("node-1", nil).GiveBack(s.t.Context()))
	}
	s.wantFree()
}

// Three nodes hold the cluster's state, and one of them is down.
func (s *site) quorum() {
	for _, node := range []string{"node-1", "node-2", "node-3"} {
		_, err := s.Client.CoreV1().Nodes().Patch(s.t.Context(), node, types.MergePatchType, []byte(`{"metadata":{"labels":{"node-role.kubernetes.io/etcd":"true"}}}`), metav1.PatchOptions{})
		s.must(err)
	}
	s.CutNode("node-3")
	defer s.JoinNode("node-3")
	turn := s.turn("node-1", func(o *lease.Options, _ *rest.Config) { o.DrainWithin = time.Second })
	testkit.Eventually(s.t, "node-1 is refused", func() error {
		err := turn.Take(s.t.Context())
		if err == nil {
			s.must(turn.GiveBack(s.t.Context()))
			return errors.New("it has its turn")
		}
		if !strings.Contains(err.Error(), "without node-1 1 of 3 control-plane nodes would be Ready, want 2; not Ready: node-3") {
			return err
		}
		return nil
	})
	s.wantFree()
}
