package edge_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/fakeregional"
	"muster.dev/muster/internal/testkit/kubesite"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// The process muster-edge, with a real cluster and a regional: what a tenant deploys runs,
// is told, and its logs can be read from the centre. With -v it prints what that costs.
func TestWorkloadsOfAProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("links muster-edge and starts a cluster")
	}
	binary := filepath.Join(t.TempDir(), "muster-edge")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-tags=slicelabels", "-o", binary, "muster.dev/muster/cmd/muster-edge").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cluster := kubesite.Start(t, kubesite.Options{Nodes: 2})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/push", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	centre := fakeregional.Start(t, fakeregional.Options{HTTP: mux})

	run := func(site, kubernetes string) *process {
		dir := t.TempDir()
		config := filepath.Join(dir, "edge.yaml")
		text := fmt.Sprintf("stateDir: %s\nopsListen: 127.0.0.1:0\ngateways: [%q]\ncaHash: %q\ntoken: muster1.acme.tok.secret\nsite: %s\n%s", dir, strings.TrimPrefix(centre.URL(), "https://"), centre.CAHash(), site, kubernetes)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		log, err := os.Create(filepath.Join(dir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		p := &process{t: t, binary: binary, config: config, log: log}
		p.start()
		t.Cleanup(func() {
			p.stop()
			log.Close()
			if b, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
				t.Logf("muster-edge %s:\n%s", site, b)
			}
		})
		return p
	}
	alone := run("alone", "")
	cfg := fmt.Sprintf("kubernetes: {enabled: true, discovery: false, namespace: default, kubeconfig: %q, workloads: %%v}\n", cluster.Kubeconfig)
	off := run("off", fmt.Sprintf(cfg, false))
	on := run("on", fmt.Sprintf(cfg, true))

	id := fleet.SiteID{Tenant: "acme", Name: "on"}
	centre.Eventually("the site is connected", func() bool { return centre.Seen(id).Connected })
	const ns = "acme-shop"
	object := func(name, text string) fakeregional.Blob {
		return fakeregional.Blob{Kind: workload.Kind, Name: name, Data: []byte(text)}
	}
	blobs := []fakeregional.Blob{object("Namespace/-/"+ns, fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, ns))}
	const apps = 20
	for i := range apps {
		name := fmt.Sprintf("web-%d", i)
		blobs = append(blobs,
			object("ConfigMap/"+ns+"/"+name, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},"data":{"a":"b"}}`, name, ns)),
			object("Deployment.apps/"+ns+"/"+name, fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"namespace":%q},"spec":{"replicas":2,"selector":{"matchLabels":{"app":%q}},"template":{"metadata":{"labels":{"app":%q}},"spec":{"containers":[{"name":"c","image":"nginx:1"}]}}}}`, name, ns, name, name)))
	}
	want := centre.SetDesired(id, blobs...)
	testkit.Eventually(t, "all is applied", func() error {
		if r := centre.Seen(id).Report; r.GetAppliedRevision() != want.Revision {
			return fmt.Errorf("%v", r.GetConditions())
		}
		return nil
	})
	var pod string
	testkit.Eventually(t, "all is told to be ready, and its pods are shown", func() error {
		m := centre.Cluster(id)
		m.Resync()
		ready, pods := 0, 0
		for _, part := range m.Next(false) {
			for _, w := range part.Workloads {
				if w.State == string(workload.Ready) && w.Digest == w.Wanted {
					ready++
				}
			}
			for _, o := range part.Mirrored {
				var p corev1.Pod
				if strings.HasPrefix(wire.KeyOf(o), "Pod/"+ns+"/") && p.Unmarshal(o.Object) == nil && p.Status.Phase == corev1.PodRunning {
					pods++
					pod = p.Name
				}
			}
		}
		if ready != 2*apps+1 || pods != 2*apps {
			return fmt.Errorf("%d ready, %d pods", ready, pods)
		}
		return nil
	})
	cluster.Say(ns, pod, "hello from the site")
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://site", Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return centre.Dial(ctx, id) }})
	b, err := client.CoreV1().Pods(ns).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil || !strings.Contains(string(b), "hello from the site") {
		t.Errorf("logs through the tunnel: %q, %v", b, err)
	}
	// A site that does not take workloads says what to do.
	other := fleet.SiteID{Tenant: "acme", Name: "off"}
	centre.SetDesired(other, blobs[0])
	centre.Eventually("it says so", func() bool {
		return strings.Contains(centre.Seen(other).Condition(workload.Kind+"Applied").GetMessage(), "switch it on")
	})
	if testing.Verbose() {
		time.Sleep(45 * time.Second) // a figure over a stretch of time, not a wait for something
		if _, err := cluster.Client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
		for what, p := range map[string]*process{"of a bare host": alone, "on a cluster without workloads": off, "with 41 objects and 40 pods": on} {
			t.Logf("figure: muster-edge %s: %s resident", what, rss(t, p.cmd.Process.Pid))
		}
	}
	withoutACentre(t, cluster, centre, on, ns)
}

// withoutACentre restarts muster-edge while regional and control are both gone: what runs is
// as it was, and what somebody changes or removes is put back from what is on the disk.
func withoutACentre(t *testing.T, cluster *kubesite.Cluster, centre *fakeregional.Regional, edge *process, ns string) {
	uids := func() map[string]string {
		t.Helper()
		out := map[string]string{}
		pods, err := cluster.Client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods.Items {
			out["Pod/"+p.Name] = string(p.UID)
		}
		deployments, err := cluster.Client.AppsV1().Deployments(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range deployments.Items {
			out["Deployment/"+d.Name] = fmt.Sprint(d.UID, d.Generation)
		}
		return out
	}
	before := uids()
	centre.Stop()
	edge.stop()
	// It is changed while nobody looks, so that the start finds it, and what it finds is on the disk.
	if err := cluster.Client.CoreV1().ConfigMaps(ns).Delete(t.Context(), "web-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	change := func(value string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"data":{"a":%q}}`, value)
		if _, err := cluster.Client.CoreV1().ConfigMaps(ns).Patch(t.Context(), "web-0", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
			t.Fatal(err)
		}
	}
	mended := func(when string) {
		t.Helper()
		testkit.Eventually(t, "what was changed "+when+" is put back", func() error {
			for _, name := range []string{"web-0", "web-1"} {
				if cm, err := cluster.Client.CoreV1().ConfigMaps(ns).Get(t.Context(), name, metav1.GetOptions{}); err != nil || cm.Data["a"] != "b" {
					return fmt.Errorf("%s: %v, %w", name, cm.Data, err)
				}
			}
			return nil
		})
	}
	change("theirs")
	edge.start()
	mended("while muster-edge was off")
	change("theirs again")
	mended("since")
	if after := uids(); !maps.Equal(before, after) {
		t.Errorf("what ran is not as it was:\n%v\nbefore\n%v", after, before)
	}
}

// process is a muster-edge that can be restarted, on the state that it has.
type process struct {
	t              *testing.T
	binary, config string
	log            *os.File
	cmd            *exec.Cmd
}

func (p *process) start() {
	p.t.Helper()
	p.cmd = exec.Command(p.binary, "run", "--config", p.config)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// rss is the resident memory of a process, as /proc has it.
func rss(t *testing.T, pid int) string {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return "?"
}
