package status

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/ptr"

	"muster.dev/muster/internal/wire"
)

// A fleet of 3,000 sites with 50 pods each, in ten namespaces.
const (
	benchSites, benchPods, benchNamespaces = 3000, 50, 10
)

// fullPod is a pod as large as they are: probes, volumes, resources, tolerations, a token,
// conditions and the state of its container.
func fullPod(ns string, app, i int, site string) *corev1.Pod {
	hash := fmt.Sprintf("%010x", app*7919)
	name := fmt.Sprintf("app-%d-%s-%05x", app, hash, (i*2654435761+app*40503+int(site[len(site)-1]))%0xfffff)
	quantities := corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse("50m"), corev1.ResourceMemory: quantity.MustParse("50Mi")}
	now := metav1.Now()
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080), Scheme: "HTTP"}}, InitialDelaySeconds: 5, PeriodSeconds: 10, FailureThreshold: 3, SuccessThreshold: 1, TimeoutSeconds: 1}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, GenerateName: fmt.Sprintf("app-%d-%s-", app, hash), UID: "11111111-2222-3333-4444-555555555555", ResourceVersion: "123456", CreationTimestamp: now,
		Labels:          map[string]string{"app.kubernetes.io/name": fmt.Sprint("app-", app), "app.kubernetes.io/instance": "prod", "app.kubernetes.io/managed-by": "Helm", "pod-template-hash": hash},
		Annotations:     map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprintf("app-%d-%s", app, hash), UID: "11111111-2222-3333-4444-666666666666", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}}}}
	p.Spec = corev1.PodSpec{NodeName: "node-1", ServiceAccountName: "default", DeprecatedServiceAccount: "default", SchedulerName: "default-scheduler", RestartPolicy: "Always", DNSPolicy: "ClusterFirst", Priority: ptr.To(int32(0)), EnableServiceLinks: ptr.To(true),
		PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority), TerminationGracePeriodSeconds: ptr.To(int64(30)), SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)},
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}}},
			{Name: "kube-api-access-abcde", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To(int64(3607))}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}}}}}}},
		Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: ptr.To(int64(300))}, {Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: ptr.To(int64(300))}},
		Containers: []corev1.Container{{Name: "app", Image: "registry.example.com/shop/app:1.2.3", ImagePullPolicy: "IfNotPresent", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP"}},
			Env: []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}}}, LivenessProbe: probe, ReadinessProbe: probe,
			Resources: corev1.ResourceRequirements{Limits: quantities, Requests: quantities}, TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File",
			VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/app"}, {Name: "kube-api-access-abcde", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}}}}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "10.0.0.1", PodIP: "10.1.2.3", PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}}, StartTime: &now, QOSClass: "Burstable",
		ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true, Started: ptr.To(true), Image: "registry.example.com/shop/app:1.2.3", ImageID: "registry.example.com/shop/app@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			ContainerID: "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}}}
	for _, c := range []corev1.PodConditionType{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	return p
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fullStore has every pod of the fleet; the bytes are what one pod takes.
func fullStore(tb testing.TB, sites int) (s *Store, bytesEach float64) {
	s = New(Options{})
	before := heap()
	for i := range sites {
		id := demo(fmt.Sprintf("site-%04d", i))
		m := &wire.KubernetesStatus{Epoch: "e", Seq: 1, Snapshot: true}
		for j := range benchPods {
			m.Mirrored = append(m.Mirrored, mirrorOf(tb, fullPod(fmt.Sprintf("demo-ns%d", j%benchNamespaces), j, i, id.Name)))
		}
		if !s.Apply(id, m) {
			tb.Fatal("not taken")
		}
	}
	n := s.Stats().Pods
	if n < sites*benchPods {
		tb.Fatalf("%d pods", n)
	}
	return s, float64(heap()-before) / float64(n)
}

// TestMemory: what a pod takes is bounded.
func TestMemory(t *testing.T) {
	s, each := fullStore(t, 200)
	p := fullPod("demo-ns0", 1, 1, "x")
	b, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f bytes a pod of %d bytes on the wire", each, len(b))
	if each > 4000 {
		t.Errorf("a pod takes %.0f bytes, want 4,000 at most", each)
	}
	runtime.KeepAlive(s)
}

func benchResource(s *Store, ns string) *resource {
	h := s.Handler(HandlerOptions{Scope: func(context.Context) (Scope, bool) { return Scope{Namespace: ns, Tenant: "demo"}, true }})
	return h.(*server).resources[pods]
}

func BenchmarkStore(b *testing.B) {
	s, each := fullStore(b, benchSites)
	b.Run("memory", func(b *testing.B) { b.ReportMetric(each, "B/pod"); b.ReportMetric(float64(s.Stats().Pods), "pods") })
	r := benchResource(s, "demo-ns1")
	lists := map[string]*metainternalversion.ListOptions{"all of a namespace": {}, "a page of 500": {Limit: 500}, "by label": {LabelSelector: labels.SelectorFromSet(labels.Set{LabelSite: "site-0042"})}, "by node": {FieldSelector: fields.OneTermEqualSelector("spec.nodeName", "site-0042-node-1")}}
	for name, o := range lists {
		b.Run("list "+name, func(b *testing.B) {
			for b.Loop() {
				ctx, end := r.server.leased(b.Context())
				_, err := r.List(ctx, o.DeepCopy())
				end()
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		b.Run("answer of a namespace in "+accept[len("application/"):], func(b *testing.B) {
			h := r.server
			h.o.Scope = func(context.Context) (Scope, bool) { return Scope{Namespace: "demo-ns1", Tenant: "demo"}, true }
			for b.Loop() {
				req := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/demo-ns1/pods", nil)
				req.Header.Set("Accept", accept)
				info := &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Namespace: "demo-ns1", Resource: "pods"}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, req.WithContext(request.WithRequestInfo(req.Context(), info)))
				if w.Code != http.StatusOK {
					b.Fatal(w.Body.String())
				}
				b.ReportMetric(float64(w.Body.Len())/1e6, "MB")
			}
		})
	}
	b.Run("apply a change of a site", func(b *testing.B) {
		id := demo("site-0007")
		for b.Loop() {
			epoch, seq := s.Version(id)
			p := fullPod("demo-ns1", 1, 7, id.Name)
			p.Status.ContainerStatuses[0].RestartCount = int32(seq)
			s.Apply(id, &wire.KubernetesStatus{Epoch: epoch, Seq: seq + 1, After: seq, Mirrored: []*wire.Mirrored{mirrorOf(b, p)}})
		}
	})
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("one change to %d watches", n), func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			got := make(chan struct{}, n)
			for range n {
				w, err := r.Watch(ctx, &metainternalversion.ListOptions{ResourceVersion: fmt.Sprint(s.version)})
				if err != nil {
					b.Fatal(err)
				}
				go func() {
					for e := range w.ResultChan() {
						if c, ok := e.Object.(*encodable); ok { // as the handler encodes it
							_ = c.CacheEncode("json", encodeJSON, discard{})
						}
						got <- struct{}{}
					}
				}()
			}
			id := demo("site-0007")
			for b.Loop() {
				epoch, seq := s.Version(id)
				p := fullPod("demo-ns1", 1, 7, id.Name)
				p.Status.ContainerStatuses[0].RestartCount = int32(seq)
				s.Apply(id, &wire.KubernetesStatus{Epoch: epoch, Seq: seq + 1, After: seq, Mirrored: []*wire.Mirrored{mirrorOf(b, p)}})
				for range n {
					<-got
				}
			}
		})
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func encodeJSON(o k8sruntime.Object, w io.Writer) error { return json.NewEncoder(w).Encode(o) }
