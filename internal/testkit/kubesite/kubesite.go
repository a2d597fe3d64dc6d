// Package kubesite starts a Kubernetes cluster of a site for tests: the stock API server,
// controller manager and scheduler and stock kubelets, which run no containers but think so. A
// Deployment becomes available, a Job completes, and pods crash and images fail when a test
// says so. Logs, exec, attach, cp and port-forward work.
//
// The cluster is a process of its own, because Kubernetes' libraries keep state of the process
// and take minutes to build: whoever imports this package doesn't link them. The first test on a
// machine builds the command, which needs the Go tool.
//
// What pretends: containers run a small shell instead of their image, with commands such as
// cat, ls, env, sleep and tar over a directory of their own. A command that it doesn't know serves for
// ever, or ends well where the pod waits for its end (Jobs, init containers). Probes find
// whatever runs ready. Services have addresses and endpoints and lead nowhere.
package kubesite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"muster.dev/muster/internal/disk"
)

// Version is the version of Kubernetes that a cluster says it is.
const Version = "v1.35.4"

// Options of a Cluster.
type Options struct {
	Nodes  int               // 0: one
	Prefix string            // of the names of nodes, which are <Prefix>1, <Prefix>2; empty: "node-"
	Labels map[string]string // of the nodes
	Dir    string            // where the cluster is kept; empty: a temporary directory
}

// Cluster is a cluster. Its methods fail the test if they can't do what they say.
type Cluster struct {
	Kubeconfig string       // file of the administrator's kubeconfig
	Config     *rest.Config // the administrator's
	Client     kubernetes.Interface
	Dir        string

	t       testing.TB
	o       Options
	binary  string
	process *Process
}

// Start starts a cluster, which ends with the test, and returns when its nodes are ready.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatalf("build a site's cluster: %v", err)
	}
	if o.Dir == "" {
		// Sockets lie in it, whose paths may not be as long as those of tests.
		if o.Dir, err = os.MkdirTemp("", "kubesite-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(o.Dir) })
	}
	c := &Cluster{t: t, o: o, Dir: o.Dir, binary: binary, Kubeconfig: filepath.Join(o.Dir, "admin.kubeconfig")}
	t.Cleanup(c.kill)
	c.Restart()
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	c.Config.QPS, c.Config.Burst = 200, 400
	if c.Client, err = kubernetes.NewForConfig(c.Config); err != nil {
		t.Fatal(err)
	}
	return c
}

// Kill ends the whole cluster as a power cut does, containers and all.
func (c *Cluster) Kill() {
	c.t.Helper()
	if c.process == nil {
		c.t.Fatal("the cluster is not running")
	}
	c.kill()
}

func (c *Cluster) kill() {
	if c.process == nil {
		return
	}
	c.process.Kill()
	c.process = nil
}

// Restart starts the cluster anew, after Kill, on the same data and at the same address.
func (c *Cluster) Restart() {
	c.t.Helper()
	var err error
	if c.process, err = run(c.binary, c.o); err != nil {
		c.t.Fatal(err)
	}
}

// ConfigAs is a client configuration with a token of a service account, good for an hour.
func (c *Cluster) ConfigAs(namespace, account string) *rest.Config {
	c.t.Helper()
	cfg, err := configAs(context.Background(), c.Config, namespace, account, time.Hour)
	if err != nil {
		c.t.Fatal(err)
	}
	return cfg
}

// Process is the cluster's process, for measurements.
func (c *Cluster) Process() *os.Process { return c.process.cmd.Process }

// Crash has all containers of a pod exit with a code, as if by themselves.
func (c *Cluster) Crash(namespace, pod string, code int) {
	c.t.Helper()
	c.do("crash", "namespace", namespace, "pod", pod, "code", strconv.Itoa(code))
}

// Say has the running containers of a pod write a line into their logs.
func (c *Cluster) Say(namespace, pod, line string) {
	c.t.Helper()
	c.do("say", "namespace", namespace, "pod", pod, "line", line)
}

// CrashImage has containers exit with 1 as they start whose images' names contain this.
func (c *Cluster) CrashImage(image string) {
	c.t.Helper()
	c.do("die", "image", image)
}

// FailPull has pulls of images fail whose names contain this, until HealPull. No node has
// them any more either.
func (c *Cluster) FailPull(image string) {
	c.t.Helper()
	c.do("pull", "image", image, "fail", "true")
}

// HealPull ends FailPull. The kubelet tries again when its back-off is over.
func (c *Cluster) HealPull(image string) {
	c.t.Helper()
	c.do("pull", "image", image, "fail", "false")
}

// CutNode cuts a node off the API server, in both directions. After ten seconds it isn't ready;
// what runs there goes on.
func (c *Cluster) CutNode(node string) {
	c.t.Helper()
	c.do("network", "node", node, "cut", "true")
}

// JoinNode ends CutNode.
func (c *Cluster) JoinNode(node string) {
	c.t.Helper()
	c.do("network", "node", node, "cut", "false")
}

// StopServer has the API server go away, for the cluster's own parts, too: connections end, and
// new ones are refused. What runs goes on.
func (c *Cluster) StopServer() {
	c.t.Helper()
	c.do("apiserver", "down", "true")
}

// StartServer ends StopServer.
func (c *Cluster) StartServer() {
	c.t.Helper()
	c.do("apiserver", "down", "false")
}

func (c *Cluster) do(what string, args ...string) {
	c.t.Helper()
	q := url.Values{}
	for i := 0; i < len(args); i += 2 {
		q.Set(args[i], args[i+1])
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.process.control+"/"+what+"?"+q.Encode(), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	if said, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		c.t.Fatalf("%s %s: %s", what, strings.Join(args, " "), bytes.TrimSpace(said))
	}
}

var build = sync.OnceValues(func() (string, error) { return Build() })

// Build returns the command that runs a cluster. It lies in the user's cache, one for each
// checkout; the Go tool makes it anew if it has to, which takes a second if it hasn't.
func Build() (string, error) {
	const of = "muster.dev/muster/internal/testkit/kubesite/cmd"
	root, err := exec.Command("go", "list", "-f", "{{.Module.Dir}}", "muster.dev/muster/internal/testkit/kubesite").Output()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	parent := filepath.Join(cache, "muster-test")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	sum := sha256.Sum256(bytes.TrimSpace(root))
	path := filepath.Join(parent, "kubesite-"+hex.EncodeToString(sum[:6]))
	lock, err := disk.WaitLockFile(context.Background(), path+".lock")
	if err != nil {
		return "", err
	}
	defer lock.Close()
	number := strings.Split(strings.TrimPrefix(Version, "v"), ".")
	var flags []string
	for _, in := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags, "-X "+in+".gitVersion="+Version, "-X "+in+".gitMajor="+number[0], "-X "+in+".gitMinor="+number[1])
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-tags=slicelabels", "-ldflags=-s -w "+strings.Join(flags, " "), "-o", path, of)
	cmd.Dir = string(bytes.TrimSpace(root))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", of, err, out)
	}
	return path, nil
}
