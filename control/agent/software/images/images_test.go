package images

import (
	"cmp"
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
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"muster.dev/muster/control/agent/software"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/testkit/softwaredriver"
)

const (
	namespace, hostNamespace = "muster-edge", "muster-edge-host"
	repository               = "registry.example.com:5000/edge/muster-edge"
)

// template of a workload with an image.
func template(app, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/name": app}, Annotations: map[string]string{Annotation: ""}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: AgentName, Image: image}}},
	}
}

// chart are the objects that matter here, as an operator installed them by hand.
func chart(image string) []runtime.Object {
	one, none := int32(1), int32(0)
	selector := func(app string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": app}}
	}
	return []runtime.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: RecordName}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: MemoryName}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: AgentName}, Spec: appsv1.DeploymentSpec{Replicas: &one, Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}, Selector: selector(AgentName), Template: template(AgentName, image)}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: GuardName}, Spec: appsv1.DeploymentSpec{Replicas: &none, Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}, Selector: selector(GuardName), Template: template(GuardName, image)}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: hostNamespace, Name: HostName}, Spec: appsv1.DaemonSetSpec{Selector: selector(HostName), Template: template(HostName, image)}},
	}
}

func deployment(t *testing.T, c kubernetes.Interface, name string) (*appsv1.Deployment, string) {
	t.Helper()
	d, err := c.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d, d.Spec.Template.Spec.Containers[0].Image
}

// objects is a client of objects and nothing else: that of NewClientset works out whose each
// field is, which takes longer than all the rest.
func objects(t *testing.T, image string) *fake.Clientset {
	t.Helper()
	tracker := clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	for _, o := range chart(image) {
		if err := tracker.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	c := &fake.Clientset{}
	c.AddReactor("*", "*", clienttesting.ObjectReaction(tracker))
	return c
}

// TestDriver is the conformance of driver and guard together. A boot is what becomes of the
// pods until the agent's next one runs: the first after a switch has the new image, any
// other while it is not marked good comes when the guard's patience was over.
func TestDriver(t *testing.T) {
	digest := func(image []byte) string {
		s := sha256.Sum256(image)
		return "sha256:" + hex.EncodeToString(s[:])
	}
	var held sync.Map // images by digest, or by the name under which they were installed
	var sent atomic.Int64
	var clusters sync.Map // by the directory of the machine, which they outlive
	at := func(dir string) *fake.Clientset {
		c, _ := clusters.Load(dir)
		return c.(*fake.Clientset)
	}
	softwaredriver.Run(t, softwaredriver.Rig{
		Install: func(t *testing.T, dir string, image []byte) {
			held.Store(repository+":v1.0.0", image)
			clusters.Store(dir, objects(t, repository+":v1.0.0"))
		},
		Pack: func(t *testing.T, version string, image []byte) []byte {
			held.Store(digest(image), image)
			b, err := json.Marshal(Reference{Digest: digest(image), Tag: "v" + version})
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		Next: func(t *testing.T, dir string) (string, []byte) {
			c, within := at(dir), time.Hour
			if r := recordOf(t, c); r.Trial != nil && r.Trial.Agent { // it was booted, and here is another boot
				within = time.Nanosecond
			}
			for range 8 { // and each time it is killed
				g := NewGuard(GuardOptions{Client: c, Namespace: namespace, HostNamespace: hostNamespace, Within: within, Log: slog.New(slog.DiscardHandler)})
				g.last = time.Now().Add(-time.Minute)
				if err := g.Step(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			d, image := deployment(t, c, AgentName)
			of, _, by := Split(image)
			if of != repository {
				t.Fatalf("the image %s is of another repository", image)
			}
			v, _ := held.Load(cmp.Or(by, image))
			content, _ := v.([]byte)
			return d.Spec.Template.Annotations[Annotation] + " " + strings.Fields(string(content))[0], content
		},
		Driver: func(t *testing.T, fsys disk.FS, dir, slot, boot string, reboot func(context.Context) error) software.Driver {
			mark, version, _ := strings.Cut(slot, " ")
			// A write that comes after the power cut does not arrive.
			through := &fake.Clientset{}
			through.AddReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
				if a.GetVerb() != "get" {
					if err := fsys.Mkdir(filepath.Join(dir, fmt.Sprintf("sent-%d", sent.Add(1))), 0o700); err != nil {
						return true, nil, err
					}
				}
				o, err := at(dir).Invokes(a, nil)
				return true, o, err
			})
			d, err := New(Options{Client: through, Namespace: namespace, Version: version, Mark: mark, Pod: boot, Wake: reboot})
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
	})
}

func recordOf(t *testing.T, c kubernetes.Interface) record {
	t.Helper()
	r, err := records{c, namespace}.load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSplit(t *testing.T) {
	for image, want := range map[string][3]string{
		"muster-edge":                     {"muster-edge", "", ""},
		"muster-edge:v1":                  {"muster-edge", "v1", ""},
		"localhost:5000/muster-edge":      {"localhost:5000/muster-edge", "", ""},
		"localhost:5000/muster-edge:v1":   {"localhost:5000/muster-edge", "v1", ""},
		"a.b/c/d:v1@sha256:00":            {"a.b/c/d", "v1", "sha256:00"},
		"a.b:1/c/d@sha256:00":             {"a.b:1/c/d", "", "sha256:00"},
		"a.b:1/c/d:1.4.2-rc.1@sha256:abc": {"a.b:1/c/d", "1.4.2-rc.1", "sha256:abc"},
	} {
		r, tag, digest := Split(image)
		if got := [3]string{r, tag, digest}; got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
}

func FuzzParseReference(f *testing.F) {
	f.Add([]byte(`{"digest":"sha256:` + strings.Repeat("0a", 32) + `","tag":"v1.4.2"}`))
	f.Add([]byte(`{"digest":"sha256:` + strings.Repeat("0a", 32) + `"} x`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseReference(b)
		if err != nil {
			return
		}
		image := r.In("registry:5000/muster-edge")
		if repository, tag, digest := Split(image); repository != "registry:5000/muster-edge" || tag != r.Tag || digest != r.Digest {
			t.Fatalf("%s: %q %q %q", image, repository, tag, digest)
		}
	})
}

// TestMemory: what is not there is told from what can't be asked.
func TestMemory(t *testing.T) {
	m := Memory{objects(t, "x"), namespace}
	if _, err := m.Load("agent.state.json"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing was saved: %v", err)
	}
	if err := m.Save("agent.state.json", []byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	if b, err := m.Load("agent.state.json"); err != nil || string(b) != `{"a":1}` {
		t.Errorf("%s, %v", b, err)
	}
	m.Namespace = "elsewhere"
	if _, err := m.Load("agent.state.json"); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Error(fmt.Sprint("without its ConfigMap it has to fail: ", err))
	}
}

// TestGuardPutsInNoOtherRepository: who has the agent can write the record.
func TestGuardPutsInNoOtherRepository(t *testing.T) {
	const elsewhere = "evil.example.com/muster-edge:v2"
	name := "Deployment/" + AgentName
	for what, r := range map[string]record{
		"to try":     {Trial: &trial{Version: "2.0.0", Agent: true, Images: map[string]change{name: {repository + ":v1.0.0", elsewhere}}}},
		"to go back": {Trial: &trial{Version: "2.0.0", Back: true, Images: map[string]change{name: {elsewhere, repository + ":v1.0.0"}}}},
		"to note":    {Trial: &trial{Version: "2.0.0"}, Other: &release{Version: "2.0.0", Images: map[string]string{name: elsewhere}}},
		"proven":     {Good: release{Version: "2.0.0", Images: map[string]string{name: elsewhere}}},
	} {
		c := objects(t, repository+":v1.0.0")
		if _, err := (records{c, namespace}).edit(t.Context(), func(now *record) error { *now = r; return nil }); err != nil {
			t.Fatal(err)
		}
		g := NewGuard(GuardOptions{Client: c, Namespace: namespace, Log: slog.New(slog.DiscardHandler)})
		var err error
		for range 4 {
			err = g.Step(t.Context())
		}
		for _, name := range []string{AgentName, GuardName} {
			if _, image := deployment(t, c, name); image != repository+":v1.0.0" {
				t.Errorf("%s: %s has %s", what, name, image)
			}
		}
		switch said := recordOf(t, c).Why; what {
		case "to try", "to go back":
			if err == nil || !strings.Contains(err.Error(), "is not of the repository") {
				t.Errorf("%s: %v", what, err)
			}
		case "to note":
			if !strings.Contains(said, "is not of the repository") {
				t.Errorf("%s: %q", what, said)
			}
		}
	}
}

// TestGuardSaysWhatHinders: what the kubelet says of a pod is in why it was put back.
func TestGuardSaysWhatHinders(t *testing.T) {
	c := objects(t, repository+":v1.0.0")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: hostNamespace, Name: "h1", Labels: map[string]string{"app.kubernetes.io/name": HostName}},
		Spec: template(HostName, "new").Spec, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: AgentName, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}}}
	if _, err := c.CoreV1().Pods(hostNamespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	g := NewGuard(GuardOptions{Client: c, Namespace: namespace, HostNamespace: hostNamespace})
	for image, want := range map[string]string{"new": "muster-edge-host/h1: ImagePullBackOff: no such image", "other": ""} {
		if got := g.hindered(t.Context(), &trial{Images: map[string]change{"DaemonSet/" + HostName: {"old", image}}}); got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
}

// TestWhoComesTooLate: once a trial is ended nobody marks it good, and it is ended by an
// agent that somebody installed meanwhile, which takes itself for good.
func TestWhoComesTooLate(t *testing.T) {
	for what, tc := range map[string]struct {
		trial         trial
		version, mark string
		do            func(context.Context, *Driver) error
		refused, back bool
		good          string
	}{
		"good in time":  {trial{}, "2.0.0", "2.0.0", func(ctx context.Context, d *Driver) error { return d.MarkGood(ctx) }, false, false, "2.0.0"},
		"good too late": {trial{Back: true}, "2.0.0", "2.0.0", func(ctx context.Context, d *Driver) error { return d.MarkGood(ctx) }, true, true, "1.0.0"},
		"by hand":       {trial{}, "1.9.0", "", func(ctx context.Context, d *Driver) error { _, err := d.State(ctx); return err }, false, true, "1.9.0"},
		"what was":      {trial{}, "1.0.0", "", func(ctx context.Context, d *Driver) error { _, err := d.State(ctx); return err }, false, false, "1.0.0"},
		"on its way":    {trial{}, "1.9.0", "1.9.0", func(ctx context.Context, d *Driver) error { _, err := d.State(ctx); return err }, false, false, "1.0.0"},
		"misnamed":      {trial{}, "2.0.1", "2.0.0", func(ctx context.Context, d *Driver) error { _, err := d.State(ctx); return err }, true, false, "1.0.0"},
	} {
		c := objects(t, repository+":v1.0.0")
		tc.trial.Version, tc.trial.Images = "2.0.0", map[string]change{"Deployment/" + AgentName: {repository + ":v1.0.0", repository + ":v2.0.0"}}
		r := record{Good: release{Version: "1.0.0"}, Other: &release{Version: "2.0.0", Verified: true}, Trial: &tc.trial}
		if _, err := (records{c, namespace}).edit(t.Context(), func(now *record) error { *now = r; return nil }); err != nil {
			t.Fatal(err)
		}
		d, err := New(Options{Client: c, Namespace: namespace, Version: tc.version, Mark: tc.mark, Pod: "a"})
		if err != nil {
			t.Fatal(err)
		}
		err = tc.do(t.Context(), d)
		got := recordOf(t, c)
		if (err != nil) != tc.refused || got.Good.Version != tc.good || (got.Trial != nil && got.Trial.Back) != tc.back {
			t.Errorf("%s: %v, %+v, trial %+v", what, err, got, got.Trial)
		}
	}
}

// TestGuardCountsOn: what earlier guards have waited counts, whatever the clock says.
func TestGuardCountsOn(t *testing.T) {
	c := objects(t, repository+":v1.0.0")
	r := record{Good: release{Version: "1.0.0"}, Other: &release{Version: "2.0.0", Verified: true}, Trial: &trial{Version: "2.0.0", Agent: true, Seconds: 890,
		Images: map[string]change{"Deployment/" + AgentName: {repository + ":v0", repository + ":v1.0.0"}}}}
	if _, err := (records{c, namespace}).edit(t.Context(), func(now *record) error { *now = r; return nil }); err != nil {
		t.Fatal(err)
	}
	g := NewGuard(GuardOptions{Client: c, Namespace: namespace, Log: slog.New(slog.DiscardHandler)})
	for _, want := range []bool{false, true} { // an hour without the API server is not an hour of trial
		if err := g.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := recordOf(t, c); got.Trial == nil || got.Trial.Back != want {
			t.Fatalf("%+v, want it to be put back: %t", got.Trial, want)
		}
		g.last = g.last.Add(-time.Hour)
	}
	if why := recordOf(t, c).Why; why != "it was not marked good within 15m0s" {
		t.Error(why)
	}
}

// A trial that ends while the agent is about to ask for it once more is not begun anew: why it
// ended is told first.
func TestATrialThatEndsMeanwhile(t *testing.T) {
	c := objects(t, repository+":v1.0.0")
	d, err := New(Options{Client: c, Namespace: namespace, Version: "1.0.0", Pod: "p", Wake: func(context.Context) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.State(t.Context()); err != nil {
		t.Fatal(err)
	}
	edit := func(change func(*record)) {
		t.Helper()
		if _, err := d.records.edit(t.Context(), func(r *record) error { change(r); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	edit(func(r *record) { r.Other = &release{Version: "2.0.0", File: "f", Verified: true} })
	if err := d.Switch(t.Context(), "2.0.0"); err != nil {
		t.Fatal(err)
	}
	edit(func(r *record) { r.Trial, r.Why = nil, "no pod was ready"; r.Ended++ }) // as the guard does
	if err := d.Switch(t.Context(), "2.0.0"); err == nil || !strings.Contains(err.Error(), "no pod was ready") {
		t.Errorf("it is begun anew: %v", err)
	}
	if s, err := d.State(t.Context()); err != nil || s.Why != "no pod was ready" {
		t.Errorf("%+v, %v", s, err)
	}
	if err := d.Switch(t.Context(), "2.0.0"); err != nil {
		t.Errorf("once that is known: %v", err)
	}
	if r := recordOf(t, c); r.Trial == nil || r.Trial.Version != "2.0.0" {
		t.Errorf("%+v", r)
	}
}
