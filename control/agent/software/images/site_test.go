package images_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"muster.dev/muster/control/agent/software"
	"muster.dev/muster/control/agent/software/images"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubesite"
)

const (
	namespace, hostNamespace = "muster-edge", "muster-edge-host"
	repository               = "mirror.example.com:5000/edge/muster-edge"
	installed                = repository + ":v1.0.0"
)

// site is a cluster that is one, of two nodes. What its pods would run runs here, with their
// accounts' rights, for as long as their containers do.
type site struct {
	*kubesite.Cluster
	t *testing.T

	mu     sync.Mutex
	within time.Duration // of the guard
	wanted software.Wanted
	sick   string // version that is never well
	status software.Status
	starts map[string]int // of agents, by version
}

func ptr[T any](v T) *T { return &v }

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func start(t *testing.T) *site {
	s := &site{Cluster: kubesite.Start(t, kubesite.Options{Nodes: 2}), t: t, within: 10 * time.Minute, starts: map[string]int{}}
	ctx, c := t.Context(), s.Client
	for _, ns := range []string{namespace, hostNamespace} {
		_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
		s.must(err)
	}
	role := func(ns, name, account string, rules []rbacv1.PolicyRule) {
		meta := metav1.ObjectMeta{Name: name}
		_, err := c.RbacV1().Roles(ns).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
		s.must(err)
		_, err = c.RbacV1().RoleBindings(ns).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}}}, metav1.CreateOptions{})
		s.must(err)
	}
	for _, name := range []string{images.AgentName, images.GuardName} {
		_, err := c.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		s.must(err)
	}
	role(namespace, "muster-edge-upgrades", images.AgentName, images.Rules())
	role(namespace, images.GuardName, images.GuardName, images.GuardRules())
	role(hostNamespace, images.GuardName, images.GuardName, images.HostRules())
	for _, name := range []string{images.RecordName, images.MemoryName} {
		_, err := c.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		s.must(err)
	}
	template := func(app string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
		labels := map[string]string{"app.kubernetes.io/name": app}
		return &metav1.LabelSelector{MatchLabels: labels}, corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{images.Annotation: ""}},
			Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr(int64(0)), Containers: []corev1.Container{{Name: images.AgentName, Image: installed}}},
		}
	}
	for _, name := range []string{images.AgentName, images.GuardName} {
		sel, pod := template(name)
		_, err := c.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}, Selector: sel, Template: pod}}, metav1.CreateOptions{})
		s.must(err)
	}
	sel, pod := template(images.HostName)
	_, err := c.AppsV1().DaemonSets(hostNamespace).Create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: images.HostName}, Spec: appsv1.DaemonSetSpec{Selector: sel, Template: pod}}, metav1.CreateOptions{})
	s.must(err)
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for account, main := range map[string]func(context.Context, kubernetes.Interface, *corev1.Pod){images.AgentName: s.agent, images.GuardName: s.guard} {
		client, err := kubernetes.NewForConfig(s.ConfigAs(namespace, account))
		s.must(err)
		wg.Go(func() {
			s.follow(ctx, account, func(ctx context.Context, pod *corev1.Pod) { main(ctx, client, pod) })
		})
	}
	t.Cleanup(func() { stop(); wg.Wait() })
	s.settled(installed)
	return s
}

// follow runs main for each container of an app while it runs.
func (s *site) follow(ctx context.Context, app string, main func(context.Context, *corev1.Pod)) {
	running := map[string]context.CancelFunc{}
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil {
		pods, err := s.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + app})
		seen := map[string]bool{}
		for i := 0; err == nil && i < len(pods.Items); i++ {
			pod := &pods.Items[i]
			if cs := pod.Status.ContainerStatuses; pod.DeletionTimestamp == nil && len(cs) == 1 && cs[0].State.Running != nil {
				id := cs[0].ContainerID
				if seen[id] = true; running[id] == nil {
					cctx, cancel := context.WithCancel(ctx)
					running[id] = cancel
					wg.Go(func() { main(cctx, pod) })
				}
			}
		}
		for id, cancel := range running {
			if err == nil && !seen[id] {
				cancel()
				delete(running, id)
			}
		}
		again(ctx)
	}
	for _, cancel := range running {
		cancel()
	}
}

// again is the pace of what looks again and again.
func again(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}

// agent is muster-edge as far as it replaces itself.
func (s *site) agent(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) {
	_, tag, _ := images.Split(pod.Spec.Containers[0].Image)
	version := strings.TrimPrefix(tag, "v")
	s.mu.Lock()
	s.starts[version]++
	s.mu.Unlock()
	d, err := images.New(images.Options{Client: client, Namespace: namespace, Version: version, Mark: pod.Annotations[images.Annotation], Pod: string(pod.UID)})
	if err != nil {
		panic(err)
	}
	var m *software.Machine
	dir := s.t.TempDir()
	for m == nil && ctx.Err() == nil { // what muster-edge waits for, too
		if m, err = software.New(software.Options{Component: "agent", Driver: d, Store: images.Memory{Client: client, Namespace: namespace}, Path: filepath.Join(dir, "state.json"), Hold: time.Second, Within: 5 * time.Minute,
			Fetch: func(_ context.Context, w software.Wanted, _ func(int)) (string, error) {
				path := filepath.Join(dir, "file")
				return path, os.WriteFile(path, file(w.Version), 0o600)
			},
			Healthy: func(ctx context.Context) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.sick == version {
					return errors.New("nothing can be scraped")
				}
				return d.Hosts(ctx)
			}}); err != nil {
			again(ctx)
		}
	}
	for steps := 0; ctx.Err() == nil; steps++ {
		s.mu.Lock()
		w := s.wanted
		s.mu.Unlock()
		if steps < 5 { // it takes a while to hear of control
			w = software.Wanted{Unheard: true}
		}
		moving, _ := m.Step(ctx, w)
		s.mu.Lock()
		if ctx.Err() == nil {
			s.status = m.Status()
		}
		s.mu.Unlock()
		if !moving {
			again(ctx)
		}
	}
}

func (s *site) guard(ctx context.Context, client kubernetes.Interface, _ *corev1.Pod) {
	s.mu.Lock()
	within := s.within
	s.mu.Unlock()
	images.NewGuard(images.GuardOptions{Client: client, Namespace: namespace, HostNamespace: hostNamespace, Within: within, Every: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler)}).Run(ctx)
}

func imageDigest(version string) string {
	d := sha256.Sum256([]byte("image of " + version))
	return "sha256:" + hex.EncodeToString(d[:])
}

func image(version string) string {
	return images.Reference{Digest: imageDigest(version), Tag: "v" + version}.In(repository)
}

func file(version string) []byte {
	b, err := json.Marshal(images.Reference{Digest: imageDigest(version), Tag: "v" + version})
	if err != nil {
		panic(err)
	}
	return b
}

// want is control's word.
func (s *site) want(version string, within time.Duration) {
	f := file(version)
	digest := sha256.Sum256(f)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.within = within
	s.wanted = software.Wanted{Version: version, Digest: hex.EncodeToString(digest[:]), Size: int64(len(f))}
}

// patience is for each step: nodes, controllers and API server share the machine with the
// tests of other packages.
const patience = 6 * time.Minute

// ends waits for how it ends.
func (s *site) ends(phase software.Phase, running string, words ...string) {
	s.t.Helper()
	testkit.EventuallyWithin(s.t, fmt.Sprintf("%s, with %s", phase, running), patience, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.status.Phase != phase || s.status.Running != running || s.status.Wanted != s.wanted.Version {
			return fmt.Errorf("%+v", s.status)
		}
		for _, w := range words {
			if !strings.Contains(s.status.Message, w) {
				s.t.Fatalf("%q lacks %q", s.status.Message, w)
			}
		}
		return nil
	})
}

// settled waits until all of it runs an image, and the guard sleeps.
func (s *site) settled(image string) {
	s.t.Helper()
	testkit.EventuallyWithin(s.t, "all of it runs "+image, patience, func() error {
		d, err := s.Client.AppsV1().Deployments(namespace).Get(s.t.Context(), images.AgentName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		g, err := s.Client.AppsV1().Deployments(namespace).Get(s.t.Context(), images.GuardName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		h, err := s.Client.AppsV1().DaemonSets(hostNamespace).Get(s.t.Context(), images.HostName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		of := func(t corev1.PodTemplateSpec) string { return t.Spec.Containers[0].Image }
		switch {
		case of(d.Spec.Template) != image || of(g.Spec.Template) != image || of(h.Spec.Template) != image:
			return fmt.Errorf("%s, guard %s, hosts %s", of(d.Spec.Template), of(g.Spec.Template), of(h.Spec.Template))
		case d.Status.ObservedGeneration != d.Generation || d.Status.AvailableReplicas != 1 || h.Status.ObservedGeneration != h.Generation || h.Status.NumberReady != 2 || h.Status.UpdatedNumberScheduled != 2:
			return fmt.Errorf("agent %+v, hosts %+v", d.Status, h.Status)
		case *g.Spec.Replicas != 0:
			return errors.New("the guard is awake")
		}
		// Else the next trial may find it on its way to bed, with the patience of the last one.
		pods, err := s.Client.CoreV1().Pods(namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + images.GuardName})
		if err == nil && len(pods.Items) > 0 {
			err = errors.New("the guard's pod is still there")
		}
		return err
	})
}

// TestSite is all of it on a cluster: a good version, one that is never pulled, one
// that is ill, one that somebody else overrules, and good ones through a power
// cut and an outage of the API server.
func TestSite(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	s := start(t)
	const long, short = 30 * time.Minute, 5 * time.Second

	s.want("2.0.0", long)
	s.ends(software.Done, "2.0.0")
	s.settled(image("2.0.0"))

	s.FailPull(imageDigest("2.1.0"))
	s.want("2.1.0", short)
	s.ends(software.Failed, "2.0.0", "it did not come up, 2 times: no pod of muster-edge-host was ready with it")
	s.settled(image("2.0.0"))
	s.mu.Lock()
	if s.starts["2.1.0"] != 0 || s.starts["2.0.0"] != 1 {
		t.Errorf("what can't be pulled has cost the agent that ran: it started %v", s.starts)
	}
	s.mu.Unlock()

	// It comes up, and is never well: the guard's patience ends before its own.
	s.mu.Lock()
	s.sick = "2.3.0"
	s.mu.Unlock()
	s.want("2.3.0", short)
	s.ends(software.Failed, "2.0.0", "2 times: ")
	s.settled(image("2.0.0"))

	// Somebody else's image stays, though it comes in the middle of a trial.
	s.want("2.3.0", long)
	s.mu.Lock()
	s.wanted.Retry++
	s.mu.Unlock()
	testkit.EventuallyWithin(t, "it is on trial", patience, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.status.Running != "2.3.0" {
			return fmt.Errorf("%+v", s.status)
		}
		return nil
	})
	byHand := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{%q:""}},"spec":{"containers":[{"name":"muster-edge","image":%q}]}}}}`, images.Annotation, repository+":v1.9.0")
	_, err := s.Client.AppsV1().Deployments(namespace).Patch(t.Context(), images.AgentName, types.StrategicMergePatchType, []byte(byHand), metav1.PatchOptions{})
	s.must(err)
	testkit.EventuallyWithin(t, "what was put there by hand runs, and the hosts are back", patience, func() error {
		h, err := s.Client.AppsV1().DaemonSets(hostNamespace).Get(t.Context(), images.HostName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if got := h.Spec.Template.Spec.Containers[0].Image; s.status.Running != "1.9.0" || got != image("2.0.0") {
			return fmt.Errorf("%+v, hosts %s", s.status, got)
		}
		return nil
	})
	s.want("2.4.0", long)
	s.ends(software.Done, "2.4.0")
	s.settled(image("2.4.0"))

	// The power goes out as soon as the images are exchanged, and comes back.
	s.want("3.0.0", long)
	testkit.EventuallyWithin(t, "an image is exchanged", patience, func() error {
		h, err := s.Client.AppsV1().DaemonSets(hostNamespace).Get(t.Context(), images.HostName, metav1.GetOptions{})
		if err == nil && h.Spec.Template.Spec.Containers[0].Image != image("3.0.0") {
			err = errors.New("not yet")
		}
		return err
	})
	s.Kill()
	s.Restart()
	s.ends(software.Done, "3.0.0")
	s.settled(image("3.0.0"))

	// The API server goes away in the middle, and the trial goes on where it was.
	s.want("4.0.0", long)
	testkit.EventuallyWithin(t, "it is begun", patience, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.status.Phase != software.Installing {
			return fmt.Errorf("%+v", s.status)
		}
		return nil
	})
	s.StopServer()
	s.StartServer()
	s.ends(software.Done, "4.0.0")
	s.settled(image("4.0.0"))
}
