package cluster

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	kubetesting "k8s.io/client-go/testing"
)

// exporterPod is one that serves metrics at a port of this name.
func exporterPod(namespace, name, label, value, port string, isReady bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{label: value}},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: port, ContainerPort: 8443}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	if isReady {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

func ksmPod(namespace string, isReady bool) *corev1.Pod {
	return exporterPod(namespace, "ksm", "app.kubernetes.io/name", "kube-state-metrics", "http-metrics", isReady)
}

// watcher looks at a cluster of these objects. Everything is allowed, and own's scale is
// what it was set to.
func watcher(scale *int32, objects ...runtime.Object) (*Watcher, *fake.Clientset) {
	kube := fake.NewClientset(objects...)
	kube.PrependReactor("create", "selfsubjectaccessreviews", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
	})
	kube.PrependReactor("get", "deployments", func(a kubetesting.Action) (bool, runtime.Object, error) {
		return a.GetSubresource() == "scale", &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: *scale}}, nil
	})
	kube.PrependReactor("patch", "deployments", func(a kubetesting.Action) (bool, runtime.Object, error) {
		*scale = 1 - *scale
		return true, nil, nil
	})
	return &Watcher{kube: kube, opts: Options{Config: &rest.Config{}, Namespace: "muster-edge", Hosts: func() *Hosts { return &Hosts{} }, ScaleKubeStateMetrics: "kube-state-metrics",
		Apply: func([]any) error { return nil }, Logger: slog.New(slog.DiscardHandler)}}, kube
}

func TestFind(t *testing.T) {
	tenants := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme-shop", Labels: map[string]string{TenantLabel: "acme"}}}
	own, theirs := Place{Job: jobKubeStateMetrics, Namespace: "muster-edge", Port: "http-metrics", Own: true}, Place{Job: jobKubeStateMetrics, Namespace: "monitoring", Port: "http-metrics"}
	for name, c := range map[string]struct {
		objects []runtime.Object
		found   []Place
		lack    string // job and reason
	}{
		"nothing":                      {nil, nil, "kube-state-metrics NotFound"},
		"ours":                         {[]runtime.Object{ksmPod("muster-edge", true)}, []Place{own}, ""},
		"theirs goes before ours":      {[]runtime.Object{ksmPod("muster-edge", true), ksmPod("monitoring", true)}, []Place{theirs}, ""},
		"but not while it isn't ready": {[]runtime.Object{ksmPod("muster-edge", true), ksmPod("monitoring", false)}, []Place{own}, ""},
		"a tenant's is nobody's":       {[]runtime.Object{tenants, ksmPod("acme-shop", true)}, nil, "kube-state-metrics NotFound"},
		"one behind a proxy": {[]runtime.Object{exporterPod("monitoring", "ksm", "app.kubernetes.io/name", "kube-state-metrics", "https-main", true)}, nil,
			"kube-state-metrics MetricsOff"},
		"Cilium without metrics": {[]runtime.Object{ksmPod("muster-edge", true), exporterPod("kube-system", "cilium", "k8s-app", "cilium", "peer-service", true)}, []Place{own}, "cilium-agent MetricsOff"},
	} {
		scale := int32(1)
		w, _ := watcher(&scale, c.objects...)
		w.look(context.Background())
		st := w.Status()
		if diff := cmp.Diff(c.found, st.Found, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(Place{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		lack := ""
		if len(st.Lacks) > 0 {
			lack = st.Lacks[0].Job + " " + st.Lacks[0].Reason
		}
		if lack != c.lack || len(st.Lacks) > 1 {
			t.Errorf("%s: lacks %v, want %q", name, st.Lacks, c.lack)
		}
	}
}

// Ours stands down at once for another, and stands in for it when it stays away, not while
// it restarts.
func TestKubeStateMetricsStandsIn(t *testing.T) {
	ctx := context.Background()
	scale := int32(1)
	w, kube := watcher(&scale, ksmPod("monitoring", true))
	looks := func(n int, want int32) {
		t.Helper()
		for range n {
			w.look(ctx)
		}
		if scale != want {
			t.Errorf("scaled to %d, want %d; lacks %v", scale, want, w.Status().Lacks)
		}
	}
	looks(1, 0)
	if err := kube.CoreV1().Pods("monitoring").Delete(ctx, "ksm", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	looks(standInAfter-1, 0)
	if _, err := kube.CoreV1().Pods("monitoring").Create(ctx, ksmPod("monitoring", true), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	looks(1, 0)
	if err := kube.CoreV1().Pods("monitoring").Delete(ctx, "ksm", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	looks(standInAfter, 1)
}

// An API server that is away takes nothing from what is scraped.
func TestApiServerAway(t *testing.T) {
	scale, applied := int32(1), 0
	w, kube := watcher(&scale, ksmPod("muster-edge", true))
	w.opts.Apply = func([]any) error { applied++; return nil }
	w.look(context.Background())
	kube.PrependReactor("list", "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	for range 2 {
		w.look(context.Background())
	}
	st := w.Status()
	if reason, message := st.Summary(); applied != 1 || len(st.Found) != 1 || len(st.Lacks) != 1 || reason != Unreachable || message == "" {
		t.Errorf("applied %d times; found %v, lacks %v", applied, st.Found, st.Lacks)
	}
}
