package kube_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/agent/kube"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubesite"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// centre is a Mirror that a test asks.
type centre struct {
	mu     sync.Mutex
	begun  int
	items  map[string]*wire.WorkloadStatus
	others map[string]*wire.Mirrored
	puts   map[string]int
	real   *mirror.Mirror // which has limits
}

func newCentre(l mirror.Limits) *centre {
	return &centre{items: map[string]*wire.WorkloadStatus{}, others: map[string]*wire.Mirrored{}, puts: map[string]int{}, real: mirror.New(l, nil)}
}

func (c *centre) LeftOut() int   { return c.real.LeftOut() }
func (c *centre) Limits() string { return c.real.Limits() }
func (c *centre) Again() bool    { return c.real.Again() }

func (c *centre) Begin() {
	c.real.Begin()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun++
}

func (c *centre) Put(m *wire.Mirrored) {
	c.real.Put(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others[wire.KeyOf(m)] = m
	c.puts[wire.KeyOf(m)]++
}

func (c *centre) PutWorkload(s *wire.WorkloadStatus) {
	c.real.PutWorkload(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.items[wire.WorkloadKey(s.Name)] = s
}

func (c *centre) Drop(key string) {
	c.real.Drop(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.items, key)
	delete(c.others, key)
}

func (c *centre) item(name string) *wire.WorkloadStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.items[wire.WorkloadKey(name)]
}

func (c *centre) pods(ns string) []*corev1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*corev1.Pod
	for key, m := range c.others {
		if strings.HasPrefix(key, "Pod/"+ns+"/") {
			p := &corev1.Pod{}
			if err := p.Unmarshal(m.Object); err != nil {
				panic(err)
			}
			out = append(out, p)
		}
	}
	return out
}

// site is a cluster with the agent's rights on it, and what the agent is told.
type site struct {
	*kubesite.Cluster
	t    *testing.T // the part that runs
	root *testing.T
	id   fleet.SiteID
	dir  string
	cfg  *rest.Config
	dyn  dynamic.Interface
	mu   sync.Mutex
	want map[string]string // item → content
	blob map[string][]byte
	good map[string]string // item → digest
	said map[string]string // item → digest, or why not
	bad  map[string]bool   // items whose content can't be had

	limits mirror.Limits // of what is told of it

	*agentRun
}

// agentRun is one life of the agent.
type agentRun struct {
	kube       *kube.Kube
	centre     *centre
	conditions map[string]string // under the site's lock
	stop       func()
}

const (
	ns     = "acme-shop"
	nsItem = "Namespace/-/" + ns
)

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Cluster: kubesite.Start(t, kubesite.Options{Nodes: 2}), t: t, root: t, id: fleet.SiteID{Tenant: "acme", Name: "lille"}, dir: t.TempDir(), want: map[string]string{}, blob: map[string][]byte{}, good: map[string]string{}, said: map[string]string{}, bad: map[string]bool{}, limits: mirror.DefaultLimits}
	ctx := t.Context()
	if _, err := s.Client.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "muster-edge"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bindTo(s, "muster-edge", kube.Rules()...)
	s.cfg = s.ConfigAs("default", "muster-edge")
	s.dyn = dynamic.NewForConfigOrDie(s.Config)
	s.start()
	return s
}

// bindTo gives the agent rights on the cluster.
func bindTo(s *site, name string, rules ...rbacv1.PolicyRule) {
	s.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := s.Client.RbacV1().ClusterRoles().Create(s.t.Context(), role, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "muster-edge"}}}
	if _, err := s.Client.RbacV1().ClusterRoleBindings().Create(s.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// start starts the agent; the life before must be over. change may be about its options.
func (s *site) start(change ...func(*kube.Options)) {
	s.t.Helper()
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(s.t.Output(), nil))
	}
	o := kube.Options{Dir: s.dir, Config: s.cfg, Logger: log, MaxBackoff: 2 * time.Second, ProbeEvery: time.Second}
	for _, c := range change {
		c(&o)
	}
	k, err := kube.New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	run := &agentRun{kube: k, centre: newCentre(s.limits), conditions: map[string]string{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = k.Run(ctx, run.centre, func(typ, status, reason, message string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			run.conditions[typ] = status + " " + reason + " " + message
		})
	}()
	run.stop = sync.OnceFunc(func() { cancel(); <-done })
	s.root.Cleanup(run.stop)
	s.agentRun = run
	s.mu.Lock()
	any := len(s.want) > 0
	s.mu.Unlock()
	if any {
		s.send()
	}
}

// send hands over the set as the agent does.
func (s *site) send() {
	s.mu.Lock()
	set := agent.Set{
		Site: s.id,
		Blob: func(d string) ([]byte, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if b, ok := s.blob[d]; ok {
				return b, nil
			}
			return nil, os.ErrNotExist
		},
		Applied: func(name, digest string, err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.said[name] = digest; err != nil {
				s.said[name] = err.Error()
			}
		},
		Good: func(name, digest string) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.good[name] = digest
			return true
		},
	}
	for _, name := range slices.Sorted(maps.Keys(s.want)) {
		it := agent.SetItem{Name: name, Digest: wire.DigestOf([]byte(s.want[name])), Good: s.good[name]}
		if s.bad[name] {
			it.Err = errors.New("fetch: not connected")
		} else {
			s.blob[it.Digest] = []byte(s.want[name])
		}
		set.Items = append(set.Items, it)
	}
	k := s.kube
	s.mu.Unlock()
	k.TakeSet(set)
}

// set changes what is wanted, by item; empty content: no more.
func (s *site) set(change map[string]string) {
	s.mu.Lock()
	for name, content := range change {
		if content == "" {
			delete(s.want, name)
		} else {
			s.want[name] = content
		}
	}
	s.mu.Unlock()
	s.send()
}

// put adds objects to what is wanted, under the names that they have.
func (s *site) put(objects ...string) {
	s.t.Helper()
	change := map[string]string{}
	for _, text := range objects {
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON([]byte(text)); err != nil {
			s.t.Fatalf("%v in %s", err, text)
		}
		g := o.GroupVersionKind()
		change[workload.ItemName(g.Group, g.Kind, o.GetNamespace(), o.GetName())] = text
	}
	s.set(change)
}

// is waits until an item is in a state, and returns its status. It must not have been in
// one of the others first.
func (s *site) is(name string, want workload.State, says string, never ...workload.State) *wire.WorkloadStatus {
	s.t.Helper()
	var got *wire.WorkloadStatus
	testkit.Eventually(s.t, fmt.Sprintf("%s is %s %q", name, want, says), func() error {
		got = s.centre.item(name)
		s.mu.Lock()
		digest := wire.DigestOf([]byte(s.want[name]))
		s.mu.Unlock()
		if got.GetWanted() != digest {
			return fmt.Errorf("told of another version: %v", got)
		}
		if slices.Contains(never, workload.State(got.State)) {
			s.t.Fatalf("%s was %s: %v", name, got.State, got) // what it must not be
		}
		if got.State != string(want) || !strings.Contains(got.Reason+": "+got.Message, says) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	return got
}

func (s *site) gone(name string) {
	s.t.Helper()
	testkit.Eventually(s.t, name+" is gone", func() error {
		if got := s.centre.item(name); got != nil {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}

func (s *site) condition(typ string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conditions[typ]
}

func (s *site) deployment(name string) *appsv1.Deployment {
	s.t.Helper()
	d, err := s.Client.AppsV1().Deployments(ns).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *site) configMap(name string) *corev1.ConfigMap {
	cm, err := s.Client.CoreV1().ConfigMaps(ns).Get(s.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		s.t.Fatal(err)
	}
	return cm
}

func quoted(annotations ...string) string {
	var out []string
	for i := 0; i < len(annotations); i += 2 {
		out = append(out, fmt.Sprintf("%q:%q", annotations[i], annotations[i+1]))
	}
	return strings.Join(out, ",")
}

func namespace(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":{"muster.dev/tenant":"acme"}}}`, name)
}

func configMap(name, value string, annotations ...string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q,"annotations":{%s}},"data":{"v":%q}}`, name, ns, quoted(annotations...), value)
}

func deployment(name, image string, replicas int, annotations ...string) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"namespace":%q,"annotations":{%s}},"spec":{"replicas":%d,"selector":{"matchLabels":{"app":%q}},
		"template":{"metadata":{"labels":{"app":%q}},"spec":{"terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":%q,"resources":{"requests":{"cpu":"1m"},"limits":{"cpu":"10m"}}}]}}}}`, name, ns, quoted(annotations...), replicas, name, name, image)
}

const (
	web    = "Deployment.apps/" + ns + "/web"
	apiMap = "ConfigMap/" + ns + "/settings"
)

func TestOnASite(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := newSite(t)
	ctx := t.Context()

	t.Run("objects come up, and their pods are shown", func(t *testing.T) {
		s.t = t
		s.put(deployment("web", "nginx:1", 2), configMap("settings", "1"), namespace(ns))
		s.is(web, workload.Ready, "", workload.Failed)
		s.is(apiMap, workload.Ready, "")
		d := s.deployment("web")
		if d.Labels[workload.Owned] != "true" || d.Annotations[workload.Digest] != s.centre.item(web).Digest {
			t.Errorf("marks: %v %v", d.Labels, d.Annotations)
		}
		testkit.Eventually(t, "two running pods are mirrored", func() error {
			running := 0
			for _, p := range s.centre.pods(ns) {
				if p.Status.Phase == corev1.PodRunning && p.Spec.NodeName != "" && len(p.OwnerReferences) == 1 && p.ManagedFields == nil {
					running++
				}
			}
			if running != 2 {
				return fmt.Errorf("%d", running)
			}
			return nil
		})
		var status appsv1.DeploymentStatus
		if err := json.Unmarshal(s.centre.item(web).Status, &status); err != nil || status.AvailableReplicas != 2 {
			t.Errorf("status %s, %v", s.centre.item(web).Status, err)
		}
		testkit.EventuallyTrue(t, "nodes and events are mirrored, and the mirror has begun, once", func() bool {
			s.centre.mu.Lock()
			defer s.centre.mu.Unlock()
			events := 0
			for key := range s.centre.others {
				if strings.HasPrefix(key, "Event/"+ns+"/") {
					events++
				}
			}
			return events > 0 && s.centre.others["Node//node-1"] != nil && s.centre.begun == 1
		})
		testkit.EventuallyTrue(t, "the agent knows what is in effect and what is good", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			d := wire.DigestOf([]byte(s.want[web]))
			return s.said[web] == d && s.good[web] == d
		})
	})

	t.Run("what somebody changes is put back", func(t *testing.T) {
		s.t = t
		patch := []byte(`{"spec":{"replicas":5}}`)
		if _, err := s.Client.AppsV1().Deployments(ns).Patch(ctx, "web", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
			t.Fatal(err)
		}
		testkit.EventuallyTrue(t, "two replicas are wanted again", func() bool { return *s.deployment("web").Spec.Replicas == 2 })
		s.is(web, workload.Ready, "what kubectl-edit changed")
		if err := s.Client.CoreV1().ConfigMaps(ns).Delete(ctx, "settings", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		testkit.EventuallyTrue(t, "the settings are there again", func() bool { return s.configMap("settings") != nil })
		// What others add of their own is none of Muster's business.
		if _, err := s.Client.AppsV1().Deployments(ns).Patch(ctx, "web", types.MergePatchType, []byte(`{"metadata":{"annotations":{"theirs":"1"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		s.put(configMap("settings", "2"))
		s.is(apiMap, workload.Ready, "")
		if s.deployment("web").Annotations["theirs"] != "1" || s.centre.item(web).Drifted {
			t.Error("an annotation of somebody else was taken for drift")
		}
	})

	t.Run("or left, and shown", func(t *testing.T) {
		s.t = t
		s.put(configMap("settings", "3", workload.Drift, workload.Leave))
		s.is(apiMap, workload.Ready, "")
		if _, err := s.Client.CoreV1().ConfigMaps(ns).Patch(ctx, "settings", types.MergePatchType, []byte(`{"data":{"v":"theirs"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
			t.Fatal(err)
		}
		testkit.EventuallyTrue(t, "it is shown, with the field", func() bool {
			st := s.centre.item(apiMap)
			return st.Drifted && slices.Equal(st.Changed, []string{"data.v"})
		})
		// Whoever makes the field theirs with what is wanted has changed nothing of it.
		if _, err := s.Client.CoreV1().ConfigMaps(ns).Patch(ctx, "settings", types.MergePatchType, []byte(`{"data":{"v":"3"},"metadata":{"labels":{"theirs":"1"}}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
			t.Fatal(err)
		}
		testkit.EventuallyTrue(t, "the field is as it should be", func() bool { st := s.centre.item(apiMap); return st.Drifted && len(st.Changed) == 0 })
		if _, err := s.Client.CoreV1().ConfigMaps(ns).Patch(ctx, "settings", types.MergePatchType, []byte(`{"data":{"v":"theirs"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
			t.Fatal(err)
		}
		testkit.EventuallyTrue(t, "it is changed again", func() bool { return len(s.centre.item(apiMap).Changed) == 1 })
		if v := s.configMap("settings").Data["v"]; v != "theirs" {
			t.Errorf("it was changed back to %q", v)
		}
		s.put(configMap("settings", "4"))
		s.is(apiMap, workload.Ready, "")
		if v := s.configMap("settings").Data["v"]; v != "4" || s.centre.item(apiMap).Drifted {
			t.Errorf("a new version leaves %q", v)
		}
	})

	// What an API server defaults, or writes another way, is no change of anybody's; nor are
	// the fields that stayed. What is in them, and a Secret's keys, nobody is told.
	t.Run("the fields are told that somebody changed, and no others", func(t *testing.T) {
		s.t = t
		leave := map[string]string{workload.Drift: workload.Leave}
		drift, err := json.Marshal(map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "fields", "namespace": ns, "annotations": leave, "labels": map[string]string{"a.b/c": "1", "d": "1"}},
			"spec": map[string]any{"replicas": 1, "selector": map[string]any{"matchLabels": map[string]string{"app": "fields"}}, "template": map[string]any{"metadata": map[string]any{"labels": map[string]string{"app": "fields"}},
				"spec": map[string]any{"securityContext": map[string]any{}, "containers": []any{
					map[string]any{"name": "side", "image": "nginx:1"},
					map[string]any{"name": "main", "image": "nginx:1", "args": []string{"a"}, "ports": []any{map[string]any{"containerPort": 80}}, "resources": map[string]any{"limits": map[string]string{"cpu": "1000m", "memory": "1024Mi"}}},
				}}}}})
		if err != nil {
			t.Fatal(err)
		}
		secret := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"fields","namespace":"` + ns + `","annotations":{"` + workload.Drift + `":"` + workload.Leave + `"}},"data":{"password":"b2xk","user":"bWU="}}`
		s.put(string(drift), secret)
		item, secretItem := "Deployment.apps/"+ns+"/fields", "Secret/"+ns+"/fields"
		s.is(item, workload.Ready, "")
		s.is(secretItem, workload.Ready, "")
		patch := `{"metadata":{"labels":{"d":"2"}},"spec":{"replicas":2,"paused":true,"template":{"spec":{"containers":[{"name":"main","image":"nginx:2","resources":{"limits":{"cpu":"2"}}}]}}}}`
		if _, err := s.Client.AppsV1().Deployments(ns).Patch(ctx, "fields", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Client.CoreV1().Secrets(ns).Patch(ctx, "fields", types.MergePatchType, []byte(`{"data":{"password":"bmV3"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the fields are told", func() error {
			is, of := s.centre.item(item), s.centre.item(secretItem)
			want := []string{"metadata.labels.d", "spec.replicas", "spec.template.spec.containers[main].image", "spec.template.spec.containers[main].resources.limits.cpu"}
			if !is.Drifted || !slices.Equal(is.Changed, want) || !of.Drifted || !slices.Equal(of.Changed, []string{"data"}) {
				return fmt.Errorf("%v %q, %v %q", is.Drifted, is.Changed, of.Drifted, of.Changed)
			}
			return nil
		})
		s.set(map[string]string{item: "", secretItem: ""})
		testkit.EventuallyTrue(t, "they are gone", func() bool { return s.centre.item(item) == nil && s.centre.item(secretItem) == nil })
	})

	// The default: who is Optimistic has no other version put in place of what failed, whatever
	// time goes by, by no restart either, and nothing else waits for it.
	t.Run("an optimistic update that does not become ready stays", func(t *testing.T) {
		s.t = t
		item := "Deployment.apps/" + ns + "/bold"
		s.put(deployment("bold", "nginx:1", 1, workload.Apply, workload.Optimistic, workload.ApplyDeadline, "1s"))
		s.is(item, workload.Ready, "")
		s.FailPull("broken")
		defer s.HealPull("broken")
		s.put(deployment("bold", "broken:2", 1, workload.Apply, workload.Optimistic, workload.ApplyDeadline, "1s"))
		stays := func() {
			t.Helper()
			testkit.Eventually(t, "it is in effect and says what it waits for", func() error {
				st, d := s.centre.item(item), s.deployment("bold")
				if st == nil || st.Digest != st.Wanted || st.State != string(workload.Progressing) || st.Reason != "ImagePullBackOff" && st.Reason != "ErrImagePull" {
					return fmt.Errorf("%v", st)
				}
				if image := d.Spec.Template.Spec.Containers[0].Image; image != "broken:2" {
					return fmt.Errorf("image %s", image)
				}
				return nil
			})
		}
		stays()
		late := time.Now().Add(3 * time.Second) // the deadline of the pessimistic is long over
		for n := 1; time.Now().Before(late); n++ {
			other := fmt.Sprint("other", n)
			s.put(configMap("beside", other))
			s.is("ConfigMap/"+ns+"/beside", workload.Ready, "", workload.Failed)
			stays()
		}
		s.stop()
		s.start()
		stays()
		s.HealPull("broken")
		if st := s.is(item, workload.Ready, "", workload.RolledBack, workload.Failed); st.Digest != st.Wanted {
			t.Errorf("%v", st)
		}
		s.set(map[string]string{item: "", "ConfigMap/" + ns + "/beside": ""})
		testkit.EventuallyTrue(t, "it is gone", func() bool { return s.centre.item(item) == nil })
	})

	t.Run("what is not Muster's is not touched", func(t *testing.T) {
		s.t = t
		if _, err := s.Client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Data: map[string]string{"v": "theirs"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		theirs := "ConfigMap/" + ns + "/theirs"
		s.put(configMap("theirs", "ours"))
		s.is(theirs, workload.Failed, "NameClash: it exists on the site and is not Muster's")
		s.put(namespace("kube-public"), strings.ReplaceAll(configMap("x", "1"), ns, "kube-public"))
		s.is("Namespace/-/kube-public", workload.Failed, "NameClash")
		s.is("ConfigMap/kube-public/x", workload.Waiting, "its namespace kube-public: it exists")
		s.put(strings.ReplaceAll(configMap("x", "1"), ns, "kube-system"))
		s.is("ConfigMap/kube-system/x", workload.Failed, "NamespaceNotOwned")
		if v := s.configMap("theirs").Data["v"]; v != "theirs" {
			t.Errorf("it was overwritten: %q", v)
		}
		// The item goes: what is theirs stays.
		s.set(map[string]string{theirs: "", "Namespace/-/kube-public": "", "ConfigMap/kube-public/x": "", "ConfigMap/kube-system/x": ""})
		s.gone(theirs)
		s.gone("Namespace/-/kube-public")
		if s.configMap("theirs") == nil {
			t.Fatal("it was removed")
		}
		// Somebody gives it to Muster.
		s.put(configMap("theirs", "ours"))
		s.is(theirs, workload.Failed, "NameClash")
		if _, err := s.Client.CoreV1().ConfigMaps(ns).Patch(ctx, "theirs", types.MergePatchType, []byte(`{"metadata":{"labels":{"muster.dev/owned":"true"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		s.is(theirs, workload.Ready, "")
		if v := s.configMap("theirs").Data["v"]; v != "ours" {
			t.Errorf("it holds %q", v)
		}
	})

	t.Run("content that is not what its item says is refused", func(t *testing.T) {
		s.t = t
		s.set(map[string]string{"ConfigMap/" + ns + "/hostile": strings.ReplaceAll(configMap("hostile", "1"), ns, "kube-system"), "Secret/" + ns + "/no": "{"})
		s.is("ConfigMap/"+ns+"/hostile", workload.Failed, "not what the item names")
		s.is("Secret/"+ns+"/no", workload.Failed, "no object in JSON")
		s.set(map[string]string{"ConfigMap/" + ns + "/hostile": "", "Secret/" + ns + "/no": ""})
		s.gone("ConfigMap/" + ns + "/hostile")
	})

	t.Run("what the API server refuses is told in its words", func(t *testing.T) {
		s.t = t
		s.put(fmt.Sprintf(`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q","namespace":%q},"spec":{"hard":{"services":"0","pods":"3"}}}`, ns))
		s.is("ResourceQuota/"+ns+"/q", workload.Ready, "")
		svc := "Service/" + ns + "/web"
		text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":%q},"spec":{"ports":[{"port":80}],"selector":{"app":"web"}}}`, ns)
		testkit.EventuallyTrue(t, "the quota counts", func() bool {
			q, err := s.Client.CoreV1().ResourceQuotas(ns).Get(ctx, "q", metav1.GetOptions{})
			return err == nil && q.Status.Used.Pods() != nil && len(q.Status.Used) == 2
		})
		s.put(text, deployment("web", "nginx:1", 5))
		s.is(svc, workload.Failed, "exceeded quota")
		s.is(web, workload.Failed, "exceeded quota")
		s.put(fmt.Sprintf(`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q","namespace":%q},"spec":{"hard":{"services":"9","pods":"50"}}}`, ns), deployment("web", "nginx:1", 2))
		s.is(svc, workload.Ready, "")
		s.is(web, workload.Ready, "")
		s.put(configMap("big", strings.Repeat("x", 1200<<10)))
		s.is("ConfigMap/"+ns+"/big", workload.Failed, "oo l")
		s.set(map[string]string{"ConfigMap/" + ns + "/big": ""})
	})

	t.Run("pods that a quota or a policy of the site refuses are told of all kinds, until it goes", func(t *testing.T) {
		s.t = t
		s.refusedPods()
	})

	t.Run("ports of the nodes are bounded by a quota", func(t *testing.T) {
		s.t = t
		s.nodePorts()
	})

	t.Run("a kind that the site lacks is waited for", func(t *testing.T) {
		s.t = t
		thing := "Thing.e.com/" + ns + "/one"
		s.put(fmt.Sprintf(`{"apiVersion":"e.com/v1","kind":"Thing","metadata":{"name":"one","namespace":%q},"spec":{"a":1}}`, ns))
		s.is(thing, workload.Failed, "does not know Thing of e.com/v1; install the CustomResourceDefinition of Thing.e.com, with the version v1, there, and it is applied")
		s.apply(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.e.com"},"spec":{"group":"e.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing","singular":"thing","listKind":"ThingList"},
			"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)
		s.is(thing, workload.Failed, "Forbidden")
		bindTo(s, "things", rbacv1.PolicyRule{APIGroups: []string{"e.com"}, Resources: []string{"things"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}})
		s.is(thing, workload.Ready, "")
		things := s.dyn.Resource(schema.GroupVersionResource{Group: "e.com", Version: "v1", Resource: "things"}).Namespace(ns)
		if _, err := things.Patch(ctx, "one", types.MergePatchType, []byte(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"NoDisk","message":"no disk"}]}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		s.is(thing, workload.Progressing, "NoDisk: Ready is false: no disk")
		s.set(map[string]string{thing: ""})
		s.gone(thing)
		if _, err := things.Get(ctx, "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("it is still there: %v", err)
		}
	})

	t.Run("a pessimistic update that does not become ready is rolled back", func(t *testing.T) {
		s.t = t
		good := s.deployment("web").Annotations[workload.Digest]
		s.FailPull("broken")
		s.put(deployment("web", "broken:2", 2, workload.Apply, workload.Pessimistic, workload.ApplyDeadline, "4s"))
		s.is(web, workload.Progressing, "", workload.Failed)
		st := s.is(web, workload.RolledBack, "not ready within 4s", workload.Failed)
		if st.Digest == st.Wanted {
			t.Errorf("%v", st)
		}
		testkit.EventuallyTrue(t, "the good one is in effect again", func() bool {
			d := s.deployment("web")
			return d.Spec.Template.Spec.Containers[0].Image == "nginx:1" && d.Annotations[workload.Digest] == good && s.centre.item(web).Digest == good
		})
		// A restart does not try it again.
		s.stop()
		s.start()
		s.is(web, workload.RolledBack, "not ready within 4s", workload.Progressing, workload.Failed)
		// What the disk has lost is not gone back to: that is told.
		s.mu.Lock()
		delete(s.blob, s.good[web])
		s.mu.Unlock()
		s.put(deployment("web", "broken:3", 2, workload.Apply, workload.Pessimistic, workload.ApplyDeadline, "2s"))
		s.is(web, workload.Failed, "nothing to go back to", workload.RolledBack)
		s.HealPull("broken")
		s.put(deployment("web", "nginx:3", 2, workload.Apply, workload.Pessimistic, workload.ApplyDeadline, "60s"))
		s.is(web, workload.Ready, "", workload.Failed, workload.RolledBack)
	})

	t.Run("a bundle moves and rolls back together", func(t *testing.T) {
		s.t = t
		in := []string{workload.Bundle, "b", workload.Apply, workload.Pessimistic, workload.ApplyDeadline, "4s"}
		a, app := "ConfigMap/"+ns+"/a", "Deployment.apps/"+ns+"/app"
		s.put(configMap("a", "1", in...), deployment("app", "app:1", 1, in...))
		s.is(app, workload.Ready, "")
		s.is(a, workload.Ready, "")
		// One that the API server refuses keeps the other from being touched.
		s.put(configMap("a", "2", in...), strings.Replace(deployment("app", "app:2", 1, in...), `"name":"c"`, `"name":"C!"`, 1))
		s.is(app, workload.Failed, "Invalid")
		s.is(a, workload.Waiting, "waits for "+app)
		if v := s.configMap("a").Data["v"]; v != "1" {
			t.Errorf("half of a bundle was applied: %q", v)
		}
		s.FailPull("app:3")
		s.put(configMap("a", "3", in...), configMap("new", "3", in...), deployment("app", "app:3", 1, in...))
		s.is(app, workload.RolledBack, "not ready within")
		s.is(a, workload.RolledBack, "")
		testkit.EventuallyTrue(t, "all of it is as it was", func() bool {
			return s.configMap("a").Data["v"] == "1" && s.configMap("new") == nil && s.deployment("app").Spec.Template.Spec.Containers[0].Image == "app:1"
		})
		s.HealPull("app:3")
		s.set(map[string]string{a: "", app: "", "ConfigMap/" + ns + "/new": ""})
		s.gone(app)
	})

	t.Run("images are pulled before the old version goes", func(t *testing.T) {
		s.t = t
		s.FailPull("nginx:9")
		with := []string{workload.Prepull, "true", workload.PrepullDeadline, "1m"}
		s.put(deployment("web", "nginx:9", 2, with...))
		s.is(web, workload.Waiting, "0 of 2 nodes have them")
		s.is(web, workload.Waiting, "node-")
		if image := s.deployment("web").Spec.Template.Spec.Containers[0].Image; image != "nginx:3" {
			t.Errorf("%s runs before its image is there", image)
		}
		if n := len(s.centre.pods(ns)); n != 2 {
			t.Errorf("%d pods are shown, want those of the Deployment alone", n)
		}
		s.HealPull("nginx:9")
		s.is(web, workload.Ready, "", workload.Failed)
		testkit.EventuallyTrue(t, "what pulled is gone", func() bool {
			list, err := s.Client.AppsV1().DaemonSets(ns).List(ctx, metav1.ListOptions{})
			return err == nil && len(list.Items) == 0
		})
	})

	t.Run("images that can't be pulled in time are tried again", func(t *testing.T) {
		s.t = t
		s.FailPull("nginx:10")
		s.put(deployment("web", "nginx:10", 2, workload.Prepull, "true", workload.PrepullDeadline, "3s"))
		s.is(web, workload.Failed, "the old version stays")
		if image := s.deployment("web").Spec.Template.Spec.Containers[0].Image; image != "nginx:9" {
			t.Errorf("%s runs before its image is there", image)
		}
		s.HealPull("nginx:10")
		s.is(web, workload.Ready, "")
	})

	t.Run("logs, exec and removal of pods are served, and nothing else", func(t *testing.T) {
		s.t = t
		s.serves(t)
	})

	t.Run("a pod that crashes is shown with the reason", func(t *testing.T) {
		s.t = t
		s.put(strings.Replace(deployment("crashes", "busybox", 1), `"name":"c"`, `"name":"c","command":["sh","-c","exit 7"]`, 1))
		item := "Deployment.apps/" + ns + "/crashes"
		s.is(item, workload.Progressing, "CrashLoopBackOff: 0 of 1 replicas are available; pod crashes-")
		s.set(map[string]string{item: ""})
		s.gone(item)
	})

	t.Run("a Job runs again when it is another one", func(t *testing.T) {
		s.t = t
		job := func(image string) string {
			return fmt.Sprintf(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"once","namespace":%q},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":%q}]}}}}`, ns, image)
		}
		item := "Job.batch/" + ns + "/once"
		s.put(job("perl:1"))
		s.is(item, workload.Ready, "")
		s.put(job("perl:2"))
		s.is(item, workload.Ready, "")
		j, err := s.Client.BatchV1().Jobs(ns).Get(ctx, "once", metav1.GetOptions{})
		if err != nil || j.Spec.Template.Spec.Containers[0].Image != "perl:2" {
			t.Errorf("%v, %v", j.Spec, err)
		}
	})

	t.Run("what can't be changed is another one when it is made anew", func(t *testing.T) {
		s.t = t
		job := func(origin string) string {
			return fmt.Sprintf(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"anew","namespace":%q%s},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"perl"}]}}}}`, ns, origin)
		}
		of := func(uid string) string { return fmt.Sprintf(`,"annotations":{%q:%q}`, workload.Origin, uid) }
		item := "Job.batch/" + ns + "/anew"
		uid := func() types.UID {
			j, err := s.Client.BatchV1().Jobs(ns).Get(ctx, "anew", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return j.UID
		}
		s.put(job("")) // by a control that did not say so
		s.is(item, workload.Ready, "")
		first := uid()
		s.put(job(of("a")))
		s.is(item, workload.Ready, "")
		if uid() != first {
			t.Error("it ran again because it is told whose it is")
		}
		s.put(job(of("b")))
		s.is(item, workload.Ready, "")
		if uid() == first {
			t.Error("it did not run again")
		}
		fixed := func(uid, v string) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"fixed","namespace":%q%s},"immutable":true,"data":{"v":%q}}`, ns, of(uid), v)
		}
		item = "ConfigMap/" + ns + "/fixed"
		s.put(fixed("a", "1"))
		s.is(item, workload.Ready, "")
		s.put(fixed("b", "2"))
		s.is(item, workload.Ready, "")
		if v := s.configMap("fixed").Data["v"]; v != "2" {
			t.Errorf("it holds %q", v)
		}
	})

	t.Run("what was made anew replaces what can't be changed, but for data", func(t *testing.T) {
		s.t = t
		s.madeAnew()
	})

	t.Run("a version of a kind that the site lacks is told, and nothing else held up", func(t *testing.T) {
		s.t = t
		s.otherVersions()
	})

	t.Run("what the site's Kubernetes does not know of a kind it does know", func(t *testing.T) {
		s.t = t
		item := "ConfigMap/" + ns + "/newer"
		s.put(fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"newer","namespace":%q},"fromAnotherVersion":true}`, ns))
		s.is(item, workload.Failed, "Invalid: the site's Kubernetes (v")
		s.is(item, workload.Failed, ".fromAnotherVersion")
		s.put(configMap("newer", "1"))
		s.is(item, workload.Ready, "")
	})

	t.Run("an autoscaler's replicas are not put back", func(t *testing.T) {
		s.t = t
		s.put(deployment("scaled", "nginx", 1), fmt.Sprintf(`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"scaled","namespace":%q},"spec":{"minReplicas":3,"maxReplicas":4,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"scaled"},"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}]}}`, ns))
		item := "Deployment.apps/" + ns + "/scaled"
		s.is(item, workload.Ready, "")
		if _, err := s.Client.AppsV1().Deployments(ns).Patch(ctx, "scaled", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{FieldManager: "kube-controller-manager"}, "scale"); err != nil {
			t.Fatal(err)
		}
		s.put(configMap("settings", "5"))
		s.is(apiMap, workload.Ready, "")
		testkit.EventuallyTrue(t, "three are up", func() bool { return s.deployment("scaled").Status.AvailableReplicas == 3 })
		if st := s.is(item, workload.Ready, ""); st.Drifted || st.Message != "" {
			t.Errorf("%v", st)
		}
		s.set(map[string]string{item: "", "HorizontalPodAutoscaler.autoscaling/" + ns + "/scaled": ""})
	})

	t.Run("what could not be fetched is not removed", func(t *testing.T) {
		s.t = t
		s.mu.Lock()
		s.bad[apiMap], s.want[apiMap] = true, configMap("settings", "6")
		s.mu.Unlock()
		s.send()
		s.is(apiMap, workload.Waiting, "Fetching: fetch: not connected")
		if v := s.configMap("settings").Data["v"]; v != "5" {
			t.Errorf("%q", v)
		}
		s.mu.Lock()
		delete(s.bad, apiMap)
		s.mu.Unlock()
		s.send()
		s.is(apiMap, workload.Ready, "")
	})

	t.Run("a namespace that somebody deletes comes back whole", func(t *testing.T) {
		s.t = t
		was, err := s.Client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Client.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "it is another one", func() error {
			now, err := s.Client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
			if err == nil && now.UID == was.UID {
				err = errors.New("still the old one")
			}
			return err
		})
		s.is(web, workload.Ready, "")
		s.is(apiMap, workload.Ready, "")
		testkit.EventuallyTrue(t, "its pods are shown, and the old ones not", func() bool {
			n := 0
			for _, p := range s.centre.pods(ns) {
				if p.DeletionTimestamp != nil {
					return false
				}
				if p.Labels["app"] == "web" {
					n++
				}
			}
			return n == 2
		})
	})

	t.Run("what was taken away while the agent was off is removed, and nothing else", func(t *testing.T) {
		s.t = t
		s.stop()
		s.mu.Lock()
		delete(s.want, web)
		s.mu.Unlock()
		s.start()
		testkit.EventuallyTrue(t, "the Deployment is gone", func() bool {
			_, err := s.Client.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
		s.is(apiMap, workload.Ready, "")
		testkit.EventuallyTrue(t, "its pods are not shown any more", func() bool {
			return !slices.ContainsFunc(s.centre.pods(ns), func(p *corev1.Pod) bool { return p.Labels["app"] == "web" })
		})
		// So it is without its state.
		s.stop()
		s.dir = s.root.TempDir()
		s.mu.Lock()
		// None of the kind is wanted, so that it must be searched for.
		maps.DeleteFunc(s.want, func(name, _ string) bool { return strings.HasPrefix(name, "ConfigMap/") })
		s.mu.Unlock()
		s.start()
		testkit.EventuallyTrue(t, "the ConfigMap is gone", func() bool { return s.configMap("settings") == nil })
		if s.configMap("kube-root-ca.crt") == nil {
			t.Error("the cluster's own is gone, too")
		}
		// An agent that was told nothing removes nothing.
		s.stop()
		want := s.want
		s.want = map[string]string{}
		s.start()
		testkit.EventuallyTrue(t, "it is at work", func() bool { return strings.HasPrefix(s.condition(kube.Reachable), "True") })
		testkit.EventuallyTrue(t, "it has begun", func() bool { s.centre.mu.Lock(); defer s.centre.mu.Unlock(); return s.centre.begun == 1 })
		if _, err := s.Client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		s.want = want
		s.set(map[string]string{})
		s.is(nsItem, workload.Ready, "")
	})

	t.Run("a site that resets itself says what is left, on another disk too", func(t *testing.T) {
		s.t = t
		s.put(configMap("held", "1"))
		s.is("ConfigMap/"+ns+"/held", workload.Ready, "")
		s.stop()
		s.dir = t.TempDir() // of another pod
		before := s.want
		s.want = map[string]string{}
		obj := s.configMap("held")
		obj.Finalizers = []string{"example.com/held"}
		if _, err := s.Client.CoreV1().ConfigMaps(ns).Update(ctx, obj, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.start()
		s.send()
		testkit.Eventually(t, "what is held is all that is left", func() error {
			if left := s.kube.Left(); left != "2 objects of workloads" { // and its namespace
				return fmt.Errorf("%q", left)
			}
			return nil
		})
		obj = s.configMap("held")
		obj.Finalizers = nil
		if _, err := s.Client.CoreV1().ConfigMaps(ns).Update(ctx, obj, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "nothing is left", func() error {
			if left := s.kube.Left(); left != "" {
				return fmt.Errorf("%q", left)
			}
			return nil
		})
		if _, err := s.Client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("nothing is left, it says, and the namespace: %v", err)
		}
		s.set(before)
		s.is(nsItem, workload.Ready, "")
	})

	t.Run("the end of all removes the namespace", func(t *testing.T) {
		s.t = t
		change := map[string]string{}
		for name := range s.want {
			change[name] = ""
		}
		s.set(change)
		s.gone(nsItem)
		if _, err := s.Client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%v", err)
		}
		testkit.EventuallyTrue(t, "no pod is shown", func() bool { return len(s.centre.pods(ns)) == 0 })
	})
}

// apply makes an object as the site's administrator does.
func (s *site) apply(text string) {
	s.t.Helper()
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(text)); err != nil {
		s.t.Fatal(err)
	}
	gvr := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := s.dyn.Resource(gvr).Create(s.t.Context(), o, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// tunnels serves a tunnel for each connection to the address that it returns.
func (s *site) tunnels(t *testing.T) string {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	k := s.kube
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go k.Serve(context.Background(), c)
		}
	}()
	return "http://" + ln.Addr().String()
}

func (s *site) serves(t *testing.T) {
	ctx := t.Context()
	cfg := &rest.Config{Host: s.tunnels(t)}
	client := kubernetes.NewForConfigOrDie(cfg)
	running := func() (pod string) {
		for _, p := range s.centre.pods(ns) {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				pod = p.Name
			}
		}
		return pod
	}
	pod := running()
	s.Say(ns, pod, "hello from the site")
	b, err := client.CoreV1().Pods(ns).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil || !strings.Contains(string(b), "hello from the site") {
		t.Errorf("logs %q, %v", b, err)
	}
	follow, err := client.CoreV1().Pods(ns).GetLogs(pod, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(follow)
	for lines.Scan() && !strings.Contains(lines.Text(), "hello") {
	}
	s.Say(ns, pod, "and more")
	if !lines.Scan() || !strings.Contains(lines.Text(), "and more") {
		t.Errorf("followed: %q, %v", lines.Text(), lines.Err())
	}
	_ = follow.Close()

	for name, dial := range map[string]func(string) (remotecommand.Executor, error){
		"websocket": func(u string) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(cfg, http.MethodGet, u)
		},
		"SPDY": func(u string) (remotecommand.Executor, error) {
			at, err := url.Parse(u)
			if err != nil {
				return nil, err
			}
			return remotecommand.NewSPDYExecutor(cfg, http.MethodPost, at)
		},
	} {
		req := client.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name(pod).SubResource("exec").VersionedParams(&corev1.PodExecOptions{Command: []string{"cat"}, Stdin: true, Stdout: true}, scheme.ParameterCodec)
		exec, err := dial(req.URL().String())
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := exec.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader("echoed"), Stdout: &out}); err != nil || out.String() != "echoed" {
			t.Errorf("%s: exec says %q, %v", name, out.String(), err)
		}
	}
	// attach is of what the container says from then on.
	req := client.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name(pod).SubResource("attach").VersionedParams(&corev1.PodAttachOptions{Stdout: true, Stderr: true}, scheme.ParameterCodec)
	attach, err := remotecommand.NewWebSocketExecutor(cfg, http.MethodGet, req.URL().String())
	if err != nil {
		t.Fatal(err)
	}
	attached, leave := context.WithCancel(ctx)
	heard := &lockedBuffer{}
	left := make(chan struct{})
	go func() {
		defer close(left)
		_ = attach.StreamWithContext(attached, remotecommand.StreamOptions{Stdout: heard, Stderr: io.Discard})
	}()
	testkit.EventuallyTrue(t, "who is attached hears what is said", func() bool {
		s.Say(ns, pod, "to who listens") // it is not known since when it does
		return strings.Contains(heard.String(), "to who listens")
	})
	leave()
	<-left

	for path, want := range map[string]int{
		"/api/v1/namespaces/" + ns + "/secrets":               http.StatusForbidden,
		"/api/v1/namespaces/kube-system/pods/x/log":           http.StatusForbidden,
		"/api/v1/namespaces/" + ns + "/pods/" + pod:           http.StatusForbidden,
		"/api/v1/namespaces/" + ns + "/pods/%2e%2e/log":       http.StatusForbidden,
		"/api/v1/namespaces/" + ns + "/pods/none-of-that/log": http.StatusNotFound,
	} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer of-nothing") // not the agent's: it must not get through
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var status metav1.Status
		err = json.NewDecoder(resp.Body).Decode(&status)
		resp.Body.Close()
		if resp.StatusCode != want || err != nil || status.Kind != "Status" || int(status.Code) != want {
			t.Errorf("%s: %d %+v %v, want a Status of %d", path, resp.StatusCode, status, err, want)
		}
	}
	gone := func() {
		t.Helper()
		testkit.EventuallyTrue(t, "the pod is gone, and another one there", func() bool {
			pods := s.centre.pods(ns)
			return !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Name == pod }) && len(pods) >= 2
		})
	}
	if err := client.CoreV1().Pods(ns).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: ns}}); err != nil {
		t.Error(err)
	}
	gone()
	testkit.EventuallyTrue(t, "a pod runs", func() bool { pod = running(); return pod != "" })
	if err := client.CoreV1().Pods(ns).Delete(ctx, pod, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	gone()
}

// lockedBuffer is written and read at the same time.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestTheAPIServerGoesAndComesBack(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := newSite(t)
	s.put(namespace(ns), deployment("web", "nginx:1", 1))
	s.is(web, workload.Ready, "")
	s.StopServer()
	testkit.EventuallyTrue(t, "the site says so", func() bool { return strings.HasPrefix(s.condition(kube.Reachable), "False ApiServerUnreachable") })
	s.put(configMap("settings", "1"))
	s.is(apiMap, workload.Waiting, "ApiServerUnreachable")
	// At the centre what is in effect stays so, and what can't be applied says why: one that is
	// not there, and another version of one that is.
	if at := s.tells(t, apiMap, workload.Waiting, "ApiServerUnreachable"); at.Digest != "" {
		t.Errorf("a site has what it was never given: %+v", at)
	}
	was := s.tells(t, web, workload.Ready, "")
	if was.Digest != was.Wanted {
		t.Errorf("what is in effect: %+v", was)
	}
	s.put(deployment("web", "nginx:1", 2))
	s.is(web, workload.Waiting, "ApiServerUnreachable")
	if at := s.tells(t, web, workload.Waiting, "ApiServerUnreachable"); at.Digest != was.Digest || at.Wanted == was.Digest || at.Pods.Ready != 1 {
		t.Errorf("of another version: %+v, before %+v", at, was)
	}
	s.put(deployment("web", "nginx:1", 1))
	s.is(web, workload.Ready, "")
	// A start without it waits, and tells nothing that it does not know.
	s.stop()
	s.start()
	testkit.EventuallyTrue(t, "the site says so again", func() bool { return strings.HasPrefix(s.condition(kube.Reachable), "False") })
	s.StartServer()
	s.is(apiMap, workload.Ready, "")
	s.is(web, workload.Ready, "")
	testkit.EventuallyTrue(t, "the site is well", func() bool { return strings.HasPrefix(s.condition(kube.Reachable), "True") })
	if n := s.deployment("web").Generation; n != 1 {
		t.Errorf("the Deployment was changed: generation %d", n)
	}

	// A power cut in the middle.
	s.put(deployment("web", "nginx:2", 2), configMap("settings", "2"))
	s.Kill()
	s.stop()
	s.Restart()
	s.start()
	s.is(web, workload.Ready, "")
	s.is(apiMap, workload.Ready, "")
	if v := s.configMap("settings").Data["v"]; v != "2" {
		t.Errorf("%q", v)
	}
}
