package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/internal/journal"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

const webItem = "Deployment.apps/acme-shop/web"

func TestABlobMustBeWhatItsItemNames(t *testing.T) {
	good := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"acme-shop","uid":"x","ownerReferences":[{}],"managedFields":[{}]},"spec":{"replicas":2},"status":{"x":1}}`
	obj, err := decode(webItem, []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	mark(obj, "abc", "")
	b, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{"muster.dev/digest":"abc"},"labels":{"muster.dev/owned":"true"},"name":"web","namespace":"acme-shop"},"spec":{"replicas":2}}`
	if string(b) != want {
		t.Errorf("decoded\n%s, want\n%s", b, want)
	}
	for bad, want := range map[string]string{
		strings.Replace(good, "acme-shop", "kube-system", 1):    "not what the item names",
		strings.Replace(good, `"web"`, `"wob"`, 1):              "not what the item names",
		strings.Replace(good, `"Deployment"`, `"DaemonSet"`, 1): "not what the item names",
		strings.Replace(good, "apps/v1", "v1", 1):               "not what the item names",
		strings.Replace(good, "apps/v1", "a/b/c", 1):            "apiVersion",
		good + good:                      "more than one object",
		`[]`:                             "no object in JSON",
		`null`:                           "apiVersion",
		`{"apiVersion":5}`:               "apiVersion",
		`{"apiVersion":"v1","kind":"X"}`: "metadata",
		strings.Replace(good, `{}]`, `{}],"labels":{"a":1}`, 1): "metadata.labels",
		strings.Repeat(" ", maxObject+1):                        "more than a Kubernetes API server takes",
		strings.Replace(good, "2", "1e999", 1):                  "number",
	} {
		if _, err := decode(webItem, []byte(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %v, want %q", bad, err, want)
		}
	}
	if _, err := decode("Pod/../x", []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","namespace":".."}}`)); err == nil {
		t.Error("a namespace that leads elsewhere is taken")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(webItem, []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"acme-shop","annotations":{"muster.dev/apply":"Pessimistic","muster.dev/apply-deadline":"5s","muster.dev/bundle":"b"}},"spec":{"replicas":2}}`))
	f.Add("Job.batch/n/j", []byte(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j","namespace":"n"},"spec":{"ttlSecondsAfterFinished":1.5,"template":{"spec":{"containers":[{"image":"x"},null,7]}}}}`))
	f.Add("Namespace/-/n", []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}`))
	f.Fuzz(func(t *testing.T, item string, blob []byte) {
		obj, err := decode(item, blob)
		if err != nil {
			return
		}
		g := obj.GroupVersionKind()
		if again := workload.ItemName(g.Group, g.Kind, obj.GetNamespace(), obj.GetName()); again != item && !strings.Contains(strings.SplitN(item, "/", 2)[0], ".") {
			t.Errorf("%q was taken for %q", again, item)
		}
		_, _ = factsOf(obj)
		mark(obj, "d", "")
		imagesOf(podSpecOf(obj))
		judge(obj)
		liveOf(obj, g)
		if _, err := json.Marshal(obj); err != nil {
			t.Error(err)
		}
		_ = obj.DeepCopy() // panics on what is no JSON
	})
}

func FuzzDecodeState(f *testing.F) {
	f.Add([]byte(`{"items":{"a":{"digest":"d","fields":12}},"units":{"u":{"version":"v","rolledBack":true}},"kinds":{"Pod.v1.":true}}`), []byte(`{"items":{"a":null,"b":{"digest":"e"}},"kinds":{"Pod.v1.":false,"Job.v1.batch":true}}`))
	f.Add([]byte(`{"items":null,"units":null}`), []byte(`{"kinds":{"x":false}}`))
	f.Fuzz(func(t *testing.T, b, change []byte) {
		s, _ := decodeState(b, [][]byte{change})
		st := newState(t.TempDir())
		st.saved = s
		st.item("x", savedItem{Digest: "d"})
		st.unit("u", savedUnit{Version: "1"})
		st.kind("k")
		for name := range s.Kinds {
			_, _ = parseKindName(name)
		}
	})
}

func TestStateSurvives(t *testing.T) {
	dir := t.TempDir()
	st := newState(dir)
	for i, step := range []func(){
		func() {
			st.item("a", savedItem{"d", 7})
			st.unit("u", savedUnit{Version: "1", RolledBack: true})
			st.kind("Deployment.v1.apps")
		},
		func() { st.item("b", savedItem{"e", 8}); st.kind("Job.v1.batch") },
		func() { st.item("a", savedItem{"f", 9}); st.forgetUnit("u"); st.forgetKind("Job.v1.batch") },
		func() { st.unit("v", savedUnit{Version: "2"}); st.unit("w", savedUnit{Version: "3"}) },
		func() {
			st.keep(func(name string) bool { return name == "b" }, func(key string) bool { return key == "w" })
		},
		func() { st.forgetKind("Deployment.v1.apps") },
	} {
		step()
		if err := st.save(); err != nil {
			t.Fatal(err)
		}
		again, err := loadState(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(st.saved, again.saved); diff != "" {
			t.Errorf("after %d saves: %s", i+1, diff)
		}
		if i%2 == 0 {
			st = again // as after a restart
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, stateFile+journal.Suffix)); err != nil || bytes.Count(b, []byte("\n")) != 5 {
		t.Errorf("changes: %q, %v", b, err)
	}
	if gvk, err := parseKindName("Deployment.v1.apps"); err != nil || gvk.Group != "apps" || kindName(gvk) != "Deployment.v1.apps" {
		t.Errorf("%v %v", gvk, err)
	}
	if gvk, err := parseKindName("Namespace.v1."); err != nil || gvk.Kind != "Namespace" || gvk.Version != "v1" || gvk.Group != "" {
		t.Errorf("%v %v", gvk, err)
	}
	if err := os.WriteFile(filepath.Join(dir, stateFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := loadState(dir); err == nil || s.Items == nil {
		t.Errorf("a torn file: %v %v", s, err)
	}
}

// parse reads an object of a test, in JSON.
func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return obj
}

func TestReadiness(t *testing.T) {
	for _, c := range []struct {
		name, object string
		want         workload.State
		says         string
	}{
		{"a Deployment that nobody has seen", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"generation":1},"spec":{"replicas":2}}`, workload.Progressing, "not seen"},
		{"one whose change nobody has seen", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"generation":2},"spec":{"replicas":1},"status":{"observedGeneration":1,"replicas":1,"updatedReplicas":1,"availableReplicas":1}}`, workload.Progressing, "not seen"},
		{"one that starts", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"generation":1},"spec":{"replicas":2},"status":{"observedGeneration":1,"replicas":2,"updatedReplicas":2,"availableReplicas":1}}`, workload.Progressing, "1 of 2 replicas are available"},
		{"one with old pods", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"generation":1},"spec":{"replicas":2},"status":{"observedGeneration":1,"replicas":3,"updatedReplicas":2,"availableReplicas":3}}`, workload.Progressing, "1 old"},
		{"one that is up", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"generation":1},"spec":{"replicas":2},"status":{"observedGeneration":1,"replicas":2,"updatedReplicas":2,"availableReplicas":2}}`, workload.Ready, ""},
		{"one that wants none", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"generation":1},"spec":{"replicas":0},"status":{"observedGeneration":1}}`, workload.Ready, ""},
		{"one that is late", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"generation":1},"status":{"observedGeneration":1,"conditions":[{"type":"Progressing","status":"False","reason":"ProgressDeadlineExceeded","message":"timed out"}]}}`, workload.Failed, "timed out"},
		{"one over its quota", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"generation":1},"status":{"observedGeneration":1,"conditions":[{"type":"ReplicaFailure","status":"True","reason":"FailedCreate","message":"exceeded quota"}]}}`, workload.Failed, "exceeded quota"},
		{"a StatefulSet that rolls", `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"generation":1},"spec":{"replicas":2},"status":{"observedGeneration":1,"readyReplicas":2,"updatedReplicas":1,"updateRevision":"b","currentRevision":"a"}}`, workload.Progressing, "1 of 2"},
		{"one with a partition", `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"generation":1},"spec":{"replicas":2,"updateStrategy":{"rollingUpdate":{"partition":1}}},"status":{"observedGeneration":1,"readyReplicas":2,"updatedReplicas":1,"updateRevision":"b","currentRevision":"a"}}`, workload.Ready, ""},
		{"a DaemonSet", `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"generation":1},"status":{"observedGeneration":1,"desiredNumberScheduled":3,"updatedNumberScheduled":3,"numberAvailable":2}}`, workload.Progressing, "2 of 3 nodes"},
		{"a virtual machine that starts", `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","spec":{"runStrategy":"Always"},"status":{"created":true,"conditions":[{"type":"Ready","status":"False","message":"guest is not up"}]}}`, workload.Progressing, "guest is not up"},
		{"one that is off on purpose", `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","spec":{"runStrategy":"Halted"},"status":{"printableStatus":"Stopped","conditions":[{"type":"Ready","status":"False","message":"VMI does not exist"}]}}`, workload.Ready, ""},
		{"one that was, as it was written before", `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","spec":{"running":false},"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, workload.Ready, ""},
		{"one that is being stopped", `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","spec":{"runStrategy":"Halted"},"status":{"created":true,"conditions":[{"type":"Ready","status":"True"}]}}`, workload.Progressing, "being stopped"},
		{"a Job at work", `{"apiVersion":"batch/v1","kind":"Job","metadata":{},"spec":{"completions":3},"status":{"succeeded":1}}`, workload.Progressing, "1 of 3"},
		{"one that is done", `{"apiVersion":"batch/v1","kind":"Job","metadata":{},"status":{"conditions":[{"type":"Complete","status":"True"}]}}`, workload.Ready, ""},
		{"one that failed", `{"apiVersion":"batch/v1","kind":"Job","metadata":{},"status":{"conditions":[{"type":"Failed","status":"True","reason":"BackoffLimitExceeded","message":"too often"}]}}`, workload.Failed, "too often"},
		{"a claim", `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{},"status":{"phase":"Pending"}}`, workload.Progressing, "not bound"},
		{"a definition", `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{},"status":{"conditions":[{"type":"Established","status":"False"}]}}`, workload.Progressing, "not established"},
		{"a ConfigMap", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`, workload.Ready, ""},
		{"a resource that says it isn't", `{"apiVersion":"e.com/v1","kind":"Thing","metadata":{},"status":{"conditions":[{"type":"Ready","status":"False","reason":"NoDisk","message":"no disk"}]}}`, workload.Progressing, "no disk"},
		{"one that won't", `{"apiVersion":"e.com/v1","kind":"Thing","metadata":{},"status":{"conditions":[{"type":"Stalled","status":"True","reason":"NoDisk","message":"no disk"}]}}`, workload.Failed, "no disk"},
		{"one that says nothing", `{"apiVersion":"e.com/v1","kind":"Thing","metadata":{},"status":{"conditions":"none"}}`, workload.Ready, ""},
	} {
		v := judge(parse(t, c.object))
		if v.state != c.want || !strings.Contains(v.message, c.says) {
			t.Errorf("%s: %+v, want %s, %q", c.name, v, c.want, c.says)
		}
	}
}

// setOf is a set of objects in JSON, whose digests are their blobs'.
func setOf(objects map[string]string) (agent.Set, map[string][]byte) {
	blobs := map[string][]byte{}
	s := agent.Set{Blob: func(d string) ([]byte, error) {
		if b, ok := blobs[d]; ok {
			return b, nil
		}
		return nil, os.ErrNotExist
	}, Applied: func(string, string, error) {}, Good: func(string, string) bool { return true }}
	for name, text := range objects {
		d := wire.DigestOf([]byte(text))
		blobs[d] = []byte(text)
		s.Items = append(s.Items, agent.SetItem{Name: name, Digest: d})
	}
	return s, blobs
}

func objectJSON(apiVersion, kind, ns, name, annotations, rest string) string {
	if ns != "" {
		ns = fmt.Sprintf(`,"namespace":%q`, ns)
	}
	if annotations != "" {
		annotations = `,"annotations":{` + annotations + `}`
	}
	if rest != "" {
		rest = "," + rest
	}
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q%s%s}%s}`, apiVersion, kind, name, ns, annotations, rest)
}

func TestPlan(t *testing.T) {
	const bundle = `"muster.dev/bundle":"shop"`
	objects := map[string]string{
		"HorizontalPodAutoscaler.autoscaling/n/web": objectJSON("autoscaling/v2", "HorizontalPodAutoscaler", "n", "web", "", `"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}}`),
		"Deployment.apps/n/web":                     objectJSON("apps/v1", "Deployment", "n", "web", bundle+`,"muster.dev/apply":"Pessimistic","muster.dev/apply-deadline":"3m"`, ""),
		"ConfigMap/n/web":                           objectJSON("v1", "ConfigMap", "n", "web", bundle, ""),
		"Deployment.apps/m/web":                     objectJSON("apps/v1", "Deployment", "m", "web", bundle, ""),
		"Service/n/web":                             objectJSON("v1", "Service", "n", "web", "", ""),
		"Namespace/-/n":                             objectJSON("v1", "Namespace", "", "n", bundle, ""),
		"Secret/n/bad":                              objectJSON("v1", "Secret", "n", "bad", `"muster.dev/apply":"Perhaps"`, ""),
		"Secret/n/lies":                             objectJSON("v1", "Secret", "n", "truth", "", ""),
	}
	s, blobs := setOf(objects)
	p := makePlan(&s, plan{})
	var got []string
	for _, u := range p.units {
		var names []string
		for _, it := range u.items {
			names = append(names, it.name)
		}
		got = append(got, strings.Join(names, " "))
	}
	want := []string{
		"Namespace/-/n", "Secret/n/bad", "Secret/n/lies", "Service/n/web",
		"Deployment.apps/m/web", "ConfigMap/n/web Deployment.apps/n/web", "HorizontalPodAutoscaler.autoscaling/n/web",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order of units (-want +got):\n%s", diff)
	}
	u := p.items["ConfigMap/n/web"].unit
	if !u.pessimistic || u.deadline.String() != "3m0s" {
		t.Errorf("the bundle: %+v", u)
	}
	if !p.scaled["Deployment.apps/n/web"] {
		t.Error("what the autoscaler scales is not known")
	}
	for name, says := range map[string]string{"Secret/n/bad": "muster.dev/apply", "Secret/n/lies": "not what the item names"} {
		if err := p.items[name].bad; err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
	}

	// The next set: one changed, one gone, one whose blob isn't here.
	for _, u := range p.units {
		u.due, u.fails = false, 3
	}
	changed := objectJSON("v1", "Service", "n", "web", "", `"spec":{}`)
	blobs[wire.DigestOf([]byte(changed))] = []byte(changed)
	next := s
	next.Items = slices.Clone(s.Items)
	next.Items = slices.DeleteFunc(next.Items, func(it agent.SetItem) bool { return it.Name == "Secret/n/bad" })
	for i := range next.Items {
		switch it := &next.Items[i]; it.Name {
		case "Service/n/web":
			it.Digest = wire.DigestOf([]byte(changed))
		case "Deployment.apps/m/web":
			it.Digest, it.Err = strings.Repeat("0", 64), os.ErrNotExist
		}
	}
	p2 := makePlan(&next, p)
	var due []string
	for _, u := range p2.units {
		if u.due {
			due = append(due, u.key)
			if u.fails != 0 {
				t.Errorf("%s: a new version begins with %d failures", u.key, u.fails)
			}
		}
	}
	// The one without content stays in its bundle.
	if diff := cmp.Diff([]string{"Service/n/web", "bundle m/shop"}, due); diff != "" {
		t.Errorf("due (-want +got):\n%s", diff)
	}
	if p2.items["Secret/n/bad"] != nil || p2.items["ConfigMap/n/web"] != p.items["ConfigMap/n/web"] {
		t.Error("items of the next plan")
	}
}

// What another site left on a cluster that was taken over stays for a while: its agent may
// have been silent for another reason than that it is gone.
func TestATakeOverRemovesNothingAtOnce(t *testing.T) {
	const name = "ConfigMap/n/theirs"
	k := &Kube{opts: Options{ClaimFor: time.Hour}, lives: &lives{m: map[string]*live{name: {digest: "d"}}}}
	w := &worker{Kube: k, tookOver: time.Now(), pruneDue: true} // without a cluster to remove it from
	if err := w.prune(t.Context()); err != nil || w.pruneDue || time.Until(w.pruneAt) < time.Minute {
		t.Errorf("%v, due %v, at %v", err, w.pruneDue, w.pruneAt)
	}
}

func TestPodRequests(t *testing.T) {
	const pod = "/api/v1/namespaces/acme-shop/pods/web-1"
	for _, ok := range []string{"GET " + pod + "/log", "POST " + pod + "/exec", "GET " + pod + "/exec", "POST " + pod + "/attach", "GET " + pod + "/portforward", "POST " + pod + "/eviction", "DELETE " + pod} {
		method, path, _ := strings.Cut(ok, " ")
		if ns, name, _, yes := podRequest(method, path); !yes || ns != "acme-shop" || name != "web-1" {
			t.Errorf("%s is refused", ok)
		}
	}
	for _, no := range []string{
		"GET " + pod, "PUT " + pod, "DELETE /api/v1/namespaces/acme-shop/pods", "POST " + pod + "/log", "GET " + pod + "/eviction", "GET " + pod + "/proxy", "GET " + pod + "/log/x",
		"GET /api/v1/namespaces/acme-shop/secrets/x", "GET /api/v1/nodes/n/proxy", "GET /", "GET //api/v1/namespaces/a/pods/b/log", "GET /api/v1/namespaces/../pods/b/log", "GET /api/v1/namespaces/a/pods/../log",
		"GET /api/v1/namespaces/a/pods/B/log", "GET " + pod + "/", "DELETE " + pod + "/exec", "GET /api/v1/namespaces/a/pods//log", "GET /apis/v1/namespaces/a/pods/b/log",
	} {
		method, path, _ := strings.Cut(no, " ")
		if _, _, _, yes := podRequest(method, path); yes {
			t.Errorf("%s is served", no)
		}
	}
}

func TestTrimmed(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "n", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}}}}
	m, err := trimmed(pod)
	if err != nil || m.Kind != "Pod" || wire.KeyOf(m) != "Pod/n/web-1" {
		t.Fatalf("%v, %v", m, err)
	}
	var back corev1.Pod
	if err := back.Unmarshal(m.Object); err != nil || back.ManagedFields != nil || len(back.Annotations) != 1 {
		t.Errorf("%v: %+v", err, back.ObjectMeta)
	}
	if pod.ManagedFields == nil {
		t.Error("the reflector's own object was changed")
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{}}, Conditions: []corev1.NodeCondition{{Type: "Ready", LastHeartbeatTime: metav1.Now()}}}}
	first, _ := trimmed(node)
	node.Status.Conditions[0].LastHeartbeatTime = metav1.Time{}
	node.Status.Images = nil
	if second, _ := trimmed(node); string(first.Object) != string(second.Object) {
		t.Error("a node's heartbeat is a change")
	}
}

// Of a status that is too large the conditions get to the centre, and what is short.
func TestLargeStatus(t *testing.T) {
	large := strings.Repeat("x", workload.MaxStatus)
	conditions := []any{map[string]any{"type": "Ready", "status": "True"}}
	for name, c := range map[string]struct {
		status map[string]any
		want   string
	}{
		"small":                  {map[string]any{"phase": "Up", "nodes": []any{"a"}}, `{"nodes":["a"],"phase":"Up"}`},
		"a long list":            {map[string]any{"phase": "Up", "replicas": int64(3), "nodes": []any{large}, "log": large, "conditions": conditions}, `{"conditions":[{"status":"True","type":"Ready"}],"phase":"Up","replicas":3}`},
		"conditions that are so": {map[string]any{"phase": "Up", "conditions": []any{large}}, ""},
	} {
		n := len(c.status)
		if got := string(passedOn(c.status)); got != c.want || len(c.status) != n {
			t.Errorf("%s: %.200s", name, got)
		}
	}
}

func TestTroubleOfPods(t *testing.T) {
	waiting := func(reason string, last *corev1.ContainerStateTerminated) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "because"}},
			LastTerminationState: corev1.ContainerState{Terminated: last},
		}}}}
	}
	for _, c := range []struct {
		pod          *corev1.Pod
		reason, says string
	}{
		{waiting("ImagePullBackOff", nil), "ImagePullBackOff", "pod p: container c: because"},
		{waiting("ContainerCreating", nil), "", ""},
		{waiting("CrashLoopBackOff", &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 7}), "CrashLoopBackOff", "code 7, 3 times"},
		{waiting("CrashLoopBackOff", &corev1.ContainerStateTerminated{Reason: "OOMKilled"}), "OOMKilled", "more memory"},
		{&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes"}}}}, "Unschedulable", "0/1 nodes"},
		{&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}, "", ""},
	} {
		if got := troubleOf(c.pod); got.reason != c.reason || !strings.Contains(got.message, c.says) {
			t.Errorf("%+v, want %s %q", got, c.reason, c.says)
		}
	}
}

func TestPullObjectRunsNothingOfTheImage(t *testing.T) {
	spec := object(parse(t, `{"apiVersion":"v1","kind":"Pod","metadata":{},"spec":{"nodeSelector":{"a":"b"},"volumes":[{"name":"v"}],"containers":[{"name":"c","image":"x:2","args":["serve"],"securityContext":{"runAsNonRoot":true},"volumeMounts":[{"name":"v"}]}]}}`).Object).at("spec").(map[string]any)
	ds := pullObject(&pullJob{ns: "n", name: "p", images: imagesOf(spec), spec: spec})
	b, err := json.Marshal(ds.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"image":"x:2"`, `"command":["true"]`, `"runAsNonRoot":true`, `"nodeSelector":{"a":"b"}`, `"automountServiceAccountToken":false`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s is missing in %s", want, b)
		}
	}
	if strings.Contains(string(b), "serve") || strings.Contains(string(b), "volume") {
		t.Errorf("%s", b)
	}
}

// A quota that is so new that the site has not counted yet is waited for, and no fault of what
// it is to count.
func TestANewQuotaIsWaitedFor(t *testing.T) {
	services := schema.GroupResource{Resource: "services"}
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "Service"}
	for says, waiting := range map[string]bool{
		"status unknown for quota: muster-quota, resources: services.nodeports": true,
		"exceeded quota: muster-quota, requested: services.nodeports=1":         false,
	} {
		var r *refusal
		if err := explain(apierrors.NewForbidden(services, "web", errors.New(says)), gvk, "v1.35.0"); !errors.As(err, &r) || r.waiting != waiting || !strings.Contains(r.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
