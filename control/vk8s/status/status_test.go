package status

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

const shop = "demo-shop"

func demo(name string) fleet.SiteID { return fleet.SiteID{Tenant: "demo", Name: name} }

func mirrorOf(t testing.TB, o object) *wire.Mirrored {
	t.Helper()
	b, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	k := map[string]string{"*v1.Pod": "Pod", "*v1.Node": "Node", "*v1.Event": "Event"}[fmt.Sprintf("%T", o)]
	return &wire.Mirrored{Kind: k, Namespace: o.GetNamespace(), Name: o.GetName(), Object: b}
}

// pod is one of a Deployment, as a site's API server has it.
func pod(name, node string, phase corev1.PodPhase) *corev1.Pod {
	yes := true
	i := strings.LastIndexByte(name, '-')
	rs := name[:i]
	app, hash, _ := strings.Cut(rs, "-")
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, GenerateName: rs + "-", UID: types.UID("uid-" + name), ResourceVersion: "17", Labels: map[string]string{"app": app, "pod-template-hash": hash},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: rs, UID: "rs", Controller: &yes}}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "nginx"}}}, Status: corev1.PodStatus{Phase: phase}}
}

func stateful(name, node string) *corev1.Pod {
	p := pod(name+"-x", node, corev1.PodRunning)
	p.Name, p.UID = name, "uid-of-"+types.UID(name)
	p.GenerateName = name[:strings.LastIndexByte(name, '-')+1]
	p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name = "StatefulSet", "db"
	return p
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "n-" + types.UID(name)}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
}

// say has a site say something, as a snapshot or after what it said before.
func say(t testing.TB, s *Store, id fleet.SiteID, snapshot bool, gone []string, objects ...object) {
	t.Helper()
	epoch, seq := s.Version(id)
	if epoch == "" {
		epoch, snapshot = "e", true
	}
	m := &wire.KubernetesStatus{Epoch: epoch, Seq: seq + 1, After: seq, Snapshot: snapshot, Gone: gone}
	if snapshot {
		m.After = 0
	}
	for _, o := range objects {
		m.Mirrored = append(m.Mirrored, mirrorOf(t, o))
	}
	if !s.Apply(id, m) {
		t.Fatalf("site %s: a resync is asked for", id)
	}
}

// serve serves a store as the mount does, to who may see demo-shop.
func serve(t testing.TB, s *Store, dial Dial, change ...func(*Scope)) *rest.Config {
	t.Helper()
	scope := Scope{Namespace: shop, Tenant: "demo"}
	for _, c := range change {
		c(&scope)
	}
	return serveWith(t, s, HandlerOptions{Scope: func(context.Context) (Scope, bool) { return scope, true }, Dial: dial})
}

func serveWith(t testing.TB, s *Store, o HandlerOptions) *rest.Config {
	t.Helper()
	if o.Scope == nil {
		o.Scope = func(context.Context) (Scope, bool) { return Scope{Namespace: shop, Tenant: "demo"}, true }
	}
	h := s.Handler(o)
	factory := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, err := factory.NewRequestInfo(req)
		if err != nil {
			t.Error(err)
		}
		h.ServeHTTP(w, req.WithContext(request.WithRequestInfo(req.Context(), info)))
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return &rest.Config{Host: server.URL, QPS: -1}
}

func names[T any](items []T, name func(*T) string) string {
	var out []string
	for i := range items {
		out = append(out, name(&items[i]))
	}
	return strings.Join(out, " ")
}

func podNames(l *corev1.PodList) string {
	return names(l.Items, func(p *corev1.Pod) string { return p.Name })
}

func TestPodsOfAllSites(t *testing.T) {
	s := New(Options{Workload: func(group, kind, ns, name string) (types.UID, bool) {
		return types.UID("centre-" + name), group == "apps" && ns == shop
	}})
	say(t, s, demo("paris"), true, nil, pod("web-6f-7nkfh", "n1", corev1.PodRunning), stateful("db-0", "n1"), node("n1"))
	say(t, s, demo("rome"), true, nil, pod("web-6f-86vqt", "n1", corev1.PodPending), pod("web-6f-7nkfh", "n2", corev1.PodRunning), stateful("db-0", "n2"), node("n1"))
	say(t, s, fleet.SiteID{Tenant: "acme", Name: "oslo"}, true, nil, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-shop", Name: "theirs-0"}}, node("n1"))
	cfg := serve(t, s, nil)
	kube := kubernetes.NewForConfigOrDie(cfg)
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		cfg.ContentType = contentType
		kube := kubernetes.NewForConfigOrDie(cfg)
		list, err := kube.CoreV1().Pods(shop).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := podNames(list), "db-0-paris db-0-rome web-6f-7nkfh web-6f-7nkfh-rome web-6f-86vqt"; got != want {
			t.Errorf("%s: pods %s, want %s", contentType, got, want)
		}
		p := list.Items[4]
		if p.Spec.NodeName != "rome-n1" || p.Labels[LabelSite] != "rome" || p.Namespace != shop || p.ResourceVersion == "17" || p.UID == "uid-web-6f-86vqt" || len(p.UID) != 36 {
			t.Errorf("%s: %+v", contentType, p)
		}
		if o := metav1.GetControllerOf(&p); o == nil || o.Kind != "Deployment" || o.Name != "web" || o.UID != "centre-web" {
			t.Errorf("%s: owner %+v", contentType, p.OwnerReferences)
		}
		if list.Items[2].UID == list.Items[3].UID {
			t.Error("two sites' pods have one UID")
		}
	}
	for selector, want := range map[string]string{"spec.nodeName=rome-n1": "web-6f-86vqt", "status.phase!=Running": "web-6f-86vqt", "metadata.name=db-0-paris": "db-0-paris", "spec.nodeName=rome-n2,spec.restartPolicy=": "db-0-rome web-6f-7nkfh-rome"} {
		list, err := kube.CoreV1().Pods(shop).List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		if err != nil || podNames(list) != want {
			t.Errorf("%s: %s, %v; want %s", selector, podNames(list), err, want)
		}
	}
	for selector, want := range map[string]string{"app=web,muster.dev/site=paris": "web-6f-7nkfh", "app notin (web)": "db-0-paris db-0-rome", "nothing": ""} {
		list, err := kube.CoreV1().Pods(shop).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil || podNames(list) != want {
			t.Errorf("%s: %s, %v; want %s", selector, podNames(list), err, want)
		}
	}
	if _, err := kube.CoreV1().Pods(shop).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.color=red"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a field that there is not: %v", err)
	}
	if _, err := kube.CoreV1().Pods(shop).Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that there is not: %v", err)
	}
	nodes, err := kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if got := names(nodes.Items, func(n *corev1.Node) string { return n.Name }); err != nil || got != "paris-n1 rome-n1" {
		t.Errorf("nodes %s, %v", got, err)
	}
	meta, err := metadata.NewForConfigOrDie(cfg).Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(shop).List(t.Context(), metav1.ListOptions{LabelSelector: "app=db"})
	if err != nil || len(meta.Items) != 2 || meta.Items[0].Name != "db-0-paris" {
		t.Errorf("partial metadata: %+v, %v", meta, err)
	}
	table, err := kube.CoreV1().RESTClient().Get().Namespace(shop).Resource("pods").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Raw()
	if err != nil || !strings.Contains(string(table), `"kind":"Table"`) || strings.Count(string(table), `"cells"`) != 5 {
		t.Errorf("table: %.300s, %v", table, err)
	}
	// A name is kept as long as the pod is there, also when its namesake goes.
	say(t, s, demo("paris"), false, []string{"Pod/" + shop + "/web-6f-7nkfh"})
	if _, err := kube.CoreV1().Pods(shop).Get(t.Context(), "web-6f-7nkfh-rome", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// The selector of a Job has its UID at the centre, and a site's pods that of the Job there: they
// are shown as the centre's, and found as such.
func TestPodsOfAJob(t *testing.T) {
	s := New(Options{Workload: func(group, kind, ns, name string) (types.UID, bool) {
		return "uid-at-the-centre", group == "batch" && kind == "Job" && ns == "demo-shop" && name == "once"
	}})
	of := func(job, uid string) *corev1.Pod {
		p := pod(job+"-x", "node-1", corev1.PodRunning)
		p.Labels = map[string]string{"controller-uid": uid, "batch.kubernetes.io/controller-uid": uid, "job-name": job, "batch.kubernetes.io/job-name": job}
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job, UID: types.UID(uid), Controller: &yes}}
		return p
	}
	say(t, s, demo("paris"), true, nil, of("once", "uid-in-paris"), of("daily-1", "uid-of-a-run"))
	say(t, s, demo("lyon"), true, nil, of("once", "uid-in-lyon"))
	c := kubernetes.NewForConfigOrDie(serve(t, s, nil)).CoreV1().Pods(shop)
	for selector, want := range map[string]string{
		"controller-uid=uid-at-the-centre": "once-x-lyon once-x-paris", "batch.kubernetes.io/controller-uid=uid-at-the-centre": "once-x-lyon once-x-paris",
		"batch.kubernetes.io/controller-uid=uid-in-paris": "", "controller-uid=uid-of-a-run": "daily-1-x-paris", "!controller-uid": "",
	} {
		list, err := c.List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil || podNames(list) != want {
			t.Errorf("%s: %q, %v", selector, podNames(list), err)
		}
		for _, p := range list.Items {
			if uid := p.Labels["controller-uid"]; !strings.Contains(selector, uid) || uid != p.Labels["batch.kubernetes.io/controller-uid"] {
				t.Errorf("%s: %v", p.Name, p.Labels)
			}
		}
	}
}

func TestNodesOfOtherSitesAreNotSeen(t *testing.T) {
	s := New(Options{})
	say(t, s, demo("paris"), true, nil, node("n1"))
	say(t, s, demo("rome"), true, nil, node("n1"))
	changed := make(chan struct{})
	cfg := serve(t, s, nil, func(sc *Scope) {
		sc.Site, sc.Changed = func(id fleet.SiteID) bool { return id.Name == "rome" }, changed
	})
	nodes := kubernetes.NewForConfigOrDie(cfg).CoreV1().Nodes()
	list, err := nodes.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "rome-n1" || list.Items[0].Status.Conditions[0].Status != corev1.ConditionUnknown {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := nodes.Get(t.Context(), "paris-n1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("another site's node: %v", err)
	}
	w, err := nodes.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	s.Online(demo("paris"), true)
	s.Online(demo("rome"), true)
	if e := <-w.ResultChan(); e.Type != watch.Modified || e.Object.(*corev1.Node).Name != "rome-n1" || e.Object.(*corev1.Node).Status.Conditions[0].Status != corev1.ConditionTrue {
		t.Errorf("%+v", e)
	}
	close(changed) // other sites are seen: whoever watches lists anew
	if e := <-w.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("%+v", e)
	}
}

func TestVersions(t *testing.T) {
	s := New(Options{})
	id := demo("paris")
	msg := func(epoch string, seq uint64, snapshot, more bool, pods ...string) *wire.KubernetesStatus {
		m := &wire.KubernetesStatus{Epoch: epoch, Seq: seq, Snapshot: snapshot, More: more}
		if !snapshot {
			m.After = seq - 1
		}
		for _, p := range pods {
			m.Mirrored = append(m.Mirrored, mirrorOf(t, pod(p, "n", corev1.PodRunning)))
		}
		return m
	}
	for i, c := range []struct {
		m     *wire.KubernetesStatus
		ok    bool
		pods  int
		epoch string
		seq   uint64
	}{
		{msg("a", 1, false, false, "w-1-aaaaa"), false, 0, "", 0}, // it must begin with a snapshot
		{msg("a", 4, true, false, "w-1-aaaaa", "w-1-bbbbb"), true, 2, "a", 4},
		{msg("a", 5, false, false, "w-1-ccccc"), true, 3, "a", 5},
		{msg("a", 5, false, false, "w-1-ddddd"), false, 3, "a", 5}, // said before
		{msg("a", 7, false, false, "w-1-eeeee"), false, 3, "a", 5}, // one is lost
		{msg("b", 6, false, false, "w-1-eeeee"), false, 3, "a", 5}, // the agent started anew
		{msg("b", 1, true, true, "w-1-aaaaa"), true, 3, "", 0},     // what there was stays until it is whole
		{msg("b", 2, false, false, "w-1-eeeee"), false, 3, "", 0},
		{msg("b", 1, true, false, "w-1-fffff"), true, 2, "b", 1},
		{msg("b", 2, false, true), true, 2, "", 0}, // a change in two parts
		{msg("b", 2, false, false, "w-1-ggggg"), true, 3, "b", 2},
		{msg("", 3, true, false), false, 3, "b", 2},
	} {
		if ok := s.Apply(id, c.m); ok != c.ok {
			t.Errorf("%d: %v", i, ok)
		}
		if epoch, seq := s.Version(id); epoch != c.epoch || seq != c.seq || s.Stats().Pods != c.pods {
			t.Errorf("%d: %s %d with %d pods", i, epoch, seq, s.Stats().Pods)
		}
	}
	s.Apply(id, msg("b", 3, true, true))
	s.Interrupted(id)
	if epoch, _ := s.Version(id); epoch != "" {
		t.Error("half a snapshot counts as a version")
	}
	s.Gone(id)
	if epoch, _ := s.Version(id); epoch != "" || s.Stats().Pods != 0 || len(s.sites) != 0 {
		t.Error("a site that is gone is remembered")
	}
}

// TestASiteLiesAboutItselfAlone: what it says of others is dropped, and said.
func TestASiteLiesAboutItselfAlone(t *testing.T) {
	s := New(Options{Limits: Limits{Objects: 5, ObjectBytes: 4 << 10, Decoded: 1 << 20, Events: 1, Workloads: 2, StatusBytes: 10}})
	foreign := pod("web-6f-aaaaa", "n", corev1.PodRunning)
	foreign.Namespace = "acme-shop"
	huge := pod("web-6f-bbbbb", "n", corev1.PodRunning)
	huge.Annotations = map[string]string{"a": strings.Repeat("x", 5000)}
	inner := pod("web-6f-ccccc", "n", corev1.PodRunning)
	inner.Namespace = "kube-system" // but it comes as one of demo-shop
	claims := mirrorOf(t, inner)
	claims.Namespace = shop
	m := &wire.KubernetesStatus{Epoch: "e", Seq: 1, Snapshot: true, Mirrored: []*wire.Mirrored{
		mirrorOf(t, foreign), mirrorOf(t, huge), claims, {Kind: "Pod", Namespace: shop, Name: "garbage", Object: []byte("{\"kind\": 1}")}, {Kind: "Secret", Namespace: shop, Name: "x", Object: []byte{1}},
		{Kind: "Pod", Namespace: shop, Name: "../up", Object: []byte{1}}, {Kind: "Pod", Namespace: shop, Name: "empty"},
	}, Workloads: []*wire.WorkloadStatus{
		{Name: "Deployment.apps/acme-shop/web", State: "Ready"}, {Name: "nonsense", State: "Ready"},
		{Name: "Deployment.apps/demo-shop/web", State: "Splendid", Message: "a\x1b[2Jb" + strings.Repeat("c", 5000), Status: []byte(strings.Repeat("x", 100))},
		{Name: "Deployment.apps/demo-shop/b", State: "Ready"}, {Name: "Deployment.apps/demo-shop/c", State: "Ready"},
	}}
	for i := range 9 {
		m.Mirrored = append(m.Mirrored, mirrorOf(t, pod(fmt.Sprintf("web-6f-ddd%02d", i), "n", corev1.PodRunning)))
	}
	if !s.Apply(demo("paris"), m) {
		t.Fatal("not taken")
	}
	if n := s.Stats().Pods; n != 5 {
		t.Errorf("%d pods are kept", n)
	}
	list, err := kubernetes.NewForConfigOrDie(serve(t, s, nil)).CoreV1().Pods(shop).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		if p.Namespace != shop || p.Labels[LabelSite] != "paris" {
			t.Errorf("%s/%s of %s", p.Namespace, p.Name, p.Labels[LabelSite])
		}
	}
	if s.States("Deployment.apps/acme-shop/web") != nil || len(s.States("Deployment.apps/demo-shop/b")) != 1 || len(s.States("Deployment.apps/demo-shop/c")) != 0 {
		t.Error("states of what isn't the tenant's are kept, or more than its number")
	}
	if w := s.States("Deployment.apps/demo-shop/web")[demo("paris")]; w.State != string(workload.Progressing) || len(w.Message) > 1024 || strings.Contains(w.Message, "\x1b") || w.Status != nil {
		t.Errorf("%+v", w)
	}
	problem := s.Problem(demo("paris"))
	for _, want := range []string{"2 dropped: of a namespace that is not the tenant's", "larger than", "not what its kind is", "not mirrored", "too many objects", "too many states", "a name that is none"} {
		if !strings.Contains(problem, want) {
			t.Errorf("problem %q lacks %q", problem, want)
		}
	}
	say(t, s, demo("paris"), true, nil, pod("web-6f-aaaaa", "n", corev1.PodRunning))
	if p := s.Problem(demo("paris")); p != "" {
		t.Errorf("it is healed, and says %q", p)
	}
}

func TestEventsPointAtWhatIsShown(t *testing.T) {
	s := New(Options{Workload: func(_, kind, _, name string) (types.UID, bool) { return "centre", kind == "Deployment" }})
	event := func(name, kind, of string, uid types.UID) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name}, InvolvedObject: corev1.ObjectReference{Kind: kind, APIVersion: "v1", Namespace: shop, Name: of, UID: uid}, Reason: "Pulled", Type: "Normal"}
	}
	deployment := event("web.1", "Deployment", "web", "w")
	deployment.InvolvedObject.APIVersion = "apps/v1"
	p := stateful("db-0", "n1")
	say(t, s, demo("paris"), true, nil, p, event("db-0.1", "Pod", "db-0", p.UID), event("n.1", "Node", "n1", "n"), deployment)
	say(t, s, demo("rome"), true, nil, p, event("db-0.1", "Pod", "db-0", p.UID))
	kube := kubernetes.NewForConfigOrDie(serve(t, s, nil))
	shown, err := kube.CoreV1().Pods(shop).Get(t.Context(), "db-0-rome", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// As kubectl describe asks.
	list, err := kube.CoreV1().Events(shop).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=db-0-rome,involvedObject.kind=Pod,involvedObject.uid=" + string(shown.UID)})
	if err != nil || len(list.Items) != 1 || list.Items[0].Labels[LabelSite] != "rome" {
		t.Errorf("%+v, %v", list, err)
	}
	list, err = kube.CoreV1().Events(shop).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=web,involvedObject.uid=centre"})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err = kube.CoreV1().Events(shop).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=paris-n1"}); err != nil || len(list.Items) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestEventsOfTheCentre: what the centre has to say of a tenant's objects stands among what
// its sites say, in one list and one watch, as it is; and goes when it goes there.
func TestEventsOfTheCentre(t *testing.T) {
	s := New(Options{})
	event := func(ns, name, message string) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: "e", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}}},
			InvolvedObject: corev1.ObjectReference{Kind: "Deployment", APIVersion: "apps/v1", Namespace: shop, Name: "web", UID: "w"}, Message: message, Type: "Warning"}
	}
	say(t, s, demo("paris"), true, nil, event(shop, "web.1", "of the site"))
	centre := s.Centre()
	if err := centre.Replace([]any{event(shop, "web.2", "first"), event(shop, "web.3", "other"), event("demo-system", "site.1", "online"), event("other-shop", "web.2", "another's")}, "1"); err != nil {
		t.Fatal(err)
	}
	kube := kubernetes.NewForConfigOrDie(serve(t, s, nil))
	said := func(l *corev1.EventList) string {
		return names(l.Items, func(e *corev1.Event) string { return e.Name + "=" + e.Message })
	}
	list, err := kube.CoreV1().Events(shop).List(t.Context(), metav1.ListOptions{})
	if err != nil || said(list) != "web.1-paris=of the site web.2=first web.3=other" {
		t.Fatalf("%s, %v", said(list), err)
	}
	// As kubectl describe asks; and the site's label chooses the site's.
	about, err := kube.CoreV1().Events(shop).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=web,involvedObject.kind=Deployment,involvedObject.uid=w"})
	if err != nil || said(about) != "web.2=first web.3=other" || about.Items[0].UID != "e" || len(about.Items[0].ManagedFields) != 0 || about.Items[0].Labels[LabelSite] != "" {
		t.Errorf("%+v, %v", about, err)
	}
	if of, err := kube.CoreV1().Events(shop).List(t.Context(), metav1.ListOptions{LabelSelector: LabelSite}); err != nil || said(of) != "web.1-paris=of the site" {
		t.Errorf("%s, %v", said(of), err)
	}
	w, err := kube.CoreV1().Events(shop).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := errors.Join(centre.Update(event(shop, "web.2", "second")), centre.Delete(event(shop, "web.3", "other")), centre.Add(event(shop, "web.4", "new"))); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"MODIFIED web.2 second", "DELETED web.3 other", "ADDED web.4 new"} {
		got := <-w.ResultChan()
		e, ok := got.Object.(*corev1.Event)
		if !ok || fmt.Sprintf("%s %s %s", got.Type, e.Name, e.Message) != want {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	// Who lists anew says all there is.
	if err := centre.Replace([]any{event(shop, "web.4", "new")}, "9"); err != nil {
		t.Fatal(err)
	}
	if list, err = kube.CoreV1().Events(shop).List(t.Context(), metav1.ListOptions{}); err != nil || said(list) != "web.1-paris=of the site web.4=new" {
		t.Errorf("%s, %v", said(list), err)
	}
}

// TestInformersFollow: client-go's informer ends up with what a list says, whatever
// happens meanwhile, in both of its ways to begin.
func TestInformersFollow(t *testing.T) {
	for _, ring := range []int{8, 4096} { // with the small one watches are lost on the way
		t.Run(strconv.Itoa(ring), func(t *testing.T) {
			s := New(Options{Ring: ring})
			for i := range 10 {
				say(t, s, demo(fmt.Sprint("s", i)), true, nil, pod(fmt.Sprintf("web-6f-aaa%02d", i), "n", corev1.PodPending))
			}
			kube := kubernetes.NewForConfigOrDie(serve(t, s, nil))
			factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(shop), informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "app=web" }))
			informer := factory.Core().V1().Pods()
			_ = informer.Informer().SetWatchErrorHandler(func(*cache.Reflector, error) {})
			factory.Start(t.Context().Done())
			if !cache.WaitForCacheSync(t.Context().Done(), informer.Informer().HasSynced) {
				t.Fatal("it does not sync")
			}
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					id := demo(fmt.Sprint("s", i))
					for j := range 40 {
						p := pod(fmt.Sprintf("web-6f-b%02d%02d", i, j%20), "n", corev1.PodRunning)
						switch j % 3 {
						case 1:
							p.Labels["app"] = "other" // out of the selector
						case 2:
							say(t, s, id, false, []string{"Pod/" + shop + "/" + p.Name})
							continue
						}
						say(t, s, id, false, nil, p)
					}
				}()
			}
			wg.Wait()
			want, err := kube.CoreV1().Pods(shop).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
			if err != nil || len(want.Items) < 20 {
				t.Fatalf("%d pods, %v", len(want.Items), err)
			}
			testkit.Eventually(t, "the informer has what there is", func() error {
				got, err := informer.Lister().List(labels.Everything())
				if err != nil {
					return err
				}
				have := map[string]string{}
				for _, p := range got {
					have[p.Name] = p.ResourceVersion
				}
				if len(have) != len(want.Items) {
					return fmt.Errorf("%d pods, want %d", len(have), len(want.Items))
				}
				for _, p := range want.Items {
					if have[p.Name] != p.ResourceVersion {
						return fmt.Errorf("%s: version %s, want %s", p.Name, have[p.Name], p.ResourceVersion)
					}
				}
				return nil
			})
		})
	}
}

func TestWatch(t *testing.T) {
	s := New(Options{Ring: 4})
	id := demo("paris")
	say(t, s, id, true, nil, pod("web-6f-aaaaa", "n", corev1.PodPending))
	pods := kubernetes.NewForConfigOrDie(serve(t, s, nil)).CoreV1().Pods(shop)
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	next := func(w watch.Interface) string {
		e := <-w.ResultChan()
		p, ok := e.Object.(*corev1.Pod)
		if !ok {
			return string(e.Type) + " " + apierrors.FromObject(e.Object).Error()
		}
		return strings.TrimSpace(string(e.Type) + " " + p.Name + " " + string(p.Status.Phase) + " " + p.Annotations[metav1.InitialEventsAnnotationKey])
	}
	yes := true
	initial, err := pods.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		t.Fatal(err)
	}
	defer initial.Stop()
	running, err := pods.Watch(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Running", ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer running.Stop()
	for _, want := range []string{"ADDED web-6f-aaaaa Pending", "BOOKMARK   true"} {
		if got := next(initial); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	say(t, s, id, false, nil, pod("web-6f-aaaaa", "n", corev1.PodRunning))
	say(t, s, id, false, nil, pod("web-6f-aaaaa", "n", corev1.PodFailed))
	say(t, s, id, false, []string{"Pod/" + shop + "/web-6f-aaaaa"})
	for _, want := range []string{"MODIFIED web-6f-aaaaa Running", "MODIFIED web-6f-aaaaa Failed", "DELETED web-6f-aaaaa Failed"} {
		if got := next(initial); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, want := range []string{"ADDED web-6f-aaaaa Running", "DELETED web-6f-aaaaa Running"} {
		if got := next(running); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for i := range 5 {
		say(t, s, id, false, nil, pod(fmt.Sprintf("web-6f-bbb%02d", i), "n", corev1.PodRunning))
	}
	_, err = pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a version that is long ago: %v", err)
	}
	if _, err := pods.List(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a list of long ago: %v", err)
	}
	future := strconv.FormatUint(s.version+1000, 10)
	if _, err := pods.List(t.Context(), metav1.ListOptions{ResourceVersion: future}); !apierrors.IsTimeout(err) {
		t.Errorf("a version that is to come: %v", err)
	}
}

// TestPagesAreOfOneMoment: what changes between two pages of a list is not in it.
func TestPagesAreOfOneMoment(t *testing.T) {
	s := New(Options{})
	id := demo("paris")
	var objects []object
	for i := range 30 {
		objects = append(objects, pod(fmt.Sprintf("web-6f-aaa%02d", i), "n", corev1.PodPending))
	}
	say(t, s, id, true, nil, objects...)
	pods := kubernetes.NewForConfigOrDie(serve(t, s, nil)).CoreV1().Pods(shop)
	pages := 0
	var got []string
	versions := map[string]bool{}
	err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		pages++
		l, err := pods.List(ctx, o)
		if err != nil {
			return nil, err
		}
		versions[l.ResourceVersion] = true
		if l.RemainingItemCount != nil && int(*l.RemainingItemCount) != 30-7*pages {
			t.Errorf("page %d: %d remain", pages, *l.RemainingItemCount)
		}
		// Then everything changes.
		say(t, s, id, false, []string{fmt.Sprintf("Pod/%s/web-6f-aaa%02d", shop, 29-pages)}, pod("web-6f-zzzzz", "n", corev1.PodRunning), pod(fmt.Sprintf("web-6f-aaa%02d", 28-pages), "n", corev1.PodRunning), pod("web-6f-aaa00", "n", corev1.PodRunning))
		return l, nil
	}).EachListItem(t.Context(), metav1.ListOptions{Limit: 7}, func(o runtime.Object) error {
		p := o.(*corev1.Pod)
		got = append(got, p.Name)
		if p.Status.Phase != corev1.PodPending {
			t.Errorf("%s is %s", p.Name, p.Status.Phase)
		}
		return nil
	})
	if err != nil || pages != 5 || len(got) != 30 || !slices.IsSorted(got) || len(versions) != 1 {
		t.Errorf("%d pages with %d pods of %d moments, %v", pages, len(got), len(versions), err)
	}
}

func TestRestart(t *testing.T) {
	dir := t.TempDir()
	s := New(Options{Dir: dir})
	if err := s.Load(); err != nil {
		t.Fatal(err)
	}
	say(t, s, demo("paris"), true, nil, pod("web-6f-aaaaa", "n", corev1.PodRunning), node("n"))
	say(t, s, demo("rome"), true, nil, pod("web-6f-bbbbb", "n", corev1.PodRunning))
	say(t, s, demo("oslo"), true, nil, pod("web-6f-ccccc", "n", corev1.PodRunning))
	if !s.Apply(demo("paris"), &wire.KubernetesStatus{Epoch: "e", Seq: 2, After: 1, Workloads: []*wire.WorkloadStatus{{Name: "Deployment.apps/demo-shop/web", State: "Ready", Digest: "d"}}}) {
		t.Fatal("not taken")
	}
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	s.Gone(demo("oslo"))
	old := s.version
	time.Sleep(time.Microsecond)
	s = New(Options{Dir: dir})
	if err := s.Load(); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Pods != 2 || st.Nodes != 1 || st.States != 1 || st.Sites != 2 {
		t.Errorf("%+v", st)
	}
	if epoch, seq := s.Version(demo("paris")); epoch != "e" || seq != 2 {
		t.Errorf("%s %d: the site would send everything again", epoch, seq)
	}
	if s.tables[pods].began < old {
		t.Error("a watch could go on from a version before the restart")
	}
	if w := s.States("Deployment.apps/demo-shop/web")[demo("paris")]; w.GetDigest() != "d" {
		t.Errorf("%+v", w)
	}
}

// tunnelSite is what a site serves on a tunnel.
func tunnelSite(t *testing.T, h http.HandlerFunc) Dial {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return func(ctx context.Context, id fleet.SiteID) (net.Conn, error) {
		if id.Name != "paris" {
			return nil, errors.New("no stream")
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}
}

// twoSites has pods of paris, which is online, and of rome, which is not.
func twoSites(t *testing.T) *Store {
	s := New(Options{})
	say(t, s, demo("paris"), true, nil, stateful("db-0", "n"), pod("web-6f-aaaaa", "n", corev1.PodRunning))
	say(t, s, demo("rome"), true, nil, stateful("db-0", "n"))
	s.Online(demo("paris"), true)
	return s
}

func TestTunnel(t *testing.T) {
	s := twoSites(t)
	var mu sync.Mutex
	var asked []string
	cfg := serve(t, s, tunnelSite(t, func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		mu.Lock()
		asked = append(asked, strings.TrimSpace(req.Method+" "+req.URL.RequestURI()+" "+string(b)))
		mu.Unlock()
		if req.Header.Get("Authorization") != "" {
			t.Error("the user's token goes to the site")
		}
		if strings.HasSuffix(req.URL.Path, "/exec") {
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_ = rw.Flush()
			line, _ := rw.ReadString('\n')
			fmt.Fprint(rw, "echo "+line)
			_ = rw.Flush()
			return
		}
		fmt.Fprint(w, "a line\n")
	}))
	cfg.BearerToken = "secret"
	pods := kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods(shop)
	log, err := pods.GetLogs("db-0-paris", &corev1.PodLogOptions{Container: "c", Follow: true}).DoRaw(t.Context())
	if err != nil || string(log) != "a line\n" {
		t.Errorf("%q, %v", log, err)
	}
	if _, err := pods.GetLogs("db-0-rome", &corev1.PodLogOptions{}).Stream(t.Context()); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "site rome is offline") {
		t.Errorf("a site that is offline: %v", err)
	}
	grace, conflict := int64(3), types.UID("other")
	if err := pods.Delete(t.Context(), "db-0-paris", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &conflict}}); !apierrors.IsConflict(err) {
		t.Errorf("another UID: %v", err)
	}
	if err := pods.Delete(t.Context(), "db-0-paris", metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		t.Error(err)
	}
	if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=web"}); err != nil {
		t.Error(err)
	}

	// A session, upgraded from HTTP as kubectl exec does.
	conn, err := net.Dial("tcp", strings.TrimPrefix(cfg.Host, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /api/v1/namespaces/%s/pods/db-0-paris/exec?command=sh HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nContent-Length: 0\r\n\r\n", shop)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v, %v", resp, err)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := r.ReadString('\n'); line != "echo hello\n" {
		t.Errorf("%q, %v", line, err)
	}
	mu.Lock()
	defer mu.Unlock()
	for i, want := range []string{
		"GET /api/v1/namespaces/demo-shop/pods/db-0/log?container=c&follow=true",
		`DELETE /api/v1/namespaces/demo-shop/pods/db-0 {"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":3,"preconditions":{"uid":"uid-of-db-0"}}`,
		`DELETE /api/v1/namespaces/demo-shop/pods/web-6f-aaaaa {"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"uid-web-6f-aaaaa"}}`,
		"POST /api/v1/namespaces/demo-shop/pods/db-0/exec?command=sh",
	} {
		if i >= len(asked) || asked[i] != want {
			t.Errorf("%d: the site was asked\n%q, want\n%s", i, asked, want)
		}
	}
}

// A tenant whose users, and whose sites, keep sessions open leaves some to other tenants, and
// has a place again when one ends.
func TestSessionsOfATenantLeaveRoomForOthers(t *testing.T) {
	s := twoSites(t)
	victim := fleet.SiteID{Tenant: "victim", Name: "paris"}
	victims := pod("web-6f-aaaaa", "n", corev1.PodRunning)
	victims.Namespace = "victim-shop"
	say(t, s, victim, true, nil, victims)
	s.Online(victim, true)
	dial := tunnelSite(t, func(w http.ResponseWriter, req *http.Request) { // it never answers
		<-req.Context().Done()
	})
	h := s.Handler(HandlerOptions{Dial: dial, Sessions: 4, Scope: func(ctx context.Context) (Scope, bool) {
		info, _ := request.RequestInfoFrom(ctx)
		tenant, _, _ := strings.Cut(info.Namespace, "-")
		return Scope{Namespace: info.Namespace, Tenant: tenant}, true
	}})
	open := func(namespace, name string) (hangUp func(), code <-chan int) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		info := &request.RequestInfo{IsResourceRequest: true, APIVersion: "v1", APIPrefix: "api", Verb: "get", Namespace: namespace, Resource: "pods", Name: name, Subresource: "log", Path: "/api/v1/namespaces/" + namespace + "/pods/" + name + "/log"}
		req := httptest.NewRequestWithContext(request.WithRequestInfo(ctx, info), http.MethodGet, info.Path, nil)
		done := make(chan int, 1)
		w := httptest.NewRecorder()
		go func() {
			h.ServeHTTP(w, req)
			done <- w.Code
		}()
		return cancel, done
	}
	shares := h.(*server).sessions
	open(shop, "db-0-paris")
	hangUp, _ := open(shop, "db-0-paris")
	testkit.EventuallyTrue(t, "two sessions of the tenant", func() bool { return shares.Held("demo") == 2 })
	_, third := open(shop, "db-0-paris")
	select {
	case code := <-third:
		if code != http.StatusTooManyRequests {
			t.Errorf("a third session of the tenant: %d", code)
		}
	case <-time.After(time.Minute):
		t.Fatal("a tenant has more than half of all sessions")
	}
	open("victim-shop", "web-6f-aaaaa")
	testkit.EventuallyTrue(t, "a session of another tenant", func() bool { return shares.Held("victim") == 1 })
	hangUp()
	testkit.EventuallyTrue(t, "the place is free again", func() bool { return shares.Held("demo") == 1 })
}

// FuzzApply: whatever a site sends, the store holds together and keeps to its tenant.
func FuzzApply(f *testing.F) {
	b, _ := pod("web-6f-aaaaa", "n", corev1.PodRunning).Marshal()
	f.Add("Pod", shop, "web-6f-aaaaa", b, "Pod/demo-shop/web-6f-aaaaa", "Deployment.apps/demo-shop/web")
	e, _ := (&corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "x"}}).Marshal()
	f.Add("Event", shop, "e", e, "item/x", "x")
	f.Add("Node", "", "n", []byte{10, 0}, "Node//n", "//")
	f.Fuzz(func(t *testing.T, kind, ns, name string, b []byte, gone, itemName string) {
		s := New(Options{})
		m := &wire.KubernetesStatus{Epoch: "e", Seq: 1, Snapshot: true, Mirrored: []*wire.Mirrored{{Kind: kind, Namespace: ns, Name: name, Object: b}}, Workloads: []*wire.WorkloadStatus{{Name: itemName, Message: gone}}, Gone: []string{gone}}
		s.Apply(demo("a"), m)
		s.Apply(demo("b"), m)
		s.Apply(demo("a"), &wire.KubernetesStatus{Epoch: "e", Seq: 2, After: 1, Mirrored: m.Mirrored, Gone: []string{gone}})
		for _, table := range s.tables {
			table.byName.Ascend(func(it *item) bool {
				o := s.object(it, it.version)
				if it.kind != nodes && !strings.HasPrefix(o.GetNamespace(), "demo-") || it.kind == nodes && o.GetNamespace() != "" || o.GetName() != it.name {
					t.Errorf("%s %s/%s", kind, o.GetNamespace(), o.GetName())
				}
				return true
			})
		}
		s.Gone(demo("a"))
		s.Gone(demo("b"))
		if st := s.Stats(); st.Pods+st.Nodes+st.Events+st.States != 0 {
			t.Errorf("something is left: %+v", st)
		}
	})
}
