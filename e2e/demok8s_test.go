package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubectl"
	"muster.dev/muster/internal/testkit/kubesite"
	"muster.dev/muster/internal/testkit/senders"
)

// demoClusters are the sites of `make demo-k8s` that are clusters, each of two nodes.
var demoClusters = []string{"lille", "turin"}

// hello is what somebody deploys there. Its containers say a word and can be asked.
const hello = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: hello, labels: {app: hello}}
spec:
  replicas: 2
  selector: {matchLabels: {app: hello}}
  template:
    metadata: {labels: {app: hello}}
    spec:
      containers:
      - {name: hello, image: "busybox:1.37", command: [sh, -c, "echo bonjour; sleep 100000"]}
`

// onClusters is the demo with clusters, and what its user has in hand.
type onClusters struct {
	*fleet
	shop program            // kubectl of the virtual Kubernetes shop/vk8s
	own  map[string]program // kubectl of each cluster itself
}

// TestDemoOnClusters: `make demo-k8s` does what docs/getting-started.md says of it, and Ctrl-C ends all of it.
func TestDemoOnClusters(t *testing.T) {
	if os.Getenv("MUSTER_DEMO_K8S") == "" {
		t.Skip("run make test-demo-k8s: it takes the product's own ports, 4 GB of memory and some minutes")
	}
	// Before the demo takes the processors, and time counts.
	if _, err := kubesite.Build(); err != nil {
		t.Fatal(err)
	}
	if _, err := senders.KubeStateMetrics(); err != nil {
		t.Fatal(err)
	}
	// Sockets lie in it, whose paths may not be as long as those of tests.
	dir, err := os.MkdirTemp("", "demo-k8s-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &onClusters{fleet: run(t, dir, "demo-k8s")}
	_ = t.Run("start", func(t *testing.T) { testClustersJoin(t, f) }) &&
		t.Run("apply", func(t *testing.T) { testHello(t, f) }) &&
		t.Run("logs and exec", func(t *testing.T) { testHelloSpeaks(t, f) }) &&
		t.Run("delete", func(t *testing.T) { testHelloGoes(t, f) })
	t.Run("Ctrl-C", func(t *testing.T) { testNothingIsLeft(t, f) })
}

// testClustersJoin: both clusters are sites of which all is known.
func testClustersJoin(t *testing.T, f *onClusters) {
	for _, name := range demoClusters {
		var s site
		testkit.EventuallyWithin(t, name+" is online and scored", 8*time.Minute, func() (err error) {
			if f.ended() {
				t.Fatal("the demo has ended")
			}
			if s, err = f.site(name); err != nil {
				return err
			}
			known := 0
			for _, d := range s.Dimensions {
				if d.Known {
					known++
				}
			}
			if s.Phase != "Online" || s.Score == nil || known != 4 {
				return fmt.Errorf("%d of 4 dimensions are known: %+v", known, s)
			}
			return nil
		})
		t.Logf("figure: %s is %s after %s", name, s.Colour, time.Since(f.began).Round(100*time.Millisecond))
	}
	testkit.Eventually(t, "it says what to type", func() error {
		if out := f.out.String(); !strings.Contains(out, strings.Join(demoClusters, " and ")+" are Kubernetes clusters") {
			return fmt.Errorf("%s", tail([]byte(out), 1500))
		}
		return nil
	})
	bin := kubectl.Path(t, kubectl.Versions[len(kubectl.Versions)-1])
	kc := filepath.Join(f.dir, "kc")
	if err := os.WriteFile(kc, []byte(f.muster("vk8s", "kubeconfig", "shop/vk8s")), 0o600); err != nil {
		t.Fatal(err)
	}
	f.shop, f.own = program{bin, f.dir, kc}, map[string]program{}
	for _, name := range demoClusters {
		f.own[name] = program{bin, f.dir, filepath.Join(f.dir, "clusters", name, "kubernetes", "admin.kubeconfig")}
	}
}

// testHello: what is applied runs on both clusters, as these say themselves, and counts in its status.
func testHello(t *testing.T, f *onClusters) {
	file := filepath.Join(f.dir, "hello.yaml")
	if err := os.WriteFile(file, []byte(hello), 0o600); err != nil {
		t.Fatal(err)
	}
	f.shop.run(t, "apply", "-f", file)
	f.shop.run(t, "rollout", "status", "deployment/hello", "--timeout=5m")
	on, err := f.pods(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range demoClusters {
		own, err := f.podsOf(t, name)
		if err != nil || len(own) != 2 {
			t.Fatalf("%s has %v, %v", name, own, err)
		}
		for pod, node := range own {
			if (node != "n1" && node != "n2") || on[pod] != name+"-"+node {
				t.Errorf("pod %s is on node %q of %s, and told to be on %q", pod, node, name, on[pod])
			}
		}
	}
	testkit.Eventually(t, "the status is the sum over all sites", func() error {
		on, err := f.pods(t)
		if err != nil {
			return err
		}
		row := strings.Fields(f.shop.run(t, "get", "deployment", "hello", "--no-headers"))
		if len(on) < 2*10 || len(row) < 4 || !strings.HasPrefix(row[1], strconv.Itoa(len(on))+"/") || row[2] != strconv.Itoa(len(on)) {
			return fmt.Errorf("%q with %d pods", row, len(on))
		}
		return nil
	})
}

// pods are those of hello, as the virtual Kubernetes tells: pod → node.
func (f *onClusters) pods(t *testing.T) (map[string]string, error) {
	t.Helper()
	return nodesOf(f.shop.run(t, "get", "pods", "-o", "wide", "-l", "app=hello"))
}

// podsOf is the same as a cluster itself tells.
func (f *onClusters) podsOf(t *testing.T, site string) (map[string]string, error) {
	t.Helper()
	return nodesOf(f.own[site].run(t, "get", "pods", "-n", tenant+"-shop", "-o", "wide", "-l", "app=hello"))
}

// testHelloSpeaks: logs and exec of a pod reach its container, whichever cluster it runs on.
func testHelloSpeaks(t *testing.T, f *onClusters) {
	for _, name := range demoClusters {
		own, err := f.podsOf(t, name)
		if err != nil {
			t.Fatal(err)
		}
		for pod := range own {
			if got := f.shop.run(t, "logs", pod); got != "bonjour" {
				t.Errorf("the log of %s on %s: %q", pod, name, got)
			}
			if got := f.shop.run(t, "exec", pod, "--", "hostname"); got != pod {
				t.Errorf("hostname in %s on %s: %q", pod, name, got)
			}
		}
	}
}

// testHelloGoes: what is deleted is gone from the clusters, too.
func testHelloGoes(t *testing.T, f *onClusters) {
	f.shop.run(t, "delete", "deployment", "hello")
	gone := func(at string, p program, args ...string) error {
		if out := p.run(t, append([]string{"get", "deployments,pods", "--ignore-not-found", "-o", "name", "-l", "app=hello"}, args...)...); out != "" {
			return fmt.Errorf("%s has %s", at, out)
		}
		return nil
	}
	testkit.EventuallyWithin(t, "it is gone everywhere", 2*time.Minute, func() error {
		errs := []error{gone("the virtual Kubernetes", f.shop)}
		for _, name := range demoClusters {
			errs = append(errs, gone(name, f.own[name], "-n", tenant+"-shop"))
		}
		return errors.Join(errs...)
	})
}

// testNothingIsLeft: Ctrl-C ends the demo within seconds, with all its processes and listeners.
func testNothingIsLeft(t *testing.T, f *onClusters) {
	procs := family(f.cmd.Process.Pid)
	ports := listeners(slices.Collect(maps.Keys(procs))...)
	if len(procs) < 10 || len(ports) < 20 {
		t.Errorf("%d processes listen at %d ports, which is not all of the demo", len(procs), len(ports))
	}
	took := f.stop()
	t.Logf("figure: clean stop of %d processes with %d listeners: %s", len(procs), len(ports), took.Round(100*time.Millisecond))
	missed(t, "a clean stop", took, 10*time.Second)
	if code := f.cmd.ProcessState.ExitCode(); code != 0 || took > 40*time.Second {
		t.Errorf("it exits with %d after %s:\n%s", code, took, tail([]byte(f.out.String()), 1500))
	}
	for pid, what := range procs {
		if commandOf(pid) == what {
			t.Errorf("a process is left: %d %s", pid, what)
		}
	}
	for pid := range parents() {
		if what := commandOf(pid); pid != os.Getpid() && strings.Contains(what, f.dir) {
			t.Errorf("a process is left: %d %s", pid, what)
		}
	}
	for port := range openPorts() {
		if ports[port] {
			t.Errorf("port %d is open still", port)
		}
	}
}
